"""A job to which nothing comes: no epoch where nothing can change, and one where something can.

The clock is the test's.  Between two moments at which something changes it moves on by an hour, in
steps of a tick, and the planner is asked at each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import SplitsSource, collect, collected, environment
from tests.integration.test_time_of_jobs import GrowingSource, gathered

from millstream.common import Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.functions.watermark_strategy import WatermarkGenerator
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.datastream import RuntimeContext, StreamExecutionEnvironment

pytestmark = pytest.mark.both_engines(about="time")

TICK = 200
HOUR = 3_600_000
START = 1_000_000


@dataclass
class Clock:
    now: int = START

    def __call__(self) -> int:
        return self.now


class Job:
    """A job on a directory; it can be started again."""

    def __init__(self, env: StreamExecutionEnvironment, directory: Path, clock: Clock) -> None:
        self._graph = env.get_job_graph("idle")
        self._directory = directory / "checkpoint"
        self.clock = clock
        self.start()

    def start(self) -> None:
        self.running = MiniCluster(
            self._graph, self._directory, clock=self.clock, tick_interval=TICK
        )

    @property
    def epoch(self) -> int:
        last = self.running.coordinator.last
        return -1 if last is None else last.epoch

    def settle(self) -> None:
        """Run what can be run now; tasks that go on are not closed: theirs would be downtime."""
        while self.running.run_epoch():
            pass

    def epochs_until(self, time: int) -> list[int]:
        """Ask at every tick until then; returns the times at which epochs ran."""
        ran = []
        while self.clock.now < time:
            self.clock.now = min(self.clock.now + TICK, time)
            if self.running.run_epoch():
                ran.append(self.clock.now)
        return ran


def growing(directory: Path, count: int, events: list[Any]) -> tuple[GrowingSource, Path]:
    file = directory / "available"
    file.write_text(str(count))
    return GrowingSource([events], file), file


def test_idle_sources_run_no_epochs(tmp_path: Path) -> None:
    events = [("a", 1, 5), ("a", 2, 17), ("a", 3, 40)]
    source, available = growing(tmp_path, 2, events)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(1000)
    env = environment(2)
    timed = strategy.with_timestamp_assigner(lambda record, _: record[2])
    collect(gathered(env.from_source(source, timed, "in")), tmp_path)
    job = Job(env, tmp_path, Clock())
    job.settle()
    assert collected(tmp_path) == [("a", 0, [1])]
    # It becomes idle once, in time.
    assert job.epochs_until(START + 60_000) == [START + 1000]
    manifest = job.running.coordinator.last
    assert manifest is not None
    ((state,),) = (states.values() for states in manifest.splits.values())
    assert state.idle
    available.write_text("3")
    assert job.epochs_until(START + 61_000) == [START + 60_000 + TICK]
    assert collected(tmp_path)[1:] == [("a", 10, [2])]
    # After a restart, as in Flink, splits are active until they have been silent for so long again.
    job.start()
    now = job.clock.now
    assert job.epochs_until(now + 60_000) == [now + TICK, now + TICK + 1000]


class Alarm(KeyedProcessFunction):
    """Calls ``delay`` after a record, and from then on once an hour, three times in all."""

    def __init__(self, delay: int) -> None:
        self.delay = delay

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls = runtime_context.get_state(ValueStateDescriptor("calls", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + self.delay)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        calls = (self.calls.value() or 0) + 1
        self.calls.update(calls)
        if calls < 3:
            ctx.timer_service().register_processing_time_timer(timestamp + HOUR)
        yield ctx.timer_service().current_processing_time()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_processing_time_timers_come_in_time_and_nothing_else(
    tmp_path: Path, backend: str, restart: bool
) -> None:
    env = environment(2)
    source = SplitsSource([[("a", 1, 1)]], unbounded=True)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in")
    collect(stream.key_by(lambda record: record[0]).process(Alarm(5000)), tmp_path)
    job = Job(env, tmp_path, Clock())
    job.running.job.state_backend = backend
    job.settle()
    if restart:
        job.start()
        job.running.job.state_backend = backend
        # What no task has told this run is found out by one epoch.
        assert job.epochs_until(START + 4000) == [START + TICK]
    due = [START + 5000, START + 5000 + HOUR, START + 5000 + 2 * HOUR]
    assert job.epochs_until(START + 5000) == due[:1]
    for time in due[1:]:
        job.clock.now = time - 2000
        assert job.epochs_until(time) == [time]
    job.clock.now += 20 * HOUR
    assert job.epochs_until(job.clock.now + 10_000) == []
    assert collected(tmp_path) == due


def test_a_watermark_that_is_due_comes_without_a_record(tmp_path: Path) -> None:
    events = [("a", 1, 5), ("a", 2, 17), ("a", 3, 40)]
    source, available = growing(tmp_path, 1, events)
    env = environment(1, **{"pipeline.auto-watermark-interval": "3 s"})
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    timed = strategy.with_timestamp_assigner(lambda record, _: record[2])
    collect(gathered(env.from_source(source, timed, "in")), tmp_path)
    job = Job(env, tmp_path, Clock())
    job.settle()
    available.write_text("3")
    job.clock.now += 100
    job.settle()
    assert collected(tmp_path) == []
    assert job.epochs_until(START + 60_000) == [START + 3100]
    assert collected(tmp_path) == [("a", 0, [1]), ("a", 10, [2])]


class ByTheClock(WatermarkGenerator):
    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None: ...

    def on_periodic_emit(self, output: Any) -> None:
        output.emit_watermark(output.current_processing_time() - START)


def test_a_generator_that_looks_at_the_clock_is_asked_at_its_interval(tmp_path: Path) -> None:
    source = SplitsSource([[("a", 1, 5), ("a", 2, 17)]], unbounded=True)
    env = environment(1)
    strategy = WatermarkStrategy.for_generator(ByTheClock).with_periodic_emit(interval=10_000)
    timed = strategy.with_timestamp_assigner(lambda record, _: record[2])
    collect(gathered(env.from_source(source, timed, "in")), tmp_path)
    job = Job(env, tmp_path, Clock())
    job.settle()
    assert job.epochs_until(START + 35_000) == [START + 10_000, START + 20_000, START + 30_000]
    assert collected(tmp_path) == [("a", 0, [1]), ("a", 10, [2])]


def test_idleness_in_mid_stream_is_noticed_once(tmp_path: Path) -> None:
    source = SplitsSource([[("a", 1, 5), ("a", 2, 17)]], unbounded=True)
    env = environment(1)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").rebalance()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(4_000)
    timed = strategy.with_timestamp_assigner(lambda record, _: record[2])
    collect(gathered(stream.assign_timestamps_and_watermarks(timed)), tmp_path)
    job = Job(env, tmp_path, Clock())
    job.settle()
    assert job.epochs_until(START + 60_000) == [START + 4_000]
