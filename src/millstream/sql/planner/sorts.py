"""ORDER BY: rows in the order of time, final rows in any order, and the rule of LIMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from millstream.errors import ValidationError
from millstream.runtime.operators.table.sort import (
    FinalRowsFactory,
    ProctimeSortFactory,
    TemporalSortFactory,
)
from millstream.sql.planner.calcs import exchange
from millstream.sql.planner.formatting import order_text
from millstream.sql.planner.physical import INSERTS, ROW, PhysicalNode
from millstream.sql.planner.ranks import Limit, first_rows
from millstream.sql.planner.scans import ValuesScan
from millstream.types.logical_types import TimestampKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.graph.transformation import Transformation
    from millstream.sql.planner.calcs import Converts
    from millstream.sql.planner.physical import Lowers, Order, Parts


class TemporalSort(PhysicalNode):
    """Rows that are only added, in order of event time, then of other columns."""

    order: Order

    takes_inserts = True
    passes_keys = True
    place = "[{order}] [{inputs}]"
    state: ClassVar[Parts] = {"order": "*order", "columns": "*inputs"}

    def details(self) -> str:
        return f"orderBy=[{order_text(self.row, self.order)}]"

    def operator(self, lowering: Lowers) -> Transformation:
        factory = lowering.factory(TemporalSortFactory, self)
        first: Any = self.input.row.fields[self.order[0].column].type
        if first.kind is TimestampKind.PROCTIME:
            below = lowering.stream(self.input)
            by_arrival = ProctimeSortFactory(factory.order[1:])
            return lowering.one(self.kind, by_arrival, below, self.row, single=True)
        return lowering.stateful(self, factory, single=True)


class FinalRows(PhysicalNode):
    """The rows that are there when the input is over, once each, as inserts."""

    order: Order = ()
    offset: int = 0

    is_written = False
    passes_keys = True
    needs_before = True
    place = "[{order}] [{inputs}]"

    @property
    def shown_kind(self) -> str:
        return "Sort" if self.order else self.kind

    def details(self) -> str:
        parts = []
        if self.order:
            parts.append(f"orderBy=[{order_text(self.row, self.order)}]")
        if self.offset:
            parts.append(f"offset=[{self.offset}]")
        return ", ".join([*parts, f"select=[{self.fields_text()}]"])

    def change_types(self) -> frozenset[str]:
        return INSERTS

    def kept_by(self, side: int) -> Iterable[int]:
        return (ROW, *range(len(self.inputs[side].row)))

    def operator(self, lowering: Lowers) -> Transformation:
        return lowering.stateful(self, lowering.factory(FinalRowsFactory, self), single=True)


def limit(converter: Converts, node: Any) -> PhysicalNode:
    """LIMIT, with or without an order; an order alone only by time.

    Raises:
        ValidationError: a stream cannot be sorted so.
    """
    below = converter.convert(node.input)
    if converter.is_batch and node.limit != 0 and (node.order or node.limit is None):
        return _sorted(below, node)
    if node.limit is None:
        return _by_time(below, node)
    if node.limit == 0:
        return ValuesScan(row=below.row, rows=())
    if not node.order:
        single = exchange(below, None)
        return Limit(row=below.row, inputs=(single,), offset=node.offset, limit=node.limit)
    return first_rows(below, node)


def _by_time(below: PhysicalNode, node: Any) -> PhysicalNode:
    """All rows in the order of time.

    Raises:
        ValidationError: a stream cannot be sorted so.
    """
    if not node.order or node.offset:
        message = "OFFSET without LIMIT is not supported."
        raise ValidationError(message)
    first = node.order[0]
    kind = getattr(below.row.fields[first.column].type, "kind", TimestampKind.REGULAR)
    is_proctime = kind is TimestampKind.PROCTIME and not first.descending
    if (not is_proctime and kind is not TimestampKind.ROWTIME) or not below.keeps_time(
        first.column
    ):
        message = (
            "Sort on a non-time-attribute field is not supported: a stream has no end; "
            "add LIMIT, or sort the result."
        )
        raise ValidationError(message)
    if first.descending:
        message = "Primary sort order of a streaming table must be ascending on time."
        raise ValidationError(message)
    return TemporalSort(row=below.row, inputs=(exchange(below, None),), order=node.order)


def _sorted(below: PhysicalNode, node: Any) -> PhysicalNode:
    """The rows in order when all of them are there; of a few first ones no others are kept."""
    offset = node.offset
    if node.limit is not None:
        below, offset = first_rows(below, node), 0
    single = exchange(below, None)
    return FinalRows(row=below.row, inputs=(single,), order=node.order, offset=offset)
