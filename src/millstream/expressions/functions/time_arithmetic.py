"""Sums and differences with times and intervals, which + - * / do as well.

What it is: the signatures that these operators have besides those of numbers, and what they do:
a date or timestamp plus months keeps the day where the month has it, else takes the month's last;
a date plus hours counts whole days of them; a time of day goes round the clock.

What it is not: functions of the group ``temporal`` (TIMESTAMPADD and its like), which may use it.

Read next: ``expressions/functions/arithmetic.py``.
"""

from __future__ import annotations

from calendar import monthrange
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.functions.signatures import (
    family,
    interval,
    numeric,
    root,
    signature,
)
from millstream.expressions.integers import wrap
from millstream.types.logical_types import (
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    LocalZonedTimestampType,
    LogicalType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
)
from millstream.types.text_values import civil_of_days, days_of_civil
from millstream.types.type_derivation import common_type
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.functions.definition import CallInfo

__all__ = ["DIVIDED", "MINUS", "PLUS", "TIMES", "add_months", "compute", "kernel"]

NANOS_PER_DAY: Final = 86_400_000_000_000
_NANOS_PER_MILLI: Final = 1_000_000
_MILLIS_PER_DAY: Final = 86_400_000
_MILLIS: Final = 3
_INT_BITS: Final = 32
_TIMESTAMPS: Final = (
    TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE,
    TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE,
)


# -- signatures -------------------------------------------------------------------------------


