"""The uploader: a thread of a slot that makes snapshots durable and acknowledges them.

It finishes one snapshot after the other, in the order in which they were taken.  The output of a
snapshot is pre-committed while its state is uploaded: the one waits for brokers, the other for a
disk, and readers for both.

Cases of a snapshot:

1. It is durable -> acknowledged.
2. It was aborted, or its task is to be stopped, before or while it is finished -> aborted without a
   message.  If its checkpoint is aborted later, the files that only it has are deleted then.  If it
   still waits for its turn then, its state is released at once (``release_lost``): while a storage
   hangs, memory is that of the snapshots that are wanted.
3. The storage refuses it or cannot be reached -> declined: the driver aborts the checkpoint, or
   fails the run.  The pending state of the task comes with the next checkpoint.
4. A sink cannot pre-commit -> the task fails.  Later snapshots are aborted: the driver may have
   aborted this one, would publish the next, and its records were in none.
5. The store itself is damaged, or the process is to die -> the slot fails.

In all cases upload and pre-commit have both ended when the next snapshot begins.
"""

from __future__ import annotations

import logging
import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.packs import packing
from millstream.crash_points import crash_point
from millstream.errors import CorruptCheckpointError, MillstreamError, StateError
from millstream.object_stores import StoreAccess
from millstream.runtime.pipelined.control import Acknowledged, Declined
from millstream.runtime.user_code import portable_error
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.checkpoint.model import OperatorAck, TaskAck
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import PendingSnapshot
    from millstream.contracts.operator import PendingOutput
    from millstream.runtime.pipelined.unaligned_checkpoints import Recording
    from millstream.state.operator_state import PendingStates


_LOG: Final = logging.getLogger("millstream")


@dataclass(slots=True)
class PendingAck:
    """An acknowledgement that lacks only what is to be uploaded."""

    ack: TaskAck
    #: Each with the acknowledgement that its handle belongs to.
    snapshots: list[tuple[OperatorAck, PendingSnapshot]]
    states: list[PendingStates]
    storage: CheckpointStorage
    #: Adds what the task owes of checkpoints that are not known to be published.
    carrying: Callable[[TaskAck], TaskAck]
    #: States of earlier checkpoints whose upload has failed: later ones may name the same files.
    owed: list[PendingStates]
    #: Each with the acknowledgement that its committables belong to.
    outputs: list[tuple[OperatorAck, PendingOutput]] = field(default_factory=list)
    #: What was overtaken; None: all links were aligned.
    recording: Recording | None = None
    #: It was aborted, or its task is to be stopped: nobody wants it any more.
    is_given_up: bool = False
    #: Its checkpoint was aborted: it will never be published.
    is_lost: bool = False
    #: Its task is to be stopped: its output will be written again.
    is_stopped: bool = False
    #: Why output of its task could not be pre-committed; the same list for all its snapshots, of
    #: which none may be acknowledged after one whose records are lost.
    failures: list[Exception] = field(default_factory=list)
    #: The uploader has begun with it, and has done with it.
    is_begun: bool = False
    is_done: bool = False
    #: Held to begin with it, and to release what it holds before.
    _turn: threading.Lock = field(default_factory=threading.Lock)
    #: All but its output is in the storage.
    is_uploaded: bool = False
    #: Whose requests are counted.
    stores: StoreAccess = field(default_factory=StoreAccess)

    def begin(self) -> None:
        """Note that its turn has come: from now on the uploader alone releases what it holds."""
        with self._turn:
            self.is_begun = True

    def release(self) -> None:
        """Release its state unless its turn has come: its checkpoint was aborted.

        Its output is pre-committed all the same when its turn comes.
        """
        with self._turn:
            if self.is_begun:
                return
            self.is_given_up, self.recording = True, None
            snapshots, self.snapshots = self.snapshots, []
        for _, snapshot in snapshots:
            snapshot.abandon()

    def inherit(self, lost: PendingAck) -> None:
        """Write what a lost snapshot before it would have written of operator state.

        Only if the turn of that has not come, and so this one's has not.
        """
        with lost._turn:
            if not lost.is_begun:
                named = self._named()
                for states in lost.states:
                    for name in states.files.keys() - named:
                        del states.files[name]
                self.states[:0] = [each for each in lost.states if each.files]
                lost.states = []

    def _named(self) -> set[str]:
        """The files of operator states that it names."""
        handles = [each for of in self.ack.operators for each in of.operator_states.values()]
        return {each.file["remote"] for each in handles if each.file is not None}

    def prepare_output(self) -> None:
        """Pre-commit what sinks have written, once.

        Raises:
            Exception: a sink cannot.  Its records are in no later checkpoint, so the task fails.
        """
        while self.outputs:
            ack, output = self.outputs.pop(0)
            ack.committables = [dumps(each) for each in output.finish()]

    def finish(self) -> TaskAck:
        """Do what is left of ``prepare_output`` and ``upload``; returns the acknowledgement."""
        self.prepare_output()
        if not self.is_uploaded:
            self.upload()
        self.ack.requests = self.stores.requests.take()
        return self.carrying(self.ack)

    def upload(self) -> None:
        """Make the rest durable, once; another thread may be at ``prepare_output``."""
        # Its frames are not kept until the checkpoint is published, which may be never.
        recording, self.recording = self.recording, None
        self._keep_states()
        while self.owed:
            self.owed[0].finish(self.storage)
            del self.owed[0]
        if recording is not None:
            self.ack.in_flight = recording.write(self.storage)
        with packing(self.storage):
            for ack, snapshot in self.snapshots:
                ack.state = snapshot.finish()
        self.is_uploaded = True

    def tidy(self) -> None:
        """After ``finish``: do what the acknowledgement need not wait for."""
        for _, snapshot in self.snapshots:
            snapshot.tidy()

    def give_up(self) -> None:
        """Release what is held for it; what the task owes comes with its next checkpoint."""
        self.recording = None
        if self.is_stopped:
            for _, output in self.outputs:
                output.abandon()
        else:
            self.prepare_output()
        self._keep_states()
        for _, snapshot in self.snapshots:
            snapshot.abandon()
        self._delete_in_flight()
        self.carrying(self.ack)

    def discard(self) -> None:
        """Delete what it alone has, if it is finished: it is in no checkpoint.

        If it is not, the uploader calls it when it is.  Files of state stay: later snapshots may
        name them (``KeyValueStore``, contract 6).
        """
        if self.is_uploaded:
            for _, snapshot in self.snapshots:
                snapshot.abandon()
            self._delete_in_flight()

    def _delete_in_flight(self) -> None:
        in_flight, self.ack.in_flight = self.ack.in_flight, None
        if in_flight is not None:
            try:
                self.storage.delete([in_flight.file["remote"]])
            except (OSError, MillstreamError):
                _LOG.debug("left to the next sweep: %s", in_flight.file["remote"], exc_info=True)

    def _keep_states(self) -> None:
        """Owe the states of this snapshot, and those of earlier ones that it names as well.

        What a snapshot does not name, no later one does: while the storage is down, the memory that
        is owed is that of one snapshot, however many fail.
        """
        states, self.states = self.states, []
        self.owed += states
        named = self._named()
        for owed in self.owed:
            for name in owed.files.keys() - named:
                del owed.files[name]
        self.owed[:] = [owed for owed in self.owed if owed.files]


