"""Rows as messages of CSV, one line each.

What it is: PyFlink's ``CsvRowDeserializationSchema`` and ``CsvRowSerializationSchema``.  What the
one writes the other reads as it was, given the same characters.
What it is not: files of CSV (``connectors/formats/csv_format.py``).

Read next: ``connectors/formats/message_formats.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from millstream.connectors.files.file_writers import named_values
from millstream.connectors.formats.csv_format import CsvFormat, CsvOptions, single_character
from millstream.connectors.formats.json_text import json_text
from millstream.connectors.formats.message_formats import RowDeserialization, with_names
from millstream.connectors.formats.schema import columns_of, type_of_schema
from millstream.contracts.serialization import NO_RECORD, SerializationSchema
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from millstream.connectors.formats.schema import SchemaLike
    from millstream.types.types import TypeInformation

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]

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
            r"""Set what is behind the last value: nothing (as unless set) or a line break."""
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
