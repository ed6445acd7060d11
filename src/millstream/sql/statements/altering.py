"""ALTER TABLE: another schema or other options in the place of a table's.

What it is: one function per action, from a catalog table to another.
What it is not: RENAME TO, which the catalog does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.sql.catalog.columns import ComputedColumn
from millstream.sql.catalog.schema import WatermarkSpec
from millstream.sql.parser import nodes
from millstream.sql.statements.schemas import column_of, source_text, with_key
from millstream.sql.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from millstream.sql.binder.context import BindingContext
    from millstream.sql.catalog.columns import Column
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.sql.catalog.schema import ResolvedSchema

__all__ = ["altered"]


def altered(  # noqa: C901 - one branch per action
    context: BindingContext, table: CatalogTable, action: Any
) -> CatalogTable:
    """The table after an action of ALTER TABLE.

    Raises:
        ValidationError: the table has no such column, key or watermark.
    """
    if isinstance(action, nodes.SetOptions):
        return table.copy({**table.options, **{each.key: each.value for each in action.options}})
    if isinstance(action, nodes.ResetOptions):
        if "connector" in action.keys:
            raise context.error(action, "ALTER TABLE RESET does not support changing 'connector'.")
        kept = {key: value for key, value in table.options.items() if key not in action.keys}
        return table.copy(kept)
    schema = table.schema
    if isinstance(action, nodes.ChangeSchema):
        schema = _changed(context, schema, action)
    elif isinstance(action, nodes.RenameColumn):
        schema = _renamed(context, schema, action)
    elif isinstance(action, nodes.DropColumns):
        schema = _without(context, schema, action)
    elif isinstance(action, nodes.DropPrimaryKey | nodes.DropConstraint):
        if schema.primary_key is None:
            raise context.error(action, "The table has no primary key.")
        schema = schema.with_primary_key(None)
    elif isinstance(action, nodes.DropWatermark):
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
