"""Top-N: the rows of each key with the numbers from START to END in an order.

Flink's rank functions for ROW_NUMBER.  All strategies keep the rows of a key in order; they differ
in which rows they keep, and in the input they accept:

===========  ==========================================  =====================================
strategy     input                                       keeps
===========  ==========================================  =====================================
APPEND       inserts                                     the first END rows
UPDATE_FAST  inserts and updates by a key that never     the first END rows, found by that key
             move a row back
RETRACT      any changelog                               all rows
===========  ==========================================  =====================================

Rows of equal order stay as they came.  With rank numbers in the output, or an offset, each number
is a row that is updated; otherwise rows are inserted and deleted.

State: per key a map from sort key and number (8 bytes, of arrival) to the row, or to its key and
itself; where state expires, the time at which it was written under an empty name.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from operator import eq, le
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import pyarrow as pa

from millstream.contracts.operator import StateSection
from millstream.errors import TypeMismatchError
from millstream.runtime.columnar.row_codec import RowCodec, sort_keys
from millstream.runtime.operators.table.base import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    KeyedTableOperator,
    kinds_or_inserts,
)
from millstream.runtime.operators.table.row_buffers import RowChanges, packed_list, unpacked_list
from millstream.runtime.operators.table.specs import RankStrategy, columns_text, order_text
from millstream.runtime.operators.table.window_join import RowsOfWindowsOperator
from millstream.state.packed_buckets import joined_bucket, split_bucket
from millstream.state.packed_state import ExpiringMaps, PackedMaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, OperatorContext, Output, RestoreContext
    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.runtime.operators.table.specs import SortColumn
    from millstream.runtime.operators.table.window_join import Slot
    from millstream.state.key_codec import CacheKey
    from millstream.state.packed_state import PackedMap
    from millstream.types.logical_types import RowType


_NUMBER: Final = struct.Struct(">Q")
#: When a map was written last, in milliseconds, under the empty name.
_TIME: Final = struct.Struct("<q")
#: After the names of all rows of one sort key.
BEHIND: Final = b"\xff" * 9


class Ranking:
    """The rows of one key, in order.

    Invariant: ``names[i]`` is the name of ``rows[i]``; names are sorted.
    """

    __slots__ = ("kept", "names", "next_number", "rows")

    def __init__(self, kept: PackedMap, *, is_keyed: bool) -> None:
        self.kept = kept
        entries = sorted(entry for entry in kept.items() if entry[0])
        self.names = [name for name, _ in entries]
        self.rows = [unpacked_list(value)[1] if is_keyed else value for _, value in entries]
        numbers = (_NUMBER.unpack(name[-8:])[0] for name in self.names)
        self.next_number = max(numbers, default=-1) + 1

    def __len__(self) -> int:
        return len(self.names)

    def insert(self, sort_key: bytes, row: bytes, row_key: bytes | None = None) -> int:
        """Put a row after those of the same order; returns its position."""
        at = bisect_right(self.names, sort_key + BEHIND)
        name = sort_key + _NUMBER.pack(self.next_number)
        self.next_number += 1
        self.names.insert(at, name)
        self.rows.insert(at, row)
        self.kept.put(name, row if row_key is None else packed_list([row_key, row]))
        return at

    def remove(self, at: int) -> bytes:
        """Remove the row at a position, and return it."""
        self.kept.remove(self.names.pop(at))
        return self.rows.pop(at)

    def find(self, sort_key: bytes, row: bytes) -> int:
        """Return the position of the first row of that order that equals ``row``; -1: none."""
        start = bisect_left(self.names, sort_key)
        stop = bisect_right(self.names, sort_key + BEHIND)
        try:
            return self.rows.index(row, start, stop)
        except ValueError:
            return -1

    def takes(self, sort_key: bytes, most: int) -> bool:
        """Return whether a new row of that order would be among the first ``most``."""
        return len(self.names) < most or sort_key < self.names[most - 1][:-8]


class BucketRanking(Ranking):
    """The few rows of one key, in order, over the only bucket of its map."""

    __slots__ = ("is_changed", "stored")

    def __init__(self, stored: bytes | None) -> None:
        """Take the bucket, None of no rows."""
        self.names: list[bytes] = []
        self.rows: list[bytes] = []
        self.stored = stored
        self.next_number = -1
        self.is_changed = False
        if stored is not None:
            _, _, names, rows = split_bucket(stored)
            if not all(map(le, names, islice(names, 1, None))):
                entries = sorted(zip(names, rows, strict=True))
                names, rows = [name for name, _ in entries], [row for _, row in entries]
            self.names, self.rows = names, rows

    def insert(self, sort_key: bytes, row: bytes, row_key: bytes | None = None) -> int:
        del row_key
        if self.next_number < 0:
            last = max([name[-8:] for name in self.names], default=None)
            self.next_number = 0 if last is None else int(_NUMBER.unpack(last)[0]) + 1
        at = bisect_right(self.names, sort_key + BEHIND)
        self.names.insert(at, sort_key + _NUMBER.pack(self.next_number))
        self.next_number += 1
        self.rows.insert(at, row)
        self.is_changed = True
        return at

    def remove(self, at: int) -> bytes:
        self.is_changed = True
        self.names.pop(at)
        return self.rows.pop(at)

    def bucket(self) -> bytes | None:
        """Return what is to be stored, None of no rows."""
        return joined_bucket(self.names, self.rows) if self.names else None


def live_ranking(kept: PackedMap, ttl: int, now: int, *, is_keyed: bool = False) -> Ranking:
    """Return the ranking of a map, which loses its rows if it was not written for ``ttl``.

    Args:
        kept: the map.
        ttl: in milliseconds; 0: rows stay.
        now: the time, in milliseconds.
        is_keyed: as of ``Ranking``.
    """
    if ttl and len(kept):
        written = _TIME.unpack(kept.get(b"") or _TIME.pack(0))[0]
        if written + ttl <= now:
            kept.clear()
    return ranking_of(kept, is_keyed=is_keyed)


def keep_alive(rankings: Iterable[Ranking], now: int) -> None:
    """Note in the maps of rankings that were changed when that was, for ``live_ranking``."""
    time = _TIME.pack(now)
    for ranking in rankings:
        if ranking.kept.dirty:
            if len(ranking):
                ranking.kept.put(b"", time)
            else:
                ranking.kept.remove(b"")


def ranking_of(kept: PackedMap, *, is_keyed: bool = False) -> Ranking:
    """Return the ranking of a map, which is kept as long as that is in memory."""
    if kept.view is None:
        kept.view = Ranking(kept, is_keyed=is_keyed)
    ranking: Ranking = kept.view
    return ranking


class _Change(NamedTuple):
    """A row that is added to a ranking, or retracted from it."""

    sort_key: bytes
    row: bytes
    #: For UPDATE_FAST: the key of the row, and the names of rows by their keys.
    key: bytes | None = None
    retracts: int = 0
    finder: dict[bytes, bytes] | None = None


#: Of so many keys it is known where their last rows stand.
_MOST_LAST: Final = 200_000
#: Up to so many rows of a key are one bucket in any case.
_FEW: Final = 100


@dataclass(frozen=True)
class TopNFactory:
    """ROW_NUMBER() OVER (PARTITION BY keys ORDER BY order) BETWEEN start AND end.

    Gives the input's columns, then the number (BIGINT) if ``output_rank``.
    """

    input_type: RowType
    keys: tuple[int, ...]
    order: tuple[SortColumn, ...]
    #: First and last number, counted from 1.
    start: int
    end: int
    output_rank: bool
    strategy: RankStrategy
    update_before: bool
    #: The key of the input's rows, for UPDATE_FAST.
    row_key: tuple[int, ...] = ()
    state_ttl: int = 0
    #: Only what is different after a batch is given, not every step to there.
    mini_batch: bool = False
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {
            "columns": columns_text(self.input_type),
            "order": order_text(self.order),
            "strategy": self.strategy.value,
        }
        return [StateSection("ranking", "packed rows by key, then order", details=details)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return TopNOperator(self)


class TopNOperator(KeyedTableOperator):
    """Keeps the first rows of every key."""

    gathers_batches: ClassVar[bool] = True

    def __init__(self, plan: TopNFactory) -> None:
        super().__init__(plan.state_sections()[0])
        self._plan = plan
        self._codec = RowCodec(plan.input_type.to_arrow_schema())
        self._with_numbers = plan.output_rank or plan.start > 1
        self._is_keyed = plan.strategy is RankStrategy.UPDATE_FAST
        self._is_top_1 = plan.end == 1 and plan.strategy is not RankStrategy.RETRACT
        self._is_small = (
            plan.strategy is RankStrategy.APPEND and plan.end <= _FEW and not plan.state_ttl
        )
        schema = plan.input_type.to_arrow_schema()
        self._key_codec = RowCodec(pa.schema([schema.field(index) for index in plan.row_key]))
        self._steps = {
            RankStrategy.APPEND: self._append,
            RankStrategy.UPDATE_FAST: self._update,
            RankStrategy.RETRACT: self._insert_or_retract,
        }
        self._changes = RowChanges()
        #: Of mini-batches only what is different in the end is given.
        self._is_silent = plan.mini_batch
        #: Of keys that have all their rows, where the last of them stands: no row after it counts.
        self._last: dict[CacheKey, bytes] = {}

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._last.clear()

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = PackedMaps(self.keyed_state, "\0rows")
        if self._plan.state_ttl:
            self.keyed_state.expired.watch(ExpiringMaps(self._kept, self._plan.state_ttl))

    def process_rows(self, batch: Batch) -> None:
        plan = self._plan
        kinds = kinds_or_inserts(batch)
        if plan.strategy is not RankStrategy.RETRACT and (kinds & 1).any():
            message = (
                f"operator {self.context.name!r} got a retraction, but its strategy is"
                f" {plan.strategy.value}"
            )
            raise TypeMismatchError(message)
        groups = self.group(batch, plan.keys)
        columns = batch.arrow.columns
        orders = sort_keys(columns, plan.order)
        if self._is_small:
            self._process_few(groups, orders, columns)
            return
        rows = self._codec.pack(columns)
        keys: Sequence[bytes | None] = [None] * len(rows)
        if self._is_keyed:
            keys = self._key_codec.pack([columns[index] for index in plan.row_key])
        self._kept.fetch_all_distinct(groups.keys)
        ttl, now = plan.state_ttl, self.expiry_time
        rankings = [
            live_ranking(self._kept.map_of(key), ttl, now, is_keyed=self._is_keyed)
            for key in groups.keys
        ]
        self._is_silent = plan.mini_batch
        before = [self._shown(each) for each in rankings] if plan.mini_batch else []
        finders = [self._row_keys(each) for each in rankings] if self._is_keyed else None
        step = self._top_1 if self._is_top_1 else self._steps[plan.strategy]
        retracts = (kinds & 1).tolist()
        for position, group in enumerate(groups.group_of_row.tolist()):
            finder = None if finders is None else finders[group]
            sort_key, row, key = orders[position], rows[position], keys[position]
            change = _Change(sort_key, row, key, retracts[position], finder)
            step(rankings[group], change)
        for rows_before, ranking in zip(before, rankings, strict=False):  # none: given already
            self._add_difference(rows_before, self._shown(ranking))
        if ttl:
            keep_alive(rankings, now)
        self._kept.changed(groups.keys)
        changes, self._changes = self._changes, RowChanges()
        changes.emit(self, self._codec)

    # Mini-batches.

    def _shown(self, ranking: Ranking) -> list[bytes]:
        """The rows that are wanted, as they are now."""
        return ranking.rows[self._plan.start - 1 : self._plan.end]

    def _add_difference(self, before: list[bytes], after: list[bytes]) -> None:
        """Add the changes that make the rows of a key those that they are after a batch."""
        if before == after:
            return
        self._is_silent = False
        if self._with_numbers or self._is_top_1:
            self._renumber(before, after)
        else:
            for row in _without(before, after):
                self._add(DELETE, row, 1)
            for row in _without(after, before):
                self._add(INSERT, row, 1)
        self._is_silent = True

    def _renumber(self, before: list[bytes], after: list[bytes]) -> None:
        plan = self._plan
        both = min(len(before), len(after))
        same = list(map(eq, before, after))
        first = same.index(False) if False in same else both
        if plan.output_rank and plan.update_before and True not in same[first:]:
            number = plan.start + first
            self._changes.add_updates(before[first:both], after[first:both], number)
            first = both
        for at in range(first, both):
            if not same[at]:
                self._add(UPDATE_BEFORE, before[at], plan.start + at)
                self._add(UPDATE_AFTER, after[at], plan.start + at)
        for at in range(both, len(before)):
            self._add(DELETE, before[at], plan.start + at)
        for at in range(both, len(after)):
            self._add(INSERT, after[at], plan.start + at)

    def _first_of_each(
        self, chosen: Sequence[int], group_of_row: list[int], orders: list[bytes]
    ) -> tuple[list[int], set[int]]:
        """Of rows, those that may be among the first of their key, in order; who has several."""
        by_group: dict[int, list[int]] = {}
        for position in chosen:
            by_group.setdefault(group_of_row[position], []).append(position)
        end = self._plan.end
        found: list[int] = []
        many = set()
        for group, mine in by_group.items():
            if len(mine) > 1:
                mine.sort(key=orders.__getitem__)  # those of one order stay as they came
                many.add(group)
            found += mine[:end]
        return found, many

    # Few rows per key.

    def _process_few(
        self, groups: RowGroups, orders: list[bytes], columns: Sequence[pa.Array]
    ) -> None:
        """Inserts where a key keeps so few rows that they are one bucket."""
        end = self._plan.end
        step = self._top_1 if self._is_top_1 else self._append
        group_of_row = groups.group_of_row.tolist()
        chosen = self._candidates(groups, orders)
        many: set[int] = set()
        if self._plan.mini_batch:
            chosen, many = self._first_of_each(chosen, group_of_row, orders)
        if not len(chosen):
            return
        if self._plan.mini_batch or len(chosen) < len(orders):
            picked = pa.array(chosen)
            columns = [column.take(picked) for column in columns]
        rows = self._codec.pack(columns)
        needed = list(dict.fromkeys(map(group_of_row.__getitem__, chosen)))
        keys = [groups.keys[group] for group in needed]
        self._kept.fetch_all_distinct(keys)
        buckets = self._kept.whole(keys)
        rankings = {
            group: BucketRanking(bucket) for group, bucket in zip(needed, buckets, strict=True)
        }
        before = {group: self._shown(rankings[group]) for group in many}
        for position, row in zip(chosen, rows, strict=True):
            group = group_of_row[position]
            ranking = rankings[group]
            if ranking.takes(orders[position], end):
                self._is_silent = group in many  # what one row changes is the difference
                step(ranking, _Change(orders[position], row))
        for group, shown in before.items():
            self._add_difference(shown, self._shown(rankings[group]))
        self._keep_few(keys, list(rankings.values()))
        changes, self._changes = self._changes, RowChanges()
        changes.emit(self, self._codec)

    def _keep_few(self, keys: list[CacheKey], rankings: list[BucketRanking]) -> None:
        end = self._plan.end
        if len(self._last) > _MOST_LAST:
            self._last.clear()
        for key, ranking in zip(keys, rankings, strict=True):
            if len(ranking) >= end:
                self._last[key] = ranking.names[end - 1][:-8]
            if ranking.is_changed:
                self._kept.set_only_bucket(key, ranking.bucket())

    def _candidates(self, groups: RowGroups, orders: list[bytes]) -> Sequence[int]:
        """Rows that may be among the first; the others are after the last."""
        last = list(map(self._last.get, groups.keys))
        if not any(last):
            return range(len(orders))
        of_rows = map(last.__getitem__, groups.group_of_row.tolist())
        return [
            position
            for position, (order, behind) in enumerate(zip(orders, of_rows, strict=True))
            if behind is None or order < behind
        ]

    # State.

    def _row_keys(self, ranking: Ranking) -> dict[bytes, bytes]:
        """Names by the keys of rows."""
        kept = ranking.kept
        return {unpacked_list(kept.get(name) or b"")[0]: name for name in ranking.names}

    # One row after another.

    def _add(self, kind: int, row: bytes, number: int) -> None:
        """Add a change of the row of a number, if it is wanted."""
        plan = self._plan
        if self._is_silent or not plan.start <= number <= plan.end:
            return
        if kind == UPDATE_BEFORE and not plan.update_before:
            return
        self._changes.add(kind, row)
        if plan.output_rank:
            self._changes.numbers.append(number)

    def _top_1(self, ranking: Ranking, change: _Change) -> None:
        """Only the first row is wanted: it is replaced by one that is before it.

        A new version of the row itself is taken though it may stand where the old one stood.
        """
        sort_key, row, key, _, finder = change
        if finder is not None and key in finder:
            self._update(ranking, change)
            return
        if not ranking.takes(sort_key, 1):
            return
        if len(ranking):
            self._add(UPDATE_BEFORE, ranking.remove(0), 1)
            self._add(UPDATE_AFTER, row, 1)
        else:
            self._add(INSERT, row, 1)
        ranking.insert(sort_key, row, key)
        if finder is not None and key is not None:
            finder.clear()
            finder[key] = ranking.names[0]

    def _append(self, ranking: Ranking, change: _Change) -> None:
        sort_key, row, key, _, finder = change
        end = self._plan.end
        if not ranking.takes(sort_key, end):
            return
        at = ranking.insert(sort_key, row, key)
        if finder is not None and key is not None:
            finder[key] = ranking.names[at]
        if self._with_numbers:
            self._shift_down(ranking, at)
        if len(ranking) > end:
            name = ranking.names[-1]
            if finder is not None:
                finder.pop(unpacked_list(ranking.kept.get(name) or b"")[0])
            last = ranking.remove(end)
            if not self._with_numbers:
                self._add(DELETE, last, 1)
        if not self._with_numbers:
            self._add(INSERT, row, 1)

    def _shift_down(self, ranking: Ranking, at: int) -> None:
        """Number rows again from where a row came in."""
        if self._is_silent:
            return
        rows, plan = ranking.rows, self._plan
        end = plan.end
        stop = min(len(rows) - 1, end)
        if plan.start == 1 and plan.output_rank and stop > at:
            if plan.update_before:
                self._changes.add_updates(rows[at + 1 : stop + 1], rows[at:stop], at + 1)
            else:
                self._changes.add_afters(rows[at:stop], at + 1)
        else:
            for number in range(at + 1, stop + 1):
                self._add(UPDATE_BEFORE, rows[number], number)
                self._add(UPDATE_AFTER, rows[number - 1], number)
        if len(rows) <= end:
            self._add(INSERT, rows[-1], len(rows))

    def _update(self, ranking: Ranking, change: _Change) -> None:
        sort_key, row, key, _, finder = change
        if finder is None or key is None:
            message = "updates need the key of rows"
            raise RuntimeError(message)
        name = finder.get(key)
        if name is None:
            self._append(ranking, change)
            return
        old_at = bisect_left(ranking.names, name)
        old = ranking.rows[old_at]
        at = old_at
        if name[:-8] == sort_key:
            ranking.rows[old_at] = row
            ranking.kept.put(name, packed_list([key, row]))
        else:
            ranking.remove(old_at)
            at = ranking.insert(sort_key, row, key)
            finder[key] = ranking.names[at]
        if not self._with_numbers:
            self._add(UPDATE_BEFORE, old, 1)
            self._add(UPDATE_AFTER, row, 1)
        elif at <= old_at:
            self._moved_up(ranking, at, old_at, old)
        else:
            self._moved_down(ranking, at, old_at, old)

    def _moved_up(self, ranking: Ranking, at: int, old_at: int, old: bytes) -> None:
        """A row is before others now; it is taken from its old number first."""
        rows = ranking.rows
        for number in range(at + 1, old_at + 1):
            self._add(UPDATE_BEFORE, rows[number], number)
            if number == at + 1:
                self._add(UPDATE_BEFORE, old, old_at + 1)
            self._add(UPDATE_AFTER, rows[number - 1], number)
        if at == old_at:
            self._add(UPDATE_BEFORE, old, old_at + 1)
        self._add(UPDATE_AFTER, rows[old_at], old_at + 1)

    def _moved_down(self, ranking: Ranking, at: int, old_at: int, old: bytes) -> None:
        """A row fell back, which should not be: state ahead has expired."""
        rows = ranking.rows
        self._add(UPDATE_BEFORE, old, old_at + 1)
        for number in range(old_at + 2, at + 2):
            self._add(UPDATE_BEFORE, rows[number - 2], number)
            self._add(UPDATE_AFTER, rows[number - 2], number - 1)
        self._add(UPDATE_AFTER, rows[at], at + 1)

    def _insert_or_retract(self, ranking: Ranking, change: _Change) -> None:
        sort_key, row, _, retracts, _ = change
        if retracts:
            at = ranking.find(sort_key, row)
            if at >= 0:
                self._retract(ranking, at)
            return
        end = self._plan.end
        at = ranking.insert(sort_key, row)
        if self._with_numbers:
            self._shift_down(ranking, at)
        elif at < end:
            if len(ranking) > end:
                self._add(DELETE, ranking.rows[end], 1)
            self._add(INSERT, row, 1)

    def _retract(self, ranking: Ranking, at: int) -> None:
        end = self._plan.end
        previous = ranking.remove(at)
        rows = ranking.rows
        if at >= end:
            return
        if not self._with_numbers:
            self._add(DELETE, previous, 1)
            if len(rows) >= end:
                self._add(INSERT, rows[end - 1], 1)
            return
        for number in range(at + 1, min(len(rows), end) + 1):
            self._add(UPDATE_BEFORE, previous, number)
            self._add(UPDATE_AFTER, rows[number - 1], number)
            previous = rows[number - 1]
        if len(rows) < end:
            self._add(DELETE, previous, len(rows) + 1)


def _without(rows: list[bytes], others: list[bytes]) -> list[bytes]:
    """Rows as often as they are not among the others."""
    known = set(others)
    if len(known) == len(others) and len(set(rows)) == len(rows):
        return [row for row in rows if row not in known]
    return list((Counter(rows) - Counter(others)).elements())


@dataclass(frozen=True)
class WindowRankFactory:
    """The rows numbered START to END of each key and window, given when that is over.

    The input has its windows already.  Gives its columns, then the number if ``output_rank``.
    """

    input_type: RowType
    keys: tuple[int, ...]
    order: tuple[SortColumn, ...]
    start: int
    end: int
    output_rank: bool
    #: The column of window_end.
    window_end: int
    #: Whose clock windows go by; None where their time attribute is a TIMESTAMP.
    time_zone: str | None = None
    keyed: ClassVar[bool] = True
    waits_for_watermarks: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {
            "columns": columns_text(self.input_type),
            "order": order_text(self.order),
        }
        layout = "packed rows by key and window, then order"
        return [StateSection("ranking of windows", layout, details=details)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return WindowRankOperator(self)


class WindowRankOperator(RowsOfWindowsOperator):
    """Keeps the first rows of every key and window."""

    def __init__(self, plan: WindowRankFactory) -> None:
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
