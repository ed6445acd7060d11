"""Interval joins of tables: pairs of rows of equal key whose times are near each other.

What it is: Flink's TimeIntervalJoin for inserts.  Each side is kept until the other one's time is
past what it could match; pairs are given as soon as both rows are there; a row of an outer side
that has met nobody is given, padded with NULL, when it goes.  Watermarks are held back by as much
as the rows of a pair may be behind them.

State, per key and side: rows with their times, marked once they have met another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.errors import ProgramError
from millstream.runtime.columnar.array_utils import milliseconds_of
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.operators.table.base import TimedTableOperator
from millstream.runtime.operators.table.join import JoinPairs
from millstream.runtime.operators.table.row_buffers import TimedRows
from millstream.runtime.operators.table.specs import JoinKind
from millstream.state.key_codec import cache_key, uncache_key
from millstream.state.packed_state import PackedValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        Checkpoint,
        OperatorContext,
        OperatorSnapshot,
        Output,
    )
    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.runtime.operators.table.plans import IntervalJoinPlan
    from millstream.state.key_codec import CacheKey


_OUTER = {
    JoinKind.INNER: (False, False),
    JoinKind.LEFT: (True, False),
    JoinKind.RIGHT: (False, True),
    JoinKind.FULL: (True, True),
}


class TableIntervalJoinOperator(TimedTableOperator):
    """Keeps the rows of both sides while they may meet others."""

    def __init__(self, plan: IntervalJoinPlan) -> None:
        """Take sides and bounds.

        Raises:
            ProgramError: a semi or anti join.
        """
        super().__init__(plan.state_sections()[0])
        if plan.kind not in _OUTER:
            message = f"an interval join cannot be a {plan.kind.value} join"
            raise ProgramError(message)
        self._plan = plan
        self._is_outer = _OUTER[plan.kind]
        self._pairs = JoinPairs(plan)
        schemas = (plan.left_type.to_arrow_schema(), plan.right_type.to_arrow_schema())
        self._codecs = tuple(map(RowCodec, schemas))
        self._sides = (plan.left, plan.right)
        #: How long after its own time a row may still meet one that comes.
        self._kept_for = (plan.upper, -plan.lower)
        self._delay = max(0, *self._kept_for)

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = tuple(
            PackedValues(self.keyed_state, f"\0{name} rows") for name in ("left", "right")
        )

    @property
    def _now(self) -> int:
        """Rows to come are later, but for late ones; by a clock also at the time that it shows."""
        return self._watermark if self._plan.is_rowtime else self.processing_time - 1

    # Rows.

    def process_rows_of(self, batch: Batch, input_index: int) -> None:
        self.refuse_updates(batch, "an interval join")
        own = input_index
        plan, arrow = self._plan, batch.arrow
        index = plan.right_time if own else plan.left_time
        if plan.is_rowtime:
            times = milliseconds_of(arrow.column(index), self.label)
        else:
            times = np.full(len(batch), self.processing_time, dtype=np.int64)
        groups = self.group(batch, self._sides[own].keys)
        met = self._meet(arrow, times, groups, own)
        self._keep(arrow, times, groups, own, met)

    def _meet(
        self, arrow: pa.RecordBatch, times: NDArray[np.int64], groups: RowGroups, own: int
    ) -> NDArray[np.bool_]:
        """Give the pairs of these rows; returns which of them have met another."""
        plan, other = self._plan, 1 - own
        stored = self._kept[other].get_all(groups.keys)
        wanted = self._pairs.may_match(arrow, groups, own)
        # Also those that are over, whose timers are still to come.
        kept = [
            TimedRows.decoded(each if may else None)
            for each, may in zip(stored, wanted.tolist(), strict=True)
        ]
        sizes = np.array([len(each) for each in kept], dtype=np.int64)
        met = np.zeros(len(times), dtype=np.bool_)
        if not sizes.sum():
            return met
        columns = self._codecs[other].unpack([row for each in kept for row in each.rows])
        other_times = np.concatenate([each.times for each in kept])
        other_met = np.concatenate([each.marks for each in kept])
        alive = other_times + self._kept_for[other] > self._now
        lower, upper = plan.lower, plan.upper
        for first, second in self._pairs.candidates(sizes, groups.group_of_row):
            apart = other_times[second] - times[first]
            apart = -apart if own else apart
            near = (apart >= lower) & (apart <= upper) & alive[second]
            one, two = first[near], second[near]
            holds = self._pairs.holds(arrow.columns, columns, one, two, own, self.processing_time)
            one, two = one[holds], two[holds]
            met[one] = True
            other_met[two] = 1
            for _, made in self._pairs.joined(arrow.columns, columns, one, two, own):
                self.emit_columns(made)
        if self._is_outer[other]:
            self._mark(groups.keys, kept, other_met, other)
        return met

    def _mark(
        self, keys: list[CacheKey], kept: list[TimedRows], marks: NDArray[np.uint8], side: int
    ) -> None:
        at = 0
        changed: list[tuple[CacheKey, bytes | None]] = []
        for key, rows in zip(keys, kept, strict=True):
            mine = marks[at : at + len(rows)]
            at += len(rows)
            if len(rows) and not np.array_equal(mine, rows.marks):
                rows.marks = mine
                changed.append((key, rows.encoded()))
        self._kept[side].put_all([key for key, _ in changed], [rows for _, rows in changed])

    def _keep(
        self,
        arrow: pa.RecordBatch,
        times: NDArray[np.int64],
        groups: RowGroups,
        own: int,
        met: NDArray[np.bool_],
    ) -> None:
        """Keep the rows that may meet one to come; give those that cannot and have met none."""
        ends = times + self._kept_for[own]
        lasting = ends > self._now
        if self._is_outer[own]:
            lost = np.flatnonzero(~lasting & ~met)
            if len(lost):
                columns = [column.take(pa.array(lost)) for column in arrow.columns]
                self.emit_columns(self._pairs.padded(columns, own))
        if not lasting.any():
            return
        rows = self._codecs[own].pack(arrow.columns)
        stored = self._kept[own].get_all(groups.keys)
        made: list[bytes | None] = []
        for number, (key, before) in enumerate(zip(groups.keys, stored, strict=True)):
            start, count = int(groups.starts[number]), int(groups.counts[number])
            mine = groups.order[start : start + count]
            mine = mine[lasting[mine]]
            added = TimedRows.decoded(before).added(
                times[mine], met[mine].astype(np.uint8), [rows[row] for row in mine.tolist()]
            )
            made.append(added.encoded())
            self._register(key, ends[mine], own)
        self._kept[own].put_all(groups.keys, made)

    # Time.

    def _register(self, key: CacheKey, ends: NDArray[np.int64], side: int) -> None:
        known, namespace = uncache_key(key), bytes([side])
        timers = self.keyed_state.timers
        is_rowtime = self._plan.is_rowtime
        register = timers.register_event_time if is_rowtime else timers.register_processing_time
        for time in set((ends if is_rowtime else ends + 1).tolist()):
            register(known, namespace, time)

    def process_watermark(self, watermark: int) -> None:
        """Let go of rows that are over; pass the watermark on, held back."""
        self._watermark = watermark
        if self._plan.is_rowtime:
            self._drop(list(self.keyed_state.timers.advance_event_time(watermark)))
        if watermark != MAX_TIMESTAMP:
            watermark = max(watermark - self._delay, MIN_TIMESTAMP + 1)
        super().process_watermark(watermark)

    def process_processing_time(self, now: int) -> None:
        super().process_processing_time(now)
        if not self._plan.is_rowtime:
            self._drop(list(self.keyed_state.timers.advance_processing_time(now)))

    def end_input(self) -> None:
        """Nothing comes any more that rows of processing time could meet."""
        super().end_input()
        if not self._plan.is_rowtime:
            self.processing_time = MAX_TIMESTAMP
            self._drop(list(self.keyed_state.timers.advance_processing_time(MAX_TIMESTAMP)))

    def due(self) -> int | None:
        return self.keyed_state.timers.processing.next_time()

    def _drop(self, fired: list[tuple[int, object, bytes]]) -> None:
        """Let go of the rows of these timers."""
        for side in (0, 1):
            keys = list(
                dict.fromkeys(cache_key(key) for _, key, where in fired if where[0] == side)
            )
            if not keys:
                continue
            self.keyed_state.make_room(len(keys))
            lost: list[bytes] = []
            left: list[bytes | None] = []
            for stored in self._kept[side].get_all(keys):
                rows = TimedRows.decoded(stored)
                alive = rows.times + self._kept_for[side] > self._now
                gone = rows.chosen(~alive & (rows.marks == 0))
                lost += gone.rows
                left.append(rows.chosen(alive).encoded())
            self._kept[side].put_all(keys, left)
            if lost and self._is_outer[side]:
                self.emit_columns(self._pairs.padded(self._codecs[side].unpack(lost), side))

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        due = self.due()
        snapshot = super().snapshot(checkpoint)
        snapshot.next_due = due
        return snapshot
