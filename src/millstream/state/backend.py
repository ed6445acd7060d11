"""Opening the store of an operator subtask, restored to a checkpoint.

``open_store`` takes the quickest way from the handles of the last checkpoint: nothing, the local
copy, a download, or copying key groups from the stores of another parallelism, max parallelism or
backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.configuration.configuration import Configuration
from millstream.configuration.options import STATE_BACKENDS
from millstream.errors import UnknownFormatError
from millstream.state.backends.place import StorePlace
from millstream.state.local_copies import LocalCopies
from millstream.state.rescale import copy_key_groups, drop_other_key_groups

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import KeyValueStore, StateHandle
    from millstream.state.backends.place import OpenStore
    from millstream.state.rescale import Rehash


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
    rehash: Rehash | None = None,
    configuration: Configuration | None = None,
) -> KeyValueStore:
    """Open the store of one subtask.

    Args:
        backend: its name, as ``state.backend.type`` has it.
        storage: of the checkpoint.
        uid: of the operator.
        subtask: number of the subtask.
        key_groups: ``[first, stop)`` that the subtask holds.
        handles: where the operator's state lies, of all subtasks or at least of those that held
            any of its keys; none at the first epoch.
        attempt: unique name of this attempt of the task.
        local_root: directory on this machine for copies.
        fsync: whether what is uploaded must survive a crash of the machine; the storage sees to it.
        name: of the operator, for messages.
        rehash: from the max parallelism of the handles to that of the operator; None: it is one.
        configuration: of the job, for options of the backend.

    Returns:
        The store; ``close`` it in any case.

    Raises:
        ConfigurationError: there is no such backend.
        CorruptCheckpointError: a file of the checkpoint is missing or damaged.
        StateError: the local directory cannot be used, or its disk damages what it is given.
    """
    del fsync
    copies = LocalCopies(local_root, uid, subtask, name)
    place = StorePlace(storage, uid, key_groups, attempt, copies, configuration or Configuration())
    wanted = _wanted(handles, key_groups, rehash)
    for handle in wanted:
        if handle["backend"] not in STATE_BACKENDS:
            message = f"operator {uid}: state of unknown backend {handle['backend']!r}"
            raise UnknownFormatError(message)
    if len(wanted) == 1 and wanted[0]["backend"] == backend and rehash is None:
        store = _open(backend, place, wanted[0])
        source_groups = wanted[0]["key_groups"]
        if tuple(source_groups) != key_groups:
            _or_close(store, lambda: drop_other_key_groups(store, source_groups, key_groups))
        return store
    store = _open(backend, place, None)
    _or_close(store, lambda: _copy_all(wanted, store, place, rehash))
    return store


def _wanted(
    handles: list[StateHandle], key_groups: tuple[int, int], rehash: Rehash | None
) -> list[StateHandle]:
    """The snapshots that may hold keys of ``key_groups``."""
    if rehash is None:
        first, stop = key_groups
        return [h for h in handles if h["key_groups"][0] < stop and first < h["key_groups"][1]]
    sources = rehash.sources(key_groups)
    return [each for each in handles if not sources.isdisjoint(range(*each["key_groups"]))]


def _copy_all(
    handles: list[StateHandle], target: KeyValueStore, place: StorePlace, rehash: Rehash | None
) -> None:
    """Copy the key groups of a subtask out of several snapshots."""
    for handle in handles:
        source = _open(handle["backend"], place, handle)
        try:
            copy_key_groups(source, handle["key_groups"], target, place.key_groups, rehash)
        finally:
            source.close()


def _open(backend: str, place: StorePlace, handle: StateHandle | None) -> KeyValueStore:
    open_it: OpenStore = STATE_BACKENDS[backend]
    return open_it(place, handle)


def _or_close(store: KeyValueStore, action: Callable[[], None]) -> None:
    try:
        action()
    except BaseException:
        store.close()
        raise
