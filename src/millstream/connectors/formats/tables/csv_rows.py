"""Lines of CSV as rows of logical types, and back: the format ``csv`` of messages.

What it is: the reader and writer of DataStream programs with the types of a table.  With
``ignore-parse-errors`` a value that does not fit or is not there is NULL, and a message that is no
line, or one of too many values, is left away, as in Flink.
What it is not: files of CSV (``connectors/formats/csv_format.py``).

Read next: ``connectors/formats/csv_messages.py``.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from millstream.connectors.formats.csv_format import first_values
from millstream.connectors.formats.csv_messages import (
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
)
from millstream.connectors.formats.tables.codec import INSERT, RowDecoder, RowEncoder, arrow_schema
from millstream.connectors.formats.tables.text_columns import EMPTY_TEXTS, array_of_texts
from millstream.connectors.formats.tables.texts import (
    text_parser,
    time_text,
    timestamp_text,
)
from millstream.contracts.serialization import NO_RECORD
from millstream.errors import ValidationError
from millstream.types.logical_types import (
    ArrayType,
    BinaryType,
    DoubleType,
    FloatType,
    LocalZonedTimestampType,
    TimestampType,
    TimeType,
    VarBinaryType,
)
from millstream.types.text_values import double_text, float_text
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from millstream.types.logical_types import LogicalType, RowType

__all__ = ["CsvRowDecoder", "CsvRowEncoder", "CsvTableOptions", "text_columns", "typed_columns"]


@dataclass(frozen=True)
class CsvTableOptions:
    """Options of the format."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null: str | None = None
    array_delimiter: str = ";"
    comments: bool = False
    ignore_parse_errors: bool = False
    ignore_trailing_unmappable: bool = False


def text_columns(row: RowType) -> RowTypeInfo:
    """Every value as a text, lists as lists of them.

    Raises:
        ValidationError: CSV holds no values of a column's type.
    """
    kinds = []
    for each in row.fields:
        _check(each.type, each.name)
        is_list = isinstance(each.type, ArrayType)
        kinds.append(ArrowTypeInfo(pa.list_(pa.string()) if is_list else pa.string()))
    return RowTypeInfo(kinds, list(row.names))


def _check(kind: LogicalType, name: str) -> None:
    inner = kind.element if isinstance(kind, ArrayType) else kind
    if text_parser(inner) is None:
        shown = kind.as_summary_string()
        message = f"the format 'csv' has no {shown} in this release, as of column '{name}'."
        raise ValidationError(message)


_Builder = TypeVar(
    "_Builder", CsvRowDeserializationSchema.Builder, CsvRowSerializationSchema.Builder
)


def _configured(builder: _Builder, options: CsvTableOptions) -> _Builder:
    """A builder of either with the options that both have."""
    builder.set_field_delimiter(options.delimiter)
    builder.set_array_element_delimiter(options.array_delimiter)
    if options.quote is None:
        builder.disable_quote_character()
    else:
        builder.set_quote_character(options.quote)
    if options.escape is not None:
        builder.set_escape_character(options.escape)
    if options.null is not None:
        builder.set_null_literal(options.null)
    return builder


