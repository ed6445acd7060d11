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
from millstream.sql.planner.calcs import substituted
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
from millstream.types.logical_types import BooleanType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.queries import QueryBinder
    from millstream.sql.binder.scope import Scope
    from millstream.sql.parser.syntax import Node
    from millstream.sql.planner.logical import LogicalNode

__all__ = ["beside", "filtered", "is_predicate", "scalar_plan", "with_scalar"]


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
    if _groups_outer(bound):
        if isinstance(node, nodes.Exists) and _is_one_row(bound):
            return _never(plan) if negated else plan  # an aggregate of no rows is a row too
        if not isinstance(node, nodes.Exists) or not _has_keys(bound):
            message = (
                "IN, and EXISTS with HAVING and no GROUP BY, over an aggregate of rows that depend "
                "on the query around it is not in this release."
            )
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


def _from_inside(column: OuterReference) -> InputReference | OuterReference:
    """A column that a sub-query names, as the query around that names it."""
    if column.level > 1:
        return replace(column, level=column.level - 1)
    return InputReference(column.index, column.name, column.type)


def _joined(expression: Expression, width: int) -> Expression:
    """A condition over the sub-query's columns and outer ones, as one over the join's."""

    def change(each: Any) -> Any:
        if isinstance(each, OuterReference):
            return _from_inside(each)
        if isinstance(each, InputReference):
            return InputReference(each.index + width, each.name, each.type)
        return each

    return transform(expression, change)


# -- scalar sub-queries --------------------------------------------------------------------------


def with_scalar(
    queries: QueryBinder, plan: LogicalNode, scope: Scope, node: Any
) -> tuple[LogicalNode, Expression]:
    """The plan with the value of a scalar sub-query behind its columns, and that column."""
    bound = _one_column(queries, scope, node)
    if _mentions_outer(bound):
        return _with_aggregates(queries, plan, scope, node, bound)
    join = beside(plan, _one_row(bound))
    scope.row = join.row
    field = join.row.fields[len(plan.row)]
    return join, InputReference(len(plan.row), field.name, field.type)


def scalar_plan(queries: QueryBinder, scope: Scope, node: Any) -> LogicalNode:
    """The one row of a scalar sub-query that is joined to groups.

    Raises:
        ValidationError: it names columns of the query around it.
    """
    bound = _one_column(queries, scope, node)
    if _mentions_outer(bound):
        message = (
            "A sub-query as a value beside aggregates cannot name columns of the query around it "
            "in this release."
        )
        raise queries.context.error(node, message)
    return _one_row(bound)


def beside(
    plan: LogicalNode, inner: LogicalNode, condition: Expression | None = None
) -> LogicalNode:
    """The rows of a plan with what there is of another behind their columns."""
    types = [each.with_nullability(True) for each in inner.row.children]  # noqa: FBT003
    row = row_of([*plan.row.names, *inner.row.names], [*plan.row.children, *types])
    return JoinNode(row=row, left=plan, right=inner, kind=JoinType.LEFT, condition=condition)


def _one_column(queries: QueryBinder, scope: Scope, node: Any) -> LogicalNode:
    bound = queries.nested(scope).bind(node.query)
    if len(bound.row) != 1:
        message = f"A sub-query as a value has one column; this has {len(bound.row)}."
        raise queries.context.error(node, message)
    return bound


def _one_row(inner: LogicalNode) -> LogicalNode:
    if _is_one_row(inner):
        return inner
    kind = inner.row.fields[0].type.with_nullability(True)  # noqa: FBT003
    call = AggregateCall("SINGLE_VALUE", (0,), kind)
    row = row_of(inner.row.names, [kind])
    return AggregateNode(row=row, input=inner, keys=(), calls=(call,))


def _with_aggregates(
    queries: QueryBinder, plan: LogicalNode, scope: Scope, node: Any, bound: LogicalNode
) -> tuple[LogicalNode, Expression]:
    """Aggregates by the correlated values, joined; what is computed of them comes above.

    A row that finds none has the aggregates of no rows, which may become another value than NULL.
    """
    value: Expression = references(bound.row)[0]
    below = bound
    while isinstance(below, ProjectNode):
        value, below = substituted(value, below.expressions), below.input
    if not isinstance(below, AggregateNode) or below.keys or below.sets is not None:
        message = (
            "A correlated sub-query as a value must be an aggregate, without GROUP BY and HAVING."
        )
        raise queries.context.error(node, message)
    inner, pulled = _pulled(queries, below, node)
    width = len(plan.row)
    join = beside(plan, inner, _all([_joined(each, width) for each in pulled]))
    columns: list[Expression] = []
    for call, column in zip(below.calls, references(join.row)[width:], strict=False):
        if call.function == "COUNT":
            zero = Literal(0, call.type)
            columns.append(calls.resolve("COALESCE", [column, zero]))
        elif call.type.nullable:
            columns.append(column)
        else:
            message = f"{call.function} in a correlated sub-query is not in this release."
            raise queries.context.error(node, message)
    scope.row = join.row
    return join, _placed(value, columns)


