"""Operators that keep rows and take them back: Top-N, deduplication, normalisation, regular joins.

What it is: from a node of the physical plan to the factory of its operator.
What it is not: their inputs and names (``sql/lowering/lowering.py``).

Read next: ``runtime/operators/table/factories.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.runtime.operators.table import factories
from millstream.runtime.operators.table.specs import JoinKind, JoinSide, RankStrategy
from millstream.sql.lowering.pieces import sort_columns
from millstream.sql.planner.keys import smallest, upsert_keys

if TYPE_CHECKING:
    from millstream.expressions.context import EvaluationContext
    from millstream.sql.lowering.options import LoweringOptions
    from millstream.sql.planner import physical

__all__ = ["deduplicate", "normalize", "regular_join", "top_n"]

#: By their names in plans.
_STRATEGIES: Final = {
    "append": RankStrategy.APPEND,
    "retract": RankStrategy.RETRACT,
    "update fast": RankStrategy.UPDATE_FAST,
}


def deduplicate(
    node: physical.Deduplicate, options: LoweringOptions
) -> factories.DeduplicateFactory:
    """The operator that keeps the first or the last row of each key."""
    return factories.DeduplicateFactory(
        input_type=node.input.row,
        keys=node.keys,
        rowtime=node.rowtime,
        keep_last=node.keep_last,
        update_before=node.update_before,
        mini_batch=options.mini_batch,
        state_ttl=options.state_ttl,
    )


def top_n(node: physical.Rank, options: LoweringOptions) -> factories.TopNFactory:
    """The operator that keeps the first rows of each partition."""
    return factories.TopNFactory(
        input_type=node.input.row,
        keys=node.partition,
        order=sort_columns(node.order),
        start=node.start,
        end=node.end,
        output_rank=node.outputs_rank,
        strategy=_STRATEGIES[node.strategy],
        update_before=node.update_before,
        row_key=node.row_key,
        state_ttl=options.state_ttl,
        mini_batch=options.mini_batch,
    )


def normalize(
    node: physical.ChangelogNormalize, options: LoweringOptions
) -> factories.ChangelogNormalizeFactory:
    """The operator that makes a changelog by keys one in which rows are taken back whole."""
    return factories.ChangelogNormalizeFactory(
        input_type=node.input.row,
        keys=node.keys,
        update_before=node.update_before,
        mini_batch=options.mini_batch,
        state_ttl=options.state_ttl,
    )


def regular_join(
    node: physical.Join, evaluation: EvaluationContext, ttls: tuple[int, int]
) -> factories.JoinFactory:
    """The operator of a join that keeps the rows of both sides.

    Args:
        node: of the plan.
        evaluation: of its condition.
        ttls: milliseconds for which the rows of each side are kept; 0: for good.
    """
    left, right = node.inputs
    keys = smallest(upsert_keys(left)), smallest(upsert_keys(right))
    return factories.JoinFactory(
        left_type=left.row,
        right_type=right.row,
        kind=JoinKind[node.join.name],
        left=JoinSide(node.left_keys, keys[0]),
        right=JoinSide(node.right_keys, keys[1]),
        filter_nulls=node.filter_nulls,
        condition=node.condition,
        evaluation=evaluation,
        left_ttl=ttls[0],
        right_ttl=ttls[1],
        mini_batch=node.mini_batch,
    )
