"""Packed rows in state: one value per key, or a map per key, of bytes that are not pickled.

Operators over changelogs keep one row per key in ``PackedValues`` and a map per key in
``PackedMaps``, in *buckets*: the hash of an entry selects its bucket, and their number doubles as
the map grows.  So a key with few entries is read by one get, and of a key with millions only the
buckets in use are read and written.  Whole batches are read in sorted multi-gets.

State per key and namespace (a window) is looked up by both: a ``Slot``.

Layout: ``K`` entries, the namespace after the key.  For a map, the number of the bucket (4 bytes,
big-endian) follows; the value has the doublings (1 byte), the number of entries of all buckets (4;
valid in bucket 0), of this one (4), the lengths of names and of values (4 each), names, values;
numbers in values are little-endian.
"""

from __future__ import annotations

import struct
import zlib
from itertools import chain, compress, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np
import pyarrow as pa

from millstream.functions.descriptors import StateDescriptor
from millstream.state.key_codec import CacheKey
from millstream.state.key_context import Expiring
from millstream.state.packed_buckets import (
    appended,
    count_of,
    decoded_bucket,
    encoded_bucket,
    grown,
    has_name,
    split_bucket,
)
from millstream.state.value_state import CachedValues, Generations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.state.key_context import ExpiredEntry, KeyContext, Puts
    from millstream.state.keyed import KeyedState


#: What is looked up: a key, or a key and a namespace (a ``Slot``).
Place: TypeAlias = CacheKey | tuple[CacheKey, bytes]

