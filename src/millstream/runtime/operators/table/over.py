"""OVER aggregations of streams: by time over inserts, and by any columns over changelogs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.contracts.operator import StateSection
from millstream.errors import ProgramError
from millstream.runtime.columnar.array_utils import milliseconds_of
from millstream.runtime.columnar.changelog_aggregates import Segments
from millstream.runtime.columnar.row_codec import RowCodec, sort_keys
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.aggregate_calls import Aggregates, SortedRows
from millstream.runtime.operators.table.base import (
    KeyedTableOperator,
    LateRowsOperator,
    changes_of,
    kinds_or_inserts,
)
from millstream.runtime.operators.table.batch_over import Frame, OrderedPartitions
from millstream.runtime.operators.table.row_buffers import (
    NO_ROWS,
    KeyedTimedRows,
    TimedRows,
    WaitingRows,
)
from millstream.runtime.operators.table.specs import (
    AggregateCall,
    calls_text,
    columns_text,
    order_text,
)
from millstream.runtime.operators.table.top_n import BEHIND, keep_alive, live_ranking
from millstream.state.key_codec import cache_key, uncache_key
from millstream.state.packed_state import ExpiringMaps, ExpiringRows, PackedMaps, PackedValues

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, OperatorContext, Output
    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.runtime.operators.table.specs import SortColumn
    from millstream.runtime.operators.table.top_n import Ranking
    from millstream.state.key_codec import CacheKey
    from millstream.types.logical_types import RowType


_DENSE_RANK: Final = "DENSE_RANK"
_RANKS: Final = frozenset({"ROW_NUMBER", "RANK", _DENSE_RANK})

#: The namespace of timers by which frames go.
_FRAMES: Final = b"frames"


# -- by time, over inserts ---


@dataclass(frozen=True)
class OverFactory:
    """Aggregates over the rows before each row.  Gives the input's columns, then these.

    Rows are in the order of a time attribute; the frame ends at the current row.
    """

    input_type: RowType
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    #: The column of the time attribute; None: processing time.
    rowtime: int | None
    #: ROWS; False: RANGE, in which rows of one time are together.
    is_rows: bool
    #: How many rows, or milliseconds, the frame begins before the current row; None: UNBOUNDED.
    preceding: int | None = None
    state_ttl: int = 0
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        frame = f"{'ROWS' if self.is_rows else 'RANGE'} {self.preceding}"
        calls = calls_text(self.aggregates)
        details = {
            "columns": columns_text(self.input_type),
            "aggregates": calls,
            "frame": frame,
        }
        return [StateSection("frames", "packed accumulators and rows by key", details=details)]

    @property
    def waits_for_watermarks(self) -> bool:
        """Return whether rows are given by event time."""
        return self.rowtime is not None

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return OverOperator(self)


class OverOperator(LateRowsOperator):
    """OVER by time, as Flink's for inserts, over frames that end at the current row.

    ROWS or RANGE, from a number of rows or an amount of time before the row, or from the beginning.
    By event time rows wait until the watermark has passed them, and are then processed in order of
    time, those of one time as they came.  A row after the watermark is late and dropped; in a
    bounded frame only if its key has emitted a row of that time or a later one.  By processing time
    they are processed as they come.

    All frames are changelogs: each row is added, and those that leave its frame are retracted.  The
    aggregates come from the kernels of group aggregation.  ROW_NUMBER, RANK and DENSE_RANK are
    counts: after the row itself, after the first row of its time, and of such first rows.

    State, per key: the accumulators; the rows that the frame may still retract, with their times;
    the rows that wait.  Frames of some length of time are removed once no row can have them;
    others, and their accumulators, together by ``state_ttl``.
    """

    def __init__(self, plan: OverFactory) -> None:
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
        self._frames = KeyedTimedRows(self.keyed_state, "\0frames")
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
            self._frames.put(keys, [NO_ROWS] * len(keys))

    def process_rows(self, batch: Batch) -> None:
        self.refuse_updates(batch, "OVER by time")
        arrow = batch.arrow
        if self._plan.rowtime is None:
            times = np.full(len(batch), self.processing_time, dtype=np.int64)
            self._run(arrow, times, np.arange(len(batch)))
        else:
            column = arrow.column(self._plan.rowtime)
            times = milliseconds_of(column, self.label)
            self.late += self._waiting.add_on_time(arrow, times, self._is_late(arrow, times))

    def _is_late(self, arrow: pa.RecordBatch, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows are late; in bounded frames, also compared with the rows of their key.

        So it is in Flink: what comes after all rows that its key has given may still have its
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
            int(frame.times[-1]) if len(frame) and frame.times[-1] >= oldest else unknown
            for frame in self._live_frames(groups.keys, is_fresh)
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
                keys = list(dict.fromkeys(keys))
                arrow, times, _ = self._waiting.take_columns(keys, watermark)
                self._run(arrow, times, np.argsort(times, kind="stable"))
            self._drop([cache_key(key) for _, key, where in fired if where == _FRAMES], watermark)
        super().process_watermark(watermark)

    def process_processing_time(self, now: int) -> None:
        super().process_processing_time(now)
        if self._plan.rowtime is None and self._length is not None:
            fired = self.keyed_state.timers.advance_processing_time(now)
            self._drop([cache_key(key) for _, key, _ in fired], now)

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
        kept = list(chain.from_iterable(each.rows for each in frames))
        pool = pa.RecordBatch.from_arrays(
            [
                pa.concat_arrays([old, new])
                for old, new in zip(self._codec.unpack(kept), arrow.columns, strict=True)
            ],
            schema=self._codec.schema,
        )
        every = np.concatenate([*(each.times for each in frames), times])
        steps = _Steps.of(self._plan, groups, np.array([len(each) for each in frames]), every)
        segments = Segments(
            np.cumsum(steps.counts) - steps.counts, steps.counts, groups.keys, is_fresh
        )
        self._emit(arrow, self._with_firsts(pool, steps), segments, states, steps)
        if self._bounded:
            rows = [*kept, *self._codec.pack(arrow.columns)]
            self._keep_frames(groups.keys, steps, TimedRows(every, rows).at(steps.pool))

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

    def _live_frames(self, keys: list[CacheKey], is_fresh: NDArray[np.bool_]) -> list[TimedRows]:
        """The frames of keys; of one without accumulators nothing can be retracted."""
        if not self._bounded:
            return [NO_ROWS] * len(keys)
        frames = zip(self._frames.get(keys), is_fresh.tolist(), strict=True)
        return [NO_ROWS if fresh else frame for frame, fresh in frames]

    def _emit(
        self,
        arrow: pa.RecordBatch,
        pool: pa.RecordBatch,
        segments: Segments,
        states: list[pa.Array],
        steps: _Steps,
    ) -> None:
        rows_in_order = SortedRows(pool, steps.rows, steps.weights)
        _, after, states = self._aggregates.run(rows_in_order, segments, states, last_only=False)
        keys: Any = segments.keys
        written = pa.array(np.full(len(keys), self.expiry_time), pa.int64())
        self._accumulators.put_all(keys, self._states.pack([written, *states]))
        shown = [
            column.take(pa.array(steps.places.get(call.function, steps.results)))
            for call, column in zip(self._plan.aggregates, after, strict=True)
        ]
        self.emit_columns([*arrow.columns, *shown])

    def _keep_frames(self, keys: list[CacheKey], steps: _Steps, pool: TimedRows) -> None:
        """Keep what is left of frames; ``pool`` is in the order of keys."""
        timers = self.keyed_state.timers
        by_event_time = self._plan.rowtime is not None
        register = timers.register_event_time if by_event_time else timers.register_processing_time
        frames = [pool.cut(*bounds) for bounds in steps.left]
        self._frames.put(keys, frames)
        if self._length is not None:  # look after each when its last row has gone out of it
            for key, frame in zip(keys, frames, strict=True):
                register(uncache_key(key), _FRAMES, int(frame.times[-1]) + self._length + 1)

    # What no frame needs.

    def _drop(self, fired: list[CacheKey], now: int) -> None:
        """Forget frames all of whose rows are too old for rows to come."""
        keys = list(dict.fromkeys(fired))
        if not keys or self._length is None:
            return
        self.keyed_state.make_room(len(keys))
        gone = [
            key
            for key, frame in zip(keys, self._frames.get(keys), strict=True)
            if not len(frame) or frame.times[-1] + self._length < now
        ]
        self._frames.put(gone, [NO_ROWS] * len(gone))
        self._accumulators.put_all(gone, [None] * len(gone))
        self._aggregates.forget(gone)


def _counted(call: AggregateCall, firsts: int) -> AggregateCall:
    """The count that a rank is; ``firsts`` is the column of the first rows of their time."""
    if call.function not in _RANKS:
        return call
    return AggregateCall(
        "COUNT", (), call.type, filter=firsts if call.function == _DENSE_RANK else None
    )


@dataclass(frozen=True)
class _Steps:
    """How rows come into the frames of their keys and go out of them, one key after another.

    Rows are positions in a pool: first those of all frames as they were, then the new ones.
    """

    rows: NDArray[np.int64]
    #: +1 for a row that comes, -1 for one that goes.
    weights: NDArray[np.int64]
    #: How many steps each key has.
    counts: NDArray[np.int64]
    #: For each new row, the step after which it has its result.
    results: NDArray[np.int64]
    #: The same for ROW_NUMBER (the step with which it comes), and RANK (that of the first of its
    #: time).
    places: dict[str, NDArray[np.int64]]
    #: The new rows that are the first of their time.
    firsts: NDArray[np.int64]
    #: The rows of the pool by key, and for each key those of them that are left in its frame.
    pool: NDArray[np.int64]
    left: list[tuple[int, int]]

    @classmethod
    def of(
        cls, plan: OverFactory, groups: RowGroups, old: NDArray[np.int64], times: NDArray[np.int64]
    ) -> _Steps:
        """Take the new rows by key, how many rows the frame of each key has, and the pool's times.

        A row that comes is followed by those that are out of its frame then; rows of one time come
        together, except by processing time, where they are taken one by one.
        """
        counts = old + groups.counts
        starts = np.cumsum(counts) - counts
        key_of = np.repeat(np.arange(len(groups)), counts)
        is_new = np.arange(len(times)) >= (starts + old)[key_of]
        pool = np.empty(len(times), dtype=np.int64)
        pool[~is_new] = np.arange(len(times) - len(groups.order))
        pool[is_new] = len(times) - len(groups.order) + groups.order
        times = times[pool]
        is_first = np.ones(len(times), dtype=np.bool_)
        is_first[1:] = (times[1:] != times[:-1]) | (key_of[1:] != key_of[:-1])
        partitions = OrderedPartitions(starts, counts, is_first)
        none = np.zeros(len(times), dtype=np.bool_)
        low, _ = partitions.bounds(Frame(plan.is_rows, plan.preceding, 0), times, none)
        # No row comes back into a frame, also where a clock goes back.
        low = np.minimum(np.maximum.accumulate(low), partitions.rows)
        new, keys = np.flatnonzero(is_new), key_of[is_new]
        firsts = lasts = new
        if not plan.is_rows and plan.rowtime is not None:
            firsts, lasts = (each[new] for each in partitions.peers)
            lasts = lasts - 1
        # Within the steps of its key; a row comes after the rows that are out ahead of its time.
        gone, number = low[new] - starts[keys], new - (starts + old)[keys]
        ahead = np.where(firsts > (starts + old)[keys], low[firsts - 1] - starts[keys], 0)
        ends = starts + counts - 1
        of_keys = groups.counts + low[ends] - starts
        begins = (np.cumsum(of_keys) - of_keys)[keys]
        came = begins + number + ahead
        comes = np.zeros(int(of_keys.sum()), dtype=np.bool_)
        comes[came] = True
        rows = np.empty(len(comes), dtype=np.int64)
        rows[comes], rows[~comes] = pool[new], pool[partitions.rows < low[ends][key_of]]

        def by_row(steps: NDArray[np.int64]) -> NDArray[np.int64]:
            found = np.empty_like(steps)
            found[groups.order] = steps
            return found

        return cls(
            rows,
            np.where(comes, 1, -1),
            of_keys,
            by_row(begins + number + (lasts - new) + gone),
            {"ROW_NUMBER": by_row(came), "RANK": by_row(came - (new - firsts))},
            pool[new[firsts == new]],
            pool,
            list(zip(low[ends].tolist(), (ends + 1).tolist(), strict=True)),
        )


#: The result of a row: a run of rows, and the place in it after which it is.
_Result = tuple[int, int]


# -- by any columns, over changelogs ---


@dataclass(frozen=True)
class UpdatingOverFactory:
    """Aggregates over the rows before each row of a changelog.

    Gives the input's columns, then these.  The frame ends at the current row.
    """

    input_type: RowType
    keys: tuple[int, ...]
    order: tuple[SortColumn, ...]
    aggregates: tuple[AggregateCall, ...]
    #: ROWS; False: RANGE, in which rows of one order are together.
    is_rows: bool
    update_before: bool
    #: How many rows the frame begins before the current row; None: UNBOUNDED.  RANGE: None or 0.
    preceding: int | None = None
    state_ttl: int = 0
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {
            "columns": columns_text(self.input_type),
            "order": order_text(self.order),
        }
        return [StateSection("ordered rows", "packed rows by key, then order", details=details)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return UpdatingOverOperator(self)


class UpdatingOverOperator(KeyedTableOperator):
    """OVER over a changelog, in any order of columns.

    Rows may be inserted anywhere in the order, or retracted.  A change emits its row, and an update
    of each other row whose aggregates it changes, one change after another.

    A frame of a number of rows is computed for each row that a change affects, from the rows in it.
    Frames from the beginning share one run over all rows of the key, which continues as long as
    rows come at the end.

    State, per key: all rows in order, as in Top-N of a changelog.  Aggregates are computed from
    scratch, so there are no accumulators.
    """

    def __init__(self, plan: UpdatingOverFactory) -> None:
        super().__init__(plan.state_sections()[0])
        self._plan = plan
        self._codec = RowCodec(plan.input_type.to_arrow_schema())
        self._aggregates = Aggregates(plan.aggregates, plan.input_type, retracts=False)

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = PackedMaps(self.keyed_state, "\0rows")
        if self._plan.state_ttl:
            self.keyed_state.expired.watch(ExpiringMaps(self._kept, self._plan.state_ttl))
        self._aggregates.open_functions(self.runtime_context)

    def process_rows(self, batch: Batch) -> None:
        plan = self._plan
        groups = self.group(batch, plan.keys)
        columns = batch.arrow.columns
        rows = self._codec.pack(columns)
        orders = sort_keys(columns, plan.order)
        retracts = (kinds_or_inserts(batch) & 1).tolist()
        self._kept.fetch_all_distinct(groups.keys)
        steps = _UpdateSteps()
        ttl, now = plan.state_ttl, self.expiry_time
        rankings = [live_ranking(self._kept.map_of(key), ttl, now) for key in groups.keys]
        keys = [_Key(plan, ranking, steps) for ranking in rankings]
        for position, group in enumerate(groups.group_of_row.tolist()):
            change = keys[group].retract if retracts[position] else keys[group].insert
            change(orders[position], rows[position])
        if ttl:
            keep_alive(rankings, now)
        self._kept.changed(groups.keys)
        self._emit(steps)

    def _emit(self, steps: _UpdateSteps) -> None:
        if not steps.changes:
            return
        pool = self._codec.unpack(steps.rows)
        counts = np.array([len(run) for run in steps.runs], dtype=np.int64)
        starts = np.cumsum(counts) - counts
        order = np.fromiter((row for run in steps.runs for row in run), np.int64)
        arrow = pa.RecordBatch.from_arrays(pool, schema=self._codec.schema)
        rows = SortedRows(arrow, order, np.ones(len(order), dtype=np.int64))
        results = self._aggregates.run_from_scratch(rows, Segments.from_nothing(starts, counts))
        numbers, *both = (list(each) for each in zip(*steps.changes, strict=True))
        begins = starts.tolist()
        places = ([-1 if at is None else begins[at[0]] + at[1] for at in each] for each in both)
        rows_of, before, after = (np.array(each, np.int64) for each in (numbers, *places))
        if not self._plan.state_ttl:
            fields = [pa.field(str(number), each.type) for number, each in enumerate(results)]
            packed = [*RowCodec(pa.schema(fields)).pack(results), None]
            pairs = zip(before.tolist(), after.tolist(), strict=True)
            chosen = np.flatnonzero([packed[one] != packed[other] for one, other in pairs])
            rows_of, before, after = rows_of[chosen], before[chosen], after[chosen]
        shown, kinds, which = changes_of(before, after, update_before=self._plan.update_before)
        columns = [column.take(pa.array(rows_of[which])) for column in pool]
        columns += [column.take(pa.array(shown)) for column in results]
        self.emit_columns(columns, kinds if kinds.any() else None)


class _UpdateSteps:
    """The steps of a batch: rows, runs of them to aggregate, and changes with their results."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        #: Rows by their numbers; each run begins with nothing.
        self.runs: list[list[int]] = []
        #: Rows, and their results before and after; None: the row comes or goes.
        self.changes: list[tuple[int, _Result | None, _Result | None]] = []

    def add_row(self, row: bytes) -> int:
        """The number of a row."""
        self.rows.append(row)
        return len(self.rows) - 1

    def add_run(self, rows: list[int]) -> int:
        """The number of a run."""
        self.runs.append(rows)
        return len(self.runs) - 1


