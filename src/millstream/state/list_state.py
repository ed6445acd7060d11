"""List and map state: appended without being read, and stored entry by entry.

List: elements added since the last flush are written as one new chunk per key; ``get`` reads the
chunks of a key in order.  Chunk numbers come from a counter of the store that grows with every
flush, so a new chunk always sorts after the old ones.  Layout: ``K`` entries with the chunk number
(8 bytes, big-endian) after the key; the value is the list of elements (``state/value_codec.py``).

Map: iterating reads all entries of the key; reading or writing one entry reads at most that one.
Layout: ``K`` entries with the encoded map key after the key; values are as those of value state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.functions.handles import ListState, MapState
from millstream.state.key_codec import cache_key, encode_key, uncache_key
from millstream.state.value_codec import PICKLED
from millstream.state.value_state import Generations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.functions.descriptors import StateDescriptor
    from millstream.state.key_codec import CacheKey
    from millstream.state.key_context import KeyContext, Puts


#: What a list takes in memory beside its elements, roughly, and an element for each byte that it is
#: stored in.
_PER_LIST: Final = 250
_PER_BYTE: Final = 4
#: A list that was read and had more chunks than this is written back as one.
_MOST_CHUNKS: Final = 8


class KeyedListState(ListState[Any]):
    """One list per key.

    Invariant: ``_whole[key]``, if set, is the whole list; ``_added[key]`` is its part that is not
    yet in the store, unless the key is in ``_replaced``: then the store is to hold exactly
    ``_whole[key]``.
    """

    __slots__ = (
        "_added",
        "_chunks",
        "_elements",
        "_measured",
        "_measured_bytes",
        "_old",
        "_replaced",
        "_whole",
        "codec",
        "descriptor",
        "index",
        "keyed",
    )

    def __init__(self, keyed: KeyContext, descriptor: StateDescriptor) -> None:
        self.keyed = keyed
        self.descriptor = descriptor
        self.index = -1
        #: How values are written; set with the number.
        self.codec = PICKLED
        self._added: dict[CacheKey, list[Any]] = {}
        self._whole: dict[CacheKey, list[Any]] = {}
        #: The store keys of the chunks of a key, where they have been read.
        self._chunks: dict[CacheKey, list[bytes]] = {}
        self._replaced: set[CacheKey] = set()
        #: Whole lists that were not used of late, with their chunks; as the store has them.
        self._old: dict[CacheKey, tuple[list[Any], list[bytes]]] = {}
        #: Of the lists in ``_whole``, at most.
        self._elements = 0
        self._measured = 1
        self._measured_bytes = 0

    @property
    def cached(self) -> int:
        """How many lists are held in memory."""
        return len(self._added) + len(self._whole) + len(self._old)

    def get(self) -> list[Any]:
        return list(self._read())

    def _read(self) -> list[Any]:
        key = self.keyed.cache_key
        whole = self._recall(key)
        if whole is None:
            whole = []
            chunks = []
            for stored, content in self.keyed.scan_prefix(self.keyed.store_key(self.index, key)):
                chunks.append(stored)
                elements = self.codec.decode(content)
                whole.extend(elements)
                self._measure(elements, content)
            whole.extend(self._added.get(key, ()))
            self._elements += len(whole)
            self._whole[key] = whole
            self._chunks[key] = chunks
            if len(chunks) > _MOST_CHUNKS:
                self._replaced.add(key)
        return whole

    def add(self, value: Any) -> None:
        key = self.keyed.cache_key
        try:
            self._added[key].append(value)
        except KeyError:
            self._added[key] = [value]
        if key in self._whole or key in self._old:
            self._append(key, (value,))

    def add_all(self, values: Sequence[Any]) -> None:
        key = self.keyed.cache_key
        self._added.setdefault(key, []).extend(values)
        if key in self._whole or key in self._old:
            self._append(key, values)

    def _append(self, key: CacheKey, values: Sequence[Any]) -> None:
        """Add to the list in memory, which is all of it."""
        whole = self._recall(key)
        assert whole is not None  # noqa: S101 - the caller has looked
        whole.extend(values)
        self._elements += len(values)

    def update(self, values: Sequence[Any]) -> None:
        key = self.keyed.cache_key
        self._recall(key)  # for the names of its chunks
        self._whole[key] = whole = list(values)
        self._elements += len(whole)
        self._added.pop(key, None)
        self._replaced.add(key)

    def clear(self) -> None:
        self.update(())

    def prefetch(self, keys: set[CacheKey]) -> None:
        """Nothing: lists are read when they are asked for."""

    @property
    def weight(self) -> int:
        """How many bytes the younger generation of lists takes, roughly."""
        size = _PER_BYTE * self._measured_bytes // self._measured
        return len(self._whole) * _PER_LIST + self._elements * size

    @property
    def unwritten(self) -> int:
        """Nothing that could be written in small portions: each makes a chunk of its own."""
        return 0

    def flush_some(self, most: int, puts: Puts, deletes: list[bytes]) -> None:
        """Write nothing."""

    def flush(self, puts: Puts, deletes: list[bytes]) -> None:
        """Add what is new to ``puts`` and ``deletes``; lists that were read stay in memory."""
        keyed = self.keyed
        chunk = keyed.next_chunk
        replaced, self._replaced = self._replaced, set()
        for key in replaced:
            prefix = keyed.store_key(self.index, key)
            known = self._chunks.get(key)
            deletes.extend(
                known if known is not None else [stored for stored, _ in keyed.scan_prefix(prefix)]
            )
            self._chunks[key] = []
            if self._whole[key]:
                puts.append((prefix + chunk, self.codec.encode(self._whole[key])))
                self._chunks[key].append(prefix + chunk)
        added = [key for key in self._added if key not in replaced and self._added[key]]
        for prefix, key in zip(keyed.store_keys(self.index, added), added, strict=True):
            elements = self._added[key]
            content = self.codec.encode(elements)
            puts.append((prefix + chunk, content))
            self._measure(elements, content)
            if key in self._chunks:
                self._chunks[key].append(prefix + chunk)
                if len(self._chunks[key]) > _MOST_CHUNKS:
                    self._replaced.add(key)
        self._added.clear()

    def _measure(self, elements: list[Any], content: bytes) -> None:
        """Look at some elements as they are stored, to know how large they are."""
        self._measured += len(elements)
        self._measured_bytes += len(content)

    def _recall(self, key: CacheKey) -> list[Any] | None:
        """The whole list if it is in memory; it is young from now on."""
        whole = self._whole.get(key)
        if whole is None and key in self._old:
            whole, self._chunks[key] = self._old[key]
            self._whole[key] = whole
            self._elements += len(whole)
        return whole

    def age(self) -> dict[Any, Any]:
        """Let the lists that are young be old; returns what was old before."""
        gone = self._old
        kept = self._replaced
        self._old = {
            key: (whole, self._chunks[key]) for key, whole in self._whole.items() if key not in kept
        }
        self._whole = {key: self._whole[key] for key in kept}
        self._chunks = {key: self._chunks[key] for key in kept}
        self._elements = sum(map(len, self._whole.values()))
        return gone

    def end_epoch(self) -> None:
        """Forget everything."""
        self.forget()

    def forget(self) -> None:
        """Drop everything held in memory."""
        self._added.clear()
        self._whole.clear()
        self._chunks.clear()
        self._replaced.clear()
        self._old.clear()
        self._elements = 0

    def __repr__(self) -> str:
        return f"ListState({self.descriptor.name!r}, key={uncache_key(self.keyed.cache_key)!r})"


#: Stands for "there is no such entry" in the cache.
_ABSENT: Final = object()
#: A map with more entries than this is not kept in memory behind a flush.
_MOST_KEPT: Final = 100_000
#: Bytes that a map, and an entry of it, take in memory, roughly, beside keys and values.
_PER_MAP: Final = 700
_PER_ENTRY: Final = 300


class _Entries:
    """What is known of the map of one key.

    Invariant: if ``complete``, an entry that is not in ``values`` is not in the map.
    Invariant: if ``cleared``, nothing that the store holds counts any more.
    """

    __slots__ = ("cleared", "complete", "counted", "dirty", "prefix", "sorted", "values")

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.values: dict[CacheKey, Any] = {}
        self.dirty: set[CacheKey] = set()
        self.complete = False
        self.cleared = False
        self.sorted = False
        #: How many entries of it are in the weight of the state.
        self.counted = 0


class KeyedMapState(Generations["CacheKey"], MapState[Any, Any]):
    """One map per key.

    ``dirty`` holds the keys whose maps were changed.
    """

    __slots__ = ("_counted", "codec", "descriptor", "index", "keyed")

    def __init__(self, keyed: KeyContext, descriptor: StateDescriptor) -> None:
        super().__init__()
        self.keyed = keyed
        self.descriptor = descriptor
        self.index = -1
        #: How values are written; set with the number.
        self.codec = PICKLED
        #: Entries of the younger generation, as far as they were counted.
        self._counted = 0

    @property
    def weight(self) -> int:
        return super().weight + _PER_MAP * len(self.cache) + _PER_ENTRY * self._counted

    def _entries(self) -> _Entries:
        key = self.keyed.cache_key
        try:
            found: _Entries = self.cache[key]
        except KeyError:
            known = self._recall(key)
            if known is not None:
                return known
            found = self.cache[key] = _Entries(self.keyed.store_key(self.index, key))
        return found

    def _recall(self, key: CacheKey) -> _Entries | None:
        """The older generation's map of a key, which is young from now on."""
        entries: _Entries | None = self.old.get(key)
        if entries is not None:
            self.cache[key] = entries
            self._counted += entries.counted
        return entries

    def _count(self, entries: _Entries) -> None:
        self._counted += len(entries.values) - entries.counted
        entries.counted = len(entries.values)

    def _lookup(self, key: object) -> Any:
        entries = self._entries()
        short = cache_key(key)
        found = entries.values.get(short)
        if found is None and short not in entries.values:
            if entries.complete:
                return _ABSENT
            stored = self.keyed.store.get(entries.prefix + encode_key(key))
            found = _ABSENT if stored is None else self.codec.decode(stored)
            entries.values[short] = found
            entries.counted += 1
            self._counted += 1
        return found

    def get(self, key: Any) -> Any:
        found = self._lookup(key)
        return None if found is _ABSENT else found

    def put(self, key: Any, value: Any) -> None:
        entries = self._entries()
        short = cache_key(key)
        if entries.sorted and short not in entries.values:
            entries.sorted = False
        entries.values[short] = value
        dirty = entries.dirty
        if not dirty:
            self.dirty.add(self.keyed.cache_key)
        dirty.add(short)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self.put(key, _ABSENT)

    def contains(self, key: Any) -> bool:
        return self._lookup(key) is not _ABSENT

    def _complete(self) -> dict[CacheKey, Any]:
        """Read all entries of the current key."""
        entries = self._entries()
        values = entries.values
        if not entries.complete:
            start, decode = len(entries.prefix), self.codec.decode
            for stored, content in self.keyed.scan_prefix(entries.prefix):
                short = self.keyed.decode_cache_key(stored[start:])
                if short not in values:
                    values[short] = decode(content)
            entries.complete = True
            self._count(entries)
        if not entries.sorted:
            entries.values = values = dict(
                sorted(values.items(), key=lambda entry: encode_key(uncache_key(entry[0])))
            )
            entries.sorted = True
        return values

    def items(self) -> list[tuple[Any, Any]]:
        """Return all entries, in the order of the encoded map keys."""
        return [
            (uncache_key(short), value)
            for short, value in self._complete().items()
            if value is not _ABSENT
        ]

    def is_empty(self) -> bool:
        return all(value is _ABSENT for value in self._complete().values())

    def clear(self) -> None:
        entries = self._entries()
        entries.values = {}
        entries.dirty.clear()
        self.dirty.add(self.keyed.cache_key)
        entries.complete = entries.cleared = entries.sorted = True

    def prefetch_entries(self, pairs: Sequence[tuple[object, object]]) -> None:
        """Read the entries at ``(key, map key)`` that are not in memory, in one go."""
        shorts = [(cache_key(key), cache_key(map_key)) for key, map_key in pairs]
        maps = self.cache
        new = [
            key
            for key in {key for key, _ in shorts if key not in maps}
            if self._recall(key) is None
        ]
        for key, prefix in zip(new, self.keyed.store_keys(self.index, new), strict=True):
            maps[key] = _Entries(prefix)
        wanted: list[tuple[_Entries, CacheKey]] = []
        names: list[bytes] = []
        # Many keys are often asked for the same few map keys.
        encoded = {
            short: encode_key(uncache_key(short)) for short in {short for _, short in shorts}
        }
        for key, short in shorts:
            entries = maps[key]
            if not entries.complete and short not in entries.values:
                entries.values[short] = _ABSENT
                wanted.append((entries, short))
                names.append(entries.prefix + encoded[short])
        if names:
            found = self.keyed.store.get_many(names)
            for (entries, short), stored in zip(wanted, found, strict=True):
                if stored is not None:
                    entries.values[short] = self.codec.decode(stored)
                entries.counted += 1
            self._counted += len(names)

    def flush(self, puts: Puts, deletes: list[bytes]) -> None:
        """Add what is dirty to ``puts`` and ``deletes``; the maps stay in memory."""
        keys, self.dirty = self.dirty, set()
        for key in keys:
            self._flush_map(key, puts, deletes)

    def flush_some(self, most: int, puts: Puts, deletes: list[bytes]) -> None:
        """``flush`` of maps until that are at least so many entries, if there are."""
        before = len(puts) + len(deletes)
        while self.dirty and len(puts) + len(deletes) < before + most:
            self._flush_map(self.dirty.pop(), puts, deletes)

    def _flush_map(self, key: CacheKey, puts: Puts, deletes: list[bytes]) -> None:
        entries: _Entries = self.cache[key]
        values = entries.values
        if entries.cleared:
            deletes.extend(stored for stored, _ in self.keyed.scan_prefix(entries.prefix))
            entries.cleared = False
        before, encode = len(puts), self.codec.encode
        for short in entries.dirty:
            value = values[short]
            stored = entries.prefix + encode_key(uncache_key(short))
            if value is not _ABSENT:
                puts.append((stored, encode(value)))
                continue
            deletes.append(stored)
            if entries.complete:
                del values[short]
        entries.dirty.clear()
        self.measure([content for _, content in puts[before : before + 1]])
        self._count(entries)
        if len(values) > _MOST_KEPT:
            del self.cache[key]
            self.old.pop(key, None)
            self._counted -= entries.counted

    def age(self) -> dict[Any, Any]:
        self._counted = 0
        return super().age()

    def forget(self) -> None:
        super().forget()
        self._counted = 0
