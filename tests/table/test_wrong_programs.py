"""What wrong programs are told, in Flink's words where it has some: the whole message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.query_running import environment

from millstream.common import Row, RowKind, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import MillstreamError, ValidationError
from millstream.table import ChangelogMode, StreamTableEnvironment

if TYPE_CHECKING:
    from millstream.table import TableEnvironment

_DO_NOT_MATCH = (
    "Column types of query result and sink for 'default_catalog.default_database.two' do not match."
)
_NO_TIME = (
    "Invalid data type of time field for watermark definition. The field must be of type "
    "TIMESTAMP(p) or TIMESTAMP_LTZ(p), the supported precision 'p' is from 0 to 3, but the time "
    "field 'ts' is "
)
#: Statement -> the message without the excerpt behind it, or its beginning.
INSERTS = {
    "INSERT INTO two SELECT name FROM clicks": (
        f"{_DO_NOT_MATCH}\nCause: Different number of columns.\n\n"
        "Query schema: [name: STRING]\nSink schema:  [a: STRING, b: INT NOT NULL]"
    ),
    "INSERT INTO two SELECT name, n, url FROM clicks": (
        f"{_DO_NOT_MATCH}\nCause: Different number of columns.\n\n"
        "Query schema: [name: STRING, n: INT, url: STRING]\n"
        "Sink schema:  [a: STRING, b: INT NOT NULL]"
    ),
    "INSERT INTO two (a, b) SELECT name FROM clicks": (
        f"{_DO_NOT_MATCH}\nCause: Different number of columns."
    ),
    "INSERT INTO two VALUES (1, 'a')": (
        f"{_DO_NOT_MATCH}\nCause: Incompatible types for sink column 'a' at position 1."
    ),
    "INSERT INTO two VALUES ('a', 1), ('b')": "All rows of VALUES must have 2 columns; this has 1.",
    "INSERT INTO two (a) SELECT name FROM clicks": (
        "Column 'b' has no default value and does not allow NULLs."
    ),
    "INSERT INTO two (a, c) SELECT name, n FROM clicks": "Column 'c' of table 'two' not found.",
    "INSERT INTO tow SELECT name, n FROM clicks": "Table 'tow' not found. Did you mean 'two'?",
}
TABLES = {
    "ts STRING, WATERMARK FOR ts AS ts": f"{_NO_TIME}STRING.",
    "ts BIGINT, WATERMARK FOR ts AS ts - 5": f"{_NO_TIME}BIGINT.",
    "ts TIMESTAMP(6), WATERMARK FOR ts AS ts": f"{_NO_TIME}TIMESTAMP(6).",
    "tss TIMESTAMP(3), WATERMARK FOR ts AS ts": (
        "The rowtime attribute field 'ts' is not defined in the table schema. "
        "Did you mean 'tss'? There are: tss."
    ),
    "ts TIMESTAMP(3), WATERMARK FOR ts AS tss - INTERVAL '5' SECOND": (
        "SQL, line 1, column 54: Column 'tss' not found in any table. Did you mean 'ts'?"
    ),
    "ts TIMESTAMP(3), WATERMARK FOR ts AS 'x'": "The watermark of 'ts' must be a timestamp; it is",
    "a INT, PRIMARY KEY (b) NOT ENFORCED": "Invalid primary key 'PK_b'. Column 'b' does not exist.",
    "a INT, PRIMARY KEY (a)": "write NOT ENFORCED after it",
    "a INT, a STRING": "A column named 'a' already exists in the table.",
}
FUNCTIONS = {
    "UPER(name)": "Function 'UPER' not found. Did you mean 'UPPER'?",
    "COUNTT(*)": "Function 'COUNTT' not found. Did you mean 'COUNT'?",
    "shuot(name)": "Function 'shuot' not found. Did you mean 'shout'?",
    "my.db.nothing(name)": "Function 'my.db.nothing' not found.",
    "UPPER(*)": "Only COUNT takes *; UPPER does not.",
    "SUBSTR(name)": "SUBSTRING does not take (STRING); it takes\n    SUBSTRING(string",
    "TUMBLE_START(ts, INTERVAL '1' MINUTE)": (
        "Call to auxiliary group function 'TUMBLE_START' must have matching call to group function "
        "'TUMBLE' in GROUP BY clause"
    ),
}


@pytest.fixture
def env() -> TableEnvironment:
    from millstream.table.udf import udf

    made = environment()
    made.execute_sql(
        "CREATE TABLE clicks (name STRING, url STRING, ts TIMESTAMP(3), n INT) "
        "WITH ('connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'json')"
    )
    made.execute_sql("CREATE TABLE two (a STRING, b INT NOT NULL) WITH ('connector' = 'print')")
    made.create_temporary_function("shout", udf(str.upper, result_type="STRING"))
    return made


def _refusal(env: TableEnvironment, statement: str) -> str:
    with pytest.raises(MillstreamError) as refused:
        env.execute_sql(statement)
    return str(refused.value)


@pytest.mark.parametrize("statement", INSERTS)
def test_an_insert_that_does_not_fit(env: TableEnvironment, statement: str) -> None:
    assert INSERTS[statement] in _refusal(env, statement)


@pytest.mark.parametrize("columns", TABLES)
def test_a_table_that_makes_no_sense(env: TableEnvironment, columns: str) -> None:
    statement = f"CREATE TABLE t ({columns}) WITH ('connector' = 'datagen')"
    assert TABLES[columns] in _refusal(env, statement)
    assert "t" not in env.list_tables()


@pytest.mark.parametrize("call", FUNCTIONS)
def test_an_unknown_function(env: TableEnvironment, call: str) -> None:
    message = _refusal(env, f"EXPLAIN SELECT {call} FROM clicks")
    assert message.startswith("SQL, line 1, column 16: ")
    assert FUNCTIONS[call] in message


@pytest.mark.parametrize("connector", ["filesystem", "sqlite", "duckdb"])
@pytest.mark.parametrize(
    ("query", "changes", "node"),
    [
        ("SELECT name, COUNT(*) FROM clicks GROUP BY name", "update", "GroupAggregate("),
        (
            "SELECT a.name, a.n FROM clicks a LEFT JOIN clicks b ON a.name = b.url",
            "update and delete",
            "Join(joinType=[LeftOuterJoin]",
        ),
        ("SELECT name, n FROM clicks ORDER BY n LIMIT 3", "update and delete", "Rank("),
        (
            "SELECT name, n FROM clicks EXCEPT SELECT url, n FROM clicks",
            "update and delete",
            "GroupAggregate(groupBy=[name, n]",
        ),
    ],
)
def test_an_updating_query_into_a_table_that_only_grows(
    env: TableEnvironment, connector: str, query: str, changes: str, node: str
) -> None:
    env.execute_sql(
        f"CREATE TABLE grows (name STRING, n BIGINT) WITH ('connector' = '{connector}', "
        "'path' = '/nowhere', "
        + ("'format' = 'csv')" if connector == "filesystem" else "'table-name' = 't')")
    )
    message = _refusal(env, f"INSERT INTO grows {query}")
    assert message.startswith(
        "Table sink 'default_catalog.default_database.grows' doesn't support consuming "
        f"{changes} changes which is produced by node {node}"
    )


def test_a_stream_of_upserts_without_a_primary_key() -> None:
    stream_env = StreamExecutionEnvironment.get_execution_environment()
    env = StreamTableEnvironment.create(stream_env)
    kind = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()])
    stream = stream_env.from_collection([Row.of_kind(RowKind.UPDATE_AFTER, "a", 1)], kind)
    table = env.from_changelog_stream(stream, None, ChangelogMode.upsert())
    with pytest.raises(ValidationError, match="gives upserts and needs a PRIMARY KEY"):
        table.explain()
    env.create_temporary_view("t", env.from_data_stream(stream))
    sums = env.sql_query("SELECT SUM(v) AS s FROM t GROUP BY k")
    with pytest.raises(ValidationError, match="no key to identify its rows: GroupAggregate"):
        env.to_changelog_stream(sums, None, ChangelogMode.upsert())
