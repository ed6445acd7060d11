"""Fields of dates and times, English names, weeks and time zones of Java's date formats.

``java.time`` has the Gregorian calendar for all times; ``java.util.Calendar`` the Julian one before
15 October 1582.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millstream.types.text_values import civil_of_days, days_of_civil

MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_NANOS: Final = 1_000_000_000
_NANOS_PER_DAY: Final = 86_400 * _NANOS
#: 1582-10-15, the first day of the Gregorian calendar.
_CUTOVER: Final = -141_427
#: 1970-01-01 by the Julian calendar, in days since 0000-03-01 of it.
_JULIAN_EPOCH: Final = 719_470
_MARCH: Final = 3


@dataclass(frozen=True, slots=True)
class Moment:
    """A local date and time in its fields.

    Args:
        days: since 1970-01-01.
        year, month, day: of the calendar; the year before 1 is 0.
        day_of_year: from 1.
        nanos: since midnight.
    """

    days: int
    year: int
    month: int
    day: int
    day_of_year: int
    nanos: int

    @property
    def weekday(self) -> int:
        """0 for Monday to 6 for Sunday."""
        return (self.days + 3) % 7

    @property
    def sunday_weekday(self) -> int:
        """1 for Sunday to 7 for Saturday."""
        return (self.days + 4) % 7 + 1

    @property
    def era_year(self) -> int:
        """The year of its era: 1 for the years 1 and 0."""
        return self.year if self.year > 0 else 1 - self.year

    @property
    def hour(self) -> int:
        """0 to 23."""
        return self.nanos // (3600 * _NANOS)

    @property
    def minute(self) -> int:
        """0 to 59."""
        return self.nanos // (60 * _NANOS) % 60

    @property
    def second(self) -> int:
        """0 to 59."""
        return self.nanos // _NANOS % 60

    @property
    def nano(self) -> int:
        """Nanoseconds of the second."""
        return self.nanos % _NANOS

    @property
    def week_of_month(self) -> int:
        """Weeks begin on Sunday; the first day of the month is in the first."""
        first = (self.days - self.day + 1 + 4) % 7
        return (self.day - 1 + first) // 7 + 1

    @property
    def week_year_and_week(self) -> tuple[int, int]:
        """Weeks begin on Sunday; the first day of the year is in the first."""
        first = (self.days - self.day_of_year + 1 + 4) % 7
        week = (self.day_of_year - 1 + first) // 7 + 1
        length = 366 if is_leap(self.year) else 365
        next_first = (first + length) % 7
        if next_first and self.day_of_year > length - next_first:
            return self.year + 1, 1
        return self.year, week


def is_leap(year: int) -> bool:
    """Return whether a year of the Gregorian calendar has 366 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def moment_of(nanos: int) -> Moment:
    """The fields of nanoseconds since 1970-01-01 00:00:00, by the Gregorian calendar."""
    days, of_day = divmod(nanos, _NANOS_PER_DAY)
    year, month, day = civil_of_days(days)
    return Moment(days, year, month, day, days - days_of_civil(year, 1, 1) + 1, of_day)


def hybrid_moment(nanos: int) -> Moment:
    """The same, by the Julian calendar before 15 October 1582."""
    days, of_day = divmod(nanos, _NANOS_PER_DAY)
    if days >= _CUTOVER:
        return moment_of(nanos)
    year, month, day = _julian_civil(days)
    return Moment(days, year, month, day, days - _julian_days(year, 1, 1) + 1, of_day)


