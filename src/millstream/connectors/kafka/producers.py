"""Producers that a worker process keeps between epochs.

Making a transactional producer takes a tenth of a second and more, which is too long for an epoch.
So a process keeps them, each with a transactional id of its own that no other process ever has
(``connectors/output_names.py``).

A producer whose transaction was left open for the driver to commit is used again only once the
marker shows that this was done.  librdkafka then commits as well, which the broker answers as a
repeated request.  Until then another producer writes: with long-running tasks the next epoch begins
before this one is committed, so a process uses two or three of them in rotation.  A producer whose
transaction had another end is thrown away.

With long-running tasks a transaction is prepared in another thread than that which writes the next
one; as soon as a commit is known there, librdkafka is notified, so that the next writer need not
wait for that.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.kafka.client import (
    client_configuration,
    connection_properties,
    require_accepted,
    require_confluent_kafka,
    translated,
)
from millstream.connectors.kafka.transactions import (
    Outcome,
    PreparedTransaction,
    TransactionControl,
)
from millstream.connectors.output_names import OutputNames
from millstream.errors import ConfigurationError, MillstreamError, PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from millstream.connectors.kafka.client import ClientLog
    from millstream.connectors.kafka.serialization import Messages
    from millstream.contracts.sink import WriterContext


#: Names of errors that the next attempt would meet again -> what helps.
_FOR_GOOD: Final = {
    "MSG_SIZE_TOO_LARGE": "",
    "RECORD_LIST_TOO_LARGE": "",
    "TOPIC_EXCEPTION": "Correct the name of the topic",
    "UNKNOWN_TOPIC_OR_PART": "Create the topic, or correct its name",
    "_UNKNOWN_TOPIC": "Create the topic, or correct its name",
    "_UNKNOWN_PARTITION": "The topic has fewer partitions; correct what chooses them",
    "TOPIC_AUTHORIZATION_FAILED": "Allow WRITE and DESCRIBE on the topic to the user of the sink",
    "CLUSTER_AUTHORIZATION_FAILED": "Allow IDEMPOTENT_WRITE on the cluster to the user of the sink",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "Allow WRITE and DESCRIBE on transactional ids with the sink's prefix"
    ),
    "GROUP_AUTHORIZATION_FAILED": "Allow READ on groups with the sink's prefix, and on the topic",
    "INVALID_TIMESTAMP": (
        "The broker refuses the timestamp of the record: see message.timestamp.before.max.ms and"
        " message.timestamp.after.max.ms of the topic"
    ),
    "INVALID_RECORD": "The broker checks records of this topic: see its cleanup.policy (a compacted"
    " topic takes no record without a key)",
    "POLICY_VIOLATION": "A policy of the brokers forbids it",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": "Raise message.format.version of the topic",
    "UNSUPPORTED_COMPRESSION_TYPE": "Set another compression.type of the sink",
    "INVALID_TRANSACTION_TIMEOUT": "Set transaction.timeout.ms lower",
    "INVALID_REQUIRED_ACKS": "Set acks to all",
}
_SIZE: Final = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class _Record:
    topic: str
    key: bytes | None
    value: bytes | None

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"")

    def __str__(self) -> str:
        key = f"key {_short(self.key)}" if self.key is not None else "without a key"
        return f"{self.size} bytes, {key}, value {_short(self.value)}"


@dataclass
class DeliveryFailures:
    """Collects what was not delivered, as librdkafka reports it; keeps the one worth telling."""

    #: The properties of the producer.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    _worst: tuple[Any, _Record] | None = None
    _rank: tuple[int, int] = (-1, 0)

    def report(self, error: Any, message: Any) -> None:
        """What librdkafka calls for a message that was not delivered, or was."""
        if error is None:
            return
        record = _Record(message.topic(), message.key(), message.value())
        refused = error.name() in _FOR_GOOD
        # What was thrown away because another one failed tells nothing.
        weight = 2 if refused else 0 if error.name().startswith("_PURGE") else 1
        rank = weight, record.size if refused else 0
        if rank > self._rank:
            self._worst, self._rank = (error, record), rank

    def take(self) -> SinkError | None:
        """The error to raise, once."""
        if self._worst is None:
            return None
        error, record = self._worst
        self._worst, self._rank = None, (-1, 0)
        return _of_record(error, record, self.properties)


def refused_record(
    error: Any,
    topic: str,
    message: Mapping[str, Any],
    properties: Mapping[str, str],
) -> SinkError:
    """The error for a message that librdkafka itself does not take."""
    record = _Record(topic, _bytes(message.get("key")), _bytes(message.get("value")))
    if getattr(error, "name", None) is not None and error.name() in _SIZE:
        limit = translated(properties).get("message.max.bytes", "1000000")
        advice = f"Make records smaller, or set message.max.bytes of the sink ({limit}) higher"
        text = f"topic {topic!r}: a record is larger than the sink may send: {record}. {advice}"
        return PermanentSinkError(text)
    return _of_record(error, record, properties)


def refused(doing: str, error: Any) -> SinkError:
    """The error for a step of the producer that failed.

    Args:
        doing: what failed, and where.
        error: a KafkaException or KafkaError, or something else.
    """
    told = error.args[0] if getattr(error, "args", ()) else error
    name = told.name() if hasattr(told, "name") and hasattr(told, "str") else ""
    text = f"{doing}: {reason_of(error)}"
    if name not in _FOR_GOOD:
        return SinkError(text)
    return PermanentSinkError(f"{text}. {_FOR_GOOD[name]}" if _FOR_GOOD[name] else text)


def reason_of(error: Any) -> str:
    """Return the message of an error."""
    first = error.args[0] if getattr(error, "args", ()) else error
    return str(first.str()) if hasattr(first, "str") else str(error)


def _of_record(error: Any, record: _Record, properties: Mapping[str, str]) -> SinkError:
    name = error.name() if hasattr(error, "name") else ""
    text = f"topic {record.topic!r}: {reason_of(error)}: a record of {record}"
    if name in _SIZE:
        return PermanentSinkError(f"{text}. {_size_advice(record, properties)}")
    if name in _FOR_GOOD:
        return PermanentSinkError(f"{text}. {_FOR_GOOD[name]}")
    return SinkError(text)


def _size_advice(record: _Record, properties: Mapping[str, str]) -> str:
    """Brokers compare max.message.bytes with a batch, in which there may be many records."""
    limit = _limit_of(record.topic, properties)
    if limit is not None and record.size < limit:
        return (
            f"The topic takes {limit} bytes at once (max.message.bytes), and records were sent"
            f" together: set batch.size of the sink to less than {limit}, or max.message.bytes"
            " of the topic higher"
        )
    allowed = "" if limit is None else f" ({limit})"
    return f"Make records smaller, or set max.message.bytes of the topic{allowed} higher"


def _limit_of(topic: str, properties: Mapping[str, str]) -> int | None:
    from millstream.connectors.kafka.client import KafkaCluster

    try:
        told = KafkaCluster(properties, SinkError, "Kafka sink").topic_setting(
            topic, "max.message.bytes"
        )
    except MillstreamError:  # an advice without a number is one, too
        return None
    return None if told is None else int(told)


def _bytes(part: object) -> bytes | None:
    return part.encode() if isinstance(part, str) else part if isinstance(part, bytes) else None


def _short(part: bytes | None) -> str:
    if part is None:
        return "none"
    more = "..." if len(part) > _SHOWN else ""
    return f"{part[:_SHOWN]!r}{more}"


_LOG: Final = logging.getLogger("millstream.kafka")
#: Messages that a producer holds before writing waits.  A checkpoint waits until they are
#: delivered, so not more than a broker takes in some milliseconds.
_MOST_WAITING: Final = 20_000
_CHUNK: Final = 10_000
#: librdkafka's names for "by the partitioner" and "when it is sent".
_ANY_PARTITION: Final = -1
_NOW: Final = 0
#: librdkafka's limits, unless the user sets others.
_QUEUE_MESSAGES: Final = "1000000"
_QUEUE_KBYTES: Final = "524288"
#: Milliseconds for one step of a transaction, if the properties do not say (max.block.ms); as in
#: Java's client.
_MAX_BLOCK: Final = 60_000
#: Seconds for the abort of a transaction, which the driver does otherwise.
_ABORT: Final = 5.0
#: Milliseconds that records wait for others, unless the user says.  Those of a transaction nobody
#: reads before its end, and the end flushes.  So few requests do; and none should be under way when
#: more records are due: an idempotent producer of librdkafka has one per partition under way, and
#: its thread, which would have to send, looks for the answer without a pause
#: (``rd_kafka_msgq_allow_wakeup_at``).  With 5 ms it did so whenever a broker was slower than that,
#: and on a busy machine took its cores from the broker that it was waiting for.
_LINGER: Final = "5"
_LINGER_IN_TRANSACTION: Final = "200"
#: Java's name and librdkafka's; 0: no limit.
_DELIVERY_TIMEOUTS: Final = ("delivery.timeout.ms", "message.timeout.ms")


@dataclass(eq=False)
class PooledProducer:
    """A producer and what it has going on."""

    client: Any
    properties: Mapping[str, str] = field(repr=False)  # passwords among them
    log: ClientLog = field(repr=False)
    transactional_id: str = ""
    group: Any = None
    control: TransactionControl | None = None
    #: The transaction left open at the end of an epoch, and the epoch.
    prepared: PreparedTransaction | None = None
    epoch: int = -1
    #: (producer id, epoch) at the broker, once it was asked.  Invariant: both are the same in all
    #: transactions, as librdkafka ends them by requests that do not raise the epoch (it has no
    #: KIP-890).  Else the driver, which compares them before it commits, would find another's.
    identity: tuple[int, int] | None = None
    failures: DeliveryFailures = field(default_factory=DeliveryFailures, repr=False)
    #: What librdkafka's queue holds.
    most_messages: int = int(_QUEUE_MESSAGES)
    most_bytes: int = int(_QUEUE_KBYTES) * 1024
    #: Bytes of the messages given to librdkafka since its queue was last seen empty.
    queued_bytes: int = 0

    @property
    def patience(self) -> float:
        """Seconds that a step may take."""
        return patience_of(self.properties)

    def send(self, topic: str, messages: Messages) -> None:
        """Queue messages, in order.

        Raises:
            SinkError: one is refused; names it.
        """
        from confluent_kafka import KafkaException

        self._look_at_failures()
        try:
            for chunk in self._chunks(messages):
                self._produce(topic, chunk)
        except (KafkaException, SystemError, ValueError, BufferError) as error:
            doing = f"cannot write to topic {topic!r}"
            raise refused(doing, error) from error

    def _produce(self, topic: str, messages: Messages) -> None:
        """Queue messages for which there is room.

        One by one: ``produce_batch`` knows neither times nor headers, and dicts for it cost as much
        as the calls that it saves.  By place, not by name: that is the faster half.
        """
        from confluent_kafka import KafkaException

        values, nothing = iter(messages.values), repeat(None)
        columns: list[Iterable[Any]] = [values, messages.keys or nothing, repeat(_ANY_PARTITION)]
        columns += [nothing, nothing, messages.timestamps or repeat(_NOW)]  # no callbacks
        if messages.headers is not None:
            columns.append(messages.headers)
        try:
            deque(map(self.client.produce, repeat(topic), *columns), maxlen=0)
        except KafkaException as error:
            refused_one = messages[len(messages) - sum(1 for _ in values) - 1]
            raise refused_record(error.args[0], topic, refused_one, self.properties) from error

    def _chunks(self, messages: Messages) -> Iterator[Messages]:
        """The messages in parts for which librdkafka's queue has room when they are taken.

        A message for which it had none could not be sent after its successors, which it may have
        taken: those of one key must stay in order.
        """
        at = 0
        most = max(1, min(_CHUNK, self.most_messages // 2))
        while at < len(messages):
            chunk = messages[at : at + most]
            size = chunk.size
            while size > self.most_bytes and len(chunk) > 1:
                chunk = chunk[: len(chunk) // 2]
                size = chunk.size
            self._make_room(len(chunk), size)
            yield chunk
            at += len(chunk)

    def _make_room(self, count: int, size: int) -> None:
        """Wait until so many messages and bytes fit in; raises SinkError if nothing moves."""
        self.client.poll(0)
        if self.queued_bytes + size > self.most_bytes:
            self._wait_for(0)  # how many bytes are left of them, librdkafka does not say
            self.queued_bytes = 0
        self.queued_bytes += size
        self._wait_for(min(_MOST_WAITING, self.most_messages - count))

    def _wait_for(self, most: int) -> None:
        waiting, moved = len(self.client), time.monotonic()
        while waiting > most:
            self.client.flush(0.05)  # what waits for others goes now
            self._look_at_failures()
            left = len(self.client)
            if left < waiting:
                moved = time.monotonic()
            elif time.monotonic() - moved > self.patience:
                raise SinkError(self._not_taken(left, self.patience))
            waiting = left

    def _not_taken(self, left: int, patience: float) -> str:
        servers = self.properties.get("bootstrap.servers")
        return (
            f"the brokers {servers!r} did not take {left} messages in {patience:.0f} s"
            f"{self.log.because()}"
        )

    def look_at_deliveries(self) -> None:
        """Raise SinkError if the brokers have refused a message; waits for nothing."""
        self.client.poll(0)
        self._look_at_failures()

    def flush(self, most: float = math.inf) -> None:
        """Wait until the brokers have all messages.

        Args:
            most: seconds to wait at most, if they are fewer than those for a step.

        Raises:
            SinkError: the brokers refuse a message, or do not take them.
        """
        from confluent_kafka import KafkaException

        patience = min(most, self.patience)
        try:
            left = self.client.flush(patience)
        except (KafkaException, SystemError) as error:
            # A fatal error is raised while delivery reports are pending: Python then complains.
            reason = error.__cause__ or error if isinstance(error, SystemError) else error
            doing = f"the brokers {self.properties.get('bootstrap.servers')!r} refuse the producer"
            raise refused(doing, reason) from error
        self._look_at_failures()
        if left:
            raise SinkError(self._not_taken(left, patience))
        self.queued_bytes = 0

    def _look_at_failures(self) -> None:
        failure = self.failures.take()
        if failure is not None:
            raise failure

    def is_free(self, epoch: int) -> bool:
        """Return whether it can begin a transaction in ``epoch``."""
        return self.prepared is None or self.epoch < epoch

    def settle(self) -> Outcome:
        """Bring librdkafka to where the broker is.

        Returns:
            COMMITTED: it can begin a transaction.  OPEN: what it prepared is not committed yet, so
            it has to wait.  Anything else: it is of no use any more.
        """
        if self.prepared is None or self.control is None:
            return Outcome.COMMITTED
        # The marker alone says so; the state of the transaction is asked for only without it.
        if self.control.marker(self.transactional_id) != self.prepared.marker:
            outcome = self.control.outcome(self.prepared, self.epoch)
            if outcome is not Outcome.COMMITTED:
                return outcome
        return self.catch_up()

    def catch_up(self) -> Outcome:
        """Let librdkafka know that what was prepared is committed.

        Returns:
            COMMITTED: it can begin a transaction.  LOST: it is of no use any more.
        """
        from confluent_kafka import KafkaException

        try:
            self.client.commit_transaction(self.patience)
        except KafkaException as error:
            _LOG.debug("producer %s is not used again: %s", self.transactional_id, error)
            return Outcome.LOST
        self.prepared = None
        return Outcome.COMMITTED

    def abort(self) -> None:
        """End what was begun, if that is possible now; the producer is of no use any more.

        By a new epoch of the producer, and never by EndTxn: a Produce may be on its way, on
        another connection than EndTxn or in the buffers of one that was cut, where nobody can wait
        for it.  Landing after a marker of its own epoch it would begin a transaction that no
        coordinator knows, and hold readers up for ever.  Behind the marker of a newer epoch the
        broker refuses it.
        """
        from confluent_kafka import KafkaException

        control = TransactionControl(self.properties, "Kafka sink")
        control.limit(min(self.patience, _ABORT))
        try:
            self.client.purge()  # less to refuse
            control.fence(self.transactional_id, int(self.properties["transaction.timeout.ms"]))
            self.client.poll(0)  # what was purged is reported, and nothing is left at the end
        except (KafkaException, MillstreamError) as error:
            _LOG.debug("transaction of %s is left to the driver: %s", self.transactional_id, error)
        finally:
            control.close()


#: Around the dictionaries: who prepares has another thread than who writes.
_lock: Final = threading.RLock()
#: (process id, configuration, job and sink, generation) -> producers that no writer has.
_idle: dict[tuple[int, str, str, int], list[PooledProducer]] = {}
_plain: dict[tuple[int, str], PooledProducer] = {}
_controls: dict[tuple[int, str], TransactionControl] = {}


def plain_producer(properties: Mapping[str, str]) -> PooledProducer:
    """The process's producer without transactions."""
    key = os.getpid(), _key(properties)
    if key not in _plain:
        _plain[key] = _make(properties, {})
    return _plain[key]


