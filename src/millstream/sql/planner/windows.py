"""Rules for aggregations, joins and Top-N over window TVFs.

GROUP BY window_start, window_end over a window TVF becomes a WindowAggregate, which emits each
window once, when it ends.  With GROUPING SETS that all contain the window, rows are expanded before
it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.errors import ValidationError
from millstream.expressions.nodes import InputReference
from millstream.runtime.columnar.table_windows import TableWindow, WindowKind
from millstream.runtime.operators.table.session_windows import (
    SessionFunctionFactory,
    WindowAggregateFactory,
)
from millstream.runtime.operators.table.top_n import WindowRankFactory
from millstream.runtime.operators.table.window_aggregate import LocalWindowAggregateFactory
from millstream.runtime.operators.table.window_function import WindowFunctionFactory
from millstream.runtime.operators.table.window_join import WindowJoinFactory
from millstream.sql.planner import formatting as fmt
from millstream.sql.planner import logical as lp
from millstream.sql.planner import physical as pp
from millstream.sql.planner.aggregates import (
    TwoPhaseAggregate,
    expand,
    grouped_sets,
    grouping,
    in_sets,
)
from millstream.sql.planner.calcs import (
    Converts,
    calc,
    check_window_time,
    conjunction,
    exchange,
    is_rowtime,
    places_of,
    plain,
    reads_once,
    substituted,
)
from millstream.sql.planner.window_columns import WindowColumns, WindowSpec, columns_after
from millstream.sql.stream_types import partial_window_type
from millstream.types.logical_types import LocalZonedTimestampType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.graph.transformation import Transformation
    from millstream.types.logical_types import RowType


_PROPERTIES = ("window_start", "window_end", "window_time")


class WindowTableFunction(pp.PhysicalNode):
    """Adds window_start, window_end and window_time to each row, once per window."""

    window: str
    time: pp.Column
    size: int
    step: int | None
    offset: int
    partition: pp.Columns = ()

    passes_changes = True
    passes_unsure = True
    is_shared = True
    state: ClassVar[pp.Parts] = {
        "window": "{window}({time}{lengths})",
        "keys": "*partition",
        "columns": "*inputs",
    }

    def window_text(self) -> str:
        """The window as Flink writes it."""
        return fmt.window_text(
            self.window,
            self.input.row,
            self.time,
            self.size,
            self.step,
            self.offset,
            self.partition,
        )

    def details(self) -> str:
        return f"window=[{self.window_text()}]"

    @property
    def lengths(self) -> str:
        """Its lengths, for what is recorded of its state."""
        return fmt.lengths_text(self.size, self.step, self.offset)

    def windows(self) -> WindowColumns | None:
        return columns_after(len(self.input.row), _spec(self), self.partition)

    @property
    def goes_by_clock(self) -> bool:
        return not is_rowtime(self.input.row.fields[self.time].type)

    def planned(self, planner: pp.PlansChanges, required: str) -> pp.PhysicalNode | None:
        # A row that is updated may move to another session, which is over at another time.
        wanted = pp.BOTH if self.window == "SESSION" else required
        return planner.made(self, [planner.visit(self.input, wanted)], required)

    def unsure(
        self, below: Sequence[frozenset[int]], is_unsure: Callable[[Expression, Any], bool]
    ) -> frozenset[int]:
        found = super().unsure(below, is_unsure)
        added = range(len(self.input.row), len(self.row)) if self.time in found else ()
        return found | frozenset(added)

    def words(self, origins: pp.Origins) -> str:
        keys = " by [{partition}]" if self.partition else ""
        syntax = "{kind} {window} {time} {size} {step} {offset}" + keys
        return syntax.format_map(pp.Said(self, origins))

    def operator(self, lowering: pp.Lowers) -> Transformation:
        is_session, by_clock = self.window == "SESSION", self.goes_by_clock
        kind = SessionFunctionFactory if is_session else WindowFunctionFactory
        lengths = (self.size,) if is_session else (self.size, self.step, self.offset)
        window = TableWindow(WindowKind[self.window], *lengths)
        factory = lowering.factory(kind, self, window=window, is_rowtime=not by_clock)
        if is_session:
            return lowering.stateful(self, factory, single=not self.partition, ticks=by_clock)
        return lowering.one(self.kind, factory, lowering.stream(self.input), self.row)


class WindowAggregate(TwoPhaseAggregate):
    """Aggregates per window and key, given when it is over: keys, aggregates, properties."""

    window: str
    time: pp.Column
    size: int
    step: int | None
    offset: int
    #: window_start, window_end, window_time behind the aggregates, in this order.
    properties: tuple[str, ...]
    #: Whether the input has the windows' columns already: (start, end).
    attached: tuple[int, int] | None = None
    is_rowtime: bool = True

    needs_before = True
    place = "{window} {time} {size} {step} {offset} {is_attached} [{keys}] [{calls}]"
    state: ClassVar[pp.Parts] = {
        "window": "{window}({time}{lengths})",
        **TwoPhaseAggregate.state,
    }

    @property
    def lengths(self) -> str:
        """Its lengths, for what is recorded of its state."""
        return fmt.lengths_text(self.size, self.step, self.offset)

    @property
    def is_attached(self) -> str:
        """Whether the input has the windows' columns already, in a word."""
        return "attached" if self.attached else ""

    def splits(self, *, mini_batch: bool) -> bool:
        """Whether windows can be put together of parts of batches, for aggregates of any kind.

        Sessions join; and it is one task that says what time it is.  Sizes of the Table API may be
        made up of no slides: windows share no slices then.
        """
        del mini_batch
        if not self.is_rowtime or self.window == "SESSION":
            return False
        if self.attached is not None or self.step is None:
            return True
        by_arrival = any(call.goes_by_arrival for call in self.calls)
        return not by_arrival and not self.size % self.step

    def local(self) -> pp.PhysicalNode:
        return LocalWindowAggregate(row=self.input.row, inputs=self.input.inputs, aggregate=self)

    def window_text(self) -> str:
        """The window by the columns of the input, as Flink writes it."""
        below = self.input.row
        if self.attached is None:
            keys = self.keys if self.window == "SESSION" else ()
            lengths = (self.size, self.step, self.offset)
            return fmt.window_text(self.window, below, self.time, *lengths, keys)
        start, end = (below.names[each] for each in self.attached)
        return f"{self.window}(win_start=[{start}], win_end=[{end}])"

    def details(self) -> str:
        below = self.input.row
        shown = [below.names[key] for key in self.keys]
        names = self.row.names[len(self.keys) :]
        suffix = self.suffix
        calls = [fmt.aggregate_text(call, below, suffix) for call in self.calls]
        window = self.window_text()
        if self.two_phase:
            calls = [
                f"{call.function}{suffix}({fmt.partial_name(call, at)})"
                for at, call in enumerate(self.calls)
            ]
            if self.attached is None:
                time = f"time_col=[{below.names[self.time]}]"
                window = window.replace(time, "slice_end=[$slice_end]", 1)
            else:
                window = f"{self.window}(win_end=[$window_end])"
        shown += [f"{call} AS {name}" for call, name in zip(calls, names, strict=False)]
        shown += [
            f"{each} AS {name}"
            for each, name in zip(self.properties, names[len(self.calls) :], strict=True)
        ]
        return f"{self.group_text}window=[{window}], select=[{', '.join(shown)}]"

    def windows(self) -> WindowColumns | None:
        spec = _spec(self)
        partition: tuple[frozenset[int], ...] | None = ()
        if self.window == "SESSION":  # of all keys, also if rows have their windows already
            partition = tuple(frozenset({number}) for number in range(len(self.keys)))
        if self.attached is not None:
            below = self.input.windows()
            if below is None:
                return None
            spec = below.spec or spec
        first = len(self.keys) + len(self.calls)
        starts, ends, times = (
            frozenset(first + at for at, each in enumerate(self.properties) if each == name)
            for name in _PROPERTIES
        )
        if not starts or not ends:
            return None
        return WindowColumns(spec, starts, ends, times, partition)

    @property
    def goes_by_clock(self) -> bool:
        return not self.is_rowtime

    def unique_keys(self) -> pp.Keys:
        width = len(self.keys) + len(self.calls)
        return pp.key_of([*range(len(self.keys)), *range(width, width + len(self.properties))])

    def change_types(self) -> frozenset[str]:
        # A window is given once, when it is over: changes that come later are late.
        return pp.INSERTS

    def kept_by(self, side: int) -> Iterable[int]:
        del side
        times = {self.time} if self.is_rowtime else set()
        return {pp.ROW, *self.keys} | times | pp.named_columns(self.calls)

    def operator(self, lowering: pp.Lowers) -> Transformation:
        is_session = self.window == "SESSION" and self.attached is None
        retracts = not self.input.is_insert_only
        factory = lowering.factory(
            WindowAggregateFactory,
            self,
            window=TableWindow(WindowKind[self.window], self.size, self.step, self.offset),
            aggregates=lowering.aggregates(self.calls, retracts=retracts, merges=is_session),
            retracts=retracts,
            merges=self.two_phase,
        )
        below = None
        if self.two_phase:
            local = LocalWindowAggregateFactory(
                **{
                    each.name: getattr(factory, each.name)
                    for each in fields(LocalWindowAggregateFactory)
                }
            )
            below = self.ahead(lowering, local, partial_window_type(local))
        return lowering.stateful(
            self, factory, single=not self.keys, ticks=not self.is_rowtime, below=below
        )


