"""GROUP BY: group aggregates, grouping sets, DISTINCT values in buckets, and two phases.

Flink's SplitAggregateRule spreads the DISTINCT values of one hot group over subtasks.  Each bucket
of values is a group, whose results are then merged::

    GroupAggregate(groupBy=[k], [$SUM0(n)])                  n per bucket, retracted on updates
    +- Exchange(hash[k])
       +- GroupAggregate(groupBy=[k, $b], [COUNT(DISTINCT v) AS n])
          +- Exchange(hash[k, $b])
             +- Calc(k, v, MOD(HASH_CODE(v), 1024) AS $b)

Other aggregates beside those of DISTINCT are computed per bucket, too.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.expressions.evaluator import fold
from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.runtime.operators.table.aggregate_calls import can_be_partial
from millstream.runtime.operators.table.calc import ExpandFactory
from millstream.runtime.operators.table.group_aggregate import (
    GroupAggregateFactory,
    LocalGroupAggregateFactory,
)
from millstream.sql.planner import formatting as fmt
from millstream.sql.planner import logical as lp
from millstream.sql.planner import physical as pp
from millstream.sql.planner.calcs import Exchange, calc, exchange, plain
from millstream.sql.stream_types import partial_type
from millstream.types.logical_types import BigIntType, BooleanType, IntType
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.expressions.context import EvaluationContext
    from millstream.expressions.nodes import Expression
    from millstream.graph.transformation import Transformation
    from millstream.runtime.operators.table.specs import AggregateCall
    from millstream.sql.planner.calcs import Converts
    from millstream.sql.planner.window_columns import WindowColumns
    from millstream.types.logical_types import LogicalType, RowType


#: Aggregate -> what puts the results of buckets together.
_FINAL: Final = {"COUNT": "$SUM0", "$SUM0": "$SUM0", "SUM": "SUM", "MIN": "MIN", "MAX": "MAX"}
_SPREAD: Final = (TypeFamily.INTEGER_NUMERIC, TypeFamily.CHARACTER_STRING)


class TwoPhaseAggregate(pp.PhysicalNode):
    """An aggregate by key that may be computed in part ahead of its exchange."""

    keys: pp.Columns
    calls: pp.Calls
    #: Whether each batch, or its slices of windows, is aggregated by itself ahead of the exchange.
    two_phase: bool = False
    _shown: Exchange | None = field(default=None, repr=False)

    is_shared = True
    goes_by_columns = True
    state: ClassVar[pp.Parts] = {"keys": "*keys", "aggregates": "*calls"}

    @abstractmethod
    def splits(self, *, mini_batch: bool) -> bool:
        """Return whether it should run in two phases, if it can be split."""

    @abstractmethod
    def local(self) -> pp.PhysicalNode:
        """The aggregate ahead of the exchange."""

    @property
    def group_text(self) -> str:
        """The keys, as EXPLAIN shows them."""
        return f"groupBy=[{fmt.columns_text(self.input.row, self.keys)}], " if self.keys else ""

    @property
    def suffix(self) -> str:
        """What EXPLAIN adds to the names of aggregates whose rows may be retracted."""
        return "" if self.input.is_insert_only else "_RETRACT"

    @property
    def shown_kind(self) -> str:
        return f"Global{self.kind}" if self.two_phase else self.kind

    @property
    def shown_inputs(self) -> tuple[pp.PhysicalNode, ...]:
        """In two phases, the exchange is of what the local aggregate gives."""
        if not self.two_phase:
            return self.inputs
        if self._shown is None:
            keys = tuple(range(len(self.keys))) or None
            self._shown = Exchange(row=self.row, inputs=(self.local(),), keys=keys)
        return (self._shown,)

    @property
    def can_be_split(self) -> bool:
        """Whether partial results can be made ahead of its exchange, and added up."""
        exchange = self.input
        if not self.calls or not isinstance(exchange, Exchange):
            return False
        if any(call.user is not None for call in self.calls):  # one phase, as in Flink
            return False
        retracts = not exchange.is_insert_only
        return can_be_partial(self.calls, exchange.row, retracts=retracts)

    def made_of(self, origins: pp.Origins) -> list[str]:
        below = origins.columns(self.input)
        made = [below[key] for key in self.keys]
        return [*made, *(origins.call(self, call) for call in self.calls)]

    def ahead(self, lowering: pp.Lowers, factory: Any, output: Any) -> Transformation:
        """Return what is aggregated of each batch, its keys first, and the exchange behind it."""
        below = lowering.stream(self.input.input)
        local = lowering.one(f"Local{self.kind}", factory, below, output)
        return lowering.keyed(range(len(self.keys)), local)


class GroupAggregate(TwoPhaseAggregate):
    """One row per key: keys, then aggregates."""

    #: Milliseconds, of a hint; None: as the option says.
    state_ttl: int | None = None

    needs_before = True
    place = "[{keys}] [{calls}]"

    def splits(self, *, mini_batch: bool) -> bool:
        return mini_batch

    def local(self) -> pp.PhysicalNode:
        return LocalGroupAggregate(
            row=self.input.row, inputs=self.input.inputs, keys=self.keys, calls=self.calls
        )

    def details(self) -> str:
        below = self.input.row
        names = self.row.names[len(self.keys) :]
        shown = [below.names[key] for key in self.keys]
        suffix = self.suffix
        calls = [fmt.aggregate_text(call, below, suffix) for call in self.calls]
        if self.two_phase:
            calls = [
                f"{call.function}{suffix}({fmt.partial_name(call, number)})"
                for number, call in enumerate(self.calls)
            ]
        shown += [f"{call} AS {name}" for call, name in zip(calls, names, strict=True)]
        ttl = (
            "" if self.state_ttl is None else f", stateTtlHints=[{fmt.length_text(self.state_ttl)}]"
        )
        return f"{self.group_text}select=[{', '.join(shown)}]{ttl}"

    def keeps_time(self, column: int) -> bool:
        del column
        return False

    def unique_keys(self) -> pp.Keys:
        return pp.key_of(range(len(self.keys)))

    def change_types(self) -> frozenset[str]:
        if pp.kinds_of(self.input) == pp.INSERTS:
            return frozenset("IU") if self.calls else pp.INSERTS
        return pp.ALL_CHANGES

    def kept_by(self, side: int) -> Iterable[int]:
        del side
        return {pp.ROW, *self.keys} | pp.named_columns(self.calls)

    def operator(self, lowering: pp.Lowers) -> Transformation:
        retracts = not self.input.is_insert_only
        calls = lowering.aggregates(self.calls, retracts=retracts)
        factory = lowering.factory(
            GroupAggregateFactory, self, aggregates=calls, retracts=retracts, merges=self.two_phase
        )
        below = None
        if self.two_phase:
            local = LocalGroupAggregateFactory(
                factory.input_type, factory.keys, calls, retracts=retracts
            )
            below = self.ahead(lowering, local, partial_type(local))
        return lowering.stateful(self, factory, single=not self.keys, below=below)


class LocalGroupAggregate(pp.PhysicalNode):
    """The aggregates of each batch by itself, ahead of the exchange.

    It is only shown: what it does is a part of the aggregate that it belongs to.
    """

    keys: pp.Columns
    calls: pp.Calls

    def details(self) -> str:
        below = self.input.row
        group = f"groupBy=[{fmt.columns_text(below, self.keys)}], " if self.keys else ""
        suffix = "" if self.input.is_insert_only else "_RETRACT"
        shown = [below.names[key] for key in self.keys]
        shown += [
            f"{fmt.aggregate_text(call, below, suffix)} AS {fmt.partial_name(call, number)}"
            for number, call in enumerate(self.calls)
        ]
        if suffix:
            shown.append("COUNT_RETRACT(*) AS count1$")
        return f"{group}select=[{', '.join(shown)}]"


class Expand(pp.PhysicalNode):
    """Each row once per grouping set, with NULL for the keys that are not in it."""

    #: For each set: positions of its keys.
    sets: tuple[tuple[int, ...], ...]
    keys: pp.Columns

    passes_changes = True

    def details(self) -> str:
        names = self.input.row.names
        shown = ", ".join("{" + ", ".join(names[each] for each in part) + "}" for part in self.sets)
        return f"projects=[{shown}]"

    def windows(self) -> WindowColumns | None:
        return self.input.windows()

    def words(self, origins: pp.Origins) -> str:
        below = origins.columns(self.input)
        return f"{self.kind} {'; '.join(', '.join(below[at] for at in part) for part in self.sets)}"

    def operator(self, lowering: pp.Lowers) -> Transformation:
        below = lowering.stream(self.input)
        return lowering.one(self.kind, ExpandFactory(self.keys, self.sets), below, self.row)


def aggregate_in_two_phases(plans: list[pp.Plan], *, mini_batch: bool) -> list[pp.Plan]:
    """Mark the aggregates that run in two phases; changelog planning must be done.

    Args:
        plans: of all sinks.
        mini_batch: whether aggregates without windows may run in two phases.
    """
    for node in pp.nodes_of(plans):
        if isinstance(node, TwoPhaseAggregate):
            node.two_phase = node.splits(mini_batch=mini_batch) and node.can_be_split
    return plans


# -- rules ---------------------------------------------------------------------------------------


def aggregate(converter: Converts, node: Any) -> pp.PhysicalNode:
    """Group rows that no window groups, over all keys or over grouping sets."""
    below = converter.convert(node.input)
    sets = grouped_sets(node)
    if sets is None:
        return _grouped(converter, node, node.row, below, node.keys)
    width, count = len(below.row), len(node.keys)
    of_sets = tuple(tuple(node.keys[each] for each in part) for part in sets)
    expanded = expand(below, node.keys, node.row.children[:count], of_sets)
    keys = tuple(range(width, len(expanded.row)))
    row = lp.row_of(
        [*expanded.row.names[width:], *(f"$a{i}" for i in range(len(node.calls)))],
        [*expanded.row.children[width:], *(call.type for call in node.calls)],
    )
    grouped = _grouped(converter, node, row, expanded, keys)
    columns = lp.references(row)
    shown: list[Expression] = [*columns[:count], *columns[count + 1 :]]
    shown += [grouping(columns[count], sets, wanted) for wanted in node.groupings]
    return calc(grouped, shown, node.row)


def distinct(converter: Converts, node: lp.DistinctNode) -> pp.PhysicalNode:
    """Give each row once."""
    below = converter.convert(node.input)
    keys = tuple(range(len(below.row)))
    return GroupAggregate(
        row=node.row,
        inputs=(exchange(below, keys),),
        keys=keys,
        calls=(),
        state_ttl=node.state_ttl,
    )


def _grouped(
    converter: Converts, node: Any, row: RowType, below: pp.PhysicalNode, keys: tuple[int, ...]
) -> GroupAggregate:
    """An aggregation, in two steps if it has DISTINCT values that can be spread."""
    row = lp.row_of(row.names, [plain(each) for each in row.children])
    calls, buckets = node.calls, converter.distinct_buckets
    if buckets is not None and (spread := _spread_column(below.row, calls)) is not None:
        below, keys, calls = _per_bucket(below, keys, calls, node.state_ttl, spread, buckets)
    return GroupAggregate(
        row=row, inputs=(exchange(below, keys),), keys=keys, calls=calls, state_ttl=node.state_ttl
    )


def _spread_column(row: RowType, calls: Sequence[AggregateCall]) -> int | None:
    """The column by which the values of DISTINCT are spread; None: they cannot be.

    The same values must be in the same bucket for all aggregates, so all are of the same columns.
    """
    if any(call.user is not None or call.function not in _FINAL for call in calls):
        return None
    found = {call.arguments for call in calls if call.distinct}
    if len(found) != 1:
        return None
    (arguments,) = found
    return next((each for each in arguments if _can_be_spread(row.children[each])), None)


def _can_be_spread(kind: LogicalType) -> bool:
    return any(kind.is_a(family) for family in _SPREAD)


def _per_bucket(
    below: pp.PhysicalNode,
    keys: tuple[int, ...],
    calls: tuple[AggregateCall, ...],
    state_ttl: int | None,
    spread: int,
    buckets: int,
) -> tuple[pp.PhysicalNode, tuple[int, ...], tuple[AggregateCall, ...]]:
    """The aggregation of buckets, and keys and aggregates of that over them."""
    width, count = len(below.row), len(keys)
    value = below.row.fields[spread]
    number = IntType(nullable=value.type.is_nullable)
    code = Call("HASH_CODE", (InputReference(spread, value.name, value.type),), number)
    bucket = Call("MOD", (code, Literal(buckets, IntType(nullable=False))), number)
    with_bucket = calc(
        below,
        [*lp.references(below.row), bucket],
        lp.row_of([*below.row.names, "$b"], [*below.row.children, number]),
    )
    grouped = (*keys, width)
    names = [
        *(with_bucket.row.names[key] for key in grouped),
        *(f"$p{i}" for i in range(len(calls))),
    ]
    types = [plain(with_bucket.row.children[key]) for key in grouped]
    partial = GroupAggregate(
        row=lp.row_of(names, [*types, *(call.type for call in calls)]),
        inputs=(exchange(with_bucket, grouped),),
        keys=grouped,
        calls=calls,
        state_ttl=state_ttl,
    )
    final = tuple(
        replace(
            call,
            function=_FINAL[call.function],
            arguments=(count + 1 + at,),
            filter=None,
            distinct=False,
        )
        for at, call in enumerate(calls)
    )
    return partial, tuple(range(count)), final


def aggregate_of_nothing(node: Any, context: EvaluationContext) -> lp.ValuesNode | None:
    """The row of an aggregate of no rows; None: it has keys, or there may be rows.

    Args:
        node: the aggregate.
        context: of the session, in whose time zone conditions are.
    """
    if node.keys or node.sets is not None or node.groupings:
        return None
    if not _is_empty(node.input, context):
        return None
    if any(
        call.user or not (call.function == "COUNT" or call.type.is_nullable) for call in node.calls
    ):
        return None
    values = tuple(0 if call.function == "COUNT" else None for call in node.calls)
    return lp.ValuesNode(row=node.row, rows=(values,))


def _is_empty(plan: lp.LogicalNode, context: EvaluationContext) -> bool:
    """Return whether a condition that is never true stands above all rows."""
    while isinstance(plan, lp.ProjectNode | lp.FilterNode):
        if isinstance(plan, lp.FilterNode):
            condition = fold(plan.condition, context)
            if isinstance(condition, Literal) and condition.value is not True:
                return True
        plan = plan.input
    return False


def grouped_sets(node: Any) -> tuple[tuple[int, ...], ...] | None:
    """The sets of an aggregation, as positions in its keys; None: it is over all keys alone."""
    if node.sets is None and not node.groupings:
        return None
    return node.sets or (tuple(range(len(node.keys))),)


def expand(
    below: pp.PhysicalNode,
    keys: tuple[int, ...],
    types: Sequence[LogicalType],
    sets: tuple[tuple[int, ...], ...],
) -> Expand:
    """Each row once per set, with copies of the keys and the number of the set behind it.

    The keys are copied: an aggregate over a key sees its value, not the NULL of the set.

    Args:
        below: gives the rows.
        keys: columns.
        types: of the copies, which are NULL where a set has them not.
        sets: for each, the columns that it has.
    """
    names = [*below.row.names, *(below.row.names[key] for key in keys), "$e"]
    row = lp.row_of(names, [*below.row.children, *types, BigIntType(nullable=False)])
    return Expand(row=row, inputs=(below,), sets=sets, keys=keys)


def grouping(
    number: InputReference, sets: Sequence[tuple[int, ...]], wanted: tuple[int, ...]
) -> Expression:
    """GROUPING_ID of a set, by its number: a bit per key that is not in it; or its GROUP_ID."""
    kind = number.type
    arguments: list[Expression] = []
    for position, part in enumerate(sets):
        bits = 0
        for key in wanted if wanted != lp.GROUP_ID else ():
            bits = bits * 2 + (key not in part)
        if wanted == lp.GROUP_ID:
            bits = [set(each) for each in sets[:position]].count(set(part))
        same = Call("=", (number, Literal(position, kind)), BooleanType(nullable=False))
        arguments += [same, Literal(bits, kind)]
    arguments[-2:] = arguments[-1:]
    if len(arguments) == 1:
        return arguments[0]
    return Call("CASE", tuple(arguments), kind)


def in_sets(
    number: InputReference,
    sets: Sequence[tuple[int, ...]],
    key: int,
    column: Expression,
    kind: LogicalType,
) -> Expression:
    """A key that all groups have, but NULL in those of sets that do not name it.

    Args:
        number: of the set.
        sets: as positions in the keys.
        key: its position.
        column: its values.
        kind: what it is where a set does not name it.
    """
    without = [position for position, part in enumerate(sets) if key not in part]
    if not without:
        return column
    arguments: list[Expression] = []
    for position in without:
        same = Call("=", (number, Literal(position, number.type)), BooleanType(nullable=False))
        arguments += [same, Literal(None, kind)]
    return Call("CASE", (*arguments, column), kind)
