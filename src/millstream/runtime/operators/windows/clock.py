"""Which windows are open, when they fire and when they are cleaned up, and how they are stored.

What it is: the part of a window operator that does not look at records.  A window is known by its
largest timestamp (``max_timestamp``), as all windows of an assigner have one size.  It fires when
the watermark reaches ``max_timestamp`` and is dropped when the watermark reaches
``max_timestamp + allowed lateness``.

What it is not: the content of windows (``accumulators.py``, ``chunks.py``).

Read next: ``runtime/operators/windows/aligned.py``.
"""

from __future__ import annotations

import struct
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.contracts.key_value_store import KeyValueStore

__all__ = [
    "ACCUMULATOR_INDEX",
    "CHUNK_INDEX",
    "SESSION_INDEX",
    "TimeSection",
    "WindowClock",
]

#: State indices of the window operators.  User states are numbered from 0 upwards.
ACCUMULATOR_INDEX: Final = 0xFFF0
CHUNK_INDEX: Final = 0xFFF1
SESSION_INDEX: Final = 0xFFF2

_PREFIX: Final = struct.Struct(">cHQ")
_SIGN: Final = 2**63


class TimeSection:
    """One section of a store that is ordered by time: ``T`` or ``C`` and a state index."""

    __slots__ = ("_index", "_letter")

    def __init__(self, letter: bytes, index: int) -> None:
        """Take ``b"T"`` or ``b"C"`` and the state index."""
        self._letter = letter
        self._index = index

    def prefix(self, time: int) -> bytes:
        """Return the beginning of all store keys at ``time``."""
        return _PREFIX.pack(self._letter, self._index, time + _SIGN)

    def after(self, time: int) -> bytes:
        """Return the first store key behind those at ``time``."""
        if time == MAX_TIMESTAMP:
            return _PREFIX.pack(self._letter, self._index + 1, 0)
        return self.prefix(time + 1)

    def everything(self) -> tuple[bytes, bytes]:
        """Return where the section begins and ends."""
        return self.prefix(MIN_TIMESTAMP), self.after(MAX_TIMESTAMP)

    @staticmethod
    def time_of(name: bytes) -> int:
        """Return the time in the name of an entry."""
        return int(_PREFIX.unpack_from(name)[2]) - _SIGN

    def times(self, store: KeyValueStore) -> Iterator[int]:
        """Yield the times that have entries, by one seek per time."""
        start, stop = self.everything()
        while True:
            entry = next(iter(store.scan(start, stop)), None)
            if entry is None:
                return
            time = self.time_of(entry[0])
            yield time
            start = self.after(time)


class WindowClock:
    """The watermark and the open windows, in the order in which they fire and end."""

    __slots__ = ("_cleanups", "_firings", "_lateness", "_open", "watermark")

    def __init__(self, allowed_lateness: int) -> None:
        """Take the allowed lateness in milliseconds."""
        self._lateness = allowed_lateness
        self.watermark = MIN_TIMESTAMP
        self._open: set[int] = set()
        self._firings: list[int] = []
        self._cleanups: list[int] = []

    def restore(self, watermark: int, windows: Iterable[int]) -> None:
        """Start an epoch with the windows that have state."""
        self.watermark = watermark
        self._open = set(windows)
        self._cleanups = list(self._open)
        self._firings = [window for window in self._cleanups if window > watermark]
        heapify(self._cleanups)
        heapify(self._firings)

    def cleanup_time(self, window: int) -> int:
        """Return the watermark at which the window is dropped."""
        return min(window + self._lateness, MAX_TIMESTAMP)

    def is_late(self, window: int) -> bool:
        """Whether the window is over and its state gone."""
        return self.cleanup_time(window) <= self.watermark

    def has_fired(self, window: int) -> bool:
        """Whether the window has fired, so that a further record fires it again at once."""
        return window <= self.watermark

    def open(self, window: int) -> None:
        """Note that the window has state."""
        if window not in self._open:
            self._open.add(window)
            heappush(self._cleanups, window)
            if window > self.watermark:
                heappush(self._firings, window)

    def advance(self, watermark: int) -> Iterator[tuple[int, bool]]:
        """Advance and yield ``(window, is a firing)``, else it is a cleanup, in order of time."""
        self.watermark = watermark
        firings, cleanups = self._firings, self._cleanups
        while True:
            firing = firings[0] if firings else None
            cleanup = self.cleanup_time(cleanups[0]) if cleanups else None
            if (
                firing is not None
                and firing <= watermark
                and (cleanup is None or firing <= cleanup)
            ):
                yield heappop(firings), True
            elif cleanup is not None and cleanup <= watermark:
                window = heappop(cleanups)
                self._open.discard(window)
                yield window, False
            else:
                return
