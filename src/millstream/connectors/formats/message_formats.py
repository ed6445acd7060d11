"""PyFlink's row schemas (``pyflink.datastream.formats``): one JSON, CSV or Avro record per message.

Messages of a batch are parsed together by pyarrow, as lines; only if they do not come out as one
row each are they read one by one.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import pyarrow as pa

from millstream.connectors.formats.avro_files import (
    arrow_schema_of_avro,
    decoded_record,
    parsed_avro_schema,
)
from millstream.connectors.formats.csv_format import CsvFormat, CsvOptions, single_character
from millstream.connectors.formats.file_format import SchemaLike, columns_of, type_of_schema
from millstream.connectors.formats.file_writers import named_values
from millstream.connectors.formats.json_format import (
    JsonColumns,
    few_json_texts,
    json_text,
    json_texts,
)
from millstream.contracts.serialization import NO_RECORD, DeserializationSchema, SerializationSchema
from millstream.errors import ConfigurationError, TypeMismatchError
from millstream.types.composite_types import CompositeTypeInfo
from millstream.types.row import Row
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.types.types import TypeInformation


_FORMATS: Final = {
    "date": Types.SQL_DATE,
    "time": Types.SQL_TIME,
    "date-time": Types.SQL_TIMESTAMP,
}


def type_of_json_schema(text: str) -> TypeInformation:
    """The row type that a JSON schema describes.

    Raises:
        ConfigurationError: it is no JSON schema of an object, or one that no type describes.
    """
    try:
        root = json.loads(text)
    except (TypeError, ValueError) as error:
        message = f"this is no JSON schema: {error}"
        raise ConfigurationError(message) from error
    if not isinstance(root, dict) or root.get("type") != "object":
        message = "a JSON schema of messages must be of type 'object'"
        raise ConfigurationError(message)
    return _Converter(root).convert("", root)


class _Converter:
    """Walks one schema; messages name the place in it."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        #: References that are being followed: a schema that contains itself has no type.
        self._open: list[str] = []

    def convert(self, place: str, node: Any) -> TypeInformation:
        """The type of a part of the schema."""
        if not isinstance(node, dict):
            self._refuse(place, "is no schema")
        if "$ref" in node:
            return self._referred(place, str(node["$ref"]))
        if "oneOf" in node:
            return self._one_of(place, list(node["oneOf"]))
        kinds = node.get("type")
        if isinstance(kinds, list):
            return self._one_of(place, [{**node, "type": kind} for kind in kinds])
        convert = getattr(self, f"_{kinds}", None) if isinstance(kinds, str) else None
        if convert is None:
            self._refuse(place, f"is of type {kinds!r}")
        found: TypeInformation = convert(place, node)
        return found

    def _refuse(self, place: str, reason: str) -> NoReturn:
        message = f"the JSON schema has no row type: {place or 'it'} {reason}"
        raise ConfigurationError(message)

    def _referred(self, place: str, reference: str) -> TypeInformation:
        if not reference.startswith("#") or reference in self._open:
            self._refuse(place, f"refers to {reference!r}")
        node: Any = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            if step:
                node = node.get(step) if isinstance(node, dict) else None
        self._open.append(reference)
        try:
            return self.convert(place, node)
        finally:
            self._open.pop()

    def _one_of(self, place: str, nodes: list[Any]) -> TypeInformation:
        """Of two of which one is null the other; every field can be null."""
        others = [node for node in nodes if node != {"type": "null"} and node.get("type") != "null"]
        if len(others) != 1:
            self._refuse(place, "may be of several types")
        return self.convert(place, others[0])

    def _object(self, place: str, node: dict[str, Any]) -> TypeInformation:
        fields = node.get("properties")
        if not fields:
            self._refuse(place, "is an object without properties")
        types = [self.convert(f"{place}.{name}".lstrip("."), part) for name, part in fields.items()]
        return Types.ROW_NAMED(list(fields), types)

    def _array(self, place: str, node: dict[str, Any]) -> TypeInformation:
        items = node.get("items")
        if not isinstance(items, dict):
            self._refuse(place, "is an array of more than one type of items")
        return Types.OBJECT_ARRAY(self.convert(f"{place}[]", items))

    def _string(self, place: str, node: dict[str, Any]) -> TypeInformation:
        if node.get("contentEncoding") == "base64":
            self._refuse(place, "is base64; read it as a string and decode it")
        return _FORMATS.get(str(node.get("format")), Types.STRING)()

    def _number(self, place: str, node: dict[str, Any]) -> TypeInformation:
        del place, node
        return Types.BIG_DEC()

    _integer = _number

    def _boolean(self, place: str, node: dict[str, Any]) -> TypeInformation:
        del place, node
        return Types.BOOLEAN()


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
        return self._type or Types.PICKLED_BYTE_ARRAY()

    def deserialize(self, message: bytes) -> object:
        record = self._decode(message)
        if self._type is None:
            return record
        columns = columns_of(self._type)
        batch = pa.RecordBatch.from_pylist([record], schema=columns)
        return self._type.from_arrow(batch)[0]

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        if self._type is None:
            return None
        try:
            records = list(map(self._decode, messages))
            return pa.RecordBatch.from_pylist(records, schema=columns_of(self._type))
        except (ValueError, TypeError, pa.ArrowException):
            return None

    def _decode(self, message: bytes) -> dict[str, Any]:
        return decoded_record(message, self._parsed, "schema")


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


