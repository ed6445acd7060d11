"""Columns with text that is no time, pattern or zone give what Flink 2.3 gives, and end no job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import ExpressionError
from millstream.table import EnvironmentSettings, TableEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = "DATE '2024-01-01'"
MOMENT = "TIMESTAMP '2024-01-01 00:00:00'"


@pytest.fixture
def table_env() -> TableEnvironment:
    made = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    made.get_config().set("table.local-time-zone", "UTC")
    return made


def results(env: TableEnvironment, expression: str, *texts: str) -> list[str]:
    rows: Any
    values = ", ".join(f"('{text}')" for text in texts)
    query = f"SELECT CAST({expression} AS STRING) FROM (VALUES {values}) AS t(x)"
    with env.execute_sql(query).collect() as rows:
        return list(_texts(rows))


def _texts(rows: Any) -> Iterator[str]:
    for (value,) in rows:
        yield "NULL" if value is None else value


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        (f"x = {DAY}", "NULL"),
        (f"{DAY} <> x", "NULL"),
        (f"x IN ({DAY})", "NULL"),
        (f"x IS DISTINCT FROM {DAY}", "TRUE"),
        (f"CASE {DAY} WHEN x THEN 1 ELSE 2 END", "2"),
        (f"NULLIF(x, {DAY})", "unreadable"),
        ("TIME '10:00:00' = x", "NULL"),
        (f"x = {MOMENT}", "NULL"),
        ("x = TO_TIMESTAMP_LTZ(0, 3)", "NULL"),
        ("TO_TIMESTAMP_LTZ(x, 'yyyy')", "NULL"),
        ("TO_TIMESTAMP_LTZ('2024-01-01 00:00:00', x)", "NULL"),
        ("TO_TIMESTAMP_LTZ('2024-01-01 00:00:00', 'yyyy-MM-dd HH:mm:ss', x)", "NULL"),
        ("TO_TIMESTAMP('2024', x)", "NULL"),
    ],
)
def test_unreadable_text_is_null(table_env: TableEnvironment, expression: str, first: str) -> None:
    assert results(table_env, expression, "unreadable")[0] == first


def test_text_that_is_a_day_is_compared_as_one(table_env: TableEnvironment) -> None:
    assert results(table_env, f"x = {DAY}", "unreadable", "2024-01-01", "2024-1-2") == [
        "NULL",
        "TRUE",
        "FALSE",
    ]


@pytest.mark.parametrize(
    "expression", [f"x < {DAY}", f"{MOMENT} >= x", "x > TIME '10:00:00'", "TO_TIMESTAMP_LTZ(x)"]
)
def test_what_fails_in_flink_fails(table_env: TableEnvironment, expression: str) -> None:
    with pytest.raises(ExpressionError):
        results(table_env, expression, "unreadable")


def test_maps_are_keys_of_maps(table_env: TableEnvironment) -> None:
    rows: Any
    query = "SELECT MAP[MAP['a', 1], x], MAP[MAP['a', 1], x][MAP['a', 1]] FROM (VALUES 7) AS t(x)"
    with table_env.execute_sql(query).collect() as rows:
        [[mapping, found]] = rows
    assert [*mapping.items()] == [({"a": 1}, 7)]
    assert found == 7
    assert results(table_env, "MAP[MAP[x, 1], 2]", "k") == ["{{k=1}=2}"]
