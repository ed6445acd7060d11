"""Joins by time: the operators of interval, temporal and lookup joins.

What it is: from a node of the physical plan to the factory of its operator.
What it is not: their inputs and names (``sql/lowering/lowering.py``).

Read next: ``runtime/operators/table/plans.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.runtime.operators.table.factories import IntervalJoinFactory, TemporalJoinFactory
from millstream.runtime.operators.table.lookup_join import Asking, LookupJoinFactory
from millstream.runtime.operators.table.specs import JoinKind, JoinSide

if TYPE_CHECKING:
    from millstream.expressions.context import EvaluationContext
    from millstream.sql.planner.physical_joins import IntervalJoin, LookupJoin, TemporalJoin

__all__ = ["interval_join", "lookup_join", "temporal_join"]


def interval_join(node: IntervalJoin, evaluation: EvaluationContext) -> IntervalJoinFactory:
    """The operator of an interval join, by event time or by processing time."""
    return IntervalJoinFactory(
        **_sides(node, evaluation),
        lower=node.lower,
        upper=node.upper,
        is_rowtime=node.is_rowtime,
    )


def temporal_join(node: TemporalJoin, evaluation: EvaluationContext) -> TemporalJoinFactory:
    """The operator of a join with the versions of a table."""
    return TemporalJoinFactory(**_sides(node, evaluation))


def lookup_join(node: LookupJoin, evaluation: EvaluationContext) -> LookupJoinFactory:
    """The operator of a join with a table that is asked for rows."""
    return LookupJoinFactory(
        left_type=node.input.row,
        table_type=node.table_row,
        right_type=node.right_row,
        kind=JoinKind[node.join.name],
        source=node.lookup.source,
        table=node.identifier.as_summary_string(),
        names=node.names,
        keys=node.keys,
        projections=node.projections,
        table_condition=node.table_condition,
        condition=node.condition,
        caching=node.lookup.caching,
        asking=_asking(node),
        evaluation=evaluation,
    )


def _asking(node: LookupJoin) -> Asking:
    hint, lookup = node.hint, node.lookup
    return Asking(
        max_retries=lookup.max_retries,
        miss_attempts=hint.max_attempts,
        miss_delay=hint.retry_delay,
        capacity=hint.capacity if hint.is_async else 0,
        unordered=hint.is_unordered,
        timeout=hint.timeout,
    )


def _sides(node: Any, evaluation: EvaluationContext) -> dict[str, Any]:
    left, right = node.inputs
    return {
        "left_type": left.row,
        "right_type": right.row,
        "kind": JoinKind[node.join.name],
        "left": JoinSide(node.left_keys),
        "right": JoinSide(node.right_keys),
        "filter_nulls": node.filter_nulls,
        "left_time": node.left_time,
        "right_time": node.right_time,
        "condition": node.condition,
        "evaluation": evaluation,
    }
