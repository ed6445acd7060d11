"""The window operator for built-in aggregates: columns from end to end.

What it is: partial aggregates are kept per window as Arrow tables; each epoch appends one chunk
per window (and form of key) to the store; firing concatenates a window's chunks and groups
them.  No Python code runs per record or key.

What it is not: different from a user-written aggregate in its results, except that late records
within the allowed lateness fire their window once per key and batch, not once per record.

Layout: ``C`` + index + max_timestamp + form of key (1) + epoch (8) + CRC-32 of the attempt (4);
the value is an Arrow IPC stream whose schema names the key groups of its writer, so that after
a change of parallelism each subtask takes its own rows only.

Read next: ``runtime/operators/window_partials.py``, ``runtime/operators/window_chunks.py``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.columns import ColumnMismatchError
from millstream.common.composite_types import CompositeTypeInfo
from millstream.common.row import row_class
from millstream.common.typeinfo import from_arrow_schema
from millstream.errors import TypeMismatchError
from millstream.runtime.aggregates import named_aggregates
from millstream.runtime.batch import MIN_TIMESTAMP, Batch
from millstream.runtime.operators.base import FunctionOperator
from millstream.runtime.operators.keyed import KeyExtractor, store_of
from millstream.runtime.operators.window import check_timestamps, drop_late
from millstream.runtime.operators.window_chunks import WindowChunks
from millstream.runtime.operators.window_clock import WindowClock
from millstream.runtime.operators.window_partials import (
    KEY,
    RECORDS,
    START,
    Partials,
    is_partial,
    keys_from_column,
)
from millstream.runtime.user_code import short_repr
from millstream.state.key_groups import key_group_range

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.common.typeinfo import TypeInformation
    from millstream.runtime.operator import EpochContext, OperatorSnapshot
    from millstream.runtime.operators.window_specs import BuiltInSpec
    from millstream.runtime.windows import FixedEventTimeWindows

__all__ = ["BuiltInWindowOperator"]

#: Rows of results that are finished together.
_MOST_ROWS: Final = 500_000


class BuiltInWindowOperator(FunctionOperator):
    """Windows with Count, Sum, Min, Max and Avg."""

    keyed = True

    def __init__(
        self,
        assigner: FixedEventTimeWindows,
        spec: BuiltInSpec,
        key_selector: Any,  # noqa: ANN401 - user code
        allowed_lateness: int = 0,
        late_tag: str | None = None,
    ) -> None:
        """Take what the API collected; the lateness is in milliseconds."""
        super().__init__(None)
        self._assigner = assigner
        self._lateness = allowed_lateness
        self._late_tag = late_tag
        self._clock = WindowClock(allowed_lateness)
        self._partials = Partials(
            assigner, named_aggregates(spec.aggregates), KeyExtractor(key_selector)
        )
        self.late_dropped = 0

    def open(self) -> None:
        """Make the state."""
        context = self.context
        self._chunks = WindowChunks(
            self._partials,
            context.max_parallelism,
            key_group_range(context.subtask, context.max_parallelism, context.parallelism),
        )

    def begin_epoch(self, epoch: EpochContext) -> None:
        """Take the restored state."""
        windows = self._chunks.begin_epoch(store_of(epoch), epoch.epoch, epoch.attempt)
        self._clock.restore(epoch.watermark, windows)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add records, or partials of a combiner, to their windows."""
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
        if self._late_tag is not None or self._assigner.slide > self._assigner.size:
            late = np.flatnonzero(self._is_over(self._assigner.last_starts(batch.timestamp_array)))
            if len(late):
                horizon = self._clock.watermark - self._lateness
                self.late_dropped += drop_late(self, batch, late, horizon, self._late_tag)
                batch = batch.take(np.setdiff1d(np.arange(len(batch)), late))
        if len(batch):
            for raw in self._partials.raw(batch, self.context):
                if raw.num_rows:
                    self._add(self._partials.make(raw))

    def process_watermark(self, watermark: int) -> None:
        """Fire and clean up the windows that are due, then pass the watermark on."""
        due = list(self._clock.advance(watermark))
        self._fire([window for window, is_firing in due if is_firing])
        for window, is_firing in due:
            if not is_firing:
                self._chunks.drop(window)
        self.output.emit_watermark(watermark)

    def end_epoch(self) -> OperatorSnapshot:
        """Write one chunk per window."""
        self._chunks.flush()
        return super().end_epoch()

    def take_metrics(self) -> dict[str, int]:
        """Add the late records."""
        metrics = super().take_metrics()
        metrics["numLateRecordsDropped"] = self.late_dropped
        self.late_dropped = 0
        return metrics

    def _is_over(self, starts: np.ndarray[Any, np.dtype[np.int64]]) -> Any:  # noqa: ANN401 - a mask
        """Whether windows with these starts are late: their state is gone."""
        ends = starts + (self._assigner.size - 1)
        return ends <= max(self._clock.watermark - self._lateness, MIN_TIMESTAMP)

    def _add(self, partials: pa.Table) -> None:
        """Add partials to all windows of their panes."""
        rows, starts = self._partials.windows_of(partials)
        over = self._is_over(starts)
        if over.any():
            self._count_late(partials, rows[over], rows[~over])
            rows, starts = rows[~over], starts[~over]
        if not len(rows):
            return
        narrow = partials.drop_columns([START, RECORDS])
        first = int(starts[0])
        if bool((starts == first).all()):
            if len(rows) != narrow.num_rows:
                narrow = narrow.take(pa.array(rows))
            self._add_to(first, narrow)
            return
        order = np.argsort(starts, kind="stable")
        ordered = starts[order]
        taken = narrow.take(pa.array(rows[order]))
        bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
        for begin, end in pairwise(bounds):
            self._add_to(int(ordered[begin]), taken.slice(begin, end - begin))

    def _add_to(self, start: int, table: pa.Table) -> None:
        window = start + self._assigner.size - 1
        self._clock.open(window)
        self._chunks.add(window, table)
        if self._clock.has_fired(window):
            keys = table.column(KEY).unique()
            for merged in self._chunks.merged(window):
                if merged.schema.field(KEY).type == table.schema.field(KEY).type:
                    mask = pc.is_in(merged.column(KEY), value_set=keys)
                    self._emit_results([(window, merged.filter(mask))])

    def _count_late(
        self, partials: pa.Table, late: np.ndarray[Any, Any], kept: np.ndarray[Any, Any]
    ) -> None:
        """Count records none of whose windows is open."""
        lost = np.setdiff1d(late, kept)
        if len(lost):
            self.late_dropped += pc.sum(partials.column(RECORDS).take(pa.array(lost))).as_py()

    def _fire(self, windows: Iterable[int]) -> None:
        """Emit the results of windows, in order; several small ones in one batch."""
        pending: list[tuple[int, pa.Table]] = []
        rows = 0
        for window in windows:
            for merged in self._chunks.merged(window):
                if pending and not _same_form(pending[0][1], merged):
                    self._emit_results(pending)
                    pending, rows = [], 0
                pending.append((window, merged))
                rows += merged.num_rows
            if rows >= _MOST_ROWS:
                self._emit_results(pending)
                pending, rows = [], 0
        if pending:
            self._emit_results(pending)

    def _emit_results(self, merged: list[tuple[int, pa.Table]]) -> None:
        """Emit finished windows, all of one form."""
        table = pa.concat_tables([each for _, each in merged])
        lengths = [each.num_rows for _, each in merged]
        ends = np.repeat(np.array([window for window, _ in merged], dtype=np.int64), lengths)
        results = self._partials.finish(table)
        columns = {
            KEY: table.column(KEY).combine_chunks(),
            "window_start": pa.array(ends + 1 - self._assigner.size),
            "window_end": pa.array(ends + 1),
            **{name: _one_array(column) for name, column in results.items()},
        }
        self.emit(self._typed(columns, ends))

    def _typed(self, columns: dict[str, pa.Array], timestamps: Any) -> Batch:  # noqa: ANN401
        declared = self.context.output_type
        keys = _one_array(columns[KEY])
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


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        combined = combined.chunk(0) if combined.num_chunks else pa.array([], combined.type)
    return combined


def _same_form(one: pa.Table, other: pa.Table) -> bool:
    return bool(one.schema.equals(other.schema))
