"""INSERT: the columns of a query brought into those of a table.

What it is: columns by position or as listed, implicit casts, NULL for what is left out.
What it is not: the check of NOT NULL, which is made row by row before the sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import fold
from millstream.expressions.nodes import Literal
from millstream.sql.binder import calls
from millstream.sql.binder.binding import query_binder
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import ProjectNode, references, row_of
from millstream.sql.suggestions import did_you_mean, listed
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.scope import BindingContext
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.sql.parser.nodes import PartitionValue
    from millstream.sql.planner.logical import LogicalNode
    from millstream.types.logical_types import LogicalType


def bound_insert(
    context: BindingContext,
    node: Any,
    identifier: ObjectIdentifier,
    table: CatalogTable,
    static: Mapping[str, Literal],
) -> LogicalNode:
    """The plan of an INSERT, with exactly the columns that the table takes.

    Args:
        context: of the statement.
        node: the statement.
        identifier: the table's name.
        table: the table.
        static: the columns that PARTITION says.
    """
    plan = query_binder(context).bind(node.query)
    names = [column.last for column in node.columns]
    persisted = [column.name for column in table.schema.persisted]
    for column in node.columns:
        if column.last not in persisted:
            hint = did_you_mean(column.last, persisted)
            message = f"Column '{column}' of table '{identifier.object_name}' not found.{hint}"
            raise context.error(column, message)
        if column.last in static:
            message = f"Target column '{column.last}' is in PARTITION already."
            raise context.error(column, message)
        if names.count(column.last) > 1:
            message = f"Target column '{column.last}' is assigned more than once."
            raise context.error(column, message)
    return fitted(context, plan, identifier, table, names, node, static)


def fitted(
    context: BindingContext,
    plan: LogicalNode,
    identifier: ObjectIdentifier,
    table: CatalogTable,
    names: Sequence[str] = (),
    node: Any = None,
    static: Mapping[str, Literal] | None = None,
) -> LogicalNode:
    """A plan as the rows of a table.

    Args:
        context: of the statement.
        plan: the query.
        identifier: the table's name.
        table: the table.
        names: the columns that the query gives, in its order; empty: all, in the table's.
        node: the statement, for errors.
        static: columns that the statement says itself.

    Raises:
        ValidationError: columns are missing, or their types do not fit; shows both schemas.
    """
    persisted = table.schema.persisted
    said = static or {}
    order = list(names) or [column.name for column in persisted if column.name not in said]
    if len(order) != len(plan.row):
        raise context.error(node, _mismatch(plan, table, identifier, "Different number of columns"))
    columns: dict[str, Expression] = dict(zip(order, references(plan.row), strict=True))
    given = {**columns, **said}
    expressions: list[Expression] = []
    for column in persisted:
        if column.name not in given:
            if not column.type.is_nullable:
                message = f"Column '{column.name}' has no default value and does not allow NULLs."
                raise context.error(node, message)
            expressions.append(Literal(None, column.type))
            continue
        cast = calls.coerced(given[column.name], column.type)
        if cast is None:
            cause = (
                f"Incompatible types for sink column '{column.name}' at position "
                f"{len(expressions) + 1}"
            )
            raise context.error(node, _mismatch(plan, table, identifier, cause))
        expressions.append(cast)
    row = row_of([column.name for column in persisted], [each.type for each in expressions])
    if tuple(expressions) == tuple(references(plan.row)) and row == plan.row:
        return plan
    return ProjectNode(row=row, input=plan, expressions=tuple(expressions))


def with_metadata(
    plan: LogicalNode, table: CatalogTable, said: Mapping[str, LogicalType]
) -> LogicalNode:
    """The rows of a table with the metadata in it as the types in which the sink takes it."""
    columns = references(plan.row)
    made = [
        calls.cast(each, said[column.key]) if column.is_metadata() else each
        for each, column in zip(columns, table.schema.persisted, strict=True)
    ]
    if made == columns:
        return plan
    row = row_of(plan.row.names, [each.type for each in made])
    return ProjectNode(row=row, input=plan, expressions=tuple(made))


def _mismatch(
    plan: LogicalNode, table: CatalogTable, identifier: ObjectIdentifier, cause: str
) -> str:
    query = [f"{each.name}: {each.type.as_summary_string()}" for each in plan.row.fields]
    sink = [f"{each.name}: {each.type.as_summary_string()}" for each in table.schema.persisted]
    return (
        f"Column types of query result and sink for '{identifier.as_summary_string()}' do not "
        f"match.\nCause: {cause}.\n\nQuery schema: [{', '.join(query)}]\n"
        f"Sink schema:  [{', '.join(sink)}]"
    )


def static_partition(
    context: BindingContext, table: CatalogTable, name: str, values: Sequence[PartitionValue]
) -> dict[str, Literal]:
    """The columns of a partition that a statement says, in the table's order.

    Args:
        context: of the statement.
        table: the table.
        name: of the table, for errors.
        values: as they were parsed.

    Raises:
        ValidationError: the table has no such columns in PARTITIONED BY, one is said twice, or a
            value is none of its column's type.
    """
    keys = table.partition_keys
    found: dict[str, Literal] = {}
    for each in values:
        column = each.column.value
        if not keys:
            message = f"Table '{name}' is not partitioned: it has no PARTITIONED BY."
            raise context.error(each, message)
        if column not in keys:
            hint = did_you_mean(column, keys)
            message = (
                f"'{column}' does not partition table '{name}', which is by {listed(keys)}.{hint}"
            )
            raise context.error(each, message)
        if column in found:
            raise context.error(each, f"Partition column '{column}' is said more than once.")
        found[column] = _constant(context, table, each)
    return {key: found[key] for key in keys if key in found}


def _is_same(given: Any, made: Literal) -> bool:
    """Whether a constant is still what was said: it would be another partition's otherwise."""
    was = getattr(given, "value", None)
    if made.value is None:
        return was is None
    numbers = all(each.type.is_a(TypeFamily.NUMERIC) for each in (given, made))
    return not numbers or was is None or was == made.value


def _constant(context: BindingContext, table: CatalogTable, given: PartitionValue) -> Literal:
    wanted = table.schema.column(given.column.value).type
    select: Any = nodes.Select(items=(nodes.SelectItem(given.value),))  # type: ignore[arg-type]
    plan: Any = query_binder(context).bind(select)
    value = plan.expressions[0]
    cast = calls.coerced(value, wanted)
    if cast is None:
        cast = calls.cast(value, wanted)
    made = fold(cast, EvaluationContext())
    if not isinstance(made, Literal) or not _is_same(value, made):
        shown = getattr(value, "value", value)
        message = (
            f"Partition column '{given.column.value}' {wanted.as_summary_string()} cannot be "
            f"{shown!r}."
        )
        raise context.error(given, message)
    return made
