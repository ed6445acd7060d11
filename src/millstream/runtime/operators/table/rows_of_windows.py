"""Rows that have their windows already, kept by key and window until the window is over.

What it is: the common part of window joins and of Top-N of windows: late rows, the slot that each
row belongs to, the timers, and which slots the watermark fires.

What it is not: what lies in a slot, nor what it gives (``window_join.py``, ``window_rank.py``, to
be read next); nor rows that are put into windows (``windowed.py``).
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.runtime.columnar.array_utils import milliseconds_of
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.columnar.table_windows import LocalClock
from millstream.runtime.operators.table.base import LateRowsOperator
from millstream.state.key_codec import cache_key, uncache_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import StateSection
    from millstream.state.key_codec import CacheKey

__all__ = ["RowsInSlots", "RowsOfWindowsOperator", "Slot"]

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
        """Give what windows that are over have, and forget it; there is room for the slots."""

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
        """Give the windows that are over."""
        self._watermark = watermark
        fired = self.keyed_state.timers.advance_event_time(watermark)
        slots = [(cache_key(key), name) for _, key, name in fired]
        if slots:
            self.keyed_state.make_room(len(slots))
            self.give(slots)
        super().process_watermark(watermark)