def _shifted_type(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    """The time's own type; a time attribute is none any more."""
    del constants
    time = types[0] if types[0].is_a(TypeFamily.DATETIME) else types[1]
    if isinstance(time, TimestampType):
        return TimestampType(time.precision)
    if isinstance(time, LocalZonedTimestampType):
        return LocalZonedTimestampType(time.precision)
    return time


def _alike(types: Sequence[LogicalType]) -> tuple[LogicalType, ...] | None:
    common = common_type(list(types)) if types[0].root is types[1].root else None
    if common is None:
        return None
    return tuple(common.with_nullability(type_.is_nullable) for type_ in types)


def _interval_type(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    del constants
    return next(type_ for type_ in types if type_.is_a(TypeFamily.INTERVAL))


def _time(name: str) -> Any:
    return root(name, TypeRoot.DATE, TypeRoot.TIME_WITHOUT_TIME_ZONE, *_TIMESTAMPS)


_SUM_OF_INTERVALS: Final = signature(
    interval("interval1"), interval("interval2"), result=_interval_type, unify=_alike
)
_SHIFTED: Final = signature(_time("time"), interval(), result=_shifted_type)
PLUS: Final = (
    _SHIFTED,
    signature(interval(), _time("time"), result=_shifted_type),
    _SUM_OF_INTERVALS,
)
MINUS: Final = (
    _SHIFTED,
    _SUM_OF_INTERVALS,
    signature(interval(), result=_interval_type),
)


def _factor_types(types: Sequence[LogicalType]) -> tuple[LogicalType, ...]:
    """Numbers that intervals are multiplied with: integers as they are, others as DOUBLE."""
    return tuple(
        DoubleType(nullable=type_.is_nullable)
        if isinstance(type_, DecimalType) or type_.is_a(TypeFamily.APPROXIMATE_NUMERIC)
        else type_
        for type_ in types
    )


TIMES: Final = (
    signature(interval(), numeric(), result=_interval_type, unify=_factor_types),
    signature(numeric(), interval(), result=_interval_type, unify=_factor_types),
)
DIVIDED: Final = (
    signature(
        interval(),
        family("numeric", TypeFamily.NUMERIC, DoubleType()),
        result=_interval_type,
        unify=_factor_types,
    ),
)


# -- values -----------------------------------------------------------------------------------


def add_months(days: int, months: int) -> int:
    """Days since 1970-01-01 after so many months; a day that the month lacks is its last."""
    year, month, day = civil_of_days(days)
    index = year * 12 + month - 1 + months
    year, month = index // 12, index % 12 + 1
    return days_of_civil(year, month, min(day, _days_in(year, month)))


def _days_in(year: int, month: int) -> int:
    # The calendar repeats after 400 years, and Python knows those from 1 on.
    return monthrange(year % 400 + 400, month)[1]


def compute(operation: str, info: CallInfo, left: Any, right: Any) -> object:
    """The reference of an operator where a time or an interval takes part.

    Args:
        operation: ``add``, ``subtract``, ``multiply`` or ``divide``.
        info: the call.
        left: the first value.
        right: the second value.
    """
    if operation in {"multiply", "divide"}:
        return _scaled_interval(operation, info, left, right)
    one, other = info.argument_types
    if one.is_a(TypeFamily.INTERVAL) and other.is_a(TypeFamily.INTERVAL):
        total = left + right if operation == "add" else left - right
        return wrap(total, _interval_bits(info.result_type))
    if one.is_a(TypeFamily.INTERVAL):
        one, other, left, right = other, one, right, left
    amount = right if operation == "add" else -right
    if isinstance(other, YearMonthIntervalType):
        return _plus_months(one, left, amount)
    return _plus_millis(one, left, amount)


def _interval_bits(type_: LogicalType) -> int:
    return 32 if isinstance(type_, YearMonthIntervalType) else 64


def _scaled_interval(operation: str, info: CallInfo, left: Any, right: Any) -> object:
    if info.argument_types[1].is_a(TypeFamily.INTERVAL):
        left, right = right, left
    if operation == "multiply":
        result = left * right
    elif right == 0:
        message = "division by zero"
        raise ZeroDivisionError(message)
    elif isinstance(right, int):
        result = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    else:
        result = left / right
    return wrap(int(result), _interval_bits(info.result_type))


def _plus_months(type_: LogicalType, value: int, months: int) -> int:
    if isinstance(type_, DateType):
        return wrap(add_months(value, months), _INT_BITS)
    if isinstance(type_, TimeType):
        return value  # months are whole days
    days, of_day = divmod(value, NANOS_PER_DAY)
    return add_months(days, months) * NANOS_PER_DAY + of_day


def _plus_millis(type_: LogicalType, value: int, millis: int) -> int:
    if isinstance(type_, DateType):
        # Whole days only.
        days = abs(millis) // _MILLIS_PER_DAY
        return wrap(value + days if millis > 0 else value - days, _INT_BITS)
    moved = value + millis * _NANOS_PER_MILLI
    if isinstance(type_, TimeType):
        moved %= NANOS_PER_DAY
    precision: int = type_.precision  # type: ignore[attr-defined]
    return moved - int(moved % 10 ** (9 - precision))


# -- columns ----------------------------------------------------------------------------------


def kernel(operation: str, info: CallInfo, left: Any, right: Any) -> Any:
    """The kernel of an operator where a time or an interval takes part.

    Args:
        operation: ``add``, ``subtract`` or ``multiply``.
        info: the call.
        left: the first column or scalar.
        right: the second column or scalar.

    Returns:
        A column, or NotImplemented: months have no fixed length, and times of day go round.
    """
    if operation == "multiply":
        return NotImplemented
    one, other = info.argument_types
    if one.is_a(TypeFamily.INTERVAL) and not other.is_a(TypeFamily.INTERVAL):
        one, other, left, right = other, one, right, left
    combine: Callable[..., Any] = pc.add if operation == "add" else pc.subtract
    if not isinstance(other, DayTimeIntervalType):
        is_sum = isinstance(one, YearMonthIntervalType)
        return combine(left, right) if is_sum else NotImplemented
    if isinstance(one, DayTimeIntervalType):
        total = combine(left.cast(pa.int64()), right.cast(pa.int64()))
        return total.cast(info.result_type.to_arrow())
    if not isinstance(one, TimestampType | LocalZonedTimestampType) or one.precision < _MILLIS:
        return NotImplemented
    return combine(left, right).cast(info.result_type.to_arrow())
