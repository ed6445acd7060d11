"""Interval joins of tables, on the operator of streams.

What it is: keys and timestamps of rows for ``runtime/operators/interval_join.py``, and what else
the condition says behind it.
What it is not: outer interval joins, which that operator has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import UnsupportedSqlError
from millstream.graph.model import Partitioning
from millstream.graph.transformation import PartitionTransformation
from millstream.runtime.operators.interval_join import IntervalJoinFactory
from millstream.runtime.operators.table.rowtime import PairRows, RowKey, RowtimeFactory
from millstream.sql.planner import physical
from millstream.sql.planner.logical import JoinType, references

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.graph.transformation import Transformation

__all__ = ["interval_join_factory", "keyed_side", "residual"]


def interval_join_factory(node: physical.IntervalJoin) -> IntervalJoinFactory:
    """The operator of a join.

    Raises:
        UnsupportedSqlError: it is an outer join, or one of processing time, or has no keys.
    """
    if node.join is not JoinType.INNER:
        message = f"{node.join.value} with bounds of time is not in this release; INNER JOIN is."
        raise UnsupportedSqlError(message)
    if not node.is_rowtime:
        message = "An interval join over processing time is not in this release."
        raise UnsupportedSqlError(message)
    if not node.left_keys:
        message = "An interval join needs an equality of columns beside the bounds of time."
        raise UnsupportedSqlError(message)
    selectors = RowKey(node.left_keys), RowKey(node.right_keys)
    return IntervalJoinFactory(PairRows(), selectors, (node.lower, node.upper))


def keyed_side(
    below: Transformation,
    time: int,
    keys: tuple[int, ...],
    one: Callable[..., Transformation],
    next_id: Callable[[], int],
) -> Transformation:
    """One input, with timestamps and by key.

    Args:
        below: what is read.
        time: its column of event time.
        keys: its key columns.
        one: makes an operator.
        next_id: numbers transformations.
    """
    timed: Any = one("Rowtime", RowtimeFactory(time, keys), below, below.output_type)
    return PartitionTransformation(
        id=next_id(),
        location=timed.location,
        output_type=timed.output_type,
        input=timed,
        partitioning=Partitioning.HASH,
        key_selector=RowKey(keys),
    )


def residual(node: physical.IntervalJoin) -> physical.Calc | None:
    """What is left of the condition, as a filter behind the join; None if there is nothing."""
    if node.condition is None:
        return None
    columns = tuple(references(node.row))
    return physical.Calc(
        row=node.row, inputs=(node,), projections=columns, condition=node.condition
    )
