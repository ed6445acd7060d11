"""Rows as messages: JSON and Avro, one record per message.

What it is: PyFlink's row schemas (``pyflink.datastream.formats``).  JSON messages of a batch are
parsed together by pyarrow, as lines (so are those of CSV, in ``csv_messages.py``); only if they do
not come out as one row each are they looked at one by one.

What it is not: a client of a schema registry; Avro messages hold the bare record.

Read next: ``contracts/serialization.py``, ``connectors/formats/csv_messages.py``.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa

from millstream.connectors.files.file_writers import named_values
from millstream.connectors.formats.avro_types import arrow_schema_of_avro, parsed_avro_schema
from millstream.connectors.formats.few_records import few_json_texts
from millstream.connectors.formats.json_columns import JsonColumns
from millstream.connectors.formats.json_schema import type_of_json_schema
from millstream.connectors.formats.json_text import json_text, json_texts
from millstream.connectors.formats.schema import SchemaLike, columns_of, type_of_schema
from millstream.contracts.serialization import (
    NO_RECORD,
    DeserializationSchema,
    SerializationSchema,
)
from millstream.errors import ConfigurationError, TypeMismatchError
from millstream.types.composite_types import CompositeTypeInfo
from millstream.types.row import Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.types.types import TypeInformation

__all__ = [
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
    "RowDeserialization",
    "with_names",
]


class RowDeserialization(DeserializationSchema):
    """Messages that are parsed together as lines.

    Args:
        schema: the row type.
        ignore_parse_errors: whether messages that do not parse are passed over.
    """

    def __init__(self, schema: SchemaLike, *, ignore_parse_errors: bool = False) -> None:
        self._type = type_of_schema(schema)
        self._columns = columns_of(self._type)
        self._ignore_parse_errors = ignore_parse_errors

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    def deserialize(self, message: bytes) -> object:
        """One row; ``NO_RECORD`` for a message that is passed over."""
        try:
            return self._type.from_arrow(self._type.conform(self._parse([message])))[0]
        except (ValueError, pa.ArrowException, TypeMismatchError):
            if not self._ignore_parse_errors:
                raise
            return NO_RECORD

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        try:
            return self._type.conform(self._parse(messages))
        except (ValueError, pa.ArrowException):
            return None

    def _parse(self, messages: Sequence[bytes]) -> pa.RecordBatch:
        """One row per message; raises ValueError if that is not what comes out."""
        return self._rows_of(b"\n".join(messages), len(messages))

    def _rows_of(self, block: bytes, count: int) -> pa.RecordBatch:
        table = self._read(block, count - 1)
        if table.num_rows != count:
            message = f"{count} messages parse as {table.num_rows} records"
            raise ValueError(message)
        (batch,) = table.combine_chunks().to_batches(max_chunksize=count + 1)
        return batch

    def _read(self, block: bytes, breaks: int) -> pa.Table:
        raise NotImplementedError


class JsonRowDeserializationSchema(RowDeserialization):
    """Messages that are JSON objects.

    Fields that the type does not name are ignored, fields that a message lacks are null (or are
    refused, with ``fail_on_missing_field``).
    """

    def __init__(
        self,
        type_info: SchemaLike,
        *,
        fail_on_missing_field: bool = False,
        ignore_parse_errors: bool = False,
    ) -> None:
        super().__init__(type_info, ignore_parse_errors=ignore_parse_errors)
        self._fail_on_missing_field = fail_on_missing_field
        self._json = JsonColumns(self._type, texts=True)

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """Start building."""
        return JsonRowDeserializationSchema.Builder()

    class Builder:
        """Builds a JsonRowDeserializationSchema, as PyFlink's."""

        def __init__(self) -> None:
            self._type: SchemaLike | None = None
            self._fail_on_missing_field = False
            self._ignore_parse_errors = False

        def type_info(self, type_info: SchemaLike) -> Self:
            """Set the row type."""
            self._type = type_info
            return self

        def json_schema(self, json_schema: str) -> Self:
            """Set the row type to that of a JSON schema (of an object).

            Raises:
                ConfigurationError: it is none, or one that no row type describes.
            """
            self._type = type_of_json_schema(json_schema)
            return self

        def fail_on_missing_field(self) -> Self:
            """Refuse messages that lack a field."""
            self._fail_on_missing_field = True
            return self

        def ignore_parse_errors(self) -> Self:
            """Pass over messages that do not parse."""
            self._ignore_parse_errors = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """The schema.

            Raises:
                ConfigurationError: there is no type, or missing fields are to be refused and
                    passed over.
            """
            if self._fail_on_missing_field and self._ignore_parse_errors:
                message = "call either fail_on_missing_field() or ignore_parse_errors(), not both"
                raise ConfigurationError(message)
            return JsonRowDeserializationSchema(
                _given(self._type, "type_info"),
                fail_on_missing_field=self._fail_on_missing_field,
                ignore_parse_errors=self._ignore_parse_errors,
            )

    def _parse(self, messages: Sequence[bytes]) -> pa.RecordBatch:
        block = b"\n".join(messages)
        breaks = len(messages) - 1
        # Mostly no message has a line break, and each begins and ends as it should: seen at once.
        plain = block[:1] == b"{" and block[-1:] == b"}"
        if not plain or block.count(b"\n") != breaks or block.count(b"}\n{") != breaks:
            trimmed = [message.strip() for message in messages]
            if not all(each[:1] == b"{" and each[-1:] == b"}" for each in trimmed):
                # So that a record that one has too many does not stand for another's that has none.
                message = "a message is no JSON object"
                raise ValueError(message)
            block = b"\n".join(trimmed)
        return self._rows_of(block, len(messages))

    def _read(self, block: bytes, breaks: int) -> pa.Table:
        if block.count(b"\n") != breaks:
            # Line breaks within a message can only be blanks of JSON, but where are they?
            if breaks:
                message = "a message has several lines"
                raise ValueError(message)
            block = block.replace(b"\n", b" ")
        if self._fail_on_missing_field:
            self._require_fields(block)
        return self._json.read(block)

    def _require_fields(self, block: bytes) -> None:
        for line in block.splitlines():
            missing = set(self._columns.names) - json.loads(line).keys()
            if missing:
                message = f"the field {', '.join(sorted(missing))} is missing"
                raise ValueError(message)


