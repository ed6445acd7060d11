"""Sub-queries in WHERE: IN, EXISTS, ``= ANY`` and ``<> ALL`` become semi and anti joins.

What it is: one conjunct of WHERE after the other.  What is correlated (names a column of the query
around it) becomes part of the join's condition.
What it is not: sub-queries elsewhere (``sql/binder/subquery_values.py``), or how conditions get out
of them (``sql/binder/correlation.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.expressions.nodes import InputReference, Literal, transform
from millstream.sql.binder import calls
from millstream.sql.binder.aggregates import Placeholder
from millstream.sql.binder.correlation import (
    all_of,
    from_inside,
    joined,
    pulled,
)
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import OuterReference
from millstream.sql.binder.subquery_values import (
    beside,
    bound_sub_query,
    is_one_row,
    is_row_of_outer,
)
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import (
    FilterNode,
    JoinNode,
    JoinType,
)
from millstream.types.logical_types import BooleanType

if TYPE_CHECKING:
    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.queries import QueryBinder
    from millstream.sql.binder.scope import Scope
    from millstream.sql.binder.subquery_values import SubqueryValue
    from millstream.sql.parser.syntax import Node
    from millstream.sql.planner.logical import LogicalNode

__all__ = ["filtered", "is_predicate", "with_value"]


def is_predicate(node: Node) -> bool:
    """Whether it is IN, EXISTS, ``= ANY`` or ``<> ALL`` with a sub-query, or NOT of that."""
    if isinstance(node, nodes.UnaryOperation) and node.operator == "NOT":
        return is_predicate(node.operand)
    return isinstance(node, nodes.InQuery | nodes.Exists) or _as_in(node) is not None


def _as_in(node: Any) -> nodes.InQuery | None:
    """``= ANY`` and ``<> ALL`` as IN and NOT IN."""
    if not isinstance(node, nodes.QuantifiedComparison) or isinstance(node.right, tuple):
        return None
    if (node.operator, node.quantifier) == ("=", "ANY"):
        return nodes.InQuery(node.left, node.right, position=node.position)
    if node.operator in {"<>", "!="} and node.quantifier == "ALL":
        return nodes.InQuery(node.left, node.right, negated=True, position=node.position)
    return None


def filtered(
    queries: QueryBinder, plan: LogicalNode, scope: Scope, node: Any
) -> LogicalNode | None:
    """The rows of a plan for which IN or EXISTS is true; None: it is no join, but a value."""
    negated = False
    while isinstance(node, nodes.UnaryOperation):
        negated = not negated
        node = node.operand
    node = _as_in(node) or node
    bound = bound_sub_query(queries, scope, node.query)
    if isinstance(node, nodes.InQuery) and len(_parts(node.operand)) != len(bound.row):
        count, columns = len(_parts(node.operand)), len(bound.row)
        message = f"IN compares {count} values with {columns} columns."
        raise queries.context.error(node, message)
    if isinstance(node, nodes.Exists) and is_one_row(bound):
        return _never(plan) if negated else plan  # an aggregate of no rows is a row too
    if is_row_of_outer(bound):
        return None
    inner, found = pulled(queries, bound, node)
    width = len(plan.row)
    conditions = [joined(each, width) for each in found]
    if isinstance(node, nodes.InQuery):
        negated = negated != node.negated
        conditions = [*_in(queries, plan, scope, node, inner, negated=negated), *conditions]
    kind = JoinType.ANTI if negated else JoinType.SEMI
    return JoinNode(row=plan.row, left=plan, right=inner, kind=kind, condition=all_of(conditions))


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
        if negated and same.type.is_nullable:
            # NOT IN is true where no comparison is true or unknown.
            same = calls.resolve("IS NOT FALSE", [same])
        found.append(same)
    return found


def _parts(operand: Any) -> tuple[Any, ...]:
    """The values that IN compares."""
    return operand.fields if isinstance(operand, nodes.RowConstructor) else (operand,)


def _never(plan: LogicalNode) -> LogicalNode:
    condition = Literal(False, BooleanType(nullable=False))  # noqa: FBT003
    return FilterNode(row=plan.row, input=plan, condition=condition)


def with_value(plan: LogicalNode, value: SubqueryValue) -> tuple[LogicalNode, Expression]:
    """The plan with the columns of a sub-query behind its own, and what that is worth."""
    width = len(plan.row)

    def change(each: Any) -> Any:
        if isinstance(each, OuterReference):
            return from_inside(each)
        if isinstance(each, Placeholder) and each.kind == "inner":
            return InputReference(width + each.index, f"$q{each.index}", each.type)
        return each

    for inner, condition in value.joins:
        plan = beside(plan, inner, None if condition is None else transform(condition, change))
    return plan, transform(value.value, change)
