"""Flink's ``KafkaSink``: none, at-least-once, exactly-once; and PyFlink's deprecated names.

With EXACTLY_ONCE each subtask writes an epoch in one transaction, flushes it, adds the marker and
leaves it open; the driver commits it when the manifest is published.  Readers with
``isolation.level=read_committed`` see the epoch then.  With AT_LEAST_ONCE records are visible at
once and the acknowledgement waits for their delivery; with NONE only the end of the input waits.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from typing import TYPE_CHECKING, Final, Self

from millstream.connectors.kafka.client import KafkaCluster, python_client_options, shown
from millstream.connectors.kafka.producers import (
    PooledProducer,
    catch_up,
    check_properties,
    discard_plain,
    flush_plain,
    plain_producer,
    ready_producer,
    refused,
    release,
    transactional_producer,
)
from millstream.connectors.kafka.serialization import KafkaRecordSerializationSchema
from millstream.connectors.kafka.source import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSource,
)
from millstream.connectors.kafka.transactions import (
    KafkaCommitter,
    PreparedTransaction,
    TransactionControl,
    committable_of,
)
from millstream.connectors.transaction_timeouts import require_outlives
from millstream.contracts.sink import Committer, DeliveryGuarantee, Sink, SinkKind, SinkWriter
from millstream.crash_points import crash_point
from millstream.errors import ConfigurationError, SinkError
from millstream.functions.functions import SinkFunction, SourceFunction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.connectors.kafka.serialization import Messages
    from millstream.contracts.batch import Batch
    from millstream.contracts.serialization import DeserializationSchema, SerializationSchema
    from millstream.contracts.sink import Committable, WriterContext
    from millstream.types.types import TypeInformation


_LOG: Final = logging.getLogger("millstream.kafka")
#: Milliseconds; also the default of the brokers' transaction.max.timeout.ms.
DEFAULT_TIMEOUT: Final = 900_000
#: Records and bytes that a writer holds back at most before it waits.
_MOST_HELD: Final = 20_000
_MOST_HELD_BYTES: Final = 32 << 20
#: Seconds that a worker waits for what is under way where it lets go before the end of the input:
#: a job that is cancelled has 5, and a region 10, whose slots have other tasks.
_CLOSING: Final = 4.0


class KafkaSink(Sink):
    """Writes to topics of Kafka; made by ``KafkaSink.builder()``."""

    def __init__(
        self,
        properties: Mapping[str, str],
        record_serializer: KafkaRecordSerializationSchema,
        guarantee: DeliveryGuarantee,
        transactional_id_prefix: str,
    ) -> None:
        self.guarantee = guarantee
        transactional = guarantee is DeliveryGuarantee.EXACTLY_ONCE
        self.kind = SinkKind.TWO_PHASE if transactional else SinkKind.ANY
        self.prefix = transactional_id_prefix
        self.serializer = record_serializer
        self.properties = dict(properties)
        if transactional:
            self.properties.setdefault("transaction.timeout.ms", str(DEFAULT_TIMEOUT))
        #: Of the last writer with transactions, in a worker.
        self._written: WriterContext | None = None
        #: The writer of the epoch before, in a worker, until the next one writes.
        self.sealed: _TransactionWriter | None = None
        #: Whether somebody tells of commits, so that producers get ready by themselves.
        self.hears_of_commits = False

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Start building."""
        return KafkaSinkBuilder()

    @property
    def timeout(self) -> int:
        """The transaction timeout in milliseconds."""
        return int(self.properties.get("transaction.timeout.ms", DEFAULT_TIMEOUT))

    def __str__(self) -> str:
        return f"Kafka sink to {self.serializer.topic or 'topics'!r}"

    def __repr__(self) -> str:
        return f"<{self}, {self.guarantee.name}: {shown(self.properties)}>"

    def validate(self) -> None:
        """Check the properties, that the brokers answer, and have the topic.

        Raises:
            ConfigurationError: a property is unknown, or its value is not accepted.
            SinkError: the brokers do not answer, or lack the topic.
            MillstreamError: the serializer cannot write, such as one that registers a schema.
        """
        topic = self.serializer.topic
        transactional = self.guarantee is DeliveryGuarantee.EXACTLY_ONCE
        check_properties(self.properties, str(self), transactional=transactional)
        if transactional:
            python_client_options(self.properties)  # raises if it could not commit
        cluster = KafkaCluster(self.properties, SinkError, str(self))
        cluster.require_topics([] if topic is None else [topic])
        self.serializer.validate()

    def validate_configuration(self, configuration: Configuration) -> None:
        """Check that a prepared transaction outlives an outage.

        Raises:
            ConfigurationError: an epoch that is published could be lost; with the numbers to set.
        """
        if self.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            return
        name = "transaction.timeout.ms"
        needed = require_outlives(configuration, self.timeout, name, "Kafka sink")
        self._validate_broker(needed)

    def _validate_broker(self, needed: int) -> None:
        cluster = KafkaCluster(self.properties, SinkError, "Kafka sink")
        allowed = cluster.broker_setting("transaction.max.timeout.ms")
        advice = (
            f"Set transaction.max.timeout.ms of the brokers to {self.timeout} or more, or"
            f" transaction.timeout.ms of the sink to between {needed} and what they allow."
        )
        if allowed is not None and int(allowed) < self.timeout:
            message = (
                f"transaction.timeout.ms of the Kafka sink is {self.timeout}, but the brokers"
                f" allow {allowed} (transaction.max.timeout.ms). {advice}"
            )
            raise ConfigurationError(message)
        if allowed is None:  # they do not tell: try it
            control = TransactionControl(self.properties, "Kafka sink")
            try:
                control.fence(f"{self.prefix}-probe", self.timeout)
            except ConfigurationError as error:
                message = f"{error}. {advice}"
                raise ConfigurationError(message) from error
            finally:
                control.close()

    def create_writer(self, context: WriterContext) -> SinkWriter:
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            self._written = context
            return _TransactionWriter(self, context)
        return _PlainWriter(self)

    def committed(self, epoch: int) -> None:
        """Make producers ready whose transactions are committed."""
        if self._written is not None:
            self.hears_of_commits = True
            catch_up(self.properties, self._written, epoch)

    def end_input(self) -> None:
        """Wait for what nobody has waited for: with NONE too, what a job has written is there.

        Raises:
            SinkError: the brokers refuse a message, or do not take them.
        """
        if self.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            flush_plain(self.properties)

    def close(self) -> None:
        """Wait for what is under way, as the worker may end here."""
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return
        try:
            flush_plain(self.properties, _CLOSING)
        except SinkError as error:
            _LOG.warning("%s: %s", self, error)

    def create_committer(self) -> Committer | None:
        """The committer, if there are transactions."""
        if self.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            return None
        return KafkaCommitter(self.properties, self.prefix, self.timeout)


