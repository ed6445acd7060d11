"""TO_CHANGELOG and FROM_CHANGELOG: table functions over a table argument.

What it is: arguments by name or position, as Flink 2.3 has them (``input``, ``op``,
``op_mapping``), checked; the plan's node.
What it is not: window TVFs (``sql/binder/windows.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.nodes import Call, Literal
from millstream.sql.binder.aggregates import plain_type
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import Scope
from millstream.sql.binder.windows import arguments_of
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import ChangelogNode, row_of
from millstream.types.logical_types import VarCharType
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.context import BindingContext
    from millstream.sql.binder.queries import QueryBinder
    from millstream.sql.planner.logical import LogicalNode

__all__ = ["CHANGELOGS", "changelog"]

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
    types = [VarCharType(), *map(plain_type, plan.row.children)]
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
