"""Joins of tables by time: interval joins, and temporal joins by event time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.errors import ProgramError
from millstream.runtime.columnar.array_utils import milliseconds_of
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.base import TimedTableOperator, kinds_or_inserts
from millstream.runtime.operators.table.join import JoinPairs, JoinParameters
from millstream.runtime.operators.table.row_buffers import (
    NO_MARKED_ROWS,
    KeyedTimedRows,
    TimedRows,
    marks_of,
)
from millstream.runtime.operators.table.specs import JoinKind, joined_section
from millstream.state.key_codec import cache_key, uncache_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, OperatorContext, Output, StateSection
    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.state.key_codec import CacheKey


_OUTER = {
    JoinKind.INNER: (False, False),
    JoinKind.LEFT: (True, False),
    JoinKind.RIGHT: (False, True),
    JoinKind.FULL: (True, True),
}


# -- interval joins ---


@dataclass(frozen=True)
class IntervalJoinFactory(JoinParameters):
    """A join of inserts whose times are near each other.  Gives the left columns, then the right.

    INNER, LEFT, RIGHT and FULL.  The operator holds watermarks back.
    """

    left_time: int
    right_time: int
    #: Milliseconds: the time of the right row less that of the left lies between them, inclusive.
    lower: int
    upper: int
    is_rowtime: bool = True
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [joined_section("joined by interval", self.left_type, self.right_type)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return TableIntervalJoinOperator(self)


class TableIntervalJoinOperator(TimedTableOperator):
    """The interval join, as Flink's TimeIntervalJoin for inserts.

    Each side is kept until the other one's time is past what it could match; pairs are emitted as
    soon as both rows have arrived; a row of an outer side without a match is emitted, padded with
    NULL, when it is removed.  Watermarks are held back by as much as the rows of a pair may be
    older than them.

    State, per key and side: rows with their times, marked once they have matched another.
    """

    def __init__(self, plan: IntervalJoinFactory) -> None:
        """Take sides and bounds.

        Raises:
            ProgramError: a semi or anti join.
        """
        super().__init__(plan.state_sections()[0])
        if plan.kind not in _OUTER:
            message = f"an interval join cannot be a {plan.kind.value} join"
            raise ProgramError(message)
        self._plan = plan
        self._is_outer = _OUTER[plan.kind]
        self._pairs = JoinPairs(plan, self)
        schemas = (plan.left_type.to_arrow_schema(), plan.right_type.to_arrow_schema())
        self._codecs = tuple(map(RowCodec, schemas))
        self._sides = (plan.left, plan.right)
        #: How long after its own time a row may still meet one that comes.
        self._kept_for = (plan.upper, -plan.lower)
        self._delay = max(0, *self._kept_for)

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = tuple(
            KeyedTimedRows(self.keyed_state, f"\0{name} rows", is_marked=True)
            for name in ("left", "right")
        )

    @property
    def _now(self) -> int:
        """Rows to come are later, but for late ones; by a clock also at the time that it shows."""
        return self._watermark if self._plan.is_rowtime else self.processing_time - 1

    # Rows.

    def process_rows_of(self, batch: Batch, input_index: int) -> None:
        self.refuse_updates(batch, "an interval join")
        own = input_index
        plan, arrow = self._plan, batch.arrow
        index = plan.right_time if own else plan.left_time
        if plan.is_rowtime:
            times = milliseconds_of(arrow.column(index), self.label)
        else:
            times = np.full(len(batch), self.processing_time, dtype=np.int64)
        groups = self.group(batch, self._sides[own].keys)
        matched = self._match(arrow, times, groups, own)
        self._keep(arrow, times, groups, own, matched)

    def _match(
        self, arrow: pa.RecordBatch, times: NDArray[np.int64], groups: RowGroups, own: int
    ) -> NDArray[np.bool_]:
        """Emit the pairs of these rows; returns which of them have matched another."""
        plan, other = self._plan, 1 - own
        wanted = self._pairs.may_match(arrow, groups, own).tolist()
        # Also those that are over, whose timers are still to come.
        kept = [
            rows if may else NO_MARKED_ROWS
            for rows, may in zip(self._kept[other].get(groups.keys), wanted, strict=True)
        ]
        sizes = np.array([len(each) for each in kept], dtype=np.int64)
        matched = np.zeros(len(times), dtype=np.bool_)
        if not sizes.sum():
            return matched
        columns = self._codecs[other].unpack([row for each in kept for row in each.rows])
        other_times = np.concatenate([each.times for each in kept])
        other_matched = marks_of(kept)
        alive = other_times + self._kept_for[other] > self._now
        lower, upper = plan.lower, plan.upper
        for first, second in self._pairs.candidates(sizes, groups.group_of_row):
            apart = other_times[second] - times[first]
            apart = -apart if own else apart
            near = (apart >= lower) & (apart <= upper) & alive[second]
            one, two = first[near], second[near]
            holds = self._pairs.holds(arrow.columns, columns, one, two, own, self.processing_time)
            one, two = one[holds], two[holds]
            matched[one] = True
            other_matched[two] = 1
            for _, made in self._pairs.joined(arrow.columns, columns, one, two, own):
                self.emit_columns(made)
        if self._is_outer[other]:
            self._mark(groups.keys, kept, other_matched, other)
        return matched

    def _mark(
        self, keys: list[CacheKey], kept: list[TimedRows], marks: NDArray[np.uint8], side: int
    ) -> None:
        at = 0
        changed: dict[CacheKey, TimedRows] = {}
        for key, rows in zip(keys, kept, strict=True):
            mine = marks[at : at + len(rows)]
            at += len(rows)
            if len(rows) and not np.array_equal(mine, marks_of([rows])):
                changed[key] = TimedRows(rows.times, rows.rows, mine)
        self._kept[side].put(list(changed), changed.values())

    def _keep(
        self,
        arrow: pa.RecordBatch,
        times: NDArray[np.int64],
        groups: RowGroups,
        own: int,
        matched: NDArray[np.bool_],
    ) -> None:
        """Keep the rows that may match one to come; give those that cannot and have no match."""
        ends = times + self._kept_for[own]
        lasting = ends > self._now
        if self._is_outer[own]:
            unmatched = np.flatnonzero(~lasting & ~matched)
            if len(unmatched):
                columns = [column.take(pa.array(unmatched)) for column in arrow.columns]
                self.emit_columns(self._pairs.padded(columns, own))
        if not lasting.any():
            return
        rows = TimedRows(times, self._codecs[own].pack(arrow.columns), matched.astype(np.uint8))
        made = []
        for number, before in enumerate(self._kept[own].get(groups.keys)):
            mine = groups.rows(number)
            mine = mine[lasting[mine]]
            made.append(before.followed_by(rows.at(mine)))
            self._register(groups.keys[number], ends[mine], own)
        self._kept[own].put(groups.keys, made)

    # Time.

    def _register(self, key: CacheKey, ends: NDArray[np.int64], side: int) -> None:
        known, namespace = uncache_key(key), bytes([side])
        timers = self.keyed_state.timers
        is_rowtime = self._plan.is_rowtime
        register = timers.register_event_time if is_rowtime else timers.register_processing_time
        for time in set((ends if is_rowtime else ends + 1).tolist()):
            register(known, namespace, time)

    def process_watermark(self, watermark: int) -> None:
        """Let go of rows that are over; pass the watermark on, held back."""
        self._watermark = watermark
        if self._plan.is_rowtime:
            self._drop(list(self.keyed_state.timers.advance_event_time(watermark)))
        if watermark != MAX_TIMESTAMP:
            watermark = max(watermark - self._delay, MIN_TIMESTAMP + 1)
        super().process_watermark(watermark)

    def process_processing_time(self, now: int) -> None:
        super().process_processing_time(now)
        if not self._plan.is_rowtime:
            self._drop(list(self.keyed_state.timers.advance_processing_time(now)))

    def end_input(self) -> None:
        """Nothing comes any more that rows of processing time could match."""
        super().end_input()
        if not self._plan.is_rowtime:
            self.processing_time = MAX_TIMESTAMP
            self._drop(list(self.keyed_state.timers.advance_processing_time(MAX_TIMESTAMP)))

    def _drop(self, fired: list[tuple[int, object, bytes]]) -> None:
        """Let go of the rows of these timers."""
        for side in (0, 1):
            keys = list(
                dict.fromkeys(cache_key(key) for _, key, where in fired if where[0] == side)
            )
            if not keys:
                continue
            self.keyed_state.make_room(len(keys))
            unmatched: list[bytes] = []
            left: list[TimedRows] = []
            for rows in self._kept[side].get(keys):
                alive = rows.times + self._kept_for[side] > self._now
                unmatched += rows.chosen(~alive & (rows.marks == 0)).rows
                left.append(rows.chosen(alive))
            self._kept[side].put(keys, left)
            if unmatched and self._is_outer[side]:
                self.emit_columns(self._pairs.padded(self._codecs[side].unpack(unmatched), side))


# -- temporal joins ---


@dataclass(frozen=True)
class TemporalJoinFactory(JoinParameters):
    """Each left row with the version of the right at its event time.  INNER or LEFT.

    Gives the left columns, then the right ones.  The right is a changelog with a time attribute.
    """

    left_time: int
    right_time: int
    keyed: ClassVar[bool] = True
    waits_for_watermarks: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [joined_section("versions", self.left_type, self.right_type)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return TemporalJoinOperator(self)


class TemporalJoinOperator(TimedTableOperator):
    """FOR SYSTEM_TIME AS OF by event time, as Flink's TemporalRowTimeJoinOperator.

    Rows of the left wait until the watermark has passed them, then match the version of the right
    that was valid at their time: the last one at or before it.  They keep their RowKinds, and are
    emitted as they came.  Of the versions that the watermark has passed only the last is kept.

    State, per key: rows of the left that wait, marked with their kinds; versions of the right, in
    order of time, marked with their kinds (a deletion is a version, too).
    """

    def __init__(self, plan: TemporalJoinFactory) -> None:
        """Take the sides.

        Raises:
            ProgramError: neither an inner nor a left join.
        """
        super().__init__(plan.state_sections()[0])
        if plan.kind not in (JoinKind.INNER, JoinKind.LEFT):
            message = f"a temporal join is inner or left, not {plan.kind.value}"
            raise ProgramError(message)
        self._plan = plan
        self._pairs = JoinPairs(plan, self)
        self._left = RowCodec(plan.left_type.to_arrow_schema())
        self._right = RowCodec(plan.right_type.to_arrow_schema())

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._waiting = KeyedTimedRows(self.keyed_state, "\0waiting", is_marked=True)
        self._versions = KeyedTimedRows(self.keyed_state, "\0versions", is_marked=True)

    def process_rows_of(self, batch: Batch, input_index: int) -> None:
        plan, arrow = self._plan, batch.arrow
        is_left = input_index == 0
        side, index = (plan.left, plan.left_time) if is_left else (plan.right, plan.right_time)
        codec = self._left if is_left else self._right
        times = milliseconds_of(arrow.column(index), self.label)
        groups = self.group(batch, side.keys)
        kinds = kinds_or_inserts(batch).astype(np.uint8)
        rows = TimedRows(times, codec.pack(arrow.columns), kinds)
        if is_left:
            self._waiting.add(groups, rows)
        else:
            self._versions.add(groups, rows, _versions_of)
        # Look at a key when its time has come; late rows are due with the next watermark.
        self._waiting.register(groups, np.maximum(times, self._watermark + 1))

    def process_watermark(self, watermark: int) -> None:
        """Emit the rows that the watermark has passed."""
        self._watermark = watermark
        fired = self.keyed_state.timers.advance_event_time(watermark)
        keys = list(dict.fromkeys(cache_key(key) for _, key, _ in fired))
        if keys:
            self._join(keys, watermark)
        super().process_watermark(watermark)

    def _join(self, keys: list[CacheKey], watermark: int) -> None:
        self.keyed_state.make_room(len(keys))
        versions = self._versions.get(keys)
        self._versions.put(keys, [_kept(each, watermark) for each in versions])
        self._give(self._waiting.take(keys, watermark), versions)

    def _give(self, due: list[TimedRows], versions: list[TimedRows]) -> None:
        rows = list(chain.from_iterable(each.rows for each in due))
        if not rows:
            return
        columns = self._left.unpack(rows)
        other = self._right.unpack(list(chain.from_iterable(each.rows for each in versions)))
        second = self._matched_versions(columns, due, versions)
        matched = np.flatnonzero(second >= 0)
        holds = self._pairs.holds(columns, other, matched, second[matched], 0, self.processing_time)
        second[matched[~holds]] = -1
        first = np.arange(len(rows))
        if self._plan.kind is JoinKind.INNER:
            first = np.flatnonzero(second >= 0)
        kinds = marks_of(due).astype(np.int8)[first]
        for run, made in self._pairs.joined(columns, other, first, second[first], 0):
            kind = kinds[run]
            self.emit_columns(made, kind if kind.any() else None)

    def _matched_versions(
        self, columns: list[pa.Array], due: list[TimedRows], versions: list[TimedRows]
    ) -> NDArray[np.int64]:
        """The version of each row, -1: none."""
        found = []
        begin = 0
        for rows, mine in zip(due, versions, strict=True):
            at = np.searchsorted(mine.times, rows.times, side="right") - 1
            exists = at >= 0
            if len(mine):
                exists &= (marks_of([mine])[at] & 1) == 0
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
    return rows.at(order)


def _kept(versions: TimedRows, watermark: int) -> TimedRows:
    """The last version that the watermark has passed, and those after it."""
    first = int(np.searchsorted(versions.times, watermark, side="right")) - 1
    if first <= 0:
        return versions
    return versions.chosen(np.arange(len(versions)) >= first)
