"""Pieces of lowering: how parallel what is read is, and plain words of the runtime.

What it is: what several modules of this package and the facade share.
What it is not: the lowering (``sql/lowering/lowering.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.contracts.source import Boundedness
from millstream.errors import UnsupportedSqlError, ValidationError
from millstream.graph.transformation import (
    PhysicalTransformation,
    SideOutputTransformation,
    SourceTransformation,
    UnionTransformation,
)
from millstream.runtime.columnar.aggregate_kernels import check_user_aggregate
from millstream.runtime.operators.table.specs import AggregateCall, SortColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.graph.transformation import Transformation
    from millstream.sql.planner.physical import SinkNode


def parallelism_of(below: Transformation) -> tuple[int | None, bool]:
    """How parallel what is read is: a number (None: as the job), and whether it is alone.

    Rows that are dealt out anew lose their order, and changes of one row with it.
    """
    if isinstance(below, PhysicalTransformation):
        return below.parallelism, below.non_parallel
    if isinstance(below, UnionTransformation):
        members = [parallelism_of(each) for each in below.members]
        if any(alone for _, alone in members):
            return None, True
        found = {parallelism for parallelism, _ in members}
        return (found.pop(), False) if len(found) == 1 else (1, False)
    if isinstance(below, SideOutputTransformation):
        return parallelism_of(below.input)
    return None, False


def sink_parallelism(node: SinkNode, below: Transformation) -> tuple[int | None, bool]:
    """How parallel a sink is, as ``parallelism_of`` says it.

    Raises:
        UnsupportedSqlError: its option says it, and changes would lose their order.
    """
    wanted = None if node.sink is None else node.sink.parallelism
    parallelism, alone = parallelism_of(below)
    if wanted is None:
        return parallelism, alone
    if not node.input.is_insert_only and wanted != (1 if alone else parallelism) != 1:
        message = (
            f"'sink.parallelism' of table sink '{node.name}' is not in this release for "
            "queries that update or delete rows; it would lose their order."
        )
        raise UnsupportedSqlError(message)
    return wanted, False


def require_bounded(node: SinkNode, below: Transformation) -> None:
    """Refuse INSERT OVERWRITE of what never ends: what was there is replaced at the end.

    Raises:
        ValidationError: a source has no end.
    """
    seen: set[int] = set()
    left = [below]
    while left:
        each = left.pop()
        if each.id in seen:
            continue
        seen.add(each.id)
        left += each.inputs
        if isinstance(each, SourceTransformation):
            source = each.source
            if source is None or source.boundedness is not Boundedness.BOUNDED:
                message = (
                    f"Streaming mode not support overwrite: '{each.name}', which INSERT OVERWRITE "
                    f"of '{node.name}' reads, has no end."
                )
                raise ValidationError(message)


def aggregate_calls(
    calls: Sequence[Any],
    parameters: Mapping[str, str] | None = None,
    *,
    retracts: bool = False,
    merges: bool = False,
) -> tuple[AggregateCall, ...]:
    """Aggregates as the runtime takes them.

    Args:
        calls: of the plan.
        parameters: of the job, for functions of users.
        retracts: whether rows may be taken back.
        merges: whether accumulators are put together.

    Raises:
        ProgramError: a function of a user lacks what that needs.
    """
    found = []
    for call in calls:
        user = call.user
        if user is not None:
            check_user_aggregate(user, retracts=retracts, merges=merges)
            user = replace(user, job_parameters=dict(parameters or {}))
        found.append(
            AggregateCall(
                call.function, call.arguments, call.type, call.filter, call.distinct, user=user
            )
        )
    return tuple(found)


def sort_columns(order: Sequence[Any]) -> tuple[SortColumn, ...]:
    """An order as the runtime takes it."""
    return tuple(SortColumn(each.column, each.descending, each.nulls_first) for each in order)
