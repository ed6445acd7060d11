"""What the binder says to statements that make no sense: whole messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.query_running import environment

from millstream.errors import ProgramError, ValidationError
from millstream.sql.catalog.connectors import FACTORIES

if TYPE_CHECKING:
    from millstream.table import TableEnvironment


@pytest.fixture
def env() -> TableEnvironment:
    made = environment()
    made.execute_sql(
        "CREATE TABLE clicks (name STRING, url STRING, ts TIMESTAMP(3), n INT) "
        "WITH ('connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'json')"
    )
    return made


ERRORS = {
    "SELECT nmae FROM clicks": (
        "SQL, line 1, column 8: Column 'nmae' not found in any table. "
        "Did you mean 'name'? There are: name, url, ts, n.\n"
        "    SELECT nmae FROM clicks\n"
        "           ^^^^"
    ),
    "SELECT c.nmae\nFROM clicks AS c": (
        "SQL, line 1, column 8: Column 'nmae' not found in table 'c'. "
        "Did you mean 'name'? Its columns are: name, url, ts, n.\n"
        "    SELECT c.nmae\n"
        "           ^^^^^^"
    ),
    "SELECT name\nFROM click": (
        "SQL, line 2, column 6: Table 'click' not found. "
        "Did you mean 'clicks'?\n"
        "    FROM click\n"
        "         ^^^^^"
    ),
    "SELECT COALESC(name) FROM clicks": (
        "SQL, line 1, column 8: Function 'COALESC' not found. "
        "Did you mean 'COALESCE'?\n"
        "    SELECT COALESC(name) FROM clicks\n"
        "           ^^^^^^^^^^^^^"
    ),
    "SELECT name, COUNT(*) FROM clicks GROUP BY url": (
        "SQL, line 1, column 8: Column 'name' is not in GROUP BY "
        "(the keys are url); put it there, or into an aggregate.\n"
        "    SELECT name, COUNT(*) FROM clicks GROUP BY url\n"
        "           ^^^^"
    ),
    "SELECT SUM(name) FROM clicks": (
        "SQL, line 1, column 8: SUM does not take (STRING); it takes\n"
        "    SUM(numeric <NUMERIC>)\n"
        "    SELECT SUM(name) FROM clicks\n"
        "           ^^^^^^^^^"
    ),
    "SELECT * FROM clicks WHERE n": (
        "SQL, line 1, column 28: A condition must be BOOLEAN; this is INT.\n"
        "    SELECT * FROM clicks WHERE n\n"
        "                               ^"
    ),
    "SELECT name FROM clicks a, clicks b": (
        "SQL, line 1, column 8: Column 'name' is ambiguous: it is "
        "a.name or b.name.\n"
        "    SELECT name FROM clicks a, clicks b\n"
        "           ^^^^"
    ),
    "SELECT name FROM clicks WHERE COUNT(*) > 1": (
        "SQL, line 1, column 31: Aggregate COUNT cannot stand here; "
        "HAVING can have it.\n"
        "    SELECT name FROM clicks WHERE COUNT(*) > 1\n"
        "                                  ^^^^^^^^"
    ),
    "SELECT name FROM clicks UNION ALL SELECT name, url FROM clicks": (
        "SQL, line 1, column 1: UNION needs as many columns on both sides; "
        "there are 1 and 2.\n"
        "    SELECT name FROM clicks UNION ALL SELECT name, url FROM clicks\n"
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"
    ),
    "SELECT * FROM TUMBEL(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' MINUTE)": (
        "SQL, line 1, column 15: Table function 'TUMBEL' not found. Did you mean 'TUMBLE'?\n"
        "    SELECT * FROM TUMBEL(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' MINUTE)\n"
        f"                  {'^' * 57}"
    ),
    "SELECT LAG(n) FROM clicks": (
        "SQL, line 1, column 8: LAG needs OVER: LAG(...) OVER (ORDER BY ...).\n"
        "    SELECT LAG(n) FROM clicks\n"
        "           ^^^^^^"
    ),
    "SELECT COUNT(DISTINCT *) FROM clicks": (
        "SQL, line 1, column 8: DISTINCT of * is not possible: name the columns.\n"
        "    SELECT COUNT(DISTINCT *) FROM clicks\n"
        "           ^^^^^^^^^^^^^^^^^"
    ),
    "SELECT a FROM (VALUES (1, 2)) AS t (a, a)": (
        "SQL, line 1, column 15: Columns named twice: a.\n"
        "    SELECT a FROM (VALUES (1, 2)) AS t (a, a)\n"
        "                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^"
    ),
    "SELECT window_start FROM TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' MINUTE)": (
        "SQL, line 1, column 47: The window function requires the timecol is "
        "a time attribute type, but 'ts' is TIMESTAMP(3); declare WATERMARK FOR it, or use "
        "PROCTIME().\n"
        "    SELECT window_start FROM TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' MINUTE)\n"
        "                                                  ^^^^^^^^^^^^^^"
    ),
}


@pytest.mark.parametrize("query", ERRORS)
def test_the_binder_says_what_where_and_what_instead(env: TableEnvironment, query: str) -> None:
    with pytest.raises(ValidationError) as raised:
        env.sql_query(query)
    assert str(raised.value) == ERRORS[query]


def test_an_append_only_sink_refuses_a_query_that_updates(env: TableEnvironment) -> None:
    env.execute_sql(
        "CREATE TABLE counts (name STRING, n BIGINT) "
        "WITH ('connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'csv')"
    )
    with pytest.raises(ValidationError) as raised:
        env.explain_sql("INSERT INTO counts SELECT name, COUNT(*) FROM clicks GROUP BY name")
    assert str(raised.value) == (
        "Table sink 'default_catalog.default_database.counts' doesn't support consuming update "
        "changes which is produced by node GroupAggregate(groupBy=[name], "
        "select=[name, COUNT(*) AS EXPR$0])"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "'connector' = 'filesystm'",
            (
                "Table 'default_catalog.default_database.x': there is no connector 'filesystm'. "
                f"Did you mean 'filesystem'? There are: {', '.join(sorted(FACTORIES)[:12])}, and "
            ),
        ),
        (
            "'connector' = 'filesystem', 'path' = '/x', 'formt' = 'csv'",
            "connector 'filesystem' has no option 'formt'. Did you mean 'format'? It has 'format'",
        ),
        (
            "'connector' = 'filesystem', 'format' = 'csv'",
            "connector 'filesystem' needs the option 'path'.",
        ),
        (
            "'connector' = 'filesystem', 'path' = '/x', 'format' = 'cvs'",
            "connector 'filesystem' has no format 'cvs'. Did you mean 'csv'? It has ",
        ),
        (
            "'connector' = 'datagen', 'fields.a.kind' = 'rndom'",
            (
                "connector 'datagen': invalid value for option 'fields.a.kind': it must be one of "
                "random, sequence, not 'rndom'. Did you mean 'random'?"
            ),
        ),
    ],
)
def test_options_of_connectors_are_checked_by_name(
    env: TableEnvironment, options: str, message: str
) -> None:
    env.execute_sql(f"CREATE TABLE x (a INT) WITH ({options})")
    with pytest.raises(ProgramError) as raised:
        env.sql_query("SELECT * FROM x")
    assert message in str(raised.value).splitlines()[0]


def test_columns_of_an_insert_are_held_against_the_table(env: TableEnvironment) -> None:
    env.execute_sql("CREATE TABLE target (name INT) WITH ('connector' = 'print')")
    with pytest.raises(ValidationError) as raised:
        env.explain_sql("INSERT INTO target SELECT name FROM clicks")
    assert (
        "Column types of query result and sink for 'default_catalog.default_database.target' "
        "do not match.\nCause: Incompatible types for sink column 'name' at position 1.\n\n"
        "Query schema: [name: STRING]\nSink schema:  [name: INT]"
    ) in str(raised.value)


def test_a_misspelt_option_of_tables_gets_a_suggestion(
    env: TableEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    env.execute_sql("SET 'table.exec.mini-batch.enabeld' = 'true'")
    assert "did you mean 'table.exec.mini-batch.enabled'?" in caplog.text