def release_lost(taken: Sequence[PendingAck]) -> None:
    """Release the state of snapshots whose checkpoints were aborted while they wait for their turn.

    What they alone would have written of operator state, the next snapshot may name: it writes
    that.

    Args:
        taken: the snapshots of a task, in order.
    """
    for number, each in enumerate(taken):
        if each.is_lost and not each.is_begun:
            each.release()
            if number + 1 < len(taken):
                taken[number + 1].inherit(each)


def finished(slot: int, pending: PendingAck) -> Acknowledged:
    """Finish a snapshot; returns what the driver is told."""
    ack = pending.finish()
    crash_point("task.ack.before")
    return Acknowledged(slot, dumps(ack))


def declined(slot: int, pending: PendingAck, error: Exception) -> Declined:
    """Return what the driver is told of a snapshot that cannot be finished."""
    task = (pending.ack.stage, pending.ack.subtask)
    return Declined(slot, pending.ack.epoch, task, portable_error(error))


class Uploader:
    """Finishes snapshots in a thread."""

    def __init__(
        self,
        slot: int,
        send: Callable[[Acknowledged | Declined], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._slot = slot
        self._send = send
        self._fail = fail
        self._pending: queue.SimpleQueue[PendingAck | Callable[[], None] | None]
        self._pending = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="millstream-upload", daemon=True)
        self._thread.start()

    def take(self, pending: PendingAck) -> None:
        """Take a snapshot to be finished after those before it."""
        self._pending.put(pending)

    def do(self, order: Callable[[], None]) -> None:
        """Do something else, after what was taken before."""
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
        pending.begin()
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
            self._send(finished(self._slot, pending))
            pending.tidy()
            if pending.is_lost:
                pending.discard()
            return
        pending.give_up()
        # Nobody waits for what a task that is to be stopped has uploaded.
        if failure is not None and not pending.is_given_up:
            self._send(declined(self._slot, pending, failure))

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
        if self._begun:
            super().join(timeout)
