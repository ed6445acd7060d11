"""Walking through nodes of the parser.

What it is: children of any node, and questions about what stands in an expression.
What it is not: a visitor; the binder dispatches by type itself.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from millstream.sql.parser import nodes
from millstream.sql.parser.syntax import Node, Query

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["children", "conjuncts", "walk_nodes"]


def children(node: Node) -> Iterator[Node]:
    """The nodes directly in a node."""
    for each in fields(node):
        yield from _nodes_in(getattr(node, each.name))


def _nodes_in(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes_in(item)


def walk_nodes(node: Node) -> Iterator[Node]:
    """The node and all in it, without what is in sub-queries."""
    yield node
    if isinstance(node, Query):
        return
    for child in children(node):
        if not isinstance(child, Query):
            yield from walk_nodes(child)


def conjuncts(node: Node) -> Iterator[Node]:
    """What AND connects."""
    if isinstance(node, nodes.BinaryOperation) and node.operator == "AND":
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    else:
        yield node
