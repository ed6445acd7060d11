"""Group aggregates: splitting of DISTINCT aggregates, and two-phase aggregation.

Flink's SplitAggregateRule spreads the DISTINCT values of one hot group over subtasks.  Each bucket
of values is a group, whose results are then merged::

    GroupAggregate(groupBy=[k], [$SUM0(n)])                  n per bucket, retracted on updates
    +- Exchange(hash[k])
       +- GroupAggregate(groupBy=[k, $b], [COUNT(DISTINCT v) AS n])
          +- Exchange(hash[k, $b])
             +- Calc(k, v, MOD(HASH_CODE(v), 1024) AS $b)

Other aggregates beside those of DISTINCT are computed per bucket, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.evaluator import fold
from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.runtime.operators.table.aggregate_calls import can_be_partial
from millstream.sql.lowering.operators import aggregate_calls
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
    from collections.abc import Sequence

    from millstream.expressions.context import EvaluationContext
    from millstream.sql.planner.logical import AggregateCall
    from millstream.sql.planner.physical import PhysicalNode, SinkNode
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


def aggregate_in_two_phases(plans: list[SinkNode], *, mini_batch: bool) -> list[SinkNode]:
    """Mark the aggregates that run in two phases; changelog planning must be done.

    Args:
        plans: of all sinks.
        mini_batch: whether aggregates without windows may run in two phases.
    """
    for node in physical.nodes_of(plans):
        if isinstance(node, WindowAggregate):
            node.two_phase = _has_slices(node) and can_be_split(node)
        elif isinstance(node, physical.GroupAggregate) and mini_batch:
            node.two_phase = can_be_split(node)
    return plans


def compact_join_changes(plans: list[SinkNode]) -> list[SinkNode]:
    """Mark the joins as those that compact the changes of a mini-batch."""
    for node in physical.nodes_of(plans):
        if isinstance(node, physical.Join):
            node.mini_batch = True
    return plans


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


def can_be_split(node: physical.GroupAggregate | WindowAggregate) -> bool:
    """Whether partial results of an aggregate can be made ahead of its exchange, and added up."""
    exchange = node.input
    if not node.calls or not isinstance(exchange, physical.Exchange):
        return False
    retracts = not exchange.is_insert_only
    if any(call.user is not None for call in node.calls):  # one phase, as in Flink
        return False
    return can_be_partial(aggregate_calls(node.calls), exchange.row, retracts=retracts)
