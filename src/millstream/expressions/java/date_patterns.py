"""Java's two formats of dates: ``DateTimeFormatter`` of ``java.time``, and ``SimpleDateFormat``.

Words are English, and weeks begin on Sunday.  A pattern of the first is compiled to elements that
write and read a field each, by Java's rules for adjacent numbers (``yyyyMMdd``), signs and optional
parts; DATE_FORMAT of timestamps and TO_TIMESTAMP take it.  The second, of DATE_FORMAT of text,
UNIX_TIMESTAMP and the like, reads as leniently as Java: months and days out of range carry over;
blanks before a field and everything after the last one are skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NoReturn

from millstream.expressions.java.calendars import DAYS, MONTHS, hybrid_days, hybrid_moment, is_leap
from millstream.types.text_values import days_of_civil, length_of_month

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.expressions.java.calendars import Moment, Zone


_NANOS: Final = 1_000_000_000
_LETTERS: Final = re.compile(r"([a-zA-Z])\1*")
_QUARTERS: Final = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
_MOST_DIGITS: Final = 19
_TWO_DIGIT_BASE: Final = 2000

#: Letters of numbers: the field, and the most letters that may stand together.
_NUMBERS: Final = {
    "u": ("year", 19),
    "y": ("era_year", 19),
    "M": ("month", 2),
    "L": ("month", 2),
    "d": ("day", 2),
    "D": ("day_of_year", 3),
    "Q": ("quarter", 2),
    "q": ("quarter", 2),
    "H": ("hour", 2),
    "k": ("clock_hour", 2),
    "K": ("half_day_hour", 2),
    "h": ("clock_half_day_hour", 2),
    "m": ("minute", 2),
    "s": ("second", 2),
    "A": ("milli_of_day", 19),
    "n": ("nano", 19),
    "N": ("nano_of_day", 19),
    "Y": ("week_year", 19),
    "w": ("week", 2),
    "W": ("week_of_month", 1),
    "e": ("sunday_weekday", 2),
    "c": ("sunday_weekday", 1),
}
#: Letters that may stand for words, and the most of them that may stand together.
_MOST_OF_WORDS: Final = {"a": 1, "G": 5, "E": 5, "e": 5, "c": 5, "M": 5, "L": 5, "Q": 5, "q": 5}
_ONLY_WRITTEN: Final = frozenset({"week_year", "week", "week_of_month", "sunday_weekday"})
_VALUES: Final[Mapping[str, Callable[[Moment], int]]] = {
    "year": lambda moment: moment.year,
    "era_year": lambda moment: moment.era_year,
    "month": lambda moment: moment.month,
    "day": lambda moment: moment.day,
    "day_of_year": lambda moment: moment.day_of_year,
    "quarter": lambda moment: (moment.month + 2) // 3,
    "hour": lambda moment: moment.hour,
    "clock_hour": lambda moment: moment.hour or 24,
    "half_day_hour": lambda moment: moment.hour % 12,
    "clock_half_day_hour": lambda moment: moment.hour % 12 or 12,
    "minute": lambda moment: moment.minute,
    "second": lambda moment: moment.second,
    "milli_of_day": lambda moment: moment.nanos // 1_000_000,
    "nano": lambda moment: moment.nano,
    "nano_of_day": lambda moment: moment.nanos,
    "week_year": lambda moment: moment.week_year_and_week[0],
    "week": lambda moment: moment.week_year_and_week[1],
    "week_of_month": lambda moment: moment.week_of_month,
    "sunday_weekday": lambda moment: moment.sunday_weekday,
    "monday_weekday": lambda moment: moment.weekday + 1,
    "week_of_days": lambda moment: (moment.day - 1) // 7 + 1,
    "milli": lambda moment: moment.nano // 1_000_000,
}


#: Letters that Java knows; some of them are not supported here.
_KNOWN_LETTERS: Final = frozenset("GuyDMLQqYwWdEecFaBhKkHmsSAnNVvzOXxZpg")


class InvalidPatternError(ValueError):
    """Java refuses the pattern, too."""


class _NoMatchError(Exception):
    """The text is not as the pattern says."""


@dataclass(slots=True)
class _Literal:
    text: str

    def write(self, moment: Moment) -> str:
        del moment
        return self.text

    def read(self, text: str, at: int, fields: dict[str, int]) -> int:
        del fields
        if not text.startswith(self.text, at):
            raise _NoMatchError
        return at + len(self.text)


@dataclass(slots=True)
class _Number:
    """Digits of a field: at least and at most so many; ``following``: digits of those behind."""

    field: str
    least: int
    most: int
    pads: bool
    reduced: bool = False
    following: int = 0

    @property
    def is_fixed(self) -> bool:
        return self.least == self.most

    def write(self, moment: Moment) -> str:
        value = _VALUES[self.field](moment)
        if self.reduced:
            return f"{abs(value) % 100:02d}"
        digits = str(abs(value))
        if self.is_fixed and len(digits) > self.most:
            message = f"{self.field} {value} has more than {self.most} digits"
            raise ValueError(message)
        sign = "-" if value < 0 else ""
        if self.pads and self.least < len(digits) and not sign:
            sign = "+"
        return sign + digits.rjust(self.least, "0")

    def read(self, text: str, at: int, fields: dict[str, int]) -> int:
        if self.field in _ONLY_WRITTEN:
            message = "weeks are not supported when a text is read"
            raise ValueError(message)
        sign = text[at : at + 1] if not self.is_fixed and text[at : at + 1] in {"+", "-"} else ""
        start = at + len(sign)
        end = start
        while (
            end < len(text) and end - start < self.most + self.following and "0" <= text[end] <= "9"
        ):
            end += 1
        if self.following and end - start < self.least + self.following:
            end = max(start + self.least, end - self.following)
        else:
            end -= self.following
        count = end - start
        if end > len(text) or count < self.least or not text[start:end].isdecimal():
            raise _NoMatchError
        self._check_sign(sign, count)
        value = int(text[start:end])
        if self.reduced:
            value += _TWO_DIGIT_BASE
        _put(fields, self.field, -value if sign == "-" else value)
        return end

    def _check_sign(self, sign: str, count: int) -> None:
        if not self.pads:
            if sign == "+":
                raise _NoMatchError
            return
        if (sign == "+") != (count > self.least) and sign != "-":
            raise _NoMatchError


@dataclass(slots=True)
class _Fraction:
    """The first digits of the second's fraction."""

    digits: int
    following: int = 0

    def write(self, moment: Moment) -> str:
        return f"{moment.nano:09d}"[: self.digits]

    def read(self, text: str, at: int, fields: dict[str, int]) -> int:
        digits = text[at : at + self.digits]
        if len(digits) < self.digits or not (digits.isascii() and digits.isdecimal()):
            raise _NoMatchError
        _put(fields, "nano", int(digits.ljust(9, "0")))
        return at + self.digits


