"""Aggregate functions of users: in groups, in windows, over updates, and from a restored state."""

from __future__ import annotations

import datetime as dt
import random
import sys
from collections import Counter, defaultdict
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import changelog, environment, materialised, table_of

from millstream.connectors.basic.collect import read_collected
from millstream.errors import ProgramError, UserFunctionError, ValidationError
from millstream.table import DataTypes, Row
from millstream.table.data_view import ListView, MapView
from millstream.table.expressions import col, lit, row_interval
from millstream.table.udf import (
    AggregateFunction,
    FunctionContext,
    ScalarFunction,
    TableAggregateFunction,
    udaf,
    udf,
    udtaf,
)
from millstream.table.window import Over, Session, Slide, Tumble
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from millstream.table import Table, TableEnvironment


class WeightedMean(AggregateFunction):
    """A mean, without ``retract``."""

    def create_accumulator(self) -> Any:
        return [0, 0]

    def accumulate(self, accumulator: Any, value: int | None, weight: int) -> None:
        if value is not None:
            accumulator[0] += value * weight
            accumulator[1] += weight

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1] if accumulator[1] else None


class Mean(WeightedMean):
    """The same with all methods."""

    def retract(self, accumulator: Any, value: int | None, weight: int) -> None:
        self.accumulate(accumulator, value, -weight)

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> None:
        for other in accumulators:
            accumulator[0] += other[0]
            accumulator[1] += other[1]

    def get_result_type(self) -> str:
        return "DOUBLE"


class Words(AggregateFunction):
    """All words in order, and how often each came: with views."""

    def open(self, function_context: FunctionContext) -> None:
        self.separator = function_context.get_job_parameter("separator", "+")

    def create_accumulator(self) -> Any:
        return Row(ListView(), MapView())

    def accumulate(self, accumulator: Any, word: str) -> None:
        accumulator[0].add(word)
        counts = accumulator[1]
        counts[word] = counts[word] + 1 if word in counts else 1

    def get_value(self, accumulator: Any) -> Any:
        counts = sorted(accumulator[1].items())
        words = self.separator.join(sorted(accumulator[0]))
        return Row(words, max((count for _, count in counts), default=0))


class Top2(TableAggregateFunction):
    """The two largest values with their ranks."""

    def create_accumulator(self) -> Any:
        return []

    def accumulate(self, accumulator: Any, value: int) -> None:
        accumulator.append(value)

    def retract(self, accumulator: Any, value: int) -> None:
        accumulator.remove(value)

    def emit_value(self, accumulator: Any) -> Iterable[Any]:
        for rank, value in enumerate(sorted(accumulator, reverse=True)[:2]):
            yield value, rank + 1


RANKED = DataTypes.ROW(
    [DataTypes.FIELD("value", DataTypes.BIGINT()), DataTypes.FIELD("rank", DataTypes.INT())]
)
NUMBER = DataTypes.FIELD("n", DataTypes.DOUBLE())
mean = udaf(Mean())
plain_mean = udaf(WeightedMean(), result_type="DOUBLE", input_types=["BIGINT", "BIGINT"])
words = udaf(Words, result_type="ROW<words STRING, most INT>")
top2 = udtaf(Top2(), result_type=RANKED)


def _spread(values: Any) -> Any:
    return values.max() - values.min()


spread = udaf(result_type="BIGINT", func_type="pandas")(_spread)


def events(seed: int, count: int = 60) -> list[tuple[str, str, int | None, int]]:
    drawn = random.Random(seed)
    start = dt.datetime(2024, 1, 1, 12)  # noqa: DTZ001 - a TIMESTAMP
    found = []
    for _ in range(count):
        time = start + dt.timedelta(seconds=drawn.randint(0, 300))
        value = None if drawn.random() < 0.1 else drawn.randint(0, 9)
        row = (time.strftime("%Y-%m-%d %H:%M:%S"), drawn.choice("abc"), value, drawn.randint(1, 3))
        found.append(row)
    return sorted(found, key=lambda row: row[0])


COLUMNS = "ts TIMESTAMP(3), k STRING, v INT, w INT, WATERMARK FOR ts AS ts - INTERVAL '300' SECOND"


