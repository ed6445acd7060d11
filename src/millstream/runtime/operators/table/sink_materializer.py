"""Operators between a query and a sink whose key is not that of the query.

``SinkMaterializerOperator`` is Flink's SinkUpsertMaterializer: changes of rows that have different
keys in the query and the same key in the sink may overtake each other in a shuffle; all rows of a
key of the sink are kept in order of arrival, and the sink has the last of them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.contracts.operator import StateSection
from millstream.errors import PermanentSinkError
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.operators.table.base import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    KeyedTableOperator,
    TableOperator,
    TimedTableOperator,
    kinds_or_inserts,
)
from millstream.runtime.operators.table.row_buffers import (
    KeyedTimedRows,
    RowChanges,
    TimedRows,
    marks_of,
    packed_list,
    unpacked_list,
)
from millstream.runtime.operators.table.specs import columns_text
from millstream.state.key_codec import cache_key
from millstream.state.packed_state import ExpiringRows, PackedValues

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, OperatorContext, Output, RestoreContext
    from millstream.types.logical_types import RowType


_TIME: Final = struct.Struct("<q")
#: A row as it is kept, and the name that tells it from others.
_Kept = tuple[bytes, bytes]


class RowNames:
    """Tells the rows of one key of a sink apart: by the upsert key of the query, or as a whole.

    Args:
        schema: of the rows.
        upsert_key: positions of its columns; None or empty: there is none.
    """

    def __init__(self, schema: pa.Schema, upsert_key: Sequence[int] | None) -> None:
        self._key = tuple(upsert_key or ())
        self._codec = RowCodec(pa.schema([schema.field(i) for i in self._key]))

    @property
    def are_keys(self) -> bool:
        """Return whether a name is less than its row."""
        return bool(self._key)

    def of(self, columns: Sequence[pa.Array], rows: list[bytes]) -> list[bytes]:
        """Return the name of each row, which is given as columns and packed."""
        return self._codec.pack([columns[i] for i in self._key]) if self._key else rows


@dataclass(frozen=True)
class _SinkKeyFactory:
    """Base of factories of operators that keep the rows of each key of a sink."""

    input_type: RowType
    #: The sink's primary key.
    keys: tuple[int, ...]
    #: The upsert key of the input, None if there is none: then whole rows are compared.
    upsert_key: tuple[int, ...] | None
    section: ClassVar[str]
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {"columns": columns_text(self.input_type), "upsert key": str(self.upsert_key)}
        return [StateSection(self.section, "packed rows by key", details=details)]


class _SinkKeyOperator(KeyedTableOperator):
    """Base of operators that keep the rows of each key of a sink."""

    def __init__(self, plan: _SinkKeyFactory) -> None:
        super().__init__(plan.state_sections()[0])
        schema = plan.input_type.to_arrow_schema()
        self._codec = RowCodec(schema)
        self._names = RowNames(schema, plan.upsert_key)


@dataclass(frozen=True)
class SinkMaterializerFactory(_SinkKeyFactory):
    """Brings a changelog whose key is not that of the sink in an order that the sink can take.

    Keeps all rows per key of the sink in order of arrival; the last of them is what the sink has.
    """

    state_ttl: int = 0
    section: ClassVar[str] = "rows"

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return SinkMaterializerOperator(self)


class SinkMaterializerOperator(_SinkKeyOperator):
    """Keeps all rows per key of the sink."""

    def __init__(self, plan: SinkMaterializerFactory) -> None:
        super().__init__(plan)
        self._plan = plan

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = PackedValues(self.keyed_state, "\0rows")
        if self._plan.state_ttl:
            self.keyed_state.expired.watch(ExpiringRows(self._kept, self._plan.state_ttl))

    def process_rows(self, batch: Batch) -> None:
        groups = self.group(batch, self._plan.keys)
        lists = [self._decoded(stored) for stored in self._kept.get_all(groups.keys)]
        rows = self._codec.pack(batch.arrow.columns)
        names = self._names.of(batch.arrow.columns, rows)
        changes = RowChanges()
        kinds = kinds_or_inserts(batch).tolist()
        for position, group in enumerate(groups.group_of_row.tolist()):
            step = _retract if kinds[position] & 1 else self._add
            step(lists[group], (rows[position], names[position]), changes)
        self._kept.put_all(groups.keys, map(self._encoded, lists))
        changes.emit(self, self._codec)

    def _add(self, kept: list[_Kept], row: _Kept, changes: RowChanges) -> None:
        changes.add(UPDATE_AFTER if kept else INSERT, row[0])
        at = _position(kept, row) if self._names.are_keys else -1
        if at < 0:
            kept.append(row)
        else:
            kept[at] = row

    def _decoded(self, stored: bytes | None) -> list[_Kept]:
        if stored is None:
            return []
        ttl = self._plan.state_ttl
        if ttl and _TIME.unpack_from(stored)[0] + ttl <= self.expiry_time:
            return []
        parts = unpacked_list(stored[_TIME.size :])
        if not self._names.are_keys:
            return [(row, row) for row in parts]
        return list(zip(parts[::2], parts[1::2], strict=True))

    def _encoded(self, kept: list[_Kept]) -> bytes | None:
        if not kept:
            return None
        rows = [row for row, _ in kept]
        if self._names.are_keys:
            rows = [part for pair in kept for part in pair]
        return _TIME.pack(self.expiry_time) + packed_list(rows)


def _position(kept: list[_Kept], row: _Kept) -> int:
    return next((at for at, (_, name) in enumerate(kept) if name == row[1]), -1)


def _retract(kept: list[_Kept], row: _Kept, changes: RowChanges) -> None:
    at = _position(kept, row)
    if at < 0:
        return
    was_last = at == len(kept) - 1
    del kept[at]
    if not kept:
        changes.add(DELETE, row[0])
    elif was_last:
        changes.add(UPDATE_AFTER, kept[-1][0])


@dataclass(frozen=True)
class DropUpdateBeforeFactory:
    """Drops -U: after it, +U replaces the row of its key."""

    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return DropUpdateBeforeOperator(self)


class DropUpdateBeforeOperator(TableOperator):
    """Drops -U."""

    def __init__(self, plan: DropUpdateBeforeFactory) -> None:
        del plan
        super().__init__()

    def process_rows(self, batch: Batch) -> None:
        kinds = batch.row_kinds
        if kinds is not None:
            kept = np.flatnonzero(kinds != 1)
            if len(kept) < len(batch):
                batch = batch.take(kept)
        self.records_out += len(batch)
        self.output.emit(batch)


#: The mark of the row that the sink has; those of waiting rows are their kinds.
_WRITTEN: Final = 4


@dataclass(frozen=True)
class WatermarkTimesFactory:
    """Emits each row the watermark at which it is sent as its timestamp."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return WatermarkTimesOperator()


