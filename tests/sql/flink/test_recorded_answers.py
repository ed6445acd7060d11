"""Row patterns and lookup joins, compared with recorded answers of Flink 2.3.0."""

from __future__ import annotations

import json
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.query_running import changelog, environment
from tests.support.tiers import sampled

from millstream.common import Row
from millstream.errors import MillstreamError
from millstream.table import DataTypes, TableEnvironment
from millstream.table.udf import udf

RECORDED: Final = Path(__file__).parent
#: Statements with another answer here, and why.
DIFFERENT: Final = {
    "plain-join": "the recorded connector can only look rows up",
    "select-dim": "the recorded connector can only look rows up",
    "using": "PyFlink cannot collect a processing time attribute",
    "natural": "PyFlink cannot collect a processing time attribute",
    "view-dim": "Flink fails to generate code for a filtered view that is looked up",
    "define-undeclared-prev": "PREV is refused also where Flink ignores the definition",
}


@cache
def _cases(file: str) -> dict[str, tuple[str, list[str] | str]]:
    """The statement of each name, and Flink's rows or its error."""
    found: dict[str, tuple[str, list[str] | str]] = json.loads((RECORDED / file).read_text())[
        "cases"
    ]
    return found


@udf(result_type=DataTypes.INT())
def twice(number: int) -> int:
    return number * 2


def _csv(env: TableEnvironment, columns: str, table: str, file: str) -> None:
    env.execute_sql(
        f"CREATE TABLE {table} ({columns}) WITH ('connector' = 'filesystem', 'format' = 'csv', "
        f"'path' = '{RECORDED / file}', 'csv.null-literal' = '~')"
    )


def _ticks() -> TableEnvironment:
    env = environment(1, table__local_time_zone="UTC")
    columns = "id INT, symbol STRING, price INT, tax INT, note STRING, ts TIMESTAMP(3)"
    watermark = "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
    _csv(env, f"{columns}, {watermark}", "ticks", "ticks.csv")
    env.create_temporary_function("twice", twice)
    return env


def _orders(directory: Path) -> TableEnvironment:
    env = environment(1)
    columns = (
        "id INT, k INT, name STRING, amount INT, note STRING, ts TIMESTAMP(3), p AS PROCTIME()"
    )
    _csv(env, f"{columns}, WATERMARK FOR ts AS ts", "o", "orders.csv")
    database = directory / "tables.db"
    with sqlite3.connect(database) as connection:
        for name in "de":
            connection.execute(f"CREATE TABLE {name} (id INT, name TEXT, qty INT, rate REAL)")
            for line in (RECORDED / f"{name}.csv").read_text().splitlines():
                values = [None if each == "~" else each for each in line.split(",")]
                connection.execute(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", values)
    connection.close()
    for table, stored, key in (("d", "d", True), ("e", "e", False), ("a", "d", True)):
        columns = "id INT, name STRING, qty INT, rate DOUBLE"
        columns += ", PRIMARY KEY (id) NOT ENFORCED" if key else ""
        env.execute_sql(
            f"CREATE TABLE {table} ({columns}) WITH ('connector' = 'sqlite', "
            f"'path' = '{database}', 'table-name' = '{stored}')"
        )
    env.execute_sql("CREATE VIEW dv AS SELECT id, name FROM d WHERE qty > 5")
    return env


def _value(value: object) -> str:
    """As PyFlink shows it, whose rows that are collected have no names."""
    if isinstance(value, Row):
        return f"<Row({', '.join(map(_value, value))})>"
    return repr(value)


def _text(row: Any, *, kind: bool) -> str:
    values = f"({', '.join(map(_value, row))})"
    return f"{str(row.get_row_kind()).removeprefix('RowKind.')} {values}" if kind else values


def _compare(file: str, name: str, env: TableEnvironment, directory: Path) -> None:
    statement, wanted = _cases(file)[name]
    if isinstance(wanted, str):
        with pytest.raises(MillstreamError):
            changelog(env, statement, directory, limit=400)
        return
    kind = file == "lookup_joins.json"
    found = [_text(row, kind=kind) for row in changelog(env, statement, directory, limit=400)]
    assert sorted(found) == wanted


def _names(file: str, count: int) -> list[object]:
    names = [name for name in _cases(file) if name not in DIFFERENT]
    # Every eleventh first, so that a sample has statements of all kinds.
    return sampled([name for start in range(11) for name in names[start::11]], count)


@pytest.mark.parametrize("name", _names("row_patterns.json", 30))
def test_row_pattern(name: str, tmp_path: Path) -> None:
    _compare("row_patterns.json", name, _ticks(), tmp_path)


@pytest.mark.parametrize("name", _names("lookup_joins.json", 12))
def test_lookup_join(name: str, tmp_path: Path) -> None:
    _compare("lookup_joins.json", name, _orders(tmp_path), tmp_path)


def test_differences_are_statements() -> None:
    assert {*_cases("row_patterns.json"), *_cases("lookup_joins.json")} >= DIFFERENT.keys()
