"""CSV as in ``pyflink.datastream.formats.csv``: a schema builder, a reader and a bulk writer.

As in Flink (whose reader is Jackson's) columns go by position: ``set_use_header`` skips a header,
``set_strict_headers`` requires it to name the schema's columns in order, and
``set_reorder_columns`` (Jackson's; PyFlink has no such method) takes the columns' positions from
it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.connectors.formats.csv_format import (
    CsvFormat,
    CsvOptions,
    CsvWriterFactory,
    single_character,
)
from millstream.connectors.formats.csv_messages import (
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
)
from millstream.connectors.formats.file_format import MalformedPolicy
from millstream.errors import ConfigurationError
from millstream.types.logical_type_info import type_info_of
from millstream.types.logical_types import LogicalType
from millstream.types.types import Types

if TYPE_CHECKING:
    from millstream.connectors.formats.file_format import BulkWriterFactory
    from millstream.types.types import TypeInformation

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
    reorder_columns: bool = False
    skip_first_data_row: bool = False
    allow_comments: bool = False
    line_separator: str = "\n"

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

    def __str__(self) -> str:
        columns = ", ".join(
            f"{name}: {kind}" for name, kind in zip(self.names, self.types, strict=True)
        )
        header = "with" if self.use_header else "without"
        return f"CsvSchema({columns}; {self.column_separator!r} between, {header} header)"


def _type_info(kind: LogicalType | TypeInformation) -> TypeInformation:
    return type_info_of(kind) if isinstance(kind, LogicalType) else kind


class CsvSchemaBuilder:
    """Builds a CsvSchema."""

    def __init__(self) -> None:
        self._schema = CsvSchema()
        self._array_separator = ";"

    def build(self) -> CsvSchema:
        """The schema.

        Raises:
            ConfigurationError: two characters with a meaning are the same, or the text that means
                null has one of them in it.
        """
        schema = copy.deepcopy(self._schema)
        special = {
            "column separator": schema.column_separator,
            "quote char": schema.quote_char,
            "escape char": schema.escape_char,
        }
        given = {what: char for what, char in special.items() if char is not None}
        if schema.escape_char is not None and schema.escape_char == schema.quote_char:
            schema.escape_char = None  # a quote within quotes is doubled
            del given["escape char"]
        if len(set(given.values())) < len(given):
            listed = ", ".join(f"{what} {char!r}" for what, char in given.items())
            message = f"the characters of a CSV schema must differ: {listed}"
            raise ConfigurationError(message)
        inside = [what for what, char in given.items() if char in (schema.null_value or "")]
        if inside:
            message = (
                f"the null value {schema.null_value!r} contains the {' and the '.join(inside)}"
            )
            raise ConfigurationError(message)
        return schema

    def _add(self, name: str, kind: LogicalType | TypeInformation) -> CsvSchemaBuilder:
        if name in self._schema.names:
            message = f"column {name!r} is there already"
            raise ConfigurationError(message)
        self._schema.names.append(name)
        self._schema.types.append(_type_info(kind))
        return self

    def add_array_column(
        self,
        name: str,
        separator: str | None = None,
        element_type: LogicalType | TypeInformation | None = None,
    ) -> CsvSchemaBuilder:
        """A column of lists; their elements stand between ``separator`` (default ``;``)."""
        self._schema.array_separators[name] = (
            self._array_separator if separator is None else separator
        )
        return self._add(name, Types.LIST(_type_info(element_type or Types.STRING())))

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """A column of type BOOLEAN."""
        return self._add(name, Types.BOOLEAN())

    def add_number_column(
        self, name: str, number_type: LogicalType | TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """A column of numbers, LONG unless said otherwise."""
        return self._add(name, number_type or Types.LONG())

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """A column of type STRING."""
        return self._add(name, Types.STRING())

    def add_column(self, name: str, column_type: LogicalType | TypeInformation) -> CsvSchemaBuilder:
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
        """Return what stands between the elements of list columns added from here on."""
        self._array_separator = separator
        return self

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """Return what stands between columns: a single character."""
        self._schema.column_separator = single_character(char, "column separator")
        return self

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """No escape character (the default)."""
        self._schema.escape_char = None
        return self

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """A character that takes the meaning from the next."""
        self._schema.escape_char = single_character(char, "escape char")
        return self

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        r"""Return what is written behind a record: ``\n`` or ``\r\n``; readers know both."""
        if separator not in ("\n", "\r\n"):
            message = f"line separator {separator!r} is not supported; give '\\n' or '\\r\\n'"
            raise ConfigurationError(message)
        self._schema.line_separator = separator
        return self

    def set_any_property_name(self, name: str) -> CsvSchemaBuilder:
        """Refused: a record has the columns of the schema and no others."""
        message = (
            f"set_any_property_name({name!r}) is not supported: add a column for each value that "
            "records have"
        )
        raise ConfigurationError(message)

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        """List columns added from here on have their whole text as their one element."""
        self._array_separator = ""
        return self

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """The list column at ``index`` has its whole text as its one element.

        Raises:
            ConfigurationError: there is no list column.
        """
        names = self._schema.names
        if not 0 <= index < len(names) or names[index] not in self._schema.array_separators:
            message = f"column {index} is no list column; the columns are {', '.join(names)}"
            raise ConfigurationError(message)
        self._schema.array_separators[names[index]] = ""
        return self

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """The text that means null, if it does not stand in quotes.

        Not set: null is written as the empty text, and read as null where a column is not of
        strings; a null string comes back as the empty one.
        """
        self._schema.null_value = null_value
        return self

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Quotes are ordinary characters."""
        self._schema.quote_char = None
        return self

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """The quote character."""
        self._schema.quote_char = single_character(char, "quote char")
        return self

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:  # noqa: FBT001, FBT002 - PyFlink's
        """Pass over the first record of each file, or the first behind the header."""
        self._schema.skip_first_data_row = skip
        return self

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:  # noqa: FBT001, FBT002 - PyFlink's
        """Refuse a file whose header does not name the columns of the schema, in their order.

        It has a meaning with ``set_use_header`` only.
        """
        self._schema.strict_headers = strict
        return self

    def set_reorder_columns(self, reorder: bool = True) -> CsvSchemaBuilder:  # noqa: FBT001, FBT002 - as the others
        """With ``set_use_header``: find columns by the names in the header of each file."""
        self._schema.reorder_columns = reorder
        return self

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:  # noqa: FBT001, FBT002 - PyFlink's
        """The first record of each file is a header: passed over when reading, written.

        Columns go by position, whatever it says; see ``set_strict_headers`` and
        ``set_reorder_columns``.
        """
        self._schema.use_header = use
        return self

    def size(self) -> int:
        """The number of columns so far."""
        return len(self._schema)

    def __len__(self) -> int:
        return self.size()


