"""Functions over the rows around each row, where all rows of a partition are there.

What it is: where frames begin and end, and what ranks, shares, buckets and values of other rows
are; arrays, for all partitions of a batch at once.

What it is not: aggregates over frames (``runtime/operators/table/batch_over.py``), nor OVER of
streams, whose rows come one after another (``runtime/operators/table/over.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["NUMBERING", "Frame", "Offset", "OrderedPartitions", "numbered", "ordering_values"]

Offset: TypeAlias = int | float | Decimal
#: A count of rows that no partition has.
_MANY: Final = 1 << 48
#: Below it, sums and differences of two integers of 64 bits do not wrap around.
_SAFE: Final = 1 << 61


@dataclass(frozen=True, slots=True)
class Frame:
    """Which rows around a row: from ``preceding`` before it to ``following`` behind it."""

    is_rows: bool
    #: Rows, or a distance in the column that orders them; negative: behind the row.  None: all.
    preceding: Offset | None
    #: The same; negative: before the row.
    following: Offset | None


@dataclass(frozen=True)
class OrderedPartitions:
    """Partitions, each in its order, one behind the other; none is empty."""

    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    #: Which rows are the first of their order in their partition.
    is_first: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.is_first)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The place of each row."""
        return np.arange(len(self))

    @cached_property
    def begins(self) -> NDArray[np.int64]:
        """Where the partition of each row begins."""
        return np.repeat(self.starts, self.counts)

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """The place behind the partition of each row."""
        return np.repeat(self.starts + self.counts, self.counts)

    @cached_property
    def peers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the rows of the order of each row begin, and the place behind them."""
        firsts = np.flatnonzero(self.is_first)
        lengths = np.diff(np.append(firsts, len(self)))
        return np.repeat(firsts, lengths), np.repeat(firsts + lengths, lengths)

    def bounds(
        self, frame: Frame, values: NDArray[Any], is_null: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the frame of each row begins, and the place behind it.

        Args:
            frame: of all rows.
            values: for RANGE with a distance: what ``ordering_values`` gives.
            is_null: which of these are NULL or no number; only rows of the same order are at a
                distance of them.
        """
        if frame.is_rows:
            low, high = self._by_rows(frame)
        else:
            low, high = self._by_range(frame, values, is_null)
        return low, np.maximum(low, high)

    def _by_rows(self, frame: Frame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        low, high = self.begins, self.ends
        if frame.preceding is not None:
            before = int(np.clip(int(frame.preceding), -_MANY, _MANY))
            low = np.clip(self.rows - before, self.begins, self.ends)
        if frame.following is not None:
            behind = int(np.clip(int(frame.following), -_MANY, _MANY))
            high = np.clip(self.rows + behind + 1, self.begins, self.ends)
        return low, high

    def _by_range(
        self, frame: Frame, values: NDArray[Any], is_null: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        low, high = (each.copy() for each in self.peers)
        for start, count in zip(self.starts.tolist(), self.counts.tolist(), strict=True):
            known = start + np.flatnonzero(~is_null[start : start + count])
            if not len(known):
                continue
            part = values[known]
            if frame.preceding:
                low[known] = known[0] + np.searchsorted(part, part - frame.preceding, "left")
            if frame.following:
                high[known] = known[0] + np.searchsorted(part, part + frame.following, "right")
        if frame.preceding is None:
            low = self.begins
        if frame.following is None:
            high = self.ends
        return low, high


def ordering_values(
    column: pa.Array, frame: Frame, *, descending: bool
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the values that RANGE measures distances in, ascending, and which are NULL or NaN.

    Args:
        column: that orders the rows; of times the distance is in milliseconds.
        frame: with the distances.
        descending: whether the values are; they are negated then.
    """
    kind = column.type
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_decimal(kind):
        values = np.array([each or 0 for each in column.to_pylist()], dtype=object)
    elif pa.types.is_floating(kind):
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
        is_null = is_null | np.isnan(values)  # which stand in front of others if descending
    else:
        values = _whole_numbers(column)
        ends = (values.min(), values.max(), frame.preceding or 0, frame.following or 0)
        if max(abs(int(each)) for each in ends) >= _SAFE:
            values = values.astype(object)
    return (-values if descending else values), is_null


def _whole_numbers(column: pa.Array) -> NDArray[np.int64]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms", kind.tz), safe=False)
    elif pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ms"))
    elif pa.types.is_time(kind):
        column = column.cast(pa.time32("ms"), safe=False)
    if pa.types.is_time32(column.type):
        column = column.cast(pa.int32())
    found: NDArray[np.int64] = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found


# -- functions of the place of a row ------------------------------------------------------------


def _row_number(rows: OrderedPartitions, arguments: list[pa.Array]) -> NDArray[Any]:
    del arguments
    return rows.rows - rows.begins + 1


def _rank(rows: OrderedPartitions, arguments: list[pa.Array]) -> NDArray[Any]:
    del arguments
    return rows.peers[0] - rows.begins + 1


def _dense_rank(rows: OrderedPartitions, arguments: list[pa.Array]) -> NDArray[Any]:
    del arguments
    counted: NDArray[np.int64] = np.cumsum(rows.is_first)
    return counted - counted[rows.begins] + 1


def _cume_dist(rows: OrderedPartitions, arguments: list[pa.Array]) -> NDArray[Any]:
    del arguments
    shares: NDArray[np.float64] = (rows.peers[1] - rows.begins) / (rows.ends - rows.begins)
    return shares


def _percent_rank(rows: OrderedPartitions, arguments: list[pa.Array]) -> NDArray[Any]:
    del arguments
    others: NDArray[np.int64] = np.maximum(rows.ends - rows.begins - 1, 1)
    shares: NDArray[np.float64] = (rows.peers[0] - rows.begins) / others
    return shares


def _ntile(rows: OrderedPartitions, arguments: list[pa.Array]) -> NDArray[Any]:
    """The first buckets have one row more, if the rows cannot be divided equally."""
    buckets = arguments[0].cast(pa.int64()).to_numpy()
    size, more = np.divmod(rows.ends - rows.begins, buckets)
    place = rows.rows - rows.begins
    in_larger = more * (size + 1)
    behind = more + (place - in_larger) // np.maximum(size, 1)
    found: NDArray[np.int64] = np.where(place < in_larger, place // (size + 1), behind) + 1
    return found


_PLACES: Final[dict[str, Callable[[OrderedPartitions, list[pa.Array]], NDArray[Any]]]] = {
    "ROW_NUMBER": _row_number,
    "RANK": _rank,
    "DENSE_RANK": _dense_rank,
    "CUME_DIST": _cume_dist,
    "PERCENT_RANK": _percent_rank,
    "NTILE": _ntile,
}
_OTHER_ROWS: Final = {"LAG": -1, "LEAD": 1}
#: The functions that have no frame.
NUMBERING: Final = frozenset({*_PLACES, *_OTHER_ROWS})


def numbered(function: str, rows: OrderedPartitions, arguments: list[pa.Array]) -> pa.Array:
    """Return a function of the places of rows, or of a row at a distance.

    Args:
        function: one of ``NUMBERING``.
        rows: the partitions.
        arguments: NTILE: the number of buckets; LAG and LEAD: the value, the distance and the
            default.

    Raises:
        ProgramError: there is no such function.
    """
    if function in _PLACES:
        return pa.array(_PLACES[function](rows, arguments))
    if function not in _OTHER_ROWS:
        message = f"{function} is no function of the place of a row"
        raise ProgramError(message)
    values, distance, default = arguments
    at = rows.rows + _OTHER_ROWS[function] * distance.cast(pa.int64()).to_numpy()
    is_there = (rows.begins <= at) & (at < rows.ends)
    found = values.take(pa.array(np.where(is_there, at, 0)))
    return pc.if_else(pa.array(is_there), found, default)
