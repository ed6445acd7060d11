"""Connectors under PyFlink's import paths (``pyflink.datastream.connectors``).

Read next: ``connectors/files/source.py`` and ``connectors/files/sink.py`` of the package above.
"""

from typing import TYPE_CHECKING

from millstream import facade
from millstream.connectors.basic.collection import CollectionSource as CollectionSource
from millstream.connectors.basic.print_sink import DiscardingSink as DiscardingSink
from millstream.connectors.basic.print_sink import PrintSink as PrintSink
from millstream.connectors.basic.socket_source import (
    SocketTextStreamSource as SocketTextStreamSource,
)
from millstream.datastream.connectors.base import CheckpointCommitter as CheckpointCommitter
from millstream.datastream.connectors.base import DeliveryGuarantee as DeliveryGuarantee
from millstream.datastream.connectors.base import GenericWriteAheadSink as GenericWriteAheadSink
from millstream.datastream.connectors.base import Sink as Sink
from millstream.datastream.connectors.base import Source as Source
from millstream.datastream.connectors.base import (
    TwoPhaseCommitSinkFunction as TwoPhaseCommitSinkFunction,
)
from millstream.datastream.connectors.base import UpsertSink as UpsertSink
from millstream.datastream.connectors.datagen import DataGeneratorSource as DataGeneratorSource
from millstream.datastream.connectors.datagen import GeneratorFunction as GeneratorFunction
from millstream.datastream.connectors.datagen import RateLimiterStrategy as RateLimiterStrategy
from millstream.datastream.connectors.file_system import BucketAssigner as BucketAssigner
from millstream.datastream.connectors.file_system import BulkFormat as BulkFormat
from millstream.datastream.connectors.file_system import BulkWriterFactory as BulkWriterFactory
from millstream.datastream.connectors.file_system import (
    FileEnumeratorProvider as FileEnumeratorProvider,
)
from millstream.datastream.connectors.file_system import FileSink as FileSink
from millstream.datastream.connectors.file_system import FileSource as FileSource
from millstream.datastream.connectors.file_system import FileSourceBuilder as FileSourceBuilder
from millstream.datastream.connectors.file_system import (
    FileSplitAssignerProvider as FileSplitAssignerProvider,
)
from millstream.datastream.connectors.file_system import OutputFileConfig as OutputFileConfig
from millstream.datastream.connectors.file_system import RollingPolicy as RollingPolicy
from millstream.datastream.connectors.file_system import StreamFormat as StreamFormat
from millstream.datastream.connectors.file_system import StreamingFileSink as StreamingFileSink
from millstream.datastream.connectors.hybrid_source import HybridSource as HybridSource
from millstream.datastream.connectors.hybrid_source import (
    HybridSourceBuilder as HybridSourceBuilder,
)
from millstream.datastream.connectors.number_seq import NumberSequenceSource as NumberSequenceSource

if TYPE_CHECKING:
    from millstream.datastream.connectors.kafka import FlinkKafkaConsumer as FlinkKafkaConsumer
    from millstream.datastream.connectors.kafka import FlinkKafkaProducer as FlinkKafkaProducer
    from millstream.datastream.connectors.kafka import KafkaSink as KafkaSink
    from millstream.datastream.connectors.kafka import KafkaSource as KafkaSource
    from millstream.datastream.connectors.kafka import Semantic as Semantic


# Kafka's need the packages of the extra ``kafka``.
facade.complete(
    __name__,
    late={
        "millstream.datastream.connectors.kafka": (
            "FlinkKafkaConsumer FlinkKafkaProducer KafkaSink KafkaSource Semantic"
        )
    },
)
