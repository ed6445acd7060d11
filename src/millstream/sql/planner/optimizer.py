"""The optimizer: passes over physical plans, in the order in which they run.

A pass takes the plans of all sinks of a job and returns plans with the same results.  It may change
nodes in place: earlier plans are not used again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.configuration import options
from millstream.contracts.source import Boundedness
from millstream.errors import ValidationError
from millstream.sql.planner.aggregates import aggregate_in_two_phases
from millstream.sql.planner.calcs import exchange
from millstream.sql.planner.changelog import check_determinism, plan_changes
from millstream.sql.planner.joins import compact_join_changes
from millstream.sql.planner.physical import INSERTS, kinds_of, nodes_of
from millstream.sql.planner.pruning import prune_columns, share_subplans
from millstream.sql.planner.scans import DataStreamScan, TableSourceScan, prune_partitions
from millstream.sql.planner.sinks import SinkNode, SinkRules
from millstream.sql.planner.sorts import FinalRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.configuration.configuration import Configuration
    from millstream.sql.planner.physical import PhysicalNode


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
