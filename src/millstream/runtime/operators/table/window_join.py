"""Window joins: pairs of rows of equal key and window, emitted when the window is over.

Flink's WindowJoin over rows that already have their windows: inner, outer, semi and anti joins that
emit inserts only, and keep nothing of windows that are over.

State: per key and end of window, for each side a map from the packed row to its count (4 bytes,
little-endian).
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.array_utils import milliseconds_of
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.columnar.table_windows import LocalClock
from millstream.runtime.operators.table.base import LateRowsOperator
from millstream.runtime.operators.table.join import JoinPairs, JoinParameters
from millstream.runtime.operators.table.specs import JoinKind, joined_section
from millstream.state.key_codec import cache_key, uncache_key
from millstream.state.packed_state import PackedMaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, OperatorContext, Output, StateSection
    from millstream.state.key_codec import CacheKey


_END: Final = struct.Struct(">Q")
_BIAS: Final = 2**63

#: A key, and the end of a window as a name that sorts as the ends do.
Slot = tuple["CacheKey", bytes]


@dataclass(frozen=True, slots=True)
class RowsInSlots:
    """Rows on time, and where they belong."""

    arrow: pa.RecordBatch
    slots: list[Slot]
    #: For each row the position of its slot.
    slot_of_row: list[int]


class RowsOfWindowsOperator(LateRowsOperator):
    """Keeps rows until their window is over.

    Args:
        section: what is recorded of what it keeps.
        time_zone: whose clock windows go by; None where their time attribute is a TIMESTAMP.
    """

    def __init__(self, section: StateSection, time_zone: str | None) -> None:
        super().__init__(section)
        self._clock = None if time_zone is None else LocalClock(time_zone)

    @abstractmethod
    def give(self, slots: list[Slot]) -> None:
        """Emit the content of windows that are over and forget it; there is room for the slots."""

    def in_slots(self, batch: Batch, window_end: int, keys: Sequence[int]) -> RowsInSlots | None:
        """Leave out late rows, make room for the slots of the others, and register their timers.

        Args:
            batch: rows.
            window_end: the column that says when the window of a row ends.
            keys: the columns of the key.

        Returns:
            None: all rows are late.

        Raises:
            TypeMismatchError: there are updates or deletions.
        """
        self.refuse_updates(batch, "what is done by window")
        ends = milliseconds_of(batch.arrow.column(window_end), self.label)
        fires = ends - 1 if self._clock is None else self._clock.absolute(ends - 1)
        on_time = fires > self._watermark
        arrow = self.without_late(batch.arrow, on_time)
        if not arrow.num_rows:
            return None
        ends, fires = ends[on_time], fires[on_time]
        columns = [arrow.column(index) for index in keys]
        by_key = group_rows(columns, len(ends))
        groups = group_rows([*columns, pa.array(ends)], len(ends))
        self.keyed_state.make_room(len(groups))
        firsts = groups.first_rows
        found = [by_key.keys[group] for group in by_key.group_of_row[firsts].tolist()]
        names = [_END.pack(end + _BIAS) for end in ends[firsts].tolist()]
        register = self.keyed_state.timers.register_event_time
        for key, name, time in zip(found, names, fires[firsts].tolist(), strict=True):
            register(uncache_key(key), name, time)
        slots = list(zip(found, names, strict=True))
        return RowsInSlots(arrow, slots, groups.group_of_row.tolist())

    def process_watermark(self, watermark: int) -> None:
        """Emit the windows that are over."""
        self._watermark = watermark
        fired = self.keyed_state.timers.advance_event_time(watermark)
        slots = [(cache_key(key), name) for _, key, name in fired]
        if slots:
            self.keyed_state.make_room(len(slots))
            self.give(slots)
        super().process_watermark(watermark)


_COUNT: Final = struct.Struct("<i")
#: Sides whose rows come though they has no match.
_OUTER: Final = {
    JoinKind.LEFT: (True, False),
    JoinKind.RIGHT: (False, True),
    JoinKind.FULL: (True, True),
    JoinKind.ANTI: (True, False),
}


@dataclass(frozen=True)
class WindowJoinFactory(JoinParameters):
    """Factory of window joins.  They emit left, then right columns; SEMI and ANTI left ones."""

    #: The columns of window_end.
    ends: tuple[int, int]
    #: Whose clock windows go by; None where their time attribute is a TIMESTAMP.
    time_zone: str | None = None
    keyed: ClassVar[bool] = True
    waits_for_watermarks: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        layout = "packed rows by key and window"
        return [joined_section("joined windows", self.left_type, self.right_type, layout=layout)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return WindowJoinOperator(self)


class WindowJoinOperator(RowsOfWindowsOperator):
    """Keeps the rows of both sides until their window is over."""

    def __init__(self, plan: WindowJoinFactory) -> None:
        super().__init__(plan.state_sections()[0], plan.time_zone)
        self._plan = plan
        self._pairs = JoinPairs(plan, self)
        schemas = (plan.left_type.to_arrow_schema(), plan.right_type.to_arrow_schema())
        self._codecs = tuple(map(RowCodec, schemas))
        self._sides = (plan.left, plan.right)
        self._is_outer = _OUTER.get(plan.kind, (False, False))

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = tuple(
            PackedMaps(self.keyed_state, f"\0{name} rows") for name in ("left", "right")
        )

    # Rows.

    def process_rows_of(self, batch: Batch, input_index: int) -> None:
        own = self._sides[input_index].keys
        found = self.in_slots(batch, self._plan.ends[input_index], own)
        if found is None:
            return
        slot_of_row = [found.slots[slot] for slot in found.slot_of_row]
        rows = self._codecs[input_index].pack(found.arrow.columns)
        kept = self._kept[input_index]
        kept.fetch_entries(zip(slot_of_row, rows, strict=True))
        for slot, row in zip(slot_of_row, rows, strict=True):
            entries = kept.map_of(slot)
            before = entries.get(row)
            count = 0 if before is None else int(_COUNT.unpack(before)[0])
            entries.put(row, _COUNT.pack(count + 1))
        kept.changed(found.slots)

    # Windows.

    def give(self, slots: list[Slot]) -> None:
        left, right = (self._taken(slots, side) for side in (0, 1))
        sizes = [np.array([len(each) for each in rows], dtype=np.int64) for rows in (left, right)]
        columns = [
            codec.unpack(list(chain.from_iterable(rows)))
            for codec, rows in zip(self._codecs, (left, right), strict=True)
        ]
        slot_of_row = np.repeat(np.arange(len(slots)), sizes[0])
        may_match = self._may_match(columns[0], int(sizes[0].sum()))
        matched = [np.zeros(int(each.sum()), dtype=np.bool_) for each in sizes]
        gives_pairs = self._plan.kind not in (JoinKind.SEMI, JoinKind.ANTI)
        for first, second in self._pairs.candidates(sizes[1], slot_of_row):
            wanted = may_match[first]
            one, two = first[wanted], second[wanted]
            holds = self._pairs.holds(columns[0], columns[1], one, two, 0, self.processing_time)
            one, two = one[holds], two[holds]
            matched[0][one] = matched[1][two] = True
            if gives_pairs:
                for _, made in self._pairs.joined(columns[0], columns[1], one, two, 0):
                    self.emit_columns(made)
        self._emit_unmatched(columns, matched)

    def _taken(self, slots: list[Slot], side: int) -> list[list[bytes]]:
        """The rows of windows, which are forgotten."""
        kept = self._kept[side]
        kept.fetch_all(slots)
        found = []
        for slot in slots:
            rows = kept.map_of(slot)
            found.append([row for row, count in rows.items() for _ in range(*_COUNT.unpack(count))])
            rows.clear()
        kept.changed(slots)
        return found

    def _may_match(self, columns: list[pa.Array], count: int) -> NDArray[np.bool_]:
        """Return which rows of the left equal anything: NULL does not, where it equals nothing."""
        found = np.ones(count, dtype=np.bool_)
        for index, filters in zip(self._plan.left.keys, self._plan.filter_nulls, strict=True):
            if filters and columns[index].null_count:
                found &= columns[index].is_valid().to_numpy(zero_copy_only=False)
        return found

    def _emit_unmatched(
        self, columns: list[list[pa.Array]], matched: list[NDArray[np.bool_]]
    ) -> None:
        """Emit rows that need no match."""
        kind = self._plan.kind
        if kind is JoinKind.SEMI:
            self._emit_left(columns[0], np.flatnonzero(matched[0]))
            return
        for side in (0, 1):
            unmatched = np.flatnonzero(~matched[side])
            if not self._is_outer[side] or not len(unmatched):
                continue
            if kind is JoinKind.ANTI:
                self._emit_left(columns[0], unmatched)
                continue
            picked = [column.take(pa.array(unmatched)) for column in columns[side]]
            self.emit_columns(self._pairs.padded(picked, side))

    def _emit_left(self, columns: list[pa.Array], rows: NDArray[np.int64]) -> None:
        if len(rows):
            self.emit_columns([column.take(pa.array(rows)) for column in columns])
