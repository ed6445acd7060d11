"""What is computed anew of rows that are taken back: refused where kept rows are found by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.query_running import environment

from millstream.common import Row, RowKind, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ValidationError
from millstream.table import ChangelogMode, Schema, StreamTableEnvironment

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

CLOCKED = "(SELECT *, PROCTIME() AS p FROM changes) AS a"
COUNTS = "(SELECT k, COUNT(*) AS n FROM plain GROUP BY k)"
CLOCKED_COUNTS = f"(SELECT k, PROCTIME() AS p, n FROM {COUNTS}) AS a"
#: Query -> the node and the columns that are named.
REFUSED = {
    f"SELECT a.k, a.p, b.v FROM {CLOCKED} JOIN plain AS b ON a.k = b.k": "Join keeps rows by .*: p",
    f"SELECT a.k FROM {CLOCKED} JOIN plain AS b ON a.k = b.k AND a.p > b.t": "Join keeps rows by",
    "SELECT a.k FROM changes AS a JOIN plain AS b ON a.k = b.k AND RAND() > 0.5": (
        "Join finds the pairs of a retracted row by a condition .*RAND"
    ),
    "SELECT k FROM changes AS a WHERE EXISTS (SELECT 1 FROM plain b WHERE a.k = b.k AND b.t < "
    "LOCALTIMESTAMP AND a.t > LOCALTIMESTAMP)": "Filter above the join|all, by a filter",
    "SELECT u, COUNT(*) FROM (SELECT UUID() AS u FROM changes) GROUP BY u": (
        "GroupAggregate keeps rows by .*: u"
    ),
    "SELECT k, SUM(r) FROM (SELECT k, RAND() AS r FROM changes) GROUP BY k": "GroupAggregate .*: r",
    "SELECT COUNT(*) FROM changes WHERE RAND() < 0.5": "GroupAggregate .*: all, by a filter",
    "SELECT COUNT(*) FROM changes WHERE t > LOCALTIMESTAMP": "all, by a filter",
    f"SELECT k, p FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY v) AS i FROM {CLOCKED}) "
    "WHERE i < 4": "Rank keeps rows by .*: p",
    f"SELECT k, p, SUM(v) OVER (ORDER BY v) AS s FROM {CLOCKED}": "OverAggregate .*: p",
    "SELECT COUNT(*) FROM changes, UNNEST(ARRAY[RAND(), k]) AS u (x)": "all, by a filter",
    "SELECT w.window_start, COUNT(*) FROM TUMBLE(TABLE clocked, DESCRIPTOR(p), INTERVAL '1' SECOND)"
    " AS w, UNNEST(ARRAY[1, 2]) AS u (x) GROUP BY w.window_start": "Aggregate .*: window_start",
    f"SELECT c.p, b.v FROM (SELECT a.k, PROCTIME() AS p FROM {COUNTS} AS a JOIN {COUNTS} AS d "
    "ON a.n = d.n) AS c JOIN plain AS b ON c.k = b.k": "Join keeps rows by .*: p",
}
TAKEN = (
    f"SELECT k, p FROM {CLOCKED}",
    f"SELECT k, COUNT(*) FROM {CLOCKED} GROUP BY k",
    "SELECT u, COUNT(*) FROM (SELECT UUID() AS u FROM plain) GROUP BY u",
    "SELECT k, UUID(), COUNT(*) FROM changes GROUP BY k",
    "SELECT a.k FROM plain AS a JOIN plain AS b ON a.k = b.k AND RAND() > 0.5",
    # By the key of the groups their rows are found whatever else they have.
    f"SELECT a.k, a.p, b.v FROM {CLOCKED_COUNTS} JOIN plain AS b ON a.k = b.k",
)


@pytest.fixture
def env() -> TableEnvironment:
    streams = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment())
    streams.execute_sql(
        "CREATE TABLE plain (k INT, v INT, t TIMESTAMP(3)) WITH ('connector' = 'datagen')"
    )
    kind = Types.ROW_NAMED(["k", "v"], [Types.INT(), Types.INT()])
    rows = [Row.of_kind(RowKind.INSERT, 1, 1), Row.of_kind(RowKind.DELETE, 1, 1)]
    schema = Schema.new_builder().column("k", "INT").column("v", "INT")
    schema = schema.column_by_expression("t", "TIMESTAMP '2024-01-01 00:00:00'")
    stream = streams._environment.from_collection(rows, kind)
    table = streams.from_changelog_stream(stream, schema.build(), ChangelogMode.all())
    streams.create_temporary_view("changes", table)
    streams.execute_sql(f"CREATE TEMPORARY VIEW clocked AS SELECT * FROM {CLOCKED}")
    return streams


@pytest.mark.parametrize("query", REFUSED)
def test_rows_are_not_looked_for_by_what_may_differ(env: TableEnvironment, query: str) -> None:
    with pytest.raises(ValidationError, match=REFUSED[query]):
        env.explain_sql(query)
    env.execute_sql("SET 'table.optimizer.non-deterministic-update.strategy' = 'IGNORE'")
    env.explain_sql(query)


@pytest.mark.parametrize("query", TAKEN)
def test_what_is_found_by_other_columns_may_differ(env: TableEnvironment, query: str) -> None:
    env.explain_sql(query)


def test_batch_mode_has_one_time_for_all_rows(tmp_path: Path) -> None:
    made = environment()
    made.execute_sql("SET 'execution.runtime-mode' = 'batch'")
    made.execute_sql(
        "CREATE TABLE t (k INT) WITH ('connector' = 'filesystem', 'format' = 'json', "
        f"'path' = '{tmp_path}')"
    )
    made.explain_sql("SELECT k, NOW(), COUNT(*) FROM t GROUP BY k")
    with pytest.raises(ValidationError, match="FinalRows keeps rows by"):
        made.explain_sql("SELECT k, UUID(), COUNT(*) FROM t GROUP BY k")