class LocalWindowAggregate(pp.PhysicalNode):
    """The aggregates of the slices of each batch by itself, ahead of the exchange.

    It is only shown: what it does is a part of the aggregate that it belongs to.
    """

    aggregate: WindowAggregate

    def details(self) -> str:
        whole = self.aggregate
        shown = [self.row.names[key] for key in whole.keys]
        shown += [
            f"{fmt.aggregate_text(call, self.row, whole.suffix)} AS "
            f"{fmt.partial_name(call, number)}"
            for number, call in enumerate(whole.calls)
        ]
        end = "$slice_end" if whole.attached is None else "$window_end"
        shown.append(f"slice_end('w$) AS {end}")
        window = whole.window_text()
        return f"{whole.group_text}window=[{window}], select=[{', '.join(shown)}]"


class WindowJoin(pp.TwoInputs):
    """Pairs of rows of one window."""

    spec: WindowSpec
    #: window_start and window_end of either side.
    left_window: pp.ColumnPair
    right_window: pp.ColumnPair

    takes_inserts = True
    is_shared = True
    place = f"{{spec}} [{{left_window}}; {{right_window}}] {pp.TwoInputs.place}"
    state: ClassVar[pp.Parts] = {**pp.TwoInputs.state, "window": "{spec}"}

    def details(self) -> str:
        left, right = (each.row for each in self.inputs)
        return (
            f"leftWindow=[{self.spec.text(left, *self.left_window)}], "
            f"rightWindow=[{self.spec.text(right, *self.right_window)}], "
            f"joinType=[{self.join.value}], where=[{self.where()}], select=[{self.fields_text()}]"
        )

    def keeps_time(self, column: int) -> bool:
        return is_rowtime(self.row.fields[column].type)

    def windows(self) -> WindowColumns | None:
        left, right = (each.windows() for each in self.inputs)
        if left is None or right is None or self.join is lp.JoinType.FULL:
            return None
        behind = right.shifted(len(self.inputs[0].row))
        if self.join is lp.JoinType.INNER:
            return left.with_all(behind)
        return behind if self.join is lp.JoinType.RIGHT else left

    def unique_keys(self) -> pp.Keys:
        left, right = (*self.left_keys, *self.left_window), (*self.right_keys, *self.right_window)
        return self.joined_keys(left, right)

    def operator(self, lowering: pp.Lowers) -> Transformation:
        ends = self.left_window[1], self.right_window[1]
        zone = lowering.options.time_zone if self.spec.has_zone else None
        factory = lowering.factory(WindowJoinFactory, self, ends=ends, time_zone=zone)
        return lowering.two(self, factory, single=not self.left_keys)


