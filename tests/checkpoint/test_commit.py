"""Step 4: sinks that fail to commit are tried again, those that did are not, and all is told."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from millstream.checkpoint.commit import (
    PENDING_FILE,
    CommitRetry,
    CommitterThread,
    ManifestCommit,
    PendingCommits,
    read_pending,
)
from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.model import Manifest, OperatorAck
from millstream.cli.checkpoints_command import show_checkpoints
from millstream.contracts.sink import Committer
from millstream.errors import PermanentSinkError, SinkError
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.contracts.sink import CommitRequest


class Recorder(Committer):
    """Fails so many times."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.calls: list[tuple[list[Any], bool]] = []

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        self.calls.append(([each.committable for each in requests], requests[0].retried))
        if self.failures:
            self.failures -= 1
            message = "the server is away"
            raise SinkError(message)


def manifest(epoch: int = 7) -> Manifest:
    acks = {
        "a": [OperatorAck("a", 0, 0, committables=[dumps("a0"), dumps("a1")])],
        "b": [OperatorAck("b", n, 0, committables=[dumps(f"b{n}")]) for n in range(2)],
        "c": [OperatorAck("c", 0, 0, committables=[dumps("c0")])],
    }
    return Manifest(epoch, 1, "job", 0, 1_000, {}, acks, {}, {0: 1}, 8)


def commits(path: Path, waits: list[float], **committers: Committer) -> ManifestCommit:
    retry = CommitRetry((0.1, 0.2), waits.append)
    threads = {uid: CommitterThread(uid, each) for uid, each in committers.items()}
    return ManifestCommit(LocalStorage(path, fsync=False), threads, retry, lambda: 2_500)


def test_exponential_back_off_is_bounded() -> None:
    assert CommitRetry.exponential(100, 1_000, 6).delays == (0.1, 0.2, 0.4, 0.8, 1.0)
    assert CommitRetry.exponential(100, 1_000, 1).delays == ()


def test_a_commit_that_fails_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []
    b = Recorder(2)
    target = commits(tmp_path, waits, a=Recorder(), b=b, c=Recorder())
    target.begin(manifest())
    with caplog.at_level(logging.WARNING):
        target.finish(retried=False)
    assert b.calls == [(["b0", "b1"], False), (["b0", "b1"], True), (["b0", "b1"], True)]
    assert waits == [0.1, 0.2]
    assert "try 2 of sink b to commit checkpoint 7 failed, the next is in 0.2 s" in caplog.text
    assert target.pending.committables == 0
    assert target.pending.age(9_000) == 0
    assert not LocalStorage(tmp_path).exists(PENDING_FILE)


class Refusing(Recorder):
    """Refuses for good until its target is mended."""

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        self.calls.append(([each.committable for each in requests], requests[0].retried))
        if self.failures:
            message = "duplicate key"
            raise PermanentSinkError(message)


def test_what_is_refused_for_good_is_not_tried_at_once_but_stays_to_be_committed(
    tmp_path: Path,
) -> None:
    waits: list[float] = []
    b, c = Refusing(1), Recorder(1)
    target = commits(tmp_path, waits, a=Recorder(), b=b, c=c)
    target.begin(manifest())
    with pytest.raises(PermanentSinkError, match=r"duplicate key .* made to take it; then start"):
        target.finish(retried=False)
    assert len(b.calls) == 1
    assert len(c.calls) == 2  # the others have all their tries
    assert target.pending.sinks == {"b": 2}
    b.failures = 0
    target.begin(manifest())
    target.finish(retried=True)
    assert b.calls[-1] == (["b0", "b1"], True)
    assert target.pending.committables == 0


def test_a_partial_commit_is_told_and_resumed_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = Recorder(3), Recorder(3), Recorder()
    target = commits(tmp_path, [], a=a, b=b, c=c)
    told: list[PendingCommits] = []
    target._on_pending = told.append
    target.begin(manifest())
    with pytest.raises(
        SinkError,
        match=r"server is away \(sink a could not commit checkpoint 7 to Recorder in 3 tries\);"
        r" .*\(sink b .*3 tries\)\. Pending: 2 of sink a, 2 of sink b\. They stay",
    ):
        target.finish(retried=False)
    assert c.calls == [(["c0"], False)]  # it does not wait for the others
    assert [each.committables for each in told] == [5, 5, 4, 4, 4, 4]
    assert target.pending == PendingCommits(7, 1_000, {"a": 2, "b": 2})
    assert target.pending.age(2_500) == 1_500
    note = read_pending(LocalStorage(tmp_path))
    assert note == PendingCommits(7, 1_000, {"a": 2, "b": 2}, "sink a: the server is away")
    capsys.readouterr()
    assert JobIdentity.claim(LocalStorage(tmp_path), "job", {})
    assert show_checkpoints(str(tmp_path), "list") == 0
    shown = capsys.readouterr().out
    assert "Not committed: 4 committables of checkpoint 7 (2 of sink a, 2 of sink b)" in shown
    assert "the last error: sink a: the server is away" in shown

    target.begin(manifest())
    target.finish(retried=True)
    assert [len(each.calls) for each in (a, b, c)] == [4, 4, 1]
    assert not LocalStorage(tmp_path).exists(PENDING_FILE)


def test_no_sink_waits_for_the_tries_of_another(tmp_path: Path) -> None:
    """The transactions of c may time out while a is tried again and again."""
    c = Recorder()
    committed_before: list[int] = []
    a = Recorder(2)
    target = commits(tmp_path, [], a=a, b=Recorder(), c=c)
    target._retry = CommitRetry((0.1, 0.2), lambda _: committed_before.append(len(c.calls)))
    target.begin(manifest())
    target.finish(retried=False)
    assert len(a.calls) == 3
    assert committed_before == [1, 1]


def test_the_next_run_commits_all_and_takes_the_note_away(tmp_path: Path) -> None:
    first = commits(tmp_path, [], a=Recorder(), b=Recorder(3), c=Recorder())
    first.begin(manifest())
    with pytest.raises(SinkError):
        first.finish(retried=False)
    a = Recorder()
    second = commits(tmp_path, [], a=a, b=Recorder(), c=Recorder())
    second.begin(manifest())
    second.finish(retried=True)
    assert a.calls == [(["a0", "a1"], True)]
    assert not LocalStorage(tmp_path).exists(PENDING_FILE)


def test_a_run_that_died_in_the_commit_is_seen_without_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark has begun the micro-batch and has not logged its end."""
    storage = LocalStorage(tmp_path, fsync=False)
    JobIdentity.claim(storage, "job", {})
    log = ManifestLog(storage)
    log.open_generation()
    log.publish(manifest())

    def shown() -> str:
        capsys.readouterr()
        assert show_checkpoints(str(tmp_path), "list") == 0
        return capsys.readouterr().out

    assert "committed:" not in shown()  # no job on Spark: nobody knows
    storage.write("spark/offsets/7", b"")
    expected = "5 committables of checkpoint 7 (2 of sink a, 2 of sink b, 1 of sink c)"
    assert f"Not known to be committed: {expected}" in shown()
    storage.write("spark/commits/7", b"")
    assert "committed:" not in shown()
