"""Batch mode: plans whose ends give the rows that are there when all input is over.

What it is: what is done to plans in batch mode.  They read bounded tables whose rows are only
added; behind a query that updates rows a node adds the changes up and gives what is left.
What it is not: another planner, or other operators.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.contracts.source import Boundedness
from millstream.errors import ValidationError
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import exchange, is_rowtime
from millstream.sql.planner.changelog import kinds_of
from millstream.sql.planner.matches import Match
from millstream.sql.planner.physical import FinalRows, IntervalJoin, WindowAggregate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.sql.planner.physical import PhysicalNode, SinkNode


def in_batch_mode(sinks: Iterable[SinkNode]) -> list[SinkNode]:
    """Plans, before their changes are planned, as batch mode has them.

    Raises:
        ValidationError: a table is unbounded, or gives more than inserts; or a node goes by the
            clock, which stands still.
    """
    made = []
    for sink in sinks:
        _check(sink, set())
        below = sink.input
        if kinds_of(below) != frozenset("I"):
            single = exchange(below, None)
            below = FinalRows(row=below.row, inputs=(single,))
        made.append(replace(sink, inputs=(below,)))
    return made


def _check(node: PhysicalNode, seen: set[int]) -> None:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, physical.TableSourceScan):
        _check_table(node)
    elif isinstance(node, physical.DataStreamScan) and node.given != frozenset("I"):
        message = f"Stream '{node.name}' gives more than inserts, which batch mode does not take."
        raise ValidationError(message)
    elif _goes_by_the_clock(node):
        message = (
            f"{node.kind} by processing time is not supported in batch mode, in which time stands "
            "still until the input is over."
        )
        raise ValidationError(message)
    any_node: Any = node
    if getattr(node, "state_ttl", None) is not None:
        any_node.state_ttl = None  # what is there at the end is never forgotten
    for below in node.inputs:
        _check(below, seen)


def _check_table(node: physical.TableSourceScan) -> None:
    name = node.identifier.as_summary_string()
    if node.source.create().boundedness is not Boundedness.BOUNDED:
        message = (
            f"Querying an unbounded table '{name}' in batch mode is not allowed. The table source "
            "is unbounded."
        )
        raise ValidationError(message)
    if node.source.changes != frozenset("I"):
        message = (
            "Querying a table in batch mode is currently only possible for INSERT-only table "
            f"sources. But the source for table '{name}' produces other changelog messages than "
            "just INSERT."
        )
        raise ValidationError(message)


def _goes_by_the_clock(node: PhysicalNode) -> bool:
    if isinstance(node, physical.WindowTableFunction):
        return not is_rowtime(node.input.row.fields[node.time].type)
    if isinstance(node, Match):
        return not is_rowtime(node.input.row.fields[node.order[0].column].type)
    timed = isinstance(node, WindowAggregate | IntervalJoin)
    return timed and not getattr(node, "is_rowtime", True)
