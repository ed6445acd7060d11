"""Windows: aggregations over window TVFs.

What it is: GROUP BY window_start, window_end over a window TVF becomes a WindowAggregate, which
gives each window once, when it is over.  With GROUPING SETS that all have the window, each row is
expanded ahead of it.
What it is not: the operators.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.errors import ValidationError
from millstream.expressions.nodes import InputReference
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import (
    Converts,
    calc,
    columns_of,
    conjunction,
    exchange,
    is_rowtime,
    reads_once,
    substituted,
)
from millstream.sql.planner.grouping_sets import grouped_sets
from millstream.sql.planner.logical import (
    FilterNode,
    ProjectNode,
    WindowNode,
    references,
    row_of,
)
from millstream.sql.planner.physical_windows import WindowAggregate
from millstream.sql.planner.times import check_window_time
from millstream.sql.planner.windowed_rows import expanded, in_order

if TYPE_CHECKING:
    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.physical import PhysicalNode

__all__ = ["window_aggregate", "window_function"]

_PROPERTIES = ("window_start", "window_end", "window_time")


def window_function(converter: Converts, node: Any) -> PhysicalNode:
    """A window TVF by itself: rows with the columns of their windows."""
    below = converter.convert(node.input)
    check_window_time(below, node.time)
    if node.kind == "SESSION":
        message = "SESSION is only in this release with GROUP BY window_start, window_end."
        raise ValidationError(message)
    return physical.WindowTableFunction(
        row=node.row,
        inputs=(below,),
        window=node.kind,
        time=node.time,
        size=node.size,
        step=node.step,
        offset=node.offset,
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
            if below.kind == "SESSION":
                message = (
                    "A column over SESSION that is not deterministic and read in several places "
                    "is not in this release; compute it in the table that SESSION takes."
                )
                raise ValidationError(message)
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
    _check_reads(node, columns, [keys[n] for n, i in enumerate(indexes) if i is None], conditions)
    plain = [number for number, index in enumerate(indexes) if index not in places]
    if window.kind == "SESSION":
        _check_session(window, {indexes[number] for number in plain})
        _check_one_set(node, plain)
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


def _check_one_set(node: Any, plain: list[int]) -> None:
    """Refuse sets over sessions: those are of the rows of one value of all keys.

    Raises:
        ValidationError: a set has not all keys.
    """
    if any(not set(plain) <= set(each) for each in node.sets or ()):
        message = (
            "GROUPING SETS over SESSION must all have the columns of its PARTITION BY; use one "
            "query per set, and UNION ALL."
        )
        raise ValidationError(message)


def _check_reads(
    node: Any, columns: list[Expression], computed: list[Expression], conditions: list[Expression]
) -> None:
    """Refuse what reads the columns of windows, which are not there before the aggregation.

    Raises:
        ValidationError: says where they are read.
    """
    window, _, _ = _through(node.input)
    assert window is not None  # noqa: S101 - the caller has found it
    width = len(window.input.row)
    places = set(range(width, width + len(_PROPERTIES)))
    filters = [columns[call.filter] for call in node.calls if call.filter is not None]
    arguments = [columns[each] for call in node.calls for each in call.arguments]
    readers = {
        "Aggregates": arguments,
        "FILTER with a condition": filters,
        "Expressions in GROUP BY": computed,
        "WHERE with a condition": conditions,
    }
    for what, expressions in readers.items():
        if any(places & columns_of(each) for each in expressions):
            names = ", ".join(_PROPERTIES[:-1])
            message = f"{what} of {names} or {_PROPERTIES[-1]} is not in this release"
            hint = "; HAVING can have it." if what.startswith("WHERE") else "."
            raise ValidationError(message + hint)


def _check_session(window: WindowNode, keys: set[int | None]) -> None:
    """Refuse keys that would make other sessions than PARTITION BY does.

    Sessions are made by the aggregation: of the rows that pass the filters, as in Flink's plans.

    Raises:
        ValidationError: the keys are not those of PARTITION BY.
    """
    if keys != set(window.partition):
        names = ", ".join(window.input.row.names[each] for each in window.partition)
        message = (
            "GROUP BY over SESSION must have window_start, window_end and exactly the columns of "
            f"its PARTITION BY; those are: {names or '(none)'}."
        )
        raise ValidationError(message)


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
