"""The optimizer: passes over physical plans, in the order in which they run.

A pass takes the plans of all sinks of a job and returns plans with the same results.  It may change
nodes in place: earlier plans are not used again.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.configuration import options
from millstream.contracts.source import Boundedness
from millstream.errors import ValidationError
from millstream.expressions.nodes import Call
from millstream.sql.planner.aggregates import aggregate_in_two_phases
from millstream.sql.planner.calcs import exchange, is_deterministic
from millstream.sql.planner.changelog import check_determinism, plan_changes
from millstream.sql.planner.joins import compact_join_changes
from millstream.sql.planner.physical import INSERTS, kinds_of, nodes_of
from millstream.sql.planner.scans import DataStreamScan, TableSourceScan, prune_partitions
from millstream.sql.planner.sinks import SinkNode, SinkRules
from millstream.sql.planner.sorts import FinalRows

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.sql.planner.physical import Narrowed, PhysicalNode

    Node = TypeVar("Node", bound=PhysicalNode)


Plans = list[SinkNode]


def optimize(plans: Plans, configuration: Configuration, *, is_batch: bool) -> Plans:
    """Run all passes that the options enable.

    Args:
        plans: of all sinks of a job, as the converter makes them.
        configuration: of the session.
        is_batch: whether the job runs in batch mode.

    Raises:
        ValidationError: a plan cannot be executed, or a sink does not accept its changes.
    """
    for each in _passes(configuration, is_batch=is_batch):
        plans = each(plans)
    return plans


def _passes(configuration: Configuration, *, is_batch: bool) -> Iterator[Callable[[Plans], Plans]]:
    get = configuration.get
    if is_batch:
        yield plan_batch
    if get(options.REUSE_SUB_PLANS):
        yield share_subplans
    yield prune_columns
    rules = SinkRules(
        materialize=get(options.UPSERT_MATERIALIZE),
        require_on_conflict=not is_batch and get(options.REQUIRE_ON_CONFLICT),
    )
    yield partial(plan_changes, rules=rules)
    if get(options.NON_DETERMINISTIC_UPDATES) != "IGNORE":
        yield partial(check_determinism, is_batch=is_batch)
    if get(options.AGG_PHASE_STRATEGY) != "ONE_PHASE":
        mini_batch = is_batch or get(options.MINI_BATCH)
        yield partial(aggregate_in_two_phases, mini_batch=mini_batch)
    if get(options.MINI_BATCH):
        yield compact_join_changes
    yield prune_partitions


# -- batch mode ----------------------------------------------------------------------------------


def plan_batch(plans: Plans) -> Plans:
    """Make sinks of batch mode receive the final rows, as inserts.

    Raises:
        ValidationError: a table is unbounded or not insert-only, or a node uses processing time.
    """
    made = []
    for node in nodes_of(plans):
        _check_batch(node)
    for sink in plans:
        below = sink.input
        if kinds_of(below) != INSERTS:
            below = FinalRows(row=below.row, inputs=(exchange(below, None),))
        made.append(replace(sink, inputs=(below,)))
    return made


def _check_batch(node: PhysicalNode) -> None:
    if isinstance(node, TableSourceScan):
        _check_table(node)
    elif isinstance(node, DataStreamScan) and node.given != INSERTS:
        message = f"Stream '{node.name}' is not insert-only, which batch mode requires."
        raise ValidationError(message)
    elif node.goes_by_clock:
        message = (
            f"{node.kind} by processing time is not supported in batch mode, in which time stands "
            "still until the input ends."
        )
        raise ValidationError(message)
    any_node: Any = node
    if getattr(node, "state_ttl", None) is not None:
        any_node.state_ttl = None  # the final result does not expire


def _check_table(node: TableSourceScan) -> None:
    name = node.identifier.as_summary_string()
    if node.source.create().boundedness is not Boundedness.BOUNDED:
        message = (
            f"Querying an unbounded table '{name}' in batch mode is not allowed. The table source "
            "is unbounded."
        )
        raise ValidationError(message)
    if node.source.changes != INSERTS:
        message = (
            "Querying a table in batch mode is currently only possible for INSERT-only table "
            f"sources. But the source for table '{name}' produces other changelog messages than "
            "just INSERT."
        )
        raise ValidationError(message)


# -- common sub-plans ---------------------------------------------------------------------------


#: What the planner sets later, or what is looked at by itself.
_NOT_COMPARED: Final = frozenset({"inputs", "kinds", "source", "table"})


def share_subplans(plans: Plans) -> Plans:
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


# -- columns --------------------------------------------------------------------------------------


def prune_columns(plans: Plans) -> Plans:
    """Remove columns that nobody reads; shared nodes stay shared.

    Top-down: the columns of each node that its readers use.  Bottom-up: nodes with those columns
    alone.  The columns that a Calc reads, and those that joins, ranks and others need themselves
    (keys, conditions, orders, upsert keys), determine what tables are asked for, what crosses
    exchanges and what is kept in state.
    """
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
