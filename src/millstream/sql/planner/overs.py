"""OVER: aggregates over the rows around each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from millstream.errors import UnsupportedSqlError, ValidationError
from millstream.runtime.operators.table.batch_over import BatchOverFactory, Frame
from millstream.runtime.operators.table.over import OverFactory, UpdatingOverFactory
from millstream.sql.planner import formatting as fmt
from millstream.sql.planner import physical as pp
from millstream.sql.planner.calcs import exchange
from millstream.sql.planner.ranks import RANKS, time_order
from millstream.types.logical_types import TimestampKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.graph.transformation import Transformation
    from millstream.sql.planner.calcs import Converts
    from millstream.sql.planner.logical import OverNode


class OverAggregate(pp.PhysicalNode):
    """Aggregates over the rows around each row."""

    partition: pp.Columns
    order: pp.Order
    calls: pp.OverCalls
    #: Over a changelog, or in another order than that of time: rows that are given may change.
    updating: bool = False
    #: When all rows are there, over any frame.
    batch: bool = False

    passes_keys = True
    needs_before = True
    passes_unsure = True
    is_pruned = True
    place = "[{partition}] [{order}] [{calls}] {frames} [{inputs}]"
    state: ClassVar[pp.Parts] = {
        "keys": "*partition",
        "order": "*order",
        "aggregates": "*calls",
        "columns": "*inputs",
    }

    @property
    def frames(self) -> str:
        """The frames of its calls, for the uid."""
        frames = str([(each.is_rows, each.preceding) for each in self.calls])
        frames = f"updating {frames}" if self.updating else frames
        return frames + (f" batch {[each.following for each in self.calls]}" if self.batch else "")

    def details(self) -> str:
        below = self.input.row
        parts = []
        if self.partition:
            parts.append(f"partitionBy=[{fmt.columns_text(below, self.partition)}]")
        if self.order:
            parts.append(f"orderBy=[{fmt.order_text(below, self.order)}]")
        parts.append(f"window=[{fmt.frame_text(self.calls[0])}]")
        names = self.row.names[len(below) :]
        shown = list(below.names)
        shown += [
            f"{fmt.aggregate_text(each.call, below, '')} AS {name}"
            for each, name in zip(self.calls, names, strict=True)
        ]
        return ", ".join([*parts, f"select=[{', '.join(shown)}]"])

    def keeps_time(self, column: int) -> bool:
        del column
        return not self.updating

    def change_types(self) -> frozenset[str]:
        below = super().change_types()
        if self.updating and not self.batch:
            return frozenset("IU") if below == pp.INSERTS else pp.ALL_CHANGES
        if not self.batch:
            pp.check_takes(self.kind, self.input, pp.INSERTS)
        return pp.INSERTS

    def kept_by(self, side: int) -> Iterable[int]:
        return (pp.ROW, *range(len(self.inputs[side].row)))

    def made_of(self, origins: pp.Origins) -> list[str]:
        calls = (origins.call(self, each.call) for each in self.calls)
        return [*origins.columns(self.input), *calls]

    def operator(self, lowering: pp.Lowers) -> Transformation:
        """Make the operator for how the rows come: at once, with updates or in order of time.

        Raises:
            UnsupportedSqlError: there is a FILTER.
        """
        first, single = self.calls[0], not self.partition
        if any(each.call.filter is not None for each in self.calls):
            message = "FILTER with OVER is not in this release."
            raise UnsupportedSqlError(message)
        retracts = first.preceding is not None and not (self.updating or self.batch)
        calls = lowering.aggregates([each.call for each in self.calls], retracts=retracts)
        preceding = None if first.preceding is None else int(first.preceding)
        if self.batch:
            frame = Frame(first.is_rows, first.preceding, first.following)
            factory: Any = lowering.factory(BatchOverFactory, self, calls=calls, frame=frame)
            return lowering.stateful(self, factory, single=single)
        common = {"aggregates": calls, "is_rows": first.is_rows, "preceding": preceding}
        if self.updating:
            factory = lowering.factory(UpdatingOverFactory, self, **common)
            return lowering.stateful(self, factory, single=single)
        time = self.order[0].column
        attribute = getattr(self.input.row.fields[time].type, "kind", None)
        rowtime = time if attribute is TimestampKind.ROWTIME else None
        factory = lowering.factory(OverFactory, self, rowtime=rowtime, **common)
        # Frames of processing time end when the clock has gone on.
        ticks = rowtime is None and not first.is_rows and preceding is not None
        return lowering.stateful(self, factory, single=single, ticks=ticks)


def over(converter: Converts, node: Any) -> pp.PhysicalNode:
    """Aggregates over the rows around each row.

    Raises:
        ValidationError: the order is not one that a stream can have.
    """
    below = converter.convert(node.input)
    if converter.is_batch:
        return _over(node, below, batch=True)
    updating = _is_updating(node, below)
    ranks = [each.call.function for each in node.calls if each.call.function in RANKS]
    if ranks and updating:
        message = (
            f"{ranks[0]} needs the order of a time attribute over rows that are not updated, or a "
            "filter with an upper bound around it, as in (SELECT a, ROW_NUMBER() OVER (...) AS n "
            "...) WHERE n <= 10."
        )
        raise ValidationError(message)
    return _over(node, below, updating=updating)


def _over(
    node: Any, below: pp.PhysicalNode, *, updating: bool = False, batch: bool = False
) -> pp.PhysicalNode:
    return OverAggregate(
        row=node.row,
        inputs=(exchange(below, node.partition),),
        partition=node.partition,
        order=node.order,
        calls=node.calls,
        updating=updating,
        batch=batch,
    )


def _is_updating(node: OverNode, below: pp.PhysicalNode) -> bool:
    """Return whether the rows in front of a row may still change when it is given.

    Raises:
        ValidationError: frames of time are only over inserts, in the order of time.
    """
    time = time_order(node)
    by_time = time is not None and below.keeps_time(node.order[0].column)
    if by_time and time is not None:
        attribute, descending = time
        if descending:
            message = "OVER windows can only be ordered by time in ASCENDING mode."
            raise ValidationError(message)
        if attribute is TimestampKind.PROCTIME or pp.kinds_of(below) == frozenset("I"):
            return False
    fields = node.input.row.fields
    kinds = [getattr(fields[each.column].type, "kind", None) for each in node.order]
    by_clock = TimestampKind.PROCTIME in kinds
    if by_clock or any(not each.is_rows and each.preceding for each in node.calls):
        message = (
            "OVER windows' ordering in stream mode must be defined on a time attribute where it is "
            "processing time, or RANGE has a length; then it is over rows that are not updated. "
            "ROWS and RANGE UNBOUNDED PRECEDING go by any other order."
        )
        raise ValidationError(message)
    return True
