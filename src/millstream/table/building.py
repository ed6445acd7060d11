"""Queries of the Table API: nodes of the parser over plans that have no text.

What it is: a plan gets a made-up name, a query over that name is built and bound.
What it is not: another binder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from millstream.sql.binder.binding import query_binder
from millstream.sql.parser import nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.statements.session import Session

__all__ = ["HasSession", "bound", "items_of"]


class HasSession(Protocol):
    """What tables need of their environment."""

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


def items_of(fields: Sequence[Any]) -> tuple[nodes.SelectItem, ...]:
    """Items of SELECT: expressions, or names of columns."""
    found = []
    for each in fields:
        if isinstance(each, str):
            node = nodes.Star() if each == "*" else nodes.identifier(each)
            found.append(nodes.SelectItem(node))
        else:
            found.append(each.select_item())
    return tuple(found)
