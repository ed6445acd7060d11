"""The rows of a key in order, over a map of packed rows.

What it is: what Top-N keeps; names of rows begin with their sort keys, so they are in order.

What it is not: which rows are kept, and what changes (``top_n.py``, ``window_rank.py``).

Read next: ``runtime/columnar/row_codec.py``, ``state/packed_state.py``.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import le
from typing import TYPE_CHECKING, Final

from millstream.runtime.operators.table.row_lists import packed_list, unpacked_list
from millstream.state.packed_buckets import joined_bucket, split_bucket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.state.packed_state import PackedMap

__all__ = ["BEHIND", "BucketRanking", "Ranking", "keep_alive", "living_ranking", "ranking_of"]

_NUMBER: Final = struct.Struct(">Q")
#: When a map was written last, in milliseconds, under the empty name.
_TIME: Final = struct.Struct("<q")
#: Behind the names of all rows of one sort key.
BEHIND: Final = b"\xff" * 9


class Ranking:
    """The rows of one key, in order.

    Invariant: ``names[i]`` is the name of ``rows[i]``; names are sorted.
    """

    __slots__ = ("kept", "names", "next_number", "rows")

    def __init__(self, kept: PackedMap, *, is_keyed: bool) -> None:
        self.kept = kept
        entries = sorted(entry for entry in kept.items() if entry[0])
        self.names = [name for name, _ in entries]
        self.rows = [unpacked_list(value)[1] if is_keyed else value for _, value in entries]
        numbers = (_NUMBER.unpack(name[-8:])[0] for name in self.names)
        self.next_number = max(numbers, default=-1) + 1

    def __len__(self) -> int:
        return len(self.names)

    def insert(self, sort_key: bytes, row: bytes, row_key: bytes | None = None) -> int:
        """Put a row behind those of the same order; returns its position."""
        at = bisect_right(self.names, sort_key + BEHIND)
        name = sort_key + _NUMBER.pack(self.next_number)
        self.next_number += 1
        self.names.insert(at, name)
        self.rows.insert(at, row)
        self.kept.put(name, row if row_key is None else packed_list([row_key, row]))
        return at

    def remove(self, at: int) -> bytes:
        """Remove the row at a position, and return it."""
        self.kept.remove(self.names.pop(at))
        return self.rows.pop(at)

    def find(self, sort_key: bytes, row: bytes) -> int:
        """Return the position of the first row of that order that equals ``row``; -1: none."""
        start = bisect_left(self.names, sort_key)
        stop = bisect_right(self.names, sort_key + BEHIND)
        try:
            return self.rows.index(row, start, stop)
        except ValueError:
            return -1

    def takes(self, sort_key: bytes, most: int) -> bool:
        """Whether a new row of that order would be among the first ``most``."""
        return len(self.names) < most or sort_key < self.names[most - 1][:-8]


class BucketRanking(Ranking):
    """The few rows of one key, in order, over the only bucket of its map."""

    __slots__ = ("is_changed", "stored")

    def __init__(self, stored: bytes | None) -> None:
        """Take the bucket, None of no rows."""
        self.names: list[bytes] = []
        self.rows: list[bytes] = []
        self.stored = stored
        self.next_number = -1
        self.is_changed = False
        if stored is not None:
            _, _, names, rows = split_bucket(stored)
            if not all(map(le, names, islice(names, 1, None))):
                entries = sorted(zip(names, rows, strict=True))
                names, rows = [name for name, _ in entries], [row for _, row in entries]
            self.names, self.rows = names, rows

    def insert(self, sort_key: bytes, row: bytes, row_key: bytes | None = None) -> int:
        del row_key
        if self.next_number < 0:
            last = max([name[-8:] for name in self.names], default=None)
            self.next_number = 0 if last is None else int(_NUMBER.unpack(last)[0]) + 1
        at = bisect_right(self.names, sort_key + BEHIND)
        self.names.insert(at, sort_key + _NUMBER.pack(self.next_number))
        self.next_number += 1
        self.rows.insert(at, row)
        self.is_changed = True
        return at

    def remove(self, at: int) -> bytes:
        self.is_changed = True
        self.names.pop(at)
        return self.rows.pop(at)

    def bucket(self) -> bytes | None:
        """Return what is to be stored, None of no rows."""
        return joined_bucket(self.names, self.rows) if self.names else None


def living_ranking(kept: PackedMap, ttl: int, now: int, *, is_keyed: bool = False) -> Ranking:
    """Return the ranking of a map, which loses its rows if it was not written for ``ttl``.

    Args:
        kept: the map.
        ttl: in milliseconds; 0: rows stay.
        now: the time, in milliseconds.
        is_keyed: as of ``Ranking``.
    """
    if ttl and len(kept):
        written = _TIME.unpack(kept.get(b"") or _TIME.pack(0))[0]
        if written + ttl <= now:
            kept.clear()
    return ranking_of(kept, is_keyed=is_keyed)


def keep_alive(rankings: Iterable[Ranking], now: int) -> None:
    """Note in the maps of rankings that were changed when that was, for ``living_ranking``."""
    time = _TIME.pack(now)
    for ranking in rankings:
        if ranking.kept.dirty:
            if len(ranking):
                ranking.kept.put(b"", time)
            else:
                ranking.kept.remove(b"")


def ranking_of(kept: PackedMap, *, is_keyed: bool = False) -> Ranking:
    """Return the ranking of a map, which is kept as long as that is in memory."""
    if kept.view is None:
        kept.view = Ranking(kept, is_keyed=is_keyed)
    ranking: Ranking = kept.view
    return ranking
