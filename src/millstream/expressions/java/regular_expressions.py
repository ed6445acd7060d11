r"""Java's regular expressions, translated to Python's by ``compile_pattern``.

The two languages share most of their syntax and differ in its meaning: ``\d``, ``\w``, ``\s`` are
ASCII in Java, ``.`` and ``$`` know more line ends, ``(?i)`` is ASCII-only and may come late,
classes may be nested and intersected, group names and quotations are written differently.

An invalid pattern is an ``InvalidPatternError`` (functions give NULL or FALSE for it, as Flink's);
a valid one that Python cannot express is an ``UnsupportedPatternError``, which ends the program: a
wrong answer would be worse.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_LAST: Final = 0x10FFFF


@dataclass(frozen=True, slots=True)
class CharacterSet:
    """Ranges of code points, both ends included, in order and apart from each other."""

    ranges: tuple[tuple[int, int], ...]

    @staticmethod
    def of(*parts: str) -> CharacterSet:
        """The set of characters (``a``) and ranges (``a-z``, three characters)."""
        return CharacterSet.from_ranges((ord(part[0]), ord(part[-1])) for part in parts)

    @staticmethod
    def from_ranges(ranges: Iterable[tuple[int, int]]) -> CharacterSet:
        """The set of ranges in any order, overlapping or not."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(ranges):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        return CharacterSet(tuple(merged))

    def __or__(self, other: CharacterSet) -> CharacterSet:
        return CharacterSet.from_ranges(self.ranges + other.ranges)

    def __and__(self, other: CharacterSet) -> CharacterSet:
        return ~(~self | ~other)

    def __invert__(self) -> CharacterSet:
        gaps, start = [], 0
        for low, high in self.ranges:
            if start < low:
                gaps.append((start, low - 1))
            start = high + 1
        if start <= _LAST:
            gaps.append((start, _LAST))
        return CharacterSet(tuple(gaps))

    def with_other_case(self, *, unicode: bool) -> CharacterSet:
        """The set and what differs from its members in case only; without Unicode, of ASCII."""
        if not unicode:
            upper = self & CharacterSet.of("A-Z")
            lower = self & CharacterSet.of("a-z")
            return (
                self
                | CharacterSet(tuple((low + 32, high + 32) for low, high in upper.ranges))
                | CharacterSet(tuple((low - 32, high - 32) for low, high in lower.ranges))
            )
        return self | CharacterSet.from_ranges(
            (other, other)
            for low, high in self.ranges
            for point in range(low, high + 1)
            for other in _other_cases(point)
        )

    def pattern(self) -> str:
        """The set in Python's syntax."""
        if not self.ranges:
            return r"(?!)"
        body = "".join(
            _point(low) if low == high else f"{_point(low)}-{_point(high)}"
            for low, high in self.ranges
        )
        return f"[{body}]"


def _point(point: int) -> str:
    return f"\\U{point:08x}" if point > 0xFFFF else f"\\u{point:04x}"  # noqa: PLR2004 - one unit


def _other_cases(point: int) -> list[int]:
    text = chr(point)
    return [ord(other) for other in (text.upper(), text.lower()) if len(other) == 1]


def _matching(condition: Callable[[str], bool]) -> CharacterSet:
    return CharacterSet.from_ranges(
        (point, point) for point in range(_LAST + 1) if condition(chr(point))
    )


DIGITS: Final = CharacterSet.of("0-9")
WORDS: Final = CharacterSet.of("a-z", "A-Z", "0-9", "_")
SPACES: Final = CharacterSet.of(" ", "\t-\r")
HORIZONTAL: Final = CharacterSet.of(
    " ", "\t", "\xa0", "\u1680", "\u180e", "\u2000-\u200a", "\u202f", "\u205f", "\u3000"
)
VERTICAL: Final = CharacterSet.of("\n-\r", "\x85", "\u2028-\u2029")

