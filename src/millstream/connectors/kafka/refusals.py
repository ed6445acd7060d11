"""What brokers refuse: whether for good, which record, and what to set.

What it is: errors of librdkafka made into Millstream's.  Brokers refuse records in batches, and
librdkafka reports each of a batch; the one that is named is the largest, which is the culprit where
size is.

What it is not: a decision on restarts; ``PermanentSinkError`` leads to one.

Read next: ``connectors/kafka/producers.py``, ``execution/restart.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.kafka.properties import translated
from millstream.errors import MillstreamError, PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DeliveryFailures", "reason_of", "refused", "refused_record"]

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
    """What an error says."""
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
