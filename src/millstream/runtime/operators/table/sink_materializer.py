"""What stands between a query and a sink whose key is not that of the query.

What it is: Flink's SinkUpsertMaterializer.  Changes of rows that have different keys in the query,
and the same in the sink, may overtake each other in a shuffle; all rows of a key of the sink are
kept in the order in which they came, and the sink has the last of them.

What it is not: quick where a key of the sink has very many rows: they are one value of state.

Read next: ``runtime/operators/table/deduplicate.py``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.operators.table.base import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    KeyedTableOperator,
    TableOperator,
    kinds_or_inserts,
)
from millstream.runtime.operators.table.row_changes import RowChanges
from millstream.runtime.operators.table.row_lists import packed_list, unpacked_list
from millstream.state.expired_rows import ExpiringRows
from millstream.state.packed_state import PackedValues

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext, Output
    from millstream.runtime.operators.table.plans import (
        DropUpdateBeforePlan,
        SinkMaterializerPlan,
    )

__all__ = ["DropUpdateBeforeOperator", "RowNames", "SinkMaterializerOperator"]

_TIME: Final = struct.Struct("<q")
#: A row as it is kept, and what it is told from others by.
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
        """Whether a name is less than its row."""
        return bool(self._key)

    def of(self, columns: Sequence[pa.Array], rows: list[bytes]) -> list[bytes]:
        """Return the name of each row, which is given as columns and packed."""
        return self._codec.pack([columns[i] for i in self._key]) if self._key else rows


class SinkMaterializerOperator(KeyedTableOperator):
    """Keeps all rows per key of the sink."""

    def __init__(self, plan: SinkMaterializerPlan) -> None:
        """Take both keys."""
        super().__init__(plan.state_sections()[0])
        self._plan = plan
        schema = plan.input_type.to_arrow_schema()
        self._codec = RowCodec(schema)
        self._names = RowNames(schema, plan.upsert_key)

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
            step = _take_back if kinds[position] & 1 else self._add
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


def _take_back(kept: list[_Kept], row: _Kept, changes: RowChanges) -> None:
    at = _position(kept, row)
    if at < 0:
        return
    was_last = at == len(kept) - 1
    del kept[at]
    if not kept:
        changes.add(DELETE, row[0])
    elif was_last:
        changes.add(UPDATE_AFTER, kept[-1][0])


class DropUpdateBeforeOperator(TableOperator):
    """Drops -U."""

    def __init__(self, plan: DropUpdateBeforePlan) -> None:
        """Need nothing of the plan."""
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
