"""A source whose system does not answer: the driver goes on with what it knows."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.pipelined.test_stop import Seconds

from millstream.checkpoint import LocalStorage, ManifestLog
from millstream.common import Duration, Encoder, Time, Types, WatermarkStrategy
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.contracts.source import Boundedness
from millstream.datastream import JobStatus, MapFunction, TumblingEventTimeWindows
from millstream.datastream.connectors import DiscardingSink, FileSink
from millstream.engines.pipelined.engine import LocalSlots
from millstream.errors import SourceError
from millstream.execution import source_requests as inquiries_module
from millstream.execution.source_requests import AbandonedRequestError, Inquiries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from millstream.contracts.source import KnownSplits, Split
    from millstream.datastream import JobClient, StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]


class Hanging(NumberSequenceSource):
    """Finds its splits once; asked again, it waits at a gate, then answers or fails."""

    asked: ClassVar[threading.Event] = threading.Event()
    gate: ClassVar[threading.Event] = threading.Event()
    fails: ClassVar[bool] = False

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def discovery_interval(self) -> float:
        return 20.0

    def discover(self, known: KnownSplits) -> list[Split]:
        if known:
            self.asked.set()
            assert self.gate.wait(60)
            if self.fails:
                message = "the catalogue is away"
                raise SourceError(message)
        return super().discover(known)


@pytest.fixture(autouse=True)
def gate() -> Iterator[threading.Event]:
    Hanging.asked.clear()
    Hanging.gate.clear()
    Hanging.fails = False
    yield Hanging.gate
    Hanging.gate.set()


def job(make: Make, directory: Path) -> StreamExecutionEnvironment:
    settings = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.interval": "50",
    }
    env = make(1, settings)
    source = Hanging(0, 999)
    hanging = env.from_source(source, WatermarkStrategy.no_watermarks(), "hanging").uid("hanging")
    hanging.sink_to(DiscardingSink()).uid("nowhere")
    return env


def epoch(directory: Path) -> int:
    last = ManifestLog(LocalStorage(directory / "checkpoints", fsync=False)).latest()
    return -1 if last is None else last.epoch


def test_checkpoints_go_on_and_so_does_a_stop(
    make: Make, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inquiries_module, "_ENDING", 0.05)
    client = job(make, tmp_path).execute_async("hangs")
    eventually(Hanging.asked.is_set, "the source to be asked")
    before = epoch(tmp_path)
    eventually(lambda: epoch(tmp_path) >= before + 5, "checkpoints")
    client.stop().result()
    assert not Hanging.gate.is_set()
    assert client.get_accumulators().result()["hanging.numRecordsIn"] == 1000


class HangingAtFirst(Hanging):
    """Does not answer, whatever it is asked first; there is a name for each."""

    at: ClassVar[str] = ""

    def _wait(self, what: str) -> None:
        if what == self.at:
            self.asked.set()
            assert self.gate.wait(60)

    def start(self) -> None:
        self._wait("start")
        super().start()

    def discover(self, known: KnownSplits) -> list[Split]:
        self._wait("discover")
        return NumberSequenceSource.discover(self, known)

    def end_offset(self, split: Split) -> int:
        if threading.current_thread() is not threading.main_thread():
            self._wait("end")
        return super().end_offset(split)


def greatest(make: Make, directory: Path) -> StreamExecutionEnvironment:
    """The greatest number of all, when time ends."""
    settings = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.interval": "50",
    }
    env = make(1, settings)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))
    strategy = strategy.with_timestamp_assigner(Seconds())
    numbers = env.from_source(HangingAtFirst(0, 99), strategy, "numbers").uid("numbers")
    windows = numbers.key_by(lambda _: 0).window(TumblingEventTimeWindows.of(Time.days(10_000)))
    sink = FileSink.for_row_format(str(directory / "out"), Encoder.simple_string_encoder())
    windows.reduce(max).uid("greatest").map(str, Types.STRING()).uid("words").sink_to(
        sink.build()
    ).uid("files")
    return env


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("start", marks=pytest.mark.soak),
        "discover",
        pytest.param("end", marks=pytest.mark.soak),
    ],
)
def test_a_stop_is_heard_before_a_source_has_answered(
    make: Make, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(inquiries_module, "_ENDING", 0.05)
    monkeypatch.setattr(HangingAtFirst, "at", what)
    client = greatest(make, tmp_path).execute_async("greatest")
    eventually(HangingAtFirst.asked.is_set, "the source to be asked")
    assert client.stop().result() == str(tmp_path / "checkpoints")
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert epoch(tmp_path) == -1, "nothing was read"
    # What there is to read is not taken for read.
    monkeypatch.setattr(HangingAtFirst, "at", "")
    client = greatest(make, tmp_path).execute_async("greatest")
    eventually(lambda: records(client) == 100, "all records")
    client.stop().result()
    stands = epoch(tmp_path)
    monkeypatch.setattr(HangingAtFirst, "at", what)
    HangingAtFirst.asked.clear()
    client = greatest(make, tmp_path).execute_async("greatest")
    eventually(HangingAtFirst.asked.is_set, "the source to be asked")
    if what == "end":
        HangingAtFirst.gate.set()  # its first splits are being assigned
    client.stop(drain=True).result()
    assert epoch(tmp_path) > stands
    (written,) = [each for each in (tmp_path / "out").iterdir() if each.name[0] not in "._"]
    assert written.read_text() == "99\n"


def test_a_stop_is_heard_while_slots_are_waited_for(
    make: Make, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = threading.Event()
    monkeypatch.setattr(LocalSlots, "start", lambda *_: waiting.set())
    client = job(make, tmp_path).execute_async("waits")
    eventually(waiting.is_set, "slots to be wanted")
    client.stop().result()
    assert client.get_job_status().result() is JobStatus.FINISHED


def records(client: JobClient) -> int:
    return int(str(client.get_accumulators().result().get("numbers.numRecordsIn", 0)))


def test_what_it_fails_of_ends_the_run_and_says_which_it_was(
    make: Make, tmp_path: Path, eventually: Eventually, gate: threading.Event
) -> None:
    Hanging.fails = True
    client = job(make, tmp_path).execute_async("fails")
    eventually(Hanging.asked.is_set, "the source to be asked")
    gate.set()
    with pytest.raises(SourceError, match=r"source 'Source: hanging'.*: the catalogue is away"):
        client.get_job_execution_result().result()


def test_whoever_asks_does_not_wait(gate: threading.Event, eventually: Eventually) -> None:
    inquiries = Inquiries(in_threads=True)
    slow = inquiries.ask("slow", "source", lambda: gate.wait(60))
    quick = inquiries.ask("quick", "source", lambda: 7)
    eventually(lambda: quick.is_answered, "the quick answer")
    assert quick.answer() == 7
    assert not slow.is_answered
    gate.set()
    eventually(lambda: slow.is_answered, "the slow answer")
    assert slow.answer() is True
    wrong = inquiries.ask("slow", "source", lambda: 1 // 0)
    eventually(lambda: wrong.is_answered, "an error")
    with pytest.raises(ZeroDivisionError):
        wrong.answer()
    inquiries.close()


def test_a_long_silence_is_spoken_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(inquiries_module, "_LONG_SILENCE", -1.0)
    inquiry = inquiries_module.Inquiry("source 'far away'", lambda: 1)
    assert not inquiry.is_answered
    assert not inquiry.is_answered
    assert caplog.text.count("source 'far away' has not reported") == 1
    inquiry.ask()
    assert inquiry.is_answered


# -- one thread per source ---------------------------------------------------------------------


class InDatabase(NumberSequenceSource):
    """Keeps a connection of sqlite3's, which may be used by the thread alone that has made it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(0, 999)
        self.directory = directory
        self.connection: sqlite3.Connection | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"connection": None}

    def note(self, what: str) -> None:
        assert self.connection is not None
        self.connection.execute("INSERT INTO said VALUES (?)", (what,))
        self.connection.commit()

    def start(self) -> None:
        if self.connection is None:
            self.connection = sqlite3.connect(self.directory / "said.db")
            self.connection.execute("CREATE TABLE IF NOT EXISTS said (what)")
        self.note("start")

    def stop(self) -> None:
        self.note("stop")

    def discover(self, known: KnownSplits) -> list[Split]:
        self.note("discover")
        return super().discover(known)

    def start_offset(self, split: Split) -> int:
        if self.connection is not None:
            self.note("start_offset")
        return super().start_offset(split)

    def end_offset(self, split: Split) -> int:
        if self.connection is not None:
            self.note("end_offset")
        return super().end_offset(split)

    def is_final(self, split: Split) -> bool:
        if self.connection is not None:
            self.note("is_final")
        return super().is_final(split)

    def committed(self, positions: Mapping[str, int]) -> None:
        self.note("committed")