class CsvReaderFormat(CsvFormat):
    """The stream format that reads CSV files by a schema."""

    @staticmethod
    def for_schema(
        schema: CsvSchema,
        *,
        malformed: str | MalformedPolicy = MalformedPolicy.FAIL,
        multi_line: bool | None = None,
    ) -> CsvReaderFormat:
        """A format for ``FileSource.for_record_stream_format``.

        Args:
            schema: the columns and how the files are written.
            malformed: "fail", or "dead-letter" to set malformed records aside.
            multi_line: whether quoted values may contain line breaks; None looks at the head of
                the first file.
        """
        by_name = schema.use_header and schema.reorder_columns
        null = schema.null_value
        options = CsvOptions(
            delimiter=schema.column_separator,
            quote=schema.quote_char,
            escape=schema.escape_char,
            header=by_name,
            skip_records=(schema.use_header and not by_name) + schema.skip_first_data_row,
            strict_header=schema.use_header and schema.strict_headers and not by_name,
            multi_line=multi_line,
            null_values=("" if null is None else null,),
            null_strings=null is not None,
            null_in_quotes=null is None,
            comments=schema.allow_comments,
            array_separators=dict(schema.array_separators),
        )
        return CsvReaderFormat(schema.get_type_info(), malformed, options)


class CsvBulkWriters:
    """Makes writers of CSV files by a schema."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory:
        """A factory for ``FileSink.for_bulk_format``."""
        return CsvWriterFactory(
            header=schema.use_header,
            delimiter=schema.column_separator,
            null_text=schema.null_value or "",
            array_separators=dict(schema.array_separators),
            quote=schema.quote_char,
            escape=schema.escape_char,
            line_separator=schema.line_separator,
            comments=schema.allow_comments,
            early=True,
        )


#: PyFlink up to 1.16 called it so.
CsvBulkWriter = CsvBulkWriters
