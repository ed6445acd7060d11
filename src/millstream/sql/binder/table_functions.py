"""Bind window TVFs: TUMBLE, HOP, CUMULATE and SESSION over a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.nodes import Call, Literal
from millstream.sql.binder.calls import plain_type
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import NameProblem, Scope
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import ChangelogNode, WindowNode, row_of
from millstream.sql.suggestions import did_you_mean
from millstream.types import logical_types as lt
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.queries import QueryBinder
    from millstream.sql.binder.scope import BindingContext
    from millstream.sql.parser.nodes import Node
    from millstream.sql.planner.logical import LogicalNode


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
    binder, known = ExpressionBinder(context, scope), map(str.upper, WINDOWS[kind][2:])
    lengths = {name: length(binder, kind, name, given[name]) for name in known if name in given}
    size = lengths.get("SIZE", lengths.get("GAP", 0))
    step = lengths.get("SLIDE", lengths.get("STEP"))
    if step is not None and size % step and not (any_size and kind == "HOP"):
        word = WINDOWS[kind][2].lower()
        message = f"The size of {kind} ({size} ms) must be a multiple of its {word} ({step} ms)."
        raise context.error(call, message)
    keys = binder.bind_all(data.partition_by)
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
    bound = lt.TimestampType(3, nullable=False)
    if isinstance(time_type, lt.LocalZonedTimestampType):
        window_time: Any = lt.LocalZonedTimestampType(3, kind=time_type.kind, nullable=False)
    else:
        window_time = lt.TimestampType(3, kind=time_type.kind, nullable=False)
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
    if getattr(found.type, "kind", lt.TimestampKind.REGULAR) is lt.TimestampKind.REGULAR:
        shown = found.type.as_summary_string()
        message = (
            f"The window function requires the timecol is a time attribute type, but "
            f"'{found.name}' is {shown}; declare WATERMARK FOR it, or use PROCTIME()."
        )
        raise context.error(node, message)
    return int(found.index)


def length(binder: ExpressionBinder, kind: str, name: str, node: Node) -> int:
    """The milliseconds of an argument of a window.

    Raises:
        ValidationError: it is no positive interval of days to seconds.
    """
    bound = binder.bind(node)
    value = bound.value if isinstance(bound, Literal) else None
    is_length = isinstance(bound.type, lt.DayTimeIntervalType)
    if isinstance(value, int) and is_length and (value > 0 or name == "OFFSET"):
        return value
    message = f"{name} of {kind} must be a positive interval of days to seconds."
    raise binder.context.error(node, message)


_PARAMETERS: Final = ("INPUT", "op", "op_mapping")
#: The functions.
CHANGELOGS: Final = frozenset({"TO_CHANGELOG", "FROM_CHANGELOG"})
_KINDS: Final = ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE")


def changelog(queries: QueryBinder, call: Any) -> LogicalNode:
    """The plan of a call.

    Raises:
        ValidationError: an argument is missing or wrong.
    """
    context, name = queries.context, call.name.last.upper()
    given: dict[str, Any] = dict(arguments_of(context, call, _PARAMETERS))
    data = given["INPUT"]
    if isinstance(data, nodes.TableArgument):
        if data.partition_by or data.order_by:
            message = (
                "Only tables with set semantics may be partitioned. Invalid PARTITION BY or ORDER "
                f"BY clause in table function '{name}'."
            )
            raise context.error(data, message)
        table = data.table
    else:
        table = getattr(data, "query", data)
    if isinstance(table, nodes.Identifier):
        plan, _ = queries.relation(nodes.TableReference(table, position=data.position))
    elif isinstance(data, nodes.TableArgument) or table is not data:
        plan = queries.nested(None).bind(table)
    else:
        raise context.error(data, f"{name} takes TABLE t as its argument INPUT.")
    column = _op(context, given.get("OP"))
    pairs = _pairs(context, given.get("OP_MAPPING"), from_codes=name == "FROM_CHANGELOG")
    if name == "TO_CHANGELOG":
        return _to(context, call, plan, column, pairs)
    return _from(context, call, plan, column, pairs)


def _op(context: BindingContext, node: Any) -> str:
    if node is None:
        return "op"
    if not isinstance(node, nodes.Descriptor) or len(node.columns) != 1:
        message = "The descriptor for argument 'op' must contain exactly one column name."
        raise context.error(node, message)
    return node.columns[0].value


def _pairs(context: BindingContext, node: Any, *, from_codes: bool) -> list[tuple[str, str]] | None:
    """The keys and values of the map, a pair for each of the keys of a list; None: no map.

    Raises:
        ValidationError: it is no map of constant texts, or maps a code or a kind twice.
    """
    if node is None:
        return None
    made = ExpressionBinder(context, Scope.of(row_of([], []))).bind(node)
    texts = [_text(each) for each in made.arguments] if isinstance(made, Call) else []
    if not isinstance(made, Call) or made.function != "MAP" or None in texts:
        message = "The argument 'op_mapping' must be a MAP of constant texts."
        raise context.error(node, message)
    # Of two entries with one key a map has the last.
    entries = dict(zip(map(str, texts[::2]), map(str, texts[1::2]), strict=True))
    pairs = [(part.strip(), value) for keys, value in entries.items() for part in keys.split(",")]
    _check_once(context, node, [key for key, _ in pairs])
    if from_codes:
        _check_once(context, node, list(entries.values()))
    return pairs


def _text(expression: Expression) -> str | None:
    if isinstance(expression, Call) and expression.function == "CAST":
        return _text(expression.arguments[0])
    value = expression.value if isinstance(expression, Literal) else None
    return value if isinstance(value, str) else None


def _check_once(context: BindingContext, call: Any, keys: list[str]) -> None:
    """Refuse a key of the map that stands there twice.

    Raises:
        ValidationError: one does.
    """
    twice = [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
    if twice:
        message = (
            f"Invalid target mapping for argument 'op_mapping'. Duplicate mapping for '{twice[0]}'."
        )
        raise context.error(call, message)


def _known(context: BindingContext, call: Any, kind: str) -> str:
    if kind not in _KINDS:
        message = (
            f"Invalid target mapping for argument 'op_mapping'. Unknown change operation: '{kind}'."
            f" Valid values are: [{', '.join(_KINDS)}]."
        )
        raise context.error(call, message)
    return kind


def _to(
    context: BindingContext,
    call: Any,
    plan: LogicalNode,
    column: str,
    pairs: list[tuple[str, str]] | None,
) -> LogicalNode:
    if column in plan.row.names:
        message = f"Field names must be unique. Found duplicates: [{column}]"
        raise context.error(call, message)
    given = [(kind, kind) for kind in _KINDS] if pairs is None else pairs
    codes = {_known(context, call, kind): code for kind, code in given}
    types = [lt.VarCharType(), *map(plain_type, plan.row.children)]
    row = row_of([column, *plan.row.names], types)
    return ChangelogNode(row=row, input=plan, column=None, codes=tuple(codes.items()))


def _from(
    context: BindingContext,
    call: Any,
    plan: LogicalNode,
    column: str,
    pairs: list[tuple[str, str]] | None,
) -> LogicalNode:
    at = plan.row.index_of(column)
    if at < 0:
        message = f"The op column '{column}' does not exist in the input schema."
        raise context.error(call, message)
    kind = plan.row.fields[at].type
    if not kind.is_a(TypeFamily.CHARACTER_STRING):
        shown = kind.as_summary_string()
        message = f"The op column '{column}' must be of STRING type, but was '{shown}'."
        raise context.error(call, message)
    given = [(each, each) for each in _KINDS] if pairs is None else pairs
    kinds = {code: _known(context, call, to) for code, to in given}
    if "UPDATE_AFTER" in kinds.values() and "UPDATE_BEFORE" not in kinds.values():
        message = (
            "The 'op_mapping' must include UPDATE_BEFORE for retract mode. Upsert mode (without "
            "UPDATE_BEFORE) is not supported; from_changelog_stream() and upsert-kafka have it."
        )
        raise context.error(call, message)
    others = [each for each in plan.row.fields if each.name != column]
    row = row_of([each.name for each in others], [plain_type(each.type) for each in others])
    codes = tuple((to, code) for code, to in kinds.items())
    return ChangelogNode(row=row, input=plan, column=at, codes=codes)
