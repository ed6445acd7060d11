"""Flink's ``FileSink``: exactly-once files in CSV, JSON lines, Parquet or any encoding.

Every epoch makes its own files, at most one (or as many as the rolling policy asks for) per subtask
and bucket, and none where there are no records.  They become visible, whole, when the epoch is
committed: ``part-<hash>-<subtask>-<epoch>.<ext>``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias
from zoneinfo import ZoneInfo

from millstream.connectors.error_classification import directory_refusal
from millstream.connectors.files.object_files import ObjectFile, ObjectFileCommitter
from millstream.connectors.files.pending_files import (
    PendingFile,
    PendingFileCommitter,
    local_directory,
)
from millstream.connectors.formats.csv_format import CsvWriterFactory
from millstream.connectors.formats.file_format import BulkWriterFactory, EncoderWriterFactory
from millstream.connectors.formats.json_format import JsonLinesWriterFactory
from millstream.connectors.formats.parquet_format import ParquetWriterFactory
from millstream.connectors.output_names import OutputNames
from millstream.contracts.sink import Committer, Sink, SinkWriter, WriterContext
from millstream.errors import PermanentSinkError, SinkError
from millstream.object_stores import ObjectStore, is_object_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from millstream.connectors.formats.file_format import BulkWriter
    from millstream.contracts.batch import Batch
    from millstream.contracts.serialization import Encoder
    from millstream.contracts.sink import Committable
    from millstream.object_stores import StoreAccess
    from millstream.types.types import TypeInformation


@dataclass(frozen=True, slots=True)
class OutputFileConfig:
    """Prefix and suffix of file names."""

    part_prefix: str = "part"
    #: Empty: the usual suffix of the format.
    part_suffix: str = ""

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """Start building."""
        return OutputFileConfig.OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """The prefix."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """The suffix."""
        return self.part_suffix

    class OutputFileConfigBuilder:
        """Builds an OutputFileConfig."""

        def __init__(self) -> None:
            self._prefix = "part"
            self._suffix = ""

        def with_part_prefix(self, prefix: str) -> Self:
            """Set the prefix."""
            self._prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> Self:
            """Set the suffix, with its dot."""
            self._suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            """The configuration; raises SinkError if a name would hide or move the files."""
            if self._prefix.startswith((".", "_")) or "/" in self._prefix + self._suffix:
                message = (
                    f"{self._prefix!r} and {self._suffix!r} must not hide the files or hold a '/'"
                )
                raise SinkError(message)
            return OutputFileConfig(self._prefix, self._suffix)


#: Its name before it was nested, as PyFlink's is.
OutputFileConfigBuilder = OutputFileConfig.OutputFileConfigBuilder


class BucketAssigner(ABC):
    """Which directory below the base path a record goes to.  Pickled to the workers."""

    @abstractmethod
    def get_bucket_id(self, element: object, timestamp: int) -> str:
        """The relative directory ("" for the base path) of a record.

        Args:
            element: the record.
            timestamp: its event time in milliseconds.
        """

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """All files in the base path (the default)."""
        return BasePathBucketAssigner()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> BucketAssigner:
        """A directory per hour (or what the format says) of processing time."""
        return DateTimeBucketAssigner(format_str, timezone_id)


class BatchSplitter(ABC):
    """Which directories the records of a batch go to, decided by columns."""

    @abstractmethod
    def split(self, batch: Batch) -> Iterable[tuple[str, Batch]]:
        """The directories, each with its records, which may be of another type."""


class BasePathBucketAssigner(BucketAssigner):
    """No buckets: records are not looked at."""

    def get_bucket_id(self, element: object, timestamp: int) -> str:
        del element, timestamp
        return ""


#: Java's date pattern letters as strftime has them, longest first.
_PATTERNS = (
    ("yyyy", "%Y"),
    ("MM", "%m"),
    ("dd", "%d"),
    ("HH", "%H"),
    ("mm", "%M"),
    ("ss", "%S"),
    ("yy", "%y"),
)


class DateTimeBucketAssigner(BucketAssigner):
    """A directory per processing time, in Java's pattern letters y, M, d, H, m, s."""

    def __init__(self, format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> None:
        self._zone = timezone_id
        self._format = format_str.replace("%", "%%")
        for java, python in _PATTERNS:
            self._format = self._format.replace(java, python)

    def get_bucket_id(self, element: object, timestamp: int) -> str:
        """The directory of the current time."""
        del element, timestamp
        zone = None if self._zone is None else ZoneInfo(self._zone)
        now = dt.datetime.fromtimestamp(time.time(), zone)
        return now.strftime(self._format)


@dataclass(frozen=True, slots=True)
class RollingPolicy:
    """When a subtask begins another file within an epoch (it always does between epochs)."""

    #: Bytes after which a file is full; None never.
    part_size: int | None = None

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 << 20,
        rollover_interval: int = 60_000,
        inactivity_interval: int = 60_000,
    ) -> DefaultRollingPolicy:
        """Roll by size.  The intervals (ms) are met anyway, since each epoch ends its files."""
        del rollover_interval, inactivity_interval
        return DefaultRollingPolicy(part_size)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """Roll at every checkpoint and only then."""
        return OnCheckpointRollingPolicy()


