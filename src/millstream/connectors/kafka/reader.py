"""Consumers as tasks have them: how they are opened, and what their errors mean.

What it is: librdkafka's consumer with what Millstream needs of it, and the decision which of its
errors pass.  It belongs to no group's membership: partitions are assigned by Millstream.

What it is not: what decides where to read; that is ``source.py`` in the driver.

Read next: ``connectors/kafka/ranges.py`` for tasks that end with each epoch,
``connectors/kafka/cursor.py`` for tasks that live on, ``connectors/kafka/deserialization.py``.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.kafka.client import (
    TIMEOUT,
    client_configuration,
    require_accepted,
    require_confluent_kafka,
)
from millstream.connectors.kafka.client_log import ClientLog
from millstream.errors import ConfigurationError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.connectors.kafka.client import KafkaTopicPartition

__all__ = [
    "PATIENCE",
    "OpenConsumer",
    "check_properties",
    "is_end",
    "judge",
    "open_consumer",
    "stuck",
]

#: librdkafka's names.
_EARLIEST: Final = frozenset({"earliest", "smallest", "beginning"})
#: Seconds without any progress before a read fails.
PATIENCE: Final = 30.0
#: Bytes per second that tell records from answers without any, which come all the time.
_MUCH: Final = 300_000


@dataclass(slots=True)
class OpenConsumer:
    """A consumer, and what is known about what it reads."""

    client: Any = None
    log: ClientLog = field(default_factory=lambda: ClientLog(""))
    #: Bytes that it has received, as of its last statistics; they come every second.
    received: int = 0
    #: Monotonic seconds, when it last had received many.
    busy: float = float("-inf")

    def count(self, statistics: str) -> None:
        """Take librdkafka's statistics."""
        received = int(json.loads(statistics).get("rx_bytes", 0))
        if received - self.received > _MUCH:
            self.busy = time.monotonic()
        self.received = received


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
