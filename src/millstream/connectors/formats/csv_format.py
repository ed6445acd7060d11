"""CSV files: read as rows by pyarrow on blocks of whole records, and written.

Columns are found by the names in each file's own header, or by position where files have none or it
is not to be used.  By default a record is a line; the head of the first file decides: if quoted
values there contain line breaks, cuts are made at record ends instead (``multi_line=True``), found
by counting quotes from the last cut on.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import pairwise, zip_longest
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from millstream.connectors.formats.file_format import (
    BulkWriter,
    BulkWriterFactory,
    MalformedPolicy,
    SchemaFormat,
    columns_of,
    row_type_of,
    type_of_schema,
)
from millstream.connectors.formats.json_format import json_column, json_text, wide
from millstream.connectors.formats.line_format import (
    BYTE_ORDER_MARK,
    LineFormat,
    head_of_file,
)
from millstream.connectors.formats.row_format import named_values
from millstream.errors import ConfigurationError, PermanentSinkError, SourceError
from millstream.types.text_values import double_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from millstream.connectors.formats.file_format import SchemaLike
    from millstream.contracts.batch import Batch
    from millstream.types.types import TypeInformation


DETECTION_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How a CSV file is written."""

    delimiter: str = ","
    #: None: quotes are ordinary characters.
    quote: str | None = '"'
    #: None: a quote within quotes is doubled.
    escape: str | None = None
    #: Whether the first record names the columns.
    header: bool = True
    #: So many records at the beginning are passed over (after the header, if there is one).
    skip_records: int = 0
    #: The first of them must name the columns of the schema, all of them and in their order.
    strict_header: bool = False
    #: Whether quoted values may contain line breaks; None looks at the head of the first file.
    multi_line: bool | None = None
    #: Texts that mean null, in columns of any type.  None: pyarrow's (``""``, ``NA``, ``null``,
    #: ...) in columns that are not strings.
    null_values: tuple[str, ...] | None = None
    #: Whether they mean null in columns of strings, too.
    null_strings: bool = True
    #: Whether they mean null when they stand in quotes.
    null_in_quotes: bool = True
    #: Whether lines that begin with ``#`` are comments.
    comments: bool = False
    #: Whether values after those of the columns are left out; else such a record is malformed.
    ignore_trailing: bool = False
    #: Column name -> separator of its elements, for columns of type LIST or array.
    array_separators: dict[str, str] = field(default_factory=dict)


def single_character(character: str, what: str) -> str:
    """Return a character that CSV may give a meaning.

    Raises:
        ConfigurationError: it is not one, or none that may have a meaning.
    """
    if len(character) != 1 or not character.isascii() or character in "\r\n":
        message = (
            f"the {what} must be a single ASCII character and no line break, not {character!r}"
        )
        raise ConfigurationError(message)
    return character


def first_values(
    record: bytes, width: int, delimiter: str, quote: str | None, escape: str | None
) -> bytes:
    """Return a record with as many values as there are columns; those after them are left out."""
    between = delimiter.encode()
    if record.count(between) < width:
        return record
    marks = [each.encode() for each in (delimiter, quote) if each]
    pattern = b"|".join(map(re.escape, marks))
    if escape:
        pattern = re.escape(escape.encode()) + b"(?s:.)|" + pattern
    inside, seen = False, 0
    for mark in re.finditer(pattern, record):
        if mark[0] == between:
            seen += not inside
        elif len(mark[0]) == 1:  # else it is escaped
            inside = not inside
        if seen == width:
            return record[: mark.start()] + record[len(record.rstrip(b"\r\n")) :]
    return record


