"""The ``hashmap`` backend: all state of a subtask in one dictionary.

What it is: for state that fits in memory many times over.  Each snapshot is one file with
everything in it: an Arrow IPC file of two binary columns, ``key`` and ``value``, sorted by key.
What it is not: incremental.  ``state/backends/rocksdb.py`` is.

Read next: ``state/backend.py``.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.contracts.key_value_store import StateHandle
from millstream.crash_points import crash_point
from millstream.errors import CorruptCheckpointError, UnknownFormatError
from millstream.state.snapshot_files import upload_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import PendingSnapshot
    from millstream.state.local_copies import LocalCopies

__all__ = ["HashMapStore", "load_entries"]

FILE_NAME: Final = "entries.arrow"
_FORMAT: Final = b"1"
#: Entries that are taken over by Arrow in one call.
_AT_ONCE: Final = 5_000
_SCHEMA: Final = pa.schema(
    [("key", pa.large_binary()), ("value", pa.large_binary())],
    metadata={b"millstream.hashmap.format": _FORMAT},
)


class HashMapStore:
    """An ordered map of bytes in memory."""

    def __init__(
        self,
        entries: dict[bytes, bytes],
        storage: CheckpointStorage,
        uid: str,
        key_groups: tuple[int, int],
        copies: LocalCopies,
        base: str | None = None,
    ) -> None:
        """Work on ``entries``, which belong to this store from now on.

        Args:
            entries: the restored content.
            storage: where the snapshot goes.
            uid: of the operator.
            key_groups: ``[first, stop)`` of the subtask.
            copies: the local directories of the subtask.
            base: id of the snapshot that ``entries`` were read from.
        """
        self._entries = entries
        self._storage = storage
        self._uid = uid
        self._key_groups = key_groups
        self._copies = copies
        #: Ids of the snapshot this store began from and of the last one it made.
        self.restored_from = base
        self.snapshot_made: str | None = None
        #: All keys in order, None if not known.
        self._sorted: list[bytes] | None = None

    def get(self, key: bytes) -> bytes | None:
        """The value at ``key``, None if there is none."""
        return self._entries.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values at ``keys``, in that order."""
        return list(map(self._entries.get, keys))

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Delete ``deletes``, then put ``puts``."""
        for key in deletes:
            self._entries.pop(key, None)
        self._entries.update(puts)
        self._sorted = None

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete every key in ``[start, stop)``."""
        for key in [key for key, _ in self.scan(start, stop)]:
            del self._entries[key]
        self._sorted = None

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries with a key in ``[start, stop)``, in byte order."""
        if self._sorted is None:
            self._sorted = sorted(self._entries)
        keys = self._sorted
        for position in range(bisect_left(keys, start), bisect_left(keys, stop)):
            yield keys[position], self._entries[keys[position]]

    @property
    def is_busy(self) -> bool:
        """Whether a write would have to wait; never."""
        return False

    def prepare_snapshot(self) -> PendingSnapshot:
        """Copy the dictionary; ``finish`` writes it to one file and uploads that."""
        crash_point("state.flush.before")
        return _Pending(self, self._copies, dict(self._entries))

    def snapshot(self) -> StateHandle:
        """Write everything to one file and upload it."""
        crash_point("state.flush.before")
        return self.finish(self._entries, uuid.uuid4().hex)

    def finish(self, entries: dict[bytes, bytes], identity: str) -> StateHandle:
        """Write ``entries`` to one file and upload it; the second step of a snapshot."""
        path = self._copies.new_snapshot(identity) / FILE_NAME
        with self._copies.explained():
            _save_entries(entries, path)
        crash_point("state.flush.after")
        file = upload_file(self._storage, path, self._uid, identity, FILE_NAME)
        crash_point("state.upload.after")
        # The local copy before this one stays: who fails from here on may go back to it.
        self._copies.clean_up(self.snapshot_made or self.restored_from, identity)
        self.snapshot_made = identity
        return StateHandle(
            backend="hashmap", id=identity, key_groups=self._key_groups, files=[file]
        )

    def close(self) -> None:
        """Let go of the entries."""
        self._entries = {}
        self._sorted = None


class _Pending:
    """A snapshot of a dictionary that is copied, but not written to a file yet."""

    def __init__(
        self, store: HashMapStore, copies: LocalCopies, entries: dict[bytes, bytes]
    ) -> None:
        self._store = store
        self._copies = copies
        self._entries = entries
        self._identity = uuid.uuid4().hex

    def finish(self) -> StateHandle:
        """Write the file and upload it.

        Raises:
            OSError: the storage cannot be written to.
            DirectoryError: the disk is full.
        """
        return self._store.finish(self._entries, self._identity)

    def abandon(self) -> None:
        """Forget the copy, and remove what a ``finish`` that failed has left."""
        self._entries = {}
        self._copies.remove_snapshot(self._identity)


def _save_entries(entries: dict[bytes, bytes], path: Path) -> None:
    """Write a file, without keeping other threads from running: they process records meanwhile.

    Arrow sorts, and takes over a few entries at a time, for only between two calls can Python
    change threads.
    """
    columns = [_column(list(entries)), _column(list(entries.values()))]
    order = pc.array_sort_indices(columns[0].combine_chunks())
    table = pa.table([column.take(order) for column in columns], schema=_SCHEMA)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        writer.write_table(table)


def _column(values: list[bytes]) -> pa.ChunkedArray:
    parts = [
        pa.array(values[start : start + _AT_ONCE], type=pa.large_binary())
        for start in range(0, len(values), _AT_ONCE)
    ]
    return pa.chunked_array(parts, type=pa.large_binary())


def load_entries(path: Path) -> dict[bytes, bytes]:
    """The content of a snapshot file.

    Raises:
        UnknownFormatError: it was written in another format.
        CorruptCheckpointError: it cannot be read at all.
        FileNotFoundError: another attempt has cleaned it up.
    """
    try:
        with pa.OSFile(str(path), "rb") as source:
            table = pa.ipc.open_file(source).read_all()
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        message = f"{path}: not a state file: {error}"
        raise CorruptCheckpointError(message) from error
    version = (table.schema.metadata or {}).get(b"millstream.hashmap.format")
    if version != _FORMAT:
        message = f"{path}: state file of format {version!r}; this release reads {_FORMAT!r}"
        raise UnknownFormatError(message)
    keys, values = table.column("key").to_pylist(), table.column("value").to_pylist()
    return dict(zip(keys, values, strict=True))
