"""LATERAL in front of a sub-query: rows that a sub-query has for each row of what stands before it.

What it is: a join by what the sub-query says of the columns before it.  The first rows of an order
become those of each value that it is correlated by, as Flink plans it.
What it is not: LATERAL TABLE of functions (``sql/binder/relations.py``).

Read next: ``sql/binder/correlation.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.expressions.nodes import InputReference, transform
from millstream.sql.binder.aggregates import Placeholder
from millstream.sql.binder.correlation import (
    has_repeated,
    is_outer,
    joined,
    pulled,
)
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import OuterReference
from millstream.sql.binder.subquery_values import (
    beside,
    bound_sub_query,
    is_row_of_outer,
    row_values,
)
from millstream.sql.planner.calcs import substituted
from millstream.sql.planner.logical import (
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
    from millstream.sql.planner.logical import LogicalNode

__all__ = ["lateral"]


def lateral(
    queries: QueryBinder, left: LogicalNode, scope: Scope, node: Any, kind: JoinType
) -> LogicalNode:
    """The rows of the left with those of a sub-query behind them.

    Args:
        queries: of the query around.
        left: what stands before the sub-query.
        scope: of the left.
        node: the sub-query.
        kind: of the join.

    Raises:
        ValidationError: it is joined or correlated otherwise than can be.
    """
    bound = bound_sub_query(queries, scope, node.query)
    if kind not in {JoinType.INNER, JoinType.LEFT}:
        message = "LATERAL is joined by CROSS, INNER or LEFT JOIN."
        raise queries.context.error(node, message)
    if is_row_of_outer(bound):
        return _one_row(queries, left, bound, node, kind)
    computed: list[Expression] = list(references(bound.row))
    below = bound
    while kind is JoinType.INNER and isinstance(below, ProjectNode) and _computes(below):
        computed = [substituted(each, below.expressions) for each in computed]
        below = below.input
    inner, found = pulled(queries, below, node)
    if has_repeated(below, found):
        message = "LATERAL with DISTINCT is correlated by equalities alone in this release."
        raise queries.context.error(node, message)
    width = len(left.row)
    binder = ExpressionBinder(queries.context, scope)
    condition: Expression | None = None
    for each in found:
        one = joined(each, width)
        condition = one if condition is None else binder.call(node, "AND", condition, one)
    join = JoinNode(
        row=_row(left, inner.row.names, inner.row.children, kind),
        left=left,
        right=inner,
        kind=kind,
        condition=condition,
    )
    shown = [*references(join.row)[:width], *(joined(each, width) for each in computed)]
    if kind is JoinType.LEFT:
        shown = list(references(join.row)[: width + len(bound.row)])
    return _projected(join, left, bound, shown)


def _computes(plan: ProjectNode) -> bool:
    return any(map(is_outer, plan.expressions))


def _projected(
    plan: LogicalNode, left: LogicalNode, bound: LogicalNode, shown: Sequence[Expression]
) -> LogicalNode:
    row = row_of([*left.row.names, *bound.row.names], [each.type for each in shown])
    return ProjectNode(row=row, input=plan, expressions=tuple(shown))


def _row(left: LogicalNode, names: Sequence[str], types: Sequence[Any], kind: JoinType) -> Any:
    if kind is JoinType.LEFT:
        types = [each.with_nullability(True) for each in types]  # noqa: FBT003
    return row_of([*left.row.names, *names], [*left.row.children, *types])


def _one_row(
    queries: QueryBinder, left: LogicalNode, bound: LogicalNode, node: Any, kind: JoinType
) -> LogicalNode:
    """An aggregate of all rows: it is there for each row of the left, if of no rows.

    Raises:
        ValidationError: HAVING may leave it out of a LEFT JOIN.
    """
    (inner, condition), values, present = row_values(queries, bound, node)
    if present is not None and kind is JoinType.LEFT:
        message = "LEFT JOIN LATERAL of an aggregate with HAVING is not in this release."
        raise queries.context.error(node, message)
    width = len(left.row)

    def change(each: Any) -> Any:
        if isinstance(each, Placeholder):
            return InputReference(width + each.index, f"$q{each.index}", each.type)
        if isinstance(each, OuterReference):
            return joined(each, width)  # type: ignore[arg-type]
        return each

    on = None if condition is None else transform(condition, change)
    plan = beside(left, inner, on)
    if present is not None:
        plan = FilterNode(row=plan.row, input=plan, condition=transform(present, change))
    shown = [*references(plan.row)[:width], *(transform(each, change) for each in values)]
    return _projected(plan, left, bound, shown)
