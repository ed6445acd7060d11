"""Parts of dates and times: EXTRACT and its short forms, FLOOR and CEIL to a unit.

A TIMESTAMP_LTZ is read in the session's time zone.  Flink's results before 1970 are wrong (hours
below zero, months one off), since Java's division truncates; here the same rules hold for all
times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.casts import has_plain_years, local_column
from millstream.expressions.decimals import wrap
from millstream.expressions.functions.definition import (
    BIGINT,
    FunctionGroup,
    root,
    same_as,
    signature,
    symbol,
)
from millstream.expressions.java.calendars import zone_of
from millstream.types.logical_types import TimestampType
from millstream.types.text_values import civil_of_days, days_of_civil
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.expressions.functions.definition import CallInfo
    from millstream.types.logical_types import LogicalType


functions = FunctionGroup("temporal")

_NANOS: Final = 1_000_000_000
_DAY: Final = 86_400 * _NANOS
_INT_BITS: Final = 32
_LTZ: Final = TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE
_DATE: Final = TypeRoot.DATE
_TIME: Final = TypeRoot.TIME_WITHOUT_TIME_ZONE
_TIMESTAMP: Final = TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE
_MONTHS: Final = TypeRoot.INTERVAL_YEAR_MONTH
_MILLIS: Final = TypeRoot.INTERVAL_DAY_TIME

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


def _of_interval(unit: str, value: int, type_: LogicalType) -> int | None:
    if type_.root is _MONTHS:
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


def _extracted(info: CallInfo, unit: str, value: int, type_: LogicalType) -> int:
    found: int | None = None
    if type_.root in {_MONTHS, _MILLIS}:
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


def local_kernel_column(info: CallInfo, column: Any, type_: LogicalType) -> Any:
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


_TEMPORAL: Final = root("temporal", _DATE, _TIME, _TIMESTAMP, _LTZ, _MONTHS, _MILLIS)


@functions.scalar(
    "EXTRACT",
    signatures=(signature(symbol(), _TEMPORAL, result=BIGINT),),
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


def _register(name: str, unit: str, text: str, example: tuple[str, str]) -> None:
    def part(info: CallInfo, value: int) -> int:
        return _extracted(info, unit, value, info.argument_types[0])

    functions.scalar(
        name,
        signatures=(signature(_TEMPORAL, result=BIGINT),),
        kernel=_kernel_of(unit),
        contextual=True,
        documentation=f"{text}, as EXTRACT({unit} FROM temporal).",
        examples=(example,),
    )(part)


_register("YEAR", "YEAR", "The year", ("YEAR(DATE '1994-09-27')", "1994"))
_register("QUARTER", "QUARTER", "The quarter, 1 to 4", ("QUARTER(DATE '1994-09-27')", "3"))
_register("MONTH", "MONTH", "The month, 1 to 12", ("MONTH(DATE '1994-09-27')", "9"))
_register("WEEK", "WEEK", "The week of ISO 8601, 1 to 53", ("WEEK(DATE '1994-09-27')", "39"))
_register(
    "DAYOFYEAR", "DOY", "The day of the year, 1 to 366", ("DAYOFYEAR(DATE '1994-09-27')", "270")
)
_register("DAYOFMONTH", "DAY", "The day of the month", ("DAYOFMONTH(DATE '1994-09-27')", "27"))
_register(
    "DAYOFWEEK",
    "DOW",
    "The day of the week, 1 for Sunday to 7",
    ("DAYOFWEEK(DATE '1994-09-27')", "3"),
)
_register("HOUR", "HOUR", "The hour, 0 to 23", ("HOUR(TIMESTAMP '1994-09-27 13:14:15')", "13"))
_register(
    "MINUTE", "MINUTE", "The minute, 0 to 59", ("MINUTE(TIMESTAMP '1994-09-27 13:14:15')", "14")
)
_register(
    "SECOND", "SECOND", "The second, 0 to 59", ("SECOND(TIMESTAMP '1994-09-27 13:14:15')", "15")
)


# -- FLOOR and CEIL ---------------------------------------------------------------------------


#: FLOOR(time TO unit), CEIL(time TO unit).
ROUNDED_TIME: Final = signature(
    root("time", _DATE, _TIME, _TIMESTAMP, _LTZ), symbol(), result=same_as(0)
)


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


def _rounded(unit: str, value: int, type_: LogicalType, *, up: bool) -> int:
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
    return _rounded(unit, value + offset, TimestampType(9), up=up) - offset


def floor_to(info: CallInfo, value: int, unit: str) -> int:
    """FLOOR(value TO unit): the beginning of the unit that the value lies in."""
    return _round(info, value, unit, up=False)


def ceil_to(info: CallInfo, value: int, unit: str) -> int:
    """CEIL(value TO unit): the next beginning of a unit; from months on only the date counts."""
    return _round(info, value, unit, up=True)
