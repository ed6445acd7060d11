"""Names of the columns that a SELECT gives, from its text alone.

What it is: aliases, names of columns, and made-up names.
What it is not: the binding of names (``sql/binder/scope.py``).
"""

from __future__ import annotations

from typing import Any

from millstream.sql.parser import nodes


def item_name(item: Any, number: int) -> str:
    """The name of the column of an item at a position."""
    if item.alias is not None:
        return str(item.alias.value)
    node = item.expression
    if isinstance(node, nodes.Identifier):
        return node.last
    if isinstance(node, nodes.FieldAccess):
        return node.name.value
    return f"EXPR${number}"


def output_names(query: nodes.Query) -> list[str]:
    """The names of the columns of a SELECT; empty if the text alone does not say them."""
    if isinstance(query, nodes.OrderedQuery):
        return output_names(query.query)
    if not isinstance(query, nodes.Select):
        return []
    if any(isinstance(each.expression, nodes.Star) for each in query.items):
        return []
    return [item_name(each, number) for number, each in enumerate(query.items)]


def repeated_name(query: nodes.Query) -> str | None:
    """Return a name that a SELECT gives to two columns; None: it gives none twice."""
    names = output_names(query)
    return next((name for number, name in enumerate(names) if name in names[:number]), None)
