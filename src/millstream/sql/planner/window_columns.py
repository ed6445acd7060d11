"""Columns of windows in plans: which columns say in which window a row is.

What it is: for a node of the physical plan the windows that its rows are in, and the columns of
their start, end and time, followed through projections and joins; and of a logical plan the
positions of these columns, by which the binder knows that a group is one of a window.
What it is not: the nodes that windows make (``sql/planner/windows.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.expressions.nodes import InputReference
from millstream.sql.planner import logical as lp
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import is_rowtime
from millstream.sql.planner.logical import JoinType, row_of
from millstream.sql.planner.physical_windows import (
    WindowAggregate,
    WindowJoin,
    WindowRank,
    WindowSpec,
)
from millstream.types.logical_types import (
    LocalZonedTimestampType,
    LogicalType,
    TimestampKind,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import RowType

__all__ = ["WindowColumns", "logical_windows", "only_window_times", "windows_of"]

_PROPERTIES = ("window_start", "window_end", "window_time")


@dataclass(frozen=True)
class WindowColumns:
    """Where a row has its window; each may stand in several columns."""

    spec: WindowSpec | None
    starts: frozenset[int]
    ends: frozenset[int]
    times: frozenset[int] = frozenset()

    def moved(self, places: Mapping[int, Sequence[int]]) -> WindowColumns | None:
        """The same behind a projection; None if it has lost the window."""

        def behind(columns: frozenset[int]) -> frozenset[int]:
            return frozenset(place for each in columns for place in places.get(each, ()))

        made = replace(
            self, starts=behind(self.starts), ends=behind(self.ends), times=behind(self.times)
        )
        return made if made.starts and made.ends else None

    def shifted(self, by: int) -> WindowColumns:
        """The same with its columns further to the right."""
        one, other, third = (
            frozenset(each + by for each in columns)
            for columns in (self.starts, self.ends, self.times)
        )
        return replace(self, starts=one, ends=other, times=third)

    def with_all(self, other: WindowColumns) -> WindowColumns:
        """The columns of both."""
        return replace(
            self,
            starts=self.starts | other.starts,
            ends=self.ends | other.ends,
            times=self.times | other.times,
        )


def _made_by(width: int, spec: WindowSpec | None) -> WindowColumns:
    return WindowColumns(spec, frozenset({width}), frozenset({width + 1}), frozenset({width + 2}))


def _places(expressions: Sequence[Expression]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for position, each in enumerate(expressions):
        if isinstance(each, InputReference):
            found.setdefault(each.index, []).append(position)
    return found


def only_window_times(row: RowType, windows: WindowColumns) -> RowType:
    """A row that is given when its window is over: of its times only that of the window goes on."""
    types = [
        each if position in windows.times else _plain(each)
        for position, each in enumerate(row.children)
    ]
    return row_of(row.names, types)


def _plain(kind: LogicalType) -> LogicalType:
    if isinstance(kind, TimestampType | LocalZonedTimestampType) and kind.is_time_attribute:
        return kind.with_parameters(kind=TimestampKind.REGULAR)
    return kind


# -- physical plans ------------------------------------------------------------------------------


def windows_of(node: PhysicalNode) -> WindowColumns | None:
    """The windows of a node's rows; None if they are in none."""
    if isinstance(node, physical.WindowTableFunction):
        return _made_by(len(node.input.row), _spec(node))
    if isinstance(node, WindowAggregate):
        return _aggregated(node)
    if isinstance(node, physical.Calc):
        below = windows_of(node.input)
        return None if below is None else below.moved(_places(node.projections))
    if isinstance(node, physical.Exchange | physical.Expand | WindowRank):
        return windows_of(node.input)
    if isinstance(node, WindowJoin):
        return _joined(node)
    return None


def _spec(node: Any) -> WindowSpec:
    kind = node.input.row.fields[node.time].type
    zoned = isinstance(kind, LocalZonedTimestampType)
    return WindowSpec(node.window, node.size, node.step, node.offset, is_rowtime(kind), zoned)


def _aggregated(node: WindowAggregate) -> WindowColumns | None:
    spec = _spec(node)
    if node.attached is not None:
        below = windows_of(node.input)
        if below is None:
            return None
        spec = below.spec or spec
    first = len(node.keys) + len(node.calls)
    columns = [
        frozenset(first + number for number, each in enumerate(node.properties) if each == name)
        for name in _PROPERTIES
    ]
    if not columns[0] or not columns[1]:
        return None
    return WindowColumns(spec, *columns)


def _joined(node: WindowJoin) -> WindowColumns | None:
    left, right = (windows_of(each) for each in node.inputs)
    if left is None or right is None or node.join is JoinType.FULL:
        return None
    behind = right.shifted(len(node.inputs[0].row))
    if node.join is JoinType.INNER:
        return left.with_all(behind)
    return behind if node.join is JoinType.RIGHT else left


# -- logical plans -------------------------------------------------------------------------------


def logical_windows(node: LogicalNode) -> WindowColumns | None:
    """The columns of windows of a logical plan, without how the windows lie."""
    if isinstance(node, lp.WindowNode):
        return _made_by(len(node.input.row), None)
    if isinstance(node, lp.JoinNode):
        return _logically_joined(node)
    if not isinstance(node, lp.ProjectNode | lp.FilterNode | lp.OverNode | lp.AggregateNode):
        return None
    below = logical_windows(node.input)
    if below is None or isinstance(node, lp.FilterNode | lp.OverNode):
        return below
    if isinstance(node, lp.ProjectNode):
        return below.moved(_places(node.expressions))
    places = {
        key: [position]
        for position, key in enumerate(node.keys)
        if all(position in each for each in node.sets or ())
    }
    return below.moved(places)


def _logically_joined(node: lp.JoinNode) -> WindowColumns | None:
    left, right = logical_windows(node.left), logical_windows(node.right)
    if node.kind.left_only:
        return left
    behind = None if right is None else right.shifted(len(node.left.row))
    if node.kind is JoinType.INNER and left is not None and behind is not None:
        return left.with_all(behind)
    if node.kind in {JoinType.INNER, JoinType.LEFT} and left is not None:
        return left
    return behind if node.kind in {JoinType.INNER, JoinType.RIGHT} else None
