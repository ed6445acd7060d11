"""The state of windows with user-written functions: an accumulator or a list per key and window.

What it is: a dictionary per window for the epoch, over ``T`` entries of the store, so that firing
a window is one range scan.  Accumulators are read by one multi-get per batch and window and
replaced; lists are append-only: every epoch adds one entry per key that got elements, and nothing
is read before the window fires.

What it is not: shared with user state (``state/keyed.py``).

Layout: ``T`` + index + max_timestamp + key group (2) + length of key (4) + encoded key, and for
lists + epoch (8) + CRC-32 of the attempt (4), so that entries of one key stay in order of epochs.

Read next: ``runtime/operators/windows/aligned.py``.
"""

from __future__ import annotations

import struct
import zlib
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
    from millstream.contracts.state_sections import StateSection
    from millstream.state.key_codec import CacheKey

__all__ = ["WindowAccumulators"]


_REST: Final = struct.Struct(">HI")
_INT_REST: Final = struct.Struct(">HIBq")
_SEQUENCE: Final = struct.Struct(">QI")
_KEY_AT: Final = 11 + _REST.size
_MOST_DELETED: Final = 4096


class WindowAccumulators:
    """Accumulators (or lists) by window and key."""

    __slots__ = (
        "_lists",
        "_max_parallelism",
        "_notes",
        "_section",
        "_sequence",
        "_store",
        "_stored",
        "_windows",
    )

    def __init__(self, max_parallelism: int, record: StateSection, *, lists: bool) -> None:
        """Keep lists of elements if ``lists``, else one accumulator per key and window."""
        self._notes = StoreNotes(WINDOW_LISTS if lists else WINDOW_ACCUMULATORS, record)
        self._max_parallelism = max_parallelism
        self._lists = lists
        self._section = TimeSection(b"T", ACCUMULATOR_INDEX)
        self._windows: dict[int, dict[CacheKey, Any]] = {}
        self._stored: set[int] = set()

    def begin_epoch(self, store: KeyValueStore, epoch: int, attempt: str) -> set[int]:
        """Take the restored store; return the windows that have state in it."""
        self._store = store
        self._notes.begin_epoch(store)
        self._sequence = _SEQUENCE.pack(epoch, zlib.crc32(attempt.encode()))
        self._windows = {}
        self._stored = set(self._section.times(store))
        return self._stored

    def of_window(self, window: int) -> dict[CacheKey, Any]:
        """Return what this epoch has in memory for the window; changes are written at flush."""
        return self._windows.setdefault(window, {})

    def prefetch(self, window: int, keys: Iterable[CacheKey]) -> None:
        """Read the accumulators of ``keys`` that are not in memory, by one multi-get."""
        if self._lists or window not in self._stored:
            return
        cached = self.of_window(window)
        missing = [key for key in set(keys) if key not in cached]
        if not missing:
            return
        names = self._names(window, missing)
        for key, stored in zip(missing, self._store.get_many(names), strict=True):
            if stored is not None:
                cached[key] = loads(stored)

    def content(self, window: int) -> Iterator[tuple[Any, Any]]:
        """Yield key and accumulator (or list) of every key of the window."""
        cached = self._windows.get(window, {})
        if window not in self._stored:
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

    def one(self, window: int, key: CacheKey) -> Any:
        """Return the accumulator (or list) of one key."""
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
        """Write what this epoch has in memory."""
        for window, cached in self._windows.items():
            if cached:
                self._notes.write()
                suffix = self._sequence if self._lists else b""
                names = self._names(window, list(cached), suffix)
                self._store.write(zip(names, map(dumps, cached.values()), strict=True))
        self._windows = {}

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