class CsvFormat(SchemaFormat, LineFormat):
    """Records of a CSV file.

    Args:
        schema: the columns, in the order of the record's fields; a file may have more.  None
            infers them from the head of the first file.
        malformed: "fail" or "dead-letter".
        options: how the files are written.
    """

    def __init__(
        self,
        schema: SchemaLike | None = None,
        malformed: str | MalformedPolicy = MalformedPolicy.FAIL,
        options: CsvOptions | None = None,
    ) -> None:
        super().__init__(malformed)
        self.options = options or CsvOptions()
        self.quote = self.options.quote
        self.escape = self.options.escape
        self.multi_line = bool(self.options.multi_line) and self.quote is not None
        self.header_records = self.options.header + self.options.skip_records
        self.type_info = None if schema is None else type_of_schema(schema)
        #: The columns that files without a header have; None: those of the schema.
        self.file_columns: list[str] | None = None

    def prepare(self, path: str) -> None:
        """Detect records that span lines, and infer the schema if none was given."""
        if self.type_info is not None and self.options.multi_line is not None:
            return
        head, complete = head_of_file(path, self.stores)
        if self.options.multi_line is None and self.quote is not None:
            self.multi_line = self._spans_lines(head[:DETECTION_SIZE])
        if self.type_info is None:
            if not complete:
                head = head[: self._last_record_end(head)] or head
            self.type_info = self._infer(path, head)

    def _spans_lines(self, head: bytes) -> bool:
        if str(self.quote).encode() not in head:
            return False
        lines = self._record_ends(head)
        self.multi_line = True
        try:
            return self._reads_with_line_breaks(head, lines)
        finally:
            self.multi_line = False

    def _reads_with_line_breaks(self, head: bytes, lines: NDArray[np.int64]) -> bool:
        """Whether quoted values have line breaks, and the parser makes of it the same records."""
        records = self._record_ends(head)
        if len(records) == 0 or np.count_nonzero(lines <= records[-1]) == len(records):
            return False
        # Stray quotes (5" pipe) look alike: only believe what the parser reads the same way.
        # Rows of another width are kept in the count: they say nothing about line ends.
        sample = head[: int(records[-1])]
        bad = 0

        def skip(row: object) -> str:
            del row
            nonlocal bad
            bad += 1
            return "skip"

        try:
            table = pacsv.read_csv(
                pa.BufferReader(self._without_comments(sample)),
                read_options=pacsv.ReadOptions(
                    use_threads=False, block_size=len(sample) + 1, autogenerate_column_names=True
                ),
                parse_options=self._parse_options(invalid_row_handler=skip, multi_line=True),
            )
        except (ValueError, pa.ArrowException):
            return False
        return bool(table.num_rows + bad == len(records) - self._blank_lines(sample))

    def _infer(self, path: str, head: bytes) -> TypeInformation:
        mark = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
        header = head[: self._header_end(head, mark)]
        names = self._names_of(path, header) if self.options.header else None
        body = head[len(header) :]
        if not body.strip():
            if not names:
                message = f"cannot infer a schema from {path!r}, which is empty; give schema=..."
                raise SourceError(message)
            return row_type_of(pa.schema([(name, pa.string()) for name in names]))
        try:
            table = pacsv.read_csv(
                pa.BufferReader(self._without_comments(body)),
                read_options=pacsv.ReadOptions(
                    use_threads=False, column_names=names, autogenerate_column_names=names is None
                ),
                parse_options=self._parse_options(
                    invalid_row_handler=lambda _: "skip", multi_line=self.multi_line
                ),
                convert_options=self._convert_options(),
            )
        except (ValueError, pa.ArrowException) as error:
            message = f"cannot infer a schema from {path!r}: {error}; give schema=..."
            raise SourceError(message) from error
        return row_type_of(table.schema)

    def _parse_options(
        self, *, multi_line: bool, invalid_row_handler: Callable[..., str] | None = None
    ) -> pacsv.ParseOptions:
        return pacsv.ParseOptions(
            delimiter=self.options.delimiter,
            quote_char=self.quote or False,
            escape_char=self.escape or False,
            newlines_in_values=multi_line,
            invalid_row_handler=invalid_row_handler,
        )

    def _convert_options(self, schema: pa.Schema | None = None) -> pacsv.ConvertOptions:
        options = pacsv.ConvertOptions()
        if self.options.null_values is not None:
            options.null_values = list(self.options.null_values)
            options.strings_can_be_null = self.options.null_strings
            options.quoted_strings_can_be_null = self.options.null_in_quotes
        if schema is not None:
            options.column_types = schema
            options.include_columns = schema.names
        return options

    def is_comment(self, record: bytes) -> bool:
        return self.options.comments and record.startswith(b"#")

    def _check_header(self, path: str, header: bytes, names: list[str]) -> None:
        """Compare the header with the schema, column by column; an empty file has none."""
        if not header:
            return
        found = self._names_of(path, header)
        for number, (name, actual) in enumerate(zip_longest(names, found), start=1):
            if name == actual:
                continue
            expected = "no further one" if name is None else repr(name)
            message = (
                f"{path}:1: column {number} of the header is "
                f"{'missing' if actual is None else repr(actual)}, the schema has {expected}; "
                "correct the one or the other, or do without set_strict_headers()"
            )
            raise SourceError(message)

    def _names_of(self, path: str, header: bytes) -> list[str]:
        try:
            body = self._without_comments(header.removeprefix(BYTE_ORDER_MARK))
            text = body.decode().strip("\r\n")
            rows = csv.reader(
                io.StringIO(text, newline=""),
                delimiter=self.options.delimiter,
                quotechar=self.quote or '"',
                quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
                escapechar=self.escape,
            )
            names = next(rows, [])
        except (UnicodeDecodeError, csv.Error) as error:
            message = f"{path}:1: the header does not parse: {error}"
            raise SourceError(message) from error
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            message = f"{path}:1: the header names {', '.join(doubled)} more than once"
            raise SourceError(message)
        return names

    def parser(self, path: str, header: bytes) -> Callable[[bytes], pa.Table]:
        schema = columns_of(self.produced_type)
        if self.options.header:
            names = self._names_of(path, header)
            missing = [name for name in schema.names if name not in names]
            if missing and names:
                message = (
                    f"{path}:1: the header lacks {', '.join(missing)}; it has {', '.join(names)}"
                )
                raise SourceError(message)
        else:
            names = self.file_columns or schema.names
            if self.options.strict_header:
                self._check_header(path, header, names)
        read = self._table_reader(names, self._parse_options(multi_line=self.multi_line))

        def parse(block: bytes) -> pa.Table:
            block = self._without_comments(block)
            if self.options.ignore_trailing:
                block = self._without_trailing(block, len(names))
            return read(block) if block.strip(b"\r\n") else schema.empty_table()

        return parse

    def _table_reader(
        self, names: list[str], parse_options: pacsv.ParseOptions
    ) -> Callable[[bytes], pa.Table]:
        """Return what reads a block whose columns have these names into those of the schema."""
        schema = columns_of(self.produced_type)
        separators = self._separators(schema)
        decimals = [column.name for column in schema if wide(column.type) != column.type]
        texts = {*separators, *decimals}
        reading = [
            column.with_type(pa.string()) if column.name in texts else column for column in schema
        ]
        convert = self._convert_options(pa.schema(reading))

        def read(block: bytes) -> pa.Table:
            # One block, so that a record never straddles two.
            table = pacsv.read_csv(
                pa.BufferReader(block),
                read_options=pacsv.ReadOptions(
                    use_threads=False, block_size=len(block) + 1, column_names=names
                ),
                parse_options=parse_options,
                convert_options=convert,
            )
            for name, separator in separators.items():
                table = self._split_column(table, schema, name, separator)
            for name in decimals:
                table = self._decimal_column(table, schema.field(name))
            return table

        return read

    def _separators(self, schema: pa.Schema) -> dict[str, str]:
        given = self.options.array_separators
        lists = [column.name for column in schema if pa.types.is_list(column.type)]
        return {name: given.get(name, ";") for name in lists}

    def _split_column(
        self, table: pa.Table, schema: pa.Schema, name: str, separator: str
    ) -> pa.Table:
        """Make a column of texts one of lists; the empty text is the empty list."""
        index = table.schema.get_field_index(name)
        kind = schema.field(name).type
        chunks = []
        for chunk in table.column(index).chunks:
            whole = pa.array([[text] for text in chunk.to_pylist()], pa.list_(pa.string()))
            parts = pc.split_pattern(chunk, separator) if separator else whole
            lengths = pc.if_else(pc.equal(chunk, ""), 0, pc.list_value_length(parts))
            offsets = np.concatenate(([0], np.cumsum(pc.fill_null(lengths, 0).to_numpy())))
            texts = parts.flatten().filter(
                pc.not_equal(chunk, "").take(pc.list_parent_indices(parts))
            )
            missing = chunk.is_null() if chunk.null_count else None
            values = self._elements(texts, kind.value_type)
            chunks.append(
                pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=missing)
            )
        column = pa.chunked_array(chunks, pa.list_(kind.value_type)).cast(kind)
        return table.set_column(index, schema.field(name), column)

    def _decimal_column(self, table: pa.Table, field: pa.Field) -> pa.Table:
        """Make a column of texts one of decimals."""
        index, nulls = table.schema.get_field_index(field.name), self.options.null_values
        texts = table.column(index)
        if nulls is None or not self.options.null_strings:
            # Else the parser has done so.
            known = pacsv.ConvertOptions().null_values if nulls is None else nulls
            is_null = pc.is_in(texts, pa.array(known, pa.string()))
            texts = pc.if_else(is_null, pa.scalar(None, pa.string()), texts)
        return table.set_column(index, field, texts.cast(wide(field.type)).cast(field.type))

    def _elements(self, texts: pa.Array, kind: pa.DataType) -> pa.Array:
        nulls = set(self.options.null_values or ()) if self.options.null_strings else set()
        if not pa.types.is_string(kind):
            nulls.add("")
        is_null = pc.is_in(texts, pa.array(sorted(nulls), pa.string()))
        return pc.if_else(is_null, pa.scalar(None, pa.string()), texts).cast(wide(kind)).cast(kind)

    def _without_trailing(self, block: bytes, width: int) -> bytes:
        ends = [0, *self._record_ends(block).tolist(), len(block)]
        options = self.options
        return b"".join(
            first_values(block[start:end], width, options.delimiter, options.quote, options.escape)
            for start, end in pairwise(ends)
        )

    def _without_comments(self, block: bytes, instead: bytes = b"") -> bytes:
        """A block with ``instead`` in the place of each byte of a comment; lines stay lines.

        A line that begins with ``#`` within quotes is none, and quotes within comments are none.
        """
        if not self.options.comments or b"#" not in block:
            return block
        inside = False
        lines = block.split(b"\n")
        for number, line in enumerate(lines):
            if not inside and line.startswith(b"#"):
                lines[number] = instead * len(line)
            elif self.multi_line:
                inside ^= self._has_odd_quotes(line)
        return b"\n".join(lines)

    def _has_odd_quotes(self, line: bytes) -> bool:
        if self.quote is None:
            return False
        if self.escape is not None:
            line = re.sub(re.escape(self.escape.encode()) + b".", b"xx", line)
        return line.count(self.quote.encode()) % 2 == 1

    def _record_ends(self, block: bytes) -> NDArray[np.int64]:
        return super()._record_ends(self._without_comments(block, b"x"))

    def _blank_lines(self, block: bytes, ends: NDArray[np.int64] | None = None) -> int:
        # Comments count as empty lines, and do not look like them.
        known = None if self.options.comments else ends
        return super()._blank_lines(self._without_comments(block), known)

    def is_blank(self, record: bytes) -> bool:
        """Return whether the record is an empty line or a comment."""
        return super().is_blank(self._without_comments(record))

    def suspicious(self, last_record: bytes) -> bool:
        """Return whether a quote may be open at the end of the block."""
        if self.multi_line or self.quote is None:
            return False
        return last_record.count(self.quote.encode()) % 2 == 1

    def problem_of_row(self, row: pa.Table) -> str | None:
        """A value with a line break, where records are lines, comes from an open quote."""
        if self.multi_line:
            return None
        for column in row.columns:
            value = column[0].as_py()
            if isinstance(value, str) and "\n" in value:
                return "a quoted value is not closed on its line"
        return None

    def hint(self) -> str:
        """Line breaks in quoted values need an option."""
        if self.multi_line:
            return ""
        return ", or use multi_line=True if quoted values contain line breaks"


