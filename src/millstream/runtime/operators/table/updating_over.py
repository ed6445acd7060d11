"""OVER over a changelog: aggregates over the rows in front of each row, in any order of columns.

What it is: ``ROWS`` and ``RANGE`` frames that end at the current row, where rows come at any place
of the order, or are taken back.  A change gives the row that came or went, and an update of each
other row whose aggregates it changes, one change after another.

A frame of so many rows is computed for each row that a change touches, of the rows in it.  Frames
from the beginning share one run over all rows of the key, which goes on as long as rows come at
the end.

State, per key: all rows in order, as in Top-N of a changelog.  Aggregates are computed anew, so
there are no accumulators.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.changelog_aggregates import Segments
from millstream.runtime.columnar.row_codec import RowCodec, sort_keys
from millstream.runtime.operators.table.aggregate_calls import Aggregates, SortedRows
from millstream.runtime.operators.table.base import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    KeyedTableOperator,
    kinds_or_inserts,
)
from millstream.runtime.operators.table.top_n import (
    BEHIND,
    keep_alive,
    living_ranking,
)
from millstream.state.packed_state import ExpiringMaps, PackedMaps

if TYPE_CHECKING:
    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext, Output
    from millstream.runtime.operators.table.plans import UpdatingOverPlan
    from millstream.runtime.operators.table.top_n import Ranking


#: The result of a row: a run of rows, and the place in it behind which it is.
_Result = tuple[int, int]


class UpdatingOverOperator(KeyedTableOperator):
    """Keeps all rows of every key, in order."""

    def __init__(self, plan: UpdatingOverPlan) -> None:
        """Take the order, the frame, and what to compute over it."""
        super().__init__(plan.state_sections()[0])
        self._plan = plan
        self._codec = RowCodec(plan.input_type.to_arrow_schema())
        self._aggregates = Aggregates(plan.aggregates, plan.input_type, retracts=False)

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = PackedMaps(self.keyed_state, "\0rows")
        if self._plan.state_ttl:
            self.keyed_state.expired.watch(ExpiringMaps(self._kept, self._plan.state_ttl))
        self._aggregates.open_functions(self.runtime_context)

    def process_rows(self, batch: Batch) -> None:
        plan = self._plan
        groups = self.group(batch, plan.keys)
        columns = batch.arrow.columns
        rows = self._codec.pack(columns)
        orders = sort_keys(columns, plan.order)
        takes_back = (kinds_or_inserts(batch) & 1).tolist()
        self._kept.fetch_all_distinct(groups.keys)
        steps = _Steps()
        ttl, now = plan.state_ttl, self.expiry_time
        rankings = [living_ranking(self._kept.map_of(key), ttl, now) for key in groups.keys]
        keys = [_Key(plan, ranking, steps) for ranking in rankings]
        for position, group in enumerate(groups.group_of_row.tolist()):
            change = keys[group].take_back if takes_back[position] else keys[group].insert
            change(orders[position], rows[position])
        if ttl:
            keep_alive(rankings, now)
        self._kept.changed(groups.keys)
        self._emit(steps)

    def _emit(self, steps: _Steps) -> None:
        if not steps.changes:
            return
        pool = self._codec.unpack(steps.rows)
        counts = np.array([len(run) for run in steps.runs], dtype=np.int64)
        starts = np.cumsum(counts) - counts
        order = np.fromiter((row for run in steps.runs for row in run), np.int64)
        arrow = pa.RecordBatch.from_arrays(pool, schema=self._codec.schema)
        rows = SortedRows(arrow, order, np.ones(len(order), dtype=np.int64))
        is_fresh = np.ones(len(counts), dtype=np.bool_)
        segments = Segments(starts, counts, range(len(counts)), is_fresh)
        results = self._aggregates.run_anew(rows, segments)
        kinds, taken, shown = self._wanted(steps, starts.tolist(), results)
        if not kinds:
            return
        picked_rows, picked = pa.array(taken, pa.int64()), pa.array(shown, pa.int64())
        columns = [column.take(picked_rows) for column in pool]
        columns += [column.take(picked) for column in results]
        found = np.array(kinds, dtype=np.int8)
        self.emit_columns(columns, found if found.any() else None)

    def _wanted(
        self, steps: _Steps, starts: list[int], results: list[pa.Array]
    ) -> tuple[list[int], list[int], list[int]]:
        """Kinds, rows and results of the changes; of updates only those that change anything."""
        plan = self._plan
        fields = [pa.field(str(number), each.type) for number, each in enumerate(results)]
        packed = RowCodec(pa.schema(fields)).pack(results)
        kinds: list[int] = []
        rows: list[int] = []
        shown: list[int] = []
        before = -1
        for kind, row, (run, at) in steps.changes:
            place = starts[run] + at
            if kind == UPDATE_AFTER and not plan.state_ttl and packed[before] == packed[place]:
                if plan.update_before:
                    kinds.pop()
                    rows.pop()
                    shown.pop()
                continue
            before = place
            if kind == UPDATE_BEFORE and not plan.update_before:
                continue
            kinds.append(kind)
            rows.append(row)
            shown.append(place)
        return kinds, rows, shown


class _Steps:
    """What a batch does: rows, runs of them to aggregate, and changes with their results."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        #: Rows by their numbers; each run begins with nothing.
        self.runs: list[list[int]] = []
        #: An UPDATE_BEFORE is followed by its UPDATE_AFTER.
        self.changes: list[tuple[int, int, _Result]] = []

    def add_row(self, row: bytes) -> int:
        """The number of a row."""
        self.rows.append(row)
        return len(self.rows) - 1

    def add_run(self, rows: list[int]) -> int:
        """The number of a run."""
        self.runs.append(rows)
        return len(self.runs) - 1


