"""Where in a text: the line with a caret under the place, for errors of parser and binder.

Nothing here knows SQL but the names of options that hold secrets.  Read next: ``token_stream.py``.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from millstream.configuration.redaction import masked_statement

__all__ = ["excerpt", "line_and_column"]

_INDENT: Final = "    "
#: How much of a line is shown, in characters: wide enough for most, narrow enough for a terminal.
_WIDTH: Final = 100


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1, of the character at this index."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def excerpt(text: str, start: int, end: int) -> str:
    """The line in which ``start`` is, indented, and carets below it as far as ``end``.

    Args:
        text: All of it.
        start: Index of the first character that is meant.
        end: Index behind the last; what lies in later lines is not marked.

    Returns:
        Two lines.  Of a long line only the part around the place is shown, and no secret.
    """
    text = masked_statement(text)
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    line = text[begin : len(text) if stop < 0 else stop].rstrip()
    at = start - begin
    width = max(1, min(end - begin, len(line)) - at)
    cut = max(0, at - _WIDTH * 2 // 3)
    shown = line[cut : cut + _WIDTH]
    before, after = "..." if cut else "", "..." if cut + _WIDTH < len(line) else ""
    padding = "".join(_blank(character) for character in line[cut:at])
    padding += " " * (at - len(line))
    width = max(1, min(width, cut + _WIDTH - at))
    marks = "".join(_blank(each).replace(" ", "^") for each in line[at : at + width]) or "^"
    return f"{_INDENT}{before}{shown}{after}\n{_INDENT}{' ' * len(before)}{padding}{marks}"


def _blank(character: str) -> str:
    """As much room as the character takes in a terminal."""
    if character == "\t":
        return "\t"
    if unicodedata.combining(character):
        return ""
    return "  " if unicodedata.east_asian_width(character) in "WF" else " "
