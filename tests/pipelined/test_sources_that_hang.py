"""A source whose system does not answer: the driver goes on with what it knows."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, ClassVar

import pytest

from millstream.checkpoint import LocalStorage, ManifestLog
from millstream.common import WatermarkStrategy
from millstream.connectors.basic.number_sequence import NumberSequenceSource
from millstream.contracts.source import Boundedness
from millstream.datastream.connectors import DiscardingSink
from millstream.errors import SourceError
from millstream.execution import inquiries as inquiries_module
from millstream.execution.inquiries import Inquiries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.contracts.source import KnownSplits, Split
    from millstream.datastream import StreamExecutionEnvironment

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
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    client = job(make, tmp_path).execute_async("hangs")
    eventually(Hanging.asked.is_set, "the source to be asked")
    before = epoch(tmp_path)
    eventually(lambda: epoch(tmp_path) >= before + 5, "checkpoints")
    client.stop().result()
    assert not Hanging.gate.is_set()
    assert client.get_accumulators().result()["hanging.numRecordsIn"] == 1000


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
    assert caplog.text.count("source 'far away' has not said") == 1
    inquiry.ask()
    assert inquiry.is_answered
