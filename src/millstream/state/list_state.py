"""List state: appended to without being read.

What it is: what was added since the last flush is kept in memory and written as one new
chunk per key; ``get`` reads the chunks of a key in order.  Chunk numbers come from a counter
of the store that grows with every flush, so a new chunk always lies behind the old ones.

Layout: ``K`` entries with the chunk number (8 bytes, big-endian) behind the key; the value is the
pickled list of elements.
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
        "descriptor",
        "index",
        "keyed",
    )

    def __init__(self, keyed: KeyContext, descriptor: StateDescriptor) -> None:
        self.keyed = keyed
        self.descriptor = descriptor
        self.index = -1
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
        """Return the elements, in the order in which they were added."""
        return list(self._read())

    def _read(self) -> list[Any]:
        key = self.keyed.cache_key
        whole = self._recall(key)
        if whole is None:
            whole = []
            chunks = []
            for stored, content in self.keyed.scan_prefix(self.keyed.store_key(self.index, key)):
                chunks.append(stored)
                elements = loads(content)
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
        """Add an element at the end."""
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
                puts.append((prefix + chunk, dumps(self._whole[key])))
                self._chunks[key].append(prefix + chunk)
        added = [key for key in self._added if key not in replaced and self._added[key]]
        for prefix, key in zip(keyed.store_keys(self.index, added), added, strict=True):
            elements = self._added[key]
            content = dumps(elements)
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
