"""GROUP BY a SESSION window: rows of a key that are no further apart than a gap.

What it is: Flink's session aggregation.  Rows are put into sessions one by one, as they come: a row
opens one, makes one longer, or joins several; the aggregates of all sessions of a batch are then
computed at once.  A row is late if the session that it makes is over.

State: per key the sessions that are not over: their starts and ends, and the accumulators of each.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.errors import UnsupportedSqlError
from millstream.runtime.columnar.changelog_aggregates import Segments
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.aggregate_calls import SortedRows, can_be_partial
from millstream.runtime.operators.table.row_buffers import packed_list, unpacked_list
from millstream.runtime.operators.table.window_aggregate import WindowedAggregateOperator
from millstream.state.key_codec import cache_key, uncache_key
from millstream.state.packed_state import PackedValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.operator import OperatorContext, Output
    from millstream.runtime.operators.table.plans import WindowAggregatePlan
    from millstream.state.key_codec import CacheKey


_BOUNDS: Final = struct.Struct("<qq")


@dataclass(slots=True)
class _Session:
    """A session of one key."""

    start: int
    end: int
    #: Accumulators of the sessions that it was made of, and rows of the batch.
    states: list[bytes] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


class SessionAggregateOperator(WindowedAggregateOperator):
    """Keeps the sessions of every key."""

    def __init__(self, plan: WindowAggregatePlan) -> None:
        """Take the gap, and what to compute.

        Raises:
            UnsupportedSqlError: an aggregate cannot be put together of partial ones.
        """
        super().__init__(plan)
        by_arrival = any(call.goes_by_arrival for call in plan.aggregates)
        if by_arrival or not can_be_partial(
            plan.aggregates, plan.input_type, retracts=plan.retracts
        ):
            names = ", ".join(call.function for call in plan.aggregates)
            message = (
                f"SESSION windows join, and not all of {names} can be put together where they do:"
                " DISTINCT, lists, FIRST_VALUE, LAST_VALUE, and MIN and MAX of updates cannot"
            )
            raise UnsupportedSqlError(message)

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._sessions = PackedValues(self.keyed_state, "\0sessions")

    def take(
        self, arrow: pa.RecordBatch, weights: NDArray[np.int64], times: NDArray[np.int64]
    ) -> None:
        columns = [arrow.column(index) for index in self.plan.keys]
        groups = group_rows(columns, arrow.num_rows)
        self.keyed_state.make_room(len(groups))
        stored = self._sessions.get_all(groups.keys)
        at = times.tolist()
        sessions = [_decoded(each) for each in stored]
        for row, group in enumerate(groups.group_of_row.tolist()):
            if not self._join(sessions[group], row, at[row]):
                self.late += 1
        self._add_up(arrow, weights, groups.keys, sessions)
        self._sessions.put_all(groups.keys, map(_encoded, sessions))
        for key, mine in zip(groups.keys, sessions, strict=True):
            known = uncache_key(key)
            for each in mine:
                if each.rows:
                    (time,) = self.fires_at(np.array([each.end])).tolist()
                    self.register(known, _BOUNDS.pack(each.start, each.end), time)

    def _join(self, sessions: list[_Session], row: int, time: int) -> bool:
        """Put a row into a session; False if that is over."""
        made = _Session(time, time + self.plan.window.size, rows=[row])
        met = [each for each in sessions if each.start <= made.end and each.end >= made.start]
        for each in met:
            made.start, made.end = min(made.start, each.start), max(made.end, each.end)
        if self.is_over(np.array([made.end]))[0]:
            return False
        for each in met:
            sessions.remove(each)
            made.states += each.states
            made.rows += each.rows
        made.rows.sort()
        sessions.append(made)
        return True

    def _add_up(
        self,
        arrow: pa.RecordBatch,
        weights: NDArray[np.int64],
        keys: list[CacheKey],
        sessions: list[list[_Session]],
    ) -> None:
        """Give each session that has new rows one accumulator of all."""
        changed = [
            (key, each)
            for key, mine in zip(keys, sessions, strict=True)
            for each in mine
            if each.rows
        ]
        if not changed:
            return
        base = self._merged([each for _, each in changed])
        rows = np.array([row for _, each in changed for row in each.rows], dtype=np.int64)
        counts = np.array([len(each.rows) for _, each in changed], dtype=np.int64)
        starts = np.cumsum(counts) - counts
        segments = Segments(
            starts, counts, [key for key, _ in changed], np.zeros(len(changed), np.bool_)
        )
        in_order = SortedRows(arrow, rows, weights[rows])
        _, _, states = self.aggregates.run(in_order, segments, base[1:], last_only=True)
        total = base[0].to_numpy() + np.add.reduceat(weights[rows], starts)
        packed = self.codec.pack([pa.array(total), *states])
        for (_, each), row in zip(changed, packed, strict=True):
            each.states = [row]

    def _merged(self, sessions: list[_Session]) -> list[pa.Array]:
        """Put the accumulators together of which sessions are made."""
        parts = [each.states or [self.fresh] for each in sessions]
        columns = self.codec.unpack([row for rows in parts for row in rows])
        counts = np.array([len(rows) for rows in parts], dtype=np.int64)
        if (counts == 1).all():
            return columns
        starts = np.cumsum(counts) - counts
        segments = Segments(starts, counts, [b""] * len(parts), np.ones(len(parts), np.bool_))
        nothing = pa.array(np.zeros(len(parts), np.int64))
        lifted = self.aggregates.parts_of(columns[1:])
        initial = [column.take(nothing) for column in self.aggregates.fresh]
        _, _, states = self.aggregates.add_up(lifted, segments, initial, last_only=True)
        return [pa.array(np.add.reduceat(columns[0].to_numpy(), starts)), *states]

    def fire(self, fired: list[tuple[int, object, bytes]]) -> None:
        names = [(cache_key(key), *_BOUNDS.unpack(window)) for _, key, window in fired]
        keys = list(dict.fromkeys(key for key, _, _ in names))
        self.keyed_state.make_room(len(keys))
        of_key = dict(zip(keys, map(_decoded, self._sessions.get_all(keys)), strict=True))
        given: list[tuple[CacheKey, _Session]] = []
        for key, start, end in names:
            mine = of_key[key]
            found = next((each for each in mine if (each.start, each.end) == (start, end)), None)
            if found is not None:  # else it has become longer
                mine.remove(found)
                given.append((key, found))
        self._sessions.put_all(keys, [_encoded(of_key[key]) for key in keys])
        if given:
            columns = self.codec.unpack([each.states[0] for _, each in given])
            starts = np.array([each.start for _, each in given], dtype=np.int64)
            ends = np.array([each.end for _, each in given], dtype=np.int64)
            has_rows = columns[0].to_numpy() != 0
            self.give([key for key, _ in given], starts, ends, columns[1:], has_rows)


def _encoded(sessions: list[_Session]) -> bytes | None:
    if not sessions:
        return None
    rows = [_BOUNDS.pack(each.start, each.end) + each.states[0] for each in sessions]
    return packed_list(rows)


def _decoded(stored: bytes | None) -> list[_Session]:
    if stored is None:
        return []
    size = _BOUNDS.size
    found = []
    for row in unpacked_list(stored):
        start, end = _BOUNDS.unpack_from(row)
        found.append(_Session(start, end, [row[size:]]))
    return found
