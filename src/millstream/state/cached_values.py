"""One stored value per key, in memory while it is used, and written back.

What it is: what values, reducing and aggregating states, states per window and the sets of sessions
have in common: reading what is not in memory, one by one or by one multi-get, and writing what has
changed.

What it is not: lists and maps, which have several entries per key.

Read next: ``state/value_state.py``, ``state/generations.py``.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from millstream.state.generations import Generations
from millstream.state.serializers import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.functions.descriptors import StateDescriptor
    from millstream.state.key_codec import CacheKey
    from millstream.state.key_context import KeyContext, Puts

__all__ = ["CachedValues"]

_K = TypeVar("_K")


class CachedValues(Generations[_K]):
    """The values of one state.

    Invariant: ``cache[key]`` is ``absent`` where it is known that there is no value.
    """

    __slots__ = ("descriptor", "index", "keyed")

    #: Stands for "there is no value".
    absent: ClassVar[Any] = None

    def __init__(self, keyed: KeyContext, descriptor: StateDescriptor) -> None:
        """Keep the values of ``descriptor`` in ``keyed``."""
        super().__init__()
        self.keyed = keyed
        self.descriptor = descriptor
        #: The state's number in the store, set at the start of every epoch.
        self.index = -1

    def names(self, keys: list[_K]) -> list[bytes]:
        """Return the names of values in the store."""
        return self.keyed.store_keys(self.index, cast("list[CacheKey]", keys))

    def decoded(self, key: _K, stored: bytes | None) -> Any:
        """Return the value that is stored under a key."""
        del key
        return self.absent if stored is None else loads(stored)

    #: What is to be stored of a value; empty if nothing is.
    encoded: Callable[[Any], bytes] = staticmethod(dumps)

    def read(self, key: _K) -> Any:
        """Return a value that is not in ``cache``, and have it there."""
        if key in self.old:
            value = self.old[key]
        else:
            value = self.decoded(key, self.keyed.store.get(self.names([key])[0]))
        self.cache[key] = value
        return value

    def prefetch(self, keys: set[CacheKey]) -> None:
        """Read the values of ``keys`` that are not in memory, in one go."""
        self.fetch(cast("Iterable[_K]", keys))

    def fetch(self, keys: Iterable[_K]) -> None:
        """``prefetch`` of whatever values are looked up by."""
        missing = self.missing(keys)
        if missing:
            stored = self.keyed.store.get_many(self.names(missing))
            self.measure(stored)
            self.cache.update(zip(missing, map(self.decoded, missing, stored), strict=True))

    def flush(self, puts: Puts, deletes: list[bytes]) -> None:
        """Add what is dirty to ``puts`` and ``deletes``."""
        keys = list(self.dirty)
        self.watch(keys)
        self.dirty.clear()
        self._add(keys, puts, deletes)

    def flush_some(self, most: int, puts: Puts, deletes: list[bytes]) -> None:
        """``flush`` of at most so many entries."""
        keys = list(islice(self.dirty, most))
        self.dirty.difference_update(keys)
        self._add(keys, puts, deletes)

    def _add(self, keys: list[_K], puts: Puts, deletes: list[bytes]) -> None:
        if not keys:
            return
        cache, encode, absent = self.cache, self.encoded, self.absent
        before = len(puts)
        for name, key in zip(self.names(keys), keys, strict=True):
            value = cache[key]
            content = b"" if value is absent else encode(value)
            if content:
                puts.append((name, content))
            else:
                deletes.append(name)
        self.measure([content for _, content in puts[before : before + 32]])