_BUCKET: Final = struct.Struct(">I")
#: What is dirty of most maps; one object for all of them.
_FIRST: Final = frozenset({0})
_COUNT_BYTES: Final = 8
#: With more entries per bucket than this, their number doubles.
_MOST_PER_BUCKET: Final = 128
#: What stays in memory between epochs: values, and entries of one map.
_MOST_KEPT: Final = 200_000
_MOST_IN_MAP: Final = 100_000
#: Bytes that a map, and an entry of it, take in memory, roughly.
_PER_MAP: Final = 600
_PER_ENTRY: Final = 250
#: So many bytes as they are stored count as an entry.
_BYTES_PER_ENTRY: Final = 64


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

    def prefetch(self, keys: set[CacheKey]) -> None:
        """Nothing: operators fetch what they want."""

    def names(self, keys: list[Place]) -> list[bytes]:
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
        """Return whether a bucket was read."""
        return number == 0 or (self._others is not None and number in self._others)

    def bucket(self, number: int) -> dict[bytes, bytes]:
        """Return a bucket that was read; one that is changed may have to be set."""
        if number == 0:
            return {} if self._first is None else self._first
        if self._others is None:
            raise KeyError(number)
        return self._others[number]

    @classmethod
    def of(cls, stored: bytes | None) -> PackedMap:
        """Return the map whose first bucket is stored, or an empty one."""
        made = cls()
        if stored is not None:
            made.level, made.count, made._first = decoded_bucket(stored)
        return made

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

    def count_entry(self, name: bytes, weight: int) -> tuple[int, int]:
        """Add to how often an entry is there; returns the counts before and after."""
        stored = self.get(name)
        before = 0 if stored is None else int.from_bytes(stored, "little", signed=True)
        after = before + weight
        if after:
            self.put(name, after.to_bytes(_COUNT_BYTES, "little", signed=True))
        else:
            self.remove(name)
        return before, after

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
        """Return whether there should be more buckets."""
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
    """One map of bytes to bytes per key.

    Invariant: ``cache[key]`` is the only bucket of a map as the store has it or will have it, None
    if it has no entries, or a ``PackedMap``.
    """

    __slots__ = ("_has_large", "_has_maps", "_held", "descriptor", "index", "keyed")

    def __init__(self, keyed: KeyedState, name: str) -> None:
        """Keep the maps under the state name ``name``."""
        super().__init__()
        self.keyed = keyed
        self.descriptor: StateDescriptor = _PackedMap(name)
        self.index = -1
        #: Entries that were read or added since the last ``age``, roughly.
        self._held = 0
        #: Whether any of those in memory may be a ``PackedMap``, or one with several buckets.
        self._has_maps = self._has_large = False
        keyed.add_state(self)

    @property
    def weight(self) -> int:
        return _PER_MAP * len(self.cache) + _PER_ENTRY * self._held

    @property
    def cached(self) -> int:
        return super().cached + self._held

    # Reading.

    def fetch(self, keys: Iterable[Place]) -> None:
        """Read the first bucket of maps that are not in memory."""
        self.fetch_distinct(dict.fromkeys(keys))

    def fetch_distinct(self, keys: Iterable[Place]) -> None:
        """``fetch`` of keys of which none comes twice."""
        missing = self.missing(keys)
        if not missing:
            return
        if type(missing[0]) is tuple:
            self.cache.update(dict.fromkeys(missing))
            self._read([(key, 0) for key in missing])
            return
        ordered, names = self.keyed.sorted_keys(self.index, cast("list[CacheKey]", missing), 0)
        stored = self.keyed.store.get_many(names)
        self.measure(stored)
        self.cache.update(zip(ordered, stored, strict=True))
        self._held += sum(map(len, filter(None, stored))) // _BYTES_PER_ENTRY
        for number, content in enumerate(stored):
            if content is not None and content[0]:
                self.cache[ordered[number]] = PackedMap.of(content)
                self._has_maps = self._has_large = True

    def fetch_entries(self, entries: Iterable[tuple[Place, bytes]]) -> None:
        """Read the buckets of these entries, those of one key in any order."""
        entries = list(entries)
        self.fetch(key for key, _ in entries)
        self._fetch_buckets(entries)

    def fetch_entries_of(
        self, keys: Sequence[Place], of_rows: NDArray[np.int64], names: Sequence[bytes]
    ) -> None:
        """``fetch_entries`` of rows, of which the number of the key in ``keys`` is given."""
        self.fetch_distinct(keys)
        large = set(self._large(keys))
        if large:
            rows = zip(map(keys.__getitem__, of_rows.tolist()), names, strict=True)
            self._fetch_buckets([(key, name) for key, name in rows if key in large])

    def _fetch_buckets(self, entries: list[tuple[Place, bytes]]) -> None:
        cache = self.cache
        wanted: dict[tuple[Place, int], None] = {}
        for key, name in entries:
            found = cache[key]
            if type(found) is PackedMap and found.level:
                number = found.bucket_of(name)
                if not found.has_bucket(number):
                    wanted[key, number] = None
        self._read(list(wanted))

    def fetch_bucket(self, key: Place, number: int) -> None:
        """Read one bucket of a map that was fetched."""
        if not self.map_of(key).has_bucket(number):
            self._read([(key, number)])

    def fetch_all(self, keys: Iterable[Place]) -> None:
        """Read whole maps."""
        self.fetch_all_distinct(list(dict.fromkeys(keys)))

    def fetch_all_distinct(self, keys: Sequence[Place]) -> None:
        """``fetch_all`` of keys of which none comes twice."""
        self.fetch_distinct(keys)
        self._read(
            [
                (key, number)
                for key in self._large(keys)
                for number in range(1 << self.cache[key].level)
                if not self.cache[key].has_bucket(number)
            ]
        )

    def _large(self, keys: Iterable[Place]) -> list[Place]:
        """Those with several buckets."""
        if not self._has_large:
            return []
        cache = self.cache
        return [key for key in keys if type(cache[key]) is PackedMap and cache[key].level]

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
        cache, size = self.cache, 0
        for (_, key, number), content in zip(named, stored, strict=True):
            if number:
                bucket = {} if content is None else decoded_bucket(content)[2]
                cache[key].set_bucket(number, bucket)
                self._held += len(bucket)
            elif content is not None:
                size += len(content)
                cache[key] = content
                if content[0]:
                    cache[key] = PackedMap.of(content)
                    self._has_maps = self._has_large = True
        self._held += size // _BYTES_PER_ENTRY

    def map_of(self, key: Place) -> PackedMap:
        """Return the map of a key, which was fetched."""
        found = self.cache[key]
        if type(found) is not PackedMap:
            found = self.cache[key] = PackedMap.of(found)
            self._has_maps = True
            if key in self.dirty:
                found.dirty = _FIRST
        return found

    # Maps that are one bucket, as they are stored.

    def only_bucket(self, key: Place) -> bytes | PackedMap | None:
        """Return the only bucket of a map that was fetched, None if it is empty, or the map."""
        found: bytes | PackedMap | None = self.cache[key]
        return found

    def set_only_bucket(self, key: Place, bucket: bytes | None) -> None:
        """Let that be the whole map."""
        self.cache[key] = bucket
        self.dirty.add(key)

    @property
    def most_per_bucket(self) -> int:
        """How many entries one bucket has at most."""
        return _MOST_PER_BUCKET

    def set_buckets(self, keys: Sequence[Place], buckets: Iterable[bytes], added: int) -> None:
        """``set_only_bucket`` of many keys, which have so many entries more."""
        self.cache.update(zip(keys, buckets, strict=True))
        self.dirty.update(keys)
        self._held += added

    def append(self, key: Place, name: bytes, value: bytes) -> bool:
        """Add an entry at the end, if it is sure to be new and no dictionary is needed for it."""
        found = self.cache[key]
        if found is None:
            self.cache[key] = appended(None, name, value)
        elif type(found) is bytes and name not in found and count_of(found) < _MOST_PER_BUCKET:
            self.cache[key] = appended(found, name, value)
        else:
            return False
        self.dirty.add(key)
        self._held += 1
        return True

    def enter(self, key: Place, names: Sequence[bytes], value: bytes) -> list[bool]:
        """Set entries that are not there yet, and return which; their buckets were fetched."""
        seen = self.map_of(key)
        entered = []
        for name in names:
            is_new = seen.get(name) is None
            entered.append(is_new)
            if is_new:
                seen.put(name, value)
        return entered

    def whole(self, keys: Iterable[Place]) -> list[bytes | None]:
        """Return all entries of maps that were fetched whole, of each as one bucket."""
        cache = self.cache
        if not self._has_maps:
            return list(map(cache.__getitem__, keys))
        return [
            encoded_bucket(0, found.count, dict(found.items()))
            if type(found) is PackedMap
            else found
            for found in map(cache.__getitem__, keys)
        ]

    def changed(self, keys: Iterable[Place]) -> None:
        """Note that maps were changed; lets those grow that should."""
        if not self._has_maps:
            return
        for key in keys:
            found = self.cache[key]
            if type(found) is PackedMap and found.dirty:
                self.dirty.add(key)
                self._held += 1
                if found.is_crowded:
                    self.fetch_all([key])
                    found.grow()
                    self._has_large = True

    # Writing.

    def _add(self, keys: list[Place], puts: Puts, deletes: list[bytes]) -> None:
        if keys and not self._has_maps and type(keys[0]) is not tuple:
            ordered, names = self.keyed.sorted_keys(self.index, cast("list[CacheKey]", keys), 0)
            found = list(map(self.cache.__getitem__, ordered))
            if None not in found:
                puts.extend(zip(names, found, strict=True))
                self.measure(found)
                return
        heads = _names(self.keyed, self.index, keys)
        for head, key in zip(heads, keys, strict=True):
            found = self.cache[key]
            if type(found) is not PackedMap:
                name = head + _BUCKET.pack(0)
                if found is None:
                    deletes.append(name)
                else:
                    puts.append((name, found))
                continue
            for number in found.dirty or ():
                bucket = found.bucket(number)
                name = head + _BUCKET.pack(number)
                if bucket or (number == 0 and found.count):
                    puts.append((name, encoded_bucket(found.level, found.count, bucket)))
                else:
                    deletes.append(name)
            found.written()
            if found.held > _MOST_IN_MAP:
                del self.cache[key]
                self.old.pop(key, None)
        self.measure([content for _, content in puts[-32:]])

    def age(self) -> dict[Any, Any]:
        self._held = 0
        return super().age()

    def forget(self) -> None:
        super().forget()
        self._held = 0
        self._has_maps = self._has_large = False


