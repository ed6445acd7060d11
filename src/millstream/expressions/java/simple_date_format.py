"""``java.text.SimpleDateFormat``: DATE_FORMAT of text, UNIX_TIMESTAMP etc.

Reading is as lenient as Java's: months and days out of range carry over; blanks before a field and
everything after the last one are skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from millstream.expressions.java.calendars import DAYS, MONTHS, Moment, hybrid_days, hybrid_moment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.expressions.java.calendars import Zone


_NANOS: Final = 1_000_000_000
_LETTERS: Final = re.compile(r"([a-zA-Z])\1*")
_INTEGER: Final = re.compile(r"-?[0-9]+")
_GENERAL_ZONE: Final = re.compile(r"(?:GMT|UTC)(?:([+-])(\d{1,2}):(\d\d))?|([+-])(\d\d)(\d\d)")
_ISO_ZONES: Final = {
    1: re.compile(r"Z|([+-])(\d\d)"),
    2: re.compile(r"Z|([+-])(\d\d)(\d\d)"),
    3: re.compile(r"Z|([+-])(\d\d):(\d\d)"),
}
#: Years of two digits lie between 80 years ago and 20 years ahead; Java counts from today, which
#: would make the result of a query depend on when it runs.
_FIRST_SHORT_YEAR: Final = 1946

_NUMBERS: Final[Mapping[str, Callable[[Moment], int]]] = {
    "y": lambda moment: moment.era_year,
    "Y": lambda moment: moment.week_year_and_week[0],
    "M": lambda moment: moment.month,
    "L": lambda moment: moment.month,
    "w": lambda moment: moment.week_year_and_week[1],
    "W": lambda moment: moment.week_of_month,
    "D": lambda moment: moment.day_of_year,
    "d": lambda moment: moment.day,
    "F": lambda moment: (moment.day - 1) // 7 + 1,
    "u": lambda moment: moment.weekday + 1,
    "H": lambda moment: moment.hour,
    "k": lambda moment: moment.hour or 24,
    "K": lambda moment: moment.hour % 12,
    "h": lambda moment: moment.hour % 12 or 12,
    "m": lambda moment: moment.minute,
    "s": lambda moment: moment.second,
    "S": lambda moment: moment.nano // 1_000_000,
}
_ONLY_WRITTEN: Final = "YwWFu"
_WORDS: Final = "GEazZX"


class _NoMatchError(Exception):
    """The text is not as the pattern says."""


@dataclass(frozen=True, slots=True)
class _Field:
    """Some equal letters, or a literal text where ``letter`` is empty."""

    letter: str
    count: int
    text: str = ""
    #: Whether a number stands right behind it: then it has as many digits as letters.
    touches: bool = False

    @property
    def is_number(self) -> bool:
        return self.letter in _NUMBERS and not (self.letter in "ML" and self.count > 2)  # noqa: PLR2004


class SimpleDateFormat:
    """A compiled pattern.  Made by ``simple_format_of``."""

    def __init__(self, pattern: str) -> None:
        self._fields = _compile(pattern)

    def write(self, nanos: int, zone: Zone) -> str:
        """The text of an instant, nanoseconds since 1970, on the clocks of a zone."""
        moment = hybrid_moment(zone.to_local(nanos))
        return "".join([_written(field, moment, nanos, zone) for field in self._fields])

    def read(self, text: str, zone: Zone) -> int | None:
        """The instant of a text, nanoseconds since 1970; None if it is not as the pattern says.

        Args:
            text: what to read.
            zone: whose clocks it is on, unless it says so itself.
        """
        found: dict[str, int] = {}
        at = 0
        try:
            for field in self._fields:
                at = _read(field, text, at, found)
        except _NoMatchError:
            return None
        # As in Java, a text of which nothing was read is none.
        return _instant(found, zone) if at else None


@lru_cache(maxsize=256)
def simple_format_of(pattern: str) -> SimpleDateFormat:
    """The format of a pattern.

    Raises:
        ValueError: Java would refuse the pattern.
    """
    return SimpleDateFormat(pattern)


def _compile(pattern: str) -> list[_Field]:
    fields: list[_Field] = []
    at = 0
    while at < len(pattern):
        match = _LETTERS.match(pattern, at)
        if match is not None:
            if match[1] not in _NUMBERS and match[1] not in _WORDS:
                message = f"date pattern {pattern!r}: unknown letter {match[1]}"
                raise ValueError(message)
            fields.append(_Field(match[1], len(match[0])))
            at = match.end()
        elif pattern[at] == "'":
            text, at = _quoted(pattern, at + 1)
            fields.append(_Field("", 0, text))
        else:
            fields.append(_Field("", 0, pattern[at]))
            at += 1
    touching = [field.is_number for field in (*fields, _Field("", 0))][1:]
    return [
        _Field(field.letter, field.count, field.text, touches and field.is_number)
        for field, touches in zip(fields, touching, strict=True)
    ]


def _quoted(pattern: str, start: int) -> tuple[str, int]:
    if pattern[start : start + 1] == "'":
        return "'", start + 1
    at = start
    while (end := pattern.find("'", at)) >= 0:
        if pattern[end + 1 : end + 2] != "'":
            return pattern[start:end].replace("''", "'"), end + 1
        at = end + 2
    message = f"date pattern {pattern!r}: a quote is not closed"
    raise ValueError(message)


# -- writing ----------------------------------------------------------------------------------


def _written(  # noqa: PLR0911 - a table
    field: _Field, moment: Moment, nanos: int, zone: Zone
) -> str:
    letter, count = field.letter, field.count
    if not letter:
        return field.text
    if letter == "G":
        return "AD" if moment.year > 0 else "BC"
    if letter == "E":
        word = DAYS[moment.weekday]
        return word if count > 3 else word[:3]  # noqa: PLR2004 - the whole word from four on
    if letter == "a":
        return "PM" if moment.hour >= 12 else "AM"  # noqa: PLR2004 - noon
    if letter in "ML" and count > 2:  # noqa: PLR2004 - words from three on
        word = MONTHS[moment.month - 1]
        return word if count > 3 else word[:3]  # noqa: PLR2004 - the whole word from four on
    if letter in "zZX":
        return _written_zone(letter, count, nanos // _NANOS, zone)
    value: int = _NUMBERS[letter](moment)
    if letter in "yY" and count == 2:  # noqa: PLR2004 - yy
        return f"{value % 100:02d}"
    return str(value).rjust(count, "0")


def _written_zone(letter: str, count: int, seconds: int, zone: Zone) -> str:
    offset = zone.offset_at(seconds)
    sign = "-" if offset < 0 else "+"
    hours, minutes = divmod(abs(offset) // 60, 60)
    if letter == "z":
        name = zone.abbreviation_at(seconds)
        if count > 3 or not name.isalpha():  # noqa: PLR2004 - the whole name from four on
            message = f"the name of the time zone {zone.name} is not supported; use Z or X"
            raise ValueError(message)
        return name
    if letter == "Z":
        return f"{sign}{hours:02d}{minutes:02d}"
    if offset == 0:
        return "Z"
    if count == 1:
        return f"{sign}{hours:02d}"
    return f"{sign}{hours:02d}{':' if count > 2 else ''}{minutes:02d}"  # noqa: PLR2004 - XXX


# -- reading ----------------------------------------------------------------------------------


def _read(  # noqa: PLR0911 - a table
    field: _Field, text: str, at: int, found: dict[str, int]
) -> int:
    letter = field.letter
    if not letter:
        if not text.startswith(field.text, at):
            raise _NoMatchError
        return at + len(field.text)
    while text[at : at + 1] in {" ", "\t"}:
        at += 1
    if letter in _ONLY_WRITTEN:
        message = f"the letter {letter} is not supported when a text is read"
        raise ValueError(message)
    if letter in "zZX":
        return _read_zone(field, text, at, found)
    if letter == "G":
        return _read_word(text, at, ("BC", "AD"), "G", found)
    if letter == "a":
        return _read_word(text, at, ("AM", "PM"), "a", found)
    if letter == "E":
        return _read_name(text, at, DAYS, "E", found)
    if not field.is_number:
        return _read_name(text, at, MONTHS, "M", found)
    return _read_number(field, text, at, found)


def _read_word(text: str, at: int, words: tuple[str, ...], key: str, found: dict[str, int]) -> int:
    for value, word in enumerate(words):
        if text[at : at + len(word)].upper() == word:
            found[key] = value
            return at + len(word)
    raise _NoMatchError


def _read_name(text: str, at: int, names: tuple[str, ...], key: str, found: dict[str, int]) -> int:
    for length in (None, 3):
        for value, name in enumerate(names):
            word = name[:length]
            if text[at : at + len(word)].lower() == word.lower():
                found[key] = value + 1
                return at + len(word)
    raise _NoMatchError


def _read_number(field: _Field, text: str, at: int, found: dict[str, int]) -> int:
    end = at + field.count if field.touches else len(text)
    if field.touches and end > len(text):
        raise _NoMatchError
    match = _INTEGER.match(text, at, end)
    if match is None:
        raise _NoMatchError
    value = int(match[0])
    if field.letter == "y" and field.count <= 2 and len(match[0]) == 2 and value >= 0:  # noqa: PLR2004
        value += _FIRST_SHORT_YEAR // 100 * 100
        if value < _FIRST_SHORT_YEAR:
            value += 100
    found["M" if field.letter == "L" else field.letter] = value
    return match.end()


def _read_zone(field: _Field, text: str, at: int, found: dict[str, int]) -> int:
    if field.letter == "X":
        if field.count not in _ISO_ZONES:
            message = "too many X in a date pattern"
            raise ValueError(message)
        match = _ISO_ZONES[field.count].match(text, at)
    else:
        match = _GENERAL_ZONE.match(text, at)
    if match is None:
        raise _NoMatchError
    parts = [part for part in match.groups() if part is not None]
    offset = 0
    if parts:
        sign, hours, *minutes = parts
        offset = int(hours) * 3600 + (int(minutes[0]) * 60 if minutes else 0)
        offset = -offset if sign == "-" else offset
    found["offset"] = offset
    return match.end()


def _instant(found: dict[str, int], zone: Zone) -> int:
    year = found.get("y", 1970)
    if found.get("G") == 0:
        year = 1 - year
    if "D" in found and "d" not in found:
        days = hybrid_days(year, 1, found["D"])
    else:
        days = hybrid_days(year, found.get("M", 1), found.get("d", 1))
    hour = found.get("H", found["k"] % 24 if found.get("k") == 24 else found.get("k", 0))  # noqa: PLR2004
    if "h" in found or "K" in found:
        half = found.get("h", found.get("K", 0))
        if "h" in found and half == 12:  # noqa: PLR2004 - noon or midnight
            half = 0
        hour = half + 12 * found.get("a", 0)
    seconds = ((days * 24 + hour) * 60 + found.get("m", 0)) * 60 + found.get("s", 0)
    nanos = seconds * _NANOS + found.get("S", 0) * 1_000_000
    if "offset" in found:
        return nanos - found["offset"] * _NANOS
    return zone.from_local(nanos, later=True)
