"""Kafka messages of records and of rows of tables: topic, key, value, headers, timestamp.

Columns of a table come from the key's format, the value's, and Kafka's metadata (topic, offset,
headers, ...); a message without a value is a deleted row of an upsert table.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.formats.file_format import MalformedPolicy, rows_of_columns
from millstream.connectors.formats.row_format import DELETE, INSERT, arrow_schema, columns_of_rows
from millstream.connectors.kafka.source import (
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    dead_letter,
    kafka_record,
    malformed_error,
)
from millstream.contracts.serialization import SerializationSchema
from millstream.contracts.source import SourceBatch
from millstream.errors import ConfigurationError, PermanentSinkError, SchemaRegistryError
from millstream.types.composite_types import RowTypeInfo
from millstream.types.row import Row, with_kind_column

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from millstream.connectors.formats.row_format import RowDecoder, RowEncoder
    from millstream.contracts.batch import Batch
    from millstream.types.logical_types import RowType
    from millstream.types.types import TypeInformation


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

    def validate(self) -> None:
        """Check, when a job is submitted, that records can be written; raises as the schemas."""
        for each in (self._key, self._value):
            if isinstance(each, SerializationSchema):
                each.validate()

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
        except SchemaRegistryError:
            raise  # it may answer later, and the record is fine
        except Exception as error:
            where = f" for topic {self.topic!r}" if self.topic is not None else ""
            message = (
                f"the {what} of record {value!r:.{_SHOWN}} cannot be made{where}: "
                f"{type(error).__name__}: {error}"
            )
            raise PermanentSinkError(message) from error


def _records(batch: Batch) -> Sequence[object]:
    """The records as they are downstream of an exchange: rows with the names of their type.

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


# -- rows of tables --------------------------------------------------------------------------------


_TIMESTAMP_TYPES: Final = ("NoTimestampType", "CreateTime", "LogAppendTime")


def _headers(message: Any) -> list[tuple[str, bytes | None]]:
    """One per name: the last counts."""
    return list(dict(message.headers() or ()).items())


def _header_list(message: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in message.headers() or ()]


def _timestamp(message: Any) -> int:
    kind, milliseconds = message.timestamp()
    return int(milliseconds) if kind else -1


#: Key of metadata -> what it is of confluent's message.
READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "topic": lambda message: message.topic(),
    "partition": lambda message: message.partition(),
    "headers": _headers,
    "header-list": _header_list,
    "leader-epoch": lambda message: message.leader_epoch(),
    "offset": lambda message: message.offset(),
    "timestamp": _timestamp,
    "timestamp-type": lambda message: _TIMESTAMP_TYPES[message.timestamp()[0]],
}


@dataclass(frozen=True)
class TableRecordsPlan:
    """How the columns of a table are found.

    Args:
        row: what comes out: the table's columns, then metadata.
        value: reads values; its rows have the fields of ``value_columns``.
        value_columns: for each field of the value, the column that it is.
        key: reads keys; None: they are not looked at.
        key_columns: for each field of the key, the column that it is.
        metadata: for columns that Kafka says: their places, and keys of ``READERS``.
        upsert: whether a message without a value deletes the row of its key.
        advice: what to do about a message that does not parse.
    """

    row: RowType
    value: RowDecoder
    value_columns: tuple[int, ...]
    key: RowDecoder | None = None
    key_columns: tuple[int, ...] = ()
    metadata: tuple[tuple[int, str], ...] = ()
    upsert: bool = False
    advice: str = "correct the producer"


