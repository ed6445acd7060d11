"""Aggregation in two phases: the same answer as in one, on the same state, and EXPLAIN shows it."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.table_operators import model as models
from tests.runtime.table_operators import test_group_aggregate as aggregates
from tests.runtime.table_operators import test_windows as windows
from tests.runtime.table_operators.running import TableHarness, batch_of
from tests.runtime.table_operators.strategies import appends, batches, cuts
from tests.support.examples import examples
from tests.support.query_running import changelog, environment, materialised, table_of

from millstream.contracts.batch import Batch
from millstream.errors import ProgramError
from millstream.runtime.columnar.changelog_aggregates import Segments
from millstream.runtime.columnar.table_windows import TableWindow, WindowKind
from millstream.runtime.operators.table.aggregate_calls import (
    Aggregates,
    SortedRows,
    can_be_partial,
    partial_fields,
)
from millstream.runtime.operators.table.group_aggregate import LocalGroupAggregateFactory
from millstream.runtime.operators.table.session_windows import WindowAggregateFactory
from millstream.runtime.operators.table.specs import AggregateCall
from millstream.runtime.operators.table.window_aggregate import LocalWindowAggregateFactory
from millstream.types.logical_types import BigIntType, RowType

if TYPE_CHECKING:
    from pathlib import Path

    from tests.runtime.table_operators.model import Change

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


@pytest.mark.sampled(every=3)
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


_NAMES = ("window_start", "window_end", "window_time")


def _local_harness(
    local: LocalWindowAggregateFactory, row: RowType, keys: list[pa.DataType]
) -> TableHarness:
    fields = partial_fields(local.aggregates, row, retracts=False)
    kinds = [*keys, *(each.type for each in fields), pa.int64(), pa.int64()]
    return TableHarness(local, row, kinds, long_lived=False)


@examples(25)
@given(
    plan=windows.steps,
    spec=st.sampled_from(windows.SPECS),
    keys=st.sampled_from([(0,), ()]),
    passes=st.integers(0, 3),
)
def test_slices_of_windows_give_the_same(
    plan: list[Any], spec: TableWindow, keys: tuple[int, ...], passes: int
) -> None:
    """State goes over from one phase to two and back at each snapshot."""
    row, calls = windows.ROWS, tuple(windows.SHARED.values())
    model = windows.Model(spec, [models.Aggregate("SUM", 0), models.Aggregate("MAX", 0)])
    model.aggregates.append(models.Aggregate("COUNT"))
    one = WindowAggregateFactory(row, spec, 1, keys, calls, _NAMES)
    two = dataclasses.replace(one, merges=True)
    local = LocalWindowAggregateFactory(row, spec, 1, keys, calls)
    kinds = [row.children[0]] * len(keys) + [call.type for call in calls]
    kinds += [windows.PLAIN, windows.PLAIN, windows.TIME]
    with (
        _local_harness(local, row, [pa.string()] * len(keys)) as first,
        TableHarness(two, row, kinds, long_lived=False) as second,
    ):
        operator: Any = first.operator
        operator._to_pass = passes
        for step in [*plan, 100]:
            if step == "snapshot":
                second.factory = one if second.factory is two else two
                second.end_epoch()
            elif isinstance(step, int):
                before = len(second.changes)
                second.watermark(step)
                pad = () if keys else (None,)
                found = [(*pad, *each) for _, each in second.changes[before:]]
                assert sorted(found, key=repr) == sorted(model.advance(step), key=repr)
            else:
                rows = [each if keys else (None, *each[1:]) for each in step]
                if second.factory is one:
                    second.feed([(models.I, each) for each in rows])
                else:
                    before = len(first.batches)
                    first.feed([(models.I, each) for each in rows])
                    for batch in first.batches[before:]:
                        second.process_batch(batch)
                for each in rows:
                    model.process(each)
        first.end_epoch()
        second.end_epoch()
        assert second.metrics["numLateRecordsDropped"] == model.late
        absent = first.metrics, second.metrics
        nulls = sum(each[1] is None for step in plan if isinstance(step, list) for each in step)
        assert sum(each.get("numNullRowTimeRecordsDropped", 0) for each in absent) == nulls
        assert list(second.state_entries()) == []


@examples(10)
@given(
    names=st.lists(st.sampled_from(_PARTIAL), min_size=1, max_size=4, unique=True),
    changes=appends(aggregates.rows),
    passes=st.booleans(),
)
def test_rows_are_partial_aggregates_by_themselves(
    names: list[str], changes: list[Change], passes: bool
) -> None:
    calls = aggregates.factory_of(names, keys=(), retracts=False).aggregates
    row = aggregates.ROWS
    made = Aggregates(calls, row, retracts=False)
    if not changes:
        return
    arrow = batch_of(changes, row).arrow
    rows = SortedRows(arrow, np.arange(len(changes)), np.ones(len(changes), np.int64))
    alone = made.partial(rows, np.arange(len(changes)))
    assert [each.type for each in alone] == [each.type for each in made.fields]
    together = made.partial(rows, np.zeros(1, np.int64))
    first = np.zeros(1, np.int64)
    segments = Segments(first, np.array([len(changes)]), [b""], np.ones(1, np.bool_))
    _, _, merged = made.add_up(made.parts_of(alone), segments, made.fresh, last_only=True)
    assert [each.to_pylist() for each in merged] == [each.to_pylist() for each in together]


def test_windows_that_rows_have_are_aggregated_ahead() -> None:
    row = RowType.of(
        k=windows.ROWS.children[0], t=windows.TIME, n=BigIntType(), s=windows.PLAIN, e=windows.PLAIN
    )
    spec, calls = TableWindow(WindowKind.TUMBLE, 10), (windows.SHARED["SUM"],)
    at = windows.at
    final = WindowAggregateFactory(
        row, spec, 1, (0,), calls, ("window_start", "window_end"), attached=(3, 4), merges=True
    )
    local = LocalWindowAggregateFactory(row, spec, 1, (0,), calls, attached=(3, 4))
    kinds = [row.children[0], BigIntType(), windows.PLAIN, windows.PLAIN]
    with (
        _local_harness(local, row, [pa.string()]) as first,
        TableHarness(final, row, kinds) as second,
    ):
        first.feed([(models.I, ("a", at(1), n, at(0), at(7 * n))) for n in (1, 2, 2, 2, 2, 2)])
        assert [len(batch) for batch in first.batches] == [2]
        second.process_batch(first.batches[0])
        second.watermark(13)
        assert second.changes == [
            (models.I, ("a", 1, at(0), at(7))),
            (models.I, ("a", 10, at(0), at(14))),
        ]


def test_late_retractions_do_not_make_up_for_late_rows() -> None:
    row, at = windows.ROWS, windows.at
    spec, calls = TableWindow(WindowKind.TUMBLE, 10), (windows.SHARED["SUM"],)
    local = LocalWindowAggregateFactory(row, spec, 1, (0,), calls)
    final = WindowAggregateFactory(row, spec, 1, (0,), calls, ("window_end",), merges=True)
    kinds = [pa.string(), pa.int64(), windows.PLAIN]
    with (
        _local_harness(local, row, [pa.string()]) as first,
        TableHarness(final, row, kinds) as second,
    ):
        first.feed([(models.I, ("a", at(1), 1)), (models.I, ("b", at(1), 1))])
        [batch] = first.batches
        weights = pa.array([1, -1], pa.int64())
        name = batch.arrow.schema.names[1]
        taken_back = batch.arrow.set_column(1, name, weights)
        second.watermark(100)
        second.process_batch(Batch(batch.type_info, arrow=taken_back))
        second.end_epoch()
        assert second.metrics["numLateRecordsDropped"] == 2


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


_EVENTS = (
    "CREATE TABLE e (a STRING, b INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts) "
    "WITH ('connector' = 'datagen')"
)
_TUMBLE = "TABLE(TUMBLE(TABLE e, DESCRIPTOR({}), INTERVAL '15' MINUTE))"
_SESSION = "TABLE(SESSION(TABLE e PARTITION BY a, DESCRIPTOR(ts), INTERVAL '5' MINUTE))"
_WINDOWS = "SELECT a, window_end, SUM(b) AS s FROM {} GROUP BY a, window_start, window_end"


def _explained(query: str, strategy: str = "AUTO") -> list[str]:
    env = environment()
    env.execute_sql(f"SET 'table.optimizer.agg-phase-strategy' = '{strategy}'")
    env.execute_sql(_EVENTS)
    return env.explain_sql(query).split("== Optimized Physical Plan ==\n")[1].splitlines()


def test_explain_shows_both_phases_of_windows() -> None:
    shown = _explained(_WINDOWS.format(_TUMBLE.format("ts")))
    start = next(number for number, line in enumerate(shown) if "Global" in line)
    last, between, first = (line.lstrip(" +-") for line in shown[start : start + 3])
    assert last == (
        "GlobalWindowAggregate(groupBy=[a], window=[TUMBLE(slice_end=[$slice_end], size=[15 min])],"
        " select=[a, SUM(sum$0) AS EXPR$0, window_start AS window_start, "
        "window_end AS window_end])"
    )
    assert between == "Exchange(distribution=[hash[a]])"
    assert first == (
        "LocalWindowAggregate(groupBy=[a], window=[TUMBLE(time_col=[ts], size=[15 min])],"
        " select=[a, SUM(b) AS sum$0, slice_end('w$) AS $slice_end])"
    )


@pytest.mark.parametrize(
    ("query", "strategy"),
    [
        (_WINDOWS.format(_TUMBLE.format("ts")), "ONE_PHASE"),
        (_WINDOWS.format(_TUMBLE.format("p")), "AUTO"),
        (_WINDOWS.format(_TUMBLE.format("ts")).replace("SUM(b)", "COUNT(DISTINCT b)"), "AUTO"),
        (_WINDOWS.format(_SESSION), "TWO_PHASE"),
        (
            _WINDOWS.format(_TUMBLE.format("ts"))
            .replace("TUMBLE", "HOP")
            .replace("ts)", "ts), INTERVAL '5' MINUTE")
            .replace("SUM", "LAST_VALUE"),
            "AUTO",
        ),
    ],
)
def test_windows_that_stay_in_one_phase(query: str, strategy: str) -> None:
    shown = "\n".join(_explained(query, strategy))
    assert "WindowAggregate(" in shown
    assert "Local" not in shown


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


def test_a_plan_advises_two_phases_where_they_would_be_made(tmp_path: Path) -> None:
    env = environment(1)
    table_of(env, "t", "a INT, b INT", [(1, 2)], tmp_path)
    for mini_batches, is_advised in (("false", True), ("true", False)):
        env.execute_sql(f"SET 'table.exec.mini-batch.enabled' = '{mini_batches}'")
        plan = env.explain_sql("SELECT a, SUM(b) FROM t GROUP BY a", "PLAN_ADVICE")
        assert "== Optimized Physical Plan With Advice ==" in plan
        assert ("GroupAggregate(advice=[1], groupBy=[a]" in plan) is is_advised
        assert ("advice[1]: [ADVICE]" in plan) is is_advised
        assert ("No available advice..." in plan) is not is_advised
        distinct = "SELECT a, COUNT(DISTINCT b) FROM t GROUP BY a"
        assert "No available advice..." in env.explain_sql(distinct, "PLAN_ADVICE")
    plan = env.explain_sql("SELECT a FROM t", "JSON_EXECUTION_PLAN")
    assert '"nodes"' in plan.split("== Physical Execution Plan ==")[1]


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN", "FULL JOIN"])
def test_oracle_joins_of_mini_batches(join: str, tmp_path: Path) -> None:
    """Of counts, which are updated many times within a batch."""
    env = _environment("AUTO")
    rows = _rows(7)
    table_of(env, "t", "id INT, a STRING, b INT", rows, tmp_path)
    counts = "SELECT {0} AS k, COUNT(*) AS n FROM t WHERE {1} GROUP BY {0}"
    left, right = counts.format("a", "id < 50"), counts.format("a", "b > 1")
    query = f"SELECT l.k, l.n, r.n FROM ({left}) AS l {join} ({right}) AS r ON l.k = r.k"
    assert "miniBatch=[true]" in env.explain_sql(query)
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (id INT, a VARCHAR, b INT)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    expected = Counter(connection.execute(query).fetchall())
    assert materialised(changelog(env, query, tmp_path, len(join))) == expected
    env.execute_sql("SET 'table.exec.mini-batch.enabled' = 'false'")
    assert "miniBatch" not in env.explain_sql(query)


_EDGES = (
    AggregateCall("FIRST_VALUE", (2,), BigIntType()),
    AggregateCall("LAST_VALUE", (2,), BigIntType()),
)


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (TableWindow(WindowKind.TUMBLE, 10), [(1, 3)]),
        (TableWindow(WindowKind.HOP, 10, 5), [(2, 2), (1, 3), (1, 3)]),
        (TableWindow(WindowKind.CUMULATE, 10, 5), [(2, 2), (1, 3)]),
    ],
)
def test_first_and_last_values_of_windows_go_by_arrival(
    spec: TableWindow, expected: list[tuple[int, int]], snapshot: bool
) -> None:
    """Also where a part is in state already, and another slice began earlier."""
    at = windows.at
    factory = WindowAggregateFactory(windows.ROWS, spec, 1, (0,), _EDGES, ())
    kinds = [windows.ROWS.children[0], BigIntType(), BigIntType()]
    with TableHarness(factory, windows.ROWS, kinds, long_lived=False) as harness:
        harness.feed([(models.I, ("a", at(7), 1))])
        if snapshot:
            harness.end_epoch()
        harness.feed([(models.I, ("a", at(2), 2)), (models.I, ("a", at(8), 3))])
        harness.watermark(100)
        assert [row[1:] for _, row in harness.changes] == expected
        harness.end_epoch()
        assert list(harness.state_entries()) == []


@pytest.mark.parametrize(
    ("spec", "calls"),
    [
        (TableWindow(WindowKind.HOP, 5, 3), (windows.SHARED["SUM"],)),
        (TableWindow(WindowKind.HOP, 6, 3), _EDGES),
        (TableWindow(WindowKind.TUMBLE, 6), (windows.DISTINCT,)),
    ],
)
def test_partial_aggregates_of_no_whole_windows_are_refused(
    spec: TableWindow, calls: tuple[AggregateCall, ...]
) -> None:
    factory = WindowAggregateFactory(windows.ROWS, spec, 1, (0,), calls, (), merges=True)
    with pytest.raises(ProgramError, match="partial aggregates cannot be added up"):
        factory.create()
    assert dataclasses.replace(factory, merges=False).create()
