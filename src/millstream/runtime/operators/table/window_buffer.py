"""What windows have in memory: partial aggregates as columns, by slice, before they are state.

What it is: Flink's window buffer.  Rows of a slice are aggregated per batch and put behind each
other; keys are columns, so nothing is done per key in Python.  A window that is over before the
next checkpoint never becomes state.

What it is not: state; ``window_aggregate.py`` writes what is here into state with each checkpoint,
and when it is too much.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.changelog_aggregates import Segments
from millstream.runtime.columnar.row_groups import codes_of, group_codes, stable_order
from millstream.runtime.columnar.table_windows import Windows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.runtime.operators.table.aggregate_calls import Aggregates

__all__ = ["Parts", "WindowBuffer"]

#: A slice is put together again when it has that many rows more than twice what it had.
_FEW: Final = 20_000


@dataclass(frozen=True)
class Parts:
    """Partial aggregates: the key columns, how many rows each is of, and columns of state."""

    keys: list[pa.Array]
    counts: NDArray[np.int64]
    states: list[pa.Array]

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def size(self) -> int:
        """Bytes."""
        columns = (*self.keys, *self.states)
        return int(self.counts.nbytes + sum(column.nbytes for column in columns))

    def taken(self, rows: NDArray[np.int64]) -> Parts:
        """Return some rows."""
        picked = pa.array(rows)
        keys = [column.take(picked) for column in self.keys]
        return Parts(keys, self.counts[rows], [column.take(picked) for column in self.states])

    def cut(self, start: int, stop: int) -> Parts:
        """Return a run of rows, without copying them."""
        run = slice(start, stop)
        keys = [column[run] for column in self.keys]
        return Parts(keys, self.counts[run], [column[run] for column in self.states])

    @classmethod
    def joined(cls, parts: Sequence[Parts]) -> Parts:
        """Return all of them, one behind the other."""
        if len(parts) == 1:
            return parts[0]
        keys = [pa.concat_arrays(columns) for columns in zip(*(p.keys for p in parts), strict=True)]
        states = [
            pa.concat_arrays(columns) for columns in zip(*(p.states for p in parts), strict=True)
        ]
        return cls(keys, np.concatenate([each.counts for each in parts]), states)

    def added_up(
        self, aggregates: Aggregates, of: NDArray[np.int64] | None = None
    ) -> tuple[Parts, NDArray[np.int64]]:
        """Put those of one key together.

        Args:
            aggregates: what they are of.
            of: numbers; only those of one number belong together.  None: all may.

        Returns:
            One for each key (and number), and a row that each is made of.
        """
        codes = [codes_of(column) for column in self.keys]
        parts = [(numbers, len(values)) for numbers, values in codes]
        if of is not None:
            parts.insert(0, (of, int(of.max(initial=0)) + 1))
        if not parts:
            parts = [(np.zeros(len(self), np.int64), 1)]
        order, starts, counts = group_codes(parts)
        if len(starts) == len(self):
            return self, np.arange(len(self))
        fresh = np.ones(len(starts), dtype=np.bool_)
        segments = Segments(starts, counts, range(len(starts)), fresh)
        moved, nothing = pa.array(order), pa.array(np.zeros(len(starts), np.int64))
        lifted = aggregates.parts_of([column.take(moved) for column in self.states])
        initial = [column.take(nothing) for column in aggregates.fresh]
        _, _, states = aggregates.add_up(lifted, segments, initial, last_only=True)
        totals: Any = np.add.reduceat(self.counts[order], starts)
        firsts = order[starts]
        picked = pa.array(firsts)
        return Parts([column.take(picked) for column in self.keys], totals, states), firsts


@dataclass
class _Slice:
    """The partial aggregates of one slice."""

    parts: list[Parts] = field(default_factory=list)
    rows: int = 0
    #: How many rows there were when it was last put together.
    before: int = 0


class WindowBuffer:
    """Partial aggregates by slice."""

    def __init__(self, aggregates: Aggregates) -> None:
        """Take what is aggregated."""
        self._aggregates = aggregates
        #: By start and end.
        self._slices: dict[tuple[int, int], _Slice] = {}
        #: Bytes, roughly.
        self.size = 0

    def __len__(self) -> int:
        return len(self._slices)

    def clear(self) -> None:
        """Forget everything."""
        self._slices.clear()
        self.size = 0

    @property
    def slices(self) -> Windows:
        """The slices, by their numbers."""
        bounds = np.array(list(self._slices), dtype=np.int64).reshape(-1, 2)
        return Windows(np.arange(len(bounds)), bounds[:, 0], bounds[:, 1])

    def add(self, parts: Parts, found: Windows) -> bool:
        """Keep partial aggregates, of each its slice; returns whether a slice is new."""
        firsts, numbers = found.distinct()
        if len(firsts) > 1:
            order = stable_order(numbers, len(firsts))
            parts, numbers = parts.taken(order), numbers[order]
        edges = np.searchsorted(numbers, np.arange(len(firsts) + 1)).tolist()
        bounds = zip(found.starts[firsts].tolist(), found.ends[firsts].tolist(), strict=True)
        before = len(self._slices)
        for number, slice_ in enumerate(bounds):
            self._keep(slice_, parts.cut(edges[number], edges[number + 1]))
        return len(self._slices) > before

    def _keep(self, bounds: tuple[int, int], parts: Parts) -> None:
        kept = self._slices.setdefault(bounds, _Slice())
        kept.parts.append(parts)
        kept.rows += len(parts)
        self.size += parts.size
        if len(kept.parts) > 1 and kept.rows > 2 * kept.before + _FEW:
            self.size -= sum(each.size for each in kept.parts)
            whole, _ = Parts.joined(kept.parts).added_up(self._aggregates)
            kept.parts, kept.rows, kept.before = [whole], len(whole), len(whole)
            self.size += whole.size

    def contents(self) -> list[list[Parts]]:
        """Return what each slice has."""
        return [kept.parts for kept in self._slices.values()]

    def drop(self, numbers: Sequence[int]) -> None:
        """Forget slices."""
        names = list(self._slices)
        for number in numbers:
            gone = self._slices.pop(names[number])
            self.size -= sum(each.size for each in gone.parts)

    def all(self) -> Iterator[tuple[Parts, Windows]]:
        """Yield everything, with its slices."""
        for (start, end), kept in self._slices.items():
            whole, _ = Parts.joined(kept.parts).added_up(self._aggregates)
            each = np.arange(len(whole))
            yield whole, Windows(each, np.full_like(each, start), np.full_like(each, end))
