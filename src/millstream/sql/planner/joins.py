"""Joins: conditions pushed down, keys found, and which kind of join it is.

What it is: the rules for JoinNode.
What it is not: the operators; nor joins with versions (``sql/planner/temporal_joins.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import (
    Converts,
    calc,
    columns_of,
    conjunction,
    conjuncts,
    exchange,
    is_rowtime,
    keeps_time,
    moved,
)
from millstream.sql.planner.changelog import kinds_of
from millstream.sql.planner.logical import (
    FilterNode,
    JoinNode,
    JoinType,
    LogicalNode,
    TemporalJoinNode,
    references,
    row_of,
)
from millstream.sql.planner.physical import IntervalJoin
from millstream.sql.planner.time_attributes import keeps_time_attribute
from millstream.sql.planner.windows import window_join
from millstream.types.logical_types import (
    DayTimeIntervalType,
    LocalZonedTimestampType,
    TimestampKind,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import LogicalType, RowType


def plain(kind: LogicalType) -> LogicalType:
    """The type of a column where it is no time attribute any more."""
    if isinstance(kind, TimestampType | LocalZonedTimestampType) and kind.is_time_attribute:
        return kind.with_parameters(kind=TimestampKind.REGULAR)
    return kind


def _filtered(node: LogicalNode, parts: list[Expression]) -> LogicalNode:
    condition = conjunction(parts)
    if condition is None:
        return node
    return FilterNode(row=node.row, input=node, condition=condition)


def pushed(node: FilterNode) -> LogicalNode | None:
    """A filter over a join, as far as it can go into and below the join; None if it cannot."""
    below = node.input
    if isinstance(below, TemporalJoinNode) and below.kind is JoinType.INNER:
        parts = [*conjuncts(below.condition), *conjuncts(node.condition)]
        return replace(below, condition=conjunction(parts))
    if not isinstance(below, JoinNode):
        return None
    width = len(below.left.row)
    left, right, both = sorted_parts(conjuncts(node.condition), width)
    inner = below.kind is JoinType.INNER
    to_left = left if inner or below.kind in {JoinType.LEFT, JoinType.SEMI, JoinType.ANTI} else []
    to_right = right if inner or below.kind is JoinType.RIGHT else []
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
        columns = columns_of(each)
        if columns and max(columns) < width:
            left.append(each)
        elif columns and min(columns) >= width:
            right.append(each)
        else:
            both.append(each)
    return left, right, both


class Sides:
    """The inputs of a join, with the columns that its keys need."""

    def __init__(self, left: PhysicalNode, right: PhysicalNode) -> None:
        self.width = len(left.row)
        self.rows = [left.row, right.row]
        self.nodes = [left, right]
        self._extra: list[list[Expression]] = [[], []]
        self.keys: list[list[int]] = [[], []]
        self.filter_nulls: list[bool] = []

    def take(self, part: Expression) -> bool:
        """Whether a condition is an equality of keys; then they are noted."""
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
        columns = columns_of(expression)
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

    def inputs(self) -> list[PhysicalNode]:
        """The inputs with computed keys behind their columns."""
        return [self._input(side) for side in (0, 1)]

    def exchanged(self) -> tuple[PhysicalNode, PhysicalNode]:
        """The inputs, with the rows of each key in one task."""
        left, right = self.inputs()
        return exchange(left, tuple(self.keys[0])), exchange(right, tuple(self.keys[1]))

    def _input(self, side: int) -> PhysicalNode:
        below, extra = self.nodes[side], self._extra[side]
        if not extra:
            return below
        names = [*below.row.names, *(f"$k{number}" for number in range(len(extra)))]
        columns: list[Expression] = [*references(below.row), *extra]
        return calc(below, columns, row_of(names, [each.type for each in columns]))

    @property
    def has_extra(self) -> bool:
        """Whether keys are computed."""
        return any(self._extra)

    def moved(self, expression: Expression | None) -> Expression | None:
        """A condition over both, with the computed keys of the left between them."""
        shift = len(self._extra[0])
        if expression is None or not shift:
            return expression
        columns: list[Expression] = list(references(self.rows[0]))
        columns += [moved(each, self.width + shift) for each in references(self.rows[1])]
        from millstream.sql.planner.calcs import substituted

        return substituted(expression, columns)


def join(converter: Converts, node: Any) -> PhysicalNode:
    """A regular join, or one of windows or intervals."""
    width = len(node.left.row)
    left_only, right_only, both = sorted_parts(conjuncts(node.condition), width)
    left, right = node.left, node.right
    kind = node.kind
    if kind in {JoinType.INNER, JoinType.RIGHT, JoinType.SEMI}:
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


def _window_join(node: Any, sides: Sides, condition: Expression | None) -> PhysicalNode | None:
    inputs = sides.inputs()
    row = _regular_row(node, inputs)
    moved_ = sides.moved(condition)
    made = window_join(node, inputs, row, sides.keys, sides.filter_nulls, moved_)
    return None if made is None else without_extra(node, made, sides, len(inputs[0].row))


def _regular_row(node: Any, inputs: Sequence[PhysicalNode]) -> RowType:
    row = inputs[0].row if node.kind.left_only else _row(inputs, node.kind)
    return row_of(row.names, [plain(each) for each in row.children])


def _regular_join(node: Any, sides: Sides, condition: Expression | None) -> PhysicalNode:
    inputs = sides.exchanged()
    made: PhysicalNode = physical.Join(
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


def _row(inputs: Sequence[PhysicalNode], kind: JoinType) -> RowType:
    """The columns of both; a side that may be missing has no times to go by."""
    types: list[LogicalType] = []
    for each, may_miss in zip(inputs, (kind.keeps_right, kind.keeps_left), strict=True):
        found = list(each.row.children)
        types += [nullable(one) for one in found] if may_miss else found
    return row_of([*inputs[0].row.names, *inputs[1].row.names], types)


def nullable(kind: LogicalType) -> LogicalType:
    """The type of a column of a side that may be missing."""
    return plain(kind).with_nullability(True)  # noqa: FBT003


def without_extra(node: Any, made: PhysicalNode, sides: Sides, left_width: int) -> PhysicalNode:
    """A join without the computed keys, and with the names that the query knows."""
    shown = references(made.row)
    if sides.has_extra:
        columns = shown
        shown = columns[: sides.width]
        if not node.kind.left_only:
            shown += columns[left_width : left_width + len(sides.rows[1])]
    elif made.row.names == node.row.names:
        return made
    return calc(made, shown, row_of(node.row.names, [each.type for each in shown]))


# -- interval joins ------------------------------------------------------------------------------


def _interval_join(node: Any, sides: Sides, rest: list[Expression]) -> PhysicalNode | None:
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
        if not all(map(keeps_time_attribute, sides.nodes, (left, right))):
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
    keeps = all(map(keeps_time_attribute, sides.nodes, columns))
    inserts = all(kinds_of(each) == frozenset("I") for each in sides.nodes)
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
    attributes = {getattr(kind, "kind", TimestampKind.REGULAR) for kind in kinds}
    if len(attributes) > 1 or TimestampKind.REGULAR in attributes:
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
            and isinstance(length.type, DayTimeIntervalType)
            and isinstance(length.value, int)
        ):
            return found[0], found[1] + (
                length.value if expression.function == "+" else -length.value
            )
    return None