class WindowRank(pp.PhysicalNode):
    """The rows of each partition and window whose number is in a range."""

    spec: WindowSpec
    window: pp.ColumnPair
    function: str
    #: Beside the window.
    partition: pp.Columns
    order: pp.Order
    start: int
    end: int
    outputs_rank: bool

    takes_inserts = True
    is_shared = True
    place = "{spec} [{window}] {function} {start} {end} [{partition}] [{order}] [{inputs}]"
    state: ClassVar[pp.Parts] = {
        "keeps": "{function} {start} to {end}",
        "keys": "*partition",
        "order": "*order",
        "columns": "*inputs",
        "window": ("{spec}", "*window"),
    }

    def details(self) -> str:
        below = self.input.row
        return f"window=[{self.spec.text(below, *self.window)}], {fmt.ranked_text(self, below)}"

    def keeps_time(self, column: int) -> bool:
        return is_rowtime(self.row.fields[column].type)

    def windows(self) -> WindowColumns | None:
        return self.input.windows()

    def unique_keys(self) -> pp.Keys:
        number = () if self.start == self.end or not self.outputs_rank else (len(self.input.row),)
        if self.start == self.end or self.outputs_rank:
            return pp.key_of((*self.window, *self.partition, *number))
        return self.input.unique_keys()

    def operator(self, lowering: pp.Lowers) -> Transformation:
        zone = lowering.options.time_zone if self.spec.has_zone else None
        end = self.window[1]
        factory = lowering.factory(WindowRankFactory, self, window_end=end, time_zone=zone)
        return lowering.stateful(self, factory, single=not self.partition)


