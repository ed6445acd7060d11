"""Sub-queries in WHERE and among values: they become joins.

What it is: IN and EXISTS become semi and anti joins, a scalar sub-query a left join with one row.
What is correlated (names a column of the query around it) becomes part of the join's condition, if
it stands in a WHERE of the sub-query.
What it is not: a general unnesting; a correlation elsewhere is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.expressions.nodes import Call, InputReference, Literal, transform, walk
from millstream.sql.binder import calls
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import OuterReference
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import (
    AggregateCall,
    AggregateNode,
    DistinctNode,
    FilterNode,
    JoinNode,
    JoinType,
    ProjectNode,
    references,
    row_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.queries import QueryBinder
    from millstream.sql.binder.scope import Scope
    from millstream.sql.parser.syntax import Node
    from millstream.sql.planner.logical import LogicalNode

__all__ = ["filtered", "is_predicate", "with_scalar"]


def is_predicate(node: Node) -> bool:
    """Whether it is IN or EXISTS with a sub-query, or NOT of that."""
    if isinstance(node, nodes.UnaryOperation) and node.operator == "NOT":
        return is_predicate(node.operand)
    return isinstance(node, nodes.InQuery | nodes.Exists)


def filtered(queries: QueryBinder, plan: LogicalNode, scope: Scope, node: Any) -> LogicalNode:
    """The rows of a plan for which IN or EXISTS is true."""
    negated = False
    while isinstance(node, nodes.UnaryOperation):
        negated = not negated
        node = node.operand
    bound = queries.nested(scope).bind(node.query)
    if isinstance(node, nodes.InQuery) and len(_parts(node.operand)) != len(bound.row):
        count, columns = len(_parts(node.operand)), len(bound.row)
        message = f"IN compares {count} values with {columns} columns."
        raise queries.context.error(node, message)
    inner, pulled = _pulled(queries, bound, node)
    width = len(plan.row)
    conditions = [_joined(each, width) for each in pulled]
    if isinstance(node, nodes.InQuery):
        negated = negated != node.negated
        conditions = [*_in(queries, plan, scope, node, inner, negated=negated), *conditions]
    kind = JoinType.ANTI if negated else JoinType.SEMI
    return JoinNode(row=plan.row, left=plan, right=inner, kind=kind, condition=_all(conditions))


def _in(
    queries: QueryBinder,
    plan: LogicalNode,
    scope: Scope,
    node: Any,
    inner: LogicalNode,
    *,
    negated: bool,
) -> list[Expression]:
    binder = ExpressionBinder(queries.context, scope)
    operand = node.operand
    parts = _parts(operand)
    found = []
    for column, part in enumerate(parts):
        field = inner.row.fields[column]
        other = InputReference(column + len(plan.row), field.name, field.type)
        same = binder.call(node, "=", binder.bind(part), other)
        if negated and same.type.nullable:
            # NOT IN is true where no comparison is true or unknown.
            same = calls.resolve("IS NOT FALSE", [same])
        found.append(same)
    return found


def _parts(operand: Any) -> tuple[Any, ...]:
    """The values that IN compares."""
    return operand.fields if isinstance(operand, nodes.RowConstructor) else (operand,)


def _all(conditions: Sequence[Expression]) -> Expression | None:
    found: Expression | None = None
    for each in conditions:
        found = each if found is None else calls.resolve("AND", [found, each])
    return found


def _joined(expression: Expression, width: int) -> Expression:
    """A condition over the sub-query's columns and outer ones, as one over the join's."""

    def change(each: Any) -> Any:
        if isinstance(each, OuterReference):
            return InputReference(each.index, each.name, each.type)
        if isinstance(each, InputReference):
            return InputReference(each.index + width, each.name, each.type)
        return each

    return transform(expression, change)


# -- scalar sub-queries --------------------------------------------------------------------------


def with_scalar(
    queries: QueryBinder, plan: LogicalNode, scope: Scope, node: Any
) -> tuple[LogicalNode, Expression]:
    """The plan with the value of a scalar sub-query behind its columns, and that column."""
    bound = queries.nested(scope).bind(node.query)
    if len(bound.row) != 1:
        message = f"A sub-query as a value has one column; this has {len(bound.row)}."
        raise queries.context.error(node, message)
    inner, pulled = _pulled(queries, bound, node)
    if not pulled and not _is_one_row(inner):
        kind = inner.row.fields[0].type.with_nullability(True)  # noqa: FBT003
        call = AggregateCall("SINGLE_VALUE", (0,), kind)
        row = row_of(inner.row.names, [kind])
        inner = AggregateNode(row=row, input=inner, keys=(), calls=(call,))
    elif pulled and not _aggregates(inner):
        message = "A correlated sub-query as a value must be an aggregate."
        raise queries.context.error(node, message)
    width = len(plan.row)
    types = [each.with_nullability(True) for each in inner.row.children]  # noqa: FBT003
    row = row_of([*plan.row.names, *inner.row.names], [*plan.row.children, *types])
    condition = _all([_joined(each, width) for each in pulled])
    join = JoinNode(row=row, left=plan, right=inner, kind=JoinType.LEFT, condition=condition)
    scope.row = row
    field = row.fields[width]
    found: Expression = InputReference(width, field.name, field.type)
    if _counts(bound):
        zero = Literal(0, field.type.with_nullability(False))  # noqa: FBT003
        found = calls.resolve("COALESCE", [found, zero])
    return join, found


def _is_one_row(plan: LogicalNode) -> bool:
    while isinstance(plan, ProjectNode):
        plan = plan.input
    return isinstance(plan, AggregateNode) and not plan.keys and plan.sets is None


def _aggregates(plan: LogicalNode) -> bool:
    while isinstance(plan, ProjectNode):
        plan = plan.input
    return isinstance(plan, AggregateNode)


def _counts(plan: LogicalNode) -> bool:
    """Whether the value is a count, which is 0 and not NULL for no rows."""
    column = 0
    while isinstance(plan, ProjectNode):
        expression = plan.expressions[column]
        if not isinstance(expression, InputReference):
            return False
        column, plan = expression.index, plan.input
    if not isinstance(plan, AggregateNode) or plan.keys:
        return False
    return plan.calls[column].function == "COUNT"


# -- correlation ---------------------------------------------------------------------------------


def _is_outer(expression: Expression) -> bool:
    return any(isinstance(each, OuterReference) for each in walk(expression))


def _pulled(
    queries: QueryBinder, plan: LogicalNode, node: Node
) -> tuple[LogicalNode, list[Expression]]:
    """The plan without conditions on outer columns, and these over its columns."""
    plan, found = _pull(plan)
    if _mentions_outer(plan):
        message = (
            "A sub-query can name columns of the query around it only in its WHERE, "
            "below no join, aggregate over other columns or LIMIT."
        )
        raise queries.context.error(node, message)
    return plan, found


def _mentions_outer(plan: LogicalNode) -> bool:
    own: list[Expression] = []
    if isinstance(plan, ProjectNode):
        own += plan.expressions
    elif isinstance(plan, FilterNode | JoinNode) and plan.condition is not None:
        own.append(plan.condition)
    return any(map(_is_outer, own)) or any(map(_mentions_outer, plan.inputs))


def _pull(plan: LogicalNode) -> tuple[LogicalNode, list[Expression]]:
    if isinstance(plan, FilterNode):
        below, found = _pull(plan.input)
        parts = list(_conjuncts(plan.condition))
        kept = _all([each for each in parts if not _is_outer(each)])
        found = [*found, *(each for each in parts if _is_outer(each))]
        if kept is None:
            return below, found
        return FilterNode(row=below.row, input=below, condition=kept), found
    if isinstance(plan, ProjectNode):
        below, found = _pull(plan.input)
        return _pull_project(plan, below, found) if found else (plan, found)
    if isinstance(plan, DistinctNode):
        below, found = _pull(plan.input)
        return (DistinctNode(row=below.row, input=below), found) if found else (plan, found)
    if isinstance(plan, AggregateNode) and plan.sets is None:
        below, found = _pull(plan.input)
        return _pull_aggregate(plan, below, found) if found else (plan, found)
    return plan, []


def _conjuncts(expression: Expression) -> list[Expression]:
    if isinstance(expression, Call) and expression.function == "AND":
        return [part for each in expression.arguments for part in _conjuncts(each)]
    return [expression]


def _inner_columns(found: Sequence[Expression]) -> list[InputReference]:
    columns = [each for part in found for each in walk(part) if isinstance(each, InputReference)]
    return list(dict.fromkeys(columns))


def _moved(expression: Expression, places: dict[int, int]) -> Expression:
    def change(each: Any) -> Any:
        if isinstance(each, InputReference):
            return replace(each, index=places[each.index])
        return each

    return transform(expression, change)


def _pull_project(
    plan: ProjectNode, below: LogicalNode, found: list[Expression]
) -> tuple[LogicalNode, list[Expression]]:
    expressions, names = list(plan.expressions), list(plan.row.names)
    places: dict[int, int] = {}
    for column in _inner_columns(found):
        if column not in expressions:
            expressions.append(column)
            names.append(column.name)
        places[column.index] = expressions.index(column)
    row = row_of(names, [each.type for each in expressions])
    made = ProjectNode(row=row, input=below, expressions=tuple(expressions))
    return made, [_moved(each, places) for each in found]


def _pull_aggregate(
    plan: AggregateNode, below: LogicalNode, found: list[Expression]
) -> tuple[LogicalNode, list[Expression]]:
    """Group by the correlated columns too; the columns of the plan stay in front."""
    equalities = all(isinstance(each, Call) and each.function in {"=", "EQUALS"} for each in found)
    if not equalities:
        return plan, []  # left where it is, and so refused
    keys = list(plan.keys)
    for column in _inner_columns(found):
        if column.index not in keys:
            keys.append(column.index)
    key_types = [below.row.fields[key].type for key in keys]
    calls_ = tuple(plan.calls)
    names = [below.row.fields[key].name for key in keys]
    names += list(plan.row.names[len(plan.keys) :])
    row = row_of(names, [*key_types, *(call.type for call in calls_)])
    grouped = AggregateNode(row=row, input=below, keys=tuple(keys), calls=calls_)
    order = [
        *range(len(plan.keys)),
        *range(len(keys), len(keys) + len(calls_)),
        *range(len(plan.keys), len(keys)),
    ]
    columns = references(row)
    shown = tuple(columns[index] for index in order)
    made = ProjectNode(
        row=row_of([each.name for each in shown], [each.type for each in shown]),
        input=grouped,
        expressions=shown,
    )
    places = {keys[at]: order.index(at) for at in range(len(keys))}
    return made, [_moved(each, places) for each in found]