class _Key:
    """The rows of one key while a batch is processed.

    Invariant: ``_numbers[i]`` is the number of ``ranking.rows[i]``, None if it has none yet;
    ``_shown[i]`` is the result that it was given with, None if it was given before the batch.
    """

    def __init__(self, plan: UpdatingOverPlan, ranking: Ranking, steps: _Steps) -> None:
        self.ranking = ranking
        self._is_rows, self._preceding = plan.is_rows, plan.preceding
        self._steps = steps
        self._numbers: list[int | None] = [None] * len(ranking)
        self._shown: list[_Result | None] = [None] * len(ranking)
        #: The run over all rows, as they are now; None: there is none.
        self._whole: int | None = None

    def insert(self, sort_key: bytes, row: bytes) -> None:
        """Put a row in, behind those of the same order."""
        at = bisect_right(self.ranking.names, sort_key + BEHIND)
        start, stop = self._touched(sort_key, at)
        before = [self._result(place) for place in range(start, stop)]
        is_last = at == len(self.ranking)
        self.ranking.insert(sort_key, row)
        number = self._steps.add_row(row)
        self._numbers.insert(at, number)
        self._shown.insert(at, None)
        if self._whole is not None and is_last:
            self._steps.runs[self._whole].append(number)
        else:
            self._whole = None
        self._steps.changes.append((INSERT, number, self._computed(at)))
        self._update([*range(start, at), *range(at + 1, stop + 1)], before)

    def take_back(self, sort_key: bytes, row: bytes) -> None:
        """Remove the first row that equals this one; none: its state has expired."""
        at = self.ranking.find(sort_key, row)
        if at < 0:
            return
        start, stop = self._touched(sort_key, at + 1)
        self._steps.changes.append((DELETE, self._number(at), self._result(at)))
        start = min(start, at)
        before = [self._result(place) for place in range(start, stop) if place != at]
        self.ranking.remove(at)
        self._numbers.pop(at)
        self._shown.pop(at)
        self._whole = None
        self._update(list(range(start, stop - 1)), before)

    def _touched(self, sort_key: bytes, at: int) -> tuple[int, int]:
        """Which rows, of those there are, have a frame with the place in front of ``at`` in it."""
        names, count = self.ranking.names, len(self.ranking)
        if self._is_rows:
            stop = count if self._preceding is None else min(count, at + self._preceding)
            return at, stop
        start = bisect_left(names, sort_key)
        return start, count if self._preceding is None else bisect_right(names, sort_key + BEHIND)

    def _update(self, places: list[int], before: list[_Result]) -> None:
        changes = self._steps.changes
        for place, old in zip(places, before, strict=True):
            number = self._number(place)
            changes.append((UPDATE_BEFORE, number, old))
            changes.append((UPDATE_AFTER, number, self._computed(place)))

    def _number(self, place: int) -> int:
        number = self._numbers[place]
        if number is None:
            number = self._numbers[place] = self._steps.add_row(self.ranking.rows[place])
        return number

    def _result(self, place: int) -> _Result:
        """The result that a row was given with."""
        return self._shown[place] or self._computed(place)

    def _computed(self, place: int) -> _Result:
        """The result of a row as it is now."""
        found = self._shown[place] = self._of_frame(place)
        return found

    def _of_frame(self, place: int) -> _Result:
        names = self.ranking.names
        last = place
        if not self._is_rows:
            last = bisect_right(names, names[place][:-8] + BEHIND) - 1
        if self._preceding is None:
            if self._whole is None:
                numbers = [self._number(each) for each in range(len(names))]
                self._whole = self._steps.add_run(numbers)
            return self._whole, last
        first = max(0, place - self._preceding)
        if not self._is_rows:
            first = bisect_left(names, names[place][:-8])
        numbers = [self._number(each) for each in range(first, last + 1)]
        return self._steps.add_run(numbers), last - first
