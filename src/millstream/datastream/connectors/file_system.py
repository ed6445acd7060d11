"""File source and file sink under PyFlink's import path."""

from __future__ import annotations

from typing import ClassVar

from millstream.connectors.files.sink import (
    BucketAssigner,
    DefaultRollingPolicy,
    FileSink,
    FileSinkBuilder,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from millstream.connectors.files.source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from millstream.connectors.formats.file_format import (
    BulkFormat,
    BulkWriter,
    BulkWriterFactory,
    EncoderWriterFactory,
    FileFormat,
)
from millstream.connectors.formats.file_format import StreamFormat as _StreamFormat
from millstream.connectors.formats.line_format import TextLineFormat
from millstream.contracts.serialization import Encoder

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "BulkWriter",
    "BulkWriterFactory",
    "DefaultRollingPolicy",
    "Encoder",
    "FileEnumeratorProvider",
    "FileFormat",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
    "StreamingFileSink",
]


class StreamFormat(_StreamFormat):
    """A format whose records follow each other in a stream of bytes."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> _StreamFormat:
        """Lines of text in ``charset_name``, as records of type STRING."""
        return TextLineFormat(charset_name)


class _StreamingFileSinkBuilder(FileSinkBuilder):
    """The builder of a FileSink, with the names of parameters of the older class."""

    def with_rolling_policy(self, policy: RollingPolicy) -> _StreamingFileSinkBuilder:
        """Set when another file is begun between two checkpoints."""
        super().with_rolling_policy(policy)
        return self

    def build(self) -> StreamingFileSink:
        """Return the sink."""
        made = super().build()
        return StreamingFileSink(
            made.location,
            made.writer_factory,
            bucket_assigner=made.bucket_assigner,
            rolling_policy=made.rolling_policy,
            output_file_config=made.output_file_config,
        )


class StreamingFileSink(FileSink):
    """The deprecated name of FileSink, for programs that still use it with ``add_sink``."""

    BaseBuilder: ClassVar[type[FileSinkBuilder]] = _StreamingFileSinkBuilder
    DefaultRowFormatBuilder = DefaultBulkFormatBuilder = _StreamingFileSinkBuilder

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> _StreamingFileSinkBuilder:
        """Start building a sink that encodes record by record."""
        return _StreamingFileSinkBuilder(base_path, EncoderWriterFactory(encoder))

    @staticmethod
    def for_bulk_format(
        base_path: str, writer_factory: BulkWriterFactory
    ) -> _StreamingFileSinkBuilder:
        """Start building a sink that writes many records at a time."""
        return _StreamingFileSinkBuilder(base_path, writer_factory)
