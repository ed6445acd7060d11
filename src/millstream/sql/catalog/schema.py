"""Schemas of tables: columns of three kinds, watermarks, the primary key.

What it is: the resolved schema of a catalog table.  A physical column is read from and written to
the connector, a metadata column is what the connector says of a record, a computed column is an
expression over the others.  Expressions are kept as text, as in Flink, so that a catalog can be
written to a file; they are bound when a query reads the table.

What it is not: the builder that programs use (``table/schema.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.types.logical_types import LogicalType

__all__ = ["Column", "ColumnKind", "PrimaryKey", "ResolvedSchema", "WatermarkSpec"]

from enum import Enum


class ColumnKind(Enum):
    """Where the values of a column come from."""

    PHYSICAL = "physical"
    COMPUTED = "computed"
    METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    #: For a computed column: what its expression gives.
    type: LogicalType
    kind: ColumnKind = ColumnKind.PHYSICAL
    #: The SQL of a computed column.
    expression: str | None = None
    #: The connector's key of a metadata column, if it is not the name.
    metadata_key: str | None = None
    #: A metadata column that is only read.
    is_virtual: bool = False
    comment: str | None = None

    @property
    def is_physical(self) -> bool:
        """Whether the connector's records hold it."""
        return self.kind is ColumnKind.PHYSICAL

    @property
    def is_computed(self) -> bool:
        """Whether it is an expression over other columns."""
        return self.kind is ColumnKind.COMPUTED

    @property
    def is_metadata(self) -> bool:
        """Whether the connector adds it."""
        return self.kind is ColumnKind.METADATA

    @property
    def is_persisted(self) -> bool:
        """Whether it can be written."""
        return self.is_physical or (self.is_metadata and not self.is_virtual)

    @property
    def key(self) -> str:
        """The connector's name of a metadata column."""
        return self.metadata_key or self.name

    def extras(self) -> str:
        """What DESCRIBE shows of a column beside its type."""
        if self.is_computed:
            return f"AS {self.expression}"
        if self.is_metadata:
            source = f" FROM '{self.metadata_key}'" if self.metadata_key else ""
            return f"METADATA{source}{' VIRTUAL' if self.is_virtual else ''}"
        return ""

    def as_sql(self) -> str:
        """The column as CREATE TABLE has it."""
        from millstream.sql.catalog.identifiers import quoted

        comment = "" if self.comment is None else f" COMMENT '{self.comment}'"
        if self.is_computed:
            return f"{quoted(self.name)} {self.extras()}{comment}"
        extras = f" {self.extras()}" if self.is_metadata else ""
        return f"{quoted(self.name)} {self.type.as_summary_string()}{extras}{comment}"


@dataclass(frozen=True, slots=True)
class WatermarkSpec:
    """A column that is the time of the rows, and how far time has got when a row was seen."""

    rowtime: str
    #: SQL.
    expression: str


@dataclass(frozen=True, slots=True)
class PrimaryKey:
    """Columns whose values are unique; promised by whoever writes, not enforced."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResolvedSchema:
    """What a table looks like."""

    columns: tuple[Column, ...]
    watermark: WatermarkSpec | None = None
    primary_key: PrimaryKey | None = None

    def __post_init__(self) -> None:
        """Check that names are unique and that the key is made of columns.

        Raises:
            ValidationError: they are not.
        """
        names = self.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            message = f"A column named '{twice[0]}' already exists in the table."
            raise ValidationError(message)
        for name in () if self.primary_key is None else self.primary_key.columns:
            if name not in names:
                message = (
                    f"Invalid primary key '{self.primary_key.name}'. "  # type: ignore[union-attr]
                    f"Column '{name}' does not exist."
                )
                raise ValidationError(message)
            if not self.column(name).is_physical:
                message = (
                    f"Invalid primary key '{self.primary_key.name}'. "  # type: ignore[union-attr]
                    f"Column '{name}' is not a physical column."
                )
                raise ValidationError(message)

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [column.name for column in self.columns]

    @property
    def types(self) -> list[LogicalType]:
        """The types of all columns."""
        return [column.type for column in self.columns]

    def column(self, name: str) -> Column:
        """The column called ``name``; KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def physical(self) -> Sequence[Column]:
        """The columns that the connector's records hold."""
        return [column for column in self.columns if column.is_physical]

    @property
    def persisted(self) -> Sequence[Column]:
        """The columns that can be written."""
        return [column for column in self.columns if column.is_persisted]

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the primary key; empty if there is none."""
        return () if self.primary_key is None else self.primary_key.columns

    def get_column_names(self) -> list[str]:
        """PyFlink's name of ``names``."""
        return self.names

    def get_column_data_types(self) -> list[LogicalType]:
        """PyFlink's name of ``types``."""
        return self.types

    def get_column_count(self) -> int:
        """How many columns there are."""
        return len(self.columns)