@dataclass(slots=True)
class _Text:
    """A word for a number."""

    field: str
    words: tuple[str, ...]
    value: Callable[[Moment], int]

    def write(self, moment: Moment) -> str:
        return self.words[self.value(moment)]

    def read(self, text: str, at: int, fields: dict[str, int]) -> int:
        found = [word for word in self.words if text.startswith(word, at)]
        if not found:
            raise _NoMatchError
        word = max(found, key=len)
        _put(fields, self.field, self.words.index(word))
        return at + len(word)


@dataclass(slots=True)
class _Offset:
    """``+02:00`` and its kin: read and passed over."""

    pattern: re.Pattern[str]

    def write(self, moment: Moment) -> str:
        del moment
        message = "a timestamp has no time zone to write"
        raise ValueError(message)

    def read(self, text: str, at: int, fields: dict[str, int]) -> int:
        del fields
        match = self.pattern.match(text, at)
        if match is None:
            raise _NoMatchError
        return match.end()


@dataclass(slots=True)
class _Optional:
    elements: list[_Element]

    def write(self, moment: Moment) -> str:
        return "".join(element.write(moment) for element in self.elements)

    def read(self, text: str, at: int, fields: dict[str, int]) -> int:
        attempt = dict(fields)
        try:
            end = _read_all(self.elements, text, at, attempt)
        except _NoMatchError:
            return at
        fields.update(attempt)
        return end


