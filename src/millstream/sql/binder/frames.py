"""The frames of OVER: which rows around each row a function is over.

What it is: the ends of a frame as numbers, checked: those that streams have end at the row itself,
those of batch mode are any.
What it is not: what is computed over them (``sql/binder/overs.py``).
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.context import EvaluationContext
from millstream.expressions.folding import fold
from millstream.expressions.nodes import Literal
from millstream.types.logical_types import DayTimeIntervalType, DecimalType
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from millstream.runtime.operators.table.batch_over import Offset
    from millstream.sql.binder.context import BindingContext
    from millstream.sql.binder.expressions import ExpressionBinder
    from millstream.types.logical_types import LogicalType

__all__ = ["frame_ends"]

#: From the first row on.
_ORDER: Final = ("PRECEDING", "CURRENT ROW", "FOLLOWING")


def frame_ends(
    context: BindingContext, binder: ExpressionBinder, frame: Any, order: list[LogicalType]
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
        raise context.error(frame, "OVER windows cannot begin behind the row.")
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
    context: BindingContext, binder: ExpressionBinder, frame: Any, order: list[LogicalType]
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
    by: LogicalType | None,
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
        if isinstance(by, DecimalType):
            fits = fits and not isinstance(value, float)
        else:
            value = float(value)
    elif by is None or by.is_a(TypeFamily.DATETIME):
        wanted, fits = "an interval of days to seconds", isinstance(kind, DayTimeIntervalType)
    else:
        message = f"RANGE with a length does not go by {by}: it needs numbers or times."
        raise context.error(bound.offset, message)
    if not fits or value < 0:
        message = f"The length of a {frame.unit} window must be {wanted}, and not negative."
        raise context.error(bound.offset, message)
    return value