_LINE_DELIMITERS: Final = ("", "\n", "\r", "\r\n")
_ARRAY_DELIMITER: Final = ";"


class _Lines(CsvFormat):
    """The reader of files, given lines without a header."""

    def read_lines(self, block: bytes, *, multi_line: bool) -> pa.Table:
        """The rows; an empty line is a row of one empty value."""
        parse_options = self._parse_options(multi_line=multi_line)
        parse_options.ignore_empty_lines = False
        return self._table_reader(columns_of(self.produced_type).names, parse_options)(block)


class CsvRowDeserializationSchema(RowDeserialization):
    """Messages that are one line of CSV each, columns by position.

    Args:
        type_info: the row type.
        delimiter: between values.
        quote: around values that hold special characters; None: quotes are ordinary characters.
        options: all of that and more; goes before the two.
        ignore_parse_errors: whether messages that do not parse are passed over.
    """

    def __init__(
        self,
        type_info: SchemaLike,
        delimiter: str = ",",
        quote: str | None = '"',
        *,
        options: CsvOptions | None = None,
        ignore_parse_errors: bool = False,
    ) -> None:
        super().__init__(type_info, ignore_parse_errors=ignore_parse_errors)
        given = options or CsvOptions(delimiter=delimiter, quote=quote)
        self._comments = given.comments
        self._lines = _Lines(self._type, options=replace(given, header=False, multi_line=False))

    class Builder:
        """Builds a CsvRowDeserializationSchema, as PyFlink's."""

        def __init__(self, type_info: SchemaLike) -> None:
            self._type = type_info
            self._options = CsvOptions()
            self._array_delimiter = _ARRAY_DELIMITER
            self._ignore_parse_errors = False

        def set_field_delimiter(self, delimiter: str) -> Self:
            """Set what is between values: one character."""
            delimiter = single_character(delimiter, "field delimiter")
            self._options = replace(self._options, delimiter=delimiter)
            return self

        def set_allow_comments(self, allow_comments: bool) -> Self:  # noqa: FBT001 - PyFlink's
            """Set whether messages that begin with ``#`` are passed over."""
            self._options = replace(self._options, comments=allow_comments)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> Self:
            """Set what is between the elements of lists, ``;`` unless set."""
            self._array_delimiter = delimiter
            return self

        def set_quote_character(self, c: str) -> Self:
            """Set what is around values that hold special characters."""
            self._options = replace(self._options, quote=single_character(c, "quote character"))
            return self

        def disable_quote_character(self) -> Self:
            """Let quotes be ordinary characters."""
            self._options = replace(self._options, quote=None)
            return self

        def set_escape_character(self, c: str) -> Self:
            """Set what takes the meaning from the next character."""
            self._options = replace(self._options, escape=single_character(c, "escape character"))
            return self

        def set_null_literal(self, null_literal: str) -> Self:
            """Set the text that means null, if it does not stand in quotes."""
            self._options = replace(
                self._options,
                null_values=(null_literal,),
                null_strings=True,
                null_in_quotes=False,
            )
            return self

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> Self:  # noqa: FBT001 - PyFlink's
            """Set whether messages that do not parse are passed over."""
            self._ignore_parse_errors = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """The schema."""
            names = columns_of(type_of_schema(self._type)).names
            separators = dict.fromkeys(names, self._array_delimiter)
            return CsvRowDeserializationSchema(
                self._type,
                options=replace(self._options, array_separators=separators),
                ignore_parse_errors=self._ignore_parse_errors,
            )

    def deserialize(self, message: bytes) -> object:
        if self._comments and message.startswith(b"#"):
            return NO_RECORD
        return super().deserialize(message)

    def _read(self, block: bytes, breaks: int) -> pa.Table:
        if block.count(b"\n") != breaks and breaks:
            message = "a message has several lines"
            raise ValueError(message)
        if self._comments and (block.startswith(b"#") or b"\n#" in block):
            message = "a message is a comment"
            raise ValueError(message)
        if not breaks:
            block = block.removesuffix(b"\n").removesuffix(b"\r")
        return self._lines.read_lines(block + b"\n", multi_line=not breaks)


