"""GROUP BY window_start, window_end: aggregates of windows, emitted when each window is over.

Flink's window aggregation over TUMBLE, HOP and CUMULATE, and over windows that rows already have
(``attached``).  Where all aggregates can be merged from partial ones, HOP and CUMULATE keep one
accumulator per *slice* and key, and windows are merged from slices when they are over; otherwise
(also for FIRST_VALUE: slices hide which row came first) every window has separate accumulators.  A
late row counts in those of its windows that are not over yet; a row without such a window is
dropped.

Partial aggregates that can be merged stay in memory as columns (``WindowBuffer``) until their
window is over, or until the next checkpoint.

State: per key and slice, or window (its end and its start, 8 bytes each), the accumulators; a timer
per key and window.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.contracts.operator import (
    StateSection,
)
from millstream.errors import ProgramError
from millstream.runtime.columnar.changelog_aggregates import Segments
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import (
    codes_of,
    columns_of_keys,
    group_codes,
    group_rows,
    stable_order,
)
from millstream.runtime.columnar.table_windows import WindowKind, Windows, attached_windows
from millstream.runtime.operators.table.aggregate_calls import (
    Aggregates,
    SortedRows,
    is_partial_call,
)
from millstream.runtime.operators.table.base import (
    LateRowsOperator,
    TableOperator,
    kinds_or_inserts,
    weights_of,
    weights_of_kinds,
)
from millstream.runtime.operators.table.specs import calls_text
from millstream.runtime.operators.table.window_function import (
    KeyedWindowParameters,
    RowTimes,
    window_columns,
)
from millstream.state.key_codec import cache_key, uncache_key
from millstream.state.packed_state import PackedValues

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        Checkpoint,
        Operator,
        OperatorContext,
        OperatorSnapshot,
        Output,
        RestoreContext,
    )
    from millstream.runtime.columnar.table_windows import TableWindow
    from millstream.runtime.operators.table.specs import AggregateCall
    from millstream.state.key_codec import CacheKey
    from millstream.state.packed_state import Place
    from millstream.types.logical_types import RowType

    Slot = tuple[CacheKey, bytes]


@dataclass(frozen=True)
class WindowAggregateParameters(KeyedWindowParameters):
    """GROUP BY a window and keys.  Gives the keys, the aggregates, then ``properties``."""

    aggregates: tuple[AggregateCall, ...]
    #: Of window_start, window_end, window_time, in any order.
    properties: tuple[str, ...]
    #: Columns of the input that have start and end of each row's window already.
    attached: tuple[int, int] | None = None
    retracts: bool = False
    #: Whether the input is partial aggregates of LocalWindowAggregateFactory.
    merges: bool = False

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {
            "aggregates": calls_text(self.aggregates),
            "windows": str(self.window),
            "attached": str(self.attached is not None).lower(),
        }
        if self.retracts:
            details["retracts"] = "true"
        layout = "packed accumulators by key and window"
        return [StateSection("windows", layout, details=details)]

    @property
    def _is_sliced(self) -> bool:
        return self.attached is None and self.window.shares_slices

    @property
    def _goes_by_arrival(self) -> bool:
        return any(call.goes_by_arrival for call in self.aggregates)

    @property
    def shares_slices(self) -> bool:
        """Return whether windows are merged from slices, if aggregates can be merged."""
        return self._is_sliced and not self._goes_by_arrival

    @property
    def has_local_half(self) -> bool:
        """Return whether slices, or windows, may be aggregated before the exchange.

        The other half sees no rows: it treats what arrives as whole slices or windows.
        """
        apart = self.window.is_tumbling or self.attached is not None
        return self.is_rowtime and (apart or self.shares_slices)


class WindowedOperator(LateRowsOperator):
    """Takes rows with their times, and gives windows when they are over.

    Args:
        section: what is recorded of what it keeps.
        plan: the windows, and the columns of keys and time.
    """

    counted: ClassVar[Mapping[str, str]] = {
        **LateRowsOperator.counted,
        "numNullRowTimeRecordsDropped": "without_time",
    }

    def __init__(self, section: StateSection, plan: KeyedWindowParameters) -> None:
        super().__init__(section)
        self.without_time = 0
        self._windows = plan
        self._times = RowTimes(plan.input_type, plan.time, plan.time_zone)
        self.time_type = pa.timestamp("ms", self._times.type.tz)
        self.clock = self._times.clock

    # What kinds of windows add.

    @abstractmethod
    def take(
        self, arrow: pa.RecordBatch, kinds: NDArray[np.int8], times: NDArray[np.int64]
    ) -> None:
        """Add rows, or retract them, at these times to their windows."""

    @abstractmethod
    def fire(self, fired: list[tuple[int, object, bytes]]) -> None:
        """Give the windows of timers: time, key, window."""

    # Time.

    def process_rows(self, batch: Batch) -> None:
        kept = None
        if not self._windows.is_rowtime:
            arrow = batch.arrow
            times = np.full(len(batch), self.processing_time, dtype=np.int64)
            times = self._times.shown(times)
        else:
            arrow, kept, times = self._times.of(batch.arrow, self.label)
            self.without_time += len(batch) - len(times)
        if len(times):
            kinds = kinds_or_inserts(batch)
            self.take(arrow, kinds if kept is None else kinds[kept], times)

    @property
    def _now(self) -> int:
        return self._watermark if self._windows.is_rowtime else self.processing_time

    def fires_at(self, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when windows with these ends are over.

        The watermark says so at their last millisecond; a clock that shows it may have rows of it.
        """
        last = ends - 1 if self.clock is None else self.clock.absolute(ends - 1)
        return last if self._windows.is_rowtime else last + 1

    def is_over(self, ends: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether windows with these ends are over."""
        over: NDArray[np.bool_] = self.fires_at(ends) <= self._now
        return over

    def register(self, key: object, window: bytes, time: int) -> None:
        """Have a window given at a time."""
        timers = self.keyed_state.timers
        if self._windows.is_rowtime:
            timers.register_event_time(key, window, time)
        else:
            timers.register_processing_time(key, window, time)

    def process_watermark(self, watermark: int) -> None:
        """Give the windows that are over."""
        before, self._watermark = self._watermark, watermark
        if self._windows.is_rowtime:
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
        if not self._windows.is_rowtime:
            self._fire_until(now)

    def _fire_until(self, now: int) -> None:
        fired = list(self.keyed_state.timers.advance_processing_time(now))
        if fired:
            self.fire(fired)

    def end_input(self) -> None:
        """Windows of processing time end with their input, too."""
        super().end_input()
        if not self._windows.is_rowtime:
            self._fire_until(MAX_TIMESTAMP)

    def key_columns(self, keys: list[CacheKey], chosen: NDArray[np.int64]) -> list[pa.Array]:
        """Return the key columns of these keys."""
        schema = self._windows.input_type.to_arrow_schema()
        kinds = [schema.field(index).type for index in self._windows.keys]
        return columns_of_keys([keys[number] for number in chosen.tolist()], kinds)


class WindowedAggregateOperator(WindowedOperator):
    """Keeps accumulators per key and window."""

    def __init__(self, plan: WindowAggregateParameters) -> None:
        """Take the windows, and what to compute of each."""
        super().__init__(plan.state_sections()[0], plan)
        self.plan = plan
        self.aggregates = Aggregates(plan.aggregates, plan.input_type, retracts=plan.retracts)
        rows = pa.field("rows", pa.int64())
        self.codec = RowCodec(pa.schema([rows, *self.aggregates.fields]))
        self.fresh = self.codec.pack([pa.array([0], pa.int64()), *self.aggregates.fresh])[0]

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._accumulators = PackedValues(self.keyed_state, "\0windows")
        self.aggregates.open(self.keyed_state, self.runtime_context)

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
        columns = self.aggregates.results([column.take(picked) for column in states])
        made = window_columns(starts[chosen], ends[chosen], self.clock, self.time_type)
        shown = [made[name] for name in self.plan.properties]
        self.emit_columns([*keys, *columns, *shown])


#: A slice is put together again when it has that many rows more than twice what it had.
_FEW: Final = 20_000


@dataclass(frozen=True)
class Parts:
    """Partial aggregates: the key columns, how many rows each is of, and columns of state."""

    keys: list[pa.Array]
    counts: NDArray[np.int64]
    states: list[pa.Array]

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def size(self) -> int:
        """Bytes."""
        columns = (*self.keys, *self.states)
        return int(self.counts.nbytes + sum(column.nbytes for column in columns))

    def taken(self, rows: NDArray[np.int64]) -> Parts:
        """Return some rows."""
        picked = pa.array(rows)
        keys = [column.take(picked) for column in self.keys]
        return Parts(keys, self.counts[rows], [column.take(picked) for column in self.states])

    def cut(self, start: int, stop: int) -> Parts:
        """Return a run of rows, without copying them."""
        run = slice(start, stop)
        keys = [column[run] for column in self.keys]
        return Parts(keys, self.counts[run], [column[run] for column in self.states])

    @classmethod
    def joined(cls, parts: Sequence[Parts]) -> Parts:
        """Return all of them, one behind the other."""
        if len(parts) == 1:
            return parts[0]
        keys = [pa.concat_arrays(columns) for columns in zip(*(p.keys for p in parts), strict=True)]
        states = [
            pa.concat_arrays(columns) for columns in zip(*(p.states for p in parts), strict=True)
        ]
        return cls(keys, np.concatenate([each.counts for each in parts]), states)

    def added_up(
        self, aggregates: Aggregates, of: NDArray[np.int64] | None = None
    ) -> tuple[Parts, NDArray[np.int64]]:
        """Put those of one key together.

        Args:
            aggregates: what they are of.
            of: numbers; only those of one number belong together.  None: all may.

        Returns:
            One for each key (and number), and a row that each is made of.
        """
        codes = [codes_of(column) for column in self.keys]
        parts = [(numbers, len(values)) for numbers, values in codes]
        if of is not None:
            parts.insert(0, (of, int(of.max(initial=0)) + 1))
        if not parts:
            parts = [(np.zeros(len(self), np.int64), 1)]
        order, starts, counts = group_codes(parts)
        if len(starts) == len(self):
            return self, np.arange(len(self))
        moved = pa.array(order)
        lifted = aggregates.parts_of([column.take(moved) for column in self.states])
        states = aggregates.added_up(lifted, Segments.from_nothing(starts, counts))
        totals: Any = np.add.reduceat(self.counts[order], starts)
        firsts = order[starts]
        picked = pa.array(firsts)
        return Parts([column.take(picked) for column in self.keys], totals, states), firsts


@dataclass
class _Slice:
    """The partial aggregates of one slice."""

    parts: list[Parts] = field(default_factory=list)
    rows: int = 0
    #: How many rows there were when it was last put together.
    before: int = 0


class WindowBuffer:
    """Partial aggregates by slice."""

    def __init__(self, aggregates: Aggregates) -> None:
        """Take what is aggregated."""
        self._aggregates = aggregates
        #: By start and end.
        self._slices: dict[tuple[int, int], _Slice] = {}
        #: Bytes, roughly.
        self.size = 0

    def __len__(self) -> int:
        return len(self._slices)

    def clear(self) -> None:
        """Forget everything."""
        self._slices.clear()
        self.size = 0

    @property
    def slices(self) -> Windows:
        """The slices, by their numbers."""
        bounds = np.array(list(self._slices), dtype=np.int64).reshape(-1, 2)
        return Windows(np.arange(len(bounds)), bounds[:, 0], bounds[:, 1])

    def add(self, parts: Parts, found: Windows) -> bool:
        """Keep partial aggregates, of each its slice; returns whether a slice is new."""
        firsts, numbers = found.distinct()
        if len(firsts) > 1:
            order = stable_order(numbers, len(firsts))
            parts, numbers = parts.taken(order), numbers[order]
        edges = np.searchsorted(numbers, np.arange(len(firsts) + 1)).tolist()
        bounds = zip(found.starts[firsts].tolist(), found.ends[firsts].tolist(), strict=True)
        before = len(self._slices)
        for number, slice_ in enumerate(bounds):
            self._keep(slice_, parts.cut(edges[number], edges[number + 1]))
        return len(self._slices) > before

    def _keep(self, bounds: tuple[int, int], parts: Parts) -> None:
        kept = self._slices.setdefault(bounds, _Slice())
        kept.parts.append(parts)
        kept.rows += len(parts)
        self.size += parts.size
        if len(kept.parts) > 1 and kept.rows > 2 * kept.before + _FEW:
            self.size -= sum(each.size for each in kept.parts)
            whole, _ = Parts.joined(kept.parts).added_up(self._aggregates)
            kept.parts, kept.rows, kept.before = [whole], len(whole), len(whole)
            self.size += whole.size

    def contents(self) -> list[list[Parts]]:
        """Return what each slice has."""
        return [kept.parts for kept in self._slices.values()]

    def drop(self, numbers: Sequence[int]) -> None:
        """Forget slices."""
        names = list(self._slices)
        for number in numbers:
            gone = self._slices.pop(names[number])
            self.size -= sum(each.size for each in gone.parts)

    def all(self) -> Iterator[tuple[Parts, Windows]]:
        """Yield everything, with its slices."""
        for (start, end), kept in self._slices.items():
            whole, _ = Parts.joined(kept.parts).added_up(self._aggregates)
            each = np.arange(len(whole))
            yield whole, Windows(each, np.full_like(each, start), np.full_like(each, end))


#: The end and the start, so that bytes are in the order of ends.
_WINDOW: Final = struct.Struct(">QQ")
_BIAS: Final = 2**63
#: So many partial aggregates are put together in one go, or those of one end of windows.
_MOST: Final = 500_000


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

    def __init__(self, plan: WindowAggregateParameters) -> None:
        """Take the windows, and what to compute of each.

        Raises:
            ProgramError: partial aggregates would be of no whole windows or slices.
        """
        super().__init__(plan)
        kernels = self.aggregates.kernels
        adds_up = all(kernel.is_partial for kernel in kernels)
        adds_up &= all(is_partial_call(call) for call in plan.aggregates)
        if plan.merges and not (adds_up and plan.has_local_half):
            message = (
                f"partial aggregates cannot be added up to {plan.window} of"
                f" {', '.join(call.function for call in plan.aggregates)}"
            )
            raise ProgramError(message)
        self._shares = plan.shares_slices and adds_up
        #: What is not in state yet; None: everything is.
        self._buffer: WindowBuffer | None = None
        if adds_up and plan.is_rowtime and all(call.user is None for call in plan.aggregates):
            self._buffer = WindowBuffer(self.aggregates)
        #: No window in memory is over before that.
        self._next = MIN_TIMESTAMP

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        if self._buffer is not None:
            self._buffer.clear()

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        self._write_buffer()
        return super().snapshot(checkpoint)

    def process_rows(self, batch: Batch) -> None:
        if self.plan.merges:
            self._merge(batch.arrow)
        else:
            super().process_rows(batch)

    def take(
        self, arrow: pa.RecordBatch, kinds: NDArray[np.int8], times: NDArray[np.int64]
    ) -> None:
        plan, weights = self.plan, weights_of_kinds(kinds)
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
        if self._buffer is not None:
            self._keep_parts(self._partial(arrow, weights, found))
            return
        at = self._group([arrow.column(index) for index in plan.keys], found)
        weights = weights[at.order]
        rows = SortedRows(arrow, at.order, weights)
        _, _, added = self.aggregates.run(rows, at.segments, at.states[1:], last_only=True)
        self._keep(at, weights, added)

    def _merge(self, arrow: pa.RecordBatch) -> None:
        keys = len(self.plan.keys)
        starts, ends = (arrow.column(arrow.num_columns - at).to_numpy() for at in (2, 1))
        weights = arrow.column(keys).to_numpy()
        found = Windows(np.arange(len(ends)), starts, ends)
        open_ = ~self._is_late(found)
        if not open_.all():
            self.late += int(np.abs(weights[~open_]).sum())
            arrow, weights = arrow.filter(pa.array(open_)), weights[open_]
            found = found.some(open_)
        if len(weights):
            columns = arrow.columns
            parts = Parts(columns[:keys], weights, columns[keys + 1 : -2])
            self._keep_parts((parts, found))

    # What is in memory.

    def _partial(
        self, arrow: pa.RecordBatch, weights: NDArray[np.int64], found: Windows
    ) -> tuple[Parts, Windows]:
        """Aggregate rows by key and slice, with the slices."""
        ends, of_end = found.distinct()
        columns = [arrow.column(index) for index in self.plan.keys]
        codes = [(numbers, len(values)) for numbers, values in map(codes_of, columns)]
        order, starts, _ = group_codes([(of_end, len(ends)), *codes])
        rows = SortedRows(arrow, order, weights[order])
        states = self.aggregates.partial(rows, starts)
        firsts = order[starts]
        picked = pa.array(firsts)
        counts: Any = np.add.reduceat(weights[order], starts)
        parts = Parts([column.take(picked) for column in columns], counts, states)
        return parts, Windows(np.arange(len(firsts)), found.starts[firsts], found.ends[firsts])

    def _keep_parts(self, made: tuple[Parts, Windows]) -> None:
        """Keep partial aggregates in memory, or write them if that is too much or not wanted."""
        buffer = self._buffer
        if buffer is None:
            self._write_parts(*made)
            return
        if buffer.add(*made):
            self._next = MIN_TIMESTAMP
        if buffer.size > self.keyed_state.share // 2:
            self._write_buffer()

    def _write_buffer(self) -> None:
        """Make state of what is in memory."""
        if self._buffer is not None:
            for parts, found in self._buffer.all():
                self._write_parts(parts, found)
            self._buffer.clear()

    def _write_parts(self, parts: Parts, found: Windows) -> None:
        """Add partial aggregates to those of their keys and slices in state."""
        at = self._group(parts.keys, found)
        order = pa.array(at.order)
        lifted = self.aggregates.parts_of([column.take(order) for column in parts.states])
        _, _, added = self.aggregates.add_up(lifted, at.segments, at.states[1:], last_only=True)
        self._keep(at, parts.counts[at.order], added)

    def give_over(self, before: int, fired: list[tuple[int, object, bytes]]) -> None:
        buffer = self._buffer
        if buffer is None or not len(buffer) or self._watermark < self._next:
            super().give_over(before, fired)
            return
        slices = buffer.slices
        inside = Windows.of(slices.starts, self.plan.window) if self._shares else slices
        fires = self.fires_at(inside.ends)
        later = fires[fires > self._watermark]
        self._next = int(later.min()) if len(later) else MAX_TIMESTAMP
        due = inside.some((fires > before) & (fires <= self._watermark))
        self._give_parts(fired, due)
        buffer.drop(np.flatnonzero(self._is_late(slices)).tolist())

    def _give_parts(self, fired: list[tuple[int, object, bytes]], due: Windows) -> None:
        """Give windows of parts in state and in memory, in the order of their ends."""
        contents = [] if self._buffer is None else self._buffer.contents()
        pieces = [self._stored(fired)] if fired else []  # in front: its rows came first
        for number, start, end in zip(
            due.rows.tolist(), due.starts.tolist(), due.ends.tolist(), strict=True
        ):
            for parts in contents[number]:
                each = np.arange(len(parts))
                windows = Windows(each, np.full_like(each, start), np.full_like(each, end))
                pieces.append((parts, windows))
        pieces = [piece for piece in pieces if len(piece[0])]
        for run in _runs(pieces):
            self._give_run([parts for parts, _ in run], [windows for _, windows in run])

    def _give_run(self, pieces: list[Parts], windows: list[Windows]) -> None:
        """Give all windows of these parts."""
        starts, ends = (
            np.concatenate([getattr(each, name) for each in windows]) for name in ("starts", "ends")
        )
        whole = Windows(np.arange(len(starts)), starts, ends)
        firsts, numbers = whole.distinct()
        order = np.lexsort((starts[firsts], ends[firsts]))
        turn = np.empty_like(order)
        turn[order] = np.arange(len(order))
        made, rows = Parts.joined(pieces).added_up(self.aggregates, turn[numbers])
        chosen = np.flatnonzero(made.counts != 0)
        chosen = chosen[np.argsort(turn[numbers][rows[chosen]], kind="stable")]
        if len(chosen):
            keys = [column.take(pa.array(chosen)) for column in made.keys]
            self.give_columns(keys, starts[rows], ends[rows], made.states, chosen)

    def _stored(self, fired: list[tuple[int, object, bytes]]) -> tuple[Parts, Windows]:
        """The parts in state of windows that are over; those that nobody else needs are dropped."""
        windows = [(cache_key(key), *_unnamed(name)) for _, key, name in fired]
        self.keyed_state.make_room(len(windows))
        starts = np.array([start for _, _, start in windows], dtype=np.int64)
        ends = np.array([end for _, end, _ in windows], dtype=np.int64)
        length = self.plan.window.slice if self._shares else 0
        counts = (ends - starts) // length if self._shares else np.ones(len(ends), np.int64)
        window_of = np.repeat(np.arange(len(windows)), counts)
        within = np.arange(len(window_of)) - np.repeat(np.cumsum(counts) - counts, counts)
        slices = Windows(window_of, starts[window_of], ends[window_of])
        if self._shares:
            begins = starts[window_of] + within * length
            slices = Windows(window_of, begins, begins + length)
        names = map(_named, slices.ends.tolist(), slices.starts.tolist())
        keys = [windows[window][0] for window in window_of.tolist()]
        slots = list(zip(keys, names, strict=True))
        states, is_absent = self.read(slots)
        is_done = np.ones(len(slots), dtype=np.bool_)
        if self._shares:
            is_done = self._last_ends(slices) == ends[window_of]
        self.drop([slots[number] for number in np.flatnonzero(is_done & ~is_absent).tolist()])
        there = np.flatnonzero(~is_absent)
        columns = [column.take(pa.array(there)) for column in states]
        of = window_of[there]
        parts = Parts(self.key_columns(keys, there), columns[0].to_numpy(), columns[1:])
        return parts, Windows(np.arange(len(of)), starts[of], ends[of])

    # Slices and windows in state.

    def _is_late(self, found: Windows) -> NDArray[np.bool_]:
        """Which slices or windows of rows are over, with all windows that they are in."""
        return self.is_over(self._last_ends(found) if self._shares else found.ends)

    def _last_ends(self, slices: Windows) -> NDArray[np.int64]:
        """The end of the last window that each slice is in."""
        window = self.plan.window
        if window.kind is WindowKind.HOP:
            return slices.starts + window.size
        return slices.starts - np.mod(slices.starts - window.offset, window.size) + window.size

    def _group(self, keys: Sequence[pa.Array], found: Windows) -> _Slots:
        """Bring the rows of each key and slice, or window, together, and read its state."""
        by_key = group_rows(keys, len(found.rows))
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
        if self._shares or self._buffer is not None:
            none = np.empty(0, dtype=np.int64)
            self._give_parts(fired, Windows(none, none, none))
            return
        windows = [(cache_key(key), *_unnamed(name)) for _, key, name in fired]
        self.keyed_state.make_room(len(windows))
        keys = [key for key, _, _ in windows]
        starts = np.array([start for _, _, start in windows], dtype=np.int64)
        ends = np.array([end for _, end, _ in windows], dtype=np.int64)
        slots = [(key, _named(end, start)) for key, end, start in windows]
        states, is_fresh = self.read(slots)
        counts = states[0].to_numpy()
        self.give(keys, starts, ends, states[1:], (counts != 0) & ~is_fresh)
        self.drop(slots)


def _runs(pieces: list[tuple[Parts, Windows]]) -> Iterator[list[tuple[Parts, Windows]]]:
    """Yield all pieces of some windows each, with not too many rows; ends of windows ascend."""
    if sum(len(parts) for parts, _ in pieces) <= _MOST:
        if pieces:
            yield pieces
        return
    ends = np.unique(np.concatenate([windows.ends for _, windows in pieces]))
    last = len(ends)
    split: dict[int, list[tuple[Parts, Windows]]] = {}
    for parts, windows in pieces:
        numbers = np.searchsorted(ends, windows.ends)
        if numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
            split.setdefault(int(numbers[0]), []).append((parts, windows))
            continue
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            some = parts.taken(np.flatnonzero(chosen)), windows.some(chosen)
            split.setdefault(number, []).append(some)
    run: list[tuple[Parts, Windows]] = []
    for number in range(last):
        run += split.get(number, [])
        if sum(len(parts) for parts, _ in run) > _MOST or number == last - 1:
            yield run
            run = []


def _named(end: int, start: int) -> bytes:
    return _WINDOW.pack(end + _BIAS, start + _BIAS)


def _unnamed(name: bytes) -> tuple[int, int]:
    end, start = _WINDOW.unpack(name)
    return end - _BIAS, start - _BIAS


#: Aggregating is worth it if it leaves at most this part of the rows.
_WORTH: Final = 0.7
#: So many batches are passed on before it is tried again.
_PASSED: Final = 15


@dataclass(frozen=True)
class LocalWindowAggregateFactory:
    """Partial aggregates of the slices of a batch, ahead of the exchange; of event time alone.

    Gives the key columns, those that ``partial_fields`` (``aggregate_calls.py``) says, then start
    and end of the slice (or window, of ``attached``), BIGINT milliseconds of its clock.
    ``can_be_partial`` says whether all aggregates can be computed that way.
    """

    input_type: RowType
    window: TableWindow
    time: int
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    attached: tuple[int, int] | None = None
    time_zone: str = "UTC"
    retracts: bool = False
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return LocalWindowAggregateOperator(self)


class LocalWindowAggregateOperator(TableOperator):
    """Aggregates each batch by itself."""

    counted: ClassVar[Mapping[str, str]] = {
        **TableOperator.counted,
        "numNullRowTimeRecordsDropped": "without_time",
    }

    def __init__(self, plan: LocalWindowAggregateFactory) -> None:
        """Take the windows, and what to compute of their slices."""
        super().__init__()
        self._plan = plan
        self._aggregates = Aggregates(plan.aggregates, plan.input_type, retracts=plan.retracts)
        self.without_time = 0
        self._times = RowTimes(plan.input_type, plan.time, plan.time_zone)
        #: How many batches are still to be passed on as they are.
        self._to_pass = 0

    def process_rows(self, batch: Batch) -> None:
        arrow, kept, times = self._times.of(batch.arrow, self.label)
        self.without_time += len(batch) - len(times)
        if not len(times):
            return
        weights = weights_of(batch)
        plan = self._plan
        if plan.attached is None:
            found = Windows.slices_of(times, plan.window)
        else:
            found = attached_windows(arrow, plan.attached)
        self._give(arrow, found, weights if kept is None else weights[kept])

    def _give(self, arrow: pa.RecordBatch, found: Windows, weights: NDArray[np.int64]) -> None:
        order, starts = self._runs(arrow, found)
        if len(starts) < len(order):
            weights = weights[order]
        states = self._aggregates.partial(SortedRows(arrow, order, weights), starts)
        counts: Any = np.add.reduceat(weights, starts)
        firsts = order[starts]
        rows = pa.array(firsts)
        keys = [arrow.column(index).take(rows) for index in self._plan.keys]
        slices = [pa.array(found.starts[firsts]), pa.array(found.ends[firsts])]
        self.emit_columns([*keys, pa.array(counts, pa.int64()), *states, *slices])

    def _runs(
        self, arrow: pa.RecordBatch, found: Windows
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The order in which rows of one key and slice are together, and where each run begins."""
        each = np.arange(arrow.num_rows)
        if self._to_pass:
            self._to_pass -= 1
            return each, each
        columns = [arrow.column(index) for index in self._plan.keys]
        columns += [pa.array(found.ends)]
        if self._plan.attached is not None:
            columns.append(pa.array(found.starts))
        parts = [codes_of(column) for column in columns]
        order, starts, _ = group_codes([(codes, len(values)) for codes, values in parts])
        if len(starts) > _WORTH * len(order):
            self._to_pass = _PASSED
            return each, each
        return order, starts
