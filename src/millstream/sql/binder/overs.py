"""Bind OVER calls: collect those of a SELECT and add one OVER node per window to its plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import fold
from millstream.expressions.nodes import InputReference, Literal
from millstream.expressions.user_functions import user_aggregate
from millstream.runtime.operators.table.specs import AggregateCall
from millstream.sql.binder import calls
from millstream.sql.binder.calls import (
    AGGREGATES,
    OVER_ONLY,
    RANKS,
    Placeholder,
    aggregate_arguments,
    aggregate_type,
    plain_type,
)
from millstream.sql.binder.expressions import user_aggregate_arguments
from millstream.sql.binder.queries import check_orderable
from millstream.sql.parser import nodes
from millstream.sql.planner import logical as lp
from millstream.types import logical_types as lt
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.expressions.nodes import Expression
    from millstream.expressions.user_functions import UserAggregate
    from millstream.runtime.operators.table.batch_over import Offset
    from millstream.sql.binder.expressions import ExpressionBinder
    from millstream.sql.binder.scope import BindingContext


#: From the first row on.
_ORDER: Final = ("PRECEDING", "CURRENT ROW", "FOLLOWING")


def frame_ends(
    context: BindingContext, binder: ExpressionBinder, frame: Any, order: list[lt.LogicalType]
) -> tuple[Offset | None, Offset | None]:
    """How far a frame goes before a row and behind it; None: as far as there are rows.

    Args:
        context: of the statement; says whether all rows of a partition are there.
        binder: of the lengths.
        frame: the clause.
        order: the types of the columns that rows are ordered by.

    Raises:
        ValidationError: a stream has no such frame, or it goes by what has no distances.
    """
    _check_directions(context, frame)
    if context.is_batch:
        return _any_ends(context, binder, frame, order)
    if frame.end.direction != "CURRENT ROW":
        raise context.error(frame, "OVER windows must end with CURRENT ROW.")
    start = frame.start
    if start.direction == "FOLLOWING":
        raise context.error(frame, "OVER windows cannot begin after the row.")
    if start.direction == "CURRENT ROW":
        return 0, 0
    if start.offset is None:
        return None, 0
    return _length(context, binder, frame, start, None), 0


def _check_directions(context: BindingContext, frame: Any) -> None:
    """Refuse, whatever the lengths, an end that is another way than it can be."""
    for bound, inwards, which in (
        (frame.start, "FOLLOWING", "lower"),
        (frame.end, "PRECEDING", "upper"),
    ):
        if bound.direction == inwards and bound.offset is None:
            message = f"UNBOUNDED {inwards} cannot be specified for the {which} frame boundary."
            raise context.error(bound, message)
    start, end = frame.start.direction, frame.end.direction
    if _ORDER.index(start) > _ORDER.index(end):
        message = f"Upper frame boundary cannot be {end} when lower boundary is {start}."
        raise context.error(frame.end, message)


def _any_ends(
    context: BindingContext, binder: ExpressionBinder, frame: Any, order: list[lt.LogicalType]
) -> tuple[Offset | None, Offset | None]:
    found: list[Offset | None] = []
    for bound, outwards in ((frame.start, "PRECEDING"), (frame.end, "FOLLOWING")):
        if bound.direction == "CURRENT ROW":
            found.append(0)
        elif bound.offset is None:
            found.append(None)
        else:
            if frame.unit == "RANGE" and len(order) != 1:
                message = "RANGE with a length needs one column in ORDER BY."
                raise context.error(frame, message)
            kind = order[0] if frame.unit == "RANGE" else None
            length = _length(context, binder, frame, bound, kind)
            found.append(length if bound.direction == outwards else -length)
    return found[0], found[1]


def _length(
    context: BindingContext,
    binder: ExpressionBinder,
    frame: Any,
    bound: Any,
    by: lt.LogicalType | None,
) -> Offset:
    """The distance at one end; RANGE by numbers takes numbers, by times (None) intervals."""
    offset = fold(binder.bind(bound.offset), EvaluationContext())
    if not isinstance(offset, Literal) or not isinstance(offset.value, int | Decimal | float):
        raise context.error(bound.offset, "The length of a window must be a constant.")
    kind, value = offset.type, offset.value
    if frame.unit == "ROWS" or (by is not None and by.is_a(TypeFamily.INTEGER_NUMERIC)):
        wanted, fits = "a whole number", kind.is_a(TypeFamily.INTEGER_NUMERIC)
    elif by is not None and by.is_a(TypeFamily.NUMERIC):
        wanted, fits = "a number", kind.is_a(TypeFamily.NUMERIC)
        if isinstance(by, lt.DecimalType):
            fits = fits and not isinstance(value, float)
        else:
            value = float(value)
    elif by is None or by.is_a(TypeFamily.DATETIME):
        wanted, fits = "an interval of days to seconds", isinstance(kind, lt.DayTimeIntervalType)
    else:
        message = f"RANGE with a length does not go by {by}: it needs numbers or times."
        raise context.error(bound.offset, message)
    if not fits or value < 0:
        message = f"The length of a {frame.unit} window must be {wanted}, and not negative."
        raise context.error(bound.offset, message)
    return value


#: What is over all rows of a partition, which a stream never has.
_OF_BATCH: Final = frozenset({"LEAD", "CUME_DIST", "PERCENT_RANK", "NTILE"})
_SHARES: Final = frozenset({"CUME_DIST", "PERCENT_RANK"})
_ORDERED: Final = frozenset({"RANK", "DENSE_RANK", *_SHARES})
#: The arguments of LAG and LEAD.
_LAG: Final = ("a value", "an offset", "a default")


@dataclass(frozen=True)
class _Window:
    partition: tuple[Expression, ...]
    order: tuple[tuple[Expression, bool, bool], ...]
    is_rows: bool
    preceding: Offset | None
    following: Offset | None = 0


@dataclass(frozen=True)
class _Call:
    function: str
    arguments: tuple[Expression, ...]
    filter: Expression | None
    distinct: bool
    type: lt.LogicalType
    window: _Window
    user: UserAggregate | None = None


class OverCalls:
    """The OVER calls of one SELECT."""

    def __init__(self, context: BindingContext, named: Sequence[Any]) -> None:
        """Take the windows of the WINDOW clause."""
        self._context = context
        self._named = {each.name.value: each.specification for each in named}
        self._calls: list[_Call] = []

    def add(self, binder: ExpressionBinder, node: nodes.FunctionCall) -> Expression:
        """A placeholder for the column of a call."""
        definition = calls.aggregate_of(self._context, node)
        if definition is not None:
            return self._placeholder(self._user_call(binder, node, definition))
        name = node.name.last.upper()
        self._check(node, name)
        if name in OVER_ONLY - RANKS:
            return self._other_row_or_place(binder, node, name)
        window = self._window(binder, node, name)
        arguments = tuple(
            binder.bind(each) for each in node.arguments if not isinstance(each, nodes.Star)
        )
        condition = None if node.filter is None else binder.condition(node.filter)
        function, kind = name, lt.BigIntType(nullable=False)
        if name not in RANKS:
            try:
                function, kind = aggregate_type(  # type: ignore[assignment]
                    name,
                    [each.type for each in arguments],
                    grouped=True,
                    filtered=condition is not None,
                )
            except ProgramError as error:
                raise self._context.error(node, str(error)) from error
            wanted = aggregate_arguments(name, [each.type for each in arguments])
            if function == "PERCENTILE":
                pairs = zip(arguments, wanted, strict=True)
                arguments = tuple(calls.coerced(each, to) or each for each, to in pairs)
        call = _Call(function, arguments, condition, node.distinct, kind, window)
        return self._placeholder(call)

    def _check(self, node: nodes.FunctionCall, name: str) -> None:
        """Check what a call without the rows that it sees is.

        Raises:
            ValidationError: it is no built-in function for OVER, or is not called as one.
        """
        if calls.user_function(self._context, node) is not None:
            message = f"OVER must be applied to an aggregate function; your {name} is none."
            raise self._context.error(node, message)
        if name in OVER_ONLY - RANKS:
            return
        if name not in AGGREGATES and name not in RANKS:
            message = f"{name} cannot be used with OVER; aggregates, ROW_NUMBER, RANK can."
            raise self._context.error(node, message)
        if node.within_group or node.order_by:
            message = f"ORDER BY in {name} is not in this release."
            raise self._context.error(node, message)
        if name in RANKS and node.arguments:
            raise self._context.error(node, f"{name} takes no arguments.")
        if name == "COUNT" and not node.arguments:
            raise self._context.error(node, "COUNT needs an argument: a column or *.")

    def _placeholder(self, call: _Call) -> Expression:
        if call not in self._calls:
            self._calls.append(call)
        return Placeholder("over", self._calls.index(call), call.type)  # type: ignore[return-value]

    def _other_row_or_place(self, binder: ExpressionBinder, node: Any, name: str) -> Expression:
        if name in _OF_BATCH and not self._context.is_batch:
            message = (
                f"{name} Function is not supported in stream mode: it is over all rows of a "
                "partition, which a stream never has; batch mode has it."
            )
            raise self._context.error(node, message)
        bind = self._other_row if name in {"LAG", "LEAD"} else self._place
        return bind(binder, node, name)

    def _other_row(self, binder: ExpressionBinder, node: Any, name: str) -> Expression:
        """LAG and LEAD: the value of a row at a distance."""
        arguments = [binder.bind(each) for each in node.arguments]
        if not 1 <= len(arguments) <= len(_LAG) or node.filter is not None or node.distinct:
            raise self._context.error(node, f"{name} takes {', '.join(_LAG)}, and nothing else.")
        value = arguments[0]
        offset = arguments[1] if len(arguments) > 1 else Literal(1, lt.IntType(nullable=False))
        count = offset.value if isinstance(offset, Literal) else None
        is_integer = offset.type.is_a(TypeFamily.INTEGER_NUMERIC)
        may_be_negative = self._context.is_batch
        if not is_integer or not isinstance(count, int) or (count < 0 and not may_be_negative):
            message = f"The offset of {name} must be a constant whole number"
            message += "." if may_be_negative else " that is not negative."
            raise self._context.error(node, message)
        kind = plain_type(value.type).with_nullability(True)  # noqa: FBT003
        given = arguments[2] if len(arguments) == len(_LAG) else Literal(None, kind)
        default = self._default(node, name, given, kind)
        window = self._window(binder, node, name)
        place = Literal(count, lt.IntType(nullable=False))
        columns = (calls.coerced(value, kind) or value, place, default)
        whole = replace(window, is_rows=True)
        return self._placeholder(_Call(name, columns, None, False, kind, whole))  # noqa: FBT003

    def _default(self, node: Any, name: str, given: Expression, kind: lt.LogicalType) -> Expression:
        """Return what LAG and LEAD give where there is no row, in the type of their value.

        Batch mode casts as Flink's does.  Streams take what casts itself, Flink's not even that.
        """
        default = calls.coerced(given, kind)
        families = (TypeFamily.CHARACTER_STRING, TypeFamily.NUMERIC)
        is_text = given.type.is_a(families[0]) or kind.is_a(families[0])
        is_number = given.type.is_a(families[1]) and kind.is_a(families[1])
        if default is None and self._context.is_batch and (is_text or is_number):
            try:
                default = calls.cast(given, kind)
            except ProgramError as error:
                raise self._context.error(node, str(error)) from error
        if default is None:
            message = f"The default of {name} is {given.type}, and its value {kind}. "
            message += f"Cast it explicitly: CAST(... AS {kind})."
            raise self._context.error(node, message)
        constant = fold(given, EvaluationContext())
        if isinstance(constant, Literal) and constant.value is not None:
            made = fold(default, EvaluationContext())
            if not isinstance(made, Literal) or made.value is None:
                message = f"The default of {name}, {constant.value!s}, does not fit in {kind}."
                raise self._context.error(node, message)
        return default

    def _place(self, binder: ExpressionBinder, node: Any, name: str) -> Expression:
        """CUME_DIST, PERCENT_RANK and NTILE: what the place of a row in its partition says."""
        arguments = tuple(binder.bind(each) for each in node.arguments)
        if node.filter is not None or node.distinct or (name in _SHARES and arguments):
            raise self._context.error(node, f"{name} takes no arguments, and no FILTER.")
        kind: lt.LogicalType = lt.DoubleType(nullable=False)
        if name == "NTILE":
            kind = lt.BigIntType(nullable=False)
            count = arguments[0] if len(arguments) == 1 else None
            value = count.value if isinstance(count, Literal) else None
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                message = "Argument to function 'NTILE' must be a positive integer literal."
                raise self._context.error(node, message)
            arguments = (Literal(value, kind),)
        window = self._window(binder, node, name)
        return self._placeholder(_Call(name, arguments, None, False, kind, window))  # noqa: FBT003

    def _user_call(
        self, binder: ExpressionBinder, node: Any, definition: FunctionDefinition
    ) -> _Call:
        window = self._window(binder, node, definition.name)
        made = user_aggregate_arguments(binder, node, definition)
        given = getattr(node, "filter", None)
        condition = None if given is None else binder.condition(given)
        user = user_aggregate(definition)
        name = calls.user_name(definition)
        return _Call(name, made.arguments, condition, node.distinct, made.type, window, user)

    def _window(self, binder: ExpressionBinder, node: Any, name: str) -> _Window:
        specification = self._specification(node, node.over)
        partition = tuple(binder.bind(each) for each in specification.partition_by)
        order = []
        for item in specification.order_by:
            first = item.nulls_first
            first = (not item.descending) if first is None else first
            key = binder.bind(item.expression)
            check_orderable(self._context, item.expression, key.type)
            order.append((key, item.descending, first))
        if not order and name not in RANKS and not self._context.is_batch:
            message = f"{name} with OVER needs ORDER BY in its window."
            raise self._context.error(node, message)
        frame = specification.frame
        if name in RANKS and frame is not None:
            message = "ROW/RANGE not allowed with RANK, DENSE_RANK or ROW_NUMBER functions."
            raise self._context.error(frame, message)
        if name in _ORDERED and not order:
            message = (
                "RANK or DENSE_RANK functions require ORDER BY clause in window specification."
            )
            raise self._context.error(node, message)
        if frame is None:
            return _Window(partition, tuple(order), False, None)  # noqa: FBT003 - RANGE
        kinds = [each.type for each, _, _ in order]
        ends = frame_ends(self._context, binder, frame, kinds)
        if name in OVER_ONLY and (frame.unit == "ROWS" or ends != (None, 0)):
            message = f"{name} takes no frame of its window: ROWS and RANGE are for aggregates."
            raise self._context.error(frame, message)
        return _Window(partition, tuple(order), frame.unit == "ROWS", *ends)

    def _specification(self, node: Any, over: Any) -> Any:
        if isinstance(over, nodes.Name):
            if over.value not in self._named:
                from millstream.sql.suggestions import did_you_mean

                hint = did_you_mean(over.value, self._named)
                message = f"Window '{over.value}' not found in the WINDOW clause.{hint}"
                raise self._context.error(node, message)
            return self._named[over.value]
        if over.base is None:
            return over
        base = self._specification(node, over.base)
        return replace(
            base,
            partition_by=base.partition_by or over.partition_by,
            order_by=base.order_by or over.order_by,
            frame=over.frame or base.frame,
        )

    def resolve(self, resolved: Callable[[Expression], Expression]) -> None:
        """Put positions in the place of placeholders of keys and aggregates."""
        self._calls = [
            replace(
                call,
                arguments=tuple(map(resolved, call.arguments)),
                filter=None if call.filter is None else resolved(call.filter),
                window=replace(
                    call.window,
                    partition=tuple(map(resolved, call.window.partition)),
                    order=tuple((resolved(e), *rest) for e, *rest in call.window.order),  # type: ignore[misc]
                ),
            )
            for call in self._calls
        ]

    def plan(self, below: lp.LogicalNode) -> tuple[lp.LogicalNode, dict[int, InputReference]]:
        """The plan with the calls' columns behind its own, and where each call is."""
        places: dict[int, InputReference] = {}
        windows = dict.fromkeys(call.window for call in self._calls)
        plan = below
        for window in windows:
            chosen = [(i, call) for i, call in enumerate(self._calls) if call.window == window]
            plan = self._one(plan, window, chosen, places)
        return plan, places

    def _one(
        self,
        below: lp.LogicalNode,
        window: _Window,
        chosen: list[tuple[int, _Call]],
        places: dict[int, InputReference],
    ) -> lp.LogicalNode:
        columns: list[Expression] = list(lp.references(below.row))
        names = list(below.row.names)

        def column(expression: Expression) -> int:
            if expression in columns:
                return columns.index(expression)
            columns.append(expression)
            names.append(f"$o{len(columns)}")
            return len(columns) - 1

        partition = tuple(column(each) for each in window.partition)
        order = tuple(lp.SortKey(column(e), d, n) for e, d, n in window.order)
        calls = []
        for _, call in chosen:
            condition = None if call.filter is None else column(call.filter)
            arguments = tuple(column(each) for each in call.arguments)
            made = AggregateCall(
                call.function, arguments, call.type, condition, call.distinct, user=call.user
            )
            calls.append(lp.OverCall(made, window.is_rows, window.preceding, window.following))
        if len(columns) > len(below.row):
            below = lp.project(below, columns, names)
        width = len(below.row)
        names = [*below.row.names, *(f"w${number}" for number in range(len(calls)))]
        row = lp.row_of(names, [*below.row.children, *(each.call.type for each in calls)])
        for number, (index, call) in enumerate(chosen):
            name = row.fields[width + number].name
            places[index] = InputReference(width + number, name, call.type)
        return lp.OverNode(
            row=row, input=below, partition=partition, order=order, calls=tuple(calls)
        )
