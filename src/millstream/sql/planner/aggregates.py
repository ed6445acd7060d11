"""Aggregates over DISTINCT values in two steps, so that the values of one group are spread.

What it is: Flink's SplitAggregateRule.  All values of a group that has many of them are one
subtask's, whatever the parallelism.  Split, each bucket of the values is a group of its own, and
the results of buckets are put together::

    GroupAggregate(groupBy=[k], [$SUM0(n)])                  n per bucket, taken back as it changes
    +- Exchange(hash[k])
       +- GroupAggregate(groupBy=[k, $b], [COUNT(DISTINCT v) AS n])
          +- Exchange(hash[k, $b])
             +- Calc(k, v, MOD(HASH_CODE(v), 1024) AS $b)

Aggregates beside those of DISTINCT are made per bucket, too.
What it is not: partial aggregates of a batch (``sql/planner/aggregates.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.evaluator import fold
from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.runtime.operators.table.aggregate_calls import can_be_partial
from millstream.sql.lowering.pieces import aggregate_calls
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import calc, exchange
from millstream.sql.planner.joins import plain
from millstream.sql.planner.logical import (
    FilterNode,
    LogicalNode,
    ProjectNode,
    ValuesNode,
    references,
    row_of,
)
from millstream.sql.planner.physical import WindowAggregate
from millstream.types.logical_types import IntType
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.expressions.context import EvaluationContext
    from millstream.sql.planner.logical import AggregateCall
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import LogicalType, RowType


#: Aggregate -> what puts the results of buckets together.
_FINAL: Final = {"COUNT": "$SUM0", "$SUM0": "$SUM0", "SUM": "SUM", "MIN": "MIN", "MAX": "MAX"}
_SPREAD: Final = (TypeFamily.INTEGER_NUMERIC, TypeFamily.CHARACTER_STRING)


def group_aggregate(
    row: RowType,
    below: PhysicalNode,
    keys: tuple[int, ...],
    calls: tuple[AggregateCall, ...],
    state_ttl: int | None,
    buckets: int | None,
) -> physical.GroupAggregate:
    """An aggregation, in two steps if it has DISTINCT values that can be spread.

    Args:
        row: what it gives.
        below: what it is of.
        keys: columns.
        calls: the aggregates.
        state_ttl: milliseconds; None: as the option says.
        buckets: of the values; None: in one step.
    """
    row = row_of(row.names, [plain(each) for each in row.children])
    if buckets is not None and (spread := _spread_column(below.row, calls)) is not None:
        below, keys, calls = _per_bucket(below, keys, calls, state_ttl, spread, buckets)
    return physical.GroupAggregate(
        row=row, inputs=(exchange(below, keys),), keys=keys, calls=calls, state_ttl=state_ttl
    )


def _spread_column(row: RowType, calls: Sequence[AggregateCall]) -> int | None:
    """The column by which the values of DISTINCT are spread; None: they cannot be.

    The same values must be in the same bucket for all aggregates, so all are of the same columns.
    """
    if any(call.user is not None or call.function not in _FINAL for call in calls):
        return None
    found = {call.arguments for call in calls if call.distinct}
    if len(found) != 1:
        return None
    (arguments,) = found
    return next((each for each in arguments if _can_be_spread(row.children[each])), None)


def _can_be_spread(kind: LogicalType) -> bool:
    return any(kind.is_a(family) for family in _SPREAD)


def _per_bucket(
    below: PhysicalNode,
    keys: tuple[int, ...],
    calls: tuple[AggregateCall, ...],
    state_ttl: int | None,
    spread: int,
    buckets: int,
) -> tuple[PhysicalNode, tuple[int, ...], tuple[AggregateCall, ...]]:
    """The aggregation of buckets, and keys and aggregates of that over them."""
    width, count = len(below.row), len(keys)
    value = below.row.fields[spread]
    number = IntType(nullable=value.type.is_nullable)
    code = Call("HASH_CODE", (InputReference(spread, value.name, value.type),), number)
    bucket = Call("MOD", (code, Literal(buckets, IntType(nullable=False))), number)
    with_bucket = calc(
        below,
        [*references(below.row), bucket],
        row_of([*below.row.names, "$b"], [*below.row.children, number]),
    )
    grouped = (*keys, width)
    names = [
        *(with_bucket.row.names[key] for key in grouped),
        *(f"$p{i}" for i in range(len(calls))),
    ]
    types = [plain(with_bucket.row.children[key]) for key in grouped]
    partial = physical.GroupAggregate(
        row=row_of(names, [*types, *(call.type for call in calls)]),
        inputs=(exchange(with_bucket, grouped),),
        keys=grouped,
        calls=calls,
        state_ttl=state_ttl,
    )
    final = tuple(
        replace(
            call,
            function=_FINAL[call.function],
            arguments=(count + 1 + at,),
            filter=None,
            distinct=False,
        )
        for at, call in enumerate(calls)
    )
    return partial, tuple(range(count)), final


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
