"""TIMESTAMPADD, TIMESTAMPDIFF, OVERLAPS; months follow the UTC calendar, as in Flink."""

from __future__ import annotations

from calendar import monthrange
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.decimals import wrap
from millstream.expressions.functions.definition import (
    BOOLEAN,
    INT,
    Argument,
    FunctionGroup,
    Nullability,
    family,
    integer,
    interval,
    numeric,
    root,
    signature,
    symbol,
)
from millstream.expressions.java.calendars import length_of_month
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


functions = FunctionGroup("temporal")

_NANOS: Final = 1_000_000_000
_MILLIS: Final = 1_000_000
_DAY: Final = 86_400 * _NANOS
_DATE: Final = TypeRoot.DATE
_TIME: Final = TypeRoot.TIME_WITHOUT_TIME_ZONE
_TIMESTAMP: Final = TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE
_LTZ: Final = TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE
_LENGTHS: Final = {
    "WEEK": 7 * _DAY,
    "DAY": _DAY,
    "HOUR": 3600 * _NANOS,
    "MINUTE": 60 * _NANOS,
    "SECOND": _NANOS,
    "MILLISECOND": _MILLIS,
    "MICROSECOND": 1000,
    "NANOSECOND": 1,
}
_INT_BITS: Final = 32
_MONTHS: Final = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}


def plus_months(days: int, months: int) -> int:
    """A date, in days since 1970, so many months later; the month's last day if it is shorter."""
    year, month, day = civil_of_days(days)
    years, month_index = divmod(month - 1 + months, 12)
    year, month = year + years, month_index + 1
    return days_of_civil(year, month, min(day, length_of_month(year, month)))


def months_between(later: int, earlier: int) -> int:
    """Whole months from one time, nanoseconds since 1970, to another, by Flink's rule.

    Going backwards it counts one month more where the days fit and the time of day is earlier.
    """
    days, of_day = divmod(later, _DAY)
    first_days, first_of_day = divmod(earlier, _DAY)
    months = _months_of_days(days, first_days)
    if plus_months(first_days, months) == days and of_day < first_of_day:
        months -= 1
    return months


def _months_of_days(days: int, first_days: int) -> int:
    if days < first_days:
        return -_months_of_days(first_days, days)
    year, month, _ = civil_of_days(days)
    first_year, first_month, _ = civil_of_days(first_days)
    months = (year - first_year) * 12 + month - first_month
    return months - (plus_months(first_days, months) > days)


