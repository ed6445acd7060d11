"""Columns of tables: physical, computed, metadata; and expressions of which the type is known.

What it is: a physical column is read from and written to the connector, a metadata column is what
the connector says of a record, a computed column is an expression over the others.  Expressions are
kept as text, as in Flink, so that a catalog can be written to a file; they are bound when a query
reads the table.
What it is not: the schema that they make (``sql/catalog/schema.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from millstream.sql.catalog.identifiers import quoted

if TYPE_CHECKING:
    from millstream.types.logical_types import LogicalType

__all__ = ["Column", "ComputedColumn", "MetadataColumn", "PhysicalColumn", "ResolvedExpression"]


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
