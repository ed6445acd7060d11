"""State of packed rows: one value per key, or a map per key, of bytes that nobody pickles.

What it is: what operators over changelogs keep.  ``PackedValues`` has one row per key.
``PackedMaps`` has a map per key, in *buckets*: an entry is in the bucket that its hash says, and
their number doubles as the map grows.  So a key with few entries is read by one get, and of a key
with millions only those buckets are read and written that are used.  Whole batches are read in
sorted multi-gets.

What it is not: a codec; ``runtime/columnar/row_codec.py`` packs rows.

Where something is kept per key and namespace (a window), it is looked up by both: a ``Slot``.

Layout: ``K`` entries, the namespace behind the key.  Of a map, the number of the bucket (4 bytes,
big-endian) stands behind that; the value has the doublings (1 byte), how many entries all buckets
have (4; it is right in bucket 0), how many this one has (4), the lengths of names and of values (4
each), names, values; numbers in values are little-endian.

Read next: ``state/cached_values.py``, ``state/generations.py``.
"""

from __future__ import annotations

import struct
import zlib
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from millstream.functions.descriptors import StateDescriptor
from millstream.state.cached_values import CachedValues
from millstream.state.generations import Generations
from millstream.state.key_codec import CacheKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.state.key_context import KeyContext, Puts
    from millstream.state.keyed import KeyedState

__all__ = ["PackedMap", "PackedMaps", "PackedValues", "Place", "decoded_bucket"]

#: What is looked up: a key, or a key and a namespace (a ``Slot``).
Place: TypeAlias = CacheKey | tuple[CacheKey, bytes]

_HEAD: Final = struct.Struct("<BII")
_BUCKET: Final = struct.Struct(">I")
#: What is dirty of most maps; one object for all of them.
_FIRST: Final = frozenset({0})
#: Up to so many entries are packed one by one.
_FEW: Final = 8
#: With more entries per bucket than this, their number doubles.
_MOST_PER_BUCKET: Final = 128
#: What stays in memory between epochs: values, and entries of one map.
_MOST_KEPT: Final = 200_000
_MOST_IN_MAP: Final = 100_000
#: Bytes that a map, and an entry of it, take in memory, roughly.
_PER_MAP: Final = 600
_PER_ENTRY: Final = 250


class _Packed(StateDescriptor):
    kind = "packed"


class _PackedMap(StateDescriptor):
    kind = "packed map"


class PackedValues(CachedValues[Place]):
    """One packed row per key."""

    __slots__ = ()

    def __init__(self, keyed: KeyedState, name: str) -> None:
        """Keep the rows under the state name ``name``."""
        super().__init__(keyed, _Packed(name))
        keyed.add_state(self)

    def decoded(self, key: Place, stored: bytes | None) -> Any:
        del key
        return stored

    @staticmethod
    def encoded(value: bytes) -> bytes:
        """Return what is stored of a row: itself."""
        return value

    def prefetch(self, keys: set[CacheKey]) -> None:
        """Nothing: operators fetch what they want."""

    def names(self, keys: list[Place]) -> list[bytes]:
        """Return the names of rows in the store."""
        return _names(self.keyed, self.index, keys)

    def get_all(self, keys: Sequence[Place]) -> list[bytes | None]:
        """Return the row of each key, None where there is none."""
        missing = self.missing(keys)
        if missing:
            pairs = sorted(zip(self.names(missing), missing, strict=True), key=itemgetter(0))
            stored = self.keyed.store.get_many([name for name, _ in pairs])
            self.measure(stored)
            self.cache.update(zip([key for _, key in pairs], stored, strict=True))
        cache = self.cache
        return [cache[key] for key in keys]

    def put_all(self, keys: Sequence[Place], rows: Iterable[bytes | None]) -> None:
        """Set the row of each key; None removes it."""
        self.cache.update(zip(keys, rows, strict=True))
        self.dirty.update(keys)

    def _add(self, keys: list[Place], puts: Puts, deletes: list[bytes]) -> None:
        if not keys:
            return
        rows = list(map(self.cache.__getitem__, keys))
        pairs = zip(self.names(keys), rows, strict=True)
        if None in rows:
            for name, row in pairs:
                if row is None:
                    deletes.append(name)
                else:
                    puts.append((name, row))
        else:
            puts.extend(pairs)
        self.measure(rows)

    def end_epoch(self) -> None:
        """Forget all, if it is much."""
        if len(self.cache) > _MOST_KEPT:
            self.cache.clear()


def _names(keyed: KeyContext, index: int, places: Sequence[Place]) -> list[bytes]:
    """The names of places in the store; all of them are keys, or all are slots."""
    if places and type(places[0]) is tuple:
        slots = cast("Sequence[tuple[CacheKey, bytes]]", places)
        heads = keyed.store_keys(index, [key for key, _ in slots])
        return [head + namespace for head, (_, namespace) in zip(heads, slots, strict=True)]
    return keyed.store_keys(index, cast("list[CacheKey]", list(places)))


