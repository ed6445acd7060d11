"""Scans: what a table of a catalog is in a plan.

What it is: the source of a table with its options checked, computed columns, and the watermark that
makes a column event time; a view's query in its place.
What it is not: connectors (``sql/catalog/connectors.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import MillstreamError, ValidationError
from millstream.expressions.nodes import Call
from millstream.sql.binder import calls
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import Scope
from millstream.sql.catalog import connectors
from millstream.sql.catalog.columns import ComputedColumn
from millstream.sql.catalog.objects import CatalogTable, CatalogView
from millstream.sql.parser import nodes
from millstream.sql.parser.parser import parse_expression, parse_query
from millstream.sql.planner.logical import (
    SOURCE_WATERMARK,
    ProjectNode,
    ScanNode,
    WatermarkNode,
    references,
    row_of,
)
from millstream.sql.suggestions import did_you_mean, listed
from millstream.types.logical_types import (
    LocalZonedTimestampType,
    RowField,
    RowType,
    TimestampKind,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.context import BindingContext
    from millstream.sql.binder.queries import QueryBinder
    from millstream.sql.catalog.columns import Column
    from millstream.sql.catalog.manager import FoundTable
    from millstream.sql.catalog.schema import ResolvedSchema, WatermarkSpec
    from millstream.sql.parser.syntax import Node
    from millstream.sql.planner.logical import LogicalNode
    from millstream.types.logical_types import LogicalType

__all__ = ["is_source_watermark", "scan", "watermarked"]

_MOST_DIGITS = 3


def scan(
    queries: QueryBinder,
    found: FoundTable,
    overrides: Mapping[str, str],
    node: Node | None = None,
) -> LogicalNode:
    """The plan of a table or view.

    Args:
        queries: binds the query of a view.
        found: the table.
        overrides: of the hint OPTIONS.
        node: where it stands.

    Raises:
        ValidationError: its connector refuses its options, or cannot read.
    """
    plan: LogicalNode | None = getattr(found.table, "plan", None)
    if plan is not None:
        return plan
    if isinstance(found.table, CatalogView):
        return _view(queries, found, found.table, node)
    context = queries.context
    table = found.table
    assert isinstance(table, CatalogTable)  # noqa: S101 - the third kind
    if overrides:
        table = table.copy({**table.options, **overrides})
    schema = table.schema
    try:
        source = connectors.table_source(found.identifier, table, context.configuration)
    except MillstreamError as error:
        raise context.error(node, str(error)) from error
    read = schema.read
    said = source.metadata()
    kinds = [_read_type(column, said) for column in read]
    row = row_of([column.name for column in read], kinds)
    plan = ScanNode(
        row=row,
        identifier=found.identifier,
        table=table,
        source=source,
        is_temporary=found.is_temporary,
    )
    plan = _cast_metadata(plan, read)
    plan = _computed(context, plan, schema)
    if schema.watermark is not None and is_source_watermark(schema.watermark.expression):
        raise context.error(node, _no_watermarks(table.options.get("connector"), found))
    return watermarked(context, plan, schema)


def _read_type(column: Column, said: Mapping[str, LogicalType]) -> LogicalType:
    """What the connector gives for a column."""
    if not column.is_metadata():
        return column.type
    kind = said[column.key]
    is_same = kind.with_nullability(column.type.is_nullable) == column.type
    return column.type if is_same else kind


def _cast_metadata(plan: LogicalNode, read: Sequence[Column]) -> LogicalNode:
    """Metadata as the types that the columns are declared with."""
    columns = references(plan.row)
    made = [
        calls.cast(each, column.type) if column.is_metadata() else each
        for each, column in zip(columns, read, strict=True)
    ]
    if made == columns:
        return plan
    row = row_of(plan.row.names, [each.type for each in made])
    return ProjectNode(row=row, input=plan, expressions=tuple(made))


def _view(
    queries: QueryBinder, found: FoundTable, view: CatalogView, node: Node | None
) -> LogicalNode:
    text, parts = view.expanded_query, found.identifier.parts
    shown = found.identifier.as_summary_string()
    if parts in queries.context.views:
        raise queries.context.error(node, f"View '{shown}' reads itself.")
    plan = queries.other(text, parts).bind(parse_query(text))
    if len(plan.row) != len(view.schema.names):
        message = (
            f"View '{shown}' has {len(view.schema.names)} columns, and its query gives "
            f"{len(plan.row)} since a table has changed; create the view anew."
        )
        raise queries.context.error(node, message)
    row = row_of(view.schema.names, plan.row.children)
    return ProjectNode(row=row, input=plan, expressions=tuple(references(plan.row)))


def _computed(context: BindingContext, plan: LogicalNode, schema: ResolvedSchema) -> LogicalNode:
    if not any(column.is_computed() for column in schema.columns):
        return plan
    scope = Scope.of(plan.row)
    expressions: list[Expression] = []
    for column in schema.columns:
        if isinstance(column, ComputedColumn):
            text = column.expression
            binder = ExpressionBinder(context.with_text(text), scope)
            try:
                expressions.append(binder.bind(parse_expression(text)))
            except ValidationError as error:
                message = f"Computed column '{column.name}': {error}"
                raise ValidationError(message) from error
        else:
            found: Any = scope.find([column.name]).expression
            expressions.append(found)
    row = row_of(schema.names, [each.type for each in expressions])
    return ProjectNode(row=row, input=plan, expressions=tuple(expressions))


def is_source_watermark(expression: str) -> bool:
    """Whether watermarks are declared to be those that the source gives."""
    node = parse_expression(expression)
    if not isinstance(node, nodes.FunctionCall) or node.arguments:
        return False
    return node.name.last.upper() == SOURCE_WATERMARK


def _no_watermarks(connector: str | None, found: FoundTable) -> str:
    shown = found.identifier.as_summary_string()
    return (
        f"SOURCE_WATERMARK() in WATERMARK FOR of table '{shown}': connector '{connector}' gives no "
        "watermarks of its own. Streams do (from_data_stream); of a table declare the column less "
        "an interval, such as WATERMARK FOR ts AS ts - INTERVAL '5' SECOND."
    )


def watermarked(context: BindingContext, plan: LogicalNode, schema: ResolvedSchema) -> LogicalNode:
    """The plan with event time as the schema declares it.

    Raises:
        ValidationError: the column is no timestamp, or the expression gives none.
    """
    declared = schema.watermark
    if declared is None:
        return plan
    position = plan.row.index_of(declared.rowtime)
    if position < 0:
        hint = did_you_mean(declared.rowtime, plan.row.names)
        message = (
            f"The rowtime attribute field '{declared.rowtime}' is not defined in the table "
            f"schema.{hint} There are: {listed(plan.row.names)}."
        )
        raise ValidationError(message)
    kind = plan.row.fields[position].type
    if not isinstance(kind, TimestampType | LocalZonedTimestampType) or (
        kind.precision > _MOST_DIGITS
    ):
        message = (
            f"Invalid data type of time field for watermark definition. The field must be of type "
            f"TIMESTAMP(p) or TIMESTAMP_LTZ(p), the supported precision 'p' is from 0 to 3, but "
            f"the time field '{declared.rowtime}' is {kind.as_summary_string()}."
        )
        raise ValidationError(message)
    expression = _watermark_of(context, plan, declared, kind)
    fields = list(plan.row.fields)
    rowtime = kind.with_parameters(kind=TimestampKind.ROWTIME)
    fields[position] = RowField(declared.rowtime, rowtime)
    row = RowType(tuple(fields), nullable=False)
    return WatermarkNode(row=row, input=plan, rowtime=position, expression=expression)


def _watermark_of(
    context: BindingContext, plan: LogicalNode, declared: WatermarkSpec, kind: LogicalType
) -> Expression:
    if is_source_watermark(declared.expression):
        return Call(SOURCE_WATERMARK, (), kind)
    binder = ExpressionBinder(context.with_text(declared.expression), Scope.of(plan.row))
    expression = binder.bind(parse_expression(declared.expression))
    if not isinstance(expression.type, TimestampType | LocalZonedTimestampType):
        shown = expression.type.as_summary_string()
        message = f"The watermark of '{declared.rowtime}' must be a timestamp; it is {shown}."
        raise ValidationError(message)
    return expression
