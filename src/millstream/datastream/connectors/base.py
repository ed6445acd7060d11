"""The contracts of sources and sinks, and templates for sinks, under PyFlink's import path."""

from __future__ import annotations

from millstream.connectors.commit_protocols.staged_values import (
    CheckpointCommitter,
    GenericWriteAheadSink,
)
from millstream.connectors.commit_protocols.two_phase import (
    SinkContext,
    TwoPhaseCommitSinkFunction,
    UpsertSink,
)
from millstream.contracts.sink import (
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
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split

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
