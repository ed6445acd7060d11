"""Binding: the way into the binder.

What it is: a binder of queries with all its parts, which know each other only through it.
What it is not: any of the parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.sql.binder.queries import Parts, QueryBinder
from millstream.sql.binder.relations import RelationBinder
from millstream.sql.binder.selects import SelectBinder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.binder.scope import BindingContext, Scope
    from millstream.sql.planner.logical import LogicalNode, SortKey


def _select(
    queries: QueryBinder, node: Any, order: Sequence[Any]
) -> tuple[LogicalNode, list[SortKey]]:
    return SelectBinder(queries, node).bind_ordered(order)


def _relation(queries: QueryBinder, node: Any) -> tuple[LogicalNode, Scope]:
    return RelationBinder(queries).bind(node)


_PARTS: Final = Parts(_select, _relation)


def query_binder(context: BindingContext) -> QueryBinder:
    """What binds the queries of a statement."""
    return QueryBinder(context, _PARTS)