class JsonRowSerializationSchema(SerializationSchema):
    """Records as JSON objects.

    Args:
        type_info: the row type, whose names the fields have; None: those of the stream's type.
    """

    def __init__(self, type_info: TypeInformation | None = None) -> None:
        self._type = type_info

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """Start building."""
        return JsonRowSerializationSchema.Builder()

    class Builder:
        """Builds a JsonRowSerializationSchema, as PyFlink's."""

        def __init__(self) -> None:
            self._type: TypeInformation | None = None

        def with_type_info(self, type_info: TypeInformation) -> Self:
            """Set the row type, whose names the fields have; the stream's unless set."""
            self._type = type_of_schema(type_info)
            return self

        def build(self) -> JsonRowSerializationSchema:
            """The schema."""
            return JsonRowSerializationSchema(self._type)

    def serialize(self, element: object) -> bytes:
        if self._type is None:
            return json_text(named_values(element)).encode()
        return json_text(with_names(element, self._type)).encode()

    def serialize_columns(self, batch: pa.RecordBatch) -> list[bytes] | None:
        """All records, without a Python object per value."""
        if self._type is not None and batch.schema != self._type.arrow_schema:
            return None
        return few_json_texts(batch) or json_texts(batch)


def with_names(value: Any, kind: TypeInformation) -> Any:
    """A record whose rows, in lists too, are dicts with the names of their types."""
    element: TypeInformation | None = getattr(kind, "elem_type", None)
    if isinstance(kind, CompositeTypeInfo) and value is not None:
        names = kind.get_field_names()
        if isinstance(value, dict):
            fields = [value.get(name) for name in names]
        elif isinstance(value, Row) and set(value.get_field_names() or ()) == set(names):
            fields = [value[name] for name in names]
        elif isinstance(value, tuple | list):
            fields = list(value)
        else:
            fields = [getattr(value, name) for name in names]
        parts = zip(names, fields, kind.get_field_types(), strict=True)
        return {name: with_names(field, part) for name, field, part in parts}
    if element is not None and isinstance(value, list | tuple):
        return [with_names(item, element) for item in value]
    return value


