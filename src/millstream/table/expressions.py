"""Functions that make expressions: ``col``, ``lit`` and others, as in PyFlink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.sql.parser import nodes
from millstream.table.expression import Expression, as_node, function

if TYPE_CHECKING:
    from millstream.types.logical_types import LogicalType

__all__ = [
    "and_",
    "array",
    "call",
    "coalesce",
    "col",
    "current_date",
    "current_timestamp",
    "if_then_else",
    "lit",
    "not_",
    "null_of",
    "or_",
    "proctime",
    "row",
    "to_timestamp",
]


def col(name: str) -> Expression:
    """A column."""
    return Expression(nodes.identifier(name))


def lit(v: Any, data_type: LogicalType | None = None) -> Expression:
    """A value of the program.

    Args:
        v: the value.
        data_type: its type, if not the usual one.
    """
    node = as_node(v)
    return Expression(node if data_type is None else nodes.Cast(node, data_type))


def null_of(data_type: LogicalType) -> Expression:
    """NULL of a type."""
    return Expression(nodes.Cast(as_node(None), data_type))


def call(f: str, *args: Any) -> Expression:
    """A function by its name."""
    return function(f, *args)


def and_(predicate0: Any, predicate1: Any, *predicates: Any) -> Expression:
    """Whether all are true."""
    return _connected("AND", predicate0, predicate1, *predicates)


def or_(predicate0: Any, predicate1: Any, *predicates: Any) -> Expression:
    """Whether one is true."""
    return _connected("OR", predicate0, predicate1, *predicates)


def _connected(operator: str, *predicates: Any) -> Expression:
    made = as_node(predicates[0])
    for each in predicates[1:]:
        made = nodes.BinaryOperation(operator, made, as_node(each))
    return Expression(made)


def not_(expression: Any) -> Expression:
    """Whether it is false."""
    return Expression(nodes.UnaryOperation("NOT", as_node(expression)))


def if_then_else(condition: Any, if_true: Any, if_false: Any) -> Expression:
    """One value or the other."""
    when = nodes.WhenClause(as_node(condition), as_node(if_true))
    return Expression(nodes.Case(None, (when,), as_node(if_false)))


def coalesce(*args: Any) -> Expression:
    """The first that is not NULL."""
    return function("COALESCE", *args)


def array(head: Any, *tail: Any) -> Expression:
    """An array of values."""
    return Expression(nodes.ArrayConstructor(tuple(map(as_node, (head, *tail)))))


def row(head: Any, *tail: Any) -> Expression:
    """A row of values."""
    return Expression(nodes.RowConstructor(tuple(map(as_node, (head, *tail)))))


def current_date() -> Expression:
    """The date of now."""
    return function("CURRENT_DATE")


def current_timestamp() -> Expression:
    """The time of now."""
    return function("CURRENT_TIMESTAMP")


def proctime() -> Expression:
    """A processing time attribute."""
    return function("PROCTIME")


def to_timestamp(timestamp_str: Any, format_str: Any = None) -> Expression:
    """A timestamp of a text."""
    return function("TO_TIMESTAMP", *(each for each in (timestamp_str, format_str) if each))
