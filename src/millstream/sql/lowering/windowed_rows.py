"""Windows: the operators of their aggregates, joins and rankings.

What it is: from a node of the physical plan to the factory of its operator.
What it is not: their inputs and names (``sql/lowering/lowering.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.runtime.columnar.table_windows import WindowKind, WindowSpec
from millstream.runtime.operators.table.factories import (
    LocalWindowAggregateFactory,
    WindowAggregateFactory,
    WindowFunctionFactory,
    WindowRankFactory,
)
from millstream.runtime.operators.table.specs import JoinKind, JoinSide
from millstream.runtime.operators.table.window_join import WindowJoinFactory
from millstream.sql.lowering.pieces import aggregate_calls, sort_columns
from millstream.sql.planner.calcs import is_rowtime

if TYPE_CHECKING:
    from millstream.expressions.context import EvaluationContext
    from millstream.sql.planner.physical import WindowTableFunction
    from millstream.sql.planner.physical_windows import WindowAggregate, WindowJoin, WindowRank

__all__ = [
    "local_window_aggregate",
    "window_aggregate",
    "window_function",
    "window_join",
    "window_rank",
]


def window_function(
    node: WindowTableFunction, evaluation: EvaluationContext
) -> WindowFunctionFactory:
    """The operator of a window TVF by itself."""
    return WindowFunctionFactory(
        input_type=node.input.row,
        window=WindowSpec(WindowKind[node.window], node.size, node.step, node.offset),
        time=node.time,
        is_rowtime=is_rowtime(node.input.row.fields[node.time].type),
        time_zone=evaluation.time_zone,
    )


def window_aggregate(
    node: WindowAggregate, evaluation: EvaluationContext
) -> WindowAggregateFactory:
    """The operator of an aggregate per window."""
    is_session = node.window == "SESSION" and node.attached is None
    return WindowAggregateFactory(
        input_type=node.input.row,
        window=WindowSpec(WindowKind[node.window], node.size, node.step, node.offset),
        time=node.time,
        keys=node.keys,
        aggregates=aggregate_calls(node.calls, evaluation.job_parameters, merges=is_session),
        properties=node.properties,
        is_rowtime=node.is_rowtime,
        attached=node.attached,
        time_zone=evaluation.time_zone,
        merges=node.two_phase,
    )


def local_window_aggregate(final: WindowAggregateFactory) -> LocalWindowAggregateFactory:
    """The operator ahead of the exchange, of an aggregate in two phases."""
    return LocalWindowAggregateFactory(
        final.input_type,
        final.window,
        final.time,
        final.keys,
        final.aggregates,
        final.attached,
        final.time_zone,
    )


def window_join(node: WindowJoin, evaluation: EvaluationContext) -> WindowJoinFactory:
    """The operator of a join of rows of one window."""
    left, right = node.inputs
    return WindowJoinFactory(
        left_type=left.row,
        right_type=right.row,
        kind=JoinKind[node.join.name],
        left=JoinSide(node.left_keys),
        right=JoinSide(node.right_keys),
        filter_nulls=node.filter_nulls,
        ends=(node.left_window[1], node.right_window[1]),
        condition=node.condition,
        evaluation=evaluation,
        time_zone=evaluation.time_zone if node.spec.has_zone else None,
    )


def window_rank(node: WindowRank, evaluation: EvaluationContext) -> WindowRankFactory:
    """The operator of numbered rows of one window."""
    return WindowRankFactory(
        input_type=node.input.row,
        keys=node.partition,
        order=sort_columns(node.order),
        start=node.start,
        end=node.end,
        output_rank=node.outputs_rank,
        window_end=node.window[1],
        time_zone=evaluation.time_zone if node.spec.has_zone else None,
    )
