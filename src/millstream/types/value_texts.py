"""Dates, times, intervals and floating-point numbers as Flink writes them.

What it is: exact formatting of single values, used by casts to text, plans and results.  Years go
from 1 to 9999 as in SQL; what a column may hold beyond that is written all the same.

What it is not: parsing (``types/value_parsing.py``), or DATE_FORMAT with a pattern.

Read next: ``types/values.py``.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

import numpy as np

__all__ = [
    "civil_of_days",
    "date_text",
    "day_time_text",
    "days_of_civil",
    "decimal_text",
    "double_text",
    "float_text",
    "time_text",
    "timestamp_text",
    "to_float32",
    "year_month_text",
]

NANOS_PER_SECOND: Final = 1_000_000_000
NANOS_PER_DAY: Final = 86_400 * NANOS_PER_SECOND
_NANO_DIGITS: Final = 9
_DAYS_PER_ERA: Final = 146_097
_EPOCH_SHIFT: Final = 719_468
_MARCH: Final = 3
_SMALL: Final = Decimal("1E-3")
_LARGE: Final = Decimal("1E7")


def civil_of_days(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970-01-01, by the Gregorian calendar.

    Unlike ``datetime.date`` it knows years before 1 and after 9999.
    """
    shifted = days + _EPOCH_SHIFT
    era, of_era = divmod(shifted, _DAYS_PER_ERA)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    day_of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_index + 2) // 5 + 1
    month = month_index + 3 if month_index < 10 else month_index - 9  # noqa: PLR2004
    return year_of_era + era * 400 + (month < _MARCH), month, day


def days_of_civil(year: int, month: int, day: int) -> int:
    """The days since 1970-01-01 of a date; the inverse of ``civil_of_days``."""
    year -= month < _MARCH
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * _DAYS_PER_ERA + of_era - _EPOCH_SHIFT


def date_text(days: int) -> str:
    """``2026-01-31`` for days since 1970-01-01."""
    year, month, day = civil_of_days(days)
    return f"{year:04d}-{month:02d}-{day:02d}"


def time_text(nanos: int, precision: int) -> str:
    """Write a TIME as Flink: ``13:05:00.25`` for nanoseconds since midnight.

    There are at most ``precision`` digits of the second; zeros at their end are left out, but one
    digit stays.
    """
    text = _clock_text(nanos, precision)
    if precision == 0:
        return text
    whole, fraction = text.split(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}"


def _clock_text(nanos: int, precision: int) -> str:
    """``13:05:00.250``, with ``precision`` digits of the second."""
    seconds, fraction = divmod(nanos, NANOS_PER_SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    if precision == 0:
        return text
    return f"{text}.{fraction:09d}"[: len(text) + 1 + precision]


def timestamp_text(nanos: int, precision: int) -> str:
    """``2026-01-31 13:05:00.250`` for nanoseconds since 1970-01-01 00:00:00."""
    days, of_day = divmod(nanos, NANOS_PER_DAY)
    return f"{date_text(days)} {_clock_text(of_day, precision)}"


def year_month_text(months: int) -> str:
    """``+1-06`` for 18 months."""
    sign = "-" if months < 0 else "+"
    years, rest = divmod(abs(months), 12)
    return f"{sign}{years}-{rest:02d}"


def day_time_text(millis: int) -> str:
    """``+1 02:03:04.005`` for so many milliseconds."""
    sign = "-" if millis < 0 else "+"
    seconds, fraction = divmod(abs(millis), 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{sign}{days} {hour:02d}:{minute:02d}:{second:02d}.{fraction:03d}"


def decimal_text(value: Decimal) -> str:
    """All digits of a decimal, without an exponent."""
    return format(value, "f")


def double_text(value: float) -> str:
    """A DOUBLE as Java writes it: ``1.0``, ``1.0E7``, ``1.0E-4``, ``NaN``, ``Infinity``."""
    return _java_text(value, repr(value))


def to_float32(value: float | Decimal) -> float:
    """The FLOAT next to a number; infinite if it is too large."""
    if isinstance(value, int):
        return float(np.float32(np.int64(value)))  # rounded once
    with np.errstate(over="ignore"):
        return float(np.float32(float(value)))


def float_text(value: float) -> str:
    """A FLOAT as Java writes it: the fewest digits that give this value of 32 bits."""
    if not math.isfinite(value):
        return _java_text(value, "")
    return _java_text(value, str(np.float32(value)))


def _java_text(value: float, shortest: str) -> str:
    if value != value:  # noqa: PLR0124 - only NaN is unequal to itself
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1.0, value) < 0 else "0.0"
    number = Decimal(shortest)
    if _SMALL <= abs(number) < _LARGE:
        text = format(number, "f")
        return text if "." in text else f"{text}.0"
    sign, digits, _ = number.as_tuple()
    exponent = number.adjusted()
    fraction = "".join(map(str, digits[1:])).rstrip("0") or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{exponent}"
