"""Slots that are killed, stopped or cut off, and drivers that die or are taken over.

The job is the same each time: numbers through a keyed count into an exactly-once file sink.  After
every failure each number is there once, with the right count.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelined.processes import lives, stopped
from tests.support.slot_proxy import DRIVER, SlotProxy

from millstream.common import Encoder, Types, WatermarkStrategy
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.datastream import (
    JobClient,
    JobStatus,
    KeyedProcessFunction,
    MapFunction,
    RestartStrategies,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors import FileSink
from millstream.datastream.state import ValueStateDescriptor
from millstream.engines.pipelined import control_server, run_loop
from millstream.engines.pipelined.checkpoints import CommittingThread
from millstream.engines.pipelined.engine import LocalSlots
from millstream.errors import FencedError, UserFunctionError, WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.contracts.source import SourceBatch, Split, SplitCursor
    from millstream.runtime.pipelined.control import SlotSettings

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

NUMBERS = 4000
KEYS = 7
PROGRAM = Path(__file__).parent / "pipelined_program.py"


class Paced(MapFunction):
    """Holds the numbers back a little; notes which process has begun to read, and when."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def open(self, runtime_context: RuntimeContext) -> None:
        self.notes.mkdir(exist_ok=True)
        self.first = True
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        if self.first:
            self.first = False
            name = f"{self.subtask}-{os.getpid()}"
            (self.notes / f".{name}").write_text(repr(time.monotonic()))
            (self.notes / f".{name}").rename(self.notes / name)
        time.sleep(0.0004)
        return value


