"""Queries of the Table API as parser nodes over plans that have no SQL text.

A plan gets a generated name, and a query over that name is built and bound by SQL's binder; columns
get the names that Flink's Table API gives them.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from millstream.errors import ProgramError
from millstream.expressions.functions.definition import FunctionKind
from millstream.sql.binder import calls
from millstream.sql.binder.binding import query_binder
from millstream.sql.binder.calls import InlineCall
from millstream.sql.binder.scope import children
from millstream.sql.parser import nodes
from millstream.sql.parser.nodes import Expression, Node, Query
from millstream.sql.suggestions import did_you_mean
from millstream.types.logical_types import RowType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.statements.session import Session


class ColumnRange(Expression):
    """``range_("a", "c")``: columns from one to another, both included; positions from 1."""

    start: str | int
    end: str | int


class Columns(Expression):
    """``with_columns(...)``, or ``without_columns(...)``."""

    parts: tuple[Expression, ...]
    without: bool


class Flattened(Expression):
    """The fields of a row as columns."""

    operand: Expression


class WindowProperty(Expression):
    """``col("w").start`` and its like."""

    operand: Expression
    #: window_start, window_end, rowtime or proctime.
    kind: str


class RowInterval(Expression):
    """A number of rows as the length of a window."""

    rows: int


class OverBound(Expression):
    """``UNBOUNDED_ROW`` and its like."""

    #: UNBOUNDED or CURRENT.
    kind: str
    #: ROWS or RANGE.
    unit: str


def rewritten(node: Any, change: Callable[[Any], Any]) -> Any:
    """A node with changed parts, from the inside; a list stands for several arguments."""
    changed = {}
    for each in fields(node):
        before = getattr(node, each.name)
        after = _rewritten_value(before, change)
        if after is not before:
            changed[each.name] = after
    return change(replace(node, **changed) if changed else node)


def _rewritten_value(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Node) and not isinstance(value, Query):
        return rewritten(value, change)
    if isinstance(value, tuple):
        found: list[Any] = []
        for each in value:
            made = _rewritten_value(each, change)
            found.extend(made if isinstance(made, list) else [made])
        same = len(found) == len(value) and all(a is b for a, b in zip(found, value, strict=True))
        return value if same else tuple(found)
    return value


def expanded(node: Any, names: Sequence[str]) -> Any:
    """An expression whose ``with_columns`` are columns; a list if it is several itself."""

    def change(each: Any) -> Any:
        if isinstance(each, Columns):
            return [nodes.identifier(name) for name in _chosen(each, names)]
        return each

    return rewritten(node, change)


def _chosen(columns: Columns, names: Sequence[str]) -> list[str]:
    chosen: list[str] = []
    for part in columns.parts:
        if isinstance(part, nodes.Star):
            chosen += names
        elif isinstance(part, ColumnRange):
            first, last = (_position(each, names) for each in (part.start, part.end))
            if first > last:
                message = (
                    f"range_({part.start!r}, {part.end!r}): the first column comes after the last"
                )
                raise ProgramError(message)
            chosen += names[first : last + 1]
        elif isinstance(part, nodes.Literal):
            chosen.append(names[_position(part.value, names)])
        elif isinstance(part, nodes.Identifier):
            chosen.append(names[_position(part.last, names)])
        else:
            message = "with_columns() and without_columns() take columns, positions and range_()"
            raise ProgramError(message)
    if columns.without:
        return [name for name in names if name not in chosen]
    return chosen


def _position(given: Any, names: Sequence[str]) -> int:
    if type(given) is int and 1 <= given <= len(names):
        return given - 1
    if given in names:
        return list(names).index(given)
    hint = did_you_mean(str(given), names)
    message = f"there is no column {given!r}.{hint} There are: {', '.join(names)}"
    raise ProgramError(message)


class HasSession(Protocol):
    """The session of an environment."""

    @property
    def session(self) -> Session:
        """The session behind it."""


def bound(
    session: Session, plan: LogicalNode, query: Callable[..., Any], *others: LogicalNode
) -> LogicalNode:
    """The plan of a query over plans.

    Args:
        session: of the tables.
        plan: the first.
        query: makes the query of references to the plans.
        others: the rest.
    """
    names = [f"$table{number}" for number in range(len(others) + 1)]
    inline = dict(zip(names, (plan, *others), strict=True))
    context = replace(session.context(None), inline={**session.inline, **inline})
    references = [nodes.TableReference(nodes.identifier(name)) for name in names]
    return query_binder(context).bind(query(*references))


def expression_of(field: Any) -> Any:
    """The node of an expression, or of the name of a column."""
    return nodes.identifier(field) if isinstance(field, str) else field.node


def items_of(fields: Sequence[Any], columns: Sequence[str]) -> tuple[nodes.SelectItem, ...]:
    """Items of SELECT, with names as Flink's Table API gives them.

    Args:
        fields: expressions, or names of columns.
        columns: the names of the columns that there are.

    Raises:
        ProgramError: two items have one name.
    """
    plain: list[nodes.SelectItem] = []
    for each in fields:
        if isinstance(each, str):
            node = nodes.Star() if each == "*" else nodes.identifier(each)
            plain.append(nodes.SelectItem(node))
            continue
        item = each.select_item()
        node = expanded(item.expression, columns)
        if isinstance(node, list):
            if item.alias is not None:
                message = f"with_columns() has several columns and cannot be '{item.alias.value}'"
                raise ProgramError(message)
            plain += [nodes.SelectItem(one) for one in node]
        else:
            plain.append(nodes.SelectItem(node, item.alias))
    aggregates = aggregates_of(item.expression for item in plain)
    found = tuple(_named(item, number, aggregates) for number, item in enumerate(plain))
    refuse_ambiguous(
        name
        for item in found
        for name in (columns if isinstance(item.expression, nodes.Star) else [shown_name(item)])
    )
    return found


def flattened(
    session: Session, plan: LogicalNode, fields: Sequence[Any]
) -> tuple[nodes.SelectItem, ...]:
    """``items_of``, with the fields of rows where ``flatten`` stands.

    Raises:
        ProgramError: it stands at something else than a row.
    """
    found: list[nodes.SelectItem] = []
    for item in items_of(fields, plan.row.names):
        if not isinstance(item.expression, Flattened):
            found.append(item)
            continue
        operand = item.expression.operand
        row = bound(session, plan, partial(_one, operand)).row.children[0]
        if not isinstance(row, RowType):
            message = f"flatten is for rows; this is {row.as_summary_string()}"
            raise ProgramError(message)
        holder = operand.last if isinstance(operand, nodes.Identifier) else "_c"
        found += [
            nodes.SelectItem(
                nodes.FieldAccess(operand, nodes.Name(name)), nodes.Name(f"{holder}${name}")
            )
            for name in row.names
        ]
    return tuple(found)


def _one(operand: Any, source: Any) -> nodes.Select:
    return nodes.Select(items=(nodes.SelectItem(operand),), source=source)


def refuse_ambiguous(names: Iterable[str]) -> None:
    """Refuse two columns of one name.

    Raises:
        ProgramError: there are two.
    """
    known: set[str] = set()
    for name in names:
        if name in known:
            message = f"Ambiguous column name: {name}; alias() gives it another"
            raise ProgramError(message)
        known.add(name)


def column_of(item: nodes.SelectItem) -> str:
    """The column that an item names.

    Raises:
        ProgramError: it is something else.
    """
    if not isinstance(item.expression, nodes.Identifier):
        message = "this takes columns, such as col('a')"
        raise ProgramError(message)
    return item.expression.last


def shown_name(item: nodes.SelectItem) -> str:
    """The name of the column that an item makes; it has one by ``items_of``."""
    return column_of(item) if item.alias is None else item.alias.value


def _named(item: nodes.SelectItem, number: int, aggregates: list[Any]) -> nodes.SelectItem:
    node: Any = item.expression
    if item.alias is not None or isinstance(node, nodes.Star):
        return item
    if node in aggregates:
        return replace(item, alias=nodes.Name(f"EXPR${aggregates.index(node)}"))
    name = _path(node)
    if isinstance(node, nodes.Cast) and not node.safe:
        inner = _path(node.operand)
        name = None if inner is None else f"{inner}-{node.type.as_summary_string()}"
    return replace(item, alias=nodes.Name(f"_c{number}" if name is None else name))


def _path(node: Any) -> str | None:
    """The name of a column, or of a field of one."""
    if isinstance(node, nodes.Identifier):
        return node.last
    if isinstance(node, nodes.FieldAccess):
        inner = _path(node.operand)
        return None if inner is None else f"{inner}${node.name.value}"
    return None


def aggregates_of(found: Iterable[Any]) -> list[Any]:
    """Aggregates and properties of windows, each once, in their order."""
    known: list[Any] = []

    def look(node: Any) -> None:
        named = isinstance(node, nodes.FunctionCall) and node.over is None
        user = isinstance(node, InlineCall) and node.definition.kind is FunctionKind.AGGREGATE
        built_in = named and calls.is_aggregate(node.name.last.upper())
        if isinstance(node, WindowProperty) or user or built_in:
            if node not in known:
                known.append(node)
            return
        for each in children(node):
            look(each)

    for node in found:
        look(node)
    return known
