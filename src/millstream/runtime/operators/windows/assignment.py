"""Assignment of records to windows by any assigner, and the clocks and timed state of windows.

The assigner is called once per record or, where it can only return the same windows again, once for
many records.
"""

from __future__ import annotations

import inspect
import struct
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.errors import ProgramError
from millstream.functions.window import TimeWindow
from millstream.functions.window_assigners import (
    EventTimeSessionWindows,
    FixedEventTimeWindows,
    FixedProcessingTimeWindows,
    GlobalWindows,
    WindowAssigner,
    merges_sessions,
)
from millstream.runtime.operators.base import PLAIN_KEY_TYPES
from millstream.runtime.user_code import NO_RECORD, user_error
from millstream.state.key_codec import WindowCodec, cache_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.operator import Operator, OperatorContext
    from millstream.functions.functions import RuntimeContext
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState


#: Where the content of a window is: namespaces, in order of the elements.
StateWindows: TypeAlias = tuple[bytes, ...]

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
        """Return the first store key after those at ``time``."""
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
        """Return whether the window is over and its state gone."""
        return self.cleanup_time(window) <= self.watermark

    def has_fired(self, window: int) -> bool:
        """Return whether the window has fired, so that a further record fires it again at once."""
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


def check_timestamps(operator: Operator, timestamps: NDArray[np.int64]) -> None:
    """Refuse records without a timestamp, as Flink does.

    Raises:
        ProgramError: a record has none.
    """
    if int(timestamps.min()) == MIN_TIMESTAMP:
        message = (
            f"operator {operator.context.name!r} ({operator.context.location}): a record without "
            "a timestamp reached an event-time window; give the source a WatermarkStrategy with "
            "a timestamp assigner, or call assign_timestamps_and_watermarks()"
        )
        raise ProgramError(message)


def drop_late(
    operator: Operator,
    batch: Batch,
    positions: NDArray[np.int64],
    horizon: int,
    late_tag: str | None,
) -> int:
    """Send records that no window took to the late side output; return how many were dropped.

    A record above ``horizon`` is not late: it fell into a gap between windows.
    """
    late = positions[batch.timestamp_array[positions] <= max(horizon, MIN_TIMESTAMP)]
    if not len(late):
        return 0
    if late_tag is None:
        return len(late)
    operator.output.emit_side(late_tag, batch.take(late))
    return 0


_MOST_KNOWN: Final = 50_000
#: Positional arguments of ``assign_windows`` with a context.
_WITH_CONTEXT: Final = 3


class WindowEntry:
    """A window and what follows from it; the same for all keys."""

    __slots__ = ("cleanup_time", "max_timestamp", "namespace", "states", "window")

    def __init__(self, window: Any, namespace: bytes, lateness: int) -> None:
        """Take the window, its bytes and the allowed lateness in milliseconds."""
        self.window = window
        self.namespace = namespace
        #: The state windows, unless it was merged.
        self.states: StateWindows = (namespace,)
        self.max_timestamp: int = window.max_timestamp()
        #: When the window's state is dropped, in milliseconds.
        self.cleanup_time = min(self.max_timestamp + lateness, MAX_TIMESTAMP)


class _AssignerContext(WindowAssigner.WindowAssignerContext):
    def __init__(self, runtime_context: RuntimeContext) -> None:
        self._runtime_context = runtime_context
        self.processing_time = 0

    def get_current_processing_time(self) -> int:
        return self.processing_time

    def get_runtime_context(self) -> RuntimeContext:
        return self._runtime_context


