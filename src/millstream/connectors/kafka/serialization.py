"""From records of a stream to messages: topic, key, value, headers, timestamp.

What it is: PyFlink's ``KafkaRecordSerializationSchema``, a whole batch at a time where the schema
can.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

from millstream.contracts.serialization import SerializationSchema
from millstream.errors import ConfigurationError, PermanentSinkError
from millstream.types.composite_types import RowTypeInfo
from millstream.types.row import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.contracts.batch import Batch


_SHOWN: Final = 200

#: What makes bytes of a record: a schema, or a function.
SchemaLike: TypeAlias = "SerializationSchema | Callable[[Any], bytes | None]"


@dataclass(slots=True)
class Messages(Sequence[dict[str, Any]]):
    """Messages to one topic, by columns; each by itself is keyword arguments of ``produce``."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    #: Milliseconds; 0: the time at which it is sent.
    timestamps: Sequence[int] | None = None
    headers: Sequence[list[tuple[str, bytes]]] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> Messages: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | Messages:
        if isinstance(index, slice):
            return Messages(*(None if each is None else each[index] for each in self._columns))  # type: ignore[arg-type]
        message: dict[str, Any] = {"value": self.values[index]}
        if self.keys is not None:
            message["key"] = self.keys[index]
        if self.timestamps is not None and self.timestamps[index] > 0:
            message["timestamp"] = self.timestamps[index]
        if self.headers is not None:
            message["headers"] = self.headers[index]
        return message

    def at(self, places: Sequence[int]) -> Messages:
        """Those at these places."""
        return Messages(
            *(None if each is None else [each[at] for at in places] for each in self._columns)  # type: ignore[arg-type]
        )

    @property
    def size(self) -> int:
        """Bytes of the values."""
        return sum(map(len, filter(None, self.values)))

    @property
    def _columns(self) -> tuple[Sequence[Any] | None, ...]:
        return self.values, self.keys, self.timestamps, self.headers


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

    def messages(self, batch: Batch) -> dict[str, Messages]:
        """Topic -> messages.

        Raises:
            SinkError: a record does not fit; names it.
        """
        # Only if a function wants them: columns become bytes without a record being made.
        records = functools.cache(lambda: _records(batch))
        made = Messages(self._serialized(self._value, batch, records, "value"))
        if self._key is not None:
            made.keys = self._serialized(self._key, batch, records, "key")
        if self._headers is not None:
            provide = self._headers
            made.headers = self._each(lambda v: list(provide(v)), records(), "headers")
        times = batch.timestamp_list
        if any(time > 0 for time in times):
            made.timestamps = [max(time, 0) for time in times] if min(times) < 0 else times
        if self._selector is None:
            return {str(self.topic): made}
        places: dict[str, list[int]] = {}
        for at, topic in enumerate(self._each(self._selector, records(), "topic")):
            places.setdefault(topic, []).append(at)
        return {topic: made.at(each) for topic, each in places.items()}

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
