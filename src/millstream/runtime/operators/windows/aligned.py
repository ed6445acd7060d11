"""Tumbling and sliding event-time windows with user functions, and their accumulators.

Flink's semantics: a record is added to each of its windows; a window fires for all keys when the
watermark reaches its largest timestamp, which is also the timestamp of its results; within the
allowed lateness a late record fires its window again at once; later records go to the late side
output or are counted.

A batch is cut by window, because windows do not depend on each other; each part is then added in
one tight loop.
"""

from __future__ import annotations

import struct
import time
import zlib
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from millstream.runtime.operators.base import (
    LONGEST_BATCH,
    PLAIN_KEY_TYPES,
    Collector,
    KeyedOperator,
    store_of,
)
from millstream.runtime.operators.windows.assignment import (
    ACCUMULATOR_INDEX,
    TimeSection,
    WindowClock,
    check_timestamps,
    drop_late,
)
from millstream.runtime.operators.windows.logic import make_logic
from millstream.runtime.operators.windows.state_migration import (
    Adoption,
    aligned_section,
    stored_section,
)
from millstream.runtime.user_code import user_error
from millstream.state import keyed
from millstream.state.key_codec import (
    INT,
    INT_TAG,
    WindowCodec,
    cache_key,
    decode_key,
    encode_key,
    key_group_of_cache_key,
    key_groups_of_ints,
    uncache_key,
)
from millstream.state.namespaced_state import ABSENT, NamespacedStates
from millstream.state.registry import WINDOW_ACCUMULATORS, WINDOW_LISTS, StoreNotes
from millstream.state.rescale import scan_in_steps
from millstream.state.serializers import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.operator import (
        Checkpoint,
        OperatorSnapshot,
        RestoreContext,
        StateSection,
    )
    from millstream.functions.window import TimeWindow
    from millstream.functions.windows import FixedEventTimeWindows
    from millstream.runtime.operators.windows.logic import WindowSpec
    from millstream.state.key_codec import CacheKey


_REST: Final = struct.Struct(">HI")
_INT_REST: Final = struct.Struct(">HIBq")
_SEQUENCE: Final = struct.Struct(">QI")
_KEY_AT: Final = 11 + _REST.size
_MOST_DELETED: Final = 4096
#: What an accumulator takes in memory, roughly: by itself, and for each byte that it is stored in.
_PER_ENTRY: Final = 250
_PER_BYTE: Final = 4


