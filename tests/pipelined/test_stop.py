"""Jobs that stop behind a last checkpoint, drained or to be gone on with, on both engines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.environments import environments

from millstream.checkpoint import LocalStorage, ManifestLog
from millstream.common import Duration, Encoder, Time, Types, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.datastream import JobStatus, StreamExecutionEnvironment, TumblingEventTimeWindows
from millstream.datastream.connectors import FileSink
from millstream.errors import JobError, ProgramError
from millstream.execution.driver import JobDriver

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.datastream import DataStream, JobClient

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

ENGINES = ["epochs", "pipelined"]


def slowly(n: int) -> int:
    time.sleep(0.0005)
    return n


class Numbers(NumberSequenceSource):
    """Of which the first epoch reads few."""

    initial_limit = 100


class Seconds(TimestampAssigner):
    """A number is a second."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        del record_timestamp
        return int(value) * 1000


def numbers(env: StreamExecutionEnvironment, count: int = 10**9) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))
    strategy = strategy.with_timestamp_assigner(Seconds())
    source = Numbers(0, count - 1, splits=2)
    stream = env.from_source(source, strategy, "numbers").uid("numbers")
    return stream.map(slowly, Types.LONG()).uid("slowly")


def to_files(stream: DataStream, directory: Path) -> None:
    sink = FileSink.for_row_format(str(directory / "out"), Encoder.simple_string_encoder())
    stream.map(str, Types.STRING()).uid("words").sink_to(sink.build()).uid("files")


def lines(directory: Path) -> list[str]:
    out = directory / "out"
    files = (
        [each for each in out.iterdir() if not each.name.startswith(".")] if out.exists() else []
    )
    return [line for each in files for line in each.read_text().splitlines()]


def environment(
    directory: Path, execution: str, settings: dict[str, str] | None = None
) -> StreamExecutionEnvironment:
    engine = {"execution.target": "local", "millstream.execution": execution}
    make = environments(directory, {**engine, "execution.checkpointing.interval": "100"})
    kept = {"execution.checkpointing.dir": str(directory / "checkpoints")}
    return make(2, {**kept, **(settings or {})})


def start(directory: Path, execution: str, settings: dict[str, str] | None = None) -> JobClient:
    env = environment(directory, execution, settings)
    keyed = numbers(env).key_by(lambda n: n % 5)
    to_files(keyed.reduce(max).uid("greatest"), directory)
    return env.execute_async("numbers")


def read(client: JobClient) -> int:
    totals = client.get_accumulators().result()
    return int(str(totals.get("numbers.numRecordsIn", 0)))


@pytest.mark.parametrize("execution", ENGINES)
def test_what_was_read_is_committed_and_a_new_run_goes_on_there(
    tmp_path: Path, eventually: Eventually, execution: str
) -> None:
    total = 0
    for engine in (execution, "pipelined", "epochs"):
        client = start(tmp_path, engine)
        eventually(lambda client=client, n=total: read(client) > n + 50, "records")  # type: ignore[misc]
        assert client.stop().result() == str(tmp_path / "checkpoints")
        assert client.get_job_status().result() is JobStatus.FINISHED
        total = read(client)
        # One result for each record, so all that was read is visible, and nothing else.
        assert len(lines(tmp_path)) == total


def test_a_drained_job_has_closed_its_windows(tmp_path: Path, eventually: Eventually) -> None:
    env = environment(tmp_path, "pipelined")
    windows = (
        numbers(env).key_by(lambda _: 0).window(TumblingEventTimeWindows.of(Time.days(10_000)))
    )
    to_files(windows.reduce(max).uid("greatest"), tmp_path)
    client = env.execute_async("numbers")
    eventually(lambda: read(client) > 50, "records")
    assert lines(tmp_path) == []
    client.stop_with_savepoint(advance_to_end_of_event_time=True).result()
    assert client.get_job_status().result() is JobStatus.FINISHED
    (greatest,) = lines(tmp_path)
    assert int(greatest) > 25
    again = environment(tmp_path, "pipelined")
    to_files(
        numbers(again)
        .key_by(lambda _: 0)
        .window(TumblingEventTimeWindows.of(Time.days(10_000)))
        .reduce(max)
        .uid("greatest"),
        tmp_path,
    )
    again.execute("numbers")
    assert lines(tmp_path) == [greatest], "the job has finished"


def test_a_job_that_has_ended_is_stopped_already(tmp_path: Path) -> None:
    env = environment(tmp_path, "pipelined")
    to_files(numbers(env, 10), tmp_path)
    client = env.execute_async("numbers")
    client.get_job_execution_result().result()
    client.stop(drain=True).result()
    assert sorted(map(int, lines(tmp_path))) == list(range(10))


def test_what_cannot_be_is_refused(tmp_path: Path, eventually: Eventually) -> None:
    client = start(tmp_path, "epochs")
    with pytest.raises(ProgramError, match="not drained"):
        client.stop(drain=True).result()
    eventually(lambda: read(client) > 0, "records")
    assert client.get_job_status().result() is JobStatus.RUNNING
    client.cancel().result()


@pytest.mark.parametrize("execution", ENGINES)
def test_the_checkpoint_of_a_stop_stays_whatever_the_retention(
    tmp_path: Path, eventually: Eventually, execution: str
) -> None:
    retention = "execution.checkpointing.externalized-checkpoint-retention"
    settings = {retention: "NO_EXTERNALIZED_CHECKPOINTS"}
    client = start(tmp_path, execution, settings)
    eventually(lambda: read(client) > 50, "records")
    location = client.stop().result()
    total = read(client)
    last = ManifestLog(LocalStorage(location, fsync=False)).latest()
    assert last is not None
    assert last.totals["numbers.numRecordsIn"] == total
    client = start(tmp_path, "pipelined", settings)
    eventually(lambda: read(client) > total, "more records")
    client.stop(drain=True).result()
    assert len(lines(tmp_path)) == read(client)
    assert not (tmp_path / "checkpoints").exists(), "nothing can go on from a drained job's"


@pytest.mark.parametrize("execution", ENGINES)
def test_a_job_with_temporary_checkpoints_is_not_stopped_without_draining(
    tmp_path: Path, eventually: Eventually, execution: str
) -> None:
    client = start(tmp_path, execution, {"execution.checkpointing.dir": ""})
    with pytest.raises(ProgramError, match=r"temporary directory.*execution.checkpointing.dir"):
        client.stop().result()
    total = read(client)
    eventually(lambda: read(client) > total, "it to go on")
    if execution == "pipelined":
        client.stop(drain=True).result()
        assert len(lines(tmp_path)) == read(client)
    client.cancel().result()


@pytest.mark.parametrize("execution", ENGINES)
def test_who_stops_a_job_is_told_that_another_has_cancelled_it(
    tmp_path: Path, eventually: Eventually, execution: str
) -> None:
    at_work = tmp_path / "at-work"

    def for_ever(n: int) -> int:
        at_work.touch()
        while True:
            time.sleep(0.01)

    env = environment(tmp_path, execution)
    numbers(env).map(for_ever, Types.LONG()).print()
    client = env.execute_async("numbers")
    eventually(at_work.exists, "a task at work")
    stopped = client.stop()
    assert isinstance(client.job, JobDriver)
    eventually(lambda: client.job._stop.is_asked, "the stop to be asked for")  # type: ignore[attr-defined]
    client.cancel().result()
    with pytest.raises(JobError, match="was canceled before it had stopped"):
        stopped.result()
    assert client.get_job_status().result() is JobStatus.CANCELED
