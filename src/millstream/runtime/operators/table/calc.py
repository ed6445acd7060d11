"""Calc: filters rows, then computes columns of them.

What it is: projections and conditions over whole batches.  The kind of a row stays what it is:
where an update meets the condition before or after only, its -U or +U goes on alone, as in Flink.

What it is not: stateful.

Read next: ``expressions/evaluator.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.expressions.evaluator import compile_expression, compile_filter
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
        self._condition = None if plan.condition is None else compile_filter(plan.condition)
        self._projections = [compile_expression(each) for each in plan.projections]
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

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        self.records_in += len(batch)
        if not len(batch):
            return
        arrow, kinds, stamps = batch.arrow, batch.row_kinds, batch.raw_timestamps
        context = self._evaluation.at(self.processing_time, self._watermark)
        if self._condition is not None:
            with self.evaluating():
                mask = self._condition.evaluate(arrow, context)
            chosen = mask.to_numpy(zero_copy_only=False)
            if not chosen.all():
                arrow = arrow.filter(mask)
                kinds = None if kinds is None else kinds[chosen]
                stamps = None if stamps is None else batch.timestamp_array[chosen]
        if arrow.num_rows:
            with self.evaluating():
                columns = [each.evaluate(arrow, context) for each in self._projections]
            self.records_out += arrow.num_rows
            kind = self.context.output_type
            made = Batch(kind, arrow=self._named(columns), timestamps=stamps, row_kinds=kinds)
            self.output.emit(made)
