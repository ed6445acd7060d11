"""From messages to records: values alone, or with key, headers and location.

What it is: what a KafkaSource makes of what it reads, a whole batch at a time where the schema can.

What it is not: the formats themselves (``connectors/formats/message_formats.py``).

Read next: ``connectors/kafka/source.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.file_format import MalformedPolicy
from millstream.contracts.serialization import NO_RECORD
from millstream.contracts.source import SourceBatch
from millstream.errors import MalformedRecordError
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.contracts.serialization import DeserializationSchema
    from millstream.types.types import TypeInformation

__all__ = [
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "dead_letter",
    "decode",
    "kafka_record",
    "malformed_error",
]

#: Characters of a malformed record that an error shows.
_SHOWN: Final = 200
_ADVICE: Final = (
    "correct the producer, or use set_malformed('dead-letter') to set such records aside"
)
_NO_TIMESTAMP: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record as it is in Kafka."""

    topic: str
    partition: int
    offset: int
    #: Milliseconds; the minimum long if the record has none.
    timestamp: int
    key: bytes | None
    #: None is a tombstone.
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class KafkaRecordDeserializationSchema(ABC):
    """Makes a record of the stream from a record of Kafka; pickled to the workers."""

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation:
        """The type of the records."""

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> object:
        """The record of the stream; raises ValueError if it does not parse."""

    def batch(self, messages: Sequence[Any], policy: MalformedPolicy) -> SourceBatch:
        """A batch of confluent's messages as a batch of the stream.

        Raises:
            MalformedRecordError: a message does not parse, and the policy is to fail.
        """
        return _one_by_one(self, messages, policy)

    @staticmethod
    def value_only(schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """Look at the value alone; tombstones are passed over."""
        return ValueOnly(schema)

    @staticmethod
    def of(
        function: Callable[[KafkaRecord], object], output_type: TypeInformation | None = None
    ) -> KafkaRecordDeserializationSchema:
        """Call a function with each KafkaRecord."""
        return _Function(function, output_type or Types.PICKLED_BYTE_ARRAY())


class ValueOnly(KafkaRecordDeserializationSchema):
    """The value by a DeserializationSchema."""

    def __init__(self, schema: DeserializationSchema) -> None:
        self.schema = schema

    @property
    def produced_type(self) -> TypeInformation:
        return self.schema.produced_type

    def deserialize(self, record: KafkaRecord) -> object:
        return self.schema.deserialize(record.value or b"")

    def batch(self, messages: Sequence[Any], policy: MalformedPolicy) -> SourceBatch:
        contents = [message.value() for message in messages]
        if None in contents:
            messages = [message for message in messages if message.value() is not None]
            contents = [content for content in contents if content is not None]
        columns = self.schema.deserialize_columns(contents) if contents else None
        if columns is not None:
            return SourceBatch(arrow=columns, timestamps=_timestamps(messages))
        return _one_by_one(self, messages, policy)


class _Function(KafkaRecordDeserializationSchema):
    def __init__(
        self, function: Callable[[KafkaRecord], object], output_type: TypeInformation
    ) -> None:
        self._function = function
        self._type = output_type

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    def deserialize(self, record: KafkaRecord) -> object:
        return self._function(record)


def kafka_record(message: Any) -> KafkaRecord:
    """A message of confluent-kafka as a KafkaRecord."""
    return KafkaRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp=_timestamp(message),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )


def _timestamp(message: Any) -> int:
    kind, milliseconds = message.timestamp()
    return int(milliseconds) if kind else _NO_TIMESTAMP


def _timestamps(messages: Sequence[Any]) -> list[int]:
    # No tuple outlives its turn: thousands of them would have the whole heap collected.
    return [pair[1] if (pair := message.timestamp())[0] else _NO_TIMESTAMP for message in messages]


def decode(
    schema: KafkaRecordDeserializationSchema, messages: Sequence[Any], policy: MalformedPolicy
) -> SourceBatch:
    """A batch of confluent's messages as a batch of the stream.

    Raises:
        MalformedRecordError: a message does not parse, and the policy is to fail.
    """
    return schema.batch(messages, policy)


def _one_by_one(
    schema: KafkaRecordDeserializationSchema, messages: Sequence[Any], policy: MalformedPolicy
) -> SourceBatch:
    values: list[object] = []
    timestamps: list[int] = []
    letters: list[tuple[str, str, str]] = []
    for message in messages:
        record = kafka_record(message)
        try:
            value = schema.deserialize(record)
        except (ValueError, ArithmeticError, LookupError, TypeError) as error:
            if policy is MalformedPolicy.FAIL:
                raise malformed_error(record, error) from error
            letters.append(dead_letter(record, error))
            continue
        if value is not NO_RECORD:
            values.append(value)
            timestamps.append(record.timestamp)
    kind = schema.produced_type
    if kind.arrow_schema is None:
        return SourceBatch(values=values, timestamps=timestamps, dead_letters=letters)
    return SourceBatch(arrow=kind.to_arrow(values), timestamps=timestamps, dead_letters=letters)


def dead_letter(record: KafkaRecord, error: Exception) -> tuple[str, str, str]:
    """A record that does not parse, as sources report it."""
    place = f"{record.topic}-{record.partition}:{record.offset}"
    return place, _shown(record), str(error)


def _shown(record: KafkaRecord) -> str:
    return (record.value or b"").decode("utf-8", "backslashreplace")


def malformed_error(
    record: KafkaRecord, error: Exception, advice: str = _ADVICE
) -> MalformedRecordError:
    """The error for a record that does not parse.

    Args:
        record: the record.
        error: what its decoder said.
        advice: what to do about it.
    """
    raw = _shown(record)
    shown = raw if len(raw) <= _SHOWN else raw[:_SHOWN] + "..."
    return MalformedRecordError(
        f"topic {record.topic!r}, partition {record.partition}, offset {record.offset}: malformed"
        f" record: {error}; the value is {shown!r}; {advice}"
    )
