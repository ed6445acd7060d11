"""The format ``csv`` of messages: lines of CSV as rows of logical types, and back.

With ``ignore-parse-errors`` a value that does not fit or is missing is NULL, and a message that is
no line, or one of too many values, is dropped, as in Flink.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from millstream.connectors.formats.csv_format import CsvFormat, CsvOptions, first_values
from millstream.connectors.formats.file_format import MalformedPolicy
from millstream.connectors.formats.line_format import FaultyRecord
from millstream.connectors.formats.message_formats import (
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
)
from millstream.connectors.formats.tables.codec import (
    INSERT,
    RowDecoder,
    RowEncoder,
    arrow_schema,
    row_of_columns,
)
from millstream.connectors.formats.tables.texts import (
    EMPTY_TEXTS,
    array_of_texts,
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
    from collections.abc import Callable, Collection, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from millstream.types.logical_types import LogicalType, RowType


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
        """All values of a line are distinguished; those that are read are looked at."""
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


class CsvTableFormat(CsvFormat):
    """Rows of a table in files without a header.

    Args:
        row: the table.
        options: the table's.
        read: names of the columns that are wanted; None: all.
        advice: what to do about a malformed record; empty: that of files without a table.

    Raises:
        ValidationError: CSV holds no values of a column's type.
    """

    def __init__(
        self,
        row: RowType,
        options: CsvTableOptions,
        read: Collection[str] | None = None,
        advice: str = "",
    ) -> None:
        self._advice = advice
        whole, row = row, row if read is None else row_of_columns(row, read)
        schema = arrow_schema(row)
        lenient = options.ignore_parse_errors
        policy = MalformedPolicy.DEAD_LETTER if lenient else MalformedPolicy.FAIL
        chosen = CsvOptions(
            delimiter=options.delimiter,
            quote=options.quote,
            escape=options.escape,
            header=False,
            null_values=None if options.null is None else (options.null,),
            comments=options.comments,
            ignore_trailing=options.ignore_trailing_unmappable,
            array_separators=dict.fromkeys(whole.names, options.array_delimiter),
        )
        kinds = [ArrowTypeInfo(field.type) for field in schema]
        super().__init__(RowTypeInfo(kinds, list(row.names)), policy, chosen)
        self._row = row
        self._lenient = lenient
        self._texts = CsvFormat(text_columns(row), policy, chosen)
        self._texts.file_columns = list(whole.names)
        #: All columns, for records that are looked at one by one; None: those are read anyway.
        self._whole = None if row == whole else CsvFormat(text_columns(whole), policy, chosen)

    @property
    def advice(self) -> str:
        return self._advice or super().advice

    def parser(self, path: str, header: bytes) -> Callable[[bytes], pa.Table]:
        self._texts.multi_line = self.multi_line
        parse = self._texts.parser(path, header)

        def typed(block: bytes) -> pa.Table:
            batches = parse(block).combine_chunks().to_batches()
            schema = arrow_schema(self._row)
            typed = [typed_columns(each, self._row, lenient=self._lenient) for each in batches]
            return pa.Table.from_batches(typed, schema)

        return typed

    def _parse_one(
        self, parse: Callable[[bytes], pa.Table], record: bytes, offset: int, reason: str
    ) -> Iterator[pa.Table | FaultyRecord]:
        problem = self._problem_of_whole(record)
        if problem is not None:
            yield FaultyRecord(offset, record, problem)
            return
        for outcome in super()._parse_one(parse, record, offset, reason):
            made = None
            if isinstance(outcome, FaultyRecord):
                made = self._without_last_delimiter(parse, record)
                if made is None and self._lenient:
                    made = self._short(parse, record)
            yield outcome if made is None else made

    def _problem_of_whole(self, record: bytes) -> str | None:
        """What is wrong with a record that a look at the columns that are read does not show."""
        if self._whole is None:
            return None
        self._whole.multi_line = self.multi_line
        try:
            table = self._whole.parser("", b"")(record)
        except (ValueError, pa.ArrowException):
            return None  # so do those that are read
        return self.problem_of_row(table) if table.num_rows == 1 else None

    def _without_last_delimiter(
        self, parse: Callable[[bytes], pa.Table], record: bytes
    ) -> pa.Table | None:
        """Return the row of a record that ends with a delimiter; None: it is another."""
        text = record.rstrip(b"\r\n")
        if not text.endswith(self.options.delimiter.encode()):
            return None
        try:
            table = parse(text[:-1])
        except (ValueError, pa.ArrowException):
            return None
        return table if table.num_rows == 1 and self.problem_of_row(table) is None else None

    def _short(self, parse: Callable[[bytes], pa.Table], record: bytes) -> pa.Table | None:
        """The row of a record with too few values, whose others are NULL; None: it is another."""
        names = self._texts.file_columns or []
        for missing in range(1, len(names)):
            padded = record.rstrip(b"\r\n") + self.options.delimiter.encode() * missing
            try:
                table = parse(padded)
            except (ValueError, pa.ArrowException):
                continue
            if table.num_rows == 1 and self.problem_of_row(table) is None:
                gone = names[-missing:]
                columns = [
                    pa.nulls(1, field.type) if field.name in gone else column
                    for column, field in zip(table.columns, table.schema, strict=True)
                ]
                return pa.Table.from_arrays(columns, schema=table.schema)
        return None