_ASCII_NAMES: Final = {
    "Lower": CharacterSet.of("a-z"),
    "Upper": CharacterSet.of("A-Z"),
    "ASCII": CharacterSet.of("\x00-\x7f"),
    "Alpha": CharacterSet.of("a-z", "A-Z"),
    "Digit": DIGITS,
    "Alnum": CharacterSet.of("a-z", "A-Z", "0-9"),
    "Punct": CharacterSet.of("!-/", ":-@", "[-`", "{-~"),
    "Graph": CharacterSet.of("!-~"),
    "Print": CharacterSet.of(" -~"),
    "Blank": CharacterSet.of(" ", "\t"),
    "Cntrl": CharacterSet.of("\x00-\x1f", "\x7f"),
    "XDigit": CharacterSet.of("0-9", "a-f", "A-F"),
    "Space": SPACES,
}
#: As Java knows them: a letter, or a letter and one more.
_CATEGORY: Final = re.compile("L[Cultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfson]?")
_PROPERTIES: Final[dict[str, Callable[[str], bool]]] = {
    "ALPHABETIC": str.isalpha,
    "LETTER": str.isalpha,
    "DIGIT": str.isdecimal,
    "LOWERCASE": str.islower,
    "UPPERCASE": str.isupper,
    "WHITE_SPACE": str.isspace,
    "javaLowerCase": str.islower,
    "javaUpperCase": str.isupper,
    "javaWhitespace": lambda text: text.isspace() and text not in "\xa0\u2007\u202f\x85",
    "javaDigit": str.isdecimal,
    "javaLetter": str.isalpha,
    "javaLetterOrDigit": lambda text: text.isalpha() or text.isdecimal(),
    "javaAlphabetic": str.isalpha,
}


@cache
def named_set(name: str) -> CharacterSet | None:
    r"""The set that ``\p{name}`` stands for; None if this house does not know it.

    Args:
        name: ``Alpha``, ``Lu``, ``IsAlphabetic``, ``general_category=Lu``, ``javaLowerCase``.
    """
    if name in _ASCII_NAMES:
        return _ASCII_NAMES[name]
    if name in _PROPERTIES:
        return _matching(_PROPERTIES[name])
    if name.startswith("Is") and name[2:].upper() in _PROPERTIES:
        return _matching(_PROPERTIES[name[2:].upper()])
    category = name.removeprefix("Is").removeprefix("general_category=").removeprefix("gc=")
    if category == "LC":
        return _matching(lambda text: unicodedata.category(text) in {"Lu", "Ll", "Lt"})
    if _CATEGORY.fullmatch(category):
        return _matching(lambda text: unicodedata.category(text).startswith(category))
    return None


class InvalidPatternError(ValueError):
    """A pattern that Java would refuse as well."""


class UnsupportedPatternError(ValueError):
    """A pattern of Java's that cannot be put into Python's words."""


_LINE_ENDS: Final = r"\n\r\x85\u2028\u2029"
_AT_END: Final = r"(?=(?:\r\n|[\r\x85\u2028\u2029]|(?<!\r)\n)?\Z)"
_AT_LINE_END: Final = r"(?=\r\n|[\r\x85\u2028\u2029]|(?<!\r)\n|\Z)"
_AT_LINE_START: Final = r"(?:\A|(?:(?<=[\n\x85\u2028\u2029])|(?<=\r)(?!\n))(?!\Z))"
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_SETS: Final = {
    "d": DIGITS,
    "D": ~DIGITS,
    "w": WORDS,
    "W": ~WORDS,
    "s": SPACES,
    "S": ~SPACES,
    "h": HORIZONTAL,
    "H": ~HORIZONTAL,
    "v": VERTICAL,
    "V": ~VERTICAL,
}
_ANCHORS: Final = {"b": r"\b", "B": r"\B", "A": r"\A", "z": r"\Z", "Z": _AT_END}
_GROUP_STARTS: Final = ("?:", "?=", "?!", "?>", "?<=", "?<!")
_FLAG_LETTERS: Final = "idmsuxU"


