"""Schemas of tables: columns, watermarks, the primary key.

What it is: the resolved schema of a catalog table.
What it is not: its columns (``sql/catalog/schema.py``), or the builder that programs use
(``sql/catalog/unresolved_schema.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Self

from millstream.errors import ValidationError
from millstream.sql.catalog.identifiers import quoted
from millstream.types.logical_types import RowField, RowType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.types.logical_types import LogicalType


@dataclass(frozen=True, slots=True)
class ResolvedExpression:
    """An expression over the columns of a table, and what it gives.

    Args:
        expression: SQL.
        data_type: of its values.
    """

    expression: str
    data_type: LogicalType

    def __str__(self) -> str:
        """The SQL."""
        return self.expression

    def get_output_data_type(self) -> LogicalType:
        """What it gives."""
        return self.data_type

    def as_serializable_string(self) -> str:
        """The SQL."""
        return self.expression

    def as_summary_string(self) -> str:
        """The SQL."""
        return self.expression


@dataclass(frozen=True, slots=True)
class Column(ABC):
    """A column of a table."""

    name: str
    type: LogicalType
    comment: str | None = field(default=None, kw_only=True)

    @staticmethod
    def physical(name: str, data_type: LogicalType) -> PhysicalColumn:
        """A column that the connector's records hold."""
        return PhysicalColumn(name, data_type)

    @staticmethod
    def computed(name: str, resolved_expression: ResolvedExpression) -> ComputedColumn:
        """A column that is an expression over the others."""
        return ComputedColumn(name, resolved_expression.data_type, resolved_expression.expression)

    @staticmethod
    def metadata(
        name: str,
        data_type: LogicalType,
        metadata_key: str | None,
        is_virtual: bool,  # noqa: FBT001 - PyFlink's
    ) -> MetadataColumn:
        """A column that the connector adds.

        Args:
            name: of the column.
            data_type: of the column, to which what the connector says is cast.
            metadata_key: how the connector calls it; None: as the column.
            is_virtual: whether it is only read.
        """
        return MetadataColumn(name, data_type, metadata_key, virtual=is_virtual)

    def is_physical(self) -> bool:
        """Whether the connector's records hold it."""
        return False

    def is_computed(self) -> bool:
        """Whether it is an expression over other columns."""
        return False

    def is_metadata(self) -> bool:
        """Whether the connector adds it."""
        return False

    @abstractmethod
    def is_persisted(self) -> bool:
        """Whether it can be written."""

    @property
    def key(self) -> str:
        """The connector's name of it."""
        return self.name

    def explain_extras(self) -> str | None:
        """What there is to say beside name and type; None if nothing."""
        return None

    def __str__(self) -> str:
        """As ``as_summary_string``."""
        return self.as_summary_string()

    def get_name(self) -> str:
        """The name."""
        return self.name

    def get_data_type(self) -> LogicalType:
        """The type; of a computed column what its expression gives."""
        return self.type

    def get_comment(self) -> str | None:
        """What CREATE has behind COMMENT; None if nothing."""
        return self.comment

    def as_summary_string(self) -> str:
        """Name, type, and what else there is to say."""
        extras = self.explain_extras()
        shown = f"{quoted(self.name)} {self.type.as_summary_string()}"
        return f"{shown}{f' {extras}' if extras else ''}{self._comment_text()}"

    def _comment_text(self) -> str:
        if self.comment is None:
            return ""
        return " COMMENT '" + self.comment.replace("'", "''") + "'"

    def with_comment(self, comment: str | None) -> Self:
        """The same column with a comment, or without one."""
        return replace(self, comment=comment)

    @abstractmethod
    def copy(self, new_type: LogicalType) -> Self:
        """The same column with another type."""

    def rename(self, new_name: str) -> Self:
        """The same column with another name."""
        return replace(self, name=new_name)

    def as_sql(self) -> str:
        """The column as CREATE TABLE has it."""
        return self.as_summary_string()


