"""Schemas of tables: the resolved schema, its columns, and the unresolved ``Schema`` builder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Self

from millstream.errors import ProgramError, ValidationError
from millstream.sql.catalog.identifiers import quoted
from millstream.sql.parser.parser import parse_type
from millstream.types.logical_types import RowField, RowType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
        """Return what it gives."""
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
        """Return whether the connector's records hold it."""
        return False

    def is_computed(self) -> bool:
        """Return whether it is an expression over other columns."""
        return False

    def is_metadata(self) -> bool:
        """Return whether the connector adds it."""
        return False

    @abstractmethod
    def is_persisted(self) -> bool:
        """Return whether it can be written."""

    @property
    def key(self) -> str:
        """The connector's name of it."""
        return self.name

    def explain_extras(self) -> str | None:
        """Return what there is to say beside name and type; None if nothing."""
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
        """Return what CREATE has behind COMMENT; None if nothing."""
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
        """Return whether it is only read."""
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
    """A constraint that a table promises of its rows; nobody checks it."""

    name: str

    class ConstraintType(Enum):
        """The kind of a constraint."""

        PRIMARY_KEY = 0
        UNIQUE_KEY = 1

    def get_name(self) -> str:
        """The name."""
        return self.name

    def is_enforced(self) -> bool:
        """It never is."""
        return False

    def get_type(self) -> Constraint.ConstraintType:
        """Return what is promised."""
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
    """The columns, watermarks and keys of a table.

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
