"""Aggregates of rows of which it is known beforehand that there are none.

What it is: ``SELECT COUNT(*) FROM t WHERE FALSE`` is a row of the statement itself, as in Flink.
What it is not: aggregates that find nothing when they run, which of streams have no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.expressions.folding import fold
from millstream.expressions.nodes import Literal
from millstream.sql.planner.logical import FilterNode, LogicalNode, ProjectNode, ValuesNode

if TYPE_CHECKING:
    from millstream.expressions.context import EvaluationContext

__all__ = ["aggregate_of_nothing"]


def aggregate_of_nothing(node: Any, context: EvaluationContext) -> ValuesNode | None:
    """The row of an aggregate of no rows; None: it has keys, or there may be rows.

    Args:
        node: the aggregate.
        context: of the session, in whose time zone conditions are.
    """
    if node.keys or node.sets is not None or node.groupings:
        return None
    if not _is_empty(node.input, context):
        return None
    if any(
        call.user or not (call.function == "COUNT" or call.type.is_nullable) for call in node.calls
    ):
        return None
    values = tuple(0 if call.function == "COUNT" else None for call in node.calls)
    return ValuesNode(row=node.row, rows=(values,))


def _is_empty(plan: LogicalNode, context: EvaluationContext) -> bool:
    """Whether a condition that is never true stands above all rows."""
    while isinstance(plan, ProjectNode | FilterNode):
        if isinstance(plan, FilterNode):
            condition = fold(plan.condition, context)
            if isinstance(condition, Literal) and condition.value is not True:
                return True
        plan = plan.input
    return False
