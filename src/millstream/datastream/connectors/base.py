"""The contracts of sources and sinks under PyFlink's import path.

What it is: names only.  What it is not: where they are written.

Read next: ``millstream/connectors/source.py`` and ``sink.py``.
"""

from __future__ import annotations

from millstream.connectors.sink import (
    CommitRequest,
    Committable,
    Committer,
    DeliveryGuarantee,
    Sink,
    SinkWriter,
    WriterContext,
)
from millstream.connectors.source import Boundedness, Source, SourceBatch, Split

__all__ = [
    "Boundedness",
    "CommitRequest",
    "Committable",
    "Committer",
    "DeliveryGuarantee",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceBatch",
    "Split",
    "WriterContext",
]
