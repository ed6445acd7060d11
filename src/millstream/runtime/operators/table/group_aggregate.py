"""GROUP BY without windows over changelogs, as Flink's GroupAggFunction for whole batches.

State is read and written once per batch and key, as one packed row; the value of each aggregate
after every row of the batch comes from prefix sums over the rows of its key.  Without mini-batches
every row emits its own change: +I first, then -U and +U where the result changes (always, where
state expires: downstream state must not expire earlier), -D when the key has no rows left.  With
mini-batches there is one change per key and batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from millstream.contracts.operator import StateSection
from millstream.errors import TypeMismatchError
from millstream.runtime.columnar.array_utils import changed_rows
from millstream.runtime.columnar.changelog_aggregates import Segments, running_sum, surviving_counts
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.aggregate_calls import Aggregates, SortedRows
from millstream.runtime.operators.table.base import (
    KeyedTableOperator,
    TableOperator,
    changes_of,
    weights_of,
)
from millstream.runtime.operators.table.specs import calls_text
from millstream.state.key_codec import encode_key, key_group
from millstream.state.packed_state import ExpiringRows, PackedValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, OperatorContext, Output
    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.runtime.operators.table.specs import AggregateCall
    from millstream.types.logical_types import RowType


@dataclass(frozen=True)
class GroupAggregateFactory:
    """GROUP BY without windows.  Gives the key columns, then the aggregates."""

    input_type: RowType
    #: None: all rows are one group.
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    #: Whether the input has -U or -D.
    retracts: bool
    update_before: bool
    #: One change per key and batch instead of one per row.
    mini_batch: bool = False
    state_ttl: int = 0
    #: Whether the input is partial aggregates of LocalGroupAggregateFactory (needs mini_batch);
    #: input_type, keys and aggregates are those of the latter.
    merges: bool = False
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        calls = calls_text(self.aggregates)
        details = {"aggregates": calls, "retracts": str(self.retracts).lower()}
        return [StateSection("groups", "packed accumulators by key", details=details)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return GroupAggregateOperator(self)


class GroupAggregateOperator(KeyedTableOperator):
    """Keeps the accumulators of every key, and gives changes of results."""

    gathers_batches: ClassVar[bool] = True

    def __init__(self, plan: GroupAggregateFactory) -> None:
        super().__init__(plan.state_sections()[0])
        self.plan = plan
        self.aggregates = Aggregates(plan.aggregates, plan.input_type, retracts=plan.retracts)
        own = [pa.field("written", pa.int64()), pa.field("rows", pa.int64())]
        self._codec = RowCodec(pa.schema([*own, *self.aggregates.fields]))
        nothing = pa.array([0], pa.int64())
        self._fresh = self._codec.pack([nothing, nothing, *self.aggregates.fresh])[0]
        self.last_only = plan.mini_batch or plan.merges

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._rows = PackedValues(self.keyed_state, "\0groups")
        self.aggregates.open(self.keyed_state, self.runtime_context)
        ttl, at = self.plan.state_ttl, self._codec.first_at
        if ttl:
            expiring = ExpiringRows(self._rows, ttl, at, self.aggregates.forget)
            self.keyed_state.expired.watch(expiring)

    def process_rows(self, batch: Batch) -> None:
        plan = self.plan
        keys = range(len(plan.keys)) if plan.merges else plan.keys
        groups = self.group(batch, tuple(keys))
        is_present, columns = self._read(groups)
        work = _Work(self, batch, groups, is_present, columns)
        if not len(work.segments):
            return
        work.add_up()
        self._write(work)
        work.emit(tuple(keys))

    # State.

    def _read(self, groups: RowGroups) -> tuple[NDArray[np.bool_], list[pa.Array]]:
        """The state of each group, and at the end that of no rows."""
        found = self._rows.get_all(groups.keys)
        is_present = np.array([row is not None for row in found], dtype=np.bool_)
        rows = [row or self._fresh for row in found]
        columns = self._codec.unpack([*rows, self._fresh])
        ttl = self.plan.state_ttl
        if ttl:
            is_over = columns[0].to_numpy()[:-1] + ttl <= self.expiry_time
            for position in np.flatnonzero(is_over & is_present).tolist():
                rows[position] = self._fresh
            is_present &= ~is_over
            columns = self._codec.unpack([*rows, self._fresh])
        return is_present, columns

    def _write(self, work: _Work) -> None:
        """Put the state after the last segment of each key."""
        ends = work.ends_of_groups
        keys = [work.segments.keys[end] for end in ends.tolist()]
        taken = pa.array(ends)
        counts = work.counts_behind[ends]
        written = pa.array(np.full(len(ends), self.expiry_time), pa.int64())
        states = [column.take(taken) for column in work.states]
        rows: list[bytes | None] = list(
            self._codec.pack([written, pa.array(counts, pa.int64()), *states])
        )
        if self.plan.retracts:
            gone = np.flatnonzero(counts == 0).tolist()
            for position in gone:
                rows[position] = None
            self.aggregates.forget([keys[position] for position in gone])
        self._rows.put_all(keys, rows)

    # The one row of an aggregate without keys.

    def end_input(self) -> None:
        """In BATCH mode an aggregate of no rows without keys has a result, too."""
        super().end_input()
        context = self.context
        if self.plan.keys or not context.batch_mode:
            return
        key = encode_key(())
        first, stop = self.keyed_state.key_groups
        is_here = first <= key_group((), context.max_parallelism) < stop
        if is_here and self._rows.get_all([key])[0] is None:
            self.emit_columns(self.aggregates.of_nothing())


class _Work:
    """One batch on its way through the aggregates.

    Rows are in the order of their keys: ``order`` has their positions in the batch.
    """

    def __init__(
        self,
        operator: GroupAggregateOperator,
        batch: Batch,
        groups: RowGroups,
        is_present: NDArray[np.bool_],
        columns: list[pa.Array],
    ) -> None:
        self._operator = operator
        self._plan = operator.plan
        self._last_only = operator.last_only
        self._batch = batch
        self._is_present = is_present
        self._columns = columns
        self.order = groups.order
        self._group_of = groups.group_of_sorted
        self._weights = self._weights_of(batch)[self.order]
        self._counts = columns[1].to_numpy()[:-1]
        begins = np.zeros(len(self.order), dtype=np.bool_)
        begins[groups.starts] = True
        if self._plan.retracts and not self._plan.merges:
            begins = self._leave_out(groups, begins)
        self._cut(groups, begins)

    def _weights_of(self, batch: Batch) -> NDArray[np.int64]:
        if self._plan.merges:
            column = batch.arrow.column(len(self._plan.keys))
            counts: NDArray[np.int64] = column.to_numpy()
            return counts
        kinds = batch.row_kinds
        if kinds is not None and not self._plan.retracts and (kinds & 1).any():
            message = (
                f"operator {self._operator.context.name!r} got a retraction, but its input is"
                " insert-only"
            )
            raise TypeMismatchError(message)
        return weights_of(batch)

    def _leave_out(self, groups: RowGroups, begins: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Leave out what would be taken from nothing; cut where a key has no rows left."""
        whole = Segments(groups.starts, groups.counts, groups.keys, ~self._is_present)
        counts, is_vain = surviving_counts(self._weights, whole, self._counts)
        if not self._last_only:
            begins = begins.copy()
            begins[1:] |= counts[:-1] == 0
        else:  # as Flink does: only where a key has nothing yet
            before = running_sum(
                (self._weights > 0).astype(np.int64), whole, np.zeros(len(groups), np.int64)
            )
            is_vain = (before == 0) & ~self._is_present[self._group_of]
        if is_vain.any():
            kept = np.flatnonzero(~is_vain)
            self.order, self._group_of = self.order[kept], self._group_of[kept]
            self._weights = self._weights[kept]
            # What began with a row that was left out begins with the next one of the group.
            run = np.cumsum(begins)[kept]
            begins = np.ones(len(kept), dtype=np.bool_)
            begins[1:] = run[1:] != run[:-1]
        return begins

    def _cut(self, groups: RowGroups, begins: NDArray[np.bool_]) -> None:
        starts = np.flatnonzero(begins)
        counts = np.diff(np.append(starts, len(self.order)))
        group = self._group_of[starts]
        is_first = np.ones(len(starts), dtype=np.bool_)
        is_first[1:] = group[1:] != group[:-1]
        is_fresh = ~is_first | ~self._is_present[group]
        keys = [groups.keys[number] for number in group.tolist()]
        self.segments = Segments(starts, counts, keys, is_fresh)
        self.ends_of_groups = np.flatnonzero(np.append(is_first[1:], [True])[: len(starts)])
        self._initial = np.where(is_fresh, len(groups), group)

    def add_up(self) -> None:
        """Compute results and states."""
        segments = self.segments
        initial = [column.take(pa.array(self._initial)) for column in self._columns]
        counts = running_sum(self._weights, segments, initial[1].to_numpy())
        self.counts_behind = counts[segments.lasts]
        self._row_counts = self.counts_behind if self._last_only else counts
        aggregates = self._operator.aggregates
        if self._plan.merges:
            taken = self._batch.arrow.take(pa.array(self.order))
            lifted = aggregates.parts_of(taken.columns[len(self._plan.keys) + 1 :])
            found = aggregates.add_up(lifted, segments, initial[2:], last_only=True)
        else:
            rows = SortedRows(self._batch.arrow, self.order, self._weights)
            found = aggregates.run(rows, segments, initial[2:], last_only=self._last_only)
        self._before, self._after, self.states = found

    # Changes.

    def emit(self, keys: tuple[int, ...]) -> None:
        """Emit the changes of results, in the order of the rows that made them."""
        plan, arrow = self._plan, self._batch.arrow
        rows = self.order[self.segments.starts] if self._last_only else self.order
        count = len(rows)
        pools = [
            pa.concat_arrays([after, before])
            for after, before in zip(self._after, self._before, strict=True)
        ]
        previous, is_first = self._previous(count)
        is_gone = (self._row_counts == 0) if plan.retracts else np.zeros(count, np.bool_)
        changed = np.full(count, plan.state_ttl > 0)
        for pool, after in zip(pools, self._after, strict=True):
            if not changed.all():
                changed |= changed_rows(after, pool.take(pa.array(previous)))
        chosen = self._in_order(count)
        chosen = chosen[(is_gone | is_first | changed)[chosen]]
        positions, kinds, numbers = changes_of(
            np.where(is_first, -1, previous)[chosen],
            np.where(is_gone, -1, np.arange(count))[chosen],
            update_before=plan.update_before,
        )
        taken, picked = pa.array(rows[chosen][numbers]), pa.array(positions)
        columns = [arrow.column(index).take(taken) for index in keys]
        columns += [pool.take(picked) for pool in pools]
        if columns:
            self._operator.emit_columns(columns, kinds if kinds.any() else None)

    def _previous(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return for each row where the result before it is, and whether there was none."""
        segments = self.segments
        if self._last_only:
            return count + np.arange(count), segments.is_fresh
        previous = np.arange(count) - 1
        previous[segments.starts] = count + np.arange(len(segments))
        is_first = np.zeros(count, dtype=np.bool_)
        is_first[segments.starts] = segments.is_fresh
        return previous, is_first

    def _in_order(self, count: int) -> NDArray[np.int64]:
        """The rows (or segments) in the order of the batch."""
        if self._last_only:
            return np.arange(count)
        if count < len(self._batch):
            return np.argsort(self.order, kind="stable")
        found = np.empty(count, dtype=np.int64)
        found[self.order] = np.arange(count)
        return found


@dataclass(frozen=True)
class LocalGroupAggregateFactory:
    """Partial aggregates per batch, ahead of the exchange; for mini-batches.

    Gives the key columns and those that ``partial_fields`` (``aggregate_calls.py``) says;
    ``can_be_partial`` says whether all aggregates can be computed that way.
    """

    input_type: RowType
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    retracts: bool
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return LocalGroupAggregateOperator(self)


class LocalGroupAggregateOperator(TableOperator):
    """Aggregates each batch by itself."""

    def __init__(self, plan: LocalGroupAggregateFactory) -> None:
        super().__init__()
        self._plan = plan
        self.aggregates = Aggregates(plan.aggregates, plan.input_type, retracts=plan.retracts)

    def process_rows(self, batch: Batch) -> None:
        arrow = batch.arrow
        groups = group_rows([arrow.column(index) for index in self._plan.keys], len(batch))
        weights = weights_of(batch)[groups.order]
        segments = Segments.from_nothing(groups.starts, groups.counts, groups.keys)
        initial = self.aggregates.initial(len(groups))
        rows = SortedRows(arrow, groups.order, weights)
        _, _, states = self.aggregates.run(rows, segments, initial, last_only=True)
        counts: Any = np.add.reduceat(weights, groups.starts)
        firsts = pa.array(groups.first_rows)
        keys = [arrow.column(index).take(firsts) for index in self._plan.keys]
        self.emit_columns([*keys, pa.array(counts, pa.int64()), *states])
