"""Connectors under PyFlink's import paths (``pyflink.datastream.connectors``).

Read next: ``connectors/files/source.py`` and ``connectors/files/sink.py`` of the package above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.connectors.basic.blackhole import DiscardingSink
from millstream.connectors.basic.collection import CollectionSource
from millstream.connectors.basic.print_sink import PrintSink
from millstream.connectors.basic.socket_source import SocketTextStreamSource
from millstream.datastream.connectors.base import (
    CheckpointCommitter,
    DeliveryGuarantee,
    GenericWriteAheadSink,
    Sink,
    Source,
    TwoPhaseCommitSinkFunction,
    UpsertSink,
)
from millstream.datastream.connectors.datagen import (
    DataGeneratorSource,
    GeneratorFunction,
    RateLimiterStrategy,
)
from millstream.datastream.connectors.file_system import (
    BucketAssigner,
    BulkFormat,
    BulkWriterFactory,
    FileEnumeratorProvider,
    FileSink,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
    StreamingFileSink,
)
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.not_offered import missing_connector

if TYPE_CHECKING:
    from millstream.datastream.connectors.kafka import (
        FlinkKafkaConsumer,
        FlinkKafkaProducer,
        KafkaSink,
        KafkaSource,
        Semantic,
    )

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "BulkWriterFactory",
    "CheckpointCommitter",
    "CollectionSource",
    "DataGeneratorSource",
    "DeliveryGuarantee",
    "DiscardingSink",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "FlinkKafkaConsumer",
    "FlinkKafkaProducer",
    "GeneratorFunction",
    "GenericWriteAheadSink",
    "KafkaSink",
    "KafkaSource",
    "NumberSequenceSource",
    "OutputFileConfig",
    "PrintSink",
    "RateLimiterStrategy",
    "RollingPolicy",
    "Semantic",
    "Sink",
    "SocketTextStreamSource",
    "Source",
    "StreamFormat",
    "StreamingFileSink",
    "TwoPhaseCommitSinkFunction",
    "UpsertSink",
]


#: Imported when they are asked for: they need the packages of the extra ``kafka``.
_KAFKA: Final = frozenset(
    {"FlinkKafkaConsumer", "FlinkKafkaProducer", "KafkaSink", "KafkaSource", "Semantic"}
)


def __getattr__(name: str) -> object:
    """Kafka's connectors; or what to take in place of a connector that PyFlink has."""
    if name in _KAFKA:
        from millstream.datastream.connectors import kafka

        return getattr(kafka, name)
    instead = missing_connector(name)
    if instead is not None:
        message = f"Millstream has no {name} in {__name__}: {instead}"
        raise ImportError(message, name=__name__)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
