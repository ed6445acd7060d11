r"""What a string means: doubled quotes, ``U&'\00e4'``, ``E'\n'``, ``X'ff'``.

Read next: ``token_stream.py``.
"""

from __future__ import annotations

import re
from typing import Final

from millstream.sql.parser.lexer import ESCAPED, UNICODE

__all__ = ["quote", "string_value"]

_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))", re.DOTALL
)
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LAST_CHARACTER: Final = 0x10FFFF


def quote(value: str) -> str:
    """The string as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def string_value(kind: int, source: str, escape: str = "\\") -> str | ValueError:
    """The characters that a token of a string stands for.

    Args:
        kind: The token's kind.
        source: Its text, with quotes and prefix.
        escape: The character that begins an escape, in ``U&''``.

    Returns:
        The characters, or what is wrong with the text.
    """
    body = source[source.index("'") + 1 : -1].replace("''", "'")
    try:
        if kind == UNICODE:
            return _unicode(body, escape)
        return _ESCAPE.sub(_c_style, body) if kind == ESCAPED else body
    except ValueError as error:
        return error


def _unicode(body: str, escape: str) -> str:
    if len(escape) != 1 or escape in "'+\" " or escape in "0123456789abcdefABCDEF":
        message = "UESCAPE takes one character, no digit, letter from a to f, quote, plus or space"
        raise ValueError(message)
    sign = re.escape(escape)
    pattern = f"{sign}(?:([0-9a-fA-F]{{4}})|\\+([0-9a-fA-F]{{6}})|({sign})|(.|$))"

    def character(match: re.Match[str]) -> str:
        if match[3]:
            return escape
        if not (match[1] or match[2]):
            message = f"{escape} begins {escape}XXXX or {escape}+XXXXXX with hexadecimal digits"
            raise ValueError(message)
        return _character(match[1] or match[2], 16)

    text = re.sub(pattern, character, body, flags=re.DOTALL)
    try:
        # Two halves that make one character beyond the first 65,536.
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        message = "half of a pair of surrogates stands alone"
        raise ValueError(message) from None


def _c_style(match: re.Match[str]) -> str:
    short, four, eight, octal, letter = match.groups()
    digits = short or four or eight
    if digits:
        return _character(digits, 16)
    return _character(octal, 8) if octal else _LETTERS.get(letter, letter)


def _character(digits: str, base: int) -> str:
    code = int(digits, base)
    if code > _LAST_CHARACTER:
        message = f"there is no character {digits}"
        raise ValueError(message)
    return chr(code)
