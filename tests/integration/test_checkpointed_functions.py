"""Functions with state of the operator, rescaled and killed; functions told of checkpoints."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import SplitsSource, collect, collected, environment, event_time
from tests.matrix.test_other_modes import dying_at

from millstream.checkpoint.manifest_log import ManifestLog
from millstream.common import Types
from millstream.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from millstream.errors import MillstreamError, StateError
from millstream.runtime.operators.process import KeyedProcessFactory
from millstream.runtime.operators.stateless import FlatMapFactory, MapFactory
from millstream.state.reader import open_state
from millstream.testing import OperatorHarness
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

RECORDS = 240
END = -1


class Grouping(FlatMapFunction, CheckpointedFunction):
    """Holds records back until there are five, in a field; a checkpoint has them in a list."""

    def __init__(self, size: int = 5) -> None:
        self.size = size
        self.held: list[int] = []
        self.is_open = False

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        assert not self.held, "it begins with the fields that it has in the program"
        assert not self.is_open, "the state comes before open()"
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("held", Types.LONG()))
        self.seen = store.get_union_list_state(ListStateDescriptor("seen", Types.LONG()))
        self.rules = store.get_broadcast_state(
            MapStateDescriptor("rules", Types.STRING(), Types.LONG())
        )
        self.held.extend(self.state.get())
        self.count = max(self.seen.get(), default=0)
        if context.is_restored():
            assert self.rules.get("checkpoint") == context.get_restored_checkpoint_id()
        else:
            assert context.get_restored_checkpoint_id() is None

    def open(self, runtime_context: RuntimeContext) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

    def flat_map(self, value: Any) -> Iterator[int]:
        assert self.is_open
        self.count += 1
        self.held.append(value[1])
        if len(self.held) >= self.size or value[1] == END:
            held, self.held = self.held, []
            yield from held

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(self.held)
        self.seen.update([self.count])
        self.rules.put("checkpoint", context.get_checkpoint_id())


def cluster(directory: Path, parallelism: int) -> MiniCluster:
    events = [(f"{number:05}", number, number) for number in range(RECORDS)]
    env = environment(parallelism)
    records = env.from_source(SplitsSource([events[::2], events[1::2]]), event_time(0), "records")
    groups = records.rebalance().flat_map(Grouping(), Types.LONG()).uid("grouping")
    collect(groups, directory)
    graph = env.get_job_graph("checkpointed functions")
    return MiniCluster(graph, directory / "checkpoint", limits=repeat(20), seed=parallelism)


def check(run: MiniCluster, directory: Path) -> None:
    """Each record has come out once, or is held back in the last checkpoint."""
    (last,) = list(ManifestLog(run.storage).manifests())[-1:]
    with open_state(run.storage, last, "grouping") as state:
        held = [entry.value for entry in state.entries("held")]
    assert Counter([*collected(directory), *held]) == Counter(range(RECORDS))
    assert len(held) < RECORDS / 2


@pytest.mark.both_engines
def test_a_job_that_is_rescaled_loses_and_doubles_nothing(tmp_path: Path) -> None:
    for parallelism in (2, 3, 1, 7):
        cluster(tmp_path, parallelism).run(max_epochs=2)
    last = cluster(tmp_path, 2)
    last.run()
    check(last, tmp_path)


@pytest.mark.both_engines
@pytest.mark.parametrize(
    "point", ["task.ack.before", "epoch.acks.after", "manifest.publish.after", "cleanup.before"]
)
def test_a_job_that_is_killed_and_rescaled(tmp_path: Path, point: str) -> None:
    for parallelism in (2, 1, 3):
        run = cluster(tmp_path, parallelism)
        run.run_epoch()
        with dying_at(point):
            run.run_epoch()
        run.close_instances()
    last = cluster(tmp_path, 2)
    last.run()
    check(last, tmp_path)


@pytest.mark.parametrize("long_lived", [False, True])
def test_the_function_begins_anew_wherever_it_is_restored(long_lived: bool) -> None:
    with OperatorHarness(FlatMapFactory(Grouping()), long_lived=long_lived) as harness:
        for number in range(1, 8):
            harness.process(("", number))
        harness.end_epoch(swap=True)
        for number in range(8, 12):
            harness.process(("", number))
        harness.end_epoch(swap=False)
        harness.process(("", 99))
        harness.crash()
        harness.process(("", 12))
        harness.end_epoch(swap=False)
        harness.process(("", END))
        assert harness.outputs == [*range(1, 13), END]


class Listening(MapFunction, CheckpointListener):
    """Notes what it is told."""

    def __init__(self, told: list[tuple[str, int]] | None = None) -> None:
        self.told = [] if told is None else told

    def map(self, value: Any) -> Any:
        return list(self.told)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.told.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.told.append(("aborted", checkpoint_id))


@pytest.mark.both_engines
def test_the_function_is_told_of_checkpoints_in_their_order(tmp_path: Path) -> None:
    events = [("", number, number) for number in range(RECORDS)]
    env = environment(1)
    records = env.from_source(SplitsSource([events]), event_time(0), "records")
    collect(records.rebalance().map(Listening()).uid("listening"), tmp_path)
    graph = env.get_job_graph("listeners")
    MiniCluster(graph, tmp_path / "checkpoint", limits=repeat(20), seed=1).run()
    told = collected(tmp_path)
    # In micro-batches an instance is told by the next one that it runs in, if there is one.
    assert max(map(len, told)) >= (3 if MiniCluster.pipelined else 1)
    for each in told:
        assert {kind for kind, _ in each} <= {"complete"}
        assert all(one[1] < other[1] for one, other in pairwise(each))


def test_the_function_is_told_of_a_checkpoint_that_is_aborted() -> None:
    with OperatorHarness(MapFactory(Listening()), long_lived=True) as harness:
        harness.end_epoch()
        harness.operator.aborted(0)
        harness.end_epoch()
        assert harness.operator.committed(1) is None
        harness.process(1)
        assert harness.outputs == [[("aborted", 0), ("complete", 1)]]


class Keyed(KeyedProcessFunction, CheckpointedFunction):
    """Counts by key, and in the whole subtask."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        keyed = context.get_keyed_state_store()
        self.count = keyed.get_state(ValueStateDescriptor("count", Types.LONG()))
        store = context.get_operator_state_store()
        self.total = store.get_list_state(ListStateDescriptor("total", Types.LONG()))
        self.sum = sum(self.total.get())

    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[tuple[int, int]]:
        self.sum += 1
        self.count.update((self.count.value() or 0) + 1)
        return [(self.count.value(), self.sum)]

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.total.update([self.sum])


