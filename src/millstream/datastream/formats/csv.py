"""CSV in PyFlink's way: a schema built column by column, a reader format and a bulk writer.

What it is: ``pyflink.datastream.formats.csv``; column types are ``Types.*``.
What it is not: the readers and writers (``connectors/csv_format.py``, ``file_writers.py``).

Read next: ``connectors/csv_format.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.common.types import Types
from millstream.connectors.csv_format import CsvFormat, CsvOptions
from millstream.connectors.file_format import MalformedPolicy, StreamFormat
from millstream.connectors.file_writers import BulkWriterFactory, CsvWriterFactory
from millstream.connectors.message_formats import (
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
)
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from millstream.common.typeinfo import TypeInformation

__all__ = [
    "CsvBulkWriter",
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]


@dataclass
class CsvSchema:
    """Columns of a CSV file and how it is written."""

    names: list[str] = field(default_factory=list)
    types: list[TypeInformation] = field(default_factory=list)
    array_separators: dict[str, str] = field(default_factory=dict)
    column_separator: str = ","
    quote_char: str | None = '"'
    escape_char: str | None = None
    null_value: str | None = None
    use_header: bool = False
    strict_headers: bool = False
    skip_first_data_row: bool = False
    allow_comments: bool = False

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Start building."""
        return CsvSchemaBuilder()

    def get_type_info(self) -> TypeInformation:
        """The type of the records: a ROW with named fields."""
        return Types.ROW_NAMED(list(self.names), list(self.types))

    def size(self) -> int:
        """The number of columns."""
        return len(self.names)

    def __len__(self) -> int:
        return self.size()


class CsvSchemaBuilder:
    """Builds a CsvSchema."""

    def __init__(self) -> None:
        self._schema = CsvSchema()
        self._array_separator = ";"

    def build(self) -> CsvSchema:
        """The schema."""
        return self._schema

    def _add(self, name: str, kind: TypeInformation) -> CsvSchemaBuilder:
        if name in self._schema.names:
            message = f"column {name!r} is there already"
            raise ConfigurationError(message)
        self._schema.names.append(name)
        self._schema.types.append(kind)
        return self

    def add_array_column(
        self, name: str, separator: str | None = None, element_type: TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """A column of lists; their elements stand between ``separator`` (default ``;``)."""
        self._schema.array_separators[name] = separator or self._array_separator
        return self._add(name, Types.LIST(element_type or Types.STRING()))

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """A column of type BOOLEAN."""
        return self._add(name, Types.BOOLEAN())

    def add_number_column(
        self, name: str, number_type: TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """A column of numbers, LONG unless said otherwise."""
        return self._add(name, number_type or Types.LONG())

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """A column of type STRING."""
        return self._add(name, Types.STRING())

    def add_column(self, name: str, column_type: TypeInformation) -> CsvSchemaBuilder:
        """A column of any type (dates and timestamps, say); PyFlink has no such method."""
        return self._add(name, column_type)

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """All columns of another schema."""
        for name, kind in zip(schema.names, schema.types, strict=True):
            self._add(name, kind)
        self._schema.array_separators.update(schema.array_separators)
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Drop all columns."""
        self._schema.names.clear()
        self._schema.types.clear()
        self._schema.array_separators.clear()
        return self

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:  # noqa: FBT001, FBT002 - PyFlink's
        """Pass over lines that begin with ``#``."""
        self._schema.allow_comments = allow
        return self

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """What stands between the elements of list columns added from here on."""
        self._array_separator = separator
        return self

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """What stands between columns: a single character."""
        self._schema.column_separator = _single(char, "column separator")
        return self

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """No escape character (the default)."""
        self._schema.escape_char = None
        return self

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """A character that takes the meaning from the next."""
        self._schema.escape_char = _single(char, "escape char")
        return self

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        r"""Only ``\n`` can be written; readers know ``\r\n`` too."""
        if separator != "\n":
            message = f"line separator {separator!r} is not supported; only '\\n' is written"
            raise ConfigurationError(message)
        return self

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """The text that means null."""
        self._schema.null_value = null_value
        return self

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Quotes are ordinary characters."""
        self._schema.quote_char = None
        return self

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """The quote character."""
        self._schema.quote_char = _single(char, "quote char")
        return self

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:  # noqa: FBT001, FBT002 - PyFlink's
        """Pass over the first record of each file; columns go by position."""
        self._schema.skip_first_data_row = skip
        return self

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:  # noqa: FBT001, FBT002 - PyFlink's
        """Headers are always compared with the schema, by name."""
        self._schema.strict_headers = strict
        return self

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:  # noqa: FBT001, FBT002 - PyFlink's
        """The first record of each file names its columns."""
        self._schema.use_header = use
        return self

    def size(self) -> int:
        """The number of columns so far."""
        return len(self._schema)

    def __len__(self) -> int:
        return self.size()


def _single(char: str, what: str) -> str:
    if len(char) != 1:
        message = f"{what} must be a single character, not {char!r}"
        raise ConfigurationError(message)
    return char


class CsvReaderFormat(CsvFormat):
    """The stream format that reads CSV files by a schema."""

    @staticmethod
    def for_schema(
        schema: CsvSchema, *, malformed: str | MalformedPolicy = MalformedPolicy.FAIL
    ) -> StreamFormat:
        """A format for ``FileSource.for_record_stream_format``."""
        options = CsvOptions(
            delimiter=schema.column_separator,
            quote=schema.quote_char,
            escape=schema.escape_char,
            header=schema.use_header,
            skip_first_record=schema.skip_first_data_row and not schema.use_header,
            null_values=None if schema.null_value is None else (schema.null_value,),
            comments=schema.allow_comments,
            array_separators=dict(schema.array_separators),
        )
        return CsvReaderFormat(schema.get_type_info(), malformed, options)


class CsvBulkWriters:
    """Makes writers of CSV files by a schema."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory:
        """A factory for ``FileSink.for_bulk_format``."""
        separators = set(schema.array_separators.values())
        if len(separators) > 1:
            message = "a CSV writer has one array separator for all columns"
            raise ConfigurationError(message)
        return CsvWriterFactory(
            header=schema.use_header,
            delimiter=schema.column_separator,
            null_text=schema.null_value or "",
            array_separator=next(iter(separators), None),
            quoted=schema.quote_char is not None,
        )


#: PyFlink up to 1.16 called it so.
CsvBulkWriter = CsvBulkWriters