def env_of(rows: list[Any], path: Path, parallelism: int = 2) -> TableEnvironment:
    env = environment(parallelism)
    table_of(env, "e", COLUMNS, rows, path)
    env.create_temporary_function("mean", mean)
    env.create_temporary_function("plain_mean", plain_mean)
    env.create_temporary_function("top2", top2)
    return env


def result(table: Table, directory: Path, seed: int = 0) -> Counter[tuple[Any, ...]]:
    """What is there of a table at the end, read in pieces drawn at random."""
    session = table._environment.session
    end = session.collected(table.plan, str(directory))
    drawn = random.Random(seed)
    limits = (drawn.randint(50, 900) for _ in range(1000))
    MiniCluster(session.program.graph_of([end], "test"), limits=limits, seed=seed).run()
    return materialised(read_collected(directory))


def mean_of(rows: Iterable[Any]) -> float | None:
    counted = [(v, w) for _, _, v, w in rows if v is not None]
    return sum(v * w for v, w in counted) / sum(w for _, w in counted) if counted else None


def by_key(rows: Iterable[Any], key: Any) -> dict[Any, list[Any]]:
    found = defaultdict(list)
    for row in rows:
        for each in key(row):
            found[each].append(row)
    return found


@pytest.mark.both_engines
def test_oracle_groups_and_updates(tmp_path: Path) -> None:
    seed = 1
    rows = events(seed)
    env = env_of(rows, tmp_path)
    groups = by_key(rows, lambda row: [row[1]])
    query = "SELECT k, mean(v, w) FILTER (WHERE w < 3) AS m, plain_mean(v, 1), COUNT(*) FROM e "
    found = materialised(changelog(env, query + "GROUP BY k", tmp_path, seed))
    assert found == Counter(
        (
            key,
            mean_of(row for row in mine if row[3] < 3),
            mean_of((*row[:3], 1) for row in mine),
            len(mine),
        )
        for key, mine in groups.items()
    )
    counts_of = "(SELECT w, v, COUNT(*) AS n FROM e GROUP BY w, v)"
    again = f"SELECT n % 2, mean(n, 1) FROM {counts_of} GROUP BY n % 2"
    counts = Counter((w, v) for _, _, v, w in rows).values()
    assert materialised(changelog(env, again, tmp_path, seed)) == Counter(
        (parity, sum(mine) / len(mine))
        for parity in (0, 1)
        if (mine := [count for count in counts if count % 2 == parity])
    )
    distinct = "SELECT mean(DISTINCT v, 1) AS m FROM e"
    values = {v for _, _, v, _ in rows if v is not None}
    assert materialised(changelog(env, distinct, tmp_path, seed)) == Counter(
        [(sum(values) / len(values),)]
    )


def seconds(row: Any) -> int:
    return int(row[0][14:16]) * 60 + int(row[0][17:19])


