"""Reading ``[start, stop)`` of a partition in a task.

What it is: one consumer per worker process and configuration, kept between epochs, for making one
takes longer than a small epoch.  It belongs to no group's membership: partitions are assigned by
Millstream's planner.

Offsets have gaps: compaction removes records, and the markers of transactions take offsets that no
reader sees.  So reading ends when the *position* is at ``stop``: a record at or behind it arrives,
or the consumer says that it is at the end of the partition.  Behind an aborted transaction of many
records that takes a while, since the consumer fetches what it then drops; what was found empty is
remembered, so that the ranges that follow are not fetched once more each.

What it is not: what decides where to read; that is ``source.py`` in the driver.

Read next: ``connectors/kafka/cursor.py`` for tasks that live on,
``connectors/kafka/deserialization.py``.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.connectors.kafka.client import (
    TIMEOUT,
    client_configuration,
    require_accepted,
    require_confluent_kafka,
)
from millstream.connectors.kafka.client_log import ClientLog
from millstream.errors import ConfigurationError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from millstream.connectors.kafka.client import KafkaTopicPartition

__all__ = [
    "PATIENCE",
    "OpenConsumer",
    "check_properties",
    "close_consumers",
    "is_end",
    "judge",
    "open_consumer",
    "read_range",
    "stuck",
]

#: librdkafka's names.
_EARLIEST: Final = frozenset({"earliest", "smallest", "beginning"})
#: Seconds without any progress before a read fails.
PATIENCE: Final = 30.0
#: Seconds that one poll waits: where the range ends with the marker of a transaction, only the
#: end of the partition says so.
_POLL: Final = 0.05

#: Bytes per second that tell records from answers without any, which come all the time.
_MUCH: Final = 300_000
#: Seconds for which a gap is remembered: the next epoch comes soon, or it is read again.
_GAP_VALID: Final = 60.0


@dataclass(slots=True)
class _Gap:
    """Offsets without records, up to ``end``, found by a reading that went up to ``start``."""

    start: int
    end: int
    #: Monotonic seconds.
    found: float


@dataclass(slots=True)
class OpenConsumer:
    """A consumer, and what is known about what it reads."""

    client: Any = None
    log: ClientLog = field(default_factory=lambda: ClientLog(""))
    #: Bytes that it has received, as of its last statistics; they come every second.
    received: int = 0
    #: Monotonic seconds, when it last had received many.
    busy: float = float("-inf")
    #: The reading that it was assigned to last.
    reading: object = None
    gaps: dict[KafkaTopicPartition, _Gap] = field(default_factory=dict)

    def count(self, statistics: str) -> None:
        """Take librdkafka's statistics."""
        received = int(json.loads(statistics).get("rx_bytes", 0))
        if received - self.received > _MUCH:
            self.busy = time.monotonic()
        self.received = received


#: (process id, configuration) -> consumer.
_consumers: dict[tuple[int, str], OpenConsumer] = {}


def read_range(
    properties: Mapping[str, str], partition: KafkaTopicPartition, start: int, stop: int
) -> Iterator[list[Any]]:
    """The messages of ``[start, stop)``, in lists of at most ``BATCH_SIZE``.

    Raises:
        SourceError: the offsets are gone, or the brokers do not answer.
    """
    from confluent_kafka import TopicPartition

    shared = _consumer(properties)
    now = time.monotonic()
    gap = shared.gaps.pop(partition, None)
    if gap is not None and gap.start == start and gap.end >= stop and now - gap.found < _GAP_VALID:
        shared.gaps[partition] = _Gap(stop, gap.end, now)
        return
    me = shared.reading = object()
    shared.client.assign([TopicPartition(partition.topic, partition.partition, start)])
    try:
        end = yield from _messages(shared, partition, start, stop)
        if end > stop:
            shared.gaps[partition] = _Gap(stop, end, time.monotonic())
    finally:
        # That of a task that failed ends when its error is forgotten, maybe in the next task.
        if shared.reading is me:
            shared.client.unassign()


def _messages(
    shared: OpenConsumer, partition: KafkaTopicPartition, start: int, stop: int
) -> Generator[list[Any], None, int]:
    """Yields messages; returns up to where there are no others."""
    position, progress = start, time.monotonic()
    trouble = "no record arrives"
    end = stop
    while position < stop:
        before = position
        messages = shared.client.consume(min(BATCH_SIZE, stop - position), timeout=_POLL)
        taken, position, failed = _sorted_out(messages, position, stop)
        if position > stop:
            end = _first_behind(messages, stop)
        if taken:
            yield taken
        if failed is not None and position < stop:
            trouble = judge(shared.client, failed, partition, position, shared.client.assign)
        now = time.monotonic()
        progress = now if position > before else max(progress, shared.busy)
        if now - progress > PATIENCE:
            raise stuck(shared, partition, position, stop, trouble)
    return end


