"""Top-N of windows: the first rows of each key and window, given once the window is over.

What it is: Flink's WindowRank over rows that have their windows already, and its window
deduplication, which is the first row, or the last, by time.

What it is not: for updating input, by processing time, nor without windows (``top_n.py``, whose
order it shares).

State: per key and end of window a map from sort key and number of arrival to the row.

Read next: ``runtime/operators/table/ranking.py``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import TypeMismatchError
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.columnar.sort_keys import sort_keys
from millstream.runtime.columnar.table_windows import LocalClock
from millstream.runtime.columnar.time_columns import milliseconds_of
from millstream.runtime.operators.table.base import LateRowsOperator
from millstream.runtime.operators.table.ranking import Ranking, ranking_of
from millstream.runtime.operators.table.row_changes import RowChanges
from millstream.state.key_codec import cache_key, uncache_key
from millstream.state.packed_state import PackedMaps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        OperatorContext,
        Output,
    )
    from millstream.runtime.operators.table.plans import WindowRankPlan

__all__ = ["WindowRankOperator"]

_END: Final = struct.Struct(">Q")
_BIAS: Final = 2**63


class WindowRankOperator(LateRowsOperator):
    """Keeps the first rows of every key and window."""

    def __init__(self, plan: WindowRankPlan) -> None:
        """Take what to number, and how."""
        super().__init__(plan.state_sections()[0])
        self._plan = plan
        self._codec = RowCodec(plan.input_type.to_arrow_schema())
        self._clock = None if plan.time_zone is None else LocalClock(plan.time_zone)

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = PackedMaps(self.keyed_state, "\0rows")

    def process_rows(self, batch: Batch) -> None:
        if batch.row_kinds is not None:
            message = f"operator {self.context.name!r} got updates or deletions of rows of windows"
            raise TypeMismatchError(message)
        arrow = batch.arrow
        ends = milliseconds_of(arrow.column(self._plan.window_end), self.context.name)
        fires = ends - 1 if self._clock is None else self._clock.absolute(ends - 1)
        open_ = fires > self._watermark
        self.late += int((~open_).sum())
        if not open_.all():
            arrow, ends, fires = arrow.filter(pa.array(open_)), ends[open_], fires[open_]
        if len(ends):
            self._add(arrow, ends, fires)

    def _add(
        self, arrow: pa.RecordBatch, ends: NDArray[np.int64], fires: NDArray[np.int64]
    ) -> None:
        plan = self._plan
        columns = [arrow.column(index) for index in plan.keys]
        by_key = group_rows(columns, len(ends))
        groups = group_rows([*columns, pa.array(ends)], len(ends))
        self.keyed_state.make_room(len(groups))
        firsts = groups.first_rows
        keys = [by_key.keys[group] for group in by_key.group_of_row[firsts].tolist()]
        names = [_END.pack(end + _BIAS) for end in ends[firsts].tolist()]
        slots = list(zip(keys, names, strict=True))
        self._kept.fetch_all(slots)
        rankings = [ranking_of(self._kept.map_of(slot)) for slot in slots]
        rows = self._codec.pack(arrow.columns)
        orders = sort_keys(arrow.columns, plan.order)
        for row, group in enumerate(groups.group_of_row.tolist()):
            self._insert(rankings[group], orders[row], rows[row])
        self._kept.changed(slots)
        register = self.keyed_state.timers.register_event_time
        for (key, name), time in zip(slots, fires[firsts].tolist(), strict=True):
            register(uncache_key(key), name, time)

    def _insert(self, ranking: Ranking, order: bytes, row: bytes) -> None:
        most = self._plan.end
        if ranking.takes(order, most):
            ranking.insert(order, row)
            if len(ranking) > most:
                ranking.remove(most)

    def process_watermark(self, watermark: int) -> None:
        """Give the windows that are over."""
        self._watermark = watermark
        self._fire(list(self.keyed_state.timers.advance_event_time(watermark)))
        super().process_watermark(watermark)

    def _fire(self, fired: list[tuple[int, object, bytes]]) -> None:
        if not fired:
            return
        plan = self._plan
        slots = [(cache_key(key), name) for _, key, name in fired]
        self.keyed_state.make_room(len(slots))
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
