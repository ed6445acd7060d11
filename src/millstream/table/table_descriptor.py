"""Descriptors of tables, their formats and catalogs, as programs make them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from millstream.configuration.option import ConfigOption, parse_string
from millstream.sql.catalog.identifiers import quoted
from millstream.sql.catalog.objects import CatalogTable
from millstream.sql.catalog.schema import ResolvedSchema
from millstream.table.schema import Schema, resolved

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration
    from millstream.sql.binder.scope import BindingContext
    from millstream.types.logical_types import RowType


class _TakesOptions:
    """Base of builders of what has options."""

    _options: dict[str, str]

    def option(self, key: str | ConfigOption[Any], value: object) -> Self:
        """Set an option; that of a format without the name of the format before it.

        Args:
            key: the key, or an option that has it.
            value: written as in a configuration.

        Raises:
            ConfigurationError: the option does not take the value.
        """
        if isinstance(key, ConfigOption):
            key.read(value)  # raises where the value makes no sense
            key = key.key
        self._options[key] = parse_string(value)
        return self


@dataclass(frozen=True)
class FormatDescriptor:
    """A format with its options."""

    format: str
    options: dict[str, str] = field(default_factory=dict)

    def get_format(self) -> str:
        """The name of the format."""
        return self.format

    def get_options(self) -> dict[str, str]:
        """The options, without the name of the format before them."""
        return dict(self.options)

    def __str__(self) -> str:
        """The name and the options."""
        pairs = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.format}[{{{pairs}}}]"

    @staticmethod
    def for_format(format: str) -> FormatDescriptor.Builder:  # noqa: A002 - PyFlink's
        """Start building."""
        return FormatDescriptor.Builder(format)

    @dataclass
    class Builder(_TakesOptions):
        """Builds a FormatDescriptor."""

        _format: str
        _options: dict[str, str] = field(default_factory=dict)

        def build(self) -> FormatDescriptor:
            """The descriptor."""
            return FormatDescriptor(self._format, dict(self._options))


@dataclass(frozen=True)
class TableDescriptor:
    """A table of a connector."""

    options: dict[str, str]
    schema: Schema | None = None
    partition_keys: tuple[str, ...] = ()
    comment: str | None = None

    def get_schema(self) -> Schema | None:
        """The columns; None if none are said."""
        return self.schema

    def get_options(self) -> dict[str, str]:
        """The options, of the connector and of its format."""
        return dict(self.options)

    def get_partition_keys(self) -> list[str]:
        """The columns of partitions."""
        return list(self.partition_keys)

    def get_comment(self) -> str | None:
        """The comment."""
        return self.comment

    def __str__(self) -> str:
        """As in CREATE TABLE."""
        options = ",\n".join(f"  '{key}' = '{value}'" for key, value in self.options.items())
        partitions = ", ".join(f"`{each}`" for each in self.partition_keys)
        parts = [
            "" if self.schema is None else str(self.schema),
            "" if self.comment is None else f"COMMENT '{self.comment}'",
            f"PARTITIONED BY ({partitions})" if partitions else "",
            f"WITH (\n{options}\n)",
        ]
        return "\n".join(each for each in parts if each)

    def with_row(self, row: RowType) -> TableDescriptor:
        """The same with columns of a row."""
        return replace(self, schema=Schema.new_builder().from_row_data_type(row).build())

    @staticmethod
    def for_connector(connector: str) -> TableDescriptor.Builder:
        """Start building."""
        return TableDescriptor.Builder({"connector": connector})

    @dataclass
    class Builder(_TakesOptions):
        """Builds a TableDescriptor."""

        _options: dict[str, str]
        _schema: Schema | None = None
        _partition_keys: tuple[str, ...] = ()
        _comment: str | None = None

        def schema(self, schema: Schema) -> Self:
            """Set the columns."""
            self._schema = schema
            return self

        def format(
            self,
            format: str | FormatDescriptor,  # noqa: A002 - PyFlink's
            format_option: str | ConfigOption[Any] | None = None,
        ) -> Self:
            """Set the format; ``format_option`` is the option that names it, or "format"."""
            key = format_option.key if isinstance(format_option, ConfigOption) else format_option
            key = key or "format"
            if isinstance(format, str):
                self._options[key] = format
                return self
            prefix = key.removesuffix("format") + format.format
            self._options[key] = format.format
            for name, value in format.options.items():
                self._options[f"{prefix}.{name}"] = value
            return self

        def partitioned_by(self, *partition_keys: str) -> Self:
            """Set the columns of partitions."""
            self._partition_keys = partition_keys
            return self

        def comment(self, comment: str) -> Self:
            """Set the comment."""
            self._comment = comment
            return self

        def build(self) -> TableDescriptor:
            """The descriptor."""
            return TableDescriptor(
                dict(self._options), self._schema, self._partition_keys, self._comment
            )

    def to_catalog_table(self, context: BindingContext) -> CatalogTable:
        """The table as catalogs keep it."""
        schema = ResolvedSchema() if self.schema is None else resolved(self.schema, context)
        return CatalogTable(
            schema=schema,
            comment=self.comment,
            options=self.options,
            partition_keys=self.partition_keys,
        )


@dataclass(frozen=True)
class CatalogDescriptor:
    """A catalog that is to be made; see ``of``."""

    catalog_name: str
    configuration: Configuration
    comment: str | None = None

    @staticmethod
    def of(
        catalog_name: str, configuration: Configuration, comment: str | None = None
    ) -> CatalogDescriptor:
        """Return what ``CREATE CATALOG`` says.

        Args:
            catalog_name: its name.
            configuration: ``type``, and the options of that type.
            comment: what it is for.
        """
        return CatalogDescriptor(catalog_name, configuration, comment)

    def statement(self, name: str) -> str:
        """``CREATE CATALOG``, with a name of its own in the session."""
        options = self.configuration.to_dict().items()
        pairs = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in options)
        comment = "" if self.comment is None else f" COMMENT {_text(self.comment)}"
        return f"CREATE CATALOG {quoted(name)}{comment}{f' WITH ({pairs})' if pairs else ''}"


def _text(value: str) -> str:
    """A value as statements have it."""
    return "'" + value.replace("'", "''") + "'"
