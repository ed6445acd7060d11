"""Partial aggregates of the slices of windows, ahead of the exchange.

What it is: Flink's local window aggregate.  Each batch is aggregated by itself, so nothing is kept
and nothing has to be given before a watermark.  Where that leaves about as many rows as there were,
rows are passed on as the partial aggregates that they are by themselves, and grouped once, by the
other half; from time to time it is tried again.

What it is not: aware of watermarks; the other half (``window_aggregate.py``) drops what is late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.row_groups import codes_of, group_codes
from millstream.runtime.columnar.table_windows import Windows, attached_windows
from millstream.runtime.operators.table.aggregate_calls import Aggregates, SortedRows
from millstream.runtime.operators.table.base import TableOperator, kinds_or_inserts
from millstream.runtime.operators.table.row_times import RowTimes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.runtime.operators.table.plans import LocalWindowAggregatePlan

__all__ = ["LocalWindowAggregateOperator"]

#: Aggregating is worth it if it leaves at most this part of the rows.
_WORTH: Final = 0.7
#: So many batches are passed on before it is tried again.
_PASSED: Final = 15


class LocalWindowAggregateOperator(TableOperator):
    """Aggregates each batch by itself."""

    counted: ClassVar[Mapping[str, str]] = {
        **TableOperator.counted,
        "numNullRowTimeRecordsDropped": "without_time",
    }

    def __init__(self, plan: LocalWindowAggregatePlan) -> None:
        """Take the windows, and what to compute of their slices."""
        super().__init__()
        self._plan = plan
        self._aggregates = Aggregates(plan.aggregates, plan.input_type, retracts=False)
        self.without_time = 0
        self._times = RowTimes(plan.input_type, plan.time, plan.time_zone)
        #: How many batches are still to be passed on as they are.
        self._to_pass = 0

    def process_rows(self, batch: Batch) -> None:
        arrow, kept, times = self._times.of(batch.arrow, self.label)
        self.without_time += len(batch) - len(times)
        if not len(times):
            return
        weights = 1 - 2 * (kinds_or_inserts(batch) & 1).astype(np.int64)
        plan = self._plan
        if plan.attached is None:
            found = Windows.slices_of(times, plan.window)
        else:
            found = attached_windows(arrow, plan.attached)
        self._give(arrow, found, weights if kept is None else weights[kept])

    def _give(self, arrow: pa.RecordBatch, found: Windows, weights: NDArray[np.int64]) -> None:
        order, starts = self._runs(arrow, found)
        if len(starts) < len(order):
            weights = weights[order]
        states = self._aggregates.partial(SortedRows(arrow, order, weights), starts)
        counts: Any = np.add.reduceat(weights, starts)
        firsts = order[starts]
        rows = pa.array(firsts)
        keys = [arrow.column(index).take(rows) for index in self._plan.keys]
        slices = [pa.array(found.starts[firsts]), pa.array(found.ends[firsts])]
        self.emit_columns([*keys, pa.array(counts, pa.int64()), *states, *slices])

    def _runs(
        self, arrow: pa.RecordBatch, found: Windows
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The order in which rows of one key and slice are together, and where each run begins."""
        each = np.arange(arrow.num_rows)
        if self._to_pass:
            self._to_pass -= 1
            return each, each
        columns = [arrow.column(index) for index in self._plan.keys]
        columns += [pa.array(found.ends)]
        if self._plan.attached is not None:
            columns.append(pa.array(found.starts))
        parts = [codes_of(column) for column in columns]
        order, starts, _ = group_codes([(codes, len(values)) for codes, values in parts])
        if len(starts) > _WORTH * len(order):
            self._to_pass = _PASSED
            return each, each
        return order, starts