@dataclass(frozen=True)
class _Characters:
    """How a line is written."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null: str = ""
    #: None: lists are written as JSON.
    array_delimiter: str | None = None
    line_delimiter: str = ""

    @property
    def special(self) -> str:
        """A regular expression of what cannot stand without quotes."""
        given = [self.delimiter, self.quote, self.escape, "\r", "\n"]
        special = "[" + "".join(re.escape(char) for char in given if char) + "]"
        # In quotes it is not null.
        return special + (f"|^{re.escape(self.null)}$" if self.null else "")


class CsvRowSerializationSchema(SerializationSchema):
    """Records as lines of CSV without a header and, unless set, without a line break.

    Args:
        delimiter: between values.
        characters: all that and more; made by the builder.
        type_info: the row type, whose fields are the columns; None: that of the stream.
    """

    def __init__(
        self,
        delimiter: str = ",",
        characters: _Characters | None = None,
        type_info: TypeInformation | None = None,
    ) -> None:
        self._type = type_info
        self._characters = characters or _Characters(delimiter)
        self._search: Callable[[str], object] = re.compile(self._characters.special).search

    class Builder:
        """Builds a CsvRowSerializationSchema, as PyFlink's."""

        def __init__(self, type_info: TypeInformation) -> None:
            self._type = type_of_schema(type_info)
            self._characters = _Characters(array_delimiter=_ARRAY_DELIMITER)

        def set_field_delimiter(self, c: str) -> Self:
            """Set what is between values: one character."""
            return self._set(delimiter=single_character(c, "field delimiter"))

        def set_line_delimiter(self, delimiter: str) -> Self:
            r"""Set what is after the last value: nothing (as unless set) or a line break."""
            if delimiter not in _LINE_DELIMITERS:
                message = f"the line delimiter must be a line break or nothing, not {delimiter!r}"
                raise ConfigurationError(message)
            return self._set(line_delimiter=delimiter)

        def set_array_element_delimiter(self, delimiter: str) -> Self:
            """Set what is between the elements of lists, ``;`` unless set."""
            return self._set(array_delimiter=delimiter)

        def disable_quote_character(self) -> Self:
            """Write no quotes; values that need them are refused, or escaped if that is set."""
            return self._set(quote=None)

        def set_quote_character(self, c: str) -> Self:
            """Set what is around values that hold special characters."""
            return self._set(quote=single_character(c, "quote character"))

        def set_escape_character(self, c: str) -> Self:
            """Set what goes before quotes within quotes, which are doubled unless it is set."""
            return self._set(escape=single_character(c, "escape character"))

        def set_null_literal(self, s: str) -> Self:
            """Set the text that is written for null, the empty one unless set."""
            return self._set(null=s)

        def _set(self, **values: str | None) -> Self:
            self._characters = replace(self._characters, **values)  # type: ignore[arg-type]
            return self

        def build(self) -> CsvRowSerializationSchema:
            """The schema.

            Raises:
                ConfigurationError: two characters with a meaning are the same.
            """
            chosen = self._characters
            given = [c for c in (chosen.delimiter, chosen.quote, chosen.escape) if c is not None]
            if len(set(given)) < len(given):
                message = f"the characters of CSV must differ: {', '.join(map(repr, given))}"
                raise ConfigurationError(message)
            return CsvRowSerializationSchema(characters=chosen, type_info=self._type)

    def serialize(self, element: object) -> bytes:
        """One line; raises ValueError for a value that cannot be written without quotes."""
        if self._type is None:
            return self._line(named_values(element).values())
        return self._line(with_names(element, self._type).values())

    def serialize_columns(self, batch: pa.RecordBatch) -> list[bytes]:
        """All lines, values in the order of the columns."""
        if self._type is not None:
            names = columns_of(self._type).names
            if set(names) == set(batch.schema.names):
                batch = batch.select(names)
        columns = [column.to_pylist() for column in batch.columns]
        return [self._line(values) for values in zip(*columns, strict=True)]

    def _line(self, values: Iterable[object]) -> bytes:
        chosen = self._characters
        cells = [self._cell(value) for value in values]
        if chosen.quote and (cells == [""] or cells[0].startswith("#")):
            # To some readers an empty line is no record, and this a comment.
            cells[0] = self._quoted(cells[0])
        return (chosen.delimiter.join(cells) + chosen.line_delimiter).encode()

    def _cell(self, value: Any) -> str:
        if value is None:
            return self._characters.null
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list | tuple) and self._characters.array_delimiter is not None:
            text = self._characters.array_delimiter.join(map(self._plain, value))
        else:
            text = self._plain(value)
        return self._quoted(text) if self._search(text) else text

    def _plain(self, value: object) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if value is None:
            return self._characters.null
        return json_text(value) if isinstance(value, dict | list | tuple) else str(value)

    def _quoted(self, text: str) -> str:
        quote, escape = self._characters.quote, self._characters.escape
        if quote is not None and escape is None:
            return f"{quote}{text.replace(quote, quote * 2)}{quote}"
        if escape is not None:
            text = text.replace(escape, escape * 2)
            if quote is not None:
                return f"{quote}{text.replace(quote, escape + quote)}{quote}"
            escaped = text.replace(self._characters.delimiter, escape + self._characters.delimiter)
            if not re.search(r"[\r\n]", escaped) and escaped != self._characters.null:
                return escaped
        message = f"the value {text!r:.100} needs quotes, which are disabled"
        raise ValueError(message)
