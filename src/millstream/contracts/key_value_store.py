"""The contract of state backends: an ordered map from bytes to bytes under all keyed state.

A store belongs to one operator in one subtask, is restored from a checkpoint and snapshotted at
each one that follows.  A snapshot comes in two steps, so that a task can continue during the
second: ``prepare_snapshot`` fixes the content, quickly; ``PendingSnapshot.finish`` uploads it.

Key layout (all integers big-endian, so that byte order is numeric order)::

    b"K" + key group (2) + state index (2) + length of key (4) + key + namespace or map key
    b"T" + state index (2) + time (8, sign bit flipped) + key group (2) + rest
    b"C" + state index (2) + time (8, sign bit flipped) + rest
    b"M" + name                      metadata of the store itself (state names and their index)

``K`` entries are found by key, ``T`` entries are ordered by time over all keys (timers, windows);
both move with their key group when the parallelism changes.  ``C`` entries are columnar chunks
that mix key groups: at a change of parallelism every new subtask gets all of them and the owner
leaves out the rows of other key groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class StateFile(TypedDict):
    """One immutable file of a snapshot in the checkpoint storage."""

    #: Its name inside the store's directory (``000012.sst``, ``CURRENT``).
    local: str
    #: Its name in the checkpoint storage.
    remote: str
    #: Bytes.
    size: int
    #: "sha256:" and 64 hexadecimal digits.
    digest: str


class StateHandle(TypedDict):
    """Where the state of one operator subtask lies; JSON in the manifest."""

    #: "rocksdb" or "hashmap".
    backend: str
    #: Unique per snapshot; also the name of the local copy.
    id: str
    #: First and last + 1 of the key groups within.
    key_groups: tuple[int, int]
    files: list[StateFile]


class PendingSnapshot(Protocol):
    """A snapshot whose content is fixed, but is not in the checkpoint storage yet.

    ``finish`` or ``abandon`` is called, once, and ``tidy`` after ``finish``; ``abandon`` may come
    behind these as well, if the snapshot is in no checkpoint.  All may come in another thread,
    while the store is read, written, and asked for its next snapshot, and the first two also when
    it is closed.
    """

    def finish(self) -> StateHandle:
        """Make the content durable in the checkpoint storage and say where it is.

        It may take long, also to hold back the next checkpoint from a store that has to catch up.
        """

    def tidy(self) -> None:
        """Remove what this snapshot makes superfluous; nobody waits for that.

        If the process dies ahead of it, whoever comes next sees to it.
        """

    def abandon(self) -> None:
        """Let go of what is held for it here: nobody wants this snapshot.

        What was uploaded for it stays: later snapshots may name it.
        """


class KeyValueStore(Protocol):
    """An ordered map of bytes.

    Contract:
      1. ``write`` is visible to later reads of the same store at once.  (test kit)
      2. ``scan`` yields in byte order, ``start`` included, ``stop`` excluded, and reflects the
         store as it was when the scan began or as it is now; callers do not write while
         scanning.  (callers)
      3. ``prepare_snapshot`` may be called again and again while the store is open, also while
         earlier snapshots are not finished.  Each has what was written before it was prepared, and
         later writes change none of them.  (test kit)
      4. Two attempts of one task may run at once on one machine: each has its own directory, and
         neither sees writes of the other.  (test kit)
      5. Snapshots are finished one at a time, in the order in which they were prepared; some may
         be abandoned.  (runtime)
      6. A snapshot may name files of any that was finished before it, and of the one that the store
         was restored from, also if that did not become part of a checkpoint.  So while the store is
         open, a file that it uploaded is deleted only once a checkpoint was published that was
         prepared later and does not name it: no later one will.  Where that is not kept to, the
         store is closed, and opened again from the last checkpoint.  (runtime)
    """

    def get(self, key: bytes) -> bytes | None:
        """The value at ``key``, None if there is none."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values at ``keys``, in that order."""

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Delete ``deletes``, then put ``puts``."""

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete every key in ``[start, stop)``."""

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries with a key in ``[start, stop)``, in byte order."""

    def prepare_snapshot(self) -> PendingSnapshot:
        """Fix the content as it is now; the store may be written to as soon as this returns.

        It may be ``is_busy`` for some time then: writes, and no reads, wait until it is not.
        """

    @property
    def is_busy(self) -> bool:
        """Return whether a write would have to wait: one that need not be now is better put off."""
        return False

    def published(self, identity: str) -> None:
        """Take that the snapshot of that id is in a published checkpoint, the last that is known.

        Who fails goes back to it.  Not needed where the store is closed after its snapshot.
        """

    def gauges(self) -> dict[str, float]:
        """Return figures of the store for the metrics of its operator; from any thread."""
        return {}

    def snapshot(self) -> StateHandle:
        """``prepare_snapshot().finish()``, by a caller who waits for it anyway."""
        return self.prepare_snapshot().finish()

    def close(self) -> None:
        """Let go of files and locks, but for what unfinished snapshots need."""
