"""Pruning of columns and partitions, and reuse of common sub-plans.

Columns are pruned before changelog planning.  Top-down: the columns of each node that its readers
use.  Bottom-up: nodes with those columns alone.  The columns that a Calc reads, and those that
joins, ranks and others need themselves (keys, conditions, orders, upsert keys), determine what
tables are asked for, what crosses exchanges and what is kept in state.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.connectors.formats.tables.codec import row_of_columns
from millstream.expressions.evaluator import is_deterministic
from millstream.expressions.nodes import Call, InputReference, transform, walk
from millstream.sql.catalog.connectors import INSERT_ONLY
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import columns_of, conjunction, conjuncts
from millstream.sql.planner.calcs import is_deterministic as calcs_is_deterministic
from millstream.sql.planner.changelog import upsert_keys
from millstream.sql.planner.logical import references
from millstream.sql.planner.physical import (
    IntervalJoin,
    LookupJoin,
    WindowAggregate,
    WindowJoin,
    WindowRank,
)
from millstream.types.logical_types import RowType

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.sql.planner.logical import AggregateCall, SortKey
    from millstream.sql.planner.physical import PhysicalNode, SinkNode

    Node = TypeVar("Node", bound=PhysicalNode)


#: Of a node of which nobody reads a column: rows are counted all the same.
_SOME: Final = frozenset({0})


def prune_columns(plans: list[SinkNode]) -> list[SinkNode]:
    """Remove columns that nobody reads; shared nodes stay shared."""
    pruner = _Pruner(plans)
    return [pruner.narrowed(plan)[0] for plan in plans]  # type: ignore[misc]


class _Pruner:
    def __init__(self, plans: Sequence[PhysicalNode]) -> None:
        #: Columns of a node that somebody reads.
        self._wanted: dict[int, set[int]] = {id(plan): _all(plan) for plan in plans}
        self._done: dict[int, tuple[PhysicalNode, list[int]]] = {}
        for node in physical.nodes_of(plans):
            wanted = self._wanted.setdefault(id(node), set())
            for below, needed in zip(node.inputs, _needed(node, wanted), strict=True):
                self._wanted.setdefault(id(below), set()).update(needed)

    def narrowed(self, node: PhysicalNode) -> tuple[PhysicalNode, list[int]]:
        """The node with at least the columns that are wanted, and which of its own these are."""
        known = self._done.get(id(node))
        if known is None:
            change = _NARROWED.get(type(node))
            wanted = self._wanted[id(node)]
            known = self._whole(node) if change is None else change(self, node, wanted)
            self._done[id(node)] = known
        return known

    def _whole(self, node: PhysicalNode) -> tuple[PhysicalNode, list[int]]:
        inputs = tuple(self.narrowed(each)[0] for each in node.inputs)
        if any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
            node = replace(node, inputs=inputs, kinds=None)
        return node, list(range(len(node.row)))

    def _scan(
        self, node: physical.TableSourceScan, wanted: set[int]
    ) -> tuple[PhysicalNode, list[int]]:
        if node.changes != INSERT_ONLY:
            wanted = wanted | {node.row.index_of(each) for each in node.table.schema.key_columns}
        if not wanted:
            row = row_of_columns(node.row, ())
            wanted = {node.row.index_of(name) for name in row.names}
        kept = sorted(wanted)
        names = [node.row.names[each] for each in kept]
        source = node.source.with_columns(names) if len(kept) < len(node.row) else None
        if source is None:
            return node, list(range(len(node.row)))
        return replace(node, row=_row(node, kept), source=source), kept

    def _calc(self, node: physical.Calc, wanted: set[int]) -> tuple[PhysicalNode, list[int]]:
        kept = sorted(wanted or _SOME)
        read = [node.projections[each] for each in kept]
        below, places = self.narrowed(node.input)
        if below is node.input and len(kept) == len(node.row):
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
        (needed,) = _needed(node, wanted)
        below, kept = self.narrowed(node.input)
        if len(needed) < len(kept):
            chosen = [at for at, column in enumerate(kept) if column in needed]
            columns = references(below.row)
            kept = sorted(needed)
            below = physical.Calc(
                row=_row(below, chosen),
                inputs=(below,),
                projections=tuple(columns[each] for each in chosen),
            )
        if below is node.input:
            return node, kept
        keys = None if node.keys is None else _places(node.keys, kept)
        return replace(node, row=below.row, inputs=(below,), keys=keys, kinds=None), kept

    def _join(self, node: physical.Join, wanted: set[int]) -> tuple[PhysicalNode, list[int]]:
        del wanted
        width = len(node.inputs[0].row)
        (left, lefts), (right, rights) = map(self.narrowed, node.inputs)
        if left is node.inputs[0] and right is node.inputs[1]:
            return node, list(range(len(node.row)))
        both = [*lefts, *(each + width for each in rights)]
        kept = lefts if node.join.left_only else both
        made = replace(
            node,
            row=_row(node, kept),
            inputs=(left, right),
            left_keys=_places(node.left_keys, lefts),
            right_keys=_places(node.right_keys, rights),
            condition=None if node.condition is None else _remapped(node.condition, both),
            kinds=None,
        )
        return made, kept

    def _rank(self, node: physical.Rank, wanted: set[int]) -> tuple[PhysicalNode, list[int]]:
        def moved(kept: Sequence[int]) -> PhysicalNode:
            partition, order = _places(node.partition, kept), _order(node.order, kept)
            return replace(node, partition=partition, order=order)

        return self._extending(node, wanted, moved)

    def _deduplicate(
        self, node: physical.Deduplicate, wanted: set[int]
    ) -> tuple[PhysicalNode, list[int]]:
        def moved(kept: Sequence[int]) -> PhysicalNode:
            rowtime = None if node.rowtime is None else kept.index(node.rowtime)
            return replace(node, keys=_places(node.keys, kept), rowtime=rowtime)

        return self._extending(node, wanted, moved)

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

        return self._extending(node, wanted, moved)

    def _normalize(
        self, node: physical.ChangelogNormalize, wanted: set[int]
    ) -> tuple[PhysicalNode, list[int]]:
        def moved(kept: Sequence[int]) -> PhysicalNode:
            return replace(node, keys=_places(node.keys, kept))

        return self._extending(node, wanted, moved)

    def _lookup(self, node: LookupJoin, wanted: set[int]) -> tuple[PhysicalNode, list[int]]:
        """Of the table, too, with what is read alone."""
        width = len(node.input.row)
        below, lefts = self.narrowed(node.input)
        read = wanted if node.condition is None else wanted | columns_of(node.condition)
        rights = sorted(each - width for each in read if each >= width)
        held = {node.table_row.index_of(name) for name in node.names}
        if not rights:
            # Rather one that is asked for anyway.
            told = [at for at, each in enumerate(node.projections) if columns_of(each) <= held]
            (cheapest,) = row_of_columns(
                _fields(node.right_row, told) if told else node.right_row, ()
            ).names
            rights = [node.right_row.index_of(cheapest)]
        projections = [node.projections[each] for each in rights]
        held = held.union(*map(columns_of, projections))
        if node.table_condition is not None:
            held |= columns_of(node.table_condition)
        asked, kept = sorted(held), [*lefts, *(each + width for each in rights)]
        if len(asked) == len(node.table_row) and len(kept) == len(node.row):
            return replace(node, inputs=(below,), kinds=None), kept
        table = node.table_condition
        made = replace(
            node,
            row=_row(node, kept),
            inputs=(below,),
            lookup=node.lookup.with_columns([node.table_row.names[each] for each in asked]),
            table_row=_fields(node.table_row, asked),
            keys=_places(node.keys, lefts),
            right_row=_fields(node.right_row, rights),
            projections=tuple(_remapped(each, asked) for each in projections),
            table_condition=None if table is None else _remapped(table, asked),
            condition=None if node.condition is None else _remapped(node.condition, kept),
            kinds=None,
        )
        return made, kept

    def _watermark(
        self, node: physical.WatermarkAssigner, wanted: set[int]
    ) -> tuple[PhysicalNode, list[int]]:
        def moved(kept: Sequence[int]) -> PhysicalNode:
            expression = _remapped(node.expression, kept)
            return replace(node, rowtime=kept.index(node.rowtime), expression=expression)

        return self._extending(node, wanted, moved)

    def _extending(
        self, node: PhysicalNode, wanted: set[int], moved: Callable[[Sequence[int]], PhysicalNode]
    ) -> tuple[PhysicalNode, list[int]]:
        """A node whose row is that of its input and what it adds behind.

        ``moved`` is the node over a row of the columns that are given.
        """
        del wanted
        width = len(node.input.row)
        below, kept = self.narrowed(node.input)
        shown = [*kept, *range(width, len(node.row))]
        if below is node.input:
            return node, shown
        made = replace(moved(kept), row=_row(node, shown), inputs=(below,), kinds=None)
        return made, shown


_NARROWED: Final[dict[type, Callable[[_Pruner, Any, set[int]], tuple[PhysicalNode, list[int]]]]] = {
    physical.TableSourceScan: _Pruner._scan,  # noqa: SLF001 - the table of this class
    physical.WatermarkAssigner: _Pruner._watermark,  # noqa: SLF001
    physical.ChangelogNormalize: _Pruner._normalize,  # noqa: SLF001
    physical.Calc: _Pruner._calc,  # noqa: SLF001
    physical.Exchange: _Pruner._exchange,  # noqa: SLF001
    physical.Join: _Pruner._join,  # noqa: SLF001
    LookupJoin: _Pruner._lookup,  # noqa: SLF001
    physical.Rank: _Pruner._rank,  # noqa: SLF001
    physical.Deduplicate: _Pruner._deduplicate,  # noqa: SLF001
    physical.OverAggregate: _Pruner._over,  # noqa: SLF001
}


# -- what nodes read -----------------------------------------------------------------------------


def _needed(node: PhysicalNode, wanted: set[int]) -> list[set[int]]:
    """The columns of its inputs that a node reads if some of its own are wanted."""
    need = _NEEDED.get(type(node))
    return [_all(each) for each in node.inputs] if need is None else need(node, wanted)


def _of_calc(node: Any, wanted: set[int]) -> list[set[int]]:
    read = {column for at in wanted or _SOME for column in columns_of(node.projections[at])}
    return [read if node.condition is None else read | columns_of(node.condition)]


def _of_exchange(node: Any, wanted: set[int]) -> list[set[int]]:
    return [(wanted | set(node.keys or ())) or {*_SOME}]


def _of_watermark(node: Any, wanted: set[int]) -> list[set[int]]:
    return [wanted | {node.rowtime} | columns_of(node.expression)]


def _of_normalize(node: Any, wanted: set[int]) -> list[set[int]]:
    return [wanted | set(node.keys)]


def _of_join(node: Any, wanted: set[int]) -> list[set[int]]:
    left, right = node.inputs
    width = len(left.row)
    read = wanted | (set() if node.condition is None else columns_of(node.condition))
    lefts = {each for each in read if each < width} | set(node.left_keys) | _unique(left)
    rights = {each - width for each in read if each >= width} | set(node.right_keys)
    return [lefts or {*_SOME}, (rights | _unique(right)) or {*_SOME}]


def _of_lookup(node: Any, wanted: set[int]) -> list[set[int]]:
    width = len(node.input.row)
    read = wanted if node.condition is None else wanted | columns_of(node.condition)
    return [{each for each in read if each < width} | set(node.keys) | _unique(node.input)]


def _of_rank(node: Any, wanted: set[int]) -> list[set[int]]:
    read = wanted - {len(node.input.row)} | set(node.partition) | _unique(node.input)
    return [(read | {each.column for each in node.order}) or {*_SOME}]


def _of_deduplicate(node: Any, wanted: set[int]) -> list[set[int]]:
    read = wanted | set(node.keys) | _unique(node.input)
    return [(read if node.rowtime is None else read | {node.rowtime}) or {*_SOME}]


def _of_over(node: Any, wanted: set[int]) -> list[set[int]]:
    width = len(node.input.row)
    calls = [each.call for each in node.calls]
    read = {each for each in wanted if each < width} | set(node.partition)
    read |= {each.column for each in node.order} | _unique(node.input)
    read |= {column for call in calls for column in call.arguments}
    return [(read | {each.filter for each in calls if each.filter is not None}) or {*_SOME}]


_NEEDED: Final[dict[type, Callable[[Any, set[int]], list[set[int]]]]] = {
    physical.Calc: _of_calc,
    physical.Exchange: _of_exchange,
    physical.WatermarkAssigner: _of_watermark,
    physical.ChangelogNormalize: _of_normalize,
    physical.Join: _of_join,
    LookupJoin: _of_lookup,
    physical.Rank: _of_rank,
    physical.Deduplicate: _of_deduplicate,
    physical.OverAggregate: _of_over,
}


def _places(columns: Iterable[int], kept: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(kept.index, columns))


def _order(order: Iterable[SortKey], kept: Sequence[int]) -> tuple[SortKey, ...]:
    return tuple(replace(each, column=kept.index(each.column)) for each in order)


def _call(call: AggregateCall, kept: Sequence[int]) -> AggregateCall:
    return replace(
        call,
        arguments=_places(call.arguments, kept),
        filter=None if call.filter is None else kept.index(call.filter),
    )


def _all(node: PhysicalNode) -> set[int]:
    return set(range(len(node.row)))


def _row(node: PhysicalNode, kept: Sequence[int]) -> RowType:
    return _fields(node.row, kept)


def _fields(row: RowType, kept: Sequence[int]) -> RowType:
    return RowType(tuple(row.fields[each] for each in kept), nullable=row.is_nullable)


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


def prune_partitions(plans: list[SinkNode]) -> list[SinkNode]:
    """Make scans skip partitions that the filter of their only reader excludes."""
    readers: dict[int, list[PhysicalNode]] = {}
    scans: dict[int, physical.TableSourceScan] = {}
    for node in physical.nodes_of(plans):
        for below in node.inputs:
            readers.setdefault(id(below), []).append(node)
            if isinstance(below, physical.TableSourceScan):
                scans[id(below)] = below
    for number, scan in scans.items():
        above = readers[number]
        if scan.table.partition_keys and len(above) == 1 and isinstance(above[0], physical.Calc):
            _prune(scan, above[0])
    return plans


def _prune(scan: physical.TableSourceScan, calc: physical.Calc) -> None:
    keys = {scan.row.index_of(name) for name in scan.table.partition_keys}
    condition = conjunction([e for e in conjuncts(calc.condition) if _is_about(e, keys)])
    if condition is None:
        return
    pruned = scan.source.with_partitions(condition)
    if pruned is not None:
        scan.source, scan.partitions = pruned, condition


def _is_about(condition: Expression, keys: set[int]) -> bool:
    """Whether some columns decide a condition, and a function of a user is not asked."""
    columns = columns_of(condition)
    of_user = any(isinstance(e, Call) and e.definition is not None for e in walk(condition))
    return bool(columns) and columns <= keys and not of_user and is_deterministic(condition)


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
    return not isinstance(value, Call) or calcs_is_deterministic(value)
