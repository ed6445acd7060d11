"""The acknowledgement of a checkpoint, as long as parts of it are to be uploaded.

What it is: what a task hands to the uploader behind the synchronous part of a snapshot.

What it is not: a thread (``runtime/pipelined/uploader.py``), nor when a snapshot is taken
(``runtime/pipelined/task.py``).

Read next: ``runtime/pipelined/uploader.py``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.errors import MillstreamError
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.checkpoint.model import OperatorAck, TaskAck
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import PendingSnapshot
    from millstream.contracts.operator import PendingOutput
    from millstream.runtime.pipelined.alignment import Recording
    from millstream.state.operator_state_files import PendingStates

__all__ = ["PendingAck"]

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
    #: Seconds from the first barrier to the last; in which nothing was processed.
    aligning: float = 0.0
    pause: float = 0.0
    #: It was given up, or its task is to be stopped: nobody wants it any more.
    is_given_up: bool = False
    #: Its checkpoint was given up: it will never be published.
    is_lost: bool = False
    #: Its task is to be stopped: its output will be written again.
    is_stopped: bool = False
    #: Why output of its task could not be pre-committed; the same list for all its snapshots, of
    #: which none may be acknowledged behind one whose records are lost.
    failures: list[Exception] = field(default_factory=list)
    #: The uploader has done with it.
    is_done: bool = False
    #: All but its output is in the storage.
    is_uploaded: bool = False

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
        return self.carrying(self.ack)

    def upload(self) -> None:
        """Make the rest durable, once; another thread may be at ``prepare_output``."""
        # Its frames are not kept until the checkpoint is published, which may be never.
        recording, self.recording = self.recording, None
        self._owe_states()
        while self.owed:
            self.owed[0].finish(self.storage)
            del self.owed[0]
        if recording is not None:
            self.ack.in_flight = recording.write(self.storage)
        for ack, snapshot in self.snapshots:
            ack.state = snapshot.finish()
        self.is_uploaded = True

    def tidy(self) -> None:
        """Behind ``finish``: do what the acknowledgement need not wait for."""
        for _, snapshot in self.snapshots:
            snapshot.tidy()

    def give_up(self) -> None:
        """Let go of what is held for it; what the task owes comes with its next checkpoint."""
        self.recording = None
        if self.is_stopped:
            for _, output in self.outputs:
                output.abandon()
        else:
            self.prepare_output()
        self._owe_states()
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

    def _owe_states(self) -> None:
        """Owe the states of this snapshot, and those of earlier ones that it names as well.

        What a snapshot does not name, no later one does: while the storage is down, the memory that
        is owed is that of one snapshot, however many fail.
        """
        states, self.states = self.states, []
        self.owed += states
        handles = [each for of in self.ack.operators for each in of.operator_states.values()]
        named = {each.file["remote"] for each in handles if each.file is not None}
        for owed in self.owed:
            for name in owed.files.keys() - named:
                del owed.files[name]
        self.owed[:] = [owed for owed in self.owed if owed.files]