class AvroRowDeserializationSchema(DeserializationSchema):
    """Messages that hold one Avro record each, in its binary form.

    Args:
        avro_schema_string: the schema, as JSON.
        type_info: the row type; None takes that of the schema.  A schema with fields that no row
            type describes (unions of several types, records within themselves, UUIDs) gives
            dicts of an untyped stream then.
    """

    def __init__(self, avro_schema_string: str, type_info: SchemaLike | None = None) -> None:
        self._parsed: Any = parsed_avro_schema(avro_schema_string)
        given = arrow_schema_of_avro(self._parsed) if type_info is None else type_info
        self._type = None if given is None else type_of_schema(given)

    @property
    def produced_type(self) -> TypeInformation:
        """The row type, if there is one, else untyped."""
        from millstream.types.types import Types

        return self._type or Types.PICKLED_BYTE_ARRAY()

    def deserialize(self, message: bytes) -> object:
        record = self._decode(message)
        if self._type is None:
            return record
        columns = columns_of(self._type)
        batch = pa.RecordBatch.from_pylist([dict(record)], schema=columns)
        return self._type.from_arrow(batch)[0]

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        if self._type is None:
            return None
        try:
            records = [dict(self._decode(message)) for message in messages]
            return pa.RecordBatch.from_pylist(records, schema=columns_of(self._type))
        except (ValueError, TypeError, pa.ArrowException):
            return None

    def _decode(self, message: bytes) -> Mapping[str, object]:
        import fastavro

        stream = io.BytesIO(message)
        try:
            record = fastavro.schemaless_reader(stream, self._parsed, None)
        except (EOFError, IndexError, KeyError, StopIteration, TypeError) as error:
            reason = f"it is not an Avro record of the schema: {error!r}"
            raise ValueError(reason) from error
        if stream.read(1):
            reason = "it has bytes behind the Avro record"
            raise ValueError(reason)
        return cast("dict[str, object]", record)


class AvroRowSerializationSchema(SerializationSchema):
    """Records in Avro's binary form; ``avro_schema_string`` is the schema, as JSON.

    Values go into the schema's fields by name; those of rows without names by position.
    """

    def __init__(self, avro_schema_string: str) -> None:
        self._parsed: Any = parsed_avro_schema(avro_schema_string)
        self._fields: list[str] = [each["name"] for each in self._parsed["fields"]]

    def serialize(self, element: object) -> bytes:
        """One record; raises ValueError if it does not fit the schema."""
        import fastavro

        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, self._parsed, self._record(element))
        return stream.getvalue()

    def _record(self, element: object) -> Mapping[str, object]:
        record = named_values(element)
        if self._fields[: len(record)] == list(record):
            return record
        if list(record) != [f"f{index}" for index in range(len(record))]:
            return record
        if len(record) != len(self._fields):
            reason = f"it has {len(record)} fields, the Avro schema {len(self._fields)}"
            raise ValueError(reason)
        return dict(zip(self._fields, record.values(), strict=True))


def _given(value: SchemaLike | None, method: str) -> SchemaLike:
    if value is None:
        message = f"call {method}(...) before build()"
        raise ConfigurationError(message)
    return value
