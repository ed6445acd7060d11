"""Files of CSV as rows of logical types: the format ``csv`` of tables in files.

What it is: the reader of CSV files for texts, and what messages of CSV make of texts.
What it is not: the writer (``connectors/formats/csv_writer.py``).

Read next: ``connectors/formats/csv_format.py``, ``connectors/formats/tables/csv_rows.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.connectors.formats.csv_format import CsvFormat, CsvOptions
from millstream.connectors.formats.file_format import MalformedPolicy
from millstream.connectors.formats.line_format import FaultyRecord
from millstream.connectors.formats.tables.codec import arrow_schema, row_of_columns
from millstream.connectors.formats.tables.csv_rows import text_columns, typed_columns
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from millstream.connectors.formats.tables.csv_rows import CsvTableOptions
    from millstream.types.logical_types import RowType

__all__ = ["CsvTableFormat"]


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
