"""The deprecated names of Kafka's source and sink, for ``add_source`` and ``add_sink``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from millstream.connectors.kafka.serialization import KafkaRecordSerializationSchema
from millstream.connectors.kafka.sink import KafkaSink
from millstream.connectors.kafka.source import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSource,
)
from millstream.contracts.sink import DeliveryGuarantee
from millstream.errors import ConfigurationError
from millstream.functions.functions import SinkFunction, SourceFunction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.connectors.kafka.serialization import Messages
    from millstream.contracts.batch import Batch
    from millstream.contracts.serialization import DeserializationSchema, SerializationSchema
    from millstream.types.types import TypeInformation


Semantic = DeliveryGuarantee
#: The property of the deprecated source -> that of ``KafkaSource``; without it there is no look for
#: new partitions.
_DISCOVERY: Final = ("flink.partition-discovery.interval-millis", "partition.discovery.interval.ms")


class FlinkKafkaConsumerBase(SourceFunction):
    """Choose where a ``KafkaSource`` begins.

    Each setter makes the source again, so that one that is read already does not change.
    """

    def __init__(
        self, topics: Sequence[str], schema: DeserializationSchema, properties: Mapping[str, str]
    ) -> None:
        self._topics = topics
        self._schema = schema
        self._properties = dict(properties)
        self._properties.setdefault(_DISCOVERY[1], self._properties.pop(_DISCOVERY[0], "-1"))
        self._start = _committed(properties)
        super().__init__(self._make())

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> Self:  # noqa: FBT001 - PyFlink's signature
        """Commit offsets to the consumer group with each checkpoint, or do not."""
        self._properties["commit.offsets.on.checkpoint"] = str(bool(commit_on_checkpoints)).lower()
        return self._start_from(self._start)

    def set_start_from_earliest(self) -> Self:
        """Begin at the first record."""
        return self._start_from(KafkaOffsetsInitializer.earliest())

    def set_start_from_latest(self) -> Self:
        """Begin after the last record."""
        return self._start_from(KafkaOffsetsInitializer.latest())

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> Self:
        """Begin at the first record of this timestamp in milliseconds, or a later one."""
        return self._start_from(KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp))

    def set_start_from_group_offsets(self) -> Self:
        """Begin where the consumer group is, or as ``auto.offset.reset`` says (the default)."""
        return self._start_from(_committed(self._properties))

    def disable_filter_restored_partitions_with_subscribed_topics(self) -> Self:
        """Keep reading partitions of a checkpoint whose topics are not given any more.

        ``KafkaSource`` always does.
        """
        return self

    def get_produced_type(self) -> TypeInformation:
        """Return the type of the records."""
        return self.source.produced_type

    def _start_from(self, start: KafkaOffsetsInitializer) -> Self:
        self._start = start
        self.source = self._make()
        return self

    def _make(self) -> KafkaSource:
        builder = KafkaSource.builder().set_topics(*self._topics).set_properties(self._properties)
        builder.set_starting_offsets(self._start)
        return builder.set_value_only_deserializer(self._schema).build()


def _committed(properties: Mapping[str, str]) -> KafkaOffsetsInitializer:
    reset = KafkaOffsetResetStrategy(properties.get("auto.offset.reset", "latest"))
    return KafkaOffsetsInitializer.committed_offsets(reset)


class FlinkKafkaConsumer(FlinkKafkaConsumerBase):
    """Read topics, by the deprecated name of ``KafkaSource``.

    Args:
        topics: their names.
        deserialization_schema: makes records of the values of messages.
        properties: of the client.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        deserialization_schema: DeserializationSchema,
        properties: Mapping[str, str],
    ) -> None:
        given = [topics] if isinstance(topics, str) else list(topics)
        super().__init__(given, deserialization_schema, properties)


class _ValueSchema(KafkaRecordSerializationSchema):
    """Serialize values alone; the timestamps of records become those of messages only if wanted."""

    writes_timestamps = False

    def messages(self, batch: Batch) -> dict[str, Messages]:
        made = super().messages(batch)
        if not self.writes_timestamps:
            for each in made.values():
                each.timestamps = None
        return made


class FlinkKafkaProducerBase(SinkFunction):
    """Choose what a ``KafkaSink`` waits for and writes."""

    def __init__(
        self,
        topic: str,
        schema: SerializationSchema,
        properties: Mapping[str, str],
        guarantee: DeliveryGuarantee,
    ) -> None:
        self._serializer = _ValueSchema(topic, None, None, schema, None)
        self._properties = properties
        self._guarantee = guarantee
        super().__init__(self._make())

    def set_log_failures_only(self, log_failures_only: bool) -> Self:  # noqa: FBT001 - PyFlink's signature
        """Fail if a message cannot be written.

        Raises:
            ConfigurationError: such messages are to be logged and dropped, which the sink does not.
        """
        if log_failures_only:
            message = (
                "set_log_failures_only(True) would lose messages; the Kafka sink fails instead, "
                "and the job is restarted as restart-strategy says"
            )
            raise ConfigurationError(message)
        return self

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> Self:  # noqa: FBT001 - PyFlink's signature
        """Wait at checkpoints until the brokers have all messages: at-least-once.

        Raises:
            ConfigurationError: the sink is exactly-once, and shall not wait.
        """
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            if not flush_on_checkpoint:
                message = "a Kafka sink with Semantic.EXACTLY_ONCE must flush on checkpoints"
                raise ConfigurationError(message)
            return self
        waits, hurries = DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.NONE
        self._guarantee = waits if flush_on_checkpoint else hurries
        self.sink = self._make()
        return self

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> Self:  # noqa: FBT001 - PyFlink's signature
        """Give messages the timestamps of records; without that they get the time of writing."""
        self._serializer.writes_timestamps = write_timestamp_to_kafka
        return self

    def _make(self) -> KafkaSink:
        builder = KafkaSink.builder().set_record_serializer(self._serializer)
        for key, value in self._properties.items():
            builder.set_property(key, value)
        return builder.set_delivery_guarantee(self._guarantee).build()


class FlinkKafkaProducer(FlinkKafkaProducerBase):
    """Write to a topic, by the deprecated name of ``KafkaSink``.

    Messages go to partitions as the client of Kafka chooses, which Flink's class fixes by subtask.

    Args:
        topic: its name.
        serialization_schema: makes the values of messages.
        producer_config: properties of the client.
        kafka_producer_pool_size: takes no effect; as many producers are made as are needed.
        semantic: the guarantee.
    """

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema,
        producer_config: Mapping[str, str],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        del kafka_producer_pool_size
        super().__init__(topic, serialization_schema, producer_config, semantic)

    def ignore_failures_after_transaction_timeout(self) -> Self:
        """Refuse to lose the records of transactions that have timed out.

        Raises:
            ConfigurationError: always.
        """
        message = (
            "ignore_failures_after_transaction_timeout() would lose records. Set "
            "transaction.timeout.ms of the sink longer than an outage may last."
        )
        raise ConfigurationError(message)
