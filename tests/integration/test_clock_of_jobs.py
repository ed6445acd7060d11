"""The clock, as operators see it that nobody calls by it: it goes on while a job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import SplitsSource, collect, collected, environment

from millstream.common import WatermarkStrategy
from millstream.common.time import Time
from millstream.datastream import KeyedProcessFunction, ProcessFunction
from millstream.datastream.state import StateTtlConfig, ValueStateDescriptor
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


@pytest.mark.both_engines
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
