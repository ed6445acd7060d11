"""Rules for aggregations, joins and Top-N over window TVFs.

GROUP BY window_start, window_end over a window TVF becomes a WindowAggregate, which emits each
window once, when it ends.  With GROUPING SETS that all contain the window, rows are expanded before
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.errors import ValidationError
from millstream.expressions.nodes import InputReference
from millstream.sql.planner import logical as lp
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import (
    Converts,
    calc,
    check_window_time,
    columns_of,
    conjunction,
    exchange,
    is_rowtime,
    reads_once,
    substituted,
)
from millstream.sql.planner.changelog import kinds_of
from millstream.sql.planner.grouping_sets import expand, grouped_sets, grouping, in_sets
from millstream.sql.planner.logical import (
    FilterNode,
    JoinType,
    ProjectNode,
    WindowNode,
    references,
    row_of,
)
from millstream.sql.planner.physical import WindowAggregate, WindowJoin, WindowRank, WindowSpec
from millstream.types.logical_types import (
    LocalZonedTimestampType,
    LogicalType,
    TimestampKind,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.logical import LogicalNode, OverNode
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import RowType


_PROPERTIES = ("window_start", "window_end", "window_time")


@dataclass(frozen=True)
class WindowColumns:
    """Where a row has its window; each may stand in several columns."""

    spec: WindowSpec | None
    starts: frozenset[int]
    ends: frozenset[int]
    times: frozenset[int] = frozenset()
    #: Of sessions, where each key of theirs stands; None: a projection has lost one.
    partition: tuple[frozenset[int], ...] | None = ()

    def moved(self, places: Mapping[int, Sequence[int]]) -> WindowColumns | None:
        """The same behind a projection; None if it has lost the window."""

        def behind(columns: frozenset[int]) -> frozenset[int]:
            return frozenset(place for each in columns for place in places.get(each, ()))

        partition = tuple(map(behind, self.partition or ()))
        made = replace(
            self,
            starts=behind(self.starts),
            ends=behind(self.ends),
            times=behind(self.times),
            partition=partition if self.partition is not None and all(partition) else None,
        )
        return made if made.starts and made.ends else None

    def shifted(self, by: int) -> WindowColumns:
        """The same with its columns further to the right."""
        one, other, third, *keys = (
            frozenset(each + by for each in columns)
            for columns in (self.starts, self.ends, self.times, *(self.partition or ()))
        )
        partition = None if self.partition is None else tuple(keys)
        return replace(self, starts=one, ends=other, times=third, partition=partition)

    def with_all(self, other: WindowColumns) -> WindowColumns:
        """The columns of both."""
        return replace(
            self,
            starts=self.starts | other.starts,
            ends=self.ends | other.ends,
            times=self.times | other.times,
        )

    def are_grouped_by(self, columns: set[int], *, exactly: bool = False) -> bool:
        """Whether rows with one value of these columns and one window are of one session.

        Sessions of several keys may have the same bounds.  Other windows always are.

        Args:
            columns: of the group, without those of the window.
            exactly: whether the group must not be smaller than the session.
        """
        if self.spec is None or self.spec.kind != "SESSION":
            return True
        if self.partition is None or not all(each & columns for each in self.partition):
            return False
        return not exactly or columns <= frozenset().union(*self.partition)


def _made_by(width: int, spec: WindowSpec | None, partition: Sequence[int] = ()) -> WindowColumns:
    start, end, time = (frozenset({width + number}) for number in range(3))
    return WindowColumns(spec, start, end, time, tuple(frozenset({each}) for each in partition))


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
        return _made_by(len(node.input.row), _spec(node), node.partition)
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
    partition: tuple[frozenset[int], ...] | None = ()
    if node.window == "SESSION":  # of all keys, also if rows have their windows already
        partition = tuple(frozenset({number}) for number in range(len(node.keys)))
    if node.attached is not None:
        below = windows_of(node.input)
        if below is None:
            return None
        spec = below.spec or spec
    first = len(node.keys) + len(node.calls)
    starts, ends, times = (
        frozenset(first + number for number, each in enumerate(node.properties) if each == name)
        for name in _PROPERTIES
    )
    if not starts or not ends:
        return None
    return WindowColumns(spec, starts, ends, times, partition)


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


def _inserted(node: PhysicalNode) -> WindowColumns | None:
    """The windows of rows that are only added."""
    found = windows_of(node)
    return found if found is not None and kinds_of(node) == frozenset("I") else None


def _ending(node: PhysicalNode) -> WindowColumns | None:
    """The windows of rows that are only added, where it is known when all rows of one are there.

    By processing time it is not: rows of a window come when the clock has gone on.
    """
    found = _inserted(node)
    return found if found is not None and found.spec and found.spec.is_rowtime else None


# -- joins ---------------------------------------------------------------------------------------


def _join_windows(
    nodes: list[PhysicalNode], keys: list[list[int]]
) -> tuple[WindowColumns, list[int]] | None:
    """The windows of the left, and the pairs of keys that say nothing but that they are equal.

    None: the sides have no windows, or other ones, or are not joined by both their ends.
    """
    left, right = map(_inserted, nodes)
    if left is None or right is None or left.spec is None or left.spec != right.spec:
        return None
    pairs = list(zip(keys[0], keys[1], strict=True))
    starts = [n for n, (a, b) in enumerate(pairs) if a in left.starts and b in right.starts]
    ends = [n for n, (a, b) in enumerate(pairs) if a in left.ends and b in right.ends]
    if not starts or not ends:
        return None
    of_one_session = all(
        side.are_grouped_by(set(columns)) for side, columns in zip((left, right), keys, strict=True)
    )
    if not of_one_session:
        return None
    if not left.spec.is_rowtime:
        message = "Processing time Window Join is not supported yet."
        raise ValidationError(message)
    return left, [*starts, *ends]


def window_join(
    node: Any,
    inputs: list[PhysicalNode],
    row: RowType,
    keys: list[list[int]],
    filter_nulls: list[bool],
    condition: Expression | None,
) -> WindowJoin | None:
    """A join of rows of one window; None if it is none.

    Args:
        node: the join.
        inputs: of the join, with computed keys.
        row: what a regular join would give.
        keys: of either side.
        filter_nulls: for each pair of keys whether NULL equals nothing.
        condition: beside the keys.
    """
    found = _join_windows(inputs, keys)
    if found is None:
        return None
    windows, same = found
    first, last = same[0], same[-1]  # one of the starts, one of the ends
    rest = [number for number in range(len(keys[0])) if number not in same]
    left_keys, right_keys = (tuple(side[number] for number in rest) for side in keys)
    spec = windows.spec
    assert spec is not None  # noqa: S101 - of physical nodes
    made = WindowJoin(
        row=row,
        inputs=(exchange(inputs[0], left_keys), exchange(inputs[1], right_keys)),
        join=node.kind,
        left_keys=left_keys,
        right_keys=right_keys,
        condition=condition,
        filter_nulls=tuple(filter_nulls[number] for number in rest),
        spec=spec,
        left_window=(keys[0][first], keys[0][last]),
        right_window=(keys[1][first], keys[1][last]),
    )
    behind = windows_of(made)
    if behind is not None:
        # The regular join has said that no time goes on: that of the window does.
        both = inputs[0].row if node.kind.left_only else _both(inputs)
        types = [
            whole.type if position in behind.times else each.type
            for position, (whole, each) in enumerate(zip(both.fields, row.fields, strict=True))
        ]
        made.row = row_of(row.names, types)
    return made


def _both(inputs: list[PhysicalNode]) -> RowType:
    left, right = (each.row for each in inputs)
    return row_of([*left.names, *right.names], [*left.children, *right.children])


# -- numbers -------------------------------------------------------------------------------------


def window_rank(
    node: OverNode, below: PhysicalNode, first: int, last: int, *, outputs: bool
) -> WindowRank | None:
    """The first rows of each window; None if the partition is none of windows."""
    windows = _ending(below)
    if windows is None or windows.spec is None:
        return None
    starts = [each for each in node.partition if each in windows.starts]
    ends = [each for each in node.partition if each in windows.ends]
    if not starts or not ends:
        return None
    of_window = windows.starts | windows.ends | windows.times
    partition = tuple(each for each in node.partition if each not in of_window)
    row = only_window_times(below.row, windows)
    if outputs:
        row = row_of([*row.names, node.row.names[-1]], [*row.children, node.row.children[-1]])
    return WindowRank(
        row=row,
        inputs=(exchange(below, partition),),
        spec=windows.spec,
        window=(starts[0], ends[0]),
        function=node.calls[0].call.function,
        partition=partition,
        order=node.order,
        start=first,
        end=last,
        outputs_rank=outputs,
    )


# -- groups --------------------------------------------------------------------------------------


def attached_aggregate(node: Any, below: PhysicalNode) -> PhysicalNode | None:
    """GROUP BY the windows that rows have; None if the keys are no windows."""
    windows = _ending(below)
    if windows is None or windows.spec is None:
        return None
    sets = grouped_sets(node)
    for each in sets or ():
        of_set = {node.keys[number] for number in each}
        if not of_set & windows.starts or not of_set & windows.ends:
            return None  # groups of several windows are never over, as in Flink
    names = dict.fromkeys(windows.starts, "window_start")
    names |= dict.fromkeys(windows.ends, "window_end")
    names |= dict.fromkeys(windows.times, "window_time")
    starts = [each for each in node.keys if each in windows.starts]
    ends = [each for each in node.keys if each in windows.ends]
    if not starts or not ends:
        return None
    if not windows.are_grouped_by({*node.keys} - {*names}, exactly=True):
        return None  # as in Flink, whose groups of several sessions are updated
    time = next(iter(sorted(windows.times)), None)
    if time is None:
        if windows.spec.has_zone:
            return None  # the clock of their time is not known any more
        time = ends[0]
    plain = [number for number, key in enumerate(node.keys) if key not in names]
    used = [number for number, key in enumerate(node.keys) if key in names]
    own = node.row.names
    keys = tuple(node.keys[number] for number in plain)
    made_names = [own[number] for number in plain]
    if sets is not None:
        width = len(below.row)
        below = expanded(node, below, plain, keys, sets)
        keys = tuple(range(width, len(below.row)))
        made_names.append("$e")
    types = [below.row.children[key] for key in keys]
    types += [call.type for call in node.calls]
    types += [below.row.children[node.keys[number]] for number in used]
    made_names += own[len(node.keys) :][: len(node.calls)]
    made_names += [own[number] for number in used]
    spec = windows.spec
    made = WindowAggregate(
        row=row_of(made_names, types),
        inputs=(exchange(below, keys),),
        window=spec.kind,
        time=time,
        size=spec.size,
        step=spec.step,
        offset=spec.offset,
        keys=keys,
        calls=node.calls,
        properties=tuple(names[node.keys[number]] for number in used),
        attached=(starts[0], ends[0]),
    )
    return in_order(node, made, plain, used)


def expanded(
    node: Any,
    below: PhysicalNode,
    plain: Sequence[int],
    columns: tuple[int, ...],
    sets: Sequence[tuple[int, ...]],
) -> PhysicalNode:
    """Each row once per set: behind it copies of the keys beside the window, and its set.

    Args:
        node: the aggregation.
        below: gives the rows.
        plain: which keys of the aggregation are no columns of windows.
        columns: of the rows that these are.
        sets: as positions in the keys of the aggregation.
    """
    places = dict(zip(plain, columns, strict=True))
    types = [node.row.children[number] for number in plain]
    of_sets = tuple(tuple(places[each] for each in part if each in places) for part in sets)
    return expand(below, columns, types, of_sets)


def in_order(node: Any, made: WindowAggregate, plain: list[int], used: list[int]) -> PhysicalNode:
    """The keys of an aggregation where its query has them.

    Args:
        node: the aggregation.
        made: gives keys, the number of the set if there are sets, aggregates, columns of windows.
        plain: which keys of the aggregation are keys of what was made.
        used: which are columns of windows.
    """
    out = references(made.row)
    order: list[Expression] = [out[0]] * len(node.keys)
    for position, number in enumerate(plain):
        order[number] = out[position]
    first = len(made.keys)
    behind = first + len(made.calls)
    sets = grouped_sets(node)
    for position, number in enumerate(used):
        order[number] = out[behind + position]
        if sets is not None:
            kind = node.row.children[number]
            order[number] = in_sets(out[first - 1], sets, number, order[number], kind)
    shown = [*order, *out[first:behind]]
    if sets is not None:
        shown += [grouping(out[first - 1], sets, wanted) for wanted in node.groupings]
    return calc(made, shown, row_of(node.row.names, [each.type for each in shown]))


def window_function(converter: Converts, node: Any) -> PhysicalNode:
    """A window TVF by itself: rows with the columns of their windows."""
    below = converter.convert(node.input)
    check_window_time(below, node.time)
    if node.kind == "SESSION":
        below = exchange(below, node.partition)
    return physical.WindowTableFunction(
        row=node.row,
        inputs=(below,),
        window=node.kind,
        time=node.time,
        size=node.size,
        step=node.step,
        offset=node.offset,
        partition=node.partition,
    )


def _through(node: Any) -> tuple[WindowNode | None, list[Expression], list[Any]]:
    """The window TVF below projections and filters, the columns over it, and the filters."""
    steps: list[Any] = []
    below = node
    while isinstance(below, ProjectNode | FilterNode):
        steps.append(below)
        below = below.input
    if not isinstance(below, WindowNode):
        return None, [], []
    columns: list[Expression] = list(references(below.row))
    conditions = []
    for each in reversed(steps):
        is_filter = isinstance(each, FilterNode)
        readers = [each.condition] if is_filter else each.expressions
        # A filter leaves its columns to be read above it.
        if not reads_once(readers, columns, most=0 if is_filter else 1):
            return None, [], []
        if is_filter:
            conditions.append(substituted(each.condition, columns))
        else:
            columns = [substituted(one, columns) for one in each.expressions]
    return below, columns, conditions


def window_aggregate(converter: Converts, node: Any) -> PhysicalNode | None:
    """An aggregation whose keys are a window; None if they are not."""
    window, columns, conditions = _through(node.input)
    if window is None:
        return None
    width = len(window.input.row)
    places = {width + number: name for number, name in enumerate(_PROPERTIES)}
    keys = [columns[key] for key in node.keys]
    indexes = [each.index if isinstance(each, InputReference) else None for each in keys]
    if width not in indexes or width + 1 not in indexes:
        return None
    for each in node.sets or ():
        if not {width, width + 1} <= {indexes[number] for number in each}:
            return None  # groups of several windows are never over, as in Flink
    plain = [number for number, index in enumerate(indexes) if index not in places]
    read = [keys[number] for number in plain] + conditions
    read += [columns[each] for call in node.calls for each in call.arguments]
    read += [columns[call.filter] for call in node.calls if call.filter is not None]
    if any(set(places) & columns_of(each) for each in read):
        return None  # a window is known only after the window function
    if window.kind == "SESSION" and not _has_whole_sessions(node, window, indexes, plain):
        return None
    below = converter.convert(window.input)
    check_window_time(below, window.time)
    inputs: list[Expression] = [keys[number] for number in plain]
    names = [node.row.names[number] for number in plain]
    calls, inputs, names = _calls(node, columns, inputs, names)
    time = window.input.row.fields[window.time]
    inputs.append(InputReference(window.time, time.name, time.type))
    names.append(time.name)
    row = row_of(names, [each.type for each in inputs])
    projected = calc(below, inputs, row, conjunction(conditions))
    used = [number for number, index in enumerate(indexes) if index in places]
    sets = grouped_sets(node)
    if sets is not None:
        projected = expanded(node, projected, plain, tuple(range(len(plain))), sets)
        group = tuple(range(len(row), len(projected.row)))
    else:
        group = tuple(range(len(plain)))
    properties = tuple(places[indexes[number]] for number in used)  # type: ignore[index]
    types = [projected.row.children[key] for key in group]
    types += [call.type for call in calls]
    types += [window.row.fields[indexes[number]].type for number in used]  # type: ignore[index]
    made_names = [node.row.names[number] for number in plain]
    made_names += ["$e"] if sets is not None else []
    made_names += list(node.row.names[len(node.keys) :][: len(calls)])
    made_names += [node.row.names[number] for number in used]
    made = WindowAggregate(
        row=row_of(made_names, types),
        inputs=(exchange(projected, group),),
        window=window.kind,
        time=len(row) - 1,
        size=window.size,
        step=window.step,
        offset=window.offset,
        keys=group,
        calls=calls,
        properties=properties,
        is_rowtime=is_rowtime(time.type),
    )
    return in_order(node, made, plain, used)


def _has_whole_sessions(
    node: Any, window: WindowNode, indexes: list[int | None], plain: list[int]
) -> bool:
    """Whether each group, of every set, is a session.

    The aggregation makes such sessions: of the rows that pass the filters, as in Flink's plans.
    """
    is_all = all(set(plain) <= set(each) for each in node.sets or ())
    return is_all and {indexes[number] for number in plain} == set(window.partition)


def _calls(
    node: Any, columns: list[Expression], inputs: list[Expression], names: list[str]
) -> tuple[tuple[Any, ...], list[Expression], list[str]]:
    """The aggregates with their arguments as columns of the projection below."""

    def column(index: int) -> int:
        expression = columns[index]
        if expression not in inputs:
            inputs.append(expression)
            names.append(node.input.row.names[index])
        return inputs.index(expression)

    calls = tuple(
        replace(
            call,
            arguments=tuple(column(each) for each in call.arguments),
            filter=None if call.filter is None else column(call.filter),
        )
        for call in node.calls
    )
    return calls, inputs, names
