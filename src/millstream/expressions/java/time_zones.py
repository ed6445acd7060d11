"""Time zones by Java's names and rules.

What it is: a zone by its name (``Europe/Berlin``, ``GMT+08:00``, ``PST``), its offset at an
instant, and local times turned into instants.  A local time that a change of clocks leaves out is
moved forward by the gap; of one that occurs twice ``java.time`` takes the earlier instant, and
``java.util.Calendar`` the later one.

What it is not: names of zones in texts; those are in ``expressions/java/simple_date_format.py``.

Read next: ``expressions/functions/temporal_clock.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

__all__ = ["Zone", "legacy_zone", "zone_of"]

_NANOS: Final = 1_000_000_000
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