def stuck(
    consumer: OpenConsumer, partition: KafkaTopicPartition, position: int, stop: int, trouble: str
) -> SourceError:
    """The error for a partition of which nothing arrived for ``PATIENCE`` seconds.

    Args:
        consumer: that reads it.
        partition: that is read.
        position: how far.
        stop: up to where there are records.
        trouble: what is known of the cause.
    """
    return SourceError(
        f"cannot read {partition} from offset {position} to {stop}:"
        f" {consumer.log.trouble or trouble}, for {PATIENCE:.0f} s. Check that the brokers"
        " run and that the workers reach them."
    )


def _sorted_out(messages: list[Any], position: int, stop: int) -> tuple[list[Any], int, Any]:
    """The records below ``stop``, the position behind all that arrived, and the last error."""
    events = [message for message in messages if message.error() is not None]
    if messages and not events:
        # They are of one partition, so in order of their offsets.
        last: int = messages[-1].offset()
        if last >= stop:
            messages = [message for message in messages if message.offset() < stop]
        return messages, last + 1, None
    taken, failed = [], None
    for message in messages:
        error = message.error()
        if error is None:
            position = message.offset() + 1
            if message.offset() < stop:
                taken.append(message)
        elif is_end(error):
            position = max(position, message.offset())
        else:
            failed = error
    return taken, position, failed


def _first_behind(messages: list[Any], stop: int) -> int:
    """Offset of the first record at ``stop`` or behind it, or of the partition's end there."""
    return min(
        int(message.offset())
        for message in messages
        if message.offset() >= stop and (message.error() is None or is_end(message.error()))
    )


def is_end(error: Any) -> bool:
    """Whether this "error" says that the consumer is at the end of a partition."""
    from confluent_kafka import KafkaError

    return bool(error.code() == KafkaError._PARTITION_EOF)  # noqa: SLF001 - its public name


def judge(
    consumer: Any,
    error: Any,
    partition: KafkaTopicPartition,
    position: int,
    again: Callable[[list[Any]], object],
) -> str:
    """Go on after an error that may pass.

    Args:
        consumer: confluent's.
        error: what it says.
        partition: of which it is said.
        position: up to where it was read.
        again: has the consumer read a list of places anew.

    Returns:
        What the error says.

    Raises:
        SourceError: it does not pass.
    """
    from confluent_kafka import KafkaError, TopicPartition

    code = error.code()
    if code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001
        # Brokers also say so for a moment, when they do not know their newest records yet.
        here = TopicPartition(partition.topic, partition.partition, position)
        low, high = consumer.get_watermark_offsets(here, timeout=TIMEOUT)
        if low <= position < high:
            again([here])
            return str(error.str())
        message = (
            f"offset {position} of {partition} does not exist, the topic has {low} to {high}: the"
            " topic's retention deleted it before it was read, or the topic was made anew. Set the"
            " property auto.offset.reset to 'earliest' to go on with what there is, and keep"
            " records longer."
        )
        raise SourceError(message)
    if error.fatal() or code in {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - its public name
    }:
        message = f"cannot read {partition} at offset {position}: {error.str()}"
        raise SourceError(message)
    return str(error.str())


def _consumer(properties: Mapping[str, str]) -> OpenConsumer:
    key = os.getpid(), json.dumps(dict(properties), sort_keys=True)
    if key not in _consumers:
        _consumers[key] = open_consumer(properties)
    return _consumers[key]


def open_consumer(
    properties: Mapping[str, str], defaults: Mapping[str, str] | None = None
) -> OpenConsumer:
    """A consumer of its own, which reads nothing yet.

    Args:
        properties: the user's.
        defaults: for those that the user does not set.

    Raises:
        ConfigurationError: the properties are not accepted.
    """
    from confluent_kafka import Consumer, KafkaException

    opened = OpenConsumer()
    configuration = _configuration(dict(defaults or {}) | dict(properties))
    opened.log = configuration["logger"]
    callbacks = {"stats_cb": opened.count, "error_cb": opened.log.on_error}
    try:
        opened.client = Consumer(configuration | callbacks | {"statistics.interval.ms": 1000})
    except (KafkaException, ValueError, TypeError) as error:
        message = f"the properties of the Kafka source are not accepted: {error}"
        raise ConfigurationError(message) from error
    return opened


def check_properties(properties: Mapping[str, str], who: str) -> None:
    """Check properties with librdkafka, without talking to a broker.

    Raises:
        ConfigurationError: one is unknown, or its value is not accepted.
    """
    require_confluent_kafka()
    from confluent_kafka import Consumer

    nowhere = {"bootstrap.servers": ""}
    require_accepted(
        properties, "consumer", who, lambda: Consumer(_configuration(properties) | nowhere)
    )


def _configuration(properties: Mapping[str, str]) -> dict[str, Any]:
    defaults = {"group.id": "millstream", "fetch.wait.max.ms": "20"}
    reset = properties.get("auto.offset.reset")
    forced = {
        # "latest" would pass over what there is, and count it as read.
        "auto.offset.reset": "earliest" if reset in _EARLIEST else "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
    }
    return client_configuration(defaults | dict(properties), forced, "consumer")


def close_consumers() -> None:
    """Close the consumers of this process (tests do; workers end with their process)."""
    while _consumers:
        shared = _consumers.popitem()[1]
        shared.reading = None
        shared.client.close()
