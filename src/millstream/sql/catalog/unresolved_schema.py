"""Schema: the columns of a table, as programs describe them.

What it is: PyFlink's builder.  Types are known, but not those of expressions.
What it is not: resolved: expressions are looked at when a table is made of it, by
``table/schema.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

from millstream.errors import ProgramError, ValidationError
from millstream.sql.catalog.identifiers import quoted
from millstream.sql.catalog.schema import (
    Column,
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    ResolvedSchema,
    WatermarkSpec,
    key_name,
)
from millstream.sql.parser.parser import parse_type
from millstream.types.logical_types import RowType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.types.logical_types import LogicalType


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


@dataclass(frozen=True, init=False, repr=False)
class TableSchema(ResolvedSchema):
    """Names and types of columns; a ``ResolvedSchema`` with the methods of Flink's older class.

    Args:
        field_names: the names, in order.
        data_types: the types, in order.

    Raises:
        ValidationError: there are more names than types or fewer, or a name is there twice.
    """

    def __init__(
        self,
        field_names: Sequence[str] | None = None,
        data_types: Sequence[LogicalType] | None = None,
    ) -> None:
        names, types = list(field_names or ()), list(data_types or ())
        if len(names) != len(types):
            message = (
                "Number of field names and field data types must be equal. "
                f"Number of names is {len(names)}, number of data types is {len(types)}."
            )
            raise ValidationError(message)
        super().__init__(ResolvedSchema.physical(names, types).columns)

    @staticmethod
    def from_resolved_schema(schema: ResolvedSchema) -> TableSchema:
        """The same columns, watermark and primary key."""
        made = TableSchema()
        specs = schema.get_watermark_specs()
        ResolvedSchema.__init__(made, schema.columns, specs, schema.primary_key)
        return made

    def copy(self) -> TableSchema:
        """The same again."""
        return TableSchema.from_resolved_schema(self)

    def get_field_data_types(self) -> list[LogicalType]:
        """The types of all columns."""
        return self.types

    def get_field_data_type(self, field: int | str) -> LogicalType | None:
        """The type of the column at a position or of a name; None if there is none.

        Raises:
            TypeError: it is neither a position nor a name.
        """
        wanted: object = field
        if not isinstance(wanted, int | str):
            message = f"A column is found by its position or its name, not by {wanted!r:.100}."
            raise TypeError(message)
        found = self.get_column(wanted)
        return None if found is None else found.type

    def get_field_count(self) -> int:
        """How many columns there are."""
        return len(self.columns)

    def get_field_names(self) -> list[str]:
        """The names of all columns."""
        return self.names

    def get_field_name(self, field_index: int) -> str | None:
        """The name of the column at a position; None if there is none."""
        found = self.get_column(field_index)
        return None if found is None else found.name

    def to_row_data_type(self) -> RowType:
        """All columns as a row, which is never NULL."""
        return self.to_source_row_data_type()

    def __str__(self) -> str:
        """One line for each part, as Flink prints it."""
        lines = []
        for each in self.columns:
            extras = each.explain_extras()
            shown = f"{each.name}: {each.type.as_summary_string()}"
            lines.append(f"{shown} {extras}" if extras else shown)
        for spec in self.get_watermark_specs():
            kind = "" if spec.type is None else f": {spec.type.as_summary_string()}"
            lines.append(f"WATERMARK FOR {spec.rowtime}{kind} AS {spec.expression}")
        if self.primary_key is not None:
            keys = ", ".join(self.primary_key.columns)
            lines.append(f"CONSTRAINT {self.primary_key.name} PRIMARY KEY ({keys})")
        return "root\n" + "".join(f" |-- {each}\n" for each in lines)

    def __repr__(self) -> str:
        return str(self)

    @staticmethod
    def builder() -> TableSchema.Builder:
        """Start building."""
        return TableSchema.Builder()

    @dataclass
    class Builder:
        """Builds a TableSchema."""

        _names: list[str] = field(default_factory=list)
        _types: list[LogicalType] = field(default_factory=list)

        def field(self, name: str, data_type: LogicalType) -> Self:
            """Add a column."""
            self._names.append(name)
            self._types.append(data_type)
            return self

        def build(self) -> TableSchema:
            """The schema."""
            return TableSchema(self._names, self._types)