_TIME: Final = struct.Struct("<q")
_FIRST_BUCKET: Final = bytes(4)
_NEVER: Final = 2**62


class ExpiringRows(Expiring):
    """Packed values that hold the time when they were written."""

    def __init__(
        self,
        values: PackedValues,
        ttl: int,
        at: int = 0,
        forget: Callable[[Sequence[CacheKey]], None] | None = None,
    ) -> None:
        """Take where it is in them, and what else to remove of keys that have expired."""
        super().__init__(values, ttl)
        self._at = at
        self._forget = forget

    def written(self, rest: bytes, content: bytes) -> int | None:
        """Return the time; values by key and window have none."""
        return None if rest else int(_TIME.unpack_from(content, self._at)[0])

    def drop(self, entries: list[ExpiredEntry], until: int) -> int:
        """Remove the values of keys that were not written again."""
        keys = [key for key, _ in entries]
        rows = self._state.get_all(keys)
        over = [
            key
            for key, row in zip(keys, rows, strict=True)
            if row is not None and _TIME.unpack_from(row, self._at)[0] <= until
        ]
        if over:
            if self._forget is not None:
                self._forget(over)
            self._state.put_all(over, [None] * len(over))
        return _NEVER


class ExpiringMaps(Expiring):
    """Maps that expire as a whole: their time is under the empty name."""

    def written(self, rest: bytes, content: bytes) -> int | None:
        """Return the time, which is in the first bucket."""
        if rest != _FIRST_BUCKET:
            return None
        _, _, names, values = split_bucket(content)
        time = next((value for name, value in zip(names, values, strict=True) if not name), None)
        return 0 if time is None else int(_TIME.unpack(time)[0])

    def drop(self, entries: list[ExpiredEntry], until: int) -> int:
        """Remove the maps that were not written again."""
        keys = [key for key, _ in entries]
        maps = self._state
        maps.fetch_all_distinct(keys)
        for key in keys:
            kept = maps.map_of(key)
            if len(kept) and _TIME.unpack(kept.get(b"") or bytes(8))[0] <= until:
                kept.clear()
        maps.changed(keys)
        return _NEVER