class WindowAccumulators:
    """Accumulators (or lists) by window and key.

    Invariant: what differs from the store is in ``_windows``; of accumulators, ``_dirty`` has its
    keys.
    Invariant: of the windows in ``_whole`` all that there is is in memory.
    """

    __slots__ = (
        "_dirty",
        "_lists",
        "_max_parallelism",
        "_measured",
        "_measured_bytes",
        "_notes",
        "_old",
        "_section",
        "_sequence",
        "_store",
        "_stored",
        "_whole",
        "_windows",
    )

    def __init__(self, max_parallelism: int, record: StateSection, *, lists: bool) -> None:
        """Keep lists of elements if ``lists``, else one accumulator per key and window."""
        self._notes = StoreNotes(WINDOW_LISTS if lists else WINDOW_ACCUMULATORS, record)
        self._max_parallelism = max_parallelism
        self._lists = lists
        self._section = TimeSection(b"T", ACCUMULATOR_INDEX)
        self._windows: dict[int, dict[CacheKey, Any]] = {}
        #: What was not used of late.
        self._old: dict[int, dict[CacheKey, Any]] = {}
        self._dirty: dict[int, set[CacheKey]] = {}
        self._whole: set[int] = set()
        self._stored: set[int] = set()
        self._measured = 1
        self._measured_bytes = 0

    def begin_epoch(self, store: KeyValueStore, epoch: int, attempt: str) -> set[int]:
        """Take the restored store; return the windows that have state in it."""
        self._store = store
        self._notes.begin_epoch(store)
        self.forget()
        self.go_on(epoch, attempt)
        self._stored = set(self._section.times(store))
        return self._stored

    def go_on(self, epoch: int, attempt: str) -> None:
        """Write what comes next under the names of another epoch."""
        self._sequence = _SEQUENCE.pack(epoch, zlib.crc32(attempt.encode()))

    def of_window(self, window: int) -> dict[CacheKey, Any]:
        """Return what is in memory for the window; see ``change``."""
        found = self._windows.get(window)
        if found is None:
            found = self._windows[window] = {}
            if window not in self._stored:
                self._whole.add(window)
        return found

    def change(self, window: int, keys: Iterable[CacheKey]) -> dict[CacheKey, Any]:
        """Return what there is of ``keys``, with others; it may be changed until the next flush.

        Accumulators that are not in memory are read by one multi-get.
        """
        cached = self.of_window(window)
        if self._lists:
            return cached
        wanted = set(keys)
        try:
            self._dirty[window] |= wanted
        except KeyError:
            self._dirty[window] = set(wanted)
        missing = wanted.difference(cached) if cached else wanted
        old = self._old.get(window)
        if old and missing:
            found = missing & old.keys()
            cached.update((key, old[key]) for key in found)
            missing = missing - found
        if not missing or window in self._whole or window not in self._stored:
            return cached
        unread = list(missing)
        names = self._names(window, unread)
        for key, stored in zip(unread, self._store.get_many(names), strict=True):
            if stored is not None:
                cached[key] = loads(stored)
        return cached

    def content(self, window: int) -> Iterator[tuple[Any, Any]]:
        """Yield key and accumulator (or list) of every key of the window."""
        cached = self._in_memory(window)
        if window not in self._stored or window in self._whole:
            if bytes not in set(map(type, cached)):  # the keys themselves
                yield from cached.items()
                return
            for key, accumulator in cached.items():
                yield uncache_key(key), accumulator
        elif self._lists:
            yield from self._merged_lists(window, cached)
        else:
            for encoded, stored in self._scan(window):
                key = cache_key(decode_key(encoded))
                if key not in cached:
                    yield uncache_key(key), loads(stored)
            for key, accumulator in cached.items():
                yield uncache_key(key), accumulator

    def _in_memory(self, window: int) -> dict[CacheKey, Any]:
        young, old = self._windows.get(window, {}), self._old.get(window)
        return {**old, **young} if old else young

    def one(self, window: int, key: CacheKey) -> Any:
        """Return the accumulator (or list) of one key that was just changed."""
        cached = self._windows.get(window, {})
        if not self._lists or window not in self._stored:
            return cached[key]
        start = self._list_prefix(window, key)
        stop = start + b"\xff" * (_SEQUENCE.size + 1)
        elements: list[Any] = []
        for _name, stored in self._store.scan(start, stop):
            elements.extend(loads(stored))
        elements.extend(cached.get(key, ()))
        return elements

    def drop(self, window: int) -> None:
        """Forget the window."""
        self._windows.pop(window, None)
        self._old.pop(window, None)
        self._dirty.pop(window, None)
        self._whole.discard(window)
        if window in self._stored:
            self._stored.discard(window)
            self._store.delete_range(self._section.prefix(window), self._section.after(window))

    def drop_lists(self, store: KeyValueStore) -> None:
        """Remove elements, where accumulators were made of them and put beside them."""
        gone: list[bytes] = []
        for name, _ in scan_in_steps(store, *self._section.everything()):
            _group, length = _REST.unpack_from(name, 11)
            if len(name) > _KEY_AT + length:
                gone.append(name)
            if len(gone) >= _MOST_DELETED:
                store.write([], gone)
                gone = []
        store.write([], gone)

    def flush(self) -> None:
        """Write what has changed; accumulators stay in memory."""
        if not self._lists:
            self.flush_some(self.unwritten)
            return
        for window, cached in self._windows.items():
            if cached:
                self._notes.write()
                self._stored.add(window)
                names = self._names(window, list(cached), self._sequence)
                self._store.write(zip(names, map(dumps, cached.values()), strict=True))
        self._windows = {}
        self._whole.clear()

    @property
    def unwritten(self) -> int:
        """Return how many accumulators can be written before a snapshot."""
        return sum(map(len, self._dirty.values()))

    def flush_some(self, most: int) -> None:
        """Write at most so many accumulators that have changed."""
        for window in list(self._dirty):
            dirty = self._dirty[window]
            keys = list(islice(dirty, most))
            dirty.difference_update(keys)
            if not dirty:
                del self._dirty[window]
            if keys:
                self._write(window, keys)
            most -= len(keys)
            if most <= 0:
                return

    def _write(self, window: int, keys: list[CacheKey]) -> None:
        self._notes.write()
        self._stored.add(window)
        cached = self._windows[window]
        # A key whose first element has failed is without an accumulator.
        keys = [key for key in keys if key in cached]
        values = [dumps(cached[key]) for key in keys]
        self._measured += len(values)
        self._measured_bytes += sum(map(len, values))
        self._store.write(sorted(zip(self._names(window, keys), values, strict=True)))

    @property
    def weight(self) -> int:
        """Return how many bytes the younger generation takes, roughly; lists are not counted."""
        if self._lists:
            return 0
        size = _PER_ENTRY + _PER_BYTE * self._measured_bytes // self._measured
        return sum(map(len, self._windows.values())) * size

    def age(self) -> None:
        """Write what has changed, let what is young be old and forget what was old."""
        self.flush()
        if self._lists:
            return
        for window, gone in self._old.items():
            if gone:
                self._whole.discard(window)
        self._old, self._windows = self._windows, {}

    def forget(self) -> None:
        """Drop everything held in memory."""
        self._windows, self._old, self._dirty = {}, {}, {}
        self._whole = set()

    def _name(self, window: int, key: CacheKey) -> bytes:
        encoded = key if type(key) is bytes else encode_key(key)
        group = key_group_of_cache_key(key, self._max_parallelism)
        return self._section.prefix(window) + _REST.pack(group, len(encoded)) + encoded

    _list_prefix = _name

    def _names(self, window: int, keys: list[CacheKey], suffix: bytes = b"") -> list[bytes]:
        """``_name`` of many keys at once."""
        if set(map(type, keys)) == {int}:
            try:
                numbers = np.array(keys, dtype=np.int64)
            except OverflowError:
                pass
            else:
                groups = key_groups_of_ints(numbers, self._max_parallelism).tolist()
                prefix, pack, size = self._section.prefix(window), _INT_REST.pack, INT.size
                return [
                    prefix + pack(group, size, INT_TAG, key) + suffix
                    for group, key in zip(groups, keys, strict=True)
                ]
        return [self._name(window, key) + suffix for key in keys]

    def _scan(self, window: int) -> Iterator[tuple[bytes, bytes]]:
        """Encoded key and value of every entry of the window."""
        section = self._section
        for name, stored in self._store.scan(section.prefix(window), section.after(window)):
            _group, length = _REST.unpack_from(name, 11)
            yield name[_KEY_AT : _KEY_AT + length], stored

    def _merged_lists(
        self, window: int, cached: dict[CacheKey, Any]
    ) -> Iterator[tuple[Any, list[Any]]]:
        seen: set[CacheKey] = set()
        previous: bytes | None = None
        elements: list[Any] = []
        for encoded, stored in self._scan(window):
            if encoded != previous:
                if previous is not None:
                    yield self._finished(previous, elements, cached, seen)
                previous, elements = encoded, []
            elements.extend(loads(stored))
        if previous is not None:
            yield self._finished(previous, elements, cached, seen)
        for key, rest in cached.items():
            if key not in seen:
                yield uncache_key(key), rest

    @staticmethod
    def _finished(
        encoded: bytes, elements: list[Any], cached: dict[CacheKey, Any], seen: set[CacheKey]
    ) -> tuple[Any, list[Any]]:
        original = decode_key(encoded)
        key = cache_key(original)
        seen.add(key)
        elements.extend(cached.get(key, ()))
        return original, elements


