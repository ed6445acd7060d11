"""The ``hashmap`` backend: all state of a subtask in dictionaries.

Each snapshot is one file: an Arrow IPC file of two binary columns, ``key`` and ``value``, sorted by
key.

The entries are in *shards* by the first bytes of their keys: one per key group for states by key,
one per state for what is ordered by time.  A scan sorts only the shards that it reads.  A snapshot
that is being written shares its shards with the store, which copies one before it changes it.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.contracts.key_value_store import KeyValueStore, PendingSnapshot, StateHandle
from millstream.crash_points import crash_point
from millstream.errors import CorruptCheckpointError, UnknownFormatError
from millstream.state.local_copies import upload_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.state.backends.place import StorePlace
    from millstream.state.local_copies import LocalCopies


FILE_NAME: Final = "entries.arrow"
_FORMAT: Final = b"1"
#: Entries that are taken over by Arrow in one call.
_AT_ONCE: Final = 5_000
#: Bytes of a key that say in which shard it is: its letter, and key group or state.
_PREFIX: Final = 3
_SCHEMA: Final = pa.schema(
    [("key", pa.large_binary()), ("value", pa.large_binary())],
    metadata={b"millstream.hashmap.format": _FORMAT},
)


class HashMapStore(KeyValueStore):
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
        self._shards: dict[bytes, _Shard] = {}
        for key, value in entries.items():
            self._shard(key).entries[key] = value
        #: Snapshots that share their shards with the store have been prepared until now.
        self._prepared = 0
        self._storage = storage
        self._uid = uid
        self._key_groups = key_groups
        self._copies = copies
        #: Ids of the snapshot this store began from and of the last one it made.
        self.restored_from = base
        self.snapshot_made: str | None = None

    def get(self, key: bytes) -> bytes | None:
        return self._find(key)

    def _find(self, key: bytes) -> bytes | None:
        shard = self._shards.get(key[:_PREFIX])
        return None if shard is None else shard.entries.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._find, keys))

    def _shard(self, key: bytes) -> _Shard:
        prefix = key[:_PREFIX]
        shard = self._shards.get(prefix)
        if shard is None:
            shard = self._shards[prefix] = _Shard()
        return shard

    def _writable(self, key: bytes) -> dict[bytes, bytes]:
        """The entries of the shard of ``key``, which no snapshot has any more."""
        shard = self._shard(key)
        if shard.writable_since < self._prepared:
            shard.entries = dict(shard.entries)
            shard.writable_since = self._prepared
        shard.sorted = None
        return shard.entries

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        writable = self._writable
        for key in deletes:
            writable(key).pop(key, None)
        for key, value in puts:
            writable(key)[key] = value

    def delete_range(self, start: bytes, stop: bytes) -> None:
        self.write((), [key for key, _ in self.scan(start, stop)])

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        first, last = start[:_PREFIX], stop[:_PREFIX]
        for prefix in sorted(each for each in self._shards if first <= each <= last):
            shard = self._shards.get(prefix)
            if shard is None:
                continue
            if shard.sorted is None:
                shard.sorted = sorted(shard.entries)
            keys, entries = shard.sorted, shard.entries
            for position in range(bisect_left(keys, start), bisect_left(keys, stop)):
                yield keys[position], entries[keys[position]]

    def published(self, identity: str) -> None:
        self._copies.published = identity

    def prepare_snapshot(self) -> PendingSnapshot:
        """Share the shards; ``finish`` writes them to one file and uploads that."""
        crash_point("state.flush.before")
        self._prepared += 1
        return _Pending(self, self._copies, self._contents())

    def _contents(self) -> list[dict[bytes, bytes]]:
        return [self._shards[prefix].entries for prefix in sorted(self._shards)]

    def snapshot(self) -> StateHandle:
        """Write everything to one file and upload it."""
        crash_point("state.flush.before")
        return self.finish(self._contents(), uuid.uuid4().hex)

    def finish(self, shards: list[dict[bytes, bytes]], identity: str) -> StateHandle:
        """Write shards, in order, to one file and upload it; the second step of a snapshot."""
        path = self._copies.new_snapshot(identity) / FILE_NAME
        with self._copies.explained():
            _save_entries(shards, path)
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
        self._shards = {}


class _Shard:
    """Entries whose keys begin with the same bytes."""

    __slots__ = ("entries", "sorted", "writable_since")

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        #: All keys in order, None if not known.
        self.sorted: list[bytes] | None = None
        #: Snapshots prepared from this number on have not got ``entries``.
        self.writable_since = 0


class _Pending(PendingSnapshot):
    """A snapshot of shards that the store does not change any more, not written to a file yet."""

    def __init__(
        self, store: HashMapStore, copies: LocalCopies, shards: list[dict[bytes, bytes]]
    ) -> None:
        self._store = store
        self._copies = copies
        self._shards = shards
        self._identity = uuid.uuid4().hex

    def finish(self) -> StateHandle:
        """Write the file and upload it.

        Raises:
            OSError: the storage cannot be written to.
            DirectoryError: the disk is full.
        """
        return self._store.finish(self._shards, self._identity)

    def tidy(self) -> None:
        """Nothing is left: ``finish`` has removed older files."""

    def abandon(self) -> None:
        """Forget the shards, and remove what a ``finish`` that failed has left."""
        self._shards = []
        self._copies.remove_snapshot(self._identity)


def _save_entries(shards: list[dict[bytes, bytes]], path: Path) -> None:
    """Write a file, without keeping other threads from running: they process records meanwhile.

    Shard by shard, for only between two calls can Python change threads; each is let go of when it
    is written, for freeing them all at once would keep the others waiting, too.
    """
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        for number, entries in enumerate(shards):
            shards[number] = {}
            keys = sorted(entries)
            for start in range(0, len(keys), _AT_ONCE):
                some = keys[start : start + _AT_ONCE]
                columns = [
                    pa.array(some, type=pa.large_binary()),
                    pa.array([entries[key] for key in some], type=pa.large_binary()),
                ]
                writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))


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


def open_hashmap(place: StorePlace, handle: StateHandle | None) -> HashMapStore:
    """Open a store in memory."""
    shared = (place.storage, place.uid, place.key_groups, place.copies)
    if handle is None:
        return HashMapStore({}, *shared)
    # A file has no checksums of its own: all of it is read in any case.
    bring = partial(place.copies.bring, handle, place.storage, read_all=True)
    try:
        entries = load_entries(bring() / FILE_NAME)
    except FileNotFoundError:  # another attempt cleaned up: get it from the storage
        entries = load_entries(bring() / FILE_NAME)
    return HashMapStore(entries, *shared, base=handle["id"])
