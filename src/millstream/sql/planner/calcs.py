"""Nodes that filter, compute, deal out and unite rows, and helpers of the planner's rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from millstream.errors import ValidationError
from millstream.expressions.functions.registry import find_function
from millstream.expressions.nodes import Call, InputReference, transform, walk
from millstream.runtime.operators.table.calc import CalcFactory
from millstream.sql.planner import physical as pp
from millstream.sql.planner.formatting import columns_text, expression_text
from millstream.sql.planner.logical import references
from millstream.types import logical_types as lt
from millstream.types.type_derivation import needs_no_cast
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.graph.transformation import Transformation
    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.planner.window_columns import WindowColumns


_INTEGERS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER, TypeRoot.BIGINT)
#: Types whose values have one text each.
_OF_ONE_TEXT = frozenset(
    {
        *_INTEGERS,
        TypeRoot.BOOLEAN,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DATE,
        TypeRoot.TIME_WITHOUT_TIME_ZONE,
        TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE,
        TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE,
    }
)


class Calc(pp.PhysicalNode):
    """Filters rows, then computes columns."""

    projections: tuple[Expression, ...]
    condition: pp.Condition = None

    passes_changes = True
    is_shared = True

    def details(self) -> str:
        names = zip(self.projections, self.row.names, strict=True)
        shown = [
            text if (text := expression_text(each)) == name else f"{text} AS {name}"
            for each, name in names
        ]
        where = ""
        if self.condition is not None:
            where = f", where=[{expression_text(self.condition)}]"
        return f"select=[{', '.join(shown)}]{where}"

    def needed(self, wanted: set[int]) -> list[set[int]]:
        read = {
            column for at in wanted or pp.SOME for column in pp.columns_of(self.projections[at])
        }
        return [read if self.condition is None else read | pp.columns_of(self.condition)]

    def narrowed(
        self, wanted: set[int], narrow: Callable[[pp.PhysicalNode], pp.Narrowed]
    ) -> pp.Narrowed:
        kept = sorted(wanted or pp.SOME)
        read = tuple(self.projections[each] for each in kept)
        below, places = narrow(self.input)
        if below is self.input and len(kept) == len(self.row):
            return self, kept
        made = replace(
            self,
            row=pp.some_fields(self.row, kept),
            inputs=(below,),
            projections=pp.with_columns(read, places.index),
            condition=pp.with_columns(self.condition, places.index),
            kinds=None,
        )
        is_identity = made.condition is None and made.row == below.row
        if is_identity and list(made.projections) == references(below.row):
            return below, kept
        return made, kept

    def keeps_time(self, column: int) -> bool:
        each = self.projections[column]
        return not isinstance(each, InputReference) or self.input.keeps_time(each.index)

    def windows(self) -> WindowColumns | None:
        below = self.input.windows()
        return None if below is None else below.moved(places_of(self.projections))

    def unique_keys(self) -> pp.Keys:
        places: dict[int, int] = {}
        for position, each in enumerate(self.projections):
            column = _column_of(each)
            if column is not None:
                places.setdefault(column, position)
        return frozenset(
            frozenset(places[column] for column in key)
            for key in self.input.unique_keys()
            if all(column in places for column in key)
        )

    def planned(self, planner: pp.PlansChanges, required: str) -> pp.PhysicalNode | None:
        if self.condition is not None and required == pp.AFTER:
            # A row may leave by its update: without -U nobody would know.
            return None
        return super().planned(planner, required)

    def unsure(
        self, below: Sequence[frozenset[int]], is_unsure: Callable[[Expression, Any], bool]
    ) -> frozenset[int]:
        by_filter = self.condition is not None and is_unsure(self.condition, below[0])
        if by_filter or pp.ROW in below[0]:
            return frozenset((pp.ROW, *range(len(self.projections))))
        pairs = enumerate(self.projections)
        return frozenset(position for position, each in pairs if is_unsure(each, below[0]))

    def all_words(self, origins: pp.Origins) -> str:
        condition = origins.text(self.condition, origins.columns(self.input))
        return f"Calc [{', '.join(origins.columns(self))}] [{condition}]"

    def made_of(self, origins: pp.Origins) -> list[str]:
        below = origins.columns(self.input)
        return [origins.text(each, below) for each in self.projections]

    def operator(self, lowering: pp.Lowers) -> Transformation:
        keeps_times = lowering.are_times_read(self)
        factory = lowering.factory(CalcFactory, self, keeps_times=keeps_times)
        return lowering.one("Calc", factory, lowering.stream(self.input), self.row)


def _column_of(expression: Expression) -> int | None:
    """The column of which an expression has one value for each value; None: of none."""
    if isinstance(expression, Call) and expression.function == "CAST":
        (operand,) = expression.arguments
        if isinstance(operand, InputReference) and _keeps_apart(operand.type, expression.type):
            return operand.index
    return expression.index if isinstance(expression, InputReference) else None


def _keeps_apart(source: lt.LogicalType, target: lt.LogicalType) -> bool:
    """Check whether a cast gives other values for other values, as Flink sees it."""
    if source.root in _INTEGERS and target.root in _INTEGERS:
        return _INTEGERS.index(source.root) <= _INTEGERS.index(target.root)
    if isinstance(target, lt.CharType | lt.VarCharType):
        if isinstance(source, lt.CharType | lt.VarCharType):
            return source.length <= target.length
        return target.length == lt.VarCharType().length and source.root in _OF_ONE_TEXT
    return needs_no_cast(source.with_nullability(target.is_nullable), target)


class Exchange(pp.PhysicalNode):
    """Brings rows of one key to one task."""

    #: None: all rows to one task.
    keys: pp.Columns | None

    passes_changes = True
    passes_unsure = True
    is_shared = True
    is_pruned = True
    reads_keys = False

    def details(self) -> str:
        if not self.keys:
            return "distribution=[single]"
        return f"distribution=[hash[{columns_text(self.row, self.keys)}]]"

    def narrowed(
        self, wanted: set[int], narrow: Callable[[pp.PhysicalNode], pp.Narrowed]
    ) -> pp.Narrowed:
        (needed,) = self.needed(wanted)
        below, kept = narrow(self.input)
        if len(needed) < len(kept):
            chosen = [at for at, column in enumerate(kept) if column in needed]
            columns = references(below.row)
            kept = sorted(needed)
            below = Calc(
                row=pp.some_fields(below.row, chosen),
                inputs=(below,),
                projections=tuple(columns[each] for each in chosen),
            )
        if below is self.input:
            return self, kept
        keys = pp.with_columns(self.keys, kept.index)
        return replace(self, row=below.row, inputs=(below,), keys=keys, kinds=None), kept

    def keeps_time(self, column: int) -> bool:
        return self.input.keeps_time(column)

    def windows(self) -> WindowColumns | None:
        return self.input.windows()

    def unique_keys(self) -> pp.Keys:
        wanted = set(self.keys or ())
        return frozenset(key for key in self.input.unique_keys() if wanted <= key)

    def operator(self, lowering: pp.Lowers) -> Transformation:
        return lowering.keyed(self.keys or (), lowering.stream(self.input))


class Union(pp.PhysicalNode):
    """All rows of all inputs."""

    passes_changes = True
    passes_unsure = True
    is_shared = True

    def details(self) -> str:
        return f"all=[true], union=[{self.fields_text()}]"

    def keeps_time(self, column: int) -> bool:
        return all(each.keeps_time(column) for each in self.inputs)

    def words(self, origins: pp.Origins) -> str:
        del origins
        return f"Union {len(self.inputs)}"

    def made_of(self, origins: pp.Origins) -> list[str]:
        members = zip(*map(origins.columns, self.inputs), strict=True)
        return [
            each[0] if len(set(each)) == 1 else origins.short(" | ".join(each)) for each in members
        ]

    def operator(self, lowering: pp.Lowers) -> Transformation:
        return lowering.union(self, [lowering.stream(each) for each in self.inputs])


class Converts(Protocol):
    """The part of the converter that the rules use."""

    #: Whether all input has an end, behind which rows are sorted.
    is_batch: bool
    #: Over how many the values of DISTINCT are spread; None: they are not.
    distinct_buckets: int | None
    #: Whether sources of changes may repeat them.
    changes_repeat: bool

    def convert(self, node: LogicalNode) -> pp.PhysicalNode:
        """The physical plan of a node."""


def places_of(expressions: Sequence[Expression]) -> dict[int, list[int]]:
    """Where the columns stand behind a projection."""
    found: dict[int, list[int]] = {}
    for position, each in enumerate(expressions):
        if isinstance(each, InputReference):
            found.setdefault(each.index, []).append(position)
    return found


def conjuncts(expression: Expression | None) -> list[Expression]:
    """Return what AND connects."""
    if isinstance(expression, Call) and expression.function == "AND":
        return [part for each in expression.arguments for part in conjuncts(each)]
    return [] if expression is None else [expression]


def conjunction(parts: Sequence[Expression]) -> Expression | None:
    """All of them, connected by AND."""
    found: Expression | None = None
    for each in parts:
        if found is None:
            found = each
        else:
            nullable = found.type.is_nullable or each.type.is_nullable
            found = Call("AND", (found, each), found.type.with_nullability(nullable))
    return found


def substituted(expression: Expression, columns: Sequence[Expression]) -> Expression:
    """The expression with other expressions in the place of its columns."""

    def change(each: Any) -> Any:
        return columns[each.index] if isinstance(each, InputReference) else each

    return transform(expression, change)


def is_deterministic(expression: Expression) -> bool:
    """Return whether it gives the same for the same row, whenever it is asked."""
    for each in walk(expression):
        if isinstance(each, Call):
            definition = each.definition or find_function(each.function)
            if definition is not None and not definition.deterministic:
                return False
    return True


def reads_once(
    readers: Sequence[Expression], columns: Sequence[Expression], *, most: int = 1
) -> bool:
    """Return whether columns can be put into the place of those who read them.

    One that is not deterministic would have another value for each reader.

    Args:
        readers: expressions over the columns.
        columns: what the columns are made of.
        most: how many readers a column may have that is not deterministic.
    """
    read = Counter(
        each.index for one in readers for each in walk(one) if isinstance(each, InputReference)
    )
    return all(read[at] <= most or is_deterministic(each) for at, each in enumerate(columns))


def calc(
    below: pp.PhysicalNode,
    projections: Sequence[Expression],
    row: lt.RowType,
    condition: Expression | None = None,
) -> pp.PhysicalNode:
    """A calc over a node, merged with one that is there."""
    if isinstance(below, Calc) and all(map(is_deterministic, below.projections)):
        inner = below.projections
        projections = [substituted(each, inner) for each in projections]
        own = [] if condition is None else [substituted(condition, inner)]
        condition = conjunction([*conjuncts(below.condition), *own])
        below = below.input
    identity = tuple(references(below.row)) == tuple(projections)
    if condition is None and identity and row == below.row:
        return below
    return Calc(row=row, inputs=(below,), projections=tuple(projections), condition=condition)


def exchange(below: pp.PhysicalNode, keys: tuple[int, ...] | None) -> pp.PhysicalNode:
    """The rows of one key in one task."""
    return Exchange(row=below.row, inputs=(below,), keys=keys or None)


def is_rowtime(kind: object) -> bool:
    """Return whether a type is that of an event time attribute."""
    return getattr(kind, "kind", None) is lt.TimestampKind.ROWTIME


def keeps_time(call: Call) -> bool:
    """Return whether a call is a cast that leaves each point in time as it is."""
    if call.function != "CAST":
        return False
    before, after = call.arguments[0].type, call.type
    for kind in (lt.TimestampType, lt.LocalZonedTimestampType):
        if isinstance(before, kind) and isinstance(after, kind):
            return after.precision >= before.precision
    return False


def moved(expression: Expression, shift: int) -> Expression:
    """The expression with its columns further to the right."""
    made: Expression = pp.with_columns(expression, lambda column: column + shift)
    return made


def plain(kind: lt.LogicalType) -> lt.LogicalType:
    """The type of a column where it is no time attribute any more."""
    if isinstance(kind, lt.TimestampType | lt.LocalZonedTimestampType) and kind.is_time_attribute:
        return kind.with_parameters(kind=lt.TimestampKind.REGULAR)
    return kind


def check_window_time(node: pp.PhysicalNode, column: int) -> None:
    """Refuse a window over a column that is no time attribute any more.

    Raises:
        ValidationError: names the column.
    """
    if not node.keeps_time(column):
        message = (
            "The window function requires the timecol is a time attribute type, but "
            f"'{node.row.names[column]}' comes through a regular join or DISTINCT, where a time "
            "attribute ends."
        )
        raise ValidationError(message)
