"""Rows as messages: JSON, CSV and Avro, one record per message.

What it is: PyFlink's row schemas (``pyflink.datastream.formats``).  JSON and CSV messages of a
batch are parsed together by pyarrow, as lines; only if they do not come out as one row each are
they looked at one by one.

What it is not: a client of a schema registry; Avro messages hold the bare record.

Read next: ``contracts/serialization.py``.
"""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pj

from millstream.connectors.files.file_writers import named_values
from millstream.connectors.formats.avro_types import arrow_schema_of_avro
from millstream.connectors.formats.json_text import json_lines, json_text
from millstream.connectors.formats.schema import SchemaLike, columns_of, type_of_schema
from millstream.contracts.serialization import DeserializationSchema, SerializationSchema
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.types.typeinfo import TypeInformation

__all__ = [
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
]


class _RowDeserialization(DeserializationSchema):
    """Messages that are parsed together as lines."""

    def __init__(self, schema: SchemaLike) -> None:
        self._type = type_of_schema(schema)
        self._columns = columns_of(self._type)

    @property
    def produced_type(self) -> TypeInformation:
        """The row type given."""
        return self._type

    def deserialize(self, message: bytes) -> object:
        """One row."""
        return self._type.from_arrow(self._type.conform(self._parse([message])))[0]

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """All rows at once."""
        try:
            return self._type.conform(self._parse(messages))
        except (ValueError, pa.ArrowException):
            return None

    def _parse(self, messages: Sequence[bytes]) -> pa.RecordBatch:
        """One row per message; raises ValueError if that is not what comes out."""
        table = self._read(b"\n".join(messages), len(messages) - 1)
        if table.num_rows != len(messages):
            message = f"{len(messages)} messages parse as {table.num_rows} records"
            raise ValueError(message)
        (batch,) = table.combine_chunks().to_batches(max_chunksize=len(messages) + 1)
        return batch

    def _read(self, block: bytes, breaks: int) -> pa.Table:
        raise NotImplementedError


class JsonRowDeserializationSchema(_RowDeserialization):
    """Messages that are JSON objects.

    Fields that the type does not name are ignored, fields that a message lacks are null (or are
    refused, with ``fail_on_missing_field``).
    """

    def __init__(self, type_info: SchemaLike, *, fail_on_missing_field: bool = False) -> None:
        super().__init__(type_info)
        self._fail_on_missing_field = fail_on_missing_field

    @staticmethod
    def builder() -> _JsonDeserializationBuilder:
        """Start building."""
        return _JsonDeserializationBuilder()

    def _read(self, block: bytes, breaks: int) -> pa.Table:
        block.decode()  # pyarrow lets invalid UTF-8 through into string columns
        if block.count(b"\n") != breaks:
            # Line breaks within a message can only be blanks of JSON, but where are they?
            if breaks:
                message = "a message has several lines"
                raise ValueError(message)
            block = block.replace(b"\n", b" ")
        if self._fail_on_missing_field:
            self._require_fields(block)
        options = pj.ParseOptions(explicit_schema=self._columns, unexpected_field_behavior="ignore")
        # One block: a record must not straddle two.
        reading = pj.ReadOptions(use_threads=False, block_size=len(block) + 16)
        table = pj.read_json(pa.BufferReader(block), read_options=reading, parse_options=options)
        return table.select(self._columns.names)

    def _require_fields(self, block: bytes) -> None:
        for line in block.splitlines():
            missing = set(self._columns.names) - json.loads(line).keys()
            if missing:
                message = f"the field {', '.join(sorted(missing))} is missing"
                raise ValueError(message)


class _JsonDeserializationBuilder:
    def __init__(self) -> None:
        self._type: SchemaLike | None = None
        self._fail = False

    def type_info(self, type_info: SchemaLike) -> _JsonDeserializationBuilder:
        """Set the row type."""
        self._type = type_info
        return self

    def fail_on_missing_field(self) -> _JsonDeserializationBuilder:
        """Refuse messages that lack a field."""
        self._fail = True
        return self

    def build(self) -> JsonRowDeserializationSchema:
        """The schema; raises ConfigurationError without a type."""
        return JsonRowDeserializationSchema(
            _given(self._type, "type_info"), fail_on_missing_field=self._fail
        )


class JsonRowSerializationSchema(SerializationSchema):
    """Records as JSON objects; the names are those of the stream's type."""

    @staticmethod
    def builder() -> _JsonSerializationBuilder:
        """Start building."""
        return _JsonSerializationBuilder()

    def serialize(self, element: object) -> bytes:
        """One JSON object."""
        return json_text(named_values(element)).encode()

    def serialize_columns(self, batch: pa.RecordBatch) -> list[bytes]:
        """All records, without a Python object per value."""
        return json_lines(batch).split(b"\n")[:-1]


class _JsonSerializationBuilder:
    def with_type_info(self, type_info: TypeInformation) -> _JsonSerializationBuilder:
        """Accepted for PyFlink's sake: the stream knows its type."""
        del type_info
        return self

    def build(self) -> JsonRowSerializationSchema:
        """The schema."""
        return JsonRowSerializationSchema()


