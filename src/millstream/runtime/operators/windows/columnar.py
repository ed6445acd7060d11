"""Tumbling and sliding windows with built-in aggregates: columns from end to end.

Partial aggregates are kept per slice as Arrow tables; each checkpoint appends one chunk per slice
(and form of key) to the store; firing merges a window's slices.  A record is kept once, however
many windows it is in.  No Python code runs per record or key.

Layout: ``C`` + index + last timestamp of the slice + form of key (1) + number of the flush (8); the
value is an Arrow IPC stream whose schema names the key groups of its writer, so that after a change
of parallelism each subtask takes its own rows only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from millstream.errors import TypeMismatchError
from millstream.runtime.columnar.aggregates import named_aggregates, one_array
from millstream.runtime.columnar.partial_aggregates import (
    POSITION,
    RECORDS,
    PartialMatrix,
    RowPool,
    concatenated,
    is_partial,
)
from millstream.runtime.columnar.row_groups import KEY, keys_from_column
from millstream.runtime.operators.base import KeyedOperator
from millstream.runtime.operators.windows.assignment import (
    WindowClock,
    check_timestamps,
    drop_late,
)
from millstream.runtime.operators.windows.chunks import (
    END,
    FLUSH,
    START,
    Panes,
    Partials,
    WindowChunks,
    form_of,
)
from millstream.runtime.operators.windows.logic import LEADING_COLUMNS
from millstream.runtime.operators.windows.state_migration import PANES, Migration, window_section
from millstream.types.composite_types import CompositeTypeInfo
from millstream.types.pickling import short_repr
from millstream.types.row import row_class
from millstream.types.type_information import ColumnMismatchError
from millstream.types.types import from_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from millstream.contracts.operator import (
        Checkpoint,
        OperatorSnapshot,
        RestoreContext,
    )
    from millstream.runtime.operators.windows.logic import DeclaredWindows
    from millstream.types.types import TypeInformation

    #: From a pane to its tables of key and partial columns, as they came.
    ReadPane = Callable[[int], list[pa.Table]]

    #: The window of each line, and the lines.
    Results = tuple[NDArray[np.int64], pa.Table]


class BuiltInOperator(KeyedOperator):
    """A keyed operator that emits ROW(key, window_start, window_end, ...)."""

    counted: ClassVar[Mapping[str, str]] = {
        **KeyedOperator.counted,
        "numLateRecordsDropped": "late_dropped",
    }

    layout: ClassVar[str]
    moves_timers: ClassVar[bool] = True

    def __init__(self, declared: DeclaredWindows, panes: Panes | None) -> None:
        """Take what the API collected; ``panes`` if windows are cut into such."""
        super().__init__(None, declared.key_selector)
        self.declared = declared
        self.section = window_section(declared, type(self))
        spec: Any = declared.spec
        aggregates = named_aggregates(spec.aggregates, LEADING_COLUMNS)
        self._partials = Partials(panes, aggregates, self.extractor)
        self._late_tag = declared.late_tag_id
        self.late_dropped = 0

    def user_functions(self) -> Iterable[object]:
        return self._partials.functions

    def open(self) -> None:
        self.keyed_state.record(self.section)
        super().open()

    def emit_results(
        self, merged: pa.Table, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        """Emit one result per line of key and merged partials.

        Args:
            merged: the lines.
            starts: the first timestamp of each line's window.
            ends: the last timestamp of each line's window + 1.
        """
        columns = {
            KEY: one_array(merged.column(KEY)),
            "window_start": pa.array(starts),
            "window_end": pa.array(ends),
            **self._partials.finish(merged),
        }
        self.emit(self._typed(columns, ends - 1))

    def _typed(self, columns: dict[str, pa.Array], timestamps: NDArray[np.int64]) -> Batch:
        declared = self.context.output_type
        keys = one_array(columns[KEY])
        columns[KEY] = keys
        if isinstance(declared, CompositeTypeInfo):
            key_type = declared.get_field_types()[0]
            if pa.types.is_binary(keys.type) or key_type.arrow_schema is None:
                columns[KEY] = self._declared_keys(key_type, keys)
            arrow = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
            return Batch(declared, arrow=declared.conform(arrow), timestamps=timestamps)
        if not pa.types.is_binary(keys.type):
            arrow = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
            return Batch(from_arrow_schema(arrow.schema), arrow=arrow, timestamps=timestamps)
        make = row_class(tuple(columns))
        lists = [keys_from_column(keys)]
        lists.extend(column.to_pylist() for name, column in columns.items() if name != KEY)
        values: list[object] = list(map(make, zip(*lists, strict=True)))
        return Batch(declared, values=values, timestamps=timestamps)

    def _declared_keys(self, key_type: TypeInformation, keys: pa.Array) -> pa.Array:
        """Keys of a type that has to be made value by value: tuples, or untyped keys."""
        try:
            return key_type.column_to_arrow(keys_from_column(keys))
        except ColumnMismatchError as mismatch:
            message = (
                f"operator {self.context.name!r} ({self.context.location}): key "
                f"{short_repr(mismatch.value)} is not of the declared type {key_type}"
            )
            raise TypeMismatchError(message) from mismatch


class PaneClock:
    """The watermark, the panes that have state, and their windows."""

    __slots__ = ("_lateness", "_open", "_panes", "_windows")

    def __init__(self, panes: Panes, allowed_lateness: int) -> None:
        """Take the arithmetic and the allowed lateness in milliseconds."""
        self._panes = panes
        self._lateness = allowed_lateness
        #: By their last timestamps.
        self._windows = WindowClock(allowed_lateness)
        self._open: set[int] = set()

    def restore(self, watermark: int, panes: Iterable[int]) -> None:
        """Start an epoch with the panes that have state."""
        self._windows.restore(watermark, [])
        self._open = set()
        self.open(panes)

    @property
    def present(self) -> NDArray[np.int64]:
        """The panes that have state, ascending."""
        return np.array(sorted(self._open), dtype=np.int64)

    @property
    def last_fired(self) -> int:
        """The last window that the watermark has passed."""
        return _clamped(self._panes.passed(self._windows.watermark))

    @property
    def last_closed(self) -> int:
        """The last window that is over: for it, every record is late."""
        return _clamped(self._panes.passed(self.horizon))

    @property
    def horizon(self) -> int:
        """Windows whose last timestamp is not above this are over."""
        watermark = self._windows.watermark
        if watermark == MAX_TIMESTAMP:
            return MAX_TIMESTAMP
        return max(watermark - self._lateness, MIN_TIMESTAMP)

    def open(self, panes: Iterable[int]) -> None:
        """Note that these panes have state."""
        fresh = np.array([pane for pane in panes if pane not in self._open], dtype=np.int64)
        if not len(fresh):
            return
        self._open.update(fresh.tolist())
        firsts = np.maximum(self._panes.first_windows(fresh), self.last_closed + 1).tolist()
        ends = (self._panes.last_windows(fresh) + 1).tolist()
        windows = {window for pair in zip(firsts, ends, strict=True) for window in range(*pair)}
        for time in self._panes.max_timestamps(np.array(sorted(windows), dtype=np.int64)).tolist():
            self._windows.open(time)

    def advance(self, watermark: int) -> tuple[NDArray[np.int64], list[int]]:
        """Advance; return the windows that fire and the panes that are over, in order of time.

        The results of the windows are to be taken before the panes are dropped.
        """
        due = list(self._windows.advance(watermark))
        fired = np.array([time for time, is_firing in due if is_firing], dtype=np.int64)
        dropped: list[int] = []
        if len(due) > len(fired):
            panes = self.present
            dropped = panes[self._panes.last_windows(panes) <= self.last_closed].tolist()
            self._open.difference_update(dropped)
        return self._panes.windows_of_max(fired), dropped


def _clamped(window: int) -> int:
    return max(MIN_TIMESTAMP, min(window, MAX_TIMESTAMP - 1))


#: Entries of a block (row, key), for all of which there are partial columns: 4 M are 32 MB each.
MOST_ENTRIES: Final = 4_000_000
#: Rows of a block where partials are lists or sketches, which grow from row to row.
MOST_LISTS: Final = 16
#: Tables that share a row are laid over each other; more of them are merged first.
_MOST_LAYERS: Final = 4
#: Rows of results that are made together.
MOST_ROWS: Final = 500_000


class PaneWindows:
    """Makes windows, in order of time, of the panes of one form of key."""

    def __init__(self, partials: Partials, panes: Panes, read: ReadPane) -> None:
        self._partials = partials
        self._panes = panes
        self._read = read
        self._block: _Block | None = None

    def touch(self, pane: int) -> None:
        """Forget what was combined if the pane is part of it: its content has changed."""
        if self._block is not None and pane < self._block.reached:
            self._block = None

    def results(
        self, windows: NDArray[np.int64], present: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
        """Yield (window of each line, table of key and partial columns).

        Args:
            windows: numbers of windows, ascending.
            present: the panes that have state, ascending.
        """
        position = 0
        while position < len(windows):
            first = int(windows[position]) * self._panes.per_slide
            block = self._block
            if block is None or not block.reaches(first):
                block = _Block(self._partials, self._panes, first, self._read, present)
                self._block = block
            stop = int(np.searchsorted(windows, block.middle_window))
            most = max(1, MOST_ROWS // max(block.width, 1))
            stop = min(stop, position + most)
            yield from block.results(windows[position:stop], present)
            position = stop


class _Block:
    """The panes from ``first`` up to ``middle``, combined backwards, and those after, forwards."""

    def __init__(
        self,
        partials: Partials,
        panes: Panes,
        first: int,
        read: ReadPane,
        present: NDArray[np.int64],
    ) -> None:
        self._partials = partials
        self._panes = panes
        self._read = read
        self._first = first
        self._pool = RowPool(partials)
        end = first + panes.per_window
        within = present[np.searchsorted(present, first) : np.searchsorted(present, end)]
        tables = {pane: read(pane) for pane in within.tolist()}
        self._nothing = next(iter(tables.values()))[0].slice(0, 0)
        self._keys = _unique([table for each in tables.values() for table in each])
        self.width = len(self._keys)
        # Shorter blocks where there are many keys: the panes up to the end of the first window
        # are then combined once per block instead of once per window.
        most = MOST_LISTS if partials.has_kernels else MOST_ENTRIES // max(self.width, 1)
        rows = max(1, most)
        self._middle = min(first + rows * panes.per_slide, end)
        #: Panes below are part of what is combined.
        self.reached = self._middle
        inside = within[within < self._middle]
        count = -(-(self._middle - first) // panes.per_slide)
        self._suffix = self._matrix(
            {pane: tables[pane] for pane in inside.tolist()},
            (inside - first) // panes.per_slide,
            count,
        ).accumulated(backwards=True)
        self._prefix = self._matrix({}, np.zeros(0, dtype=np.int64), 1)

    @property
    def middle_window(self) -> int:
        """The first window that begins after the block."""
        return -(-self._middle // self._panes.per_slide)

    def reaches(self, pane: int) -> bool:
        """Return whether a window that begins with this pane can be made of the block."""
        return self._first <= pane < self._middle

    def results(
        self, windows: NDArray[np.int64], present: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
        """Yield (window of each line, table of key and partial columns)."""
        begins = windows * self._panes.per_slide
        ends = begins + self._panes.per_window
        # What lies after the block, up to the end of each window.
        low, high = np.searchsorted(present, (self.reached, int(ends[-1])))
        behind = present[low:high]
        tables = {pane: self._read(pane) for pane in behind.tolist()}
        rows = np.searchsorted(ends, behind, side="right")
        prefix = self._matrix(tables, rows, len(windows))
        first = self._prefix.padded(self.width).followed_by(prefix.rows(slice(0, 1)))
        prefix = first.above(prefix.rows(slice(1, None))).accumulated(backwards=False)
        self._prefix = prefix.rows(slice(len(windows) - 1, None))
        self.reached = max(self.reached, int(ends[-1]))
        self._suffix = self._suffix.padded(self.width)
        starts = self._suffix.rows((begins - self._first) // self._panes.per_slide)
        lines, keys, table = starts.followed_by(prefix).lines(self._partials.columns)
        if len(lines):
            yield windows[lines], table.add_column(0, KEY, self._keys.take(pa.array(keys)))

    def _matrix(
        self, tables: dict[int, list[pa.Table]], rows: NDArray[np.int64], count: int
    ) -> PartialMatrix:
        """Lay out panes in rows; several panes may share a row."""
        layers: list[list[tuple[int, pa.Table]]] = []
        filled = [0] * count
        for row, parts in zip(rows.tolist(), tables.values(), strict=True):
            for part in parts:
                # No table has a key twice, so a layer has no entry twice.
                if filled[row] == len(layers):
                    layers.append([])
                layers[filled[row]].append((row, part))
                filled[row] += 1
        if len(layers) > _MOST_LAYERS:
            layers = [[each for layer in layers for each in layer]]
            return self._layer(layers[0], count, merge=True)
        made = self._layer(layers[0] if layers else [], count, merge=False)
        for layer in layers[1:]:
            later = self._layer(layer, count, merge=False)
            made = made.padded(self.width).followed_by(later)
        return made

    def _layer(
        self, parts: list[tuple[int, pa.Table]], count: int, *, merge: bool
    ) -> PartialMatrix:
        """Lay out (row, table); ``merge``: what falls on one entry, in the order given."""
        table = concatenated([part for _, part in parts] or [self._nothing])
        columns = self._columns(one_array(table.column(KEY)))
        rows = np.array([row for row, _ in parts], dtype=np.int64)
        lengths = [part.num_rows for _, part in parts]
        positions = pa.array(np.repeat(rows, lengths) * self.width + columns)
        table = table.append_column(POSITION, positions)
        if merge:
            table = self._partials.merge(table, [POSITION])
        return PartialMatrix.make(self._partials, table, count, self.width, self._pool)

    def _columns(self, keys: pa.Array) -> NDArray[np.int64]:
        """Return the column of each key; new keys get new ones."""
        found = pc.index_in(keys, value_set=self._keys)
        if found.null_count:
            fresh = keys.filter(found.is_null()).unique()
            self._keys = pa.concat_arrays([self._keys, fresh])
            # Room for more, so that matrices are not made wider for every few keys.
            if len(self._keys) > self.width:
                self.width = len(self._keys) + len(self._keys) // 4
            found = pc.index_in(keys, value_set=self._keys)
        columns: NDArray[np.int64] = found.to_numpy().astype(np.int64)
        return columns


def _unique(tables: list[pa.Table]) -> pa.Array:
    return one_array(pa.chunked_array([c for t in tables for c in t.column(KEY).chunks]).unique())


class BuiltInWindowOperator(BuiltInOperator):
    """Tumbling and sliding windows with built-in aggregates."""

    layout: ClassVar[str] = PANES

    def __init__(self, declared: DeclaredWindows) -> None:
        """Take what the API collected."""
        self._panes = Panes(declared.assigner)
        super().__init__(declared, self._panes)
        self._size = declared.assigner.size
        self._clock = PaneClock(self._panes, declared.allowed_lateness)

    def open(self) -> None:
        super().open()
        content = self.section.details["content"]
        self._chunks = WindowChunks(self.keyed_state, content, self._partials, self._panes)

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        migration = Migration.of(self, restored.watermark)
        if migration is not None:
            self._adopt(migration)
        self._clock.restore(restored.watermark, self._chunks.begin_epoch())
        self._combined: dict[bytes, PaneWindows] = {}

    def _adopt(self, migration: Migration) -> None:
        """Keep the windows that another operator kept."""
        if migration.stored.layout != PANES:
            for table in migration.tables(START, END):
                panes = self._panes.numbers(table.column(END).to_numpy() - 1)
                for pane, part in _by_pane(panes, table.drop_columns([START, END])):
                    self._chunks.add(pane, part)
            self.keyed_state.flush()
        migration.finish()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add records, or partials of a combiner, to their panes."""
        del input_index
        if not len(batch):
            return
        if is_partial(batch):
            table = pa.Table.from_batches([batch.arrow])
            self.records_in += pc.sum(table.column(RECORDS)).as_py()
            self._add(table)
            return
        self.records_in += len(batch)
        check_timestamps(self, batch.timestamp_array)
        # Late records are told apart here where they are wanted themselves, and where they may fall
        # between windows: partials know only records that are in one.
        if self._late_tag is not None or self._panes.per_window < self._panes.per_slide:
            panes = self._panes.numbers(batch.timestamp_array)
            late = np.flatnonzero(self._panes.last_windows(panes) <= self._clock.last_closed)
            if len(late):
                horizon = self._clock.horizon
                self.late_dropped += drop_late(self, batch, late, horizon, self._late_tag)
                batch = batch.take(np.setdiff1d(np.arange(len(batch)), late))
        if len(batch):
            for raw in self._partials.raw(batch, self.context):
                if raw.num_rows:
                    self._add(self._partials.make(raw, (KEY, START)))

    def process_watermark(self, watermark: int) -> None:
        """Fire and clean up what is due, then pass the watermark on."""
        windows, dropped = self._clock.advance(watermark)
        if len(windows):
            over = np.array(dropped, dtype=np.int64)
            self._fire(windows, np.union1d(over, self._clock.present))
        for pane in dropped:
            self._chunks.drop(pane)
        self.output.emit_watermark(watermark)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        if checkpoint.next_attempt is None:
            self._combined = {}
        return super().snapshot(checkpoint)

    # Adding.

    def _add(self, partials: pa.Table) -> None:
        """Add partials to their panes; those whose windows are all over are late."""
        self.key_types.see_column(partials.column(KEY))
        panes = self._panes.numbers(partials.column(START).to_numpy())
        late = self._panes.last_windows(panes) <= self._clock.last_closed
        if late.any():
            kept = pa.array(~late)
            self.late_dropped += pc.sum(partials.column(RECORDS).filter(pa.array(late))).as_py()
            partials, panes = partials.filter(kept), panes[~late]
        if not len(panes):
            return
        if FLUSH in partials.column_names:
            flushes = partials.column(FLUSH).to_numpy()
            if flushes[0] != flushes[-1]:  # several, which may have the same keys
                partials = self._partials.merge(partials, [KEY, START])
                panes = self._panes.numbers(partials.column(START).to_numpy())
        narrow = partials.select([KEY, *self._partials.columns])
        form = form_of(narrow)
        by_pane = list(_by_pane(panes, narrow))
        self._clock.open([pane for pane, _ in by_pane])
        for pane, table in by_pane:
            self._chunks.add(pane, table)
            if form in self._combined:
                self._combined[form].touch(pane)
        if self._panes.first_windows(panes.min()) <= self._clock.last_fired:
            self._fire_again(form, panes, one_array(narrow.column(KEY)))

    def _fire_again(self, form: bytes, panes: NDArray[np.int64], keys: pa.Array) -> None:
        """Fire the windows that had fired already, for the keys that were added to them."""
        lows = np.maximum(self._panes.first_windows(panes), self._clock.last_closed + 1)
        highs = np.minimum(self._panes.last_windows(panes), self._clock.last_fired)
        counts = np.maximum(highs - lows + 1, 0)
        rows = np.repeat(np.arange(len(panes)), counts)
        if not len(rows):
            return
        windows = np.arange(len(rows)) + np.repeat(lows - (np.cumsum(counts) - counts), counts)
        touched = keys.take(pa.array(rows)).dictionary_encode()
        codes = windows * len(touched.dictionary) + touched.indices.to_numpy()

        def read(pane: int) -> list[pa.Table]:
            parts = self._chunks.parts(pane, form)
            wanted = touched.dictionary
            return [part.filter(pc.is_in(part.column(KEY), value_set=wanted)) for part in parts]

        present = self._clock.present
        for lines, table in self._results(form, np.unique(windows), present, read):
            found = pc.index_in(one_array(table.column(KEY)), value_set=touched.dictionary)
            mask = np.isin(lines * len(touched.dictionary) + found.to_numpy(), codes)
            self._emit(lines[mask], table.filter(pa.array(mask)))

    # Firing.

    def _fire(self, windows: NDArray[np.int64], present: NDArray[np.int64]) -> None:
        """Emit the results of windows in order of time; several small ones in one batch."""
        first = windows[0] * self._panes.per_slide
        stop = windows[-1] * self._panes.per_slide + self._panes.per_window
        low, high = np.searchsorted(present, (first, stop))
        for form, panes in self._chunks.forms(present[low:high].tolist()).items():
            pending: list[Results] = []
            for result in self._results(form, windows, np.array(panes, dtype=np.int64), None):
                pending.append(result)
                if sum(len(lines) for lines, _ in pending) >= MOST_ROWS:
                    self._emit_all(pending)
                    pending = []
            self._emit_all(pending)

    def _results(
        self,
        form: bytes,
        windows: NDArray[np.int64],
        present: NDArray[np.int64],
        read: ReadPane | None,
    ) -> Iterator[Results]:
        """Yield the lines of windows, from the panes that ``present`` lists.

        ``read`` gives other content than the state's; nothing of it is kept for later windows.
        """
        begins = windows * self._panes.per_slide
        ends = begins + self._panes.per_window
        some = np.searchsorted(present, begins) < np.searchsorted(present, ends)
        windows, begins = windows[some], begins[some]

        def read_form(pane: int) -> list[pa.Table]:
            return self._chunks.parts(pane, form)

        if self._panes.per_window == 1:
            for window, pane in zip(windows.tolist(), begins.tolist(), strict=True):
                table = self._partials.merge_pane((read or read_form)(pane))
                yield np.full(table.num_rows, window), table
            return
        if read is not None:
            combined = PaneWindows(self._partials, self._panes, read)
        elif form in self._combined:
            combined = self._combined[form]
        else:
            combined = self._combined[form] = PaneWindows(self._partials, self._panes, read_form)
        yield from combined.results(windows, present)

    def _emit_all(self, results: list[Results]) -> None:
        if results:
            lines = np.concatenate([each for each, _ in results])
            self._emit(lines, concatenated([table for _, table in results]))

    def _emit(self, windows: NDArray[np.int64], merged: pa.Table) -> None:
        starts = self._panes.window_starts(windows)
        self.emit_results(merged, starts, starts + self._size)


def _by_pane(panes: NDArray[np.int64], table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Cut a table by pane, in order of time."""
    first = int(panes[0])
    if bool((panes == first).all()):
        yield first, table
        return
    order = np.argsort(panes, kind="stable")
    ordered = panes[order]
    taken = table.take(pa.array(order))
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    for begin, end in pairwise(bounds):
        yield int(ordered[begin]), taken.slice(begin, end - begin)