class WatermarkTimesOperator(TableOperator):
    """Keeps the watermark alone."""

    def __init__(self) -> None:
        super().__init__()
        self._watermark = MIN_TIMESTAMP

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._watermark = restored.watermark

    def process_rows(self, batch: Batch) -> None:
        self.records_out += len(batch)
        times = np.full(len(batch), self._watermark, dtype=np.int64)
        self.output.emit(batch.with_timestamps(times))

    def process_watermark(self, watermark: int) -> None:
        self._watermark = watermark
        super().process_watermark(watermark)


@dataclass(frozen=True)
class SinkConflictsFactory(_SinkKeyFactory):
    """Factory of operators that keep one row per key of a sink.  Columns stay.

    The timestamp of an input row is the watermark of its sender.
    """

    #: Whether a conflict ends the job; else the first row stays.
    fails: bool
    #: The sink, for the error.
    table: str
    section: ClassVar[str] = "conflicts"

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return SinkConflictsOperator(self)


class SinkConflictsOperator(_SinkKeyOperator, TimedTableOperator):
    """Keeps per key the row that the sink has, and the changes that wait for the watermark."""

    def __init__(self, plan: SinkConflictsFactory) -> None:
        super().__init__(plan)
        self._plan = plan

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = KeyedTimedRows(self.keyed_state, "\0conflicts", is_marked=True)

    def process_rows(self, batch: Batch) -> None:
        groups = self.group(batch, self._plan.keys)
        rows = self._codec.pack(batch.arrow.columns)
        kinds = kinds_or_inserts(batch).astype(np.uint8)
        self._kept.add(groups, TimedRows(batch.timestamp_array, rows, kinds))
        self._kept.register(groups, batch.timestamp_array)

    def process_watermark(self, watermark: int) -> None:
        """Write what the watermark has made certain."""
        self._watermark = watermark
        fired = self.keyed_state.timers.advance_event_time(watermark)
        keys = list(dict.fromkeys(cache_key(key) for _, key, _ in fired))
        if keys:
            self.keyed_state.make_room(len(keys))
            changes = RowChanges()
            self._kept.put(keys, self._settled(self._kept.get(keys), watermark, changes))
            changes.emit(self, self._codec)
        super().process_watermark(watermark)

    def _settled(
        self, kept: list[TimedRows], watermark: int, changes: RowChanges
    ) -> list[TimedRows]:
        """Put the changes of each key that are certain together; gives what is kept then."""
        rows = list(chain.from_iterable(each.rows for each in kept))
        names = iter(self._names.of(self._codec.unpack(rows), rows) if rows else [])
        left: list[TimedRows] = []
        for each in kept:
            named = [(row, next(names)) for row in each.rows]
            before, living = None, []
            marks = marks_of([each])
            waiting = (marks != _WRITTEN) & (each.times > watermark)
            if len(each) and marks[0] == _WRITTEN:
                before = named[0]
                living.append(before)
            for place in _in_order_of_time(each, marks, watermark):
                self._apply(living, named[place], retracts=bool(marks[place] & 1))
            after = self._winner(living)
            _add_change(changes, before, after)
            rest = each.chosen(waiting)
            left.append(rest if after is None else _written(after).followed_by(rest))
        return left

    def _apply(self, living: list[_Kept], row: _Kept, *, retracts: bool) -> None:
        by_name = retracts or self._names.are_keys
        found = (at for at, (_, name) in enumerate(living) if by_name and name == row[1])
        at = next(found, -1)
        if retracts:
            if at >= 0:
                del living[at]
        elif at >= 0:
            living[at] = row
        else:
            living.append(row)

    def _winner(self, living: list[_Kept]) -> _Kept | None:
        """Return the first of the rows that are left.

        Raises:
            PermanentSinkError: there are several, and the statement says ERROR.
        """
        if len(living) > 1 and self._plan.fails:
            columns = self._codec.unpack([living[0][0]])
            fields = self._plan.input_type.fields
            parts = (f"{fields[at].name}={columns[at][0].as_py()}" for at in self._plan.keys)
            shown = ", ".join(parts)
            message = (
                f"Primary key constraint violation in table {self._plan.table}: {len(living)} "
                f"distinct records have the key [{shown}]. Use ON CONFLICT DO NOTHING to keep the "
                "first record, or DO DEDUPLICATE to keep the last."
            )
            raise PermanentSinkError(message)
        return living[0] if living else None


