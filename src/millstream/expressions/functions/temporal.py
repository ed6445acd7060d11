"""Temporal functions: current times, parts of times, FLOOR and CEIL to a unit, and arithmetic.

The current time comes from the evaluation context: the processing time of the batch in a stream,
the start of the query in batch mode.  A TIMESTAMP_LTZ is read in the session's time zone.  Flink's
results before 1970 are wrong (hours below zero, months one off), since Java's division truncates;
here the same rules hold for all times.  Months follow the UTC calendar, as in Flink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.casts import has_plain_years, local_column
from millstream.expressions.decimals import wrap
from millstream.expressions.functions.definition import (
    BIGINT,
    BOOLEAN,
    INT,
    Argument,
    FunctionGroup,
    Nullability,
    NullBehaviour,
    root,
    same_as,
    signature,
)
from millstream.expressions.java.calendars import zone_of
from millstream.types import logical_types as lt
from millstream.types.text_values import civil_of_days, days_of_civil, length_of_month
from millstream.types.type_derivation import common_type, without_time_attribute
from millstream.types.type_roots import TypeFamily, TypeRoot
from millstream.types.values import scalar_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.expressions.functions.definition import CallInfo


functions = FunctionGroup("temporal")

_MILLIS: Final = 1_000_000
_NANOS: Final = 1_000_000_000
_DAY: Final = 86_400 * _NANOS


# -- the current time -------------------------------------------------------------------------


def _local_now(info: CallInfo) -> int:
    return zone_of(info.context.time_zone).to_local(info.context.now * _MILLIS)


def _for_all_rows(value: Callable[[CallInfo], int | None]) -> Callable[..., Any]:
    """The kernel of a function without arguments: one value that stands for all rows."""

    def kernel(info: CallInfo, *_: Any) -> pa.Scalar:
        return scalar_of(value(info), info.result_type)

    return kernel


def _list_current(
    name: str,
    value: Callable[[CallInfo], int],
    result: lt.LogicalType,
    documentation: str,
    **options: Any,
) -> None:
    functions.scalar(
        name,
        signature(result=result, nullability=Nullability.NEVER),
        kernel=_for_all_rows(value),
        contextual=True,
        dynamic=True,
        can_fail=False,
        documentation=documentation,
        **options,
    )(value)


_EACH: Final = "In a stream it is that of each record, in batch mode that of the query's start."

_list_current(
    "CURRENT_DATE",
    lambda info: _local_now(info) // _DAY,
    lt.DateType(),
    f"The date on the session's clocks. {_EACH}",
    syntax="CURRENT_DATE",
    examples=(("CURRENT_DATE >= DATE '1970-01-01'", "TRUE"),),
)
_list_current(
    "LOCALTIME",
    lambda info: _local_now(info) % _DAY // _NANOS * _NANOS,
    lt.TimeType(0),
    f"The time of day on the session's clocks. {_EACH}",
    aliases=("CURRENT_TIME",),
    syntax="LOCALTIME, CURRENT_TIME",
    examples=(("LOCALTIME >= TIME '00:00:00'", "TRUE"),),
)
_list_current(
    "LOCALTIMESTAMP",
    _local_now,
    lt.TimestampType(3),
    f"Date and time on the session's clocks. {_EACH}",
    syntax="LOCALTIMESTAMP",
    examples=(("LOCALTIMESTAMP >= TIMESTAMP '1970-01-01 00:00:00'", "TRUE"),),
)
_list_current(
    "CURRENT_TIMESTAMP",
    lambda info: info.context.now * _MILLIS,
    lt.LocalZonedTimestampType(3),
    f"The instant. {_EACH}",
    aliases=("NOW",),
    syntax="CURRENT_TIMESTAMP, NOW()",
    examples=(("CURRENT_TIMESTAMP >= TO_TIMESTAMP_LTZ(0, 3)", "TRUE"),),
)
_list_current(
    "CURRENT_ROW_TIMESTAMP",
    lambda info: info.context.processing_time * _MILLIS,
    lt.LocalZonedTimestampType(3),
    "The instant at which a record is processed, in batch mode too.",
    examples=(("CURRENT_ROW_TIMESTAMP() >= TO_TIMESTAMP_LTZ(0, 3)", "TRUE"),),
)
_list_current(
    "PROCTIME",
    lambda info: info.context.processing_time * _MILLIS,
    lt.LocalZonedTimestampType(3, kind=lt.TimestampKind.PROCTIME),
    "The processing time as a time attribute, for windows and joins over processing time.",
    examples=(("CAST(PROCTIME() AS TIMESTAMP_LTZ(3)) >= TO_TIMESTAMP_LTZ(0, 3)", "TRUE"),),
)


def _watermark_type(types: Sequence[lt.LogicalType], _: Sequence[object]) -> lt.LogicalType:
    if isinstance(types[0], lt.LocalZonedTimestampType):
        return lt.LocalZonedTimestampType(3)
    return lt.TimestampType(3)


def _watermark(info: CallInfo, *_: int | None) -> int | None:
    """The current watermark of the operator, as a TIMESTAMP or TIMESTAMP_LTZ like the time given.

    NULL as long as there is none.  ``WHERE CURRENT_WATERMARK(ts) IS NULL OR ts >
    CURRENT_WATERMARK(ts)`` keeps what is not late.
    """
    current = info.context.current_watermark
    return None if current is None else current * _MILLIS


functions.scalar(
    "CURRENT_WATERMARK",
    signature("timestamp rowtime", result=_watermark_type, nullability=Nullability.ALWAYS),
    nulls=NullBehaviour.CALLED,
    kernel=_for_all_rows(_watermark),
    contextual=True,
    dynamic=True,
    deterministic=False,
    can_fail=False,
    examples=(("CURRENT_WATERMARK(TO_TIMESTAMP('2024-03-01')) IS NULL", "TRUE"),),
)(_watermark)


_INT_BITS: Final = 32
_LTZ: Final = TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE
_DATE: Final = TypeRoot.DATE
_TIME: Final = TypeRoot.TIME_WITHOUT_TIME_ZONE
_TIMESTAMP: Final = TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE
_YEAR_MONTH: Final = TypeRoot.INTERVAL_YEAR_MONTH
_DAY_TIME: Final = TypeRoot.INTERVAL_DAY_TIME

#: Units below a day, in nanoseconds.
_SHORT: Final = {
    "HOUR": 3600 * _NANOS,
    "MINUTE": 60 * _NANOS,
    "SECOND": _NANOS,
    "MILLISECOND": 1_000_000,
    "MICROSECOND": 1000,
    "NANOSECOND": 1,
}
_LARGER: Final = {"HOUR": _DAY, "MINUTE": 3600 * _NANOS, "SECOND": 60 * _NANOS}


# -- EXTRACT ----------------------------------------------------------------------------------


def _day_of_year(days: int) -> int:
    return days - days_of_civil(civil_of_days(days)[0], 1, 1) + 1


def _iso_year_and_week(days: int) -> tuple[int, int]:
    # The week belongs to the year of its Thursday.
    thursday = days - (days + 3) % 7 + 3
    return civil_of_days(thursday)[0], (_day_of_year(thursday) - 1) // 7 + 1


def _towards_zero(value: int, by: int) -> int:
    return value // by if value >= 0 else -(-value // by)


def _away_from_zero(value: int, by: int) -> int:
    return (value + by - 1) // by if value > 0 else -((-value + by - 1) // by)


_OF_DAYS: Final[Mapping[str, Callable[[int], int]]] = {
    "YEAR": lambda days: civil_of_days(days)[0],
    "QUARTER": lambda days: (civil_of_days(days)[1] + 2) // 3,
    "MONTH": lambda days: civil_of_days(days)[1],
    "WEEK": lambda days: _iso_year_and_week(days)[1],
    "DAY": lambda days: civil_of_days(days)[2],
    "DOY": _day_of_year,
    "DOW": lambda days: (days + 4) % 7 + 1,
    "ISODOW": lambda days: (days + 3) % 7 + 1,
    "ISOYEAR": lambda days: _iso_year_and_week(days)[0],
    "DECADE": lambda days: _towards_zero(civil_of_days(days)[0], 10),
    "CENTURY": lambda days: _away_from_zero(civil_of_days(days)[0], 100),
    "MILLENNIUM": lambda days: _away_from_zero(civil_of_days(days)[0], 1000),
}


def _of_day_time(unit: str, nanos: int) -> int | None:
    """The unit of nanoseconds, modulo the next larger unit; of less than a second, all of it."""
    if unit not in _SHORT:
        return None
    return nanos % _LARGER.get(unit, _NANOS) // _SHORT[unit]


def _of_interval(unit: str, value: int, type_: lt.LogicalType) -> int | None:
    if type_.root is _YEAR_MONTH:
        months = {
            "YEAR": lambda: _towards_zero(value, 12),
            "QUARTER": lambda: _towards_zero(_remainder(value, 12), 3) + 1,
            "MONTH": lambda: _remainder(value, 12),
        }
        return months[unit]() if unit in months else None
    nanos = value * 1_000_000
    if unit == "DAY":
        return _towards_zero(nanos, _DAY)
    if unit not in _SHORT:
        return None
    return _towards_zero(_remainder(nanos, _LARGER.get(unit, _NANOS)), _SHORT[unit])


def _remainder(value: int, by: int) -> int:
    return value - _towards_zero(value, by) * by


def _extracted(info: CallInfo, unit: str, value: int, type_: lt.LogicalType) -> int:
    found: int | None = None
    if type_.root in {_YEAR_MONTH, _DAY_TIME}:
        found = _of_interval(unit, value, type_)
    elif type_.root is _TIME:
        found = _of_day_time(unit, value)
    elif type_.root is _DATE:
        if unit == "EPOCH":
            return value * 86_400
        found = 0 if unit in _SHORT else _day_part(unit, value)
    else:
        if type_.root is _LTZ:
            value = zone_of(info.context.time_zone).to_local(value)
        if unit == "EPOCH":
            return _towards_zero(value, _NANOS)
        found = _of_day_time(unit, value)
        if found is None:
            found = _day_part(unit, value // _DAY)
    if found is None:
        message = f"EXTRACT: {type_.as_summary_string()} has no {unit}"
        raise ValueError(message)
    return found


def _day_part(unit: str, days: int) -> int | None:
    part = _OF_DAYS.get(unit)
    return None if part is None else part(days)


_PART_KERNELS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "YEAR": pc.year,
    "QUARTER": pc.quarter,
    "MONTH": pc.month,
    "WEEK": pc.iso_week,
    "DAY": pc.day,
    "DOY": pc.day_of_year,
    "DOW": lambda column: pc.day_of_week(column, count_from_zero=False, week_start=7),
    "ISODOW": lambda column: pc.day_of_week(column, count_from_zero=False, week_start=1),
    "ISOYEAR": pc.iso_year,
    "HOUR": pc.hour,
    "MINUTE": pc.minute,
    "SECOND": pc.second,
    "MILLISECOND": pc.millisecond,
}


def local_kernel_column(info: CallInfo, column: Any, type_: lt.LogicalType) -> Any:
    """A column of DATE, TIMESTAMP or TIMESTAMP_LTZ on the session's clocks; else NotImplemented."""
    if not isinstance(column, pa.Array) or type_.root not in {_DATE, _TIMESTAMP, _LTZ}:
        return NotImplemented
    if not has_plain_years(column):
        return NotImplemented
    if type_.root is not _LTZ:
        return column
    local = local_column(column, info.context.time_zone)
    return NotImplemented if local is None else local


