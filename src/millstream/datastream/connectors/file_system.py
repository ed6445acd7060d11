"""File source and file sink under PyFlink's import path.

Read next: ``connectors/files/source.py``, ``connectors/files/sink.py``.
"""

from __future__ import annotations

from millstream.connectors.files.file_writers import BulkWriter, BulkWriterFactory
from millstream.connectors.files.sink import (
    BucketAssigner,
    DefaultRollingPolicy,
    FileSink,
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
from millstream.connectors.formats.file_format import BulkFormat, FileFormat
from millstream.connectors.formats.file_format import StreamFormat as _StreamFormat
from millstream.connectors.formats.text_format import TextLineFormat
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
]


class StreamFormat(_StreamFormat):
    """A format whose records follow each other in a stream of bytes."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> _StreamFormat:
        """Lines of text in ``charset_name``, as records of type STRING."""
        return TextLineFormat(charset_name)
