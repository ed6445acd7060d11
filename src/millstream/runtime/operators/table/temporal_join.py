"""FOR SYSTEM_TIME AS OF by event time: each row with the version of the other table at its time.

What it is: Flink's TemporalRowTimeJoinOperator.  Rows of the left wait until the watermark has
passed them, then meet the version of the right that was valid at their time: the last one at or
before it.  They keep their kinds, and are given as they came.  Of the versions that the watermark
has passed only the last is kept.

State, per key: rows of the left that wait, marked with their kinds; versions of the right, in order
of time, marked with their kinds (a deletion is a version, too).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError
from millstream.runtime.columnar.array_utils import milliseconds_of
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.base import TimedTableOperator, kinds_or_inserts
from millstream.runtime.operators.table.join import JoinPairs
from millstream.runtime.operators.table.row_buffers import TimedRows
from millstream.runtime.operators.table.specs import JoinKind
from millstream.state.key_codec import cache_key, uncache_key
from millstream.state.packed_state import PackedValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext, Output
    from millstream.runtime.operators.table.plans import TemporalJoinPlan
    from millstream.state.key_codec import CacheKey


class TemporalJoinOperator(TimedTableOperator):
    """Keeps rows that wait, and versions."""

    def __init__(self, plan: TemporalJoinPlan) -> None:
        """Take the sides.

        Raises:
            ProgramError: neither an inner nor a left join.
        """
        super().__init__(plan.state_sections()[0])
        if plan.kind not in (JoinKind.INNER, JoinKind.LEFT):
            message = f"a temporal join is inner or left, not {plan.kind.value}"
            raise ProgramError(message)
        self._plan = plan
        self._pairs = JoinPairs(plan)
        self._left = RowCodec(plan.left_type.to_arrow_schema())
        self._right = RowCodec(plan.right_type.to_arrow_schema())

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._waiting = PackedValues(self.keyed_state, "\0waiting")
        self._versions = PackedValues(self.keyed_state, "\0versions")

    def process_rows_of(self, batch: Batch, input_index: int) -> None:
        plan, arrow = self._plan, batch.arrow
        is_left = input_index == 0
        side, index = (plan.left, plan.left_time) if is_left else (plan.right, plan.right_time)
        codec, kept = (self._left, self._waiting) if is_left else (self._right, self._versions)
        times = milliseconds_of(arrow.column(index), self.label)
        groups = self.group(batch, side.keys)
        rows = codec.pack(arrow.columns)
        kinds = kinds_or_inserts(batch).astype(np.uint8)
        made: list[bytes | None] = []
        for number, stored in enumerate(kept.get_all(groups.keys)):
            start, count = int(groups.starts[number]), int(groups.counts[number])
            mine = groups.order[start : start + count]
            all_rows = TimedRows.decoded(stored).added(
                times[mine], kinds[mine], [rows[row] for row in mine.tolist()]
            )
            made.append((all_rows if is_left else _versions_of(all_rows)).encoded())
            self._register(groups.keys[number], times[mine])
        kept.put_all(groups.keys, made)

    def _register(self, key: CacheKey, times: NDArray[np.int64]) -> None:
        """Look at a key when its time has come; late rows are due with the next watermark."""
        known = uncache_key(key)
        register = self.keyed_state.timers.register_event_time
        for time in set(np.maximum(times, self._watermark + 1).tolist()):
            register(known, b"", time)

    def process_watermark(self, watermark: int) -> None:
        """Give the rows that the watermark has passed."""
        self._watermark = watermark
        fired = self.keyed_state.timers.advance_event_time(watermark)
        keys = list(dict.fromkeys(cache_key(key) for _, key, _ in fired))
        if keys:
            self._join(keys, watermark)
        super().process_watermark(watermark)

    def _join(self, keys: list[CacheKey], watermark: int) -> None:
        self.keyed_state.make_room(len(keys))
        due: list[TimedRows] = []
        left: list[bytes | None] = []
        for stored in self._waiting.get_all(keys):
            rows = TimedRows.decoded(stored)
            is_due = rows.times <= watermark
            due.append(rows.chosen(is_due))
            left.append(rows.chosen(~is_due).encoded())
        versions = [TimedRows.decoded(stored) for stored in self._versions.get_all(keys)]
        self._waiting.put_all(keys, left)
        self._versions.put_all(keys, [_kept(each, watermark).encoded() for each in versions])
        self._give(due, versions)

    def _give(self, due: list[TimedRows], versions: list[TimedRows]) -> None:
        rows = list(chain.from_iterable(each.rows for each in due))
        if not rows:
            return
        columns = self._left.unpack(rows)
        other = self._right.unpack(list(chain.from_iterable(each.rows for each in versions)))
        second = self._met(columns, due, versions)
        met = np.flatnonzero(second >= 0)
        holds = self._pairs.holds(columns, other, met, second[met], 0, self.processing_time)
        second[met[~holds]] = -1
        first = np.arange(len(rows))
        if self._plan.kind is JoinKind.INNER:
            first = np.flatnonzero(second >= 0)
        kinds = np.concatenate([each.marks for each in due]).astype(np.int8)[first]
        for run, made in self._pairs.joined(columns, other, first, second[first], 0):
            kind = kinds[run]
            self.emit_columns(made, kind if kind.any() else None)

    def _met(
        self, columns: list[pa.Array], due: list[TimedRows], versions: list[TimedRows]
    ) -> NDArray[np.int64]:
        """The version of each row, -1: none."""
        found = []
        begin = 0
        for rows, mine in zip(due, versions, strict=True):
            at = np.searchsorted(mine.times, rows.times, side="right") - 1
            exists = at >= 0
            if len(mine):
                exists &= (mine.marks[at] & 1) == 0
            found.append(np.where(exists, at + begin, -1))
            begin += len(mine)
        second: NDArray[np.int64] = np.concatenate(found)
        arrow = pa.RecordBatch.from_arrays(columns, schema=self._left.schema)
        groups = group_rows([arrow.column(index) for index in self._plan.left.keys], len(second))
        wanted = self._pairs.may_match(arrow, groups, 0)
        second[~wanted[groups.group_of_row]] = -1
        return second


def _versions_of(rows: TimedRows) -> TimedRows:
    """In order of time; of one time the last that came."""
    order = np.argsort(rows.times, kind="stable")
    times = rows.times[order]
    is_last = np.append(times[1:] != times[:-1], [True])
    order = order[is_last]
    return TimedRows(
        rows.times[order], rows.marks[order], [rows.rows[row] for row in order.tolist()]
    )


def _kept(versions: TimedRows, watermark: int) -> TimedRows:
    """The last version that the watermark has passed, and those behind it."""
    first = int(np.searchsorted(versions.times, watermark, side="right")) - 1
    if first <= 0:
        return versions
    return versions.chosen(np.arange(len(versions)) >= first)
