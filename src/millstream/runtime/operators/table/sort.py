"""ORDER BY a time attribute of streams, and the sorted result of bounded queries."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import chain, groupby, islice, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import pyarrow as pa

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.contracts.operator import StateSection
from millstream.runtime.columnar.array_utils import MOST_BYTES, milliseconds_of
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
from millstream.state.packed_state import PackedValues

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
#: The number of the next row to arrive stands under this name.
_NEXT: Final = b""


class KeptRow(NamedTuple):
    """A row that is there at the end of the input."""

    sort_key: bytes
    #: As ``RowCodec`` packs it.
    packed: bytes
    #: How often the row is there, at least once.
    times: int


class RowsUntilEndOperator(KeyedTableOperator):
    """Keeps the rows of each key, but those that are retracted, until the input is over.

    The store is what sorts them: an entry is found under its key, sort key and row, so all entries
    are read in order at the end, however many there are, and few are in memory at any time.

    State, per key, sort key and row: how often the row is there (8 bytes, signed) and the length of
    the sort key (4); if rows of one order stay as they came, also the number of its first arrival
    (8), and under the empty name the next such number.  All are big-endian.
    """

    def __init__(
        self,
        section: StateSection,
        row_type: RowType,
        order: Sequence[SortColumn],
        *,
        by_arrival: bool,
    ) -> None:
        super().__init__(section)
        self._codec = RowCodec(row_type.to_arrow_schema())
        self._order = order
        self._by_arrival = by_arrival

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = PackedValues(self.keyed_state, "\0ordered")

    def process_watermark(self, watermark: int) -> None:
        """Hold it back: no row has gone out yet, and all would be late after it."""
        del watermark

    def add_rows(self, batch: Batch, indexes: Sequence[int]) -> None:
        """Add changes up by key, which is in the columns ``indexes``."""
        groups = self.group(batch, indexes)
        columns, keys = batch.arrow.columns, groups.keys
        rows = self._codec.pack(columns)
        self.keyed_state.make_room(len(rows))
        begins = sort_keys(columns, self._order) if self._order else [b""] * len(rows)
        of_row = groups.group_of_row.tolist()
        slots = [
            (keys[group], begin + row)
            for group, begin, row in zip(of_row, begins, rows, strict=True)
        ]
        counters = [(key, _NEXT) for key in keys] if self._by_arrival else []
        touched = list(dict.fromkeys(chain(slots, counters)))
        kept = dict(zip(touched, self._kept.get_all(touched), strict=True))
        numbers = [int.from_bytes(kept[counter] or b"", "big") for counter in counters]
        weights = weights_of(batch).tolist()
        for slot, group, begin, weight in zip(slots, of_row, begins, weights, strict=True):
            stored = kept[slot]
            if stored is not None:
                count, number = _COUNT.unpack_from(stored)[0], stored[_COUNT.size :]
            elif self._by_arrival:
                count, number = 0, _NAME.pack(numbers[group])
                numbers[group] += 1
            else:
                count, number = 0, b""
            # Below zero if a row is retracted before it comes, from another task.
            left = count + weight
            kept[slot] = _COUNT.pack(left, len(begin)) + number if left else None
        kept.update(zip(counters, map(_NAME.pack, numbers), strict=True))
        self._kept.put_all(touched, kept.values())

    def take_rows(self) -> Iterator[Iterator[KeptRow]]:
        """Yield the rows of one key after the other, in order; each key's before the next key's.

        They are forgotten afterwards: after a restore nothing comes again.
        """
        entries = self.keyed_state.entries_of(self._kept)
        for _, of_key in groupby(entries, key=itemgetter(0)):
            yield self._in_order((name, stored) for _, name, stored in of_key)
        self.keyed_state.clear_entries(self._kept)

    def _in_order(self, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[KeptRow]:
        unpacked = (
            (name, *_COUNT.unpack_from(stored), stored[_COUNT.size :])
            for name, stored in entries
            if name or not self._by_arrival
        )
        if not self._by_arrival:
            for name, count, length, _ in unpacked:
                if count > 0:
                    yield KeptRow(name[:length], name[length:], count)
            return
        for begin, peers in groupby(unpacked, key=lambda entry: entry[0][: entry[2]]):
            for name, count, length, _ in sorted(peers, key=itemgetter(3)):
                if count > 0:
                    yield KeptRow(begin, name[length:], count)


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
        description = "an entry per order and packed row"
        return [ordered_section("final rows", description, self.input_type, self.order)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return FinalRowsOperator(self)


class FinalRowsOperator(RowsUntilEndOperator):
    """Adds changes up until the input is over."""

    def __init__(self, plan: FinalRowsFactory) -> None:
        super().__init__(plan.state_sections()[0], plan.input_type, plan.order, by_arrival=False)
        self._offset = plan.offset

    def process_rows(self, batch: Batch) -> None:
        self.add_rows(batch, ())

    def end_input(self) -> None:
        """Emit the rows that are left, and after them the time of the end."""
        super().end_input()
        for kept in self.take_rows():
            every = chain.from_iterable(repeat(row.packed, row.times) for row in kept)
            for chunk in _chunks(islice(every, self._offset, None)):
                self.emit_columns(self._codec.unpack(chunk))
        self.output.emit_watermark(MAX_TIMESTAMP)


def _chunks(rows: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Cut rows into batches, which are short if the rows are long."""
    chunk: list[bytes] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row)
        if len(chunk) == _BATCH or size >= MOST_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
