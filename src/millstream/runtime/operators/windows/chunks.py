"""The state of windows with built-in aggregates: Arrow chunks per pane.

What it is: tables of key and partial columns in memory for the epoch, over ``C`` entries of the
store to which every epoch adds one chunk per pane it touched.  Every sixteenth epoch the chunks
of a touched pane are merged into one, so that their number stays small.  Entries are ordered by the
last timestamp of the pane.

What it is not: aware of time.

Read next: ``runtime/operators/windows/columnar.py``.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import StateError
from millstream.runtime.columnar.row_groups import KEY
from millstream.runtime.operators.windows.clock import CHUNK_INDEX, TimeSection
from millstream.state.chunks import decoded_chunk, encoded_chunk
from millstream.state.registry import PANES, StoreNotes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.operator import StateSection
    from millstream.runtime.operators.windows.panes import Panes
    from millstream.runtime.operators.windows.partials import Partials

__all__ = ["WindowChunks", "form_of"]

_REST: Final = struct.Struct(">cQI")
_MOST_TABLES: Final = 64
_MERGE_EPOCHS: Final = 16
_FORMS: Final = {pa.int64(): b"i", pa.string(): b"s", pa.binary(): b"b"}


class WindowChunks:
    """Partial tables by pane and form of key."""

    def __init__(
        self,
        partials: Partials,
        panes: Panes,
        max_parallelism: int,
        key_groups: tuple[int, int],
        record: StateSection,
    ) -> None:
        """Take how to merge, which key groups this subtask has, and what the store is to say."""
        self._notes = StoreNotes(PANES, record)
        self._partials = partials
        self._panes = panes
        self._max_parallelism = max_parallelism
        self._key_groups = key_groups
        self._section = TimeSection(b"C", CHUNK_INDEX)
        self._added: dict[int, dict[bytes, list[pa.Table]]] = {}
        self._loaded: dict[int, dict[bytes, list[pa.Table]]] = {}
        self._stored: set[int] = set()

    def begin_epoch(self, store: KeyValueStore, epoch: int, attempt: str) -> set[int]:
        """Take the restored store; return the panes that have state in it."""
        self._store = store
        self.go_on(epoch, attempt)
        self.forget()
        self._notes.begin_epoch(store)
        self._stored = {self._panes.of_timestamp(time) for time in self._section.times(store)}
        return self._stored

    def go_on(self, epoch: int, attempt: str) -> None:
        """Write what comes next as chunks of another epoch."""
        self._epoch = epoch
        self._attempt = zlib.crc32(attempt.encode())

    def forget(self) -> None:
        """Drop everything held in memory."""
        self._added, self._loaded = {}, {}

    def add(self, pane: int, table: pa.Table) -> None:
        """Add partials of one form of key to the pane.

        Raises:
            StateError: the keys have no known form.
        """
        tables = self._added.setdefault(pane, {}).setdefault(form_of(table), [])
        tables.append(table)
        if len(tables) >= _MOST_TABLES:
            tables[:] = [self._partials.merge_pane(tables)]

    def parts(self, pane: int, form: bytes) -> list[pa.Table]:
        """Return the tables of the pane with this form of key, as they came."""
        stored = self._read(pane).get(form, []) if pane in self._stored else []
        return stored + self._added.get(pane, {}).get(form, [])

    def forms(self, panes: Iterable[int]) -> dict[bytes, list[int]]:
        """Return which of the panes have which forms of key."""
        forms: dict[bytes, list[int]] = {}
        for pane in panes:
            stored = self._read(pane) if pane in self._stored else {}
            for form in sorted(stored.keys() | self._added.get(pane, {}).keys()):
                forms.setdefault(form, []).append(pane)
        return forms

    def drop(self, pane: int) -> None:
        """Forget the pane."""
        self._added.pop(pane, None)
        self._loaded.pop(pane, None)
        if pane in self._stored:
            self._stored.discard(pane)
            self._store.delete_range(*self._range(pane))

    def flush(self, keep: int = 0) -> None:
        """Write what this epoch has added, as one chunk per pane and form of key.

        Args:
            keep: about how many bytes of what is stored may stay in memory.
        """
        forms: dict[bytes, dict[int, list[pa.Table]]] = {}
        if self._added:
            self._notes.write()
        for pane, added in self._added.items():
            tables = added
            if self._epoch % _MERGE_EPOCHS == 0 and pane in self._stored:
                tables = {form: self.parts(pane, form) for form in self.forms([pane])}
                self._store.delete_range(*self._range(pane))
                self._loaded[pane] = {}
            elif pane not in self._stored:
                self._loaded[pane] = {}
            for form, parts in tables.items():
                forms.setdefault(form, {})[pane] = parts
        for form, panes in forms.items():
            rest = _REST.pack(form, self._epoch, self._attempt)
            merged = self._partials.merge_panes(panes)
            self._store.write(
                [
                    (self._range(pane)[0] + rest, self._encoded(table))
                    for pane, table in merged.items()
                ]
            )
            for pane, table in merged.items():
                self._stored.add(pane)
                if pane in self._loaded:  # else it is read as a whole when it is wanted
                    self._loaded[pane].setdefault(form, []).append(table)
        self._added = {}
        if self._loaded_bytes() > keep:
            self._loaded = {}

    def _loaded_bytes(self) -> int:
        tables = (each for forms in self._loaded.values() for each in forms.values())
        return sum(table.nbytes for each in tables for table in each)

    def _encoded(self, table: pa.Table) -> bytes:
        return encoded_chunk(table, self._max_parallelism, self._key_groups)

    def _range(self, pane: int) -> tuple[bytes, bytes]:
        time = self._panes.last_timestamp(pane)
        return self._section.prefix(time), self._section.after(time)

    def _read(self, pane: int) -> dict[bytes, list[pa.Table]]:
        if pane in self._loaded:
            return self._loaded[pane]
        ours = (self._max_parallelism, self._key_groups)
        begin, end = self._range(pane)
        # As this class wrote the key; each change of parallelism added a range behind it.
        length = len(begin) + _REST.size
        forms: dict[bytes, list[pa.Table]] = {}
        for name, stored in self._store.scan(begin, end):
            table, counts = decoded_chunk(name, length, stored, ours)
            if counts is not None:
                table = table.filter(pa.array(counts, pa.bool_()))
            if table.num_rows:
                forms.setdefault(name[len(begin) :][:1], []).append(table)
        self._loaded[pane] = forms
        return forms


def form_of(table: pa.Table) -> bytes:
    """Return the letter that stands for the type of the key column.

    Raises:
        StateError: partials have no keys of this type.
    """
    form = _FORMS.get(table.schema.field(KEY).type)
    if form is None:
        message = f"partial aggregates have keys of type {table.schema.field(KEY).type}"
        raise StateError(message)
    return form
