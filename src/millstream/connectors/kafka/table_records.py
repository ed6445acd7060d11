"""Messages of Kafka as rows of tables, and back: key, value, and what Kafka says of a message.

What it is: what stands between a table's columns and messages.  Columns come from the key's format,
the value's, and Kafka itself (topic, offset, headers, ...); a message without a value is a deleted
row of an upsert table.
What it is not: the formats (``connectors/formats/tables/codec.py``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.formats.file_format import MalformedPolicy
from millstream.connectors.formats.tables.codec import (
    DELETE,
    INSERT,
    arrow_schema,
    columns_of_rows,
)
from millstream.connectors.kafka.serialization import KafkaRecordSerializationSchema, Messages
from millstream.connectors.kafka.source import (
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    dead_letter,
    kafka_record,
    malformed_error,
)
from millstream.contracts.source import SourceBatch
from millstream.errors import PermanentSinkError
from millstream.types.row import with_kind_column
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from millstream.connectors.formats.tables.codec import RowDecoder, RowEncoder
    from millstream.contracts.batch import Batch
    from millstream.types.logical_types import RowType
    from millstream.types.types import TypeInformation


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
        kinds = [ArrowTypeInfo(field.type) for field in self._schema]
        self._type = RowTypeInfo(kinds, list(plan.row.names))

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
        for place, name in plan.metadata:
            said = [READERS[name](message) for message in messages]
            arrays[place] = pa.array(said, self._schema.field(place).type)
        made = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if gone.any():
            made = with_kind_column(made, np.where(gone, DELETE, INSERT).astype(np.int8))
        return SourceBatch(arrow=made, timestamps=[_timestamp(each) for each in messages])

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
        for place, name in plan.metadata:
            arrays[place] = pa.array(map(READERS[name], said), self._schema.field(place).type)
        made = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if changes.kinds.any():
            made = with_kind_column(made, changes.kinds)
        return SourceBatch(arrow=made, timestamps=list(map(_timestamp, said)))

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
    """All places but deletions with more of their key behind them: the row was only updated."""
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
