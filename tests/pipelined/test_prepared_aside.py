"""Output that is pre-committed beside the records of the next epoch."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.kafka.test_sink import exactly_once, values
from tests.pipelined.conftest import DEADLINE
from tests.pipelined.test_regions import KEYS, Count, Paced, never, note, notes, once
from tests.support.environments import wait_until

from millstream.common import Encoder, Types
from millstream.contracts.sink import Sink, SinkWriter
from millstream.datastream import RestartStrategies
from millstream.datastream.connectors import FileSink
from millstream.engines.pipelined.checkpoints import Checkpoints
from millstream.errors import SinkError
from millstream.runtime.pipelined.uploader import PendingAck

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import Committable, Committer, WriterContext
    from millstream.datastream import StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]


NUMBERS = 900


class _Aside(SinkWriter):
    prepares_aside = True

    def __init__(self, sink: AsideSink, inner: SinkWriter) -> None:
        self._sink, self._inner = sink, inner
        self._thread = threading.get_ident()
        self._is_sealed = False

    def write(self, batch: Batch) -> None:
        assert not self._is_sealed
        assert threading.get_ident() == self._thread
        self._inner.write(batch)

    def seal(self) -> None:
        assert threading.get_ident() == self._thread
        assert not self._is_sealed
        self._is_sealed = True

    def prepare_commit(self) -> Sequence[Committable]:
        assert self._is_sealed
        note(self._sink.directory, "aside" if threading.get_ident() != self._thread else "within")
        if self._sink.refuses(self._sink.prepared):
            message = "not prepared"
            raise SinkError(message)
        self._sink.prepared += 1
        return self._inner.prepare_commit()

    def abort(self) -> None:
        note(self._sink.directory, "aborted")
        self._inner.abort()

    def close(self) -> None:
        note(self._sink.directory, "closed")
        self._inner.close()


class AsideSink(Sink):
    """A file sink whose writers prepare aside; it refuses the epochs that it is told to."""

    def __init__(self, directory: Path, refuses: Callable[[int], bool] = never) -> None:
        out = str(directory / "out")
        self.inner: Any = FileSink.for_row_format(out, Encoder.simple_string_encoder()).build()
        self.directory = directory
        self.refuses = refuses
        self.prepared = 0
        self.told = -1

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _Aside(self, self.inner.create_writer(context))

    def create_committer(self) -> Committer | None:
        committer: Committer | None = self.inner.create_committer()
        return committer

    def committed(self, epoch: int) -> None:
        assert epoch > self.told
        self.told = epoch
        note(self.directory, "told")


def job(make: Make, directory: Path, sink: Sink, **more: str) -> StreamExecutionEnvironment:
    settings = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.interval": "50",
        **{key.replace("_", "-"): value for key, value in more.items()},
    }
    env = make(2, settings)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
    numbers = env.from_sequence(0, NUMBERS - 1).uid("numbers")
    paced = numbers.map(Paced(directory, "paced", never), Types.LONG()).uid("paced")
    counted = paced.key_by(lambda n: n % KEYS).process(Count(directory, "c"), Types.STRING())
    counted.uid("count").sink_to(sink).uid("files")
    return env


def check(directory: Path) -> None:
    check_lines(lines_of(directory))


def lines_of(directory: Path) -> list[str]:
    files = [each for each in (directory / "out").iterdir() if not each.name.startswith(".")]
    return [line for each in files for line in each.read_text().splitlines()]


def check_lines(lines: list[str]) -> None:
    """Each number once, with counts without gaps."""
    pairs = [tuple(map(int, line.split(","))) for line in lines]
    assert sorted(number for number, _ in pairs) == list(range(NUMBERS))
    for key in range(KEYS):
        counts = sorted(count for number, count in pairs if number % KEYS == key)
        assert counts == list(range(1, len(counts) + 1))


def test_records_do_not_wait_for_it_and_the_sink_hears_of_commits(
    make: Make, tmp_path: Path
) -> None:
    job(make, tmp_path, AsideSink(tmp_path)).execute("aside")
    check(tmp_path)
    assert notes(tmp_path, "within") == []
    prepared = len(notes(tmp_path, "aside"))
    assert prepared > 2
    assert len(notes(tmp_path, "closed")) == prepared
    assert notes(tmp_path, "aborted") == []
    assert notes(tmp_path, "told")


def test_a_task_fails_whose_output_cannot_be_prepared(make: Make, tmp_path: Path) -> None:
    def env() -> StreamExecutionEnvironment:
        made = job(make, tmp_path, AsideSink(tmp_path, once(tmp_path / "refused", 1)))
        made.set_restart_strategy(RestartStrategies.no_restart())
        return made

    with pytest.raises(SinkError, match=r"files.* failed while pre-committing in checkpoint"):
        env().execute("refused")
    assert notes(tmp_path, "aborted")
    env().execute("refused")
    check(tmp_path)


class _Waits(SinkWriter):
    """Pre-commits the first output only behind the checkpoint that comes next, or refuses it."""

    prepares_aside = True

    def __init__(self, directory: Path, first: Callable[[int], bool], inner: SinkWriter) -> None:
        self._directory, self._is_first, self._inner = directory, first, inner
        self.write, self.flush = inner.write, inner.flush  # type: ignore[method-assign]
        self.abort, self.close = inner.abort, inner.close  # type: ignore[method-assign]

    def write(self, batch: Batch) -> None: ...

    def seal(self) -> None:
        note(self._directory, "sealed")  # ahead of it: Kafka's waits for the output before
        self._inner.seal()

    def prepare_commit(self) -> Sequence[Committable]:
        if self._is_first(0):
            sealed = partial(notes, self._directory, "sealed")
            before = len(sealed())
            wait_until(lambda: len(sealed()) > before + 1, "the next checkpoint", DEADLINE)
            if (self._directory / "refuses").exists():
                message = "not prepared"
                raise SinkError(message)
        return self._inner.prepare_commit()

    def abort(self) -> None: ...

    def close(self) -> None: ...


def waits(sink: Any, directory: Path) -> Any:
    """The sink, whose first output of all waits."""
    first = once(directory / "waited", 0)

    class Waiting(type(sink)):  # type: ignore[misc]
        def create_writer(self, context: WriterContext) -> SinkWriter:
            return _Waits(directory, first, super().create_writer(context))

    sink.__class__ = Waiting
    return sink


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("kind", ["files", "kafka"])
def test_output_comes_once_whose_checkpoint_expires_while_it_is_prepared(
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    kind: str,
    refuses: bool,
) -> None:
    expired, given_up = Checkpoints.expired, list[int]()

    def expired_if_it_waits(self: Checkpoints, now: float) -> list[tuple[int, str]]:
        if self._pending and not given_up and (tmp_path / "waited").exists():
            given_up.append(self._pending[0].epoch)
            self._pending[0].expires = 0.0
        return expired(self, now)

    monkeypatch.setattr(Checkpoints, "expired", expired_if_it_waits)
    settings = {
        "execution.checkpointing.timeout": "60s",  # as transactions of Kafka allow
        "execution.checkpointing.tolerable-failed-checkpoints": "1",
    }
    if refuses:
        (tmp_path / "refuses").touch()
    read: Callable[[], list[str]] = partial(lines_of, tmp_path)
    if kind == "files":
        sink: Any = FileSink.for_row_format(
            str(tmp_path / "out"), Encoder.simple_string_encoder()
        ).build()
    else:
        broker = request.getfixturevalue("broker")
        topic = broker.topic()
        sink = exactly_once(broker, topic).build()
        read = partial(values, broker, topic)
    job(make, tmp_path, waits(sink, tmp_path), **settings).execute("late")
    assert given_up
    check_lines(read())


class _Output:
    def __init__(self) -> None:
        self.log: list[str] = []

    def finish(self) -> list[object]:
        self.log.append("finished")
        return [os.getpid()]

    def abandon(self) -> None:
        self.log.append("abandoned")


class _Ack:
    operators: Sequence[Any] = ()
    committables: Sequence[bytes] = ()
    in_flight: Any = None


@pytest.mark.parametrize("stopped", [False, True])
def test_output_of_a_checkpoint_that_is_given_up_is_kept_unless_its_task_stops(
    stopped: bool,
) -> None:
    """The next checkpoint has it, but not if its records are read again."""
    made = _Output()
    carried: list[Any] = []
    ack: Any = _Ack()
    pending = PendingAck(ack, [], [], Any, carried.append, [], [(ack, made)])  # type: ignore[arg-type]
    pending.is_given_up, pending.is_stopped = True, stopped
    pending.give_up()
    assert made.log == (["abandoned"] if stopped else ["finished"])
    assert len(ack.committables) == (0 if stopped else 1)
    assert carried == [ack]