class TableRecords(KafkaRecordDeserializationSchema):
    """Rows of a table, none, one or several per message."""

    def __init__(self, plan: TableRecordsPlan) -> None:
        self._plan = plan
        self._schema = arrow_schema(plan.row)
        self._type = rows_of_columns(self._schema)

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    def deserialize(self, record: KafkaRecord) -> object:
        """Not called: rows are made of whole batches."""
        raise NotImplementedError

    def batch(self, messages: Sequence[Any], policy: MalformedPolicy) -> SourceBatch:
        made = self._at_once(messages)
        if made is None:
            made = self._changes_at_once(messages)
        if made is not None:
            return made
        rows: list[list[Any]] = []
        kinds: list[int] = []
        times: list[int] = []
        letters: list[tuple[str, str, str]] = []
        for message in messages:
            try:
                found = self._rows(message)
            except (ValueError, ArithmeticError, LookupError, TypeError) as error:
                record = kafka_record(message)
                if policy is MalformedPolicy.FAIL:
                    raise malformed_error(record, error, self._plan.advice) from error
                letters.append(dead_letter(record, error))
                continue
            for kind, row in found:
                kinds.append(kind)
                rows.append(row)
            times += [_timestamp(message)] * len(found)
        columns = columns_of_rows(self._schema, rows)
        if any(kinds):
            columns = with_kind_column(columns, np.array(kinds, np.int8))
        return SourceBatch(arrow=columns, timestamps=times, dead_letters=letters)

    def _at_once(self, messages: Sequence[Any]) -> SourceBatch | None:
        """All messages at once; None: some have to be looked at one by one."""
        plan = self._plan
        values = [message.value() for message in messages]
        there = [value for value in values if value is not None]
        if not there or (len(there) < len(values) and not plan.upsert):
            return None
        columns = plan.value.columns(there)
        if columns is None:
            return None
        gone = np.array([value is None for value in values])
        if gone.any():
            columns = columns.take(pa.array(np.cumsum(~gone) - 1, mask=gone))
        arrays = self._keys_at_once(messages)
        if arrays is None:
            return None
        is_gone = pa.array(gone)
        for place, column in zip(plan.value_columns, columns.columns, strict=True):
            # A deletion has the key alone.
            key = arrays[place]
            arrays[place] = column if key is None else pc.if_else(is_gone, key, column)
        return self._assembled(arrays, messages, np.where(gone, DELETE, INSERT).astype(np.int8))

    def _changes_at_once(self, messages: Sequence[Any]) -> SourceBatch | None:
        """All messages of a format of changes at once; None: some have to be looked at."""
        plan = self._plan
        values = [message.value() for message in messages]
        # Those without a value say nothing.
        there = [at for at, value in enumerate(values) if value]
        if plan.key is not None or plan.upsert or not there:
            return None
        changes = plan.value.changes_at_once([values[at] for at in there])
        if changes is None:
            return None
        said = [messages[there[at]] for at in changes.messages.tolist()]
        arrays: list[Any] = [None] * len(self._schema)
        for place, column in zip(plan.value_columns, changes.rows.columns, strict=True):
            arrays[place] = column
        return self._assembled(arrays, said, changes.kinds)

    def _assembled(
        self, arrays: list[Any], messages: Sequence[Any], kinds: NDArray[np.int8]
    ) -> SourceBatch:
        """A batch of columns; those of metadata are still to be made, of a message for each row."""
        for place, name in self._plan.metadata:
            arrays[place] = pa.array(map(READERS[name], messages), self._schema.field(place).type)
        made = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if kinds.any():
            made = with_kind_column(made, kinds)
        return SourceBatch(arrow=made, timestamps=list(map(_timestamp, messages)))

    def _keys_at_once(self, messages: Sequence[Any]) -> list[Any] | None:
        """The row's columns, those of the key set; None: a key is to be looked at by itself."""
        plan = self._plan
        arrays: list[Any] = [None] * len(self._schema)
        if plan.key is None:
            return arrays
        keys = [message.key() for message in messages]
        columns = None if None in keys else plan.key.columns(keys)
        if columns is None:
            return None
        for place, column in zip(plan.key_columns, columns.columns, strict=True):
            arrays[place] = column
        return arrays

    def _rows(self, message: Any) -> list[tuple[int, list[Any]]]:
        plan, value = self._plan, message.value()
        if value is None and plan.upsert:
            found: list[tuple[int, Sequence[Any]]] = [(DELETE, (None,) * len(plan.value_columns))]
        else:
            found = plan.value.decode(value)
        if not found:
            return []
        keys: list[tuple[int, Sequence[Any]]] = [(0, ())]
        if plan.key is not None:
            keys = plan.key.decode(message.key())
        said = [(place, READERS[key](message)) for place, key in plan.metadata]
        return [
            (kind, self._row(kind, cells, key, said)) for _, key in keys for kind, cells in found
        ]

    def _row(
        self,
        kind: int,
        value: Sequence[Any],
        key: Sequence[Any],
        said: Sequence[tuple[int, Any]],
    ) -> list[Any]:
        row: list[Any] = [None] * len(self._schema)
        if self._plan.key is not None:
            for place, each in zip(self._plan.key_columns, key, strict=True):
                row[place] = each
        # A column that is in both is the value's, as in Flink; a deletion has the key alone.
        if kind != DELETE or not self._plan.upsert:
            for place, each in zip(self._plan.value_columns, value, strict=True):
                row[place] = each
        for place, each in said:
            row[place] = each
        return row


