"""Sessions with built-in aggregates: columns from end to end.

What it is: the records of a batch are cut at gaps per key and grouped; what comes of it is kept as
fragments of sessions.  Fragments of one session are merged when one of them is due by the
watermark, or at once for keys whose records come behind the watermark.  No Python code runs per
record or key, except for late records near others that are not (``session_cut.py``).

What it is not: different from a user-written aggregate in its results, except that late records
within the allowed lateness fire their session once per key and batch, not once per record.  What
is late is decided record by record, as in Flink: a record is late if its session, merged with
open ones and with those of earlier records of the batch, is over.

Invariant: between calls, a fragment whose last timestamp the watermark has passed is a whole
session, has fired, and waits for the allowed lateness to pass.

Read next: ``runtime/operators/windows/session_state.py``,
``runtime/operators/windows/session_cut.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.runtime.columnar.aggregates import named_aggregates, one_array
from millstream.runtime.columnar.partial_aggregates import RECORDS, TIME, concatenated
from millstream.runtime.columnar.row_aggregates import RowAggregates
from millstream.runtime.columnar.row_groups import KEY
from millstream.runtime.operators.keyed import KeyExtractor, store_of
from millstream.runtime.operators.windows.adoption import (
    Adoption,
    fragment_tables,
    partial_types,
    stored_section,
)
from millstream.runtime.operators.windows.chunks import form_of
from millstream.runtime.operators.windows.columnar_results import BuiltInOperator
from millstream.runtime.operators.windows.late import check_timestamps
from millstream.runtime.operators.windows.partials import POSITION, Partials
from millstream.runtime.operators.windows.sections import fragments_section
from millstream.runtime.operators.windows.session_cut import Sessions, cut, late_records
from millstream.runtime.operators.windows.session_state import END, START, SessionState
from millstream.runtime.operators.windows.specs import LEADING_COLUMNS
from millstream.state.key_groups import key_group_range

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        Checkpoint,
        OperatorSnapshot,
        RestoreContext,
        StateSection,
    )
    from millstream.functions.windows import EventTimeSessionWindows
    from millstream.runtime.operators.windows.specs import BuiltInSpec

__all__ = ["BuiltInSessionOperator"]

_SESSION: Final = "__session"


class BuiltInSessionOperator(BuiltInOperator):
    """Event-time sessions with a fixed gap and built-in aggregates."""

    def __init__(
        self,
        assigner: EventTimeSessionWindows,
        spec: BuiltInSpec,
        key_selector: Any,
        allowed_lateness: int = 0,
        late_tag: str | None = None,
    ) -> None:
        """Take what the API collected; the lateness is in milliseconds."""
        extractor = KeyExtractor(key_selector)
        super().__init__(
            Partials(None, named_aggregates(spec.aggregates, LEADING_COLUMNS), extractor)
        )
        self.section = fragments_section(spec)
        self._assigner, self._spec = assigner, spec
        self._gap = assigner.gap
        self._lateness = allowed_lateness
        self._late_tag = late_tag
        self._watermark = MIN_TIMESTAMP

    def open(self) -> None:
        super().open()
        context = self.context
        groups = key_group_range(context.subtask, context.max_parallelism, context.parallelism)
        self._state = SessionState(context.max_parallelism, groups, self.section)

    def restore(self, restored: RestoreContext) -> None:
        self._watermark = restored.watermark
        self._store = store_of(restored)
        stored = stored_section(self._store, self.section)
        if stored is not None:
            self._adopt(stored, restored.attempt)
        self._state.begin_epoch(self._store, restored.epoch, restored.attempt)

    def _adopt(self, stored: StateSection, attempt: str) -> None:
        """Keep the sessions that another operator kept."""
        context = self.context
        declared = (self._assigner, self._spec)
        adoption = Adoption(stored, self.section, self._store, self._watermark, declared, context)
        # Nothing written from now on has its name, nor what another subtask adopts: stores are
        # merged when the parallelism changes.
        self._state.begin_epoch(self._store, 0, attempt)
        rows = RowAggregates(self._spec.aggregates)
        types = partial_types(rows, self._spec, context)
        tables = fragment_tables(
            adoption.windows(), rows, types, self._watermark, (START, END), context
        )
        for table in tables:
            self._state.add(table)
        self._state.flush()
        adoption.drop_timers()
        adoption.drop_states("")
        adoption.finish(self.section)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        if not len(batch):
            return
        self.records_in += len(batch)
        timestamps = batch.timestamp_array
        check_timestamps(self, timestamps)
        behind = int(timestamps.min()) + self._gap - 1 <= self._watermark
        late: list[NDArray[np.int64]] = []
        for raw in self._partials.raw(batch, self.context):
            self.key_types.see_column(raw.column(KEY))
            if behind:
                late.append(self._add_behind(raw))
            else:
                self._state.add(self._fragments(raw))
        found = np.sort(np.concatenate(late)) if late else np.zeros(0, dtype=np.int64)
        if not len(found):
            return
        if self._late_tag is None:
            self.late_dropped += len(found)
        else:
            self.output.emit_side(self._late_tag, batch.take(found))

    def process_watermark(self, watermark: int) -> None:
        """Fire and clean up the sessions that are due, then pass the watermark on."""
        before, self._watermark = self._watermark, watermark
        for form in self._state.forms():
            # A session fires when the watermark reaches end - 1, and is over when it reaches
            # end - 1 + lateness.
            keys = self._state.keys_between(form, MIN_TIMESTAMP, _end(self._horizon))
            if self._lateness:
                fired = self._state.keys_between(form, _end(before), _end(watermark))
                keys = _both(keys, fired)
            if keys is not None:
                self._fire(form, keys, before)
        self.output.emit_watermark(watermark)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        """Write the fragments; go on in a run of the next epoch."""
        self._state.flush()
        if checkpoint.next_attempt is None:
            self._state.forget()
        else:
            self._state.go_on(checkpoint.epoch + 1, checkpoint.next_attempt)
        return super().snapshot(checkpoint)

    @property
    def _horizon(self) -> int:
        """What ends here or before is over."""
        if self._watermark == MAX_TIMESTAMP:
            return MAX_TIMESTAMP
        return max(self._watermark - self._lateness, MIN_TIMESTAMP)

    def _fire(self, form: bytes, keys: pa.Array, before: int) -> None:
        """Merge all fragments of these keys; fire what is due, keep what is not over."""
        taken = self._state.take_out(form, keys)
        if taken is None:
            return
        _, merged = self._merge(taken)
        ends = merged.column(END).to_numpy()
        self._emit(merged, (ends > _end(before)) & (ends <= _end(self._watermark)))
        self._keep(merged, ends)

    def _keep(self, merged: pa.Table, ends: NDArray[np.int64]) -> None:
        kept = ends > _end(self._horizon)
        if kept.any():
            self._state.add(merged if kept.all() else merged.filter(pa.array(kept)))

    def _add_behind(self, raw: pa.Table) -> NDArray[np.int64]:
        """Add records some of which are behind the watermark; return positions of late ones.

        Keys with such records are merged at once: the records may be late, or fire again.
        """
        times = raw.column(TIME).to_numpy()
        keys = one_array(raw.column(KEY))
        concerned = keys.filter(pa.array(times + self._gap - 1 <= self._watermark)).unique()
        if not len(concerned):
            self._state.add(self._fragments(raw))
            return np.zeros(0, dtype=np.int64)
        mask = pc.is_in(keys, value_set=concerned)
        rest = raw.filter(pc.invert(mask))
        if rest.num_rows:
            self._state.add(self._fragments(rest))
        raw = raw.filter(mask)
        opened = self._state.take_out(form_of(raw), concerned)
        late = self._late(raw, opened)
        positions: NDArray[np.int64] = raw.column(POSITION).to_numpy()[late]
        raw = raw.filter(pa.array(~late))
        tables = [] if opened is None else [opened]
        if raw.num_rows:
            tables.append(self._fragments(raw))
        if tables:
            fresh = tables[-1].num_rows if raw.num_rows else 0
            sessions, merged = self._merge(concatenated(tables))
            added = np.zeros(len(sessions), dtype=np.bool_)
            added[sessions.of[len(sessions.of) - fresh :]] = True
            ends = merged.column(END).to_numpy()
            self._emit(merged, added & (ends <= _end(self._watermark)))
            self._keep(merged, ends)
        return positions

    def _late(self, raw: pa.Table, opened: pa.Table | None) -> NDArray[np.bool_]:
        times = raw.column(TIME).to_numpy()
        keys, starts, ends = raw.column(KEY), times, times + self._gap
        if opened is not None:
            keys = pa.chunked_array([*opened.column(KEY).chunks, *keys.chunks])
            starts = np.concatenate((opened.column(START).to_numpy(), starts))
            ends = np.concatenate((opened.column(END).to_numpy(), ends))
        return late_records(_numbers(keys), starts, ends, raw.num_rows, self._horizon)

    def _fragments(self, raw: pa.Table) -> pa.Table:
        """Cut and group records."""
        times = raw.column(TIME).to_numpy()
        sessions = cut(_numbers(raw.column(KEY)), times, times + self._gap)
        numbered = raw.append_column(_SESSION, pa.array(sessions.of))
        made = self._partials.make(numbered, [_SESSION]).drop_columns([RECORDS])
        return self._named(made, sessions, raw.column(KEY))

    def _merge(self, fragments: pa.Table) -> tuple[Sessions, pa.Table]:
        """Merge fragments; the result has one line per session, in their order."""
        starts, ends = (fragments.column(name).to_numpy() for name in (START, END))
        sessions = cut(_numbers(fragments.column(KEY)), starts, ends)
        if len(sessions) == fragments.num_rows:  # nothing to merge
            order = np.empty(len(sessions), dtype=np.int64)
            order[sessions.of] = np.arange(len(sessions))
            return sessions, fragments.take(pa.array(order))
        numbered = fragments.append_column(_SESSION, pa.array(sessions.of))
        merged = self._partials.merge(numbered, [_SESSION])
        return sessions, self._named(merged, sessions, fragments.column(KEY))

    def _named(self, table: pa.Table, sessions: Sessions, keys: pa.ChunkedArray) -> pa.Table:
        """Replace the number of each session by key, start and end; in order of the numbers."""
        numbers = table.column(_SESSION).to_numpy()
        order = np.empty(len(numbers), dtype=np.int64)
        order[numbers] = np.arange(len(numbers))
        table = table.drop_columns([_SESSION]).take(pa.array(order))
        members = np.empty(len(sessions), dtype=np.int64)
        members[sessions.of] = np.arange(len(sessions.of))
        columns = {
            KEY: keys.take(pa.array(members)),
            START: pa.array(sessions.starts),
            END: pa.array(sessions.ends),
        }
        return pa.table([*columns.values(), *table.columns], [*columns, *table.column_names])

    def _emit(self, merged: pa.Table, due: NDArray[np.bool_]) -> None:
        """Emit sessions in order of their ends."""
        places = np.flatnonzero(due)
        if not len(places):
            return
        ends = merged.column(END).to_numpy()[places]
        by_end = np.argsort(ends, kind="stable")
        chosen = merged.take(pa.array(places[by_end]))
        self.emit_results(chosen, chosen.column(START).to_numpy(), ends[by_end])


def _numbers(keys: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return a number per key."""
    if pa.types.is_integer(keys.type):
        plain: NDArray[np.int64] = keys.to_numpy()
        return plain
    numbers: NDArray[np.int64] = one_array(keys).dictionary_encode().indices.to_numpy()
    return numbers.astype(np.int64)


def _end(last: int) -> int:
    """Return the end of what ends with the timestamp ``last``."""
    return min(last, MAX_TIMESTAMP - 1) + 1


def _both(one: pa.Array | None, other: pa.Array | None) -> pa.Array | None:
    if one is None or other is None:
        return other if one is None else one
    return pa.concat_arrays([one, other]).unique()