def _kernel_of(unit: str | None) -> Callable[..., Any]:
    def extract(info: CallInfo, *columns: Any) -> Any:
        wanted = info.constants[0] if unit is None else unit
        column = local_kernel_column(info, columns[-1], info.argument_types[-1])
        kernel = _PART_KERNELS.get(str(wanted))
        if column is NotImplemented or kernel is None:
            return NotImplemented
        if wanted in _SHORT and info.argument_types[-1].root is _DATE:
            return NotImplemented
        return pc.cast(kernel(column), pa.int64())

    return extract


_TEMPORAL: Final = root("temporal", _DATE, _TIME, _TIMESTAMP, _LTZ, _YEAR_MONTH, _DAY_TIME)


@functions.scalar(
    "EXTRACT",
    signature("symbol", _TEMPORAL, result=BIGINT),
    kernel=_kernel_of(None),
    contextual=True,
    syntax="EXTRACT(unit FROM temporal)",
    examples=(
        ("EXTRACT(DAY FROM DATE '2006-06-05')", "5"),
        ("EXTRACT(DOW FROM DATE '2024-02-29')", "5"),
        ("EXTRACT(MICROSECOND FROM TIMESTAMP '2024-03-01 13:14:15.123456')", "123456"),
    ),
)
def extract(info: CallInfo, unit: str, value: int) -> int:
    """A part of a date, a time, a timestamp or an interval, as a number.

    Units: MILLENNIUM, CENTURY, DECADE, YEAR, QUARTER, MONTH, WEEK and ISOYEAR (weeks as in ISO
    8601), DAY, DOY (day of the year), DOW (1 for Sunday), ISODOW (1 for Monday), HOUR, MINUTE,
    SECOND, MILLISECOND, MICROSECOND and NANOSECOND (of the second), ``EPOCH`` (seconds since
    1970, of a TIMESTAMP_LTZ on the session's clocks).
    """
    return _extracted(info, unit, value, info.argument_types[1])


