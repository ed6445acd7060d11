"""Functions of tables: UNNEST, TO_CHANGELOG and FROM_CHANGELOG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from millstream.runtime.operators.table.calc import (
    FromChangelogFactory,
    ToChangelogFactory,
    UnnestFactory,
)
from millstream.sql.planner import physical as pp
from millstream.sql.planner.calcs import Calc, exchange
from millstream.sql.planner.formatting import expression_text
from millstream.sql.planner.logical import JoinType, references, row_of
from millstream.sql.planner.sorts import FinalRows
from millstream.types.logical_types import MultisetType
from millstream.types.row import RowKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.graph.transformation import Transformation
    from millstream.sql.planner.calcs import Converts
    from millstream.sql.planner.logical import ChangelogNode, CorrelateNode


class Correlate(pp.PhysicalNode):
    """Each row with what a table function makes of it."""

    function: str
    arguments: tuple[Expression, ...]
    join: JoinType
    with_ordinality: bool = False

    passes_changes = True
    passes_unsure = True

    def details(self) -> str:
        inside = ", ".join(map(expression_text, self.arguments))
        join = "INNER" if self.join is JoinType.INNER else "LEFT"
        return (
            f"invocation=[{self.function}({inside})], select=[{self.fields_text()}], "
            f"joinType=[{join}]"
        )

    def unsure(
        self, below: Sequence[frozenset[int]], is_unsure: Callable[[Expression, Any], bool]
    ) -> frozenset[int]:
        if any(is_unsure(each, below[0]) for each in self.arguments):
            return below[0] | {pp.ROW, *range(len(self.input.row), len(self.row))}
        return below[0]

    def words(self, origins: pp.Origins) -> str:
        below = origins.columns(self.input)
        inside = ", ".join(origins.text(each, below) for each in self.arguments)
        call = f"{self.function}({inside}) {self.with_ordinality}"
        return f"{self.kind} {self.join.name} {call}"

    def operator(self, lowering: pp.Lowers) -> Transformation:
        below, argument = self.input, self.arguments[0]
        columns = [*references(below.row), argument]
        row = row_of([*below.row.names, "$nested"], [each.type for each in columns])
        calc = Calc(row=row, inputs=(below,), projections=tuple(columns))
        factory = UnnestFactory(
            outer=self.join is JoinType.LEFT,
            ordinality=self.with_ordinality,
            repeats=isinstance(argument.type, MultisetType),
        )
        return lowering.one(self.kind, factory, calc.operator(lowering), self.row)


class ChangelogFunction(pp.PhysicalNode):
    """Changes as rows with a code, or rows with a code as changes."""

    #: The column of the codes in the input; None: changes become rows.
    column: int | None
    #: Kinds of changes, by their names, with a code; a code stands once if it is read.
    codes: tuple[tuple[str, str], ...]

    kind: ClassVar[str] = "ProcessTableFunction"
    needs_before = True
    place = "{function} {column} {codes} [{inputs}]"

    @property
    def function(self) -> str:
        """Its name in SQL."""
        return "TO_CHANGELOG" if self.column is None else "FROM_CHANGELOG"

    def details(self) -> str:
        codes = ", ".join(f"{kind}={code}" for kind, code in self.codes)
        return f"invocation=[{self.function}({codes})], select=[{self.fields_text()}]"

    def change_types(self) -> frozenset[str]:
        super().change_types()
        if self.column is None:
            return pp.INSERTS
        pp.check_takes(self.function, self.input, pp.INSERTS)
        return frozenset(kind[0] for kind, _ in self.codes)

    def planned(self, planner: pp.PlansChanges, required: str) -> pp.PhysicalNode | None:
        return None if required == pp.AFTER else super().planned(planner, required)

    def operator(self, lowering: pp.Lowers) -> Transformation:
        pairs = [(int(RowKind[kind].value), code) for kind, code in self.codes]
        factory: Any = ToChangelogFactory(tuple(pairs))
        if self.column is not None:
            factory = FromChangelogFactory(self.column, tuple((code, at) for at, code in pairs))
        return lowering.one(self.kind, factory, lowering.stream(self.input), self.row)


def correlate(converter: Converts, node: CorrelateNode) -> pp.PhysicalNode:
    """Give each row with the rows that a table function makes of it."""
    return Correlate(
        row=node.row,
        inputs=(converter.convert(node.input),),
        function=node.function,
        arguments=node.arguments,
        join=node.kind,
        with_ordinality=node.with_ordinality,
    )


def changelog(converter: Converts, node: ChangelogNode) -> pp.PhysicalNode:
    """Turn changes into rows with a code, or rows with a code into changes."""
    below = converter.convert(node.input)
    if node.column is None and converter.is_batch and pp.kinds_of(below) != pp.INSERTS:
        below = FinalRows(row=below.row, inputs=(exchange(below, None),))
    return ChangelogFunction(row=node.row, inputs=(below,), column=node.column, codes=node.codes)
