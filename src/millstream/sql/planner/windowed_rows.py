"""Rows that have their windows already: joined, numbered and aggregated per window.

What it is: what the columns of windows (``sql/planner/window_columns.py``) make of a join, of
numbered rows and of GROUP BY: nodes that give each window once, when it is over, and forget it.
Where the windows differ, go by processing time, or rows are updated, they are what they would be
without windows.
What it is not: aggregations right above a window TVF (``sql/planner/windows.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import ValidationError
from millstream.sql.planner.calcs import calc, exchange
from millstream.sql.planner.changelog import kinds_of
from millstream.sql.planner.grouping_sets import expand, grouped_sets, grouping, in_sets
from millstream.sql.planner.logical import references, row_of
from millstream.sql.planner.physical_windows import WindowAggregate, WindowJoin, WindowRank
from millstream.sql.planner.window_columns import only_window_times, windows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.logical import OverNode
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.sql.planner.window_columns import WindowColumns
    from millstream.types.logical_types import RowType

__all__ = ["attached_aggregate", "expanded", "in_order", "window_join", "window_rank"]


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