_Element = _Literal | _Number | _Fraction | _Text | _Offset | _Optional


def _put(fields: dict[str, int], field: str, value: int) -> None:
    if fields.setdefault(field, value) != value:
        raise _NoMatchError


def _read_all(elements: Sequence[_Element], text: str, at: int, fields: dict[str, int]) -> int:
    for element in elements:
        at = element.read(text, at, fields)
    return at


class _Compiler:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def elements(self, depth: int = 0) -> list[_Element]:
        found: list[_Element] = []
        while self.at < len(self.pattern):
            letter = self.pattern[self.at]
            match = _LETTERS.match(self.pattern, self.at)
            if match is not None:
                self.at = match.end()
                _append(found, self.element(match[1], len(match[0])))
                continue
            self.at += 1
            if letter == "'":
                found.append(_Literal(self.quoted()))
            elif letter == "[":
                found.append(_Optional(self.elements(depth + 1)))
            elif letter == "]":
                if not depth:
                    self.refuse("']' without '['")
                return found
            elif letter in "{}#":
                self.refuse(f"{letter!r} is reserved")
            else:
                found.append(_Literal(letter))
        return found

    def quoted(self) -> str:
        start = self.at
        while True:
            end = self.pattern.find("'", self.at)
            if end < 0:
                self.refuse("a quote is not closed")
            self.at = end + 1
            if self.pattern[self.at : self.at + 1] != "'":
                return self.pattern[start:end].replace("''", "'") or "'"
            self.at += 1

    def refuse(self, what: str) -> NoReturn:
        message = f"date pattern {self.pattern!r}: {what}"
        raise InvalidPatternError(message)

    def refuse_letters(self, letters: str) -> NoReturn:
        """Refuse letters that Java may know.

        Raises:
            InvalidPatternError: it does not.
            ValueError: it does.
        """
        if letters[0] not in _KNOWN_LETTERS:
            self.refuse(f"the letter {letters[0]} is not supported")
        message = f"date pattern {self.pattern!r}: {letters} is not supported"
        raise ValueError(message)

    def element(  # noqa: C901, PLR0911 - a table
        self, letter: str, count: int
    ) -> _Element:
        if letter == "S":
            if count > 9:  # noqa: PLR2004 - nanoseconds
                self.refuse("more than nine S")
            return _Fraction(count)
        if letter in _MOST_OF_WORDS and count > _MOST_OF_WORDS[letter]:
            self.refuse(f"too many {letter}")
        text = _text_element(letter, count)
        if text is not None:
            return text
        if letter in "XxZOVvz":
            return self.zone(letter, count)
        if letter not in _NUMBERS:
            self.refuse_letters(letter * count)
        field, most = _NUMBERS[letter]
        if count > most:
            self.refuse(f"too many {letter}")
        if letter in "uyY":
            if count == 2:  # noqa: PLR2004 - yy
                return _Number(field, 2, 2, pads=False, reduced=True)
            return _Number(field, count, _MOST_DIGITS, pads=count > 3)  # noqa: PLR2004 - yyyy
        if count == 1 or letter in "AnN":
            # One letter, and several of these: as many digits as there are.
            return _Number(field, count, _MOST_DIGITS, pads=False)
        return _Number(field, count, count, pads=False)

    def zone(self, letter: str, count: int) -> _Offset:
        found = _OFFSETS.get(letter * count)
        if found is None:
            self.refuse_letters(letter * count)
        return _Offset(found)


