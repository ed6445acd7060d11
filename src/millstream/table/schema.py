"""Schema: the columns of a table, as programs describe them.

What it is: PyFlink's builder.
What it is not: resolved: types and expressions are looked at when a table is made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from millstream.errors import ProgramError
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import Scope
from millstream.sql.catalog.schema import Column, ColumnKind, ResolvedSchema, WatermarkSpec
from millstream.sql.parser.parser import parse_expression, parse_type
from millstream.sql.planner.logical import row_of
from millstream.sql.statements.schemas import with_key
from millstream.types.logical_types import RowType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.binder.context import BindingContext
    from millstream.table.expression import Expression
    from millstream.types.logical_types import LogicalType

__all__ = ["Schema"]


@dataclass(frozen=True)
class _Computed:
    name: str
    expression: str


@dataclass(frozen=True)
class Schema:
    """Columns, watermark and primary key."""

    columns: tuple[Any, ...] = ()
    watermark: WatermarkSpec | None = None
    key: tuple[str, ...] = ()

    @staticmethod
    def new_builder() -> Schema.Builder:
        """Start building."""
        return Schema.Builder()

    @dataclass
    class Builder:
        """Builds a Schema."""

        _columns: list[Any] = field(default_factory=list)
        _watermark: WatermarkSpec | None = None
        _key: tuple[str, ...] = ()

        def column(self, column_name: str, data_type: str | LogicalType) -> Self:
            """Add a physical column; the type may be a text as in SQL."""
            kind = parse_type(data_type) if isinstance(data_type, str) else data_type
            self._columns.append(Column(column_name, kind))
            return self

        def column_by_expression(self, column_name: str, expr: str | Expression) -> Self:
            """Add a computed column."""
            self._columns.append(_Computed(column_name, str(expr)))
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
            made = Column(
                column_name,
                kind,
                ColumnKind.METADATA,
                metadata_key=metadata_key,
                is_virtual=is_virtual,
            )
            self._columns.append(made)
            return self

        def watermark(self, column_name: str, watermark_expr: str | Expression) -> Self:
            """Make a column event time; ``SOURCE_WATERMARK()``: watermarks are the stream's own."""
            self._watermark = WatermarkSpec(column_name, str(watermark_expr))
            return self

        def primary_key(self, *column_names: str) -> Self:
            """Name the columns that are unique."""
            self._key = column_names
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
            self._key = unresolved_schema.key or self._key
            return self

        def from_resolved_schema(self, resolved_schema: ResolvedSchema) -> Self:
            """Add all of a table's schema."""
            for each in resolved_schema.columns:
                computed = each.is_computed and each.expression is not None
                made = _Computed(each.name, str(each.expression)) if computed else each
                self._columns.append(made)
            self._watermark = resolved_schema.watermark or self._watermark
            self._key = resolved_schema.key_columns or self._key
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
            """Name the columns that are unique; the name of the constraint is only shown."""
            del constraint_name
            return self.primary_key(*column_names)

        def build(self) -> Schema:
            """The schema."""
            return Schema(tuple(self._columns), self._watermark, self._key)

    def __str__(self) -> str:
        """As in CREATE TABLE."""
        lines = [
            f"`{each.name}` AS [{each.expression}]"
            if isinstance(each, _Computed)
            else each.as_sql()
            for each in self.columns
        ]
        if self.watermark is not None:
            lines.append(
                f"WATERMARK FOR `{self.watermark.rowtime}` AS [{self.watermark.expression}]"
            )
        if self.key:
            keys = ", ".join(f"`{each}`" for each in self.key)
            lines.append(f"CONSTRAINT `PK_{'_'.join(self.key)}` PRIMARY KEY ({keys}) NOT ENFORCED")
        return "(\n  " + ",\n  ".join(lines) + "\n)"

    def resolve(self, context: BindingContext, given: RowType | None = None) -> ResolvedSchema:
        """The schema with the types of its expressions.

        Args:
            context: for expressions.
            given: the row of a stream; its columns are there where the schema has none.
        """
        columns = list(self.columns)
        declares = any(isinstance(each, Column) and each.is_physical for each in columns)
        if given is not None and not declares:
            columns = [Column(each.name, each.type) for each in given.fields] + columns
        real = [(each.name, each.type) for each in columns if isinstance(each, Column)]
        declared = {name for name, _ in real}
        # Expressions see the columns of a stream that the table has not, too.
        others = [] if given is None else given.fields
        real += [(each.name, each.type) for each in others if each.name not in declared]
        row = row_of([name for name, _ in real], [kind for _, kind in real])
        binder = ExpressionBinder(context, Scope.of(row))
        made = []
        for each in columns:
            if isinstance(each, _Computed):
                kind = binder.bind(parse_expression(each.expression)).type
                made.append(
                    Column(each.name, kind, ColumnKind.COMPUTED, expression=each.expression)
                )
            else:
                made.append(each)
        schema = ResolvedSchema(tuple(made), self.watermark)
        return with_key(schema, self.key) if self.key else schema
