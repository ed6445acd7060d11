"""Parts of plans that are the same: they run once, and all that read them read one stream.

What it is: a pass over physical plans, ahead of the planning of changes, from the leaves up.  Nodes
of one kind with equal properties over the same inputs become one node.
What it is not: for what may differ although it is written alike: functions that are not
deterministic, rows of other systems at the time of asking (lookup joins).

Read next: ``sql/planner/pruning.py``.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.expressions.nodes import Call
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import is_deterministic
from millstream.sql.planner.physical_joins import IntervalJoin
from millstream.sql.planner.physical_windows import WindowAggregate, WindowJoin, WindowRank

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from millstream.sql.catalog.objects import CatalogTable
    from millstream.sql.planner.physical import PhysicalNode

    Node = TypeVar("Node", bound=PhysicalNode)

__all__ = ["share_parts"]

#: What the planner sets later, or what is looked at by itself.
_NOT_COMPARED: Final = frozenset({"inputs", "kinds", "source", "table"})
_SHARED: Final = (
    physical.TableSourceScan,
    physical.WatermarkAssigner,
    physical.Calc,
    physical.Exchange,
    physical.GroupAggregate,
    physical.WindowTableFunction,
    WindowAggregate,
    physical.Deduplicate,
    physical.Rank,
    physical.ChangelogNormalize,
    physical.Join,
    IntervalJoin,
    physical.Union,
    WindowJoin,
    WindowRank,
)


def share_parts(plans: Sequence[Node]) -> list[Node]:
    """Plans with the same rows at their ends, in which equal parts are one."""
    sharing = _Sharing()
    return [sharing.of(plan) for plan in plans]


class _Sharing:
    def __init__(self) -> None:
        self._done: dict[int, PhysicalNode] = {}
        self._known: dict[Hashable, PhysicalNode] = {}
        #: The tables that are read, none of which equals another.
        self._tables: list[CatalogTable] = []

    def of(self, node: Node) -> Node:
        """The node that stands for this one."""
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
        """What nodes are equal by; None: it equals no other."""
        if not isinstance(node, _SHARED) or _reads_partitions(node):
            return None
        names = [each.name for each in fields(node) if each.name not in _NOT_COMPARED]
        values = [getattr(node, name) for name in names]
        if not all(map(_is_certain, values)):
            return None
        if isinstance(node, physical.TableSourceScan):
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
    """Whether a filter may spare it files, which another reader's filter wants."""
    return isinstance(node, physical.TableSourceScan) and bool(node.table.partition_keys)


def _is_certain(value: Any) -> bool:
    """Whether a property gives the same for the same rows."""
    if isinstance(value, tuple):
        return all(map(_is_certain, value))
    return not isinstance(value, Call) or is_deterministic(value)
