"""State of windows with user functions: accumulators, elements, and merging window sets.

Accumulators are values that are replaced.  Elements are kept in chunks: recent ones in memory,
older ones in the store, where they are only appended to; a large window is read chunk by chunk when
its function iterates over it, so it need not fit into memory.

A window has one state window or, after merging, several, in order of its elements.

Layout of elements: ``K`` entries under the window's name hold (number of chunks, number of elements
in them); under the name of another state and the number of the chunk (4 bytes), the pickled list.
Layout of merging window sets: one ``K`` entry per key, a pickled list of (window, its state
windows), as bytes.
Layout of windows that all keys share: ``T`` entries with the largest timestamp of the window and
the key, so that a window is read, and dropped, as one range.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream.errors import ProgramError
from millstream.functions.descriptors import StateDescriptor
from millstream.functions.window import TimeWindow
from millstream.functions.window_assigners import MergingWindowAssigner
from millstream.runtime.operators.windows.assignment import StateWindows, TimeSection
from millstream.state.key_codec import cache_key, decode_key, uncache_key
from millstream.state.namespaced_state import ABSENT, NamespacedValues
from millstream.state.serializers import dumps, dumps_all, load_stored, loads
from millstream.state.value_state import CachedValues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.functions.window import Window
    from millstream.state.key_codec import CacheKey, WindowCodec
    from millstream.state.key_context import Puts
    from millstream.state.keyed import KeyedState
    from millstream.state.namespaced_state import Slot


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
            self.insert(result, merge(result, parts, states) if parts else (codec.encode(result),))
        if not placed:
            self.insert(window, (codec.encode(window),))
        return actual

    def retire(self, window: Window) -> None:
        """Forget a window whose content is gone."""
        if window in self.windows:
            self._remove(window)

    def _groups(
        self, window: Any, assigner: MergingWindowAssigner[Any, Any]
    ) -> list[tuple[Any, list[Any]]]:
        """Return what is to be merged, as (result, windows): few with sessions, asked of others."""
        if self._ordered is None:
            collected = _Collected()
            assigner.merge_windows([*self.windows, window], collected)
            return collected.merges
        first = bisect_left(self._ordered, window.start, key=end_of)
        last = bisect_right(self._ordered, window.end, key=start_of)
        touched = self._ordered[first:last]
        if not touched:
            return []
        result = touched[0].cover(touched[-1]).cover(window)
        # The very object where nothing changes: it is known already.
        return [(touched[0] if touched[0] == result else result, [*touched, window])]

    def insert(self, window: Any, states: StateWindows) -> None:
        """Let a window be in flight that touches no other."""
        self.windows[window] = states
        if self._ordered is not None:
            insort(self._ordered, window)

    def _remove(self, window: Any) -> StateWindows:
        if self._ordered is not None:
            del self._ordered[bisect_left(self._ordered, window)]
        return self.windows.pop(window)


def start_of(window: TimeWindow | Session) -> int:
    """Return where a window begins."""
    return window.start


def end_of(window: TimeWindow | Session) -> int:
    """Return where a window ends."""
    return window.end


class _SetsDescriptor(StateDescriptor):
    """Of the sets, whichever way they are held in memory."""

    kind = "merging windows"


class MergingSets(CachedValues["CacheKey"]):
    """The merging window sets of all keys: a state like those of the user."""

    __slots__ = ("_codec", "_sessions")

    def __init__(self, keyed: KeyedState, codec: WindowCodec, *, sessions: bool) -> None:
        """Keep the sets in ``keyed``; ``sessions`` as for ``MergingWindowSet``."""
        super().__init__(keyed, _SetsDescriptor("\0windows.merging"))
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

    def encoder(self) -> Callable[[MergingWindowSet], bytes]:
        return self._encoded

    def _encoded(self, value: MergingWindowSet) -> bytes:
        encode = self._codec.encode
        entries = [(encode(window), states) for window, states in value.windows.items()]
        return dumps(entries) if entries else b""

    def decoded(self, key: CacheKey, stored: bytes | None) -> MergingWindowSet:
        del key
        entries = [] if stored is None else load_stored(stored)
        decode = self._codec.decode
        windows = {decode(window): states for window, states in entries}
        return MergingWindowSet(windows, sessions=self._sessions)


#: The sets of up to so many keys stay in memory for the next epoch.
_MOST_KEPT = 100_000


class Session:
    """A session in flight; its end is that of a window, excluded, in milliseconds."""

    __slots__ = ("end", "slot", "start", "states")

    def __init__(self, start: int, end: int, states: StateWindows, slot: Slot) -> None:
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
        super().__init__(keyed, _SetsDescriptor("\0windows.merging"))
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
        at = bisect_left(sessions, start, key=start_of)
        sessions.insert(at, self.make(key, start, end, states))
        self.dirty.add(key)

    def end_epoch(self) -> None:
        """Forget everything if it is much."""
        if len(self.cache) > _MOST_KEPT:
            self.cache.clear()

    def encoder(self) -> Callable[[list[Session]], bytes]:
        return self._encoded

    def _encoded(self, value: list[Session]) -> bytes:
        encode = self._codec.encode
        entries = [(encode(TimeWindow(each.start, each.end)), each.states) for each in value]
        return dumps(entries) if entries else b""

    def decoded(self, key: CacheKey, stored: bytes | None) -> list[Session]:
        if stored is None:
            return []
        decode = self._codec.decode
        windows = sorted((decode(window), states) for window, states in load_stored(stored))
        return [self.make(key, window.start, window.end, states) for window, states in windows]


#: Elements per chunk in the store.
_CHUNK: Final = 10_000
#: With more elements than this a window is iterated over instead of being made a list.
_MOST_LISTED: Final = 50_000
#: Content of up to so many elements is moved when windows merge; more stays where it is.
_MOST_MOVED: Final = 1_000
_NUMBER: Final = struct.Struct(">I")
#: Values that nobody can change in place.
_PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})


class _Descriptor(StateDescriptor):
    def __init__(self, name: str, kind: str, content: str | None) -> None:
        super().__init__(name)
        self.kind = kind
        self.type_info = content


class SnapshotState:
    """A state of windows that is written by flushes alone, and forgotten with the micro-batch."""

    cached = 0
    weight = 0
    #: Nothing is written in small portions: each would make a chunk of its own.
    unwritten = 0

    def __init__(self, keyed: KeyedState, name: str, kind: str, content: str | None = None) -> None:
        """Keep the state in ``keyed``, under a name; ``content`` is for people."""
        self.keyed = keyed
        self.descriptor: StateDescriptor = _Descriptor(name, kind, content)
        self.index = -1
        keyed.add_state(self)

    def section(self, letter: bytes) -> TimeSection:
        """Return where the store has entries that are ordered by time."""
        return TimeSection(letter, self.index)

    def prefetch(self, keys: set[CacheKey]) -> None:
        """Do nothing: which windows are wanted is not known."""

    @abstractmethod
    def flush(self, puts: Puts, deletes: list[bytes]) -> None:
        """Add what has changed to ``puts`` and ``deletes``."""

    def flush_some(self, most: int, puts: Puts, deletes: list[bytes]) -> None:
        """Write nothing."""

    def age(self) -> dict[Any, Any]:
        """Keep what there is."""
        return {}

    def end_epoch(self) -> None:
        """Forget everything."""
        self.forget()

    @abstractmethod
    def forget(self) -> None:
        """Drop everything held in memory."""


# -- content of windows that are kept by key ---


class Accumulators:
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
        """Return how many accumulators are in memory."""
        return self._values.cached

    def _read(self, slot: Slot) -> Any:
        accumulator = self._values.get(slot)
        if slot in self._emitted:
            self._emitted.discard(slot)
            if type(accumulator) not in _PLAIN and accumulator is not ABSENT:
                accumulator = loads(dumps(accumulator))
        return accumulator

    def add(self, key: CacheKey, states: StateWindows, value: Any, timestamp: int) -> None:
        """Fold an element in."""
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
        """Return the accumulator, ABSENT if there is none."""
        return self._values.get((key, states[0]))

    def clear(self, key: CacheKey, states: StateWindows) -> None:
        """Remove the accumulator."""
        slot = (key, states[0])
        self._emitted.discard(slot)
        self._values.put(slot, ABSENT)

    def put(self, key: CacheKey, states: StateWindows, content: Any) -> None:
        """Let this be the accumulator."""
        self._values.put((key, states[0]), content)

    def merge(self, key: CacheKey, parts: Sequence[StateWindows]) -> StateWindows:
        """Merge the accumulators of windows into that of the first; return its state windows."""
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
        """Read the accumulators of ``slots`` in one go."""
        self._values.prefetch_slots(slots)

    def emitted(self, key: CacheKey, states: StateWindows) -> None:
        """Copy the accumulator before it is changed the next time."""
        self._emitted.add((key, states[0]))


class Elements(SnapshotState):
    """The elements of each key and window, in order.

    Invariant: of a slot the store holds as many chunks as its header says, numbered from 0, apart
    from those in ``_gone``; what comes after them is in ``_tails``.
    """

    def __init__(self, keyed: KeyedState, *, timestamps: bool) -> None:
        """Keep elements in ``keyed``, as (element, timestamp) if ``timestamps``."""
        super().__init__(keyed, "\0windows.elements", "window elements")
        self._timestamps = timestamps
        self._headers = NamespacedValues(keyed, "\0windows.chunks")
        self._tails: dict[Slot, list[Any]] = {}
        self._gone: list[bytes] = []
        keyed.add_state(self._headers)  # after the chunks, whose flush changes headers

    def add(self, key: CacheKey, states: StateWindows, value: Any, timestamp: int) -> None:
        """Append an element."""
        slot = (key, states[-1])
        item = (value, timestamp) if self._timestamps else value
        self.cached += 1
        try:
            self._tails[slot].append(item)
        except KeyError:
            self._tails[slot] = [item]

    def adder(self) -> Callable[[Slot, Any, int], None]:
        """Return what appends an element, with all it needs available."""

        def add(slot: Slot, value: Any, timestamp: int) -> None:
            self.cached += 1
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
            self.cached += len(content)

    def clear(self, key: CacheKey, states: StateWindows) -> None:
        """Remove all elements."""
        for namespace in states:
            slot = (key, namespace)
            self.cached -= len(self._tails.pop(slot, ()))
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
            self.cached += len(items)
        return tuple(merged)

    def emitted(self, key: CacheKey, states: StateWindows) -> None:
        """Do nothing: lists are copied when they are read."""

    def prefetch_slots(self, slots: Sequence[Slot]) -> None:
        """Read how much the store has of ``slots``."""
        self._headers.prefetch_slots(slots)

    def chunks(self, key: CacheKey, states: StateWindows) -> Iterator[Any]:
        """Iterate over all elements, reading one chunk after the other."""
        for namespace in states:
            slot = (key, namespace)
            for name in self._chunk_names(slot, self._header(slot)[0]):
                stored = self.keyed.store.get(name)
                if stored is None:
                    message = f"a chunk of the elements of window {namespace!r} is missing"
                    raise RuntimeError(message)
                yield from load_stored(stored)
            yield from self._tails.get(slot, ())

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
        self.cached = 0

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


#: Content of windows that are kept by key.
Contents: TypeAlias = Accumulators | Elements


# -- content of windows that all keys share ---


class _AlignedWindow(CachedValues["CacheKey"]):
    """The accumulators of one window, or what was added to its lists since they were written.

    Invariant: if ``is_whole``, all that there is of accumulators is in memory.
    """

    __slots__ = ("is_stored", "is_whole", "number", "prefix")

    absent = ABSENT

    def __init__(
        self, keyed: KeyedState, descriptor: StateDescriptor, number: int, prefix: bytes
    ) -> None:
        super().__init__(keyed, descriptor)
        self.number = number
        self.prefix = prefix
        self.is_stored = False
        self.is_whole = True

    def names(self, keys: list[CacheKey]) -> list[bytes]:
        prefix = self.prefix
        # Key group, length and key stand there as in names by key.
        return [prefix + name[1:3] + name[5:] for name in self.keyed.store_keys(0, keys)]

    def fetch(self, keys: Iterable[CacheKey]) -> None:
        """Have the accumulators of ``keys`` in memory, of those that have one."""
        missing = self.missing(keys)
        if missing and not self.is_whole:
            stored = self.keyed.store.get_many(self.names(missing))
            for key, content in zip(missing, stored, strict=True):
                if content is not None:
                    self.cache[key] = load_stored(content)

    def age(self) -> dict[Any, Any]:
        self.is_whole = self.is_whole and not self.old
        return super().age()

    def _add(self, keys: list[CacheKey], puts: Puts, deletes: list[bytes]) -> None:
        del deletes
        # A key whose first element has failed is without an accumulator.
        keys = [key for key in keys if key in self.cache]
        contents = dumps_all([self.cache[key] for key in keys])
        self.measure(contents)
        puts.extend(sorted(zip(self.names(keys), contents, strict=True)))
        self.is_stored = self.is_stored or bool(keys)


#: Where the key stands in a name, and the length of the number of the flush after that of lists.
_KEY_AT: Final = 17
_CHUNK_SIZE: Final = 8


class AlignedContents(SnapshotState):
    """Accumulators or lists of elements, by window, then key."""

    def __init__(self, keyed: KeyedState, content: str, *, lists: bool) -> None:
        """Keep lists of elements if ``lists``, else one accumulator per key and window."""
        if lists:
            super().__init__(keyed, "\0windows.aligned elements", "elements of windows", content)
        else:
            super().__init__(keyed, "\0windows.aligned", "accumulators of windows", content)
        self._lists = lists
        self._windows: dict[int, _AlignedWindow] = {}
        self._stored: set[int] = set()

    def begin_epoch(self) -> set[int]:
        """Return the windows that have state in the store, which was restored."""
        self._stored = set(self.section(b"T").times(self.keyed.store))
        return self._stored

    def of_window(self, window: int) -> _AlignedWindow:
        """Return what is in memory for the window."""
        found = self._windows.get(window)
        if found is None:
            prefix = self.section(b"T").prefix(window)
            found = _AlignedWindow(self.keyed, self.descriptor, window, prefix)
            found.is_stored = window in self._stored
            found.is_whole = not found.is_stored
            self._windows[window] = found
        return found

    def change(self, window: int, keys: Iterable[CacheKey]) -> dict[CacheKey, Any]:
        """Return what there is of ``keys``, with others; it may be changed until the next flush."""
        found = self.of_window(window)
        if not self._lists:
            wanted = set(keys)
            found.dirty |= wanted
            found.fetch(wanted)
        return found.cache

    def put(self, key: CacheKey, window: int, content: Any) -> None:
        """Let an accumulator, or a list of elements, be the content of a new window."""
        self.change(window, [key])[key] = content

    def content(self, window: int) -> Iterator[tuple[Any, Any]]:
        """Yield key and accumulator (or list) of every key of the window."""
        found = self.of_window(window)
        held = {**found.old, **found.cache} if found.old else found.cache
        if found.is_stored and self._lists:
            held = held.copy()
            yield from self._stored_lists(found, held)
        elif not found.is_whole:
            for name, content in self._scan(found):
                key = decode_key(name[_KEY_AT:])
                if cache_key(key) not in held:
                    yield key, load_stored(content)
        if bytes not in set(map(type, held)):  # the keys themselves
            yield from held.items()
            return
        for short, content in held.items():
            yield uncache_key(short), content

    def _scan(self, window: _AlignedWindow) -> Iterator[tuple[bytes, bytes]]:
        after = self.section(b"T").after(window.number)
        return self.keyed.store.scan(window.prefix, after)

    def _stored_lists(
        self, window: _AlignedWindow, added: dict[CacheKey, list[Any]]
    ) -> Iterator[tuple[Any, list[Any]]]:
        """Yield keys that have stored elements, with what was added since, which is taken out."""
        before, elements = b"", list[Any]()
        for name, content in chain(self._scan(window), [(b"", b"")]):
            head = name[:-_CHUNK_SIZE]
            if head != before:
                if before:
                    key = decode_key(before[_KEY_AT:])
                    elements += added.pop(cache_key(key), ())
                    yield key, elements
                before, elements = head, []
            if content:
                elements += load_stored(content)

    def one(self, window: int, key: CacheKey) -> Any:
        """Return the accumulator (or list) of one key that was just changed."""
        found = self.of_window(window)
        if not self._lists:
            return found.cache[key]
        chunks = self.keyed.scan_prefix(found.names([key])[0])
        return [
            *chain.from_iterable(load_stored(each) for _, each in chunks),
            *found.cache.get(key, ()),
        ]

    def drop(self, window: int) -> None:
        """Forget the window."""
        found = self._windows.pop(window, None)
        if window in self._stored or (found is not None and found.is_stored):
            self._stored.discard(window)
            section = self.section(b"T")
            self.keyed.store.delete_range(section.prefix(window), section.after(window))

    # What every state has for the flush.

    @property
    def cached(self) -> int:  # type: ignore[override] # of all windows
        return sum(window.cached for window in self._windows.values())

    @property
    def weight(self) -> int:  # type: ignore[override] # as above
        """Return how many bytes the younger generation takes, roughly; lists are not counted."""
        return 0 if self._lists else sum(window.weight for window in self._windows.values())

    @property
    def unwritten(self) -> int:  # type: ignore[override] # as above
        """Return how many accumulators can be written before a snapshot."""
        return sum(window.unwritten for window in self._windows.values())

    def flush(self, puts: Puts, deletes: list[bytes]) -> None:
        """Write what has changed; accumulators stay in memory, lists do not."""
        for window in self._windows.values():
            found: Puts = []
            if self._lists:
                keys = list(window.cache)
                chunk = self.keyed.next_chunk
                names = [name + chunk for name in window.names(keys)]
                contents = dumps_all(list(window.cache.values()))
                found.extend(zip(names, contents, strict=True))
            else:
                window.flush(found, deletes)
            if found:
                self._stored.add(window.number)
                puts.extend(found)
        if self._lists:
            self._windows.clear()

    def flush_some(self, most: int, puts: Puts, deletes: list[bytes]) -> None:
        if self._windows:
            largest = max(self._windows.values(), key=lambda window: window.unwritten)
            largest.flush_some(most, puts, deletes)
            self._stored.add(largest.number)

    def age(self) -> dict[Any, Any]:
        return {number: window.age() for number, window in self._windows.items()}

    def forget(self) -> None:
        self._windows.clear()