_OFFSETS: Final = {
    "X": re.compile(r"Z|[+-]\d\d(?:\d\d)?"),
    "XX": re.compile(r"Z|[+-]\d\d\d\d"),
    "XXX": re.compile(r"Z|[+-]\d\d:\d\d"),
    "XXXX": re.compile(r"Z|[+-]\d\d\d\d(?:\d\d)?"),
    "XXXXX": re.compile(r"Z|[+-]\d\d:\d\d(?::\d\d)?"),
    "x": re.compile(r"[+-]\d\d(?:\d\d)?"),
    "xx": re.compile(r"[+-]\d\d\d\d"),
    "xxx": re.compile(r"[+-]\d\d:\d\d"),
    "xxxx": re.compile(r"[+-]\d\d\d\d(?:\d\d)?"),
    "xxxxx": re.compile(r"[+-]\d\d:\d\d(?::\d\d)?"),
    "Z": re.compile(r"[+-]\d\d\d\d"),
    "ZZ": re.compile(r"[+-]\d\d\d\d"),
    "ZZZ": re.compile(r"[+-]\d\d\d\d"),
    "ZZZZZ": re.compile(r"Z|[+-]\d\d:\d\d(?::\d\d)?"),
}


def _text_element(letter: str, count: int) -> _Text | None:
    if letter == "a":
        return _Text("half_day", ("AM", "PM"), lambda moment: moment.hour // 12)
    if letter == "G":
        full, short = ("Before Christ", "Anno Domini"), ("BC", "AD")
        eras = {4: full, 5: ("B", "A")}.get(count, short)
        return _Text("era", eras, lambda moment: int(moment.year > 0))
    if letter == "E" or (letter in "ec" and count > 2):  # noqa: PLR2004 - a number before
        return _Text("weekday", _cut(DAYS, max(count, 3)), lambda moment: moment.weekday)
    if letter in "ML" and count > 2:  # noqa: PLR2004 - a number before
        return _Text("month_index", _cut(MONTHS, count), lambda moment: moment.month - 1)
    if letter in "Qq" and count > 2:  # noqa: PLR2004 - a number before
        words = {4: _QUARTERS, 5: ("1", "2", "3", "4")}.get(count, ("Q1", "Q2", "Q3", "Q4"))
        return _Text("quarter_index", words, lambda moment: (moment.month - 1) // 3)
    return None


def _cut(words: Sequence[str], count: int) -> tuple[str, ...]:
    length = {3: 3, 5: 1}.get(count)
    return tuple(word[:length] for word in words)


def _append(elements: list[_Element], element: _Element) -> None:
    """Add an element; a number of any length leaves digits to fixed ones right behind it."""
    elements.append(element)
    digits = 0
    if isinstance(element, _Fraction):
        digits = element.digits
    elif isinstance(element, _Number) and element.is_fixed:
        digits = element.most
    if not digits:
        return
    for before in reversed(elements[:-1]):
        if isinstance(before, _Number) and not before.is_fixed:
            before.following += digits
            return
        if not isinstance(before, _Number | _Fraction):
            return


class DateTimeFormatter:
    """A compiled pattern.  Made by ``formatter_of``."""

    def __init__(self, pattern: str) -> None:
        self._elements = _Compiler(pattern).elements()

    def write(self, moment: Moment) -> str:
        """The text of a moment.

        Raises:
            ValueError: a number does not fit, or the pattern asks for a zone.
        """
        return "".join([element.write(moment) for element in self._elements])

    def read(self, text: str) -> int | None:
        """Nanoseconds since 1970-01-01 00:00:00 of a text; None if it is not as the pattern says.

        Fields that the pattern does not name are as at the beginning of 1970.
        """
        fields: dict[str, int] = {}
        try:
            if _read_all(self._elements, text, 0, fields) != len(text):
                return None
            return nanos_of_fields(fields)
        except _NoMatchError:
            return None


@lru_cache(maxsize=256)
def formatter_of(pattern: str) -> DateTimeFormatter:
    """The formatter of a pattern.

    Raises:
        InvalidPatternError: Java would refuse the pattern.
        ValueError: it is not supported.
    """
    return DateTimeFormatter(pattern)


def _in_range(fields: Mapping[str, int], field: str, least: int, most: int, default: int) -> int:
    value = fields.get(field, default)
    if field in fields and not least <= value <= most:
        raise _NoMatchError
    return value


def nanos_of_fields(fields: Mapping[str, int]) -> int:
    """Nanoseconds since 1970-01-01 00:00:00 of what was read; a day too many is the month's last.

    Raises:
        _NoMatchError: a field is out of range, or two do not go together.
    """
    days = _days(fields)
    is_whole = "day" in fields and not {"month", "month_index"}.isdisjoint(fields)
    if is_whole and fields.get("weekday", (days + 3) % 7) != (days + 3) % 7:
        raise _NoMatchError
    of_day = _nanos_of_day(fields)
    return days * 86_400 * _NANOS + of_day


def _days(fields: Mapping[str, int]) -> int:
    year = _in_range(fields, "era_year", 1, 999_999_999, fields.get("year", 1970))
    if fields.get("era") == 0:
        year = 1 - year
    if "day_of_year" in fields:
        day_of_year = _in_range(fields, "day_of_year", 1, 366 if is_leap(year) else 365, 1)
        return days_of_civil(year, 1, 1) + day_of_year - 1
    month = _in_range(fields, "month", 1, 12, fields.get("month_index", 0) + 1)
    if fields.get("month_index", month - 1) != month - 1:
        raise _NoMatchError
    day = _in_range(fields, "day", 1, 31, 1)
    return days_of_civil(year, month, min(day, length_of_month(year, month)))


def _nanos_of_day(fields: Mapping[str, int]) -> int:
    if "nano_of_day" in fields:
        return _in_range(fields, "nano_of_day", 0, 86_400 * _NANOS - 1, 0)
    if "milli_of_day" in fields:
        return _in_range(fields, "milli_of_day", 0, 86_400_000 - 1, 0) * 1_000_000
    hour = _hour(fields)
    minute = _in_range(fields, "minute", 0, 59, 0)
    second = _in_range(fields, "second", 0, 59, 0)
    nano = _in_range(fields, "nano", 0, _NANOS - 1, 0)
    if hour == 24 and (minute or second or nano):  # noqa: PLR2004 - midnight at the end of a day
        raise _NoMatchError
    return ((hour * 60 + minute) * 60 + second) * _NANOS + nano


def _hour(fields: Mapping[str, int]) -> int:
    hour = _in_range(fields, "hour", 0, 24, 0)
    if "clock_hour" in fields:
        hour = _in_range(fields, "clock_hour", 1, 24, 24) % 24
    half = fields.get("half_day")
    if half is not None:
        if "clock_half_day_hour" in fields:
            hour = _in_range(fields, "clock_half_day_hour", 1, 12, 12) % 12 + 12 * half
        elif "half_day_hour" in fields:
            hour = _in_range(fields, "half_day_hour", 0, 11, 0) + 12 * half
        elif hour // 12 != half:
            raise _NoMatchError
    return hour


# -- SimpleDateFormat -------------------------------------------------------------------------

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

#: Letters of numbers, by the names of their parts.
_SIMPLE_NUMBERS: Final = {letter: _NUMBERS[letter][0] for letter in "yYMLwWDdHkKhms"} | {
    "F": "week_of_days",
    "u": "monday_weekday",
    "S": "milli",
}
_SIMPLE_ONLY_WRITTEN: Final = "YwWFu"
_SIMPLE_WORDS: Final = "GEazZX"


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
        return self.letter in _SIMPLE_NUMBERS and not (self.letter in "ML" and self.count > 2)  # noqa: PLR2004


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
            if match[1] not in _SIMPLE_NUMBERS and match[1] not in _SIMPLE_WORDS:
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
    value: int = _VALUES[_SIMPLE_NUMBERS[letter]](moment)
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
    if letter in _SIMPLE_ONLY_WRITTEN:
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
