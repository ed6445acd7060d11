"""OVER as an operator: by time over inserts, by any order over a changelog, or of batch mode.

What it is: the factory of a physical node.
What it is not: which of them a query gets (``sql/planner/ranks.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import UnsupportedSqlError
from millstream.runtime.operators.table import factories
from millstream.runtime.operators.table.batch_over import BatchOverFactory, Frame
from millstream.sql.lowering.pieces import aggregate_calls, sort_columns
from millstream.types.logical_types import TimestampKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.contracts.operator import OperatorFactory
    from millstream.sql.planner import physical

__all__ = ["goes_by_clock", "over_factory"]


def goes_by_clock(factory: OperatorFactory) -> bool:
    """Return whether an operator has frames that end when the clock has gone on."""
    if not isinstance(factory, factories.OverFactory) or factory.rowtime is not None:
        return False
    return not factory.is_rows and factory.preceding is not None


def over_factory(
    node: physical.OverAggregate, parameters: Mapping[str, str], state_ttl: int
) -> OperatorFactory:
    """Return what makes the operator of a node.

    Args:
        node: the aggregates, their order and frame.
        parameters: of the job, for functions of users.
        state_ttl: after how many milliseconds state goes; 0: never.

    Raises:
        UnsupportedSqlError: there is a FILTER.
    """
    first = node.calls[0]
    if any(each.call.filter is not None for each in node.calls):
        message = "FILTER with OVER is not in this release."
        raise UnsupportedSqlError(message)
    retracts = first.preceding is not None and not (node.updating or node.batch)
    calls = aggregate_calls([each.call for each in node.calls], parameters, retracts=retracts)
    below = node.input.row
    preceding = None if first.preceding is None else int(first.preceding)
    if node.batch:
        return BatchOverFactory(
            input_type=below,
            keys=node.partition,
            order=sort_columns(node.order),
            calls=calls,
            frame=Frame(first.is_rows, first.preceding, first.following),
        )
    if node.updating:
        return factories.UpdatingOverFactory(
            input_type=below,
            keys=node.partition,
            order=sort_columns(node.order),
            aggregates=calls,
            is_rows=first.is_rows,
            preceding=preceding,
            update_before=node.update_before,
            state_ttl=state_ttl,
        )
    time = node.order[0].column
    attribute = getattr(below.fields[time].type, "kind", None)
    return factories.OverFactory(
        input_type=below,
        keys=node.partition,
        aggregates=calls,
        rowtime=time if attribute is TimestampKind.ROWTIME else None,
        is_rows=first.is_rows,
        preceding=preceding,
        state_ttl=state_ttl,
    )
