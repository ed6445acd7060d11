"""Calc: filters rows, then computes columns of them.

What it is: projections and conditions over whole batches.  The kind of a row stays what it is:
where an update meets the condition before or after only, its -U or +U goes on alone, as in Flink.

What it is not: stateful.

Read next: ``expressions/evaluator.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.expressions.evaluator import compile_calculation
from millstream.runtime.operators.table.base import TableOperator

if TYPE_CHECKING:
    from millstream.contracts.operator import OperatorContext, Output, RestoreContext
    from millstream.runtime.operators.table.plans import CalcPlan

__all__ = ["CalcOperator"]


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