class CsvRowDecoder(RowDecoder):
    """One line per message, values by position.

    Raises:
        ValidationError: CSV holds no values of a column's type.
    """

    def __init__(self, row: RowType, options: CsvTableOptions) -> None:
        super().__init__(row)
        self._options = options
        self._width = len(row)
        builder = CsvRowDeserializationSchema.Builder(text_columns(row))
        self._lines = _configured(builder, options).set_allow_comments(options.comments).build()
        #: The columns that are read, of those that a line has.
        self._read = tuple(range(len(row)))

    def narrowed(self, row: RowType) -> RowDecoder:
        """All values of a line are told apart; those that are read are looked at."""
        made = copy(self)
        made.row = row
        made._read = tuple(self._read[self.row.index_of(name)] for name in row.names)  # noqa: SLF001
        return made

    def decode(self, message: bytes | None) -> list[tuple[int, Sequence[Any]]]:
        if message is None:
            return []
        message = self._mappable(message)
        try:
            record: Any = self._lines.deserialize(message)
        except (ValueError, pa.ArrowException) as error:
            if self._options.ignore_parse_errors:
                return self._short(message)
            raise ValueError(str(error)) from error
        return [] if record is NO_RECORD else [(INSERT, self._values(tuple(record)))]

    def _mappable(self, message: bytes) -> bytes:
        options = self._options
        if not options.ignore_trailing_unmappable:
            return message
        return first_values(message, self._width, options.delimiter, options.quote, options.escape)

    def _short(self, message: bytes) -> list[tuple[int, Sequence[Any]]]:
        """The row of a line with too few values: the others are NULL; none for other lines."""
        width = self._width
        for missing in range(1, width):
            padded = message.rstrip(b"\r\n") + self._options.delimiter.encode() * missing
            try:
                record: Any = self._lines.deserialize(padded)
            except (ValueError, pa.ArrowException):
                continue
            cells = (*tuple(record)[: width - missing], *(None,) * missing)
            return [(INSERT, self._values(cells))]
        return []

    def _values(self, cells: Sequence[Any]) -> Sequence[Any]:
        read = zip(self._read, self.row.children, strict=True)
        return [self._value(cells[at], kind) for at, kind in read]

    def _value(self, cell: Any, kind: LogicalType) -> Any:
        if cell is None:
            return None
        if isinstance(kind, ArrayType):
            return [self._value(each, kind.element) for each in cell]
        if cell == "" and not isinstance(kind, EMPTY_TEXTS):
            return None
        parse: Any = text_parser(kind)
        try:
            return parse(cell)
        except (ValueError, ArithmeticError):
            if self._options.ignore_parse_errors:
                return None
            raise

    def columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        texts = self._lines.deserialize_columns(list(map(self._mappable, messages)))
        if texts is None:
            return None
        try:
            return typed_columns(
                texts.select(self._read), self.row, lenient=self._options.ignore_parse_errors
            )
        except ValueError:
            return None


def typed_columns(texts: pa.RecordBatch, row: RowType, *, lenient: bool) -> pa.RecordBatch:
    """Columns of texts, or of lists of them, as those of a table.

    Args:
        texts: the columns.
        row: the table's.
        lenient: whether what does not parse is NULL.

    Raises:
        ValueError: a text does not parse.
    """
    arrays = [
        array_of_texts(column, kind, lenient=lenient, empty_is_null=True)
        for column, kind in zip(texts.columns, row.children, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(row))


class CsvRowEncoder(RowEncoder):
    """One line per row; arguments as of the decoder."""

    def __init__(self, row: RowType, options: CsvTableOptions) -> None:
        super().__init__(row)
        self._lines = _configured(
            CsvRowSerializationSchema.Builder(text_columns(row)), options
        ).build()

    def encode(
        self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None
    ) -> Sequence[bytes | None]:
        del kinds
        kinds_of = self.row.children
        texts = [
            pa.array([_shown(value, kind) for value in column.to_pylist()])
            if isinstance(kind, _SHOWN) and not isinstance(kind, ArrayType)
            else _shown_lists(column, kind)
            for column, kind in zip(columns.columns, kinds_of, strict=True)
        ]
        return self._lines.serialize_columns(
            pa.RecordBatch.from_arrays(texts, names=list(self.row.names))
        )


_SHOWN = (
    TimestampType,
    LocalZonedTimestampType,
    TimeType,
    BinaryType,
    VarBinaryType,
    FloatType,
    DoubleType,
)


def _shown_lists(column: pa.Array, kind: LogicalType) -> pa.Array:
    if isinstance(kind, ArrayType) and isinstance(kind.element, _SHOWN):
        rows = [
            None if value is None else [_shown(each, kind.element) for each in value]
            for value in column.to_pylist()
        ]
        return pa.array(rows, pa.list_(pa.string()))
    return column


def _shown(value: Any, kind: LogicalType) -> str | None:
    import base64

    if value is None:
        return None
    if isinstance(kind, TimeType):
        return time_text(value)
    if isinstance(kind, FloatType | DoubleType):
        return float_text(value) if isinstance(kind, FloatType) else double_text(value)
    if isinstance(kind, BinaryType | VarBinaryType):
        return base64.b64encode(value).decode("ascii")
    zoned = isinstance(kind, LocalZonedTimestampType)
    return timestamp_text(value, iso=False, zoned=zoned)
