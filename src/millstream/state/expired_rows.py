"""Expired rows of operators over changelogs, as the background finds and removes them.

What it is: for each way in which such operators keep time - in front of a packed row, under the
empty name of a map, in each entry of a map - how to read it, and how to remove what is over.

What it is not: the search (``state/expired.py``).

Read next: ``state/packed_state.py``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from millstream.state.packed_buckets import split_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.state.expired import ExpiredEntry
    from millstream.state.key_codec import CacheKey
    from millstream.state.packed_state import PackedMap, PackedMaps, PackedValues

__all__ = ["ExpiringEntries", "ExpiringMaps", "ExpiringRows"]

_TIME: Final = struct.Struct("<q")
_FIRST_BUCKET: Final = bytes(4)
_NEVER: Final = 2**62


class ExpiringRows:
    """Packed values that hold the time when they were written."""

    def __init__(
        self,
        values: PackedValues,
        ttl: int,
        at: int = 0,
        forget: Callable[[Sequence[CacheKey]], None] | None = None,
    ) -> None:
        """Take where it is in them, and what else to remove of keys that have expired."""
        self.ttl = ttl
        self._values = values
        self._at = at
        self._forget = forget

    @property
    def index(self) -> int:
        """The number of the state in the store."""
        return self._values.index

    def written(self, rest: bytes, content: bytes) -> int | None:
        """Return the time; values by key and window have none."""
        return None if rest else int(_TIME.unpack_from(content, self._at)[0])

    def drop(self, entries: list[ExpiredEntry], until: int) -> int:
        """Remove the values of keys that were not written anew."""
        keys = [key for key, _ in entries]
        rows = self._values.get_all(keys)
        over = [
            key
            for key, row in zip(keys, rows, strict=True)
            if row is not None and _TIME.unpack_from(row, self._at)[0] <= until
        ]
        if over:
            if self._forget is not None:
                self._forget(over)
            self._values.put_all(over, [None] * len(over))
        return _NEVER


class ExpiringMaps:
    """Maps that expire as a whole: their time is under the empty name."""

    def __init__(self, maps: PackedMaps, ttl: int) -> None:
        """Take the maps, and how long they live."""
        self.ttl = ttl
        self._maps = maps

    @property
    def index(self) -> int:
        """The number of the state in the store."""
        return self._maps.index

    def written(self, rest: bytes, content: bytes) -> int | None:
        """Return the time, which is in the first bucket."""
        if rest != _FIRST_BUCKET:
            return None
        _, _, names, values = split_bucket(content)
        time = next((value for name, value in zip(names, values, strict=True) if not name), None)
        return 0 if time is None else int(_TIME.unpack(time)[0])

    def drop(self, entries: list[ExpiredEntry], until: int) -> int:
        """Remove the maps that were not written anew."""
        keys = [key for key, _ in entries]
        maps = self._maps
        maps.fetch_all_distinct(keys)
        for key in keys:
            kept = maps.map_of(key)
            if len(kept) and _TIME.unpack(kept.get(b"") or bytes(8))[0] <= until:
                kept.clear()
        maps.changed(keys)
        return _NEVER


class ExpiringEntries:
    """Maps whose entries expire one by one."""

    def __init__(self, maps: PackedMaps, ttl: int, at: int) -> None:
        """Take where the time is in values of entries."""
        self.ttl = ttl
        self._maps = maps
        self._at = at

    @property
    def index(self) -> int:
        """The number of the state in the store."""
        return self._maps.index

    def written(self, rest: bytes, content: bytes) -> int | None:
        """Return the time of the oldest entry of a bucket."""
        del rest
        values = split_bucket(content)[3]
        read, at = _TIME.unpack_from, self._at
        return min([int(read(value, at)[0]) for value in values], default=None)

    def drop(self, entries: list[ExpiredEntry], until: int) -> int:
        """Remove entries that were not written anew, bucket by bucket."""
        maps = self._maps
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
