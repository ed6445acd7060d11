"""Regular joins of two changelogs, and the pairs of rows that all joins of tables evaluate.

Flink's StreamingJoinOperator and StreamingSemiAntiJoinOperator for whole batches.  A batch comes
from one input, so the rows of the other side that it matches stay as they are: pairs, and the
condition over them, are computed for many rows at once.  The number of matches of each outer row
changes from row to row: the row padded with NULL is emitted or retracted when the first match comes
or the last one goes.

An inner join forwards the RowKinds of its inputs; outer joins emit +I and -D.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from operator import add
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import Batch
from millstream.expressions.context import EvaluationContext
from millstream.runtime.columnar.array_utils import byte_runs, runs_of
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import codes_of, group_codes
from millstream.runtime.operators.table.base import (
    DELETE,
    INSERT,
    KeyedTableOperator,
    TableOperator,
    kinds_or_inserts,
)
from millstream.runtime.operators.table.specs import JoinKind, joined_section
from millstream.state.packed_buckets import Entries, appended, numbers_at, only_value
from millstream.state.packed_state import ExpiringEntries, PackedMaps, append_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.operator import Operator, OperatorContext, Output, StateSection
    from millstream.expressions.evaluator import Filter
    from millstream.expressions.nodes import Expression
    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.runtime.operators.table.specs import JoinSide
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState
    from millstream.types.logical_types import RowType


# -- pairs of rows, for all joins ---

#: So many pairs of rows are evaluated at a time.
_MOST_PAIRS: Final = 262_144
#: No row: columns are NULL.
_NONE: Final = -1


@dataclass(frozen=True)
class JoinParameters:
    """Parameters of all joins of tables; input 0 is left, input 1 right."""

    left_type: RowType
    right_type: RowType
    kind: JoinKind
    left: JoinSide
    right: JoinSide
    #: For each pair of key columns whether NULL equals nothing, not even NULL (``=``); False is
    #: IS NOT DISTINCT FROM.
    filter_nulls: tuple[bool, ...]
    #: Over the columns of both sides; None: equal keys suffice.
    condition: Expression | None = field(default=None, kw_only=True)
    evaluation: EvaluationContext = field(default_factory=EvaluationContext, kw_only=True)


class JoinPairs:
    """Makes pairs.  Side 0 is left, side 1 right; *own* is that of the batch."""

    def __init__(self, plan: JoinParameters, operator: TableOperator) -> None:
        self._plan = plan
        self._operator = operator
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
            sizes: how many kept rows each key has; those of all keys stand one after another.
            group_of_row: the key of each row.
        """
        begins = np.cumsum(sizes) - sizes
        of_row = sizes[group_of_row]
        for run in runs_of(of_row, _MOST_PAIRS):
            counts = of_row[run]
            first = np.repeat(np.arange(run.start, run.stop), counts)
            within = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
            yield first, begins[group_of_row[first]] + within

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
            with self._operator.evaluating():
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


# -- regular joins ---

_HEAD: Final = struct.Struct("<iiq")
_HEAD_TYPE: Final = np.dtype([("count", "<i4"), ("matches", "<i4"), ("time", "<i8")])
_TIME: Final = struct.Struct("<q")
#: Where the time begins in a head.
_TIME_AT: Final = 8
_EMPTY: Final = b""


class Side:
    """One input of a join."""

    def __init__(self, spec: JoinSide, row_type: RowType, ttl: int, name: str) -> None:
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
    def compaction_key(self) -> tuple[int, ...] | None:
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
        """Return whether an entry has expired."""
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

    def retract(self, key: CacheKey, name: bytes, now: int) -> None:
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


class OtherRows:
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


