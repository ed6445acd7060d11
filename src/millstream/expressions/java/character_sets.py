"""Sets of characters as ranges of code points: what a class of a Java pattern stands for.

What it is: union, intersection, complement of sets, the sets that Java has names for, and a set's
text in Python's syntax.  Java's classes may hold others and be intersected, which Python's cannot.

Read next: ``expressions/java/regular_expressions.py``.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["DIGITS", "HORIZONTAL", "SPACES", "VERTICAL", "WORDS", "CharacterSet", "named_set"]

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