class FailsOnce(MapFunction):
    def __init__(self, directory: Path) -> None:
        self.mark = directory / "failed"

    def map(self, value: Any) -> Any:
        if value == 500 and not self.mark.exists():
            self.mark.touch()
            message = "once"
            raise ValueError(message)
        return value


def test_a_source_is_asked_in_one_thread_in_all_runs(make: Make, tmp_path: Path) -> None:
    settings = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.interval": "20",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "1 ms",
    }
    env = make(1, settings)
    stream = env.from_source(InDatabase(tmp_path), WatermarkStrategy.no_watermarks(), "numbers")
    stream.map(FailsOnce(tmp_path)).sink_to(DiscardingSink()).uid("nowhere")
    env.execute("numbers")
    with contextlib.closing(sqlite3.connect(tmp_path / "said.db")) as connection:
        said = [what for (what,) in connection.execute("SELECT what FROM said")]
    assert {"discover", "start_offset", "end_offset", "is_final", "committed"} <= set(said)
    assert [each for each in said if each in ("start", "stop")] == ["start", "stop"] * 2
    assert said[0] == "start"
    assert said[-1] == "stop"


class NeverFound(NumberSequenceSource):
    """Does not answer, for the first time already."""

    asked: ClassVar[threading.Event] = threading.Event()
    gate: ClassVar[threading.Event] = threading.Event()
    stopped: ClassVar[threading.Event] = threading.Event()

    def discover(self, known: KnownSplits) -> list[Split]:
        self.asked.set()
        assert self.gate.wait(60)
        return super().discover(known)

    def stop(self) -> None:
        self.stopped.set()


