"""JSON objects in messages: rows of PyFlink's types, and of logical types as in Flink's ``json``.

The conversions of the format ``json`` are Flink's: a text may stand for a number and a number for a
text; times are texts of a standard; with ``ignore-parse-errors`` a field that does not fit is NULL
and a message that is no JSON is dropped.  Messages of plain types are read by pyarrow together
where it reads them alike.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.formats.file_format import row_type_of, type_of_schema
from millstream.connectors.formats.json_format import (
    JsonColumns,
    few_json_texts,
    json_objects,
    json_text,
    json_texts,
    strict_json,
)
from millstream.connectors.formats.row_format import (
    INSERT,
    RowDecoder,
    RowDeserialization,
    RowEncoder,
    arrow_schema,
    named_values,
    with_names,
)
from millstream.connectors.formats.texts import (
    INTEGER_BITS,
    array_of_texts,
    integer,
    text_parser,
    time_text,
    timestamp_text,
)
from millstream.contracts.serialization import SerializationSchema
from millstream.errors import ConfigurationError, ValidationError
from millstream.types import logical_types as lt
from millstream.types.text_values import double_text, float_text
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from millstream.connectors.formats.file_format import SchemaLike
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


def _given(value: SchemaLike | None, method: str) -> SchemaLike:
    if value is None:
        message = f"call {method}(...) before build()"
        raise ConfigurationError(message)
    return value


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


# -- rows of tables --------------------------------------------------------------------------------


@dataclass(frozen=True)
class JsonOptions:
    """Options of the format."""

    fail_on_missing_field: bool = False
    ignore_parse_errors: bool = False
    #: Whether timestamps are ISO 8601; None: they are written as SQL's, and either is read.
    iso: bool | None = False
    #: FAIL, DROP or LITERAL, of keys of maps that are NULL.
    map_null_key: str = "FAIL"
    map_null_literal: str = "null"
    ignore_null_fields: bool = False


_NESTED = (lt.ArrayType, lt.MapType, lt.MultisetType, lt.RowType)
_BY_VALUE = (*_NESTED, lt.BinaryType, lt.VarBinaryType, lt.DayTimeIntervalType, lt.TimeType)
_INSTANTS = (lt.TimestampType, lt.LocalZonedTimestampType)


def _has_not_finite(column: pa.Array) -> bool:
    return bool(pc.any(pc.invert(pc.is_finite(column))).as_py())


def plain_columns(
    columns: pa.RecordBatch, row: lt.RowType, *, iso: bool = False
) -> list[str] | None:
    """Return a JSON object per row, made by column; None: a column has to be written by row."""
    made = []
    for kind, column in zip(row.children, columns.columns, strict=True):
        if isinstance(kind, _BY_VALUE):
            return None
        if isinstance(kind, lt.FloatType | lt.DoubleType) and _has_not_finite(column):
            return None
        is_zoned = isinstance(kind, lt.LocalZonedTimestampType)
        is_instant = isinstance(kind, _INSTANTS)
        made.append(_instants(column, iso=iso, zoned=is_zoned) if is_instant else column)
    lines: list[str] = json_objects(row.names, made, columns.num_rows).to_pylist()
    return lines


def _instants(column: pa.Array, *, iso: bool, zoned: bool) -> pa.Array:
    if zoned:
        column = column.cast(pa.timestamp(column.type.unit))
    texts = column.cast(pa.string())
    texts = pc.replace_substring_regex(texts, r"(\.[0-9]*?)0+$", r"\1")
    texts = pc.replace_substring_regex(texts, r"\.$", "")
    if iso:
        texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
    return pc.binary_join_element_wise(texts, pa.scalar("Z"), "") if zoned else texts


def row_texts(columns: pa.RecordBatch, row: lt.RowType, options: JsonOptions) -> list[str]:
    """A JSON object per row."""
    writer = _Writer(options)
    values = [_values(columns.column(index), each.type) for index, each in enumerate(row.fields)]
    names = row.names
    return [writer.fields(names, cells, row.children) for cells in zip(*values, strict=True)]


def cells_as_json(column: pa.Array, kind: lt.LogicalType, options: JsonOptions) -> list[str]:
    """Return the values of a column, each as JSON."""
    writer = _Writer(options)
    return [writer.text(value, kind) for value in _values(column, kind)]


def _values(column: pa.Array, kind: lt.LogicalType) -> list[Any]:
    if isinstance(kind, lt.DayTimeIntervalType):
        column = column.cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found


class _Writer:
    """Writes values as pyarrow gives them."""

    def __init__(self, options: JsonOptions) -> None:
        self._options = options

    def fields(self, names: Any, values: Any, kinds: Any) -> str:
        """An object of these fields."""
        parts = [
            f"{json.dumps(name, ensure_ascii=False)}:{self.text(value, kind)}"
            for name, value, kind in zip(names, values, kinds, strict=True)
            if value is not None or not self._options.ignore_null_fields
        ]
        return "{" + ",".join(parts) + "}"

    def text(self, value: Any, kind: lt.LogicalType) -> str:  # noqa: C901, PLR0911 - a table
        """A value as JSON."""
        if value is None:
            return "null"
        if isinstance(kind, lt.RowType):
            return self.fields(kind.names, [value[name] for name in kind.names], kind.children)
        if isinstance(kind, lt.ArrayType):
            return "[" + ",".join(self.text(each, kind.element) for each in value) + "]"
        if isinstance(kind, lt.MapType | lt.MultisetType):
            return self._map(value, kind)
        if isinstance(kind, _INSTANTS):
            iso, zoned = bool(self._options.iso), isinstance(kind, lt.LocalZonedTimestampType)
            return f'"{timestamp_text(value, iso=iso, zoned=zoned)}"'
        if isinstance(kind, lt.TimeType):
            return f'"{time_text(value)}"'
        if isinstance(kind, lt.DateType):
            return f'"{value.isoformat()}"'
        if isinstance(kind, lt.BinaryType | lt.VarBinaryType):
            return f'"{base64.b64encode(value).decode("ascii")}"'
        if isinstance(kind, lt.DecimalType):
            return f"{Decimal(value):f}"
        if isinstance(kind, lt.FloatType | lt.DoubleType):
            return _real_text(value, kind)
        return json.dumps(value, ensure_ascii=False)

    def _map(self, value: Any, kind: lt.MapType | lt.MultisetType) -> str:
        values = kind.value if isinstance(kind, lt.MapType) else None
        parts: dict[str, str] = {}
        for key, each in value:
            name = key
            if key is None:
                if self._options.map_null_key == "DROP":
                    continue
                if self._options.map_null_key == "FAIL":
                    message = (
                        "JSON format doesn't support to serialize map data with null keys. You "
                        "can drop null key entries or encode null in literals by specifying "
                        "map-null-key.mode option."
                    )
                    raise ValueError(message)
                name = self._options.map_null_literal
            text = str(each) if values is None else self.text(each, values)
            parts[json.dumps(name, ensure_ascii=False)] = text
        return "{" + ",".join(f"{name}:{text}" for name, text in parts.items()) + "}"


def _real_text(value: float, kind: lt.LogicalType) -> str:
    text = float_text(value) if isinstance(kind, lt.FloatType) else double_text(value)
    return f'"{text}"' if text.lstrip("-") in {"NaN", "Infinity"} else text


_FAST = (
    lt.BooleanType,
    lt.TinyIntType,
    lt.SmallIntType,
    lt.IntType,
    lt.BigIntType,
    lt.FloatType,
    lt.DoubleType,
    lt.DecimalType,
    lt.VarCharType,
    lt.CharType,
)
#: Texts in JSON.
_TEXTS = (
    lt.DateType,
    lt.TimeType,
    lt.TimestampType,
    lt.LocalZonedTimestampType,
    lt.BinaryType,
    lt.VarBinaryType,
)
#: Converted from any number, cut; the narrower ones from texts of whole numbers alone.
_CUT = (lt.IntType, lt.BigIntType, lt.YearMonthIntervalType, lt.DayTimeIntervalType)


def _is_fast(kind: lt.LogicalType) -> bool:
    """Return whether pyarrow reads such values, those that are the usual ones."""
    if isinstance(kind, lt.RowType):
        return bool(kind.fields) and all(map(_is_fast, kind.children))
    return _is_fast(kind.element) if isinstance(kind, lt.ArrayType) else isinstance(kind, _FAST)


class _Real(float):
    """A number with a fraction or an exponent, and its text."""

    text: str


def _real(text: str) -> _Real:
    made = _Real(text)
    made.text = text
    return made


def parsed_json(message: bytes) -> Any:
    """A message as Python objects.

    Raises:
        ValueError: it is no JSON.
    """
    found = strict_json(message.decode(), parse_float=_real)
    return _with_whole_characters(found) if b"\\u" in message else found


def _with_whole_characters(node: Any) -> Any:
    """With a question mark for each half of a surrogate pair, as Java writes it as UTF-8."""
    if isinstance(node, str):
        return node if node.isascii() else node.encode(errors="replace").decode()
    if isinstance(node, dict):
        return {
            _with_whole_characters(name): _with_whole_characters(each)
            for name, each in node.items()
        }
    return [_with_whole_characters(each) for each in node] if isinstance(node, list) else node


def compact_json(node: Any) -> str:
    """An object or a list as JSON without blanks."""
    if isinstance(node, dict):
        parts = (f"{json.dumps(k, ensure_ascii=False)}:{compact_json(v)}" for k, v in node.items())
        return "{" + ",".join(parts) + "}"
    if isinstance(node, list):
        return "[" + ",".join(map(compact_json, node)) + "]"
    if isinstance(node, _Real):
        return double_text(node)
    return json.dumps(node, ensure_ascii=False)


def json_as_text(node: Any) -> str:
    """A value as Java shows it, an object or a list as JSON."""
    return compact_json(node) if isinstance(node, dict | list) else _as_text(node)


def _as_text(node: Any) -> str:
    """A value that is no list or object as Java shows it; empty for those that are."""
    if isinstance(node, str):
        return node
    if isinstance(node, bool):
        return "true" if node else "false"
    if isinstance(node, _Real):
        return double_text(node)
    return str(node) if isinstance(node, int) else ""


class _Readers:
    """Makes what converts parsed JSON to values of a type."""

    def __init__(self, options: JsonOptions) -> None:
        self._options = options

    def nullable(self, kind: lt.LogicalType) -> Callable[[Any], Any]:
        """With NULL for null, and for what does not fit if that is to be ignored."""
        convert = self._plain(kind)
        if not self._options.ignore_parse_errors:
            return lambda node: None if node is None else convert(node)

        def guarded(node: Any) -> Any:
            if node is None:
                return None
            try:
                return convert(node)
            except (ValueError, ArithmeticError):
                return None

        return guarded

    def _plain(self, kind: lt.LogicalType) -> Callable[[Any], Any]:
        if isinstance(kind, lt.RowType):
            return self.row(kind)
        if isinstance(kind, lt.ArrayType):
            return self._array(kind)
        if isinstance(kind, lt.MapType):
            return self._map(kind, kind.key, kind.value)
        if isinstance(kind, lt.MultisetType):
            return self._map(kind, kind.element, lt.IntType())
        parse = text_parser(kind, iso=self._options.iso)
        if parse is None:
            message = f"the format 'json' has no {kind.as_summary_string()}"
            raise ValidationError(message)
        return self._scalar(kind, parse)

    @staticmethod
    def _scalar(kind: lt.LogicalType, parse: Callable[[str], Any]) -> Callable[[Any], Any]:
        if isinstance(kind, lt.BooleanType):
            return lambda node: node if isinstance(node, bool) else parse(_as_text(node))
        if isinstance(kind, lt.CharType | lt.VarCharType):
            return json_as_text
        if isinstance(kind, lt.FloatType | lt.DoubleType):
            return lambda node: float(node) if isinstance(node, _Real) else parse(_as_text(node))
        if isinstance(kind, lt.DecimalType):
            return lambda node: parse(node.text if isinstance(node, _Real) else _as_text(node))
        if isinstance(kind, _CUT):
            bits = INTEGER_BITS[type(kind)]
            return lambda node: integer(
                str(int(node)) if isinstance(node, _Real) else _as_text(node), bits
            )
        return lambda node: parse(_as_text(node))

    def _array(self, kind: lt.ArrayType) -> Callable[[Any], Any]:
        element = self.nullable(kind.element)

        def convert(node: Any) -> list[Any]:
            if not isinstance(node, list):
                message = f"{compact_json(node)!r:.100} is no list"
                raise ValueError(message)  # noqa: TRY004 - as all that does not parse
            return [element(each) for each in node]

        return convert

    def _map(
        self, kind: lt.LogicalType, key: lt.LogicalType, value: lt.LogicalType
    ) -> Callable[[Any], Any]:
        if not isinstance(key, lt.CharType | lt.VarCharType):
            message = (
                "JSON format doesn't support non-string as key type of map. The type is: "
                f"{kind.as_summary_string()}"
            )
            raise ValidationError(message)
        convert_value = self.nullable(value)

        def convert(node: Any) -> list[tuple[str, Any]]:
            if not isinstance(node, dict):
                message = f"{compact_json(node)!r:.100} is no object"
                raise ValueError(message)  # noqa: TRY004 - as all that does not parse
            return [(name, convert_value(each)) for name, each in node.items()]

        return convert

    def row(self, kind: lt.RowType) -> Callable[[Any], Any]:
        """A row, as a dict with the names of the type."""
        fields = [(each.name, self.nullable(each.type)) for each in kind.fields]
        required = self._options.fail_on_missing_field

        def convert(node: Any) -> dict[str, Any]:
            if not isinstance(node, dict):
                message = f"{compact_json(node)!r:.100} is no JSON object"
                raise ValueError(message)  # noqa: TRY004 - as all that does not parse
            if required:
                for name, _ in fields:
                    if name not in node:
                        message = f"Could not find field with name '{name}'."
                        raise ValueError(message)
            return {name: read(node.get(name)) for name, read in fields}

        return convert


def row_reader(row: lt.RowType, options: JsonOptions) -> Callable[[Any], dict[str, Any]]:
    """Return what converts a parsed object to a row.

    Raises:
        ValidationError: JSON holds no values of a type.
    """
    return _Readers(options).row(row)


def readable_fields(row: lt.RowType) -> list[pa.Field] | None:
    """Return what pyarrow reads of objects for ``typed_arrays``.

    None: it does not read such rows.
    """
    if not row.fields or not all(
        _is_fast(each) or isinstance(each, _TEXTS) for each in row.children
    ):
        return None
    return [
        field.with_type(pa.string()) if isinstance(kind, _TEXTS) else field
        for field, kind in zip(arrow_schema(row), row.children, strict=True)
    ]


def typed_arrays(arrays: Sequence[pa.Array], row: lt.RowType, *, iso: bool) -> list[pa.Array]:
    """The columns of a row, of what was read as ``readable_fields``.

    Raises:
        ValueError: a text does not parse.
    """
    return [
        array_of_texts(each, kind, iso=iso) if isinstance(kind, _TEXTS) else each
        for each, kind in zip(arrays, row.children, strict=True)
    ]


class JsonRowDecoder(RowDecoder):
    """One JSON object per message.

    Raises:
        ValidationError: JSON holds no values of a column's type.
    """

    def __init__(self, row: lt.RowType, options: JsonOptions) -> None:
        super().__init__(row)
        self.options = options
        self._schema = arrow_schema(row)
        row_reader(row, options)
        self._reader: Callable[[Any], dict[str, Any]] | None = None
        self._columns: JsonColumns | None = None
        fields = None if options.fail_on_missing_field else readable_fields(row)
        if fields is not None:
            self._columns = JsonColumns(row_type_of(pa.schema(fields)), texts=True)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made of closures."""
        return self.__dict__ | {"_reader": None}

    def decode(self, message: bytes | None) -> list[tuple[int, Sequence[Any]]]:
        if message is None:
            return []
        if self._reader is None:
            self._reader = row_reader(self.row, self.options)
        try:
            return [(INSERT, tuple(self._reader(parsed_json(message)).values()))]
        except ValueError:
            if self.options.ignore_parse_errors:
                return []
            raise

    def columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        table = None if self._columns is None else self._columns.read_messages(messages)
        if table is None:
            return None
        (batch,) = table.to_batches(max_chunksize=len(messages) + 1)
        try:
            arrays = typed_arrays(batch.columns, self.row, iso=bool(self.options.iso))
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        except (ValueError, pa.ArrowException):
            return None

    def narrowed(self, row: lt.RowType) -> RowDecoder | None:
        """Those fields alone, unless each has to be there."""
        return None if self.options.fail_on_missing_field else JsonRowDecoder(row, self.options)


class JsonRowEncoder(RowEncoder):
    """One JSON object per row.

    Raises:
        ValidationError: JSON holds no values of a column's type.
    """

    def __init__(self, row: lt.RowType, options: JsonOptions) -> None:
        super().__init__(row)
        self._options = options
        row_reader(row, options)

    def encode(
        self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None
    ) -> Sequence[bytes | None]:
        del kinds
        return [text.encode() for text in self.texts(columns)]

    def texts(self, columns: pa.RecordBatch) -> list[str]:
        """A JSON object per row."""
        found = None
        if not self._options.ignore_null_fields:
            found = plain_columns(columns, self.row, iso=bool(self._options.iso))
        if found is not None:
            return found
        return row_texts(columns, self.row, self._options)