@pytest.mark.both_engines(every=2)
@pytest.mark.parametrize("function", [mean, plain_mean])
def test_oracle_windows(function: Any, tmp_path: Path) -> None:
    rows = events(3)
    env = env_of(rows, tmp_path)
    table = env.from_path("e")
    tumbling = (
        table.window(Tumble.over(lit(1).minutes).on(col("ts")).alias("w0"))
        .group_by(col("w0"), col("k"))
        .aggregate(function(col("v"), col("w")).alias("m"))
        .select(col("k"), col("w0").start.alias("s"), col("m"))
    )
    start = dt.datetime(2024, 1, 1, 12)  # noqa: DTZ001 - a TIMESTAMP
    minutes = by_key(rows, lambda row: [(row[1], seconds(row) // 60)])
    assert result(tumbling, tmp_path / "1") == Counter(
        (key, start + dt.timedelta(minutes=minute), mean_of(mine))
        for (key, minute), mine in minutes.items()
    )
    sliding = (
        table.window(Slide.over(lit(2).minutes).every(lit(1).minutes).on(col("ts")).alias("w0"))
        .group_by(col("w0"))
        .select(col("w0").end.alias("e"), function(col("v"), col("w")).alias("m"))
    )
    ends = by_key(rows, lambda row: [seconds(row) // 60 + 1, seconds(row) // 60 + 2])
    assert result(sliding, tmp_path / "2") == Counter(
        (start + dt.timedelta(minutes=end), mean_of(mine)) for end, mine in ends.items()
    )


@pytest.mark.both_engines
def test_oracle_sessions_join(tmp_path: Path) -> None:
    rows = events(4, 40)
    env = env_of(rows[::2] + rows[1::2], tmp_path)

    def sessions(function: Any) -> Table:
        window = Session.with_gap(lit(9).seconds).on(col("ts")).alias("s")
        grouped = env.from_path("e").window(window).group_by(col("s"), col("k"))
        return grouped.select(col("k"), function(col("v"), col("w")).alias("m"), col("s").start)

    wanted: Counter[tuple[Any, ...]] = Counter()
    start = dt.datetime(2024, 1, 1, 12)  # noqa: DTZ001 - a TIMESTAMP
    for key, mine in by_key(rows, lambda row: [row[1]]).items():
        parts: list[list[Any]] = []
        for row in mine:
            if not parts or seconds(row) > seconds(parts[-1][-1]) + 9:
                parts.append([])
            parts[-1].append(row)
        for part in parts:
            wanted[key, mean_of(part), start + dt.timedelta(seconds=seconds(part[0]))] += 1
    assert result(sessions(mean), tmp_path / "1") == wanted
    with pytest.raises(ProgramError, match=r"WeightedMean aggregates session windows.*merge"):
        result(sessions(plain_mean), tmp_path / "2")


@pytest.mark.both_engines
def test_oracle_rows_of_aggregates(tmp_path: Path) -> None:
    rows = [row for row in events(5) if row[2] is not None]
    env = env_of(rows, tmp_path)
    ranked = (
        env.from_path("e")
        .group_by(col("k"))
        .flat_aggregate(top2(col("v")).alias("x", "place"))
        .select(col("k"), col("place"), col("x") * 10)
    )
    wanted: Counter[tuple[Any, ...]] = Counter()
    for key, mine in by_key(rows, lambda row: [row[1]]).items():
        best = sorted((row[2] for row in mine), reverse=True)[:2]
        wanted.update((key, place + 1, value * 10) for place, value in enumerate(best))
    assert result(ranked, tmp_path / "1") == wanted
    counts = env.sql_query("SELECT v, COUNT(*) AS n FROM e GROUP BY v")
    most = counts.flat_aggregate(top2(col("n"))).select(col("value"), col("rank"))
    best = sorted(Counter(row[2] for row in rows).values(), reverse=True)[:2]
    assert result(most, tmp_path / "2") == Counter([(best[0], 1), (best[1], 2)])


@pytest.mark.both_engines
def test_oracle_rows_around_each_row(tmp_path: Path) -> None:
    rows = [(*row[:2], number, 1) for number, row in enumerate(events(10, 40))]
    env = env_of(rows, tmp_path)
    window = Over.partition_by(col("k")).order_by(col("ts"))
    means = env.from_path("e").over_window(window.preceding(row_interval(2)).alias("o"))
    shown = means.select(col("v"), mean(col("v"), col("w")).over(col("o")).alias("m"))
    wanted: Counter[tuple[Any, ...]] = Counter()
    spreads: Counter[tuple[Any, ...]] = Counter()
    for mine in by_key(rows, lambda row: [row[1]]).values():
        values = [row[2] for row in mine]
        for at, value in enumerate(values):
            around = values[max(at - 2, 0) : at + 1]
            wanted[value, sum(around) / len(around)] += 1
            near = [row[2] for row in mine if 0 <= seconds(mine[at]) - seconds(row) <= 60]
            spreads[value, max(near) - min(near)] += 1
    assert result(shown, tmp_path / "1") == wanted
    env.create_temporary_function("spread", spread)
    query = (
        "SELECT v, spread(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '60' SECOND "
        "PRECEDING AND CURRENT ROW) FROM e"
    )
    assert materialised(changelog(env, query, tmp_path)) == spreads
    first = "SELECT plain_mean(v, w) OVER (ORDER BY ts) FROM e"
    assert sum(materialised(changelog(env, first, tmp_path)).values()) == len(rows)
    bounded = "SELECT plain_mean(v, w) OVER (ORDER BY ts ROWS 2 PRECEDING) FROM e"
    with pytest.raises(ProgramError, match="it needs retract"):
        changelog(env, bounded, tmp_path)


@pytest.mark.both_engines
def test_views_results_of_rows_and_pandas(tmp_path: Path) -> None:
    env = environment(2)
    env.get_config().set("pipeline.global-job-parameters", "separator:-")
    table = env.from_elements(
        [(1, "b", 3), (1, "a", 5), (2, "b", 7), (1, "b", 11)], ["k", "w", "n"]
    )
    shown = table.group_by(col("k")).aggregate(words(col("w")).alias("all", "most"))
    assert result(shown.select(col("k"), col("most"), col("all")), tmp_path / "1") == Counter(
        [(1, 2, "a-b-b"), (2, 1, "b")]
    )
    whole = table.aggregate(udaf(RowWords(), result_type="STRING"))
    assert result(whole.select(col("f0")), tmp_path / "2") == Counter([("1b 1a 2b 1b",)])
    spreads = table.group_by(col("k")).select(col("k"), spread(col("n")).alias("s"))
    assert result(spreads, tmp_path / "3") == Counter([(1, 8), (2, 0)])
    middle = udaf(lambda values: values.mean(), result_type="DOUBLE", func_type="pandas", name="m")
    nothing = env.from_elements([(None,), (None,)], DataTypes.ROW([NUMBER]))
    assert result(nothing.select(middle(col("n"))), tmp_path / "4") == Counter([(None,)])


def test_pandas_sees_rows_as_frames_and_loses_nan(tmp_path: Path) -> None:
    env = environment(1)
    table = env.from_elements([(1, 2), (3, 4)], ["a", "b"])
    product = udaf(
        lambda frame: float((frame.a * frame.b).sum()), result_type="DOUBLE", func_type="pandas"
    )
    shown = table.aggregate(product.alias("p")).select(col("p"))
    assert result(shown, tmp_path / "1") == Counter([(14.0,)])
    length = udaf(lambda x: float(len(x)), result_type="DOUBLE", func_type="pandas")
    env.create_temporary_function("length", length)
    env.execute_sql(
        "CREATE TEMPORARY VIEW v (k, x) AS VALUES (2, CAST(5 AS DOUBLE)), "
        "(1, CAST('NaN' AS DOUBLE)), (1, 2.0)"
    )
    query = "SELECT length(x) FROM (SELECT k, LAST_VALUE(x) AS x FROM v GROUP BY k)"
    assert materialised(changelog(env, query, tmp_path, limit=1)) == {(2.0,): 1}


class RowWords(AggregateFunction):
    """A function of whole rows."""

    def create_accumulator(self) -> Any:
        return []

    def accumulate(self, accumulator: Any, row: Row) -> None:
        accumulator.append(f"{row.k}{row.w}")

    def get_value(self, accumulator: Any) -> Any:
        return " ".join(accumulator)


class Told(AggregateFunction):
    """A function that says what it was told of its task, and counts."""

    def open(self, function_context: FunctionContext) -> None:
        self.shown = (
            function_context.get_number_of_parallel_subtasks(),
            function_context.get_task_name().partition("(")[0],
            function_context.get_task_name_with_subtasks().rpartition(" ")[2],
        )
        self.counter = function_context.get_metric_group().counter("rows")

    def create_accumulator(self) -> Any:
        return []

    def accumulate(self, accumulator: Any, value: int) -> None:
        self.counter.inc()

    def get_value(self, accumulator: Any) -> Any:
        return str(self.shown)


class ToldScalar(ScalarFunction):
    """The same, row by row."""

    def open(self, function_context: FunctionContext) -> None:
        self.index = function_context.get_index_of_this_subtask()
        self.counter = function_context.get_metric_group().counter("calls")

    def eval(self, value: int) -> int:
        self.counter.inc()
        return self.index


def test_functions_are_told_of_their_task_and_count(tmp_path: Path) -> None:
    env = environment(1)
    env.create_temporary_function("told", udaf(Told(), result_type="STRING"))
    env.create_temporary_function("index", udf(ToldScalar(), result_type="INT"))
    env.create_temporary_view("t", env.from_elements([(1,), (2,), (3,)], ["a"]))
    table = env.sql_query("SELECT told(index(a)) AS s FROM t")
    end = env.session.collected(table.plan, str(tmp_path))
    cluster = MiniCluster(env.session.program.graph_of([end], "test"))
    cluster.run()
    assert materialised(read_collected(tmp_path)) == Counter([("(1, 'GroupAggregate', '(1/1)')",)])


def test_an_accumulator_is_restored_at_another_parallelism(tmp_path: Path) -> None:
    rows = events(6)

    def graph(parallelism: int) -> Any:
        env = environment(parallelism)
        env.execute_sql(f"""
            CREATE TABLE e (ts STRING, k STRING, v INT, w INT)
            WITH ('connector' = 'filesystem', 'path' = '{tmp_path / "e"}', 'format' = 'json')
        """)
        query = (
            env.from_path("e")
            .group_by(col("k"))
            .select(col("k"), mean(col("v"), col("w")).alias("m"))
        )
        end = env.session.collected(query.plan, str(tmp_path / "out"))
        return env.session.program.graph_of([end], "test")

    env_of(rows, tmp_path)
    MiniCluster(graph(1), tmp_path / "state", limits=iter([300] * 100)).run(max_epochs=3)
    before = len(list(read_collected(tmp_path / "out")))
    MiniCluster(graph(3), tmp_path / "state", limits=iter([300] * 100)).run()
    changes = list(read_collected(tmp_path / "out"))
    assert 0 < before < len(changes)
    assert materialised(changes) == Counter(
        (key, mean_of(mine)) for key, mine in by_key(rows, lambda row: [row[1]]).items()
    )


def test_a_function_of_a_module_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("module_of_aggregates")
    module.mean = mean  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "module_of_aggregates", module)
    rows = events(7, 20)
    env = environment(1)
    table_of(env, "e", COLUMNS, rows, tmp_path)
    env.execute_sql("CREATE FUNCTION middle AS 'module_of_aggregates.mean' LANGUAGE PYTHON")
    found = materialised(changelog(env, "SELECT middle(v, w) FROM e", tmp_path))
    assert found == Counter([(mean_of(rows),)])


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT k FROM e WHERE mean(v, w) > 1", "Aggregate MEAN cannot stand here"),
        ("SELECT mean(v, w), v FROM e GROUP BY k", "Column 'v' is not in GROUP BY"),
        ("SELECT top2(v) FROM e", "flat_aggregate"),
        ("SELECT plain_mean(v) FROM e", "plain_mean|WeightedMean"),
        ("SELECT plain_mean(k, w) FROM e", "WeightedMean"),
        ("SELECT top2(v) OVER (ORDER BY ts) FROM e", "flat_aggregate"),
        ("SELECT mean(v, w) OVER (PARTITION BY k) FROM e", "needs ORDER BY"),
        ("SELECT mean(*) FROM e", "Only COUNT takes"),
    ],
)
def test_what_makes_no_sense_is_refused(query: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=message):
        env_of([], tmp_path).sql_query(query)


def test_what_a_function_lacks_is_said_before_the_job_begins(tmp_path: Path) -> None:
    env = env_of(events(8, 5), tmp_path)
    query = "SELECT plain_mean(n, 1) FROM (SELECT COUNT(*) AS n FROM e GROUP BY k)"
    with pytest.raises(ProgramError, match="WeightedMean aggregates rows that are retracted"):
        changelog(env, query, tmp_path)
    with pytest.raises(ProgramError, match="takes an object with create_accumulator"):
        udaf(len, result_type="INT")
    with pytest.raises(ProgramError, match="set result_type"):
        udaf(WeightedMean())
    with pytest.raises(ProgramError, match="aggregate\\(\\) takes what"):
        env.from_path("e").aggregate(top2(col("v")))
    with pytest.raises(ProgramError, match="the function gives 2 columns, not 1"):
        env.from_path("e").flat_aggregate(top2(col("v")).alias("x")).select(col("x"))


def test_an_error_names_the_function(tmp_path: Path) -> None:
    class Broken(WeightedMean):
        def accumulate(self, accumulator: Any, value: int | None, weight: int) -> None:
            message = "no good"
            raise ValueError(message)

    env = env_of(events(9, 3), tmp_path)
    env.create_temporary_function("broken", udaf(Broken(), result_type="DOUBLE"))
    with pytest.raises(UserFunctionError, match="aggregate function Broken: ValueError: no good"):
        changelog(env, "SELECT broken(v, w) FROM e", tmp_path)
