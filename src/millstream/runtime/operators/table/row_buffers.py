"""Packed lists of rows, rows that wait for the watermark, and changes in order of emission."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.array_utils import runs_of
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.base import UPDATE_AFTER, UPDATE_BEFORE
from millstream.state.key_codec import uncache_key
from millstream.state.packed_state import PackedValues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from millstream.runtime.columnar.row_codec import RowCodec
    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.runtime.operators.table.base import TableOperator
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState


_COUNT: Final = struct.Struct("<I")
_SHORT: Final = 8


def packed_list(rows: Sequence[bytes]) -> bytes:
    """Return the rows as one value."""
    count = len(rows)
    if count <= _SHORT:  # numpy takes longer to begin with
        return struct.pack(f"<{count + 1}I", count, *map(len, rows)) + b"".join(rows)
    lengths = np.fromiter(map(len, rows), "<u4", count)
    return b"".join([_COUNT.pack(count), lengths.tobytes(), *rows])


def unpacked_list(packed: bytes) -> list[bytes]:
    """Return the rows of a value."""
    (count,) = _COUNT.unpack_from(packed)
    lengths = struct.unpack_from(f"<{count}I", packed, _COUNT.size)
    rows, at = [], _COUNT.size * (count + 1)
    for length in lengths:
        rows.append(packed[at : at + length])
        at += length
    return rows


_TIME: Final = np.dtype("<i8")


@dataclass(slots=True)
class TimedRows:
    """Rows of one key with their times, in some order."""

    times: NDArray[np.int64]
    rows: list[bytes]
    #: What else is known of each row, a byte; None: nothing is.
    marks: NDArray[np.uint8] | None = None

    @classmethod
    def decoded(cls, stored: bytes | None, *, is_marked: bool) -> TimedRows:
        """Return what ``encoded`` has made; None: no rows."""
        if stored is None:
            return NO_MARKED_ROWS if is_marked else NO_ROWS
        times, *rows = unpacked_list(stored)
        marks = np.frombuffer(rows.pop(0), np.uint8) if is_marked else None
        return cls(np.frombuffer(times, _TIME).astype(np.int64), rows, marks)

    def encoded(self) -> bytes | None:
        """Return what is to be stored; None of no rows."""
        if not self.rows:
            return None
        marks = [] if self.marks is None else [self.marks.tobytes()]
        return packed_list([self.times.astype(_TIME).tobytes(), *marks, *self.rows])

    def __len__(self) -> int:
        return len(self.rows)

    def followed_by(self, later: TimedRows) -> TimedRows:
        """Return these rows and others after them."""
        if not self.rows:
            return later
        marks = None
        if self.marks is not None and later.marks is not None:
            marks = np.concatenate([self.marks, later.marks])
        times = np.concatenate([self.times, later.times])
        return TimedRows(times, [*self.rows, *later.rows], marks)

    def chosen(self, mask: NDArray[np.bool_]) -> TimedRows:
        """Return the rows for which ``mask`` is true."""
        if mask.all():
            return self
        return self.at(np.flatnonzero(mask))

    def at(self, positions: NDArray[np.int64]) -> TimedRows:
        """Return the rows at these positions."""
        rows = [self.rows[row] for row in positions.tolist()]
        marks = None if self.marks is None else self.marks[positions]
        return TimedRows(self.times[positions], rows, marks)

    def cut(self, start: int, stop: int) -> TimedRows:
        """Return a run of rows."""
        marks = None if self.marks is None else self.marks[start:stop]
        return TimedRows(self.times[start:stop], self.rows[start:stop], marks)

    def by_group(self, groups: RowGroups) -> list[TimedRows]:
        """Return the rows of each group."""
        ordered, starts = self.at(groups.order), groups.starts
        stops = (starts + groups.counts).tolist()
        return list(map(ordered.cut, starts.tolist(), stops))


NO_ROWS: Final = TimedRows(np.empty(0, np.int64), [])
NO_MARKED_ROWS: Final = TimedRows(np.empty(0, np.int64), [], np.empty(0, np.uint8))


def marks_of(rows: Sequence[TimedRows]) -> NDArray[np.uint8]:
    """Return the marks of all rows, which have them."""
    return np.concatenate([each.marks for each in rows if each.marks is not None])


class KeyedTimedRows:
    """The rows of all keys with their times, as state.

    Args:
        keyed: where it is kept.
        name: of the state.
        is_marked: whether rows have marks.
    """

    def __init__(self, keyed: KeyedState, name: str, *, is_marked: bool = False) -> None:
        self._keyed = keyed
        self._values = PackedValues(keyed, name)
        self._is_marked = is_marked

    def get(self, keys: Sequence[CacheKey]) -> list[TimedRows]:
        """Return the rows of keys."""
        stored = self._values.get_all(keys)
        return [TimedRows.decoded(each, is_marked=self._is_marked) for each in stored]

    def put(self, keys: Sequence[CacheKey], rows: Iterable[TimedRows]) -> None:
        """Set the rows of keys."""
        self._values.put_all(keys, [each.encoded() for each in rows])

    def add(
        self,
        groups: RowGroups,
        rows: TimedRows,
        keep: Callable[[TimedRows], TimedRows] = lambda rows: rows,
    ) -> None:
        """Put rows after those of their keys; ``keep`` gives what is kept of all of a key."""
        kept = (
            before.followed_by(mine)
            for before, mine in zip(self.get(groups.keys), rows.by_group(groups), strict=True)
        )
        self.put(groups.keys, map(keep, kept))

    def take(self, keys: Sequence[CacheKey], time: int) -> list[TimedRows]:
        """Take out the rows of keys up to a time."""
        kept = self.get(keys)
        due = [each.times <= time for each in kept]
        pairs = list(zip(kept, due, strict=True))
        left = [None if mask.all() else each.chosen(~mask).encoded() for each, mask in pairs]
        self._values.put_all(keys, left)
        return [each.chosen(mask) for each, mask in pairs]

    def register(self, groups: RowGroups, times: NDArray[np.int64]) -> None:
        """Have an event-time timer of its key, without a namespace, at the time of each row."""
        register = self._keyed.timers.register_event_time
        in_order, starts = times[groups.order].tolist(), groups.starts
        bounds = zip(starts.tolist(), (starts + groups.counts).tolist(), strict=True)
        for key, (start, stop) in zip(groups.keys, bounds, strict=True):
            known = uncache_key(key)
            for time in set(in_order[start:stop]):
                register(known, b"", time)


class WaitingRows(KeyedTimedRows):
    """The rows of all keys that wait for the watermark."""

    def __init__(self, keyed: KeyedState, codec: RowCodec, keys: Sequence[int]) -> None:
        """Register what is kept.

        Args:
            keyed: where; its timers of event time are used, without a namespace.
            codec: of rows.
            keys: the columns of the key.
        """
        super().__init__(keyed, "\0waiting")
        self._codec = codec
        self._keys = keys

    def add_on_time(
        self, arrow: pa.RecordBatch, times: NDArray[np.int64], is_late: NDArray[np.bool_]
    ) -> int:
        """Put the rows aside that are not late, until the watermark is next heard of after them.

        Returns:
            How many were late.
        """
        late = int(is_late.sum())
        if late:
            arrow, times = arrow.filter(pa.array(~is_late)), times[~is_late]
        if len(times):
            groups = group_rows([arrow.column(index) for index in self._keys], len(times))
            self._keyed.make_room(len(groups))
            self.add(groups, TimedRows(times, self._codec.pack(arrow.columns)))
            self.register(groups, times)
        return late

    def take_columns(
        self, keys: list[CacheKey], watermark: int
    ) -> tuple[pa.RecordBatch, NDArray[np.int64], list[int]]:
        """Take out the rows of these keys that the watermark has passed.

        Returns:
            The rows, key by key, their times, and how many each key has.
        """
        self._keyed.make_room(len(keys))
        due = self.take(keys, watermark)
        columns = self._codec.unpack(list(chain.from_iterable(each.rows for each in due)))
        arrow = pa.RecordBatch.from_arrays(columns, schema=self._codec.schema)
        return arrow, np.concatenate([each.times for each in due]), list(map(len, due))


#: What is added of a few rows, to be copied.
_UPDATES: Final = [UPDATE_BEFORE, UPDATE_AFTER] * 200
_NUMBERS: Final = [number for number in range(201) for _ in range(2)]


class RowChanges:
    """Changes in the order in which they are to be emitted."""

    __slots__ = ("kinds", "numbers", "rows")

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self.rows: list[bytes] = []
        #: What stands after each row, if there is such a column.
        self.numbers: list[int] = []

    def add(self, kind: int, row: bytes) -> None:
        """Add a change."""
        self.kinds.append(kind)
        self.rows.append(row)

    def add_updates(self, before: list[bytes], after: list[bytes], number: int) -> None:
        """Add -U and +U of rows that change, numbered from ``number`` on."""
        count = 2 * len(before)
        pairs = before * 2
        pairs[::2], pairs[1::2] = before, after
        self.rows += pairs
        if count <= len(_UPDATES) and 2 * number + count <= len(_NUMBERS):
            self.kinds += _UPDATES[:count]
            self.numbers += _NUMBERS[2 * number : 2 * number + count]
        else:
            self.kinds += (UPDATE_BEFORE, UPDATE_AFTER) * len(before)
            numbers = range(number, number + len(before))
            self.numbers += chain.from_iterable(zip(numbers, numbers, strict=True))

    def add_afters(self, before: list[bytes], after: list[bytes], number: int) -> None:
        """Add +U alone of rows that change, numbered from ``number`` on."""
        del before
        self.rows += after
        self.kinds += [UPDATE_AFTER] * len(after)
        self.numbers += range(number, number + len(after))

    def emit(self, operator: TableOperator, codec: RowCodec) -> None:
        """Emit all of them."""
        kinds = np.array(self.kinds, dtype=np.int8)
        sizes = np.fromiter(map(len, self.rows), np.int64, len(self.rows))
        for run in runs_of(sizes):
            columns = codec.unpack(self.rows[run])
            if self.numbers:
                columns.append(pa.array(self.numbers[run], pa.int64()))
            kind = kinds[run]
            operator.emit_columns(columns, kind if kind.any() else None)
