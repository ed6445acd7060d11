"""OVER: aggregates over the rows in front of each row, by time.

What it is: Flink's OVER aggregations for inserts, over frames that end at the current row: ROWS or
RANGE, from so many rows or so much time before it, or from the beginning.  By event time rows wait
until the watermark has passed them, and are then taken in order of time, those of one time as they
came; late rows are dropped.  By processing time they are taken as they come.

All frames are one kind of changelog: each row comes, and those go that its frame has no more.  What
the aggregates are then comes from the kernels of group aggregation.

What it is not: for updating input, nor for frames that follow the current row, which Flink has not
either.

State, per key: the accumulators; the rows that the frame may still take back, with their times; the
rows that wait.

Read next: ``runtime/operators/table/aggregate_calls.py``.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.errors import TypeMismatchError
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.columnar.segments import Segments
from millstream.runtime.columnar.time_columns import milliseconds_of
from millstream.runtime.operators.table.aggregate_calls import Aggregates, SortedRows
from millstream.runtime.operators.table.base import KeyedTableOperator
from millstream.runtime.operators.table.waiting_rows import (
    WaitingRows,
    packed_rows,
    unpacked_rows,
)
from millstream.state.key_codec import cache_key
from millstream.state.packed_state import PackedValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        Checkpoint,
        OperatorContext,
        OperatorSnapshot,
        Output,
        RestoreContext,
    )
    from millstream.runtime.operators.table.plans import OverPlan
    from millstream.state.key_codec import CacheKey

__all__ = ["OverOperator"]


class OverOperator(KeyedTableOperator):
    """Keeps frames and accumulators of every key."""

    def __init__(self, plan: OverPlan) -> None:
        """Take the frame, and what to compute over it."""
        super().__init__(plan.state_sections()[0])
        self._plan = plan
        self._bounded = plan.preceding is not None
        self._aggregates = Aggregates(plan.aggregates, plan.input_type, retracts=self._bounded)
        self._states = RowCodec(pa.schema([pa.field("time", pa.int64()), *self._aggregates.fields]))
        nothing = pa.array([0], pa.int64())
        self._fresh = self._states.pack([nothing, *self._aggregates.fresh])[0]
        self._codec = RowCodec(plan.input_type.to_arrow_schema())
        self._watermark = 0
        self._late = 0

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._accumulators = PackedValues(self.keyed_state, "\0accumulators")
        self._frames = PackedValues(self.keyed_state, "\0frames")
        self._waiting = WaitingRows(self.keyed_state, self._codec, self._plan.keys)
        self._aggregates.open(self.keyed_state, self.runtime_context)

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._watermark = restored.watermark

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        self.records_in += len(batch)
        if not len(batch):
            return
        if batch.row_kinds is not None:
            message = (
                f"operator {self.context.name!r} got updates or deletions; OVER by time takes"
                " inserts only"
            )
            raise TypeMismatchError(message)
        arrow = batch.arrow
        if self._plan.rowtime is None:
            times = np.full(len(batch), self.processing_time, dtype=np.int64)
            self._run(arrow, times, np.arange(len(batch)))
        else:
            column = arrow.column(self._plan.rowtime)
            times = milliseconds_of(column, f"operator {self.context.name!r}")
            self._late += self._waiting.add(arrow, times, self._watermark)

    def process_watermark(self, watermark: int) -> None:
        """Take the rows that the watermark has passed."""
        self._watermark = watermark
        if self._plan.rowtime is not None:
            fired = self.keyed_state.timers.advance_event_time(watermark)
            keys = list(dict.fromkeys(cache_key(key) for _, key, _ in fired))
            if keys:
                arrow, times, _ = self._waiting.take(keys, watermark)
                self._run(arrow, times, np.argsort(times, kind="stable"))
        super().process_watermark(watermark)

    # Frames.

    def _run(
        self, arrow: pa.RecordBatch, times: NDArray[np.int64], order: NDArray[np.int64]
    ) -> None:
        """Take rows, in this order."""
        arrow, times = arrow.take(pa.array(order)), times[order]
        groups = group_rows([arrow.column(index) for index in self._plan.keys], len(times))
        self.keyed_state.make_room(len(groups))
        frames = [unpacked_rows(stored) for stored in self._live_frames(groups.keys)]
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
        self._emit(arrow, pool, groups.keys, steps)
        self._keep_frames(pool, groups.keys, steps)

    def _live_frames(self, keys: list[CacheKey]) -> list[bytes | None]:
        if not self._bounded:
            return [None] * len(keys)
        return self._frames.get_all(keys)

    def _emit(
        self, arrow: pa.RecordBatch, pool: pa.RecordBatch, keys: list[CacheKey], steps: _Steps
    ) -> None:
        stored = self._accumulators.get_all(keys)
        ttl = self._plan.state_ttl
        columns = self._states.unpack([row or self._fresh for row in stored])
        is_fresh = np.array([row is None for row in stored], dtype=np.bool_)
        if ttl:
            is_over = columns[0].to_numpy() + ttl <= self.processing_time
            rows = [
                self._fresh if over else row or self._fresh
                for row, over in zip(stored, is_over.tolist(), strict=True)
            ]
            columns, is_fresh = self._states.unpack(rows), is_fresh | is_over
        counts = np.array(steps.counts, dtype=np.int64)
        segments = Segments(np.cumsum(counts) - counts, counts, keys, is_fresh)
        rows_in_order = SortedRows(
            pool, np.array(steps.rows, dtype=np.int64), np.array(steps.weights, dtype=np.int64)
        )
        _, after, states = self._aggregates.run(
            rows_in_order, segments, columns[1:], last_only=False
        )
        written = pa.array(np.full(len(keys), self.processing_time), pa.int64())
        self._accumulators.put_all(keys, self._states.pack([written, *states]))
        results = np.empty(arrow.num_rows, dtype=np.int64)
        results[np.array(steps.of_row, dtype=np.int64)] = steps.result_at
        picked = pa.array(results)
        self.emit_columns([*arrow.columns, *(column.take(picked) for column in after)])

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

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        snapshot = super().snapshot(checkpoint)
        metrics: dict[str, Any] = {**snapshot.metrics, "numLateRecordsDropped": self._late}
        self._late = 0
        snapshot.metrics = metrics
        return snapshot


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
        #: New rows, and the step behind which each has its result.
        self.of_row: list[int] = []
        self.result_at: list[int] = []
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
        for number, (row, time) in enumerate(zip(mine.tolist(), new_times, strict=True)):
            frame.append(self._first_new + row)
            frame_times.append(time)
            self._step(self._first_new + row, 1)
            of_group.append(row)
            is_last = number + 1 == len(new_times) or new_times[number + 1] != time
            if self._has_peers and not is_last:
                continue
            while self._is_out(frame_times, gone, time):
                self._step(frame[gone], -1)
                gone += 1
            self.of_row += of_group
            self.result_at += [len(self.rows) - 1] * len(of_group)
            of_group = []
        self.counts.append(len(self.rows) - before)
        self.left.append(frame[gone:])
        self.left_times.append(frame_times[gone:])

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
