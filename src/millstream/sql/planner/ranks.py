"""Numbered rows and first rows: Top-N, deduplication and LIMIT."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.errors import ValidationError
from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.runtime.operators.table.calc import CalcFactory
from millstream.runtime.operators.table.deduplicate import DeduplicateFactory
from millstream.runtime.operators.table.specs import RankStrategy, SortColumn
from millstream.runtime.operators.table.top_n import TopNFactory
from millstream.sql.planner import physical as pp
from millstream.sql.planner.aggregates import GroupAggregate
from millstream.sql.planner.calcs import (
    Calc,
    Converts,
    Exchange,
    calc,
    conjunction,
    conjuncts,
    exchange,
    substituted,
)
from millstream.sql.planner.formatting import columns_text, ranked_text
from millstream.sql.planner.logical import OverNode, ProjectNode, references, row_of
from millstream.sql.planner.windows import window_rank
from millstream.types.logical_types import BigIntType, IntType, TimestampKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.graph.transformation import Transformation


RANKS: Final = frozenset({"ROW_NUMBER", "RANK", "DENSE_RANK"})
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


class Deduplicate(pp.PhysicalNode):
    """The first or last row per key."""

    keys: pp.Columns
    #: None: by arrival.
    rowtime: pp.Column | None
    keep_last: bool

    takes_inserts = True
    is_shared = True
    is_pruned = True
    goes_by_columns = True
    place = "{kept} [{keys}] [{rowtime}] [{inputs}]"
    state: ClassVar[pp.Parts] = {
        "keeps": "the {kept} row",
        "keys": "*keys",
        "order": "*rowtime",
        "columns": "*inputs",
    }

    @property
    def kept(self) -> str:
        """Which row is kept, in a word."""
        return "last" if self.keep_last else "first"

    def details(self) -> str:
        keep = "LastRow" if self.keep_last else "FirstRow"
        order = "PROCTIME" if self.rowtime is None else "ROWTIME"
        return f"keep=[{keep}], key=[{columns_text(self.row, self.keys)}], order=[{order}]"

    def unique_keys(self) -> pp.Keys:
        return pp.key_of(self.keys)

    def change_types(self) -> frozenset[str]:
        super().change_types()
        first_by_arrival = not self.keep_last and self.rowtime is None
        return pp.INSERTS if first_by_arrival else pp.ALL_CHANGES

    def operator(self, lowering: pp.Lowers) -> Transformation:
        factory = lowering.factory(DeduplicateFactory, self)
        return lowering.stateful(self, factory, single=not self.keys)


class Rank(pp.PhysicalNode):
    """The rows of each partition whose number is in a range."""

    function: str
    partition: pp.Columns
    order: pp.Order
    start: int
    end: int
    outputs_rank: bool
    #: append, retract or update fast; set by the changelog planning.
    strategy: str = "retract"
    #: For update fast.
    row_key: tuple[int, ...] = ()

    is_shared = True
    is_pruned = True
    goes_by_columns = True
    place = "{function} {start} {end} {strategy} [{partition}] [{order}] [{inputs}]"
    state: ClassVar[pp.Parts] = {
        "keeps": "{function} {start} to {end}",
        "keys": "*partition",
        "order": "*order",
        "columns": "*inputs",
        "strategy": "{strategy}",
    }

    def details(self) -> str:
        below = self.input.row
        strategies = {
            "append": "AppendFastStrategy",
            "retract": "RetractStrategy",
            "update fast": f"UpdateFastStrategy[{columns_text(below, self.row_key)}]",
        }
        return f"strategy=[{strategies[self.strategy]}], {ranked_text(self, self.input.row)}"

    def unique_keys(self) -> pp.Keys:
        if self.start == self.end:
            return pp.key_of(self.partition)
        if self.outputs_rank:
            # A row that leaves is only replaced at its number: nothing tells that its key is gone.
            return pp.key_of((*self.partition, len(self.input.row)))
        # Behind an offset rows move from number to number, each by an update of another row: a row
        # may come at its new number before it goes from its old one.
        return pp.NO_KEYS if self.start > 1 else self.input.unique_keys()

    def change_types(self) -> frozenset[str]:
        super().change_types()
        return pp.ALL_CHANGES

    def planned(self, planner: pp.PlansChanges, required: str) -> pp.PhysicalNode | None:
        if pp.kinds_of(self.input) == pp.INSERTS:
            below = planner.visit(self.input, pp.NO_UPDATES)
            return planner.made(self, [below], required, strategy="append")
        keys = (each for each in self.input.unique_keys() if set(self.partition) <= each)
        key = pp.smallest(frozenset(keys))
        if key is not None and self._moves_up():
            below = planner.visit(self.input, pp.AFTER)
            made = planner.made(self, [below], required, strategy="update fast", row_key=key)
            if made is not None:
                return made
        below = planner.visit(self.input, pp.BOTH)
        return planner.made(self, [below], required, strategy="retract")

    def _moves_up(self) -> bool:
        """Return whether updates of a row only ever move it forward in the order."""
        return bool(self.order) and all(
            _direction(self.input, each.column, nulls_first=each.nulls_first)
            == ("down" if not each.descending else "up")
            for each in self.order
        )

    def kept_by(self, side: int) -> Iterable[int]:
        del side
        if self.strategy == "update fast":
            order = (each.column for each in self.order)
            return (pp.ROW, *self.partition, *order, *self.row_key)
        return (pp.ROW, *range(len(self.input.row)))

    def operator(self, lowering: pp.Lowers) -> Transformation:
        factory = lowering.factory(TopNFactory, self, strategy=RankStrategy(self.strategy))
        return lowering.stateful(self, factory, single=not self.partition)


def _direction(node: pp.PhysicalNode, column: int, *, nulls_first: bool) -> str | None:
    """Return whether the values of a column of a key only grow or only shrink.

    MIN and MAX of nothing are NULL, and become values later: that is only a way forward if NULL
    stands behind all values.
    """
    while True:
        if isinstance(node, Calc):
            each = node.projections[column]
            if not isinstance(each, InputReference) or node.condition is not None:
                return None
            column, node = each.index, node.input
        elif isinstance(node, Exchange):
            node = node.input
        else:
            break
    if not isinstance(node, GroupAggregate) or pp.kinds_of(node.input) != pp.INSERTS:
        return None
    if column < len(node.keys):
        return None
    call = node.calls[column - len(node.keys)]
    if call.user is not None or (call.type.is_nullable and nulls_first):
        return None
    return {"COUNT": "up", "MAX": "up", "MIN": "down"}.get(call.function)


class Limit(pp.PhysicalNode):
    """The first rows as they come."""

    offset: int
    limit: int

    needs_before = True
    passes_unsure = True
    place = "{offset} {limit} [{inputs}]"
    state: ClassVar[pp.Parts] = {"keeps": "{limit} rows behind {offset}", "columns": "*inputs"}

    def details(self) -> str:
        return f"offset=[{self.offset}], fetch=[{self.limit}]"

    def unique_keys(self) -> pp.Keys:
        return pp.NO_KEYS if self.offset else self.input.unique_keys()

    def change_types(self) -> frozenset[str]:
        return pp.INSERTS if super().change_types() == pp.INSERTS else pp.ALL_CHANGES

    def kept_by(self, side: int) -> Iterable[int]:
        return (pp.ROW, *range(len(self.inputs[side].row)))

    def operator(self, lowering: pp.Lowers) -> Transformation:
        """Make a Top-N by a constant of the first rows as they come."""
        below = self.input.row
        zero = Literal(0, IntType(nullable=False))
        row = row_of([*below.names, "$zero"], [*below.children, zero.type])
        columns: tuple[Expression, ...] = (*references(below), zero)
        before = Calc(row=row, inputs=(self.input,), projections=columns)
        append = self.input.is_insert_only
        factory = lowering.factory(
            TopNFactory,
            self,
            input_type=row,
            keys=(),
            order=(SortColumn(len(below)),),
            start=self.offset + 1,
            end=self.offset + self.limit,
            output_rank=False,
            strategy=RankStrategy.APPEND if append else RankStrategy.RETRACT,
        )
        ranked = lowering.one(
            self.kind, factory, before.operator(lowering), row, of=self, single=True
        )
        drop = lowering.factory(
            CalcFactory,
            self,
            input_type=row,
            projections=tuple(references(below)),
            evaluation=lowering.evaluation,
        )
        return lowering.one("Calc", drop, ranked, self.row)


# -- rules ---------------------------------------------------------------------------------------


def rank_of(converter: Converts, node: Any, *, with_number: bool = True) -> pp.PhysicalNode | None:
    """A filter over numbered rows as a Top-N or a deduplication; None if it is no such filter.

    Numbers without an upper bound are those of OVER, if rows are numbered in the order of time or
    all are there.

    Args:
        converter: of what is below.
        node: the filter.
        with_number: whether columns that are made of the number are read; else they are NULL.
    """
    found = _numbered(node)
    if found is None:
        return None
    below, projections, columns = found
    if converter.is_batch and below.calls[0].call.function != "ROW_NUMBER":
        return None
    number = len(below.input.row)
    first, last, rest = _range(node.condition, columns, number)
    if last is None:
        if converter.is_batch or _is_by_time(below):
            return None
        message = "ROW_NUMBER needs an upper bound, such as WHERE rownum <= 10."
        raise ValidationError(message)
    reads = any(number in pp.columns_of(substituted(each, columns)) for each in rest)
    shows = with_number and any(number in pp.columns_of(each) for each in columns)
    wants_number = reads or shows
    ranked = _rank(converter, below, first, last, outputs=wants_number and not (first == last == 1))
    if wants_number and first == last == 1:
        # There is only the first.
        one = Literal(1, BigIntType(nullable=False))
        numbered: list[Expression] = [*references(ranked.row), one]
        row = row_of([*ranked.row.names, "$rank"], [each.type for each in numbered])
        ranked = calc(ranked, numbered, row)
    if not wants_number:
        projections = _unnumbered(projections, number)
    # One after the other, so that what is random and has several readers is computed once.
    for each in projections:
        ranked = calc(ranked, each.expressions, each.row)
    return calc(ranked, references(ranked.row), node.row, conjunction(rest))


def _unnumbered(projections: Sequence[ProjectNode], number: int) -> list[ProjectNode]:
    """Projections over numbered rows without the number: what is made of it is NULL."""
    made, missing = [], {number}
    for each in projections:
        without = {at for at, one in enumerate(each.expressions) if pp.columns_of(one) & missing}
        expressions = tuple(
            Literal(None, one.type) if at in without else one
            for at, one in enumerate(each.expressions)
        )
        made.append(replace(each, expressions=expressions))
        missing = without
    return made


def _numbered(node: Any) -> tuple[OverNode, list[ProjectNode], list[Expression]] | None:
    """What numbers the rows that a filter reads, the projections over it, from below, and columns.

    The columns are those that the filter reads, as they are made of what is numbered.
    """
    projections: list[ProjectNode] = []
    below = node.input
    while isinstance(below, ProjectNode):
        projections.append(below)
        below = below.input
    if not isinstance(below, OverNode):
        return None
    if len(below.calls) != 1 or below.calls[0].call.function not in RANKS:
        return None
    columns: list[Expression] = list(references(below.row))
    projections.reverse()
    for each in projections:
        columns = [substituted(one, columns) for one in each.expressions]
    return below, projections, columns


def number_columns(node: Any) -> set[int]:
    """The columns of a filter over numbered rows that are made of the number."""
    numbered = _numbered(node)
    if numbered is None:
        return set()
    below, _, columns = numbered
    number = len(below.input.row)
    return {at for at, each in enumerate(columns) if number in pp.columns_of(each)}


def _range(
    condition: Expression, columns: Sequence[Expression], number: int
) -> tuple[int, int | None, list[Expression]]:
    """The first and the last number that a filter leaves, and what else it says."""
    first, last, rest = 1, None, []
    for part in conjuncts(condition):
        bound = _bound(substituted(part, columns), number)
        if bound is None:
            rest.append(part)
            continue
        operator, value = bound
        if operator in {"<", "<=", "="}:
            limit_ = value - 1 if operator == "<" else value
            last = limit_ if last is None else min(last, limit_)
        if operator in {">", ">=", "="}:
            first = max(first, value + 1 if operator == ">" else value)
    return first, last, rest


def _bound(part: Expression, number: int) -> tuple[str, int] | None:
    if not isinstance(part, Call) or part.function not in _FLIPPED:
        return None
    one, other = (_bare(each) for each in part.arguments)
    operator = part.function
    if isinstance(one, Literal):
        one, other, operator = other, one, _FLIPPED[operator]
    if isinstance(one, InputReference) and one.index == number and isinstance(other, Literal):
        return (operator, other.value) if isinstance(other.value, int) else None
    return None


def _bare(expression: Expression) -> Expression:
    if isinstance(expression, Call) and expression.function == "CAST":
        return expression.arguments[0]
    return expression


def _rank(
    converter: Converts, node: OverNode, first: int, last: int, *, outputs: bool
) -> pp.PhysicalNode:
    call = node.calls[0].call
    if last < first or last < 1:
        message = f"ROW_NUMBER between {first} and {last} leaves no rows."
        raise ValidationError(message)
    if call.function != "ROW_NUMBER":
        message = f"{call.function}() on streaming table is not supported currently."
        raise ValidationError(message)
    below = converter.convert(node.input)
    windowed = window_rank(node, below, first, last, outputs=outputs)
    if windowed is not None:
        return windowed
    moved = exchange(below, node.partition)
    time = time_order(node)
    if time is not None and not below.keeps_time(node.order[0].column):
        time = None
    if first == last == 1 and time is not None and not outputs:
        attribute, descending = time
        rowtime = node.order[0].column if attribute is TimestampKind.ROWTIME else None
        return Deduplicate(
            row=below.row,
            inputs=(moved,),
            keys=node.partition,
            rowtime=rowtime,
            keep_last=descending,
        )
    row = below.row
    if outputs:
        row = row_of([*row.names, node.row.names[-1]], [*row.children, node.row.children[-1]])
    return Rank(
        row=row,
        inputs=(moved,),
        function=call.function,
        partition=node.partition,
        order=node.order,
        start=first,
        end=last,
        outputs_rank=outputs,
    )


def time_order(node: OverNode) -> tuple[TimestampKind, bool] | None:
    """The kind of time that rows are in the order of, and whether descending; None: of another."""
    if len(node.order) != 1:
        return None
    kind = node.input.row.fields[node.order[0].column].type
    attribute = getattr(kind, "kind", TimestampKind.REGULAR)
    if attribute is TimestampKind.REGULAR:
        return None
    return attribute, node.order[0].descending


def _is_by_time(node: OverNode) -> bool:
    """Return whether rows are in the order of a time attribute."""
    time = time_order(node)
    return time is not None and not time[1]


def first_rows(below: pp.PhysicalNode, node: Any) -> Rank:
    """The first rows in an order."""
    return Rank(
        row=below.row,
        inputs=(exchange(below, None),),
        function="ROW_NUMBER",
        partition=(),
        order=node.order,
        start=node.offset + 1,
        end=node.offset + node.limit,
        outputs_rank=False,
    )