class Assignment:
    """The assigner of one operator, and the windows it has given."""

    def __init__(
        self,
        assigner: WindowAssigner[Any, Any],
        lateness: int,
        keyed: KeyedState,
        runtime_context: RuntimeContext,
    ) -> None:
        """Take the assigner, and the allowed lateness in milliseconds."""
        self.codec = WindowCodec(assigner.get_window_serializer())
        self._assigner = assigner
        # Windows that end by the clock are never late: they end with their last millisecond.
        self._lateness = lateness if assigner.is_event_time() else 0
        self._keyed = keyed
        self._context = _AssignerContext(runtime_context)
        self._entries: dict[Any, WindowEntry] = {}
        self._assign_one = _with_context(assigner)
        #: Whether windows merge that overlap or touch, and no others.
        self.merges_sessions = merges_sessions(assigner)

    def begin_epoch(self, processing_time: int) -> None:
        """Take the processing time of the epoch, in milliseconds."""
        self._context.processing_time = processing_time

    def entry_of(self, window: Any) -> WindowEntry:
        """Return what is known of a window."""
        entry = self._entries.get(window)
        if entry is None:
            if len(self._entries) >= _MOST_KNOWN:
                self._entries.clear()
            entry = self._entries[window] = self.new_entry(window)
        return entry

    def entry_at(self, namespace: bytes) -> WindowEntry:
        """Return what is known of the window with these bytes."""
        return self.entry_of(self.codec.decode(namespace))

    @staticmethod
    def cache_keys(keys: list[Any]) -> list[CacheKey]:
        """Return what the keys of a batch are looked up by."""
        if set(map(type, keys)) <= PLAIN_KEY_TYPES:
            return keys
        return list(map(cache_key, keys))

    def check_timestamps(self, operator: Operator, batch: Batch) -> None:
        """Refuse records without a timestamp where a built-in assigner reads it.

        Raises:
            ProgramError: a record has none.
        """
        if isinstance(self._assigner, FixedEventTimeWindows) or (
            self.merges_sessions and self._assigner.is_event_time()
        ):
            check_timestamps(operator, batch.timestamp_array)

    def assign(
        self, batch: Batch, keys: list[Any], context: OperatorContext
    ) -> Sequence[Sequence[WindowEntry]]:
        """Return the windows of each record.

        Raises:
            UserFunctionError: the assigner raised; names the record.
        """
        assigner, kind = self._assigner, type(self._assigner)
        fixed = isinstance(assigner, FixedProcessingTimeWindows) and (
            kind.assign_windows is FixedProcessingTimeWindows.assign_windows
        )
        if fixed or kind is GlobalWindows:
            shared = self._entries_of(self._assign_one(None, 0, self._context))
            return list(repeat(shared, len(batch)))
        if isinstance(assigner, FixedEventTimeWindows) and (
            kind.assign_windows is FixedEventTimeWindows.assign_windows
        ):
            return self._assign_by_pane(assigner, batch)
        if kind is EventTimeSessionWindows:
            gap = assigner.gap  # type: ignore[attr-defined] # it is that kind
            return [
                (self.new_entry(TimeWindow(time, time + gap)),) for time in batch.timestamp_list
            ]
        return self._each(batch, keys, context, self._entries_of)

    def session_bounds(
        self, batch: Batch, keys: list[Any], context: OperatorContext
    ) -> tuple[list[int], list[int]]:
        """Return starts and ends of the session that each record alone would make.

        Raises:
            UserFunctionError: the user's gap raised; names the record.
        """
        if type(self._assigner) is EventTimeSessionWindows:
            starts = list(batch.timestamp_list)
            gap: int = self._assigner.gap
            return starts, [start + gap for start in starts]
        windows = [each[0] for each in self._each(batch, keys, context, list)]
        return [window.start for window in windows], [window.end for window in windows]

    def new_entry(self, window: Any) -> WindowEntry:
        """Return what there is to know of a window, without keeping it."""
        return WindowEntry(window, self.codec.encode(window), self._lateness)

    def _entries_of(self, windows: Any) -> list[WindowEntry]:
        return [self.entry_of(window) for window in windows]

    def _assign_by_pane(
        self, assigner: FixedEventTimeWindows, batch: Batch
    ) -> list[list[WindowEntry]]:
        """Records of one pane are in the same windows."""
        known: dict[int, list[WindowEntry]] = {}
        assigned = []
        for pane in assigner.pane_starts(batch.timestamp_array).tolist():
            entries = known.get(pane)
            if entries is None:
                entries = known[pane] = self._entries_of(assigner.assign_windows(None, pane))
            assigned.append(entries)
        return assigned

    def _each(
        self,
        batch: Batch,
        keys: list[Any],
        context: OperatorContext,
        take: Callable[[Any], list[Any]],
    ) -> list[list[Any]]:
        """Call the assigner for each record; ``take`` makes a list of what it returns."""
        set_key, assign = self._keyed.set_current_key, self._assign_one
        assigned = []
        value: Any = NO_RECORD
        key: Any = NO_RECORD
        try:
            for key, value, timestamp in zip(keys, batch.values, batch.timestamp_list, strict=True):
                set_key(key)
                assigned.append(take(assign(value, timestamp, self._context)))
        except Exception as error:
            raise user_error(
                context, error, value, doing="assigning windows to", key=key
            ) from error
        return assigned