class Count(KeyedProcessFunction):
    """(number, the how-manieth of its key)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        del ctx
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield f"{value},{count}"


def job(make: Make, directory: Path, **settings: str) -> StreamExecutionEnvironment:
    """The job, restarted after failures, which keeps its checkpoints in ``directory``."""
    settings = {key.replace("_", "-"): value for key, value in settings.items()}
    fixed = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.interval": "100",
    }
    env = make(2, {**fixed, **settings})
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
    numbers = env.from_sequence(0, NUMBERS - 1).uid("numbers")
    paced = numbers.map(Paced(directory / "notes"), Types.LONG()).uid("paced")
    counted = paced.key_by(lambda n: n % KEYS).process(Count(), Types.STRING()).uid("count")
    sink = FileSink.for_row_format(str(directory / "out"), Encoder.simple_string_encoder())
    counted.sink_to(sink.build()).uid("files")
    return env


def check(directory: Path) -> None:
    """Each number once, with counts without gaps."""
    files = [each for each in (directory / "out").iterdir() if not each.name.startswith(".")]
    lines = [line for each in files for line in each.read_text().splitlines()]
    pairs = [tuple(map(int, line.split(","))) for line in lines]
    assert sorted(number for number, _ in pairs) == list(range(NUMBERS))
    for key in range(KEYS):
        counts = sorted(count for number, count in pairs if number % KEYS == key)
        assert counts == list(range(1, len(counts) + 1))


def seen(directory: Path) -> dict[int, list[tuple[int, float]]]:
    """Subtask -> (process, when it had its first record)."""
    found: dict[int, list[tuple[int, float]]] = {}
    for each in (directory / "notes").glob("[0-9]*"):
        subtask, pid = map(int, each.name.split("-"))
        found.setdefault(subtask, []).append((pid, float(each.read_text())))
    return found


def at_work(directory: Path, eventually: Eventually) -> dict[int, int]:
    """Subtask -> the process that reads for it, when something is committed."""
    out = directory / "out"
    eventually(lambda: out.exists() and any(out.glob("part-*")), "output to be visible")
    return {subtask: each[-1][0] for subtask, each in seen(directory).items()}


def finish(client: JobClient, directory: Path, pids: dict[int, int]) -> None:
    client.get_job_execution_result().result()
    assert client.get_job_status().result() is JobStatus.FINISHED
    check(directory)
    assert not any(lives(pid) for pid in pids.values())
    processes = {pid for each in seen(directory).values() for pid, _ in each}
    assert len(processes) >= 4, "there was another run"
    assert not any(lives(pid) for pid in processes)


def test_a_slot_that_is_killed(
    make: Make, tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    client = job(make, tmp_path).execute_async("killed")
    pids = at_work(tmp_path, eventually)
    killed = time.monotonic()
    os.kill(pids[1], signal.SIGKILL)
    finish(client, tmp_path, pids)
    assert (
        f"slot 1 (worker process {pids[1]} of this machine) was killed with SIGKILL" in caplog.text
    )
    first = min(at for each in seen(tmp_path).values() for _, at in each if at > killed)
    assert first - killed < 10, "a limit for a machine with much else to do; it takes 0.2 s"


def test_a_slot_that_is_stopped(
    make: Make, tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    client = job(make, tmp_path, **{"heartbeat.timeout": "1000"}).execute_async("stopped")
    pids = at_work(tmp_path, eventually)
    with stopped(pids[0]):
        finish(client, tmp_path, pids)
    assert f"slot 0 (process {pids[0]} on " in caplog.text
    assert "gave no sign of life for" in caplog.text


def test_all_slots_are_killed_twice(make: Make, tmp_path: Path, eventually: Eventually) -> None:
    client = job(make, tmp_path).execute_async("killed")
    pids = at_work(tmp_path, eventually)
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: all(len(each) == 2 for each in seen(tmp_path).values()), "another run")
    again = {max(each, key=lambda pair: pair[1])[0] for each in seen(tmp_path).values()}
    for pid in again:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    finish(client, tmp_path, pids)


def test_without_a_restart_the_error_names_the_slot(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    env = job(make, tmp_path)
    env.set_restart_strategy(RestartStrategies.no_restart())
    client = env.execute_async("killed")
    pids = at_work(tmp_path, eventually)
    os.kill(pids[0], signal.SIGKILL)
    with pytest.raises(WorkerLostError, match=f"slot 0 .worker process {pids[0]} .*SIGKILL"):
        client.get_job_execution_result().result()
    assert not any(lives(pid) for pid in pids.values())


def test_a_newer_driver_takes_over(make: Make, tmp_path: Path, eventually: Eventually) -> None:
    older = job(make, tmp_path).execute_async("numbers")
    pids = at_work(tmp_path, eventually)
    newer = job(make, tmp_path).execute_async("numbers")
    with pytest.raises(FencedError):
        older.get_job_execution_result().result()
    assert not any(lives(pid) for pid in pids.values())
    finish(newer, tmp_path, pids)


@pytest.mark.extended
def test_slots_die_with_their_driver(tmp_path: Path, eventually: Eventually) -> None:
    program = subprocess.Popen([sys.executable, str(PROGRAM), "numbers", str(tmp_path)])
    pids = at_work(tmp_path, eventually)
    assert len(pids) == 2
    started = time.monotonic()
    program.kill()
    program.wait()
    eventually(lambda: not any(lives(pid) for pid in pids.values()), "the slots to be gone")
    assert time.monotonic() - started < 10
    again = subprocess.run(
        [sys.executable, str(PROGRAM), "numbers", str(tmp_path)], timeout=60, check=True
    )
    assert again.returncode == 0
    check(tmp_path)


def test_cancelling_closes_functions_and_leaves_no_process(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    class Closing(Paced):
        def close(self) -> None:
            (self.notes / f"closed-{self.subtask}").touch()

    env = make(2)
    env.from_sequence(0, 10**12).map(Closing(tmp_path / "notes"), Types.LONG()).print()
    client = env.execute_async("endless")
    eventually(lambda: (tmp_path / "notes").exists() and len(seen(tmp_path)) == 2, "both slots")
    pids = {pid for each in seen(tmp_path).values() for pid, _ in each}
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert len(list((tmp_path / "notes").glob("closed-*"))) == 2
    assert not any(lives(pid) for pid in pids)


def test_a_commit_that_takes_long_does_not_stop_the_records(
    make: Make, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millstream.checkpoint.coordinator import Coordinator

    going_on = threading.Event()
    numbers: list[int] = []
    complete = Coordinator.complete_epoch

    def slowly(self: Coordinator, metadata: Any, acks: Any, expected: Any) -> Any:
        numbers.append(metadata.epoch)
        if len(numbers) == 1:
            assert going_on.wait(60)
        return complete(self, metadata, acks, expected)

    monkeypatch.setattr(Coordinator, "complete_epoch", slowly)
    settings = {"execution.checkpointing.max-concurrent-checkpoints": "3"}
    env = make(1, {**settings, "execution.checkpointing.interval": "100"})
    notes = tmp_path / "read"
    notes.touch()

    def note(n: Any) -> Any:
        time.sleep(0.002)
        with notes.open("a") as file:
            file.write(".")
        return n

    env.from_sequence(0, 499).map(note, Types.LONG()).print()
    client = env.execute_async("slow commit")
    eventually(lambda: len(numbers) == 1, "the first commit")
    before = notes.stat().st_size
    eventually(lambda: notes.stat().st_size >= before + 100, "records behind it")
    going_on.set()
    client.get_job_execution_result().result()
    assert numbers == sorted(numbers)
    assert Counter(numbers).most_common(1)[0][1] == 1


@pytest.mark.parametrize("is_last", [True, False])
def test_a_commit_counts_that_ends_behind_the_failure_of_its_run(
    make: Make,
    tmp_path: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    is_last: bool,
) -> None:
    from millstream.checkpoint.coordinator import Coordinator

    committing, ending = threading.Event(), threading.Event()
    complete, close = Coordinator.complete_epoch, CommittingThread.close

    def wait(self: Coordinator, metadata: Any, acks: Any, expected: Any) -> Any:
        has_read = any(split.records for ack in acks for split in ack.splits)
        if metadata.final or (has_read and not is_last):
            committing.set()
            assert ending.wait(60)
        return complete(self, metadata, acks, expected)

    def end(self: CommittingThread) -> None:
        ending.set()
        close(self)

    monkeypatch.setattr(Coordinator, "complete_epoch", wait)
    monkeypatch.setattr(CommittingThread, "close", end)
    count = 100 if is_last else 10**9
    env = make(1, {"execution.checkpointing.interval": "100"})
    numbers = env.from_sequence(0, count - 1).uid("numbers")
    paced = numbers.map(Paced(tmp_path / "notes"), Types.LONG()).uid("paced")
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    paced.map(str, Types.STRING()).uid("words").sink_to(sink.build()).uid("files")
    client = env.execute_async("late")
    eventually(committing.is_set, "a commit")
    ((pid, _),) = seen(tmp_path)[0]
    os.kill(pid, signal.SIGKILL)
    if is_last:
        client.get_job_execution_result().result()
    else:
        with pytest.raises(WorkerLostError, match="SIGKILL"):
            client.get_job_execution_result().result()
    ended = JobStatus.FINISHED if is_last else JobStatus.FAILED
    assert client.get_job_status().result() is ended
    files = [each for each in (tmp_path / "out").iterdir() if not each.name.startswith(".")]
    lines = [line for each in files for line in each.read_text().splitlines()]
    read = client.get_accumulators().result()["numbers.numRecordsIn"]
    assert sorted(map(int, lines)) == list(range(int(str(read))))
    assert lines
    assert len(lines) == count or not is_last


@pytest.mark.parametrize("fails", [True, False])
def test_slots_that_cannot_be_ended_do_not_hide_what_the_job_failed_of(
    make: Make, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    end = LocalSlots.stop

    def stop(self: LocalSlots, patience: float) -> None:
        end(self, patience)
        message = "slot 0 has not ended"
        raise WorkerLostError(message)

    def refuse(n: int) -> int:
        if fails:
            message = "refused"
            raise ValueError(message)
        return n

    monkeypatch.setattr(LocalSlots, "stop", stop)
    env = make(1)
    env.from_sequence(0, 9).map(refuse, Types.LONG()).print()
    if not fails:
        with pytest.raises(WorkerLostError, match="slot 0 has not ended"):
            env.execute("ended")
        return
    with pytest.raises(UserFunctionError, match="refused") as caught:
        env.execute("refused")
    assert any("slot 0 has not ended" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("end", ["cancel", "error"])
def test_functions_are_closed_though_one_is_at_something_for_ever(
    make: Make, tmp_path: Path, eventually: Eventually, end: str
) -> None:
    directory = tmp_path / "processes"
    directory.mkdir()

    class Forever(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.subtask = runtime_context.get_index_of_this_subtask()

        def map(self, value: object) -> object:
            if self.subtask and end == "error":
                while not list(directory.iterdir()):
                    time.sleep(0.01)
                message = "refused"
                raise ValueError(message)
            (directory / str(os.getpid())).touch()
            while True:
                time.sleep(0.01)

        def close(self) -> None:
            (tmp_path / f"closed-{self.subtask}").touch()

    env = make(2)
    env.from_sequence(0, 9).map(Forever()).print()
    client = env.execute_async("forever")
    if end == "cancel":
        eventually(lambda: bool(list(directory.iterdir())), "a task at work")
        client.cancel().result()
        assert client.get_job_status().result() is JobStatus.CANCELED
    else:
        with pytest.raises(UserFunctionError, match="refused"):
            client.get_job_execution_result().result()
    assert (tmp_path / "closed-0").exists()
    assert (tmp_path / "closed-1").exists()
    assert not any(lives(int(each.name)) for each in directory.iterdir())


def test_a_slot_that_does_not_listen_is_killed(
    make: Make, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_loop, "_CANCELLING", 1.0)
    processes = tmp_path / "processes"
    processes.mkdir()

    class Deaf(MapFunction):
        def map(self, value: object) -> object:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            (processes / str(os.getpid())).touch()
            while True:
                time.sleep(0.01)

    env = make(1)
    env.from_collection([1]).map(Deaf()).print()
    client = env.execute_async("deaf")
    eventually(lambda: bool(list(processes.iterdir())), "a task at work")
    client.cancel().result()
    assert not any(lives(int(each.name)) for each in processes.iterdir())


def test_checkpoints_of_nothing_are_no_progress(make: Make, tmp_path: Path) -> None:
    """A record that fails at every try ends the job, however many checkpoints come before."""
    tries = tmp_path / "tries"

    def fail_later(n: int) -> int:
        if n == 0:
            with tries.open("a") as file:
                file.write(".")
            message = "always the same"
            raise ValueError(message)
        return n

    class Late(NumberSequenceSource):
        """Has nothing for so long that several checkpoints are taken first."""

        def open_cursor(self, split: Split, position: int) -> SplitCursor:
            cursor = super().open_cursor(split, position)
            begun, poll = time.monotonic(), cursor.poll

            def wait(most: int) -> SourceBatch | None:
                return poll(most) if time.monotonic() > begun + 0.3 else None

            cursor.poll = wait  # type: ignore[method-assign]
            return cursor

    env = make(1, {"execution.checkpointing.interval": "20"})
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 1))
    numbers = env.from_source(Late(0, 9, splits=1), WatermarkStrategy.no_watermarks(), "late")
    numbers.map(fail_later, Types.LONG()).print()
    with pytest.raises(UserFunctionError, match="always the same"):
        env.execute("late")
    assert tries.read_text() == "..."


@pytest.mark.parametrize("how", ["cut", "stalled"])
def test_a_control_connection_that_is_cut_or_stalls(
    make: Make, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Between living processes: the slots end by themselves, and the job goes on with others."""
    proxies: list[SlotProxy] = []
    start = LocalSlots.start

    def through_a_proxy(self: LocalSlots, settings: Sequence[SlotSettings]) -> None:
        proxies.append(SlotProxy())
        at = proxies[-1].route(DRIVER, settings[0].driver)
        start(self, [replace(each, driver=at) for each in settings])

    monkeypatch.setattr(LocalSlots, "start", through_a_proxy)
    client = job(make, tmp_path, **{"heartbeat.timeout": "1000"}).execute_async("cut")
    pids = at_work(tmp_path, eventually)
    if how == "cut":
        assert proxies[0].cut(1, DRIVER) == 1
    else:
        # Of a process on this machine that is at work the driver does not believe it so soon.
        monkeypatch.setattr(control_server, "_BUSY", 1.0)
        proxies[0].conditions(1, DRIVER).stalled = True
    finish(client, tmp_path, pids)
    assert len(proxies) == 2
    for proxy in proxies:
        proxy.close()
