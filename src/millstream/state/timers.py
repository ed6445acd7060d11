"""Timers: points in time at which a key wants to be called back.

What it is: event-time and processing-time timers of one operator subtask.  New timers live in a
heap until ``flush`` writes them; timers of earlier epochs are read from the store in order of
time, only as far as time has come.  Firing merges the two.

What it is not: a clock.  The operator says how far time has come.

Layout: ``T`` + state index (2) + time (8, sign bit flipped) + key group (2) + length of key (4)
+ encoded key + namespace, without a value.  Timers of one time fire in the order of these
bytes, so the order does not depend on where the input was cut into epochs.

Read next: ``state/keyed.py``.
"""

from __future__ import annotations

import struct
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from millstream.state.key_codec import cache_key, decode_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.state.keyed import KeyedState

__all__ = ["InternalTimers"]

_HEAD: Final = struct.Struct(">BHQ")
_HEAD_SIZE: Final = _HEAD.size
_TAG: Final = 0x54  # "T"
_BIAS: Final = 2**63
_LENGTH: Final = struct.Struct(">I")
#: Where the key group and the encoded key begin.
_GROUP_AT: Final = _HEAD_SIZE
_LENGTH_AT: Final = _HEAD_SIZE + 2
_KEY_AT: Final = _HEAD_SIZE + 6


class TimerQueue:
    """The timers of one kind.

    Invariant: a timer is due if it is in ``_new``, or in the store and not in ``_gone``.
    Invariant: every member of ``_new`` is in ``_heap``; the heap may hold others, which are stale.
    Invariant: timers of the store before ``_head`` are in ``_gone``.
    """

    __slots__ = ("_gone", "_head", "_heap", "_keyed", "_new", "_scan", "index", "name")

    def __init__(self, keyed: KeyedState, name: str) -> None:
        self._keyed = keyed
        self.name = name
        #: The state's number in the store; -1 until a timer is registered in any epoch.
        self.index = -1
        self._heap: list[bytes] = []
        self._new: set[bytes] = set()
        self._gone: set[bytes] = set()
        self._scan: Iterator[tuple[bytes, bytes]] | None = None
        self._head: bytes | None = None

    @property
    def cached(self) -> int:
        """How many timers are held in memory."""
        return len(self._new)

    def _name_of(self, key: object, namespace: bytes, time: int) -> bytes:
        if self.index < 0:
            self.index = self._keyed.assign_index(self.name, "timers")
        return (
            _HEAD.pack(_TAG, self.index, time + _BIAS)
            + self._keyed.timer_key(cache_key(key))
            + namespace
        )

    def register(self, key: object, namespace: bytes, time: int) -> None:
        """Add a timer; one that is there already stays one."""
        name = self._name_of(key, namespace, time)
        if name not in self._new:
            self._new.add(name)
            heappush(self._heap, name)

    def delete(self, key: object, namespace: bytes, time: int) -> None:
        """Take a timer back, if it is there."""
        name = self._name_of(key, namespace, time)
        self._new.discard(name)
        self._gone.add(name)

    def _next_new(self) -> bytes | None:
        """The first new timer; drops stale ones from the heap."""
        heap, new = self._heap, self._new
        while heap:
            if heap[0] in new:
                return heap[0]
            heappop(heap)
        return None

    def _next_stored(self) -> bytes | None:
        """The first timer in the store that is still due."""
        if self._scan is None:
            if self.index < 0:
                return None
            prefix = _HEAD.pack(_TAG, self.index, 0)[:3]
            self._scan = self._keyed.scan_prefix(prefix)
            self._pull()
        while self._head is not None and self._head in self._gone:
            self._pull()
        return self._head

    def _pull(self) -> None:
        entry = next(self._scan, None) if self._scan is not None else None
        self._head = None if entry is None else entry[0]

    def next_time(self) -> int | None:
        """The time of the next timer in milliseconds, None if there is none."""
        name = self._first()
        return None if name is None else int(_HEAD.unpack_from(name)[2]) - _BIAS

    def _first(self) -> bytes | None:
        new, stored = self._next_new(), self._next_stored()
        if new is None or stored is None:
            return new if stored is None else stored
        return min(new, stored)

    def advance(self, time: int) -> Iterator[tuple[int, object, bytes]]:
        """Take out and yield every timer up to and including ``time``, in order."""
        while True:
            # All is asked anew each time: the caller may register, delete and flush in between.
            name = self._first()
            if name is None:
                return
            at = _HEAD.unpack_from(name)[2] - _BIAS
            if at > time:
                return
            if name == self._head:
                self._gone.add(name)
                self._pull()
            if name in self._new:
                self._new.discard(name)
                heappop(self._heap)
            (length,) = _LENGTH.unpack_from(name, _LENGTH_AT)
            end = _KEY_AT + length
            yield at, decode_key(name[_KEY_AT:end]), name[end:]

    def flush(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        """Add what changed to ``puts`` and ``deletes`` and forget everything."""
        deletes.extend(self._gone)
        puts.extend((name, b"") for name in self._new)
        self.forget()

    def forget(self) -> None:
        """Drop everything held in memory."""
        self._heap.clear()
        self._new.clear()
        self._gone.clear()
        self._scan = None
        self._head = None


class InternalTimers:
    """Event-time and processing-time timers of one operator subtask.

    A namespace tells timers of one key and time apart (a window, for instance); user functions
    use the empty one.
    """

    __slots__ = ("event", "processing")

    def __init__(self, keyed: KeyedState) -> None:
        """Keep the timers in the store of ``keyed``."""
        self.event = TimerQueue(keyed, "\0timers.event")
        self.processing = TimerQueue(keyed, "\0timers.processing")

    def register_event_time(self, key: object, namespace: bytes, timestamp: int) -> None:
        """Add a timer at ``timestamp`` (milliseconds, event time)."""
        self.event.register(key, namespace, timestamp)

    def delete_event_time(self, key: object, namespace: bytes, timestamp: int) -> None:
        """Take an event-time timer back, if it is there."""
        self.event.delete(key, namespace, timestamp)

    def register_processing_time(self, key: object, namespace: bytes, timestamp: int) -> None:
        """Add a timer at ``timestamp`` (milliseconds, processing time)."""
        self.processing.register(key, namespace, timestamp)

    def delete_processing_time(self, key: object, namespace: bytes, timestamp: int) -> None:
        """Take a processing-time timer back, if it is there."""
        self.processing.delete(key, namespace, timestamp)

    def advance_event_time(self, watermark: int) -> Iterator[tuple[int, object, bytes]]:
        """Fire event-time timers.

        Args:
            watermark: milliseconds; timers at or before it fire.

        Returns:
            (timestamp, key, namespace) in order of time.  A timer that is registered while
            iterating and is due fires in the same call.
        """
        return self.event.advance(watermark)

    def advance_processing_time(self, now: int) -> Iterator[tuple[int, object, bytes]]:
        """Fire processing-time timers up to ``now`` (milliseconds), like event-time ones."""
        return self.processing.advance(now)
