"""Windows of GROUP BY: ``GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)``, HOP and SESSION.

What it is: Flink's older form of windows.  The rows get the columns of their windows, as from a
window TVF, and are grouped by them; ``TUMBLE_START`` and its like are these columns.
What it is not: window TVFs (``sql/binder/windows.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.nodes import InputReference, Literal
from millstream.sql.binder.walking import walk_nodes
from millstream.sql.binder.windows import WINDOWS, window_node
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import ProjectNode, references, row_of, unique_names
from millstream.types.logical_types import DayTimeIntervalType, TimestampKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.expressions import ExpressionBinder
    from millstream.sql.parser.syntax import Node
    from millstream.sql.planner.logical import LogicalNode

__all__ = [
    "GroupWindow",
    "group_window",
    "is_group_window",
    "property_column",
    "window_property",
]

_KINDS: Final = frozenset({"TUMBLE", "HOP", "SESSION"})
#: What a window has, by the end of the name of its function; the number of its column.
_PROPERTIES: Final = {"START": 0, "END": 1, "ROWTIME": 2, "PROCTIME": 2}


@dataclass(frozen=True)
class GroupWindow:
    """The window by which rows are grouped."""

    kind: str
    #: The column of the time, and the lengths in milliseconds: what TUMBLE_START must repeat.
    time: InputReference
    lengths: tuple[int, ...]
    #: The columns of the rows that are start, end and time of their window.
    columns: tuple[InputReference, ...]
    #: Keys that are computed ahead of the window, and the columns that they are.
    computed: tuple[tuple[Expression, InputReference], ...] = ()

    def column_of(self, key: Expression) -> Expression:
        """A key as a column, if it is computed ahead of the window."""
        return next((column for each, column in self.computed if each == key), key)

    @property
    def is_by_clock(self) -> bool:
        """Whether it goes by processing time."""
        return _kind_of(self.time) is TimestampKind.PROCTIME


def is_group_window(node: Node) -> bool:
    """Whether it is TUMBLE, HOP or SESSION of a time."""
    return _name(node) in _KINDS


def window_property(node: Node) -> str | None:
    """START, END, ROWTIME or PROCTIME, if it is the function for that of a window."""
    kind, _, what = _name(node).partition("_")
    return what if kind in _KINDS and what in _PROPERTIES else None


def _name(node: Any) -> str:
    if isinstance(node, nodes.FunctionCall) and len(node.name.parts) == 1 and node.over is None:
        return str(node.name.last.upper())
    return ""


def group_window(
    binder: ExpressionBinder, plan: LogicalNode, group_by: Sequence[Node]
) -> tuple[LogicalNode, GroupWindow] | None:
    """The rows with the columns of their windows behind theirs; None if no window groups them.

    Args:
        binder: of expressions over the rows.
        plan: of the rows.
        group_by: the elements of GROUP BY.

    Raises:
        ValidationError: there are several windows, or an argument is wrong.
    """
    parts = [each for element in group_by for each in walk_nodes(element)]
    calls = [each for each in parts if is_group_window(each)]
    if not calls:
        return None
    described = [_described(binder, each) for each in calls]
    if any(each != described[0] for each in described):
        message = "Only a single window group function may be used in GROUP BY"
        raise binder.context.error(calls[1], message)
    kind, time, lengths = described[0]
    partition: tuple[int, ...] = ()
    computed: list[tuple[Expression, InputReference]] = []
    if kind == "SESSION":
        plan, partition, computed = _partitioned(binder, plan, group_by)
    step, size = lengths if kind == "HOP" else (None, lengths[0])
    names = unique_names([*plan.row.names, "window_start", "window_end", "window_time"])
    made = window_node(plan, kind, time.index, size, step, 0, partition, names)
    columns = tuple(references(made.row)[-3:])
    return made, GroupWindow(kind, time, lengths, columns, tuple(computed))


def _partitioned(
    binder: ExpressionBinder, plan: LogicalNode, group_by: Sequence[Node]
) -> tuple[LogicalNode, tuple[int, ...], list[tuple[Expression, InputReference]]]:
    """The rows with the keys of sessions as columns, and which they are."""
    keys: list[Expression] = []
    for element in group_by:
        if isinstance(element, nodes.GroupingSets | nodes.GroupingSet):
            message = "GROUPING SETS with SESSION are not in this release; use one query per set."
            raise binder.context.error(element, message)
        parts = element.fields if isinstance(element, nodes.RowConstructor) else (element,)
        keys += [binder.bind(each) for each in parts if not is_group_window(each)]
    columns: list[Expression] = list(references(plan.row))
    names = list(plan.row.names)
    computed: list[tuple[Expression, InputReference]] = []
    for each in keys:
        if each not in columns:
            column = InputReference(len(columns), f"$f{len(columns)}", each.type)
            computed.append((each, column))
            columns.append(each)
            names.append(column.name)
    if computed:
        row = row_of(names, [each.type for each in columns])
        plan = ProjectNode(row=row, input=plan, expressions=tuple(columns))
    return plan, tuple(dict.fromkeys(columns.index(each) for each in keys)), computed


def _described(binder: ExpressionBinder, call: Any) -> tuple[str, InputReference, tuple[int, ...]]:
    """Which window it is, on which column, and its lengths."""
    kind = _name(call).partition("_")[0]
    words = [each.lower() for each in WINDOWS[kind] if each.isupper() and each != "DATA"][1:]
    if len(call.arguments) == len(words) + 2:
        message = f"{kind} window with alignment is not supported yet."
        raise binder.context.error(call.arguments[-1], message)
    if len(call.arguments) != len(words) + 1:
        message = f"{_name(call)} of GROUP BY takes a time attribute, {' and '.join(words)}."
        raise binder.context.error(call, message)
    time = binder.bind(call.arguments[0])
    if not isinstance(time, InputReference) or _kind_of(time) is TimestampKind.REGULAR:
        shown = time.type.as_summary_string()
        message = (
            "Window aggregate can only be defined over a time attribute column, but "
            f"{shown} encountered."
        )
        raise binder.context.error(call.arguments[0], message)
    pairs = zip(words, call.arguments[1:], strict=True)
    return kind, time, tuple(_length(binder, kind, word, each) for word, each in pairs)


def _length(binder: ExpressionBinder, kind: str, word: str, node: Node) -> int:
    bound = binder.bind(node)
    value = bound.value if isinstance(bound, Literal) else None
    if isinstance(value, int) and isinstance(bound.type, DayTimeIntervalType) and value > 0:
        return value
    message = f"{word} of {kind} must be a positive interval of days to seconds."
    raise binder.context.error(node, message)


def _kind_of(time: InputReference) -> TimestampKind:
    found: TimestampKind = getattr(time.type, "kind", TimestampKind.REGULAR)
    return found


def property_column(
    binder: ExpressionBinder, window: GroupWindow | None, call: Any
) -> InputReference:
    """The column that TUMBLE_START or its like is.

    Raises:
        ValidationError: GROUP BY has not this window, or the window has it not.
    """
    name = _name(call)
    kind, _, what = name.partition("_")
    if window is None or _described(binder, call) != (window.kind, window.time, window.lengths):
        message = (
            f"Call to auxiliary group function '{name}' must have matching call to group function "
            f"'{kind}' in GROUP BY clause"
        )
        raise binder.context.error(call, message)
    if what in {"ROWTIME", "PROCTIME"} and (what == "PROCTIME") != window.is_by_clock:
        there = "proctime" if window.is_by_clock else "rowtime"
        message = f"A {there} window cannot provide a {what.lower()} attribute."
        raise binder.context.error(call, message)
    return window.columns[_PROPERTIES[what]]
