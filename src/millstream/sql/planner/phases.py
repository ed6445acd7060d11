"""Aggregation in two phases: which aggregates are computed per batch ahead of their exchange.

What it is: Flink's TwoStageOptimizedAggregateRule, behind the planning of changes.  With
mini-batches an aggregate whose partial results can be added up is made of each batch by itself;
only these cross the exchange.  Its state is the same in one phase and in two, so is its uid.
What it is not: a node of the plan of its own, nor the operators
(``runtime/operators/table/group_aggregate.py``).

Read next: ``sql/lowering/lowering.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.runtime.operators.table.aggregate_calls import can_be_partial
from millstream.sql.lowering.pieces import aggregate_calls
from millstream.sql.planner import physical

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.sql.planner.physical import PhysicalNode

__all__ = ["aggregate_in_two_phases"]


def aggregate_in_two_phases(plans: Iterable[PhysicalNode]) -> None:
    """Mark the aggregates of plans, whose changes are known, that can be in two phases."""
    seen: set[int] = set()
    todo = list(plans)
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        todo += node.inputs
        if isinstance(node, physical.GroupAggregate) and _can_be_split(node):
            node.two_phase = True


def _can_be_split(node: physical.GroupAggregate) -> bool:
    exchange = node.input
    if not node.calls or not isinstance(exchange, physical.Exchange):
        return False
    retracts = not exchange.is_insert_only
    if any(call.user is not None for call in node.calls):  # one phase, as in Flink
        return False
    return can_be_partial(aggregate_calls(node.calls), exchange.row, retracts=retracts)
