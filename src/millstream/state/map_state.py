"""Map state: entries are stored one by one.

What it is: a cache per key of the entries that were used in the epoch.  Iterating reads
all entries of the key; reading or writing one entry reads at most that one.

What it is not: for one big value; that is ValueState.

Layout: ``K`` entries with the encoded map key behind the key; the value is pickled.

Read next: ``state/keyed.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.functions.handles import MapState
from millstream.state.key_codec import cache_key, encode_key, uncache_key
from millstream.state.serializers import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.functions.descriptors import StateDescriptor
    from millstream.state.key_codec import CacheKey
    from millstream.state.key_context import KeyContext

__all__ = ["KeyedMapState"]

#: Stands for "there is no such entry" in the cache.
_ABSENT: Final = object()


class _Entries:
    """What is known of the map of one key.

    Invariant: if ``complete``, an entry that is not in ``values`` is not in the map.
    Invariant: if ``cleared``, nothing that the store holds counts any more.
    """

    __slots__ = ("cleared", "complete", "dirty", "prefix", "sorted", "values")

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.values: dict[CacheKey, Any] = {}
        self.dirty: set[CacheKey] = set()
        self.complete = False
        self.cleared = False
        self.sorted = False


class KeyedMapState(MapState[Any, Any]):
    """One map per key."""

    __slots__ = ("_maps", "descriptor", "index", "keyed")

    def __init__(self, keyed: KeyContext, descriptor: StateDescriptor) -> None:
        self.keyed = keyed
        self.descriptor = descriptor
        self.index = -1
        self._maps: dict[CacheKey, _Entries] = {}

    @property
    def cached(self) -> int:
        """How many maps are held in memory, whole or in part."""
        return len(self._maps)

    def _entries(self) -> _Entries:
        key = self.keyed.cache_key
        try:
            return self._maps[key]
        except KeyError:
            entries = self._maps[key] = _Entries(self.keyed.store_key(self.index, key))
            return entries

    def _lookup(self, key: object) -> Any:
        entries = self._entries()
        short = cache_key(key)
        found = entries.values.get(short)
        if found is None and short not in entries.values:
            if entries.complete:
                return _ABSENT
            stored = self.keyed.store.get(entries.prefix + encode_key(key))
            found = _ABSENT if stored is None else loads(stored)
            entries.values[short] = found
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
        entries.dirty.add(short)

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
            start = len(entries.prefix)
            for stored, content in self.keyed.scan_prefix(entries.prefix):
                short = self.keyed.decode_cache_key(stored[start:])
                if short not in values:
                    values[short] = loads(content)
            entries.complete = True
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
        entries.complete = entries.cleared = entries.sorted = True

    def prefetch(self, keys: set[CacheKey]) -> None:
        """Nothing: which entries are wanted is not known."""

    def prefetch_entries(self, pairs: Sequence[tuple[object, object]]) -> None:
        """Read the entries at ``(key, map key)`` that are not in memory, in one go."""
        shorts = [(cache_key(key), cache_key(map_key)) for key, map_key in pairs]
        maps = self._maps
        new = list({key for key, _ in shorts if key not in maps})
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
                    entries.values[short] = loads(stored)

    def flush(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        """Add what is dirty to ``puts`` and ``deletes`` and forget everything."""
        for entries in self._maps.values():
            if entries.cleared:
                deletes.extend(stored for stored, _ in self.keyed.scan_prefix(entries.prefix))
            for short in entries.dirty:
                value = entries.values[short]
                stored = entries.prefix + encode_key(uncache_key(short))
                if value is _ABSENT:
                    deletes.append(stored)
                else:
                    puts.append((stored, dumps(value)))
        self.forget()

    def forget(self) -> None:
        """Drop everything held in memory."""
        self._maps.clear()