def _spec(node: Any) -> WindowSpec:
    kind = node.input.row.fields[node.time].type
    zoned = isinstance(kind, LocalZonedTimestampType)
    return WindowSpec(node.window, node.size, node.step, node.offset, is_rowtime(kind), zoned)


def only_window_times(row: RowType, windows: WindowColumns) -> RowType:
    """A row that is given when its window is over: of its times only that of the window goes on."""
    types = [
        each if position in windows.times else plain(each)
        for position, each in enumerate(row.children)
    ]
    return lp.row_of(row.names, types)


# -- logical plans -------------------------------------------------------------------------------


def logical_windows(node: lp.LogicalNode) -> WindowColumns | None:
    """The columns of windows of a logical plan, without how the windows lie."""
    if isinstance(node, lp.WindowNode):
        return columns_after(len(node.input.row), None)
    if isinstance(node, lp.JoinNode):
        return _logically_joined(node)
    if not isinstance(node, lp.ProjectNode | lp.FilterNode | lp.OverNode | lp.AggregateNode):
        return None
    below = logical_windows(node.input)
    if below is None or isinstance(node, lp.FilterNode | lp.OverNode):
        return below
    if isinstance(node, lp.ProjectNode):
        return below.moved(places_of(node.expressions))
    places = {
        key: [position]
        for position, key in enumerate(node.keys)
        if all(position in each for each in node.sets or ())
    }
    return below.moved(places)


def _logically_joined(node: lp.JoinNode) -> WindowColumns | None:
    left, right = logical_windows(node.left), logical_windows(node.right)
    if node.kind.left_only:
        return left
    behind = None if right is None else right.shifted(len(node.left.row))
    if node.kind is lp.JoinType.INNER and left is not None and behind is not None:
        return left.with_all(behind)
    if node.kind in {lp.JoinType.INNER, lp.JoinType.LEFT} and left is not None:
        return left
    return behind if node.kind in {lp.JoinType.INNER, lp.JoinType.RIGHT} else None


def _inserted(node: pp.PhysicalNode) -> WindowColumns | None:
    """The windows of rows that are only added."""
    found = node.windows()
    return found if found is not None and pp.kinds_of(node) == frozenset("I") else None


def _ending(node: pp.PhysicalNode) -> WindowColumns | None:
    """The windows of rows that are only added, where it is known when all rows of one are there.

    By processing time it is not: rows of a window come when the clock has gone on.
    """
    found = _inserted(node)
    return found if found is not None and found.spec and found.spec.is_rowtime else None


# -- joins ---------------------------------------------------------------------------------------


def _join_windows(
    nodes: list[pp.PhysicalNode], keys: list[list[int]]
) -> tuple[WindowColumns, list[int]] | None:
    """The windows of the left, and the pairs of keys that say nothing but that they are equal.

    None: the sides have no windows, or other ones, or are not joined by both their ends.
    """
    left, right = map(_inserted, nodes)
    if left is None or right is None or left.spec is None or left.spec != right.spec:
        return None
    pairs = list(zip(keys[0], keys[1], strict=True))
    starts = [n for n, (a, b) in enumerate(pairs) if a in left.starts and b in right.starts]
    ends = [n for n, (a, b) in enumerate(pairs) if a in left.ends and b in right.ends]
    if not starts or not ends:
        return None
    of_one_session = all(
        side.are_grouped_by(set(columns)) for side, columns in zip((left, right), keys, strict=True)
    )
    if not of_one_session:
        return None
    if not left.spec.is_rowtime:
        message = "Processing time Window Join is not supported yet."
        raise ValidationError(message)
    return left, [*starts, *ends]