def _placed(value: Expression, columns: Sequence[Expression]) -> Expression:
    def change(each: Any) -> Any:
        if isinstance(each, OuterReference):
            return _from_inside(each)
        return columns[each.index] if isinstance(each, InputReference) else each

    return transform(value, change)


def _is_one_row(plan: LogicalNode) -> bool:
    while isinstance(plan, ProjectNode):
        plan = plan.input
    return isinstance(plan, AggregateNode) and not plan.keys and plan.sets is None


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
            "below no join, aggregate over other columns or LIMIT; and not in a sub-query of its "
            "own."
        )
        raise queries.context.error(node, message)
    return plan, found


def _groups_outer(plan: LogicalNode) -> bool:
    """Whether an aggregate is over rows that depend on the query around."""
    if isinstance(plan, AggregateNode) and _mentions_outer(plan):
        return True
    return any(map(_groups_outer, plan.inputs))


def _has_keys(plan: LogicalNode) -> bool:
    while isinstance(plan, ProjectNode | FilterNode | DistinctNode):
        plan = plan.input
    return isinstance(plan, AggregateNode) and bool(plan.keys)


def _never(plan: LogicalNode) -> LogicalNode:
    condition = Literal(False, BooleanType(nullable=False))  # noqa: FBT003
    return FilterNode(row=plan.row, input=plan, condition=condition)


def _mentions_outer(plan: LogicalNode) -> bool:
    own: list[Expression] = []
    if isinstance(plan, ProjectNode):
        own += plan.expressions
    elif isinstance(plan, FilterNode | JoinNode) and plan.condition is not None:
        own.append(plan.condition)
    return any(map(_is_outer, own)) or any(map(_mentions_outer, plan.inputs))


def _pull(plan: LogicalNode) -> tuple[LogicalNode, list[Expression]]:  # noqa: PLR0911 - a table
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
    if isinstance(plan, JoinNode) and (plan.kind.left_only or plan.kind is JoinType.LEFT):
        # A sub-query of its own: rows of the left may as well be filtered behind it.
        below, found = _pull(plan.left)
        if found and len(below.row) == len(plan.left.row):
            return replace(plan, left=below), found
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


def _sides(condition: Expression) -> tuple[int, Expression] | None:
    """Which argument of an equality is of the sub-query alone, and that; None: it is another."""
    if not isinstance(condition, Call) or condition.function != "=":
        return None
    is_outer = [_is_outer(each) for each in condition.arguments]
    if is_outer == [True, True]:
        return None
    own = is_outer.index(False)
    other = condition.arguments[1 - own]
    if any(isinstance(each, InputReference) for each in walk(other)):
        return None
    return own, condition.arguments[own]


def _pull_aggregate(
    plan: AggregateNode, below: LogicalNode, found: list[Expression]
) -> tuple[LogicalNode, list[Expression]]:
    """Group by the correlated values too; the columns of the plan stay in front."""
    columns: list[Expression] = list(references(below.row))
    names = list(below.row.names)
    keys, pulled = list(plan.keys), []
    for each in found:
        sides = _sides(each)
        if sides is None or not isinstance(each, Call):
            return plan, []  # left where it is, and so refused
        own, value = sides
        if value not in columns:
            columns.append(value)
            names.append(f"$k{len(columns)}")
        if columns.index(value) not in keys:
            keys.append(columns.index(value))
        pulled.append((each, own, keys.index(columns.index(value))))
    if len(columns) > len(below.row):
        wide = row_of(names, [each.type for each in columns])
        below = ProjectNode(row=wide, input=below, expressions=tuple(columns))
    key_fields = [below.row.fields[key] for key in keys]
    row = row_of(
        [*(each.name for each in key_fields), *plan.row.names[len(plan.keys) :]],
        [*(each.type for each in key_fields), *(call.type for call in plan.calls)],
    )
    grouped = AggregateNode(row=row, input=below, keys=tuple(keys), calls=plan.calls)
    count = len(plan.keys)
    order = [*range(count), *range(len(keys), len(row)), *range(count, len(keys))]
    shown = [references(row)[index] for index in order]
    made = ProjectNode(
        row=row_of([each.name for each in shown], [each.type for each in shown]),
        input=grouped,
        expressions=tuple(shown),
    )
    made_columns = references(made.row)
    conditions: list[Expression] = []
    for condition, own, key in pulled:
        arguments = list(condition.arguments)
        arguments[own] = made_columns[order.index(key)]
        conditions.append(replace(condition, arguments=tuple(arguments)))
    return made, conditions
