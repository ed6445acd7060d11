"""What aggregations of windows have in common: time, accumulators, results, late rows.

What it is: the base class of ``window_aggregate.py`` and ``session_aggregate.py``.

What it is not: aware of how windows lie.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import columns_of_keys
from millstream.runtime.operators.table.aggregate_calls import Aggregates
from millstream.runtime.operators.table.base import LateRowsOperator, kinds_or_inserts
from millstream.runtime.operators.table.row_times import RowTimes
from millstream.runtime.operators.table.window_function import window_columns
from millstream.state.packed_state import PackedValues

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        Checkpoint,
        OperatorContext,
        OperatorSnapshot,
        Output,
    )
    from millstream.runtime.operators.table.plans import WindowAggregatePlan
    from millstream.state.key_codec import CacheKey
    from millstream.state.packed_state import Place

__all__ = ["WindowedAggregateOperator"]


class WindowedAggregateOperator(LateRowsOperator):
    """Keeps accumulators per key and window."""

    counted: ClassVar[Mapping[str, str]] = {
        **LateRowsOperator.counted,
        "numNullRowTimeRecordsDropped": "without_time",
    }

    def __init__(self, plan: WindowAggregatePlan) -> None:
        """Take the windows, and what to compute of each."""
        super().__init__(plan.state_sections()[0])
        self.plan = plan
        self.aggregates = Aggregates(plan.aggregates, plan.input_type, retracts=plan.retracts)
        rows = pa.field("rows", pa.int64())
        self.codec = RowCodec(pa.schema([rows, *self.aggregates.fields]))
        self.fresh = self.codec.pack([pa.array([0], pa.int64()), *self.aggregates.fresh])[0]
        self.without_time = 0
        self._times = RowTimes(plan.input_type, plan.time, plan.time_zone)
        self._time_type = pa.timestamp("ms", self._times.type.tz)
        self._clock = self._times.clock

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._accumulators = PackedValues(self.keyed_state, "\0windows")
        self.aggregates.open(self.keyed_state, self.runtime_context)

    # What kinds of windows add.

    @abstractmethod
    def take(
        self, arrow: pa.RecordBatch, weights: NDArray[np.int64], times: NDArray[np.int64]
    ) -> None:
        """Add rows (or take them back, where the weight is -1) at these times to their windows."""

    def merge(self, arrow: pa.RecordBatch) -> None:
        """Add partial aggregates to the windows of their slices.

        Raises:
            NotImplementedError: these windows have no slices.
        """
        raise NotImplementedError

    @abstractmethod
    def fire(self, fired: list[tuple[int, object, bytes]]) -> None:
        """Give the windows of timers: time, key, window."""

    # Time.

    def process_rows(self, batch: Batch) -> None:
        if self.plan.merges:
            self.merge(batch.arrow)
            return
        kept = None
        if not self.plan.is_rowtime:
            arrow = batch.arrow
            times = np.full(len(batch), self.processing_time, dtype=np.int64)
            times = self._times.shown(times)
        else:
            arrow, kept, times = self._times.of(batch.arrow, self.label)
            self.without_time += len(batch) - len(times)
        if len(times):
            weights = 1 - 2 * (kinds_or_inserts(batch) & 1).astype(np.int64)
            self.take(arrow, weights if kept is None else weights[kept], times)

    @property
    def _now(self) -> int:
        return self._watermark if self.plan.is_rowtime else self.processing_time

    def fires_at(self, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when windows with these ends are over.

        The watermark says so at their last millisecond; a clock that shows it may have rows of it.
        """
        last = ends - 1 if self._clock is None else self._clock.absolute(ends - 1)
        return last if self.plan.is_rowtime else last + 1

    def is_over(self, ends: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether windows with these ends are over."""
        over: NDArray[np.bool_] = self.fires_at(ends) <= self._now
        return over

    def register(self, key: object, window: bytes, time: int) -> None:
        """Have a window given at a time."""
        timers = self.keyed_state.timers
        if self.plan.is_rowtime:
            timers.register_event_time(key, window, time)
        else:
            timers.register_processing_time(key, window, time)

    def process_watermark(self, watermark: int) -> None:
        """Give the windows that are over."""
        before, self._watermark = self._watermark, watermark
        if self.plan.is_rowtime:
            fired = list(self.keyed_state.timers.advance_event_time(watermark))
            self.give_over(before, fired)
        super().process_watermark(watermark)

    def give_over(self, before: int, fired: list[tuple[int, object, bytes]]) -> None:
        """Give the windows that are over now and were not with the watermark ``before``."""
        del before
        if fired:
            self.fire(fired)

    def process_processing_time(self, now: int) -> None:
        super().process_processing_time(now)
        if not self.plan.is_rowtime:
            self._fire_until(now)

    def _fire_until(self, now: int) -> None:
        fired = list(self.keyed_state.timers.advance_processing_time(now))
        if fired:
            self.fire(fired)

    def due(self) -> int | None:
        return self.keyed_state.timers.processing.next_time()

    def end_input(self) -> None:
        """Windows of processing time end with their input, too."""
        super().end_input()
        if not self.plan.is_rowtime:
            self._fire_until(MAX_TIMESTAMP)

    # State.

    def read(self, slots: Sequence[Place]) -> tuple[list[pa.Array], NDArray[np.bool_]]:
        """Return how many rows each has and the accumulators, and where there is nothing."""
        stored = self._accumulators.get_all(slots)
        columns = self.codec.unpack([row or self.fresh for row in stored])
        return columns, np.array([row is None for row in stored], dtype=np.bool_)

    def write(
        self, slots: Sequence[Place], counts: NDArray[np.int64], states: list[pa.Array]
    ) -> None:
        """Keep accumulators."""
        self._accumulators.put_all(slots, self.codec.pack([pa.array(counts), *states]))

    def drop(self, slots: Sequence[Place]) -> None:
        """Forget accumulators."""
        self._accumulators.put_all(slots, [None] * len(slots))
        self.aggregates.forget(slots)

    def give(
        self,
        keys: list[CacheKey],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        states: list[pa.Array],
        has_rows: NDArray[np.bool_],
    ) -> None:
        """Emit the results of windows that have rows."""
        chosen = np.flatnonzero(has_rows)
        if len(chosen):
            self.give_columns(self.key_columns(keys, chosen), starts, ends, states, chosen)

    def give_columns(
        self,
        keys: list[pa.Array],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        states: list[pa.Array],
        chosen: NDArray[np.int64],
    ) -> None:
        """Emit the results of some windows; ``keys`` are the columns of these alone."""
        picked = pa.array(chosen)
        columns, at = [], 0
        for kernel in self.aggregates.kernels:
            mine = [column.take(picked) for column in states[at : at + len(kernel.fields)]]
            columns.append(kernel.results(mine))
            at += len(kernel.fields)
        made = window_columns(starts[chosen], ends[chosen], self._clock, self._time_type)
        shown = [made[name] for name in self.plan.properties]
        self.emit_columns([*keys, *columns, *shown])

    def key_columns(self, keys: list[CacheKey], chosen: NDArray[np.int64]) -> list[pa.Array]:
        """Return the key columns of these keys."""
        schema = self.plan.input_type.to_arrow_schema()
        kinds = [schema.field(index).type for index in self.plan.keys]
        return columns_of_keys([keys[number] for number in chosen.tolist()], kinds)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        due = self.due()
        snapshot = super().snapshot(checkpoint)
        snapshot.next_due = due
        return snapshot
