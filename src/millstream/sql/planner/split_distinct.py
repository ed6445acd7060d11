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
What it is not: partial aggregates of a batch (``sql/planner/phases.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import calc, exchange
from millstream.sql.planner.joins import plain
from millstream.sql.planner.logical import references, row_of
from millstream.types.logical_types import IntType
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.planner.logical import AggregateCall
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import LogicalType, RowType

__all__ = ["group_aggregate"]

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