def _in_order_of_time(kept: TimedRows, marks: NDArray[np.uint8], watermark: int) -> Sequence[int]:
    """Places of the changes that are certain, without those of one time that undo each other."""
    due = np.flatnonzero((marks != _WRITTEN) & (kept.times <= watermark))
    due = due[np.argsort(kept.times[due], kind="stable")]
    found: list[int] = []
    #: Of the time available: a row, and whether it goes -> the places of its changes.
    open_: dict[tuple[bytes, bool], list[int]] = {}
    time = None
    for place in due.tolist():
        if kept.times[place] != time:
            time, open_ = kept.times[place], {}
        row, goes = kept.rows[place], bool(marks[place] & 1)
        opposite = open_.get((row, not goes))
        if opposite:
            found.remove(opposite.pop(0))
        else:
            found.append(place)
            open_.setdefault((row, goes), []).append(place)
    return found


def _add_change(changes: RowChanges, before: _Kept | None, after: _Kept | None) -> None:
    if after is None:
        if before is not None:
            changes.add(DELETE, before[0])
    elif before is None:
        changes.add(INSERT, after[0])
    elif before[0] != after[0]:
        changes.add(UPDATE_AFTER, after[0])


def _written(row: _Kept) -> TimedRows:
    marks = np.array([_WRITTEN], dtype=np.uint8)
    return TimedRows(np.array([MIN_TIMESTAMP], dtype=np.int64), [row[0]], marks)
