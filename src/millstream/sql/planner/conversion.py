"""Convert the logical to the physical plan, by one rule for each kind of logical nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.context import EvaluationContext
from millstream.sql.planner import logical as lp
from millstream.sql.planner.aggregates import aggregate, aggregate_of_nothing, distinct
from millstream.sql.planner.calcs import Union, calc
from millstream.sql.planner.joins import join, pushed, temporal_join
from millstream.sql.planner.logical import references
from millstream.sql.planner.matches import match
from millstream.sql.planner.overs import over
from millstream.sql.planner.physical import columns_of
from millstream.sql.planner.ranks import number_columns, rank_of
from millstream.sql.planner.scans import ValuesScan, stream_scan, table_scan
from millstream.sql.planner.sorts import limit
from millstream.sql.planner.table_functions import changelog, correlate
from millstream.sql.planner.watermarks import watermark
from millstream.sql.planner.windows import (
    attached_aggregate,
    window_aggregate,
    window_function,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.planner.physical import PhysicalNode


class Converter:
    """Converts one plan; a node that is used twice is converted once."""

    def __init__(
        self,
        *,
        is_batch: bool = False,
        distinct_buckets: int | None = None,
        time_zone: str = "UTC",
        changes_repeat: bool = False,
    ) -> None:
        """Make a converter.

        Args:
            is_batch: whether sources end before anything is given.
            distinct_buckets: over how many the values of DISTINCT are spread; None: they are not.
            time_zone: the session's, in which conditions of constants are.
            changes_repeat: whether sources of changes may repeat them.
        """
        self.is_batch = is_batch
        self.distinct_buckets = distinct_buckets
        self.changes_repeat = changes_repeat
        self.evaluation = EvaluationContext(time_zone=time_zone)
        self._done: dict[int, PhysicalNode] = {}
        #: Numbered rows of which somebody does not read the number.
        self._without_number: dict[int, PhysicalNode] = {}
        #: The nodes, so that their ids stay theirs.
        self._kept: list[lp.LogicalNode] = []

    def convert(self, node: lp.LogicalNode) -> PhysicalNode:
        """The physical plan of a node."""
        known = self._done.get(id(node))
        if known is None:
            known = _RULES[type(node)](self, node)
            self._done[id(node)] = known
            self._kept.append(node)
        return known

    def unnumbered(self, node: Any) -> PhysicalNode | None:
        """Numbered and filtered rows of which the number is not read; None: it is, or is none."""
        below = node.input
        if not isinstance(below, lp.FilterNode):
            return None
        numbers = number_columns(below)
        read = {column for each in node.expressions for column in columns_of(each)}
        if not numbers or numbers & read:
            return None
        if id(below) not in self._without_number:
            found = rank_of(self, below, with_number=False)
            if found is None:  # the numbers of OVER
                return None
            self._without_number[id(below)] = found
            self._kept.append(below)
        return self._without_number[id(below)]


def _project(converter: Converter, node: Any) -> PhysicalNode:
    below = converter.unnumbered(node) or converter.convert(node.input)
    return calc(below, node.expressions, node.row)


def _filter(converter: Converter, node: Any) -> PhysicalNode:
    found = rank_of(converter, node)
    if found is not None:
        return found
    inner = pushed(node)
    if inner is not None:
        return converter.convert(inner)
    below = converter.convert(node.input)
    return calc(below, references(below.row), below.row, node.condition)


def _aggregate(converter: Converter, node: Any) -> PhysicalNode:
    windowed = window_aggregate(converter, node)
    if windowed is not None:
        return windowed
    known = aggregate_of_nothing(node, converter.evaluation)
    if known is not None:
        return ValuesScan(row=known.row, rows=known.rows)
    attached = attached_aggregate(node, converter.convert(node.input))
    return aggregate(converter, node) if attached is None else attached


def _union(converter: Converter, node: Any) -> PhysicalNode:
    members = tuple(converter.convert(each) for each in node.members)
    # All members have one row: names of the first, types of them all.
    aligned = tuple(
        calc(each, references(each.row), node.row) if each.row != node.row else each
        for each in members
    )
    return Union(row=node.row, inputs=aligned)


_RULES: Final[dict[type, Callable[[Converter, Any], PhysicalNode]]] = {
    lp.ScanNode: table_scan,
    lp.StreamScanNode: stream_scan,
    lp.ValuesNode: lambda _, node: ValuesScan(row=node.row, rows=node.rows),
    lp.ProjectNode: _project,
    lp.FilterNode: _filter,
    lp.WatermarkNode: watermark,
    lp.AggregateNode: _aggregate,
    lp.DistinctNode: distinct,
    lp.ChangelogNode: changelog,
    lp.WindowNode: window_function,
    lp.UnionNode: _union,
    lp.JoinNode: join,
    lp.TemporalJoinNode: temporal_join,
    lp.CorrelateNode: correlate,
    lp.OverNode: over,
    lp.MatchNode: match,
    lp.LimitNode: limit,
}
