"""ALTER TABLE: schema, options and partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.connectors.files.partition_names import directory_of, shown_value, value_text
from millstream.errors import CatalogError, ValidationError
from millstream.sql.binder.binding import static_partition
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.relations import is_source_watermark, watermarked
from millstream.sql.binder.scope import Scope
from millstream.sql.catalog import connectors
from millstream.sql.catalog.identifiers import CatalogPartitionSpec
from millstream.sql.catalog.objects import CatalogPartition, CatalogTable
from millstream.sql.catalog.partitions_and_statistics import PartitionDirectories
from millstream.sql.catalog.schema import (
    Column,
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    PrimaryKey,
    ResolvedSchema,
    WatermarkSpec,
    key_name,
)
from millstream.sql.parser import statement_nodes as syntax
from millstream.sql.parser.unparser import unparse
from millstream.sql.planner.logical import ProjectNode, ValuesNode, references, row_of
from millstream.sql.statements.session import OK, texts
from millstream.sql.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.binder.scope import BindingContext
    from millstream.sql.catalog.catalog import FoundTable
    from millstream.sql.parser.statement_nodes import PartitionValue
    from millstream.sql.statements.session import RowsResult, Session


_DEFAULT = "__DEFAULT_PARTITION__"


class _Partitions:
    """The partitions of a table."""

    def __init__(self, session: Session, found: FoundTable, text: str | None) -> None:
        self._context = session.context(text)
        self._name = found.identifier.as_summary_string()
        table = found.table
        if not isinstance(table, CatalogTable) or not table.partition_keys:
            message = f"Table {self._name} is not partitioned."
            raise CatalogError(message)
        connectors.table_source(found.identifier, table, session.configuration)
        self.table = table
        self._path = found.identifier.path
        #: None: of a temporary table, which no catalog knows.
        self._catalog = (
            None if found.is_temporary else session.catalogs.catalog(found.identifier.catalog_name)
        )

    def spec(self, values: Sequence[PartitionValue]) -> dict[str, str]:
        """Columns with their texts, as far as a statement says them."""
        said = static_partition(self._context, self.table, self._name, values)
        default = self.table.options.get("partition.default-name", _DEFAULT)
        schema = self.table.schema
        return {
            name: value_text(shown_value(each.value, schema.column(name).type), default)
            for name, each in said.items()
        }

    def full(self, values: Sequence[PartitionValue]) -> CatalogPartitionSpec:
        """One partition, of which all columns are said."""
        spec = self.spec(values)
        if len(spec) < len(self.table.partition_keys):
            keys = ", ".join(self.table.partition_keys)
            message = (
                f"PartitionSpec {spec} does not match partition keys [{keys}] of table "
                f"{self._name}."
            )
            raise CatalogError(message)
        return CatalogPartitionSpec(spec)

    def name_of(self, spec: CatalogPartitionSpec) -> str:
        """``column=value/column=value``."""
        return directory_of((key, spec.values[key]) for key in self.table.partition_keys)

    def there(self, wanted: CatalogPartitionSpec) -> list[CatalogPartitionSpec]:
        """The partitions that there are of which a statement says nothing else."""
        if self._catalog is not None:
            return self._catalog.list_partitions(self._path, wanted)
        said = set(wanted.values.items())
        found = PartitionDirectories(self.table).specs()
        return [each for each in found if said <= set(each.values.items())]

    def has(self, spec: CatalogPartitionSpec) -> bool:
        """Return whether there is a partition."""
        if self._catalog is not None:
            return self._catalog.partition_exists(self._path, spec)
        return PartitionDirectories(self.table).has(spec)

    def add(self, spec: CatalogPartitionSpec, said: CatalogPartition) -> None:
        """Make a partition, unless it is there."""
        if self._catalog is not None:
            self._catalog.create_partition(self._path, spec, said, ignore_if_exists=True)
        else:
            PartitionDirectories(self.table).make(spec)

    def drop(self, spec: CatalogPartitionSpec) -> None:
        """Drop a partition, unless it is gone."""
        if self._catalog is not None:
            self._catalog.drop_partition(self._path, spec, ignore_if_not_exists=True)
        else:
            PartitionDirectories(self.table).drop(spec)


def show_partitions(session: Session, node: Any, text: str | None) -> RowsResult:
    """SHOW PARTITIONS: those of which the statement says nothing else."""
    found = session.catalogs.find_table(node.table.names)
    if found is None:
        hint = session.catalogs.suggest_table(node.table.names)
        raise session.context(text).error(node.table, f"Table '{node.table}' not found.{hint}")
    partitions = _Partitions(session, found, text)
    shown = partitions.there(CatalogPartitionSpec(partitions.spec(node.partition)))
    return texts(["partition name"], [[partitions.name_of(each)] for each in shown])


def alter_partitions(
    session: Session, found: FoundTable, action: Any, text: str | None
) -> RowsResult:
    """ALTER TABLE ADD and DROP PARTITION: all of them, or none if one cannot be."""
    partitions = _Partitions(session, found, text)
    name = found.identifier.as_summary_string()
    if isinstance(action, syntax.AddPartitions):
        if found.is_temporary and any(each.options for each in action.partitions):
            message = (
                "PARTITION (...) WITH options is for tables of a catalog, which keeps them; "
                f"'{name}' is temporary."
            )
            raise session.context(text).error(action, message)
        added = [
            (partitions.full(each.values), {option.key: option.value for option in each.options})
            for each in action.partitions
        ]
        for spec, _ in added:
            if partitions.has(spec) and not action.if_not_exists:
                message = f"Partition {partitions.name_of(spec)} of table {name} exists."
                raise CatalogError(message)
        for spec, options in added:
            partitions.add(spec, CatalogPartition(properties=options))
        return OK
    dropped = [partitions.full(each) for each in action.partitions]
    for spec in dropped:
        if not partitions.has(spec) and not action.if_exists:
            message = f"Partition {partitions.name_of(spec)} of table {name} does not exist."
            raise CatalogError(message)
    for spec in dropped:
        partitions.drop(spec)
    return OK


def source_text(text: str | None, node: Any) -> str:
    """The text of a node, as it was written if there is one."""
    position = node.position
    if text is None or position is None:
        return unparse(node)
    return text[position.start : position.end]


def column_of(context: BindingContext, node: syntax.Column, before: Sequence[Column]) -> Column:
    """One column of CREATE TABLE.

    Args:
        context: of the statement.
        node: the column.
        before: physical and metadata columns, which a computed one can name.
    """
    name = node.name.value
    if isinstance(node, syntax.PhysicalColumn):
        return PhysicalColumn(name, node.type, comment=node.comment)
    if isinstance(node, syntax.MetadataColumn):
        return MetadataColumn(name, node.type, node.key, virtual=node.virtual, comment=node.comment)
    assert isinstance(node, syntax.ComputedColumn)  # noqa: S101 - the third kind
    scope = Scope.of(row_of([each.name for each in before], [each.type for each in before]))
    bound = ExpressionBinder(context, scope).bind(node.expression)
    expression = source_text(context.text, node.expression)
    return ComputedColumn(name, bound.type, expression, comment=node.comment)


def schema_of(
    context: BindingContext,
    columns: Sequence[syntax.Column],
    watermark: syntax.Watermark | None,
    key: syntax.PrimaryKey | None,
    base: ResolvedSchema | None = None,
) -> ResolvedSchema:
    """The schema that the parts of CREATE TABLE make.

    Args:
        context: of the statement.
        columns: in their order.
        watermark: WATERMARK FOR.
        key: PRIMARY KEY.
        base: of LIKE: its columns come first.

    Raises:
        ValidationError: a name, type or expression is wrong.
    """
    inherited = () if base is None else base.columns
    real = [each for each in inherited if not each.is_computed()]
    stored = [each for each in columns if not isinstance(each, syntax.ComputedColumn)]
    real += [column_of(context, each, ()) for each in stored]
    own = [column_of(context, each, real) for each in columns]
    spec = None if base is None else base.watermark
    if watermark is not None:
        expression = source_text(context.text, watermark.expression)
        spec = WatermarkSpec(".".join(watermark.column.names), expression)
    try:
        schema = ResolvedSchema(
            (*inherited, *own),
            [] if spec is None else [spec],
            None if base is None else base.primary_key,
        )
        if key is not None:
            schema = with_key(schema, [each.value for each in key.columns], _value_of(key.name))
    except ValidationError as error:
        raise context.error(key or (columns[0] if columns else None), str(error)) from error
    _check_watermark(context, schema, watermark)
    return schema


def _value_of(name: Any) -> str | None:
    return None if name is None else name.value


def with_key(
    schema: ResolvedSchema, columns: Sequence[str], name: str | None = None
) -> ResolvedSchema:
    """The schema with a primary key, whose columns are NOT NULL then."""
    key = PrimaryKey(name or key_name(columns), tuple(columns))
    ResolvedSchema(schema.columns, None, key)  # refuses what is no column
    made = [
        each.copy(each.type.with_nullability(False)) if each.name in columns else each  # noqa: FBT003
        for each in schema.columns
    ]
    return schema.with_columns(made).with_primary_key(key)


def _check_watermark(context: BindingContext, schema: ResolvedSchema, node: Any) -> None:
    if schema.watermark is None:
        return
    row = row_of(schema.names, schema.types)
    empty = ValuesNode(row=row, rows=())
    plan = ProjectNode(row=row, input=empty, expressions=tuple(references(row)))
    is_source = is_source_watermark(schema.watermark.expression)
    if node is not None and schema.watermark.rowtime in schema.names and not is_source:
        # For errors at their places in the statement.
        ExpressionBinder(context, Scope.of(row)).bind(node.expression)
    try:
        watermarked(context, plan, schema)
    except ValidationError as error:
        raise context.error(node, str(error)) from error


def altered(  # noqa: C901 - one branch per action
    context: BindingContext, table: CatalogTable, action: Any
) -> CatalogTable:
    """The table after an action of ALTER TABLE.

    Raises:
        ValidationError: the table has no such column, key or watermark.
    """
    if isinstance(action, syntax.SetOptions):
        return table.copy({**table.options, **{each.key: each.value for each in action.options}})
    if isinstance(action, syntax.ResetOptions):
        if "connector" in action.keys:
            raise context.error(action, "ALTER TABLE RESET does not support changing 'connector'.")
        kept = {key: value for key, value in table.options.items() if key not in action.keys}
        return table.copy(kept)
    schema = table.schema
    if isinstance(action, syntax.ChangeSchema):
        schema = _changed(context, schema, action)
    elif isinstance(action, syntax.RenameColumn):
        schema = _renamed(context, schema, action)
    elif isinstance(action, syntax.DropColumns):
        schema = _without(context, schema, action)
    elif isinstance(action, syntax.DropPrimaryKey | syntax.DropConstraint):
        if schema.primary_key is None:
            raise context.error(action, "The table has no primary key.")
        schema = schema.with_primary_key(None)
    elif isinstance(action, syntax.DropWatermark):
        if schema.watermark is None:
            raise context.error(action, "The table has no watermark.")
        schema = schema.with_watermark(None)
    else:
        what = type(action).__name__
        raise context.error(action, f"ALTER TABLE: {what} is not in this release.")
    return replace(table, schema=schema)


def _position(context: BindingContext, columns: list[Column], name: str, node: Any) -> int:
    names = [each.name for each in columns]
    if name not in names:
        hint = did_you_mean(name, names)
        message = f"Column '{name}' not found.{hint} There are: {listed(names)}."
        raise context.error(node, message)
    return names.index(name)


def _changed(context: BindingContext, schema: ResolvedSchema, action: Any) -> ResolvedSchema:
    columns = list(schema.columns)
    for change in action.columns:
        real = [each for each in columns if not each.is_computed()]
        column = column_of(context, change.column, real)
        if action.modify:
            at = _position(context, columns, column.name, change)
            del columns[at]
        elif column.name in [each.name for each in columns]:
            raise context.error(change, f"Column '{column.name}' exists already.")
        else:
            at = len(columns)
        if change.first:
            at = 0
        elif change.after is not None:
            at = _position(context, columns, change.after.value, change) + 1
        columns.insert(at, column)
    made = schema.with_columns(columns)
    if action.primary_key is not None:
        if schema.primary_key is not None and not action.modify:
            raise context.error(action, "The table has a primary key already; MODIFY changes it.")
        made = with_key(made, [each.value for each in action.primary_key.columns])
    if action.watermark is not None:
        if schema.watermark is not None and not action.modify:
            raise context.error(action, "The table has a watermark already; MODIFY changes it.")
        name = ".".join(action.watermark.column.names)
        _position(context, columns, name, action.watermark)
        text = source_text(context.text, action.watermark.expression)
        made = made.with_watermark(WatermarkSpec(name, text))
    return made


def _check_unused(context: BindingContext, schema: ResolvedSchema, name: str, node: Any) -> None:
    if name in schema.key_columns:
        raise context.error(node, f"Column '{name}' is part of the primary key.")
    if (
        schema.watermark is not None
        and name in schema.watermark.expression.replace("`", " ").split()
    ):
        raise context.error(node, f"Column '{name}' is used by the watermark.")
    for column in schema.columns:
        if not isinstance(column, ComputedColumn):
            continue
        words = column.expression.replace("`", " ").replace("(", " ").split()
        if name in words:
            message = f"Column '{name}' is used by the computed column '{column.name}'."
            raise context.error(node, message)


def _renamed(context: BindingContext, schema: ResolvedSchema, action: Any) -> ResolvedSchema:
    columns = list(schema.columns)
    at = _position(context, columns, action.column.last, action.column)
    _check_unused(context, schema, action.column.last, action)
    columns[at] = columns[at].rename(action.to.value)
    return schema.with_columns(columns)


def _without(context: BindingContext, schema: ResolvedSchema, action: Any) -> ResolvedSchema:
    columns = list(schema.columns)
    for each in action.columns:
        at = _position(context, columns, each.last, each)
        _check_unused(context, schema, each.last, each)
        del columns[at]
    return schema.with_columns(columns)