@dataclass(frozen=True)
class JoinFactory(JoinParameters):
    """A regular join of two changelogs.  Gives the left columns, then the right ones.

    SEMI and ANTI give the left columns.  Input 0 is left, input 1 right.
    """

    left_ttl: int = 0
    right_ttl: int = 0
    #: Whether the changes of a key within a batch are folded.
    mini_batch: bool = False
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        keys = [f" by {side.unique_key or 'row'}" for side in (self.left, self.right)]
        return [joined_section("joined rows", self.left_type, self.right_type, keys)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return JoinOperator(self)


class JoinOperator(KeyedTableOperator):
    """Keeps the rows of both inputs by join key."""

    def __init__(self, plan: JoinFactory) -> None:
        super().__init__(plan.state_sections()[0])
        self.plan = plan
        self._sides = (
            Side(plan.left, plan.left_type, plan.left_ttl, "left"),
            Side(plan.right, plan.right_type, plan.right_ttl, "right"),
        )
        self._pairs = JoinPairs(plan, self)
        kind = plan.kind
        #: Whether it is a semi or an anti join.
        self.is_half = kind in (JoinKind.SEMI, JoinKind.ANTI)
        #: Of which side rows without a match count, so that matches are counted.
        self._is_outer = (
            self.is_half or kind in (JoinKind.LEFT, JoinKind.FULL),
            kind in (JoinKind.RIGHT, JoinKind.FULL),
        )

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        for side in self._sides:
            side.open(self.keyed_state)

    def process_rows_of(self, batch: Batch, input_index: int) -> None:
        own, other = self._sides[input_index], self._sides[1 - input_index]
        if self.plan.mini_batch:
            batch = compacted(batch, own.compaction_key)
            if not len(batch):
                return
        arrow = batch.arrow
        groups = self.group(batch, own.spec.keys)
        rows = own.codec.pack(arrow.columns)
        names = own.names_of(arrow, rows)
        group_of_row = groups.group_of_row
        wanted = self._pairs.may_match(arrow, groups, input_index)
        other.maps.fetch_all_distinct(groups.keys)
        own.maps.fetch_entries_of(groups.keys, group_of_row, names)
        counts_matches = self._is_outer[1 - input_index]
        other_rows = OtherRows(
            other, groups, wanted, self.expiry_time, counts_matches=counts_matches
        )
        work = _Rows(self, batch, input_index, other_rows)
        work.groups, work.group_of_row = groups, group_of_row
        work.names, work.rows = names, rows
        for run in runs_of(other_rows.sizes(group_of_row), _MOST_PAIRS):
            chunk = np.arange(run.start, run.stop)
            first, second = other_rows.pairs(chunk, group_of_row)
            if self.plan.condition is not None:
                holds = self._pairs.holds(
                    arrow.columns,
                    other_rows.columns,
                    first,
                    second,
                    input_index,
                    self.processing_time,
                )
                first, second = first[holds], second[holds]
            work.process(chunk, first, second)
        own.maps.changed(groups.keys)
        other_rows.write()

    # What the rows of a batch need.

    def side(self, index: int) -> Side:
        """Return an input's side."""
        return self._sides[index]

    def is_outer(self, index: int) -> bool:
        """Return whether rows of an input count though they match nothing."""
        return self._is_outer[index]


class _Rows:
    """The rows of a batch, one after another."""

    def __init__(
        self, operator: JoinOperator, batch: Batch, input_index: int, other_rows: OtherRows
    ) -> None:
        self._operator = operator
        self._batch = batch
        self._input = input_index
        self._other_rows = other_rows
        self._kind_of_row = kinds_or_inserts(batch)
        self._kinds: list[int] = self._kind_of_row.tolist()
        self._retracts = bool((self._kind_of_row & 1).any())
        #: Of the entries of the other_rows, while rows are gone through one by one.
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
        if not self._retracts and (inner or self._own.by_row):
            self._process_inserts(chunk, first, second)
            return
        if inner:
            for row in chunk.tolist():
                self._keep(row, 0)
            self._emit(first, second, self._kind_of_row[first])
            return
        self._matches = self._other_rows.matches.tolist()
        bounds = np.searchsorted(first, np.append(chunk, chunk[-1] + 1)).tolist()
        matched = second.tolist()
        step = self._step
        if operator.is_half:
            step = self._left_step if self._input == 0 else self._right_step
        for number, row in enumerate(chunk.tolist()):
            step(row, matched[bounds[number] : bounds[number + 1]])
        self._other_rows.matches = np.array(self._matches, dtype=np.int64)
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
            unmatched = chunk[matches == 0] if self._own_is_outer else chunk[:0]
            turn = np.concatenate([2 * came, 2 * pair + 1, np.zeros(len(unmatched), np.int64)])
            order = np.lexsort((turn, np.concatenate([first[came], first, unmatched])))
            one = np.concatenate([np.full(len(came), _NONE), first, unmatched])
            other = np.concatenate([second[came], second, np.full(len(unmatched), _NONE)])
            kind = np.full(len(order), INSERT, np.int8)
            kind[: len(came)] = DELETE
            self._emit(one[order], other[order], kind[order])

    def _first_matches(
        self, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Count the matches of the other side's rows; the pairs that are the first of one."""
        other_rows = self._other_rows
        is_next = np.ones(len(first), dtype=np.bool_)  # of rows that are there more than once
        is_next[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        rows, entries = first[is_next], second[is_next]
        found, at, counts = np.unique(entries, return_index=True, return_counts=True)
        first_row = np.full(len(other_rows.matches), _NONE)
        first_row[found] = rows[at]
        came = np.flatnonzero((other_rows.matches[second] == 0) & (first_row[second] == first))
        other_rows.matches[found] += counts
        other_rows.changes.update(
            zip(found.tolist(), other_rows.matches[found].tolist(), strict=True)
        )
        return came

    def _keep(self, row: int, matches: int) -> bool:
        """Keep a row or forget it; returns whether it is one that was not there."""
        now = self._now
        key, name = self.groups.keys[self.group_of_row[row]], self.names[row]
        if self._kinds[row] & 1:
            self._own.retract(key, name, now)
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
        retracts = kind & 1
        is_new = self._keep(row, len(matched))
        if self._own_is_outer:
            kind = DELETE if retracts else INSERT
            if not matched:
                self._add(row, _NONE, kind)
                return
        if retracts:
            self._remove_matches(row, matched, kind)
        else:
            # Of a side with a unique key, a row that is there already is replaced: no new match.
            self._add_matches(row, matched, counts=is_new or self._own.spec.unique_key is None)

    def _add_matches(self, row: int, matched: list[int], *, counts: bool) -> None:
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
                self._set_matches(entry, matches + 1)

    def _remove_matches(self, row: int, matched: list[int], kind: int) -> None:
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
            self._set_matches(entry, matches - 1)

    def _set_matches(self, entry: int, matches: int) -> None:
        self._matches[entry] = self._other_rows.changes[entry] = matches

    def _left_step(self, row: int, matched: list[int]) -> None:
        """A row of which it counts whether it matches."""
        is_anti = self._operator.plan.kind is JoinKind.ANTI
        if bool(matched) is not is_anti:
            self._add(row, _NONE, self._kinds[row])
        self._keep(row, len(matched))

    def _right_step(self, row: int, matched: list[int]) -> None:
        """A row that rows on the left may match."""
        kind = self._kinds[row]
        retracts = kind & 1
        is_anti = self._operator.plan.kind is JoinKind.ANTI
        before = {entry: self._matches[entry] for entry in matched}
        if is_anti:
            kind = INSERT if retracts else DELETE
        for entry in matched:
            if before[entry] == retracts:  # the first match comes, or the only one goes
                self._add(_NONE, entry, kind)
        self._keep(row, 0)
        for entry, matches in before.items():
            self._set_matches(entry, matches - 1 if retracts else matches + 1)

    def _emit(
        self, first: NDArray[np.int64], second: NDArray[np.int64], kinds: NDArray[np.int8]
    ) -> None:
        parts = [
            (self._batch.arrow.columns, first),
            (self._other_rows.columns, second),
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


# -- mini-batch compaction ---


def compacted(batch: Batch, key: Sequence[int] | None) -> Batch:
    """Return a batch with the same effect and as few rows as possible, as in mini-batch joins.

    Where rows have a unique key, only the row before the batch and the row after it count;
    otherwise a row that comes and goes within the batch does not.

    Args:
        batch: of a changelog, which has rows.
        key: the columns by which rows are unique; None: whole rows are compared.
    """
    kinds = batch.row_kinds
    if kinds is None:
        return batch
    retracts = (kinds & 1).astype(np.bool_)
    if key is None and not retracts.any():
        return batch
    arrow = batch.arrow
    columns = arrow.columns if key is None else [arrow.column(index) for index in key]
    parts = [codes_of(column) for column in columns] or [(np.zeros(len(batch), np.int64), [0])]
    order, starts, counts = group_codes([(codes, len(values)) for codes, values in parts])
    if len(starts) == len(batch):
        return batch
    if key is None:
        kept = _net_by_row(order, starts, counts, retracts)
    else:
        kinds, kept = _net_by_key(order, starts, counts, kinds)
    if kept.all():
        return batch
    rows = np.flatnonzero(kept)
    return Batch(batch.type_info, arrow=arrow.take(rows), row_kinds=kinds[rows])


def _net_by_key(
    order: NDArray[np.int64],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    kinds: NDArray[np.int8],
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Return the net change of each key's row: the RowKinds, and which rows are kept."""
    first, last = order[starts], order[starts + counts - 1]
    came, goes = (kinds[first] & 1) == 0, (kinds[last] & 1) == 1
    kept = np.zeros(len(kinds), dtype=np.bool_)
    kept[last[~goes]] = True
    kept[first[~came]] = True
    # +U of what may have been there before, or not: another join key had it.  Both hold then.
    unsure = goes & came & (kinds[first] != INSERT)
    kept[last[unsure]] = True
    kept[order[starts + counts - 2][unsure]] = True
    kinds = kinds.copy()
    kinds[first[goes & ~came]] = DELETE
    # Whether it was there before, whatever was in between.
    kinds[last[~goes & came]] = kinds[first[~goes & came]]
    return kinds, kept


def _net_by_row(
    order: NDArray[np.int64],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    retracts: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Return which rows are kept so that equal ones cancel each other out."""
    signs = np.where(retracts, -1, 1)[order]
    net = np.add.reduceat(signs, starts)
    of_net, goes = np.repeat(net, counts), signs < 0
    # Of those that come too often the last are kept, of those that go the first.
    begins = np.repeat(starts, counts)
    coming: NDArray[np.int64] = np.cumsum(~goes)
    going: NDArray[np.int64] = np.cumsum(goes)
    comes_so_far = coming - (coming - ~goes)[begins]
    goes_so_far = going - (going - goes)[begins]
    all_come = np.repeat(np.add.reduceat((~goes).astype(np.int64), starts), counts)
    kept_in_order = (~goes & (comes_so_far > all_come - of_net)) | (goes & (goes_so_far <= -of_net))
    kept = np.zeros(len(order), dtype=np.bool_)
    kept[order] = kept_in_order
    return kept
