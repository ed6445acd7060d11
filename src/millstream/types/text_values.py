"""Exact text of dates, times, intervals, numbers and JSON as Flink writes and reads them."""

from __future__ import annotations

import math
import re
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


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


def iso_time_text(of_day: int, *, whole: bool = False) -> str:
    """``13:05``, with seconds if there are any or ``whole``, and 3, 6 or 9 digits of them."""
    seconds, nanos = divmod(of_day, NANOS_PER_SECOND)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    if whole or seconds % 60 or nanos:
        text += f":{seconds % 60:02d}"
    if not nanos:
        return text
    digits = 9 if nanos % 1000 else 6 if nanos % 1_000_000 else 3
    return f"{text}.{nanos:09d}"[: len(text) + 1 + digits]


def iso_timestamp_text(nanos: int) -> str:
    """``2026-01-31T13:05`` as ``java.time.LocalDateTime`` writes it."""
    days, of_day = divmod(nanos, NANOS_PER_DAY)
    return f"{date_text(days)}T{iso_time_text(of_day)}"


def iso_instant_text(nanos: int) -> str:
    """``2026-01-31T13:05:00Z`` as ``java.time.Instant`` writes it."""
    days, of_day = divmod(nanos, NANOS_PER_DAY)
    return f"{date_text(days)}T{iso_time_text(of_day, whole=True)}Z"


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


#: Rounds no DECIMAL.
_EXACT: Final = Context(prec=76)


def double_text(value: float) -> str:
    """A DOUBLE as Java writes it: ``1.0``, ``1.0E7``, ``1.0E-4``, ``NaN``, ``Infinity``."""
    return _java_text(value, repr(value))


def short_decimal_text(value: Decimal, *, scientific: bool) -> str:
    """Return a DECIMAL without zeros at its end, as Jackson writes it.

    Args:
        value: the number.
        scientific: whether an exponent is written where Java's ``toString`` has one: ``3E+2``.
    """
    short = value.normalize(_EXACT)
    return str(short) if scientific else format(short, "f")


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


_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def json_text(value: Any, scalar: Callable[[Any], str]) -> str:
    """The JSON of a value, keys in order, without blanks.

    ``scalar`` writes what is neither text nor a list or dict.
    """
    if isinstance(value, str):
        return '"' + _ESCAPED.sub(_escape, value) + '"'
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        members = [f"{json_text(key, scalar)}:{json_text(value[key], scalar)}" for key in keys]
        return "{" + ",".join(members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([json_text(each, scalar) for each in value]) + "]"
    return scalar(value)


def _escape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04X}"


