"""What the conformance suite and the kill test do not see of the templates: settings and errors."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Configuration, Types
from millstream.configuration import options
from millstream.connectors.commit_protocols import two_phase as two_phase_sink
from millstream.connectors.commit_protocols.staged_values import GenericWriteAheadSink
from millstream.connectors.commit_protocols.two_phase import (
    SinkContext,
    TwoPhaseCommitSinkFunction,
    UpsertSink,
)
from millstream.contracts.batch import Batch
from millstream.contracts.sink import (
    CommitRequest,
    CommitterContext,
    DeliveryGuarantee,
    Sink,
    WriterContext,
    fence_of,
)
from millstream.errors import ConfigurationError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

BATCH = Batch(Types.LONG(), values=[1, 2], timestamps=[10, 20])


def prepare(
    sink: Sink, path: Path, epoch: int = 0, batch: Batch = BATCH, generation: int = 1
) -> list[Any]:
    attempt, storage = f"attempt {epoch}", LocalStorage(path)
    writer = sink.create_writer(
        WriterContext("job", "uid", 0, 1, epoch, attempt, generation, storage)
    )
    writer.write_watermark(5)
    writer.write(batch)
    committables = list(writer.prepare_commit())
    writer.close()
    return committables


def commit(sink: Sink, path: Path, items: Sequence[Any], *, retried: bool, epoch: int = 0) -> None:
    committer = sink.create_committer()
    assert committer is not None
    committer.open(CommitterContext("job", "uid", 1, LocalStorage(path)))
    committer.commit([CommitRequest(item, epoch, retried) for item in items])


class Recorder(TwoPhaseCommitSinkFunction[int, Any]):
    """Notes every call in a list that its copies share."""

    calls: list[Any]

    def __init__(self, handle: Any = "handle") -> None:
        super().__init__()
        self.handle = handle
        self.error: Exception | None = None

    def begin_transaction(self) -> Any:
        return self.handle

    def invoke(self, transaction: Any, value: int, context: SinkContext) -> None:
        self.calls.append((value, context.timestamp(), context.current_watermark()))

    def pre_commit(self, transaction: Any) -> None:
        self.calls.append("pre_commit")

    def commit(self, transaction: Any) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append("commit")

    def abort(self, transaction: Any) -> None:
        self.calls.append("abort")

    def recover_and_commit(self, transaction: Any) -> None:
        self.calls.append("recover")
        self.commit(transaction)


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    Recorder.calls = []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [1_000]
    monkeypatch.setattr(two_phase_sink, "_now", lambda: now[0])
    return now


def test_calls_in_order(tmp_path: Path) -> None:
    sink = Recorder()
    items = prepare(sink, tmp_path)
    commit(sink, tmp_path, items, retried=False)
    commit(sink, tmp_path, items, retried=True)
    assert Recorder.calls == [
        (1, 10, 5),
        (2, 20, 5),
        "pre_commit",
        "commit",
        "recover",
        "commit",
    ]


def test_subclasses_need_not_call_the_constructor_of_the_template(tmp_path: Path) -> None:
    class Forgetful(Recorder):
        def __init__(self) -> None:
            self.handle, self.error = "handle", None

    class ForgetfulTable(Table):
        def __init__(self) -> None:
            self.name = "table"

    sink = Forgetful()
    commit(sink, tmp_path, prepare(sink, tmp_path), retried=False)
    assert Recorder.calls[2:] == ["pre_commit", "commit"]
    Recorder.calls = []
    prepare(ForgetfulTable(), tmp_path)
    assert Recorder.calls == [({1: 1, 0: 2}, fence_of(1, 0))]


def test_a_transaction_that_timed_out_is_not_voted_for(tmp_path: Path, clock: list[int]) -> None:
    class Slow(Recorder):
        def pre_commit(self, transaction: Any) -> None:
            clock[0] += 501

    with pytest.raises(SinkError, match="501 ms old at the pre-commit, its timeout is 500 ms"):
        prepare(Slow().set_transaction_timeout(500), tmp_path)


def test_warning_and_giving_up(
    tmp_path: Path, clock: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    sink = Recorder().set_transaction_timeout(500).enable_transaction_timeout_warnings(0.8)
    items = prepare(sink, tmp_path)
    clock[0] += 400
    commit(sink, tmp_path, items, retried=False)
    assert "'handle'" not in caplog.text
    clock[0] += 1
    commit(sink, tmp_path, items, retried=False)
    assert "'handle' of checkpoint 0 is 401 ms old, its timeout is 500 ms" in caplog.text

    sink.error = OSError("unknown transaction")
    clock[0] += 100
    with pytest.raises(
        SinkError, match="uid: transaction 'handle' of checkpoint 0 cannot be committed"
    ):
        commit(sink, tmp_path, items, retried=True)
    sink.ignore_failures_after_transaction_timeout()
    with pytest.raises(SinkError, match="unknown transaction"):
        commit(sink, tmp_path, items, retried=False)  # the first try is never ignored
    commit(sink, tmp_path, items, retried=True)
    assert "ITS RECORDS ARE LOST" in caplog.text


def test_one_transaction_that_cannot_be_committed_does_not_keep_the_others_from_it(
    tmp_path: Path,
) -> None:
    class Picky(Recorder):
        def commit(self, transaction: Any) -> None:
            if transaction == "bad":
                message = "no such transaction"
                raise OSError(message)
            super().commit(transaction)

    items = [*prepare(Picky("bad"), tmp_path), *prepare(Picky("good"), tmp_path)]
    items += prepare(Picky("bad"), tmp_path)
    Recorder.calls.clear()
    with pytest.raises(SinkError, match=r"'bad' of checkpoint 0 .*no such.*\(2 of 3 transactions"):
        commit(Picky(), tmp_path, items, retried=False)
    assert Recorder.calls == ["commit"]
    # The note of that one is gone, those of the others stay, to be found by the next run.
    kept = {item["note"] for item in items if item["handle"] == "bad"}
    assert kept == {name for name in LocalStorage(tmp_path).list_names("") if "g1-" in name}


def test_a_timeout_that_an_outage_may_exceed_is_refused_at_submit() -> None:
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.timeout", "1 min")
    configuration.set_string("restart-strategy.type", "fixed-delay")
    configuration.set_string("restart-strategy.fixed-delay.delay", "5 s")
    sink = Recorder().set_transaction_timeout(124_999)
    message = (
        r"set_transaction_timeout\(\) of the sink Recorder is 124999, but up to 125000 ms .*"
        r"timeout \(60000\), the longest restart delay \(5000\) and 60000 to start again"
    )
    with pytest.raises(ConfigurationError, match=message):
        sink.validate_configuration(configuration)
    Recorder().validate_configuration(configuration)  # it has no timeout that we know of
    sink.set_transaction_timeout(125_000).validate_configuration(configuration)
    # Where tasks go on, it begins behind a barrier, and waits for the next, and for failed ones.
    configuration.set_string("millstream.execution", "pipelined")
    configuration.set_string("execution.checkpointing.interval", "7 s")
    configuration.set_string("execution.checkpointing.tolerable-failed-checkpoints", "2")
    timeout = configuration.get(options.CHECKPOINTING_TIMEOUT)
    needed = 125_000 + 7_000 + 2 * timeout
    with pytest.raises(ConfigurationError, match=rf"{needed} ms.*interval \(7000\), the same for"):
        sink.validate_configuration(configuration)
    sink.set_transaction_timeout(needed).validate_configuration(configuration)
    sink.set_transaction_timeout(1).ignore_failures_after_transaction_timeout()
    sink.validate_configuration(configuration)


@pytest.mark.parametrize("call", ["set_transaction_timeout", "enable_transaction_timeout_warnings"])
def test_settings_that_make_no_sense(call: str) -> None:
    with pytest.raises(SinkError, match="must be"):
        getattr(Recorder(), call)(-1)


def test_a_handle_must_be_picklable(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="begin_transaction\\(\\) returned a lock"):
        prepare(Recorder(threading.Lock()), tmp_path)
    assert Recorder.calls == ["abort"]


class Lines(GenericWriteAheadSink):
    """Appends to a file; not atomic."""

    def __init__(self, path: Path, *, works: bool = True) -> None:
        super().__init__()
        self.path = path
        self.works = works

    def send_values(self, values: Iterable[object], checkpoint_id: int, timestamp: int) -> bool:
        with self.path.open("a") as file:
            file.writelines(f"{checkpoint_id}:{value}\n" for value in values)
        return self.works


def test_write_ahead_writes_an_epoch_that_is_not_noted(tmp_path: Path) -> None:
    sink = Lines(tmp_path / "lines")
    assert sink.guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    items = prepare(sink, tmp_path / "c")
    commit(sink, tmp_path / "c", items, retried=False)
    commit(sink, tmp_path / "c", items, retried=True)  # noted
    assert sink.path.read_text() == "0:1\n0:2\n"
    later = prepare(sink, tmp_path / "c", epoch=1)
    with pytest.raises(SinkError, match="send_values\\(\\) of checkpoint 1 returned False"):
        commit(Lines(sink.path, works=False), tmp_path / "c", later, retried=False, epoch=1)
    commit(sink, tmp_path / "c", later, retried=True, epoch=1)
    assert sink.path.read_text() == "0:1\n0:2\n" + "1:1\n1:2\n" * 2  # at least once


def test_write_ahead_says_that_output_is_lost(tmp_path: Path) -> None:
    sink = Lines(tmp_path / "lines")
    (item,) = prepare(sink, tmp_path)
    LocalStorage(tmp_path).delete([item["name"]])
    with pytest.raises(SinkError, match="output of checkpoint 0 is lost"):
        commit(sink, tmp_path, [item], retried=False)


def test_an_atomic_sink_needs_a_committer(tmp_path: Path) -> None:
    class Atomic(Lines):
        atomic = True

    with pytest.raises(SinkError, match="needs a CheckpointCommitter"):
        Atomic(tmp_path)


class Table(UpsertSink):
    """Keeps calls."""

    def get_key(self, value: Any) -> Any:
        return value % 2

    def upsert(self, rows: Mapping[Any, Any], epoch: int) -> None:
        Recorder.calls.append((dict(rows), epoch))


@pytest.mark.parametrize("fenced", [False, True])
def test_upserts_the_newest_value_of_each_key(tmp_path: Path, *, fenced: bool) -> None:
    sink = Table(fenced=fenced, batch_size=2)
    items = prepare(sink, tmp_path, 3, Batch(Types.LONG(), values=[1, 3, 4, 5]))
    number = fence_of(1, 3)
    expected = [({1: 3, 0: 4}, number), ({1: 5}, number)]
    assert Recorder.calls == ([] if fenced else expected)
    if fenced:
        commit(sink, tmp_path, items, retried=False, epoch=3)
    assert Recorder.calls == expected


@pytest.mark.parametrize("fenced", [False, True])
def test_what_a_newer_run_upserts_is_newer_in_whichever_epoch(
    tmp_path: Path, *, fenced: bool
) -> None:
    sink = Table(fenced=fenced)
    for generation, epoch in ((1, 9), (2, 3), (2, 4)):
        items = prepare(sink, tmp_path, epoch, Batch(Types.LONG(), values=[1]), generation)
        if fenced:
            commit(sink, tmp_path, items, retried=False, epoch=epoch)
            commit(sink, tmp_path, items, retried=True, epoch=epoch)
    numbers = [number for _, number in Recorder.calls]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 3, "the same if it is committed again"
