"""Casts between dates, times of day, timestamps and their text.

What it is: digits of the second that the target lacks are cut; TIMESTAMP_LTZ and the types
without a zone meet in the session's time zone; a time of day is one of 1970-01-01.

Read next: ``expressions/casts/values.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.expressions.java.time_zones import zone_of
from millstream.types.logical_types import (
    DateType,
    LocalZonedTimestampType,
    LogicalType,
    TimestampType,
    TimeType,
)
from millstream.types.text_values import NANOS_PER_DAY, parse_date, parse_time, parse_timestamp
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["time_cast"]

_MAX_PRECISION: Final = 9
_NANOS_LIMIT: Final = 1 << 63
_MILLI: Final = 1_000_000
_HALF_MILLI: Final = _MILLI // 2


def time_cast(source: LogicalType, target: LogicalType, zone: str) -> Callable[[Any], Any]:
    """A function that casts to a date, a time or a timestamp.

    Args:
        source: the type of the values: one of those, or text.
        target: a date, a time or a timestamp.
        zone: the session's time zone.

    Returns:
        A function of one value that is not NULL.

    Raises:
        ProgramError: there is no such cast.
    """
    cast = _time_cast(source, target, zone)
    if isinstance(target, TimestampType | LocalZonedTimestampType) and target.unit == "ns":
        return lambda value: _within_nanos(cast(value), target)
    return cast


def _within_nanos(nanos: int, target: LogicalType) -> int:
    """The value, if a column of nanoseconds holds it."""
    if not -_NANOS_LIMIT <= nanos < _NANOS_LIMIT:
        name = target.with_nullability(True).as_summary_string()  # noqa: FBT003
        message = f"{name} holds the years 1678 to 2261; use a precision of 6 for others"
        raise ValueError(message)
    return nanos


def _time_cast(source: LogicalType, target: LogicalType, zone: str) -> Callable[[Any], Any]:
    if source.is_a(TypeFamily.CHARACTER_STRING):
        return _from_text(target, zone)
    to_nanos = _to_local_nanos(source, zone)
    if isinstance(source, LocalZonedTimestampType) and isinstance(target, LocalZonedTimestampType):
        return _cut(target.precision)
    from_nanos = _from_local_nanos(target, zone)
    return lambda value: from_nanos(to_nanos(value))


def _cut(precision: int) -> Callable[[int], int]:
    step = 10 ** (_MAX_PRECISION - precision)
    return lambda nanos: nanos - nanos % step


def _whole_millis(nanos: int) -> int:
    """A time that was read from text, rounded to milliseconds as in Flink; no day begins."""
    rounded = (nanos + _HALF_MILLI) // _MILLI * _MILLI
    return rounded if rounded < NANOS_PER_DAY else nanos // _MILLI * _MILLI


def _from_text(target: LogicalType, zone: str) -> Callable[[Any], Any]:
    if isinstance(target, DateType):
        return parse_date
    if isinstance(target, TimeType):
        cut_time = _cut(target.precision)
        return lambda text: cut_time(_whole_millis(parse_time(text)))
    if isinstance(target, TimestampType):
        precision = target.precision
        return lambda text: parse_timestamp(text, precision)
    if isinstance(target, LocalZonedTimestampType):
        digits, from_local = target.precision, zone_of(zone).from_local
        return lambda text: from_local(parse_timestamp(text, digits))
    raise _refusal(target)


def _refusal(type_: LogicalType) -> ProgramError:
    return ProgramError(f"{type_.as_summary_string()} is no time")


def _to_local_nanos(source: LogicalType, zone: str) -> Callable[[int], int]:
    """Nanoseconds since 1970-01-01 00:00:00 of the session's clock."""
    if isinstance(source, DateType):
        return lambda days: days * NANOS_PER_DAY
    if isinstance(source, LocalZonedTimestampType):
        return zone_of(zone).to_local
    return lambda nanos: nanos


def _from_local_nanos(target: LogicalType, zone: str) -> Callable[[int], int]:
    if isinstance(target, DateType):
        return lambda nanos: nanos // NANOS_PER_DAY
    if isinstance(target, TimeType):
        cut_time = _cut(target.precision)
        return lambda nanos: cut_time(nanos % NANOS_PER_DAY)
    if isinstance(target, TimestampType):
        return _cut(target.precision)
    if isinstance(target, LocalZonedTimestampType):
        cut, from_local = _cut(target.precision), zone_of(zone).from_local
        return lambda nanos: cut(from_local(nanos))
    raise _refusal(target)
