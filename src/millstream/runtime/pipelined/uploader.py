"""The uploader: a thread of a slot that finishes snapshots and acknowledges them.

What it is: what of a checkpoint takes long, one snapshot after the other in the order in which they
were taken, while the main loop goes on.  The output of a snapshot is pre-committed while its state
is uploaded: the one waits for brokers, the other for a disk, and readers for both.

Cases of a snapshot:

1. It is finished -> acknowledged.
2. It was given up, or its task is to be stopped, before or while it is finished -> given up,
   without a word.  If its checkpoint is given up later, what it alone has is deleted then.
3. It cannot be finished, for the storage refuses it or cannot be reached -> declined: the driver
   gives the checkpoint up, or the run.  What the task owes of it comes with the next.
4. A sink cannot pre-commit -> the task fails.  What was taken behind it is given up: the driver may
   have given this one up, would publish the next, and its records were in none.
5. The store itself is damaged, or the process is to die -> the slot fails.

In all of them both have ended: nobody is at work on it when the next one begins.

What it is not: the snapshot itself (``runtime/pipelined/task.py``).

Read next: ``runtime/pipelined/slot.py``.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from millstream.crash_points import crash_point
from millstream.errors import CorruptCheckpointError, StateError
from millstream.runtime.pipelined.messages import Acknowledged, Declined
from millstream.runtime.pipelined.pending_ack import PendingAck
from millstream.runtime.user_code import portable_error
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Uploader", "declined", "finished"]


def finished(slot: int, pending: PendingAck) -> Acknowledged:
    """Finish a snapshot; returns what the driver is told."""
    ack = pending.finish()
    crash_point("task.ack.before")
    return Acknowledged(slot, dumps(ack), pending.aligning, pending.pause)


def declined(slot: int, pending: PendingAck, error: Exception) -> Declined:
    """What the driver is told of a snapshot that cannot be finished."""
    task = (pending.ack.stage, pending.ack.subtask)
    return Declined(slot, pending.ack.epoch, task, portable_error(error))


class Uploader:
    """Finishes snapshots in a thread.

    Args:
        slot: the number of the slot.
        tell: tells the driver.
        fail: told what went wrong with the slot; nothing is finished after it.
    """

    def __init__(
        self,
        slot: int,
        tell: Callable[[Acknowledged | Declined], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._slot = slot
        self._tell = tell
        self._fail = fail
        self._pending: queue.SimpleQueue[PendingAck | Callable[[], None] | None]
        self._pending = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="millstream-upload", daemon=True)
        self._thread.start()

    def take(self, pending: PendingAck) -> None:
        """Take a snapshot to be finished behind those before it."""
        self._pending.put(pending)

    def do(self, order: Callable[[], None]) -> None:
        """Do something else, behind what was taken before."""
        self._pending.put(order)

    def close(self) -> None:
        """Finish all, and end."""
        self._pending.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (pending := self._pending.get()) is not None:
            try:
                if isinstance(pending, PendingAck):
                    self._finish(pending)
                else:
                    pending()
            except BaseException as error:  # noqa: BLE001 - the main loop's to tell
                self._fail(error)
                return
            finally:
                if isinstance(pending, PendingAck):
                    pending.is_done = True

    def _finish(self, pending: PendingAck) -> None:
        if pending.failures:  # its task fails, and its output will be written again
            pending.is_given_up = pending.is_stopped = True
        if pending.is_given_up:
            self._give_up(pending)
            return
        preparing = _Preparing(pending)
        failure: Exception | None = None
        try:
            pending.upload()
        except (StateError, CorruptCheckpointError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a storage raises
            failure = error
        finally:
            preparing.join()
        if preparing.error is None:
            self._conclude(pending, failure)
        elif isinstance(preparing.error, Exception):
            pending.failures.append(preparing.error)
        else:
            raise preparing.error

    def _conclude(self, pending: PendingAck, failure: Exception | None) -> None:
        """Tell the driver, unless nobody wants to know by now."""
        if failure is None and not pending.is_given_up:
            self._tell(finished(self._slot, pending))
            pending.tidy()
            if pending.is_lost:
                pending.discard()
            return
        pending.give_up()
        # Nobody waits for what a task that is to be stopped has uploaded.
        if failure is not None and not pending.is_given_up:
            self._tell(declined(self._slot, pending, failure))

    @staticmethod
    def _give_up(pending: PendingAck) -> None:
        if not pending.is_stopped:
            try:
                pending.prepare_output()
            except Exception as error:  # noqa: BLE001 - the main loop's to raise
                pending.failures.append(error)
                return
        pending.give_up()


class _Preparing(threading.Thread):
    """Pre-commits the output of a snapshot; it has begun, and is to be joined.

    A thread for each: most snapshots have none, and begin none.
    """

    def __init__(self, pending: PendingAck) -> None:
        super().__init__(name="millstream-pre-commit", daemon=True)
        self._pending = pending
        #: Why it cannot be.
        self.error: BaseException | None = None
        self._begun = bool(pending.outputs)
        if self._begun:
            self.start()

    def run(self) -> None:
        try:
            self._pending.prepare_output()
        except BaseException as error:  # noqa: BLE001 - whoever joins looks at it
            self.error = error

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, if there was anything to do."""
        if self._begun:
            super().join(timeout)
