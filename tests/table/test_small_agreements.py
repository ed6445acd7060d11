"""Small things that PyFlink's own tests depend on, with answers measured on Flink 2.3.0."""

from __future__ import annotations

import datetime as dt
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import changelog, environment

from millstream.connectors.basic.collect import read_collected
from millstream.errors import CatalogError, TableAlreadyExistError, ValidationError
from millstream.table import DataTypes, Schema, TableDescriptor
from millstream.table.expressions import col, lit
from millstream.table.udf import udaf, udf, udtaf, udtf
from millstream.table.window import Slide, Tumble
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import Table

FORMER = "'connector.type' = 'filesystem', 'format.type' = 'csv'"


def result(table: Table, directory: Path) -> list[tuple[Any, ...]]:
    session = table._environment.session
    end = session.collected(table.plan, str(directory))
    MiniCluster(session.program.graph_of([end], "test")).run()
    found: list[Any] = list(read_collected(directory))
    return sorted(tuple(row) for row in found)


def second(number: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, 0, 0, number)  # noqa: DTZ001 - of no time zone


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_windows_of_bounded_tables_over_milliseconds(zone: str, tmp_path: Path) -> None:
    env = environment(1, **{"execution.runtime-mode": "BATCH", "table.local-time-zone": zone})
    rows = [(1000, 1, "Hello"), (1500, 2, "Hello"), (2500, 4, "Hello"), (9000, 8, "x")]
    table = env.from_elements(rows, ["a", "b", "c"])
    shown = (col("c"), col("b").sum, col("w").start, col("w").end)
    tumbling = table.window(Tumble.over(lit(2).seconds).on(col("a")).alias("w"))
    assert result(tumbling.group_by(col("w"), col("c")).select(*shown), tmp_path / "tumble") == [
        ("Hello", 3, second(0), second(2)),
        ("Hello", 4, second(2), second(4)),
        ("x", 8, second(8), second(10)),
    ]
    sliding = table.window(Slide.over(lit(2).seconds).every(lit(1).seconds).on(col("a")).alias("w"))
    assert result(sliding.group_by(col("w"), col("c")).select(*shown), tmp_path / "slide") == [
        ("Hello", 3, second(0), second(2)),
        ("Hello", 4, second(2), second(4)),
        ("Hello", 7, second(1), second(3)),
        ("x", 8, second(8), second(10)),
        ("x", 8, second(9), second(11)),
    ]


def test_windows_of_streams_need_a_time_attribute() -> None:
    table = environment().from_elements([(1000, 1)], ["a", "b"])
    windows = table.window(Tumble.over(lit(2).seconds).on(col("a")).alias("w"))
    with pytest.raises(ValidationError, match="time attribute"):
        windows.group_by(col("w")).select(col("b").sum)


def test_csv_files_are_declared_by_former_options(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("2;3;2018-03-11 03:10:00;more\n1;'a;b';\n")
    env = environment()
    env.execute_sql(
        f"CREATE TABLE t (a TINYINT, b STRING, c TIMESTAMP(3)) WITH ({FORMER}, 'connector.path' = "
        f"'{tmp_path / 'rows.csv'}', 'format.ignore-first-line' = 'false', "
        "'format.field-delimiter' = ';', 'format.quote-character' = '''')"
    )
    rows = [tuple(row) for row in changelog(env, "SELECT * FROM t", tmp_path)]
    time = dt.datetime(2018, 3, 11, 3, 10)  # noqa: DTZ001 - of no time zone
    assert rows == [(2, "3", time), (1, "a;b", None)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (FORMER, "Could not find required property 'connector.path'"),
        (f"{FORMER}, 'connector.path' = 'x', 'format.bogus' = '1'", "'format.bogus' together with"),
        (f"{FORMER}, 'format.ignore-first-line' = 'true'", "'format.ignore-first-line' = 'true'"),
        ("'connector.type' = 'kafka', 'format.type' = 'json'", "'connector.type' = 'kafka' with"),
    ],
)
def test_other_former_options_are_refused(options: str, message: str) -> None:
    env = environment()
    env.execute_sql(f"CREATE TABLE t (a INT) WITH ({options})")
    with pytest.raises(ValidationError, match=message):
        env.explain_sql("SELECT * FROM t")


class NoFunction:
    """Has no ``eval``."""


@pytest.mark.parametrize("make", [udf, udtf, udaf, udtaf])
@pytest.mark.parametrize("given", [1, "x", NoFunction(), NoFunction])
def test_what_cannot_be_called_is_no_function(make: Any, given: Any) -> None:
    text = r"Invalid function: not a function or callable \(__call__ is not defined\): <class '"
    with pytest.raises(TypeError, match=text):
        make(given)


def test_errors_of_tables_that_exist() -> None:
    env = environment()
    schema = Schema.new_builder().column("f0", DataTypes.INT()).build()
    descriptor = TableDescriptor.for_connector("datagen").schema(schema).build()
    env.create_table("T", descriptor)
    env.create_table("T", descriptor, True)
    with pytest.raises(TableAlreadyExistError) as found:
        env.create_table("T", descriptor)
    path = "`default_catalog`.`default_database`.`T`"
    assert str(found.value).startswith(f"Could not execute CreateTable in path {path}: Table (or")
    env.create_temporary_table("T", descriptor)
    with pytest.raises(CatalogError, match="already exists"):
        env.create_temporary_table("T", descriptor)


@pytest.mark.both_engines
def test_functions_read_the_environment_of_their_worker(tmp_path: Path) -> None:
    def described(_: int) -> str:
        names = ("python", "_PYTHON_WORKER_MEMORY_LIMIT")
        return " ".join(os.environ[name] for name in names)

    function = udf(described, result_type=DataTypes.STRING())
    table = environment().from_elements([(1,)], ["a"]).select(function(col("a")))
    assert result(table, tmp_path / "out") == [(f"{sys.executable} -1",)]
