"""GROUP BY window_start, window_end: aggregates of windows, given once each window is over.

What it is: Flink's window aggregation over TUMBLE, HOP and CUMULATE, and over windows that rows
have already (``attached``).  Where all aggregates can be put together of partial ones, HOP and
CUMULATE keep one accumulator per *slice* and key, and windows are put together of slices when they
are over; else every window has accumulators of its own.  A late row counts in those of its windows
that are not over yet; a row without such a window is dropped.

What it is not: for sessions (``session_aggregate.py``).

State: per key and slice, or window (its end and its start, 8 bytes each), the accumulators; a timer
per key and window.

Read next: ``runtime/operators/table/aggregate_calls.py``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.columnar.segments import Segments
from millstream.runtime.columnar.table_windows import WindowKind, Windows
from millstream.runtime.operators.table.aggregate_calls import SortedRows, is_partial_call
from millstream.runtime.operators.table.base import kinds_or_inserts
from millstream.runtime.operators.table.windowed import WindowedAggregateOperator
from millstream.state.key_codec import cache_key, uncache_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.runtime.operators.table.plans import WindowAggregatePlan
    from millstream.state.key_codec import CacheKey

    Slot = tuple[CacheKey, bytes]

__all__ = ["WindowAggregateOperator"]

#: The end and the start, so that bytes are in the order of ends.
_WINDOW: Final = struct.Struct(">QQ")
_BIAS: Final = 2**63


class WindowAggregateOperator(WindowedAggregateOperator):
    """Keeps the accumulators of windows that are not over."""

    def __init__(self, plan: WindowAggregatePlan) -> None:
        """Take the windows, and what to compute of each."""
        super().__init__(plan)
        kernels = self.aggregates.kernels
        self._shares = (
            plan.window.kind in (WindowKind.HOP, WindowKind.CUMULATE)
            and plan.attached is None
            and all(kernel.is_partial for kernel in kernels)
            and all(is_partial_call(call) for call in plan.aggregates)
        )

    def take(self, batch: Batch, arrow: pa.RecordBatch, times: NDArray[np.int64]) -> None:
        plan = self.plan
        if plan.attached is not None:
            found = self._attached(arrow)
        elif self._shares:
            found = Windows.slices_of(times, plan.window)
        else:
            found = Windows.of(times, plan.window)
        last_ends = self._last_ends(found) if self._shares else found.ends
        open_ = ~self.is_over(last_ends)
        counted = np.zeros(arrow.num_rows, dtype=np.bool_)
        counted[found.rows[open_]] = True
        self.late += int((~counted).sum())
        found = Windows(found.rows[open_], found.starts[open_], found.ends[open_])
        if len(found.rows):
            self._add(batch, arrow, found)

    def _attached(self, arrow: pa.RecordBatch) -> Windows:
        """The windows that rows have."""
        start, end = self.plan.attached or (0, 0)
        starts, ends = (
            arrow.column(index).cast(pa.timestamp("ms")).view(pa.int64()).to_numpy()
            for index in (start, end)
        )
        return Windows(np.arange(arrow.num_rows), starts, ends)

    def _last_ends(self, slices: Windows) -> NDArray[np.int64]:
        """The end of the last window that each slice is in."""
        window = self.plan.window
        if window.kind is WindowKind.HOP:
            return slices.starts + window.size
        return slices.starts - np.mod(slices.starts - window.offset, window.size) + window.size

    def _add(self, batch: Batch, arrow: pa.RecordBatch, found: Windows) -> None:
        """Add rows to the accumulators of their slices or windows."""
        rows = arrow.take(pa.array(found.rows))
        columns = [rows.column(index) for index in self.plan.keys]
        by_key = group_rows(columns, rows.num_rows)
        groups = group_rows([*columns, pa.array(found.ends), pa.array(found.starts)], rows.num_rows)
        self.keyed_state.make_room(len(groups))
        firsts = groups.first_rows
        keys = [by_key.keys[group] for group in by_key.group_of_row[firsts].tolist()]
        starts, ends = found.starts[firsts], found.ends[firsts]
        slots = [
            (key, _named(end, start))
            for key, end, start in zip(keys, ends.tolist(), starts.tolist(), strict=True)
        ]
        states, is_fresh = self.read(slots)
        weights = 1 - 2 * (kinds_or_inserts(batch) & 1).astype(np.int64)
        weights = weights[self.kept_rows][found.rows][groups.order]
        segments = Segments(groups.starts, groups.counts, slots, is_fresh)
        in_order = SortedRows(rows, groups.order, weights)
        _, _, added = self.aggregates.run(in_order, segments, states[1:], last_only=True)
        counts = states[0].to_numpy() + np.add.reduceat(weights, groups.starts)
        self.write(slots, counts, added)
        self._register(keys, starts, ends)

    def _register(
        self, keys: list[CacheKey], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        """Have the windows of these slices given when they are over."""
        wanted = Windows(np.arange(len(keys)), starts, ends)
        if self._shares:
            inside = Windows.of(starts, self.plan.window)
            open_ = ~self.is_over(inside.ends)
            wanted = Windows(inside.rows[open_], inside.starts[open_], inside.ends[open_])
        fires = self.fires_at(wanted.ends).tolist()
        register = self.register
        known = [uncache_key(key) for key in keys]
        pairs = zip(wanted.rows.tolist(), wanted.ends.tolist(), wanted.starts.tolist(), strict=True)
        for (row, end, start), time in zip(pairs, fires, strict=True):
            register(known[row], _named(end, start), time)

    def fire(self, fired: list[tuple[int, object, bytes]]) -> None:
        windows = [(cache_key(key), *_unnamed(name)) for _, key, name in fired]
        self.keyed_state.make_room(len(windows))
        keys = [key for key, _, _ in windows]
        starts = np.array([start for _, _, start in windows], dtype=np.int64)
        ends = np.array([end for _, end, _ in windows], dtype=np.int64)
        if self._shares:
            self._fire_slices(keys, starts, ends)
            return
        slots = [(key, _named(end, start)) for key, end, start in windows]
        states, is_fresh = self.read(slots)
        counts = states[0].to_numpy()
        self.give(keys, starts, ends, states[1:], (counts != 0) & ~is_fresh)
        self.drop(slots)

    def _fire_slices(
        self, keys: list[CacheKey], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        """Put windows together of their slices."""
        length = self.plan.window.slice
        counts = (ends - starts) // length
        window_of = np.repeat(np.arange(len(keys)), counts)
        within = np.arange(len(window_of)) - np.repeat(np.cumsum(counts) - counts, counts)
        slice_ends = starts[window_of] + (within + 1) * length
        slots = [
            (keys[window], _named(end, end - length))
            for window, end in zip(window_of.tolist(), slice_ends.tolist(), strict=True)
        ]
        states, _ = self.read(slots)
        fresh = pa.array(np.zeros(len(keys), np.int64))
        segments = Segments(
            np.cumsum(counts) - counts, counts, list(keys), np.ones(len(keys), np.bool_)
        )
        lifted, at = [], 1
        for kernel in self.aggregates.kernels:
            lifted.append(states[at : at + len(kernel.fields)])
            at += len(kernel.fields)
        initial = [column.take(fresh) for column in self.aggregates.fresh]
        _, _, merged = self.aggregates.add_up(lifted, segments, initial, last_only=True)
        rows = np.add.reduceat(states[0].to_numpy(), segments.starts)
        self.give(keys, starts, ends, merged, rows != 0)
        last = Windows(window_of, slice_ends - length, slice_ends)
        is_done = self._last_ends(last) == ends[window_of]
        self.drop([slot for slot, done in zip(slots, is_done.tolist(), strict=True) if done])


def _named(end: int, start: int) -> bytes:
    return _WINDOW.pack(end + _BIAS, start + _BIAS)


def _unnamed(name: bytes) -> tuple[int, int]:
    end, start = _WINDOW.unpack(name)
    return end - _BIAS, start - _BIAS