def window_join(
    node: Any,
    inputs: list[pp.PhysicalNode],
    row: RowType,
    keys: list[list[int]],
    filter_nulls: list[bool],
    condition: Expression | None,
) -> WindowJoin | None:
    """A join of rows of one window; None if it is none.

    Args:
        node: the join.
        inputs: of the join, with computed keys.
        row: what a regular join would give.
        keys: of either side.
        filter_nulls: for each pair of keys whether NULL equals nothing.
        condition: beside the keys.
    """
    found = _join_windows(inputs, keys)
    if found is None:
        return None
    windows, same = found
    first, last = same[0], same[-1]  # one of the starts, one of the ends
    rest = [number for number in range(len(keys[0])) if number not in same]
    left_keys, right_keys = (tuple(side[number] for number in rest) for side in keys)
    spec = windows.spec
    assert spec is not None  # noqa: S101 - of physical nodes
    made = WindowJoin(
        row=row,
        inputs=(exchange(inputs[0], left_keys), exchange(inputs[1], right_keys)),
        join=node.kind,
        left_keys=left_keys,
        right_keys=right_keys,
        condition=condition,
        filter_nulls=tuple(filter_nulls[number] for number in rest),
        spec=spec,
        left_window=(keys[0][first], keys[0][last]),
        right_window=(keys[1][first], keys[1][last]),
    )
    behind = made.windows()
    if behind is not None:
        # The regular join has said that no time goes on: that of the window does.
        both = inputs[0].row if node.kind.left_only else _both(inputs)
        types = [
            whole.type if position in behind.times else each.type
            for position, (whole, each) in enumerate(zip(both.fields, row.fields, strict=True))
        ]
        made.row = lp.row_of(row.names, types)
    return made


def _both(inputs: list[pp.PhysicalNode]) -> RowType:
    left, right = (each.row for each in inputs)
    return lp.row_of([*left.names, *right.names], [*left.children, *right.children])


# -- numbers -------------------------------------------------------------------------------------


def window_rank(
    node: lp.OverNode, below: pp.PhysicalNode, first: int, last: int, *, outputs: bool
) -> WindowRank | None:
    """The first rows of each window; None if the partition is none of windows."""
    windows = _ending(below)
    if windows is None or windows.spec is None:
        return None
    starts = [each for each in node.partition if each in windows.starts]
    ends = [each for each in node.partition if each in windows.ends]
    if not starts or not ends:
        return None
    of_window = windows.starts | windows.ends | windows.times
    partition = tuple(each for each in node.partition if each not in of_window)
    row = only_window_times(below.row, windows)
    if outputs:
        row = lp.row_of([*row.names, node.row.names[-1]], [*row.children, node.row.children[-1]])
    return WindowRank(
        row=row,
        inputs=(exchange(below, partition),),
        spec=windows.spec,
        window=(starts[0], ends[0]),
        function=node.calls[0].call.function,
        partition=partition,
        order=node.order,
        start=first,
        end=last,
        outputs_rank=outputs,
    )


# -- groups --------------------------------------------------------------------------------------