class _PlainWriter(SinkWriter):
    def __init__(self, sink: KafkaSink) -> None:
        self._serializer = sink.serializer
        self._waits = sink.guarantee is DeliveryGuarantee.AT_LEAST_ONCE
        self._producer = plain_producer(sink.properties)

    def write(self, batch: Batch) -> None:
        for topic, messages in self._serializer.messages(batch).items():
            with self._given_up_by_errors():
                self._producer.send(topic, messages)

    def flush(self) -> None:
        """Tell what failed; librdkafka sends by itself, within ``linger.ms``."""
        with self._given_up_by_errors():
            self._producer.look_at_deliveries()

    def prepare_commit(self) -> Sequence[Committable]:
        if self._waits:
            with self._given_up_by_errors():
                self._producer.flush()
        return []

    @contextlib.contextmanager
    def _given_up_by_errors(self) -> Iterator[None]:
        """The next attempt takes a new producer: some errors of librdkafka's are for ever."""
        try:
            yield
        except SinkError:
            discard_plain(self._producer)
            raise


class _TransactionWriter(SinkWriter):
    """One transaction; an epoch without records has none.

    Records are held back here while the brokers do not have all of the epoch before, which another
    producer writes: those of one key would come into the topic in another order.  And while no
    producer is ready, if one is about to be.  So the thread that writes need not wait for either.

    What is held back is handed over as soon as something is written or flushed and it may be; at
    the latest ahead of ``prepare_commit``, and when it has become much.

    Args:
        sink: whose it is.
        context: the epoch.
    """

    prepares_aside = True

    def __init__(self, sink: KafkaSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        #: Of the epoch before; what it has may not be with the brokers yet.
        self._before: _TransactionWriter | None = None
        self._producer: PooledProducer | None = None
        self._topic = ""
        self._held: list[tuple[str, Messages]] = []
        self._held_count = self._held_bytes = 0
        #: Who prepares it and who writes the next epoch may both want that.
        self._delivering = threading.Lock()
        self._failure: BaseException | None = None
        #: The brokers have all, or it was given up, and not because they refuse it.
        self.is_settled = False

    def write(self, batch: Batch) -> None:
        if len(batch) == 0:
            return
        sink = self._sink
        if sink.sealed is not None:
            self._before, sink.sealed = sink.sealed, None
        by_topic = sink.serializer.messages(batch)
        for topic, messages in by_topic.items():
            self._held.append((topic, messages))
            self._topic = topic
        self.flush()
        if self._held:
            self._held_count += len(batch)
            self._held_bytes += sum(messages.size for messages in by_topic.values())
            if self._held_count >= _MOST_HELD or self._held_bytes >= _MOST_HELD_BYTES:
                self._hand_over()

    def flush(self) -> None:
        """Hand over what was held back, if that need not wait any more."""
        if self._before is not None and not self._before.is_settled:
            return
        if self._held and (self._producer is not None or self._has_begun()):
            self._hand_over()

    def _has_begun(self) -> bool:
        """Begin the transaction if there is a producer without waiting for one."""
        sink = self._sink
        if not sink.hears_of_commits:
            return True  # none gets ready by itself: whoever wants one has to see to it
        self._producer = ready_producer(sink.properties, self._context)
        if self._producer is not None:
            self._producer.client.begin_transaction()
        return self._producer is not None

    def _hand_over(self) -> None:
        """Give what was held back to the producer; waits for the epoch before, and for one."""
        before, self._before = self._before, None
        if before is not None:
            before.deliver()
        if not self._held:
            return
        producer, sink = self._producer, self._sink
        if producer is None:
            producer = transactional_producer(sink.properties, sink.prefix, self._context)
            producer.client.begin_transaction()
            self._producer = producer
        held, self._held = self._held, []
        self._held_count = self._held_bytes = 0
        for topic, messages in held:
            producer.send(topic, messages)

    def seal(self) -> None:
        """Have the next writer of the sink wait for this one."""
        self._sink.sealed = self

    def deliver(self) -> None:
        """Wait for the brokers to have all; when it is sealed, from any thread.

        Raises:
            SinkError: they refuse something; again each time.
        """
        with self._delivering:
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            if self.is_settled:
                return
            try:
                self._hand_over()
                if self._producer is not None:
                    self._producer.flush()
            except BaseException as error:
                # Whoever hears of it first: what was refused must be in no checkpoint.
                self._failure = error
                raise
            self.is_settled = True

    def prepare_commit(self) -> Sequence[Committable]:
        from confluent_kafka import KafkaException, TopicPartition

        self.deliver()
        producer, context = self._producer, self._context
        if producer is None or producer.control is None:
            return []
        marker = f"{context.attempt}-{uuid.uuid4().hex[:8]}"
        crash_point("kafka.marker.before")
        place = TopicPartition(self._topic, 0, context.epoch, metadata=marker)
        try:
            producer.client.send_offsets_to_transaction([place], producer.group, producer.patience)
        except KafkaException as error:
            doing = f"the transaction of checkpoint {context.epoch} cannot be prepared"
            raise refused(doing, error) from error
        # The broker has taken the marker: the transaction is open, and this producer's.
        if producer.identity is None:
            info = producer.control.describe(producer.transactional_id)
            if info is None or info.state != "Ongoing":
                state = "unknown" if info is None else info.state
                message = f"transaction {producer.transactional_id} is not open but {state}"
                raise SinkError(message)
            producer.identity = info.producer_id, info.producer_epoch
        prepared = PreparedTransaction(producer.transactional_id, *producer.identity, marker)
        producer.prepared, producer.epoch = prepared, context.epoch
        self._producer = None
        release(producer, context)
        crash_point("kafka.marker.after")
        return [committable_of(prepared)]

    def abort(self) -> None:
        self._held = []
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.abort()
        self.is_settled = self._failure is None


class KafkaSinkBuilder:
    """Builds a KafkaSink, as PyFlink's."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._serializer: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix = "millstream"

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Set where the brokers are, as "host:port,host:port"."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_record_serializer(
        self, record_serializer: KafkaRecordSerializationSchema
    ) -> KafkaSinkBuilder:
        """Set how records become messages."""
        self._serializer = record_serializer
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set the guarantee (default, as in Flink: NONE)."""
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set how transactional ids begin; job and sink are distinguished after it anyway."""
        self._prefix = transactional_id_prefix
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of the producer, by librdkafka's or Java's name."""
        if key == "transactional.id":
            message = "transactional.id is Millstream's to choose; see set_transactional_id_prefix"
            raise ConfigurationError(message)
        self._properties[key] = str(value)
        return self

    def build(self) -> KafkaSink:
        """The sink; raises ConfigurationError if something is missing."""
        if "bootstrap.servers" not in self._properties:
            message = "a Kafka sink needs set_bootstrap_servers('host:port')"
            raise ConfigurationError(message)
        if self._serializer is None:
            message = "a Kafka sink needs set_record_serializer(...)"
            raise ConfigurationError(message)
        return KafkaSink(self._properties, self._serializer, self._guarantee, self._prefix)


# -- PyFlink's deprecated names --------------------------------------------------------------------


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
                "and restart-strategy restarts the job"
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