def test_a_job_is_cancelled_whose_source_has_never_answered(
    make: Make,
    tmp_path: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(inquiries_module, "_ENDING", 0.05)
    env = make(1, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
    stream = env.from_source(NeverFound(0, 9), WatermarkStrategy.no_watermarks(), "silent")
    stream.sink_to(DiscardingSink()).uid("nowhere")
    client = env.execute_async("silent")
    eventually(NeverFound.asked.is_set, "the source to be asked")
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED
    NeverFound.gate.set()
    eventually(lambda: not asking(), "its thread to end")
    assert not NeverFound.stopped.is_set(), "a newer run may have started it again"
    assert "has not answered, and is not asked to stop" in caplog.text


def asking() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("millstream-ask-")]


def test_a_source_without_an_answer_gets_another_thread_for_the_next_run(
    monkeypatch: pytest.MonkeyPatch, gate: threading.Event, eventually: Eventually
) -> None:
    monkeypatch.setattr(inquiries_module, "_ENDING", 0.01)
    inquiries = Inquiries(in_threads=True)
    first = inquiries.call("one", "source", threading.get_ident)
    inquiries.settle(["one", "never asked"])
    assert inquiries.call("one", "source", threading.get_ident) == first
    hanging = inquiries.ask("one", "source", lambda: gate.wait(60))
    behind = inquiries.ask("one", "source", lambda: 1)
    inquiries.settle(["one"])
    assert inquiries.call("one", "source", threading.get_ident) != first
    gate.set()
    inquiries.close()
    eventually(lambda: not asking(), "both threads to end")
    assert hanging.is_answered
    assert not behind.is_answered, "what it was to do then is dropped"


def test_nobody_waits_for_an_answer_that_is_not_wanted(gate: threading.Event) -> None:
    inquiries = Inquiries(in_threads=True)
    with pytest.raises(AbandonedRequestError):
        inquiries.call("one", "source", lambda: gate.wait(60), lambda: True)
    assert inquiries.call("two", "source", lambda: 3, lambda: False) == 3
    inquiries.close()
