"""File source and file sink under PyFlink's import path.

What it is: names only.  What it is not: where they are written.

Read next: ``millstream/connectors/files.py`` and ``file_sink.py``.
"""

from __future__ import annotations

from millstream.common.serialization import Encoder
from millstream.connectors.file_format import BulkFormat, FileFormat, StreamFormat
from millstream.connectors.file_sink import (
    BucketAssigner,
    DefaultRollingPolicy,
    FileSink,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from millstream.connectors.file_writers import BulkWriter, BulkWriterFactory
from millstream.connectors.files import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)

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
