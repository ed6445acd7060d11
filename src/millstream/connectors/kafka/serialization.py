"""From records of a stream to messages: topic, key, value, headers, timestamp.

What it is: PyFlink's ``KafkaRecordSerializationSchema``, a whole batch at a time where the schema
can.

What it is not: the formats (``connectors/formats/message_formats.py``), or the sending.

Read next: ``connectors/kafka/sink.py``.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream.contracts.serialization import SerializationSchema
from millstream.errors import ConfigurationError, PermanentSinkError
from millstream.types.composite_types import RowTypeInfo
from millstream.types.row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.contracts.batch import Batch

__all__ = [
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaTopicSelector",
]

_SHOWN: Final = 200

#: What makes bytes of a record: a schema, or a function.
SchemaLike: TypeAlias = "SerializationSchema | Callable[[Any], bytes | None]"


class KafkaTopicSelector:
    """Chooses the topic of each record; subclass it, or give a function."""

    def apply(self, data: object) -> str:
        """The topic of a record."""
        raise NotImplementedError


class KafkaRecordSerializationSchema:
    """How records become messages; made by ``builder()``."""

    def __init__(
        self,
        topic: str | None,
        selector: Callable[[Any], str] | None,
        key: SchemaLike | None,
        value: SchemaLike,
        headers: Callable[[Any], Sequence[tuple[str, bytes]]] | None,
    ) -> None:
        self.topic = topic
        self._selector = selector
        self._key = key
        self._value = value
        self._headers = headers

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Start building."""
        return KafkaRecordSerializationSchemaBuilder()

    def messages(self, batch: Batch) -> dict[str, list[dict[str, Any]]]:
        """Topic -> messages, as keyword arguments of confluent's ``produce``.

        Raises:
            SinkError: a record does not fit; names it.
        """
        # Only if a function wants them: columns become bytes without a record being made.
        records = functools.cache(lambda: _records(batch))
        fields: dict[str, Sequence[Any]] = {
            "value": self._serialized(self._value, batch, records, "value")
        }
        if self._key is not None:
            fields["key"] = self._serialized(self._key, batch, records, "key")
        if self._headers is not None:
            provide = self._headers
            fields["headers"] = self._each(lambda v: list(provide(v)), records(), "headers")
        times = batch.timestamp_list
        have_time = [at for at, time in enumerate(times) if time > 0]
        if len(have_time) == len(batch):
            fields["timestamp"] = times
        made = _messages(fields)
        if len(have_time) < len(batch):
            for at in have_time:
                made[at]["timestamp"] = times[at]
        if self._selector is None:
            return {str(self.topic): made}
        by_topic: dict[str, list[dict[str, Any]]] = {}
        topics = self._each(self._selector, records(), "topic")
        for message, topic in zip(made, topics, strict=True):
            by_topic.setdefault(topic, []).append(message)
        return by_topic

    def _serialized(
        self,
        schema: SchemaLike,
        batch: Batch,
        records: Callable[[], Sequence[object]],
        what: str,
    ) -> Sequence[bytes | None]:
        if isinstance(schema, SerializationSchema):
            if batch.type_info.arrow_schema is not None:
                columns = schema.serialize_columns(batch.arrow)
                if columns is not None:
                    return columns
            function: Callable[[Any], bytes | None] = schema.serialize
        else:
            function = schema
        return self._each(function, records(), what)

    def _each(
        self, function: Callable[[Any], Any], records: Sequence[object], what: str
    ) -> list[Any]:
        """Call a function of the user's for each record."""
        value: object = None
        try:
            return [function(value := each) for each in records]
        except Exception as error:
            where = f" for topic {self.topic!r}" if self.topic is not None else ""
            message = (
                f"the {what} of record {value!r:.{_SHOWN}} cannot be made{where}: "
                f"{type(error).__name__}: {error}"
            )
            raise PermanentSinkError(message) from error


def _records(batch: Batch) -> Sequence[object]:
    """The records as they are behind an exchange: rows with the names of their type.

    Without an exchange a tuple may stand for a row, or a row may have been made without names.
    """
    if not isinstance(batch.type_info, RowTypeInfo) or batch.type_info.arrow_schema is None:
        return batch.values
    # All rows of a class have the same names.
    examples = {type(value): value for value in batch.values}.values()
    if all(isinstance(each, Row) and each.get_field_names() is not None for each in examples):
        return batch.values
    return batch.type_info.from_arrow(batch.arrow)


def _messages(fields: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """One dict per record; those of the usual sinks without a loop over the fields of each."""
    columns = list(fields.values())
    names = tuple(fields)
    if names == ("value", "key", "timestamp"):
        return [
            {"value": value, "key": key, "timestamp": timestamp}
            for value, key, timestamp in zip(*columns, strict=True)
        ]
    if names == ("value", "key"):
        return [{"value": value, "key": key} for value, key in zip(*columns, strict=True)]
    return [dict(zip(names, record, strict=True)) for record in zip(*columns, strict=True)]


class KafkaRecordSerializationSchemaBuilder:
    """Builds a KafkaRecordSerializationSchema, as PyFlink's."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._selector: Callable[[Any], str] | None = None
        self._key: SchemaLike | None = None
        self._value: SchemaLike | None = None
        self._headers: Callable[[Any], Sequence[tuple[str, bytes]]] | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Write to one topic."""
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: KafkaTopicSelector | Callable[[Any], str]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Choose the topic of each record."""
        if isinstance(topic_selector, KafkaTopicSelector):
            topic_selector = topic_selector.apply
        self._selector = topic_selector
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SchemaLike
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set how keys are made; records of one key stay in order."""
        self._key = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SchemaLike
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set how values are made; a function may return None, a tombstone."""
        self._value = value_serialization_schema
        return self

    def set_header_provider(
        self, header_provider: Callable[[Any], Sequence[tuple[str, bytes]]]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set how headers are made."""
        self._headers = header_provider
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """The schema; raises ConfigurationError if something is missing."""
        if (self._topic is None) == (self._selector is None):
            message = "call either set_topic or set_topic_selector"
            raise ConfigurationError(message)
        if self._value is None:
            message = "call set_value_serialization_schema(...) before build()"
            raise ConfigurationError(message)
        return KafkaRecordSerializationSchema(
            self._topic, self._selector, self._key, self._value, self._headers
        )
