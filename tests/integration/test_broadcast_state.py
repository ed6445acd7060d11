"""Jobs with broadcast state, as PyFlink's programs write them."""

from __future__ import annotations

from collections import Counter
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import SplitsSource, collect, collected, environment, event_time
from tests.matrix.test_other_modes import dying_at

from millstream.checkpoint.inspect import inspect_checkpoint
from millstream.common import Time, Types
from millstream.datastream import (
    BroadcastProcessFunction,
    BroadcastStream,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import (
    MapStateDescriptor,
    StateTtlConfig,
    ValueState,
    ValueStateDescriptor,
)
from millstream.errors import MillstreamError, ProgramError, StateError
from millstream.graph.model import sources_before
from millstream.runtime.operators.process import KeyedBroadcastProcessFactory
from millstream.testing import OperatorHarness, StreamHarness
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.graph.model import JobGraph

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
SEEN = MapStateDescriptor("seen", Types.LONG(), Types.LONG())
#: (key, number, time); rules come first by their time, and there are as many as keys.
RECORDS = [("abc"[n % 3], n, 100 + n) for n in range(90)]
RULED = [("abc"[n % 3], 1000 * (n // 3 + 1), n) for n in range(30)]


class Pricing(BroadcastProcessFunction):
    """Notes rules; gives each record the rule of its key."""

    def process_element(
        self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[Any]:
        rules = ctx.get_broadcast_state(RULES)
        assert not hasattr(rules, "put")
        yield "record", value[1], rules.get(value[0]), ctx.timestamp()

    def process_broadcast_element(
        self, value: Any, ctx: BroadcastProcessFunction.Context
    ) -> Iterator[Any]:
        rules, seen = ctx.get_broadcast_state(RULES), ctx.get_broadcast_state(SEEN)
        rules.put(value[0], value[1])
        seen[value[1]] = (seen[value[1]] or 0) + 1
        if value[1] == 5000:
            del seen[1000]
            assert 1000 not in seen
        yield "rule", value[1], dict(sorted(rules.items())), len(list(seen))


class Counting(KeyedBroadcastProcessFunction):
    """Counts the records of a key, with timers; the last rule of the key is given with them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count: ValueState[int] = runtime_context.get_state(
            ValueStateDescriptor("count", Types.LONG())
        )

    def process_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        assert ctx.get_current_key() == value[0]
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(10_000)

    def process_broadcast_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        ctx.get_broadcast_state(RULES).put_all({value[0]: value[1]})

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterator[Any]:
        key = ctx.get_current_key()
        yield key, self.count.value(), ctx.get_broadcast_state(RULES).get(key), timestamp


class TouchingKeyedState(Counting):
    """Uses keyed state where there is no key."""

    def process_broadcast_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        self.count.update(1)


def inputs(env: StreamExecutionEnvironment) -> tuple[Any, Any]:
    records = env.from_source(SplitsSource([RECORDS[::2], RECORDS[1::2]]), event_time(0), "records")
    rules = env.from_source(SplitsSource([RULED]), event_time(0), "rules")
    return records.uid("records"), rules.uid("ruled")


def cluster(directory: Path, parallelism: int, function: Any, limit: int = 20) -> MiniCluster:
    env = environment(parallelism)
    records, rules = inputs(env)
    if isinstance(function, KeyedBroadcastProcessFunction):
        records = records.key_by(lambda record: record[0], key_type=Types.STRING())
    out = records.connect(rules.broadcast(RULES, SEEN)).process(function).uid("process")
    collect(out, directory)
    graph = env.get_job_graph("broadcast state")
    return MiniCluster(graph, directory / "checkpoint", limits=repeat(limit), seed=parallelism)


@pytest.mark.both_engines
@pytest.mark.parametrize("parallelism", [1, 3])
def test_every_subtask_has_all_of_it(tmp_path: Path, parallelism: int) -> None:
    cluster(tmp_path, parallelism, Pricing()).run()
    found = collected(tmp_path)
    records = sorted(row[1:] for row in found if row[0] == "record")
    assert [(n, time) for n, _, time in records] == [(n, time) for _, n, time in RECORDS]
    # The rules are read in the first epochs; from then on every subtask has all of them.
    last = {"a": 10_000, "b": 10_000, "c": 10_000}
    if not MiniCluster.pipelined:  # no input is read ahead of the other where tasks live on
        assert [rule for _, rule, _ in records[60:]] == [10_000] * 30
    rules = [row[1:] for row in found if row[0] == "rule"]
    assert len(rules) == 30 * parallelism
    assert Counter(number for number, _, _ in rules) == Counter(
        {1000 * n: 3 * parallelism for n in range(1, 11)}
    )
    assert rules.count((10_000, last, 9)) == parallelism


@pytest.mark.both_engines
@pytest.mark.parametrize("kind", ["plain", "keyed"])
def test_a_job_that_is_rescaled_keeps_it(tmp_path: Path, kind: str) -> None:
    function = Pricing() if kind == "plain" else Counting()
    for parallelism in (2, 3, 1):
        cluster(tmp_path, parallelism, function).run(max_epochs=1)
    for point in ("task.ack.before", "manifest.publish.after"):
        run = cluster(tmp_path, 2, function)
        with dying_at(point):
            run.run_epoch()
        run.close_instances()
    run = cluster(tmp_path, 3, function)
    run.run()
    found = collected(tmp_path)
    if kind == "plain":
        numbers = Counter(row[1] for row in found if row[0] == "record")
        assert numbers == Counter(range(90))
        # The rules were read in the first two epochs, by 2 and 3 subtasks; later ones found them.
        late = [row[2] for row in found if row[0] == "record" and row[1] > 80]
        assert late == [10_000] * 9
    else:
        assert sorted(found) == [(key, 30, 10_000, 10_000) for key in "abc"]
    details = inspect_checkpoint(run.storage)
    process = next(each for each in details.operators if each.uid == "process")
    kept = "'rules': broadcast state of String -> Long, 3 entries"
    assert kept in process.keeps


@pytest.mark.both_engines
@pytest.mark.parametrize("parallelism", [1, 2])
def test_keyed_state_has_no_key_in_the_broadcast_side(tmp_path: Path, parallelism: int) -> None:
    with pytest.raises(MillstreamError, match="no current key in process_broadcast_element"):
        cluster(tmp_path, parallelism, TouchingKeyedState()).run()


@pytest.mark.both_engines
def test_a_state_that_broadcast_was_not_given(tmp_path: Path) -> None:
    class Mistaken(Pricing):
        def process_broadcast_element(
            self, value: Any, ctx: BroadcastProcessFunction.Context
        ) -> Iterator[Any]:
            ctx.get_broadcast_state(MapStateDescriptor("ruls", Types.STRING(), Types.LONG()))
            yield value

    message = r"no broadcast state 'ruls'; broadcast\(\) was given 'rules', 'seen'"
    with pytest.raises(MillstreamError, match=message):
        cluster(tmp_path, 1, Mistaken()).run()


@pytest.mark.both_engines
def test_writing_where_it_is_read_only(tmp_path: Path) -> None:
    class Clearing(Pricing):
        def process_element(
            self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext
        ) -> Iterator[Any]:
            ctx.get_broadcast_state(RULES).clear()
            yield value

    with pytest.raises(MillstreamError, match="in process_broadcast_element only"):
        cluster(tmp_path, 1, Clearing()).run()


@pytest.mark.both_engines
def test_what_is_written_is_of_the_declared_types(tmp_path: Path) -> None:
    class Mistyped(Pricing):
        def process_broadcast_element(
            self, value: Any, ctx: BroadcastProcessFunction.Context
        ) -> Iterator[Any]:
            ctx.get_broadcast_state(RULES).put(value[0], "much")
            yield value

    with pytest.raises(MillstreamError, match="state 'rules', map value"):
        cluster(tmp_path, 1, Mistyped()).run()


@pytest.mark.parametrize("lives", [False, True])
def test_a_function_in_a_harness(lives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OperatorHarness, "long_lived_by_default", lives)
    with StreamHarness(
        lambda records, rules: records.connect(rules.broadcast(RULES, SEEN)).process(Pricing())
    ) as harness:
        harness.process(("a", 5), 7, input_index=1)
        harness.end_epoch()
        harness.process(("a", 6), 8, input_index=1)
        harness.crash()
        harness.process(("a", 1), 9)
        harness.process(("b", 2), 10)
        assert harness.outputs == [
            ("rule", 5, {"a": 5}, 1),
            ("record", 1, 5, 9),
            ("record", 2, None, 10),
        ]


@pytest.mark.both_engines
def test_another_type_of_a_state_is_refused(tmp_path: Path) -> None:
    cluster(tmp_path, 2, Counting()).run(max_epochs=1)
    env = environment(2)
    records, rules = inputs(env)
    keyed = records.key_by(lambda record: record[0], key_type=Types.STRING())
    other = MapStateDescriptor("rules", Types.STRING(), Types.STRING())
    out = keyed.connect(rules.broadcast(other, SEEN)).process(Counting()).uid("process")
    collect(out, tmp_path)
    graph = env.get_job_graph("broadcast state")
    message = "state 'rules' was kept with values of type Long and is now declared with String"
    with pytest.raises(StateError, match=message):
        MiniCluster(graph, tmp_path / "checkpoint", limits=repeat(20)).run()


def test_what_a_program_may_not_do() -> None:
    env = environment(1)
    records, rules = inputs(env)
    broadcast = rules.broadcast(RULES)
    assert isinstance(broadcast, BroadcastStream)
    keyed = records.key_by(lambda record: record[0])
    with pytest.raises(ProgramError, match="not keyed needs a BroadcastProcessFunction"):
        records.connect(broadcast).process(Counting())
    with pytest.raises(ProgramError, match="is keyed needs a KeyedBroadcastProcessFunction"):
        keyed.connect(broadcast).process(Pricing())
    with pytest.raises(ProgramError, match="needs MapStateDescriptors"):
        rules.broadcast(ValueStateDescriptor("v", Types.LONG()))
    with pytest.raises(ProgramError, match="two states called 'rules'"):
        rules.broadcast(RULES, RULES)
    expiring = MapStateDescriptor("e", Types.STRING(), Types.LONG())
    expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    with pytest.raises(ProgramError, match="'e' cannot expire"):
        rules.broadcast(expiring)


def in_batch_mode(
    directory: Path, parallelism: int, function: Any, limit: int = 7, seed: int = 0
) -> MiniCluster:
    """Rules are summed up by key first, which gives one per key at the end of their stream."""
    env = environment(parallelism).set_runtime_mode(RuntimeExecutionMode.BATCH)
    records, rules = inputs(env)
    if isinstance(function, KeyedBroadcastProcessFunction):
        records = records.key_by(lambda record: record[0], key_type=Types.STRING())
    sums = rules.key_by(lambda rule: rule[0]).reduce(lambda a, b: (a[0], a[1] + b[1], b[2]))
    broadcast = sums.uid("sums").broadcast(RULES, SEEN)
    out = records.connect(broadcast).process(function).uid("process")
    collect(out, directory)
    graph = env.get_job_graph("broadcast state")
    return MiniCluster(graph, directory / "checkpoint", limits=repeat(limit), seed=seed)


def sums_of_rules() -> Counter[str]:
    sums: Counter[str] = Counter()
    for key, amount, _ in RULED:
        sums[key] += amount
    return sums


@pytest.mark.both_engines
@pytest.mark.parametrize("kind", ["plain", "keyed"])
def test_in_batch_mode_the_broadcast_stream_is_read_first(tmp_path: Path, kind: str) -> None:
    function = Pricing() if kind == "plain" else Counting()
    for seed, parallelism in enumerate((2, 3, 1, 2, 3)):
        in_batch_mode(tmp_path, parallelism, function, seed=seed).run(max_epochs=2)
    in_batch_mode(tmp_path, 2, function).run()
    sums = sums_of_rules()
    if kind == "plain":
        records = sorted(row[1:3] for row in collected(tmp_path) if row[0] == "record")
        assert records == [(n, sums[key]) for key, n, _ in RECORDS]
    else:
        assert sorted(collected(tmp_path)) == [(key, 30, sums[key], 10_000) for key in "abc"]


@pytest.mark.both_engines
def test_broadcast_streams_of_broadcast_streams_in_batch_mode(tmp_path: Path) -> None:
    """All that comes before is read first, however the operators are numbered."""

    class Chained(Pricing):
        def process_element(
            self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext
        ) -> Iterator[Any]:
            yield value[0], ctx.get_broadcast_state(RULES).get(value[0]), value[2]

        def process_broadcast_element(
            self, value: Any, ctx: BroadcastProcessFunction.Context
        ) -> Any:
            ctx.get_broadcast_state(RULES).put(value[0], value[1])

    env = environment(2).set_runtime_mode(RuntimeExecutionMode.BATCH)
    names = ("last", "middle", "first")
    values = (RECORDS, [(key, 0, 0) for key in "abc"], RULED)
    last, middle, first = (
        env.from_source(SplitsSource([each]), event_time(0), name).uid(name)
        for name, each in zip(names, values, strict=True)
    )
    priced = middle.connect(first.broadcast(RULES)).process(Chained()).uid("one")
    collect(last.connect(priced.broadcast(RULES)).process(Chained()).uid("two"), tmp_path)
    graph = env.get_job_graph("broadcast state")
    assert sources_before(graph) == {
        "first": set(),
        "middle": {"first"},
        "last": {"first", "middle"},
    }
    MiniCluster(graph, tmp_path / "checkpoint", limits=repeat(7)).run()
    found = Counter((key, rule) for key, rule, _ in collected(tmp_path))
    assert found == {(key, 10_000): 30 for key in "abc"}


def test_what_cannot_be_read_in_order(tmp_path: Path) -> None:
    def graph(settings: dict[str, str] | None = None, *, both: bool = False) -> JobGraph:
        env = environment(1, **(settings or {})).set_runtime_mode(RuntimeExecutionMode.BATCH)
        records, rules = inputs(env)
        broadcast = (records if both else rules).broadcast(RULES, SEEN)
        collect(records.connect(broadcast).process(Pricing()), tmp_path)
        return env.get_job_graph("broadcast state")

    with pytest.raises(ProgramError, match=r"source 'Source: records' .* feeds both of its inputs"):
        graph(both=True)
    of_spark = graph()
    next(node for node in of_spark.nodes.values() if node.uid == "ruled").source = None
    with pytest.raises(ProgramError, match="Spark reads its sources in no order"):
        sources_before(of_spark)
    of_spark.batch_mode = False
    assert sources_before(of_spark) == {"records": set(), "ruled": set()}


class Raising(KeyedBroadcastProcessFunction):
    """Adds what is broadcast to the counts of all keys that are known."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_state(COUNTS)
        self.names = runtime_context.get_map_state(NAMES)

    def process_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[Any]:
        key, number = value
        self.counts.update((self.counts.value() or 0) + number)
        self.names.put(number, str(key))
        yield key, self.counts.value(), sorted(self.names.values())

    def process_broadcast_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterator[Any]:
        seen = []

        def add(key: Any, state: ValueState[int]) -> None:
            seen.append(key)
            state.update(state.value() + value)

        ctx.apply_to_keyed_state(COUNTS, add)
        ctx.apply_to_keyed_state(NAMES, lambda _, state: state.clear())
        yield "known", sorted(map(str, seen))


COUNTS = ValueStateDescriptor("counts", Types.LONG())
NAMES = MapStateDescriptor("names", Types.LONG(), Types.STRING())


@pytest.mark.parametrize("long_lived", [False, True])
@pytest.mark.parametrize("keys", [3, 1_203])
def test_what_is_broadcast_reaches_the_state_of_all_keys(keys: int, long_lived: bool) -> None:
    factory = KeyedBroadcastProcessFactory(Raising(), lambda value: value[0], [])
    with OperatorHarness(factory, long_lived=long_lived) as harness:
        known = [f"k{n}" if n % 3 else n for n in range(keys)]  # several kinds of keys
        harness.process_all([(key, 1) for key in known])
        harness.end_epoch()
        harness.process((("pair", 1), 5))  # in memory only
        harness.process(10, input_index=1)
        found: tuple[str, list[str]] = ("known", sorted(map(str, [*known, ("pair", 1)])))
        assert harness.outputs[-1:] == [found]
        harness.end_epoch()
        for key, count in ((known[0], 11), (known[-1], 11), (("pair", 1), 15), ("new", 0)):
            harness.process((key, 7))
            assert harness.outputs[-1] == (key, count + 7, [str(key)])


def test_keyed_state_has_no_key_behind_it() -> None:
    class Touching(Raising):
        def process_broadcast_element(
            self, value: Any, ctx: KeyedBroadcastProcessFunction.Context
        ) -> Iterator[Any]:
            yield from super().process_broadcast_element(value, ctx)
            self.counts.update(1)

    factory = KeyedBroadcastProcessFactory(Touching(), lambda value: value[0], [])
    with OperatorHarness(factory) as harness:
        harness.process(("a", 1))
        with pytest.raises(StateError, match="has no current key"):
            harness.process(10, input_index=1)
