"""OVER: aggregates over the rows in front of each row, by time.

What it is: Flink's OVER aggregations for inserts, over frames that end at the current row: ROWS or
RANGE, from so many rows or so much time before it, or from the beginning.  By event time rows wait
until the watermark has passed them, and are then taken in order of time, those of one time as they
came.  A row behind the watermark is late and dropped; in a frame of some length only if its key has
given a row of that time or a later one.  By processing time they are taken as they come.

All frames are one kind of changelog: each row comes, and those go that its frame has no more.  What
the aggregates are then comes from the kernels of group aggregation.  ROW_NUMBER, RANK and
DENSE_RANK are counts: behind the row itself, behind the first row of its time, and of such first
rows.

State, per key: the accumulators; the rows that the frame may still take back, with their times; the
rows that wait.  Frames of some length of time go once no row can have them; others, and their
accumulators, together by ``state_ttl``.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.errors import ProgramError
from millstream.runtime.columnar.array_utils import milliseconds_of
from millstream.runtime.columnar.changelog_aggregates import Segments
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.aggregate_calls import Aggregates, SortedRows
from millstream.runtime.operators.table.base import LateRowsOperator
from millstream.runtime.operators.table.row_buffers import (
    WaitingRows,
    packed_rows,
    unpacked_rows,
)
from millstream.runtime.operators.table.specs import AggregateCall
from millstream.state.key_codec import cache_key, uncache_key
from millstream.state.packed_state import ExpiringRows, PackedValues

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        Checkpoint,
        OperatorContext,
        OperatorSnapshot,
        Output,
    )
    from millstream.runtime.operators.table.plans import OverPlan
    from millstream.state.key_codec import CacheKey


_DENSE_RANK: Final = "DENSE_RANK"
_RANKS: Final = frozenset({"ROW_NUMBER", "RANK", _DENSE_RANK})

#: The namespace of timers by which frames go.
_FRAMES: Final = b"frames"


class OverOperator(LateRowsOperator):
    """Keeps frames and accumulators of every key."""

    def __init__(self, plan: OverPlan) -> None:
        """Take the frame, and what to compute over it.

        Raises:
            ProgramError: rows are to be numbered within a frame.
        """
        super().__init__(plan.state_sections()[0])
        self._plan = plan
        self._bounded = plan.preceding is not None
        #: How long a row stays in frames, in milliseconds; None: not by time.
        self._length = None if plan.is_rows else plan.preceding
        self._ttl = plan.state_ttl if self._length is None else 0
        self._ranks = [each.function for each in plan.aggregates if each.function in _RANKS]
        if self._ranks and (self._bounded or plan.is_rows):
            message = f"{self._ranks[0]} counts from the first row of its partition, in no frame"
            raise ProgramError(message)
        calls = [_counted(each, len(plan.input_type)) for each in plan.aggregates]
        self._aggregates = Aggregates(calls, plan.input_type, retracts=self._bounded)
        self._states = RowCodec(pa.schema([pa.field("time", pa.int64()), *self._aggregates.fields]))
        nothing = pa.array([0], pa.int64())
        self._fresh = self._states.pack([nothing, *self._aggregates.fresh])[0]
        self._codec = RowCodec(plan.input_type.to_arrow_schema())

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._accumulators = PackedValues(self.keyed_state, "\0accumulators")
        self._frames = PackedValues(self.keyed_state, "\0frames")
        self._waiting = WaitingRows(self.keyed_state, self._codec, self._plan.keys)
        self._aggregates.open(self.keyed_state, self.runtime_context)
        if self._ttl:
            at = self._states.first_at
            expiring = ExpiringRows(self._accumulators, self._ttl, at, self._forget)
            self.keyed_state.expired.watch(expiring)

    def _forget(self, keys: Sequence[CacheKey]) -> None:
        """Remove what is kept beside the accumulators of keys."""
        self._aggregates.forget(keys)
        if self._bounded:
            self._frames.put_all(keys, [None] * len(keys))

    def process_rows(self, batch: Batch) -> None:
        self.refuse_updates(batch, "OVER by time")
        arrow = batch.arrow
        if self._plan.rowtime is None:
            times = np.full(len(batch), self.processing_time, dtype=np.int64)
            self._run(arrow, times, np.arange(len(batch)))
        else:
            column = arrow.column(self._plan.rowtime)
            times = milliseconds_of(column, self.label)
            self.late += self._waiting.add(arrow, times, self._is_late(arrow, times))

    def _is_late(self, arrow: pa.RecordBatch, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows are behind the watermark; of bounded frames, also behind a row of their key.

        So it is in Flink: what comes behind all rows that its key has given may still have its
        place among them.  A frame of time that is forgotten, or about to be, tells nothing: rows
        of it may be missing in that of such a row.
        """
        late = times <= self._watermark
        if not self._bounded or not late.any():
            return late
        rows = np.flatnonzero(late)
        some = arrow.take(pa.array(rows))
        groups = group_rows([some.column(index) for index in self._plan.keys], len(rows))
        self.keyed_state.make_room(len(groups))
        is_fresh = self._read(groups.keys)[1]
        unknown, oldest = MIN_TIMESTAMP, MIN_TIMESTAMP
        if self._length is not None:
            unknown, oldest = self._watermark - 1, self._watermark - self._length
        lasts = [
            int(frame_times[-1]) if len(frame_times) and frame_times[-1] >= oldest else unknown
            for frame_times, _ in self._live_frames(groups.keys, is_fresh)
        ]
        late[rows] = times[rows] <= np.array(lasts, dtype=np.int64)[groups.group_of_row]
        return late

    def process_watermark(self, watermark: int) -> None:
        """Take the rows that the watermark has passed."""
        self._watermark = watermark
        if self._plan.rowtime is not None:
            fired = list(self.keyed_state.timers.advance_event_time(watermark))
            keys = [cache_key(key) for _, key, where in fired if where != _FRAMES]
            if keys:
                arrow, times, _ = self._waiting.take(list(dict.fromkeys(keys)), watermark)
                self._run(arrow, times, np.argsort(times, kind="stable"))
            self._drop([cache_key(key) for _, key, where in fired if where == _FRAMES], watermark)
        super().process_watermark(watermark)

    def process_processing_time(self, now: int) -> None:
        super().process_processing_time(now)
        if self._plan.rowtime is None and self._length is not None:
            fired = self.keyed_state.timers.advance_processing_time(now)
            self._drop([cache_key(key) for _, key, _ in fired], now)

    def due(self) -> int | None:
        return self.keyed_state.timers.processing.next_time()

    # Frames.

    def _run(
        self, arrow: pa.RecordBatch, times: NDArray[np.int64], order: NDArray[np.int64]
    ) -> None:
        """Take rows, in this order."""
        arrow, times = arrow.take(pa.array(order)), times[order]
        groups = group_rows([arrow.column(index) for index in self._plan.keys], len(times))
        self.keyed_state.make_room(len(groups))
        states, is_fresh = self._read(groups.keys)
        frames = self._live_frames(groups.keys, is_fresh)
        kept = self._codec.unpack([row for _, rows in frames for row in rows])
        pool = pa.RecordBatch.from_arrays(
            [pa.concat_arrays([old, new]) for old, new in zip(kept, arrow.columns, strict=True)],
            schema=self._codec.schema,
        )
        steps = _Steps(self._plan, len(pool) - len(times))
        offset = 0
        for number, (old_times, rows) in enumerate(frames):
            start, count = int(groups.starts[number]), int(groups.counts[number])
            steps.add_key(groups.order[start : start + count], times, offset, old_times)
            offset += len(rows)
        counts = np.array(steps.counts, dtype=np.int64)
        segments = Segments(np.cumsum(counts) - counts, counts, groups.keys, is_fresh)
        self._emit(arrow, self._with_firsts(pool, steps), segments, states, steps)
        self._keep_frames(pool, groups.keys, steps)

    def _with_firsts(self, pool: pa.RecordBatch, steps: _Steps) -> pa.RecordBatch:
        """The pool with a column that says of its new rows which are the first of their time."""
        if _DENSE_RANK not in self._ranks:
            return pool
        is_first = np.zeros(len(pool), dtype=np.bool_)
        is_first[steps.firsts] = True
        columns = [*pool.columns, pa.array(is_first)]
        return pa.RecordBatch.from_arrays(columns, names=[*pool.schema.names, "$first"])

    def _read(self, keys: list[CacheKey]) -> tuple[list[pa.Array], NDArray[np.bool_]]:
        """The accumulators of keys, and which have none, or none any more."""
        stored = self._accumulators.get_all(keys)
        columns = self._states.unpack([row or self._fresh for row in stored])
        is_fresh = np.array([row is None for row in stored], dtype=np.bool_)
        if self._ttl:
            is_over = columns[0].to_numpy() + self._ttl <= self.expiry_time
            rows = [
                self._fresh if over else row or self._fresh
                for row, over in zip(stored, is_over.tolist(), strict=True)
            ]
            columns, is_fresh = self._states.unpack(rows), is_fresh | is_over
        return columns[1:], is_fresh

    def _live_frames(
        self, keys: list[CacheKey], is_fresh: NDArray[np.bool_]
    ) -> list[tuple[NDArray[np.int64], list[bytes]]]:
        """The frames of keys; of one without accumulators nothing can be taken back."""
        if not self._bounded:
            return [unpacked_rows(None)] * len(keys)
        stored = zip(self._frames.get_all(keys), is_fresh.tolist(), strict=True)
        return [unpacked_rows(None if fresh else frame) for frame, fresh in stored]

    def _emit(
        self,
        arrow: pa.RecordBatch,
        pool: pa.RecordBatch,
        segments: Segments,
        states: list[pa.Array],
        steps: _Steps,
    ) -> None:
        rows_in_order = SortedRows(
            pool, np.array(steps.rows, dtype=np.int64), np.array(steps.weights, dtype=np.int64)
        )
        _, after, states = self._aggregates.run(rows_in_order, segments, states, last_only=False)
        keys: Any = segments.keys
        written = pa.array(np.full(len(keys), self.expiry_time), pa.int64())
        self._accumulators.put_all(keys, self._states.pack([written, *states]))
        shown = [
            column.take(steps.places(call.function))
            for call, column in zip(self._plan.aggregates, after, strict=True)
        ]
        self.emit_columns([*arrow.columns, *shown])

    def _keep_frames(self, pool: pa.RecordBatch, keys: list[CacheKey], steps: _Steps) -> None:
        if not self._bounded:
            return
        left = np.array(list(chain.from_iterable(steps.left)), dtype=np.int64)
        rows = self._codec.pack(pool.take(pa.array(left)).columns)
        made: list[bytes | None] = []
        at = 0
        for mine, mine_times in zip(steps.left, steps.left_times, strict=True):
            packed = rows[at : at + len(mine)]
            made.append(packed_rows(np.array(mine_times, np.int64), packed) if mine else None)
            at += len(mine)
        self._frames.put_all(keys, made)
        self._register(keys, steps)

    # What no frame needs.

    def _register(self, keys: list[CacheKey], steps: _Steps) -> None:
        """Look after frames when their last row has gone out of them."""
        if self._length is None:
            return
        timers = self.keyed_state.timers
        by_event_time = self._plan.rowtime is not None
        register = timers.register_event_time if by_event_time else timers.register_processing_time
        for key, times in zip(keys, steps.left_times, strict=True):
            register(uncache_key(key), _FRAMES, times[-1] + self._length + 1)

    def _drop(self, fired: list[CacheKey], now: int) -> None:
        """Forget frames all of whose rows are too old for rows to come."""
        keys = list(dict.fromkeys(fired))
        if not keys or self._length is None:
            return
        self.keyed_state.make_room(len(keys))
        frames = [unpacked_rows(stored)[0] for stored in self._frames.get_all(keys)]
        gone = [
            key
            for key, times in zip(keys, frames, strict=True)
            if not len(times) or times[-1] + self._length < now
        ]
        self._frames.put_all(gone, [None] * len(gone))
        self._accumulators.put_all(gone, [None] * len(gone))
        self._aggregates.forget(gone)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        due = self.due()
        snapshot = super().snapshot(checkpoint)
        snapshot.next_due = due
        return snapshot


