"""Words of the Table API that are no nodes of SQL, and what they become.

What it is: nodes for several columns, for properties of windows and for ends of windows, and the
rewriting of expressions when a table takes them.
What it is not: binding; what is left here is what the parser could have made.

Read next: ``table/building.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from millstream.errors import ProgramError
from millstream.sql.parser import nodes
from millstream.sql.parser.syntax import Expression, Node, Query
from millstream.sql.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "ColumnRange",
    "Columns",
    "Flattened",
    "OverBound",
    "RowInterval",
    "WindowProperty",
    "expanded",
    "rewritten",
]


@dataclass(frozen=True, slots=True)
class ColumnRange(Expression):
    """``range_("a", "c")``: columns from one to another, both included; positions from 1."""

    start: str | int
    end: str | int


@dataclass(frozen=True, slots=True)
class Columns(Expression):
    """``with_columns(...)``, or ``without_columns(...)``."""

    parts: tuple[Expression, ...]
    without: bool


@dataclass(frozen=True, slots=True)
class Flattened(Expression):
    """The fields of a row as columns."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class WindowProperty(Expression):
    """``col("w").start`` and its like."""

    operand: Expression
    #: window_start, window_end, rowtime or proctime.
    kind: str


@dataclass(frozen=True, slots=True)
class RowInterval(Expression):
    """A number of rows as the length of a window."""

    rows: int


@dataclass(frozen=True, slots=True)
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
                message = f"range_({part.start!r}, {part.end!r}): the first stands behind the last"
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
