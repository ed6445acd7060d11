"""DataFrameSink: each committed epoch, as a DataFrame, to any Spark batch writer.

What it is: a write-ahead sink for tables that Spark can write.  Tasks stage an epoch's records in
pending Parquet files in the checkpoint directory; once the manifest is published the driver reads
exactly the files that it names and calls the user's writer, with the number of the epoch and an
application id that is the same in all runs of the job.  A driver that dies between the write and
its own note of it calls the writer again with the same two, so a writer that knows what it has
written (Delta: ``txnAppId``, ``txnVersion``) is exactly-once, and any other at-least-once.

What it is not: a streaming sink of Spark's; the writer is called within an epoch's commit.

Read next: ``connectors/write_ahead_sink.py``, ``connectors/pending_files.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, cast

from pyspark.sql import SparkSession

from millstream.connectors.file_writers import ParquetWriterFactory
from millstream.connectors.pending_files import PendingFile, PendingFileCommitter
from millstream.connectors.sink import (
    Committer,
    CommitterContext,
    DeliveryGuarantee,
    Sink,
    SinkKind,
    SinkWriter,
)
from millstream.connectors.staged_values import required_storage
from millstream.connectors.write_ahead_sink import StoredNotes
from millstream.crash_points import crash_point
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from millstream.checkpoint.storage import CheckpointStorage
    from millstream.connectors.file_writers import BulkWriter
    from millstream.connectors.sink import CommitRequest, Committable, WriterContext
    from millstream.runtime.batch import Batch

__all__ = ["DataFrameSink", "EpochNumber"]

_DIRECTORY: Final = "dataframes"


class EpochNumber(int):
    """The number of an epoch; with ``application_id`` it names the same rows in every run."""

    application_id: str

    def __new__(cls, epoch: int, application_id: str) -> Self:
        """Make one."""
        number = super().__new__(cls, epoch)
        number.application_id = application_id
        return number


class DataFrameSink(Sink):
    """Hands epochs to a Spark batch writer.

    Args:
        write: called with the DataFrame and its ``EpochNumber``, in the driver.
        guarantee: EXACTLY_ONCE only if ``write`` with an application id and number that were
            written before changes nothing.
    """

    kind = SinkKind.WRITE_AHEAD

    def __init__(
        self,
        write: Callable[[DataFrame, EpochNumber], object],
        guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE,
    ) -> None:
        self.write = write
        self.guarantee = guarantee

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer to a pending Parquet file."""
        return _StagingWriter(context)

    def create_committer(self) -> Committer:
        """The committer, which calls ``write``."""
        return _DataFrameCommitter(self)


def _base(storage: CheckpointStorage) -> Path:
    return Path(storage.location) / _DIRECTORY


class _StagingWriter(SinkWriter):
    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._base = _base(required_storage(context.storage, DataFrameSink.__name__))
        self._pending: PendingFile | None = None
        self._writer: BulkWriter | None = None

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        if self._writer is None:
            self._pending = PendingFile(self._base, self._context, "", fsync=True)
            factory = ParquetWriterFactory("zstd")
            self._writer = factory.create(self._pending.stream, batch.type_info)
        self._writer.write(batch)

    def prepare_commit(self) -> Sequence[Committable]:
        if self._pending is None or self._writer is None:
            return []
        self._writer.finish()
        crash_point("staged.write.before")
        committable = self._pending.seal()
        self._pending.sync_directory()
        crash_point("staged.write.after")
        return [committable]

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
        if self._pending is not None:
            self._pending.discard()


class _DataFrameCommitter(Committer):
    def __init__(self, sink: DataFrameSink) -> None:
        self.target = f"the writer of {type(sink).__name__}"
        self._sink = sink
        self._context: CommitterContext | None = None

    def open(self, context: CommitterContext) -> None:
        self._context = context

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        context = self._required_context()
        notes = StoredNotes(context)
        by_epoch: dict[int, list[str]] = {}
        for request in requests:
            pending = cast("dict[str, str]", request.committable)["pending"]
            by_epoch.setdefault(request.epoch, []).append(pending)
        for epoch in sorted(by_epoch):
            if not notes.is_checkpoint_committed(0, epoch):
                self._write(context, epoch, by_epoch[epoch])
                notes.commit_checkpoint(0, epoch)
                crash_point("wal.note.after")

    def _write(self, context: CommitterContext, epoch: int, names: list[str]) -> None:
        paths = [_base(context.storage) / name for name in names]
        lost = [str(path) for path in paths if not path.exists()]
        if lost:
            message = f"sink {context.sink_uid}: output of epoch {epoch} is lost: {lost[0]}"
            raise SinkError(message)
        crash_point("wal.send.before")
        try:
            frame = SparkSession.builder.getOrCreate().read.parquet(*[f"file:{p}" for p in paths])
            number = EpochNumber(epoch, f"{context.job_id}/{context.sink_uid}")
            self._sink.write(frame, number)
        except Exception as error:
            message = f"sink {context.sink_uid}: writing epoch {epoch} failed: {error!s:.1000}"
            raise SinkError(message) from error
        crash_point("wal.send.after")

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        files = PendingFileCommitter(_base(self._required_context().storage))
        files.abort_orphans(job_id, sink_uid, keep, generation)

    def _required_context(self) -> CommitterContext:
        if self._context is None:
            message = "DataFrameSink: open() comes before commit()"
            raise SinkError(message)
        return self._context