def _with_context(assigner: WindowAssigner[Any, Any]) -> Callable[..., Any]:
    """``assign_windows`` with three arguments, also if the user's takes two.

    Raises:
        ProgramError: it takes some other number.
    """
    method: Callable[..., Any] = assigner.assign_windows
    signature = inspect.signature(method)
    for count in (_WITH_CONTEXT, _WITH_CONTEXT - 1):
        try:
            signature.bind(*repeat(None, count))
        except TypeError:
            continue
        if count == _WITH_CONTEXT:
            return method
        return lambda element, timestamp, _context: method(element, timestamp)
    message = (
        f"{type(assigner).__name__}.assign_windows must take (element, timestamp, context) or "
        f"(element, timestamp), not {signature}"
    )
    raise ProgramError(message)


#: Products below fit into 64 bits with room to spare.
_MOST: Final = 2**62


class Sessions:
    """Intervals in sessions, which are numbered by key, then by time."""

    __slots__ = ("ends", "of", "starts")

    def __init__(
        self, of: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        self.of = of
        self.starts = starts
        self.ends = ends

    def __len__(self) -> int:
        """Return how many sessions there are."""
        return len(self.starts)


def cut(keys: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Sessions:
    """Find the sessions of intervals: those of one key that overlap or touch are in one.

    Args:
        keys: a number per interval; equal keys have equal numbers.
        starts: the first timestamp of each interval.
        ends: the last timestamp of each interval + 1.
    """
    if not len(keys):
        return Sessions(keys, starts, ends)
    order = _order(keys, starts)
    by_key, begins, stops = keys[order], starts[order], ends[order]
    fresh = np.empty(len(order), dtype=np.bool_)
    fresh[0] = True
    fresh[1:] = (by_key[1:] != by_key[:-1]) | (begins[1:] > _reached(by_key, stops)[:-1])
    firsts = np.flatnonzero(fresh)
    of = np.empty(len(order), dtype=np.int64)
    of[order] = np.cumsum(fresh) - 1
    return Sessions(of, begins[firsts], np.maximum.reduceat(stops, firsts))


def _reached(keys: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, per interval, the greatest end so far of its key; the keys ascend."""
    if bool((ends[1:] >= ends[:-1])[keys[1:] == keys[:-1]].all()):
        return ends
    # One accumulation for all keys: each key's ends are lifted above those of the key before.
    numbers = np.concatenate(([0], np.cumsum(keys[1:] != keys[:-1])))
    low, span = int(ends.min()), _span(ends)
    if span * len(keys) < _MOST:
        values, ranks = np.zeros(0, dtype=np.int64), ends - low
    else:
        values, ranks = np.unique(ends, return_inverse=True)
        span = len(values)
    reached: NDArray[np.int64] = np.maximum.accumulate(ranks + numbers * span) - numbers * span
    return values[reached] if len(values) else reached + low


def _order(keys: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort by key, then by start; what is equal in both is in any order."""
    span = _span(starts)
    if _span(keys) * span < _MOST:  # sorted as one number, several times as fast
        return np.argsort((keys - keys.min()) * span + (starts - starts.min()))
    return np.lexsort((starts, keys))


def _span(numbers: NDArray[np.int64]) -> int:
    return int(numbers.max()) - int(numbers.min()) + 1
