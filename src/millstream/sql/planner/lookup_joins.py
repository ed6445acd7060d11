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
from millstream.sql.planner.calcs import (
    Converts,
    calc,
    columns_of,
    conjunction,
    conjuncts,
    is_deterministic,
    reads_once,
    substituted,
)
from millstream.sql.planner.joins import nullable, plain
from millstream.sql.planner.logical import (
    FilterNode,
    JoinType,
    ProjectNode,
    ScanNode,
    WatermarkNode,
    references,
    row_of,
)
from millstream.sql.planner.physical_joins import LookupJoin
from millstream.sql.planner.texts import expression_text

if TYPE_CHECKING:
    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.planner.physical import PhysicalNode

__all__ = ["lookup_join"]


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
