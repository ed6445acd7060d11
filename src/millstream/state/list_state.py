"""List state: appended to without being read.

What it is: what was added since the last flush is kept in memory and written as one new
chunk per key; ``get`` reads the chunks of a key in order.  Chunk numbers come from a counter
of the store that grows with every flush, so a new chunk always lies behind the old ones.

What it is not: bounded.  A list that is read is in memory as a whole.

Layout: ``K`` entries with the chunk number (8 bytes, big-endian) behind the key; the value is the
pickled list of elements.

Read next: ``state/map_state.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.functions.handles import ListState
from millstream.state.key_codec import uncache_key
from millstream.state.serializers import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.functions.descriptors import StateDescriptor
    from millstream.state.key_codec import CacheKey
    from millstream.state.key_context import KeyContext

__all__ = ["KeyedListState"]

#: A list that was read and had more chunks than this is written back as one.
_MOST_CHUNKS: Final = 8


class KeyedListState(ListState[Any]):
    """One list per key.

    Invariant: ``_whole[key]``, if set, is the whole list; ``_added[key]`` is its part that is not
    yet in the store, unless the key is in ``_replaced``: then the store is to hold exactly
    ``_whole[key]``.
    """

    __slots__ = ("_added", "_chunks", "_replaced", "_whole", "descriptor", "index", "keyed")

    def __init__(self, keyed: KeyContext, descriptor: StateDescriptor) -> None:
        self.keyed = keyed
        self.descriptor = descriptor
        self.index = -1
        self._added: dict[CacheKey, list[Any]] = {}
        self._whole: dict[CacheKey, list[Any]] = {}
        #: The store keys of the chunks of a key, where they have been read.
        self._chunks: dict[CacheKey, list[bytes]] = {}
        self._replaced: set[CacheKey] = set()

    @property
    def cached(self) -> int:
        """How many lists are held in memory."""
        return len(self._added) + len(self._whole)

    def get(self) -> list[Any]:
        """Return the elements, in the order in which they were added."""
        return list(self._read())

    def _read(self) -> list[Any]:
        key = self.keyed.cache_key
        whole = self._whole.get(key)
        if whole is None:
            whole = []
            chunks = []
            for stored, content in self.keyed.scan_prefix(self.keyed.store_key(self.index, key)):
                chunks.append(stored)
                whole.extend(loads(content))
            whole.extend(self._added.get(key, ()))
            self._whole[key] = whole
            self._chunks[key] = chunks
            if len(chunks) > _MOST_CHUNKS:
                self._replaced.add(key)
        return whole

    def add(self, value: Any) -> None:
        """Add an element at the end."""
        key = self.keyed.cache_key
        try:
            self._added[key].append(value)
        except KeyError:
            self._added[key] = [value]
        if key in self._whole:
            self._whole[key].append(value)

    def add_all(self, values: Sequence[Any]) -> None:
        key = self.keyed.cache_key
        self._added.setdefault(key, []).extend(values)
        if key in self._whole:
            self._whole[key].extend(values)

    def update(self, values: Sequence[Any]) -> None:
        key = self.keyed.cache_key
        self._whole[key] = list(values)
        self._added.pop(key, None)
        self._replaced.add(key)

    def clear(self) -> None:
        self.update(())

    def prefetch(self, keys: set[CacheKey]) -> None:
        """Nothing: lists are read when they are asked for."""

    def flush(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        """Add what is new to ``puts`` and ``deletes`` and forget everything."""
        keyed = self.keyed
        chunk = keyed.next_chunk
        for key in self._replaced:
            prefix = keyed.store_key(self.index, key)
            known = self._chunks.get(key)
            deletes.extend(
                known if known is not None else [stored for stored, _ in keyed.scan_prefix(prefix)]
            )
            if self._whole[key]:
                puts.append((prefix + chunk, dumps(self._whole[key])))
        added = [key for key in self._added if key not in self._replaced and self._added[key]]
        for prefix, key in zip(keyed.store_keys(self.index, added), added, strict=True):
            puts.append((prefix + chunk, dumps(self._added[key])))
        self.forget()

    def forget(self) -> None:
        """Drop everything held in memory."""
        self._added.clear()
        self._whole.clear()
        self._chunks.clear()
        self._replaced.clear()

    def __repr__(self) -> str:
        return f"ListState({self.descriptor.name!r}, key={uncache_key(self.keyed.cache_key)!r})"
