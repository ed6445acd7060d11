"""GenericWriteAheadSink: results are kept in the checkpoint and written when it is complete.

What it is: a template for targets that cannot pre-commit.  A task stages an epoch's records in the
checkpoint directory; once the manifest is published the driver writes all of them with one call of
``send_values``, and a ``CheckpointCommitter`` marks that it was written.  For each epoch
that is to be committed the sink finds one of:

1. It is marked: an earlier try wrote it and could not say so.  Nothing is to be done.
2. It is not marked and was never written.  It is written, then marked.
3. It is written but not marked: the driver died in between.  It is written once more, unless the
   marker is part of the same atomic write (``atomic = True``), for then this case does not exist.

So the sink is exactly-once if ``atomic`` is true, else at-least-once.

What it is not: fast for large results.  They go through the checkpoint directory and the driver.

Read next: ``connectors/commit_protocols/staged_values.py``; the example is in
``docs/how-to/custom-sinks.md``.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from millstream.connectors.commit_protocols.staged_values import (
    StagedCommitter,
    StagingWriter,
    read_staged,
    staging_directory,
)
from millstream.contracts.sink import (
    Committer,
    CommitterContext,
    DeliveryGuarantee,
    Sink,
    SinkKind,
    SinkWriter,
    WriterContext,
)
from millstream.crash_points import crash_point
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.connectors.commit_protocols.staged_values import StagedPart

__all__ = ["CheckpointCommitter", "GenericWriteAheadSink", "StoredMarker"]

#: The driver writes for all subtasks at once, so Flink's subtask index is always this one.
_SUBTASK: Final = 0


class CheckpointCommitter(ABC):
    """Keeps which checkpoints of a sink were written.  Lives in the driver.

    Contract:
      1. ``commit_checkpoint`` is durable when it returns.  (author)
      2. A checkpoint is committed if it, or a later one, was kept for the same job and operator.
         (conformance suite)
    """

    #: The job and the sink's uid in it: together with the number they name a checkpoint.
    job_id: str = ""
    operator_id: str = ""

    def set_job_id(self, job_id: str) -> None:
        """Told before ``open``."""
        self.job_id = job_id

    def set_operator_id(self, operator_id: str) -> None:
        """Told before ``open``."""
        self.operator_id = operator_id

    def create_resource(self) -> None:
        """Make where markers are kept, if it is missing; called before ``open``."""

    def open(self) -> None:
        """Connect."""

    def close(self) -> None:
        """Let go of connections."""

    @abstractmethod
    def commit_checkpoint(self, subtask_idx: int, checkpoint_id: int) -> None:
        """Mark a checkpoint (``subtask_idx`` is 0: the driver writes for all subtasks)."""

    @abstractmethod
    def is_checkpoint_committed(self, subtask_idx: int, checkpoint_id: int) -> bool:
        """Whether a checkpoint, or a later one, was marked."""


class GenericWriteAheadSink(Sink):
    """A sink that writes an epoch in one go when it is committed.

    Args:
        committer: marks what was written; None keeps the marker in the checkpoint directory.
    """

    kind = SinkKind.WRITE_AHEAD
    #: True: ``send_values`` writes the values and the number of the checkpoint in one atomic
    #: write, where the CheckpointCommitter reads it; ``commit_checkpoint`` is then not called.
    #: The write must change nothing if this number or a later one is there by then: a driver that
    #: was thought dead may have asked the committer before, and be in the same call.
    atomic: bool = False

    def __init__(self, committer: CheckpointCommitter | None = None) -> None:
        if self.atomic and committer is None:
            message = (
                f"{type(self).__name__} is atomic: it needs a CheckpointCommitter that reads the"
                " number which send_values() wrote with the values"
            )
            raise SinkError(message)
        self.committer = committer
        exact = DeliveryGuarantee.EXACTLY_ONCE
        self.guarantee = exact if self.atomic else DeliveryGuarantee.AT_LEAST_ONCE
        #: Set in the driver before ``send_values`` is called.
        self.job_id = ""
        self.operator_id = ""

    @abstractmethod
    def send_values(self, values: Iterable[object], checkpoint_id: int, timestamp: int) -> bool:
        """Write all records of an epoch, in the driver.

        Args:
            values: the records, in order per subtask.
            checkpoint_id: the number of the epoch; with ``atomic`` it is to be written too, with
                ``job_id`` and ``operator_id``, unless it or a later one is there.
            timestamp: when they were staged, in milliseconds since 1970.

        Returns:
            False: nothing was written; it is tried again later.
        """

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return StagingWriter(context, type(self).__name__)

    def create_committer(self) -> Committer:
        return _WriteAheadCommitter(copy.deepcopy(self))


class _WriteAheadCommitter(StagedCommitter):
    def __init__(self, sink: GenericWriteAheadSink) -> None:
        super().__init__(sink)
        self._write_ahead = sink
        self._marker: CheckpointCommitter | None = None

    def open(self, context: CommitterContext) -> None:
        super().open(context)
        sink = self._write_ahead
        sink.job_id = context.job_id
        sink.operator_id = context.sink_uid
        marker = sink.committer or StoredMarker(context)
        marker.set_job_id(context.job_id)
        marker.set_operator_id(context.sink_uid)
        marker.create_resource()
        marker.open()
        self._marker = marker

    def write(self, context: CommitterContext, epoch: int, parts: list[StagedPart]) -> None:
        marker = self._marker
        if marker is None:
            message = f"{self.target}: open() comes before commit()"
            raise SinkError(message)
        if marker.is_checkpoint_committed(_SUBTASK, epoch):
            return
        crash_point("wal.send.before")
        self._send(context, epoch, parts)
        crash_point("wal.send.after")
        if not self._write_ahead.atomic:
            marker.commit_checkpoint(_SUBTASK, epoch)
        crash_point("wal.marker.after")

    def _send(self, context: CommitterContext, epoch: int, parts: list[StagedPart]) -> None:
        timestamp = max(part["timestamp"] for part in parts)
        values = read_staged(context, parts, epoch)
        done = self._write_ahead.send_values(values, epoch, timestamp)
        if not done:
            message = (
                f"{context.sink}: send_values() of epoch {epoch} returned {done!r}; it"
                " returns True when all is written, False when nothing is"
            )
            raise SinkError(message)

    def close(self) -> None:
        if self._marker is not None:
            self._marker.close()
        super().close()


class StoredMarker(CheckpointCommitter):
    """Keeps the number of the last epoch written in the checkpoint directory."""

    def __init__(self, context: CommitterContext) -> None:
        self._storage = context.storage
        self._name = f"{staging_directory(context.job_id, context.sink_uid)}/written"

    def commit_checkpoint(self, subtask_idx: int, checkpoint_id: int) -> None:
        del subtask_idx
        self._storage.write(self._name, str(checkpoint_id).encode())

    def is_checkpoint_committed(self, subtask_idx: int, checkpoint_id: int) -> bool:
        del subtask_idx
        try:
            return checkpoint_id <= int(self._storage.read(self._name))
        except FileNotFoundError:
            return False
