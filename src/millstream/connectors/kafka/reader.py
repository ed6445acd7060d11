"""Reading ``[start, stop)`` of a partition in a task.

What it is: one consumer per worker process and configuration, kept between epochs, for making one
takes longer than a small epoch.  It belongs to no group's membership: partitions are assigned by
Millstream's planner.

Offsets have gaps: compaction removes records, and the markers of transactions take offsets that no
reader sees.  So reading ends when the *position* is at ``stop``: a record at or behind it arrives,
or the consumer says that it is at the end of the partition.

What it is not: a place that decides where to read; that is ``source.py`` in the driver.

Read next: ``connectors/kafka/deserialization.py``.
"""

from __future__ import annotations

import json
import logging
import os
import time
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.file_format import BATCH_SIZE
from millstream.connectors.kafka.client import TIMEOUT, client_configuration
from millstream.errors import ConfigurationError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.connectors.kafka.client import KafkaTopicPartition

__all__ = ["close_consumers", "read_range"]

_LOG: Final = logging.getLogger("millstream.kafka")
#: Seconds without any progress before a read fails.
PATIENCE: Final = 30.0
#: Seconds that one poll waits: where the range ends with the marker of a transaction, only the
#: end of the partition says so.
_POLL: Final = 0.05

#: (process id, configuration) -> consumer.
_consumers: dict[tuple[int, str], Any] = {}
#: id of a consumer -> the reading that it was assigned to last.
_reading: dict[int, object] = {}


def read_range(
    properties: Mapping[str, str], place: KafkaTopicPartition, start: int, stop: int
) -> Iterator[list[Any]]:
    """The messages of ``[start, stop)``, in lists of at most ``BATCH_SIZE``.

    Raises:
        SourceError: the offsets are gone, or the brokers do not answer.
    """
    from confluent_kafka import TopicPartition

    consumer = _consumer(properties)
    me = _reading[id(consumer)] = object()
    consumer.assign([TopicPartition(place.topic, place.partition, start)])
    try:
        yield from _messages(consumer, place, start, stop)
    finally:
        # That of a task that failed ends when its error is forgotten, maybe in the next task.
        if _reading.get(id(consumer)) is me:
            consumer.unassign()


def _messages(
    consumer: Any,  # noqa: ANN401 - confluent's Consumer
    place: KafkaTopicPartition,
    start: int,
    stop: int,
) -> Iterator[list[Any]]:
    position, progress = start, time.monotonic()
    trouble = "no record arrives"
    while position < stop:
        before = position
        messages = consumer.consume(min(BATCH_SIZE, stop - position), timeout=_POLL)
        taken, position, failed = _sorted_out(messages, position, stop)
        if taken:
            yield taken
        if failed is not None and position < stop:
            _judge(consumer, failed, place, position)
            trouble = str(failed.str())
        now = time.monotonic()
        if position > before:
            progress = now
        elif now - progress > PATIENCE:
            text = (
                f"cannot read {place} from offset {position} to {stop}: {trouble}, for"
                f" {PATIENCE:.0f} s. Check that the brokers run and that the workers reach them."
            )
            raise SourceError(text)


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
        elif _is_end(error):
            position = max(position, message.offset())
        else:
            failed = error
    return taken, position, failed


def _is_end(error: Any) -> bool:  # noqa: ANN401 - KafkaError
    from confluent_kafka import KafkaError

    return bool(error.code() == KafkaError._PARTITION_EOF)  # noqa: SLF001 - its public name


def _judge(
    consumer: Any,  # noqa: ANN401 - confluent's Consumer
    error: Any,  # noqa: ANN401 - KafkaError
    place: KafkaTopicPartition,
    position: int,
) -> None:
    """Go on after an error that may pass; raise SourceError after one that does not."""
    from confluent_kafka import KafkaError, TopicPartition

    code = error.code()
    if code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001
        # Brokers also say so for a moment, when they do not know their newest records yet.
        here = TopicPartition(place.topic, place.partition, position)
        low, high = consumer.get_watermark_offsets(here, timeout=TIMEOUT)
        if low <= position < high:
            consumer.assign([here])
            return
        message = (
            f"offset {position} of {place} does not exist, the topic has {low} to {high}: the"
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
        message = f"cannot read {place} at offset {position}: {error.str()}"
        raise SourceError(message)


def _consumer(properties: Mapping[str, str]) -> Any:  # noqa: ANN401 - confluent's Consumer
    from confluent_kafka import Consumer, KafkaException

    key = os.getpid(), json.dumps(dict(properties), sort_keys=True)
    consumer = _consumers.get(key)
    if consumer is not None:
        return consumer
    defaults = {"group.id": "millstream", "auto.offset.reset": "error", "fetch.wait.max.ms": "20"}
    forced = {
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "logger": _LOG,
    }
    try:
        consumer = Consumer(client_configuration(defaults | dict(properties), forced))
    except (KafkaException, ValueError, TypeError) as error:
        message = f"the properties of the Kafka source are not accepted: {error}"
        raise ConfigurationError(message) from error
    _consumers[key] = consumer
    return consumer


def close_consumers() -> None:
    """Close the consumers of this process (tests do; workers end with their process)."""
    _reading.clear()
    while _consumers:
        _consumers.popitem()[1].close()
