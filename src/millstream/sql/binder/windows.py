"""Window TVFs: TUMBLE, HOP, CUMULATE and SESSION over a table.

What it is: arguments by position or by name, checked; the plan's node.
What it is not: the aggregation over windows, which the planner finds (``sql/planner/windows.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.nodes import Literal
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import NameProblem, Scope
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import WindowNode, row_of
from millstream.sql.suggestions import did_you_mean
from millstream.types.logical_types import (
    DayTimeIntervalType,
    LocalZonedTimestampType,
    TimestampKind,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.binder.queries import QueryBinder
    from millstream.sql.parser.syntax import Node
    from millstream.sql.planner.logical import LogicalNode

__all__ = ["WINDOWS", "arguments_of", "window", "window_node"]

#: Function -> its parameters, in order; those in lower case may be left out.
WINDOWS: Final = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "offset"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "offset"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "offset"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}


def window(queries: QueryBinder, call: Any, *, any_size: bool = False) -> WindowNode:
    """The plan of a window TVF; with ``any_size``, HOP may have sizes that no slides make up.

    Raises:
        ValidationError: an argument is missing or wrong.
    """
    context = queries.context
    kind = call.name.last.upper()
    given = arguments_of(context, call, WINDOWS[kind])
    data = given["DATA"]
    if not isinstance(data, nodes.TableArgument):
        raise context.error(data, f"{kind} takes TABLE t as its first argument.")
    if data.order_by:
        raise context.error(data.order_by[0], f"{kind} takes no ORDER BY.")
    if isinstance(data.table, nodes.Identifier):
        plan, scope = queries.relation(nodes.TableReference(data.table, position=data.position))
    else:
        plan = queries.nested(None).bind(data.table)
        scope = Scope.of(plan.row)
    time = _time_column(context, kind, given["TIMECOL"], scope)
    lengths = {
        name.upper(): _length(context, kind, name, given[name.upper()], scope)
        for name in WINDOWS[kind][2:]
        if name.upper() in given
    }
    size = lengths.get("SIZE", lengths.get("GAP", 0))
    step = lengths.get("SLIDE", lengths.get("STEP"))
    if step is not None and size % step and not (any_size and kind == "HOP"):
        word = WINDOWS[kind][2].lower()
        message = f"The size of {kind} ({size} ms) must be a multiple of its {word} ({step} ms)."
        raise context.error(call, message)
    keys = [ExpressionBinder(context, scope).bind(each) for each in data.partition_by]
    if keys and kind != "SESSION":
        raise context.error(data, f"{kind} takes no PARTITION BY.")
    partition = tuple(getattr(key, "index", -1) for key in keys)
    if -1 in partition:
        raise context.error(data, "PARTITION BY of SESSION takes columns.")
    names = [*plan.row.names, "window_start", "window_end", "window_time"]
    return window_node(plan, kind, time, size, step, lengths.get("OFFSET", 0), partition, names)


def window_node(
    plan: LogicalNode,
    kind: str,
    time: int,
    size: int,
    step: int | None,
    offset: int,
    keys: tuple[int, ...],
    names: Sequence[str],
) -> WindowNode:
    """Rows with the columns of their windows behind theirs.

    Args:
        plan: of the rows.
        kind: TUMBLE, HOP, CUMULATE or SESSION.
        time: the column that is their time.
        size: in milliseconds; of SESSION the gap.
        step: in milliseconds, of HOP and CUMULATE.
        offset: in milliseconds.
        keys: of SESSION, the columns that rows of one session have in common.
        names: of all columns.
    """
    time_type: Any = plan.row.fields[time].type
    bound = TimestampType(3, nullable=False)
    if isinstance(time_type, LocalZonedTimestampType):
        window_time: Any = LocalZonedTimestampType(3, kind=time_type.kind, nullable=False)
    else:
        window_time = TimestampType(3, kind=time_type.kind, nullable=False)
    row = row_of(names, [*plan.row.children, bound, bound, window_time])
    return WindowNode(
        row=row,
        input=plan,
        kind=kind,
        time=time,
        size=size,
        step=step,
        offset=offset,
        partition=keys,
    )


def arguments_of(context: Any, call: Any, parameters: tuple[str, ...]) -> dict[str, Node]:
    """The arguments of a call by the names of its parameters, in capitals.

    Raises:
        ValidationError: one is unknown, missing, or one too many.
    """
    known = [each.upper() for each in parameters]
    given: dict[str, Node] = {}
    for number, argument in enumerate(call.arguments):
        name, value = "", argument
        if isinstance(argument, nodes.NamedArgument):
            name, value = argument.name.value.upper(), argument.value
            if name not in known:
                hint = did_you_mean(name, known)
                message = f"{call.name} has no parameter {name}.{hint} It has: {', '.join(known)}."
                raise context.error(argument, message)
        elif number < len(known):
            name = known[number]
        else:
            raise context.error(argument, f"{call.name} takes at most {len(known)} arguments.")
        given[name] = value
    for each in parameters:
        if each.isupper() and each not in given:
            message = f"{call.name} needs {each}: {call.name}({', '.join(known)})."
            raise context.error(call, message)
    return given


def _time_column(context: Any, kind: str, node: Any, scope: Scope) -> int:
    if not isinstance(node, nodes.Descriptor) or len(node.columns) != 1:
        raise context.error(node, f"{kind} takes DESCRIPTOR(time column) as its second argument.")
    try:
        found: Any = scope.find([node.columns[0].value]).expression
    except NameProblem as problem:
        raise context.error(node, str(problem)) from None
    if getattr(found.type, "kind", TimestampKind.REGULAR) is TimestampKind.REGULAR:
        shown = found.type.as_summary_string()
        message = (
            f"The window function requires the timecol is a time attribute type, but "
            f"'{found.name}' is {shown}; declare WATERMARK FOR it, or use PROCTIME()."
        )
        raise context.error(node, message)
    return int(found.index)


def _length(context: Any, kind: str, name: str, node: Any, scope: Scope) -> int:
    bound = ExpressionBinder(context, scope).bind(node)
    value = bound.value if isinstance(bound, Literal) else None
    is_length = isinstance(bound.type, DayTimeIntervalType)
    if isinstance(value, int) and is_length and (value > 0 or name == "offset"):
        return value
    message = f"{name.upper()} of {kind} must be a positive interval of days to seconds."
    raise context.error(node, message)
