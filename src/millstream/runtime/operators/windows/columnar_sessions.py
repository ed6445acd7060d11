"""Sessions with built-in aggregates: columns from end to end.

The records of a batch are cut at gaps per key and grouped; the results are kept as fragments of
sessions.  Fragments of one session are merged when one of them fires by the watermark, or at once
for keys whose records come after the watermark.  No Python code runs per record or key, except for
late records near others that are not late (``late_records``).

Invariant: between calls, a fragment whose last timestamp the watermark has passed is a whole
session, has fired, and waits for the allowed lateness to pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.runtime.columnar.aggregates import one_array
from millstream.runtime.columnar.partial_aggregates import RECORDS, TIME, concatenated
from millstream.runtime.columnar.row_groups import KEY
from millstream.runtime.operators.windows.assignment import Sessions, check_timestamps, cut
from millstream.runtime.operators.windows.chunks import END, POSITION, START, form_of
from millstream.runtime.operators.windows.columnar import BuiltInOperator
from millstream.runtime.operators.windows.contents import SnapshotState
from millstream.runtime.operators.windows.state_migration import FRAGMENTS, Migration
from millstream.state.chunks import encoded_chunk, fragment_runs, marks_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import RestoreContext
    from millstream.runtime.operators.windows.logic import DeclaredWindows
    from millstream.state.key_context import Puts
    from millstream.state.keyed import KeyedState


def late_records(
    keys: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    records: int,
    horizon: int,
) -> NDArray[np.bool_]:
    """Find the late records of a batch, as if they came one by one.

    A record is late if its session, merged with those that are open and with records that came
    before it, ends at the horizon or before: everything else about it is over.  An open session
    is never over, so such a record must touch neither one nor an earlier record that was taken.

    Args:
        keys: a number per interval; first those of open sessions, then those of the records, in
            the order in which they came.
        starts: the first timestamp of each interval.
        ends: the last timestamp of each interval + 1; of a record, its timestamp + the gap.
        records: how many of the intervals are records.
        horizon: the watermark less the allowed lateness.

    Returns:
        One boolean per record.
    """
    opened = len(keys) - records
    suspect = np.zeros(len(keys), dtype=np.bool_)
    suspect[opened:] = ends[opened:] - 1 <= horizon
    if not suspect.any():
        return suspect[opened:]
    sessions = cut(keys, starts, ends)
    # What has only suspects in reach is late, however they came.
    solid = np.zeros(len(sessions), dtype=np.bool_)
    solid[sessions.of[~suspect]] = True
    late = suspect & ~solid[sessions.of]
    doubtful = np.unique(sessions.of[suspect & ~late])
    for session in doubtful.tolist():
        _one_by_one(np.flatnonzero(sessions.of == session), starts, ends, suspect, opened, late)
    return late[opened:]


def _one_by_one(
    members: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    suspect: NDArray[np.bool_],
    opened: int,
    late: NDArray[np.bool_],
) -> None:
    """Decide on the suspects of one session, in which order matters."""
    taken: list[tuple[int, int]] = []
    for member in members.tolist():
        start, end = int(starts[member]), int(ends[member])
        apart = [each for each in taken if each[0] > end or each[1] < start]
        if len(apart) == len(taken) and member >= opened and suspect[member]:
            late[member] = True
            continue
        touched = [each for each in taken if each[0] <= end and each[1] >= start]
        begin = min([start, *(each[0] for each in touched)])
        taken = [*apart, (begin, max([end, *(each[1] for each in touched)]))]


_LONGEST_TABLE: Final = 1 << 20
_RUN: Final = 0
_MARKS: Final = 1


class _Run:
    """Fragments of one form of key, some of them taken out."""

    __slots__ = ("alive", "changed", "count", "ends", "name", "table")

    def __init__(self, table: pa.Table, name: bytes | None = None) -> None:
        #: Invariant: one chunk per column.
        self.table = table.combine_chunks()
        #: In the store; None: only in memory.
        self.name = name
        self.ends: NDArray[np.int64] = table.column(END).to_numpy()
        self.alive = np.ones(len(self.ends), dtype=np.bool_)
        self.count = len(self.ends)
        #: Whether fragments were taken out since the marks were written.
        self.changed = False

    def take_out(self, mask: NDArray[np.bool_]) -> pa.Table:
        """Mark fragments and return them."""
        found = self.table.filter(pa.array(mask))
        self.alive &= ~mask
        self.count -= found.num_rows
        self.changed = True
        return found

    def rest(self) -> pa.Table:
        """Return what was not taken out."""
        if self.count == len(self.alive):
            return self.table
        return self.table.filter(pa.array(self.alive))


class SessionState(SnapshotState):
    """Fragments by form of key, oldest first.

    Layout: ``C`` + index + number of the flush + form of key (1) + 0 for a run of fragments, as
    chunks of slices are (``columnar.py``), 1 for the marks of what was taken out of it.
    """

    def __init__(self, keyed: KeyedState, content: str) -> None:
        """Keep fragments in ``keyed``."""
        super().__init__(keyed, "\0windows.fragments", "session fragments", content)
        self._runs: dict[bytes, list[_Run]] = {}
        #: Whether runs were written by other subtasks: then all are written again.
        self._moved = False

    def begin_epoch(self) -> None:
        """Read the store, which was restored."""
        self._runs, self._moved = {}, False
        section = self.section(b"C")
        time = len(section.prefix(0))
        stored = self.keyed.store.scan(*section.everything())
        for name, table, alive, moved in fragment_runs(stored, time + 2, self._ours):
            run = _Run(table, name)
            run.alive, run.count = alive, int(alive.sum())
            self._moved |= moved
            self._runs.setdefault(name[time : time + 1], []).append(run)

    @property
    def _ours(self) -> tuple[int, tuple[int, int]]:
        return self.keyed.max_parallelism, self.keyed.key_groups

    def forget(self) -> None:
        self._runs = {}

    def forms(self) -> list[bytes]:
        """Return the forms of key that there are."""
        return sorted(self._runs)

    def add(self, table: pa.Table) -> None:
        """Add fragments, all of one form of key."""
        runs = self._runs.setdefault(form_of(table), [])
        runs.append(_Run(table))
        # Few runs in memory as well: each is more than twice as large as the next.
        while len(runs) > 1 and runs[-2].name is None and runs[-2].count <= 2 * runs[-1].count:
            last, before = runs.pop(), runs.pop()
            runs.append(_Run(concatenated([before.rest(), last.rest()])))

    def keys_between(self, form: bytes, low: int, high: int) -> pa.Array | None:
        """Return the keys of fragments with ``low < end <= high``; None if there is none."""
        found = []
        for run in self._runs.get(form, []):
            mask = run.alive & (run.ends > low) & (run.ends <= high)
            if mask.any():
                found.append(run.table.column(KEY).filter(pa.array(mask)))
        if not found:
            return None
        return pa.chunked_array([chunk for each in found for chunk in each.chunks]).unique()

    def take_out(self, form: bytes, keys: pa.Array) -> pa.Table | None:
        """Take out all fragments of these keys, oldest first; None if there is none."""
        found = []
        lookup = _Lookup(keys)
        for run in self._runs.get(form, []):
            mask = lookup.mask(run.table.column(KEY)) & run.alive
            if mask.any():
                found.append(run.take_out(mask))
        return concatenated(found) if found else None

    # Storing.

    def flush(self, puts: Puts, deletes: list[bytes]) -> None:
        """Write what has changed; what is left in memory is what the store has."""
        section = self.section(b"C")
        if self._moved:
            self.keyed.store.delete_range(*section.everything())
        chunk = self.keyed.next_chunk
        left: dict[bytes, list[_Run]] = {}
        for form, runs in self._runs.items():
            stored = [run for run in runs if run.name is not None]
            fresh = [run.rest() for run in runs if run.name is None and run.count]
            length = sum(table.num_rows for table in fresh)
            # The newest first, so that fragments stay in order of age.
            while stored and (self._moved or stored[-1].count <= 2 * length):
                run = stored.pop()
                fresh.insert(0, run.rest())
                length += run.count
                self._delete(run, deletes)
            for run in stored:
                if not run.count:
                    self._delete(run, deletes)
                elif run.changed and run.name is not None:
                    puts.append((_marks(run.name), marks_of(~run.alive)))
                    run.changed = False
            kept = [run for run in stored if run.count]
            if length:
                name = section.prefix(int.from_bytes(chunk, "big")) + form + bytes([_RUN])
                kept.append(_Run(concatenated(fresh), name))
                puts.append((name, encoded_chunk(kept[-1].table, *self._ours)))
            if kept:
                left[form] = kept
        self._runs = left
        self._moved = False

    def _delete(self, run: _Run, deletes: list[bytes]) -> None:
        if run.name is not None and not self._moved:
            deletes += [run.name, _marks(run.name)]


class _Lookup:
    """Which keys are among those wanted; by a table where these are integers close together."""

    def __init__(self, wanted: pa.Array) -> None:
        self._wanted = wanted
        self._table: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None
        if pa.types.is_integer(wanted.type):
            numbers = wanted.to_numpy()
            self._low = int(numbers.min())
            span = int(numbers.max()) - self._low + 1
            if span < _LONGEST_TABLE:
                # The last entry stands for all other keys.
                self._table = np.zeros(span + 1, dtype=np.bool_)
                self._table[numbers - self._low] = True

    def mask(self, keys: pa.ChunkedArray) -> NDArray[np.bool_]:
        """Return one boolean per key."""
        found: NDArray[np.bool_]
        if self._table is None:
            found = pc.is_in(keys, value_set=self._wanted).to_numpy()
        else:
            # As unsigned numbers, keys below the lowest are above the highest.
            offsets = (keys.to_numpy() - self._low).view(np.uint64)
            found = self._table[np.minimum(offsets, len(self._table) - 1).astype(np.int64)]
        return found


def _marks(name: bytes) -> bytes:
    return name[:-1] + bytes([_MARKS])


_SESSION: Final = "__session"


class BuiltInSessionOperator(BuiltInOperator):
    """Event-time sessions with a fixed gap and built-in aggregates."""

    layout: ClassVar[str] = FRAGMENTS

    def __init__(self, declared: DeclaredWindows) -> None:
        """Take what the API collected."""
        super().__init__(declared, None)
        self._gap = declared.assigner.gap
        self._lateness = declared.allowed_lateness
        self._watermark = MIN_TIMESTAMP

    def open(self) -> None:
        super().open()
        self._state = SessionState(self.keyed_state, self.section.details["content"])

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._watermark = restored.watermark
        self._state.begin_epoch()
        migration = Migration.of(self, self._watermark)
        if migration is not None:
            for table in migration.tables(START, END):
                self._state.add(table)
            self.keyed_state.flush()
            migration.finish()
            self._state.begin_epoch()

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

    @property
    def _horizon(self) -> int:
        """Return what ends here or before is over."""
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
        """Add records some of which are after the watermark; return positions of late ones.

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
