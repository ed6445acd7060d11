"""JSON objects as rows of logical types, and back, as Flink's format ``json``.

What it is: Flink's conversions.  A text may stand for a number and a number for a text; times are
texts of a standard; with ``ignore-parse-errors`` a field that does not fit is NULL and a message
that is no JSON is left away.  Messages of plain types are read by pyarrow together, as long as
they are what it takes.
What it is not: formats of changes (``connectors/formats/tables/change_json.py``).

Read next: ``connectors/formats/tables/texts.py``, ``connectors/formats/json_columns.py``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.connectors.formats.json_columns import JsonColumns
from millstream.connectors.formats.schema import row_type_of
from millstream.connectors.formats.tables.codec import (
    INSERT,
    RowDecoder,
    RowEncoder,
    arrow_schema,
)
from millstream.connectors.formats.tables.json_texts import plain_columns, row_texts
from millstream.connectors.formats.tables.text_columns import array_of_texts
from millstream.connectors.formats.tables.texts import INTEGER_BITS, integer, text_parser
from millstream.errors import ValidationError
from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.types.text_values import double_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from millstream.connectors.formats.tables.json_options import JsonOptions
    from millstream.types.logical_types import LogicalType

__all__ = [
    "JsonRowDecoder",
    "JsonRowEncoder",
    "json_as_text",
    "parsed_json",
    "readable_fields",
    "row_reader",
    "typed_arrays",
]

_FAST = (
    BooleanType,
    TinyIntType,
    SmallIntType,
    IntType,
    BigIntType,
    FloatType,
    DoubleType,
    DecimalType,
    VarCharType,
    CharType,
)
#: Texts in JSON.
_TEXTS = (
    DateType,
    TimeType,
    TimestampType,
    LocalZonedTimestampType,
    BinaryType,
    VarBinaryType,
)
#: Converted from any number, cut; the narrower ones from texts of whole numbers alone.
_CUT = (IntType, BigIntType, YearMonthIntervalType, DayTimeIntervalType)


def _is_fast(kind: LogicalType) -> bool:
    """Whether pyarrow reads such values, those that are the usual ones."""
    if isinstance(kind, RowType):
        return bool(kind.fields) and all(map(_is_fast, kind.children))
    return _is_fast(kind.element) if isinstance(kind, ArrayType) else isinstance(kind, _FAST)


class _Real(float):
    """A number with a fraction or an exponent, and its text."""

    text: str


def _real(text: str) -> _Real:
    made = _Real(text)
    made.text = text
    return made


def _refuse(constant: str) -> Any:
    message = f"{constant} is no JSON"
    raise ValueError(message)


def parsed_json(message: bytes) -> Any:
    """A message as Python objects.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        found = json.loads(message.decode(), parse_float=_real, parse_constant=_refuse)
        return _with_whole_characters(found) if b"\\u" in message else found
    except RecursionError as error:
        reason = "it is too deep"
        raise ValueError(reason) from error


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

    def nullable(self, kind: LogicalType) -> Callable[[Any], Any]:
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

    def _plain(self, kind: LogicalType) -> Callable[[Any], Any]:
        if isinstance(kind, RowType):
            return self.row(kind)
        if isinstance(kind, ArrayType):
            return self._array(kind)
        if isinstance(kind, MapType):
            return self._map(kind, kind.key, kind.value)
        if isinstance(kind, MultisetType):
            return self._map(kind, kind.element, IntType())
        parse = text_parser(kind, iso=self._options.iso)
        if parse is None:
            message = f"the format 'json' has no {kind.as_summary_string()}"
            raise ValidationError(message)
        return self._scalar(kind, parse)

    @staticmethod
    def _scalar(kind: LogicalType, parse: Callable[[str], Any]) -> Callable[[Any], Any]:
        if isinstance(kind, BooleanType):
            return lambda node: node if isinstance(node, bool) else parse(_as_text(node))
        if isinstance(kind, CharType | VarCharType):
            return json_as_text
        if isinstance(kind, FloatType | DoubleType):
            return lambda node: float(node) if isinstance(node, _Real) else parse(_as_text(node))
        if isinstance(kind, DecimalType):
            return lambda node: parse(node.text if isinstance(node, _Real) else _as_text(node))
        if isinstance(kind, _CUT):
            bits = INTEGER_BITS[type(kind)]
            return lambda node: integer(
                str(int(node)) if isinstance(node, _Real) else _as_text(node), bits
            )
        return lambda node: parse(_as_text(node))

    def _array(self, kind: ArrayType) -> Callable[[Any], Any]:
        element = self.nullable(kind.element)

        def convert(node: Any) -> list[Any]:
            if not isinstance(node, list):
                message = f"{compact_json(node)!r:.100} is no list"
                raise ValueError(message)  # noqa: TRY004 - as all that does not parse
            return [element(each) for each in node]

        return convert

    def _map(self, kind: LogicalType, key: LogicalType, value: LogicalType) -> Callable[[Any], Any]:
        if not isinstance(key, CharType | VarCharType):
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

    def row(self, kind: RowType) -> Callable[[Any], Any]:
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


def row_reader(row: RowType, options: JsonOptions) -> Callable[[Any], dict[str, Any]]:
    """What converts a parsed object to a row.

    Raises:
        ValidationError: JSON holds no values of a type.
    """
    return _Readers(options).row(row)


def readable_fields(row: RowType) -> list[pa.Field] | None:
    """What pyarrow reads of objects for ``typed_arrays``; None: it does not read such rows."""
    if not row.fields or not all(
        _is_fast(each) or isinstance(each, _TEXTS) for each in row.children
    ):
        return None
    return [
        field.with_type(pa.string()) if isinstance(kind, _TEXTS) else field
        for field, kind in zip(arrow_schema(row), row.children, strict=True)
    ]


def typed_arrays(arrays: Sequence[pa.Array], row: RowType, *, iso: bool) -> list[pa.Array]:
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

    def __init__(self, row: RowType, options: JsonOptions) -> None:
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
        # Each begins and ends as an object, so that a row that one has too many does not stand for
        # another's that has none.
        block = b"\n".join(messages)
        if (
            self._columns is None
            or block.count(b"\n") != len(messages) - 1
            or not all(each[:1] == b"{" and each[-1:] == b"}" for each in messages)
        ):
            return None
        try:
            table = self._columns.read(block)
            if table.num_rows != len(messages):
                return None
            (batch,) = table.combine_chunks().to_batches(max_chunksize=len(messages) + 1)
            arrays = typed_arrays(batch.columns, self.row, iso=bool(self.options.iso))
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        except (ValueError, pa.ArrowException):
            return None

    def narrowed(self, row: RowType) -> RowDecoder | None:
        """Those fields alone, unless each has to be there."""
        return None if self.options.fail_on_missing_field else JsonRowDecoder(row, self.options)


class JsonRowEncoder(RowEncoder):
    """One JSON object per row.

    Raises:
        ValidationError: JSON holds no values of a column's type.
    """

    def __init__(self, row: RowType, options: JsonOptions) -> None:
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
