"""Patterns of LIKE and SIMILAR TO.

What it is: both become regular expressions of Python, kept once compiled.  LIKE with a constant
pattern has a kernel: most patterns are a prefix, a suffix or a part.

What it is not: REGEXP and its like, which take regular expressions of Java.

Read next: ``expressions/functions/comparison.py``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.java.regular_expressions import compile_pattern

if TYPE_CHECKING:
    from millstream.expressions.functions.definition import CallInfo

__all__ = ["compiled_like", "compiled_similar", "like_column", "matches"]

_ANY_TEXT: Final = "(?s:.*)"
#: As in Java, a dot is any character but the end of a line.
_ANY_CHARACTER: Final = "[^\n\r\u0085\u2028\u2029]"
_SIMILAR_SPECIAL: Final = "_%|*+?{}()[]^-"
_NAMED: Final = {
    "ALPHA": r"\p{Alpha}",
    "UPPER": r"\p{Upper}",
    "LOWER": r"\p{Lower}",
    "DIGIT": r"\d",
    "SPACE": " ",
    "WHITESPACE": r"\s",
    "ALNUM": r"\p{Alnum}",
}
#: Names of sets of characters, in capitals or small letters.
_CLASSES: Final = {
    f"[:{word}:]": text for name, text in _NAMED.items() for word in (name, name.lower())
}


def matches(pattern: re.Pattern[str], string: str) -> bool:
    """Whether the whole string matches."""
    return pattern.fullmatch(string) is not None


def _escape_character(escape: str | None) -> str | None:
    if escape is not None and len(escape) != 1:
        message = f"the escape character must be one character, not {escape!r}"
        raise ValueError(message)
    return escape


@lru_cache(maxsize=1000)
def compiled_like(pattern: str, escape: str | None) -> re.Pattern[str]:
    """The regular expression of a pattern of LIKE.

    Raises:
        ValueError: the escape character stands before something else than %, _ or itself.
    """
    # As in Flink, ESCAPE '' says that there is no such character.
    escape = _escape_character(escape or None)
    parts = []
    for literal, wildcard in _tokens(pattern, escape):
        if wildcard == "%":
            parts.append(_ANY_TEXT)
        elif wildcard == "_":
            parts.append(_ANY_CHARACTER)
        else:
            parts.append(re.escape(literal))
    return re.compile("".join(parts))


def _tokens(pattern: str, escape: str | None) -> list[tuple[str, str]]:
    """Pairs of a literal character and a wildcard, one of them empty."""
    tokens = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            following = pattern[position + 1 : position + 2]
            if following not in {"%", "_", escape}:
                message = f"the escape character of {pattern!r} stands before {following!r}"
                raise ValueError(message)
            tokens.append((following, ""))
            position += 1
        elif character in "%_":
            tokens.append(("", character))
        else:
            tokens.append((character, ""))
        position += 1
    return tokens


@lru_cache(maxsize=1000)
def compiled_similar(pattern: str, escape: str | None) -> re.Pattern[str]:
    """The regular expression of a pattern of SIMILAR TO: Java's, but for % and _.

    Raises:
        ValueError: it is no SQL regular expression.
    """
    escape = _escape_character(escape)
    parts: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            following = pattern[position + 1 : position + 2]
            if not following or (following not in _SIMILAR_SPECIAL and following != escape):
                message = f"the escape character of {pattern!r} stands before {following!r}"
                raise ValueError(message)
            parts.append(re.escape(following))
            position += 2
            continue
        if character == "[":
            text, position = _character_class(pattern, position)
            parts.append(text)
            continue
        # All else means what it means to Java, a dot any character, as in Flink.
        parts.append(_SIMILAR.get(character, character))
        position += 1
    return compile_pattern("".join(parts))


_SIMILAR: Final = {"%": _ANY_TEXT, "_": ".", "\\": "\\\\", "^": "\\^", "$": "\\$"}


def _character_class(pattern: str, start: int) -> tuple[str, int]:
    """A set in brackets, with the names in it, and where it ends."""
    inner = ""
    position = start + 1
    while position < len(pattern) and pattern[position] != "]":
        name = next((name for name in _CLASSES if pattern.startswith(name, position)), None)
        inner += pattern[position] if name is None else _CLASSES[name]
        position += 1 if name is None else len(name)
    if position == len(pattern):
        message = f"{pattern!r} has a [ without a ]"
        raise ValueError(message)
    return f"[{inner}]", position + 1


def like_column(info: CallInfo, string: Any, pattern: Any, *escape: Any) -> Any:
    """LIKE on a column, if pattern and escape character are constants."""
    if not isinstance(string, pa.Array) or not isinstance(pattern, pa.Scalar):
        return NotImplemented
    if not pattern.is_valid or any(
        not isinstance(item, pa.Scalar) or not item.is_valid for item in escape
    ):
        return NotImplemented
    plan = info.state.get("plan")
    if plan is None:
        character = escape[0].as_py() if escape else None
        plan = _plan(pattern.as_py(), _escape_character(character))
        info.state["plan"] = plan
    if plan[0] == "regex":
        return NotImplemented
    return _PLANS[plan[0]](string, plan[1])


def _plan(pattern: str, escape: str | None) -> tuple[str, str]:
    """Which kernel does it, and the text that it looks for."""
    tokens = _tokens(pattern, escape)
    wildcards = [i for i, (_, wildcard) in enumerate(tokens) if wildcard]
    if any(tokens[i][1] == "_" for i in wildcards):
        return "regex", ""
    text = "".join(literal for literal, _ in tokens)
    last = len(tokens) - 1
    by_place = {(): "equal", (last,): "prefix", (0,): "suffix", (0, last): "part"}
    return by_place.get(tuple(wildcards), "regex"), text


def _starts(string: pa.Array, text: str) -> pa.Array:
    return pc.starts_with(string, text)


def _ends(string: pa.Array, text: str) -> pa.Array:
    return pc.ends_with(string, text)


def _has(string: pa.Array, text: str) -> pa.Array:
    return pc.match_substring(string, text)


_PLANS: Final = {"equal": pc.equal, "prefix": _starts, "suffix": _ends, "part": _has}
