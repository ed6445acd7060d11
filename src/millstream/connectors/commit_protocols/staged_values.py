"""Staged values: an epoch's records kept in the checkpoint directory until the epoch is committed.

The write-ahead sink and the fenced upsert sink share this.  A task writes the records of an epoch
as one blob under a name of its attempt, ``sinks/<job>/<uid>/g<generation>-...``, and its
committable names it.  The committer reads exactly what the manifest names.
"""

from __future__ import annotations

import copy
import io
import pickle
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, TypedDict, cast

from millstream.connectors.error_classification import sink_error
from millstream.connectors.output_names import OutputNames
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
from millstream.errors import PermanentSinkError, SinkError
from millstream.types.pickling import dumps, find_unpicklable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.sink import CommitRequest, Committable


class StagedPart(TypedDict):
    """The values that one subtask staged in one epoch."""

    #: In the checkpoint directory.
    name: str
    subtask: int
    records: int
    #: Milliseconds since 1970, when it was staged.
    timestamp: int
    #: Of the run that has staged it.
    generation: int


def required_storage(storage: CheckpointStorage | None, sink: str) -> CheckpointStorage:
    """The storage of a context; SinkError if there is none."""
    if storage is None:
        message = f"{sink} keeps output in the checkpoint directory, and the context names none"
        raise SinkError(message)
    return storage


def staging_directory(job_id: str, sink_uid: str) -> str:
    """Where a sink may put what its committer shall find."""
    return f"sinks/{OutputNames(job_id, sink_uid).directory}"


def attempt_name(context: WriterContext, suffix: str) -> str:
    """A name that no other attempt uses, with the generation in front."""
    directory = staging_directory(context.job_id, context.sink_uid)
    return f"{directory}/{OutputNames.of_file(context, suffix)}"


def drop_unnamed(
    storage: CheckpointStorage,
    directory: str,
    suffix: str,
    kept: set[str],
    generation: int,
    before: Callable[[str], None] | None = None,
) -> None:
    """Delete what attempts of this run and of older ones left and ``kept`` does not name.

    Args:
        storage: the checkpoint directory.
        directory: the sink's ``staging_directory``.
        suffix: of which kind of blobs.
        kept: names to keep.
        generation: that of this run.
        before: called with each name before it is deleted.
    """
    names = [each for each in storage.list_names(directory) if each.endswith(f".{suffix}")]
    lost = OutputNames.orphans(names, kept, generation, f"{directory}/")
    if before is not None:
        for name in lost:
            before(name)
    if lost:
        storage.delete(lost)


def staged_part(committable: Committable) -> StagedPart:
    """The committable of a sink that stages values.

    Raises:
        SinkError: it is none.
    """
    if not isinstance(committable, dict) or not {"name", "subtask"} <= committable.keys():
        message = f"not a committable of a sink that stages values: {committable!r:.200}"
        raise SinkError(message)
    return cast("StagedPart", committable)


def read_staged(
    context: CommitterContext, parts: Sequence[StagedPart], epoch: int
) -> Iterator[object]:
    """The records of an epoch in order of subtask and writing; one blob is in memory at a time.

    Raises:
        SinkError: staged output of a published epoch is missing.
    """
    for part in sorted(parts, key=lambda part: part["subtask"]):
        try:
            content = io.BytesIO(context.storage.read(part["name"]))
        except FileNotFoundError:
            message = (
                f"{context.sink}: output of checkpoint {epoch} is lost: {part['name']} is"
                f" missing in {context.storage.location}; nothing but this job may delete files"
                " there"
            )
            raise PermanentSinkError(message) from None
        size = content.getbuffer().nbytes
        while content.tell() < size:
            yield from pickle.load(content)


class StagedCommitter(Committer):
    """Writes what was staged, epoch by epoch; drops what no manifest names.

    Args:
        sink: whose output it is; a copy of its own, of the driver's side.
    """

    def __init__(self, sink: Sink) -> None:
        self.target = type(sink).__name__
        self._sink = sink
        self._context: CommitterContext | None = None

    @abstractmethod
    def write(self, context: CommitterContext, epoch: int, parts: list[StagedPart]) -> None:
        """Write an epoch, if it is not written yet; errors of the target become SinkError."""

    def open(self, context: CommitterContext) -> None:
        self._context = context

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Write the epochs, the oldest first.

        Raises:
            SinkError: one cannot be written.
        """
        context = self._context
        if context is None:
            message = f"{self.target}: open() comes before commit()"
            raise SinkError(message)
        by_epoch: dict[int, list[StagedPart]] = {}
        for request in requests:
            by_epoch.setdefault(request.epoch, []).append(staged_part(request.committable))
        for epoch in sorted(by_epoch):
            try:
                self.write(context, epoch, by_epoch[epoch])
            except SinkError:
                raise
            except Exception as error:
                message = f"{context.sink}: writing checkpoint {epoch} failed: {error!r}"
                raise sink_error(message, error) from error

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        if self._context is not None:
            kept = {staged_part(item)["name"] for item in keep}
            directory = staging_directory(job_id, sink_uid)
            drop_unnamed(self._context.storage, directory, "values", kept, generation)

    def close(self) -> None:
        self._sink.close()


class StagingWriter(SinkWriter):
    """Stages an epoch's values of one subtask; they are in memory until the pre-commit."""

    def __init__(self, context: WriterContext, sink: str) -> None:
        self._context = context
        self._storage = required_storage(context.storage, sink)
        self._chunks: list[bytes] = []
        self._records = 0

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        try:
            self._chunks.append(dumps(list(batch.values)))
        except (TypeError, AttributeError, ValueError, pickle.PicklingError) as error:
            message = f"{self._context.sink}: result {find_unpicklable(batch.values)}"
            raise PermanentSinkError(message) from error
        self._records += len(batch)

    def prepare_commit(self) -> Sequence[Committable]:
        if not self._records:
            return []
        name = attempt_name(self._context, "values")
        crash_point("staged.write.before")
        self._storage.write(name, b"".join(self._chunks))
        crash_point("staged.write.after")
        part: StagedPart = {
            "name": name,
            "subtask": self._context.subtask,
            "records": self._records,
            "timestamp": time.time_ns() // 1_000_000,
            "generation": self._context.generation,
        }
        return [part]


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
        """Return whether a checkpoint, or a later one, was marked."""


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
                f"{context.sink}: send_values() of checkpoint {epoch} returned {done!r}; it"
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
