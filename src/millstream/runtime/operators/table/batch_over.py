"""OVER of batch mode: functions over the rows of a partition, when all of them are there.

What it is: rows are kept, and those taken away that are taken back; behind the last of them each
partition is put in order, and its rows come out with all functions over any frame, as inserts.
Rows of the same order are as they came.

What it is not: OVER of streams, by time (``over.py``) or with updates (``updating_over.py``).

A frame from the beginning of its partition is a place in one run over the partition; a frame to the
end of it one in a run the other way round, for functions that can tell no difference; any other is
a run of its own, of the rows in it.  Equal frames are computed once.

State, per key: a map from sort key and row to how often the row is there (8 bytes, signed), the
length of the sort key (4) and the number of its first arrival (8), big-endian; under the empty name
the next such number.  A timer of event time per key says that there is one.

Read next: ``runtime/columnar/over_frames.py``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.runtime.columnar.changelog_aggregates import Segments
from millstream.runtime.columnar.over_frames import (
    NUMBERING,
    OrderedPartitions,
    numbered,
    ordering_values,
)
from millstream.runtime.columnar.row_codec import RowCodec, sort_keys
from millstream.runtime.operators.table.aggregate_calls import Aggregates, SortedRows
from millstream.runtime.operators.table.base import KeyedTableOperator, kinds_or_inserts
from millstream.runtime.operators.table.plans import ordered_section
from millstream.state.key_codec import cache_key, uncache_key
from millstream.state.packed_state import PackedMaps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, OperatorContext, Output, StateSection
    from millstream.runtime.columnar.over_frames import Frame
    from millstream.runtime.operators.table.specs import AggregateCall, SortColumn
    from millstream.state.key_codec import CacheKey
    from millstream.state.packed_state import PackedMap
    from millstream.types.logical_types import RowType

__all__ = ["BatchOverFactory"]

_ENTRY: Final = struct.Struct(">qIQ")
_NUMBER: Final = struct.Struct(">Q")
#: The name of the number of the next row.
_NEXT: Final = b""
#: Partitions that are put in order at a time.
_KEYS: Final = 1024
#: Rows per batch at the end.
_BATCH: Final = 16_384
#: Rows of frames that are computed at a time.
_MOST: Final = 1 << 20
#: How many times the rows there are the frames may have that are computed one by one.
_FEW: Final = 4
#: Functions that give for rows the other way round what another, or the same, gives for them.
_MIRRORED: Final = {
    **{each: each for each in ("COUNT", "SUM", "$SUM0", "AVG", "MIN", "MAX")},
    "FIRST_VALUE": "LAST_VALUE",
    "LAST_VALUE": "FIRST_VALUE",
}


@dataclass(frozen=True)
class BatchOverFactory:
    """Makes operators that give the input's columns, then functions over rows around each row.

    Args:
        input_type: the rows.
        keys: the columns of the partition.
        order: of the rows of a partition; none: all of them are equal.
        calls: the functions; those that have no frame are named in ``NUMBERING``.
        frame: of the others.
    """

    input_type: RowType
    keys: tuple[int, ...]
    order: tuple[SortColumn, ...]
    calls: tuple[AggregateCall, ...]
    frame: Frame
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        description = "counts by packed order and row, by key"
        return [ordered_section("rows of partitions", description, self.input_type, self.order)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return BatchOverOperator(self)


class BatchOverOperator(KeyedTableOperator):
    """Keeps all rows of every key until the input is over."""

    def __init__(self, plan: BatchOverFactory) -> None:
        """Take the order, the frame, and what to compute over it."""
        super().__init__(plan.state_sections()[0])
        self._plan = plan
        self._codec = RowCodec(plan.input_type.to_arrow_schema())
        framed = [each for each in plan.calls if each.user or each.function not in NUMBERING]
        mirrored = [_mirrored(each) for each in framed]
        self._aggregates = Aggregates(
            [call for call, other in zip(framed, mirrored, strict=True) if other is None],
            plan.input_type,
            retracts=False,
        )
        self._both_ways = Aggregates(
            [call for call, other in zip(framed, mirrored, strict=True) if other is not None],
            plan.input_type,
            retracts=False,
        )
        self._backwards = Aggregates(
            [each for each in mirrored if each is not None], plan.input_type, retracts=False
        )

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = PackedMaps(self.keyed_state, "\0rows")
        for each in (self._aggregates, self._both_ways, self._backwards):
            each.open_functions(self.runtime_context)

    def process_rows(self, batch: Batch) -> None:
        groups = self.group(batch, self._plan.keys)
        columns = batch.arrow.columns
        rows, order = self._codec.pack(columns), self._plan.order
        begins = sort_keys(columns, order) if order else [b""] * len(rows)
        names = [begin + row for begin, row in zip(begins, rows, strict=True)]
        keys = groups.keys
        of_row = groups.group_of_row.tolist()
        entries = ((keys[group], name) for group, name in zip(of_row, names, strict=True))
        self._kept.fetch_entries(chain(entries, zip(keys, repeat(_NEXT))))
        maps = [_Arrivals(self._kept.map_of(key)) for key in keys]
        weights = (1 - 2 * (kinds_or_inserts(batch) & 1)).tolist()
        for group, begin, name, weight in zip(of_row, begins, names, weights, strict=True):
            maps[group].add(name, len(begin), weight)
        for each in maps:
            each.close()
        self._kept.changed(keys)
        for key in keys:
            self.keyed_state.timers.register_event_time(uncache_key(key), b"", 0)

    def process_watermark(self, watermark: int) -> None:
        """Hold it back: no row has gone out yet, and all would be late behind it."""
        del watermark

    def end_input(self) -> None:
        """Give all rows, and behind them the time of the end."""
        super().end_input()
        fired = list(self.keyed_state.timers.advance_event_time(0))
        keys = [cache_key(key) for _, key, _ in fired]
        for start in range(0, len(keys), _KEYS):
            self._finish(keys[start : start + _KEYS])
        self.output.emit_watermark(MAX_TIMESTAMP)

    def _finish(self, keys: Sequence[CacheKey]) -> None:
        self.keyed_state.make_room(len(keys))
        self._kept.fetch_all(keys)
        packed: list[bytes] = []
        is_first: list[bool] = []
        counts: list[int] = []
        for key in keys:
            kept = self._kept.map_of(key)
            before = len(packed)
            last: bytes | None = None
            for begin, row, count in _in_order(kept):
                is_first += [begin != last, *[False] * (count - 1)]
                packed += repeat(row, count)
                last = begin
            if len(packed) > before:
                counts.append(len(packed) - before)
            kept.clear()  # behind a restore nothing comes again
        self._kept.changed(keys)
        if not packed:
            return
        of_keys = np.array(counts, dtype=np.int64)
        starts = np.cumsum(of_keys) - of_keys
        self._emit(packed, OrderedPartitions(starts, of_keys, np.array(is_first, dtype=np.bool_)))

    def _emit(self, packed: list[bytes], rows: OrderedPartitions) -> None:
        columns = self._codec.unpack(packed)
        forwards, both_ways = map(iter, self._framed(columns, rows))
        found = []
        for call in self._plan.calls:
            if call.user is None and call.function in NUMBERING:
                arguments = [columns[index] for index in call.arguments]
                made = numbered(call.function, rows, arguments)
            else:
                made = next(forwards if _mirrored(call) is None else both_ways)
            found.append(made.cast(call.type.to_arrow()))
        columns = [*columns, *found]
        for start in range(0, len(packed), _BATCH):
            self.emit_columns([column.slice(start, _BATCH) for column in columns])

    # -- aggregates over frames ------------------------------------------------------------------

    def _framed(
        self, columns: list[pa.Array], rows: OrderedPartitions
    ) -> tuple[list[pa.Array], list[pa.Array]]:
        """The aggregates over the frame of each row: those of one way, and those of both."""
        if not self._aggregates.calls and not self._both_ways.calls:
            return [], []
        arrow = pa.RecordBatch.from_arrays(columns, schema=self._codec.schema)
        low, high = self._bounds(columns, rows)
        _, at, which = np.unique(
            low * (len(rows) + 1) + high, return_index=True, return_inverse=True
        )
        frames = _Frames(low[at], high[at], rows.begins[at], rows.ends[at])
        one_way = self._over(frames, arrow, rows, self._aggregates, None)
        both = self._over(frames, arrow, rows, self._both_ways, self._backwards)
        taken = pa.array(which)
        return [each.take(taken) for each in one_way], [each.take(taken) for each in both]

    def _over(
        self,
        frames: _Frames,
        arrow: pa.RecordBatch,
        rows: OrderedPartitions,
        aggregates: Aggregates,
        backwards: Aggregates | None,
    ) -> list[pa.Array]:
        """Aggregates over frames; without ``backwards`` only runs from the beginning are shared."""
        if not aggregates.calls:
            return []
        is_running = frames.are_many(frames.low == frames.begins, len(rows))
        is_trailing = np.zeros(len(frames.low), dtype=np.bool_)
        if backwards is not None:
            is_trailing = frames.are_many((frames.high == frames.ends) & ~is_running, len(rows))
        pieces: list[list[pa.Array]] = [aggregates.of_nothing()]
        places = np.zeros(len(frames.low), dtype=np.int64)
        offset = 1
        if is_running.any():
            order = _Runs(rows.starts, rows.counts)
            pieces.append(_run(aggregates, arrow, order, last_only=False))
            places[is_running] = offset + frames.high[is_running] - 1
            offset += len(rows)
        if backwards is not None and is_trailing.any():
            order = _Runs(rows.starts, rows.counts, is_backwards=True)
            pieces.append(_run(backwards, arrow, order, last_only=False))
            mirror = frames.begins + frames.ends - 1 - frames.low
            places[is_trailing] = offset + mirror[is_trailing]
            offset += len(rows)
        single = np.flatnonzero(~frames.are_empty & ~is_running & ~is_trailing)
        places[single] = offset + np.arange(len(single))
        pieces += _one_by_one(aggregates, arrow, frames.low[single], frames.high[single])
        taken = pa.array(places)
        return [pa.concat_arrays(parts).take(taken) for parts in zip(*pieces, strict=True)]

    def _bounds(
        self, columns: list[pa.Array], rows: OrderedPartitions
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        frame, nothing = self._plan.frame, np.zeros(0, dtype=np.bool_)
        if not frame.is_rows and (frame.preceding or frame.following):
            (by,) = self._plan.order
            values, nulls = ordering_values(columns[by.index], frame, descending=by.descending)
            return rows.bounds(frame, values, nulls)
        if not frame.is_rows:  # no distances
            nothing = np.ones(len(rows), dtype=np.bool_)
        return rows.bounds(frame, nothing, nothing)


@dataclass(frozen=True)
class _Frames:
    """Different frames: their rows, and those of their partitions."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    @property
    def are_empty(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.low == self.high
        return found

    def are_many(self, which: NDArray[np.bool_], rows: int) -> NDArray[np.bool_]:
        """Those of some frames that are not empty; none, if it is less to compute each of them."""
        found = which & ~self.are_empty
        if (self.high - self.low)[found].sum() <= _FEW * rows:
            found[:] = False
        return found


@dataclass(frozen=True)
class _Runs:
    """Rows that stand behind each other, in their order or the other way round."""

    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    is_backwards: bool = False

    @property
    def places(self) -> NDArray[np.int64]:
        """Where each run begins among the rows of all."""
        found: NDArray[np.int64] = np.cumsum(self.counts) - self.counts
        return found

    @property
    def order(self) -> NDArray[np.int64]:
        """The rows of all runs."""
        numbers = np.arange(int(self.counts.sum()))
        if self.is_backwards:
            lasts = self.starts + self.counts - 1
            return np.repeat(lasts + self.places, self.counts) - numbers
        return numbers + np.repeat(self.starts - self.places, self.counts)


def _mirrored(call: AggregateCall) -> AggregateCall | None:
    """The call that gives the same for rows the other way round; None: there is none."""
    if call.user is not None or call.function not in _MIRRORED:
        return None
    return replace(call, function=_MIRRORED[call.function])


def _one_by_one(
    aggregates: Aggregates, arrow: pa.RecordBatch, low: NDArray[np.int64], high: NDArray[np.int64]
) -> Iterator[list[pa.Array]]:
    """The aggregates over frames, each computed by itself."""
    counts = high - low
    total = np.cumsum(counts)
    start = 0
    while start < len(counts):
        done = int(total[start - 1]) if start else 0
        stop = max(int(np.searchsorted(total, done + _MOST, "right")), start + 1)
        yield _run(aggregates, arrow, _Runs(low[start:stop], counts[start:stop]), last_only=True)
        start = stop


def _run(
    aggregates: Aggregates, arrow: pa.RecordBatch, runs: _Runs, *, last_only: bool
) -> list[pa.Array]:
    """The aggregates behind each row of runs, or behind each run."""
    order = runs.order
    rows = SortedRows(arrow, order, np.ones(len(order), dtype=np.int64))
    is_fresh = np.ones(len(runs.counts), dtype=np.bool_)
    segments = Segments(runs.places, runs.counts, range(len(runs.counts)), is_fresh)
    return aggregates.run_anew(rows, segments, last_only=last_only)


class _Arrivals:
    """The rows of a key while a batch is added to them."""

    def __init__(self, kept: PackedMap) -> None:
        """Take a map of which the entries that are needed were fetched."""
        self._kept = kept
        self._next = _NUMBER.unpack(kept.get(_NEXT) or _NUMBER.pack(0))[0]

    def add(self, name: bytes, length: int, weight: int) -> None:
        """Count a row; below zero if it is taken back before it comes, from another task."""
        stored = self._kept.get(name)
        count, number = 0, self._next
        if stored is None:
            self._next += 1
        else:
            count, _, number = _ENTRY.unpack(stored)
        if count + weight:
            self._kept.put(name, _ENTRY.pack(count + weight, length, number))
        else:
            self._kept.remove(name)

    def close(self) -> None:
        """Note the number of the next row."""
        self._kept.put(_NEXT, _NUMBER.pack(self._next))


def _in_order(kept: PackedMap) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield sort keys and rows, in order, and how often each is there."""
    entries = []
    for name, value in kept.items():
        if name:
            count, length, number = _ENTRY.unpack(value)
            if count > 0:
                entries.append((name[:length], number, name[length:], count))
    for begin, _, row, count in sorted(entries):
        yield begin, row, count