class TableMessages(KafkaRecordSerializationSchema):
    """Messages of rows.

    Args:
        topic: where to; None: the metadata ``topic`` says it.
        value: writes the columns ``value_columns``.
        value_columns: positions.
        key: writes the columns ``key_columns``; None: messages have no key.
        key_columns: positions.
        metadata: key of Kafka's metadata -> position of its column.
        upsert: whether a row that is no longer there is a message without a value.
        compact: whether of several changes of a key in a batch the last alone is written.
        allowed: the topics that the metadata may name, or what their names must match.
    """

    def __init__(
        self,
        topic: str | None,
        value: RowEncoder,
        value_columns: tuple[int, ...],
        *,
        key: RowEncoder | None = None,
        key_columns: tuple[int, ...] = (),
        metadata: dict[str, int] | None = None,
        upsert: bool = False,
        compact: bool = False,
        allowed: frozenset[str] | str | None = None,
    ) -> None:
        super().__init__(topic, None, None, lambda _: None, None)
        self._encoder, self._value_columns = value, value_columns
        self._key_encoder, self._key_columns = key, key_columns
        self._metadata = metadata or {}
        self._upsert, self._compact = upsert, compact
        self._allowed = allowed

    def validate(self) -> None:
        """Check that the formats can write rows; raises as they do."""
        for each in (self._key_encoder, self._encoder):
            if each is not None:
                each.validate()

    def messages(self, batch: Batch) -> dict[str, Messages]:
        columns, kinds = batch.arrow, batch.row_kinds
        try:
            made = self._made(columns, kinds)
        except (ValueError, ArithmeticError, TypeError) as error:
            message = f"a row cannot be written to topic {self.topic!r}: {error}"
            raise PermanentSinkError(message) from error
        if self._upsert and kinds is not None:
            kept = _without_first_halves(made, kinds)
            made, columns = made.at(kept), columns.take(kept)
        by_topic = self._by_topic(columns, made)
        if self._compact:
            return {topic: _last_of_keys(each) for topic, each in by_topic.items()}
        return by_topic

    def _made(self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None) -> Messages:
        values = self._encoder.encode(
            columns.select(list(self._value_columns)), None if self._upsert else kinds
        )
        if self._upsert and kinds is not None:
            gone = (kinds & 1).astype(bool).tolist()
            values = [None if each else value for each, value in zip(gone, values, strict=True)]
        made = Messages(values)
        if self._key_encoder is not None:
            made.keys = self._key_encoder.encode(columns.select(list(self._key_columns)), None)
        said = self._metadata
        if "timestamp" in said:
            stamps = columns.column(said["timestamp"]).cast(pa.int64())
            made.timestamps = stamps.fill_null(0).to_pylist()
        if "headers" in said:
            made.headers = [
                [(key, value) for key, value in each or () if key is not None]
                for each in columns.column(said["headers"]).to_pylist()
            ]
        return made

    def _by_topic(self, columns: pa.RecordBatch, made: Messages) -> dict[str, Messages]:
        place = self._metadata.get("topic")
        if place is None:
            return {str(self.topic): made}
        places: dict[str, list[int]] = {}
        for at, topic in enumerate(columns.column(place).to_pylist()):
            if not self._is_allowed(topic):
                message = f"a row names the topic {topic!r}, which the table's options do not have"
                raise PermanentSinkError(message)
            places.setdefault(topic, []).append(at)
        return {topic: made.at(each) for topic, each in places.items()}

    def _is_allowed(self, topic: str | None) -> bool:
        if topic is None:
            return False
        if isinstance(self._allowed, str):
            return re.fullmatch(self._allowed, topic) is not None
        return self._allowed is None or topic in self._allowed


def _without_first_halves(messages: Messages, kinds: NDArray[np.int8]) -> list[int]:
    """All places but deletions with later ones of their key: the row was only updated."""
    kept: list[int] = []
    later: set[bytes | None] = set()
    keys = messages.keys or ()
    for at in range(len(messages) - 1, -1, -1):
        if not kinds[at] & 1 or keys[at] not in later:
            kept.append(at)
        later.add(keys[at])
    return kept[::-1]


def _last_of_keys(messages: Messages) -> Messages:
    """Of each key the last message, in their order."""
    last = {key: at for at, key in enumerate(messages.keys or ())}
    return messages.at(sorted(last.values()))
