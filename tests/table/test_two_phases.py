"""Aggregation in two phases: the same answer as in one, on the same state, and EXPLAIN shows it."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table import model as models
from tests.table import test_group_aggregate as aggregates
from tests.table.query_running import changelog, environment, materialised, table_of
from tests.table.running import TableHarness
from tests.table.strategies import appends, batches, cuts, examples

from millstream.runtime.operators.table.aggregate_calls import can_be_partial, partial_fields
from millstream.runtime.operators.table.factories import LocalGroupAggregateFactory

if TYPE_CHECKING:
    from pathlib import Path

    from tests.table.model import Change

    from millstream.graph.model import JobGraph
    from millstream.table import TableEnvironment

_QUERIES = [
    "SELECT a, COUNT(*), COUNT(b), SUM(b), AVG(b), MIN(b), MAX(b) FROM t GROUP BY a",
    "SELECT COUNT(*), SUM(b) FILTER (WHERE b > 3), MAX(a) FROM t",
    "SELECT n, COUNT(*), SUM(n) FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) GROUP BY n",
    "SELECT a, b % 3 AS c, COUNT(*) FROM t GROUP BY ROLLUP (a, b % 3)",
]


_PARTIAL = [*aggregates.PARTIAL, "min", "max", "max of strings", "min of booleans"]
_PARTIAL += ["first", "last", "max where"]


def _environment(strategy: str, parallelism: int = 3) -> TableEnvironment:
    env = environment(parallelism)
    env.execute_sql("SET 'table.exec.mini-batch.enabled' = 'true'")
    env.execute_sql(f"SET 'table.optimizer.agg-phase-strategy' = '{strategy}'")
    return env


def _rows(seed: int) -> list[tuple[Any, ...]]:
    drawn = random.Random(seed)
    return [
        (i, drawn.choice(["x", "y", "z", None]), drawn.choice([None, 1, 4, 9])) for i in range(60)
    ]


@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize("strategy", ["AUTO", "ONE_PHASE"])
@pytest.mark.parametrize("query", _QUERIES)
def test_oracle_query(query: str, strategy: str, tmp_path: Path) -> None:
    rows = _rows(len(query))
    env = _environment(strategy)
    table_of(env, "t", "id INT, a STRING, b INT", rows, tmp_path)
    assert ("LocalGroupAggregate" in env.explain_sql(query)) is (strategy == "AUTO")
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (id INT, a VARCHAR, b INT)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    expected = Counter(connection.execute(query.replace("AVG(b)", "SUM(b) // COUNT(b)")).fetchall())
    assert materialised(changelog(env, query, tmp_path, len(query))) == expected


@examples(10)
@given(
    changes=appends(aggregates.rows),
    plan=cuts(),
    names=st.lists(
        st.sampled_from(_PARTIAL),
        max_size=5,
        unique=True,
    ),
    keys=st.sampled_from([(aggregates.K,), (), (aggregates.K, aggregates.F), (aggregates.N,)]),
)
def test_all_partial_aggregates_agree_with_the_model(
    changes: list[Change], plan: list[tuple[int, bool]], names: list[str], keys: tuple[int, ...]
) -> None:
    names = names or ["count rows"]
    model = aggregates.model_of(names, keys=keys)
    expected = [out for change in changes for out in model.process(*change)]
    final = aggregates.factory_of(names, keys=keys, retracts=False, mini_batch=True, merges=True)
    rows = aggregates.ROWS
    local = LocalGroupAggregateFactory(rows, keys, final.aggregates, retracts=False)
    assert can_be_partial(final.aggregates, rows, retracts=False)
    fields = partial_fields(final.aggregates, rows, retracts=False)
    kinds = [rows.children[key].to_arrow() for key in keys] + [each.type for each in fields]
    with TableHarness(local, rows, kinds) as first, aggregates.harness_of(final) as second:
        for part, snapshot in batches(changes, plan):
            before = len(first.batches)
            first.feed(part)
            for batch in first.batches[before:]:
                second.process_batch(batch)
            if snapshot:
                second.end_epoch()
        assert models.materialised(second.changes) == models.materialised(expected)


def _graph(strategy: str, query: str, directory: Path) -> JobGraph:
    env = _environment(strategy)
    env.execute_sql("CREATE TABLE t (a STRING, b INT) WITH ('connector' = 'datagen')")
    end = env.session.collected(env.sql_query(query).plan, str(directory / strategy))
    return env.session.program.graph_of([end], "test")


def test_state_is_found_again_in_another_number_of_phases(tmp_path: Path) -> None:
    query = "SELECT a, SUM(b) FROM t GROUP BY a"
    one, two = (_graph(each, query, tmp_path) for each in ("ONE_PHASE", "TWO_PHASE"))
    found = []
    for graph in (one, two):
        (node,) = [each for each in graph.nodes.values() if each.name == "GroupAggregate"]
        factory: Any = node.factory
        found.append((node.uid, factory.state_sections()))
    assert found[0] == found[1]
    assert [each.name for each in two.nodes.values()].count("LocalGroupAggregate") == 1


def test_explain_shows_both_phases() -> None:
    env = _environment("TWO_PHASE")
    env.execute_sql("CREATE TABLE t (a STRING, b INT) WITH ('connector' = 'datagen')")
    query = "SELECT a, SUM(b) AS s FROM t GROUP BY a"
    plan = env.explain_sql(query).split("\n\n")[1]
    assert plan.splitlines()[2:-1] == [
        "+- GlobalGroupAggregate(groupBy=[a], select=[a, SUM(sum$0) AS EXPR$0])",
        "   +- Exchange(distribution=[hash[a]])",
        "      +- LocalGroupAggregate(groupBy=[a], select=[a, SUM(b) AS sum$0])",
    ]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a, COUNT(DISTINCT b) FROM t GROUP BY a",
        "SELECT n, MAX(a) FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) GROUP BY n",
        "SELECT DISTINCT a FROM t",
    ],
)
def test_what_cannot_be_added_up_stays_in_one_phase(query: str) -> None:
    env = _environment("TWO_PHASE")
    env.execute_sql("CREATE TABLE t (a STRING, b INT) WITH ('connector' = 'datagen')")
    first = env.explain_sql(query).split("== Optimized Physical Plan ==\n")[1].splitlines()
    assert any(line.lstrip(" +-").startswith("GroupAggregate(") for line in first)


def test_without_mini_batches_there_is_one_phase() -> None:
    env = _environment("TWO_PHASE")
    env.execute_sql("SET 'table.exec.mini-batch.enabled' = 'false'")
    env.execute_sql("CREATE TABLE t (a STRING, b INT) WITH ('connector' = 'datagen')")
    assert "Local" not in env.explain_sql("SELECT a, SUM(b) FROM t GROUP BY a")