def flush_plain(properties: Mapping[str, str], most: float = math.inf) -> None:
    """Wait for what the process's producer without transactions has not sent, if there is one.

    Args:
        properties: of the sink.
        most: seconds to wait at most, if they are fewer than those for a step.

    Raises:
        SinkError: the brokers refuse a message, or do not take them; the next takes a new producer.
    """
    producer = _plain.get((os.getpid(), _key(properties)))
    if producer is None:
        return
    try:
        producer.flush(most)
    except SinkError:
        discard_plain(producer)
        raise


def discard_plain(producer: PooledProducer) -> None:
    """Do not use a producer again: one that failed for good fails everything from then on."""
    for key in [key for key, each in _plain.items() if each is producer]:
        del _plain[key]


def transactional_producer(
    properties: Mapping[str, str], prefix: str, context: WriterContext
) -> PooledProducer:
    """A producer that can begin a transaction; give it back with ``release``.

    Raises:
        SinkError: the brokers do not answer, or refuse.
    """
    key = _pool_key(properties, context)
    with _lock:
        for other in [each for each in _idle if each[:3] == key[:3] and each[3] < key[3]]:
            del _idle[other]  # of an older run: nothing they began will ever be committed by them
        idle = _idle.setdefault(key, [])
        # The one that has waited longest first: it is the likeliest to be committed.  But one that
        # is ready needs no question.
        free = [each for each in idle if each.is_free(context.epoch)]
        for producer in sorted(free, key=lambda each: each.prepared is not None):
            outcome = producer.settle()
            if outcome is not Outcome.OPEN:
                idle.remove(producer)
            if outcome is Outcome.COMMITTED:
                return producer
    name = OutputNames.of(context).of_producer(prefix, context.generation)
    return _make_transactional(properties, name, key)


