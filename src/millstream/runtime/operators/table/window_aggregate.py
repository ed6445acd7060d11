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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.row_groups import group_codes, group_rows
from millstream.runtime.columnar.segments import Segments
from millstream.runtime.columnar.table_windows import WindowKind, Windows, attached_windows
from millstream.runtime.operators.table.aggregate_calls import SortedRows, is_partial_call
from millstream.runtime.operators.table.windowed import WindowedAggregateOperator
from millstream.state.key_codec import cache_key, uncache_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.runtime.operators.table.plans import WindowAggregatePlan
    from millstream.state.key_codec import CacheKey

    Slot = tuple[CacheKey, bytes]

__all__ = ["WindowAggregateOperator"]

#: The end and the start, so that bytes are in the order of ends.
_WINDOW: Final = struct.Struct(">QQ")
_BIAS: Final = 2**63


@dataclass(frozen=True)
class _Slots:
    """The rows of a batch by key and slice (or window), and the state of each."""

    order: NDArray[np.int64]
    #: Their keys are slots.
    segments: Segments
    states: list[pa.Array]
    #: Of each slice.
    keys: list[CacheKey]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class WindowAggregateOperator(WindowedAggregateOperator):
    """Keeps the accumulators of windows that are not over."""

    def __init__(self, plan: WindowAggregatePlan) -> None:
        """Take the windows, and what to compute of each."""
        super().__init__(plan)
        kernels = self.aggregates.kernels
        self._shares = (
            plan.window.kind in (WindowKind.HOP, WindowKind.CUMULATE)
            and plan.window.has_slices
            and plan.attached is None
            and all(kernel.is_partial for kernel in kernels)
            and all(is_partial_call(call) for call in plan.aggregates)
        )

    def take(
        self, arrow: pa.RecordBatch, weights: NDArray[np.int64], times: NDArray[np.int64]
    ) -> None:
        plan = self.plan
        if plan.attached is not None:
            found = attached_windows(arrow, plan.attached)
        elif self._shares:
            found = Windows.slices_of(times, plan.window)
        else:
            found = Windows.of(times, plan.window)
        open_ = ~self._is_late(found)
        if not open_.all():
            late = np.zeros(arrow.num_rows, dtype=np.bool_)
            late[found.rows] = True  # those between windows are in none
            late[found.rows[open_]] = False
            self.late += int(late.sum())
            found = found.some(open_)
        if not len(found.rows):
            return
        if len(found.rows) != arrow.num_rows or (found.rows != np.arange(len(found.rows))).any():
            arrow, weights = arrow.take(pa.array(found.rows)), weights[found.rows]
        at = self._group(arrow, plan.keys, found)
        weights = weights[at.order]
        rows = SortedRows(arrow, at.order, weights)
        _, _, added = self.aggregates.run(rows, at.segments, at.states[1:], last_only=True)
        self._keep(at, weights, added)

    def merge(self, arrow: pa.RecordBatch) -> None:
        keys = len(self.plan.keys)
        starts, ends = (arrow.column(arrow.num_columns - at).to_numpy() for at in (2, 1))
        weights = arrow.column(keys).to_numpy()
        found = Windows(np.arange(len(ends)), starts, ends)
        open_ = ~self._is_late(found)
        if not open_.all():
            self.late += int(weights[~open_].sum())
            arrow, weights = arrow.filter(pa.array(open_)), weights[open_]
            found = found.some(open_)
        if not len(weights):
            return
        at = self._group(arrow, range(keys), found)
        order = pa.array(at.order)
        parts = [column.take(order) for column in arrow.columns[keys + 1 : -2]]
        _, _, added = self.aggregates.add_up(
            self.aggregates.parts_of(parts), at.segments, at.states[1:], last_only=True
        )
        self._keep(at, weights[at.order], added)

    def _is_late(self, found: Windows) -> NDArray[np.bool_]:
        """Which slices or windows of rows are over, with all windows that they are in."""
        return self.is_over(self._last_ends(found) if self._shares else found.ends)

    def _last_ends(self, slices: Windows) -> NDArray[np.int64]:
        """The end of the last window that each slice is in."""
        window = self.plan.window
        if window.kind is WindowKind.HOP:
            return slices.starts + window.size
        return slices.starts - np.mod(slices.starts - window.offset, window.size) + window.size

    def _group(self, arrow: pa.RecordBatch, keys: Sequence[int], found: Windows) -> _Slots:
        """Bring the rows of each key and slice, or window, together, and read its state."""
        by_key = group_rows([arrow.column(index) for index in keys], arrow.num_rows)
        ends, of_end = found.distinct()
        order, starts, counts = group_codes(
            [(by_key.group_of_row, len(by_key)), (of_end, len(ends))]
        )
        self.keyed_state.make_room(len(starts))
        firsts = order[starts]
        names = list(map(_named, found.ends[ends].tolist(), found.starts[ends].tolist()))
        of_slot = by_key.group_of_row[firsts].tolist()
        keys_of_slots = [by_key.keys[key] for key in of_slot]
        slots = [
            (key, names[end])
            for key, end in zip(keys_of_slots, of_end[firsts].tolist(), strict=True)
        ]
        states, is_fresh = self.read(slots)
        segments = Segments(starts, counts, slots, is_fresh)
        starts, ends_ = found.starts[firsts], found.ends[firsts]
        return _Slots(order, segments, states, keys_of_slots, starts, ends_)

    def _keep(self, at: _Slots, weights: NDArray[np.int64], added: list[pa.Array]) -> None:
        """Write the accumulators, and have the windows of what is new given when they are over."""
        slots = at.segments.keys
        counts = at.states[0].to_numpy() + np.add.reduceat(weights, at.segments.starts)
        self.write(slots, counts, added)
        fresh = np.flatnonzero(at.segments.is_fresh)  # the others have their timers
        keys = [at.keys[number] for number in fresh.tolist()]
        self._register(keys, at.starts[fresh], at.ends[fresh])

    def _register(
        self, keys: list[CacheKey], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        """Have the windows of these slices given when they are over."""
        wanted = Windows(np.arange(len(keys)), starts, ends)
        if self._shares:
            inside = Windows.of(starts, self.plan.window)
            wanted = inside.some(~self.is_over(inside.ends))
        distinct, of_window = wanted.distinct()
        fires = self.fires_at(wanted.ends[distinct]).tolist()
        names = list(map(_named, wanted.ends[distinct].tolist(), wanted.starts[distinct].tolist()))
        register = self.register
        known = list(map(uncache_key, keys))
        for row, window in zip(wanted.rows.tolist(), of_window.tolist(), strict=True):
            register(known[row], names[window], fires[window])

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
        lifted = self.aggregates.parts_of(states[1:])
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
