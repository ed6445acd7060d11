"""The clock, as operators see it that nobody calls by it: it goes on while a job runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import SplitsSource, collect, collected, environment

from millstream.common import Types, WatermarkStrategy
from millstream.common.time import Time
from millstream.datastream import KeyedProcessFunction, ProcessFunction
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.runtime import task
from millstream.testing import mini_cluster
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.datastream import RuntimeContext

Event = tuple[str, int]


class CountUntilExpiry(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("count")
        config = StateTtlConfig.new_builder(Time.milliseconds(100)).build()
        descriptor.enable_time_to_live(config)
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield self.count.value(), ctx.timer_service().current_processing_time()


class Now(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield *value, ctx.timer_service().current_processing_time()


@pytest.mark.both_engines(about="time")
def test_state_expires_by_the_clock_while_a_job_runs_and_not_by_its_restarts(
    tmp_path: Path,
) -> None:
    now = [0]
    env = environment(2)
    strategy = WatermarkStrategy.no_watermarks()
    events = env.from_source(SplitsSource([[("a", 1)] * 6]), strategy, "events")
    counts = events.key_by(lambda record: record[0]).process(CountUntilExpiry())
    collect(counts.rebalance().process(Now()), tmp_path)
    graph = env.get_job_graph("time")
    assert not any(node.needs_processing_time for node in graph.nodes.values())
    expected: list[int] = []
    for until_restart in (4, 2):
        running = MiniCluster(graph, tmp_path / "checkpoint", clock=lambda: now[0], limits=[1] * 9)
        for _ in range(until_restart):
            now[0] += 100 if len(expected) == 2 else 60
            assert running.run_epoch()
            expected.append(now[0])
        running.close_instances()
        running.coordinator.close()
    assert collected(tmp_path) == [
        (count, at, at) for count, at in zip((1, 2, 1, 2, 3, 4), expected, strict=True)
    ]


class Access(KeyedProcessFunction):
    """Reads and writes each kind of state with a time to live of a second."""

    def open(self, runtime_context: RuntimeContext) -> None:
        config = StateTtlConfig.new_builder(Time.seconds(1)).build()

        def kept(descriptor: Any) -> Any:
            descriptor.enable_time_to_live(config)
            return descriptor

        context = runtime_context
        self.value = context.get_state(kept(ValueStateDescriptor("value", Types.LONG())))
        self.list = context.get_list_state(kept(ListStateDescriptor("list", Types.LONG())))
        self.map = context.get_map_state(
            kept(MapStateDescriptor("map", Types.LONG(), Types.LONG()))
        )
        self.sum = context.get_reducing_state(
            kept(ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG()))
        )

    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        MOMENT[0] += value[1]
        self.value.update((self.value.value() or 0) + 1)
        self.list.add(value[1])
        self.map.put(0, (self.map.get(0) or 0) + 1)
        self.sum.add(1)
        yield self.value.value(), len(list(self.list.get())), self.map.get(0), self.sum.get()


#: What the clock shows to tasks, and to the planner of epochs.
MOMENT = [0]


def test_state_expires_by_the_time_of_its_records_and_not_of_their_micro_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second epoch begins 1.1 s after the first, but its record comes 0.3 s after the other."""
    MOMENT[0] = 10_000
    clock = SimpleNamespace(time_ns=lambda: MOMENT[0] * 1_000_000)
    monkeypatch.setattr(mini_cluster, "time", clock)
    monkeypatch.setattr(task, "system_clock", lambda: MOMENT[0])
    env = environment(1)
    # Each record comes so many milliseconds after the epoch, or the record before it, began.
    records = [("a", 900), ("a", 100), ("a", 1200), ("a", 300)]
    events = env.from_source(SplitsSource([records]), WatermarkStrategy.no_watermarks(), "events")
    collect(events.key_by(lambda record: record[0]).process(Access()), tmp_path)
    running = MiniCluster(
        env.get_job_graph("time"), tmp_path / "checkpoint", limits=[1, 3], pipelined=False
    )
    assert running.run_epoch()
    MOMENT[0] += 200
    assert running.run_epoch()
    running.close_instances()
    running.coordinator.close()
    # The third record of all finds everything expired, within its micro-batch.
    assert collected(tmp_path) == [(count,) * 4 for count in (1, 2, 1, 2)]
