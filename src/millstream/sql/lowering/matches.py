"""Lowering of MATCH_RECOGNIZE: the factory of its operator, and the words of its place.

What it is: what ``sql/lowering/lowering.py`` and ``sql/lowering/places.py`` ask for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.runtime.operators.table.factories import MatchFactory
from millstream.runtime.operators.table.row_patterns import Aggregation, Navigation
from millstream.sql.lowering.pieces import sort_columns
from millstream.sql.planner.calcs import is_rowtime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.context import EvaluationContext
    from millstream.expressions.nodes import Expression
    from millstream.runtime.operators.table.row_patterns import Slot
    from millstream.sql.planner.matches import Match

__all__ = ["match_factory", "slot_texts"]


def match_factory(node: Match, evaluation: EvaluationContext) -> MatchFactory:
    """The factory of the operator of a node."""
    below = node.input.row
    time = node.order[0].column
    return MatchFactory(
        input_type=below,
        keys=node.partition,
        pattern=node.pattern,
        conditions=node.conditions,
        measures=node.measures,
        slots=node.slots,
        rowtime=time if is_rowtime(below.fields[time].type) else None,
        order=sort_columns(node.order[1:]),
        evaluation=evaluation,
    )


def slot_texts(
    node: Match, below: Sequence[str], text: Callable[[Expression | None, Sequence[str]], str]
) -> list[str]:
    """What each slot is made of, by what the columns of the input are made of."""

    def variable(slot: Any) -> str:
        return "*" if slot.variable is None else node.pattern.variables[slot.variable].name

    def shown(slot: Slot) -> str:
        if isinstance(slot, Navigation):
            end = "FIRST" if slot.first else "LAST"
            return f"{end}({variable(slot)}.[{below[slot.column]}], {slot.offset})"
        if isinstance(slot, Aggregation):
            inside = ", ".join(text(each, below) for each in slot.arguments)
            return f"{slot.function}({variable(slot)}.[{inside}])"
        return "MATCH_ROWTIME"

    return [shown(slot) for slot in node.slots]
