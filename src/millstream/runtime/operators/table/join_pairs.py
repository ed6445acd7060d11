"""Pairs of rows of a batch and kept rows of the other side: which there are, and their columns.

What it is: what joins by time share.  The condition is evaluated over many pairs at once.

What it is not: state; ``join_sides.py`` is for regular joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.array_utils import byte_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.expressions.context import EvaluationContext
    from millstream.expressions.evaluator import Filter
    from millstream.expressions.nodes import Expression
    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.runtime.operators.table.specs import JoinSide
    from millstream.types.logical_types import RowType

__all__ = ["JoinPairs"]

_MOST_PAIRS: Final = 262_144


class _Plan(Protocol):
    @property
    def left_type(self) -> RowType: ...

    @property
    def right_type(self) -> RowType: ...

    @property
    def left(self) -> JoinSide: ...

    @property
    def right(self) -> JoinSide: ...

    @property
    def filter_nulls(self) -> tuple[bool, ...]: ...

    @property
    def condition(self) -> Expression | None: ...

    @property
    def evaluation(self) -> EvaluationContext: ...


class JoinPairs:
    """Makes pairs.  Side 0 is left, side 1 right; *own* is that of the batch."""

    def __init__(self, plan: _Plan) -> None:
        """Take the sides and the condition."""
        self._plan = plan
        self._sides = (plan.left, plan.right)
        self._schemas = (plan.left_type.to_arrow_schema(), plan.right_type.to_arrow_schema())
        both = [*self._schemas[0], *self._schemas[1]]
        self._names = [f"{number}.{field.name}" for number, field in enumerate(both)]
        self._condition: Filter | None = None
        if plan.condition is not None:
            from millstream.expressions.evaluator import compile_filter

            self._condition = compile_filter(plan.condition)

    def may_match(self, arrow: pa.RecordBatch, groups: RowGroups, own: int) -> NDArray[np.bool_]:
        """Return which keys match anything: NULL does not where it equals nothing."""
        found = np.ones(len(groups), dtype=np.bool_)
        pairs = zip(self._sides[own].keys, self._plan.filter_nulls, strict=True)
        for index, filters in pairs:
            column = arrow.column(index)
            if filters and column.null_count:
                found &= column.is_valid().to_numpy(zero_copy_only=False)[groups.first_rows]
        return found

    @staticmethod
    def candidates(
        sizes: NDArray[np.int64], group_of_row: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield pairs of rows and kept rows of their key, in order of rows.

        Args:
            sizes: how many kept rows each key has; those of all keys stand one behind the other.
            group_of_row: the key of each row.
        """
        begins = np.cumsum(sizes) - sizes
        of_row = sizes[group_of_row]
        ends = np.cumsum(of_row)
        start = 0
        while start < len(of_row):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + _MOST_PAIRS, side="right")))
            counts = of_row[start:stop]
            first = np.repeat(np.arange(start, stop), counts)
            within = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
            yield first, begins[group_of_row[first]] + within
            start = stop

    def holds(
        self,
        own_columns: Sequence[pa.Array],
        other_columns: Sequence[pa.Array],
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        own: int,
        processing_time: int,
    ) -> NDArray[np.bool_]:
        """Return which pairs meet the condition."""
        if self._condition is None or not len(first):
            return np.ones(len(first), dtype=np.bool_)
        context = self._plan.evaluation.at(processing_time)
        found = np.empty(len(first), dtype=np.bool_)
        for run, columns in self.joined(own_columns, other_columns, first, second, own):
            pairs = pa.RecordBatch.from_arrays(columns, names=self._names)
            mask = self._condition.evaluate(pairs, context)
            found[run] = mask.to_numpy(zero_copy_only=False)
        return found

    @staticmethod
    def joined(
        own_columns: Sequence[pa.Array],
        other_columns: Sequence[pa.Array],
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        own: int,
    ) -> Iterator[tuple[slice, list[pa.Array]]]:
        """Yield the columns of pairs, in runs of not too many bytes, with where these are.

        ``second`` -1: there is none, all of the other side is NULL.
        """
        for run in byte_runs((own_columns, first), (other_columns, second)):
            found = second[run]
            absent = found < 0
            picked = pa.array(found, mask=absent if absent.any() else None)
            mine = [column.take(pa.array(first[run])) for column in own_columns]
            other = [column.take(picked) for column in other_columns]
            yield run, other + mine if own else mine + other

    def padded(self, columns: Sequence[pa.Array], own: int) -> list[pa.Array]:
        """Return rows with NULL for the other side."""
        count = len(columns[0])
        nulls = [pa.nulls(count, field.type) for field in self._schemas[1 - own]]
        return [*nulls, *columns] if own else [*columns, *nulls]
