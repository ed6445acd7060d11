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
from itertools import islice, repeat
from operator import eq, le
from typing import TYPE_CHECKING, ClassVar, Final

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

    __slots__ = ("by_key", "kept", "names", "next_number", "rows")

    def __init__(self, kept: PackedMap, *, is_keyed: bool) -> None:
        self.kept = kept
        #: Of rows that have keys, their names.
        self.by_key: dict[bytes, bytes] = {}
        entries = sorted(entry for entry in kept.items() if entry[0])
        self.names = [name for name, _ in entries]
        self.rows = [value for _, value in entries]
        if is_keyed:
            pairs = list(map(unpacked_list, self.rows))
            self.by_key = {key: name for (key, _), name in zip(pairs, self.names, strict=True)}
            self.rows = [row for _, row in pairs]
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
        if row_key is None:
            self.kept.put(name, row)
        else:
            self.kept.put(name, packed_list([row_key, row]))
            self.by_key[row_key] = name
        return at

    def remove(self, at: int) -> bytes:
        """Remove the row at a position, and return it."""
        stored = self.kept.remove(self.names.pop(at))
        if self.by_key and stored is not None:
            del self.by_key[unpacked_list(stored)[0]]
        return self.rows.pop(at)

    def move(self, at: int, sort_key: bytes, row: bytes, row_key: bytes) -> int:
        """Put another row of the same key in for one; returns its position."""
        self.kept.remove(self.names.pop(at))
        del self.rows[at]
        return self.insert(sort_key, row, row_key)

    def replace(self, at: int, row: bytes, row_key: bytes) -> None:
        """Put another row of the same key and order where one is."""
        self.rows[at] = row
        self.kept.put(self.names[at], packed_list([row_key, row]))

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
        is_top_1 = plan.end == 1 and plan.strategy is not RankStrategy.RETRACT
        #: Whether each number is a row that is updated; else rows are inserted and deleted.
        self._updates_numbers = self._with_numbers or is_top_1
        self._is_keyed = plan.strategy is RankStrategy.UPDATE_FAST
        self._is_small = (
            plan.strategy is RankStrategy.APPEND and plan.end <= _FEW and not plan.state_ttl
        )
        schema = plan.input_type.to_arrow_schema()
        self._key_codec = RowCodec(pa.schema([schema.field(index) for index in plan.row_key]))
        self._changes = RowChanges()
        #: Of mini-batches only what is different in the end is given.
        self._is_silent = False
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
        group_of_row = groups.group_of_row.tolist()
        chosen = self._candidates(groups.keys, group_of_row, orders)
        #: The groups of which only the difference is given.
        many: Iterable[int] = range(len(groups)) if plan.mini_batch else ()
        if plan.mini_batch and self._is_small:
            chosen, many = self._first_of_each(chosen, group_of_row, orders)
        if not len(chosen):
            return
        if type(chosen) is list:
            picked = pa.array(chosen)
            columns = [column.take(picked) for column in columns]
        rows = self._codec.pack(columns)
        row_keys: Iterable[bytes | None] = repeat(None, len(rows))
        if self._is_keyed:
            row_keys = self._key_codec.pack([columns[index] for index in plan.row_key])
        needed = list(dict.fromkeys(map(group_of_row.__getitem__, chosen)))
        keys = [groups.keys[group] for group in needed]
        rankings = dict(zip(needed, self._rankings(keys), strict=True))
        before = {group: self._shown(rankings[group]) for group in many}
        retracts = (kinds & 1).tolist()
        add = self._update if self._is_keyed else self._insert
        for position, row, row_key in zip(chosen, rows, row_keys, strict=True):
            group = group_of_row[position]
            self._is_silent = group in before
            step = self._retract if retracts[position] else add
            step(rankings[group], orders[position], row, row_key)
        for group, shown in before.items():
            self._add_difference(shown, self._shown(rankings[group]))
        self._keep(keys, list(rankings.values()))
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
        if self._updates_numbers:
            self._renumber(before, after, self._plan.start, list(map(eq, before, after)))
        else:
            for row in _without(before, after):
                self._add(DELETE, row, 1)
            for row in _without(after, before):
                self._add(INSERT, row, 1)

    def _renumber(
        self, before: list[bytes], after: list[bytes], number: int, same: Sequence[bool] = ()
    ) -> None:
        """Add the changes of rows numbered from ``number`` on, but of those that are the same."""
        plan, both = self._plan, min(len(before), len(after))
        at = same.index(False) if False in same else len(same)
        if plan.output_rank and number + at >= plan.start and not any(same[at:]):
            add = self._changes.add_updates if plan.update_before else self._changes.add_afters
            add(before[at:both], after[at:both], number + at)
            at = both
        for each in range(at, both):
            if not (same and same[each]):
                self._add(UPDATE_BEFORE, before[each], number + each)
                self._add(UPDATE_AFTER, after[each], number + each)
        for each in range(both, len(before)):
            self._add(DELETE, before[each], number + each)
        for each in range(both, len(after)):
            self._add(INSERT, after[each], number + each)

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

    def _candidates(
        self, keys: list[CacheKey], group_of_row: list[int], orders: list[bytes]
    ) -> Sequence[int]:
        """Rows that may be among the first; the others are after the last."""
        last = list(map(self._last.get, keys))
        if not any(last):
            return range(len(orders))
        of_rows = map(last.__getitem__, group_of_row)
        return [
            position
            for position, (order, behind) in enumerate(zip(orders, of_rows, strict=True))
            if behind is None or order < behind
        ]

    # State.

    def _rankings(self, keys: list[CacheKey]) -> list[Ranking]:
        kept, ttl, now = self._kept, self._plan.state_ttl, self.expiry_time
        kept.fetch_all_distinct(keys)
        if self._is_small:
            return [BucketRanking(bucket) for bucket in kept.whole(keys)]
        is_keyed = self._is_keyed
        return [live_ranking(kept.map_of(key), ttl, now, is_keyed=is_keyed) for key in keys]

    def _keep(self, keys: list[CacheKey], rankings: list[Ranking]) -> None:
        if self._plan.state_ttl:
            keep_alive(rankings, self.expiry_time)
        if not self._is_small:
            self._kept.changed(keys)
            return
        end = self._plan.end
        if len(self._last) > _MOST_LAST:
            self._last.clear()
        for key, ranking in zip(keys, rankings, strict=True):
            assert isinstance(ranking, BucketRanking)  # noqa: S101 - as ``_rankings`` made it
            if len(ranking) >= end:
                self._last[key] = ranking.names[end - 1][:-8]
            if ranking.is_changed:
                self._kept.set_only_bucket(key, ranking.bucket())

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

    def _insert(self, ranking: Ranking, order: bytes, row: bytes, key: bytes | None) -> None:
        """Put a row in, and if only the first rows are kept, the last one out."""
        end, rows = self._plan.end, ranking.rows
        keeps_all = self._plan.strategy is RankStrategy.RETRACT
        if not keeps_all and not ranking.takes(order, end):
            return
        at = ranking.insert(order, row, key)
        if at < end and not self._is_silent:
            if self._updates_numbers:
                self._renumber(rows[at + 1 : end + 1], rows[at:end], at + 1)
            else:
                if len(rows) > end:
                    self._add(DELETE, rows[end], 1)
                self._add(INSERT, row, 1)
        if not keeps_all and len(rows) > end:
            ranking.remove(end)

    def _retract(self, ranking: Ranking, order: bytes, row: bytes, key: bytes | None) -> None:
        """Take a row out; none: its state has expired."""
        del key
        end, rows = self._plan.end, ranking.rows
        at = ranking.find(order, row)
        if at < 0:
            return
        lost = ranking.remove(at)
        if at >= end or self._is_silent:
            return
        if self._updates_numbers:
            self._renumber([lost, *rows[at : end - 1]], rows[at:end], at + 1)
        else:
            self._add(DELETE, lost, 1)
            if len(rows) >= end:
                self._add(INSERT, rows[end - 1], 1)

    def _update(self, ranking: Ranking, order: bytes, row: bytes, key: bytes | None) -> None:
        name = None if key is None else ranking.by_key.get(key)
        if key is None or name is None:
            self._insert(ranking, order, row, key)
            return
        old_at = bisect_left(ranking.names, name)
        old = ranking.rows[old_at]
        at = old_at
        if name[:-8] == order:
            ranking.replace(old_at, row, key)
        else:
            at = ranking.move(old_at, order, row, key)
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
