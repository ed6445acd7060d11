"""MATCH_RECOGNIZE in physical plans."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.errors import ValidationError
from millstream.expressions.nodes import InputReference, transform
from millstream.runtime.operators.table.match import Aggregation, Navigation
from millstream.sql.planner.calcs import Converts, calc, columns_of, exchange, keeps_time_attribute
from millstream.sql.planner.formatting import columns_text, expression_text, order_text
from millstream.sql.planner.logical import references, row_of
from millstream.sql.planner.physical import PhysicalNode

if TYPE_CHECKING:
    from millstream.expressions.nodes import Expression
    from millstream.runtime.operators.table.match import RowPattern, Slot
    from millstream.sql.planner.logical import MatchNode, SortKey


@dataclass(eq=False, kw_only=True)
class Match(PhysicalNode):
    """One row for each match of a pattern of rows."""

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    pattern: RowPattern
    #: Per variable, over ``slots``; None: every row meets it.
    conditions: tuple[Expression | None, ...]
    measures: tuple[Expression, ...]
    slots: tuple[Slot, ...]
    kind: ClassVar[str] = "Match"

    def details(self) -> str:
        below = self.input.row
        parts = []
        if self.partition:
            parts.append(f"partitionBy=[{columns_text(below, self.partition)}]")
        parts.append(f"orderBy=[{order_text(below, self.order)}]")
        names = self.row.names[len(self.partition) :]
        measures = zip(self.measures, names, strict=True)
        shown = ", ".join(f"FINAL({expression_text(each)}) AS {name}" for each, name in measures)
        parts += [
            f"measures=[{shown}]",
            "rowsPerMatch=[ONE ROW PER MATCH]",
            f"after=[{self.pattern.skip_text}]",
            f"pattern=[{self.pattern}]",
        ]
        if self.pattern.within is not None:
            parts.append(f"within=[{self.pattern.within} ms]")
        conditions = zip(self.pattern.variables, self.conditions, strict=True)
        defined = ", ".join(
            f"{variable.name}={expression_text(each)}"
            for variable, each in conditions
            if each is not None
        )
        return ", ".join([*parts, f"define=[{{{defined}}}]"])


def match(converter: Converts, node: MatchNode) -> PhysicalNode:
    """The physical plan of MATCH_RECOGNIZE.

    Raises:
        ValidationError: the time that it is ordered by is no time attribute any more.
    """
    below = converter.convert(node.input)
    time = node.order[0].column
    if not keeps_time_attribute(below, time):
        message = (
            "You must specify either rowtime or proctime for order by as the first one; "
            f"'{below.row.names[time]}' comes through a regular join or DISTINCT, where a time "
            "attribute ends."
        )
        raise ValidationError(message)
    used = {*node.partition, *(each.column for each in node.order)}
    for slot in node.slots:
        used |= _columns_of(slot)
    columns = sorted(used)
    place = {column: position for position, column in enumerate(columns)}
    fields = references(below.row)
    row = row_of([fields[c].name for c in columns], [fields[c].type for c in columns])
    pruned = calc(below, [fields[column] for column in columns], row)
    partition = tuple(place[column] for column in node.partition)
    return Match(
        row=node.row,
        inputs=(exchange(pruned, partition),),
        partition=partition,
        order=tuple(replace(each, column=place[each.column]) for each in node.order),
        pattern=node.pattern,
        conditions=node.conditions,
        measures=node.measures,
        slots=tuple(_placed(slot, place) for slot in node.slots),
    )


def _columns_of(slot: Slot) -> set[int]:
    if isinstance(slot, Navigation):
        return {slot.column}
    arguments = slot.arguments if isinstance(slot, Aggregation) else ()
    return {column for each in arguments for column in columns_of(each)}


def _placed(slot: Slot, place: dict[int, int]) -> Slot:
    def change(each: Any) -> Any:
        return replace(each, index=place[each.index]) if isinstance(each, InputReference) else each

    if isinstance(slot, Navigation):
        return replace(slot, column=place[slot.column])
    if isinstance(slot, Aggregation):
        return replace(slot, arguments=tuple(transform(each, change) for each in slot.arguments))
    return slot
