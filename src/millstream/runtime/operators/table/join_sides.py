"""The sides of a join of changelogs: what is kept of each input, and what rows of the other meet.

What it is: Flink's state views of joins, on packed rows.  Of a side that has a unique key, rows are
found by it: a row that comes again replaces itself.  Of others equal rows are counted.  Beside each
row stands how many rows of the other side it matches, where somebody has to know.

What it is not: the join (``join.py``).

State: per join key a map from the unique key (empty if the join key has it all) or the row, to how
often it is there, how many it matches (4 bytes each), when it was written (8 bytes, milliseconds),
all little-endian, and the row if the name is not.
"""

from __future__ import annotations

import struct
from operator import add
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.row_codec import RowCodec
from millstream.state.expired_rows import ExpiringEntries
from millstream.state.packed_batches import append_groups
from millstream.state.packed_buckets import Entries, appended, numbers_at, only_value
from millstream.state.packed_state import PackedMaps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.runtime.operators.table.specs import JoinSide
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState
    from millstream.types.logical_types import RowType

__all__ = ["Meeting", "Side"]

_HEAD: Final = struct.Struct("<iiq")
_HEAD_TYPE: Final = np.dtype([("count", "<i4"), ("matches", "<i4"), ("time", "<i8")])
_TIME: Final = struct.Struct("<q")
#: Where the time begins in a head.
_TIME_AT: Final = 8
_EMPTY: Final = b""


class Side:
    """One input of a join."""

    def __init__(self, spec: JoinSide, row_type: RowType, ttl: int, name: str) -> None:
        """Take its keys, its columns, and how long its rows live."""
        self.spec = spec
        self.schema = row_type.to_arrow_schema()
        self.codec = RowCodec(self.schema)
        #: Milliseconds; 0: rows are kept for good.
        self.ttl = ttl
        self._name = name
        #: Whether a join key may have several rows.
        self.has_names = not spec.is_one_per_key
        self.by_row = spec.unique_key is None
        self._unique: RowCodec | None = None
        if spec.unique_key is not None and not spec.is_one_per_key:
            kept = [self.schema.field(index) for index in spec.unique_key]
            self._unique = RowCodec(pa.schema(kept))
        self.maps: PackedMaps

    @property
    def folding_key(self) -> tuple[int, ...] | None:
        """The columns by which rows are unique, with those of the join; None: there are none."""
        unique = self.spec.unique_key
        return None if unique is None else tuple(dict.fromkeys((*self.spec.keys, *unique)))

    def open(self, keyed: KeyedState) -> None:
        """Register what is kept."""
        self.maps = PackedMaps(keyed, f"\0{self._name} rows")
        if self.ttl > 0:
            keyed.expired.watch(ExpiringEntries(self.maps, self.ttl, _TIME_AT))

    def names_of(self, arrow: pa.RecordBatch, rows: list[bytes]) -> list[bytes]:
        """Return what rows are found by."""
        if self.by_row:
            return rows
        if self._unique is None or self.spec.unique_key is None:
            return [_EMPTY] * len(rows)
        return self._unique.pack([arrow.column(index) for index in self.spec.unique_key])

    def is_over(self, value: bytes, now: int) -> bool:
        """Whether an entry has expired."""
        return self.ttl > 0 and int(_HEAD.unpack_from(value)[2]) + self.ttl <= now

    def add(self, key: CacheKey, name: bytes, row: bytes, matches: int, now: int) -> bool:
        """Keep a row; returns whether its name was not there."""
        head = _HEAD.pack(1, matches, now)
        value = head if self.by_row else head + row
        maps = self.maps
        if name:
            if maps.append(key, name, value):
                return True
        else:
            stored = maps.only_bucket(key)
            if stored is None or type(stored) is bytes:
                maps.set_only_bucket(key, appended(None, name, value))
                before = None if stored is None else only_value(stored, name)
                return before is None or self.is_over(before, now)
        kept = maps.map_of(key)
        before = kept.get(name)
        is_new = before is None or self.is_over(before, now)
        if self.by_row and before is not None and not is_new:
            value = _HEAD.pack(_HEAD.unpack_from(before)[0] + 1, matches, now)
        kept.put(name, value)
        return is_new

    def add_all(
        self,
        keys: list[CacheKey],
        group_of_row: NDArray[np.int64],
        names: list[bytes],
        rows: list[bytes],
        matches: NDArray[np.int64],
        now: int,
    ) -> None:
        """``add`` rows of groups one after another; ``keys`` are those of the groups."""
        counts = matches.tolist()
        left: Iterable[int] = range(len(names))
        if self.has_names:
            heads = np.empty(len(names), _HEAD_TYPE)
            heads["count"], heads["matches"], heads["time"] = 1, matches, now
            values: list[bytes] = heads.view(f"V{_HEAD.size}").tolist()
            if not self.by_row:
                values = list(map(add, values, rows))
            left = append_groups(self.maps, keys, group_of_row, names, values)
        for at in left:
            self.add(keys[group_of_row[at]], names[at], rows[at], counts[at], now)

    def take_back(self, key: CacheKey, name: bytes, now: int) -> None:
        """Forget a row, or one of several equal ones."""
        stored = self.maps.only_bucket(key)
        if stored is None:
            return
        value = only_value(stored, name) if type(stored) is bytes else None
        if value is not None:
            left = self._one_less(value, now)
            bucket = None if left is None else appended(None, name, left)
            self.maps.set_only_bucket(key, bucket)
            return
        kept = self.maps.map_of(key)
        value = kept.get(name)
        if value is None:
            return
        left = self._one_less(value, now)
        if left is None:
            kept.remove(name)
        else:
            kept.put(name, left)

    def _one_less(self, value: bytes, now: int) -> bytes | None:
        count, matches, _ = _HEAD.unpack_from(value)
        return (
            _HEAD.pack(count - 1, matches, now)
            if count > 1 and not self.is_over(value, now)
            else None
        )


