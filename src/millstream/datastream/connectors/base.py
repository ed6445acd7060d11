"""The contracts of sources and sinks, and templates for sinks, under PyFlink's import path.

What it is: names only.  What it is not: where they are written.

Read next: ``millstream/connectors/source.py``, ``sink.py`` and ``docs/sinks.md``.
"""

from __future__ import annotations

from millstream.connectors.sink import (
    CommitRequest,
    Committable,
    Committer,
    CommitterContext,
    DeliveryGuarantee,
    Sink,
    SinkKind,
    SinkWriter,
    WriterContext,
)
from millstream.connectors.source import Boundedness, Source, SourceBatch, Split
from millstream.connectors.two_phase_sink import SinkContext, TwoPhaseCommitSinkFunction
from millstream.connectors.upsert_sink import UpsertSink
from millstream.connectors.write_ahead_sink import CheckpointCommitter, GenericWriteAheadSink

__all__ = [
    "Boundedness",
    "CheckpointCommitter",
    "CommitRequest",
    "Committable",
    "Committer",
    "CommitterContext",
    "DeliveryGuarantee",
    "GenericWriteAheadSink",
    "Sink",
    "SinkContext",
    "SinkKind",
    "SinkWriter",
    "Source",
    "SourceBatch",
    "Split",
    "TwoPhaseCommitSinkFunction",
    "UpsertSink",
    "WriterContext",
]