def attached_aggregate(node: Any, below: pp.PhysicalNode) -> pp.PhysicalNode | None:
    """GROUP BY the windows that rows have; None if the keys are no windows."""
    windows = _ending(below)
    if windows is None or windows.spec is None:
        return None
    sets = grouped_sets(node)
    for each in sets or ():
        of_set = {node.keys[number] for number in each}
        if not of_set & windows.starts or not of_set & windows.ends:
            return None  # groups of several windows are never over, as in Flink
    names = dict.fromkeys(windows.starts, "window_start")
    names |= dict.fromkeys(windows.ends, "window_end")
    names |= dict.fromkeys(windows.times, "window_time")
    starts = [each for each in node.keys if each in windows.starts]
    ends = [each for each in node.keys if each in windows.ends]
    if not starts or not ends:
        return None
    if not windows.are_grouped_by({*node.keys} - {*names}, exactly=True):
        return None  # as in Flink, whose groups of several sessions are updated
    time = next(iter(sorted(windows.times)), None)
    if time is None:
        if windows.spec.has_zone:
            return None  # the clock of their time is not known any more
        time = ends[0]
    plain = [number for number, key in enumerate(node.keys) if key not in names]
    used = [number for number, key in enumerate(node.keys) if key in names]
    own = node.row.names
    keys = tuple(node.keys[number] for number in plain)
    made_names = [own[number] for number in plain]
    if sets is not None:
        width = len(below.row)
        below = expanded(node, below, plain, keys, sets)
        keys = tuple(range(width, len(below.row)))
        made_names.append("$e")
    types = [below.row.children[key] for key in keys]
    types += [call.type for call in node.calls]
    types += [below.row.children[node.keys[number]] for number in used]
    made_names += own[len(node.keys) :][: len(node.calls)]
    made_names += [own[number] for number in used]
    spec = windows.spec
    made = WindowAggregate(
        row=lp.row_of(made_names, types),
        inputs=(exchange(below, keys),),
        window=spec.kind,
        time=time,
        size=spec.size,
        step=spec.step,
        offset=spec.offset,
        keys=keys,
        calls=node.calls,
        properties=tuple(names[node.keys[number]] for number in used),
        attached=(starts[0], ends[0]),
    )
    return in_order(node, made, plain, used)


def expanded(
    node: Any,
    below: pp.PhysicalNode,
    plain: Sequence[int],
    columns: tuple[int, ...],
    sets: Sequence[tuple[int, ...]],
) -> pp.PhysicalNode:
    """Each row once per set: behind it copies of the keys beside the window, and its set.

    Args:
        node: the aggregation.
        below: gives the rows.
        plain: which keys of the aggregation are no columns of windows.
        columns: of the rows that these are.
        sets: as positions in the keys of the aggregation.
    """
    places = dict(zip(plain, columns, strict=True))
    types = [node.row.children[number] for number in plain]
    of_sets = tuple(tuple(places[each] for each in part if each in places) for part in sets)
    return expand(below, columns, types, of_sets)


def in_order(
    node: Any, made: WindowAggregate, plain: list[int], used: list[int]
) -> pp.PhysicalNode:
    """The keys of an aggregation where its query has them.

    Args:
        node: the aggregation.
        made: gives keys, the number of the set if there are sets, aggregates, columns of windows.
        plain: which keys of the aggregation are keys of what was made.
        used: which are columns of windows.
    """
    out = lp.references(made.row)
    order: list[Expression] = [out[0]] * len(node.keys)
    for position, number in enumerate(plain):
        order[number] = out[position]
    first = len(made.keys)
    behind = first + len(made.calls)
    sets = grouped_sets(node)
    for position, number in enumerate(used):
        order[number] = out[behind + position]
        if sets is not None:
            kind = node.row.children[number]
            order[number] = in_sets(out[first - 1], sets, number, order[number], kind)
    shown = [*order, *out[first:behind]]
    if sets is not None:
        shown += [grouping(out[first - 1], sets, wanted) for wanted in node.groupings]
    return calc(made, shown, lp.row_of(node.row.names, [each.type for each in shown]))


def window_function(converter: Converts, node: Any) -> pp.PhysicalNode:
    """A window TVF by itself: rows with the columns of their windows."""
    below = converter.convert(node.input)
    check_window_time(below, node.time)
    if node.kind == "SESSION":
        below = exchange(below, node.partition)
    return WindowTableFunction(
        row=node.row,
        inputs=(below,),
        window=node.kind,
        time=node.time,
        size=node.size,
        step=node.step,
        offset=node.offset,
        partition=node.partition,
    )


def _through(node: Any) -> tuple[lp.WindowNode | None, list[Expression], list[Any]]:
    """The window TVF below projections and filters, the columns over it, and the filters."""
    steps: list[Any] = []
    below = node
    while isinstance(below, lp.ProjectNode | lp.FilterNode):
        steps.append(below)
        below = below.input
    if not isinstance(below, lp.WindowNode):
        return None, [], []
    columns: list[Expression] = list(lp.references(below.row))
    conditions = []
    for each in reversed(steps):
        is_filter = isinstance(each, lp.FilterNode)
        readers = [each.condition] if is_filter else each.expressions
        # A filter leaves its columns to be read above it.
        if not reads_once(readers, columns, most=0 if is_filter else 1):
            return None, [], []
        if is_filter:
            conditions.append(substituted(each.condition, columns))
        else:
            columns = [substituted(one, columns) for one in each.expressions]
    return below, columns, conditions


