"""Regular joins of two changelogs: inner, left, right, full, semi and anti.

What it is: Flink's StreamingJoinOperator and StreamingSemiAntiJoinOperator for whole batches.  A
batch is of one input, so the rows of the other side that it meets stay as they are: pairs, and the
condition over them, are computed for many rows at once.  What changes from row to row is how many
rows each outer row matches; where the first match comes or the last one goes, the row padded with
NULL goes or comes.

An inner join passes the kinds of its inputs on; outer joins give +I and -D.

What it is not: bounded by time (``runtime/operators/interval_join.py``).

Read next: ``runtime/operators/table/join_sides.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.array_utils import byte_runs
from millstream.runtime.operators.table.base import (
    DELETE,
    INSERT,
    KeyedTableOperator,
    kinds_or_inserts,
)
from millstream.runtime.operators.table.folded_changes import folded
from millstream.runtime.operators.table.join_sides import Meeting, Side
from millstream.runtime.operators.table.specs import JoinKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext, Output
    from millstream.expressions.evaluator import Filter
    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.runtime.operators.table.plans import JoinPlan

__all__ = ["JoinOperator"]

#: So many pairs of rows are looked at in one go.
_MOST_PAIRS: Final = 262_144
_NONE: Final = -1


class JoinOperator(KeyedTableOperator):
    """Keeps the rows of both inputs by join key."""

    def __init__(self, plan: JoinPlan) -> None:
        """Take the sides, and what they are joined on."""
        super().__init__(plan.state_sections()[0])
        self.plan = plan
        self._sides = (
            Side(plan.left, plan.left_type, plan.left_ttl, "left"),
            Side(plan.right, plan.right_type, plan.right_ttl, "right"),
        )
        self._condition: Filter | None = None
        if plan.condition is not None:
            from millstream.expressions.evaluator import compile_filter

            self._condition = compile_filter(plan.condition)
        both = [*self._sides[0].schema, *self._sides[1].schema]
        self._names = [f"{number}.{field.name}" for number, field in enumerate(both)]
        kind = plan.kind
        is_half = kind in (JoinKind.SEMI, JoinKind.ANTI)
        #: Of which side rows without a match count, so that matches are counted.
        self._is_outer = (
            is_half or kind in (JoinKind.LEFT, JoinKind.FULL),
            kind in (JoinKind.RIGHT, JoinKind.FULL),
        )
        self._is_half = is_half

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        for side in self._sides:
            side.open(self.keyed_state)

    def process_rows_of(self, batch: Batch, input_index: int) -> None:
        own, other = self._sides[input_index], self._sides[1 - input_index]
        if self.plan.mini_batch:
            batch = folded(batch, own.folding_key)
            if not len(batch):
                return
        arrow = batch.arrow
        groups = self.group(batch, own.spec.keys)
        rows = own.codec.pack(arrow.columns)
        names = own.names_of(arrow, rows)
        group_of_row = groups.group_of_row
        wanted = self._may_match(arrow, groups, own)
        other.maps.fetch_all_distinct(groups.keys)
        own.maps.fetch_entries_of(groups.keys, group_of_row, names)
        counts_matches = self._is_outer[1 - input_index]
        meeting = Meeting(other, groups, wanted, self.expiry_time, counts_matches=counts_matches)
        work = _Rows(self, batch, input_index, meeting)
        work.groups, work.group_of_row = groups, group_of_row
        work.names, work.rows = names, rows
        for chunk in _chunks(meeting.sizes(group_of_row)):
            first, second = meeting.pairs(chunk, group_of_row)
            kept = self._kept(arrow, first, second, meeting, input_index)
            work.process(chunk, first[kept], second[kept])
        own.maps.changed(groups.keys)
        meeting.write()

    def _may_match(self, arrow: pa.RecordBatch, groups: RowGroups, own: Side) -> NDArray[np.bool_]:
        """Which keys match anything: NULL does not where it equals nothing."""
        may_match = np.ones(len(groups), dtype=np.bool_)
        firsts = groups.first_rows
        for index, filters in zip(own.spec.keys, self.plan.filter_nulls, strict=True):
            column = arrow.column(index)
            if filters and column.null_count:
                may_match &= column.is_valid().to_numpy(zero_copy_only=False)[firsts]
        return may_match

    def _kept(
        self,
        arrow: pa.RecordBatch,
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        meeting: Meeting,
        input_index: int,
    ) -> NDArray[np.bool_] | slice:
        """Which pairs meet the condition."""
        if self._condition is None or not len(first):
            return slice(None)
        runs = byte_runs((arrow.columns, first), (meeting.columns, second))
        parts = [self._meet(arrow, first[run], second[run], meeting, input_index) for run in runs]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _meet(
        self,
        arrow: pa.RecordBatch,
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        meeting: Meeting,
        input_index: int,
    ) -> NDArray[np.bool_]:
        """``_kept`` of no more pairs than one batch may have."""
        assert self._condition is not None  # noqa: S101 - the caller has looked
        own = [column.take(pa.array(first)) for column in arrow.columns]
        other = [column.take(pa.array(second)) for column in meeting.columns]
        columns = own + other if input_index == 0 else other + own
        pairs = pa.RecordBatch.from_arrays(columns, names=self._names)
        context = self.plan.evaluation.at(self.processing_time)
        with self.evaluating():
            mask = self._condition.evaluate(pairs, context)
        found: NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
        return found

    # What the rows of a batch need.

    def side(self, index: int) -> Side:
        """Return an input's side."""
        return self._sides[index]

    def is_outer(self, index: int) -> bool:
        """Whether rows of an input count though they match nothing."""
        return self._is_outer[index]

    @property
    def is_half(self) -> bool:
        """Whether it is a semi or an anti join."""
        return self._is_half


