"""Regular joins of two changelogs: inner, left, right, full, semi and anti.

What it is: Flink's StreamingJoinOperator and StreamingSemiAntiJoinOperator for whole batches.  A
batch is of one input, so the rows of the other side that it meets stay as they are: pairs, and the
condition over them, are computed for many rows at once.  What changes from row to row is how many
rows each outer row matches; where the first match comes or the last one goes, the row padded with
NULL goes or comes.

An inner join passes the kinds of its inputs on; outer joins give +I and -D.
"""

from __future__ import annotations

import struct
from operator import add
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.array_utils import byte_runs
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.operators.table.base import (
    DELETE,
    INSERT,
    KeyedTableOperator,
    kinds_or_inserts,
)
from millstream.runtime.operators.table.mini_batch import folded
from millstream.runtime.operators.table.specs import JoinKind
from millstream.state.packed_buckets import Entries, appended, numbers_at, only_value
from millstream.state.packed_state import ExpiringEntries, PackedMaps, append_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext, Output
    from millstream.expressions.context import EvaluationContext
    from millstream.expressions.evaluator import Filter
    from millstream.expressions.nodes import Expression
    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.runtime.operators.table.plans import JoinPlan
    from millstream.runtime.operators.table.specs import JoinSide
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState
    from millstream.types.logical_types import RowType


_HEAD: Final = struct.Struct("<iiq")
_HEAD_TYPE: Final = np.dtype([("count", "<i4"), ("matches", "<i4"), ("time", "<i8")])
_TIME: Final = struct.Struct("<q")
#: Where the time begins in a head.
_TIME_AT: Final = 8
_EMPTY: Final = b""


class Side:
    """One input of a join."""

    def __init__(self, spec: JoinSide, row_type: RowType, ttl: int, name: str) -> None:
        """Take its keys, its columns, and how long its rows live."""
        self.spec = spec
        self.schema = row_type.to_arrow_schema()
        self.codec = RowCodec(self.schema)
        #: Milliseconds; 0: rows are kept for good.
        self.ttl = ttl
        self._name = name
        #: Whether a join key may have several rows.
        self.has_names = not spec.is_one_per_key
        self.by_row = spec.unique_key is None
        self._unique: RowCodec | None = None
        if spec.unique_key is not None and not spec.is_one_per_key:
            kept = [self.schema.field(index) for index in spec.unique_key]
            self._unique = RowCodec(pa.schema(kept))
        self.maps: PackedMaps

    @property
    def folding_key(self) -> tuple[int, ...] | None:
        """The columns by which rows are unique, with those of the join; None: there are none."""
        unique = self.spec.unique_key
        return None if unique is None else tuple(dict.fromkeys((*self.spec.keys, *unique)))

    def open(self, keyed: KeyedState) -> None:
        """Register what is kept."""
        self.maps = PackedMaps(keyed, f"\0{self._name} rows")
        if self.ttl > 0:
            keyed.expired.watch(ExpiringEntries(self.maps, self.ttl, _TIME_AT))

    def names_of(self, arrow: pa.RecordBatch, rows: list[bytes]) -> list[bytes]:
        """Return what rows are found by."""
        if self.by_row:
            return rows
        if self._unique is None or self.spec.unique_key is None:
            return [_EMPTY] * len(rows)
        return self._unique.pack([arrow.column(index) for index in self.spec.unique_key])

    def is_over(self, value: bytes, now: int) -> bool:
        """Whether an entry has expired."""
        return self.ttl > 0 and int(_HEAD.unpack_from(value)[2]) + self.ttl <= now

    def add(self, key: CacheKey, name: bytes, row: bytes, matches: int, now: int) -> bool:
        """Keep a row; returns whether its name was not there."""
        head = _HEAD.pack(1, matches, now)
        value = head if self.by_row else head + row
        maps = self.maps
        if name:
            if maps.append(key, name, value):
                return True
        else:
            stored = maps.only_bucket(key)
            if stored is None or type(stored) is bytes:
                maps.set_only_bucket(key, appended(None, name, value))
                before = None if stored is None else only_value(stored, name)
                return before is None or self.is_over(before, now)
        kept = maps.map_of(key)
        before = kept.get(name)
        is_new = before is None or self.is_over(before, now)
        if self.by_row and before is not None and not is_new:
            value = _HEAD.pack(_HEAD.unpack_from(before)[0] + 1, matches, now)
        kept.put(name, value)
        return is_new

    def add_all(
        self,
        keys: list[CacheKey],
        group_of_row: NDArray[np.int64],
        names: list[bytes],
        rows: list[bytes],
        matches: NDArray[np.int64],
        now: int,
    ) -> None:
        """``add`` rows of groups one after another; ``keys`` are those of the groups."""
        counts = matches.tolist()
        left: Iterable[int] = range(len(names))
        if self.has_names:
            heads = np.empty(len(names), _HEAD_TYPE)
            heads["count"], heads["matches"], heads["time"] = 1, matches, now
            values: list[bytes] = heads.view(f"V{_HEAD.size}").tolist()
            if not self.by_row:
                values = list(map(add, values, rows))
            left = append_groups(self.maps, keys, group_of_row, names, values)
        for at in left:
            self.add(keys[group_of_row[at]], names[at], rows[at], counts[at], now)

    def take_back(self, key: CacheKey, name: bytes, now: int) -> None:
        """Forget a row, or one of several equal ones."""
        stored = self.maps.only_bucket(key)
        if stored is None:
            return
        value = only_value(stored, name) if type(stored) is bytes else None
        if value is not None:
            left = self._one_less(value, now)
            bucket = None if left is None else appended(None, name, left)
            self.maps.set_only_bucket(key, bucket)
            return
        kept = self.maps.map_of(key)
        value = kept.get(name)
        if value is None:
            return
        left = self._one_less(value, now)
        if left is None:
            kept.remove(name)
        else:
            kept.put(name, left)

    def _one_less(self, value: bytes, now: int) -> bytes | None:
        count, matches, _ = _HEAD.unpack_from(value)
        return (
            _HEAD.pack(count - 1, matches, now)
            if count > 1 and not self.is_over(value, now)
            else None
        )


