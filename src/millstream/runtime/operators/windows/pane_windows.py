"""Windows out of panes, at a cost that does not depend on how many windows overlap.

What it is: windows that overlap are combined block by block (van Herk's way).  The panes of a
block, about as many as a window has, are combined backwards once: row ``i`` then holds all from
pane ``i`` to the end of the block.  The panes behind the block are combined forwards as windows
reach them.  Each window is one row of the first and one row of the second, whatever its number of
panes; the cost per window is that of its keys.

What it is not: state, or a decision on what is due (``chunks.py``, ``pane_clock.py``).
Blocks are a cache: they are made of the panes again at any time.

Read next: ``runtime/operators/windows/columnar.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.runtime.columnar.aggregates import one_array
from millstream.runtime.columnar.partial_aggregates import (
    POSITION,
    PartialMatrix,
    RowPool,
    concatenated,
)
from millstream.runtime.columnar.row_groups import KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from millstream.runtime.operators.windows.panes import Panes
    from millstream.runtime.operators.windows.partials import Partials

    #: From a pane to its tables of key and partial columns, as they came.
    ReadPane = Callable[[int], list[pa.Table]]

__all__ = ["PaneWindows"]

#: Entries of a block (row, key), for all of which there are partial columns: 4 M are 32 MB each.
MOST_ENTRIES: Final = 4_000_000
#: Rows of a block where partials are lists or sketches, which grow from row to row.
MOST_LISTS: Final = 16
#: Tables that share a row are laid over each other; more of them are merged first.
_MOST_LAYERS: Final = 4
#: Rows of results that are made together.
MOST_ROWS: Final = 500_000


class PaneWindows:
    """Makes windows, in order of time, of the panes of one form of key."""

    def __init__(self, partials: Partials, panes: Panes, read: ReadPane) -> None:
        """Take how to merge and where panes come from."""
        self._partials = partials
        self._panes = panes
        self._read = read
        self._block: _Block | None = None

    def touch(self, pane: int) -> None:
        """Forget what was combined if the pane is part of it: its content has changed."""
        if self._block is not None and pane < self._block.reached:
            self._block = None

    def results(
        self, windows: NDArray[np.int64], present: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
        """Yield (window of each line, table of key and partial columns).

        Args:
            windows: numbers of windows, ascending.
            present: the panes that have state, ascending.
        """
        position = 0
        while position < len(windows):
            first = int(windows[position]) * self._panes.per_slide
            block = self._block
            if block is None or not block.reaches(first):
                block = _Block(self._partials, self._panes, first, self._read, present)
                self._block = block
            stop = int(np.searchsorted(windows, block.middle_window))
            most = max(1, MOST_ROWS // max(block.width, 1))
            stop = min(stop, position + most)
            yield from block.results(windows[position:stop], present)
            position = stop


class _Block:
    """The panes from ``first`` up to ``middle``, combined backwards, and those behind, forwards."""

    def __init__(
        self,
        partials: Partials,
        panes: Panes,
        first: int,
        read: ReadPane,
        present: NDArray[np.int64],
    ) -> None:
        self._partials = partials
        self._panes = panes
        self._read = read
        self._first = first
        self._pool = RowPool(partials)
        end = first + panes.per_window
        within = present[np.searchsorted(present, first) : np.searchsorted(present, end)]
        tables = {pane: read(pane) for pane in within.tolist()}
        self._nothing = next(iter(tables.values()))[0].slice(0, 0)
        self._keys = _unique([table for each in tables.values() for table in each])
        self.width = len(self._keys)
        # Shorter blocks where there are many keys: the panes up to the end of the first window
        # are then combined once per block instead of once per window.
        most = MOST_LISTS if partials.has_kernels else MOST_ENTRIES // max(self.width, 1)
        rows = max(1, most)
        self._middle = min(first + rows * panes.per_slide, end)
        #: Panes below are part of what is combined.
        self.reached = self._middle
        inside = within[within < self._middle]
        count = -(-(self._middle - first) // panes.per_slide)
        self._suffix = self._matrix(
            {pane: tables[pane] for pane in inside.tolist()},
            (inside - first) // panes.per_slide,
            count,
        ).accumulated(backwards=True)
        self._prefix = self._matrix({}, np.zeros(0, dtype=np.int64), 1)

    @property
    def middle_window(self) -> int:
        """The first window that begins behind the block."""
        return -(-self._middle // self._panes.per_slide)

    def reaches(self, pane: int) -> bool:
        """Whether a window that begins with this pane can be made of the block."""
        return self._first <= pane < self._middle

    def results(
        self, windows: NDArray[np.int64], present: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
        """Yield (window of each line, table of key and partial columns)."""
        begins = windows * self._panes.per_slide
        ends = begins + self._panes.per_window
        # What lies behind the block, up to the end of each window.
        low, high = np.searchsorted(present, (self.reached, int(ends[-1])))
        behind = present[low:high]
        tables = {pane: self._read(pane) for pane in behind.tolist()}
        rows = np.searchsorted(ends, behind, side="right")
        prefix = self._matrix(tables, rows, len(windows))
        first = self._prefix.padded(self.width).followed_by(prefix.rows(slice(0, 1)))
        prefix = first.above(prefix.rows(slice(1, None))).accumulated(backwards=False)
        self._prefix = prefix.rows(slice(len(windows) - 1, None))
        self.reached = max(self.reached, int(ends[-1]))
        self._suffix = self._suffix.padded(self.width)
        starts = self._suffix.rows((begins - self._first) // self._panes.per_slide)
        lines, keys, table = starts.followed_by(prefix).lines(self._partials.columns)
        if len(lines):
            yield windows[lines], table.add_column(0, KEY, self._keys.take(pa.array(keys)))

    def _matrix(
        self, tables: dict[int, list[pa.Table]], rows: NDArray[np.int64], count: int
    ) -> PartialMatrix:
        """Lay out panes in rows; several panes may share a row."""
        layers: list[list[tuple[int, pa.Table]]] = []
        filled = [0] * count
        for row, parts in zip(rows.tolist(), tables.values(), strict=True):
            for part in parts:
                # No table has a key twice, so a layer has no entry twice.
                if filled[row] == len(layers):
                    layers.append([])
                layers[filled[row]].append((row, part))
                filled[row] += 1
        if len(layers) > _MOST_LAYERS:
            layers = [[each for layer in layers for each in layer]]
            return self._layer(layers[0], count, merge=True)
        made = self._layer(layers[0] if layers else [], count, merge=False)
        for layer in layers[1:]:
            later = self._layer(layer, count, merge=False)
            made = made.padded(self.width).followed_by(later)
        return made

    def _layer(
        self, parts: list[tuple[int, pa.Table]], count: int, *, merge: bool
    ) -> PartialMatrix:
        """Lay out (row, table); ``merge``: what falls on one entry, in the order given."""
        table = concatenated([part for _, part in parts] or [self._nothing])
        columns = self._columns(one_array(table.column(KEY)))
        rows = np.array([row for row, _ in parts], dtype=np.int64)
        lengths = [part.num_rows for _, part in parts]
        positions = pa.array(np.repeat(rows, lengths) * self.width + columns)
        table = table.append_column(POSITION, positions)
        if merge:
            table = self._partials.merge(table, [POSITION])
        return PartialMatrix.make(self._partials, table, count, self.width, self._pool)

    def _columns(self, keys: pa.Array) -> NDArray[np.int64]:
        """Return the column of each key; new keys get new ones."""
        found = pc.index_in(keys, value_set=self._keys)
        if found.null_count:
            fresh = keys.filter(found.is_null()).unique()
            self._keys = pa.concat_arrays([self._keys, fresh])
            # Room for more, so that matrices are not made wider for every few keys.
            if len(self._keys) > self.width:
                self.width = len(self._keys) + len(self._keys) // 4
            found = pc.index_in(keys, value_set=self._keys)
        columns: NDArray[np.int64] = found.to_numpy().astype(np.int64)
        return columns


def _unique(tables: list[pa.Table]) -> pa.Array:
    return one_array(pa.chunked_array([c for t in tables for c in t.column(KEY).chunks]).unique())