#: Accumulators that are written ahead of a snapshot in one go.
_WRITTEN_AT_ONCE: Final = 500
#: Keys of a window that are evaluated before results are sent on.
_KEYS_AT_ONCE: Final = 8192


class WindowOperator(KeyedOperator):
    """Windows with a reduce, aggregate, window or process-window function."""

    counted: ClassVar[Mapping[str, str]] = {
        **KeyedOperator.counted,
        "numLateRecordsDropped": "late_dropped",
    }

    def __init__(
        self,
        assigner: FixedEventTimeWindows,
        spec: WindowSpec,
        key_selector: Any,
        allowed_lateness: int = 0,
        late_tag: str | None = None,
    ) -> None:
        """Take what the API collected; the lateness is in milliseconds."""
        super().__init__(spec, key_selector)  # copies the functions within the spec
        self.section = aligned_section(assigner, spec)
        self._spec: WindowSpec = self.function
        self._assigner = assigner
        self._lateness = allowed_lateness
        self._late_tag = late_tag
        self._clock = WindowClock(allowed_lateness)
        self._logic = make_logic(self.function, self)
        self._collector = Collector(self, self.emit)
        self.late_dropped = 0

    def user_functions(self) -> Iterable[object]:
        return (*self._logic.functions, *self.extractor.functions)

    def open(self) -> None:
        """Make the state, then open the functions."""
        self._accumulators = WindowAccumulators(
            self.context.max_parallelism, self.section, lists=self._logic.lists
        )
        self._window_states = NamespacedStates(self.keyed_state, "windows.function")
        self._codec = WindowCodec()
        super().open()

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._store = store_of(restored)
        stored = stored_section(self._store, self.section)
        if stored is not None:
            self._adopt(stored, restored.watermark)
        windows = self._accumulators.begin_epoch(self._store, restored.epoch, restored.attempt)
        self._clock.restore(restored.watermark, windows)
        self.processing_time = restored.processing_time

    def _adopt(self, stored: StateSection, watermark: int) -> None:
        """Keep the windows that another operator kept."""
        store, own, context, fold = self._store, self.section, self.context, self._logic.fold
        declared = (self._assigner, self._spec)
        adoption = Adoption(stored, own, store, watermark, declared, context, fold)
        accumulators = self._accumulators
        accumulators.begin_epoch(self._store, 0, "")  # nothing written from now on has these names
        for number, (key, window, content) in enumerate(adoption.windows()):
            if content is not ABSENT:
                accumulators.change(window.max_timestamp(), [key])[key] = content
            if number % _KEYS_AT_ONCE == 0:
                accumulators.flush()
                accumulators.forget()
        accumulators.flush()
        if stored.layout == self.section.layout:
            accumulators.drop_lists(self._store)
        else:
            adoption.source.drop()
        adoption.drop_timers()
        adoption.drop_states("\0windows.trigger:")
        adoption.finish(self.section)

    def process_processing_time(self, now: int) -> None:
        super().process_processing_time(now)
        self.processing_time = now

    @property
    def watermark(self) -> int:
        """The operator's event time, in milliseconds."""
        return self._clock.watermark

    def window_state(self, window: TimeWindow) -> NamespacedStates:
        """Return state of the current key and ``window``."""
        self._window_states.slot = (self.keyed_state.cache_key, self._codec.encode(window))
        return self._window_states

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        count = len(batch)
        if not count:
            return
        self.records_in += count
        timestamps = batch.timestamp_array
        check_timestamps(self, timestamps)
        keys = self.extractor.keys(batch, self.context)
        cache_keys: list[CacheKey] = (
            keys if set(map(type, keys)) <= PLAIN_KEY_TYPES else list(map(cache_key, keys))
        )
        values = batch.values
        accepted: NDArray[np.bool_] | None = None
        for window, positions in pieces(self._assigner, timestamps):
            if self._clock.is_late(window):
                continue
            if isinstance(positions, slice):
                self._add(window, cache_keys, values)
                return  # all records are in this one window
            picked = positions.tolist()
            self._add(window, [cache_keys[i] for i in picked], [values[i] for i in picked])
            if accepted is None:
                accepted = np.zeros(count, dtype=np.bool_)
            accepted[positions] = True
        late = np.arange(count) if accepted is None else np.flatnonzero(~accepted)
        if len(late):
            self._late(batch, late)

    def process_watermark(self, watermark: int) -> None:
        """Fire and clean up the windows that are due, then pass the watermark on."""
        for window, is_firing in self._clock.advance(watermark):
            if is_firing:
                self._fire(window, self._accumulators.content(window))
                self._collector.flush()
            else:
                self._clean_up(window)
        self.output.emit_watermark(watermark)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        """Write the state through; continue in entries that the next epoch writes."""
        self._accumulators.flush()
        if checkpoint.next_attempt is not None:
            self._accumulators.go_on(checkpoint.epoch + 1, checkpoint.next_attempt)
        else:
            self._accumulators.forget()
        return super().snapshot(checkpoint)

    def write_some(self, deadline: float) -> bool:
        """Write accumulators that have changed, then the states of the function."""
        accumulators = self._accumulators
        while accumulators.unwritten > keyed.MOST_UNWRITTEN and not self._store.is_busy:
            accumulators.flush_some(_WRITTEN_AT_ONCE)
            if time.monotonic() >= deadline:
                return True
        return super().write_some(deadline)

    def _bound_memory(self) -> None:
        """Keep what is in memory after snapshots within what there is for it."""
        state = self.keyed_state
        if state.is_used_behind_snapshots and self._accumulators.weight > state.share:
            self._accumulators.age()

    def _add(self, window: int, keys: list[CacheKey], values: list[Any]) -> None:
        self._clock.open(window)
        self._bound_memory()
        accumulators = self._accumulators.change(window, keys)
        if self._clock.has_fired(window):
            self._add_and_fire(window, accumulators, keys, values)
            return
        position = len(keys)  # the logic's iterator tells how far it came
        iterator = iter(values)
        try:
            self._logic.add_all(accumulators, keys, iterator)
        except Exception as error:
            position -= length_hint(iterator) + 1
            if position < 0:  # none was taken yet
                raise user_error(
                    self.context, error, doing="making an accumulator for a window"
                ) from error
            raise self._failed(error, values[position], keys[position]) from error

    def _add_and_fire(
        self,
        window: int,
        accumulators: dict[CacheKey, Any],
        keys: list[CacheKey],
        values: list[Any],
    ) -> None:
        """Late but allowed: every record fires its window again.

        The accumulator is copied first: what was emitted from it may not be sent yet.
        """
        for key, value in zip(keys, values, strict=True):
            so_far = accumulators.get(key, ABSENT)
            if so_far is not ABSENT and not self._logic.lists:
                accumulators[key] = loads(dumps(so_far))
            try:
                self._logic.add_all(accumulators, [key], iter([value]))
            except Exception as error:
                raise self._failed(error, value, key) from error
            content = self._accumulators.one(window, key)
            self._fire(window, [(uncache_key(key), content)])
        self._collector.flush()

    def _fire(self, window: int, content: Iterable[tuple[Any, Any]]) -> None:
        """Evaluate the window for each (key, accumulator or list)."""
        time_window = self._assigner.window_of_end(window)
        rest = iter(content)
        while some := list(islice(rest, _KEYS_AT_ONCE)):
            self._logic.evaluate_all(some, time_window, self._collector)
            if len(self._collector.values) >= LONGEST_BATCH:
                self._collector.flush()

    def _clean_up(self, window: int) -> None:
        if self._logic.clears:
            time_window = self._assigner.window_of_end(window)
            for key, _accumulated in self._accumulators.content(window):
                try:
                    self._logic.clear(key, time_window)
                except Exception as error:
                    raise user_error(
                        self.context, error, doing=f"clearing {time_window}", key=key
                    ) from error
        self._accumulators.drop(window)

    def _late(self, batch: Batch, positions: NDArray[np.int64]) -> None:
        self.late_dropped += drop_late(
            self, batch, positions, self.watermark - self._lateness, self._late_tag
        )

    def _failed(self, error: Exception, value: object, key: CacheKey) -> Exception:
        return user_error(
            self.context, error, value, doing="adding to a window the", key=uncache_key(key)
        )


