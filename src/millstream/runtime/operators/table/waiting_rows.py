"""Rows that wait for the watermark, of operators that take them in order of time.

What it is: rows are put aside with a timer at their time, and come out when the watermark has
passed it, in the order in which they came.

What it is not: in order of time; who takes them sorts them.

Read next: ``runtime/operators/table/row_lists.py``.
"""

from __future__ import annotations

from itertools import chain, compress
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.row_lists import packed_list, unpacked_list
from millstream.state.key_codec import uncache_key
from millstream.state.packed_state import PackedValues

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.runtime.columnar.row_codec import RowCodec
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState

__all__ = ["WaitingRows", "packed_rows", "unpacked_rows"]

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
        """Put the rows aside that are not late, until the watermark is next heard of behind them.

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
            start, count = int(groups.starts[number]), int(groups.counts[number])
            mine = groups.order[start : start + count]
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
