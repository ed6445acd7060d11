"""Kafka under PyFlink's import path, imported on demand: it needs the extra ``kafka``."""

from millstream.connectors.kafka.client import KafkaTopicPartition as KafkaTopicPartition
from millstream.connectors.kafka.serialization import (
    KafkaRecordSerializationSchema as KafkaRecordSerializationSchema,
)
from millstream.connectors.kafka.serialization import (
    KafkaRecordSerializationSchemaBuilder as KafkaRecordSerializationSchemaBuilder,
)
from millstream.connectors.kafka.serialization import KafkaTopicSelector as KafkaTopicSelector
from millstream.connectors.kafka.sink import FlinkKafkaConsumer as FlinkKafkaConsumer
from millstream.connectors.kafka.sink import FlinkKafkaConsumerBase as FlinkKafkaConsumerBase
from millstream.connectors.kafka.sink import FlinkKafkaProducer as FlinkKafkaProducer
from millstream.connectors.kafka.sink import FlinkKafkaProducerBase as FlinkKafkaProducerBase
from millstream.connectors.kafka.sink import KafkaSink as KafkaSink
from millstream.connectors.kafka.sink import KafkaSinkBuilder as KafkaSinkBuilder
from millstream.connectors.kafka.sink import Semantic as Semantic
from millstream.connectors.kafka.source import KafkaOffsetResetStrategy as KafkaOffsetResetStrategy
from millstream.connectors.kafka.source import KafkaOffsetsInitializer as KafkaOffsetsInitializer
from millstream.connectors.kafka.source import KafkaRecord as KafkaRecord
from millstream.connectors.kafka.source import (
    KafkaRecordDeserializationSchema as KafkaRecordDeserializationSchema,
)
from millstream.connectors.kafka.source import KafkaSource as KafkaSource
from millstream.connectors.kafka.source import KafkaSourceBuilder as KafkaSourceBuilder
from millstream.contracts.sink import DeliveryGuarantee as DeliveryGuarantee
