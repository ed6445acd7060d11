"""DataFrameSink: passes the records of each checkpoint, as a DataFrame, to any Spark batch writer.

Tasks stage records in pending Parquet files in the checkpoint directory.  Once the manifest is
published the driver reads exactly the files that it names and calls the user's writer, with the
number of the checkpoint and an application id that is the same in all runs of the job.  A driver
that dies between the write and its own marker of it calls the writer again with the same two, so an
idempotent writer (Delta: ``txnAppId``, ``txnVersion``) is exactly-once, any other at-least-once.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

import pyarrow as pa
from pyspark.sql import SparkSession

from millstream.connectors.commit_protocols.staged_values import StoredMarker, required_storage
from millstream.connectors.files.pending_files import PendingFile, PendingFileCommitter
from millstream.connectors.formats.parquet_format import ParquetWriterFactory
from millstream.contracts.sink import (
    Committer,
    CommitterContext,
    DeliveryGuarantee,
    Sink,
    SinkKind,
    SinkWriter,
)
from millstream.crash_points import crash_point
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from millstream.connectors.formats.file_format import BulkWriter
    from millstream.contracts.batch import Batch
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.sink import CommitRequest, Committable, WriterContext
    from millstream.types.types import TypeInformation


_DIRECTORY: Final = "dataframes"
#: What has a meaning in the paths that Spark's readers take.
_GLOB: Final = re.compile(r"[\\{}\[\]*?]")


class EpochNumber(int):
    """The number of an epoch; with ``application_id`` it names the same rows in every run."""

    application_id: str

    def __new__(cls, epoch: int, application_id: str) -> Self:
        number = super().__new__(cls, epoch)
        number.application_id = application_id
        return number

    def __reduce__(self) -> tuple[type[EpochNumber], tuple[int, str]]:
        """Return what a copy is made of: writers may send the number to the workers."""
        return EpochNumber, (int(self), self.application_id)


class DataFrameSink(Sink):
    """Hands epochs to a Spark batch writer.

    The stream must have a type, of which every column is one that Spark reads from Parquet: the
    others are refused before the manifest is published, for a writer could never commit them.

    Args:
        write: called with the DataFrame and its ``EpochNumber``, in the driver.  It must be
            picklable: ``frame.sparkSession`` is the session, which is not.
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
        return _StagingWriter(context)

    def create_committer(self) -> Committer:
        return _DataFrameCommitter(self)


def _base(storage: CheckpointStorage) -> Path:
    return Path(storage.location) / _DIRECTORY


def _escaped(path: Path) -> str:
    """The name of this file alone: Spark takes a path for a pattern."""
    return "file:" + _GLOB.sub(r"\\\g<0>", str(path))


def _require_readable(type_info: TypeInformation, place: str) -> None:
    """Refuse records that Spark cannot read, as long as their epoch can be rolled back.

    Raises:
        SinkError: the stream has no type, so subtasks may find different columns; or a column is
            of a type that Spark does not read from Parquet.
    """
    schema = type_info.arrow_schema
    if schema is None:
        message = (
            f"{place}: the records have no type, so each subtask would make different columns; "
            "give the operator before the sink an output_type (Types.ROW_NAMED)"
        )
        raise SinkError(message)
    for field in schema:
        if _has_unreadable(field.type):
            message = (
                f"{place}: Spark cannot read column {field.name!r} of type {field.type} from"
                " Parquet; map it to SQL_TIMESTAMP, LONG or STRING before the sink"
            )
            raise SinkError(message)


def _has_unreadable(kind: Any) -> bool:
    """Return whether a type is, or contains, a time of day, a duration or nanoseconds."""
    if pa.types.is_nested(kind):
        return any(_has_unreadable(kind.field(number).type) for number in range(kind.num_fields))
    nanoseconds = pa.types.is_timestamp(kind) and kind.unit == "ns"
    return nanoseconds or bool(pa.types.is_time(kind) or pa.types.is_duration(kind))


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
            _require_readable(batch.type_info, self._context.location)
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
        marker = StoredMarker(context)
        by_epoch: dict[int, list[str]] = {}
        for request in requests:
            pending = cast("dict[str, str]", request.committable)["pending"]
            by_epoch.setdefault(request.epoch, []).append(pending)
        for epoch in sorted(by_epoch):
            if not marker.is_checkpoint_committed(0, epoch):
                self._write(context, epoch, by_epoch[epoch])
                marker.commit_checkpoint(0, epoch)
                crash_point("wal.marker.after")

    def _write(self, context: CommitterContext, epoch: int, names: list[str]) -> None:
        paths = [_base(context.storage) / name for name in names]
        lost = [str(path) for path in paths if not path.exists()]
        if lost:
            message = f"{context.sink}: output of checkpoint {epoch} is lost: {lost[0]}"
            raise SinkError(message)
        crash_point("wal.send.before")
        try:
            session = SparkSession.builder.getOrCreate()
            frame = session.read.parquet(*[_escaped(path) for path in paths])
            number = EpochNumber(epoch, f"{context.job_id}/{context.sink_uid}")
            self._sink.write(frame, number)
        except Exception as error:
            message = f"{context.sink}: writing checkpoint {epoch} failed: {error!s:.1000}"
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