def ready_producer(properties: Mapping[str, str], context: WriterContext) -> PooledProducer | None:
    """A producer that can begin a transaction without a word to the brokers, if there is one."""
    with _lock:
        idle = _idle.get(_pool_key(properties, context), [])
        for producer in idle:
            if producer.prepared is None:
                idle.remove(producer)
                return producer
    return None


def release(producer: PooledProducer, context: WriterContext) -> None:
    """Keep a producer for later epochs."""
    with _lock:
        _idle.setdefault(_pool_key(producer.properties, context), []).append(producer)


def catch_up(properties: Mapping[str, str], context: WriterContext, epoch: int) -> None:
    """Make the producers ready whose transactions the driver has committed.

    Args:
        properties: of the sink.
        context: of one of its writers.
        epoch: output of this epoch and of those before it is committed.
    """
    with _lock:
        idle = _idle.get(_pool_key(properties, context), [])
        due = [each for each in idle if each.prepared is not None and each.epoch <= epoch]
        for producer in due:
            idle.remove(producer)
    # Without the lock: who writes looks for a producer meanwhile.
    for producer in due:
        if producer.catch_up() is Outcome.COMMITTED:
            release(producer, context)


def discard_producers() -> None:
    """Forget all producers of this process (tests do; workers end with their process)."""
    _idle.clear()
    _plain.clear()
    while _controls:
        _controls.popitem()[1].close()