def _list_part(name: str, unit: str, text: str, example: tuple[str, str]) -> None:
    def part(info: CallInfo, value: int) -> int:
        return _extracted(info, unit, value, info.argument_types[0])

    functions.scalar(
        name,
        signature(_TEMPORAL, result=BIGINT),
        kernel=_kernel_of(unit),
        contextual=True,
        documentation=f"{text}, as EXTRACT({unit} FROM temporal).",
        examples=(example,),
    )(part)


_list_part("YEAR", "YEAR", "The year", ("YEAR(DATE '1994-09-27')", "1994"))
_list_part("QUARTER", "QUARTER", "The quarter, 1 to 4", ("QUARTER(DATE '1994-09-27')", "3"))
_list_part("MONTH", "MONTH", "The month, 1 to 12", ("MONTH(DATE '1994-09-27')", "9"))
_list_part("WEEK", "WEEK", "The week of ISO 8601, 1 to 53", ("WEEK(DATE '1994-09-27')", "39"))
_list_part(
    "DAYOFYEAR", "DOY", "The day of the year, 1 to 366", ("DAYOFYEAR(DATE '1994-09-27')", "270")
)
_list_part("DAYOFMONTH", "DAY", "The day of the month", ("DAYOFMONTH(DATE '1994-09-27')", "27"))
_list_part(
    "DAYOFWEEK",
    "DOW",
    "The day of the week, 1 for Sunday to 7",
    ("DAYOFWEEK(DATE '1994-09-27')", "3"),
)
_list_part("HOUR", "HOUR", "The hour, 0 to 23", ("HOUR(TIMESTAMP '1994-09-27 13:14:15')", "13"))
_list_part(
    "MINUTE", "MINUTE", "The minute, 0 to 59", ("MINUTE(TIMESTAMP '1994-09-27 13:14:15')", "14")
)
_list_part(
    "SECOND", "SECOND", "The second, 0 to 59", ("SECOND(TIMESTAMP '1994-09-27 13:14:15')", "15")
)


