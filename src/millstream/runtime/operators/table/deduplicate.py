"""One row per key: deduplication, and the full changelog of upserts.

Flink's deduplicating functions (the first or the last row of a key, by arrival or by a time
attribute) and its ChangelogNormalize are one operator here: each row of the batch is compared with
the row of its key and may replace it.

State: per key the row, preceded by the time at which it was written, in milliseconds.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.errors import TypeMismatchError
from millstream.expressions.context import EvaluationContext
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.operators.table.base import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    KeyedTableOperator,
    kinds_or_inserts,
)
from millstream.runtime.operators.table.row_buffers import RowChanges
from millstream.runtime.operators.table.specs import one_row_section
from millstream.state.packed_state import ExpiringRows, PackedValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.operator import Operator, OperatorContext, Output, StateSection
    from millstream.expressions.evaluator import Filter
    from millstream.expressions.nodes import Expression
    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.types.logical_types import RowType


_MOST: Final = 2**62


@dataclass(frozen=True, slots=True)
class Replaced:
    """The rows that took a place, by group and in each group as they came.

    Rows are positions in the batch; from its length on, in what was kept; -1 is no row.
    """

    rows: NDArray[np.int64]
    #: What each of them took the place of.
    before: NDArray[np.int64]
    group: NDArray[np.int64]

    def of_batch(self) -> Replaced:
        """The difference that the whole batch makes: the last rows, and what was kept before."""
        starts, last = _is_first(self.group), _is_first(self.group[::-1])[::-1]
        by_first = np.argsort(self.rows[starts], kind="stable")
        return Replaced(
            self.rows[last][by_first],
            self.before[starts][by_first],
            self.group[last][by_first],
        )

    def as_they_came(self) -> Replaced:
        """The same in the order of the batch."""
        by_row = np.argsort(self.rows, kind="stable")
        return self.at(by_row)

    def at(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> Replaced:
        """Some of them."""
        return Replaced(self.rows[which], self.before[which], self.group[which])


def replaced(
    groups: RowGroups,
    times: NDArray[np.int64],
    kept: NDArray[np.int64],
    kept_times: NDArray[np.int64],
    *,
    keep_last: bool,
) -> Replaced | None:
    """Find which rows of a batch take a place.

    Args:
        groups: the rows of the batch by key.
        times: of these rows.
        kept: per group the number of its row among those that were kept, -1 if it has none.
        kept_times: of the rows that were kept.
        keep_last: whether a row takes the place of an earlier one or of one of the same time;
            else only that of a later one.

    Returns:
        None: times are so far apart that rows have to be checked one by one.
    """
    every = np.concatenate([times, kept_times])
    least, most = int(every.min()), int(every.max())
    span = most - least + 1
    if span * len(groups) >= _MOST:
        return None
    group = groups.group_of_sorted
    # Numbers that are greater in a later group, and in one group where a row goes before others.
    base = group * span
    ahead = (times - least if keep_last else most - times)[groups.order]
    there = kept >= 0
    of_kept = kept_times[kept[there]]
    bars = np.full(len(groups), -1, dtype=np.int64)
    bars[there] = np.flatnonzero(there) * span + (of_kept - least if keep_last else most - of_kept)
    rank = base + ahead
    highest = rank.copy()
    highest[groups.starts] = np.maximum(rank[groups.starts], bars)
    np.maximum.accumulate(highest, out=highest)
    bar = np.empty_like(rank)
    bar[1:] = highest[:-1]
    bar[groups.starts] = bars
    taken = np.flatnonzero(rank >= bar if keep_last else rank > bar)
    rows, group = groups.order[taken].astype(np.int64), group[taken]
    before = np.empty_like(rows)
    before[1:] = rows[:-1]
    firsts = np.flatnonzero(_is_first(group))
    of_first = kept[group[firsts]]
    before[firsts] = np.where(of_first >= 0, of_first + len(times), -1)
    return Replaced(rows, before, group)


def _is_first(group: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether a row is the first of its group, of rows that are sorted by group."""
    found = np.ones(len(group), dtype=np.bool_)
    found[1:] = group[1:] != group[:-1]
    return found


