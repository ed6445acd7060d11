"""Calc: filters rows, then computes columns of them.

What it is: projections and conditions over whole batches.  The kind of a row stays what it is:
where an update meets the condition before or after only, its -U or +U goes on alone, as in Flink.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.expressions.evaluator import compile_calculation
from millstream.runtime.operators.table.base import TableOperator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.operator import Operator, OperatorContext, Output, RestoreContext
    from millstream.runtime.operators.table.plans import CalcPlan


class CalcOperator(TableOperator):
    """Evaluates expressions."""

    def __init__(self, plan: CalcPlan) -> None:
        """Compile the expressions of ``plan``."""
        super().__init__()
        self._evaluation = plan.evaluation
        self._calculation = compile_calculation(plan.condition, plan.projections)
        self._keeps_times = plan.keeps_times
        self._watermark: int | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._evaluation = replace(self._evaluation, runtime=self.runtime_context)

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._watermark = None if restored.watermark == MIN_TIMESTAMP else restored.watermark

    def process_watermark(self, watermark: int) -> None:
        self._watermark = watermark
        super().process_watermark(watermark)

    def process_rows(self, batch: Batch) -> None:
        context = self._evaluation.at(self.processing_time, self._watermark)
        arrow = batch.arrow
        with self.evaluating():
            mask, columns = self._calculation.evaluate(arrow, context)
        rows = arrow.num_rows if mask is None else mask.true_count
        if not rows:
            return
        self.records_out += rows
        kinds = batch.row_kinds
        stamps = batch.raw_timestamps if self._keeps_times else None
        if mask is not None and kinds is not None:
            kinds = kinds[mask.to_numpy(zero_copy_only=False)]
        if mask is not None and stamps is not None:
            stamps = pa.array(batch.timestamp_array).filter(mask).to_numpy()
        made = self._named(columns)
        self.output.emit(
            Batch(self.context.output_type, arrow=made, timestamps=stamps, row_kinds=kinds)
        )


@dataclass(frozen=True)
class ExpandFactory:
    """Makes expand operators.

    Args:
        keys: the columns that are keys of some set.
        sets: for each set, the columns that are its keys.
    """

    keys: tuple[int, ...]
    sets: tuple[tuple[int, ...], ...]
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return ExpandOperator(self)


class ExpandOperator(TableOperator):
    """Gives each row several times; kinds stay."""

    def __init__(self, plan: ExpandFactory) -> None:
        super().__init__()
        self._plan = plan

    def process_rows(self, batch: Batch) -> None:
        arrow = batch.arrow
        keys, sets = self._plan.keys, self._plan.sets
        # All sets of a row come together, so that changes of a row stay in order.
        rows = np.repeat(np.arange(len(batch)), len(sets))
        numbers = np.tile(np.arange(len(sets), dtype=np.int64), len(batch))
        taken = pa.array(rows)
        columns = [column.take(taken) for column in arrow.columns]
        for key in keys:
            here = np.array([key in part for part in sets])
            positions = pa.array(rows, mask=~here[numbers])
            columns.append(arrow.column(key).take(positions))
        columns.append(pa.array(numbers))
        kinds = batch.row_kinds
        self.emit_columns(columns, None if kinds is None else kinds[rows])


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
