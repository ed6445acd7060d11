"""Scripts into statements, without parsing them: what the shell needs before it runs one.

A script may create a table in one statement and use it in the next, so statements are parsed one
by one; and while somebody types, what is there may be half of one.  Only tokens count: a semicolon
in a string or in a comment ends nothing, nor does one between BEGIN and END of a statement set.

Read next: ``cli/shell/shell.py``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from millstream.errors import SqlParserError
from millstream.sql.parser.lexer import Tokens, tokenize

__all__ = ["StatementText", "is_complete", "split_statements"]

_SET: Final = ("STATEMENT", "SET")


class StatementText(NamedTuple):
    """A statement of a script."""

    #: The script as far as the statement's end, all before it blank, so that places in it are
    #: places in the script; without the semicolon.
    text: str
    #: The line in which it begins, from 1.
    line: int

    @property
    def statement(self) -> str:
        """The statement alone."""
        return self.text.strip()


def split_statements(script: str) -> tuple[StatementText, ...]:
    """The statements of a script, empty ones left out.

    Args:
        script: Statements with semicolons between them; the last may have none.

    Raises:
        SqlParserError: A string, a name or a comment has no end.
    """
    tokens = tokenize(script)
    found = []
    first = 0
    for end in _ends(tokens):
        if end > first:
            start = tokens.starts[first]
            before = "".join(each if each in "\n\t" else " " for each in script[:start])
            text = before + script[start : tokens.ends[end - 1]]
            found.append(StatementText(text, tokens.lines[first]))
        first = end + 1
    return tuple(found)


def is_complete(text: str) -> bool:
    """Whether all statements of a text have their semicolons.

    Args:
        text: What has been typed so far.
    """
    try:
        tokens = tokenize(text)
    except SqlParserError as error:
        # A character that begins nothing will not be healed by typing on.
        return "does not end" not in str(error).split("\n", 1)[0]
    last = len(tokens) - 1
    return last > 0 and tokens.words[last - 1] == ";" and last - 1 in _ends(tokens)


def _ends(tokens: Tokens) -> list[int]:
    """Indexes of the semicolons that end statements, and of the end of the text."""
    ends = []
    in_set = False
    words = tokens.words
    for index, word in enumerate(words):
        if word == "STATEMENT" and tuple(words[index : index + 2]) == _SET:
            in_set = in_set or words[index - 1 : index] == ["BEGIN"] or _begins(words, index)
        elif word == "END" and words[index - 1 : index] == [";"]:
            in_set = False
        elif word == ";" and not in_set:
            ends.append(index)
    ends.append(len(tokens) - 1)
    return ends


def _begins(words: list[str], index: int) -> bool:
    return index + 2 < len(words) and words[index + 2] == "BEGIN"
