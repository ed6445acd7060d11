"""What is in memory of one state, in two generations.

What it is: ``cache`` holds what was used of late, over ``old``, what was used before that.  Looking
something up costs what it costs in ``cache``; only what is not there is looked for in ``old``, and
moves.  When there is too much, ``age`` makes ``cache`` the older generation and drops what was the
older one: a clock with one bit, which is where an entry lies, so nothing is noted per access.

What it is not: the store, nor a limit; ``state/keyed.py`` says when to age.

Read next: ``state/value_state.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Generations"]

_K = TypeVar("_K")

#: What an entry takes in memory, roughly: for the key and the tables that it is in, and for each
#: byte of its value as it is stored.
_PER_ENTRY: Final = 250
_PER_BYTE: Final = 4
#: So many values of a batch are measured.
_SAMPLES: Final = 32

#: So many entries, or bytes of them, wait for the snapshot where they would change again before it.
_MOST_CHANGING: Final = 30_000
_MOST_CHANGING_BYTES: Final = 1 << 20
#: Of so many keys that a snapshot wrote the next one knows whether they have changed.
_WATCHED: Final = 100
#: If so much of them has, what is written ahead is mostly written for nothing.
_CHANGING: Final = 0.75


class Generations(Generic[_K]):
    """The entries of one state that are in memory.

    Invariant: ``dirty`` holds the keys whose value in ``cache`` differs from the store's, or may.
    Invariant: what is in ``old`` and not in ``cache`` is as the store has it.
    """

    __slots__ = (
        "_changes_again",
        "_measured",
        "_measured_bytes",
        "_watched",
        "cache",
        "dirty",
        "old",
    )

    def __init__(self) -> None:
        """Hold nothing."""
        self.cache: dict[_K, Any] = {}
        self.old: dict[_K, Any] = {}
        self.dirty: set[_K] = set()
        self._measured = 1
        self._measured_bytes = 0
        #: Some keys that the last snapshot wrote, and whether the one before had most of its own.
        self._watched: list[_K] = []
        self._changes_again = False

    @property
    def cached(self) -> int:
        """How many objects are held in memory."""
        return len(self.cache) + len(self.old)

    @property
    def weight(self) -> int:
        """How many bytes the younger generation takes, roughly."""
        size = _PER_ENTRY + _PER_BYTE * self._measured_bytes // self._measured
        return len(self.cache) * size

    @property
    def unwritten(self) -> int:
        """How many changed entries do not wait for the snapshot if there are many of them."""
        if not self._changes_again:
            return self.changes
        each = max(1, self._measured_bytes // self._measured)
        spared = min(_MOST_CHANGING, _MOST_CHANGING_BYTES // each)
        return max(0, self.changes - spared)

    @property
    def changes(self) -> int:
        """How many entries have changed; of many it may be a part, but half of them at least."""
        return len(self.dirty)

    def changed_among(self, keys: list[_K]) -> int:
        """How many of some keys have changed."""
        return sum(map(self.dirty.__contains__, keys))

    def watch(self, keys: list[_K]) -> None:
        """Take the keys that a snapshot writes; see how many of the last one's are among them.

        Only called while they count as changed.
        """
        if self._watched:
            again = self.changed_among(self._watched)
            self._changes_again = again >= _CHANGING * len(self._watched)
        self._watched = keys[:: max(1, len(keys) // _WATCHED)]

    def measure(self, stored: Sequence[bytes | None]) -> None:
        """Look at some values as they are stored, to know how large entries are."""
        some = stored[:_SAMPLES]
        self._measured += len(some)
        self._measured_bytes += sum(len(each) for each in some if each is not None)

    def missing(self, keys: Iterable[_K]) -> list[_K]:
        """Return those of ``keys`` that are not in memory; the others are young from now on."""
        cache, old = self.cache, self.old
        if not old:
            if isinstance(keys, set):
                return list(keys.difference(cache))  # which runs no code per key
            return [key for key in keys if key not in cache] if cache else list(keys)
        found: list[_K] = []
        for key in keys:
            if key not in cache:
                if key in old:
                    cache[key] = old[key]
                else:
                    found.append(key)
        return found

    def age(self) -> dict[Any, Any]:
        """Let what is young be old; returns what was old before.  Nothing may be dirty."""
        gone, self.old, self.cache = self.old, self.cache, {}
        return gone

    def forget(self) -> None:
        """Drop everything held in memory."""
        self.cache.clear()
        self.old.clear()
        self.dirty.clear()
