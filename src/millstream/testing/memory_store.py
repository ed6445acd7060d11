"""A key-value store in a dictionary, for the operator harness; snapshots are copies."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from millstream.contracts.key_value_store import KeyValueStore, PendingSnapshot, StateHandle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["MemoryStore"]


class MemoryStore(KeyValueStore):
    """An ordered map of bytes in memory."""

    def __init__(self, entries: dict[bytes, bytes] | None = None) -> None:
        """Start with a copy of ``entries``."""
        self.entries: dict[bytes, bytes] = dict(entries or {})
        self._sorted: list[bytes] | None = None
        self._snapshots: dict[str, dict[bytes, bytes]] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.entries.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.entries.get(key) for key in keys]

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        self._sorted = None
        for key in deletes:
            self.entries.pop(key, None)
        self.entries.update(puts)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        for key in [key for key in self.entries if start <= key < stop]:
            del self.entries[key]
        self._sorted = None

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with a key in ``[start, stop)`` as they are now, in byte order."""
        if self._sorted is None:
            self._sorted = sorted(self.entries)
        keys = self._sorted
        entries = self.entries
        found = keys[bisect_left(keys, start) : bisect_left(keys, stop)]
        return iter([(key, entries[key]) for key in found])

    def published(self, identity: str) -> None:
        """Nothing is kept for it."""

    def prepare_snapshot(self) -> PendingSnapshot:
        """Copy the content."""
        return _Pending(self._snapshots, dict(self.entries))

    def restored(self, handle: StateHandle) -> MemoryStore:
        """Return a store with the content of a snapshot of this one."""
        return MemoryStore(self._snapshots[handle["id"]])

    def copy(self) -> MemoryStore:
        """Return a store with the same entries."""
        return MemoryStore(self.entries)

    def close(self) -> None:
        """Nothing to let go of."""


class _Pending(PendingSnapshot):
    """A copy that has no name yet."""

    def __init__(
        self, snapshots: dict[str, dict[bytes, bytes]], entries: dict[bytes, bytes]
    ) -> None:
        self._snapshots = snapshots
        self._entries = entries

    def finish(self) -> StateHandle:
        """Let the store know it."""
        identity = f"memory-{len(self._snapshots)}"
        self._snapshots[identity] = self._entries
        return StateHandle(backend="memory", id=identity, key_groups=(0, 0), files=[])

    def tidy(self) -> None:
        """Nothing is superfluous."""

    def abandon(self) -> None:
        """Nothing to let go of."""
