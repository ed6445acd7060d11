"""Rules for regular, interval, temporal and lookup joins: pushdown, keys and time bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.errors import ValidationError
from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import (
    Converts,
    calc,
    columns_of,
    conjunction,
    conjuncts,
    exchange,
    is_deterministic,
    is_rowtime,
    keeps_time,
    keeps_time_attribute,
    moved,
    reads_once,
    substituted,
)
from millstream.sql.planner.changelog import kinds_of, smallest, upsert_keys
from millstream.sql.planner.formatting import expression_text
from millstream.sql.planner.logical import (
    FilterNode,
    JoinNode,
    JoinType,
    LogicalNode,
    ProjectNode,
    ScanNode,
    TemporalJoinNode,
    WatermarkNode,
    references,
    row_of,
)
from millstream.sql.planner.physical import IntervalJoin, LookupJoin, TemporalJoin
from millstream.sql.planner.windows import window_join
from millstream.types.logical_types import (
    BigIntType,
    DayTimeIntervalType,
    IntType,
    LocalZonedTimestampType,
    SmallIntType,
    TimestampKind,
    TimestampType,
    TinyIntType,
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


def lookup_join(converter: Converts, node: Any) -> PhysicalNode:
    """Each row of the left with the rows of the right as they are now.

    Raises:
        ValidationError: the right cannot be asked for rows, or not by these columns.
    """
    scan, projections, conditions = _looked_up(node.right)
    left = converter.convert(node.left)
    width = len(left.row)
    keys, rest = _keys(conjuncts(node.condition), width, projections, scan)
    if not keys:
        shown = scan.identifier.as_summary_string()
        message = (
            f"Temporal table join requires an equality condition on fields of table [{shown}], as "
            "they are, with a column of the left table or a constant."
        )
        raise ValidationError(message)
    lookup = scan.source.lookup(list(keys))
    if lookup is None:
        raise ValidationError(_no_lookup(scan))
    inputs, columns = _asking(left, list(keys.values()))
    shift = len(inputs.row) - width
    keeps = node.kind is JoinType.LEFT
    right = [nullable(each) if keeps else plain(each) for each in node.right.row.children]
    row = row_of([*inputs.row.names, *node.right.row.names], [*inputs.row.children, *right])
    primary = scan.table.schema.key_columns
    made: PhysicalNode = LookupJoin(
        row=row,
        inputs=(inputs,),
        join=node.kind,
        identifier=scan.identifier,
        table=scan.table,
        lookup=lookup,
        table_row=scan.row,
        names=tuple(keys),
        keys=tuple(columns),
        texts=tuple(expression_text(each) for each in keys.values()),
        right_row=row_of(node.right.row.names, [each.type for each in projections]),
        projections=tuple(projections),
        table_condition=conjunction(conditions),
        condition=_behind(conjunction(rest), references(row), width, shift),
        # What answers by one connection alone is not asked side by side, whatever the hint says.
        hint=node.lookup if lookup.has_connections else replace(node.lookup, is_async=False),
        is_one_row=bool(primary) and set(primary) <= set(keys),
    )
    every = references(made.row)
    shown_columns = [*every[:width], *every[width + shift :]]
    return calc(made, shown_columns, row_of(node.row.names, [each.type for each in shown_columns]))


def _looked_up(node: LogicalNode) -> tuple[ScanNode, list[Expression], list[Expression]]:
    """The table below projections and filters, the columns over it, and the filters."""
    steps: list[Any] = []
    below = node
    while isinstance(below, ProjectNode | FilterNode | WatermarkNode):
        steps.append(below)
        below = below.input
    if not isinstance(below, ScanNode):
        message = (
            "Processing-time temporal join is not supported yet: FOR SYSTEM_TIME AS OF a "
            "processing time takes a table whose connector can look rows up, and views that "
            "filter and compute over it."
        )
        raise ValidationError(message)
    columns: list[Expression] = list(references(below.row))
    conditions: list[Expression] = []
    for each in reversed(steps):
        _check_reads(each, columns)
        if isinstance(each, FilterNode):
            conditions.append(substituted(each.condition, columns))
        elif isinstance(each, ProjectNode):
            columns = [substituted(one, columns) for one in each.expressions]
    if any(column.is_metadata() for column in below.table.schema.columns):
        shown = below.identifier.as_summary_string()
        message = f"Table '{shown}' has METADATA columns, which rows that are looked up have not."
        raise ValidationError(message)
    return below, columns, conditions


def _check_reads(step: Any, columns: list[Expression]) -> None:
    """Refuse what would compute a column of the table once for each who reads it.

    Raises:
        ValidationError: such a column is not deterministic.
    """
    is_filter = isinstance(step, FilterNode)
    readers = [step.condition] if is_filter else getattr(step, "expressions", ())
    if not reads_once(readers, columns, most=0 if is_filter else 1):
        message = (
            "A column over a table that is looked up which is not deterministic and read in "
            "several places is not in this release; compute it after the join."
        )
        raise ValidationError(message)


def _no_lookup(scan: ScanNode) -> str:
    name = scan.table.options.get("connector")
    return (
        f"Table '{scan.identifier.as_summary_string()}': connector '{name}' cannot look rows up by "
        "keys, which FOR SYSTEM_TIME AS OF a processing time needs."
    )


def _keys(
    parts: list[Expression], width: int, projections: list[Expression], scan: ScanNode
) -> tuple[dict[str, Expression], list[Expression]]:
    """For columns of the table what they are equal to, and what is left of the condition."""
    keys: dict[str, Expression] = {}
    rest = []
    for part in parts:
        found = _key(part, width, projections)
        if found is not None:
            column, value = found
            field = scan.row.fields[column]
            if field.name not in keys and field.type.to_arrow() == value.type.to_arrow():
                keys[field.name] = value
                continue
        rest.append(part)
    return keys, rest


def _key(
    part: Expression, width: int, projections: list[Expression]
) -> tuple[int, Expression] | None:
    if not isinstance(part, Call) or part.function != "=":
        return None
    one, other = part.arguments
    for column, value in ((one, other), (other, one)):
        if not isinstance(column, InputReference) or column.index < width:
            continue
        origin = projections[column.index - width]
        from_left = all(each < width for each in columns_of(value)) and is_deterministic(value)
        if isinstance(origin, InputReference) and from_left:
            return origin.index, value
    return None


def _asking(left: PhysicalNode, values: list[Expression]) -> tuple[PhysicalNode, list[int]]:
    """The left with the values that are asked for, and where they stand."""
    columns: list[Expression] = list(references(left.row))
    places = []
    for value in values:
        if value not in columns:
            columns.append(value)
        places.append(columns.index(value))
    extra = len(columns) - len(left.row)
    if not extra:
        return left, places
    names = [*left.row.names, *(f"$k{number}" for number in range(extra))]
    return calc(left, columns, row_of(names, [each.type for each in columns])), places


def _behind(
    condition: Expression | None, columns: list[InputReference], width: int, shift: int
) -> Expression | None:
    """A condition over both sides, with the computed keys of the left between them."""
    if condition is None:
        return None
    return substituted(condition, [*columns[:width], *columns[width + shift :]])


_INTEGERS = (TinyIntType, SmallIntType, IntType, BigIntType)
_NEEDS = "Event-Time Temporal Table Join requires both primary key and row time attribute"


def temporal_join(converter: Converts, node: Any) -> PhysicalNode:
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


def _temporal_joins_row(left: RowType, right: RowType, kind: JoinType) -> RowType:
    keeps = kind is JoinType.LEFT
    types = [nullable(each) if keeps else plain(each) for each in right.children]
    return row_of([*left.names, *right.names], [*left.children, *types])


def _times(left: PhysicalNode, right: PhysicalNode, time: int) -> int:
    """The time attribute of the right, once both are looked at."""
    if not keeps_time_attribute(left, time):
        message = (
            "FOR SYSTEM_TIME AS OF takes a time attribute of the left table, but "
            f"'{left.row.names[time]}' comes through a regular join or DISTINCT, where a time "
            "attribute ends."
        )
        raise ValidationError(message)
    found = [
        index
        for index, each in enumerate(right.row.children)
        if is_rowtime(each) and keeps_time_attribute(right, index)
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


def _key_parts(parts: list[Expression], width: int, right: PhysicalNode) -> list[Expression]:
    """The equalities that say which versions belong to a row: one per column of the right's key.

    Others are conditions on the version; as keys they would keep a version whose successor
    differs in them.
    """
    known = upsert_keys(right)
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
    key = smallest(frozenset(each for each in known if each and each <= set(by_column)))
    if key is None:
        names = ", ".join(right.row.names[each] for each in smallest(known) or ())
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
        columns, plain_one = columns_of(other), _widened(one)
        is_left = bool(columns) and max(columns) < width
        if is_left and isinstance(plain_one, InputReference) and plain_one.index >= width:
            return plain_one.index - width
    return None


def _widened(expression: Expression) -> Expression:
    """What a cast to a larger integer is made of: it has as many values."""
    if isinstance(expression, Call) and expression.function == "CAST":
        before = expression.arguments[0]
        kinds = type(before.type), type(expression.type)
        if all(kind in _INTEGERS for kind in kinds):
            one, other = (_INTEGERS.index(kind) for kind in kinds)
            if one <= other:
                return before
    return expression


# -- versions ------------------------------------------------------------------------------------


def _versions(node: PhysicalNode) -> PhysicalNode:
    """The rows that are versions, as they come: each ends the one before it, whatever that was.

    Raises:
        ValidationError: rows go by what was there before.
    """
    if kinds_of(node) == frozenset("I"):
        return node
    if isinstance(node, physical.Deduplicate) and node.keep_last and node.rowtime is not None:
        return _read(node.input)
    if isinstance(node, physical.ChangelogNormalize):
        return _read(node.input)
    if isinstance(node, physical.TableSourceScan | physical.DataStreamScan):
        return node
    computes = isinstance(node, physical.Calc) and node.condition is None
    if computes or isinstance(node, physical.WatermarkAssigner):
        return replace(node, inputs=(_versions(node.input),), kinds=None)
    message = (
        "The right of a temporal join is a table with a PRIMARY KEY, or a view of the last row "
        "per key (ROW_NUMBER() over a key in the order of its event time, descending, = 1), "
        f"without a filter; {node.kind}({node.details()}) is not. Conditions on versions stand in "
        "the join."
    )
    raise ValidationError(message)


def _read(node: PhysicalNode) -> PhysicalNode:
    """What an exchange reads."""
    return node.input if isinstance(node, physical.Exchange) else node
