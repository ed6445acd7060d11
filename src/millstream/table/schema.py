"""Schema under PyFlink's path, and the resolution of its expressions by the binder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.configuration.configuration import Configuration
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import BindingContext, Scope
from millstream.sql.catalog.catalog import CatalogManager
from millstream.sql.catalog.schema import (
    Column,
    ComputedColumn,
    PhysicalColumn,
    ResolvedSchema,
    UnresolvedComputed,
)
from millstream.sql.catalog.schema import Schema as Schema
from millstream.sql.parser.parser import parse_expression
from millstream.sql.planner.logical import row_of
from millstream.sql.statements.alter import with_key

if TYPE_CHECKING:
    from millstream.types.logical_types import RowType


def resolved(
    schema: Schema, context: BindingContext, given: RowType | None = None
) -> ResolvedSchema:
    """The schema with the types of its expressions.

    Args:
        schema: as a program describes it.
        context: for expressions.
        given: the row of a stream; its columns are there where the schema has none.
    """
    columns: list[Column | UnresolvedComputed] = list(schema.columns)
    declares = any(isinstance(each, PhysicalColumn) for each in columns)
    if given is not None and not declares:
        columns = [*(PhysicalColumn(each.name, each.type) for each in given.fields), *columns]
    real = [(each.name, each.type) for each in columns if isinstance(each, Column)]
    declared = {name for name, _ in real}
    # Expressions see the columns of a stream that the table has not, too.
    others = [] if given is None else given.fields
    real += [(each.name, each.type) for each in others if each.name not in declared]
    row = row_of([name for name, _ in real], [kind for _, kind in real])
    binder = ExpressionBinder(context, Scope.of(row))
    made: list[Column] = []
    for each in columns:
        if isinstance(each, UnresolvedComputed):
            kind = binder.bind(parse_expression(each.expression)).type
            made.append(ComputedColumn(each.name, kind, each.expression, comment=each.comment))
        else:
            made.append(each)
    specs = [] if schema.watermark is None else [schema.watermark]
    whole = ResolvedSchema(made, specs)
    return with_key(whole, schema.key, schema.key_name) if schema.key else whole


def _of_no_session(schema: Schema) -> ResolvedSchema:
    """As ``resolved``, where no catalog and no option is known."""
    return resolved(schema, BindingContext(CatalogManager(), Configuration()))


Schema.resolver = _of_no_session