class _Key:
    """The rows of one key while a batch is processed.

    Invariant: ``_numbers[i]`` is the number of ``ranking.rows[i]``, None if it has none yet;
    ``_shown[i]`` is the result that it was given with, None if it was given before the batch.
    """

    def __init__(self, plan: UpdatingOverFactory, ranking: Ranking, steps: _UpdateSteps) -> None:
        self.ranking = ranking
        self._is_rows, self._preceding = plan.is_rows, plan.preceding
        self._steps = steps
        self._numbers: list[int | None] = [None] * len(ranking)
        self._shown: list[_Result | None] = [None] * len(ranking)
        #: The run over all rows, as they are now; None: there is none.
        self._whole: int | None = None

    def insert(self, sort_key: bytes, row: bytes) -> None:
        """Put a row in, after those of the same order."""
        at = bisect_right(self.ranking.names, sort_key + BEHIND)
        start, stop = self._touched(sort_key, at)
        before = [self._result(place) for place in range(start, stop)]
        is_last = at == len(self.ranking)
        self.ranking.insert(sort_key, row)
        number = self._steps.add_row(row)
        self._numbers.insert(at, number)
        self._shown.insert(at, None)
        if self._whole is not None and is_last:
            self._steps.runs[self._whole].append(number)
        else:
            self._whole = None
        self._steps.changes.append((number, None, self._computed(at)))
        self._update([*range(start, at), *range(at + 1, stop + 1)], before)

    def retract(self, sort_key: bytes, row: bytes) -> None:
        """Remove the first row that equals this one; none: its state has expired."""
        at = self.ranking.find(sort_key, row)
        if at < 0:
            return
        start, stop = self._touched(sort_key, at + 1)
        self._steps.changes.append((self._number(at), self._result(at), None))
        start = min(start, at)
        before = [self._result(place) for place in range(start, stop) if place != at]
        self.ranking.remove(at)
        self._numbers.pop(at)
        self._shown.pop(at)
        self._whole = None
        self._update(list(range(start, stop - 1)), before)

    def _touched(self, sort_key: bytes, at: int) -> tuple[int, int]:
        """Return which rows have a frame that includes the position before ``at``."""
        names, count = self.ranking.names, len(self.ranking)
        if self._is_rows:
            stop = count if self._preceding is None else min(count, at + self._preceding)
            return at, stop
        start = bisect_left(names, sort_key)
        return start, count if self._preceding is None else bisect_right(names, sort_key + BEHIND)

    def _update(self, places: list[int], before: list[_Result]) -> None:
        for place, old in zip(places, before, strict=True):
            self._steps.changes.append((self._number(place), old, self._computed(place)))

    def _number(self, place: int) -> int:
        number = self._numbers[place]
        if number is None:
            number = self._numbers[place] = self._steps.add_row(self.ranking.rows[place])
        return number

    def _result(self, place: int) -> _Result:
        """The result that a row was given with."""
        return self._shown[place] or self._computed(place)

    def _computed(self, place: int) -> _Result:
        """The result of a row as it is now."""
        found = self._shown[place] = self._of_frame(place)
        return found

    def _of_frame(self, place: int) -> _Result:
        names = self.ranking.names
        last = place
        if not self._is_rows:
            last = bisect_right(names, names[place][:-8] + BEHIND) - 1
        if self._preceding is None:
            if self._whole is None:
                numbers = [self._number(each) for each in range(len(names))]
                self._whole = self._steps.add_run(numbers)
            return self._whole, last
        first = max(0, place - self._preceding)
        if not self._is_rows:
            first = bisect_left(names, names[place][:-8])
        numbers = [self._number(each) for each in range(first, last + 1)]
        return self._steps.add_run(numbers), last - first
