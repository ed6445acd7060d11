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
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.row_codec import RowCodec
from millstream.state.packed_state import PackedMaps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.runtime.operators.table.specs import JoinSide
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState
    from millstream.types.logical_types import RowType

__all__ = ["Meeting", "Side"]

_HEAD: Final = struct.Struct("<iiq")
_EMPTY: Final = b""


class Side:
    """One input of a join."""

    def __init__(self, spec: JoinSide, row_type: RowType, ttl: int, name: str) -> None:
        """Take its keys, its columns, and how long its rows live."""
        self.spec = spec
        self.schema = row_type.to_arrow_schema()
        self.codec = RowCodec(self.schema)
        self._ttl = ttl
        self._name = name
        self._by_row = spec.unique_key is None
        self._unique: RowCodec | None = None
        if spec.unique_key is not None and not spec.is_one_per_key:
            kept = [self.schema.field(index) for index in spec.unique_key]
            self._unique = RowCodec(pa.schema(kept))
        self.maps: PackedMaps

    def open(self, keyed: KeyedState) -> None:
        """Register what is kept."""
        self.maps = PackedMaps(keyed, f"\0{self._name} rows")

    def names_of(self, arrow: pa.RecordBatch, rows: list[bytes]) -> list[bytes]:
        """Return what rows are found by."""
        if self._by_row:
            return rows
        if self._unique is None or self.spec.unique_key is None:
            return [_EMPTY] * len(rows)
        return self._unique.pack([arrow.column(index) for index in self.spec.unique_key])

    def is_over(self, value: bytes, now: int) -> bool:
        """Whether an entry has expired."""
        return self._ttl > 0 and int(_HEAD.unpack_from(value)[2]) + self._ttl <= now

    def add(self, key: CacheKey, name: bytes, row: bytes, matches: int, now: int) -> bool:
        """Keep a row; returns whether its name was not there."""
        kept = self.maps.map_of(key)
        stored = kept.get(name)
        is_new = stored is None or self.is_over(stored, now)
        if not self._by_row:
            kept.put(name, _HEAD.pack(1, matches, now) + row)
        else:
            count = 0 if stored is None or is_new else _HEAD.unpack_from(stored)[0]
            kept.put(name, _HEAD.pack(count + 1, matches, now))
        return is_new

    def take_back(self, key: CacheKey, name: bytes, now: int) -> None:
        """Forget a row, or one of several equal ones."""
        kept = self.maps.map_of(key)
        stored = kept.get(name)
        if stored is None:
            return
        count, matches, _ = _HEAD.unpack_from(stored)
        if count > 1 and not self.is_over(stored, now):
            kept.put(name, _HEAD.pack(count - 1, matches, now))
        else:
            kept.remove(name)

    def note(self, key: CacheKey, name: bytes, matches: int, now: int) -> None:
        """Keep how many rows of the other side a row matches."""
        kept = self.maps.map_of(key)
        stored = kept.get(name)
        if stored is not None:
            count = _HEAD.unpack_from(stored)[0]
            kept.put(name, _HEAD.pack(count, matches, now) + stored[_HEAD.size :])

    def row_of(self, name: bytes, value: bytes) -> bytes:
        """Return the row of an entry."""
        return name if self._by_row else value[_HEAD.size :]


class Meeting:
    """The rows of the other side that rows of a batch may match, by their keys.

    They stay the same while the batch is processed: it is of one side.
    """

    def __init__(self, other: Side, groups: RowGroups, wanted: NDArray[np.bool_], now: int) -> None:
        """Take the other side, whose maps were fetched, and the groups that may match anything."""
        self.keys: list[CacheKey] = []
        self.names: list[bytes] = []
        self.matches: list[int] = []
        rows: list[bytes] = []
        #: Entries by group, one as often as its row is there.
        members: list[int] = []
        ends: list[int] = []
        for key, may_match in zip(groups.keys, wanted.tolist(), strict=True):
            if may_match:
                for name, value in other.maps.map_of(key).items():
                    if other.is_over(value, now):
                        continue
                    count, matches, _ = _HEAD.unpack_from(value)
                    members.extend([len(rows)] * count)
                    self.keys.append(key)
                    self.names.append(name)
                    self.matches.append(matches)
                    rows.append(other.row_of(name, value))
            ends.append(len(members))
        self.columns = other.codec.unpack(rows)
        self.members = np.array(members, dtype=np.int64)
        bounds = np.array([0, *ends], dtype=np.int64)
        self._starts, self._sizes = bounds[:-1], np.diff(bounds)

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
