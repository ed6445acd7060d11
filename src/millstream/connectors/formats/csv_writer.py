"""The writer of CSV files.

What it is: batches to text, column by column.  What it writes ``connectors/formats/csv_format.py``
reads back as it was, given the same characters; what could not be told apart is refused.

Strings are written in quotes, so that the empty text, the text that means null and a ``#`` at the
beginning of a line differ from null and from a comment.  Other values are in quotes only where one
of the special characters is in them.  pyarrow's own writer knows one quote character and no escape;
it is used where these are wanted, as it is faster.

What it is not: about files; that is ``connectors/files/sink.py``.

Read next: ``connectors/files/file_writers.py``.
"""

from __future__ import annotations

import base64
import re
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from millstream.connectors.files.file_writers import BulkWriter, BulkWriterFactory, named_values
from millstream.connectors.formats.json_text import json_column, json_text
from millstream.errors import PermanentSinkError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.contracts.batch import Batch
    from millstream.types.types import TypeInformation

__all__ = ["CsvWriterFactory"]

#: Delimiters that no number, boolean or time has in its text.
_PLAIN_DELIMITERS: Final = ",;|\t"


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
        escape: what goes before a quote within quotes, and before itself; None: quotes are doubled.
            Without quotes, what goes before a delimiter.
        line_separator: behind a record.
        comments: whether a reader takes lines that begin with ``#`` for comments.
        as_java: whether bytes are base64 as it stands, and numbers that are none as Java has
            them, ``NaN`` and ``-Infinity``; else bytes are JSON text.
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
        as_java: bool = False,
    ) -> None:
        self.header = header
        self.delimiter = delimiter
        self.null_text = null_text
        self.array_separator = array_separator
        self.array_separators = array_separators or {}
        self.quote = quote
        self.escape = escape
        self.line_separator = line_separator
        self.comments = comments
        self.as_java = as_java

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        schema = type_info.arrow_schema
        if schema is None:
            return _RowWriter(stream, self)
        plain = (
            self.quote == '"'
            and self.escape is None
            and not self.null_text
            and self.delimiter in _PLAIN_DELIMITERS
            and self.line_separator == "\n"
            and not (self.as_java and any(map(_has_java_texts, schema.types)))
        )
        return (_ArrowWriter if plain else _TextWriter)(stream, self, schema)

    def separator_of(self, name: str) -> str | None:
        """What stands between the elements of a list column; None: it is written as JSON."""
        return self.array_separators.get(name, self.array_separator)


class _Cells:
    """How a value is written."""

    def __init__(self, options: CsvWriterFactory) -> None:
        self._options = options
        quote, escape = options.quote, options.escape
        given = [options.delimiter, quote, escape, "\r", "\n"]
        special = "".join(re.escape(char) for char in given if char)
        self._special = f"[{special}]"
        if options.null_text:
            self._special += f"|^{re.escape(options.null_text)}$"
        if options.comments:
            self._special += "|^#"
        self._is_special = re.compile(self._special).search

    def column(self, texts: pa.Array, name: str, *, strings: bool) -> pa.Array:
        """The cells of a column, from its texts."""
        quote, null = self._options.quote, self._options.null_text
        if quote is None:
            texts = self._without_quotes(texts, name)
        else:
            quoted = pc.binary_join_element_wise(quote, self._escaped(texts), quote, "")
            if strings:
                texts = quoted
            else:
                needed = pc.match_substring_regex(texts, self._special)
                texts = pc.if_else(needed, quoted, texts)
        return pc.fill_null(texts, null)

    def _escaped(self, texts: pa.Array) -> pa.Array:
        quote, escape = self._options.quote, self._options.escape
        if escape is None:
            return pc.replace_substring(texts, quote, f"{quote}{quote}")
        texts = pc.replace_substring(texts, escape, f"{escape}{escape}")
        return pc.replace_substring(texts, quote, f"{escape}{quote}")

    def _without_quotes(self, texts: pa.Array, name: str) -> pa.Array:
        """Values as they are; raises PermanentSinkError where that would change one."""
        options = self._options
        escape, delimiter = options.escape, options.delimiter
        escaped = texts
        if escape is not None:
            escaped = pc.replace_substring(escaped, escape, f"{escape}{escape}")
            escaped = pc.replace_substring(escaped, delimiter, f"{escape}{delimiter}")
        never = "[\r\n]" if escape is not None else f"[\r\n{re.escape(delimiter)}]"
        never += f"|^{re.escape(options.null_text)}$" if options.null_text else ""
        never += "|^#" if options.comments else ""
        bad = texts.filter(pc.match_substring_regex(texts, never))
        if len(bad):
            value = bad[0].as_py()
            message = (
                f"cannot write {value!r:.200} of column {name!r} as CSV without quotes: it would "
                "be read back as something else; set a quote character"
            )
            raise PermanentSinkError(message)
        return escaped

    def one(self, value: object, name: str) -> str:
        """The cell of a value of an untyped stream; texts are in quotes where they need it."""
        if value is None:
            return self._options.null_text
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, dict | list | tuple | set | bytes):
            text = json_text(value)
        else:
            text = str(value)
        strings = not text or bool(self._is_special(text))
        if not strings:
            return text
        cell: str = self.column(pa.array([text]), name, strings=True)[0].as_py()
        return cell


