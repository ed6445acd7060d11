"""Helpers of planner rules: calcs, exchanges, conditions and time attributes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from millstream.errors import ValidationError
from millstream.expressions.functions.registry import find_function
from millstream.expressions.nodes import Call, InputReference, transform, walk
from millstream.sql.planner import physical
from millstream.sql.planner.logical import references
from millstream.sql.planner.physical import LookupJoin, TemporalJoin, WindowJoin, WindowRank
from millstream.types.logical_types import LocalZonedTimestampType, TimestampKind, TimestampType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import RowType


class Converts(Protocol):
    """What the rules need of the converter."""

    #: Whether all input has an end, behind which rows are sorted.
    is_batch: bool

    def convert(self, node: LogicalNode) -> PhysicalNode:
        """The physical plan of a node."""


def columns_of(expression: Expression) -> set[int]:
    """The columns that an expression reads."""
    return {each.index for each in walk(expression) if isinstance(each, InputReference)}


def conjuncts(expression: Expression | None) -> list[Expression]:
    """What AND connects."""
    if isinstance(expression, Call) and expression.function == "AND":
        return [part for each in expression.arguments for part in conjuncts(each)]
    return [] if expression is None else [expression]


def conjunction(parts: Sequence[Expression]) -> Expression | None:
    """All of them, connected by AND."""
    found: Expression | None = None
    for each in parts:
        if found is None:
            found = each
        else:
            nullable = found.type.is_nullable or each.type.is_nullable
            found = Call("AND", (found, each), found.type.with_nullability(nullable))
    return found


def substituted(expression: Expression, columns: Sequence[Expression]) -> Expression:
    """The expression with other expressions in the place of its columns."""

    def change(each: Any) -> Any:
        return columns[each.index] if isinstance(each, InputReference) else each

    return transform(expression, change)


def is_deterministic(expression: Expression) -> bool:
    """Whether it gives the same for the same row, whenever it is asked."""
    for each in walk(expression):
        if isinstance(each, Call):
            definition = each.definition or find_function(each.function)
            if definition is not None and not definition.deterministic:
                return False
    return True


def reads_once(
    readers: Sequence[Expression], columns: Sequence[Expression], *, most: int = 1
) -> bool:
    """Whether columns can be put into the place of those who read them.

    One that is not deterministic would have another value for each reader.

    Args:
        readers: expressions over the columns.
        columns: what the columns are made of.
        most: how many readers a column may have that is not deterministic.
    """
    read = Counter(
        each.index for one in readers for each in walk(one) if isinstance(each, InputReference)
    )
    return all(read[at] <= most or is_deterministic(each) for at, each in enumerate(columns))


def calc(
    below: PhysicalNode,
    projections: Sequence[Expression],
    row: RowType,
    condition: Expression | None = None,
) -> PhysicalNode:
    """A calc over a node, merged with one that is there."""
    if isinstance(below, physical.Calc) and all(map(is_deterministic, below.projections)):
        inner = below.projections
        projections = [substituted(each, inner) for each in projections]
        own = [] if condition is None else [substituted(condition, inner)]
        condition = conjunction([*conjuncts(below.condition), *own])
        below = below.input
    identity = tuple(references(below.row)) == tuple(projections)
    if condition is None and identity and row == below.row:
        return below
    return physical.Calc(
        row=row, inputs=(below,), projections=tuple(projections), condition=condition
    )


def exchange(below: PhysicalNode, keys: tuple[int, ...] | None) -> PhysicalNode:
    """The rows of one key in one task."""
    return physical.Exchange(row=below.row, inputs=(below,), keys=keys or None)


def is_rowtime(kind: object) -> bool:
    """Whether a type is that of an event time attribute."""
    return getattr(kind, "kind", None) is TimestampKind.ROWTIME


def keeps_time(call: Call) -> bool:
    """Whether a call is a cast that leaves each point in time as it is."""
    if call.function != "CAST":
        return False
    before, after = call.arguments[0].type, call.type
    for kind in (TimestampType, LocalZonedTimestampType):
        if isinstance(before, kind) and isinstance(after, kind):
            return after.precision >= before.precision
    return False


def moved(expression: Expression, shift: int) -> Expression:
    """The expression with its columns further to the right."""

    def change(each: Any) -> Any:
        return replace(each, index=each.index + shift) if isinstance(each, InputReference) else each

    return transform(expression, change)


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
