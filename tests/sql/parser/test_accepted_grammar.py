"""Constructs that Flink's parser takes, with the values that Flink 2.3 gives."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
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


@pytest.mark.sampled(every=4)
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
        ("N'it''s'", "it's"),
        ("_UTF8'ä'", "ä"),
        ("_utf-8'ä'", "ä"),
        ("_ISO-8859-1'ab'", "ab"),
        ("_BIG5'ä'", "ä"),
        ("_GBK'中'", "中"),
        ("_UTF16'a' = 'a'", True),
        ("{fn ABS(-1)} + 1", 2),
        ("{fn CEILING(1.5)}", Decimal(2)),
        ("{fn CONCAT('a', 'b')}", "ab"),
        ("{fn CONCAT(CAST(NULL AS STRING), 'b')}", None),
        ("{fn CONVERT('2020-01-01', SQL_DATE)}", dt.date(2020, 1, 1)),
        ("{fn CONVERT('1', INTEGER)}", 1),
        ("CAST({fn CONVERT(5, SQL_INTERVAL_DAY)} AS STRING)", "+5 00:00:00.000"),
        ("{fn IFNULL(CAST(NULL AS INT), 2)}", 2),
        ("{fn INSERT('abcd', 2, 1, 'x')}", "axcd"),
        ("{fn LENGTH('abc')}", 3),
        ("{fn LOCATE('b', 'abcb', 3)}", 4),
        ("{fn LOG(2)}", 0.6931471805599453),
        ("{fn PI()}", 3.141592653589793),
        ("{fn RTRIM(' a ')}", " a"),
        (f"{{fn TIMESTAMPDIFF(HOUR, {DAY}, TIMESTAMP '2020-01-01 05:00:00')}}", 5),
        ("{fn `UCASE`('a')}", "A"),
        ("{fn WEEK(DATE '2020-05-06')}", 19),
        ("CONVERT(INT, '1')", 1),
        ("CONVERT(VARCHAR(3), 12345, 1)", "123"),
        ("CONVERT(INT, '1', NULL)", 1),
        ("CONVERT(INT, NULL)", None),
        ("CONVERT(ARRAY<INT>, ARRAY['1'])", [1]),
        ("POSITION('b' IN 'abcb' FROM 3)", 4),
        ("POSITION('b' IN 'abcb' FROM 4)", 4),
        ("POSITION('b' IN 'abcb' FROM 5)", 0),
        ("POSITION('b' IN 'abcb' FROM -1)", 2),
        ("POSITION('' IN 'abc' FROM 10)", 1),
        ("POSITION('b' IN 'abcb' FROM CAST(NULL AS INT))", None),
        ("POSITION('b' IN CAST(NULL AS STRING) FROM 3)", None),
        ("1 IN ('1', '2')", True),
        ("'1' IN (1, 2.5)", True),
        ("1 NOT IN ('1')", False),
        ("1 IN ('1.5')", True),
        ("CAST(1.5 AS DOUBLE) IN ('1', '2')", False),
        ("1.50 IN ('1.5')", True),
        ("30 BETWEEN '1' AND 3", False),
        ("'30' BETWEEN 1 AND 3", False),
        ("'1' BETWEEN 1 AND '3'", True),
        ("'1' BETWEEN 1 AND 2.5", True),
        ("30 BETWEEN '1' AND '3'", False),
        ("CAST('a' AS VARCHAR(0))", ""),
        ("CAST(1 AS CHAR(0))", ""),
        ("TRY_CAST(1 AS VARCHAR(0))", ""),
        ("CAST(x'01' AS VARBINARY(0))", b""),
        ("CAST('x' AS VARCHAR(0)) || 'a'", "a"),
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
        "_FOO'ab'",
        "_US_ASCII'a'",
        "N'€'",
        "N 'ab'",
        "_UTF8x'01'",
        "DATE _UTF8'2020-01-01'",
        "INTERVAL _UTF8'1' DAY",
        "{fn UPPER('a')}",
        "{fn ucase('a')}",
        "{fn UCASE('a', 'b')}",
        "{fn LCASE()}",
        "{fn RAND()}",
        "{fn SUBSTRING('abc', 2, 1)}",
        "{fn LTRIM('a', 'a')}",
        "{fn CONCAT('a', 'b', 'c')}",
        "{fn CONVERT('1', INT)}",
        "{fn CONVERT('1', REAL)}",
        "{fn CONVERT(1, SQL_INTERVAL_WEEK)}",
        "CONVERT('1', INT)",
        "CONVERT(INT NOT NULL, '1')",
        "CONVERT(INT, '1', 'x')",
        "POSITION('b' IN 'abcb' FROM '2')",
        "POSITION('b' IN 'abcb' FROM 2.5)",
        "1 IN (1, '2')",
        "'1' IN (1, '2')",
        "1 IN (1, 'x', NULL)",
        "TRUE IN (1)",
        "1 = '1'",
        "1 IN ('x')",
        "1 BETWEEN 'x' AND 'y'",
    ],
)
def test_what_flink_refuses_stays_refused(expression: str) -> None:
    with pytest.raises(MillstreamError):
        rows(f"SELECT {expression}")


@pytest.mark.sampled(every=3)
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


@pytest.mark.parametrize("kind", ["VARCHAR(0)", "CHAR(0)", "VARBINARY(0)", "BINARY(0)"])
def test_columns_may_have_no_length(kind: str) -> None:
    env = environment()
    env.execute_sql(f"CREATE TABLE t (a {kind}) WITH ('connector' = 'datagen')")
    assert kind in str(env.from_path("t").get_schema())


def test_a_column_of_1_is_sha1() -> None:
    query = "SELECT SUBSTRING(SHA2('abc', a), 1, 8) FROM (VALUES (1)) AS t(a)"
    assert rows(query) == [("a9993e36",)]


def test_a_query_keeps_its_meaning_in_a_view() -> None:
    env = environment()
    values = "N'a', {fn INSERT('abcd', 2, 1, 'x')}, POSITION('b' IN 'abcb' FROM 3), 1 IN ('1')"
    env.execute_sql(f"CREATE VIEW v AS SELECT {values}, CONVERT(INT, '5')")
    with env.execute_sql("SELECT * FROM v").collect() as found:
        assert [tuple(row) for row in found if isinstance(row, Row)] == [("a", "axcd", 4, True, 5)]


def test_fields_of_rows_by_name() -> None:
    assert rows(f"SELECT r['a'], r['b'] FROM {ROW}") == [(1, "x")]
    with pytest.raises(ValidationError, match="Field 'c' not found"):
        rows(f"SELECT r['c'] FROM {ROW}")


@pytest.mark.parametrize("length", ["CAST(2 AS BIGINT)", "1 + 1", "2"])
def test_lengths_of_frames_are_any_constants(length: str) -> None:
    frame = f"ROWS BETWEEN {length} PRECEDING AND CURRENT ROW"
    found = rows(f"SELECT a, SUM(a) OVER (ORDER BY p {frame}) FROM {PROCTIME}")
    assert sorted(found) == [(1, 1), (2, 3), (3, 6), (4, 9)]
