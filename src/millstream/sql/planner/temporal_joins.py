"""Lookup joins: each row with what a table outside says now.

What it is: ``FOR SYSTEM_TIME AS OF`` a processing time.  The right is a table whose connector can
be asked for rows by keys, with computed columns and filters over it; equalities of its columns with
what the left says, or with constants, are the keys.
What it is not: the operator (``runtime/operators/table/lookup_join.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.errors import ValidationError
from millstream.expressions.nodes import Call, InputReference
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import (
    Converts,
    calc,
    columns_of,
    conjunction,
    conjuncts,
    is_deterministic,
    is_rowtime,
    reads_once,
    substituted,
)
from millstream.sql.planner.changelog import kinds_of
from millstream.sql.planner.formatting import expression_text
from millstream.sql.planner.joins import Sides, nullable, plain, without_extra
from millstream.sql.planner.keys import smallest, upsert_keys
from millstream.sql.planner.logical import (
    FilterNode,
    JoinType,
    ProjectNode,
    ScanNode,
    WatermarkNode,
    references,
    row_of,
)
from millstream.sql.planner.physical import LookupJoin, TemporalJoin
from millstream.sql.planner.time_attributes import keeps_time_attribute
from millstream.types.logical_types import BigIntType, IntType, SmallIntType, TinyIntType

if TYPE_CHECKING:
    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import RowType


def lookup_join(converter: Converts, node: Any) -> PhysicalNode:
    """Each row of the left with the rows of the right as they are now.

    Raises:
        ValidationError: the right cannot be asked for rows, or not by these columns.
    """
    scan, projections, conditions = _looked_up(node.right)
    left = converter.convert(node.left)
    width = len(left.row)
    keys, rest = _keys(conjuncts(node.condition), width, projections, scan)
    if not keys:
        shown = scan.identifier.as_summary_string()
        message = (
            f"Temporal table join requires an equality condition on fields of table [{shown}], as "
            "they are, with what the left table says or a constant."
        )
        raise ValidationError(message)
    lookup = scan.source.lookup(list(keys))
    if lookup is None:
        raise ValidationError(_no_lookup(scan))
    inputs, columns = _asking(left, list(keys.values()))
    shift = len(inputs.row) - width
    keeps = node.kind is JoinType.LEFT
    right = [nullable(each) if keeps else plain(each) for each in node.right.row.children]
    row = row_of([*inputs.row.names, *node.right.row.names], [*inputs.row.children, *right])
    primary = scan.table.schema.key_columns
    made: PhysicalNode = LookupJoin(
        row=row,
        inputs=(inputs,),
        join=node.kind,
        identifier=scan.identifier,
        table=scan.table,
        lookup=lookup,
        table_row=scan.row,
        names=tuple(keys),
        keys=tuple(columns),
        texts=tuple(expression_text(each) for each in keys.values()),
        right_row=row_of(node.right.row.names, [each.type for each in projections]),
        projections=tuple(projections),
        table_condition=conjunction(conditions),
        condition=_behind(conjunction(rest), references(row), width, shift),
        # What answers by one connection alone is not asked side by side, whatever the hint says.
        hint=node.lookup if lookup.has_connections else replace(node.lookup, is_async=False),
        is_one_row=bool(primary) and set(primary) <= set(keys),
    )
    every = references(made.row)
    shown_columns = [*every[:width], *every[width + shift :]]
    return calc(made, shown_columns, row_of(node.row.names, [each.type for each in shown_columns]))


def _looked_up(node: LogicalNode) -> tuple[ScanNode, list[Expression], list[Expression]]:
    """The table below projections and filters, the columns over it, and the filters."""
    steps: list[Any] = []
    below = node
    while isinstance(below, ProjectNode | FilterNode | WatermarkNode):
        steps.append(below)
        below = below.input
    if not isinstance(below, ScanNode):
        message = (
            "Processing-time temporal join is not supported yet: FOR SYSTEM_TIME AS OF a "
            "processing time takes a table whose connector can look rows up, and views that "
            "filter and compute over it."
        )
        raise ValidationError(message)
    columns: list[Expression] = list(references(below.row))
    conditions: list[Expression] = []
    for each in reversed(steps):
        _check_reads(each, columns)
        if isinstance(each, FilterNode):
            conditions.append(substituted(each.condition, columns))
        elif isinstance(each, ProjectNode):
            columns = [substituted(one, columns) for one in each.expressions]
    if any(column.is_metadata() for column in below.table.schema.columns):
        shown = below.identifier.as_summary_string()
        message = f"Table '{shown}' has METADATA columns, which rows that are looked up have not."
        raise ValidationError(message)
    return below, columns, conditions


def _check_reads(step: Any, columns: list[Expression]) -> None:
    """Refuse what would compute a column of the table once for each who reads it.

    Raises:
        ValidationError: such a column is not deterministic.
    """
    is_filter = isinstance(step, FilterNode)
    readers = [step.condition] if is_filter else getattr(step, "expressions", ())
    if not reads_once(readers, columns, most=0 if is_filter else 1):
        message = (
            "A column over a table that is looked up which is not deterministic and read in "
            "several places is not in this release; compute it behind the join."
        )
        raise ValidationError(message)


def _no_lookup(scan: ScanNode) -> str:
    name = scan.table.options.get("connector")
    return (
        f"Table '{scan.identifier.as_summary_string()}': connector '{name}' cannot look rows up by "
        "keys, which FOR SYSTEM_TIME AS OF a processing time needs."
    )


def _keys(
    parts: list[Expression], width: int, projections: list[Expression], scan: ScanNode
) -> tuple[dict[str, Expression], list[Expression]]:
    """For columns of the table what they are equal to, and what is left of the condition."""
    keys: dict[str, Expression] = {}
    rest = []
    for part in parts:
        found = _key(part, width, projections)
        if found is not None:
            column, value = found
            field = scan.row.fields[column]
            if field.name not in keys and field.type.to_arrow() == value.type.to_arrow():
                keys[field.name] = value
                continue
        rest.append(part)
    return keys, rest


def _key(
    part: Expression, width: int, projections: list[Expression]
) -> tuple[int, Expression] | None:
    if not isinstance(part, Call) or part.function != "=":
        return None
    one, other = part.arguments
    for column, value in ((one, other), (other, one)):
        if not isinstance(column, InputReference) or column.index < width:
            continue
        origin = projections[column.index - width]
        from_left = all(each < width for each in columns_of(value)) and is_deterministic(value)
        if isinstance(origin, InputReference) and from_left:
            return origin.index, value
    return None


def _asking(left: PhysicalNode, values: list[Expression]) -> tuple[PhysicalNode, list[int]]:
    """The left with the values that are asked for, and where they stand."""
    columns: list[Expression] = list(references(left.row))
    places = []
    for value in values:
        if value not in columns:
            columns.append(value)
        places.append(columns.index(value))
    extra = len(columns) - len(left.row)
    if not extra:
        return left, places
    names = [*left.row.names, *(f"$k{number}" for number in range(extra))]
    return calc(left, columns, row_of(names, [each.type for each in columns])), places


def _behind(
    condition: Expression | None, columns: list[InputReference], width: int, shift: int
) -> Expression | None:
    """A condition over both sides, with the computed keys of the left between them."""
    if condition is None:
        return None
    return substituted(condition, [*columns[:width], *columns[width + shift :]])


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
