"""TableSchema: the older description of a table's columns, which programs still use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from millstream.errors import ValidationError
from millstream.sql.catalog.schema import ResolvedSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.types.logical_types import LogicalType, RowType

__all__ = ["TableSchema"]


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
