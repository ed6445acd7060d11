"""Values from text as Flink's CAST reads them.

What it is: parsers of single values; each raises ValueError with the reason.  Values look as the
table in ``expressions/nodes.py`` says.

What it is not: TO_TIMESTAMP with a pattern.

Read next: ``types/value_texts.py``, ``expressions/casts/values.py``.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

from millstream.types.value_texts import NANOS_PER_DAY, NANOS_PER_SECOND, days_of_civil

__all__ = [
    "parse_boolean",
    "parse_date",
    "parse_decimal",
    "parse_double",
    "parse_integer",
    "parse_time",
    "parse_timestamp",
]

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
    """An integer; digits behind a point are left out.

    Args:
        text: with spaces around it, maybe.
        bits: the width of the type.
        type_text: the type, for the error.

    Raises:
        ValueError: it is no number, or too large.
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
    """A floating-point number as Java writes and reads it.

    Args:
        text: with spaces around it, maybe.
        type_text: the type, for the error.

    Raises:
        ValueError: it is none.
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
    """A date, ``2026-1-31``; what follows a space is left out; month and day may be missing.

    Raises:
        ValueError: it is none.

    Returns:
        Days since 1970-01-01.
    """
    space = text.find(" ")
    match = _DATE.fullmatch(text[:space] if space > 0 else text)
    if match is None:
        raise _refusal(text, "DATE")
    year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
    if not 0 <= year <= _MAX_YEAR or not 1 <= month <= 12:  # noqa: PLR2004 - months
        raise _refusal(text, "DATE")
    if not 1 <= day <= _length_of_month(year, month):
        raise _refusal(text, "DATE", f": the month has {_length_of_month(year, month)} days")
    return days_of_civil(year, month, day)


def _length_of_month(year: int, month: int) -> int:
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
    """A time of day, ``13:05:00.25``; minutes and seconds may be missing.

    Raises:
        ValueError: it is none.

    Returns:
        Nanoseconds since midnight.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise _refusal(text, "TIME")
    hour, minute, second, fraction = match.groups()
    return _clock(text, "TIME", hour, minute or "0", second or "0", fraction or "")


def parse_timestamp(text: str, precision: int) -> int:
    """A timestamp, ``2026-01-31 13:05:00.25``; the time of day may be missing.

    A day from 29 to 31 that the month lacks is taken for its last, as Java does.

    Args:
        text: the text.
        precision: digits of the second that are kept.

    Raises:
        ValueError: it is none.

    Returns:
        Nanoseconds since 1970-01-01 00:00:00.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise _refusal(text, "TIMESTAMP")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not 1 <= month <= 12 or not 1 <= day <= 31 or year == 0:  # noqa: PLR2004 - of a calendar
        raise _refusal(text, "TIMESTAMP")
    days = days_of_civil(year, month, min(day, _length_of_month(year, month)))
    of_day = 0
    if text.endswith(_MIDNIGHT):
        of_day = NANOS_PER_DAY
    elif match[4] is not None:
        of_day = _clock(text, "TIMESTAMP", match[4], match[5], match[6], match[7] or "")
    step: int = 10 ** (9 - precision)
    return days * NANOS_PER_DAY + of_day - of_day % step
