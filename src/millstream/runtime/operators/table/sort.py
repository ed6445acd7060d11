"""ORDER BY a time attribute of streams, and the sorted result of bounded queries."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.contracts.operator import StateSection
from millstream.runtime.columnar.array_utils import milliseconds_of
from millstream.runtime.columnar.row_codec import RowCodec, sort_keys
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.base import (
    KeyedTableOperator,
    LateRowsOperator,
    TableOperator,
    weights_of,
)
from millstream.runtime.operators.table.row_buffers import packed_list, unpacked_list
from millstream.runtime.operators.table.specs import ordered_section
from millstream.state.key_codec import cache_key, encode_key
from millstream.state.packed_state import PackedMaps, PackedValues

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, OperatorContext, Output
    from millstream.runtime.operators.table.specs import SortColumn
    from millstream.state.key_codec import CacheKey
    from millstream.types.logical_types import RowType


_NAME: Final = struct.Struct(">Q")
_BIAS: Final = 2**63
_LAST: Final = struct.Struct("<q")
#: Rows per batch that is given.
_BATCH: Final = 16_384


@dataclass(frozen=True)
class TemporalSortFactory:
    """Factory of operators that sort rows by time.  Columns stay.

    Args:
        input_type: the rows, which are only added.
        order: the time attribute, ascending, and columns for rows of one time.
    """

    input_type: RowType
    order: tuple[SortColumn, ...]
    keyed: ClassVar[bool] = True
    waits_for_watermarks: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        columns = ", ".join(
            f"{each.name} {each.type.as_summary_string()}" for each in self.input_type.fields
        )
        return [StateSection("rows", "packed rows by time", details={"columns": columns})]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return TemporalSortOperator(self)


@dataclass(frozen=True)
class ProctimeSortFactory:
    """Factory of operators that sort rows by processing time.  Columns stay.

    Args:
        order: columns for rows of one time.
    """

    order: tuple[SortColumn, ...]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return ProctimeSortOperator(self)


class ProctimeSortOperator(TableOperator):
    """Sorts each batch by the columns beside the time."""

    def __init__(self, plan: ProctimeSortFactory) -> None:
        super().__init__()
        self._order = plan.order

    def process_rows(self, batch: Batch) -> None:
        self.refuse_updates(batch, "ORDER BY a time")
        columns = batch.arrow.columns
        if self._order:
            orders = sort_keys(columns, self._order)
            rows = pa.array(sorted(range(len(orders)), key=orders.__getitem__), pa.int64())
            columns = [column.take(rows) for column in columns]
        self.emit_columns(columns)


class TemporalSortOperator(LateRowsOperator):
    """Keeps the rows that the watermark has not passed."""

    def __init__(self, plan: TemporalSortFactory) -> None:
        super().__init__(plan.state_sections()[0])
        self._plan = plan
        self._codec = RowCodec(plan.input_type.to_arrow_schema())
        self._key = encode_key(())

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._rows = PackedValues(self.keyed_state, "\0rows")
        self._last = PackedValues(self.keyed_state, "\0last")

    def process_rows(self, batch: Batch) -> None:
        self.refuse_updates(batch, "ORDER BY a time")
        times = milliseconds_of(batch.arrow.column(self._plan.order[0].index), self.label)
        on_time = times > self._watermark
        if not on_time.all():
            on_time = times > self._last_given()
        arrow = self.without_late(batch.arrow, on_time)
        if arrow.num_rows:
            self._keep(arrow, times[on_time])

    def _last_given(self) -> int:
        self.keyed_state.make_room(1)
        (stored,) = self._last.get_all([self._key])
        return MIN_TIMESTAMP if stored is None else int(_LAST.unpack(stored)[0])

    def _keep(self, arrow: pa.RecordBatch, times: NDArray[np.int64]) -> None:
        groups = group_rows([pa.array(times)], len(times))
        self.keyed_state.make_room(len(groups))
        firsts = times[groups.first_rows].tolist()
        slots = [(self._key, _NAME.pack(time + _BIAS)) for time in firsts]
        rows = self._codec.pack(arrow.columns)
        made: list[bytes | None] = []
        for number, stored in enumerate(self._rows.get_all(slots)):
            mine = groups.rows(number).tolist()
            before = [] if stored is None else unpacked_list(stored)
            made.append(packed_list([*before, *(rows[row] for row in mine)]))
        self._rows.put_all(slots, made)
        for time, (_, name) in zip(firsts, slots, strict=True):
            self.keyed_state.timers.register_event_time((), name, time)

    def process_watermark(self, watermark: int) -> None:
        """Emit the rows that the watermark has passed."""
        self._watermark = watermark
        fired = list(self.keyed_state.timers.advance_event_time(watermark))
        if fired:
            self._give([(cache_key(key), name) for _, key, name in fired])
            self._last.put_all([self._key], [_LAST.pack(max(time for time, _, _ in fired))])
        super().process_watermark(watermark)

    def _give(self, slots: list[tuple[CacheKey, bytes]]) -> None:
        """Emit the rows of these times, which are in order."""
        self.keyed_state.make_room(len(slots))
        lists = [unpacked_list(stored) for stored in self._rows.get_all(slots) if stored]
        self._rows.put_all(slots, [None] * len(slots))
        columns = self._codec.unpack(list(chain.from_iterable(lists)))
        if not len(columns[0]):
            return
        orders = sort_keys(columns, self._plan.order)
        order = pa.array(sorted(range(len(orders)), key=orders.__getitem__), pa.int64())
        for start in range(0, len(order), _BATCH):
            rows = order.slice(start, _BATCH)
            self.emit_columns([column.take(rows) for column in columns])


_COUNT: Final = struct.Struct(">qI")
#: Rows per batch at the end.
_FINAL_ROWS_BATCH: Final = 16_384


@dataclass(frozen=True)
class FinalRowsFactory:
    """Factory of operators that emit the rows that are there at the end.  Columns stay.

    Args:
        input_type: the rows.
        order: by what they are sorted; none: they come in any order.
        offset: how many of the first are left out.
    """

    input_type: RowType
    order: tuple[SortColumn, ...] = ()
    offset: int = 0
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        description = "counts by packed order and row"
        return [ordered_section("final rows", description, self.input_type, self.order)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return FinalRowsOperator(self)


class FinalRowsOperator(KeyedTableOperator):
    """Adds changes up until the input is over."""

    def __init__(self, plan: FinalRowsFactory) -> None:
        super().__init__(plan.state_sections()[0])
        self._plan = plan
        self._codec = RowCodec(plan.input_type.to_arrow_schema())

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = PackedMaps(self.keyed_state, "\0rows")

    def process_rows(self, batch: Batch) -> None:
        (key,) = self.group(batch, ()).keys
        columns = batch.arrow.columns
        rows, order = self._codec.pack(columns), self._plan.order
        orders = sort_keys(columns, order) if order else [b""] * len(rows)
        names = [begin + row for begin, row in zip(orders, rows, strict=True)]
        self._kept.fetch_entries((key, name) for name in names)
        counts = self._kept.map_of(key)
        weights = weights_of(batch).tolist()
        for begin, name, weight in zip(orders, names, weights, strict=True):
            before = counts.get(name)
            # Below zero if a row is retracted before it comes, from another task.
            count = weight if before is None else _COUNT.unpack(before)[0] + weight
            if count:
                counts.put(name, _COUNT.pack(count, len(begin)))
            else:
                counts.remove(name)
        self._kept.changed([key])

    def process_watermark(self, watermark: int) -> None:
        """Hold it back: no row has gone out yet, and all would be late after it."""
        del watermark

    def end_input(self) -> None:
        """Emit the rows that are left, and after them the time of the end."""
        super().end_input()
        key = encode_key(())
        self._kept.fetch_all([key])
        counts = self._kept.map_of(key)
        rows = islice(self._rows(sorted(counts.items())), self._plan.offset, None)
        while chunk := list(islice(rows, _FINAL_ROWS_BATCH)):
            self.emit_columns(self._codec.unpack(chunk))
        if len(counts):  # after a restore nothing comes again
            counts.clear()
            self._kept.changed([key])
        self.output.emit_watermark(MAX_TIMESTAMP)

    @staticmethod
    def _rows(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
        for name, value in entries:
            count, begin = _COUNT.unpack(value)
            yield from repeat(name[begin:], max(count, 0))