@dataclass(frozen=True, slots=True)
class PhysicalColumn(Column):
    """A column that the connector's records hold."""

    def is_physical(self) -> bool:
        return True

    def copy(self, new_data_type: LogicalType) -> Self:
        return replace(self, type=new_data_type)

    def is_persisted(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class ComputedColumn(Column):
    """A column that is an expression over the others."""

    #: SQL.
    expression: str

    def is_computed(self) -> bool:
        return True

    def copy(self, new_data_type: LogicalType) -> Self:
        return replace(self, type=new_data_type)

    def is_persisted(self) -> bool:
        return False

    def get_expression(self) -> ResolvedExpression:
        """The expression and what it gives."""
        return ResolvedExpression(self.expression, self.type)

    def explain_extras(self) -> str | None:
        return f"AS {self.expression}"

    def as_sql(self) -> str:
        return f"{quoted(self.name)} AS {self.expression}{self._comment_text()}"


@dataclass(frozen=True, slots=True)
class MetadataColumn(Column):
    """A column that the connector adds."""

    #: How the connector calls it, if not as the column.
    metadata_key: str | None = None
    #: Whether it is only read.
    virtual: bool = field(default=False, kw_only=True)

    def is_metadata(self) -> bool:
        return True

    def is_virtual(self) -> bool:
        """Whether it is only read."""
        return self.virtual

    def copy(self, new_data_type: LogicalType) -> Self:
        return replace(self, type=new_data_type)

    def is_persisted(self) -> bool:
        return not self.virtual

    def get_metadata_key(self) -> str | None:
        """How the connector calls it; None: as the column."""
        return self.metadata_key

    @property
    def key(self) -> str:
        return self.metadata_key or self.name

    def explain_extras(self) -> str | None:
        source = "" if self.metadata_key is None else f" FROM '{self.metadata_key}'"
        return f"METADATA{source}{' VIRTUAL' if self.virtual else ''}"


@dataclass(frozen=True, slots=True)
class WatermarkSpec:
    """A column that is the time of the rows, and how far time has got when a row was seen."""

    rowtime: str
    #: SQL.
    expression: str
    #: What the expression gives; None where nobody has asked for it.
    type: LogicalType | None = field(default=None, compare=False)

    @staticmethod
    def of(rowtime_attribute: str, watermark_expression: ResolvedExpression) -> WatermarkSpec:
        """The watermark of a column.

        Args:
            rowtime_attribute: the column.
            watermark_expression: how far time has got when a row was seen.
        """
        expression, kind = watermark_expression.expression, watermark_expression.data_type
        return WatermarkSpec(rowtime_attribute, expression, kind)

    def get_rowtime_attribute(self) -> str:
        """The column."""
        return self.rowtime

    def get_watermark_expression(self) -> ResolvedExpression:
        """How far time has got when a row was seen.

        Raises:
            ValidationError: it is none of a resolved schema, so that its type is not known.
        """
        if self.type is None:
            message = (
                f"The type of the watermark of '{self.rowtime}' is not known; take the watermark "
                "from get_watermark_specs() of a resolved schema."
            )
            raise ValidationError(message)
        return ResolvedExpression(self.expression, self.type)

    def as_summary_string(self) -> str:
        """The watermark with its type."""
        kind = "" if self.type is None else f": {self.type.as_summary_string()}"
        return f"WATERMARK FOR {quoted(self.rowtime)}{kind} AS {self.expression}"

    def __str__(self) -> str:
        """As ``as_summary_string``."""
        return self.as_summary_string()


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


def key_name(columns: Sequence[str]) -> str:
    """The name of a primary key that nobody has named."""
    return f"PK_{'_'.join(columns)}"


#: What catalogs and statements call it.
PrimaryKey = UniqueConstraint


@dataclass(frozen=True, init=False)
class ResolvedSchema:
    """What a table looks like.

    Args:
        columns: in their order.
        watermark_specs: none or one.
        primary_key: what is unique, if anything.

    Raises:
        ValidationError: names are not unique, the key is not made of physical columns, or there are
            several watermarks.
    """

    columns: tuple[Column, ...]
    watermark: WatermarkSpec | None
    primary_key: PrimaryKey | None

    def __init__(
        self,
        columns: Sequence[Column] | None = None,
        watermark_specs: Sequence[WatermarkSpec] | None = None,
        primary_key: PrimaryKey | None = None,
    ) -> None:
        specs = list(watermark_specs or ())
        if len(specs) > 1:
            message = "Multiple watermark definitions are not supported yet."
            raise ValidationError(message)
        object.__setattr__(self, "columns", tuple(columns or ()))
        object.__setattr__(self, "watermark", specs[0] if specs else None)
        object.__setattr__(self, "primary_key", primary_key)
        self._check()

    @staticmethod
    def of(columns: Sequence[Column]) -> ResolvedSchema:
        """A schema of columns alone."""
        return ResolvedSchema(columns)

    @staticmethod
    def physical(
        column_names: Sequence[str], column_data_types: Sequence[LogicalType]
    ) -> ResolvedSchema:
        """A schema of physical columns alone.

        Raises:
            ValidationError: there are more names than types, or fewer.
        """
        if len(column_names) != len(column_data_types):
            message = "Mismatch between number of columns names and data types."
            raise ValidationError(message)
        pairs = zip(column_names, column_data_types, strict=True)
        return ResolvedSchema([PhysicalColumn(name, kind) for name, kind in pairs])

    def with_columns(self, columns: Sequence[Column]) -> ResolvedSchema:
        """The same with other columns."""
        return ResolvedSchema(columns, self._specs, self.primary_key)

    def with_watermark(self, watermark: WatermarkSpec | None) -> ResolvedSchema:
        """The same with another watermark, or without one."""
        specs = [] if watermark is None else [watermark]
        return ResolvedSchema(self.columns, specs, self.primary_key)

    def with_primary_key(self, key: PrimaryKey | None) -> ResolvedSchema:
        """The same with another primary key, or without one."""
        return ResolvedSchema(self.columns, self._specs, key)

    @property
    def _specs(self) -> list[WatermarkSpec]:
        return [] if self.watermark is None else [self.watermark]

    def _check(self) -> None:
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
            if not self.column(name).is_physical():
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
    def stored(self) -> Sequence[Column]:
        """The columns that the connector's records hold."""
        return [column for column in self.columns if column.is_physical()]

    @property
    def read(self) -> Sequence[Column]:
        """The columns that the connector gives: physical ones, and metadata."""
        return [column for column in self.columns if not column.is_computed()]

    @property
    def persisted(self) -> Sequence[Column]:
        """The columns that can be written."""
        return [column for column in self.columns if column.is_persisted()]

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
        """The watermark, if there is one, with the type that it has for the column."""
        if self.watermark is None or self.watermark.type is not None:
            return self._specs
        timed = self.get_column(self.watermark.rowtime)
        return [replace(self.watermark, type=None if timed is None else timed.type)]

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
        return _row(self.stored)

    def to_sink_row_data_type(self) -> RowType:
        """The columns that can be written, as a row."""
        return _row(self.persisted)

    def __str__(self) -> str:
        """One line for each part."""
        parts: list[object] = [*self.columns, *self.get_watermark_specs()]
        if self.primary_key is not None:
            parts.append(self.primary_key.as_summary_string())
        return "(\n" + ",\n".join(f"  {each}" for each in parts) + "\n)"

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
