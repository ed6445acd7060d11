"""Regular, interval and temporal joins: pushdown, keys and time bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.errors import ValidationError
from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.runtime.operators.table.join import JoinFactory
from millstream.runtime.operators.table.joins_by_time import (
    IntervalJoinFactory,
    TemporalJoinFactory,
)
from millstream.runtime.operators.table.specs import JoinSide
from millstream.sql.planner import logical as lp
from millstream.sql.planner import physical as pp
from millstream.sql.planner.calcs import (
    Calc,
    Converts,
    Exchange,
    calc,
    conjunction,
    conjuncts,
    exchange,
    is_rowtime,
    keeps_time,
    moved,
    plain,
    substituted,
)
from millstream.sql.planner.formatting import columns_text, length_text, right_name
from millstream.sql.planner.lookup_joins import lookup_join, nullable
from millstream.sql.planner.ranks import Deduplicate
from millstream.sql.planner.scans import ChangelogNormalize, Scan
from millstream.sql.planner.watermarks import WatermarkAssigner
from millstream.sql.planner.windows import window_join
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.graph.transformation import Transformation


class Join(pp.TwoInputs):
    """A regular join."""

    #: How each side is unique, for EXPLAIN; set by the changelog planning.
    side_texts: tuple[str, str] = ("NoUniqueKey", "NoUniqueKey")
    #: Milliseconds, of a hint; None: as the option says.
    state_ttls: tuple[int | None, int | None] = (None, None)
    #: Whether the changes of a key within a batch are folded.
    mini_batch: bool = False

    is_shared = True
    is_pruned = True
    goes_by_columns = True

    def details(self) -> str:
        left, right = self.side_texts
        mini_batch = ", miniBatch=[true]" if self.mini_batch else ""
        return (
            f"joinType=[{self.join.value}], where=[{self.where()}], "
            f"select=[{self.fields_text()}], leftInputSpec=[{left}], "
            f"rightInputSpec=[{right}]{mini_batch}{self._ttl_text()}"
        )

    def _ttl_text(self) -> str:
        given = zip(("LEFT", "RIGHT"), self.state_ttls, strict=True)
        shown = [f"{side}={length_text(ttl)}" for side, ttl in given if ttl is not None]
        return f", stateTtlHints=[{', '.join(shown)}]" if shown else ""

    def keeps_time(self, column: int) -> bool:
        del column
        return False

    def change_types(self) -> frozenset[str]:
        below = super().change_types()
        return below if self.join in {lp.JoinType.INNER, lp.JoinType.SEMI} else pp.ALL_CHANGES

    def planned(self, planner: pp.PlansChanges, required: str) -> pp.PhysicalNode | None:
        inputs: list[pp.PhysicalNode | None] = []
        texts = []
        sides = zip(self.inputs, (self.left_keys, self.right_keys), strict=True)
        for side, (each, join_keys) in enumerate(sides):
            keys = each.unique_keys()
            texts.append(_side_text(keys, join_keys))
            has_updates = "U" in pp.kinds_of(each)
            wanted = pp.AFTER if required == pp.AFTER else pp.BOTH
            if required == pp.AFTER and has_updates:
                contains = any(set(join_keys) <= key for key in keys)
                if not contains or self._may_leave(side):
                    return None
            inputs.append(planner.visit(each, wanted if has_updates else pp.NO_UPDATES))
        return planner.made(self, inputs, required, side_texts=tuple(texts))

    def _may_leave(self, side: int) -> bool:
        """Return whether an update of a side may end a pair: without -U nobody would know."""
        if self.condition is None:
            return False
        is_one_row = self.join is lp.JoinType.LEFT and any(
            key <= set(self.right_keys) for key in self.inputs[1].unique_keys()
        )
        return side == 1 or not is_one_row

    def kept_by(self, side: int) -> Iterable[int]:
        """The columns of an input by which it finds the rows that it keeps."""
        width = len(self.inputs[0].row)
        if not self.inputs[side].unique_keys():
            return (pp.ROW, *range(len(self.inputs[side].row)))
        of_condition = set() if self.condition is None else pp.columns_of(self.condition)
        if side:
            own = (each - width for each in of_condition if each >= width)
            return (pp.ROW, *self.right_keys, *own)
        return (pp.ROW, *self.left_keys, *(each for each in of_condition if each < width))

    def unsure(
        self, below: Sequence[frozenset[int]], is_unsure: Callable[[Expression, Any], bool]
    ) -> frozenset[int]:
        del is_unsure
        width = len(self.inputs[0].row)
        right = () if self.join.left_only else (each + width for each in below[1] - {pp.ROW})
        return below[0] | frozenset(right)

    def operator(self, lowering: pp.Lowers) -> Transformation:
        default, keys = lowering.options.state_ttl, (self.left_keys, self.right_keys)
        left, right = (
            JoinSide(own, pp.smallest(each.unique_keys()))
            for own, each in zip(keys, self.inputs, strict=True)
        )
        ttls = [default if hint is None else hint for hint in self.state_ttls]
        factory = lowering.factory(
            JoinFactory, self, left=left, right=right, left_ttl=ttls[0], right_ttl=ttls[1]
        )
        return lowering.two(self, factory, single=not self.left_keys)


def _side_text(keys: Any, join_keys: tuple[int, ...]) -> str:
    if any(key <= set(join_keys) for key in keys):
        return "JoinKeyContainsUniqueKey"
    return "HasUniqueKey" if keys else "NoUniqueKey"


class IntervalJoin(pp.TwoInputs):
    """Pairs of rows whose times are near each other."""

    left_time: pp.Column
    right_time: pp.Column
    #: Milliseconds: right - left lies between them.
    lower: int
    upper: int
    is_rowtime: bool

    takes_inserts = True
    is_shared = True
    place = (
        "{join.name} [{left_keys}] [{right_keys}] {filter_nulls} ({left_time!r}, {right_time!r}) "
        "{lower} {upper} [{condition}] [{inputs}]"
    )
    state: ClassVar[pp.Parts] = {
        **pp.TwoInputs.state,
        "times": ("*left_time", "*right_time"),
        "bounds": "{lower} ms to {upper} ms",
    }

    def details(self) -> str:
        bounds = (
            f"isRowTime={str(self.is_rowtime).lower()}, leftLowerBound={-self.upper}, "
            f"leftUpperBound={-self.lower}, leftTimeIndex={self.left_time}, "
            f"rightTimeIndex={self.right_time}"
        )
        return (
            f"joinType=[{self.join.value}], windowBounds=[{bounds}], where=[{self.where()}], "
            f"select=[{self.fields_text()}]"
        )

    @property
    def goes_by_clock(self) -> bool:
        return not self.is_rowtime

    def operator(self, lowering: pp.Lowers) -> Transformation:
        factory = lowering.factory(IntervalJoinFactory, self)
        single = not self.left_keys
        return lowering.two(self, factory, single=single, ticks=not self.is_rowtime)


class TemporalJoin(pp.TwoInputs):
    """Each row of the left with the version of the right at its event time."""

    left_time: pp.Column
    right_time: pp.Column

    place = (
        "{join.name} [{left_keys}] [{right_keys}] {filter_nulls} ({left_time!r}, {right_time!r}) "
        "[{condition}] [{inputs}]"
    )
    state: ClassVar[pp.Parts] = {**pp.TwoInputs.state, "times": ("*left_time", "*right_time")}

    def details(self) -> str:
        left, right = (each.row for each in self.inputs)
        ours = columns_text(left, self.left_keys)
        theirs = ", ".join(right_name(left, right, each) for each in self.right_keys)
        condition = (
            f"__TEMPORAL_JOIN_CONDITION({left.names[self.left_time]}, "
            f"{right_name(left, right, self.right_time)}, "
            f"__TEMPORAL_JOIN_CONDITION_PRIMARY_KEY({theirs}), "
            f"__TEMPORAL_JOIN_LEFT_KEY({ours}), __TEMPORAL_JOIN_RIGHT_KEY({theirs}))"
        )
        where = self.where(condition)
        return f"joinType=[{self.join.value}], where=[{where}], select=[{self.fields_text()}]"

    def keeps_time(self, column: int) -> bool:
        return column < len(self.inputs[0].row) and self.inputs[0].keeps_time(column)

    def unique_keys(self) -> pp.Keys:
        return self.inputs[0].unique_keys()

    def change_types(self) -> frozenset[str]:
        super().change_types()
        # What is taken back later would meet another version than it did when it came.
        pp.check_takes("The left of TemporalJoin", self.inputs[0], pp.INSERTS)
        return pp.kinds_of(self.inputs[0])

    def planned(self, planner: pp.PlansChanges, required: str) -> pp.PhysicalNode | None:
        # A version ends when the next begins: the row before it has nothing to say.
        sides = zip(self.inputs, (pp.NO_UPDATES, pp.AFTER), strict=True)
        return planner.made(self, [planner.visit(each, want) for each, want in sides], required)

    def operator(self, lowering: pp.Lowers) -> Transformation:
        return lowering.two(self, lowering.factory(TemporalJoinFactory, self), single=False)


def compact_join_changes(plans: list[pp.Plan]) -> list[pp.Plan]:
    """Mark the joins as those that compact the changes of a mini-batch."""
    for node in pp.nodes_of(plans):
        if isinstance(node, Join):
            node.mini_batch = True
    return plans


def _filtered(node: lp.LogicalNode, parts: list[Expression]) -> lp.LogicalNode:
    condition = conjunction(parts)
    if condition is None:
        return node
    return lp.FilterNode(row=node.row, input=node, condition=condition)


def pushed(node: lp.FilterNode) -> lp.LogicalNode | None:
    """A filter over a join, as far as it can go into and below the join; None if it cannot."""
    below = node.input
    if isinstance(below, lp.TemporalJoinNode) and below.kind is lp.JoinType.INNER:
        parts = [*conjuncts(below.condition), *conjuncts(node.condition)]
        return replace(below, condition=conjunction(parts))
    if not isinstance(below, lp.JoinNode):
        return None
    width = len(below.left.row)
    left, right, both = sorted_parts(conjuncts(node.condition), width)
    inner = below.kind is lp.JoinType.INNER
    to_left = (
        left
        if inner or below.kind in {lp.JoinType.LEFT, lp.JoinType.SEMI, lp.JoinType.ANTI}
        else []
    )
    to_right = right if inner or below.kind is lp.JoinType.RIGHT else []
    into = both if inner else []
    if not (to_left or to_right or into):
        return None
    rest = [
        each
        for each in (*left, *right, *both)
        if not any(each is other for other in (*to_left, *to_right, *into))
    ]
    made = replace(
        below,
        left=_filtered(below.left, to_left),
        right=_filtered(below.right, [moved(each, -width) for each in to_right]),
        condition=conjunction([*conjuncts(below.condition), *into]),
    )
    return _filtered(made, rest)


def sorted_parts(
    parts: list[Expression], width: int
) -> tuple[list[Expression], list[Expression], list[Expression]]:
    """Those over the left alone, over the right alone, and the rest."""
    left, right, both = [], [], []
    for each in parts:
        columns = pp.columns_of(each)
        if columns and max(columns) < width:
            left.append(each)
        elif columns and min(columns) >= width:
            right.append(each)
        else:
            both.append(each)
    return left, right, both


class Sides:
    """The inputs of a join, with the columns that its keys need."""

    def __init__(self, left: pp.PhysicalNode, right: pp.PhysicalNode) -> None:
        self.width = len(left.row)
        self.rows = [left.row, right.row]
        self.nodes = [left, right]
        self._extra: list[list[Expression]] = [[], []]
        self.keys: list[list[int]] = [[], []]
        self.filter_nulls: list[bool] = []

    def take(self, part: Expression) -> bool:
        """Return whether a condition is an equality of keys; then they are noted."""
        if not isinstance(part, Call) or part.function not in {"=", "IS NOT DISTINCT FROM"}:
            return False
        one, other = part.arguments
        sides = self._side(one), self._side(other)
        if sides == (1, 0):
            one, other = other, one
        elif sides != (0, 1):
            return False
        self.keys[0].append(self._column(0, one))
        self.keys[1].append(self._column(1, moved(other, -self.width)))
        self.filter_nulls.append(part.function == "=")
        return True

    def _side(self, expression: Expression) -> int | None:
        columns = pp.columns_of(expression)
        if columns and max(columns) < self.width:
            return 0
        return 1 if columns and min(columns) >= self.width else None

    def _column(self, side: int, expression: Expression) -> int:
        if isinstance(expression, InputReference):
            return expression.index
        extra = self._extra[side]
        if expression not in extra:
            extra.append(expression)
        return len(self.rows[side]) + extra.index(expression)

    def inputs(self) -> list[pp.PhysicalNode]:
        """The inputs with computed keys behind their columns."""
        return [self._input(side) for side in (0, 1)]

    def exchanged(self) -> tuple[pp.PhysicalNode, pp.PhysicalNode]:
        """The inputs, with the rows of each key in one task."""
        left, right = self.inputs()
        return exchange(left, tuple(self.keys[0])), exchange(right, tuple(self.keys[1]))

    def _input(self, side: int) -> pp.PhysicalNode:
        below, extra = self.nodes[side], self._extra[side]
        if not extra:
            return below
        names = [*below.row.names, *(f"$k{number}" for number in range(len(extra)))]
        columns: list[Expression] = [*lp.references(below.row), *extra]
        return calc(below, columns, lp.row_of(names, [each.type for each in columns]))

    def keep_times(self, columns: Sequence[int]) -> bool:
        """Return whether a column of each side is a time attribute still."""
        pairs = zip(self.nodes, columns, strict=True)
        return all(each.keeps_time(column) for each, column in pairs)

    @property
    def has_extra(self) -> bool:
        """Whether keys are computed."""
        return any(self._extra)

    def moved(self, expression: Expression | None) -> Expression | None:
        """A condition over both, with the computed keys of the left between them."""
        shift = len(self._extra[0])
        if expression is None or not shift:
            return expression
        columns: list[Expression] = list(lp.references(self.rows[0]))
        columns += [moved(each, self.width + shift) for each in lp.references(self.rows[1])]

        return substituted(expression, columns)


def join(converter: Converts, node: Any) -> pp.PhysicalNode:
    """A regular join, or one of windows or intervals."""
    width = len(node.left.row)
    left_only, right_only, both = sorted_parts(conjuncts(node.condition), width)
    left, right = node.left, node.right
    kind = node.kind
    if kind in {lp.JoinType.INNER, lp.JoinType.RIGHT, lp.JoinType.SEMI}:
        left, left_only = _filtered(left, left_only), []
    if not kind.keeps_right:
        right = _filtered(right, [moved(each, -width) for each in right_only])
        right_only = []
    parts = [*left_only, *right_only, *both]
    inputs = converter.convert(left), converter.convert(right)
    sides = Sides(*inputs)
    rest = [each for each in parts if not sides.take(each)]
    windowed = _window_join(node, sides, conjunction(rest))
    if windowed is not None:
        return windowed
    if not kind.left_only:
        equal = _equal_times(parts, sides)
        if equal is not None:
            sides = Sides(*inputs)
            rest = [each for each in parts if each is equal or not sides.take(each)]
        found = _interval_join(node, sides, rest)
        if found is not None:
            return found
    return _regular_join(node, sides, conjunction(rest))


def _window_join(node: Any, sides: Sides, condition: Expression | None) -> pp.PhysicalNode | None:
    inputs = sides.inputs()
    row = _regular_row(node, inputs)
    moved_ = sides.moved(condition)
    made = window_join(node, inputs, row, sides.keys, sides.filter_nulls, moved_)
    return None if made is None else without_extra(node, made, sides, len(inputs[0].row))


def _regular_row(node: Any, inputs: Sequence[pp.PhysicalNode]) -> lt.RowType:
    row = inputs[0].row if node.kind.left_only else _row(inputs, node.kind)
    return lp.row_of(row.names, [plain(each) for each in row.children])


def _regular_join(node: Any, sides: Sides, condition: Expression | None) -> pp.PhysicalNode:
    inputs = sides.exchanged()
    made: pp.PhysicalNode = Join(
        row=_regular_row(node, inputs),
        inputs=inputs,
        join=node.kind,
        left_keys=tuple(sides.keys[0]),
        right_keys=tuple(sides.keys[1]),
        condition=sides.moved(condition),
        filter_nulls=tuple(sides.filter_nulls),
        state_ttls=node.state_ttls,
    )
    return without_extra(node, made, sides, len(inputs[0].row))


def _row(inputs: Sequence[pp.PhysicalNode], kind: lp.JoinType) -> lt.RowType:
    """The columns of both; a side that may be missing has no times to go by."""
    types: list[lt.LogicalType] = []
    for each, may_miss in zip(inputs, (kind.keeps_right, kind.keeps_left), strict=True):
        found = list(each.row.children)
        types += [nullable(one) for one in found] if may_miss else found
    return lp.row_of([*inputs[0].row.names, *inputs[1].row.names], types)


def without_extra(
    node: Any, made: pp.PhysicalNode, sides: Sides, left_width: int
) -> pp.PhysicalNode:
    """A join without the computed keys, and with the names that the query knows."""
    shown = lp.references(made.row)
    if sides.has_extra:
        columns = shown
        shown = columns[: sides.width]
        if not node.kind.left_only:
            shown += columns[left_width : left_width + len(sides.rows[1])]
    elif made.row.names == node.row.names:
        return made
    return calc(made, shown, lp.row_of(node.row.names, [each.type for each in shown]))


# -- interval joins ------------------------------------------------------------------------------


def _interval_join(node: Any, sides: Sides, rest: list[Expression]) -> pp.PhysicalNode | None:
    """A join with bounds of time; None if it has none.

    Equal event times are keys, too, so that few rows are looked at; what time it is, is not known
    ahead of the join.
    """
    equal = _equal_times(rest, sides)
    bounds: dict[tuple[int, int], list[int | None]] = {}
    others = []
    for part in rest:
        found = _bound(part, sides)
        if found is None:
            others.append(part)
            continue
        columns, lower, upper = found
        known = bounds.setdefault(columns, [None, None])
        if lower is not None:
            known[0] = lower if known[0] is None else max(known[0], lower)
        if upper is not None:
            known[1] = upper if known[1] is None else min(known[1], upper)
    for (left, right), (lower, upper) in bounds.items():
        if lower is None or upper is None or len(bounds) > 1:
            continue
        if not sides.keep_times((left, right)):
            continue
        if equal is not None and is_rowtime(sides.rows[0].fields[left].type):
            sides.take(equal)
        inputs = sides.exchanged()
        made = IntervalJoin(
            row=_row(inputs, node.kind),
            inputs=inputs,
            join=node.kind,
            left_keys=tuple(sides.keys[0]),
            right_keys=tuple(sides.keys[1]),
            condition=sides.moved(conjunction(others)),
            filter_nulls=tuple(sides.filter_nulls),
            left_time=left,
            right_time=right,
            lower=lower,
            upper=upper,
            is_rowtime=is_rowtime(sides.rows[0].fields[left].type),
        )
        return without_extra(node, made, sides, len(inputs[0].row))
    return None


def _equal_times(parts: Sequence[Expression], sides: Sides) -> Expression | None:
    """An equality of times that alone bounds them; as in Flink, it makes a join of intervals."""
    timed = [(each, found) for each in parts if (found := _bound(each, sides)) is not None]
    if len(timed) != 1:
        return None
    part, (columns, _, _) = timed[0]
    if not isinstance(part, Call) or part.function != "=":
        return None
    keeps = sides.keep_times(columns)
    inserts = all(pp.kinds_of(each) == frozenset("I") for each in sides.nodes)
    return part if keeps and inserts else None


def _bound(  # noqa: PLR0911 - one per form
    part: Expression, sides: Sides
) -> tuple[tuple[int, int], int | None, int | None] | None:
    """``left <= right + x`` and the like, as bounds of right - left in milliseconds."""
    if not isinstance(part, Call):
        return None
    if part.function not in {"<", "<=", ">", ">=", "="}:
        return None
    one, other = _time(part.arguments[0]), _time(part.arguments[1])
    if one is None or other is None:
        return None
    operator = part.function
    if one[0] >= sides.width > other[0]:
        one, other = other, one
        operator = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}[operator]
    if not one[0] < sides.width <= other[0]:
        return None
    columns = one[0], other[0] - sides.width
    kinds = sides.rows[0].fields[columns[0]].type, sides.rows[1].fields[columns[1]].type
    attributes = {getattr(kind, "kind", lt.TimestampKind.REGULAR) for kind in kinds}
    if len(attributes) > 1 or lt.TimestampKind.REGULAR in attributes:
        return None
    # left + a OP right + b: right - left OP' a - b
    difference = one[1] - other[1]
    if operator == "=":
        return columns, difference, difference
    if operator in {"<", "<="}:
        return columns, difference + (operator == "<"), None
    return columns, None, difference - (operator == ">")


def _time(expression: Expression) -> tuple[int, int] | None:
    """A column with milliseconds added to it."""
    if isinstance(expression, InputReference):
        return expression.index, 0
    if isinstance(expression, Call) and keeps_time(expression):
        return _time(expression.arguments[0])
    if isinstance(expression, Call) and expression.function in {"+", "-"}:
        column, length = expression.arguments
        if isinstance(column, Literal):
            column, length = length, column
        found = _time(column)
        if (
            found is not None
            and isinstance(length, Literal)
            and isinstance(length.type, lt.DayTimeIntervalType)
            and isinstance(length.value, int)
        ):
            return found[0], found[1] + (
                length.value if expression.function == "+" else -length.value
            )
    return None


_INTEGERS: Final = (lt.TinyIntType, lt.SmallIntType, lt.IntType, lt.BigIntType)
_NEEDS: Final = "Event-Time Temporal Table Join requires both primary key and row time attribute"


def temporal_join(converter: Converts, node: Any) -> pp.PhysicalNode:
    """Each row of the left with the version of the right at its time.

    Raises:
        ValidationError: there are no versions, or the condition does not name them.
    """
    if node.time is None:
        return lookup_join(converter, node)
    left, right = converter.convert(node.left), converter.convert(node.right)
    right_time = _times(left, right, node.time)
    sides = Sides(left, _versions(right))
    parts = conjuncts(node.condition)
    keys = _key_parts(parts, len(left.row), right)
    for part in keys:
        sides.take(part)
    rest = [each for each in parts if not any(each is key for key in keys)]
    inputs = sides.exchanged()
    made = TemporalJoin(
        row=_temporal_joins_row(inputs[0].row, inputs[1].row, node.kind),
        inputs=inputs,
        join=node.kind,
        left_keys=tuple(sides.keys[0]),
        right_keys=tuple(sides.keys[1]),
        condition=sides.moved(conjunction(rest)),
        filter_nulls=tuple(sides.filter_nulls),
        left_time=node.time,
        right_time=right_time,
    )
    return without_extra(node, made, sides, len(inputs[0].row))


def _temporal_joins_row(left: lt.RowType, right: lt.RowType, kind: lp.JoinType) -> lt.RowType:
    keeps = kind is lp.JoinType.LEFT
    types = [nullable(each) if keeps else plain(each) for each in right.children]
    return lp.row_of([*left.names, *right.names], [*left.children, *types])


def _times(left: pp.PhysicalNode, right: pp.PhysicalNode, time: int) -> int:
    """The time attribute of the right, once both are looked at."""
    if not left.keeps_time(time):
        message = (
            "FOR SYSTEM_TIME AS OF takes a time attribute of the left table, but "
            f"'{left.row.names[time]}' comes through a regular join or DISTINCT, where a time "
            "attribute ends."
        )
        raise ValidationError(message)
    found = [
        index
        for index, each in enumerate(right.row.children)
        if is_rowtime(each) and right.keeps_time(index)
    ]
    if not found:
        message = f"{_NEEDS} in versioned table, but no row time attribute can be found."
        raise ValidationError(message)
    if len(found) > 1:
        names = ", ".join(right.row.names[index] for index in found)
        message = f"The versioned table of a temporal join has several time attributes: {names}."
        raise ValidationError(message)
    ours, theirs = left.row.children[time], right.row.children[found[0]]
    if ours.root is not theirs.root:
        message = (
            "Event-Time Temporal Table Join requires same rowtime type in left table and "
            f"versioned table, but the actual types are {ours.as_summary_string()} and "
            f"{theirs.as_summary_string()}."
        )
        raise ValidationError(message)
    return found[0]


# -- keys ----------------------------------------------------------------------------------------


def _key_parts(parts: list[Expression], width: int, right: pp.PhysicalNode) -> list[Expression]:
    """The equalities that say which versions belong to a row: one per column of the right's key.

    Others are conditions on the version; as keys they would keep a version whose successor
    differs in them.
    """
    known = right.unique_keys()
    if not known:
        message = (
            "Temporal Table Join requires primary key in versioned table, but no primary key can "
            "be found."
        )
        raise ValidationError(message)
    by_column: dict[int, Expression] = {}
    for part in parts:
        column = _equal_column(part, width)
        if column is not None:
            by_column.setdefault(column, part)
    key = pp.smallest(frozenset(each for each in known if each and each <= set(by_column)))
    if key is None:
        names = ", ".join(right.row.names[each] for each in pp.smallest(known) or ())
        shown = "true" if not parts else " AND ".join(map(str, parts))
        message = (
            f"Temporal table's primary key [{names}] must be included in the equivalence "
            f"condition of temporal join, but current temporal join condition is [{shown}]."
        )
        raise ValidationError(message)
    return [by_column[each] for each in key]


def _equal_column(part: Expression, width: int) -> int | None:
    """The column of the right that an equality names, where the other side is of the left."""
    if not isinstance(part, Call) or part.function not in {"=", "IS NOT DISTINCT FROM"}:
        return None
    for one, other in (part.arguments, reversed(part.arguments)):
        columns, plain_one = pp.columns_of(other), _widened(one)
        is_left = bool(columns) and max(columns) < width
        if is_left and isinstance(plain_one, InputReference) and plain_one.index >= width:
            return plain_one.index - width
    return None


def _widened(expression: Expression) -> Expression:
    """Return what a cast to a larger integer is made of: it has as many values."""
    if isinstance(expression, Call) and expression.function == "CAST":
        before = expression.arguments[0]
        kinds = type(before.type), type(expression.type)
        if all(kind in _INTEGERS for kind in kinds):
            one, other = (_INTEGERS.index(kind) for kind in kinds)
            if one <= other:
                return before
    return expression


# -- versions ------------------------------------------------------------------------------------


def _versions(node: pp.PhysicalNode) -> pp.PhysicalNode:
    """The rows that are versions, as they come: each ends the one before it, whatever that was.

    Raises:
        ValidationError: rows go by what was there before.
    """
    if pp.kinds_of(node) == frozenset("I"):
        return node
    if isinstance(node, Deduplicate) and node.keep_last and node.rowtime is not None:
        return _read(node.input)
    if isinstance(node, ChangelogNormalize):
        return _read(node.input)
    if isinstance(node, Scan):
        return node
    computes = isinstance(node, Calc) and node.condition is None
    if computes or isinstance(node, WatermarkAssigner):
        return replace(node, inputs=(_versions(node.input),), kinds=None)
    message = (
        "The right of a temporal join is a table with a PRIMARY KEY, or a view of the last row "
        "per key (ROW_NUMBER() over a key in the order of its event time, descending, = 1), "
        f"without a filter; {node.kind}({node.details()}) is not. Conditions on versions stand in "
        "the join."
    )
    raise ValidationError(message)


def _read(node: pp.PhysicalNode) -> pp.PhysicalNode:
    """Return what an exchange reads."""
    return node.input if isinstance(node, Exchange) else node
