"""The contracts of sources and sinks, and templates for sinks, under PyFlink's import path."""

from millstream.connectors.commit_protocols.staged_values import (
    CheckpointCommitter as CheckpointCommitter,
)
from millstream.connectors.commit_protocols.staged_values import (
    GenericWriteAheadSink as GenericWriteAheadSink,
)
from millstream.connectors.commit_protocols.two_phase import SinkContext as SinkContext
from millstream.connectors.commit_protocols.two_phase import (
    TwoPhaseCommitSinkFunction as TwoPhaseCommitSinkFunction,
)
from millstream.connectors.commit_protocols.two_phase import UpsertSink as UpsertSink
from millstream.contracts.sink import CommitRequest as CommitRequest
from millstream.contracts.sink import Committable as Committable
from millstream.contracts.sink import Committer as Committer
from millstream.contracts.sink import CommitterContext as CommitterContext
from millstream.contracts.sink import DeliveryGuarantee as DeliveryGuarantee
from millstream.contracts.sink import Sink as Sink
from millstream.contracts.sink import SinkKind as SinkKind
from millstream.contracts.sink import SinkWriter as SinkWriter
from millstream.contracts.sink import WriterContext as WriterContext
from millstream.contracts.source import Boundedness as Boundedness
from millstream.contracts.source import Source as Source
from millstream.contracts.source import SourceBatch as SourceBatch
from millstream.contracts.source import Split as Split
