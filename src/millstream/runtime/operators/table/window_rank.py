"""Top-N of windows: the first rows of each key and window, given once the window is over.

What it is: Flink's WindowRank over rows that have their windows already, and its window
deduplication, which is the first row, or the last, by time.

What it is not: for updating input, by processing time, nor without windows (``top_n.py``, whose
order it shares).

State: per key and end of window a map from sort key and number of arrival to the row.

Read next: ``runtime/operators/table/ranking.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.runtime.columnar.row_codec import RowCodec, sort_keys
from millstream.runtime.operators.table.ranking import Ranking, ranking_of
from millstream.runtime.operators.table.row_changes import RowChanges
from millstream.runtime.operators.table.rows_of_windows import RowsOfWindowsOperator
from millstream.state.packed_state import PackedMaps

if TYPE_CHECKING:
    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext, Output
    from millstream.runtime.operators.table.plans import WindowRankPlan
    from millstream.runtime.operators.table.rows_of_windows import Slot

__all__ = ["WindowRankOperator"]


class WindowRankOperator(RowsOfWindowsOperator):
    """Keeps the first rows of every key and window."""

    def __init__(self, plan: WindowRankPlan) -> None:
        """Take what to number, and how."""
        super().__init__(plan.state_sections()[0], plan.time_zone)
        self._plan = plan
        self._codec = RowCodec(plan.input_type.to_arrow_schema())

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = PackedMaps(self.keyed_state, "\0rows")

    def process_rows(self, batch: Batch) -> None:
        plan = self._plan
        found = self.in_slots(batch, plan.window_end, plan.keys)
        if found is None:
            return
        self._kept.fetch_all(found.slots)
        rankings = [ranking_of(self._kept.map_of(slot)) for slot in found.slots]
        rows = self._codec.pack(found.arrow.columns)
        orders = sort_keys(found.arrow.columns, plan.order)
        for row, slot in enumerate(found.slot_of_row):
            self._insert(rankings[slot], orders[row], rows[row])
        self._kept.changed(found.slots)

    def _insert(self, ranking: Ranking, order: bytes, row: bytes) -> None:
        most = self._plan.end
        if ranking.takes(order, most):
            ranking.insert(order, row)
            if len(ranking) > most:
                ranking.remove(most)

    def give(self, slots: list[Slot]) -> None:
        plan = self._plan
        self._kept.fetch_all(slots)
        changes = RowChanges()
        for slot in slots:
            kept = self._kept.map_of(slot)
            rows = ranking_of(kept).rows[plan.start - 1 : plan.end]
            for number, row in enumerate(rows, plan.start):
                changes.add(0, row)
                if plan.output_rank:
                    changes.numbers.append(number)
            kept.clear()
        self._kept.changed(slots)
        changes.emit(self, self._codec)
