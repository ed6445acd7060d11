"""A committer in a thread of its own, so that one which hangs cannot hang the job.

What it is: every call of a sink's committer goes through ``CommitterThread``, which runs it in one
thread per committer and waits for it, but not for ever.  What a call that was begun comes to:

1. It returns -> done.
2. It raises in time: the target refused, or the connector's own client gave up
   (``CommitterContext.timeout``) -> the error is handed on.  Nothing of the call runs on in this
   process, so it may be tried again.  What it sent may still reach the target after the next
   try; that is the connector's to bear (contract 6 of ``Committer``).
3. It does neither within the time -> it is *left*: SinkError.  The thread cannot be stopped, so
   nothing is tried beside it: this committer takes no more calls, and the run fails.
4. A call that was left wakes up while the next run, with a committer of its own, is at work -> it
   does what a driver does that was thought dead: it commits what a published manifest names, or
   drops orphans of its own generation and older ones.  Committers bear that by contract.

What can never happen: two calls of one committer at a time; a try of a commit beside a try that
still runs, within one run; anything begun by a thread that was left, for it ends with its call.

What it is not: a retry; see ``checkpoint/commit.py``.

Read next: ``checkpoint/commit.py``.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.contracts.sink import Committer
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.contracts.sink import CommitRequest, Committable, CommitterContext

__all__ = ["COMMIT_TIMEOUT", "CommitterThread"]

_LOG: Final = logging.getLogger("millstream")
#: Seconds; ten minutes, as for the tasks of an epoch.
COMMIT_TIMEOUT: Final = 600.0
#: Seconds between two reports that a call is waited for.
_REPORT: Final = 1.0
#: Seconds to wait for ``close``, which nobody needs the result of.
_CLOSE: Final = 10.0


class _Call:
    """A call of the committer and its end."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self.error = error
        finally:
            self.ended.set()


class CommitterThread(Committer):
    """Runs a committer's methods in a thread, with a limit.

    Contract: as ``Committer``; besides:
      1. All methods of the committer, ``open`` first, run in one thread, so it may keep
         connections that belong to a thread.
      2. No method waits longer than the limit and a tenth of it (a second at least).
    """

    def __init__(
        self,
        uid: str,
        committer: Committer,
        timeout: float = COMMIT_TIMEOUT,
        label: str | None = None,
    ) -> None:
        """Guard ``committer`` of sink ``uid``.

        Args:
            uid: the sink.
            committer: nothing was called yet.
            timeout: seconds that a call may take.  The committer is told, so that its client gives
                up first; the tenth is for that.
            label: what to call the sink in messages; its uid if None.
        """
        #: What messages call the sink.
        self.label = label or uid
        self._committer = committer
        self.target = committer.target or type(committer).__name__
        self._timeout = timeout
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        #: What the call is that was left; empty: none was.
        self.left = ""
        #: Called every second while a commit is waited for.
        self.waiting: Callable[[], None] = lambda: None
        # A committer that is dropped without ``close`` shall not keep a thread.
        self._end = weakref.finalize(self, self._calls.put, None)

    def open(self, context: CommitterContext) -> None:
        """Open in time; raises SinkError if it is not."""
        told = replace(context, timeout=self._timeout, label=self.label)
        self._call("opening", lambda: self._committer.open(told))

    def resume_from(self, epoch: int) -> None:
        """Compare the target with the checkpoint in time; raises SinkError if it is not."""
        self._call("looking at the target", lambda: self._committer.resume_from(epoch))

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Commit in time; raises SinkError if it is not."""
        epoch = requests[0].epoch if requests else -1
        self._call(f"committing epoch {epoch}", lambda: self._committer.commit(requests))

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        """Drop orphans in time; raises SinkError if it is not."""
        self._call(
            "dropping orphans",
            lambda: self._committer.abort_orphans(job_id, sink_uid, keep, generation),
        )

    def close(self) -> None:
        """Close, unless a call was left: its thread is using what would be closed."""
        if not self.left and self._thread is not None:
            try:
                self._call("closing", self._committer.close, limit=_CLOSE)
            except SinkError as error:
                _LOG.warning("%s", error)
        self._end()

    def _call(self, what: str, function: Callable[[], None], limit: float | None = None) -> None:
        if self.left:
            message = (
                f"sink {self.label}: {self.target} still has not answered: {self.left} was given up"
                f" and may still be under way, so {what} is left to the next run"
            )
            raise SinkError(message)
        if self._thread is None:
            name = f"millstream-committer-{self.label}"
            self._thread = threading.Thread(
                target=_run, args=(self._calls,), name=name, daemon=True
            )
            self._thread.start()
        call = _Call(function)
        self._calls.put(call)
        self._wait(call, what, limit or self._timeout + max(1.0, self._timeout / 10))
        if call.error is not None:
            raise call.error

    def _wait(self, call: _Call, what: str, limit: float) -> None:
        end = time.monotonic() + limit
        while not call.ended.wait(min(_REPORT, max(0.0, end - time.monotonic()))):
            if time.monotonic() >= end:
                self.left = what
                message = (
                    f"sink {self.label}: {self.target} gives no answer: {what} has taken longer"
                    f" than {limit:.1f} s and is left alone (millstream.commit.timeout); the next"
                    " run does it first of all. Look whether the target is well, or, if it is only"
                    " slow, raise the option"
                )
                raise SinkError(message)
            self.waiting()


def _run(calls: queue.SimpleQueue[_Call | None]) -> None:
    """The thread: it holds on to nothing but the queue, so that the owner can be dropped."""
    while (call := calls.get()) is not None:
        call.run()
        del call
