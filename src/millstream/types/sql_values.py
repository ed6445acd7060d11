"""Conversion of ``to_sql_type`` and ``from_sql_type``: dates as days, times as microseconds.

As in PyFlink, a value without a time zone is in the time zone of the machine.
"""

from __future__ import annotations

import calendar
import datetime as dt
import time
from typing import Any, Final

#: The ordinal of 1970-01-01.
EPOCH_ORDINAL: Final = dt.date(1970, 1, 1).toordinal()
#: How far the time zone of the machine was ahead of UTC at the epoch.
EPOCH_MICROS: Final = calendar.timegm(time.localtime(0)) * 10**6
_SECOND: Final = 10**6
_INSERT: Final = 0


def date_from_days(days: int) -> dt.date:
    """Return the day that is so many days after the epoch."""
    return dt.date.fromordinal(days + EPOCH_ORDINAL)


def time_to_micros(value: dt.time, epoch: int) -> int:
    """Return the microseconds since midnight, in UTC."""
    offset = value.utcoffset() or dt.timedelta() if value.tzinfo is not None else None
    ahead = epoch if offset is None else interval_to_micros(offset)
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * _SECOND + value.microsecond - ahead


def time_from_micros(micros: int, epoch: int) -> dt.time:
    """Return the time of day in the time zone of the machine."""
    seconds, micros = divmod(micros + epoch, _SECOND)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return dt.time(hours, minutes, seconds, micros)


def timestamp_to_micros(value: dt.datetime) -> int:
    """Return the microseconds since the epoch."""
    if value.tzinfo is not None:
        seconds = calendar.timegm(value.utctimetuple())
    else:
        seconds = int(time.mktime(value.timetuple()))
    return seconds * _SECOND + value.microsecond


def timestamp_from_micros(micros: int, zone: dt.tzinfo | None = None) -> dt.datetime:
    """Return the point in time, in the time zone of the machine or in another one."""
    seconds, micros = divmod(micros, _SECOND)
    return dt.datetime.fromtimestamp(seconds, tz=zone).replace(microsecond=micros)


def zoned_to_micros(value: dt.datetime) -> tuple[int, int]:
    """Return the microseconds of the local time, and the offset of its time zone in seconds."""
    offset = (value if value.tzinfo is not None else value.astimezone()).utcoffset()
    seconds = int((offset or dt.timedelta()).total_seconds())
    return timestamp_to_micros(value) + seconds * _SECOND, seconds


def zoned_from_micros(value: tuple[int, int]) -> dt.datetime:
    """Return what ``zoned_to_micros`` was given."""
    micros, offset = value
    zone = dt.timezone(dt.timedelta(seconds=offset))
    return timestamp_from_micros(micros - offset * _SECOND, zone)


def interval_to_micros(value: dt.timedelta) -> int:
    """Return the microseconds of a length of time."""
    return value // dt.timedelta(microseconds=1)


def interval_from_micros(micros: int) -> dt.timedelta:
    """Return the length of time of so many microseconds."""
    return dt.timedelta(microseconds=micros)


def fields_of(value: Any, names: list[str]) -> tuple[int, list[Any]]:
    """Return the change type and the values of the fields of a record: a row, dict or object.

    Raises:
        ValueError: it has no fields.
    """
    kind = getattr(value, "get_row_kind", None)
    change = _INSERT if kind is None else kind().value
    if isinstance(value, dict):
        return change, [value.get(name) for name in names]
    if kind is not None and getattr(value, "_fields", None):
        return change, [value[name] for name in names]
    if kind is not None or isinstance(value, tuple | list):
        return change, list(value)
    if hasattr(value, "__dict__"):
        return change, [vars(value).get(name) for name in names]
    message = f"Unexpected value {value!r:.200} for a ROW; give a Row, tuple, list, dict or object"
    raise ValueError(message)