def hybrid_days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a date of which month and day may be out of range, as in Java."""
    years, month_index = divmod(month - 1, 12)
    gregorian = days_of_civil(year + years, month_index + 1, 1) + day - 1
    if gregorian >= _CUTOVER:
        return gregorian
    return _julian_days(year + years, month_index + 1, 1) + day - 1


def _julian_days(year: int, month: int, day: int) -> int:
    year -= month < _MARCH
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 + day_of_year - _JULIAN_EPOCH


def _julian_civil(days: int) -> tuple[int, int, int]:
    shifted = days + _JULIAN_EPOCH
    cycles, of_cycle = divmod(shifted, 1461)
    year_of_cycle = min(of_cycle // 365, 3)
    day_of_year = of_cycle - 365 * year_of_cycle
    month_index = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_index + 2) // 5 + 1
    month = month_index + 3 if month_index < 10 else month_index - 9  # noqa: PLR2004
    return cycles * 4 + year_of_cycle + (month < _MARCH), month, day


_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local times have no zone
# What datetime can hold, less a day for the offset.
_LEAST: Final = -62_135_510_400
_MOST: Final = 253_402_214_400
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
_LEGACY_OFFSET: Final = re.compile(r"GMT([+-])(\d{1,2})(?::?(\d{2}))?")
_MOST_HOURS: Final = 23

#: The three letters that ``java.util.TimeZone`` knows.
_LEGACY: Final = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone.

    Args:
        name: as it was asked for.
        offset: seconds, if it is always the same.
        rules: where it is not.
    """

    name: str
    offset: int
    rules: tzinfo | None = None

    @property
    def tzinfo(self) -> tzinfo:
        """The zone as Python's standard library has it."""
        return timezone(timedelta(seconds=self.offset)) if self.rules is None else self.rules

    def offset_at(self, seconds: int) -> int:
        """Seconds that local time is ahead of UTC at an instant, seconds since 1970."""
        if self.rules is None:
            return self.offset
        within = min(max(seconds, _LEAST), _MOST)
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=within)
        return _whole_seconds(moment.astimezone(self.rules).utcoffset())

    def abbreviation_at(self, seconds: int) -> str:
        """``CET`` or the like."""
        if self.rules is None:
            return self.name
        within = min(max(seconds, _LEAST), _MOST)
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=within)
        return moment.astimezone(self.rules).tzname() or self.name

    def to_local(self, nanos: int) -> int:
        """The local time, nanoseconds since 1970-01-01 00:00:00, at an instant."""
        return nanos + self.offset_at(nanos // _NANOS) * _NANOS

    def from_local(self, nanos: int, *, later: bool = False) -> int:
        """The instant of a local time.

        Args:
            nanos: nanoseconds since 1970-01-01 00:00:00 of the local clock.
            later: which of two instants: the later one, as ``java.util.Calendar``.

        Returns:
            Nanoseconds since 1970-01-01 00:00:00 of UTC.
        """
        if self.rules is None:
            return nanos - self.offset * _NANOS
        seconds = min(max(nanos // _NANOS, _LEAST), _MOST)
        local = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=self.rules)
        first = _whole_seconds(local.utcoffset())
        if later:
            second = _whole_seconds(local.replace(fold=1).utcoffset())
            # In a gap the second offset is the larger one, and does not count.
            first = min(first, second)
        return nanos - first * _NANOS


def _whole_seconds(offset: timedelta | None) -> int:
    return 0 if offset is None else offset.days * 86_400 + offset.seconds


def _fixed(name: str, match: re.Match[str]) -> Zone | None:
    hours, minutes = int(match[2]), int(match[3] or 0)
    seconds = int(match[4] or 0) if match.re is _OFFSET else 0
    if hours > _MOST_HOURS or minutes > 59 or seconds > 59:  # noqa: PLR2004 - of a clock
        return None
    total = hours * 3600 + minutes * 60 + seconds
    return Zone(name, -total if match[1] == "-" else total)


def _by_name(name: str) -> Zone | None:
    if name in {"UTC", "GMT", "UT", "Z", "Zulu"}:
        return Zone(name, 0)
    try:
        return Zone(name, 0, ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


@lru_cache(maxsize=256)
def zone_of(name: str) -> Zone:
    """The zone of a name or offset, as ``java.time.ZoneId`` takes it.

    Raises:
        ValueError: there is none.
    """
    match = _OFFSET.fullmatch(name)
    zone = _fixed(name, match) if match is not None else _by_name(name)
    if zone is None:
        message = f"there is no time zone {name!r}"
        raise ValueError(message)
    return zone


@lru_cache(maxsize=256)
def legacy_zone(name: str) -> Zone:
    """The zone of a name, an offset or three letters, as ``java.util.TimeZone`` takes it.

    A name that it does not know is GMT.
    """
    match = _LEGACY_OFFSET.fullmatch(name)
    if match is not None:
        return _fixed(name, match) or Zone("GMT", 0)
    if name in _LEGACY:
        return Zone(name, *_legacy_parts(_LEGACY[name]))
    return _by_name(name) or Zone("GMT", 0)


def _legacy_parts(target: str) -> tuple[int, tzinfo | None]:
    zone = zone_of(target)
    return zone.offset, zone.rules
