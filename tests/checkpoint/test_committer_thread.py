"""A committer that hangs is left alone, and nothing is tried beside it."""

from __future__ import annotations

import gc
import itertools
import sqlite3
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from millstream.checkpoint import commit
from millstream.checkpoint.commit import (
    CommitRetry,
    CommitterThread,
    ManifestCommit,
    PendingCommits,
)
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.model import Manifest, OperatorAck
from millstream.contracts.sink import CommitRequest, Committable, Committer, CommitterContext
from millstream.errors import SinkError
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Seconds until a hanging call is left; with the grace of a second.
SHORT = 0.01
#: Seconds for what must happen.
DEADLINE = 120.0


class Server:
    """What is committed, over all runs; the first call of a commit hangs until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.hung = threading.Event()
        self.begun: list[str] = []
        self.committed: set[str] = set()
        self.under_way = 0
        self.most = 0


class Hanging(Committer):
    target = "the server"

    def __init__(self, server: Server, *, hangs: str = "") -> None:
        self.server = server
        self.hangs = hangs
        self.threads: set[int] = set()
        self.closed = False

    def _step(self, step: str) -> None:
        server = self.server
        self.threads.add(threading.get_ident())
        server.begun.append(step)
        server.under_way += 1
        server.most = max(server.most, server.under_way)
        if step == self.hangs:
            server.hung.set()
            assert server.go.wait(DEADLINE)
        server.under_way -= 1

    def open(self, context: CommitterContext) -> None:
        assert context.timeout in {SHORT, DEADLINE}
        self._step("open")

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        self._step("commit")
        self.server.committed.update(str(each.committable) for each in requests)

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        self._step("abort")

    def close(self) -> None:
        self.closed = True


def opened(path: Path, committer: Committer, timeout: float = DEADLINE) -> CommitterThread:
    thread = CommitterThread("results", committer, timeout)
    thread.open(CommitterContext("job", "results", 1, LocalStorage(path)))
    return thread


def manifest() -> Manifest:
    acks = {"results": [OperatorAck("results", 0, 0, committables=[dumps("x")])]}
    return Manifest(4, 1, "job", 0, 1_000, {}, acks, {}, {0: 1}, 8)


def test_a_try_that_hangs_fails_the_run_and_the_next_run_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "_REPORT", 0.001)
    server = Server()
    first = Hanging(server, hangs="commit")
    thread = opened(tmp_path, first)
    thread._timeout = SHORT
    told: list[PendingCommits] = []
    retry = CommitRetry((0.0, 0.0))
    storage = LocalStorage(tmp_path, fsync=False)
    commits = ManifestCommit(storage, {"results": thread}, retry, lambda: 0, told.append)
    commits.begin(manifest())
    pattern = (
        r"sink results: the server gives no answer: committing checkpoint 4 has taken longer than"
        r" 1\.0 s .*\(sink results could not commit checkpoint 4 to the server in 1 try\)\."
        r" Pending: 1"
    )
    with monkeypatch.context() as patched:
        clock = itertools.count(0.0, 0.02)  # goes on with each look, however slow the machine is
        patched.setattr(commit, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        with pytest.raises(SinkError, match=pattern):
            commits.finish(retried=False)
    assert server.hung.wait(DEADLINE)
    assert len(told) > 20  # told while it was waited for
    # Nothing goes on beside it, in this run.
    with pytest.raises(
        SinkError, match="committing checkpoint 4 was abandoned and may still be in"
    ):
        commits.finish(retried=True)
    with pytest.raises(SinkError, match="so dropping orphans is left to the next run"):
        thread.abort_orphans("job", "results", [], 1)
    thread.close()
    assert not first.closed
    assert server.begun == ["open", "commit"]
    assert server.most == 1
    assert commits.pending.committables == 1

    second = Hanging(server)
    next_run = opened(tmp_path, second)
    again = ManifestCommit(storage, {"results": next_run}, retry, lambda: 0)
    again.begin(manifest())
    again.finish(retried=True)
    next_run.abort_orphans("job", "results", ["x"], 2)
    next_run.close()
    assert server.committed == {"x"}
    assert again.pending.committables == 0
    assert second.closed
    # The old one wakes up: it ends its call and begins nothing.
    server.go.set()
    assert thread._thread is not None
    thread._thread.join(DEADLINE)
    assert not thread._thread.is_alive()
    assert server.begun == ["open", "commit", "open", "commit", "abort"]
    assert server.committed == {"x"}


@pytest.mark.parametrize("step", ["open", "abort"])
def test_a_hang_at_the_start_is_an_error_too(tmp_path: Path, step: str) -> None:
    server = Server()
    committer = Hanging(server, hangs=step)
    pattern = r"sink results: the server gives no answer: (opening|drop)"
    if step == "open":
        with pytest.raises(SinkError, match=pattern):
            opened(tmp_path, committer, SHORT)
    else:
        thread = opened(tmp_path, committer)
        thread._timeout = SHORT
        with pytest.raises(SinkError, match=pattern):
            thread.abort_orphans("job", "results", [], 1)
    assert server.hung.wait(DEADLINE)
    assert server.under_way == 1  # still: it was not waited for
    server.go.set()


def test_all_methods_run_in_one_thread_which_ends_with_the_committer(tmp_path: Path) -> None:
    class Sqlite(Hanging):
        """A connection that only its thread may use."""

        def open(self, context: CommitterContext) -> None:
            super().open(context)
            self.connection = sqlite3.connect(tmp_path / "db")

        def commit(self, requests: Sequence[CommitRequest]) -> None:
            self.connection.execute("SELECT 1")

        def close(self) -> None:
            self.connection.close()
            super().close()

    committer = Sqlite(Server())
    thread = opened(tmp_path, committer)
    thread.commit([CommitRequest("x", 0, retried=False)])
    thread.abort_orphans("job", "results", [], 1)
    thread.close()
    assert committer.closed
    assert len(committer.threads) == 1
    assert threading.get_ident() not in committer.threads

    dropped = opened(tmp_path, Hanging(Server()))
    worker = dropped._thread
    assert worker is not None
    del dropped
    gc.collect()
    worker.join(DEADLINE)
    assert not worker.is_alive()


def test_errors_come_through_as_they_are(tmp_path: Path) -> None:
    class Broken(Hanging):
        def commit(self, requests: Sequence[CommitRequest]) -> None:
            message = "a bug"
            raise ZeroDivisionError(message)

    thread = opened(tmp_path, Broken(Server()))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        thread.commit([])
    assert thread.left == ""
    thread.close()
