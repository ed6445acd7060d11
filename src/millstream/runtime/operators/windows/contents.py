"""State of windows that are kept by key: accumulators, elements, and merging window sets.

Accumulators are values that are replaced.  Elements are kept in chunks: recent ones in memory,
older ones in the store, where they are only appended to; a large window is read chunk by chunk when
its function iterates over it, so it need not fit into memory.

A window has one state window or, after merging, several, in order of its elements.

Layout of elements: ``K`` entries under the window's name hold (number of chunks, number of elements
in them); under the name of another state and the number of the chunk (4 bytes), the pickled list.
Layout of merging window sets: one ``K`` entry per key, a pickled list of (window, its state
windows), as bytes.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream.errors import ProgramError
from millstream.functions.descriptors import StateDescriptor
from millstream.functions.windows import MergingWindowAssigner
from millstream.state.namespaced_state import ABSENT, NamespacedValues
from millstream.state.serializers import dumps, loads
from millstream.state.value_state import CachedValues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.functions.window import TimeWindow, Window
    from millstream.state.key_codec import CacheKey, WindowCodec
    from millstream.state.key_context import Puts
    from millstream.state.keyed import KeyedState
    from millstream.state.namespaced_state import Slot


#: Where the content of a window is: namespaces, in order of the elements.
StateWindows: TypeAlias = tuple[bytes, ...]


# -- merging window sets ---


class _Collected(MergingWindowAssigner.MergeCallback[Any]):
    """Remembers what an assigner wants merged."""

    def __init__(self) -> None:
        self.merges: list[tuple[Any, list[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.merges.append((merge_result, list(to_be_merged)))


class MergingWindowSet:
    """The windows in flight of one key, as Flink's merging window set.

    The content of a merged window stays under the names of the windows it was merged from (its
    *state windows*), so that what is stored need not be copied.

    Invariant: ``windows`` maps each to its state windows, at least one.
    Invariant: if ``_ordered`` is not None, it has the same windows in order of time, and no two of
    them overlap or touch.
    """

    __slots__ = ("_ordered", "windows")

    def __init__(self, windows: dict[Any, StateWindows], *, sessions: bool) -> None:
        """Take the windows; ``sessions`` if those merge that overlap or touch."""
        self.windows = windows
        self._ordered: list[TimeWindow] | None = sorted(windows) if sessions else None

    def add(
        self,
        window: Window,
        assigner: MergingWindowAssigner[Any, Any],
        codec: WindowCodec,
        merge: Callable[[Any, list[Any], list[StateWindows]], StateWindows],
    ) -> Any:
        """Add a window and merge what then belongs together.

        Args:
            window: a new element's.
            assigner: says what is to be merged.
            codec: makes the state window of a new window.
            merge: called with the result, the windows it is made of (not ``window``) and their
                state windows; returns the result's.

        Returns:
            The window that the element is in: ``window``, or what it became part of.
        """
        if window in self.windows:
            return window
        actual, placed = window, False
        for result, group in self._groups(window, assigner):
            parts = [each for each in group if each != window]
            if len(parts) < len(group):
                actual, placed = result, True
            if parts == [result]:
                continue  # the new window lies within the old one
            for part in parts:
                if part not in self.windows:
                    message = f"merge_windows() of {assigner!r} merges {part!r}, which it made up"
                    raise ProgramError(message)
            states = [self._remove(part) for part in parts]
            self._insert(result, merge(result, parts, states) if parts else (codec.encode(result),))
        if not placed:
            self._insert(window, (codec.encode(window),))
        return actual

    def retire(self, window: Window) -> None:
        """Forget a window whose content is gone."""
        if window in self.windows:
            self._remove(window)

    def insert(self, window: Window, states: StateWindows) -> None:
        """Let a window be in flight that touches no other."""
        self._insert(window, states)

    def _groups(
        self, window: Any, assigner: MergingWindowAssigner[Any, Any]
    ) -> list[tuple[Any, list[Any]]]:
        """Return what is to be merged, as (result, windows): few with sessions, asked of others."""
        if self._ordered is None:
            collected = _Collected()
            assigner.merge_windows([*self.windows, window], collected)
            return collected.merges
        first = bisect_left(self._ordered, window.start, key=_end)
        last = bisect_right(self._ordered, window.end, key=_start)
        touched = self._ordered[first:last]
        if not touched:
            return []
        result = touched[0].cover(touched[-1]).cover(window)
        # The very object where nothing changes: it is known already.
        return [(touched[0] if touched[0] == result else result, [*touched, window])]

    def _insert(self, window: Any, states: StateWindows) -> None:
        self.windows[window] = states
        if self._ordered is not None:
            insort(self._ordered, window)

    def _remove(self, window: Any) -> StateWindows:
        if self._ordered is not None:
            del self._ordered[bisect_left(self._ordered, window)]
        return self.windows.pop(window)


def _start(window: TimeWindow) -> int:
    return window.start


def _end(window: TimeWindow) -> int:
    return window.end


class MergingSetsDescriptor(StateDescriptor):
    """Of the sets, whichever way they are held in memory."""

    kind = "merging windows"


class MergingSets(CachedValues["CacheKey"]):
    """The merging window sets of all keys: a state like those of the user."""

    __slots__ = ("_codec", "_sessions")

    def __init__(self, keyed: KeyedState, codec: WindowCodec, *, sessions: bool) -> None:
        """Keep the sets in ``keyed``; ``sessions`` as for ``MergingWindowSet``."""
        super().__init__(keyed, MergingSetsDescriptor("\0windows.merging"))
        self._codec = codec
        self._sessions = sessions

    def of(self, key: CacheKey) -> MergingWindowSet:
        """Return the set of a key."""
        found: MergingWindowSet | None = self.cache.get(key)
        return self.read(key) if found is None else found

    def touch(self, key: CacheKey) -> None:
        """Note that the set of a key, which ``of`` gave, has changed."""
        self.dirty.add(key)

    def end_epoch(self) -> None:
        """Forget everything."""
        self.forget()

    def encoded(self, value: MergingWindowSet) -> bytes:
        encode = self._codec.encode
        entries = [(encode(window), states) for window, states in value.windows.items()]
        return dumps(entries) if entries else b""

    def decoded(self, key: CacheKey, stored: bytes | None) -> MergingWindowSet:
        del key
        entries = [] if stored is None else loads(stored)
        decode = self._codec.decode
        windows = {decode(window): states for window, states in entries}
        return MergingWindowSet(windows, sessions=self._sessions)


#: Elements per chunk in the store.
_CHUNK: Final = 10_000
#: With more elements than this a window is iterated over instead of being made a list.
_MOST_LISTED: Final = 50_000
#: Content of up to so many elements is moved when windows merge; more stays where it is.
_MOST_MOVED: Final = 1_000
_NUMBER: Final = struct.Struct(">I")
#: Values that nobody can change in place.
_PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})


# -- content ---


class Contents(ABC):
    """Content of windows by key and state windows."""

    @property
    @abstractmethod
    def cached(self) -> int:
        """Return how many objects are held in memory."""

    @abstractmethod
    def add(self, key: CacheKey, states: StateWindows, value: Any, timestamp: int) -> None:
        """Add an element."""

    @abstractmethod
    def get(self, key: CacheKey, states: StateWindows) -> Any:
        """Return the accumulator or the elements; ABSENT if nothing was added."""

    @abstractmethod
    def clear(self, key: CacheKey, states: StateWindows) -> None:
        """Throw the content away."""

    @abstractmethod
    def merge(self, key: CacheKey, parts: Sequence[StateWindows]) -> StateWindows:
        """Make one content of several, in their order; return where it is."""

    @abstractmethod
    def prefetch_slots(self, slots: Sequence[Slot]) -> None:
        """Read what is needed to add to ``slots``, by one multi-get."""

    @abstractmethod
    def adder(self) -> Callable[[Slot, Any, int], None]:
        """Return what adds (slot, element, timestamp), where no window is evaluated twice."""

    @abstractmethod
    def put(self, key: CacheKey, states: StateWindows, content: Any) -> None:
        """Let an accumulator, or a list of elements as they are stored, be the content."""

    def emitted(self, key: CacheKey, states: StateWindows) -> None:
        """Note that what was computed from the content may still be in use when it changes."""


class Accumulators(Contents):
    """One accumulator per key and window."""

    def __init__(
        self,
        keyed: KeyedState,
        fold: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any],
    ) -> None:
        """Keep accumulators in ``keyed``.

        Args:
            keyed: the operator's state.
            fold: (accumulator or ABSENT, element) -> accumulator.
            merge: (accumulator, accumulator) -> accumulator.
        """
        self._values = NamespacedValues(keyed, "\0windows.accumulators")
        keyed.add_state(self._values)
        self._fold = fold
        self._merge = merge
        #: Accumulators that an emitted result may share parts with.
        self._emitted: set[Slot] = set()

    @property
    def cached(self) -> int:
        return self._values.cached

    def _read(self, slot: Slot) -> Any:
        accumulator = self._values.get(slot)
        if slot in self._emitted:
            self._emitted.discard(slot)
            if type(accumulator) not in _PLAIN and accumulator is not ABSENT:
                accumulator = loads(dumps(accumulator))
        return accumulator

    def add(self, key: CacheKey, states: StateWindows, value: Any, timestamp: int) -> None:
        del timestamp
        slot = (key, states[0])
        self._values.put(slot, self._fold(self._read(slot), value))

    def adder(self) -> Callable[[Slot, Any, int], None]:
        """Return what folds an element in, with all it needs available."""
        values, fold = self._values, self._fold
        cache, touch, read = values.cache, values.dirty.add, values.get

        def add(slot: Slot, value: Any, timestamp: int) -> None:
            del timestamp
            so_far = cache[slot] if slot in cache else read(slot)
            cache[slot] = fold(so_far, value)
            touch(slot)

        return add

    def get(self, key: CacheKey, states: StateWindows) -> Any:
        return self._values.get((key, states[0]))

    def clear(self, key: CacheKey, states: StateWindows) -> None:
        slot = (key, states[0])
        self._emitted.discard(slot)
        self._values.put(slot, ABSENT)

    def put(self, key: CacheKey, states: StateWindows, content: Any) -> None:
        self._values.put((key, states[0]), content)

    def merge(self, key: CacheKey, parts: Sequence[StateWindows]) -> StateWindows:
        target = (key, parts[0][0])
        merged = self._read(target)
        for states in parts[1:]:
            slot = (key, states[0])
            part = self._read(slot)
            if part is not ABSENT:
                merged = part if merged is ABSENT else self._merge(merged, part)
                self._values.put(slot, ABSENT)
        if merged is not ABSENT:
            self._values.put(target, merged)
        return parts[0]

    def prefetch_slots(self, slots: Sequence[Slot]) -> None:
        self._values.prefetch_slots(slots)

    def emitted(self, key: CacheKey, states: StateWindows) -> None:
        """Copy the accumulator before it is changed the next time."""
        self._emitted.add((key, states[0]))


class _ChunksDescriptor(StateDescriptor):
    kind = "window elements"


class Elements(Contents):
    """The elements of each key and window, in order.

    Invariant: of a slot the store holds as many chunks as its header says, numbered from 0, apart
    from those in ``_gone``; what comes after them is in ``_tails``.
    """

    def __init__(self, keyed: KeyedState, *, timestamps: bool) -> None:
        """Keep elements in ``keyed``, as (element, timestamp) if ``timestamps``."""
        self.keyed = keyed
        self.descriptor: StateDescriptor = _ChunksDescriptor("\0windows.elements")
        self.index = -1
        self._timestamps = timestamps
        self._headers = NamespacedValues(keyed, "\0windows.chunks")
        self._tails: dict[Slot, list[Any]] = {}
        self._count = 0
        self._gone: list[bytes] = []
        keyed.add_state(self)
        keyed.add_state(self._headers)  # after the chunks, whose flush changes headers

    @property
    def cached(self) -> int:
        return self._count

    def add(self, key: CacheKey, states: StateWindows, value: Any, timestamp: int) -> None:
        slot = (key, states[-1])
        item = (value, timestamp) if self._timestamps else value
        self._count += 1
        try:
            self._tails[slot].append(item)
        except KeyError:
            self._tails[slot] = [item]

    def adder(self) -> Callable[[Slot, Any, int], None]:
        def add(slot: Slot, value: Any, timestamp: int) -> None:
            self._count += 1
            item = (value, timestamp) if self._timestamps else value
            tail = self._tails.get(slot)
            if tail is None:
                self._tails[slot] = [item]
            else:
                tail.append(item)

        return add

    def size(self, key: CacheKey, states: StateWindows) -> int:
        """Return the number of elements."""
        return sum(
            self._header(slot)[1] + len(self._tails.get(slot, ()))
            for slot in ((key, namespace) for namespace in states)
        )

    def get(self, key: CacheKey, states: StateWindows) -> Any:
        """Return the elements: a list, or something to iterate over if there are many."""
        size = self.size(key, states)
        if size == 0:
            return ABSENT
        elements = _StoredElements(self, key, states, size)
        return elements if size > _MOST_LISTED else list(elements)

    def get_list(self, key: CacheKey, states: StateWindows) -> list[Any]:
        """Return all elements as a list of its own."""
        return list(self.chunks(key, states))

    def put(self, key: CacheKey, states: StateWindows, content: Any) -> None:
        """Let these elements be all there is."""
        self.clear(key, states)
        if content:
            self._tails[key, states[-1]] = content
            self._count += len(content)

    def clear(self, key: CacheKey, states: StateWindows) -> None:
        for namespace in states:
            slot = (key, namespace)
            self._count -= len(self._tails.pop(slot, ()))
            chunks, elements = self._header(slot)
            if chunks:
                self._gone.extend(self._chunk_names(slot, chunks))
            if elements:
                self._headers.put(slot, ABSENT)

    def merge(self, key: CacheKey, parts: Sequence[StateWindows]) -> StateWindows:
        """Leave large content where it is; move small content after what comes before it."""
        merged = list(parts[0])
        for states in parts[1:]:
            if self.size(key, states) > _MOST_MOVED:
                merged.extend(states)
                continue
            items = self.get_list(key, states)
            self.clear(key, states)
            self._tails.setdefault((key, merged[-1]), []).extend(items)
            self._count += len(items)
        return tuple(merged)

    def prefetch_slots(self, slots: Sequence[Slot]) -> None:
        """Read how much the store has of ``slots``."""
        self._headers.prefetch_slots(slots)

    def prefetch(self, keys: set[CacheKey]) -> None:
        """Nothing: which windows are wanted is not known."""

    def chunks(self, key: CacheKey, states: StateWindows) -> Iterator[Any]:
        """Iterate over all elements, reading one chunk after the other."""
        for namespace in states:
            slot = (key, namespace)
            for name in self._chunk_names(slot, self._header(slot)[0]):
                stored = self.keyed.store.get(name)
                if stored is None:
                    message = f"a chunk of the elements of window {namespace!r} is missing"
                    raise RuntimeError(message)
                yield from loads(stored)
            yield from self._tails.get(slot, ())

    @property
    def weight(self) -> int:
        """Nothing: what is in memory is written by each flush, and forgotten."""
        return 0

    @property
    def unwritten(self) -> int:
        """Nothing that could be written in small portions: each makes a chunk of its own."""
        return 0

    def flush_some(self, most: int, puts: Puts, deletes: list[bytes]) -> None:
        """Write nothing."""

    def age(self) -> dict[Any, Any]:
        """Keep what there is; it is bounded by ``spill``."""
        return {}

    def end_epoch(self) -> None:
        """Nothing is left."""

    def flush(self, puts: Puts, deletes: list[bytes]) -> None:
        """Append what is in memory as new chunks and forget it."""
        deletes.extend(self._gone)
        filled = [slot for slot, tail in self._tails.items() if tail]
        self._headers.prefetch_slots(filled)
        for slot in filled:
            tail = self._tails[slot]
            chunks, elements = self._header(slot)
            pieces = [tail[start : start + _CHUNK] for start in range(0, len(tail), _CHUNK)]
            names = self._chunk_names(slot, chunks + len(pieces))[chunks:]
            puts.extend((name, dumps(piece)) for name, piece in zip(names, pieces, strict=True))
            self._headers.put(slot, (chunks + len(pieces), elements + len(tail)))
        self.forget()

    def forget(self) -> None:
        """Drop everything held in memory."""
        self._tails.clear()
        self._gone.clear()
        self._count = 0

    def _header(self, slot: Slot) -> tuple[int, int]:
        header: tuple[int, int] | object = self._headers.get(slot)
        return (0, 0) if header is ABSENT else header  # type: ignore[return-value] # what flush put

    def _chunk_names(self, slot: Slot, count: int) -> list[bytes]:
        if not count:
            return []
        return chunk_names(self.keyed.store_key(self.index, slot[0]) + slot[1], count)


def chunk_names(prefix: bytes, count: int) -> list[bytes]:
    """Return the names of the first chunks of a window's elements."""
    return [prefix + _NUMBER.pack(number) for number in range(count)]


class _StoredElements(Iterable[Any]):
    """The elements of a large window, to iterate over as often as wanted while it is evaluated."""

    __slots__ = ("_elements", "_key", "_size", "_states")

    def __init__(self, elements: Elements, key: CacheKey, states: StateWindows, size: int) -> None:
        self._elements = elements
        self._key = key
        self._states = states
        self._size = size

    def __iter__(self) -> Iterator[Any]:
        return self._elements.chunks(self._key, self._states)

    def __len__(self) -> int:
        return self._size