class PackedMap:
    """The map of one key, as far as it was read.

    There are very many of them, most with few entries: an empty one holds no other object, which
    the garbage collector would have to look at.

    Invariant: bucket 0 was read; of ``1 << level`` buckets the others are in ``_others``, if they
    were read.
    """

    __slots__ = ("_first", "_others", "count", "dirty", "level", "view")

    def __init__(self) -> None:
        """Be empty."""
        self.level = 0
        self.count = 0
        self._first: dict[bytes, bytes] | None = None
        self._others: dict[int, dict[bytes, bytes]] | None = None
        #: Numbers of the buckets that were changed.
        self.dirty: set[int] | frozenset[int] | None = None
        #: What its owner has made of its entries, for as long as it is in memory.
        self.view: Any = None

    def __len__(self) -> int:
        return self.count

    def bucket_of(self, name: bytes) -> int:
        """Return the number of the bucket that an entry belongs to."""
        return zlib.crc32(name) & ((1 << self.level) - 1) if self.level else 0

    def has_bucket(self, number: int) -> bool:
        """Whether a bucket was read."""
        return number == 0 or (self._others is not None and number in self._others)

    def bucket(self, number: int) -> dict[bytes, bytes]:
        """Return a bucket that was read; one that is changed may have to be set."""
        if number == 0:
            return {} if self._first is None else self._first
        if self._others is None:
            raise KeyError(number)
        return self._others[number]

    def set_bucket(self, number: int, bucket: dict[bytes, bytes]) -> None:
        """Take a bucket."""
        if number == 0:
            self._first = bucket
        else:
            if self._others is None:
                self._others = {}
            self._others[number] = bucket

    def _change(self, number: int) -> None:
        """Note a change; of bucket 0, too, which says how many entries there are."""
        dirty = self.dirty
        if dirty is None:
            self.dirty = _FIRST if number == 0 else {0, number}
        elif isinstance(dirty, set):
            dirty.add(number)
        elif number:
            self.dirty = {0, number}

    def get(self, name: bytes) -> bytes | None:
        """Return the value of an entry, None if there is none; its bucket was fetched."""
        return self.bucket(self.bucket_of(name)).get(name) if self.count else None

    def put(self, name: bytes, value: bytes) -> None:
        """Set an entry; its bucket was fetched."""
        number = self.bucket_of(name)
        if number == 0 and self._first is None:
            self._first = {}
        bucket = self.bucket(number)
        if name not in bucket:
            self.count += 1
        bucket[name] = value
        self._change(number)

    def remove(self, name: bytes) -> bytes | None:
        """Remove an entry and return its value, None if there was none."""
        number = self.bucket_of(name)
        value = self.bucket(number).pop(name, None)
        if value is not None:
            self.count -= 1
            self._change(number)
        return value

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all entries, bucket by bucket in the order in which they came; all were fetched."""
        if self._first is not None:
            yield from self._first.items()
        for number in range(1, 1 << self.level):
            yield from self.bucket(number).items()

    def clear(self) -> None:
        """Remove all entries; all were fetched."""
        self._first = None
        self._others = {number: {} for number in range(1, 1 << self.level)} or None
        self.dirty = set(range(1 << self.level))
        self.count = 0
        self.view = None

    @property
    def is_crowded(self) -> bool:
        """Whether there should be more buckets."""
        return self.count > _MOST_PER_BUCKET << self.level

    def grow(self) -> None:
        """Have as many buckets as there should be; all were fetched."""
        entries = list(self.items())
        while self.is_crowded:
            self.level += 1
        for number in range(1 << self.level):
            self.set_bucket(number, {})
        for name, value in entries:
            self.bucket(self.bucket_of(name))[name] = value
        self.dirty = set(range(1 << self.level))

    def written(self) -> None:
        """Be as the store has it."""
        self.dirty = None
        if not self.count:
            self.level, self._first, self._others = 0, None, None

    @property
    def held(self) -> int:
        """How many entries are in memory."""
        if self.level == 0:
            return self.count
        others = self._others or {}
        return len(self._first or ()) + sum(map(len, others.values()))


class PackedMaps(Generations[Place]):
    """One map of bytes to bytes per key."""

    __slots__ = ("_held", "descriptor", "index", "keyed")

    def __init__(self, keyed: KeyedState, name: str) -> None:
        """Keep the maps under the state name ``name``."""
        super().__init__()
        self.keyed = keyed
        self.descriptor: StateDescriptor = _PackedMap(name)
        self.index = -1
        #: Entries that were read or added since the last ``age``.
        self._held = 0
        keyed.add_state(self)

    @property
    def weight(self) -> int:
        """How many bytes the younger generation takes, roughly."""
        return _PER_MAP * len(self.cache) + _PER_ENTRY * self._held

    @property
    def cached(self) -> int:
        """How many objects are held in memory."""
        return super().cached + self._held

    # Reading.

    def fetch(self, keys: Iterable[Place]) -> None:
        """Read the first bucket of maps that are not in memory."""
        missing = self.missing(dict.fromkeys(keys))
        if missing:
            for key in missing:
                self.cache[key] = PackedMap()
            self._read([(key, 0) for key in missing])

    def fetch_entries(self, entries: Iterable[tuple[Place, bytes]]) -> None:
        """Read the buckets of these entries, those of one key in any order."""
        entries = list(entries)
        self.fetch(key for key, _ in entries)
        cache = self.cache
        wanted: dict[tuple[Place, int], None] = {}
        for key, name in entries:
            found: PackedMap = cache[key]
            if found.level:
                number = found.bucket_of(name)
                if not found.has_bucket(number):
                    wanted[key, number] = None
        self._read(list(wanted))

    def fetch_all(self, keys: Iterable[Place]) -> None:
        """Read whole maps."""
        keys = list(dict.fromkeys(keys))
        self.fetch(keys)
        large = [(key, self.cache[key]) for key in keys if self.cache[key].level]
        self._read(
            [
                (key, number)
                for key, found in large
                for number in range(1 << found.level)
                if not found.has_bucket(number)
            ]
        )

    def _read(self, slots: list[tuple[Place, int]]) -> None:
        if not slots:
            return
        heads = _names(self.keyed, self.index, [key for key, _ in slots])
        pack = _BUCKET.pack
        named = [
            (head + pack(number), key, number)
            for head, (key, number) in zip(heads, slots, strict=True)
        ]
        named.sort(key=itemgetter(0))
        stored = self.keyed.store.get_many([name for name, _, _ in named])
        self.measure(stored)
        for (_, key, number), content in zip(named, stored, strict=True):
            if content is None:
                if number:
                    self.cache[key].set_bucket(number, {})
                continue
            found = self.cache[key]
            level, total, bucket = decoded_bucket(content)
            found.set_bucket(number, bucket)
            self._held += len(bucket)
            if number == 0:
                found.level, found.count = level, total

    def map_of(self, key: Place) -> PackedMap:
        """Return the map of a key, which was fetched."""
        found: PackedMap = self.cache[key]
        return found

    def changed(self, keys: Iterable[Place]) -> None:
        """Note that maps were changed; lets those grow that should."""
        for key in keys:
            found: PackedMap = self.cache[key]
            if found.dirty:
                self.dirty.add(key)
                self._held += 1
                if found.is_crowded:
                    self.fetch_all([key])
                    found.grow()

    # Writing.

    def prefetch(self, keys: set[CacheKey]) -> None:
        """Nothing: operators fetch what they want."""

    def flush(self, puts: Puts, deletes: list[bytes]) -> None:
        """Add what is dirty to ``puts`` and ``deletes``."""
        keys = list(self.dirty)
        self.dirty.clear()
        self._write(keys, puts, deletes)

    def flush_some(self, most: int, puts: Puts, deletes: list[bytes]) -> None:
        """``flush`` of at most so many maps."""
        keys = list(islice(self.dirty, most))
        self.dirty.difference_update(keys)
        self._write(keys, puts, deletes)

    def _write(self, keys: list[Place], puts: Puts, deletes: list[bytes]) -> None:
        heads = _names(self.keyed, self.index, keys)
        for head, key in zip(heads, keys, strict=True):
            found: PackedMap = self.cache[key]
            for number in found.dirty or ():
                bucket = found.bucket(number)
                name = head + _BUCKET.pack(number)
                if bucket or (number == 0 and found.count):
                    puts.append((name, _encoded_bucket(found.level, found.count, bucket)))
                else:
                    deletes.append(name)
            found.written()
            if found.held > _MOST_IN_MAP:
                del self.cache[key]
                self.old.pop(key, None)
        self.measure([content for _, content in puts[-32:]])

    def age(self) -> dict[Any, Any]:
        """Let the maps that are young be old; returns what was old before."""
        self._held = 0
        return super().age()

    def end_epoch(self) -> None:
        """Forget everything."""
        self.forget()

    def forget(self) -> None:
        """Drop everything held in memory."""
        super().forget()
        self._held = 0


def _encoded_bucket(level: int, total: int, bucket: dict[bytes, bytes]) -> bytes:
    count = len(bucket)
    values = bucket.values()
    if count <= _FEW:  # numpy takes longer to begin with
        head = struct.pack(
            f"<BII{2 * count}I", level, total, count, *map(len, bucket), *map(len, values)
        )
    else:
        lengths = np.fromiter(chain(map(len, bucket), map(len, values)), "<u4", 2 * count)
        head = _HEAD.pack(level, total, count) + lengths.tobytes()
    return b"".join([head, *bucket, *values])


def decoded_bucket(stored: bytes) -> tuple[int, int, dict[bytes, bytes]]:
    """Return doublings, entries of all buckets, and the entries of this one."""
    level, total, count = _HEAD.unpack_from(stored)
    parts = []
    at = _HEAD.size + 8 * count
    for length in struct.unpack_from(f"<{2 * count}I", stored, _HEAD.size):
        parts.append(stored[at : at + length])
        at += length
    return level, total, dict(zip(parts[:count], parts[count:], strict=True))
