"""Lines of CSV as rows: messages by PyFlink's types, and messages and files of tables.

With ``ignore-parse-errors`` a value that does not fit or is missing is NULL, and a message that is
no line, or one of too many values, is dropped, as in Flink.
"""

from __future__ import annotations

import base64
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from millstream.connectors.formats.csv_format import (
    CsvFormat,
    CsvOptions,
    CsvText,
    first_values,
    single_character,
)
from millstream.connectors.formats.file_format import (
    MalformedPolicy,
    SchemaLike,
    columns_of,
    rows_of_columns,
    type_of_schema,
)
from millstream.connectors.formats.line_format import FaultyRecord
from millstream.connectors.formats.row_format import (
    INSERT,
    RowDecoder,
    RowDeserialization,
    RowEncoder,
    arrow_schema,
    named_values,
    row_of_columns,
    with_names,
)
from millstream.connectors.formats.texts import (
    EMPTY_TEXTS,
    array_of_texts,
    text_parser,
    time_text,
    timestamp_text,
)
from millstream.contracts.serialization import NO_RECORD, SerializationSchema
from millstream.errors import ConfigurationError, ValidationError
from millstream.types import logical_types as lt
from millstream.types.text_values import double_text, float_text, short_decimal_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from millstream.types.types import RowTypeInfo, TypeInformation


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


class CsvRowSerializationSchema(SerializationSchema):
    """Records as lines of CSV without a header and, unless set, without a line break.

    Args:
        delimiter: between values.
        text: all that and more; made by the builder.
        type_info: the row type, whose fields are the columns; None: that of the stream.
    """

    def __init__(
        self,
        delimiter: str = ",",
        text: CsvText | None = None,
        type_info: TypeInformation | None = None,
    ) -> None:
        self._type = type_info
        self._text = text or CsvText(delimiter, early=True)

    class Builder:
        """Builds a CsvRowSerializationSchema, as PyFlink's."""

        def __init__(self, type_info: TypeInformation) -> None:
            self._type = type_of_schema(type_info)
            self._text = CsvText(array_delimiter=_ARRAY_DELIMITER, early=True)

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
            self._text = replace(self._text, **values)  # type: ignore[arg-type]
            return self

        def build(self) -> CsvRowSerializationSchema:
            """The schema.

            Raises:
                ConfigurationError: two characters with a meaning are the same.
            """
            return CsvRowSerializationSchema(text=self._text.checked(), type_info=self._type)

    def serialize(self, element: object) -> bytes:
        """One line; raises ValueError for a value that cannot be written without quotes."""
        record = named_values(element) if self._type is None else with_names(element, self._type)
        return self._text.line(record.values()).encode()

    def serialize_columns(self, batch: pa.RecordBatch, bare: Collection[int] = ()) -> list[bytes]:
        """All lines, values in the order of the columns; ``bare``: see ``CsvText.lines``."""
        if self._type is not None:
            names = columns_of(self._type).names
            if set(names) == set(batch.schema.names):
                batch = batch.select(names)
        made: list[bytes] = self._text.lines(batch.columns, bare).cast(pa.binary()).to_pylist()
        return made


# -- rows of tables --------------------------------------------------------------------------------


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
    #: Whether decimals may be written with an exponent.
    scientific_decimals: bool = True

    def reading(self, names: Sequence[str], *, null_in_quotes: bool) -> CsvOptions:
        """How lines of these columns are read."""
        return CsvOptions(
            delimiter=self.delimiter,
            quote=self.quote,
            escape=self.escape,
            header=False,
            null_values=None if self.null is None else (self.null,),
            null_in_quotes=null_in_quotes,
            comments=self.comments,
            ignore_trailing=self.ignore_trailing_unmappable,
            array_separators=dict.fromkeys(names, self.array_delimiter),
        )

    def writing(self) -> CsvText:
        """How lines are written."""
        null = self.null or ""
        text = CsvText(
            self.delimiter, self.quote, self.escape, null, self.array_delimiter, early=True
        )
        return text.checked()


def text_columns(row: lt.RowType) -> RowTypeInfo:
    """Every value as a text, lists as lists of them.

    Raises:
        ValidationError: CSV holds no values of a column's type.
    """
    fields = []
    for name, kind in zip(row.names, row.children, strict=True):
        is_list = isinstance(kind, lt.ArrayType)
        if text_parser(kind.element if isinstance(kind, lt.ArrayType) else kind) is None:
            shown = kind.as_summary_string()
            message = f"the format 'csv' has no {shown} in this release, as of column '{name}'."
            raise ValidationError(message)
        fields.append((name, pa.list_(pa.string()) if is_list else pa.string()))
    return rows_of_columns(pa.schema(fields))


def typed_columns(texts: pa.RecordBatch, row: lt.RowType, *, lenient: bool) -> pa.RecordBatch:
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


