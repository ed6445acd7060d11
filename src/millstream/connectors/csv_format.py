"""CSV files as rows.

What it is: pyarrow's CSV reader on blocks of whole records.  Columns are found by the names in
each file's own header, or by position where files have none.

What it is not: for files whose encoding is not UTF-8.

Record ends: by default a record is a line, which is found out from the head of the first file:
if quoted values there contain line breaks, cuts are made at record ends instead
(``multi_line=True``), found by counting quotes from the last cut on.

Read next: ``connectors/line_format.py``.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from millstream.connectors.file_format import MalformedPolicy
from millstream.connectors.line_format import BYTE_ORDER_MARK, LineFormat, head_of_file
from millstream.connectors.schema import columns_of, row_type_of, type_of_schema
from millstream.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.common.typeinfo import TypeInformation
    from millstream.connectors.schema import SchemaLike

__all__ = ["CsvFormat", "CsvOptions"]

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
    #: Skip the first record without looking at it (columns go by position).
    skip_first_record: bool = False
    #: Whether quoted values may contain line breaks; None looks at the head of the first file.
    multi_line: bool | None = None
    #: Texts that mean null, in columns of any type.  None: pyarrow's (``""``, ``NA``, ``null``,
    #: ...) in columns that are not strings.
    null_values: tuple[str, ...] | None = None
    #: Whether lines that begin with ``#`` are comments.
    comments: bool = False
    #: Column name -> separator of its elements, for columns of type LIST or array.
    array_separators: dict[str, str] = field(default_factory=dict)


class CsvFormat(LineFormat):
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
        self.has_header = self.options.header or self.options.skip_first_record
        self._type: TypeInformation | None = None if schema is None else type_of_schema(schema)

    @property
    def produced_type(self) -> TypeInformation:
        """A ROW with a field per column."""
        if self._type is None:
            message = "the schema of the CSV files is not known before a file was looked at"
            raise SourceError(message)
        return self._type

    @property
    def needs_a_file(self) -> bool:
        """Whether no schema was given."""
        return self._type is None

    def prepare(self, path: str) -> None:
        """Detect records that span lines, and infer the schema if none was given."""
        if self._type is not None and self.options.multi_line is not None:
            return
        head, complete = head_of_file(path)
        if self.options.multi_line is None and self.quote is not None:
            self.multi_line = self._spans_lines(head[:DETECTION_SIZE])
        if self._type is None:
            if not complete:
                head = head[: self._last_record_end(head)] or head
            self._type = self._infer(path, head)

    def _spans_lines(self, head: bytes) -> bool:
        if str(self.quote).encode() not in head:
            return False
        lines = self._record_ends(head)
        self.multi_line = True
        records = self._record_ends(head)
        self.multi_line = False
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
                pa.BufferReader(sample),
                read_options=pacsv.ReadOptions(
                    use_threads=False, block_size=len(sample) + 1, autogenerate_column_names=True
                ),
                parse_options=self._parse_options(invalid_row_handler=skip, multi_line=True),
            )
        except (ValueError, pa.ArrowException):
            return False
        return bool(table.num_rows + bad == len(records) - self._blank_lines(sample))

    def _infer(self, path: str, head: bytes) -> TypeInformation:
        ends = self._record_ends(head)
        header = (head[: int(ends[0])] if len(ends) else head) if self.has_header else b""
        names = self._names_of(path, header) if self.options.header else None
        body = head[len(header) :]
        if header == b"" and body.startswith(BYTE_ORDER_MARK):
            body = body[len(BYTE_ORDER_MARK) :]
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
            options.strings_can_be_null = True
        if schema is not None:
            options.column_types = schema
            options.include_columns = schema.names
        return options

    def _names_of(self, path: str, header: bytes) -> list[str]:
        try:
            text = header.removeprefix(BYTE_ORDER_MARK).decode().rstrip("\r\n")
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
        """Parse a block of records into the columns of the schema."""
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
            names = schema.names
        separators = self._separators(schema)
        reading = [
            column.with_type(pa.string()) if column.name in separators else column
            for column in schema
        ]
        convert = self._convert_options(pa.schema(reading))
        parse_options = self._parse_options(multi_line=self.multi_line)

        def parse(block: bytes) -> pa.Table:
            block = self._without_comments(block)
            if not block.strip(b"\r\n"):
                return schema.empty_table()
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
                table = _split_column(table, schema, name, separator)
            return table

        return parse

    def _separators(self, schema: pa.Schema) -> dict[str, str]:
        given = self.options.array_separators
        lists = [column.name for column in schema if pa.types.is_list(column.type)]
        return {name: given.get(name, ";") for name in lists}

    def _without_comments(self, block: bytes) -> bytes:
        return re.sub(rb"(?m)^#[^\n]*", b"", block) if self.options.comments else block

    def _blank_lines(self, block: bytes) -> int:
        return super()._blank_lines(self._without_comments(block))

    def is_blank(self, record: bytes) -> bool:
        """Whether the record is an empty line or a comment."""
        return super().is_blank(self._without_comments(record))

    def suspicious(self, last_record: bytes) -> bool:
        """Whether a quote may be open at the end of the block."""
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


def _split_column(table: pa.Table, schema: pa.Schema, name: str, separator: str) -> pa.Table:
    index = table.schema.get_field_index(name)
    parts = pc.split_pattern(table.column(index), separator)
    element = schema.field(name).type.value_type
    chunks = [
        pa.ListArray.from_arrays(chunk.offsets, chunk.values.cast(element), mask=chunk.is_null())
        if chunk.null_count
        else pa.ListArray.from_arrays(chunk.offsets, chunk.values.cast(element))
        for chunk in parts.chunks
    ]
    return table.set_column(
        index, schema.field(name), pa.chunked_array(chunks, schema.field(name).type)
    )