def patience_of(properties: Mapping[str, str]) -> float:
    """Seconds that a step of a transaction may take."""
    return int(properties.get("max.block.ms", _MAX_BLOCK)) / 1000


def _pool_key(properties: Mapping[str, str], context: WriterContext) -> tuple[int, str, str, int]:
    place = f"{context.job_id}/{context.sink_uid}"
    return os.getpid(), _key(properties), place, context.generation


def _key(properties: Mapping[str, str]) -> str:
    return json.dumps(dict(properties), sort_keys=True)


def check_properties(properties: Mapping[str, str], who: str, *, transactional: bool) -> None:
    """Check properties with librdkafka, without talking to a broker.

    Raises:
        ConfigurationError: one is unknown, or its value is not accepted.
    """
    require_confluent_kafka()
    from confluent_kafka import Producer

    nowhere = {"bootstrap.servers": ""} | ({"transactional.id": who} if transactional else {})
    require_accepted(
        properties, "producer", who, lambda: Producer(_configuration(properties, nowhere))
    )


def _configuration(properties: Mapping[str, str], forced: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {
        "enable.idempotence": "true",
        # Java's: the same key goes to the same partition, whoever writes.
        "partitioner": "murmur2_random",
        "linger.ms": _linger(properties, in_transaction="transactional.id" in forced),
        # One step of a transaction, the marker, takes no notice of the time it is given.
        "socket.timeout.ms": str(int(patience_of(properties) * 1000)),
        "queue.buffering.max.messages": _QUEUE_MESSAGES,
        "queue.buffering.max.kbytes": _QUEUE_KBYTES,
        # A producer that starts again from the bootstrap servers, when its connections were cut,
        # waits for ever in send_offsets_to_transaction (librdkafka issue 5511).
        "metadata.recovery.strategy": "none",
    }
    always = {"delivery.report.only.error": True}
    return client_configuration(defaults | dict(properties), {**always, **forced}, "producer")


def _linger(properties: Mapping[str, str], *, in_transaction: bool) -> str:
    """Return what records wait for others: half of what their delivery may take, if that is less.

    librdkafka refuses more than the whole, and with the whole nothing would ever arrive in time.
    """
    linger = _LINGER_IN_TRANSACTION if in_transaction else _LINGER
    given = [properties[name] for name in _DELIVERY_TIMEOUTS if name in properties]
    limits = [int(each) // 2 for each in given if each.isdecimal() and int(each) > 0]
    return str(min([int(linger), *limits]))


def _make(properties: Mapping[str, str], forced: Mapping[str, Any]) -> PooledProducer:
    require_confluent_kafka()
    from confluent_kafka import KafkaException, Producer

    failures = DeliveryFailures(properties)
    configuration = _configuration(properties, forced)
    log: ClientLog = configuration["logger"]
    callbacks = {"on_delivery": failures.report, "error_cb": log.on_error}
    try:
        client = Producer(configuration | callbacks)
    except (KafkaException, ValueError, TypeError) as error:
        message = f"the properties of the Kafka sink are not accepted: {reason_of(error)}"
        raise ConfigurationError(message) from error
    return PooledProducer(
        client,
        properties,
        log=log,
        failures=failures,
        most_messages=int(configuration["queue.buffering.max.messages"]) or int(_QUEUE_MESSAGES),
        most_bytes=int(configuration["queue.buffering.max.kbytes"]) * 1024,
    )


def _make_transactional(
    properties: Mapping[str, str], transactional_id: str, key: tuple[int, str, str, int]
) -> PooledProducer:
    from confluent_kafka import Consumer, KafkaException

    producer = _make(properties, {"transactional.id": transactional_id})
    try:
        producer.client.init_transactions(producer.patience)
    except KafkaException as error:
        servers = properties.get("bootstrap.servers")
        doing = (
            f"no transaction at the brokers {servers!r}{producer.log.because()} for"
            f" {transactional_id}"
        )
        raise refused(doing, error) from error
    producer.transactional_id = transactional_id
    consumer = Consumer(
        client_configuration(connection_properties(properties), {"group.id": transactional_id})
    )
    producer.group = consumer.consumer_group_metadata()
    consumer.close()
    with _lock:
        control = _controls.get(key[:2])
        if control is None:
            control = _controls[key[:2]] = TransactionControl(properties)
    producer.control = control
    return producer