def _padded(
    parse: Callable[[bytes], Any], record: bytes, delimiter: str, width: int
) -> tuple[Any, int]:
    """Return what a record parses as once it has all values, and how many it lacks.

    None: it does not.
    """
    for missing in range(1, width):
        try:
            return parse(record.rstrip(b"\r\n") + delimiter.encode() * missing), missing
        except (ValueError, pa.ArrowException):
            continue
    return None, 0


class CsvRowDecoder(RowDecoder):
    """One line per message, values by position.

    Raises:
        ValidationError: CSV holds no values of a column's type.
    """

    def __init__(self, row: lt.RowType, options: CsvTableOptions) -> None:
        super().__init__(row)
        self._options = options
        self._width = len(row)
        self._lines = CsvRowDeserializationSchema(
            text_columns(row), options=options.reading(row.names, null_in_quotes=False)
        )
        #: The columns that are read, of those that a line has.
        self._read = tuple(range(len(row)))

    def narrowed(self, row: lt.RowType) -> RowDecoder:
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
        delimiter = self._options.delimiter
        record, missing = _padded(self._lines.deserialize, message, delimiter, self._width)
        if record is None:
            return []
        cells = (*tuple(record)[: self._width - missing], *(None,) * missing)
        return [(INSERT, self._values(cells))]

    def _values(self, cells: Sequence[Any]) -> Sequence[Any]:
        read = zip(self._read, self.row.children, strict=True)
        return [self._value(cells[at], kind) for at, kind in read]

    def _value(self, cell: Any, kind: lt.LogicalType) -> Any:
        if cell is None:
            return None
        if isinstance(kind, lt.ArrayType):
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


class CsvRowEncoder(RowEncoder):
    """One line per row; arguments as of the decoder."""

    def __init__(self, row: lt.RowType, options: CsvTableOptions) -> None:
        super().__init__(row)
        self._lines = CsvRowSerializationSchema(text=options.writing(), type_info=text_columns(row))
        self._scientific = options.scientific_decimals
        kinds = enumerate(row.children)
        self._bare = frozenset(number for number, kind in kinds if isinstance(kind, _BARE))

    def encode(
        self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None
    ) -> Sequence[bytes | None]:
        del kinds
        pairs = zip(columns.columns, self.row.children, strict=True)
        texts = [_shown_column(column, kind, scientific=self._scientific) for column, kind in pairs]
        return self._lines.serialize_columns(
            pa.RecordBatch.from_arrays(texts, names=list(self.row.names)), self._bare
        )


#: Of columns that are texts here: numbers, which never stand in quotes.
_BARE = (lt.FloatType, lt.DoubleType, lt.DecimalType)
_SHOWN = (
    lt.TimestampType,
    lt.LocalZonedTimestampType,
    lt.TimeType,
    lt.BinaryType,
    lt.VarBinaryType,
    lt.FloatType,
    lt.DoubleType,
    lt.DecimalType,
)


def _shown_column(column: pa.Array, kind: lt.LogicalType, *, scientific: bool) -> pa.Array:
    if isinstance(kind, _SHOWN):
        return pa.array(
            [_shown(value, kind, scientific=scientific) for value in column.to_pylist()],
            pa.string(),
        )
    if isinstance(kind, lt.ArrayType) and isinstance(kind.element, _SHOWN):
        rows = [
            None
            if value is None
            else [_shown(each, kind.element, scientific=scientific) for each in value]
            for value in column.to_pylist()
        ]
        return pa.array(rows, pa.list_(pa.string()))
    return column


def _shown(value: Any, kind: lt.LogicalType, *, scientific: bool) -> str | None:
    if value is None:
        return None
    if isinstance(kind, lt.DecimalType):
        return short_decimal_text(value, scientific=scientific)
    if isinstance(kind, lt.TimeType):
        return time_text(value)
    if isinstance(kind, lt.FloatType | lt.DoubleType):
        return float_text(value) if isinstance(kind, lt.FloatType) else double_text(value)
    if isinstance(kind, lt.BinaryType | lt.VarBinaryType):
        return base64.b64encode(value).decode("ascii")
    zoned = isinstance(kind, lt.LocalZonedTimestampType)
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
        row: lt.RowType,
        options: CsvTableOptions,
        read: Collection[str] | None = None,
        advice: str = "",
    ) -> None:
        self._advice = advice
        whole, row = row, row if read is None else row_of_columns(row, read)
        schema = arrow_schema(row)
        lenient = options.ignore_parse_errors
        policy = MalformedPolicy.DEAD_LETTER if lenient else MalformedPolicy.FAIL
        chosen = options.reading(whole.names, null_in_quotes=True)
        super().__init__(rows_of_columns(schema), policy, chosen)
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

        def parse_row(padded: bytes) -> pa.Table:
            table = parse(padded)
            if table.num_rows != 1 or self.problem_of_row(table) is not None:
                message = "it is not one record"
                raise ValueError(message)
            return table

        table, missing = _padded(parse_row, record, self.options.delimiter, len(names))
        if table is None:
            return None
        gone = names[len(names) - missing :]
        columns = [
            pa.nulls(1, field.type) if field.name in gone else column
            for column, field in zip(table.columns, table.schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=table.schema)
