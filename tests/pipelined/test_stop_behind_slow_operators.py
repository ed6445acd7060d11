"""A stop behind a slow operator goes on committing, reports what is left, and ends in time."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from millstream.checkpoint import LocalStorage, ManifestLog
from millstream.common import Encoder, Types, WatermarkStrategy
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.datastream.connectors import FileSink
from millstream.engines.pipelined import run_loop
from millstream.engines.pipelined.run_loop import Stopping
from millstream.errors import JobError
from millstream.runtime.task_metrics import SubtaskTimes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from millstream.datastream import JobClient, StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

UNALIGNED = {
    "execution.checkpointing.unaligned": "true",
    "execution.checkpointing.interval": "100",
    # Far more waits than is processed in this test.
    "taskmanager.network.memory.buffer-debloat.enabled": "false",
}


def slowly(n: int) -> str:
    time.sleep(0.002)
    return str(n)


def start(make: Make, directory: Path, settings: dict[str, str]) -> JobClient:
    kept = {"execution.checkpointing.dir": str(directory / "checkpoints")}
    env = make(1, {**settings, **kept})
    source = NumberSequenceSource(0, 10**9)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    sink = FileSink.for_row_format(str(directory / "out"), Encoder.simple_string_encoder())
    slow = numbers.rebalance().map(slowly, Types.STRING()).uid("slow")
    slow.sink_to(sink.build()).uid("files")
    return env.execute_async("slow")


def processed(client: JobClient) -> int:
    """Records of the slow operator, at the last checkpoint."""
    found: dict[str, Any] = client.get_accumulators().result()
    return int(found.get("slow.numRecordsIn", 0))


def asked_to_stop(client: JobClient) -> threading.Event:
    """Set when the job has stopped, or failed to."""
    ended = threading.Event()

    def stop() -> None:
        with contextlib.suppress(JobError):  # cancelled
            client.stop().result()
        ended.set()

    threading.Thread(target=stop, daemon=True).start()
    return ended


def has_records_in_flight(directory: Path) -> bool:
    last = ManifestLog(LocalStorage(directory / "checkpoints", fsync=False)).latest()
    return last is not None and bool(last.in_flight)


def test_checkpoints_go_on_while_the_job_stops(
    make: Make, eventually: Eventually, tmp_path: Path
) -> None:
    client = start(make, tmp_path, UNALIGNED)
    eventually(lambda: processed(client) > 0, "a first checkpoint")
    ended = asked_to_stop(client)
    for _ in range(3):
        before = processed(client)
        eventually(lambda before=before: processed(client) > before, "another checkpoint")  # type: ignore[misc]
        assert not ended.is_set()
    client.cancel().result()
    assert ended.wait(30)


def test_a_stop_that_takes_too_long_ends_with_records_in_flight(
    make: Make,
    eventually: Eventually,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(Stopping, "is_late", lambda _self, _now: True)
    client = start(make, tmp_path, UNALIGNED)
    eventually(lambda: processed(client) > 0, "a first checkpoint")
    ended = asked_to_stop(client)
    assert ended.wait(30)
    assert has_records_in_flight(tmp_path)
    assert "continue from it with the same program" in caplog.text


def test_a_stop_behind_a_slow_operator_is_quick(
    make: Make, eventually: Eventually, tmp_path: Path
) -> None:
    """Aligned: what waits is limited by what is processed in a second."""
    client = start(make, tmp_path, {"execution.checkpointing.interval": "100"})
    eventually(lambda: processed(client) > 0, "a first checkpoint")
    assert asked_to_stop(client).wait(60)
    assert not has_records_in_flight(tmp_path)
    # With 2 MiB on the link it would have processed 130,000 first.
    assert processed(client) < 20_000


def test_the_progress_of_a_stop() -> None:
    stop = Stopping({1: "slow", 2: "files"}, 600.0, 100.0)
    waiting = {
        (0, 0): SubtaskTimes(0, 0, 1000),
        (1, 0): SubtaskTimes(1000, 0, 0, 30_000),
        (1, 1): SubtaskTimes(1000, 0, 0, 10_000),
        (2, 0): SubtaskTimes(0, 1000, 0, 500),
    }
    assert stop.report(101.0, waiting) is None, "most are over by then"
    first = stop.report(105.0, waiting)
    assert first == (
        "the job has been stopping for 5 s; 40,500 bytes wait to be processed"
        " (40,000 bytes for 'slow', 500 bytes for 'files'); it has 595 s left"
    )
    assert stop.report(106.0, waiting) is None
    waiting[1, 0] = SubtaskTimes(1000, 0, 0, 20_000)
    second = stop.report(110.0, waiting)
    assert second is not None
    assert "30,500 bytes" in second
    assert "about 15 s at the rate of the last 5 s" in second
    done = stop.report(115.0, {(1, 0): SubtaskTimes(0, 1000, 0)})
    assert done == (
        "the job has been stopping for 15 s; nothing waits between its tasks: the last checkpoint"
        " is under way"
    )
    assert not stop.is_late(699.0)
    assert stop.is_late(700.0)


def test_the_progress_is_logged(
    make: Make,
    eventually: Eventually,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(run_loop, "_REPORT", 0.2)
    client = start(make, tmp_path, UNALIGNED)
    eventually(lambda: processed(client) > 0, "a first checkpoint")
    ended = asked_to_stop(client)
    eventually(lambda: "bytes wait to be processed" in caplog.text, "a message")
    client.cancel().result()
    assert ended.wait(30)