def changes_of(
    found: Replaced, *, update_before: bool, inserts: bool
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """The changes that rows make, in their order.

    Args:
        found: the rows.
        update_before: whether -U comes ahead of +U.
        inserts: whether the first row of a key is +I; +U otherwise.

    Returns:
        The position of each change's row, and its kind.
    """
    updates = found.before >= 0
    kinds = np.where(updates, UPDATE_AFTER, INSERT if inserts else UPDATE_AFTER).astype(np.int8)
    if not update_before:
        return found.rows, kinds
    at = np.arange(len(updates)) + np.cumsum(updates)
    positions = np.empty(len(updates) + int(updates.sum()), dtype=np.int64)
    every = np.full(len(positions), UPDATE_BEFORE, dtype=np.int8)
    positions[at], every[at] = found.rows, kinds
    positions[at[updates] - 1] = found.before[updates]
    return positions, every


_TIME: Final = struct.Struct("<q")
_HEAD: Final = _TIME.size
#: A column of texts takes 2 GB.
_MOST_BYTES: Final = 1 << 29


class _OneRowOperator(KeyedTableOperator):
    """Keeps one row per key."""

    gathers_batches: ClassVar[bool] = True

    def __init__(self, plan: DeduplicateFactory | ChangelogNormalizeFactory) -> None:
        super().__init__(plan.state_sections()[0])
        self._codec = RowCodec(plan.input_type.to_arrow_schema())
        self._keys = plan.keys
        self._update_before = plan.update_before
        self._mini_batch = plan.mini_batch
        self._ttl = plan.state_ttl

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = PackedValues(self.keyed_state, "\0rows")
        if self._ttl:
            self.keyed_state.expired.watch(ExpiringRows(self._kept, self._ttl))

    @abstractmethod
    def begin(self, batch: Batch) -> None:
        """Look at a batch before its rows come one by one."""

    @abstractmethod
    def step(self, position: int, kind: int, row: bytes, before: bytes | None) -> bytes | None:
        """Return the row that the key has from here on, None: none; ``before`` for no change."""

    @abstractmethod
    def change(self, changes: RowChanges, before: bytes | None, after: bytes | None) -> None:
        """Add the changes from one row to another."""

    def process_rows(self, batch: Batch) -> None:
        groups = self.group(batch, self._keys)
        self.begin(batch)
        kept = self._read(groups)
        self._steps(batch, groups, kept)

    def _read(self, groups: RowGroups) -> list[bytes | None]:
        stored = self._kept.get_all(groups.keys)
        if not self._ttl:
            return [None if each is None else each[_HEAD:] for each in stored]
        alive = self.expiry_time - self._ttl
        return [
            None if each is None or _TIME.unpack_from(each)[0] <= alive else each[_HEAD:]
            for each in stored
        ]

    def _steps(self, batch: Batch, groups: RowGroups, kept: list[bytes | None]) -> None:
        rows = self._codec.pack(batch.arrow.columns)
        kinds = kinds_or_inserts(batch).tolist()
        changes = RowChanges()
        first = list(kept) if self._mini_batch else kept
        written: dict[int, None] = {}
        for position, group in enumerate(groups.group_of_row.tolist()):
            before, kind = kept[group], kinds[position]
            after = self.step(position, kind, rows[position], before)
            if after is before:
                continue
            kept[group] = after
            written[group] = None
            if not self._mini_batch:
                self.change(changes, before, after)
        if self._mini_batch:
            for group in written:
                if first[group] != kept[group]:
                    self.change(changes, first[group], kept[group])
        self._write(groups, kept, list(written))
        changes.emit(self, self._codec)

    def _write(self, groups: RowGroups, kept: list[bytes | None], written: list[int]) -> None:
        time = _TIME.pack(self.expiry_time)
        rows = [kept[group] for group in written]
        self._kept.put_all(
            [groups.keys[group] for group in written],
            [None if row is None else time + row for row in rows],
        )


@dataclass(frozen=True)
class DeduplicateFactory:
    """The first or the last row per key, by arrival or by a time attribute.  Columns stay.

    By arrival and ``keep_last`` it also takes changelogs, as Flink's does; else inserts only.
    """

    input_type: RowType
    keys: tuple[int, ...]
    #: The column of the time attribute; None: by arrival (processing time).
    rowtime: int | None
    keep_last: bool
    update_before: bool
    #: Whether the input has only +I.
    insert_only: bool = True
    #: Whether the first row of a key has to be +I; +U otherwise, which saves keeping rows.
    generate_insert: bool = True
    mini_batch: bool = False
    state_ttl: int = 0
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [one_row_section(self.input_type)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return DeduplicateOperator(self)


class DeduplicateOperator(_OneRowOperator):
    """The first or the last row of each key."""

    def __init__(self, plan: DeduplicateFactory) -> None:
        super().__init__(plan)
        self._plan = plan
        self._times: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._time_list: list[int] = []
        #: By packed row: the rows of this batch and those that were kept.
        self._time_of: dict[bytes, int] = {}

    def begin(self, batch: Batch) -> None:
        kinds = batch.row_kinds
        plan = self._plan
        if plan.insert_only and kinds is not None:
            message = (
                f"operator {self.context.name!r} got updates or deletions; by the plan its"
                " input only has inserts"
            )
            raise TypeMismatchError(message)
        if plan.rowtime is not None:
            self._times = _times_of(batch.arrow.column(plan.rowtime))

    def process_rows(self, batch: Batch) -> None:
        plan = self._plan
        needs_kept = plan.update_before or plan.generate_insert or plan.rowtime is not None
        if needs_kept or not (plan.keep_last and plan.insert_only):
            super().process_rows(batch)
            return
        # Every row replaces the one before it, whatever that is.
        self.begin(batch)
        kinds = np.full(len(batch), UPDATE_AFTER, dtype=np.int8)
        self.emit_columns(batch.arrow.columns, kinds)

    def _steps(self, batch: Batch, groups: RowGroups, kept: list[bytes | None]) -> None:
        plan = self._plan
        if plan.rowtime is None:
            super()._steps(batch, groups, kept)
            return
        there = [row for row in kept if row is not None]
        if batch.row_kinds is None and _is_short(batch, there):
            columns = self._codec.unpack(there)
            found = self._replaced(groups, kept, _times_of(columns[plan.rowtime]))
            if found is not None:
                self._replace(batch, groups, kept, columns, found)
                return
        times = _times_of(self._codec.unpack(there)[plan.rowtime]).tolist()
        self._time_of = dict(zip(there, times, strict=True))
        self._time_list = self._times.tolist()
        super()._steps(batch, groups, kept)

    def _replaced(
        self, groups: RowGroups, kept: list[bytes | None], times: NDArray[np.int64]
    ) -> Replaced | None:
        is_there = np.fromiter((row is not None for row in kept), np.bool_, len(kept))
        numbers = np.where(is_there, np.cumsum(is_there) - 1, -1)
        return replaced(groups, self._times, numbers, times, keep_last=self._plan.keep_last)

    def _replace(
        self,
        batch: Batch,
        groups: RowGroups,
        kept: list[bytes | None],
        columns: list[pa.Array],
        found: Replaced,
    ) -> None:
        """Write the rows that stay, and give the changes, without looking at rows one by one."""
        last = found.of_batch()
        chosen = pa.array(last.rows)
        rows = self._codec.pack([column.take(chosen) for column in batch.arrow.columns])
        written = last.group.tolist()
        if self._mini_batch:
            pairs = zip(written, rows, strict=True)
            found = last.at(np.fromiter((kept[g] != row for g, row in pairs), np.bool_, len(rows)))
        else:
            found = found.as_they_came()
        for group, row in zip(written, rows, strict=True):
            kept[group] = row
        self._write(groups, kept, written)
        plan = self._plan
        positions, kinds = changes_of(
            found,
            update_before=plan.update_before,
            inserts=plan.update_before or plan.generate_insert,
        )
        if not len(positions):
            return
        both = zip(batch.arrow.columns, columns, strict=True)
        pools = [pa.concat_arrays([new, old]) for new, old in both]
        picked = pa.array(positions)
        self.emit_columns([pool.take(picked) for pool in pools], kinds if kinds.any() else None)

    def step(self, position: int, kind: int, row: bytes, before: bytes | None) -> bytes | None:
        plan = self._plan
        if kind & 1:
            return None
        if before is None:
            found = row
        elif plan.rowtime is None:
            is_same = row == before and not self._ttl
            found = row if plan.keep_last and not is_same else before
        else:
            mine, other = self._time_list[position], self._time_of[before]
            found = row if (mine >= other if plan.keep_last else mine < other) else before
        if plan.rowtime is not None and found is row:
            self._time_of[row] = self._time_list[position]
        return found

    def change(self, changes: RowChanges, before: bytes | None, after: bytes | None) -> None:
        if after is None:
            if before is not None:
                changes.add(DELETE, before)
        elif before is None:
            needs_insert = self._update_before or self._plan.generate_insert
            changes.add(INSERT if needs_insert else UPDATE_AFTER, after)
        else:
            if self._update_before:
                changes.add(UPDATE_BEFORE, before)
            changes.add(UPDATE_AFTER, after)


def _times_of(column: pa.Array) -> NDArray[np.int64]:
    """The values of a time attribute, in its own unit; null is before all others."""
    times: NDArray[np.int64] = column.view(pa.int64()).fill_null(MIN_TIMESTAMP).to_numpy()
    return times


def _is_short(batch: Batch, rows: list[bytes]) -> bool:
    """Return whether columns can hold each row of a batch, and those that were kept, twice."""
    return int(batch.arrow.get_total_buffer_size()) + sum(map(len, rows)) < _MOST_BYTES


@dataclass(frozen=True)
class ChangelogNormalizeFactory:
    """Makes a full changelog of upserts (+I/+U and -D by key).  Columns stay."""

    input_type: RowType
    keys: tuple[int, ...]
    update_before: bool
    mini_batch: bool = False
    #: BOOLEAN, pushed into it; rows for which it is not true do not exist.
    condition: Expression | None = None
    evaluation: EvaluationContext = field(default_factory=EvaluationContext)
    state_ttl: int = 0
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [one_row_section(self.input_type)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return ChangelogNormalizeOperator(self)


class ChangelogNormalizeOperator(_OneRowOperator):
    """Makes a full changelog of upserts."""

    def __init__(self, plan: ChangelogNormalizeFactory) -> None:
        super().__init__(plan)
        self._evaluation = plan.evaluation
        self._condition: Filter | None = None
        if plan.condition is not None:
            from millstream.expressions.evaluator import compile_filter

            self._condition = compile_filter(plan.condition)
        self._counts: list[bool] | None = None

    def begin(self, batch: Batch) -> None:
        if self._condition is not None:
            context = self._evaluation.at(self.processing_time)
            with self.evaluating():
                self._counts = self._condition.evaluate(batch.arrow, context).to_pylist()

    def step(self, position: int, kind: int, row: bytes, before: bytes | None) -> bytes | None:
        if kind & 1 or not (self._counts is None or self._counts[position]):
            return None
        return before if row == before and not self._ttl else row

    def change(self, changes: RowChanges, before: bytes | None, after: bytes | None) -> None:
        if before is not None and after is not None:
            if self._update_before:
                changes.add(UPDATE_BEFORE, before)
            changes.add(UPDATE_AFTER, after)
        elif after is not None:
            changes.add(INSERT, after)
        elif before is not None:  # all of it: the deletion may have had the key only
            changes.add(DELETE, before)
