"""Schemas of tables: columns of three kinds, watermarks, the primary key.

What it is: the resolved schema of a catalog table.  A physical column is read from and written to
the connector, a metadata column is what the connector says of a record, a computed column is an
expression over the others.  Expressions are kept as text, as in Flink, so that a catalog can be
written to a file; they are bound when a query reads the table.

What it is not: the builder that programs use (``table/schema.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from millstream.errors import ValidationError
from millstream.sql.catalog.identifiers import quoted
from millstream.types.logical_types import RowField, RowType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.types.logical_types import LogicalType

__all__ = [
    "Column",
    "ColumnKind",
    "Constraint",
    "PrimaryKey",
    "ResolvedSchema",
    "UniqueConstraint",
    "WatermarkSpec",
]


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

    def __str__(self) -> str:
        """As ``as_summary_string``."""
        return self.as_summary_string()

    def get_name(self) -> str:
        """The name."""
        return self.name

    def get_data_type(self) -> LogicalType:
        """The type."""
        return self.type

    def get_comment(self) -> str | None:
        """What CREATE has behind COMMENT; None if nothing."""
        return self.comment

    def explain_extras(self) -> str | None:
        """What there is to say beside name and type; None if nothing."""
        return self.extras() or None

    def as_summary_string(self) -> str:
        """``name: TYPE``, and what else there is to say."""
        extras = self.extras()
        return f"{self.name}: {self.type.as_summary_string()}{f' {extras}' if extras else ''}"

    def with_comment(self, comment: str) -> Column:
        """The same column with a comment."""
        return replace(self, comment=comment)

    def copy(self, new_type: LogicalType) -> Column:
        """The same column with another type."""
        return replace(self, type=new_type)

    def rename(self, new_name: str) -> Column:
        """The same column with another name; metadata keep their key."""
        key = self.key if self.is_metadata else None
        return replace(self, name=new_name, metadata_key=key)

    def as_sql(self) -> str:
        """The column as CREATE TABLE has it."""
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

    def get_rowtime_attribute(self) -> str:
        """The column."""
        return self.rowtime


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a table promises of its rows; nobody checks it."""

    name: str

    class ConstraintType(Enum):
        """What is promised."""

        PRIMARY_KEY = 0
        UNIQUE_KEY = 1

    def get_name(self) -> str:
        """The name."""
        return self.name

    def is_enforced(self) -> bool:
        """It never is."""
        return False

    def get_type(self) -> Constraint.ConstraintType:
        """What is promised."""
        return self.ConstraintType.PRIMARY_KEY

    def as_summary_string(self) -> str:
        """The constraint as CREATE TABLE has it."""
        return f"CONSTRAINT {quoted(self.name)}"


@dataclass(frozen=True, slots=True)
class UniqueConstraint(Constraint):
    """Columns whose values are unique; promised by whoever writes, not enforced."""

    columns: tuple[str, ...]

    @staticmethod
    def primary_key(name: str, columns: Sequence[str]) -> UniqueConstraint:
        """The primary key of some columns."""
        return UniqueConstraint(name, tuple(columns))

    def get_columns(self) -> list[str]:
        """The columns."""
        return list(self.columns)

    def get_type_string(self) -> str:
        """``PRIMARY KEY``."""
        return "PRIMARY KEY"

    def as_summary_string(self) -> str:
        names = ", ".join(map(quoted, self.columns))
        return f"CONSTRAINT {quoted(self.name)} {self.get_type_string()} ({names}) NOT ENFORCED"


#: What catalogs and statements call it.
PrimaryKey = UniqueConstraint


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
    def read(self) -> Sequence[Column]:
        """The columns that the connector gives: physical ones, and metadata."""
        return [column for column in self.columns if not column.is_computed]

    @property
    def persisted(self) -> Sequence[Column]:
        """The columns that can be written."""
        return [column for column in self.columns if column.is_persisted]

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the primary key; empty if there is none."""
        return () if self.primary_key is None else self.primary_key.columns

    def get_columns(self) -> list[Column]:
        """All columns."""
        return list(self.columns)

    def get_column(self, column_index_or_name: int | str) -> Column | None:
        """The column at a position or of a name; None if there is none."""
        if isinstance(column_index_or_name, int):
            found = self.columns[column_index_or_name : column_index_or_name + 1]
            return found[0] if found and column_index_or_name >= 0 else None
        named = (each for each in self.columns if each.name == column_index_or_name)
        return next(named, None)

    def get_watermark_specs(self) -> list[WatermarkSpec]:
        """The watermark, if there is one."""
        return [] if self.watermark is None else [self.watermark]

    def get_primary_key(self) -> UniqueConstraint | None:
        """The primary key; None if there is none."""
        return self.primary_key

    def get_primary_key_indexes(self) -> list[int]:
        """The positions of the columns of the primary key; empty if there is none."""
        return [self.names.index(name) for name in self.key_columns]

    def to_source_row_data_type(self) -> RowType:
        """All columns as a row."""
        return _row(self.columns)

    def to_physical_row_data_type(self) -> RowType:
        """The columns that the connector's records hold, as a row."""
        return _row(self.physical)

    def to_sink_row_data_type(self) -> RowType:
        """The columns that can be written, as a row."""
        return _row(self.persisted)

    def get_column_names(self) -> list[str]:
        """PyFlink's name of ``names``."""
        return self.names

    def get_column_data_types(self) -> list[LogicalType]:
        """PyFlink's name of ``types``."""
        return self.types

    def get_column_count(self) -> int:
        """How many columns there are."""
        return len(self.columns)


def _row(columns: Sequence[Column]) -> RowType:
    fields = tuple(RowField(each.name, each.type) for each in columns)
    return RowType(fields, nullable=False)
