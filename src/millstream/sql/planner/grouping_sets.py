"""GROUPING SETS: the Expand node before the aggregation, and GROUPING, GROUPING_ID and GROUP_ID."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.expressions.nodes import Call, Literal
from millstream.sql.planner import physical
from millstream.sql.planner.logical import GROUP_ID, row_of
from millstream.types.logical_types import BigIntType, BooleanType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression, InputReference
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import LogicalType


def grouped_sets(node: Any) -> tuple[tuple[int, ...], ...] | None:
    """The sets of an aggregation, as positions in its keys; None: it is over all keys alone."""
    if node.sets is None and not node.groupings:
        return None
    return node.sets or (tuple(range(len(node.keys))),)


def expand(
    below: PhysicalNode,
    keys: tuple[int, ...],
    types: Sequence[LogicalType],
    sets: tuple[tuple[int, ...], ...],
) -> physical.Expand:
    """Each row once per set, with copies of the keys and the number of the set behind it.

    The keys are copied: an aggregate over a key sees its value, not the NULL of the set.

    Args:
        below: gives the rows.
        keys: columns.
        types: of the copies, which are NULL where a set has them not.
        sets: for each, the columns that it has.
    """
    names = [*below.row.names, *(below.row.names[key] for key in keys), "$e"]
    row = row_of(names, [*below.row.children, *types, BigIntType(nullable=False)])
    return physical.Expand(row=row, inputs=(below,), sets=sets, keys=keys)


def grouping(
    number: InputReference, sets: Sequence[tuple[int, ...]], wanted: tuple[int, ...]
) -> Expression:
    """GROUPING_ID of a set, by its number: a bit per key that is not in it; or its GROUP_ID."""
    kind = number.type
    arguments: list[Expression] = []
    for position, part in enumerate(sets):
        bits = 0
        for key in wanted if wanted != GROUP_ID else ():
            bits = bits * 2 + (key not in part)
        if wanted == GROUP_ID:
            bits = [set(each) for each in sets[:position]].count(set(part))
        same = Call("=", (number, Literal(position, kind)), BooleanType(nullable=False))
        arguments += [same, Literal(bits, kind)]
    arguments[-2:] = arguments[-1:]
    if len(arguments) == 1:
        return arguments[0]
    return Call("CASE", tuple(arguments), kind)


def in_sets(
    number: InputReference,
    sets: Sequence[tuple[int, ...]],
    key: int,
    column: Expression,
    kind: LogicalType,
) -> Expression:
    """A key that all groups have, but NULL in those of sets that do not name it.

    Args:
        number: of the set.
        sets: as positions in the keys.
        key: its position.
        column: its values.
        kind: what it is where a set does not name it.
    """
    without = [position for position, part in enumerate(sets) if key not in part]
    if not without:
        return column
    arguments: list[Expression] = []
    for position in without:
        same = Call("=", (number, Literal(position, number.type)), BooleanType(nullable=False))
        arguments += [same, Literal(None, kind)]
    return Call("CASE", (*arguments, column), kind)