def window_aggregate(converter: Converts, node: Any) -> pp.PhysicalNode | None:
    """An aggregation whose keys are a window; None if they are not."""
    window, columns, conditions = _through(node.input)
    if window is None:
        return None
    width = len(window.input.row)
    places = {width + number: name for number, name in enumerate(_PROPERTIES)}
    keys = [columns[key] for key in node.keys]
    indexes = [each.index if isinstance(each, InputReference) else None for each in keys]
    if width not in indexes or width + 1 not in indexes:
        return None
    for each in node.sets or ():
        if not {width, width + 1} <= {indexes[number] for number in each}:
            return None  # groups of several windows are never over, as in Flink
    plain = [number for number, index in enumerate(indexes) if index not in places]
    read = [keys[number] for number in plain] + conditions
    read += [columns[each] for call in node.calls for each in call.arguments]
    read += [columns[call.filter] for call in node.calls if call.filter is not None]
    if any(set(places) & pp.columns_of(each) for each in read):
        return None  # a window is known only after the window function
    if window.kind == "SESSION" and not _has_whole_sessions(node, window, indexes, plain):
        return None
    below = converter.convert(window.input)
    check_window_time(below, window.time)
    inputs: list[Expression] = [keys[number] for number in plain]
    names = [node.row.names[number] for number in plain]
    calls, inputs, names = _calls(node, columns, inputs, names)
    time = window.input.row.fields[window.time]
    inputs.append(InputReference(window.time, time.name, time.type))
    names.append(time.name)
    row = lp.row_of(names, [each.type for each in inputs])
    projected = calc(below, inputs, row, conjunction(conditions))
    used = [number for number, index in enumerate(indexes) if index in places]
    sets = grouped_sets(node)
    if sets is not None:
        projected = expanded(node, projected, plain, tuple(range(len(plain))), sets)
        group = tuple(range(len(row), len(projected.row)))
    else:
        group = tuple(range(len(plain)))
    properties = tuple(places[indexes[number]] for number in used)  # type: ignore[index]
    types = [projected.row.children[key] for key in group]
    types += [call.type for call in calls]
    types += [window.row.fields[indexes[number]].type for number in used]  # type: ignore[index]
    made_names = [node.row.names[number] for number in plain]
    made_names += ["$e"] if sets is not None else []
    made_names += list(node.row.names[len(node.keys) :][: len(calls)])
    made_names += [node.row.names[number] for number in used]
    made = WindowAggregate(
        row=lp.row_of(made_names, types),
        inputs=(exchange(projected, group),),
        window=window.kind,
        time=len(row) - 1,
        size=window.size,
        step=window.step,
        offset=window.offset,
        keys=group,
        calls=calls,
        properties=properties,
        is_rowtime=is_rowtime(time.type),
    )
    return in_order(node, made, plain, used)


def _has_whole_sessions(
    node: Any, window: lp.WindowNode, indexes: list[int | None], plain: list[int]
) -> bool:
    """Return whether each group, of every set, is a session.

    The aggregation makes such sessions: of the rows that pass the filters, as in Flink's plans.
    """
    is_all = all(set(plain) <= set(each) for each in node.sets or ())
    return is_all and {indexes[number] for number in plain} == set(window.partition)


def _calls(
    node: Any, columns: list[Expression], inputs: list[Expression], names: list[str]
) -> tuple[tuple[Any, ...], list[Expression], list[str]]:
    """The aggregates with their arguments as columns of the projection below."""

    def column(index: int) -> int:
        expression = columns[index]
        if expression not in inputs:
            inputs.append(expression)
            names.append(node.input.row.names[index])
        return inputs.index(expression)

    calls = tuple(
        replace(
            call,
            arguments=tuple(column(each) for each in call.arguments),
            filter=None if call.filter is None else column(call.filter),
        )
        for call in node.calls
    )
    return calls, inputs, names