class DefaultRollingPolicy(RollingPolicy):
    """Rolls by size and at every checkpoint."""


class OnCheckpointRollingPolicy(RollingPolicy):
    """Rolls at every checkpoint."""


#: What may be given for a bucket assigner.
BucketLike: TypeAlias = "BucketAssigner | BatchSplitter | Callable[[object], str]"


def output_location(path: str) -> str:
    """Return the location of output in one form: an absolute path, or a URI of an object store.

    Raises:
        SinkError: it is on another kind of storage.
        ConfigurationError: it is a URI that is malformed, or a library is not installed.
    """
    if not is_object_store(str(path)):
        return str(local_directory(path))
    return ObjectStore(str(path)).location


class FileSink(Sink):
    """Writes files, exactly once.

    ::

        FileSink.csv("out/")
        FileSink.parquet("out/", compression="zstd")
        FileSink.for_row_format("out/", Encoder.simple_string_encoder()).build()

    Args:
        path: the base directory, on a file system that driver and workers share, or in an object
            store.
        writer_factory: the format.
        bucket_assigner: a BucketAssigner, or a function from the record to a directory.
        rolling_policy: when to begin another file within an epoch.
        output_file_config: prefix and suffix of the names.
        fsync: False trades survival of a machine crash for speed.
    """

    #: PyFlink's names of the builder.
    BaseBuilder: ClassVar[type[FileSinkBuilder]]
    RowFormatBuilder: ClassVar[type[FileSinkBuilder]]
    BulkFormatBuilder: ClassVar[type[FileSinkBuilder]]

    def __init__(
        self,
        path: str,
        writer_factory: BulkWriterFactory,
        *,
        bucket_assigner: BucketLike | None = None,
        rolling_policy: RollingPolicy | None = None,
        output_file_config: OutputFileConfig | None = None,
        fsync: bool = True,
    ) -> None:
        #: The base directory: an absolute path, or a URI of an object store.
        self.location = output_location(path)
        self.writer_factory = writer_factory
        self.bucket_assigner = bucket_assigner
        self.rolling_policy = rolling_policy or RollingPolicy()
        self.output_file_config = output_file_config or OutputFileConfig()
        self.fsync = fsync

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> FileSinkBuilder:
        """Start building a sink that encodes record by record."""
        return FileSinkBuilder(base_path, EncoderWriterFactory(encoder))

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: BulkWriterFactory) -> FileSinkBuilder:
        """Start building a sink that writes many records at a time."""
        return FileSinkBuilder(base_path, writer_factory)

    @staticmethod
    def csv(
        path: str,
        *,
        header: bool = True,
        delimiter: str = ",",
        null_text: str = "",
        bucket_assigner: BucketLike | None = None,
        fsync: bool = True,
    ) -> FileSink:
        """CSV files; every file begins with a header unless ``header`` is False."""
        factory = CsvWriterFactory(header=header, delimiter=delimiter, null_text=null_text)
        return FileSink(path, factory, bucket_assigner=bucket_assigner, fsync=fsync)

    @staticmethod
    def json_lines(
        path: str, *, bucket_assigner: BucketLike | None = None, fsync: bool = True
    ) -> FileSink:
        """Files with a JSON object per line."""
        factory = JsonLinesWriterFactory()
        return FileSink(path, factory, bucket_assigner=bucket_assigner, fsync=fsync)

    @staticmethod
    def parquet(
        path: str,
        *,
        compression: str = "snappy",
        bucket_assigner: BucketLike | None = None,
        fsync: bool = True,
    ) -> FileSink:
        """Parquet files."""
        factory = ParquetWriterFactory(compression)
        return FileSink(path, factory, bucket_assigner=bucket_assigner, fsync=fsync)

    def describe(self) -> str:
        """The kind of sink, and its directory's name."""
        return f"{type(self).__name__} {PurePosixPath(self.location).name}"

    def opened_with(self, stores: StoreAccess) -> Self:
        return self._copy_with(stores)

    @property
    def directory(self) -> Path:
        """The base directory on a file system.

        Raises:
            SinkError: it is in an object store.
        """
        return local_directory(self.location)

    def validate(self) -> None:
        """Check that the directory can be made; nothing is written before the first epoch."""
        if is_object_store(self.location):
            store = self.stores.open(self.location)
            store.check()
            if store.uploads_in_parts:
                store.s3_client()
            return
        existing = self.directory
        while not existing.exists():
            existing = existing.parent
        if not existing.is_dir():
            message = f"cannot write to {self.directory}: {existing} is not a directory"
            raise SinkError(message)
        if not os.access(existing, os.W_OK | os.X_OK):
            number = errno.EROFS if os.statvfs(existing).f_flag & os.ST_RDONLY else errno.EACCES
            refused = OSError(number, os.strerror(number))
            what = "cannot write"
            raise directory_refusal(what, self.directory, refused)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _FileSinkWriter(self, context)

    @property
    def reads_timestamps(self) -> bool:  # type: ignore[override] # only a user's assigner does
        """Whether there is a function of the record, which may look at its time."""
        known = BasePathBucketAssigner | DateTimeBucketAssigner | BatchSplitter | None
        return not isinstance(self.bucket_assigner, known)

    def create_committer(self) -> Committer:
        if is_object_store(self.location):
            return ObjectFileCommitter(self.stores.open(self.location))
        return PendingFileCommitter(self.directory, fsync=self.fsync)

    def new_file(self, context: WriterContext, final: str) -> PendingFile | ObjectFile:
        """Begin a file that is invisible until it is committed.

        Args:
            context: of the writer.
            final: its path below the base directory when it is committed.
        """
        if is_object_store(self.location):
            return ObjectFile.create(self.stores.open(self.location), context, final)
        return PendingFile(self.directory, context, final, fsync=self.fsync)