_TRUE: Final = frozenset({"t", "true", "y", "yes", "1"})
_FALSE: Final = frozenset({"f", "false", "n", "no", "0"})
_INTEGER: Final = re.compile(r"([+-]?)([0-9]*)(?:\.[0-9]*)?")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DOUBLE: Final = re.compile(
    r"([+-]?)(?:(NaN)|(Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
_DATE: Final = re.compile(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?)?")
_TIME: Final = re.compile(
    r"\s*([0-9]{1,2})\s*(?::\s*([0-9]{1,2})\s*(?::([0-9]{1,2})(\.[0-9]*)?)?)?\s*"
)
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?: ([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(\.[0-9]{0,9})?)?"
)
#: The end of a day, as Java takes it.
_MIDNIGHT: Final = " 24:00:00"
_MAX_SHOWN: Final = 60
_MONTH_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MAX_YEAR: Final = 9999


def _refusal(text: str, what: str, reason: str = "") -> ValueError:
    shown = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
    return ValueError(f"{shown!r} is no {what}{reason}")


def parse_boolean(text: str) -> bool:
    """TRUE, T, YES, Y, 1 or their opposites, in any case and without spaces.

    Raises:
        ValueError: it is none of them.
    """
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise _refusal(text, "BOOLEAN")


def parse_integer(text: str, bits: int, type_text: str) -> int:
    """An integer of so many bits, maybe between spaces; digits behind a point are left out.

    Raises:
        ValueError: it is no number, or too large; the message names the type ``type_text``.
    """
    trimmed = text.strip(" ")
    match = _INTEGER.fullmatch(trimmed)
    if match is None or trimmed in {"", "+", "-"}:
        raise _refusal(text, type_text)
    value = int(match[2] or "0")
    value = -value if match[1] == "-" else value
    half = 1 << (bits - 1)
    if not -half <= value < half:
        raise _refusal(text, type_text, ": it is too large")
    return value


def parse_decimal(text: str) -> Decimal:
    """A decimal number of any size.

    Raises:
        ValueError: it is none.
    """
    trimmed = text.strip(" \n\t")
    if _DECIMAL.fullmatch(trimmed) is None:
        raise _refusal(text, "DECIMAL")
    try:
        return Decimal(trimmed)
    except InvalidOperation as error:
        raise _refusal(text, "DECIMAL") from error


def parse_double(text: str, type_text: str = "DOUBLE") -> float:
    """A floating-point number as Java writes and reads it, maybe between spaces.

    Raises:
        ValueError: it is none; the message names the type ``type_text``.
    """
    match = _DOUBLE.fullmatch(text.strip())
    if match is None:
        raise _refusal(text, type_text)
    negative, is_nan, is_infinite, digits, hexadecimal = match.groups()
    if is_nan:
        value = float("nan")
    elif is_infinite:
        value = float("inf")
    else:
        value = float(digits) if digits else float.fromhex(hexadecimal)
    return -value if negative == "-" else value


def parse_date(text: str) -> int:
    """The days since 1970-01-01 of a date, ``2026-1-31``; month and day may be missing.

    What follows a space is left out.

    Raises:
        ValueError: it is none.
    """
    space = text.find(" ")
    match = _DATE.fullmatch(text[:space] if space > 0 else text)
    if match is None:
        raise _refusal(text, "DATE")
    year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
    if not 0 <= year <= _MAX_YEAR or not 1 <= month <= 12:  # noqa: PLR2004 - months
        raise _refusal(text, "DATE")
    if not 1 <= day <= length_of_month(year, month):
        raise _refusal(text, "DATE", f": the month has {length_of_month(year, month)} days")
    return days_of_civil(year, month, day)


def length_of_month(year: int, month: int) -> int:
    """How many days a month of the Gregorian calendar has."""
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)  # noqa: PLR2004
    return _MONTH_DAYS[month - 1] + leap


def _clock(text: str, what: str, hour: str, minute: str, second: str, fraction: str) -> int:
    """Nanoseconds since midnight."""
    hours, minutes, seconds = int(hour), int(minute), int(second)
    if hours > 23 or minutes > 59 or seconds > 59:  # noqa: PLR2004 - of a clock
        raise _refusal(text, what)
    nanos = int(fraction[1:10].ljust(9, "0")) if len(fraction) > 1 else 0
    return (hours * 3600 + minutes * 60 + seconds) * NANOS_PER_SECOND + nanos


def parse_time(text: str) -> int:
    """The nanoseconds since midnight of ``13:05:00.25``; minutes and seconds may be missing.

    Raises:
        ValueError: it is none.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise _refusal(text, "TIME")
    hour, minute, second, fraction = match.groups()
    return _clock(text, "TIME", hour, minute or "0", second or "0", fraction or "")


def parse_timestamp(text: str, precision: int) -> int:
    """The nanoseconds since 1970 of ``2026-01-31 13:05:00.25``, of so many digits of the second.

    The time of day may be missing.  A day from 29 to 31 that the month lacks is taken for its
    last, as Java does.

    Raises:
        ValueError: it is none.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise _refusal(text, "TIMESTAMP")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not 1 <= month <= 12 or not 1 <= day <= 31 or year == 0:  # noqa: PLR2004 - of a calendar
        raise _refusal(text, "TIMESTAMP")
    days = days_of_civil(year, month, min(day, length_of_month(year, month)))
    of_day = 0
    if text.endswith(_MIDNIGHT):
        of_day = NANOS_PER_DAY
    elif match[4] is not None:
        of_day = _clock(text, "TIMESTAMP", match[4], match[5], match[6], match[7] or "")
    step: int = 10 ** (9 - precision)
    return days * NANOS_PER_DAY + of_day - of_day % step