# -- writing ---------------------------------------------------------------------------------------


#: Delimiters that no number, boolean or time has in its text.
_PLAIN_DELIMITERS: Final = ",;|\t"
#: Characters of a text; longer ones are in quotes if ``early`` is set.
_LONGEST_CHECKED: Final = 24


@dataclass(frozen=True)
class CsvText:
    """How values are written."""

    delimiter: str = ","
    #: None: values are never in quotes, and refused if they need them.
    quote: str | None = '"'
    #: What goes before a quote within quotes, and before itself; None: quotes are doubled.  Without
    #: quotes, what goes before a delimiter.
    escape: str | None = None
    null: str = ""
    #: None: lists are written as JSON.
    array_delimiter: str | None = None
    line_delimiter: str = ""
    #: Whether a reader takes lines that begin with ``#`` for comments.
    comments: bool = False
    #: Whether the empty text is in quotes.
    quotes_empty: bool = False
    #: Whether texts that might need quotes are in quotes, as Flink writes them, without an exact
    #: look: long ones, and those with a character up to the last of those with a meaning.
    early: bool = False

    @cached_property
    def special(self) -> str:
        """A regular expression of the texts that are in quotes."""
        if not self.early or self.quote is None:
            return self._exact
        last = max(ord(char) for char in (self.delimiter, self.quote or "\n"))
        escape = re.escape(self.escape or "\\")
        return rf"{self._exact}|[\x00-\x{last:02x}{escape}]|^(?s:.{{{_LONGEST_CHECKED + 1},}})"

    @cached_property
    def _exact(self) -> str:
        """A regular expression of what cannot stand without quotes."""
        given = [self.delimiter, self.quote, self.escape, "\r", "\n"]
        special = "[" + "".join(re.escape(char) for char in given if char) + "]"
        # In quotes it is not null.
        special += f"|^{re.escape(self.null)}$" if self.null else ""
        return special + ("|^#" if self.comments else "") + ("|^$" if self.quotes_empty else "")

    @cached_property
    def _is_special(self) -> Callable[[str], object]:
        return re.compile(self.special).search

    @cached_property
    def _is_exactly_special(self) -> Callable[[str], object]:
        return re.compile(self._exact).search

    def checked(self) -> CsvText:
        """Return this; raises ConfigurationError if two characters with a meaning are the same."""
        given = [each for each in (self.delimiter, self.quote, self.escape) if each is not None]
        if len(set(given)) < len(given):
            message = f"the characters of CSV must differ: {', '.join(map(repr, given))}"
            raise ConfigurationError(message)
        return self

    def line(self, values: Iterable[object]) -> str:
        """A record; raises ValueError for a value that cannot be written without quotes."""
        cells = list(map(self.cell, values))
        if self.quote and (cells == [""] or cells[0].startswith("#")):
            # To some readers an empty line is no record, and this a comment.
            cells[0] = self._quoted(cells[0])
        return self.delimiter.join(cells) + self.line_delimiter

    def cell(self, value: object) -> str:
        """A value, in quotes where it needs them; raises ValueError if there are none."""
        if isinstance(value, str):
            text = value
        elif value is None:
            return self.null
        elif isinstance(value, list | tuple) and self.array_delimiter is not None:
            text = self.array_delimiter.join(map(self._plain, value))
        else:
            text = self._plain(value)
        bare = isinstance(value, bool | int | float | Decimal)
        needed = (self._is_exactly_special if bare else self._is_special)(text)
        return self._quoted(text) if needed else text

    @property
    def _before_quote(self) -> str:
        """What goes before a quote within quotes; Flink's escape character is for itself."""
        return (None if self.early else self.escape) or str(self.quote)

    def _plain(self, value: object) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if value is None:
            return self.null
        if isinstance(value, float) and self.early:
            return double_text(value)
        nested = isinstance(value, dict | list | tuple | set | bytes)
        return json_text(value) if nested else str(value)

    def _quoted(self, text: str) -> str:
        quote, escape = self.quote, self.escape
        if quote is not None and escape is None:
            return f"{quote}{text.replace(quote, quote * 2)}{quote}"
        if escape is not None:
            text = text.replace(escape, escape * 2)
            if quote is not None:
                return f"{quote}{text.replace(quote, self._before_quote + quote)}{quote}"
            escaped = text.replace(self.delimiter, escape + self.delimiter)
            if not re.search(r"[\r\n]", escaped) and escaped != self.null:
                return escaped
        message = f"the value {text!r:.100} needs quotes, which are disabled"
        raise ValueError(message)

    def lines(self, columns: Sequence[pa.Array], bare: Collection[int] = ()) -> pa.Array:
        """Records as ``line`` has them, made by column; raises ValueError.

        Args:
            columns: the values, or their texts.
            bare: indices of the columns whose texts are numbers.
        """
        first, *others = [
            self._bare(column) if number in bare else self._cells(column)
            for number, column in enumerate(columns)
        ]
        if self.quote is not None:
            needed = pc.starts_with(first, "#")
            if not others:
                needed = pc.or_(needed, pc.equal(first, ""))
            first = self._quoted_where(needed, first)
        end = self.line_delimiter
        joined = pc.binary_join_element_wise(first, *others, self.delimiter)
        return pc.binary_join_element_wise(joined, end, "") if end else joined

    def _cells(self, column: pa.Array) -> pa.Array:
        """The values of a column as ``cell`` has them."""
        plain = pa.types.is_string(column.type) or pa.types.is_integer(column.type)
        if not plain or self.quote is None:
            return pa.array(list(map(self.cell, column.to_pylist())), pa.string())
        texts = column.cast(pa.string())
        if _is_bare(column.type):
            return self._bare(texts)
        needed = pc.match_substring_regex(texts, self.special)
        return pc.fill_null(self._quoted_where(needed, texts), self.null)

    def _bare(self, texts: pa.Array) -> pa.Array:
        """The cells of a column of numbers or booleans, from its texts."""
        if self.quote is None:
            return pa.array([self.cell(text) for text in texts.to_pylist()], pa.string())
        needed = pc.match_substring_regex(texts, self._exact)
        return pc.fill_null(self._quoted_where(needed, texts), self.null)

    def column(self, texts: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
        """Return the cells of a column of this type, from its texts."""
        if self.quote is None:
            return pc.fill_null(self._without_quotes(texts, name), self.null)
        if _is_bare(kind):
            return self._bare(texts)
        every = not self.early and (_is_nested(kind) or pa.types.is_string(kind))
        needed = None if every else pc.match_substring_regex(texts, self.special)
        return pc.fill_null(self._quoted_where(needed, texts), self.null)

    def _quoted_where(self, needed: pa.Array | None, texts: pa.Array) -> pa.Array:
        """Texts in quotes; ``needed`` None: all of them."""
        if needed is not None and not pc.any(needed).as_py():
            return texts
        quote, escape, escaped = self.quote, self.escape, texts
        if escape is not None:
            escaped = pc.replace_substring(escaped, escape, f"{escape}{escape}")
        escaped = pc.replace_substring(escaped, quote, f"{self._before_quote}{quote}")
        quoted = pc.binary_join_element_wise(quote, escaped, quote, "")
        return quoted if needed is None else pc.if_else(needed, quoted, texts)

    def _without_quotes(self, texts: pa.Array, name: str) -> pa.Array:
        """Values as they are; raises PermanentSinkError where that would change one."""
        escape, delimiter, escaped = self.escape, self.delimiter, texts
        if escape is not None:
            escaped = pc.replace_substring(escaped, escape, f"{escape}{escape}")
            escaped = pc.replace_substring(escaped, delimiter, f"{escape}{delimiter}")
        never = "[\r\n]" if escape is not None else f"[\r\n{re.escape(delimiter)}]"
        never += f"|^{re.escape(self.null)}$" if self.null else ""
        never += "|^#" if self.comments else ""
        bad = texts.filter(pc.match_substring_regex(texts, never))
        if len(bad):
            raise _unquotable(bad[0].as_py(), name)
        return escaped


def _unquotable(value: object, name: str) -> PermanentSinkError:
    return PermanentSinkError(
        f"cannot write {value!r:.200} of column {name!r} as CSV without quotes: it would be read"
        " back as something else; set a quote character"
    )


class CsvWriterFactory(BulkWriterFactory):
    """Comma separated values.

    Nested columns are written as JSON text (lists joined by their separator if there is one).

    Args:
        header: whether every file begins with the names of the columns.
        delimiter: between values.
        null_text: what is written for null.
        array_separator: between the elements of list columns.
        array_separators: the same by column; the empty text is for lists of one element.
        quote: None never quotes (and fails on values that need it).
        escape: see ``CsvText``.
        line_separator: after a record.
        comments: see ``CsvText``.
        early: see ``CsvText``.
    """

    extension = ".csv"

    def __init__(
        self,
        *,
        header: bool = True,
        delimiter: str = ",",
        null_text: str = "",
        array_separator: str | None = None,
        array_separators: dict[str, str] | None = None,
        quote: str | None = '"',
        escape: str | None = None,
        line_separator: str = "\n",
        comments: bool = False,
        early: bool = False,
    ) -> None:
        self.header = header
        self.text = CsvText(
            delimiter,
            quote,
            escape,
            null_text,
            line_delimiter=line_separator,
            comments=comments,
            quotes_empty=True,
            early=early,
        )
        self.array_separator = array_separator
        self.array_separators = array_separators or {}

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        schema, text = type_info.arrow_schema, self.text
        if schema is None:
            return _RowWriter(stream, self)
        plain = (
            (text.quote, text.escape, text.null, text.line_delimiter) == ('"', None, "", "\n")
            and text.delimiter in _PLAIN_DELIMITERS
            and not text.early
        )
        return (_ArrowWriter if plain else _TextWriter)(stream, self, schema)

    def separator_of(self, name: str) -> str | None:
        """Return what stands between the elements of a list column; None: it is written as JSON."""
        return self.array_separators.get(name, self.array_separator)


class _ColumnWriter(BulkWriter):
    """Base of both writers of typed batches: makes the texts of nested columns."""

    def __init__(self, stream: IO[bytes], options: CsvWriterFactory, schema: pa.Schema) -> None:
        self._stream = stream
        self._options = options
        self._schema = schema

    def _as_text(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if not _is_nested(field.type):
            return column.cast(pa.string())
        separator = self._options.separator_of(field.name)
        if separator is not None and pa.types.is_list(field.type):
            return self._joined(column, field.name, separator)
        return json_column(column).cast(pa.string())

    def _joined(self, column: pa.Array, name: str, separator: str) -> pa.Array:
        """Lists as one text each.

        Raises:
            PermanentSinkError: a list would be read back as another one.
        """
        texts = column.cast(pa.list_(pa.string()))
        null = self._options.text.null
        lists = pa.array(
            [
                None if each is None else [null if t is None else t for t in each]
                for each in texts.to_pylist()
            ],
            pa.list_(pa.string()),
        )
        elements = texts.flatten()
        lengths = pc.fill_null(pc.list_value_length(lists), 0)
        joined = pc.binary_join(lists, separator)
        wrong = (
            pc.any(pc.match_substring(elements, separator)).as_py()
            if separator
            else pc.any(pc.greater(lengths, 1)).as_py()
        )
        wrong = wrong or pc.any(pc.and_(pc.equal(joined, ""), pc.greater(lengths, 0))).as_py()
        wrong = wrong or (null and pc.any(pc.equal(elements, null)).as_py())
        if wrong:
            message = (
                f"cannot write the lists of column {name!r} as CSV: an element is empty or has the "
                f"separator {separator!r} or the null value in it, so that the list would be read "
                "back as another; take another separator, or JSON lines"
            )
            raise PermanentSinkError(message)
        return joined


class _ArrowWriter(_ColumnWriter):
    """Uses pyarrow's writer."""

    def __init__(self, stream: IO[bytes], options: CsvWriterFactory, schema: pa.Schema) -> None:
        super().__init__(stream, options, schema)
        self._flat = pa.schema([_flat_field(field) for field in schema])
        writing = pacsv.WriteOptions(
            include_header=options.header, delimiter=options.text.delimiter, quoting_style="needed"
        )
        self._writer = pacsv.CSVWriter(stream, self._flat, write_options=writing)

    def write(self, batch: Batch) -> None:
        columns = [
            column if flat.type == field.type else self._as_text(column, field)
            for column, field, flat in zip(batch.arrow, self._schema, self._flat, strict=True)
        ]
        try:
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._flat))
        except (pa.ArrowException, ValueError) as error:
            message = f"cannot write the records as CSV: {error}"
            raise PermanentSinkError(message) from error

    def finish(self) -> None:
        self._writer.close()


