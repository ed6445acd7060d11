"""Window joins: pairs of rows of equal key and window, given once the window is over.

What it is: Flink's WindowJoin over rows that have their windows already: inner, outer, semi and
anti joins that give inserts alone, and keep nothing of windows that are over.

What it is not: for updating input; nor by processing time, as in Flink.

State: per key and end of window, for each side a map from the packed row to how often it is there
(4 bytes, little-endian).

Read next: ``runtime/operators/table/join_pairs.py``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.expressions.context import EvaluationContext
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.operators.table.join_pairs import JoinPairs
from millstream.runtime.operators.table.plans import joined_section
from millstream.runtime.operators.table.rows_of_windows import RowsOfWindowsOperator
from millstream.runtime.operators.table.specs import JoinKind, JoinSide
from millstream.state.packed_state import PackedMaps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        Operator,
        OperatorContext,
        Output,
        StateSection,
    )
    from millstream.expressions.nodes import Expression
    from millstream.runtime.operators.table.rows_of_windows import Slot
    from millstream.types.logical_types import RowType

__all__ = ["WindowJoinFactory", "WindowJoinOperator"]

_COUNT: Final = struct.Struct("<i")
#: Sides whose rows come though they meet nobody.
_OUTER: Final = {
    JoinKind.LEFT: (True, False),
    JoinKind.RIGHT: (False, True),
    JoinKind.FULL: (True, True),
    JoinKind.ANTI: (True, False),
}


@dataclass(frozen=True)
class WindowJoinFactory:
    """Makes window joins.  They give the left columns, then the right; SEMI and ANTI the left."""

    left_type: RowType
    right_type: RowType
    kind: JoinKind
    #: The keys beside the windows.
    left: JoinSide
    right: JoinSide
    #: For each pair of keys whether NULL equals nothing.
    filter_nulls: tuple[bool, ...]
    #: The columns of window_end.
    ends: tuple[int, int]
    condition: Expression | None = None
    evaluation: EvaluationContext = field(default_factory=EvaluationContext)
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
        """Take sides and windows."""
        super().__init__(plan.state_sections()[0], plan.time_zone)
        self._plan = plan
        self._pairs = JoinPairs(plan)
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
        met = [np.zeros(int(each.sum()), dtype=np.bool_) for each in sizes]
        gives_pairs = self._plan.kind not in (JoinKind.SEMI, JoinKind.ANTI)
        for first, second in self._pairs.candidates(sizes[1], slot_of_row):
            wanted = may_match[first]
            one, two = first[wanted], second[wanted]
            holds = self._pairs.holds(columns[0], columns[1], one, two, 0, self.processing_time)
            one, two = one[holds], two[holds]
            met[0][one] = met[1][two] = True
            if gives_pairs:
                for _, made in self._pairs.joined(columns[0], columns[1], one, two, 0):
                    self.emit_columns(made)
        self._give_alone(columns, met)

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
        """Which rows of the left equal anything: NULL does not, where it equals nothing."""
        found = np.ones(count, dtype=np.bool_)
        for index, filters in zip(self._plan.left.keys, self._plan.filter_nulls, strict=True):
            if filters and columns[index].null_count:
                found &= columns[index].is_valid().to_numpy(zero_copy_only=False)
        return found

    def _give_alone(self, columns: list[list[pa.Array]], met: list[NDArray[np.bool_]]) -> None:
        """Give rows that are given without another."""
        kind = self._plan.kind
        if kind is JoinKind.SEMI:
            self._emit_left(columns[0], np.flatnonzero(met[0]))
            return
        for side in (0, 1):
            alone = np.flatnonzero(~met[side])
            if not self._is_outer[side] or not len(alone):
                continue
            if kind is JoinKind.ANTI:
                self._emit_left(columns[0], alone)
                continue
            picked = [column.take(pa.array(alone)) for column in columns[side]]
            self.emit_columns(self._pairs.padded(picked, side))

    def _emit_left(self, columns: list[pa.Array], rows: NDArray[np.int64]) -> None:
        if len(rows):
            self.emit_columns([column.take(pa.array(rows)) for column in columns])
