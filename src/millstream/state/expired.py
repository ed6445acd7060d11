"""Removing what has expired, in the background: keys that never come again go, too.

What it is: a cursor that goes round the entries of a store, a few at a time, and has the states
that expire drop what is over.  It looks at two entries for each that is written, between batches
where tasks live on, else ahead of the snapshot, and at some at each snapshot, so it is round before
half as much again was written as there is: what is kept stays
below about twice what is alive.  Where it lies is kept in the store, so that tasks that end with
their epoch, and restarts, go on from there; behind another parallelism parts may be passed over
until the next round.  Between two rounds it waits until something may be over, and for an eighth of
the shortest time to live.

What it is not: what makes state expire.  Whoever reads state looks at its time (``state/ttl.py``,
operators of tables), so it does not matter when an entry is removed.  Nothing is given for it.

Read next: ``state/expired_rows.py``, ``state/ttl.py``.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from millstream.state.registry import SWEPT

if TYPE_CHECKING:
    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.state.key_codec import CacheKey

__all__ = ["ExpiredEntry", "ExpiredState", "Expiring"]

#: How many entries are looked at for each that is written, and at each snapshot.
_PER_WRITE: Final = 2
AT_SNAPSHOTS: Final = 1_000
#: And between two batches in one go: half a millisecond.
SLICE: Final = 500
#: So many are looked at in one go, and so many times what a batch has of keys: each begins with a
#: search.
_AT_ONCE: Final = 2_000
_PER_KEY: Final = 4
#: Between two rounds passes the shortest time to live, divided by this, at least.
_ROUNDS: Final = 8
_FIRST: Final = b"K"
_STOP: Final = b"L"
_INDEX_AT: Final = 3
_LENGTH_AT: Final = 5
_KEY_AT: Final = 9
_LENGTH: Final = struct.Struct(">I")
_INDEX: Final = struct.Struct(">H")
_NEVER: Final = 2**63 - 1


class ExpiredEntry(NamedTuple):
    """What was found in the store: by then it may have been written anew."""

    key: CacheKey
    #: What stands behind the key in its name.
    rest: bytes


class Expiring(Protocol):
    """A state whose entries expire."""

    #: In milliseconds.
    ttl: int

    @property
    def index(self) -> int:
        """The number of the state in the store."""

    def written(self, rest: bytes, content: bytes) -> int | None:
        """Return when the oldest of what an entry holds was written; None: it does not say."""

    def drop(self, entries: list[ExpiredEntry], until: int) -> int:
        """Remove what was written at ``until`` or before; returns when the oldest left was."""


class _Keyed(Protocol):
    """The keyed state that is looked through; ``KeyContext`` is."""

    def expiry_time(self) -> int: ...

    @property
    def store(self) -> KeyValueStore: ...

    def decode_cache_key(self, encoded: bytes) -> CacheKey: ...


class ExpiredState:
    """Looks for what has expired in one store, some at a time."""

    __slots__ = (
        "_begun",
        "_cursor",
        "_is_whole",
        "_keyed",
        "_oldest",
        "_owed",
        "_states",
        "_stored",
        "_wait",
    )

    def __init__(self, keyed: _Keyed) -> None:
        """Look at nothing yet."""
        self._keyed = keyed
        self._states: list[Expiring] = []
        self.forget()

    def watch(self, state: Expiring) -> None:
        """Look at the entries of a state."""
        self._states.append(state)

    def forget(self) -> None:
        """Begin with another store, at its first entry."""
        self._cursor = self._stored = _FIRST
        #: Entries that have not been looked at, for what was processed.
        self._owed = 0
        #: When there may be something to find.
        self._wait = 0
        #: Of the round: when it began, whether at the first entry, and when the next is worth it.
        self._begun: int | None = None
        self._is_whole = True
        self._oldest = _NEVER

    def flush(self, puts: list[tuple[bytes, bytes]]) -> None:
        """Have the store say where to go on, if that is elsewhere now."""
        if self._cursor != self._stored:
            puts.append((SWEPT, self._cursor))
            self._stored = self._cursor

    def go_on(self, cursor: bytes) -> None:
        """Go on from where the store says, unless that is known."""
        self._stored = cursor
        if self._begun is None and not self._wait:
            self._cursor = cursor

    def wrote(self, entries: int) -> None:
        """Note that so many entries were written."""
        self._owed += _PER_WRITE * entries

    def look_some(self, keys: int) -> None:
        """Look at some of the entries that are owed, ahead of a batch of so many keys."""
        if self._states and self._owed >= _AT_ONCE:
            self._look(min(self._owed, max(_AT_ONCE, _PER_KEY * keys)))

    def look_between(self) -> bool:
        """Look at a slice of what is owed, between two batches; whether it was owed."""
        return bool(self._states) and self._owed >= SLICE and self._look(SLICE)

    def look(self, *, at_all: bool) -> bool:
        """Look at some entries ahead of a snapshot.

        Args:
            at_all: whether at all that are owed, too, for nobody looks behind the snapshot.  Of
                a task that lives on it would be a pause: of 60,000 entries one of 70 ms.  There it
                is what is too little to be looked at between batches.

        Returns:
            Whether there may be something to write.
        """
        most = AT_SNAPSHOTS + (self._owed if at_all else min(self._owed, SLICE))
        return bool(self._states) and self._look(most)

    def _look(self, most: int) -> bool:
        """Look at so many entries; whether it was time to."""
        now = self._keyed.expiry_time()
        if now < self._wait:
            self._owed = 0
            return False
        self._owed = max(0, self._owed - most)
        if self._begun is None:
            self._begun, self._oldest = now, _NEVER
            self._is_whole = self._cursor == _FIRST
        by_index = {state.index: state for state in self._states}
        found: dict[int, list[ExpiredEntry]] = {}
        name, looked = b"", 0
        for name, content in islice(self._keyed.store.scan(self._cursor, _STOP), most):
            looked += 1
            index = int(_INDEX.unpack_from(name, _INDEX_AT)[0])
            state = by_index.get(index)
            if state is None:
                continue
            end = _KEY_AT + int(_LENGTH.unpack_from(name, _LENGTH_AT)[0])
            written = state.written(name[end:], content)
            if written is None:
                continue
            if written + state.ttl <= now:
                key = self._keyed.decode_cache_key(name[_KEY_AT:end])
                found.setdefault(index, []).append(ExpiredEntry(key, name[end:]))
            else:
                self._oldest = min(self._oldest, written + state.ttl)
        for index, some in found.items():
            state = by_index[index]
            left = state.drop(some, now - state.ttl)
            self._oldest = min(self._oldest, left + state.ttl)
        if looked == most:
            self._cursor = name + b"\0"
        else:
            self._finish()
        return True

    def _finish(self) -> None:
        """Wait until the next round is worth it."""
        begun = self._begun or 0
        shortest = min(state.ttl for state in self._states)
        if self._is_whole:
            # What has been written since the round began lives on for the shortest time at least.
            due = min(self._oldest, begun + shortest)
            self._wait = max(due, begun + shortest // _ROUNDS)
        self._cursor, self._begun = _FIRST, None
