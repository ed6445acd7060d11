"""Statements that make no sense and that Flink 2.3 refuses before a job starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.query_running import environment

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from millstream.table import TableEnvironment

TABLES = (
    "CREATE TABLE src (a INT, b STRING) WITH ('connector' = 'datagen')",
    "CREATE TABLE codes (op STRING, b STRING) WITH ('connector' = 'datagen')",
)


@pytest.fixture(scope="module")
def env() -> TableEnvironment:
    made = environment()
    for each in TABLES:
        made.execute_sql(each)
    return made


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("JSON('{}')", r"only supported as an element of JSON_ARRAY"),
        ("JSON_STRING(JSON('{}'))", r"only supported as an element"),
        ("UPPER(JSON('{}'))", r"only supported as an element"),
        ("JSON_OBJECT('a' VALUE UPPER(JSON('{}')))", r"only supported as an element"),
        ("JSON_QUERY(JSON('{}'), '$')", r"only supported as an element"),
        ("CAST(JSON('{}') AS STRING)", r"only supported as an element"),
        ("ELT(-1, 'a')", "-1 is no index"),
        ("EXTRACT(NANOSECOND FROM DATE '2020-01-01')", "NANOSECOND can not be applied to DATE"),
        ("EXTRACT(MICROSECOND FROM DATE '2020-01-01')", "can not be applied to DATE"),
        ("EXTRACT(DAY FROM TIME '10:00:00')", "DAY can not be applied to TIME"),
        ("EXTRACT(EPOCH FROM TIME '10:00:00')", "EPOCH can not be applied to TIME"),
        ("EXTRACT(NANOSECOND FROM TIME '10:00:00')", "can not be applied to TIME"),
        ("EXTRACT(DAY FROM INTERVAL '1' YEAR)", "DAY can not be applied to INTERVAL"),
        ("FLOOR(TIMESTAMP '2020-01-01 00:00:00' TO EPOCH)", "rounded to EPOCH"),
        ("CEIL(TIMESTAMP '2020-01-01 00:00:00' TO DOW)", "rounded to DOW"),
        ("TIMESTAMPADD(NANOSECOND, 1, TIMESTAMP '2020-01-01 00:00:00')", "cannot be added"),
        ("TIMESTAMPADD(EPOCH, 1, TIMESTAMP '2020-01-01 00:00:00')", "EPOCH cannot be added"),
        ("COUNT(DISTINCT a, a)", "takes one argument"),
        ("SHA2('a', 1)", "there are 224, 256, 384 and 512 bits, not 1"),
        ("SHA2('a', 0)", "not 0"),
        ("SHA2(CAST(a AS STRING), 100)", "not 100"),
        ("CAST(INTERVAL '1' DAY AS INT)", "cannot convert value of type INTERVAL DAY"),
        ("CAST(INTERVAL '1' MONTH AS BIGINT)", "cannot convert value of type INTERVAL MONTH"),
        ("CAST(INTERVAL '1' SECOND AS DECIMAL(10, 3))", "cannot convert value"),
        ("CAST(INTERVAL '1' SECOND AS DOUBLE)", "cannot convert value"),
        ("TRY_CAST(INTERVAL '1' DAY AS BIGINT)", "cannot convert value"),
        ("CONVERT(INT, INTERVAL '1' DAY)", "cannot convert value"),
        ("{fn CONVERT(INTERVAL '1' DAY, SQL_INTEGER)}", "cannot convert value"),
    ],
)
def test_calls_with_constants_that_do_not_fit(
    env: TableEnvironment, expression: str, message: str
) -> None:
    with pytest.raises(MillstreamError, match=message):
        env.explain_sql(f"SELECT {expression} FROM (VALUES (1)) AS t(a)")


@pytest.mark.parametrize(
    "expression",
    [
        "JSON_OBJECT('a' VALUE JSON('{}'))",
        "JSON_ARRAY(JSON('[1]'), 1)",
        "JSON_OBJECT('a' VALUE JSON_OBJECT('b' VALUE JSON('{}')))",
        "ELT(0, 'a')",
        "ELT(a, 'x', 'y')",
        "EXTRACT(HOUR FROM DATE '2020-01-01')",
        "EXTRACT(EPOCH FROM DATE '2020-01-01')",
        "EXTRACT(MILLISECOND FROM TIME '10:00:00')",
        "EXTRACT(NANOSECOND FROM TIMESTAMP '2020-01-01 00:00:00')",
        "TIMESTAMPADD(MILLISECOND, 1, TIMESTAMP '2020-01-01 00:00:00')",
        "SHA2('a', 224)",
        "SHA2('a', CAST(NULL AS INT))",
        "SHA2('a', a)",
        "CAST(1 AS INTERVAL DAY)",
        "CAST(INTERVAL '1' HOUR AS STRING)",
    ],
)
def test_those_that_fit_are_taken(env: TableEnvironment, expression: str) -> None:
    env.explain_sql(f"SELECT {expression} FROM (VALUES (1)) AS t(a)")


@pytest.mark.parametrize(
    ("call", "is_taken"),
    [
        ("TO_CHANGELOG(input => TABLE src, op_mapping => MAP['INSERT', 'a', 'INSERT', 'b'])", True),
        ("TO_CHANGELOG(input => TABLE src, op_mapping => MAP['INSERT', 'a', 'DELETE', 'a'])", True),
        (
            "TO_CHANGELOG(input => TABLE src, op_mapping => MAP['INSERT,DELETE','','INSERT',''])",
            False,
        ),
        ("TO_CHANGELOG(input => TABLE src, op_mapping => MAP['INSERT,INSERT', 'a'])", False),
        ("FROM_CHANGELOG(input => TABLE codes, op_mapping => MAP['c, r', 'INSERT'])", True),
        ("FROM_CHANGELOG(input => TABLE codes, op_mapping => MAP['c,c', 'INSERT'])", False),
        (
            "FROM_CHANGELOG(input => TABLE codes, op_mapping => MAP['c', 'INSERT', 'd', 'INSERT'])",
            False,
        ),
    ],
)
def test_a_kind_of_change_is_mapped_once(env: TableEnvironment, call: str, is_taken: bool) -> None:
    if is_taken:
        env.explain_sql(f"SELECT * FROM {call}")
        return
    with pytest.raises(MillstreamError, match="Duplicate mapping"):
        env.explain_sql(f"SELECT * FROM {call}")


@pytest.mark.parametrize(
    ("keys", "message"),
    [("()", "does not support empty key"), ("('connector')", "changing 'connector'")],
)
def test_reset_takes_keys_that_can_go(env: TableEnvironment, keys: str, message: str) -> None:
    with pytest.raises(MillstreamError, match=message):
        env.execute_sql(f"ALTER TABLE src RESET {keys}")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FROM (SELECT a, a FROM src) AS t", "Column 'a' is ambiguous"),
        ("SELECT t.* FROM (SELECT a, b AS a FROM src) AS t", "Column 'a' is ambiguous"),
        ("SELECT a FROM (SELECT a, a FROM src) AS t", "Column 'a' is ambiguous"),
        ("WITH t AS (SELECT a, a FROM src) SELECT * FROM t", "'t' has two columns 'a'"),
        ("WITH t AS (SELECT a, a FROM src) SELECT 1 FROM t", "'t' has two columns 'a'"),
        ("CREATE TEMPORARY VIEW v AS SELECT a, a FROM src", "the same name 'a' has been defined"),
        ("CREATE TEMPORARY VIEW v AS SELECT a AS b, b FROM src", "the same name 'b'"),
        ("CREATE TEMPORARY VIEW v (p, p) AS SELECT a, b FROM src", "'p' already exists"),
    ],
)
def test_columns_of_one_name(env: TableEnvironment, statement: str, message: str) -> None:
    with pytest.raises(MillstreamError, match=message):
        env.execute_sql(statement)


JOINED = "src AS x JOIN src AS y ON x.a = y.a"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT * FROM {JOINED}",
        f"SELECT x.a, y.a FROM {JOINED}",
        f"SELECT a FROM (SELECT * FROM {JOINED}) AS t",
        f"SELECT * FROM (SELECT * FROM {JOINED}) AS t",
        f"WITH t AS (SELECT * FROM {JOINED}) SELECT * FROM t",
        "WITH t (p, q) AS (SELECT a, a FROM src) SELECT p FROM t",
        "SELECT *, a FROM src",
        "SELECT a, a FROM src",
        "SELECT p FROM (SELECT a, a FROM src) AS t (p, q)",
    ],
)
def test_columns_of_one_name_that_are_told_apart(env: TableEnvironment, query: str) -> None:
    env.explain_sql(query)


def test_a_view_of_a_join_tells_columns_apart(env: TableEnvironment) -> None:
    env.execute_sql(f"CREATE TEMPORARY VIEW pairs AS SELECT * FROM {JOINED}")
    assert env.from_path("pairs").get_schema().get_field_names() == ["a", "b", "a0", "b0"]
    env.execute_sql("CREATE TEMPORARY VIEW named (p, q) AS SELECT a, a FROM src")
    assert env.from_path("named").get_schema().get_field_names() == ["p", "q"]