class CsvRowDeserializationSchema(_RowDeserialization):
    """Messages that are one line of CSV each, columns by position."""

    def __init__(
        self, type_info: SchemaLike, delimiter: str = ",", quote: str | None = '"'
    ) -> None:
        super().__init__(type_info)
        self._delimiter = delimiter
        self._quote = quote

    class Builder:
        """Builds a CsvRowDeserializationSchema, as PyFlink's."""

        def __init__(self, type_info: SchemaLike) -> None:
            self._type = type_info
            self._delimiter = ","
            self._quote: str | None = '"'

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set what is between values."""
            self._delimiter = delimiter
            return self

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set what is around values that hold the delimiter."""
            self._quote = c
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """The schema."""
            return CsvRowDeserializationSchema(self._type, self._delimiter, self._quote)

    def _read(self, block: bytes, breaks: int) -> pa.Table:
        if block.count(b"\n") != breaks and breaks:
            message = "a message has several lines"
            raise ValueError(message)
        return pacsv.read_csv(
            pa.BufferReader(block + b"\n"),
            read_options=pacsv.ReadOptions(
                use_threads=False, block_size=len(block) + 2, column_names=self._columns.names
            ),
            parse_options=pacsv.ParseOptions(
                delimiter=self._delimiter,
                quote_char=self._quote or False,
                newlines_in_values=not breaks,
                ignore_empty_lines=False,
            ),
            convert_options=pacsv.ConvertOptions(column_types=self._columns),
        )


class CsvRowSerializationSchema(SerializationSchema):
    """Records as lines of CSV without a header and without a line break."""

    def __init__(self, delimiter: str = ",") -> None:
        self._delimiter = delimiter

    class Builder:
        """Builds a CsvRowSerializationSchema, as PyFlink's."""

        def __init__(self, type_info: TypeInformation) -> None:
            del type_info  # the stream knows its type
            self._delimiter = ","

        def set_field_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set what is between values."""
            self._delimiter = delimiter
            return self

        def build(self) -> CsvRowSerializationSchema:
            """The schema."""
            return CsvRowSerializationSchema(self._delimiter)

    def serialize(self, element: object) -> bytes:
        """One line."""
        return self._line(named_values(element).values())

    def serialize_columns(self, batch: pa.RecordBatch) -> list[bytes]:
        """All lines, values in the order of the columns."""
        columns = [column.to_pylist() for column in batch.columns]
        return [self._line(values) for values in zip(*columns, strict=True)]

    def _line(self, values: Iterable[object]) -> bytes:
        text = io.StringIO(newline="")
        cells = ["" if value is None else _cell(value) for value in values]
        csv.writer(text, delimiter=self._delimiter, lineterminator="").writerow(cells)
        return text.getvalue().encode()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json_text(value) if isinstance(value, dict | list | tuple) else value


class AvroRowDeserializationSchema(DeserializationSchema):
    """Messages that hold one Avro record each, in its binary form.

    Args:
        avro_schema_string: the schema, as JSON.
        type_info: the row type; None takes that of the schema.  A schema with fields that no row
            type describes (unions of several types, records within themselves, UUIDs) gives
            dicts of an untyped stream then.
    """

    def __init__(self, avro_schema_string: str, type_info: SchemaLike | None = None) -> None:
        self._parsed: Any = _avro_schema(avro_schema_string)
        given = arrow_schema_of_avro(self._parsed) if type_info is None else type_info
        self._type = None if given is None else type_of_schema(given)

    @property
    def produced_type(self) -> TypeInformation:
        """The row type, if there is one, else untyped."""
        from millstream.types.types import Types

        return self._type or Types.PICKLED_BYTE_ARRAY()

    def deserialize(self, message: bytes) -> object:
        """One record."""
        record = self._decode(message)
        if self._type is None:
            return record
        columns = columns_of(self._type)
        batch = pa.RecordBatch.from_pylist([dict(record)], schema=columns)
        return self._type.from_arrow(batch)[0]

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """All records as columns."""
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
    """Records in Avro's binary form; ``avro_schema_string`` is the schema, as JSON."""

    def __init__(self, avro_schema_string: str) -> None:
        self._parsed: Any = _avro_schema(avro_schema_string)

    def serialize(self, element: object) -> bytes:
        """One record; raises ValueError if it does not fit the schema."""
        import fastavro

        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, self._parsed, named_values(element))
        return stream.getvalue()


def _avro_schema(text: str) -> Any:  # noqa: ANN401 - a parsed schema may be of any JSON type
    try:
        import fastavro
    except ImportError as error:
        message = "Avro needs the package fastavro: pip install 'millstream[kafka]'"
        raise ConfigurationError(message) from error
    try:
        schema: Any = json.loads(text)
        parsed: Any = fastavro.parse_schema(schema)
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        message = f"this is not an Avro schema: {error}"
        raise ConfigurationError(message) from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        message = "the Avro schema must be that of a record"
        raise ConfigurationError(message)
    return parsed


def _given(value: SchemaLike | None, method: str) -> SchemaLike:
    if value is None:
        message = f"call {method}(...) before build()"
        raise ConfigurationError(message)
    return value