class ExpiringEntries(Expiring):
    """Maps whose entries expire one by one."""

    def __init__(self, maps: PackedMaps, ttl: int, at: int) -> None:
        """Take where the time is in values of entries."""
        super().__init__(maps, ttl)
        self._at = at

    def written(self, rest: bytes, content: bytes) -> int | None:
        """Return the time of the oldest entry of a bucket."""
        del rest
        values = split_bucket(content)[3]
        read, at = _TIME.unpack_from, self._at
        return min([int(read(value, at)[0]) for value in values], default=None)

    def drop(self, entries: list[ExpiredEntry], until: int) -> int:
        """Remove entries that were not written again, bucket by bucket."""
        maps = self._state
        keys = list(dict.fromkeys(key for key, _ in entries))
        maps.fetch(keys)
        oldest = _NEVER
        for key, rest in entries:
            kept = maps.map_of(key)
            number = int.from_bytes(rest, "big")
            if number >= 1 << kept.level:  # the map was emptied meanwhile
                continue
            maps.fetch_bucket(key, number)
            oldest = min(oldest, self._drop_of(kept, number, until))
        maps.changed(keys)
        return oldest

    def _drop_of(self, kept: PackedMap, number: int, until: int) -> int:
        times = {
            name: int(_TIME.unpack_from(value, self._at)[0])
            for name, value in kept.bucket(number).items()
        }
        for name, time in times.items():
            if time <= until:
                kept.remove(name)
        return min([time for time in times.values() if time > until], default=_NEVER)


#: What a bucket as it is stored takes beside its entries, and each of these at least.
_HEAD: Final = 9
_LENGTHS_PER_ENTRY: Final = 8


def append_groups(
    maps: PackedMaps,
    keys: Sequence[Place],
    group_of_row: NDArray[np.int64],
    names: Sequence[bytes],
    values: Sequence[bytes],
) -> list[int]:
    """Add entries at the ends of maps, those that are sure to be new.

    Returns:
        The rows that were not added: all those of maps of which any may be there already, or that
        are, or would be, more than one bucket.
    """
    order = np.argsort(group_of_row, kind="stable")
    ordered = group_of_row[order]
    starts = np.flatnonzero(np.append([True], ordered[1:] != ordered[:-1])[: len(order)])
    counts = np.diff(np.append(starts, len(order)))
    touched = [keys[group] for group in ordered[starts].tolist()]
    in_order = [names[row] for row in order.tolist()]
    found = list(map(maps.cache.__getitem__, touched))
    if len(touched) == len(in_order):
        may = [
            each is None or (type(each) is bytes and name not in each)
            for each, name in zip(found, in_order, strict=True)
        ]
    else:
        bounds = zip(starts.tolist(), (starts + counts).tolist(), strict=True)
        parts = (in_order[start:stop] for start, stop in bounds)
        may = [_are_new(each, part) for each, part in zip(found, parts, strict=True)]
    chosen = np.array(may, dtype=np.bool_)
    chosen &= _have_room(maps, found, counts)
    left: list[int] = []
    if not chosen.all():
        is_added = np.repeat(chosen, counts)
        left = np.sort(order[~is_added]).tolist()
        order, counts = order[is_added], counts[chosen]
        in_order = [names[row] for row in order.tolist()]
        found, touched = list(compress(found, chosen)), list(compress(touched, chosen))
    if touched:
        added = pa.array(in_order, pa.large_binary())
        of_added = pa.array([values[row] for row in order.tolist()], pa.large_binary())
        maps.set_buckets(touched, grown(found, counts, added, of_added), len(order))
    return left


