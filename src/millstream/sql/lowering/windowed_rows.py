"""Rows that have their windows already: the operators of their joins and rankings.

What it is: from a node of the physical plan to the factory of its operator.
What it is not: their inputs and names (``sql/lowering/lowering.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.runtime.operators.table.factories import WindowRankFactory
from millstream.runtime.operators.table.specs import JoinKind, JoinSide
from millstream.runtime.operators.table.window_join import WindowJoinFactory
from millstream.sql.lowering.pieces import sort_columns

if TYPE_CHECKING:
    from millstream.expressions.context import EvaluationContext
    from millstream.sql.planner.physical_windows import WindowJoin, WindowRank

__all__ = ["window_join", "window_rank"]


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
