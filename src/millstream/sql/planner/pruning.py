"""Pruning of columns, and reuse of common sub-plans.

Columns are pruned before changelog planning.  Top-down: the columns of each node that its readers
use.  Bottom-up: nodes with those columns alone.  The columns that a Calc reads, and those that
joins, ranks and others need themselves (keys, conditions, orders, upsert keys), determine what
tables are asked for, what crosses exchanges and what is kept in state.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.expressions.nodes import Call
from millstream.sql.planner.calcs import is_deterministic
from millstream.sql.planner.physical import nodes_of
from millstream.sql.planner.scans import TableSourceScan

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from millstream.sql.catalog.objects import CatalogTable
    from millstream.sql.planner.physical import Narrowed, PhysicalNode
    from millstream.sql.planner.sinks import SinkNode

    Node = TypeVar("Node", bound=PhysicalNode)


def prune_columns(plans: list[SinkNode]) -> list[SinkNode]:
    """Remove columns that nobody reads; shared nodes stay shared."""
    pruner = _Pruner(plans)
    return [pruner.narrowed(plan)[0] for plan in plans]  # type: ignore[misc]


class _Pruner:
    def __init__(self, plans: Sequence[PhysicalNode]) -> None:
        #: Columns of a node that somebody reads.
        self._wanted = {id(plan): set(range(len(plan.row))) for plan in plans}
        self._done: dict[int, Narrowed] = {}
        for node in nodes_of(plans):
            wanted = self._wanted.setdefault(id(node), set())
            for below, needed in zip(node.inputs, node.needed(wanted), strict=True):
                self._wanted.setdefault(id(below), set()).update(needed)

    def narrowed(self, node: PhysicalNode) -> Narrowed:
        """The node with at least the columns that are wanted, and which of its own these are."""
        if id(node) not in self._done:
            self._done[id(node)] = node.narrowed(self._wanted[id(node)], self.narrowed)
        return self._done[id(node)]


#: What the planner sets later, or what is looked at by itself.
_NOT_COMPARED: Final = frozenset({"inputs", "kinds", "source", "table"})


def share_subplans(plans: list[SinkNode]) -> list[SinkNode]:
    """Make equal sub-plans one."""
    sharing = _Sharing()
    return [sharing.of(plan) for plan in plans]


class _Sharing:
    def __init__(self) -> None:
        self._done: dict[int, PhysicalNode] = {}
        self._known: dict[Hashable, PhysicalNode] = {}
        #: The tables that are read, none of which equals another.
        self._tables: list[CatalogTable] = []

    def of(self, node: Node) -> Node:
        """Return the node that replaces this one."""
        found = self._done.get(id(node))
        if found is None:
            inputs = tuple(self.of(each) for each in node.inputs)
            found = node
            if any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
                found = replace(node, inputs=inputs)
            key = self._key(found)
            if key is not None:
                found = self._known.setdefault(key, found)
            self._done[id(node)] = found
        return found  # type: ignore[return-value]

    def _key(self, node: PhysicalNode) -> Hashable | None:
        """Return what nodes are equal by; None: it equals no other."""
        if not node.is_shared or _reads_partitions(node):
            return None
        names = [each.name for each in fields(node) if each.name not in _NOT_COMPARED]
        values = [getattr(node, name) for name in names]
        if not all(map(_is_certain, values)):
            return None
        if isinstance(node, TableSourceScan):
            values.append(self._table(node.table))
        key = (type(node), tuple(values), tuple(map(id, node.inputs)))
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def _table(self, table: CatalogTable) -> int:
        """The number of a table, with what hints say of it."""
        if table not in self._tables:
            self._tables.append(table)
        return self._tables.index(table)


def _reads_partitions(node: PhysicalNode) -> bool:
    """Return whether a filter may spare it files, which another reader's filter wants."""
    return isinstance(node, TableSourceScan) and bool(node.table.partition_keys)


def _is_certain(value: Any) -> bool:
    """Return whether a property gives the same for the same rows."""
    if isinstance(value, tuple):
        return all(map(_is_certain, value))
    return not isinstance(value, Call) or is_deterministic(value)
