"""Unnest: each row with the elements of an array, map or multiset of it.

What it is: UNNEST in FROM.  The last column of the input holds what is unnested; it gives the other
columns, then the element (its fields, if it is a row; key and value of a map), then its number.
What it is not: stateful.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.runtime.operators.table.base import TableOperator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator

__all__ = ["UnnestFactory"]


@dataclass(frozen=True)
class UnnestFactory:
    """Makes unnest operators.

    Args:
        outer: whether a row without elements comes out once, with NULL.
        ordinality: whether the number of the element, from 1, stands behind it.
        repeats: whether elements come as often as the value beside them says (multisets).
    """

    outer: bool
    ordinality: bool
    repeats: bool
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return UnnestOperator(self)


class UnnestOperator(TableOperator):
    """Gives each row once per element; kinds stay."""

    def __init__(self, plan: UnnestFactory) -> None:
        super().__init__()
        self._plan = plan

    def process_rows(self, batch: Batch) -> None:
        arrow = batch.arrow
        nested = arrow.column(arrow.num_columns - 1)
        counts = np.array([0 if each is None else len(each) for each in nested.to_pylist()])
        rows, places = self._places(counts)
        elements = self._elements(nested)
        if self._plan.repeats:
            *elements, often = elements
            times = often.to_numpy()
            again = np.where(places < 0, 1, times[np.maximum(places, 0)] if len(times) else 1)
            rows, places = np.repeat(rows, again), np.repeat(places, again)
        columns = [column.take(pa.array(rows)) for column in arrow.columns[:-1]]
        inner = pa.array(places, mask=places < 0)
        columns += [element.take(inner) for element in elements]
        if self._plan.ordinality:
            columns.append(_numbers(rows, inner))
        kinds = batch.row_kinds
        if len(rows):
            self.emit_columns(columns, None if kinds is None else kinds[rows])

    def _places(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each result its row, and its element; -1: there is none."""
        if not self._plan.outer:
            return np.repeat(np.arange(len(counts)), counts), np.arange(int(counts.sum()))
        shown = np.maximum(counts, 1)
        rows = np.repeat(np.arange(len(counts)), shown)
        empty = np.repeat(counts == 0, shown)
        places = np.cumsum(~empty) - 1
        return rows, np.where(empty, -1, places)

    @staticmethod
    def _elements(nested: pa.Array) -> list[pa.Array]:
        """The columns of all elements, in order."""
        if pa.types.is_map(nested.type):
            kept = nested.drop_null() if nested.null_count else nested
            first, last = kept.offsets[0].as_py(), kept.offsets[-1].as_py()
            return [kept.keys[first:last], kept.items[first:last]]
        flat = pc.list_flatten(nested)
        if pa.types.is_struct(flat.type):
            return list(flat.flatten())
        return [flat]


def _numbers(rows: NDArray[np.int64], inner: pa.Array) -> pa.Array:
    starts = np.r_[0, np.flatnonzero(np.diff(rows)) + 1] if len(rows) else np.array([], int)
    begin = np.zeros(len(rows), dtype=np.int64)
    begin[starts] = starts
    numbers = np.arange(len(rows)) - np.maximum.accumulate(begin) + 1
    missing = inner.is_null().to_numpy(zero_copy_only=False)
    return pa.array(numbers.astype(np.int32), mask=missing)
