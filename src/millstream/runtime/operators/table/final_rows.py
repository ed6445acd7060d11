"""The rows that are there at the end of a bounded input, in order if one is asked for.

What it is: what batch mode puts behind a query that updates or sorts rows.  Changes are added up
per row; behind the last of them the rows that are left come out, as inserts.
What it is not: parallel, and not for results larger than memory: they are sorted in one task.

State: a map from sort key and row to how often the row is there (8 bytes, signed) and the length of
the sort key (4), big-endian.

Read next: ``runtime/columnar/row_codec.py``, ``state/packed_state.py``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import islice, repeat
from typing import TYPE_CHECKING, ClassVar, Final

from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.runtime.columnar.row_codec import RowCodec, sort_keys
from millstream.runtime.operators.table.base import KeyedTableOperator, kinds_or_inserts
from millstream.runtime.operators.table.plans import ordered_section
from millstream.state.key_codec import encode_key
from millstream.state.packed_state import PackedMaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, OperatorContext, Output, StateSection
    from millstream.runtime.operators.table.specs import SortColumn
    from millstream.types.logical_types import RowType

__all__ = ["FinalRowsFactory"]

_COUNT: Final = struct.Struct(">qI")
#: Rows per batch at the end.
_BATCH: Final = 16_384


@dataclass(frozen=True)
class FinalRowsFactory:
    """Makes operators that give the rows that are there at the end.  Columns stay.

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
        """Take how the rows are sorted."""
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
        weights = (1 - 2 * (kinds_or_inserts(batch) & 1)).tolist()
        for begin, name, weight in zip(orders, names, weights, strict=True):
            before = counts.get(name)
            # Below zero if a row is taken back before it comes, from another task.
            count = weight if before is None else _COUNT.unpack(before)[0] + weight
            if count:
                counts.put(name, _COUNT.pack(count, len(begin)))
            else:
                counts.remove(name)
        self._kept.changed([key])

    def process_watermark(self, watermark: int) -> None:
        """Hold it back: no row has gone out yet, and all would be late behind it."""
        del watermark

    def end_input(self) -> None:
        """Give the rows that are left, and behind them the time of the end."""
        super().end_input()
        key = encode_key(())
        self._kept.fetch_all([key])
        counts = self._kept.map_of(key)
        rows = islice(self._rows(sorted(counts.items())), self._plan.offset, None)
        while chunk := list(islice(rows, _BATCH)):
            self.emit_columns(self._codec.unpack(chunk))
        if len(counts):  # behind a restore nothing comes again
            counts.clear()
            self._kept.changed([key])
        self.output.emit_watermark(MAX_TIMESTAMP)

    @staticmethod
    def _rows(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
        for name, value in entries:
            count, begin = _COUNT.unpack(value)
            yield from repeat(name[begin:], max(count, 0))