class Meeting:
    """The rows of the other side that rows of a batch may match, by their keys.

    They stay the same while the batch is processed: it is of one side.
    """

    def __init__(
        self,
        other: Side,
        groups: RowGroups,
        wanted: NDArray[np.bool_],
        now: int,
        *,
        counts_matches: bool,
    ) -> None:
        """Take the other side, whose maps were fetched, and the groups that may match anything."""
        self._other, self._now = other, now
        buckets = other.maps.whole(groups.keys)
        present = [
            number
            for number, may_match in enumerate(wanted.tolist())
            if may_match and buckets[number] is not None
        ]
        self._keys = [groups.keys[number] for number in present]
        entries = self._entries = Entries.of([buckets[number] or _EMPTY for number in present])
        data, heads = entries.data, entries.values
        counts = numbers_at(data, heads, "<i4")
        if other.ttl > 0:
            counts[numbers_at(data, heads + 8, "<i8") + other.ttl <= now] = 0
        rows = entries.names if other.by_row else heads + _HEAD.size
        self.columns = other.codec.unpack_at(data, rows)
        #: How many rows each entry matches, where somebody has to know.
        self.matches = np.empty(0, dtype=np.int64)
        if counts_matches:
            self.matches = numbers_at(data, heads + 4, "<i4")
        #: The numbers of matches that are others now.
        self.changes: dict[int, int] = {}
        #: Entries by group, one as often as its row is there.
        self.members = np.repeat(np.arange(len(counts)), counts)
        self._sizes = np.zeros(len(groups), dtype=np.int64)
        if present:
            ends = np.concatenate([[0], np.cumsum(counts)])
            lasts = np.cumsum(entries.counts)
            self._sizes[present] = ends[lasts] - ends[lasts - entries.counts]
        self._starts = np.cumsum(self._sizes) - self._sizes

    def write(self) -> None:
        """Keep how many rows each entry matches now."""
        if not self.changes:
            return
        entries, maps = self._entries, self._other.maps
        noted = np.fromiter(self.changes, np.int64, len(self.changes))
        matches = np.fromiter(self.changes.values(), "<i4", len(noted))
        heads = entries.values[noted]
        data = entries.data.copy()
        data[(heads + 4)[:, None] + np.arange(4)] = matches.view(np.uint8).reshape(-1, 4)
        now = np.frombuffer(_TIME.pack(self._now), np.uint8)
        data[(heads + 8)[:, None] + np.arange(8)] = now
        whole = data.tobytes()
        ends = np.append(entries.begins[1:], len(data)).tolist()
        begins = entries.begins.tolist()
        of_bucket = entries.bucket[noted].tolist()
        for bucket in dict.fromkeys(of_bucket):
            key = self._keys[bucket]
            if type(maps.only_bucket(key)) is bytes:
                maps.set_only_bucket(key, whole[begins[bucket] : ends[bucket]])
        for entry, bucket in zip(noted.tolist(), of_bucket, strict=True):
            key = self._keys[bucket]
            if type(maps.only_bucket(key)) is not bytes:
                at, length = entries.values[entry], entries.value_lengths[entry]
                maps.map_of(key).put(entries.name(entry), whole[at : at + length])
        maps.changed(self._keys)

    def sizes(self, group_of_row: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many rows each row may match."""
        return self._sizes[group_of_row]

    def pairs(
        self, rows: NDArray[np.int64], group_of_row: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return all pairs of these rows: row, and entry of the other side; in order of rows."""
        groups = group_of_row[rows]
        sizes = self._sizes[groups]
        repeated = np.repeat(rows, sizes)
        within = np.arange(len(repeated)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return repeated, self.members[np.repeat(self._starts[groups], sizes) + within]
