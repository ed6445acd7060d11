"""Packed lists of rows, rows that wait for the watermark, and changes in order of emission."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import chain, compress
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.array_utils import runs_of
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.base import UPDATE_AFTER, UPDATE_BEFORE
from millstream.state.key_codec import uncache_key
from millstream.state.packed_state import PackedValues

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.runtime.columnar.row_codec import RowCodec
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


class WaitingRows:
    """The rows of all keys that wait."""

    def __init__(self, keyed: KeyedState, codec: RowCodec, keys: Sequence[int]) -> None:
        """Register what is kept.

        Args:
            keyed: where; its timers of event time are used, without a namespace.
            codec: of rows.
            keys: the columns of the key.
        """
        self._keyed = keyed
        self._codec = codec
        self._keys = keys
        self._values = PackedValues(keyed, "\0waiting")

    def add(
        self, arrow: pa.RecordBatch, times: NDArray[np.int64], is_late: NDArray[np.bool_]
    ) -> int:
        """Put the rows aside that are not late, until the watermark is next heard of after them.

        Returns:
            How many were late.
        """
        on_time = ~is_late
        late = int(is_late.sum())
        if late:
            arrow, times = arrow.filter(pa.array(on_time)), times[on_time]
        if not len(times):
            return late
        groups = group_rows([arrow.column(index) for index in self._keys], len(times))
        self._keyed.make_room(len(groups))
        rows = self._codec.pack(arrow.columns)
        stored = self._values.get_all(groups.keys)
        register = self._keyed.timers.register_event_time
        made: list[bytes] = []
        for number, (key, before) in enumerate(zip(groups.keys, stored, strict=True)):
            mine = groups.rows(number)
            old_times, old_rows = unpacked_rows(before)
            added = times[mine]
            new_rows = (rows[row] for row in mine.tolist())
            made.append(packed_rows(np.concatenate([old_times, added]), [*old_rows, *new_rows]))
            known = uncache_key(key)
            for time in set(added.tolist()):
                register(known, b"", time)
        self._values.put_all(groups.keys, made)
        return late

    def take(
        self, keys: list[CacheKey], watermark: int
    ) -> tuple[pa.RecordBatch, NDArray[np.int64], list[int]]:
        """Take out the rows of these keys that the watermark has passed.

        Returns:
            The rows, key by key, their times, and how many each key has.
        """
        self._keyed.make_room(len(keys))
        due_rows: list[list[bytes]] = []
        due_times: list[NDArray[np.int64]] = []
        left: list[bytes | None] = []
        for stored in self._values.get_all(keys):
            times, rows = unpacked_rows(stored)
            is_due = times <= watermark
            due_times.append(times[is_due])
            due_rows.append(list(compress(rows, is_due.tolist())))
            rest = list(compress(rows, (~is_due).tolist()))
            left.append(packed_rows(times[~is_due], rest) if rest else None)
        self._values.put_all(keys, left)
        columns = self._codec.unpack(list(chain.from_iterable(due_rows)))
        arrow = pa.RecordBatch.from_arrays(columns, schema=self._codec.schema)
        all_times = np.concatenate(due_times) if due_times else np.empty(0, np.int64)
        return arrow, all_times, list(map(len, due_rows))


def packed_rows(times: NDArray[np.int64], rows: list[bytes]) -> bytes:
    """Return rows with their times as one value of state."""
    return packed_list([times.astype(_TIME).tobytes(), *rows])


def unpacked_rows(stored: bytes | None) -> tuple[NDArray[np.int64], list[bytes]]:
    """Return what ``packed_rows`` has made; None: no rows."""
    if stored is None:
        return np.empty(0, dtype=np.int64), []
    times, *rows = unpacked_list(stored)
    return np.frombuffer(times, _TIME).astype(np.int64), rows


@dataclass(slots=True)
class TimedRows:
    """Rows of one key, in some order."""

    times: NDArray[np.int64]
    #: What else is known of each row, a byte.
    marks: NDArray[np.uint8]
    rows: list[bytes]

    @classmethod
    def decoded(cls, stored: bytes | None) -> TimedRows:
        """Return what ``encoded`` has made; None: no rows."""
        if stored is None:
            return cls(np.empty(0, np.int64), np.empty(0, np.uint8), [])
        times, marks, *rows = unpacked_list(stored)
        return cls(
            np.frombuffer(times, _TIME).astype(np.int64),
            np.frombuffer(marks, np.uint8).copy(),
            rows,
        )

    def encoded(self) -> bytes | None:
        """Return what is to be stored; None of no rows."""
        if not self.rows:
            return None
        return packed_list([self.times.astype(_TIME).tobytes(), self.marks.tobytes(), *self.rows])

    def __len__(self) -> int:
        return len(self.rows)

    def added(
        self, times: NDArray[np.int64], marks: NDArray[np.uint8], rows: list[bytes]
    ) -> TimedRows:
        """Return these rows and more after them."""
        return TimedRows(
            np.concatenate([self.times, times]),
            np.concatenate([self.marks, marks]),
            [*self.rows, *rows],
        )

    def chosen(self, mask: NDArray[np.bool_]) -> TimedRows:
        """Return the rows for which ``mask`` is true."""
        if mask.all():
            return self
        rows = list(compress(self.rows, mask.tolist()))
        return TimedRows(self.times[mask], self.marks[mask], rows)


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

    def add_afters(self, after: list[bytes], number: int) -> None:
        """Add +U alone of rows that change, numbered from ``number`` on."""
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
