"""MATCH_RECOGNIZE: rows that match a pattern."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.errors import ValidationError
from millstream.runtime.operators.table.match import Aggregation, MatchFactory, Navigation
from millstream.sql.planner import formatting as fmt
from millstream.sql.planner import physical as pp
from millstream.sql.planner.calcs import calc, exchange, is_rowtime
from millstream.sql.planner.logical import references, row_of

if TYPE_CHECKING:
    from millstream.expressions.nodes import Expression
    from millstream.graph.transformation import Transformation
    from millstream.runtime.operators.table.match import Slot
    from millstream.runtime.operators.table.row_patterns import RowPattern
    from millstream.sql.planner.calcs import Converts
    from millstream.sql.planner.logical import MatchNode


class Match(pp.PhysicalNode):
    """One row for each match of a pattern of rows."""

    partition: pp.Columns
    order: pp.Order
    pattern: RowPattern
    #: Per variable, over ``slots``; None: every row meets it.
    conditions: tuple[Expression | None, ...]
    measures: tuple[Expression, ...]
    slots: tuple[Slot, ...]

    @property
    def goes_by_clock(self) -> bool:
        return not is_rowtime(self.input.row.fields[self.order[0].column].type)

    def change_types(self) -> frozenset[str]:
        super().change_types()
        pp.check_takes("Match Recognize", self.input, pp.INSERTS)
        return pp.INSERTS

    def details(self) -> str:
        below = self.input.row
        parts = []
        if self.partition:
            parts.append(f"partitionBy=[{fmt.columns_text(below, self.partition)}]")
        parts.append(f"orderBy=[{fmt.order_text(below, self.order)}]")
        names = self.row.names[len(self.partition) :]
        measures = zip(self.measures, names, strict=True)
        shown = ", ".join(
            f"FINAL({fmt.expression_text(each)}) AS {name}" for each, name in measures
        )
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
            f"{variable.name}={fmt.expression_text(each)}"
            for variable, each in conditions
            if each is not None
        )
        return ", ".join([*parts, f"define=[{{{defined}}}]"])

    def words(self, origins: pp.Origins) -> str:
        slots = _slot_texts(self, origins)
        conditions = "; ".join(origins.text(each, slots) for each in self.conditions)
        said = pp.Said(self, origins)
        return (
            f"{self.kind} [{said['partition']}] [{said['order']}] {self.pattern} "
            f"{self.pattern.skip_text} {self.pattern.within} [{conditions}] [{said['inputs']}]"
        )

    def recorded(self, origins: pp.Origins) -> dict[str, tuple[str, ...]]:
        slots, said = _slot_texts(self, origins), pp.Said(self, origins, is_state=True)
        within = self.pattern.within
        shown = "" if within is None else f" WITHIN {fmt.length_text(within)}"
        return {
            "keys": tuple(said.parts("partition")),
            "order": tuple(said.parts("order")),
            "pattern": (f"{self.pattern} {self.pattern.skip_text}{shown}",),
            "conditions": tuple(origins.text(each, slots) for each in self.conditions),
            "columns": tuple(said.parts("inputs")),
        }

    def made_of(self, origins: pp.Origins) -> list[str]:
        below, slots = origins.columns(self.input), _slot_texts(self, origins)
        made = [below[key] for key in self.partition]
        return [*made, *(origins.text(each, slots) for each in self.measures)]

    def operator(self, lowering: pp.Lowers) -> Transformation:
        rowtime = None if self.goes_by_clock else self.order[0].column
        order = lowering.order(self.order[1:])
        factory = lowering.factory(MatchFactory, self, rowtime=rowtime, order=order)
        ticks = rowtime is None and self.pattern.within is not None
        return lowering.stateful(self, factory, single=not self.partition, ticks=ticks)


def _slot_texts(node: Match, origins: pp.Origins) -> list[str]:
    """Return what each slot is made of, by what the columns of the input are made of."""
    below = origins.columns(node.input)

    def variable(slot: Any) -> str:
        return "*" if slot.variable is None else node.pattern.variables[slot.variable].name

    def shown(slot: Slot) -> str:
        if isinstance(slot, Navigation):
            end = "FIRST" if slot.first else "LAST"
            return f"{end}({variable(slot)}.[{below[slot.column]}], {slot.offset})"
        if isinstance(slot, Aggregation):
            inside = ", ".join(origins.text(each, below) for each in slot.arguments)
            return f"{slot.function}({variable(slot)}.[{inside}])"
        return "MATCH_ROWTIME"

    return [shown(slot) for slot in node.slots]


def match(converter: Converts, node: MatchNode) -> pp.PhysicalNode:
    """The physical plan of MATCH_RECOGNIZE.

    Raises:
        ValidationError: the time that it is ordered by is no time attribute any more.
    """
    below = converter.convert(node.input)
    time = node.order[0].column
    if not below.keeps_time(time):
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
    return pp.named_columns(slot.arguments) if isinstance(slot, Aggregation) else set()


def _placed(slot: Slot, place: dict[int, int]) -> Slot:
    if isinstance(slot, Navigation):
        return replace(slot, column=place[slot.column])
    if isinstance(slot, Aggregation):
        return replace(slot, arguments=pp.with_columns(slot.arguments, place.__getitem__))
    return slot
