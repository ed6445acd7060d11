"""Kafka, under PyFlink's import path.

What it is: names only.  What it is not: imported with ``millstream.datastream``; it needs the
packages of the extra ``kafka``.

Read next: ``connectors/kafka/source.py``.
"""

from __future__ import annotations

from millstream.connectors.kafka.client import KafkaTopicPartition
from millstream.connectors.kafka.deserialization import (
    KafkaRecord,
    KafkaRecordDeserializationSchema,
)
from millstream.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from millstream.connectors.kafka.source import KafkaSource, KafkaSourceBuilder

__all__ = [
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
]
