"""Aggregation in two phases: which aggregates are computed per batch ahead of their exchange.

What it is: Flink's TwoStageOptimizedAggregateRule and TwoStageOptimizedWindowAggregateRule, behind
the planning of changes.  An aggregate whose partial results can be added up is made of each batch
by itself, that of a window per slice; only these cross the exchange.  Windows of event time do it
in any case, GROUP BY with mini-batches.  State is the same in one phase and in two, so is its uid.
What it is not: a node of the plan of its own, nor the operators
(``runtime/operators/table/group_aggregate.py``,
``runtime/operators/table/window_aggregate.py``).

Read next: ``sql/lowering/lowering.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.runtime.operators.table.aggregate_calls import can_be_partial
from millstream.sql.lowering.pieces import aggregate_calls
from millstream.sql.planner import physical
from millstream.sql.planner.physical_windows import WindowAggregate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.sql.planner.physical import PhysicalNode

__all__ = ["aggregate_in_two_phases", "can_be_split", "fold_changes"]


def aggregate_in_two_phases(plans: Iterable[PhysicalNode], *, mini_batch: bool) -> None:
    """Mark the aggregates of plans, whose changes are known, that can be in two phases.

    Args:
        plans: whose nodes are marked.
        mini_batch: whether GROUP BY without windows may be.
    """
    for node in _nodes(plans):
        if isinstance(node, WindowAggregate):
            node.two_phase = _has_slices(node) and can_be_split(node)
        elif isinstance(node, physical.GroupAggregate) and mini_batch:
            node.two_phase = can_be_split(node)


def fold_changes(plans: Iterable[PhysicalNode]) -> None:
    """Mark the joins of plans as those that fold the changes of a mini-batch."""
    for node in _nodes(plans):
        if isinstance(node, physical.Join):
            node.mini_batch = True


def _has_slices(node: WindowAggregate) -> bool:
    """Whether windows can be put together of parts of batches, for aggregates of any kind.

    Sessions join; and it is one task that says what time it is.  Sizes of the Table API may be made
    up of no slides: windows share no slices then.
    """
    if not node.is_rowtime or node.window == "SESSION":
        return False
    if node.attached is not None or node.step is None:
        return True
    by_arrival = any(call.goes_by_arrival for call in aggregate_calls(node.calls))
    return not by_arrival and not node.size % node.step


def _nodes(plans: Iterable[PhysicalNode]) -> Iterator[PhysicalNode]:
    """Every node once."""
    seen: set[int] = set()
    todo = list(plans)
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            todo += node.inputs
            yield node


def can_be_split(node: physical.GroupAggregate | WindowAggregate) -> bool:
    """Whether partial results of an aggregate can be made ahead of its exchange, and added up."""
    exchange = node.input
    if not node.calls or not isinstance(exchange, physical.Exchange):
        return False
    retracts = not exchange.is_insert_only
    if any(call.user is not None for call in node.calls):  # one phase, as in Flink
        return False
    return can_be_partial(aggregate_calls(node.calls), exchange.row, retracts=retracts)
