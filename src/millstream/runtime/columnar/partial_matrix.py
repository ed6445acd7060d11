"""Partial aggregates of many rows and keys, as dense matrices.

What it is: for each partial column a matrix of (row, key), where a row stands for a part of the
records of each key (windows: for panes).  Rows are combined by numpy's functions where the
aggregate is a sum, minimum or maximum of numbers; the partials of other aggregates lie in a table,
the *pool*, and the matrix says where.

What it is not: the choice of what is combined with what (that of windows is in
``runtime/operators/windows/pane_windows.py``).

Read next: ``runtime/operators/windows/pane_windows.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.grouped_kernels import one_array
from millstream.runtime.columnar.partial_aggregates import concatenated

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from millstream.runtime.columnar.partial_aggregates import PartialAggregates

__all__ = ["POSITION", "PartialMatrix", "RowPool"]

#: Column of the tables that a matrix is made of: where each line goes.
POSITION: Final = "__position"

_PAIR: Final = "__pair"
_FUNCTIONS: Final[dict[str, Any]] = {"sum": np.add, "min": np.fmin, "max": np.fmax}


class RowPool:
    """Partials that are combined by ``PartialAggregates.merge``, at fixed positions."""

    def __init__(self, partials: PartialAggregates) -> None:
        """Start empty."""
        self._partials = partials
        self._tables: list[pa.Table] = []
        self._starts: list[int] = []
        self._length = 0

    def add(self, table: pa.Table) -> int:
        """Append a table; return the position of its first line."""
        first = self._length
        if table.num_rows or not self._tables:
            self._starts.append(first)
            self._tables.append(table)
            self._length += table.num_rows
        return first

    def take(self, positions: NDArray[np.int64]) -> pa.Table:
        """Return the lines at these positions."""
        if not len(positions):
            return self._tables[0].slice(0, 0)
        tables = np.searchsorted(np.array(self._starts), positions, side="right") - 1
        used = np.unique(tables).tolist()
        parts = []
        for number in used:
            within = positions[tables == number] - self._starts[number]
            parts.append(self._tables[number].take(pa.array(within)))
        if len(parts) == 1:
            return parts[0]
        back = np.empty(len(positions), dtype=np.int64)
        back[np.argsort(tables, kind="stable")] = np.arange(len(positions))
        return concatenated(parts).combine_chunks().take(pa.array(back))

    def merge(self, earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.int64]:
        """Combine positions pairwise; -1 stands for nothing."""
        result = np.where(earlier >= 0, earlier, later)
        both = np.flatnonzero((earlier >= 0) & (later >= 0))
        if len(both):
            positions = np.stack((earlier.flat[both], later.flat[both]), axis=1).reshape(-1)
            lines = self.take(positions)
            pairs = pa.array(np.repeat(np.arange(len(both)), 2))
            merged = self._partials.merge(lines.append_column(_PAIR, pairs), [_PAIR])
            first = self.add(merged.drop_columns([_PAIR]))
            result.flat[both[merged.column(_PAIR).to_numpy()]] = np.arange(first, first + len(both))
        return result


@dataclass
class _Numbers:
    """One partial column of numbers."""

    function: Any
    values: NDArray[Any]
    #: Where there is a value; None: wherever the key is present.
    valid: NDArray[np.bool_] | None
    type: pa.DataType

    def map(self, change: Callable[[NDArray[Any], Any], NDArray[Any]]) -> _Numbers:
        """Apply ``change(matrix, what stands for nothing)`` to values and validity."""
        values = change(self.values, _identity(self.function, self.values.dtype))
        valid = None if self.valid is None else change(self.valid, False)  # noqa: FBT003
        return _Numbers(self.function, values, valid, self.type)


class PartialMatrix:
    """Partials by (row, key)."""

    def __init__(
        self,
        present: NDArray[np.bool_],
        numbers: dict[str, _Numbers],
        positions: NDArray[np.int64] | None,
        pool: RowPool,
    ) -> None:
        """Take the matrices; ``positions`` is None where no aggregate uses the pool."""
        self.present = present
        self._numbers = numbers
        self._positions = positions
        self._pool = pool

    @staticmethod
    def make(
        partials: PartialAggregates, table: pa.Table, rows: int, keys: int, pool: RowPool
    ) -> PartialMatrix:
        """Lay out a table with the column POSITION (row * keys + key) and all partial columns.

        Args:
            partials: says how columns are merged.
            table: no two lines have the same position.
            rows: the number of rows.
            keys: the number of columns of the matrices.
            pool: where partials go that are not numbers.
        """
        at = table.column(POSITION).to_numpy()
        spread = partial(_spread, (rows, keys), at)
        numbers: dict[str, _Numbers] = {}
        for name, merge in partials.native:
            column = one_array(table.column(name))
            values = _as_numbers(column)
            if values is None:
                continue
            function, valid = _FUNCTIONS[merge], None
            nothing = _identity(function, values.dtype)
            if column.null_count:
                some = column.is_valid().to_numpy(zero_copy_only=False)
                values = np.where(some, values, nothing)
                valid = spread(some, nothing=False)
            numbers[name] = _Numbers(function, spread(values, nothing=nothing), valid, column.type)
        positions = None
        others = [name for name in partials.columns if name not in numbers]
        if others:
            first = pool.add(table.select(others))
            positions = spread(np.arange(first, first + table.num_rows), nothing=-1)
        present = spread(np.ones(table.num_rows, dtype=np.bool_), nothing=False)
        return PartialMatrix(present, numbers, positions, pool)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and keys."""
        rows, keys = self.present.shape
        return rows, keys

    def rows(self, rows: NDArray[np.int64] | slice) -> PartialMatrix:
        """Return some of the rows."""
        return self._map(lambda matrix, _nothing: matrix[rows])

    def padded(self, keys: int) -> PartialMatrix:
        """Return the same with more keys, none of them present."""
        missing = keys - self.shape[1]
        if not missing:
            return self

        def pad(matrix: NDArray[Any], nothing: Any) -> NDArray[Any]:
            return np.pad(matrix, ((0, 0), (0, missing)), constant_values=nothing)

        return self._map(pad)

    def _map(self, change: Callable[[NDArray[Any], Any], NDArray[Any]]) -> PartialMatrix:
        positions = None if self._positions is None else change(self._positions, -1)
        numbers = {name: each.map(change) for name, each in self._numbers.items()}
        return PartialMatrix(change(self.present, False), numbers, positions, self._pool)  # noqa: FBT003

    def followed_by(self, later: PartialMatrix) -> PartialMatrix:
        """Combine entry by entry with rows that are later in time; both have the same shape."""
        numbers = {}
        for name, mine in self._numbers.items():
            theirs = later._numbers[name]
            valid = None
            if mine.valid is not None or theirs.valid is not None:
                valid = self._valid(mine) | later._valid(theirs)
            values = mine.function(self._floats(mine, theirs), later._floats(theirs, mine))
            kind = mine.type if mine.type == theirs.type else pa.from_numpy_dtype(values.dtype)
            numbers[name] = _Numbers(mine.function, values, valid, kind)
        positions = None
        if self._positions is not None and later._positions is not None:
            positions = self._pool.merge(self._positions, later._positions)
        return PartialMatrix(self.present | later.present, numbers, positions, self._pool)

    def above(self, other: PartialMatrix) -> PartialMatrix:
        """Return these rows and those of ``other`` below; both have the same keys."""
        numbers = {}
        for name, mine in self._numbers.items():
            theirs = other._numbers[name]
            valid = None
            if mine.valid is not None or theirs.valid is not None:
                valid = np.concatenate((self._valid(mine), other._valid(theirs)))
            values = np.concatenate((self._floats(mine, theirs), other._floats(theirs, mine)))
            kind = mine.type if mine.type == theirs.type else pa.from_numpy_dtype(values.dtype)
            numbers[name] = _Numbers(mine.function, values, valid, kind)
        positions = None
        if self._positions is not None and other._positions is not None:
            positions = np.concatenate((self._positions, other._positions))
        present = np.concatenate((self.present, other.present))
        return PartialMatrix(present, numbers, positions, self._pool)

    def accumulated(self, *, backwards: bool) -> PartialMatrix:
        """Combine each row with all before it; with all behind it if ``backwards``."""
        step = slice(None, None, -1 if backwards else 1)
        numbers = {}
        for name, each in self._numbers.items():
            values = each.function.accumulate(each.values[step], axis=0)[step]
            valid = None
            if each.valid is not None:
                valid = np.logical_or.accumulate(each.valid[step], axis=0)[step]
            numbers[name] = _Numbers(each.function, values, valid, each.type)
        positions = self._positions
        if positions is not None:
            positions = positions.copy()
            for row in range(1, len(positions)):
                if backwards:
                    positions[~row] = self._pool.merge(positions[~row], positions[-row])
                else:
                    positions[row] = self._pool.merge(positions[row - 1], positions[row])
        present = np.logical_or.accumulate(self.present[step], axis=0)[step]
        return PartialMatrix(present, numbers, positions, self._pool)

    def lines(self, names: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Table]:
        """Return row, key and partial columns of all entries that are present, row by row."""
        rows, keys = np.nonzero(self.present)
        others = None if self._positions is None else self._pool.take(self._positions[rows, keys])
        columns = []
        for name in names:
            each = self._numbers.get(name)
            if each is None:
                columns.append(others.column(name) if others is not None else None)
                continue
            missing = None if each.valid is None else ~each.valid[rows, keys]
            found = pa.array(each.values[rows, keys], mask=missing)
            columns.append(_back(found, each.type))
        return rows, keys, pa.table(columns, names=names)

    def _valid(self, numbers: _Numbers) -> NDArray[np.bool_]:
        return self.present if numbers.valid is None else numbers.valid

    def _floats(self, numbers: _Numbers, other: _Numbers) -> NDArray[Any]:
        """Integers beside floats become floats, so that nothing stands for nothing as there."""
        values = numbers.values
        if values.dtype.kind == "f" or other.values.dtype.kind != "f":
            return values
        nothing = _identity(numbers.function, other.values.dtype)
        return np.where(self._valid(numbers), values, nothing)


def _spread(
    shape: tuple[int, int], at: NDArray[np.int64], values: NDArray[Any], *, nothing: Any
) -> NDArray[Any]:
    """Return a matrix with ``values`` at these positions and ``nothing`` elsewhere."""
    flat = np.full(shape[0] * shape[1], nothing, dtype=values.dtype)
    flat[at] = values
    return flat.reshape(shape)


def _identity(function: Any, dtype: np.dtype[Any]) -> Any:
    """Return what changes nothing; NaN is passed over by fmin and fmax."""
    if function is np.add:
        return 0
    if dtype.kind == "f":
        return np.nan
    return np.iinfo(dtype).max if function is np.fmin else np.iinfo(dtype).min


def _as_numbers(column: pa.Array) -> NDArray[Any] | None:
    """Return the column as numbers (what is null is any number); None if it has none."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        column = column.view(pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        return None
    if column.null_count:
        column = column.fill_null(0)
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _back(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    if numbers.type == kind:
        return numbers
    if pa.types.is_temporal(kind):
        return numbers.view(kind)
    return numbers.cast(kind)