class _ColumnWriter(BulkWriter):
    """What both writers of typed batches share: the texts of nested columns."""

    def __init__(self, stream: IO[bytes], options: CsvWriterFactory, schema: pa.Schema) -> None:
        self._stream = stream
        self._options = options
        self._schema = schema

    def _as_text(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if self._options.as_java and _has_java_texts(field.type):
            column = _java_texts(column)
            if not pa.types.is_list(field.type):
                return column
        elif not _is_nested(field.type):
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
        null = self._options.null_text
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
            include_header=options.header, delimiter=options.delimiter, quoting_style="needed"
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
        self._cells = _Cells(options)
        if options.header:
            names = pa.array(schema.names, pa.string())
            line = self._cells.column(names, "the header", strings=True)
            text = options.delimiter.join(line.to_pylist())
            stream.write(f"{text}{options.line_separator}".encode())

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        columns = [
            self._cells.column(
                self._as_text(column, field),
                field.name,
                strings=_is_nested(field.type) or pa.types.is_string(field.type),
            )
            for column, field in zip(batch.arrow, self._schema, strict=True)
        ]
        lines = pc.binary_join_element_wise(*columns, self._options.delimiter)
        end = self._options.line_separator
        text = pc.binary_join(pa.array([lines.to_pylist()], pa.list_(pa.string())), end)[0].as_py()
        self._stream.write(f"{text}{end}".encode())

    def finish(self) -> None:
        pass


class _RowWriter(BulkWriter):
    """For untyped streams; the first record of a file names its columns."""

    def __init__(self, stream: IO[bytes], options: CsvWriterFactory) -> None:
        self._stream = stream
        self._options = options
        self._cell: Callable[[object, str], str] = _Cells(options).one
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
        self._stream.write(self._options.line_separator.join(lines).encode())

    def _line(self, row: dict[str, Any]) -> str:
        names = self._names or []
        return self._options.delimiter.join([self._cell(row.get(name), name) for name in names])

    def finish(self) -> None:
        pass


def _has_java_texts(kind: pa.DataType) -> bool:
    """Whether the texts of values are not those that Arrow makes, with ``as_java``."""
    if pa.types.is_list(kind):
        return _has_java_texts(kind.value_type)
    return bool(pa.types.is_floating(kind) or pa.types.is_binary(kind))


def _java_texts(column: pa.Array) -> pa.Array:
    if pa.types.is_list(column.type):
        texts = [
            None if each.as_py() is None else _java_texts(each.values).to_pylist()
            for each in column
        ]
        return pa.array(texts, pa.list_(pa.string()))
    if pa.types.is_binary(column.type):
        values = column.to_pylist()
        texts = [None if v is None else base64.b64encode(v).decode("ascii") for v in values]
        return pa.array(texts, pa.string())
    texts = column.cast(pa.string())
    texts = pc.replace_substring_regex(texts, "^-?nan$", "NaN")
    return pc.replace_substring_regex(texts, "^(-?)inf$", r"\1Infinity")


def _is_nested(kind: Any) -> bool:
    return bool(
        pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    )


def _flat_field(field: pa.Field) -> pa.Field:
    text = _is_nested(field.type) or pa.types.is_decimal(field.type)
    return field.with_type(pa.string()) if text else field