@pytest.mark.parametrize("long_lived", [False, True])
def test_keyed_state_is_there_as_well(long_lived: bool) -> None:
    factory = KeyedProcessFactory(Keyed(), lambda value: value)
    with OperatorHarness(factory, long_lived=long_lived) as harness:
        for key in ("a", "b", "a"):
            harness.process(key)
            harness.end_epoch()
        assert harness.outputs == [(1, 1), (1, 2), (2, 3)]


class WrongType(Grouping):
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(["a text"])


class Failing(Grouping):
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        message = "no such table"
        raise KeyError(message)


class OtherKind(Grouping):
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        store.get_union_list_state(ListStateDescriptor("held", Types.LONG()))


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (
            WrongType(),
            "operator 'op' .* failed while writing the state of the function: .*'a text'",
        ),
        (
            Failing(),
            "failed while initializing the state of the function: KeyError: 'no such table'",
        ),
    ],
)
def test_what_a_function_raises_is_named(function: Grouping, part: str) -> None:
    def run() -> None:
        with OperatorHarness(FlatMapFactory(function), name="op") as harness:
            harness.end_epoch()

    with pytest.raises(MillstreamError) as failed:
        run()
    assert re.search(part, str(failed.value)), failed.value


def test_a_state_of_another_kind_is_refused() -> None:
    with OperatorHarness(FlatMapFactory(Grouping()), name="op") as harness:
        harness.process(("", 1))
        harness.factory = FlatMapFactory(OtherKind())
        with pytest.raises(
            StateError, match="'held' is kept as list state and is now asked for as"
        ):
            harness.end_epoch()
