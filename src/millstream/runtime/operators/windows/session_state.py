"""The state of sessions with built-in aggregates: runs of fragments, appended and compacted.

What it is: a *fragment* is a piece of a session: a key, start and end (milliseconds) and partial
aggregates.  Fragments of one session may lie in several runs until somebody asks for their key
and merges them.  A run is an Arrow table that never changes; fragments that were taken out of it
are marked.  Each epoch writes one new run, and takes up older runs that are not much larger, so
that there are few runs and each fragment is rewritten a logarithmic number of times.

What it is not: aware of gaps or watermarks (``columnar_sessions.py``).

Layout: ``C`` + index + epoch (8, as a time) + form of key (1) + epoch (8) + CRC-32 of the attempt
(4) + 0 for a run, as an Arrow IPC stream, or 1 for the marks, a bitmap of the fragments that were
taken out.

Read next: ``runtime/operators/windows/columnar_sessions.py``.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.runtime.columnar.partial_aggregates import concatenated
from millstream.runtime.columnar.row_groups import KEY
from millstream.runtime.operators.windows.chunks import form_of
from millstream.runtime.operators.windows.clock import SESSION_INDEX, TimeSection
from millstream.state.chunks import encoded_chunk, fragment_runs, marks_of
from millstream.state.registry import SESSION_FRAGMENTS, StoreNotes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.operator import StateSection

__all__ = ["END", "START", "SessionState"]

START: Final = "window_start"
END: Final = "window_end"

_REST: Final = struct.Struct(">cQIB")
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


class SessionState:
    """Fragments by form of key, oldest first."""

    def __init__(
        self, max_parallelism: int, key_groups: tuple[int, int], record: StateSection
    ) -> None:
        """Take which key groups this subtask has, and what the store is to say."""
        self._notes = StoreNotes(SESSION_FRAGMENTS, record)
        self._max_parallelism = max_parallelism
        self._key_groups = key_groups
        self._section = TimeSection(b"C", SESSION_INDEX)
        self._runs: dict[bytes, list[_Run]] = {}
        self._moved = False

    def begin_epoch(self, store: KeyValueStore, epoch: int, attempt: str) -> None:
        """Take the restored store."""
        self._store = store
        self._notes.begin_epoch(store)
        self.go_on(epoch, attempt)
        self._runs = {}
        #: Whether runs were written by other subtasks: then all are written anew.
        self._moved = False
        self._load()

    def go_on(self, epoch: int, attempt: str) -> None:
        """Write what comes next as a run of another epoch."""
        self._epoch = epoch
        self._attempt = zlib.crc32(attempt.encode())

    def forget(self) -> None:
        """Drop everything held in memory."""
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

    def flush(self) -> None:
        """Write what has changed; what is left in memory is what the store has."""
        if self._moved:
            self._store.delete_range(*self._section.everything())
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
                self._delete(run)
            if length:
                table = concatenated(fresh)
                value = encoded_chunk(table, self._max_parallelism, self._key_groups)
                self._notes.write()
                self._store.write([(self._name(form, _RUN), value)])
            for run in stored:
                if not run.count:
                    self._delete(run)
                elif run.changed:
                    self._mark(run)
            kept = [run for run in stored if run.count]
            if length:
                kept.append(_Run(table, self._name(form, _RUN)))
            if kept:
                left[form] = kept
        self._runs = left
        self._moved = False

    def _delete(self, run: _Run) -> None:
        if run.name is not None and not self._moved:
            self._store.write([], [run.name, _marks(run.name)])

    def _mark(self, run: _Run) -> None:
        if run.name is not None:
            self._store.write([(_marks(run.name), marks_of(~run.alive))])
            run.changed = False

    def _name(self, form: bytes, kind: int) -> bytes:
        rest = _REST.pack(form, self._epoch, self._attempt, kind)
        return self._section.prefix(self._epoch) + rest

    def _load(self) -> None:
        time = len(self._section.prefix(0))
        ours = (self._max_parallelism, self._key_groups)
        stored = self._store.scan(*self._section.everything())
        for name, table, alive, moved in fragment_runs(stored, time + _REST.size, ours):
            run = _Run(table, name)
            run.alive, run.count = alive, int(alive.sum())
            self._moved |= moved
            self._runs.setdefault(name[time : time + 1], []).append(run)


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
