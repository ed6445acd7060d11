"""The state of windows with built-in aggregates: Arrow chunks per window.

What it is: tables of key and partial columns in memory for the epoch, over ``C`` entries of the
store to which every epoch adds one chunk per window it touched.  Every sixteenth epoch the chunks
of a touched window are merged into one, so that their number stays small.

What it is not: aware of time.

Read next: ``runtime/operators/builtin_window.py``.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import StateError
from millstream.runtime.operators.window_clock import CHUNK_INDEX, TimeSection
from millstream.runtime.operators.window_partials import KEY, key_groups_of_partials
from millstream.state.rescale import chunk_key_groups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.runtime.operators.window_partials import Partials
    from millstream.state.store import KeyValueStore

__all__ = ["WindowChunks"]

_REST: Final = struct.Struct(">cQI")
_MOST_TABLES: Final = 64
_MERGE_EPOCHS: Final = 16
_FORMS: Final = {pa.int64(): b"i", pa.string(): b"s", pa.binary(): b"b"}
_GROUPS: Final = b"key_groups"


class WindowChunks:
    """Partial tables by window and form of key."""

    def __init__(
        self, partials: Partials, max_parallelism: int, key_groups: tuple[int, int]
    ) -> None:
        """Take how to merge, and which key groups this subtask has."""
        self._partials = partials
        self._max_parallelism = max_parallelism
        self._key_groups = key_groups
        self._section = TimeSection(b"C", CHUNK_INDEX)
        self._windows: dict[int, dict[bytes, list[pa.Table]]] = {}
        self._stored: set[int] = set()

    def begin_epoch(self, store: KeyValueStore, epoch: int, attempt: str) -> set[int]:
        """Take the restored store; return the windows that have state in it."""
        self._store = store
        self._epoch = epoch
        self._attempt = zlib.crc32(attempt.encode())
        self._windows = {}
        self._stored = set(self._section.times(store))
        return self._stored

    def add(self, window: int, table: pa.Table) -> None:
        """Add partials of one form of key to the window."""
        form = _FORMS.get(table.schema.field(KEY).type)
        if form is None:
            message = f"partial aggregates have keys of type {table.schema.field(KEY).type}"
            raise StateError(message)
        tables = self._windows.setdefault(window, {}).setdefault(form, [])
        tables.append(table)
        if len(tables) >= _MOST_TABLES:
            tables[:] = [self._partials.merge_window(tables)]

    def merged(self, window: int) -> list[pa.Table]:
        """Return all of the window, merged, one table per form of key."""
        forms: dict[bytes, list[pa.Table]] = {}
        if window in self._stored:
            for form, table in self._read(window):
                forms.setdefault(form, []).append(table)
        for form, tables in self._windows.get(window, {}).items():
            forms.setdefault(form, []).extend(tables)
        return [self._partials.merge_window(forms[form]) for form in sorted(forms)]

    def drop(self, window: int) -> None:
        """Forget the window."""
        self._windows.pop(window, None)
        if window in self._stored:
            self._stored.discard(window)
            self._store.delete_range(self._section.prefix(window), self._section.after(window))

    def flush(self) -> None:
        """Write what this epoch has in memory, as one chunk per window and form of key."""
        for window in list(self._windows):
            if self._epoch % _MERGE_EPOCHS == 0 and window in self._stored:
                tables = {_FORMS[t.schema.field(KEY).type]: t for t in self.merged(window)}
                section = self._section
                self._store.delete_range(section.prefix(window), section.after(window))
            else:
                tables = {
                    form: self._partials.merge_window(parts)
                    for form, parts in self._windows[window].items()
                }
            prefix = self._section.prefix(window)
            self._store.write(
                [
                    (prefix + _REST.pack(form, self._epoch, self._attempt), self._encoded(table))
                    for form, table in tables.items()
                ]
            )
        self._windows = {}

    def _encoded(self, table: pa.Table) -> bytes:
        first, stop = self._key_groups
        groups = f"{self._max_parallelism}:{first}:{stop}".encode()
        table = table.combine_chunks().replace_schema_metadata({_GROUPS: groups})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        encoded: bytes = sink.getvalue().to_pybytes()
        return encoded

    def _read(self, window: int) -> Iterator[tuple[bytes, pa.Table]]:
        first, stop = self._key_groups
        ours = f"{self._max_parallelism}:{first}:{stop}".encode()
        section = self._section
        # As this class wrote the key; each change of parallelism added a range behind it.
        length = len(section.prefix(window)) + _REST.size
        for name, stored in self._store.scan(section.prefix(window), section.after(window)):
            table = pa.ipc.open_stream(stored).read_all()
            written_by = (table.schema.metadata or {}).get(_GROUPS)
            table = table.replace_schema_metadata(None)
            if written_by != ours or len(name) > length:
                first, stop = chunk_key_groups(name, length, self._key_groups)
                keys = table.column(KEY).combine_chunks()
                groups = key_groups_of_partials(keys, self._max_parallelism)
                table = table.filter(pa.array((groups >= first) & (groups < stop), pa.bool_()))
            if table.num_rows:
                yield name[len(section.prefix(window)) :][:1], table
