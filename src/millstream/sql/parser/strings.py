r"""What a string means: doubled quotes, ``U&'\00e4'``, ``E'\n'``, ``_UTF8'a'``.

Read next: ``token_stream.py``.
"""

from __future__ import annotations

import re
from typing import Final

from millstream.sql.parser.lexer import ESCAPED, UNICODE

__all__ = ["encoded_value", "quote", "string_value"]

_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))", re.DOTALL
)
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LAST_CHARACTER: Final = 0x10FFFF
_LAST_BYTE: Final = 0xFF
#: What may stand before a string after an underline.
_CHARACTER_SETS: Final = (
    *("BIG5", "GB2312", "GBK", "ISO-8859-1", "LATIN1"),
    *("UTF-16BE", "UTF-16LE", "UTF-8", "UTF16", "UTF8"),
)
_ONE_BYTE: Final = frozenset({"ISO-8859-1", "LATIN1"})
_NATIONAL: Final = "LATIN1"


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


def encoded_value(source: str) -> str:
    """Return the characters of ``_UTF8'...'``, or of ``N'...'``, which is in ISO-8859-1.

    Raises:
        ValueError: the character set is unknown, or has not all of the characters.
    """
    prefix, _, body = source.partition("'")
    name = prefix[1:] or _NATIONAL
    if name.upper() not in _CHARACTER_SETS:
        message = f"unknown character set '{name}'; there are {', '.join(_CHARACTER_SETS)}"
        raise ValueError(message)
    value = body[:-1].replace("''", "'")
    if name.upper() in _ONE_BYTE and any(ord(each) > _LAST_BYTE for each in value):
        message = f"the character set {name} has not all of these characters"
        raise ValueError(message)
    return value


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
