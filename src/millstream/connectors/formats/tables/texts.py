"""Texts as values of logical types, and times as texts: what JSON and CSV messages share.

What it is: the rules of Java's parsers that Flink's formats use.  A number may have a sign and
blanks around it, not underscores; dates and times have all their digits.
What it is not: CAST of SQL, which takes more.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any, Final

from millstream.types.logical_types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.types.logical_types import LogicalType

__all__ = [
    "EXACT",
    "INTEGER_BITS",
    "integer",
    "rounded",
    "text_parser",
    "time_text",
    "timestamp_text",
]

INTEGER_BITS: Final[dict[type, int]] = {
    TinyIntType: 8,
    SmallIntType: 16,
    IntType: 32,
    BigIntType: 64,
    YearMonthIntervalType: 32,
    DayTimeIntervalType: 64,
}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_REAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[+-]?(?:NaN|Infinity)")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{0,9}))?")
_ISO_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{0,9}))?)?")
_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
_DAY: Final = 86_400_000_000_000
#: Nanoseconds.
_UNITS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DATE_DIGITS: Final = 10
#: The least number of 64 bits is none of a time to Arrow.
_LEAST: Final = 1 - (1 << 63)
#: Arithmetic on decimals of any type; the default has 28 digits.
EXACT: Final = Context(prec=200, rounding=ROUND_HALF_UP)


def integer(text: str, bits: int) -> int:
    """A whole number of so many bits; ValueError if it is none."""
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped):
        found = int(stripped)
        if -(1 << bits - 1) <= found < 1 << bits - 1:
            return found
    message = f"{text!r} is no whole number of {bits} bits"
    raise ValueError(message)


def _real(text: str) -> float:
    stripped = text.strip()
    if _REAL.fullmatch(stripped):
        return float(stripped.rstrip("fFdD"))
    if _NOT_FINITE.fullmatch(stripped):
        return float(stripped)
    message = f"{text!r} is no number"
    raise ValueError(message)


def rounded(value: Decimal, kind: DecimalType) -> Decimal | None:
    """A number with the digits of a type; None if it does not fit."""
    found = value.quantize(Decimal(1).scaleb(-kind.scale), context=EXACT)
    return None if len(found.as_tuple().digits) > kind.precision and found else found


def _decimal(text: str, kind: DecimalType) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        message = f"{text!r} is no decimal number"
        raise ValueError(message)
    return rounded(Decimal(text), kind)


def _days(text: str) -> int:
    if not _DATE.fullmatch(text):
        message = f"{text!r} is no date as 2024-12-31"
        raise ValueError(message)
    return dt.date.fromisoformat(text).toordinal() - _EPOCH


def _nanoseconds(text: str, pattern: re.Pattern[str]) -> int:
    """The time of day."""
    found = pattern.fullmatch(text)
    if found is None:
        message = f"{text!r} is no time as 23:59:59"
        raise ValueError(message)
    hour, minute, second, fraction = (each or "0" for each in found.groups())
    clock = dt.time(int(hour), int(minute), int(second))
    seconds = clock.hour * 3600 + clock.minute * 60 + clock.second
    return seconds * 10**9 + int(fraction.ljust(9, "0"))


def _instant(text: str, unit: str, *, iso: bool | None, zoned: bool) -> int:
    separators = " T" if iso is None else "T" if iso else " "
    day, between, clock = text[:_DATE_DIGITS], text[_DATE_DIGITS:][:1], text[_DATE_DIGITS + 1 :]
    if not between or between not in separators or zoned != clock.endswith("Z"):
        example = f"2024-12-31{separators[0]}23:59:59.999{'Z' if zoned else ''}"
        message = f"{text!r} is no timestamp as {example}"
        raise ValueError(message)
    pattern = _ISO_TIME if between == "T" else _TIME
    found = (_days(day) * _DAY + _nanoseconds(clock.removesuffix("Z"), pattern)) // _UNITS[unit]
    if not _LEAST <= found <= -_LEAST:
        message = f"{text!r} is too far away for nanoseconds"
        raise ValueError(message)
    return found


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        message = f"{text!r:.100} is not base64: {error}"
        raise ValueError(message) from error


def text_parser(  # noqa: C901, PLR0911 - a table
    kind: LogicalType, *, iso: bool | None = False
) -> Callable[[str], Any] | None:
    """What makes values of texts; None for types that no text holds.

    Args:
        kind: the type.
        iso: whether timestamps are ISO 8601 (``T`` between date and time) or SQL; None: either.
    """
    bits = INTEGER_BITS.get(type(kind))
    if bits is not None:
        return lambda text: integer(text, bits)
    if isinstance(kind, CharType | VarCharType):
        return str
    if isinstance(kind, BooleanType):
        return lambda text: text.strip().lower() == "true"
    if isinstance(kind, FloatType | DoubleType):
        return _real
    if isinstance(kind, DecimalType):
        return lambda text: _decimal(text, kind)
    if isinstance(kind, DateType):
        return _days
    if isinstance(kind, TimeType):
        unit = _UNITS[kind.to_arrow().unit]
        return lambda text: _nanoseconds(text, _TIME) // unit
    if isinstance(kind, TimestampType):
        return lambda text: _instant(text, kind.unit, iso=iso, zoned=False)
    if isinstance(kind, LocalZonedTimestampType):
        return lambda text: _instant(text, kind.unit, iso=iso, zoned=True)
    if isinstance(kind, BinaryType | VarBinaryType):
        return _base64
    return None


def time_text(value: dt.time) -> str:
    """A time of day without zeros behind its fraction."""
    text = value.isoformat()
    return text.rstrip("0") if "." in text else text


def timestamp_text(value: dt.datetime, *, iso: bool, zoned: bool) -> str:
    """A timestamp as Flink's JSON has it, in UTC if it is zoned."""
    nanoseconds = value.microsecond * 1000 + int(getattr(value, "nanosecond", 0))
    text = value.strftime("%Y-%m-%dT%H:%M:%S" if iso else "%Y-%m-%d %H:%M:%S")
    if value.year < 1000:  # noqa: PLR2004 - strftime leaves zeros away
        text = f"{value.year:04d}{text[text.index('-') :]}"
    if nanoseconds:
        text += f".{nanoseconds:09d}".rstrip("0")
    return text + "Z" if zoned else text
