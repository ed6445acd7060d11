"""Schema: the columns of a table, as programs describe them.

What it is: PyFlink's builder.  Types are known, but not those of expressions.
What it is not: resolved: expressions are looked at when a table is made of it, by
``table/schema.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

from millstream.errors import ProgramError
from millstream.sql.catalog.columns import Column, ComputedColumn, MetadataColumn, PhysicalColumn
from millstream.sql.catalog.identifiers import quoted
from millstream.sql.catalog.schema import ResolvedSchema, WatermarkSpec, key_name
from millstream.sql.parser.parser import parse_type
from millstream.types.logical_types import RowType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.types.logical_types import LogicalType

__all__ = ["Schema", "UnresolvedComputed"]


@dataclass(frozen=True)
class UnresolvedComputed:
    """A computed column, of which nobody has asked what it gives."""

    name: str
    expression: str
    comment: str | None = None

    def __str__(self) -> str:
        """As in CREATE TABLE."""
        comment = "" if self.comment is None else f" COMMENT '{self.comment}'"
        return f"{quoted(self.name)} AS [{self.expression}]{comment}"


@dataclass(frozen=True)
class Schema:
    """Columns, watermark and primary key."""

    #: Finds out what expressions give where no session does; ``table/schema.py`` brings it, for
    #: to bind stands above catalogs.
    resolver: ClassVar[Callable[[Schema], ResolvedSchema] | None] = None

    columns: tuple[Column | UnresolvedComputed, ...] = ()
    watermark: WatermarkSpec | None = None
    key: tuple[str, ...] = ()
    #: Of the constraint; None: it is made of the columns.
    key_name: str | None = None
    #: Types of columns as the program wrote them, where it wrote texts.
    texts: Mapping[str, str] = field(default_factory=dict, compare=False)

    def resolved(self) -> ResolvedSchema:
        """With the types of expressions, in which functions of users are not known.

        Raises:
            ValidationError: an expression makes no sense.
        """
        assert self.resolver is not None  # noqa: S101 - whoever has a Schema imported it
        return self.resolver()

    @staticmethod
    def new_builder() -> Schema.Builder:
        """Start building."""
        return Schema.Builder()

    @dataclass
    class Builder:
        """Builds a Schema."""

        _columns: list[Column | UnresolvedComputed] = field(default_factory=list)
        _watermark: WatermarkSpec | None = None
        _key: tuple[str, ...] = ()
        _key_name: str | None = None
        _texts: dict[str, str] = field(default_factory=dict)

        def column(self, column_name: str, data_type: str | LogicalType) -> Self:
            """Add a physical column; the type may be a text as in SQL."""
            if isinstance(data_type, str):
                self._texts[column_name] = data_type
                data_type = parse_type(data_type)
            self._columns.append(PhysicalColumn(column_name, data_type))
            return self

        def column_by_expression(self, column_name: str, expr: object) -> Self:
            """Add a computed column; the expression may be a text as in SQL."""
            self._columns.append(UnresolvedComputed(column_name, str(expr)))
            return self

        def column_by_metadata(
            self,
            column_name: str,
            data_type: str | LogicalType,
            metadata_key: str | None = None,
            is_virtual: bool = False,  # noqa: FBT001, FBT002 - PyFlink's
        ) -> Self:
            """Add a metadata column."""
            kind = parse_type(data_type) if isinstance(data_type, str) else data_type
            made = MetadataColumn(column_name, kind, metadata_key, virtual=is_virtual)
            self._columns.append(made)
            return self

        def watermark(self, column_name: str, watermark_expr: object) -> Self:
            """Make a column event time; ``SOURCE_WATERMARK()``: watermarks are the stream's own."""
            self._watermark = WatermarkSpec(column_name, str(watermark_expr))
            return self

        def primary_key(self, *column_names: str) -> Self:
            """Name the columns that are unique."""
            self._key, self._key_name = column_names, key_name(column_names)
            return self

        def from_fields(
            self, field_names: Sequence[str], field_data_types: Sequence[LogicalType]
        ) -> Self:
            """Add physical columns."""
            for name, kind in zip(field_names, field_data_types, strict=True):
                self.column(name, kind)
            return self

        def from_schema(self, unresolved_schema: Schema) -> Self:
            """Add all of another schema."""
            self._columns += unresolved_schema.columns
            self._watermark = unresolved_schema.watermark or self._watermark
            self._texts |= unresolved_schema.texts
            if unresolved_schema.key:
                self._key, self._key_name = unresolved_schema.key, unresolved_schema.key_name
            return self

        def from_resolved_schema(self, resolved_schema: ResolvedSchema) -> Self:
            """Add all of a table's schema."""
            for each in resolved_schema.columns:
                made: Column | UnresolvedComputed = each
                if isinstance(each, ComputedColumn):
                    made = UnresolvedComputed(each.name, each.expression, each.comment)
                self._columns.append(made)
            self._watermark = resolved_schema.watermark or self._watermark
            if resolved_schema.primary_key is not None:
                key = resolved_schema.primary_key
                self._key, self._key_name = key.columns, key.name
            return self

        def from_row_data_type(self, data_type: LogicalType) -> Self:
            """Add the fields of a row as physical columns.

            Raises:
                ProgramError: it is no row.
            """
            if not isinstance(data_type, RowType):
                message = f"from_row_data_type() takes a row, not {data_type.as_summary_string()}"
                raise ProgramError(message)
            return self.from_fields(data_type.names, data_type.children)

        def primary_key_named(self, constraint_name: str, *column_names: str) -> Self:
            """Name the columns that are unique, and the constraint."""
            self._key, self._key_name = column_names, constraint_name
            return self

        def build(self) -> Schema:
            """The schema."""
            columns = tuple(self._columns)
            return Schema(columns, self._watermark, self._key, self._key_name, dict(self._texts))

    def _shown(self, column: Column | UnresolvedComputed) -> str:
        """A column; what nobody has resolved is in brackets."""
        if isinstance(column, MetadataColumn):
            comment = "" if column.comment is None else f" COMMENT '{column.comment}'"
            return f"{quoted(column.name)} {column.explain_extras()}{comment}"
        if column.name in self.texts and isinstance(column, PhysicalColumn):
            return f"{quoted(column.name)} [{self.texts[column.name]}]"
        return str(column)

    def __str__(self) -> str:
        """As Flink shows a schema that is not resolved."""
        lines = [self._shown(each) for each in self.columns]
        if self.watermark is not None:
            lines.append(
                f"WATERMARK FOR `{self.watermark.rowtime}` AS [{self.watermark.expression}]"
            )
        if self.key:
            keys = ", ".join(f"`{each}`" for each in self.key)
            name = self.key_name or key_name(self.key)
            lines.append(f"CONSTRAINT {quoted(name)} PRIMARY KEY ({keys}) NOT ENFORCED")
        return "(\n  " + ",\n  ".join(lines) + "\n)"
