"""Constructs that Flink's parser takes, with the values that Flink 2.3 gives."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from tests.support.query_running import environment

from millstream.common import Row
from millstream.errors import MillstreamError, ValidationError

DAY = "TIMESTAMP '2020-01-01 00:00:00'"
LATER = "TIMESTAMP '2021-01-03 00:00:00'"
ROW = "(SELECT CAST(ROW(1, 'x') AS ROW<a INT, b STRING>) AS r)"
PROCTIME = "(SELECT a, PROCTIME() AS p FROM (VALUES (1), (2), (3), (4)) AS t(a))"


def rows(query: str) -> list[tuple[Any, ...]]:
    with environment().execute_sql(query).collect() as found:
        return [tuple(row) for row in found if isinstance(row, Row)]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (f"TIMESTAMPADD(SQL_TSI_SECOND, 1, {DAY})", dt.datetime(2020, 1, 1, 0, 0, 1)),  # noqa: DTZ001
        (f"TIMESTAMPADD(SQL_TSI_QUARTER, 1, {DAY})", dt.datetime(2020, 4, 1)),  # noqa: DTZ001
        (f"TIMESTAMPADD(sql_tsi_year, 1, {DAY})", dt.datetime(2021, 1, 1)),  # noqa: DTZ001
        (f"TIMESTAMPDIFF(SQL_TSI_WEEK, {DAY}, {LATER})", 52),
        (f"TIMESTAMPDIFF(SQL_TSI_MONTH, {DAY}, {LATER})", 12),
        (f"TIMESTAMPDIFF(SQL_TSI_MICROSECOND, {DAY}, TIMESTAMP '2020-01-01 00:00:01')", 1_000_000),
        (f"TIMESTAMPDIFF(FRAC_SECOND, {DAY}, TIMESTAMP '2020-01-01 00:00:01')", 1_000_000_000),
        ("TRIM(LEADING FROM '  a ')", "a "),
        ("TRIM(TRAILING FROM ' a  ')", " a"),
        ("TRIM(BOTH FROM ' a  ')", "a"),
        ("TRIM(BOTH ' a ')", "a"),
        ("TRIM(LEADING ' a ')", "a "),
        ("TRIM(TRAILING 'x' FROM 'xax')", "xa"),
        ("'a' LIKE 'a' ESCAPE ''", True),
        ("'a' NOT LIKE 'b' ESCAPE ''", True),
        (r"'a\%' LIKE 'a\%' ESCAPE ''", True),
        ("ROW(1, 2)['EXPR$1']", 2),
        ("""JSON_VALUE('{"a":1}', '$.a' ERROR ON ERROR ERROR ON EMPTY)""", "1"),
        ("""JSON_VALUE('{"a":1}', '$.a' ERROR ON ERROR NULL ON ERROR)""", "1"),
        ("""JSON_VALUE('{"a":1}', '$.a' RETURNING INT ERROR ON ERROR NULL ON EMPTY)""", 1),
        ("""JSON_VALUE('{}', '$.a' ERROR ON EMPTY NULL ON EMPTY)""", None),
        ("""JSON_QUERY('{"a":[1]}', '$.a' NULL ON ERROR EMPTY ARRAY ON EMPTY)""", "[1]"),
        ("{d '2020-01-02'}", dt.date(2020, 1, 2)),
        ("{ts '2020-01-01 00:00:00'}", dt.datetime(2020, 1, 1)),  # noqa: DTZ001
        ("{t '10:00:00'}", dt.time(10)),
        ("TIMESTAMP '2020-01-02'", dt.datetime(2020, 1, 2)),  # noqa: DTZ001
    ],
)
def test_oracle_values_are_those_of_flink(expression: str, value: Any) -> None:
    assert rows(f"SELECT {expression}") == [(value,)]


@pytest.mark.parametrize(
    "expression",
    [
        f"TIMESTAMPADD(SQL_TSI_NOTHING, 1, {DAY})",
        "EXTRACT(SQL_TSI_DAY FROM DATE '2020-01-01')",
        f"FLOOR({DAY} TO SQL_TSI_DAY)",
        "TRIM(FROM ' a ')",
        "CURRENT_USER",
        "USER",
        "1 != 2",
        "{x '2020-01-01'}",
    ],
)
def test_what_flink_refuses_stays_refused(expression: str) -> None:
    with pytest.raises(MillstreamError):
        rows(f"SELECT {expression}")


@pytest.mark.parametrize(
    "word",
    [
        "user",
        "current_user",
        "session_user",
        "system_user",
        "current_catalog",
        "current_path",
        "current_role",
    ],
)
def test_columns_named_as_users_need_no_backticks(word: str) -> None:
    query = f"SELECT {word}, COUNT(*) FROM (VALUES (1)) AS t(`{word}`) WHERE {word} > 0"
    assert rows(f"{query} GROUP BY {word}") == [(1, 1)]
    with pytest.raises(ValidationError, match=f"'{word}' not found"):
        rows(f"SELECT {word} FROM (VALUES (1)) AS t(a)")


def test_fields_of_rows_by_name() -> None:
    assert rows(f"SELECT r['a'], r['b'] FROM {ROW}") == [(1, "x")]
    with pytest.raises(ValidationError, match="Field 'c' not found"):
        rows(f"SELECT r['c'] FROM {ROW}")


@pytest.mark.parametrize("length", ["CAST(2 AS BIGINT)", "1 + 1", "2"])
def test_lengths_of_frames_are_any_constants(length: str) -> None:
    frame = f"ROWS BETWEEN {length} PRECEDING AND CURRENT ROW"
    found = rows(f"SELECT a, SUM(a) OVER (ORDER BY p {frame}) FROM {PROCTIME}")
    assert sorted(found) == [(1, 1), (2, 3), (3, 6), (4, 9)]