class _TextWriter(_ColumnWriter):
    """Makes the text itself, with any characters."""

    def __init__(self, stream: IO[bytes], options: CsvWriterFactory, schema: pa.Schema) -> None:
        super().__init__(stream, options, schema)
        self._text = text = options.text
        if options.header:
            names = pa.array(schema.names, pa.string())
            line = text.column(names, "the header", names.type)
            stream.write(f"{text.delimiter.join(line.to_pylist())}{text.line_delimiter}".encode())

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        text = self._text
        columns = [
            text.column(
                self._as_text(column, field),
                field.name,
                field.type,
            )
            for column, field in zip(batch.arrow, self._schema, strict=True)
        ]
        lines = pc.binary_join_element_wise(*columns, text.delimiter)
        whole = pa.array([lines.to_pylist()], pa.list_(pa.string()))
        joined = pc.binary_join(whole, text.line_delimiter)[0].as_py()
        self._stream.write(f"{joined}{text.line_delimiter}".encode())

    def finish(self) -> None:
        pass


class _RowWriter(BulkWriter):
    """For untyped streams; the first record of a file names its columns."""

    def __init__(self, stream: IO[bytes], options: CsvWriterFactory) -> None:
        self._stream = stream
        self._options = options
        self._text = options.text
        self._names: list[str] | None = None

    def write(self, batch: Batch) -> None:
        lines: list[str] = []
        for value in batch.values:
            row = named_values(value)
            if self._names is None:
                self._names = list(row)
                if self._options.header:
                    lines.append(self._line({name: name for name in row}))
            if not row.keys() <= set(self._names):
                unknown = ", ".join(sorted(row.keys() - set(self._names)))
                message = (
                    f"record {value!r:.200} has columns that the file's first record lacks: "
                    f"{unknown}; give the operator before the sink an output_type"
                )
                raise PermanentSinkError(message)
            lines.append(self._line(row))
        lines.append("")
        self._stream.write(self._text.line_delimiter.join(lines).encode())

    def _line(self, row: dict[str, Any]) -> str:
        cells = []
        for name in self._names or []:
            try:
                cells.append(self._text.cell(row.get(name)))
            except ValueError as error:
                raise _unquotable(row.get(name), name) from error
        return self._text.delimiter.join(cells)

    def finish(self) -> None:
        pass


def _is_bare(kind: pa.DataType) -> bool:
    """Return whether values are in quotes only where they cannot stand without."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
    )


def _is_nested(kind: Any) -> bool:
    return bool(
        pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    )


def _flat_field(field: pa.Field) -> pa.Field:
    text = _is_nested(field.type) or pa.types.is_decimal(field.type)
    return field.with_type(pa.string()) if text else field