def pieces(
    assigner: FixedEventTimeWindows, timestamps: NDArray[np.int64]
) -> Iterator[tuple[int, slice | NDArray[np.int64]]]:
    """Cut a batch by window, in order of time: (largest timestamp, positions in the batch).

    A slice means: all records, and there is no other window.
    """
    starts = assigner.last_starts(timestamps)
    last = assigner.size - 1
    if assigner.slide == assigner.size:
        first = int(starts[0])
        if bool((starts == first).all()):
            yield first + last, slice(None)
            return
        yield from ((start + last, found) for start, found in _groups(starts, None))
        return
    found: list[tuple[int, NDArray[np.int64]]] = []
    for step in range(assigner.overlap):
        shifted = starts - step * assigner.slide
        inside = np.flatnonzero(shifted + assigner.size > timestamps)
        found.extend(_groups(shifted[inside], inside))
    by_window: dict[int, list[NDArray[np.int64]]] = {}
    for start, positions in found:
        by_window.setdefault(start + last, []).append(positions)
    for window in sorted(by_window):
        parts = by_window[window]
        yield window, parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))


def _groups(
    starts: NDArray[np.int64], positions: NDArray[np.int64] | None
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Positions of equal values, in order of value, each in order of the batch."""
    if not len(starts):
        return
    order = np.argsort(starts, kind="stable")
    ordered = starts[order]
    bounds = np.flatnonzero(np.diff(ordered)) + 1
    if positions is not None:
        order = positions[order]
    firsts = [0, *bounds.tolist()]
    for first, part in zip(firsts, np.split(order, bounds), strict=True):
        yield int(ordered[first]), part
