"""The window operator for built-in aggregates: columns from end to end.

What it is: partial aggregates are kept per pane as Arrow tables; each epoch appends one chunk
per pane (and form of key) to the store; firing combines a window's panes.  A record is kept once,
however many windows it is in.  No Python code runs per record or key.

What it is not: different from a user-written aggregate in its results, except that late records
within the allowed lateness fire their windows once per key and batch, not once per record.

Layout: ``C`` + index + last timestamp of the pane + form of key (1) + epoch (8) + CRC-32 of the
attempt (4); the value is an Arrow IPC stream whose schema names the key groups of its writer, so
that after a change of parallelism each subtask takes its own rows only.

Read next: ``runtime/operators/windows/panes.py``, ``runtime/operators/windows/pane_windows.py``,
``runtime/operators/windows/chunks.py``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.configuration import options
from millstream.runtime.columnar.aggregates import named_aggregates, one_array
from millstream.runtime.columnar.partial_aggregates import RECORDS, concatenated, is_partial
from millstream.runtime.columnar.row_aggregates import RowAggregates
from millstream.runtime.columnar.row_groups import KEY
from millstream.runtime.operators.keyed import KeyExtractor, store_of
from millstream.runtime.operators.windows.adoption import (
    Adoption,
    pane_tables,
    partial_types,
    stored_section,
)
from millstream.runtime.operators.windows.chunks import WindowChunks, form_of
from millstream.runtime.operators.windows.columnar_results import BuiltInOperator
from millstream.runtime.operators.windows.late import check_timestamps, drop_late
from millstream.runtime.operators.windows.pane_clock import PaneClock
from millstream.runtime.operators.windows.pane_windows import MOST_ROWS, PaneWindows
from millstream.runtime.operators.windows.panes import Panes
from millstream.runtime.operators.windows.partials import FLUSH, START, Partials
from millstream.runtime.operators.windows.sections import panes_section
from millstream.runtime.operators.windows.specs import LEADING_COLUMNS
from millstream.state.key_groups import key_group_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        Checkpoint,
        OperatorSnapshot,
        RestoreContext,
        StateSection,
    )
    from millstream.functions.windows import FixedEventTimeWindows
    from millstream.runtime.operators.windows.pane_windows import ReadPane
    from millstream.runtime.operators.windows.specs import BuiltInSpec

    #: The window of each line, and the lines.
    Results = tuple[NDArray[np.int64], pa.Table]

__all__ = ["BuiltInWindowOperator"]


class BuiltInWindowOperator(BuiltInOperator):
    """Tumbling and sliding windows with built-in aggregates."""

    def __init__(
        self,
        assigner: FixedEventTimeWindows,
        spec: BuiltInSpec,
        key_selector: Any,
        allowed_lateness: int = 0,
        late_tag: str | None = None,
    ) -> None:
        """Take what the API collected; the lateness is in milliseconds."""
        self.section = panes_section(assigner, spec, allowed_lateness)
        self._assigner, self._spec = assigner, spec
        self._panes = Panes(assigner)
        extractor = KeyExtractor(key_selector)
        super().__init__(
            Partials(self._panes, named_aggregates(spec.aggregates, LEADING_COLUMNS), extractor)
        )
        self._size = assigner.size
        self._late_tag = late_tag
        self._clock = PaneClock(self._panes, allowed_lateness)

    def open(self) -> None:
        super().open()
        context = self.context
        self._chunks = WindowChunks(
            self._partials,
            self._panes,
            context.max_parallelism,
            key_group_range(context.subtask, context.max_parallelism, context.parallelism),
            self.section,
        )

    def restore(self, restored: RestoreContext) -> None:
        self._store = store_of(restored)
        stored = stored_section(self._store, self.section)
        if stored is not None:
            self._adopt(stored, restored.watermark)
        panes = self._chunks.begin_epoch(self._store, restored.epoch, restored.attempt)
        self._clock.restore(restored.watermark, panes)
        self._combined: dict[bytes, PaneWindows] = {}

    def _adopt(self, stored: StateSection, watermark: int) -> None:
        """Keep the windows that another operator kept."""
        context = self.context
        declared = (self._assigner, self._spec)
        adoption = Adoption(stored, self.section, self._store, watermark, declared, context)
        if stored.layout != self.section.layout:
            self._chunks.begin_epoch(self._store, 0, "")  # nothing else has these names
            rows = RowAggregates(self._spec.aggregates)
            types = partial_types(rows, self._spec, context)
            for last, table in pane_tables(adoption.windows(), rows, types):
                self._chunks.add(self._panes.of_timestamp(last), table)
            self._chunks.flush()
            adoption.source.drop()
            adoption.drop_timers()
            adoption.drop_states("")
        adoption.finish(self.section)

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
        """Write one chunk per pane; go on in chunks of the next epoch."""
        if checkpoint.next_attempt is None:
            self._chunks.flush()
            self._chunks.forget()
            self._combined = {}
        else:
            self._chunks.flush(self.context.configuration.get(options.MANAGED_MEMORY) // 4)
            self._chunks.go_on(checkpoint.epoch + 1, checkpoint.next_attempt)
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
        narrow = partials.drop_columns([START, RECORDS])
        form = form_of(narrow)
        for begin, end in _flushes(narrow):
            flush = narrow.slice(begin, end - begin)
            if FLUSH in flush.column_names:
                flush = flush.drop_columns([FLUSH])
            self._add_flush(form, panes[begin:end], flush)
        if self._panes.first_windows(panes.min()) <= self._clock.last_fired:
            self._fire_again(form, panes, one_array(narrow.column(KEY)))

    def _add_flush(self, form: bytes, panes: NDArray[np.int64], flush: pa.Table) -> None:
        """Add partials that have no key twice in a pane."""
        by_pane = list(_by_pane(panes, flush))
        self._clock.open([pane for pane, _ in by_pane])
        for pane, table in by_pane:
            self._chunks.add(pane, table)
            if form in self._combined:
                self._combined[form].touch(pane)

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


def _flushes(partials: pa.Table) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the flushes of a combiner; all else is one."""
    bounds = [0, partials.num_rows]
    if FLUSH in partials.column_names:
        number = partials.column(FLUSH).to_numpy()
        bounds[1:1] = (np.flatnonzero(np.diff(number)) + 1).tolist()
    yield from pairwise(bounds)


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