class Meeting:
    """The rows of the other side that rows of a batch may match, by their keys.

    They stay the same while the batch is processed: it is of one side.
    """

    def __init__(
        self,
        other: Side,
        groups: RowGroups,
        wanted: NDArray[np.bool_],
        now: int,
        *,
        counts_matches: bool,
    ) -> None:
        """Take the other side, whose maps were fetched, and the groups that may match anything."""
        self._other, self._now = other, now
        buckets = other.maps.whole(groups.keys)
        present = [
            number
            for number, may_match in enumerate(wanted.tolist())
            if may_match and buckets[number] is not None
        ]
        self._keys = [groups.keys[number] for number in present]
        entries = self._entries = Entries.of([buckets[number] or _EMPTY for number in present])
        data, heads = entries.data, entries.values
        counts = numbers_at(data, heads, "<i4")
        if other.ttl > 0:
            counts[numbers_at(data, heads + 8, "<i8") + other.ttl <= now] = 0
        rows = entries.names if other.by_row else heads + _HEAD.size
        self.columns = other.codec.unpack_at(data, rows)
        #: How many rows each entry matches, where somebody has to know.
        self.matches = np.empty(0, dtype=np.int64)
        if counts_matches:
            self.matches = numbers_at(data, heads + 4, "<i4")
        #: The numbers of matches that are others now.
        self.changes: dict[int, int] = {}
        #: Entries by group, one as often as its row is there.
        self.members = np.repeat(np.arange(len(counts)), counts)
        self._sizes = np.zeros(len(groups), dtype=np.int64)
        if present:
            ends = np.concatenate([[0], np.cumsum(counts)])
            lasts = np.cumsum(entries.counts)
            self._sizes[present] = ends[lasts] - ends[lasts - entries.counts]
        self._starts = np.cumsum(self._sizes) - self._sizes

    def write(self) -> None:
        """Keep how many rows each entry matches now."""
        if not self.changes:
            return
        entries, maps = self._entries, self._other.maps
        noted = np.fromiter(self.changes, np.int64, len(self.changes))
        matches = np.fromiter(self.changes.values(), "<i4", len(noted))
        heads = entries.values[noted]
        data = entries.data.copy()
        data[(heads + 4)[:, None] + np.arange(4)] = matches.view(np.uint8).reshape(-1, 4)
        now = np.frombuffer(_TIME.pack(self._now), np.uint8)
        data[(heads + 8)[:, None] + np.arange(8)] = now
        whole = data.tobytes()
        ends = np.append(entries.begins[1:], len(data)).tolist()
        begins = entries.begins.tolist()
        of_bucket = entries.bucket[noted].tolist()
        for bucket in dict.fromkeys(of_bucket):
            key = self._keys[bucket]
            if type(maps.only_bucket(key)) is bytes:
                maps.set_only_bucket(key, whole[begins[bucket] : ends[bucket]])
        for entry, bucket in zip(noted.tolist(), of_bucket, strict=True):
            key = self._keys[bucket]
            if type(maps.only_bucket(key)) is not bytes:
                at, length = entries.values[entry], entries.value_lengths[entry]
                maps.map_of(key).put(entries.name(entry), whole[at : at + length])
        maps.changed(self._keys)

    def sizes(self, group_of_row: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many rows each row may match."""
        return self._sizes[group_of_row]

    def pairs(
        self, rows: NDArray[np.int64], group_of_row: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return all pairs of these rows: row, and entry of the other side; in order of rows."""
        groups = group_of_row[rows]
        sizes = self._sizes[groups]
        repeated = np.repeat(rows, sizes)
        within = np.arange(len(repeated)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return repeated, self.members[np.repeat(self._starts[groups], sizes) + within]


#: So many pairs of rows are looked at in one go.
_MOST_PAIRS: Final = 262_144
_NONE: Final = -1


class JoinOperator(KeyedTableOperator):
    """Keeps the rows of both inputs by join key."""

    def __init__(self, plan: JoinPlan) -> None:
        """Take the sides, and what they are joined on."""
        super().__init__(plan.state_sections()[0])
        self.plan = plan
        self._sides = (
            Side(plan.left, plan.left_type, plan.left_ttl, "left"),
            Side(plan.right, plan.right_type, plan.right_ttl, "right"),
        )
        self._condition: Filter | None = None
        if plan.condition is not None:
            from millstream.expressions.evaluator import compile_filter

            self._condition = compile_filter(plan.condition)
        both = [*self._sides[0].schema, *self._sides[1].schema]
        self._names = [f"{number}.{field.name}" for number, field in enumerate(both)]
        kind = plan.kind
        is_half = kind in (JoinKind.SEMI, JoinKind.ANTI)
        #: Of which side rows without a match count, so that matches are counted.
        self._is_outer = (
            is_half or kind in (JoinKind.LEFT, JoinKind.FULL),
            kind in (JoinKind.RIGHT, JoinKind.FULL),
        )
        self._is_half = is_half

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        for side in self._sides:
            side.open(self.keyed_state)

    def process_rows_of(self, batch: Batch, input_index: int) -> None:
        own, other = self._sides[input_index], self._sides[1 - input_index]
        if self.plan.mini_batch:
            batch = folded(batch, own.folding_key)
            if not len(batch):
                return
        arrow = batch.arrow
        groups = self.group(batch, own.spec.keys)
        rows = own.codec.pack(arrow.columns)
        names = own.names_of(arrow, rows)
        group_of_row = groups.group_of_row
        wanted = self._may_match(arrow, groups, own)
        other.maps.fetch_all_distinct(groups.keys)
        own.maps.fetch_entries_of(groups.keys, group_of_row, names)
        counts_matches = self._is_outer[1 - input_index]
        meeting = Meeting(other, groups, wanted, self.expiry_time, counts_matches=counts_matches)
        work = _Rows(self, batch, input_index, meeting)
        work.groups, work.group_of_row = groups, group_of_row
        work.names, work.rows = names, rows
        for chunk in _chunks(meeting.sizes(group_of_row)):
            first, second = meeting.pairs(chunk, group_of_row)
            kept = self._kept(arrow, first, second, meeting, input_index)
            work.process(chunk, first[kept], second[kept])
        own.maps.changed(groups.keys)
        meeting.write()

    def _may_match(self, arrow: pa.RecordBatch, groups: RowGroups, own: Side) -> NDArray[np.bool_]:
        """Which keys match anything: NULL does not where it equals nothing."""
        may_match = np.ones(len(groups), dtype=np.bool_)
        firsts = groups.first_rows
        for index, filters in zip(own.spec.keys, self.plan.filter_nulls, strict=True):
            column = arrow.column(index)
            if filters and column.null_count:
                may_match &= column.is_valid().to_numpy(zero_copy_only=False)[firsts]
        return may_match

    def _kept(
        self,
        arrow: pa.RecordBatch,
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        meeting: Meeting,
        input_index: int,
    ) -> NDArray[np.bool_] | slice:
        """Which pairs meet the condition."""
        if self._condition is None or not len(first):
            return slice(None)
        runs = byte_runs((arrow.columns, first), (meeting.columns, second))
        parts = [self._meet(arrow, first[run], second[run], meeting, input_index) for run in runs]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _meet(
        self,
        arrow: pa.RecordBatch,
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        meeting: Meeting,
        input_index: int,
    ) -> NDArray[np.bool_]:
        """``_kept`` of no more pairs than one batch may have."""
        assert self._condition is not None  # noqa: S101 - the caller has looked
        own = [column.take(pa.array(first)) for column in arrow.columns]
        other = [column.take(pa.array(second)) for column in meeting.columns]
        columns = own + other if input_index == 0 else other + own
        pairs = pa.RecordBatch.from_arrays(columns, names=self._names)
        context = self.plan.evaluation.at(self.processing_time)
        with self.evaluating():
            mask = self._condition.evaluate(pairs, context)
        found: NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
        return found

    # What the rows of a batch need.

    def side(self, index: int) -> Side:
        """Return an input's side."""
        return self._sides[index]

    def is_outer(self, index: int) -> bool:
        """Whether rows of an input count though they match nothing."""
        return self._is_outer[index]

    @property
    def is_half(self) -> bool:
        """Whether it is a semi or an anti join."""
        return self._is_half


def _chunks(sizes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield runs of rows with not too many pairs, each of at least one row."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _MOST_PAIRS, side="right")))
        yield np.arange(start, stop)
        start = stop


class _Rows:
    """The rows of a batch, one after another."""

    def __init__(
        self, operator: JoinOperator, batch: Batch, input_index: int, meeting: Meeting
    ) -> None:
        self._operator = operator
        self._batch = batch
        self._input = input_index
        self._meeting = meeting
        self._kind_of_row = kinds_or_inserts(batch)
        self._kinds: list[int] = self._kind_of_row.tolist()
        self._takes_back = bool((self._kind_of_row & 1).any())
        #: Of the entries of the meeting, while rows are gone through one by one.
        self._matches: list[int] = []
        self._own = operator.side(input_index)
        self._own_is_outer = operator.is_outer(input_index)
        self._other_is_outer = operator.is_outer(1 - input_index)
        self.groups: RowGroups
        self.group_of_row: NDArray[np.int64]
        self.names: list[bytes] = []
        self.rows: list[bytes] = []
        self._out: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._now = operator.expiry_time

    def process(
        self, chunk: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> None:
        """Process a run of rows with the pairs that match."""
        operator = self._operator
        inner = not (self._own_is_outer or self._other_is_outer)
        if not self._takes_back and (inner or self._own.by_row):
            self._process_inserts(chunk, first, second)
            return
        if inner:
            for row in chunk.tolist():
                self._keep(row, 0)
            self._emit(first, second, self._kind_of_row[first])
            return
        self._matches = self._meeting.matches.tolist()
        bounds = np.searchsorted(first, np.append(chunk, chunk[-1] + 1)).tolist()
        matched = second.tolist()
        step = self._step
        if operator.is_half:
            step = self._left_step if self._input == 0 else self._right_step
        for number, row in enumerate(chunk.tolist()):
            step(row, matched[bounds[number] : bounds[number + 1]])
        self._meeting.matches = np.array(self._matches, dtype=np.int64)
        one, other, changed = self._out
        self._out = ([], [], [])
        self._emit(
            np.array(one, dtype=np.int64), np.array(other, np.int64), np.array(changed, np.int8)
        )

    def _process_inserts(
        self, chunk: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> None:
        """Rows of which each is one more: what the steps below do, for all of them at once."""
        start = int(chunk[0])
        run = slice(start, start + len(chunk))
        matches = np.bincount(first - start, minlength=len(chunk))
        now = self._now
        of_row = self.group_of_row[run]
        keys, names = self.groups.keys, self.names[run]
        self._own.add_all(keys, of_row, names, self.rows[run], matches, now)
        kinds = self._kind_of_row
        if not (self._own_is_outer or self._other_is_outer):
            self._emit(first, second, kinds[first])
            return
        pair = np.arange(len(first))
        came = self._first_matches(first, second) if self._other_is_outer else pair[:0]
        is_anti = self._operator.plan.kind is JoinKind.ANTI
        if self._operator.is_half and self._input == 0:
            rows = chunk[(matches == 0) if is_anti else (matches > 0)]
            self._emit(rows, np.full(len(rows), _NONE), kinds[rows])
        elif self._operator.is_half:
            kind = np.full(len(came), DELETE, np.int8) if is_anti else kinds[first[came]]
            self._emit(np.full(len(came), _NONE), second[came], kind)
        else:
            lonely = chunk[matches == 0] if self._own_is_outer else chunk[:0]
            turn = np.concatenate([2 * came, 2 * pair + 1, np.zeros(len(lonely), np.int64)])
            order = np.lexsort((turn, np.concatenate([first[came], first, lonely])))
            one = np.concatenate([np.full(len(came), _NONE), first, lonely])
            other = np.concatenate([second[came], second, np.full(len(lonely), _NONE)])
            kind = np.full(len(order), INSERT, np.int8)
            kind[: len(came)] = DELETE
            self._emit(one[order], other[order], kind[order])

    def _first_matches(
        self, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Count the matches of the other side's rows; the pairs that are the first of one."""
        meeting = self._meeting
        is_next = np.ones(len(first), dtype=np.bool_)  # of rows that are there more than once
        is_next[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        rows, entries = first[is_next], second[is_next]
        found, at, counts = np.unique(entries, return_index=True, return_counts=True)
        first_row = np.full(len(meeting.matches), _NONE)
        first_row[found] = rows[at]
        came = np.flatnonzero((meeting.matches[second] == 0) & (first_row[second] == first))
        meeting.matches[found] += counts
        meeting.changes.update(zip(found.tolist(), meeting.matches[found].tolist(), strict=True))
        return came

    def _keep(self, row: int, matches: int) -> bool:
        """Keep a row or forget it; returns whether it is one that was not there."""
        now = self._now
        key, name = self.groups.keys[self.group_of_row[row]], self.names[row]
        if self._kinds[row] & 1:
            self._own.take_back(key, name, now)
            return False
        return self._own.add(key, name, self.rows[row], matches, now)

    def _add(self, row: int, entry: int, kind: int) -> None:
        one, other, kinds = self._out
        one.append(row)
        other.append(entry)
        kinds.append(kind)

    def _step(self, row: int, matched: list[int]) -> None:
        """A row of an outer join."""
        kind = self._kinds[row]
        takes_back = kind & 1
        is_new = self._keep(row, len(matched))
        if self._own_is_outer:
            kind = DELETE if takes_back else INSERT
            if not matched:
                self._add(row, _NONE, kind)
                return
        if takes_back:
            self._lose(row, matched, kind)
        else:
            # Of a side with a unique key, a row that is there already is replaced: no new match.
            self._gain(row, matched, counts=is_new or self._own.spec.unique_key is None)

    def _gain(self, row: int, matched: list[int], *, counts: bool) -> None:
        if not self._other_is_outer:
            for entry in matched:
                self._add(row, entry, INSERT)
            return
        before = {entry: self._matches[entry] for entry in matched}
        for entry in matched:
            if before[entry] == 0:
                self._add(_NONE, entry, DELETE)
            self._add(row, entry, INSERT)
        for entry, matches in before.items():
            if matches == 0 or counts:
                self._note(entry, matches + 1)

    def _lose(self, row: int, matched: list[int], kind: int) -> None:
        if not self._other_is_outer:
            for entry in matched:
                self._add(row, entry, kind)
            return
        before = {entry: self._matches[entry] for entry in matched}
        for entry in matched:
            self._add(row, entry, kind)
            if before[entry] == 1:
                self._add(_NONE, entry, INSERT)
        for entry, matches in before.items():
            self._note(entry, matches - 1)

    def _note(self, entry: int, matches: int) -> None:
        self._matches[entry] = self._meeting.changes[entry] = matches

    def _left_step(self, row: int, matched: list[int]) -> None:
        """A row of which it counts whether it matches."""
        is_anti = self._operator.plan.kind is JoinKind.ANTI
        if bool(matched) is not is_anti:
            self._add(row, _NONE, self._kinds[row])
        self._keep(row, len(matched))

    def _right_step(self, row: int, matched: list[int]) -> None:
        """A row that rows on the left may match."""
        kind = self._kinds[row]
        takes_back = kind & 1
        is_anti = self._operator.plan.kind is JoinKind.ANTI
        before = {entry: self._matches[entry] for entry in matched}
        if is_anti:
            kind = INSERT if takes_back else DELETE
        for entry in matched:
            if before[entry] == takes_back:  # the first match comes, or the only one goes
                self._add(_NONE, entry, kind)
        self._keep(row, 0)
        for entry, matches in before.items():
            self._note(entry, matches - 1 if takes_back else matches + 1)

    def _emit(
        self, first: NDArray[np.int64], second: NDArray[np.int64], kinds: NDArray[np.int8]
    ) -> None:
        parts = [
            (self._batch.arrow.columns, first),
            (self._meeting.columns, second),
        ]
        if self._operator.is_half:  # the rows on the left, which are this batch's or were kept
            parts = parts[self._input : self._input + 1]
        elif self._input:
            parts.reverse()
        for run in byte_runs(*parts):
            columns = [column for columns, rows in parts for column in _taken(columns, rows[run])]
            kind = kinds[run]
            self._operator.emit_columns(columns, kind if kind.any() else None)


def _taken(columns: list[pa.Array], rows: NDArray[np.int64]) -> list[pa.Array]:
    """The rows of columns, NULL where there is none."""
    absent = rows == _NONE
    picked = pa.array(rows, mask=absent if absent.any() else None)
    return [column.take(picked) for column in columns]


_JOIN_PAIRS_MOST_PAIRS: Final = 262_144


class _Plan(Protocol):
    @property
    def left_type(self) -> RowType: ...

    @property
    def right_type(self) -> RowType: ...

    @property
    def left(self) -> JoinSide: ...

    @property
    def right(self) -> JoinSide: ...

    @property
    def filter_nulls(self) -> tuple[bool, ...]: ...

    @property
    def condition(self) -> Expression | None: ...

    @property
    def evaluation(self) -> EvaluationContext: ...


class JoinPairs:
    """Makes pairs.  Side 0 is left, side 1 right; *own* is that of the batch."""

    def __init__(self, plan: _Plan) -> None:
        """Take the sides and the condition."""
        self._plan = plan
        self._sides = (plan.left, plan.right)
        self._schemas = (plan.left_type.to_arrow_schema(), plan.right_type.to_arrow_schema())
        both = [*self._schemas[0], *self._schemas[1]]
        self._names = [f"{number}.{field.name}" for number, field in enumerate(both)]
        self._condition: Filter | None = None
        if plan.condition is not None:
            from millstream.expressions.evaluator import compile_filter

            self._condition = compile_filter(plan.condition)

    def may_match(self, arrow: pa.RecordBatch, groups: RowGroups, own: int) -> NDArray[np.bool_]:
        """Return which keys match anything: NULL does not where it equals nothing."""
        found = np.ones(len(groups), dtype=np.bool_)
        pairs = zip(self._sides[own].keys, self._plan.filter_nulls, strict=True)
        for index, filters in pairs:
            column = arrow.column(index)
            if filters and column.null_count:
                found &= column.is_valid().to_numpy(zero_copy_only=False)[groups.first_rows]
        return found

    @staticmethod
    def candidates(
        sizes: NDArray[np.int64], group_of_row: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield pairs of rows and kept rows of their key, in order of rows.

        Args:
            sizes: how many kept rows each key has; those of all keys stand one behind the other.
            group_of_row: the key of each row.
        """
        begins = np.cumsum(sizes) - sizes
        of_row = sizes[group_of_row]
        ends = np.cumsum(of_row)
        start = 0
        while start < len(of_row):
            before = ends[start - 1] if start else 0
            stop = max(
                start + 1, int(np.searchsorted(ends, before + _JOIN_PAIRS_MOST_PAIRS, side="right"))
            )
            counts = of_row[start:stop]
            first = np.repeat(np.arange(start, stop), counts)
            within = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
            yield first, begins[group_of_row[first]] + within
            start = stop

    def holds(
        self,
        own_columns: Sequence[pa.Array],
        other_columns: Sequence[pa.Array],
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        own: int,
        processing_time: int,
    ) -> NDArray[np.bool_]:
        """Return which pairs meet the condition."""
        if self._condition is None or not len(first):
            return np.ones(len(first), dtype=np.bool_)
        context = self._plan.evaluation.at(processing_time)
        found = np.empty(len(first), dtype=np.bool_)
        for run, columns in self.joined(own_columns, other_columns, first, second, own):
            pairs = pa.RecordBatch.from_arrays(columns, names=self._names)
            mask = self._condition.evaluate(pairs, context)
            found[run] = mask.to_numpy(zero_copy_only=False)
        return found

    @staticmethod
    def joined(
        own_columns: Sequence[pa.Array],
        other_columns: Sequence[pa.Array],
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        own: int,
    ) -> Iterator[tuple[slice, list[pa.Array]]]:
        """Yield the columns of pairs, in runs of not too many bytes, with where these are.

        ``second`` -1: there is none, all of the other side is NULL.
        """
        for run in byte_runs((own_columns, first), (other_columns, second)):
            found = second[run]
            absent = found < 0
            picked = pa.array(found, mask=absent if absent.any() else None)
            mine = [column.take(pa.array(first[run])) for column in own_columns]
            other = [column.take(picked) for column in other_columns]
            yield run, other + mine if own else mine + other

    def padded(self, columns: Sequence[pa.Array], own: int) -> list[pa.Array]:
        """Return rows with NULL for the other side."""
        count = len(columns[0])
        nulls = [pa.nulls(count, field.type) for field in self._schemas[1 - own]]
        return [*nulls, *columns] if own else [*columns, *nulls]
