"""Opening the store of an operator subtask, restored to a checkpoint.

What it is: ``open_store``, which finds the quickest way from the handles of the last checkpoint to
an open store: nothing, the local copy, a download, or copying key groups out of the stores of
another parallelism or backend.
What it is not: a backend.  Those are ``state/backends/rocksdb.py`` and
``state/backends/hashmap.py``.

Read next: ``state/rescale.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import ConfigurationError, LocalCopyError, UnknownFormatError
from millstream.state.backends.hashmap import FILE_NAME, HashMapStore, load_entries
from millstream.state.backends.rocksdb import RocksDBStore
from millstream.state.local_copies import LocalCopies
from millstream.state.rescale import copy_key_groups, drop_other_key_groups

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import KeyValueStore, StateHandle

__all__ = ["BACKENDS", "open_store"]

BACKENDS: Final = ("hashmap", "rocksdb")


def open_store(
    backend: str,
    storage: CheckpointStorage,
    uid: str,
    subtask: int,
    key_groups: tuple[int, int],
    handles: list[StateHandle],
    attempt: str,
    local_root: Path,
    fsync: bool = True,  # noqa: FBT001, FBT002 - part of the fixed signature
    name: str = "",
) -> KeyValueStore:
    """Open the store of one subtask.

    Args:
        backend: "hashmap" or "rocksdb".
        storage: of the checkpoint.
        uid: of the operator.
        subtask: number of the subtask.
        key_groups: ``[first, stop)`` that the subtask holds.
        handles: where the operator's state lies, of all subtasks or at least of those that held
            any of these key groups; none at the first epoch.
        attempt: unique name of this attempt of the task.
        local_root: directory on this machine for copies.
        fsync: whether what is uploaded must survive a crash of the machine; the storage sees to it.
        name: of the operator, for messages.

    Returns:
        The store; ``close`` it in any case.

    Raises:
        ConfigurationError: there is no such backend.
        CorruptCheckpointError: a file of the checkpoint is missing or damaged.
        StateError: the local directory cannot be used, or its disk damages what it is given.
    """
    del fsync
    if backend not in BACKENDS:
        message = f"state.backend.type is {backend!r}; known are {' and '.join(BACKENDS)}"
        raise ConfigurationError(message)
    opener = _Opener(storage, uid, key_groups, attempt, LocalCopies(local_root, uid, subtask, name))
    first, stop = key_groups
    wanted = [
        handle
        for handle in handles
        if handle["key_groups"][0] < stop and handle["key_groups"][1] > first
    ]
    for handle in wanted:
        if handle["backend"] not in BACKENDS:
            message = f"operator {uid}: state of unknown backend {handle['backend']!r}"
            raise UnknownFormatError(message)
    if len(wanted) == 1 and wanted[0]["backend"] == backend:
        store = opener.restored(wanted[0])
        source_groups = wanted[0]["key_groups"]
        if tuple(source_groups) != key_groups:
            _or_close(store, lambda: drop_other_key_groups(store, source_groups, key_groups))
        return store
    store = opener.empty(backend)
    _or_close(store, lambda: opener.copy_all(wanted, store))
    return store


class _Opener:
    """What is needed to open any store of one subtask."""

    def __init__(
        self,
        storage: CheckpointStorage,
        uid: str,
        key_groups: tuple[int, int],
        attempt: str,
        copies: LocalCopies,
    ) -> None:
        self._storage = storage
        self._uid = uid
        self._key_groups = key_groups
        self._attempt = attempt
        self._copies = copies

    def empty(self, backend: str) -> KeyValueStore:
        """A store without content."""
        shared = (self._storage, self._uid, self._key_groups, self._copies)
        if backend == "hashmap":
            return HashMapStore({}, *shared)
        return RocksDBStore(self._copies.open_work(self._attempt), *shared)

    def restored(self, handle: StateHandle) -> KeyValueStore:
        """A store with the content of a snapshot."""
        if handle["backend"] == "hashmap":
            shared = (self._storage, self._uid, self._key_groups, self._copies)
            return HashMapStore(self._entries(handle), *shared, base=handle["id"])
        try:
            return self._opened(handle)
        except LocalCopyError:  # it was dropped: once more, with the checkpoint's files
            return self._opened(handle)

    def _opened(self, handle: StateHandle) -> KeyValueStore:
        work = self._copies.link_work(self._attempt, handle, self._storage)
        shared = (self._storage, self._uid, self._key_groups, self._copies)
        return RocksDBStore(work, *shared, base=handle)

    def _entries(self, handle: StateHandle) -> dict[bytes, bytes]:
        """The content of a file that has no checksums of its own: all of it is read in any case."""
        copies, storage = self._copies, self._storage
        try:
            return load_entries(copies.bring(handle, storage, read_all=True) / FILE_NAME)
        except FileNotFoundError:  # another attempt cleaned up: get it from the storage
            return load_entries(copies.bring(handle, storage, read_all=True) / FILE_NAME)

    def copy_all(self, handles: list[StateHandle], target: KeyValueStore) -> None:
        """Copy this subtask's key groups out of several snapshots."""
        for handle in handles:
            source = self.restored(handle)
            try:
                copy_key_groups(source, handle["key_groups"], target, self._key_groups)
            finally:
                source.close()


def _or_close(store: KeyValueStore, action: Callable[[], None]) -> None:
    try:
        action()
    except BaseException:
        store.close()
        raise
