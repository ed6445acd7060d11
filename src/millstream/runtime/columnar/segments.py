"""Running aggregates within segments of rows: what an aggregate is after each row of its key.

What it is: prefix sums, running extremes and the like, for all keys of a batch at once.  A segment
is a run of rows, in order, that goes on from one state: the rows of a key in a batch, or from where
the key had no rows left.

What it is not: aware of keys, state or SQL.

Read next: ``runtime/columnar/changelog_aggregates.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.state.packed_state import Place

__all__ = ["Segments", "running", "running_last", "running_sum", "sorted_ranks", "surviving_counts"]

#: Segments that are longer are gone through one by one, the others all at once row by row.
_LONG: Final = 64


@dataclass(frozen=True)
class Segments:
    """Segment ``s`` has the rows ``[starts[s], starts[s] + counts[s])``; none is empty."""

    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    #: The key of each segment.
    keys: Sequence[Place]
    #: Whether a segment goes on from nothing.
    is_fresh: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def rows(self) -> int:
        """How many rows all segments have."""
        return int(self.counts.sum())

    @cached_property
    def segment_of(self) -> NDArray[np.int64]:
        """The segment of each row."""
        return np.repeat(np.arange(len(self.starts)), self.counts)

    @property
    def lasts(self) -> NDArray[np.int64]:
        """The last row of each segment."""
        return self.starts + self.counts - 1


def running_sum(values: NDArray[Any], segments: Segments, initial: NDArray[Any]) -> NDArray[Any]:
    """Return the sum up to and with each row; exact integers, wrapping around as Java's."""
    sums: NDArray[Any] = np.cumsum(values, dtype=values.dtype)
    base = initial - (sums[segments.starts] - values[segments.starts])
    sums += np.repeat(base, segments.counts)
    return sums


def running(
    function: np.ufunc, values: NDArray[Any], segments: Segments, initial: NDArray[Any]
) -> NDArray[Any]:
    """Return ``function`` applied row by row, from left to right, beginning with ``initial``."""
    result = values.copy()
    starts, counts = segments.starts, segments.counts
    result[starts] = function(initial, values[starts])
    long = counts > _LONG
    for start, count in zip(starts[long].tolist(), counts[long].tolist(), strict=True):
        part = result[start : start + count]
        function.accumulate(part, out=part)
    short = np.flatnonzero(~long)
    short = short[np.argsort(-counts[short], kind="stable")]
    at, left = starts[short], counts[short]
    for step in range(1, int(left.max(initial=0))):
        active = int(np.searchsorted(-left, -step, side="left"))  # those with more rows
        rows = at[:active] + step
        result[rows] = function(result[rows - 1], values[rows])
    return result


def running_last(
    chosen: NDArray[np.bool_], segments: Segments, *, first: bool = False
) -> NDArray[np.int64]:
    """Return the last chosen row up to and with each row, or the first; -1: none in its segment."""
    count = len(chosen)
    rows = np.arange(count)
    begins = np.repeat(segments.starts, segments.counts)
    if not first:
        found = np.maximum.accumulate(np.where(chosen, rows, -1))
        return np.where(found >= begins, found, -1)
    before: NDArray[np.int64] = np.cumsum(chosen) - chosen
    is_first = chosen & (before == before[begins])
    return running_last(is_first, segments)


def surviving_counts(
    weights: NDArray[np.int64], segments: Segments, initial: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Count the rows that a key has after each change, where none can be taken from nothing.

    Args:
        weights: +1 or -1 per row.
        segments: the rows of each key.
        initial: how many rows each key had.

    Returns:
        The counts, and which rows took nothing away because there was nothing.
    """
    sums = running_sum(weights, segments, initial)
    lowest = running(np.minimum, np.minimum(sums, 0), segments, np.zeros(len(segments), np.int64))
    before: NDArray[np.int64] = np.roll(lowest, 1)
    before[segments.starts] = 0
    return sums - lowest, lowest < before


def sorted_ranks(values: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Return the rank of each value, -1 for null, and the distinct values by rank."""
    is_boolean = pa.types.is_boolean(values.type)
    if is_boolean:
        values = values.cast(pa.int8())
    encoded = values.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank_of = np.empty(len(order) + 1, dtype=np.int64)
    rank_of[order] = np.arange(len(order))
    rank_of[-1] = -1
    ranks = rank_of[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    by_rank = encoded.dictionary.take(pa.array(order))
    return ranks, by_rank.cast(pa.bool_()) if is_boolean else by_rank