# -- FLOOR and CEIL ---------------------------------------------------------------------------


#: FLOOR(time TO unit), CEIL(time TO unit).
ROUNDED_TIME: Final = signature("time, symbol", result=same_as(0))


def _date_floor(unit: str, days: int) -> int | None:
    year, month, day = civil_of_days(days)
    starts: dict[str, Callable[[], int]] = {
        "MILLENNIUM": lambda: days_of_civil((year + 999) // 1000 * 1000 - 999, 1, 1),
        "CENTURY": lambda: days_of_civil((year + 99) // 100 * 100 - 99, 1, 1),
        "DECADE": lambda: days_of_civil(year // 10 * 10, 1, 1),
        "YEAR": lambda: days_of_civil(year, 1, 1),
        "QUARTER": lambda: days_of_civil(year, (month - 1) // 3 * 3 + 1, 1),
        "MONTH": lambda: days - day + 1,
        "WEEK": lambda: days - (days + 4) % 7,
        "DAY": lambda: days,
    }
    return starts[unit]() if unit in starts else None


#: Months that a unit lasts.
_SPANS: Final = {
    "MILLENNIUM": 12_000,
    "CENTURY": 1200,
    "DECADE": 120,
    "YEAR": 12,
    "QUARTER": 3,
    "MONTH": 1,
}


_ALWAYS_UP: Final = frozenset({"MILLENNIUM", "CENTURY", "DECADE", "DAY"})


def _date_ceil(unit: str, days: int) -> int | None:
    start = _date_floor(unit, days)
    # Flink goes to the next millennium, century, decade and day even from the first day of one.
    if start is None or (start == days and unit not in _ALWAYS_UP):
        return start
    if unit == "DAY":
        return start + 1
    if unit == "WEEK":
        return start + 7
    year, month, _ = civil_of_days(start)
    months = month - 1 + _SPANS[unit]
    return days_of_civil(year + months // 12, months % 12 + 1, 1)


def _rounded(unit: str, value: int, type_: lt.LogicalType, *, up: bool) -> int:
    found: int | None
    if type_.root is _DATE:
        found = value if unit in _SHORT else (_date_ceil if up else _date_floor)(unit, value)
        found = None if found is None else wrap(found, _INT_BITS)
    elif unit in _SHORT or (unit == "DAY" and type_.root is not _TIME):
        length = _SHORT.get(unit, _DAY)
        found = -(-value // length) * length if up else value // length * length
        if type_.root is _TIME:
            found %= _DAY
    elif type_.root is _TIME:
        found = value  # a unit of whole days, which a time of day is not rounded to
    else:
        days = (_date_ceil if up else _date_floor)(unit, value // _DAY)
        found = None if days is None else days * _DAY
    if found is None:
        message = f"{type_.as_summary_string()} cannot be rounded to {unit}"
        raise ValueError(message)
    return found


def _round(info: CallInfo, value: int, unit: str, *, up: bool) -> int:
    type_ = info.argument_types[0]
    if type_.root is not _LTZ:
        return _rounded(unit, value, type_, up=up)
    # As Flink: the offset of the time itself is also taken for the rounded one.
    offset = zone_of(info.context.time_zone).offset_at(value // _NANOS) * _NANOS
    return _rounded(unit, value + offset, lt.TimestampType(9), up=up) - offset


def floor_to(info: CallInfo, value: int, unit: str) -> int:
    """FLOOR(value TO unit): the beginning of the unit that the value lies in."""
    return _round(info, value, unit, up=False)


def ceil_to(info: CallInfo, value: int, unit: str) -> int:
    """CEIL(value TO unit): the next beginning of a unit; from months on only the date counts."""
    return _round(info, value, unit, up=True)


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


def _added_type(types: Sequence[lt.LogicalType], constants: Sequence[object]) -> lt.LogicalType:
    type_, unit = types[2], constants[0]
    if type_.root is _DATE and unit not in {*_MONTHS, "WEEK", "DAY"}:
        return lt.TimestampType(6)
    return type_


@functions.scalar(
    "TIMESTAMPADD",
    signature("symbol, integer number, time", result=_added_type),
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
    *tuple(
        signature("symbol", root("from", *roots), root("to", *roots), result=INT)
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


def _nanos(value: int, type_: lt.LogicalType) -> int:
    return value * _DAY if type_.root is _DATE else value


def _temporal(name: str) -> Argument:
    def accepts(type_: lt.LogicalType) -> lt.LogicalType | None:
        fits = type_.is_a(TypeFamily.DATETIME) or type_.is_a(TypeFamily.INTERVAL)
        return type_ if fits else None

    return Argument(name, accepts, "DATETIME | INTERVAL")


@functions.scalar(
    "OVERLAPS",
    signature(
        "time timepoint",
        _temporal("temporal1"),
        "time timepoint",
        _temporal("temporal2"),
        result=BOOLEAN,
        nullability=Nullability.ARGUMENTS,
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
    """Test if two spans of time, each given by its ends or by one end and a length, meet.

    Ends may be in any order; spans that share no more than an end do meet.
    """
    types = info.argument_types
    begin, end = sorted(_span(first, first_to, types[0], types[1]))
    other_begin, other_end = sorted(_span(second, second_to, types[2], types[3]))
    return begin <= other_end and other_begin <= end


def _span(
    start: int, other: int, type_: lt.LogicalType, other_type: lt.LogicalType
) -> tuple[int, int]:
    nanos = _nanos(start, type_)
    if other_type.root is _DAY_TIME:
        return nanos, nanos + other * _MILLIS
    if other_type.root is _YEAR_MONTH:
        days, of_day = divmod(nanos, _DAY)
        return nanos, plus_months(days, other) * _DAY + of_day
    return nanos, _nanos(other, other_type)


_TIME_ARITHMETIC_MILLIS: Final = 3


# -- signatures -------------------------------------------------------------------------------


def _shifted_type(types: Sequence[lt.LogicalType], _: Sequence[object]) -> lt.LogicalType:
    """The time's own type; a time attribute is none any more."""
    return without_time_attribute(types[0] if types[0].is_a(TypeFamily.DATETIME) else types[1])


def _alike(types: Sequence[lt.LogicalType]) -> tuple[lt.LogicalType, ...] | None:
    common = common_type(list(types)) if types[0].root is types[1].root else None
    if common is None:
        return None
    return tuple(common.with_nullability(type_.is_nullable) for type_ in types)


def _interval_type(types: Sequence[lt.LogicalType], _: Sequence[object]) -> lt.LogicalType:
    return next(type_ for type_ in types if type_.is_a(TypeFamily.INTERVAL))


_SUM_OF_INTERVALS: Final = signature(
    "interval interval1, interval interval2", result=_interval_type, unify=_alike
)
_SHIFTED: Final = signature("time, interval", result=_shifted_type)
PLUS: Final = (
    _SHIFTED,
    signature("interval, time", result=_shifted_type),
    _SUM_OF_INTERVALS,
)
MINUS: Final = (_SHIFTED, _SUM_OF_INTERVALS, signature("interval", result=_interval_type))


def _factor_types(types: Sequence[lt.LogicalType]) -> tuple[lt.LogicalType, ...]:
    """Numbers that intervals are multiplied with: integers as they are, others as DOUBLE."""
    return tuple(
        lt.DoubleType(nullable=type_.is_nullable)
        if isinstance(type_, lt.DecimalType) or type_.is_a(TypeFamily.APPROXIMATE_NUMERIC)
        else type_
        for type_ in types
    )


TIMES: Final = (
    signature("interval, numeric", result=_interval_type, unify=_factor_types),
    signature("numeric, interval", result=_interval_type, unify=_factor_types),
)
DIVIDED: Final = (
    signature(
        "interval",
        "numeric",
        result=_interval_type,
        unify=_factor_types,
    ),
)


# -- values -----------------------------------------------------------------------------------


def operator_value(operation: str, info: CallInfo, left: Any, right: Any) -> object:
    """The reference of an operator where a time or an interval takes part."""
    if operation in {"multiply", "divide"}:
        return _scaled_interval(operation, info, left, right)
    one, other = info.argument_types
    if one.is_a(TypeFamily.INTERVAL) and other.is_a(TypeFamily.INTERVAL):
        total = left + right if operation == "add" else left - right
        return wrap(total, _interval_bits(info.result_type))
    if one.is_a(TypeFamily.INTERVAL):
        one, other, left, right = other, one, right, left
    amount = right if operation == "add" else -right
    if isinstance(other, lt.YearMonthIntervalType):
        return _plus_months(one, left, amount)
    return _plus_millis(one, left, amount)


def _interval_bits(type_: lt.LogicalType) -> int:
    return 32 if isinstance(type_, lt.YearMonthIntervalType) else 64


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


def _plus_months(type_: lt.LogicalType, value: int, months: int) -> int:
    if isinstance(type_, lt.DateType):
        return wrap(plus_months(value, months), _INT_BITS)
    if isinstance(type_, lt.TimeType):
        return value  # months are whole days
    days, of_day = divmod(value, _DAY)
    return plus_months(days, months) * _DAY + of_day


def _plus_millis(type_: lt.LogicalType, value: int, millis: int) -> int:
    if isinstance(type_, lt.DateType):
        # Whole days only.
        days = abs(millis) // (_DAY // _MILLIS)
        return wrap(value + days if millis > 0 else value - days, _INT_BITS)
    moved = value + millis * _MILLIS
    if isinstance(type_, lt.TimeType):
        moved %= _DAY
    precision: int = type_.precision  # type: ignore[attr-defined]
    return moved - int(moved % 10 ** (9 - precision))


# -- columns ----------------------------------------------------------------------------------


def operator_kernel(operation: str, info: CallInfo, left: Any, right: Any) -> Any:
    """The kernel of an operator where a time or an interval takes part.

    NotImplemented: months have no fixed length, and times of day go round.
    """
    if operation == "multiply":
        return NotImplemented
    one, other = info.argument_types
    if one.is_a(TypeFamily.INTERVAL) and not other.is_a(TypeFamily.INTERVAL):
        one, other, left, right = other, one, right, left
    combine: Callable[..., Any] = pc.add if operation == "add" else pc.subtract
    if not isinstance(other, lt.DayTimeIntervalType):
        is_sum = isinstance(one, lt.YearMonthIntervalType)
        return combine(left, right) if is_sum else NotImplemented
    if isinstance(one, lt.DayTimeIntervalType):
        total = combine(left.cast(pa.int64()), right.cast(pa.int64()))
        return total.cast(info.result_type.to_arrow())
    if (
        not isinstance(one, lt.TimestampType | lt.LocalZonedTimestampType)
        or one.precision < _TIME_ARITHMETIC_MILLIS
    ):
        return NotImplemented
    return combine(left, right).cast(info.result_type.to_arrow())
