"""Columns that nobody reads, left out below joins, Top-N, deduplication and OVER.

What it is: a pass over a physical plan, ahead of the planning of changes.  What a Calc reads, and
what these need themselves (keys, conditions, orders, upsert keys), is what crosses their exchanges
and is kept in their state; the rest is dropped in front of the exchange.
What it is not: for other nodes, which get all that they got; nor for what two nodes read, which
keeps all its columns.

Read next: ``sql/planner/changelog.py``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.expressions.nodes import InputReference, transform
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import columns_of
from millstream.sql.planner.keys import upsert_keys
from millstream.sql.planner.logical import references
from millstream.types.logical_types import RowType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.logical import AggregateCall, SortKey
    from millstream.sql.planner.physical import PhysicalNode

    Node = TypeVar("Node", bound=PhysicalNode)

__all__ = ["prune_columns"]


def prune_columns(plans: Sequence[Node]) -> list[Node]:
    """Plans with the same rows at their ends; what they share stays shared."""
    pruner = _Pruner(plans)
    return [pruner.whole(plan) for plan in plans]


class _Pruner:
    def __init__(self, plans: Iterable[PhysicalNode]) -> None:
        #: How many nodes read a node.
        self._readers: Counter[int] = Counter()
        self._done: dict[int, PhysicalNode] = {}
        todo, seen = list(plans), set()
        while todo:
            node = todo.pop()
            if id(node) not in seen:
                seen.add(id(node))
                todo += node.inputs
                self._readers.update(map(id, node.inputs))

    def whole(self, node: Node) -> Node:
        """The node with all its columns, over less."""
        known = self._done.get(id(node))
        if known is None:
            known = self._whole(node)
            self._done[id(node)] = known
        return known  # type: ignore[return-value]

    def _whole(self, node: PhysicalNode) -> PhysicalNode:
        if isinstance(node, _NARROWED):
            return self._narrowed(node, set(range(len(node.row))))[0]
        inputs = tuple(self.whole(each) for each in node.inputs)
        if all(map(_is_same, inputs, node.inputs)):
            return node
        return replace(node, inputs=inputs, kinds=None)

    def narrow(self, node: PhysicalNode, wanted: set[int]) -> tuple[PhysicalNode, list[int]]:
        """The node with at least the columns that are wanted, and which of its own these are."""
        if self._readers[id(node)] > 1 or not isinstance(node, _NARROWED):
            return self.whole(node), list(range(len(node.row)))
        return self._narrowed(node, wanted)

    def _narrowed(self, node: PhysicalNode, wanted: set[int]) -> tuple[PhysicalNode, list[int]]:
        if isinstance(node, physical.Calc):
            return self._calc(node, wanted)
        if isinstance(node, physical.Exchange):
            return self._exchange(node, wanted)
        if isinstance(node, physical.Join):
            return self._join(node, wanted)
        if isinstance(node, physical.OverAggregate):
            return self._over(node, wanted)
        if isinstance(node, physical.Rank):
            return self._rank(node, wanted)
        assert isinstance(node, physical.Deduplicate)  # noqa: S101 - the last of _NARROWED
        return self._deduplicate(node, wanted)

    def _calc(self, node: physical.Calc, wanted: set[int]) -> tuple[PhysicalNode, list[int]]:
        kept = sorted(wanted) or [0]
        read = [node.projections[each] for each in kept]
        conditions = [] if node.condition is None else [node.condition]
        below, places = self.narrow(
            node.input, {column for each in (*read, *conditions) for column in columns_of(each)}
        )
        if _is_same(below, node.input) and len(kept) == len(node.row):
            return node, kept
        made = replace(
            node,
            row=_row(node, kept),
            inputs=(below,),
            projections=tuple(_remapped(each, places) for each in read),
            condition=None if node.condition is None else _remapped(node.condition, places),
            kinds=None,
        )
        is_identity = made.condition is None and made.row == below.row
        if is_identity and list(made.projections) == references(below.row):
            return below, kept
        return made, kept

    def _exchange(
        self, node: physical.Exchange, wanted: set[int]
    ) -> tuple[PhysicalNode, list[int]]:
        needed = (wanted | set(node.keys or ())) or {0}
        below, kept = self.narrow(node.input, needed)
        if len(needed) < len(kept):
            chosen = [at for at, column in enumerate(kept) if column in needed]
            columns = references(below.row)
            kept = sorted(needed)
            below = physical.Calc(
                row=_row(below, chosen),
                inputs=(below,),
                projections=tuple(columns[each] for each in chosen),
            )
        if _is_same(below, node.input):
            return node, kept
        keys = None if node.keys is None else tuple(map(kept.index, node.keys))
        return replace(node, row=below.row, inputs=(below,), keys=keys, kinds=None), kept

    def _join(self, node: physical.Join, wanted: set[int]) -> tuple[PhysicalNode, list[int]]:
        left, right = node.inputs
        width = len(left.row)
        read = wanted | (set() if node.condition is None else columns_of(node.condition))
        needed = (
            {each for each in read if each < width} | set(node.left_keys) | _unique(left),
            {each - width for each in read if each >= width}
            | set(node.right_keys)
            | _unique(right),
        )
        (left, lefts), (right, rights) = (
            self.narrow(each, need or {0}) for each, need in zip(node.inputs, needed, strict=True)
        )
        if _is_same(left, node.inputs[0]) and _is_same(right, node.inputs[1]):
            return node, list(range(len(node.row)))
        both = [*lefts, *(each + width for each in rights)]
        kept = lefts if node.join.left_only else both
        made = replace(
            node,
            row=_row(node, kept),
            inputs=(left, right),
            left_keys=tuple(map(lefts.index, node.left_keys)),
            right_keys=tuple(map(rights.index, node.right_keys)),
            condition=None if node.condition is None else _remapped(node.condition, both),
            kinds=None,
        )
        return made, kept

    def _rank(self, node: physical.Rank, wanted: set[int]) -> tuple[PhysicalNode, list[int]]:
        def moved(kept: Sequence[int]) -> PhysicalNode:
            return replace(
                node, partition=_places(node.partition, kept), order=_order(node.order, kept)
            )

        return self._extending(node, wanted, _read_by(node), moved)

    def _deduplicate(
        self, node: physical.Deduplicate, wanted: set[int]
    ) -> tuple[PhysicalNode, list[int]]:
        def moved(kept: Sequence[int]) -> PhysicalNode:
            rowtime = None if node.rowtime is None else kept.index(node.rowtime)
            return replace(node, keys=_places(node.keys, kept), rowtime=rowtime)

        read = {*node.keys, *(() if node.rowtime is None else (node.rowtime,))}
        return self._extending(node, wanted, read, moved)

    def _over(
        self, node: physical.OverAggregate, wanted: set[int]
    ) -> tuple[PhysicalNode, list[int]]:
        def moved(kept: Sequence[int]) -> PhysicalNode:
            return replace(
                node,
                partition=_places(node.partition, kept),
                order=_order(node.order, kept),
                calls=tuple(replace(each, call=_call(each.call, kept)) for each in node.calls),
            )

        calls = [each.call for each in node.calls]
        read = _read_by(node) | {column for call in calls for column in call.arguments}
        read |= {call.filter for call in calls if call.filter is not None}
        return self._extending(node, wanted, read, moved)

    def _extending(
        self,
        node: physical.Rank | physical.Deduplicate | physical.OverAggregate,
        wanted: set[int],
        read: set[int],
        moved: Callable[[Sequence[int]], PhysicalNode],
    ) -> tuple[PhysicalNode, list[int]]:
        """A node whose row is that of its input and what it adds behind.

        ``read`` are the columns that it needs itself, ``moved`` the node over a row of the columns
        that are given.
        """
        width = len(node.input.row)
        needed = {each for each in wanted if each < width} | read | _unique(node.input)
        below, kept = self.narrow(node.input, needed or {0})
        if _is_same(below, node.input):
            return node, list(range(len(node.row)))
        shown = [*kept, *range(width, len(node.row))]
        made = replace(moved(kept), row=_row(node, shown), inputs=(below,), kinds=None)
        return made, shown


_NARROWED: Final = (
    physical.Calc,
    physical.Exchange,
    physical.Join,
    physical.Rank,
    physical.Deduplicate,
    physical.OverAggregate,
)


def _read_by(node: physical.Rank | physical.OverAggregate) -> set[int]:
    return {*node.partition, *(each.column for each in node.order)}


def _places(columns: Iterable[int], kept: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(kept.index, columns))


def _order(order: Iterable[SortKey], kept: Sequence[int]) -> tuple[SortKey, ...]:
    return tuple(replace(each, column=kept.index(each.column)) for each in order)


def _call(call: AggregateCall, kept: Sequence[int]) -> AggregateCall:
    return replace(
        call,
        arguments=tuple(map(kept.index, call.arguments)),
        filter=None if call.filter is None else kept.index(call.filter),
    )


def _is_same(one: PhysicalNode, other: PhysicalNode) -> bool:
    return one is other


def _row(node: PhysicalNode, kept: Sequence[int]) -> RowType:
    fields = node.row.fields
    return RowType(tuple(fields[each] for each in kept), nullable=False)


def _unique(node: PhysicalNode) -> set[int]:
    """The columns of its upsert keys, by which changes are told apart."""
    return {column for key in upsert_keys(node) for column in key}


def _remapped(expression: Expression, kept: Sequence[int]) -> Expression:
    """The expression over a row that has these columns alone."""

    def change(each: Expression) -> Expression:
        if isinstance(each, InputReference):
            return replace(each, index=kept.index(each.index))
        return each

    return transform(expression, change)
