"""The event-time sessions in flight of each key, where only the watermark ends them.

What it is: what ``merging.py`` keeps, as objects that grow in place: most elements of a
session only move its end, and then nothing is made, looked up or encoded.

What it is not: sets of other merging windows, or of sessions with other triggers; those need every
step of a window's growth.

Layout: that of ``merging.py``, so that a program may change its trigger or lateness.

Read next: ``runtime/operators/windows/sessions.py``.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from millstream.functions.window import TimeWindow
from millstream.runtime.operators.windows.merging import MergingSetsDescriptor
from millstream.state.cached_values import CachedValues
from millstream.state.serializers import dumps, loads

if TYPE_CHECKING:
    from millstream.runtime.operators.windows.merging import StateWindows
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState
    from millstream.state.namespaced_state import Slot
    from millstream.state.window_codec import WindowCodec

__all__ = ["Session", "SessionSets"]

#: The sets of up to so many keys stay in memory for the next epoch.
_MOST_KEPT = 100_000


class Session:
    """A session in flight; its end is that of a window, excluded, in milliseconds."""

    __slots__ = ("end", "slot", "start", "states")

    def __init__(self, start: int, end: int, states: StateWindows, slot: Slot) -> None:
        """Take the bounds, where the content is, and where elements are added to it."""
        self.start = start
        self.end = end
        self.states = states
        self.slot = slot


class SessionSets(CachedValues["CacheKey"]):
    """The sessions of all keys: a state like those of the user.

    Invariant: the sessions of a key are in order of time; no two of them overlap or touch.
    Callers add to ``dirty`` the keys whose sessions they change, which ``of`` gave them.
    """

    __slots__ = ("_codec", "_position")

    def __init__(self, keyed: KeyedState, codec: WindowCodec, position: int) -> None:
        """Keep the sets in ``keyed``; elements go to the state window at ``position``."""
        super().__init__(keyed, MergingSetsDescriptor("\0windows.merging"))
        self._codec = codec
        self._position = position

    def of(self, key: CacheKey) -> list[Session]:
        """Return the sessions of a key."""
        found: list[Session] | None = self.cache.get(key)
        return self.read(key) if found is None else found

    def make(self, key: CacheKey, start: int, end: int, states: StateWindows) -> Session:
        """Return a session that is not in the set yet."""
        return Session(start, end, states, (key, states[self._position]))

    def insert(self, key: CacheKey, start: int, end: int, states: StateWindows) -> None:
        """Let a session be in flight that touches no other."""
        sessions = self.of(key)
        at = bisect_left(sessions, start, key=lambda each: each.start)
        sessions.insert(at, self.make(key, start, end, states))
        self.dirty.add(key)

    def end_epoch(self) -> None:
        """Forget everything if it is much."""
        if len(self.cache) > _MOST_KEPT:
            self.cache.clear()

    def encoded(self, value: list[Session]) -> bytes:
        encode = self._codec.encode
        entries = [(encode(TimeWindow(each.start, each.end)), each.states) for each in value]
        return dumps(entries) if entries else b""

    def decoded(self, key: CacheKey, stored: bytes | None) -> list[Session]:
        if stored is None:
            return []
        decode = self._codec.decode
        windows = sorted((decode(window), states) for window, states in loads(stored))
        return [self.make(key, window.start, window.end, states) for window, states in windows]
