"""The query of a view as it is kept: it means the same from any database, and later.

What it is: names of tables in full, and the columns that ``*`` stands for, as Flink keeps them.
What it is not: the reading of a view (``sql/binder/tables.py``).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from millstream.errors import ValidationError
from millstream.sql.binder.binding import query_binder
from millstream.sql.parser import nodes
from millstream.sql.parser.parser import parse_query
from millstream.sql.parser.syntax import Node, identifier
from millstream.sql.parser.unparser import unparse

if TYPE_CHECKING:
    from millstream.sql.binder.context import BindingContext
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.parser.syntax import Query
    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.statements.session import Session

__all__ = ["expanded_view"]


def expanded_view(
    session: Session, name: ObjectIdentifier, query: Query, text: str | None
) -> tuple[LogicalNode, str]:
    """The plan of the query of a view, and its text with all names in full.

    Args:
        session: where it is defined.
        name: of the view, which cannot read itself.
        query: its query.
        text: of the statement.

    Raises:
        ValidationError: the query makes no sense, or reads the view.
    """
    context = replace(session.context(text), stars={})
    if session.catalogs.find_table(name.parts) is not None:
        context = replace(context, views=(name.parts,))
    plan = query_binder(context).bind(query)
    expanded = unparse(_Qualified(context, expands=True).node(query, frozenset()))
    if not _means(context, expanded, plan):
        # Columns of ``*`` may hide others, or move those that have no name of their own.
        expanded = unparse(_Qualified(context, expands=False).node(query, frozenset()))
    return plan, expanded


def _means(context: BindingContext, text: str, plan: LogicalNode) -> bool:
    """Whether a text gives columns of the same types."""
    try:
        found = query_binder(replace(context, text=text, stars=None)).bind(parse_query(text))
    except ValidationError:
        return False
    return list(found.row.children) == list(plan.row.children)


class _Qualified:
    """Makes a query with names in full."""

    def __init__(self, context: BindingContext, *, expands: bool) -> None:
        """Take the surroundings, and whether ``*`` becomes columns."""
        self._context = context
        self._expands = expands

    def node(self, node: Any, common: frozenset[str]) -> Any:
        """The node with the names of tables in full, but those of WITH."""
        if isinstance(node, nodes.WithQuery):
            return self._with(node, common)
        if isinstance(node, nodes.TableReference | nodes.TableQuery):
            node = replace(node, name=self._name(node.name, common))
        elif isinstance(node, nodes.TableArgument) and isinstance(node.table, nodes.Identifier):
            node = replace(node, table=self._name(node.table, common))
        elif isinstance(node, nodes.Select) and self._expands:
            node = replace(node, items=tuple(self._items(node.items)))
        changed = {}
        for each in fields(node):
            before = getattr(node, each.name)
            after = self._inside(before, common)
            if after is not before:
                changed[each.name] = after
        return replace(node, **changed) if changed else node

    def _inside(self, value: Any, common: frozenset[str]) -> Any:
        if isinstance(value, Node):
            return self.node(value, common)
        if isinstance(value, tuple):
            after = tuple(self._inside(each, common) for each in value)
            same = all(one is other for one, other in zip(value, after, strict=True))
            return value if same else after
        return value

    def _with(self, node: nodes.WithQuery, common: frozenset[str]) -> nodes.WithQuery:
        tables = []
        for each in node.tables:
            tables.append(replace(each, query=self.node(each.query, common)))
            common |= {each.name.value}
        return replace(node, tables=tuple(tables), query=self.node(node.query, common))

    def _name(self, name: nodes.Identifier, common: frozenset[str]) -> nodes.Identifier:
        is_own = len(name.names) == 1 and (
            name.names[0] in common or name.names[0] in self._context.inline
        )
        found = None if is_own else self._context.catalogs.find_table(name.names)
        return name if found is None else identifier(*found.identifier.parts)

    def _items(self, items: Any) -> Any:
        for item in items:
            columns = (self._context.stars or {}).get(id(item.expression))
            if columns is None:
                yield item
            else:
                yield from (nodes.SelectItem(identifier(*parts)) for parts in columns)
