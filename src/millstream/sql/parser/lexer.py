"""Text to tokens, by one regular expression.

It knows strings, names, numbers, operators, hints and comments, not which words are reserved
(``keywords.py``) or what follows what (``parser.py``).  Read next: ``token_stream.py``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import SqlParserError
from millstream.sql.parser.excerpt import excerpt, line_and_column

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Token", "Tokens", "parser_error", "tokenize"]

#: In the order in which they are tried.  A start without an end is a token of its own, an error.
_TOKEN: Final = re.compile(
    r"""
      (?P<space>   \s+ | --[^\n]* | //[^\n]* | /\*(?!\+)(?:[^*]|\*(?!/))*\*/ )
    | (?P<word>    [^\W\d][\w$]* | \$[\w$]+ )
    | (?P<number>  (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)? )
    | (?P<string>  '(?:[^']|'')*' )
    | (?P<quoted>  `(?:[^`]|``)*` )
    | (?P<operator> /\*\+ | \*/ | => | <> | != | <= | >= | \|\| | \{- | -\}
                    | [-+*%=<>(),.;\[\]{}?|^$:] | /(?!\*) )
    """,
    re.VERBOSE,
)
_PREFIXED: Final = re.compile(r"([uU]&|[xX]|[eE])'(?:[^']|'')*'")
_ESCAPED: Final = re.compile(r"[eE]'(?:[^'\\]|''|\\.)*'", re.DOTALL)
#: N'...' and _UTF8'...': what names a character set may have a hyphen in it.
_ENCODED: Final = re.compile(r"(?:[nN]|_[a-zA-Z][\w.:-]*)'(?:[^']|'')*'", re.ASCII)
_UNFINISHED: Final = {
    "'": "a string that does not end: a ' is missing",
    "`": "a name that does not end: a ` is missing",
    "/": "a comment that does not end: */ is missing",
    '"': "a double quote: strings stand in single quotes ('...'), names in backticks (`...`)",
}

#: Kinds of tokens.
WORD, QUOTED, NUMBER, STRING, UNICODE, BINARY, ESCAPED, ENCODED, OPERATOR, END = range(10)
_KINDS: Final = {
    "word": WORD,
    "quoted": QUOTED,
    "number": NUMBER,
    "string": STRING,
    "operator": OPERATOR,
}
_PREFIX_KINDS: Final = {"u": UNICODE, "x": BINARY, "e": ESCAPED}


class Token(NamedTuple):
    """A token and where it stands."""

    kind: int
    #: Words in capitals, operators as they are; empty for all others.
    word: str
    start: int
    end: int


class Tokens:
    """All tokens of a text: as lists, because a parser looks at one field of many tokens.

    The last token is the end of the text.
    """

    __slots__ = ("columns", "ends", "kinds", "lines", "starts", "text", "words")

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds: list[int] = []
        self.words: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.lines: list[int] = []
        self.columns: list[int] = []

    def __len__(self) -> int:
        return len(self.kinds)

    def __iter__(self) -> Iterator[Token]:
        return map(Token, self.kinds, self.words, self.starts, self.ends)

    def source(self, index: int) -> str:
        """The text of one token, as written."""
        return self.text[self.starts[index] : self.ends[index]]


def tokenize(text: str) -> Tokens:
    """Split a text into tokens.

    Raises:
        SqlParserError: A character begins no token, or a string, a name or a comment has no end.
    """
    tokens = Tokens(text)
    position, line, line_start = 0, 1, 0
    match_at = _TOKEN.match
    length = len(text)
    while position < length:
        match = match_at(text, position)
        if match is None:
            raise _no_token(text, position)
        group, end = match.lastgroup, match.end()
        kind = OPERATOR if group is None else _KINDS.get(group, OPERATOR)
        if group == "word" and end < length and text[end] in "'&-":
            kind, end = _prefixed(text, position, end)
        if group != "space":
            word = match.group() if kind == OPERATOR else ""
            tokens.words.append(match.group().upper() if kind == WORD else word)
            tokens.kinds.append(kind)
            tokens.starts.append(position)
            tokens.ends.append(end)
            tokens.lines.append(line)
            tokens.columns.append(position - line_start + 1)
        if group not in {"word", "operator", "number"} or kind > STRING:
            breaks = text.count("\n", position, end)
            if breaks:
                line += breaks
                line_start = text.rfind("\n", position, end) + 1
        position = end
    tokens.kinds.append(END)
    tokens.words.append("")
    tokens.starts.append(length)
    tokens.ends.append(length)
    tokens.lines.append(line)
    tokens.columns.append(length - line_start + 1)
    return tokens


def _prefixed(text: str, start: int, end: int) -> tuple[int, int]:
    """Kind and end of the token at ``start``: a string with a letter before it, or a word."""
    encoded = _ENCODED.match(text, start)
    if encoded is not None:
        return ENCODED, encoded.end()
    letter = text[start].lower()
    pattern = _ESCAPED if letter == "e" else _PREFIXED
    match = pattern.match(text, start)
    if match is None:
        if end - start == 1 and text[end] == "'" and letter in _PREFIX_KINDS:
            raise _no_token(text, end)
        return WORD, end
    return _PREFIX_KINDS[letter], match.end()


def _no_token(text: str, position: int) -> SqlParserError:
    character = text[position]
    what = _UNFINISHED.get(character, f"a character that begins nothing: {character!r}")
    return parser_error(text, position, position + 1, f"found {what}")


def parser_error(text: str, start: int, end: int, what: str) -> SqlParserError:
    """Make the error that points at a part of a text.

    Args:
        text: All of it.
        start: Index of the first character that is wrong.
        end: Index behind the last.
        what: What is wrong, in words.
    """
    line, column = line_and_column(text, start)
    where = f"SQL, line {line}, column {column}"
    return SqlParserError(f"{where}: {what}\n{excerpt(text, start, end)}", line, column)