def _counted(call: AggregateCall, firsts: int) -> AggregateCall:
    """The count that a rank is; ``firsts`` is the column of the first rows of their time."""
    if call.function not in _RANKS:
        return call
    return AggregateCall(
        "COUNT", (), call.type, filter=firsts if call.function == _DENSE_RANK else None
    )


class _Steps:
    """How rows come into the frames of their keys and go out of them, one key after another.

    Rows are positions in a pool: first those of all frames as they were, then the new ones.
    """

    def __init__(self, plan: OverPlan, first_new: int) -> None:
        self._is_rows = plan.is_rows
        self._preceding = plan.preceding
        #: By processing time rows are taken one by one, also where time stands still.
        self._has_peers = not plan.is_rows and plan.rowtime is not None
        self._first_new = first_new
        self.rows: list[int] = []
        self.weights: list[int] = []
        #: How many steps each key has.
        self.counts: list[int] = []
        #: New rows; the step behind which each has its result, that with which it comes, and that
        #: with which the first row of its time comes.
        self._of_row: list[int] = []
        self._result_at: list[int] = []
        self._came_at: list[int] = []
        self._first_at: list[int] = []
        #: The rows that are the first of their time.
        self.firsts: list[int] = []
        #: Per key: the rows that are in the frame at the end, and their times.
        self.left: list[list[int]] = []
        self.left_times: list[list[int]] = []

    def add_key(
        self,
        mine: NDArray[np.int64],
        times: NDArray[np.int64],
        offset: int,
        old_times: NDArray[np.int64],
    ) -> None:
        """Take the new rows of a key, whose frame begins at ``offset`` of the pool."""
        before = len(self.rows)
        frame = list(range(offset, offset + len(old_times)))
        frame_times = old_times.tolist()
        gone = 0
        new_times = times[mine].tolist()
        of_group: list[int] = []
        came_at: list[int] = []
        for number, (row, time) in enumerate(zip(mine.tolist(), new_times, strict=True)):
            frame.append(self._first_new + row)
            frame_times.append(time)
            self._step(self._first_new + row, 1)
            of_group.append(row)
            came_at.append(len(self.rows) - 1)
            is_last = number + 1 == len(new_times) or new_times[number + 1] != time
            if self._has_peers and not is_last:
                continue
            while self._is_out(frame_times, gone, time):
                self._step(frame[gone], -1)
                gone += 1
            self._of_row += of_group
            self._result_at += [len(self.rows) - 1] * len(of_group)
            self._came_at += came_at
            self._first_at += [came_at[0]] * len(of_group)
            self.firsts.append(self.rows[came_at[0]])
            of_group, came_at = [], []
        self.counts.append(len(self.rows) - before)
        self.left.append(frame[gone:])
        self.left_times.append(frame_times[gone:])

    def places(self, function: str) -> pa.Array:
        """For each new row the step behind which a function has its value for it."""
        steps = {"ROW_NUMBER": self._came_at, "RANK": self._first_at}
        found = np.empty(len(self._of_row), dtype=np.int64)
        found[np.array(self._of_row, dtype=np.int64)] = steps.get(function, self._result_at)
        return pa.array(found)

    def _step(self, row: int, weight: int) -> None:
        self.rows.append(row)
        self.weights.append(weight)

    def _is_out(self, times: list[int], gone: int, now: int) -> bool:
        """Whether the first row of the frame is not in it any more."""
        if self._preceding is None:
            return False
        if self._is_rows:
            return len(times) - gone > self._preceding + 1
        return bool(times[gone] < now - self._preceding)
