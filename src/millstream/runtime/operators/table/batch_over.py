"""OVER in batch mode: functions over the rows of a partition once all of them are known.

Rows are kept, and removed if they are retracted; at the end of the input each partition is sorted,
and its rows are emitted with all functions over any frame, as inserts.  Rows of the same order
stay as they came.

A frame from the start of its partition is a position in one run over the partition; a frame to the
end of it is one in a backward run, for functions that allow it; any other is a separate run over
the rows in it.  Equal frames are computed once.

Whole partitions are in memory at the end, one or a few at a time; the others are in the store.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.errors import ProgramError
from millstream.runtime.columnar.array_utils import runs_of
from millstream.runtime.columnar.changelog_aggregates import Segments
from millstream.runtime.operators.table.aggregate_calls import Aggregates, SortedRows
from millstream.runtime.operators.table.sort import RowsUntilEndOperator
from millstream.runtime.operators.table.specs import ordered_section

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, OperatorContext, Output, StateSection
    from millstream.runtime.operators.table.sort import KeptRow
    from millstream.runtime.operators.table.specs import AggregateCall, SortColumn
    from millstream.types.logical_types import RowType


Offset: TypeAlias = int | float | Decimal
#: A count of rows that no partition has.
_MANY: Final = 1 << 48
#: Below it, sums and differences of two integers of 64 bits do not wrap around.
_SAFE: Final = 1 << 61


@dataclass(frozen=True, slots=True)
class Frame:
    """Which rows around a row: from ``preceding`` before it to ``following`` after it."""

    is_rows: bool
    #: Rows, or a distance in the column that orders them; negative: after the row.  None: all.
    preceding: Offset | None
    #: The same; negative: before the row.
    following: Offset | None


@dataclass(frozen=True)
class OrderedPartitions:
    """Partitions, each in its order, one after another; none is empty."""

    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    #: Which rows are the first of their order in their partition.
    is_first: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.is_first)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The place of each row."""
        return np.arange(len(self))

    @cached_property
    def begins(self) -> NDArray[np.int64]:
        """Return where the partition of each row begins."""
        return np.repeat(self.starts, self.counts)

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """The place after the partition of each row."""
        return np.repeat(self.starts + self.counts, self.counts)

    @cached_property
    def peers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the rows of the order of each row begin, and the place after them."""
        firsts = np.flatnonzero(self.is_first)
        lengths = np.diff(np.append(firsts, len(self)))
        return np.repeat(firsts, lengths), np.repeat(firsts + lengths, lengths)

    def bounds(
        self, frame: Frame, values: NDArray[Any], is_null: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the frame of each row begins, and the place after it.

        Args:
            frame: of all rows.
            values: for RANGE with a distance: what ``ordering_values`` gives.
            is_null: which of these are NULL or no number; only rows of the same order are at a
                distance of them.
        """
        if frame.is_rows:
            low, high = self._by_rows(frame)
        else:
            low, high = self._by_range(frame, values, is_null)
        return low, np.maximum(low, high)

    def _by_rows(self, frame: Frame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        low, high = self.begins, self.ends
        if frame.preceding is not None:
            before = int(np.clip(int(frame.preceding), -_MANY, _MANY))
            low = np.clip(self.rows - before, self.begins, self.ends)
        if frame.following is not None:
            behind = int(np.clip(int(frame.following), -_MANY, _MANY))
            high = np.clip(self.rows + behind + 1, self.begins, self.ends)
        return low, high

    def _by_range(
        self, frame: Frame, values: NDArray[Any], is_null: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        low, high = (each.copy() for each in self.peers)
        for known, part in self._by_value(frame, values, is_null):
            if frame.preceding:
                low[known] = known[0] + np.searchsorted(part, part - frame.preceding, "left")
            if frame.following:
                high[known] = known[0] + np.searchsorted(part, part + frame.following, "right")
        if frame.preceding is None:
            low = self.begins
        if frame.following is None:
            high = self.ends
        return low, high

    def _by_value(
        self, frame: Frame, values: NDArray[Any], is_null: NDArray[np.bool_]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Yield runs of rows with values that ascend, of one partition or, in one run, of all."""
        distances = [frame.preceding or 0, frame.following or 0]
        if values.dtype == np.int64 and len(values) and min(distances) >= 0 and not is_null.any():
            # The values of each partition are further from those of others than any distance.
            least, gap = int(values.min()), math.ceil(max(distances))
            stride = int(values.max()) - least + 1 + gap
            if stride * len(self.starts) < _SAFE:
                number = np.repeat(np.arange(len(self.starts)), self.counts)
                yield self.rows, number * stride + (values - least)
                return
        for start, count in zip(self.starts.tolist(), self.counts.tolist(), strict=True):
            known = start + np.flatnonzero(~is_null[start : start + count])
            if len(known):
                yield known, values[known]


def ordering_values(
    column: pa.Array, frame: Frame, *, descending: bool
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the values that RANGE measures distances in, ascending, and which are NULL or NaN.

    Args:
        column: that orders the rows; of times the distance is in milliseconds.
        frame: with the distances.
        descending: whether the values are; they are negated then.
    """
    kind = column.type
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_decimal(kind):
        values = np.array([each or 0 for each in column.to_pylist()], dtype=object)
    elif pa.types.is_floating(kind):
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
        is_null = is_null | np.isnan(values)  # which stand before others if descending
    else:
        values = _whole_numbers(column)
        ends = (values.min(), values.max(), frame.preceding or 0, frame.following or 0)
        if max(abs(int(each)) for each in ends) >= _SAFE:
            values = values.astype(object)
    return (-values if descending else values), is_null


def _whole_numbers(column: pa.Array) -> NDArray[np.int64]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms", kind.tz), safe=False)
    elif pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ms"))
    elif pa.types.is_time(kind):
        column = column.cast(pa.time32("ms"), safe=False)
    if pa.types.is_time32(column.type):
        column = column.cast(pa.int32())
    found: NDArray[np.int64] = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found


# -- functions of the place of a row ------------------------------------------------------------


def _row_number(rows: OrderedPartitions, arguments: list[pa.Array]) -> NDArray[Any]:
    del arguments
    return rows.rows - rows.begins + 1


def _rank(rows: OrderedPartitions, arguments: list[pa.Array]) -> NDArray[Any]:
    del arguments
    return rows.peers[0] - rows.begins + 1


def _dense_rank(rows: OrderedPartitions, arguments: list[pa.Array]) -> NDArray[Any]:
    del arguments
    counted: NDArray[np.int64] = np.cumsum(rows.is_first)
    return counted - counted[rows.begins] + 1


def _cume_dist(rows: OrderedPartitions, arguments: list[pa.Array]) -> NDArray[Any]:
    del arguments
    shares: NDArray[np.float64] = (rows.peers[1] - rows.begins) / (rows.ends - rows.begins)
    return shares


def _percent_rank(rows: OrderedPartitions, arguments: list[pa.Array]) -> NDArray[Any]:
    del arguments
    others: NDArray[np.int64] = np.maximum(rows.ends - rows.begins - 1, 1)
    shares: NDArray[np.float64] = (rows.peers[0] - rows.begins) / others
    return shares


def _ntile(rows: OrderedPartitions, arguments: list[pa.Array]) -> NDArray[Any]:
    """The first buckets have one row more, if the rows cannot be divided equally."""
    buckets = arguments[0].cast(pa.int64()).to_numpy()
    size, more = np.divmod(rows.ends - rows.begins, buckets)
    place = rows.rows - rows.begins
    in_larger = more * (size + 1)
    behind = more + (place - in_larger) // np.maximum(size, 1)
    found: NDArray[np.int64] = np.where(place < in_larger, place // (size + 1), behind) + 1
    return found


_PLACES: Final[dict[str, Callable[[OrderedPartitions, list[pa.Array]], NDArray[Any]]]] = {
    "ROW_NUMBER": _row_number,
    "RANK": _rank,
    "DENSE_RANK": _dense_rank,
    "CUME_DIST": _cume_dist,
    "PERCENT_RANK": _percent_rank,
    "NTILE": _ntile,
}
_OTHER_ROWS: Final = {"LAG": -1, "LEAD": 1}
#: The functions that have no frame.
NUMBERING: Final = frozenset({*_PLACES, *_OTHER_ROWS})


def numbered(function: str, rows: OrderedPartitions, arguments: list[pa.Array]) -> pa.Array:
    """Return a function of the places of rows, or of a row at a distance.

    Args:
        function: one of ``NUMBERING``.
        rows: the partitions.
        arguments: NTILE: the number of buckets; LAG and LEAD: the value, the distance and the
            default.

    Raises:
        ProgramError: there is no such function.
    """
    if function in _PLACES:
        return pa.array(_PLACES[function](rows, arguments))
    if function not in _OTHER_ROWS:
        message = f"{function} is no function of the place of a row"
        raise ProgramError(message)
    values, distance, default = arguments
    at = rows.rows + _OTHER_ROWS[function] * distance.cast(pa.int64()).to_numpy()
    is_there = (rows.begins <= at) & (at < rows.ends)
    found = values.take(pa.array(np.where(is_there, at, 0)))
    return pc.if_else(pa.array(is_there), found, default)


#: Whole partitions are computed at a time, as many as take this part of the memory of the operator:
#: packed, as columns, and sorted for each function.
_MOST_SHARE: Final = 8
#: Bytes that a packed row takes besides its own.
_PER_ROW: Final = 64
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
    """Factory of operators that emit the input's columns, then functions over rows around each row.

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
        description = "an entry per key, order and packed row"
        return [ordered_section("rows of partitions", description, self.input_type, self.order)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return BatchOverOperator(self)


class BatchOverOperator(RowsUntilEndOperator):
    """Keeps all rows of every key until the input is over."""

    def __init__(self, plan: BatchOverFactory) -> None:
        section = plan.state_sections()[0]
        super().__init__(section, plan.input_type, plan.order, by_arrival=True)
        self._plan = plan
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
        for each in (self._aggregates, self._both_ways, self._backwards):
            each.open_functions(self.runtime_context)

    def process_rows(self, batch: Batch) -> None:
        self.add_rows(batch, self._plan.keys)

    def end_input(self) -> None:
        """Emit all rows, and after them the time of the end."""
        super().end_input()
        partitions = _Partitions()
        for kept in self.take_rows():
            partitions.add(kept)
            if partitions.size >= self.keyed_state.share // _MOST_SHARE:
                self._finish(partitions)
                partitions = _Partitions()
        self._finish(partitions)
        self.output.emit_watermark(MAX_TIMESTAMP)

    def _finish(self, partitions: _Partitions) -> None:
        if partitions.packed:
            self._emit(partitions.packed, partitions.ordered())

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


class _Partitions:
    """Partitions that are computed at a time."""

    def __init__(self) -> None:
        self.packed: list[bytes] = []
        #: Bytes that the rows take, roughly.
        self.size = 0
        self._is_first: list[bool] = []
        self._counts: list[int] = []

    def add(self, kept: Iterable[KeptRow]) -> None:
        """Add the rows of a partition, in order."""
        before = len(self.packed)
        last: bytes | None = None
        for begin, row, count in kept:
            self._is_first += [begin != last, *[False] * (count - 1)]
            self.packed += repeat(row, count)
            self.size += count * (len(row) + _PER_ROW)
            last = begin
        if len(self.packed) > before:
            self._counts.append(len(self.packed) - before)

    def ordered(self) -> OrderedPartitions:
        """Return where partitions and orders begin."""
        counts = np.array(self._counts, dtype=np.int64)
        is_first = np.array(self._is_first, dtype=np.bool_)
        return OrderedPartitions(np.cumsum(counts) - counts, counts, is_first)


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
    """Rows that stand one after another, in their order or the other way round."""

    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    is_backwards: bool = False

    @property
    def places(self) -> NDArray[np.int64]:
        """Return where each run begins among the rows of all."""
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
    for run in runs_of(counts, _MOST):
        yield _run(aggregates, arrow, _Runs(low[run], counts[run]), last_only=True)


def _run(
    aggregates: Aggregates, arrow: pa.RecordBatch, runs: _Runs, *, last_only: bool
) -> list[pa.Array]:
    """The aggregates after each row of runs, or after each run."""
    order = runs.order
    rows = SortedRows(arrow, order, np.ones(len(order), dtype=np.int64))
    segments = Segments.from_nothing(runs.places, runs.counts)
    return aggregates.run_from_scratch(rows, segments, last_only=last_only)
