"""The state of windows with user-written functions: an accumulator or a list per key and window.

What it is: a dictionary per window over ``T`` entries of the store, so that firing a window is one
range scan.  Accumulators are read by one multi-get per batch and window and replaced; where tasks
live on they stay in memory in two generations, as in ``state/generations.py``.  Lists are
append-only: every epoch adds one entry per key that got elements, and nothing is read before the
window fires.

What it is not: shared with user state (``state/keyed.py``).

Layout: ``T`` + index + max_timestamp + key group (2) + length of key (4) + encoded key, and for
lists + epoch (8) + CRC-32 of the attempt (4), so that entries of one key stay in order of epochs.

Read next: ``runtime/operators/windows/aligned.py``.
"""

from __future__ import annotations

import struct
import zlib
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.runtime.operators.windows.clock import ACCUMULATOR_INDEX, TimeSection
from millstream.state.key_codec import (
    INT,
    INT_TAG,
    cache_key,
    decode_key,
    encode_key,
    uncache_key,
)
from millstream.state.key_groups import key_group_of_cache_key, key_groups_of_ints
from millstream.state.registry import WINDOW_ACCUMULATORS, WINDOW_LISTS, StoreNotes
from millstream.state.rewriting import scan_in_steps
from millstream.state.serializers import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.operator import StateSection
    from millstream.state.key_codec import CacheKey

__all__ = ["WindowAccumulators"]


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
        """How many entries can be written ahead; no lists, each of whose entries is one more."""
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
        """How many bytes the younger generation takes, roughly; lists are not counted."""
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
