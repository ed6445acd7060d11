"""Fields of dates and times: the words of English, weeks, and the calendar that Java changes.

What it is: what both kinds of Java's date formats share.  ``java.time`` has the Gregorian calendar
for all times; ``java.util.Calendar`` has the Julian one before 15 October 1582.

Read next: ``expressions/java/date_time_formatter.py``, ``expressions/java/simple_date_format.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.types.text_values import civil_of_days, days_of_civil

__all__ = [
    "DAYS",
    "MONTHS",
    "Moment",
    "hybrid_days",
    "hybrid_moment",
    "is_leap",
    "length_of_month",
    "moment_of",
]

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
    """Whether a year of the Gregorian calendar has 366 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def length_of_month(year: int, month: int) -> int:
    """How many days a month of the Gregorian calendar has."""
    if month == 2:  # noqa: PLR2004 - February
        return 29 if is_leap(year) else 28
    return 30 if month in {4, 6, 9, 11} else 31


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
