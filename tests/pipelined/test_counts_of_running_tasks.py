"""Counts and the age of the last checkpoint are known before a checkpoint is complete."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.environments import environments, wait_until

from millstream.checkpoint import LocalStorage
from millstream.common import Time, Types
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from millstream.contracts.metrics import gauge
from millstream.datastream import MapFunction, ReduceFunction, RuntimeContext
from millstream.datastream.connectors import DiscardingSink
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.execution.monitor import CompletedCheckpoint
from millstream.metrics.progress import LineProgressReporter, Progress
from millstream.runtime import task_metrics
from millstream.runtime.pipelined import control
from millstream.runtime.task_metrics import RunningMetrics, delete_counts, published, read_counts

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.datastream import JobClient

#: Seconds that only a test that fails waits.
DEADLINE = 60.0


class Gated(MapFunction):
    """Count records, and let no more than some pass before a file is there."""

    def __init__(self, gate: Path, free: int) -> None:
        self.gate = gate
        self.free = free
        self.seen = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.counter = group.counter("mine")
        self.meter = group.meter("events")
        self.sizes = group.distribution("sizes")
        self.thread = threading.get_ident()
        group.gauge("seen", self.look)

    def look(self) -> int:
        assert threading.get_ident() == self.thread
        return self.seen

    def map(self, value: Any) -> Any:
        self.seen += 1
        self.counter.inc()
        self.meter.mark_event()
        self.sizes.update(value)
        while self.seen > self.free and not self.gate.exists():
            time.sleep(0.01)
        return value


def start(directory: Path, execution: str, free: int) -> JobClient:
    engine = {"execution.target": "local", "millstream.execution": execution}
    kept = {"execution.checkpointing.dir": str(directory / "kept")}
    # No checkpoint of the pipelined engine is triggered in the time of the test.
    interval = "1 h" if execution == "pipelined" else "0"
    slow = {"execution.checkpointing.interval": interval, "millstream.batch.size": "10"}
    env = environments(directory, engine)(1, {**kept, **slow})
    numbers = env.from_collection(list(range(100)), Types.LONG()).uid("numbers")
    gated = numbers.map(Gated(directory / "gate", free), Types.LONG()).uid("gated")
    gated.sink_to(DiscardingSink()).uid("nowhere")
    return env.execute_async("counted")


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_counts_are_there_before_the_first_checkpoint(
    tmp_path: Path, execution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_COUNTS", 0.05)
    monkeypatch.setattr(task_metrics, "_INTERVAL", 0.05)
    client = start(tmp_path, execution, free=50)
    # At once, whatever tasks do.
    assert client.get_metrics()["numbers.numRecordsIn"] in range(101)

    def counted() -> bool:
        metrics = client.get_metrics()
        return metrics["numbers.numRecordsIn"] >= 40 and metrics.get("gated.mine", 0) >= 50  # type: ignore[operator]

    def measured() -> bool:
        metrics: dict[str, Any] = client.get_metrics()
        return bool(
            metrics.get("gated.events", {}).get("count", 0) >= 50
            and metrics.get("gated.sizes", {}).get("max", 0) >= 49
            and "0" in metrics.get("gated.seen", {})
        )

    try:
        wait_until(counted, "counts of a running task", DEADLINE)
        wait_until(measured, "measures of a running task", DEADLINE)
        assert client.get_last_checkpoint() is None
        assert client.get_accumulators().result().get("numbers.numRecordsIn") is None
    finally:
        (tmp_path / "gate").touch()
    client.get_job_execution_result().result()
    metrics = client.get_metrics()
    assert (metrics["numbers.numRecordsIn"], metrics["gated.mine"]) == (100, 100)
    last = client.get_last_checkpoint()
    assert last is not None
    assert last.age() >= 0
    assert not list((tmp_path / "kept" / "counts").glob("*"))


class Holding(ReduceFunction):
    """Hold up what follows the first record of a window."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def reduce(self, value1: Any, value2: Any) -> Any:
        while not self.gate.exists():
            time.sleep(0.01)
        return value1 + value2


class Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_late_records_are_counted_before_the_checkpoint(
    tmp_path: Path, execution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_COUNTS", 0.05)
    monkeypatch.setattr(task_metrics, "_INTERVAL", 0.05)
    engine = {"execution.target": "local", "millstream.execution": execution}
    interval = "1 h" if execution == "pipelined" else "0"
    slow = {"execution.checkpointing.interval": interval, "millstream.batch.size": "1"}
    env = environments(tmp_path, engine)(1, slow)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
    numbers = env.from_collection([1_000_000, 1, 2, 2_000_000, 2_000_001], Types.LONG())
    timed = numbers.assign_timestamps_and_watermarks(strategy)
    window = timed.key_by(lambda _: 0).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    window.reduce(Holding(tmp_path / "gate")).uid("window").sink_to(DiscardingSink())
    client = env.execute_async("late")
    try:
        wait_until(
            lambda: client.get_metrics().get("window.numLateRecordsDropped") == 2,
            "late records of a running task",
            DEADLINE,
        )
        assert client.get_last_checkpoint() is None
    finally:
        (tmp_path / "gate").touch()
    client.get_job_execution_result().result()


def test_the_age_of_a_checkpoint_is_that_of_its_publishing() -> None:
    checkpoint = CompletedCheckpoint(7, 2, published=1000)
    assert checkpoint.age(now=3500) == 2500
    assert checkpoint.age(now=0) == 0


def test_counts_are_written_while_a_task_runs_and_not_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_metrics, "_INTERVAL", 0.01)
    storage = LocalStorage(tmp_path / "kept", fsync=False)
    written = threading.Event()

    def counts() -> RunningMetrics:
        written.set()
        return RunningMetrics(3, {"a.numRecordsIn": 5, "a.queue": gauge(2)}, 1)

    assert read_counts(storage) == []
    with published(storage, (0, 1), counts):
        assert written.wait(DEADLINE)
        wait_until(lambda: read_counts(storage) != [], "the file", DEADLINE)
    assert read_counts(storage) == [
        RunningMetrics(3, {"a.numRecordsIn": 5, "a.queue": gauge(2)}, 1)
    ]
    (tmp_path / "kept" / "counts" / "0-2.json").write_text("no JSON")
    assert read_counts(storage) == [
        RunningMetrics(3, {"a.numRecordsIn": 5, "a.queue": gauge(2)}, 1)
    ]
    delete_counts(storage)
    assert read_counts(storage) == []


def test_a_line_between_checkpoints_has_records_and_age() -> None:
    lines: list[str] = []
    now = [0.0]
    reporter = LineProgressReporter("job", lines.append, 10.0, lambda: now[0])
    reporter.update_running(5, None)
    now[0] = 10.0
    reporter.update_running(1500, None)
    assert lines == ["job: 1,500 records | no checkpoint yet"]
    now[0] = 20.0
    reporter.update(Progress(1, 2000, 5.0, 0, 0, 2.0))
    now[0] = 30.0
    reporter.update_running(2500, 10.0)
    assert lines[2] == "job: 2,500 records | last checkpoint 10 s ago"