class _OpenFile:
    """The file of a bucket that is being written."""

    def __init__(
        self, sink: FileSink, context: WriterContext, final: str, kind: TypeInformation
    ) -> None:
        self.pending = sink.new_file(context, final)
        self.type_info = kind
        self.writer: BulkWriter = sink.writer_factory.create(self.pending.stream, kind)


class _FileSinkWriter(SinkWriter):
    def __init__(self, sink: FileSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._open: dict[str, _OpenFile] = {}
        self._sealed: list[Committable] = []
        self._files: list[PendingFile | ObjectFile] = []
        self._made: dict[str, int] = {}

    def write(self, batch: Batch) -> None:
        if len(batch) == 0:
            return
        assigner = self._sink.bucket_assigner
        if assigner is None or isinstance(assigner, BasePathBucketAssigner):
            self._write_bucket("", batch)
            return
        if isinstance(assigner, BatchSplitter):
            for bucket, part in assigner.split(batch):
                self._write_bucket(_checked_bucket(bucket), part)
            return
        buckets: dict[str, list[int]] = {}
        for index, (value, timestamp) in enumerate(
            zip(batch.values, batch.timestamp_list, strict=True)
        ):
            buckets.setdefault(self._bucket(assigner, value, timestamp), []).append(index)
        for bucket, indices in buckets.items():
            part = batch if len(buckets) == 1 else batch.take(indices)
            self._write_bucket(bucket, part)

    def _bucket(
        self, assigner: BucketAssigner | Callable[[object], str], value: object, timestamp: int
    ) -> str:
        """The directory of a record; SinkError if there is none."""
        try:
            if isinstance(assigner, BucketAssigner):
                return _checked_bucket(assigner.get_bucket_id(value, timestamp))
            return _checked_bucket(assigner(value))
        except Exception as error:
            what = str(error) if isinstance(error, SinkError) else f"the bucket assigner: {error!r}"
            message = f"{self._sink.location}: no bucket for record {value!r:.500}: {what}"
            raise PermanentSinkError(message) from error

    def _write_bucket(self, bucket: str, batch: Batch) -> None:
        file = self._open.get(bucket)
        if file is not None and file.type_info != batch.type_info:
            self._seal(bucket)
            file = None
        if file is None:
            final = self._final_name(bucket)
            file = _OpenFile(self._sink, self._context, final, batch.type_info)
            self._open[bucket] = file
            self._files.append(file.pending)
        file.writer.write(batch)
        part_size = self._sink.rolling_policy.part_size
        if part_size is not None and file.pending.size >= part_size:
            self._seal(bucket)

    def _final_name(self, bucket: str) -> str:
        context, config = self._context, self._sink.output_file_config
        number = self._made.get(bucket, 0)
        self._made[bucket] = number + 1
        again = f"-{number}" if number else ""
        suffix = config.part_suffix or self._sink.writer_factory.extension
        part = f"{context.subtask}-{context.epoch:06d}{again}"
        name = f"{config.part_prefix}-{OutputNames.of(context).tag}-{part}{suffix}"
        return str(PurePosixPath(bucket) / name)

    def _seal(self, bucket: str) -> None:
        file = self._open.pop(bucket)
        file.writer.finish()
        self._sealed.append(file.pending.seal())

    def prepare_commit(self) -> Sequence[Committable]:
        for bucket in list(self._open):
            self._seal(bucket)
        if self._files:
            self._files[0].sync_directory()  # all are in one directory
        return self._sealed

    def abort(self) -> None:
        self.close()
        for file in self._files:
            file.discard()

    def close(self) -> None:
        for file in self._open.values():
            with contextlib.suppress(Exception):  # an error here must not hide the one before
                file.writer.abandon()
            file.pending.stream.close()
        self._open.clear()


def _checked_bucket(bucket: str) -> str:
    path = PurePosixPath(bucket)
    if (
        path.is_absolute()
        or ".." in path.parts
        or any(p.startswith((".", "_")) for p in path.parts)
    ):
        message = (
            f"bucket {bucket!r} must be a relative directory whose names do not begin with '.' or "
            "'_' (readers pass over these)"
        )
        raise SinkError(message)
    return bucket


class FileSinkBuilder:
    """Builds a FileSink in Flink's style."""

    def __init__(self, base_path: str, writer_factory: BulkWriterFactory) -> None:
        self._path = base_path
        self._factory = writer_factory
        self._assigner: BucketLike | None = None
        self._policy: RollingPolicy | None = None
        self._config: OutputFileConfig | None = None

    def with_bucket_check_interval(self, interval: int) -> FileSinkBuilder:
        """Accepted for PyFlink's sake: every epoch ends its files."""
        del interval
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketLike) -> FileSinkBuilder:
        """Set the bucket assigner, or a function from the record to a directory."""
        self._assigner = bucket_assigner
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSinkBuilder:
        """Set when another file is begun within an epoch."""
        self._policy = rolling_policy
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> FileSinkBuilder:
        """Set prefix and suffix of the names."""
        self._config = output_file_config
        return self

    def disable_compact(self) -> FileSinkBuilder:
        """Accepted for PyFlink's sake: files are not compacted."""
        return self

    def build(self) -> FileSink:
        """The sink."""
        return FileSink(
            self._path,
            self._factory,
            bucket_assigner=self._assigner,
            rolling_policy=self._policy,
            output_file_config=self._config,
        )


FileSink.BaseBuilder = FileSinkBuilder
FileSink.RowFormatBuilder = RowFormatBuilder = FileSinkBuilder
FileSink.BulkFormatBuilder = BulkFormatBuilder = FileSinkBuilder
