"""Temporal joins: each row with the version of a table at its time.

What it is: ``FOR SYSTEM_TIME AS OF`` a time attribute of the left.  Over event time the right has
versions: a row per key and time, each of which is valid until the next.  What Flink wants of it is
checked here: a primary key, all of it in the condition, and one time attribute.  A deduplication
that keeps the last row per key says no more than the key: its input is taken, so that versions that
come out of order are not lost.
What it is not: the operators; nor tables as they are now (``sql/planner/lookup_joins.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.errors import ValidationError
from millstream.expressions.nodes import Call, InputReference
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import (
    Converts,
    columns_of,
    conjunction,
    conjuncts,
    is_rowtime,
)
from millstream.sql.planner.changelog import kinds_of
from millstream.sql.planner.joins import Sides, nullable, plain, without_extra
from millstream.sql.planner.keys import smallest, upsert_keys
from millstream.sql.planner.logical import JoinType, row_of
from millstream.sql.planner.lookup_joins import lookup_join
from millstream.sql.planner.physical_joins import TemporalJoin
from millstream.sql.planner.times import keeps_time_attribute
from millstream.types.logical_types import BigIntType, IntType, SmallIntType, TinyIntType

if TYPE_CHECKING:
    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import RowType

__all__ = ["temporal_join"]

_INTEGERS = (TinyIntType, SmallIntType, IntType, BigIntType)
_NEEDS = "Event-Time Temporal Table Join requires both primary key and row time attribute"


def temporal_join(converter: Converts, node: Any) -> PhysicalNode:
    """Each row of the left with the version of the right at its time.

    Raises:
        ValidationError: there are no versions, or the condition does not name them.
    """
    if node.time is None:
        return lookup_join(converter, node)
    left, right = converter.convert(node.left), converter.convert(node.right)
    right_time = _times(left, right, node.time)
    sides = Sides(left, _versions(right))
    parts = conjuncts(node.condition)
    keys = _key_parts(parts, len(left.row), right)
    for part in keys:
        sides.take(part)
    rest = [each for each in parts if not any(each is key for key in keys)]
    inputs = sides.exchanged()
    made = TemporalJoin(
        row=_row(inputs[0].row, inputs[1].row, node.kind),
        inputs=inputs,
        join=node.kind,
        left_keys=tuple(sides.keys[0]),
        right_keys=tuple(sides.keys[1]),
        condition=sides.moved(conjunction(rest)),
        filter_nulls=tuple(sides.filter_nulls),
        left_time=node.time,
        right_time=right_time,
    )
    return without_extra(node, made, sides, len(inputs[0].row))


def _row(left: RowType, right: RowType, kind: JoinType) -> RowType:
    keeps = kind is JoinType.LEFT
    types = [nullable(each) if keeps else plain(each) for each in right.children]
    return row_of([*left.names, *right.names], [*left.children, *types])


def _times(left: PhysicalNode, right: PhysicalNode, time: int) -> int:
    """The time attribute of the right, once both are looked at."""
    if not keeps_time_attribute(left, time):
        message = (
            "FOR SYSTEM_TIME AS OF takes a time attribute of the left table, but "
            f"'{left.row.names[time]}' comes through a regular join or DISTINCT, where a time "
            "attribute ends."
        )
        raise ValidationError(message)
    found = [
        index
        for index, each in enumerate(right.row.children)
        if is_rowtime(each) and keeps_time_attribute(right, index)
    ]
    if not found:
        message = f"{_NEEDS} in versioned table, but no row time attribute can be found."
        raise ValidationError(message)
    if len(found) > 1:
        names = ", ".join(right.row.names[index] for index in found)
        message = f"The versioned table of a temporal join has several time attributes: {names}."
        raise ValidationError(message)
    ours, theirs = left.row.children[time], right.row.children[found[0]]
    if ours.root is not theirs.root:
        message = (
            "Event-Time Temporal Table Join requires same rowtime type in left table and "
            f"versioned table, but the actual types are {ours.as_summary_string()} and "
            f"{theirs.as_summary_string()}."
        )
        raise ValidationError(message)
    return found[0]


# -- keys ----------------------------------------------------------------------------------------


def _key_parts(parts: list[Expression], width: int, right: PhysicalNode) -> list[Expression]:
    """The equalities that say which versions belong to a row: one per column of the right's key.

    Others are conditions on the version; as keys they would keep a version whose successor
    differs in them.
    """
    known = upsert_keys(right)
    if not known:
        message = (
            "Temporal Table Join requires primary key in versioned table, but no primary key can "
            "be found."
        )
        raise ValidationError(message)
    by_column: dict[int, Expression] = {}
    for part in parts:
        column = _equal_column(part, width)
        if column is not None:
            by_column.setdefault(column, part)
    key = smallest(frozenset(each for each in known if each and each <= set(by_column)))
    if key is None:
        names = ", ".join(right.row.names[each] for each in smallest(known) or ())
        shown = "true" if not parts else " AND ".join(map(str, parts))
        message = (
            f"Temporal table's primary key [{names}] must be included in the equivalence "
            f"condition of temporal join, but current temporal join condition is [{shown}]."
        )
        raise ValidationError(message)
    return [by_column[each] for each in key]


def _equal_column(part: Expression, width: int) -> int | None:
    """The column of the right that an equality names, where the other side is of the left."""
    if not isinstance(part, Call) or part.function not in {"=", "IS NOT DISTINCT FROM"}:
        return None
    for one, other in (part.arguments, reversed(part.arguments)):
        columns, plain_one = columns_of(other), _widened(one)
        is_left = bool(columns) and max(columns) < width
        if is_left and isinstance(plain_one, InputReference) and plain_one.index >= width:
            return plain_one.index - width
    return None


def _widened(expression: Expression) -> Expression:
    """What a cast to a larger integer is made of: it has as many values."""
    if isinstance(expression, Call) and expression.function == "CAST":
        before = expression.arguments[0]
        kinds = type(before.type), type(expression.type)
        if all(kind in _INTEGERS for kind in kinds):
            one, other = (_INTEGERS.index(kind) for kind in kinds)
            if one <= other:
                return before
    return expression


# -- versions ------------------------------------------------------------------------------------


def _versions(node: PhysicalNode) -> PhysicalNode:
    """The rows that are versions, as they come: each ends the one before it, whatever that was.

    Raises:
        ValidationError: rows go by what was there before.
    """
    if kinds_of(node) == frozenset("I"):
        return node
    if isinstance(node, physical.Deduplicate) and node.keep_last and node.rowtime is not None:
        return _read(node.input)
    if isinstance(node, physical.ChangelogNormalize):
        return _read(node.input)
    if isinstance(node, physical.TableSourceScan | physical.DataStreamScan):
        return node
    computes = isinstance(node, physical.Calc) and node.condition is None
    if computes or isinstance(node, physical.WatermarkAssigner):
        return replace(node, inputs=(_versions(node.input),), kinds=None)
    message = (
        "The right of a temporal join is a table with a PRIMARY KEY, or a view of the last row "
        "per key (ROW_NUMBER() over a key in the order of its event time, descending, = 1), "
        f"without a filter; {node.kind}({node.details()}) is not. Conditions on versions stand in "
        "the join."
    )
    raise ValidationError(message)


def _read(node: PhysicalNode) -> PhysicalNode:
    """What an exchange reads."""
    return node.input if isinstance(node, physical.Exchange) else node
