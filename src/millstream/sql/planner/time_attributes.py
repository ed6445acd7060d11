"""Time attributes in physical plans: where a column is still one.

What it is: whether rows still come in the order of a time column, as far as watermarks say.
Regular joins and aggregates give rows at any time; behind them the column is an ordinary one.
What it is not: the types of rows, which say only what a column was when the query was bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ValidationError
from millstream.expressions.nodes import InputReference
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import is_rowtime
from millstream.sql.planner.physical import LookupJoin, TemporalJoin, WindowJoin, WindowRank

if TYPE_CHECKING:
    from millstream.sql.planner.physical import PhysicalNode


def keeps_time_attribute(node: PhysicalNode, column: int) -> bool:
    """Whether a column, which was a time attribute when it was bound, is one still."""
    while True:
        if isinstance(node, physical.Calc):
            each = node.projections[column]
            if not isinstance(each, InputReference):
                return True
            column, node = each.index, node.input
        elif isinstance(node, physical.Exchange):
            node = node.input
        elif isinstance(node, LookupJoin | TemporalJoin):
            if column >= len(node.inputs[0].row):
                return False
            node = node.inputs[0]
        elif isinstance(node, physical.Union):
            return all(keeps_time_attribute(each, column) for each in node.inputs)
        elif isinstance(node, WindowJoin | WindowRank):
            return is_rowtime(node.row.fields[column].type)
        elif isinstance(node, physical.OverAggregate):
            return not node.updating
        else:
            return not isinstance(node, physical.Join | physical.GroupAggregate)


def check_window_time(node: PhysicalNode, column: int) -> None:
    """Refuse a window over a column that is no time attribute any more.

    Raises:
        ValidationError: names the column.
    """
    if not keeps_time_attribute(node, column):
        message = (
            "The window function requires the timecol is a time attribute type, but "
            f"'{node.row.names[column]}' comes through a regular join or DISTINCT, where a time "
            "attribute ends."
        )
        raise ValidationError(message)