def _are_new(found: Any, names: list[bytes]) -> bool:
    """Return whether entries are sure not to be in a bucket, nor twice among themselves."""
    if len(names) > 1 and len(set(names)) < len(names):
        return False
    return found is None or (type(found) is bytes and not any(map(found.__contains__, names)))


def _have_room(
    maps: PackedMaps, found: Sequence[Any], added: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which buckets can have so many entries more; others than stored ones cannot."""
    most = maps.most_per_bucket
    sizes = np.fromiter(
        [0 if each is None else len(each) if type(each) is bytes else -1 for each in found],
        np.int64,
        len(found),
    )
    has_room: NDArray[np.bool_] = added <= most
    has_room &= sizes >= 0
    # However short entries are, smaller buckets have fewer.
    close = np.flatnonzero(has_room & (sizes >= _HEAD + _LENGTHS_PER_ENTRY * (most + 1 - added)))
    for at in close.tolist():
        has_room[at] = count_of(found[at]) + int(added[at]) <= most
    return has_room


def enter_groups(
    maps: PackedMaps,
    keys: Sequence[Place],
    counts: NDArray[np.int64],
    names: Sequence[bytes],
    value: bytes,
) -> NDArray[np.bool_]:
    """Set entries that are not there yet.

    Args:
        maps: whose buckets of these entries were fetched.
        keys: of which none comes twice.
        counts: how many entries each key has, at least one.
        names: of all of them, key by key, for one key none twice.
        value: of each entry that is set.

    Returns:
        Which of them were not there.
    """
    found = list(map(maps.cache.__getitem__, keys))
    starts = np.cumsum(counts) - counts
    is_new = np.zeros(len(names), dtype=np.bool_)
    slow = np.array([each is not None and type(each) is not bytes for each in found])
    if not slow.all():
        slow |= _looked_for(found, counts, names, slow, is_new)
        added = np.add.reduceat(is_new.astype(np.int64), starts)
        slow |= ~_have_room(maps, found, added)
        chosen = ~slow & (added > 0)
        rows = np.flatnonzero(is_new & np.repeat(chosen, counts)).tolist()
        if rows:
            new = pa.array([names[row] for row in rows], pa.large_binary())
            values = pa.array([value] * len(rows), pa.large_binary())
            touched, before = list(compress(keys, chosen)), list(compress(found, chosen))
            maps.set_buckets(touched, grown(before, added[chosen], new, values), len(rows))
    for group in np.flatnonzero(slow).tolist():
        run = slice(int(starts[group]), int(starts[group] + counts[group]))
        is_new[run] = maps.enter(keys[group], names[run], value)
    return is_new


def _looked_for(
    found: Sequence[Any],
    counts: NDArray[np.int64],
    names: Sequence[bytes],
    slow: NDArray[np.bool_],
    is_new: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Set which names are new in buckets as they are stored; returns where that is not sure."""
    unsure = np.zeros(len(found), dtype=np.bool_)
    per_row = chain.from_iterable(
        repeat(None if skip else each, count)
        for each, skip, count in zip(found, slow.tolist(), counts.tolist(), strict=True)
    )
    is_new[:] = [
        each is None or name not in each for each, name in zip(per_row, names, strict=True)
    ]
    of_row = np.repeat(np.arange(len(found)), counts)
    for row in np.flatnonzero(~is_new).tolist():  # the bytes of the name are in the bucket
        is_there = has_name(found[of_row[row]], names[row])
        if is_there is None:
            unsure[of_row[row]] = True
        else:
            is_new[row] = not is_there
    return unsure