def _chunks(sizes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield runs of rows with not too many pairs, each of at least one row."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _MOST_PAIRS, side="right")))
        yield np.arange(start, stop)
        start = stop


class _Rows:
    """The rows of a batch, one after another."""

    def __init__(
        self, operator: JoinOperator, batch: Batch, input_index: int, meeting: Meeting
    ) -> None:
        self._operator = operator
        self._batch = batch
        self._input = input_index
        self._meeting = meeting
        self._kind_of_row = kinds_or_inserts(batch)
        self._kinds: list[int] = self._kind_of_row.tolist()
        self._takes_back = bool((self._kind_of_row & 1).any())
        #: Of the entries of the meeting, while rows are gone through one by one.
        self._matches: list[int] = []
        self._own = operator.side(input_index)
        self._own_is_outer = operator.is_outer(input_index)
        self._other_is_outer = operator.is_outer(1 - input_index)
        self.groups: RowGroups
        self.group_of_row: NDArray[np.int64]
        self.names: list[bytes] = []
        self.rows: list[bytes] = []
        self._out: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._now = operator.expiry_time

    def process(
        self, chunk: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> None:
        """Process a run of rows with the pairs that match."""
        operator = self._operator
        inner = not (self._own_is_outer or self._other_is_outer)
        if not self._takes_back and (inner or self._own.by_row):
            self._process_inserts(chunk, first, second)
            return
        if inner:
            for row in chunk.tolist():
                self._keep(row, 0)
            self._emit(first, second, self._kind_of_row[first])
            return
        self._matches = self._meeting.matches.tolist()
        bounds = np.searchsorted(first, np.append(chunk, chunk[-1] + 1)).tolist()
        matched = second.tolist()
        step = self._step
        if operator.is_half:
            step = self._left_step if self._input == 0 else self._right_step
        for number, row in enumerate(chunk.tolist()):
            step(row, matched[bounds[number] : bounds[number + 1]])
        self._meeting.matches = np.array(self._matches, dtype=np.int64)
        one, other, changed = self._out
        self._out = ([], [], [])
        self._emit(
            np.array(one, dtype=np.int64), np.array(other, np.int64), np.array(changed, np.int8)
        )

    def _process_inserts(
        self, chunk: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> None:
        """Rows of which each is one more: what the steps below do, for all of them at once."""
        start = int(chunk[0])
        run = slice(start, start + len(chunk))
        matches = np.bincount(first - start, minlength=len(chunk))
        now = self._now
        of_row = self.group_of_row[run]
        keys, names = self.groups.keys, self.names[run]
        self._own.add_all(keys, of_row, names, self.rows[run], matches, now)
        kinds = self._kind_of_row
        if not (self._own_is_outer or self._other_is_outer):
            self._emit(first, second, kinds[first])
            return
        pair = np.arange(len(first))
        came = self._first_matches(first, second) if self._other_is_outer else pair[:0]
        is_anti = self._operator.plan.kind is JoinKind.ANTI
        if self._operator.is_half and self._input == 0:
            rows = chunk[(matches == 0) if is_anti else (matches > 0)]
            self._emit(rows, np.full(len(rows), _NONE), kinds[rows])
        elif self._operator.is_half:
            kind = np.full(len(came), DELETE, np.int8) if is_anti else kinds[first[came]]
            self._emit(np.full(len(came), _NONE), second[came], kind)
        else:
            lonely = chunk[matches == 0] if self._own_is_outer else chunk[:0]
            turn = np.concatenate([2 * came, 2 * pair + 1, np.zeros(len(lonely), np.int64)])
            order = np.lexsort((turn, np.concatenate([first[came], first, lonely])))
            one = np.concatenate([np.full(len(came), _NONE), first, lonely])
            other = np.concatenate([second[came], second, np.full(len(lonely), _NONE)])
            kind = np.full(len(order), INSERT, np.int8)
            kind[: len(came)] = DELETE
            self._emit(one[order], other[order], kind[order])

    def _first_matches(
        self, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Count the matches of the other side's rows; the pairs that are the first of one."""
        meeting = self._meeting
        is_next = np.ones(len(first), dtype=np.bool_)  # of rows that are there more than once
        is_next[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        rows, entries = first[is_next], second[is_next]
        found, at, counts = np.unique(entries, return_index=True, return_counts=True)
        first_row = np.full(len(meeting.matches), _NONE)
        first_row[found] = rows[at]
        came = np.flatnonzero((meeting.matches[second] == 0) & (first_row[second] == first))
        meeting.matches[found] += counts
        meeting.changes.update(zip(found.tolist(), meeting.matches[found].tolist(), strict=True))
        return came

    def _keep(self, row: int, matches: int) -> bool:
        """Keep a row or forget it; returns whether it is one that was not there."""
        now = self._now
        key, name = self.groups.keys[self.group_of_row[row]], self.names[row]
        if self._kinds[row] & 1:
            self._own.take_back(key, name, now)
            return False
        return self._own.add(key, name, self.rows[row], matches, now)

    def _add(self, row: int, entry: int, kind: int) -> None:
        one, other, kinds = self._out
        one.append(row)
        other.append(entry)
        kinds.append(kind)

    def _step(self, row: int, matched: list[int]) -> None:
        """A row of an outer join."""
        kind = self._kinds[row]
        takes_back = kind & 1
        is_new = self._keep(row, len(matched))
        if self._own_is_outer:
            kind = DELETE if takes_back else INSERT
            if not matched:
                self._add(row, _NONE, kind)
                return
        if takes_back:
            self._lose(row, matched, kind)
        else:
            # Of a side with a unique key, a row that is there already is replaced: no new match.
            self._gain(row, matched, counts=is_new or self._own.spec.unique_key is None)

    def _gain(self, row: int, matched: list[int], *, counts: bool) -> None:
        if not self._other_is_outer:
            for entry in matched:
                self._add(row, entry, INSERT)
            return
        before = {entry: self._matches[entry] for entry in matched}
        for entry in matched:
            if before[entry] == 0:
                self._add(_NONE, entry, DELETE)
            self._add(row, entry, INSERT)
        for entry, matches in before.items():
            if matches == 0 or counts:
                self._note(entry, matches + 1)

    def _lose(self, row: int, matched: list[int], kind: int) -> None:
        if not self._other_is_outer:
            for entry in matched:
                self._add(row, entry, kind)
            return
        before = {entry: self._matches[entry] for entry in matched}
        for entry in matched:
            self._add(row, entry, kind)
            if before[entry] == 1:
                self._add(_NONE, entry, INSERT)
        for entry, matches in before.items():
            self._note(entry, matches - 1)

    def _note(self, entry: int, matches: int) -> None:
        self._matches[entry] = self._meeting.changes[entry] = matches

    def _left_step(self, row: int, matched: list[int]) -> None:
        """A row of which it counts whether it matches."""
        is_anti = self._operator.plan.kind is JoinKind.ANTI
        if bool(matched) is not is_anti:
            self._add(row, _NONE, self._kinds[row])
        self._keep(row, len(matched))

    def _right_step(self, row: int, matched: list[int]) -> None:
        """A row that rows on the left may match."""
        kind = self._kinds[row]
        takes_back = kind & 1
        is_anti = self._operator.plan.kind is JoinKind.ANTI
        before = {entry: self._matches[entry] for entry in matched}
        if is_anti:
            kind = INSERT if takes_back else DELETE
        for entry in matched:
            if before[entry] == takes_back:  # the first match comes, or the only one goes
                self._add(_NONE, entry, kind)
        self._keep(row, 0)
        for entry, matches in before.items():
            self._note(entry, matches - 1 if takes_back else matches + 1)

    def _emit(
        self, first: NDArray[np.int64], second: NDArray[np.int64], kinds: NDArray[np.int8]
    ) -> None:
        parts = [
            (self._batch.arrow.columns, first),
            (self._meeting.columns, second),
        ]
        if self._operator.is_half:  # the rows on the left, which are this batch's or were kept
            parts = parts[self._input : self._input + 1]
        elif self._input:
            parts.reverse()
        for run in byte_runs(*parts):
            columns = [column for columns, rows in parts for column in _taken(columns, rows[run])]
            kind = kinds[run]
            self._operator.emit_columns(columns, kind if kind.any() else None)


def _taken(columns: list[pa.Array], rows: NDArray[np.int64]) -> list[pa.Array]:
    """The rows of columns, NULL where there is none."""
    absent = rows == _NONE
    picked = pa.array(rows, mask=absent if absent.any() else None)
    return [column.take(picked) for column in columns]