def _added_type(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    type_, unit = types[2], constants[0]
    if type_.root is _DATE and unit not in {*_MONTHS, "WEEK", "DAY"}:
        return TimestampType(6)
    return type_


@functions.scalar(
    "TIMESTAMPADD",
    signatures=(
        signature(
            symbol(),
            integer("number"),
            root("time", _DATE, _TIME, _TIMESTAMP, _LTZ),
            result=_added_type,
        ),
    ),
    contextual=True,
    syntax="TIMESTAMPADD(unit, number, time)",
    examples=(
        ("TIMESTAMPADD(MONTH, 1, DATE '2024-01-31')", "2024-02-29"),
        ("TIMESTAMPADD(DAY, -1, TIMESTAMP '2024-03-01 00:00:00')", "2024-02-29 00:00:00"),
    ),
)
def timestampadd(info: CallInfo, unit: str, number: int, time: int) -> int:
    """A time so many units later; a TIME starts at 0 again after midnight.

    Units: YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE, SECOND.  A DATE becomes a TIMESTAMP where
    the unit is shorter than a day.
    """
    type_ = info.argument_types[2]
    if type_.root is _DATE:
        if unit in _MONTHS:
            return wrap(plus_months(time, number * _MONTHS[unit]), _INT_BITS)
        added = time * _DAY + number * _length(unit)
        # Days are counted in 32 bits, as in Flink, and wrap as other integers do.
        return wrap(added // _DAY, _INT_BITS) if unit in {"WEEK", "DAY"} else added
    if type_.root is _TIME:
        # Months are whole days, and change nothing about a time of day.
        return time if unit in _MONTHS else (time + number * _length(unit)) % _DAY
    if unit in _MONTHS:
        days, of_day = divmod(time, _DAY)
        return plus_months(days, number * _MONTHS[unit]) * _DAY + of_day
    return time + number * _length(unit)


def _length(unit: str) -> int:
    length = _LENGTHS.get(unit)
    if length is None:
        message = f"{unit} cannot be added"
        raise ValueError(message)
    return length


_DATE_OR_TIMESTAMP: Final = (_DATE, _TIMESTAMP)


@functions.scalar(
    "TIMESTAMPDIFF",
    signatures=tuple(
        signature(symbol(), root("from", *roots), root("to", *roots), result=INT)
        for roots in (_DATE_OR_TIMESTAMP, (_LTZ,), (_TIME,))
    ),
    contextual=True,
    syntax="TIMESTAMPDIFF(unit, from, to)",
    examples=(
        (
            "TIMESTAMPDIFF(DAY, TIMESTAMP '2003-01-02 10:00:00', TIMESTAMP '2003-01-03 10:00:00')",
            "1",
        ),
        ("TIMESTAMPDIFF(MONTH, DATE '2003-01-31', DATE '2003-03-01')", "1"),
    ),
)
def timestampdiff(info: CallInfo, unit: str, first: int, second: int) -> int:
    """How many whole units lie between two times; negative if the second is earlier.

    Units: YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE, SECOND.
    """
    first = _nanos(first, info.argument_types[1])
    second = _nanos(second, info.argument_types[2])
    if unit in _MONTHS:
        months = months_between(second, first)
        found = abs(months) // _MONTHS[unit] * (-1 if months < 0 else 1)
    else:
        # Flink sees milliseconds only.
        apart = second // _MILLIS - first // _MILLIS
        found = abs(apart) * _MILLIS // _length(unit) * (-1 if apart < 0 else 1)
    return wrap(found, _INT_BITS)


def _nanos(value: int, type_: LogicalType) -> int:
    return value * _DAY if type_.root is _DATE else value


def _temporal(name: str) -> Argument:
    def accepts(type_: LogicalType) -> LogicalType | None:
        fits = type_.is_a(TypeFamily.DATETIME) or type_.is_a(TypeFamily.INTERVAL)
        return type_ if fits else None

    return Argument(name, accepts, "DATETIME | INTERVAL")


_POINT: Final = root("timepoint", _DATE, _TIME, _TIMESTAMP, _LTZ)


@functions.scalar(
    "OVERLAPS",
    signatures=(
        signature(
            _POINT,
            _temporal("temporal1"),
            _POINT,
            _temporal("temporal2"),
            result=BOOLEAN,
            nullability=Nullability.ARGUMENTS,
        ),
    ),
    contextual=True,
    syntax="(timepoint1, temporal1) OVERLAPS (timepoint2, temporal2)",
    examples=(
        (
            "(TIME '2:55:00', INTERVAL '1' HOUR) OVERLAPS (TIME '3:30:00', INTERVAL '2' HOUR)",
            "TRUE",
        ),
        (
            "(TIME '9:00:00', TIME '10:00:00') OVERLAPS (TIME '10:15:00', INTERVAL '3' HOUR)",
            "FALSE",
        ),
    ),
)
def overlaps(info: CallInfo, first: int, first_to: int, second: int, second_to: int) -> bool:
    """Whether two spans of time, each given by its ends or by one end and a length, meet.

    Ends may be in any order; spans that share no more than an end do meet.
    """
    types = info.argument_types
    begin, end = sorted(_span(first, first_to, types[0], types[1]))
    other_begin, other_end = sorted(_span(second, second_to, types[2], types[3]))
    return begin <= other_end and other_begin <= end


def _span(start: int, other: int, type_: LogicalType, other_type: LogicalType) -> tuple[int, int]:
    nanos = _nanos(start, type_)
    if other_type.root is TypeRoot.INTERVAL_DAY_TIME:
        return nanos, nanos + other * _MILLIS
    if other_type.root is TypeRoot.INTERVAL_YEAR_MONTH:
        days, of_day = divmod(nanos, _DAY)
        return nanos, plus_months(days, other) * _DAY + of_day
    return nanos, _nanos(other, other_type)


NANOS_PER_DAY: Final = 86_400_000_000_000
_NANOS_PER_MILLI: Final = 1_000_000
_MILLIS_PER_DAY: Final = 86_400_000
_TIME_ARITHMETIC_MILLIS: Final = 3
_TIMESTAMPS: Final = (TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE, TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE)


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
MINUS: Final = (_SHIFTED, _SUM_OF_INTERVALS, signature(interval(), result=_interval_type))


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
    if (
        not isinstance(one, TimestampType | LocalZonedTimestampType)
        or one.precision < _TIME_ARITHMETIC_MILLIS
    ):
        return NotImplemented
    return combine(left, right).cast(info.result_type.to_arrow())
