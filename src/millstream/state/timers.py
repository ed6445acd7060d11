"""Event-time and processing-time timers of one operator subtask.

New timers are in a heap until ``flush`` writes them, or until there are too many to hold; timers of
earlier checkpoints are read from the store in order of time, a run at a time and only as far as
time has come, so a micro-batch costs what it touches, however many timers wait.  Firing merges the
two.

Layout: ``T`` + state index (2) + time (8, sign bit flipped) + key group (2) + length of key (4) +
encoded key + namespace, without a value.  Timers of one time fire in the order of these bytes, so
the order does not depend on where the input was cut into micro-batches.

Timers fire from the front of the store: fired ones are one range, and deleted as one if it is long.
Single deletions would be read past, one by one, until compaction.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import deque
from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Final

from millstream.state.key_codec import cache_key, decode_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.state.key_context import KeyContext


#: New and deleted timers held in memory per queue (about 40 MB); more are written to the store.
MOST_HELD: Final = 200_000

_HEAD: Final = struct.Struct(">BHQ")
_HEAD_SIZE: Final = _HEAD.size
_TAG: Final = 0x54  # "T"
_BIAS: Final = 2**63
_LENGTH: Final = struct.Struct(">I")
_TIME: Final = struct.Struct(">Q")
#: Where the time, the length of the key and the encoded key begin.
_TIME_AT: Final = 3
_LENGTH_AT: Final = _HEAD_SIZE + 2
_KEY_AT: Final = _HEAD_SIZE + 6
#: Stored timers read in one go: at first, and at most.
_FIRST_RUN: Final = 16
_LONGEST_RUN: Final = 4096
#: With more fired timers than this, their range is deleted instead of each of them.
_RANGE_FROM: Final = 64


class TimerQueue:
    """The timers of one kind.

    Invariant: a timer is due if it is in ``_new``, or in the store behind ``_passed`` and not in
    ``_gone``.
    Invariant: every member of ``_new`` is in ``_heap``; the heap may hold others, which are stale.
    Invariant: ``_ahead`` is what the store has next behind ``_passed``, as far as it was read.
    """

    __slots__ = (
        "_ahead",
        "_fired",
        "_gone",
        "_heap",
        "_keyed",
        "_new",
        "_passed",
        "_run",
        "_scan",
        "_stored",
        "index",
        "name",
    )

    def __init__(self, keyed: KeyContext, name: str) -> None:
        self._keyed = keyed
        self.name = name
        #: The state's number in the store; -1 until a timer is registered in any epoch.
        self.index = -1
        #: Whether the store may hold timers.
        self._stored = False
        self._heap: list[bytes] = []
        self._new: set[bytes] = set()
        #: Deleted by the user; they may be in the store.
        self._gone: set[bytes] = set()
        self._ahead: deque[bytes] = deque()
        self._scan: Iterator[tuple[bytes, bytes]] | None = None
        self._run = _FIRST_RUN
        #: The last timer of the store that was taken out.
        self._passed: bytes | None = None
        #: The timers that were taken out, or as many of them as are deleted one by one.
        self._fired: list[bytes] = []

    @property
    def cached(self) -> int:
        """How many timers are held in memory."""
        return len(self._new)

    def begin_epoch(self, index: int) -> None:
        """Start with the timers of a store in which this state has the number ``index``, or -1."""
        self.forget()
        self.index = index
        self._stored = index >= 0

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
        new = self._new
        if name not in new:
            new.add(name)
            heappush(self._heap, name)
            if len(new) >= MOST_HELD:
                self._spill()

    def delete(self, key: object, namespace: bytes, time: int) -> None:
        """Take a timer back, if it is there."""
        name = self._name_of(key, namespace, time)
        self._new.discard(name)
        if self._stored and (self._passed is None or name > self._passed):
            self._gone.add(name)
            if len(self._gone) >= MOST_HELD:
                self._spill()

    def _next_new(self) -> bytes | None:
        """The first new timer; drops stale ones from the heap."""
        heap, new = self._heap, self._new
        while heap:
            if heap[0] in new:
                return heap[0]
            heappop(heap)
        return None

    def _next_stored(self, time: int | None = None) -> bytes | None:
        """The first timer in the store that is still due."""
        if not self._stored:
            return None
        ahead, gone = self._ahead, self._gone
        while True:
            while ahead:
                if ahead[0] not in gone:
                    return ahead[0]
                self._take_out(ahead.popleft())
            if not self._read(time):
                return None

    def _read(self, time: int | None) -> bool:
        """Read the next run from the store; False if there is none.

        Args:
            time: the state of the keys of timers up to then is read as well; None: of none.
        """
        if self._scan is None:
            prefix = _HEAD.pack(_TAG, self.index, 0)[:_TIME_AT]
            known = self._known
            self._scan = (
                self._keyed.scan_prefix(prefix)
                if known is None
                else self._keyed.store.scan(known + b"\0", _HEAD.pack(_TAG, self.index + 1, 0))
            )
        names = [name for name, _ in islice(self._scan, self._run)]
        if not names:
            self._stored = False
            return False
        self._run = min(self._run * 4, _LONGEST_RUN)
        self._ahead.extend(names)
        if time is not None and self._keyed.has_states:
            behind = _HEAD.pack(_TAG, self.index, time + _BIAS) + b"\xff\xff\xff"
            due = names[: bisect_left(names, behind)]
            # This may flush, and so forget what was read: it is read again then.
            self._keyed.prefetch(list(map(_key_in, due)))
        return True

    def _take_out(self, name: bytes) -> None:
        self._passed = name
        if len(self._fired) <= _RANGE_FROM:
            self._fired.append(name)

    def next_time(self) -> int | None:
        """The time of the next timer in milliseconds, None if there is none."""
        new, stored = self._next_new(), self._next_stored()
        found = [name for name in (new, stored) if name is not None]
        return _time_in(min(found)) if found else None

    def pending(self) -> list[tuple[int, object]]:
        """(time, key) of every timer in the store, in order; what is in memory was flushed."""
        if self.index < 0:
            return []
        prefix = _HEAD.pack(_TAG, self.index, 0)[:_TIME_AT]
        names = [name for name, _ in self._keyed.scan_prefix(prefix)]
        return [(_time_in(name), _key_in(name)) for name in names]

    def advance(self, time: int) -> Iterator[tuple[int, object, bytes]]:
        """Take out and yield every timer up to and including ``time``, in order."""
        while True:
            # All is read again each time: the caller may register, delete and flush in between.
            stored = self._next_stored(time)
            new = self._next_new()
            stored_first = new is None or (stored is not None and stored <= new)
            name = stored if stored_first else new
            if name is None:
                return
            at = _time_in(name)
            if at > time:
                return
            if name == stored:
                self._take_out(self._ahead.popleft())
            if name == new:
                self._new.discard(name)
                heappop(self._heap)
            (length,) = _LENGTH.unpack_from(name, _LENGTH_AT)
            end = _KEY_AT + length
            yield at, decode_key(name[_KEY_AT:end]), name[end:]

    @property
    def _known(self) -> bytes | None:
        """The last timer of the store that was read."""
        return self._ahead[-1] if self._ahead else self._passed

    @property
    def unwritten(self) -> int:
        """How many timers the next flush writes."""
        return len(self._new)

    def flush_some(self, most: int, puts: list[tuple[bytes, bytes]]) -> None:
        """Add at most so many new timers to ``puts``: such as are read again when it is time.

        Those that lie in front of what was read of the store have to stay.
        """
        known = self._known
        names = list(islice((name for name in self._new if known is None or name > known), most))
        if not names:
            return
        puts.extend((name, b"") for name in names)
        self._new.difference_update(names)
        self._gone.difference_update(names)
        self._stored = True
        self._scan = None  # it shows the store as it was

    def _spill(self) -> None:
        """Write what is held to the store, in the middle of an epoch."""
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        self.flush(puts, deletes)
        self._keyed.write_through(puts, deletes)

    def flush(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        """Add what changed to ``puts`` and ``deletes`` and forget everything."""
        passed = self._passed
        if passed is not None and len(self._fired) > _RANGE_FROM:
            start = _HEAD.pack(_TAG, self.index, 0)
            self._keyed.store.delete_range(start, passed + b"\0")
            deletes.extend(name for name in self._gone if name > passed)
        else:
            deletes.extend(self._fired)
            deletes.extend(self._gone)
        # In order, which a store takes in several times faster.
        puts.extend((name, b"") for name in sorted(self._new))
        self._stored = self._stored or bool(self._new)
        self.forget()

    def forget(self) -> None:
        """Drop everything held in memory."""
        self._heap.clear()
        self._new.clear()
        self._gone.clear()
        self._ahead.clear()
        self._fired.clear()
        self._scan = None
        self._run = _FIRST_RUN
        self._passed = None


def _time_in(name: bytes) -> int:
    time: int = _TIME.unpack_from(name, _TIME_AT)[0]
    return time - _BIAS


def _key_in(name: bytes) -> object:
    (length,) = _LENGTH.unpack_from(name, _LENGTH_AT)
    return decode_key(name[_KEY_AT : _KEY_AT + length])


class InternalTimers:
    """Event-time and processing-time timers of one operator subtask.

    A namespace tells timers of one key and time apart (a window, for instance); user functions
    use the empty one.
    """

    __slots__ = (
        "_keyed",
        "delete_event_time",
        "delete_processing_time",
        "event",
        "observer",
        "processing",
        "register_event_time",
        "register_processing_time",
    )

    def __init__(self, keyed: KeyContext) -> None:
        self._keyed = keyed
        #: Called with time and key of each timer before it is given out.
        self.observer: Callable[[int, object], None] | None = None
        self.event = TimerQueue(keyed, "\0timers.event")
        self.processing = TimerQueue(keyed, "\0timers.processing")
        #: Add and remove a timer, by key, namespace and milliseconds of either time.
        self.register_event_time = self.event.register
        self.delete_event_time = self.event.delete
        self.register_processing_time = self.processing.register
        self.delete_processing_time = self.processing.delete

    def advance_event_time(self, watermark: int) -> Iterator[tuple[int, object, bytes]]:
        """Fire event-time timers.

        Args:
            watermark: milliseconds; timers at or before it fire.

        Returns:
            (timestamp, key, namespace) in order of time.  A timer that is registered while
            iterating and is due fires in the same call.
        """
        fired = self._observed(self.event.advance(watermark))
        if self._keyed.timestamp is not None:
            return self._timed(fired, watermark)
        self._keyed.event_time = watermark
        return fired

    def advance_processing_time(self, now: int) -> Iterator[tuple[int, object, bytes]]:
        """Fire processing-time timers up to ``now`` (milliseconds), like event-time ones."""
        return self._observed(self.processing.advance(now))

    def _timed(
        self, fired: Iterator[tuple[int, object, bytes]], watermark: int
    ) -> Iterator[tuple[int, object, bytes]]:
        """Let event time pass with the timers: what one of them reads has not expired later on."""
        keyed = self._keyed
        begun = keyed.event_time
        for timer in fired:
            keyed.event_time = max(begun, timer[0])
            yield timer
        keyed.event_time = watermark

    def _observed(
        self, fired: Iterator[tuple[int, object, bytes]]
    ) -> Iterator[tuple[int, object, bytes]]:
        observer = self.observer
        if observer is None:
            return fired

        def give(timer: tuple[int, object, bytes]) -> tuple[int, object, bytes]:
            observer(timer[0], timer[1])
            return timer

        return map(give, fired)
