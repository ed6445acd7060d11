"""Schemas of CREATE TABLE: columns, watermark, key; LIKE and AS SELECT.

What it is: from the parts of the statement to the resolved schema of a catalog table.
What it is not: ALTER (``sql/statements/altering.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import ValidationError
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import Scope
from millstream.sql.binder.tables import is_source_watermark, watermarked
from millstream.sql.catalog.columns import Column, ComputedColumn, MetadataColumn, PhysicalColumn
from millstream.sql.catalog.schema import PrimaryKey, ResolvedSchema, WatermarkSpec, key_name
from millstream.sql.parser import nodes
from millstream.sql.parser.unparser import unparse
from millstream.sql.planner.logical import ProjectNode, ValuesNode, references, row_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.binder.context import BindingContext

__all__ = ["column_of", "schema_of", "source_text", "with_key"]


def source_text(text: str | None, node: Any) -> str:
    """The text of a node, as it was written if there is one."""
    position = node.position
    if text is None or position is None:
        return unparse(node)
    return text[position.start : position.end]


def column_of(context: BindingContext, node: nodes.Column, before: Sequence[Column]) -> Column:
    """One column of CREATE TABLE.

    Args:
        context: of the statement.
        node: the column.
        before: physical and metadata columns, which a computed one can name.
    """
    name = node.name.value
    if isinstance(node, nodes.PhysicalColumn):
        return PhysicalColumn(name, node.type, comment=node.comment)
    if isinstance(node, nodes.MetadataColumn):
        return MetadataColumn(name, node.type, node.key, virtual=node.virtual, comment=node.comment)
    assert isinstance(node, nodes.ComputedColumn)  # noqa: S101 - the third kind
    scope = Scope.of(row_of([each.name for each in before], [each.type for each in before]))
    bound = ExpressionBinder(context, scope).bind(node.expression)
    expression = source_text(context.text, node.expression)
    return ComputedColumn(name, bound.type, expression, comment=node.comment)


def schema_of(
    context: BindingContext,
    columns: Sequence[nodes.Column],
    watermark: nodes.Watermark | None,
    key: nodes.PrimaryKey | None,
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
    stored = [each for each in columns if not isinstance(each, nodes.ComputedColumn)]
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