@dataclass(frozen=True, slots=True)
class _Flags:
    """The flags that are on at a place of the pattern: the letters of ``(?idmsuxU)``."""

    letters: frozenset[str] = frozenset()

    def __contains__(self, letter: str) -> bool:
        return letter in self.letters

    def changed(self, on: str, off: str) -> _Flags:
        return replace(self, letters=(self.letters | set(on)) - set(off))


class _Translator:
    """Reads a pattern from left to right and writes Python's."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.flags = _Flags()
        self.groups = 0
        self.names: set[str] = set()

    # -- the text -------------------------------------------------------------

    def peek(self, length: int = 1) -> str:
        return self.pattern[self.at : self.at + length]

    def take(self) -> str:
        if self.at >= len(self.pattern):
            self.refuse("ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def take_if(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def refuse(self, what: str) -> NoReturn:
        message = f"pattern {self.pattern!r}, position {self.at}: {what}"
        raise InvalidPatternError(message)

    def refuse_as_unsupported(self, what: str) -> NoReturn:
        message = f"pattern {self.pattern!r}, position {self.at}: {what} is not supported"
        raise UnsupportedPatternError(message)

    # -- structure ------------------------------------------------------------

    def whole(self) -> str:
        text = self.alternatives()
        if self.at < len(self.pattern):
            self.refuse("unmatched closing ')'")
        return text

    def alternatives(self) -> str:
        flags, parts = self.flags, []
        while self.at < len(self.pattern) and self.peek() != ")":
            if self.take_if("|"):
                parts.append("|")
            elif not self.skip_comment() and not self.skip_flags():
                parts.append(self.quantified())
        self.flags = flags
        return "".join(parts)

    def skip_comment(self) -> bool:
        if "x" not in self.flags:
            return False
        if self.peek().isspace():
            self.at += 1
            return True
        if self.peek() == "#":
            end = self.pattern.find("\n", self.at)
            self.at = len(self.pattern) if end < 0 else end + 1
            return True
        return False

    def skip_flags(self) -> bool:
        match = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?\)").match(self.pattern, self.at)
        if match is None:
            return False
        self.set_flags(match[1], match[2] or "")
        self.at = match.end()
        return True

    def set_flags(self, on: str, off: str) -> None:
        for letter in on + off:
            if letter not in _FLAG_LETTERS:
                self.refuse(f"unknown flag {letter!r}")
        self.flags = self.flags.changed(on, off)

    def quantified(self) -> str:
        atom = self.atom()
        quantifier = self.quantifier()
        if quantifier and self.peek() == "{":
            self.refuse_as_unsupported("a quantifier behind a quantifier")
        return atom + quantifier

    def quantifier(self) -> str:
        if self.peek() == "{":
            match = re.compile(r"\{(\d+)(,?)(\d*)\}").match(self.pattern, self.at)
            if match is None or (match[3] and not match[2]):
                self.refuse("illegal repetition")
            if match[3] and int(match[3]) < int(match[1]):
                self.refuse("illegal repetition range")
            quantifier = match[0]
            self.at = match.end()
        elif self.peek() and self.peek() in "*+?":
            quantifier = self.take()
        else:
            return ""
        if self.peek() and self.peek() in "?+":
            quantifier += self.take()
        if self.peek() and self.peek() in "*+?":
            self.refuse(f"dangling meta character {self.peek()!r}")
        return quantifier

    def atom(self) -> str:  # noqa: PLR0911 - a table
        character = self.take()
        match character:
            case "(":
                return self.group()
            case "[":
                return self.character_class().pattern()
            case "\\":
                return self.escape()
            case ".":
                return self.any_character()
            case "^":
                return _AT_LINE_START if "m" in self.flags else r"\A"
            case "$":
                return _AT_LINE_END if "m" in self.flags else _AT_END
        if character in "*+?{":
            self.refuse(f"dangling meta character {character!r}")
        return self.literal(character)

    def any_character(self) -> str:
        if "s" in self.flags:
            return r"[\s\S]"
        return r"[^\n]" if "d" in self.flags else f"[^{_LINE_ENDS}]"

    def literal(self, character: str) -> str:
        if "i" not in self.flags:
            return re.escape(character)
        return self.in_any_case(CharacterSet.of(character)).pattern()

    def in_any_case(self, characters: CharacterSet) -> CharacterSet:
        if "i" not in self.flags:
            return characters
        return characters.with_other_case(unicode="u" in self.flags or "U" in self.flags)

    # -- groups ---------------------------------------------------------------

    def group(self) -> str:
        flags = self.flags
        start = self.group_start()
        body = self.alternatives()
        if not self.take_if(")"):
            self.refuse("unclosed group")
        self.flags = flags
        return f"({start}{body})"

    def group_start(self) -> str:
        for start in _GROUP_STARTS:
            if self.take_if(start):
                return start
        if self.take_if("?<"):
            match = re.compile(r"([a-zA-Z][a-zA-Z0-9]*)>").match(self.pattern, self.at)
            if match is None or match[1] in self.names:
                self.refuse("no name of a group")
            self.at = match.end()
            self.groups += 1
            self.names.add(match[1])
            return f"?P<{match[1]}>"
        if self.peek() == "?":
            match = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?:").match(self.pattern, self.at)
            if match is None:
                self.refuse("unknown inline modifier")
            self.at = match.end()
            self.set_flags(match[1], match[2] or "")
            return "?:"
        self.groups += 1
        return ""

    # -- escapes --------------------------------------------------------------

    def escape(self) -> str:  # noqa: PLR0911 - a table
        letter = self.take()
        if letter in _ANCHORS:
            if self.peek() == "{":
                self.refuse_as_unsupported(f"\\{letter}{{}}")
            return _ANCHORS[letter]
        if letter == "Q":
            return self.quotation()
        if letter == "R":
            return r"(?:\r\n|[\n-\r\x85\u2028\u2029])"
        if letter == "k":
            return self.named_reference()
        if letter in "123456789":
            return self.reference(letter)
        if letter in "GXN":
            self.refuse_as_unsupported(f"\\{letter}")
        characters = self.escaped_set(letter)
        if characters is not None:
            return characters.pattern()
        return self.literal(self.escaped_character(letter))

    def quotation(self) -> str:
        end = self.pattern.find("\\E", self.at)
        end = len(self.pattern) if end < 0 else end
        quoted = self.pattern[self.at : end]
        self.at = min(end + 2, len(self.pattern))
        # What follows is a quantifier of the last character only, in Java and here.
        return "".join(map(self.literal, quoted))

    def named_reference(self) -> str:
        match = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>").match(self.pattern, self.at)
        if match is None or match[1] not in self.names:
            self.refuse("no group of that name")
        self.at = match.end()
        return self.reference_in_any_case(f"(?P={match[1]})")

    def reference(self, digit: str) -> str:
        number = int(digit)
        while self.peek().isdecimal() and number * 10 + int(self.peek()) <= self.groups:
            number = number * 10 + int(self.take())
        if number > self.groups:
            # Java: a group that is not there never matches.
            return "(?!)"
        return self.reference_in_any_case(f"(?:\\{number})")

    def reference_in_any_case(self, reference: str) -> str:
        if "i" not in self.flags:
            return reference
        return f"(?i:{reference})" if "u" in self.flags else f"(?ai:{reference})"

    def escaped_set(self, letter: str) -> CharacterSet | None:
        if letter in _SETS:
            if "U" in self.flags and letter in "dDwWsS":
                self.refuse_as_unsupported("the flag U")
            return _SETS[letter]
        if letter not in "pP":
            return None
        name = self.property_name()
        characters = named_set(name)
        if characters is None:
            self.refuse_as_unsupported(f"\\{letter}{{{name}}}")
        return characters if letter == "p" else ~characters

    def property_name(self) -> str:
        if not self.take_if("{"):
            return self.take()
        end = self.pattern.find("}", self.at)
        if end < 0:
            self.refuse("unclosed character family")
        name = self.pattern[self.at : end]
        self.at = end + 1
        return name

    def escaped_character(self, letter: str) -> str:  # noqa: PLR0911 - a table
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "c":
            return chr(ord(self.take()) ^ 64)
        if letter == "0":
            return self.number(r"[0-3][0-7]{2}|[0-7]{1,2}", 8)
        if letter == "x":
            if self.take_if("{"):
                character = self.number("[0-9a-fA-F]+", 16)
                if not self.take_if("}"):
                    self.refuse("unclosed hexadecimal escape")
                return character
            return self.number("[0-9a-fA-F]{2}", 16)
        if letter == "u":
            return self.number("[0-9a-fA-F]{4}", 16)
        if letter.isascii() and letter.isalpha():
            self.refuse(f"illegal escape \\{letter}")
        return letter

    def number(self, digits: str, base: int) -> str:
        match = re.compile(digits).match(self.pattern, self.at)
        if match is None:
            self.refuse("illegal escape")
        self.at = match.end()
        return chr(int(match[0], base))

    # -- classes --------------------------------------------------------------

    def character_class(self) -> CharacterSet:
        negated = self.take_if("^")
        result: CharacterSet | None = None
        members = CharacterSet(())
        first = True
        while first or self.peek() != "]":
            if self.peek() == "":
                self.refuse("unclosed character class")
            if not first and self.take_if("&&"):
                result = members if result is None else result & members
                members = CharacterSet(())
                if self.peek() == "]":
                    self.refuse_as_unsupported("an empty intersection")
                continue
            members |= self.member()
            first = False
        self.at += 1
        characters = members if result is None else result & members
        return ~characters if negated else characters

    def member(self) -> CharacterSet:
        character = self.take()
        if character == "[":
            return self.character_class()
        if character == "\\":
            letter = self.take()
            if letter == "Q":
                self.refuse_as_unsupported("a quotation in a class")
            characters = self.escaped_set(letter)
            if characters is not None:
                return characters
            character = self.escaped_character(letter)
        elif "x" in self.flags and character.isspace():
            return CharacterSet(())
        if self.peek() == "-" and self.peek(2)[1:] not in {"]", "["}:
            self.at += 1
            last = self.take()
            if last == "\\":
                last = self.escaped_character(self.take())
            if ord(last) < ord(character):
                self.refuse("illegal character range")
            return self.in_any_case(CharacterSet.from_ranges([(ord(character), ord(last))]))
        return self.in_any_case(CharacterSet.of(character))


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The Python pattern that does what Java's does, its groups numbered and named as Java's.

    Raises:
        InvalidPatternError: Java would refuse it as well.
        UnsupportedPatternError: Python cannot do what it asks for.
    """
    text = _Translator(pattern).whole()
    try:
        return re.compile(text)
    except re.error as error:
        message = f"pattern {pattern!r} is not supported: {error.msg}"
        raise UnsupportedPatternError(message) from error


def split_text(text: str, pattern: re.Pattern[str], limit: int = 0) -> list[str]:
    """The parts of a text between matches, as ``String.split``.

    Args:
        text: what to split.
        pattern: what stands between the parts.
        limit: at most so many parts; 0: all, less empty ones at the end.
    """
    parts: list[str] = []
    start = 0
    for match in pattern.finditer(text):
        if limit and len(parts) == limit - 1:
            break
        if match.end() == 0:
            # An empty match at the start has nothing before it.
            continue
        parts.append(text[start : match.start()])
        start = match.end()
    if not parts:
        return [text]
    parts.append(text[start:])
    while not limit and parts and not parts[-1]:
        parts.pop()
    return parts
