"""The tokens with a place among them: what every part of the parser is written in.

``accept`` and ``expect`` are what the grammar says, so they are what an error can say was expected:
`RecordingTokenStream` keeps them, and a text is parsed by it only after it has failed.  ``at`` and
``peek`` only look.  Read next: ``type_parser.py``, ``expression_parser.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from millstream.configuration.redaction import masked_statement
from millstream.errors import UnsupportedSqlError
from millstream.sql.parser.excerpt import excerpt, line_and_column
from millstream.sql.parser.keywords import RESERVED
from millstream.sql.parser.lexer import (
    BINARY,
    ENCODED,
    END,
    ESCAPED,
    NUMBER,
    QUOTED,
    STRING,
    UNICODE,
    WORD,
    Tokens,
    parser_error,
    tokenize,
)
from millstream.sql.parser.strings import string_value
from millstream.sql.parser.syntax import Identifier, Name, Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import SqlParserError

_T = TypeVar("_T")

#: What is expected where no keyword or sign is: it is said as it stands here.
A_NAME: Final = "a name"
A_STRING: Final = "a string"
A_NUMBER: Final = "a whole number"
AN_EXPRESSION: Final = "an expression"
A_TYPE: Final = "a type"
A_QUERY: Final = "a query"
THE_END: Final = "the end of the statement"
CATEGORIES: Final = frozenset({A_NAME, A_STRING, A_NUMBER, AN_EXPRESSION, A_TYPE, A_QUERY, THE_END})
#: Longer names are refused, as in Flink.
MAX_NAME_LENGTH: Final = 256
#: So much of a token is repeated in an error, in characters.
_SHOWN: Final = 40
_STRINGS: Final = frozenset({STRING, UNICODE, ESCAPED})


class TokenStream:
    """Tokens of a text, and how many have been taken."""

    __slots__ = ("index", "kinds", "tokens", "words")

    def __init__(self, text: str) -> None:
        self.tokens: Tokens = tokenize(text)
        self.words = self.tokens.words
        self.kinds = self.tokens.kinds
        self.index = 0

    # --- looking

    def at(self, *words: str) -> bool:
        """Whether these words or signs come next."""
        index = self.index
        return self.words[index : index + len(words)] == list(words)

    def peek(self, distance: int = 1) -> str:
        """The word or sign so far ahead; empty behind the end."""
        index = self.index + distance
        return self.words[index] if index < len(self.words) else ""

    def peek_kind(self, distance: int = 1) -> int:
        """The kind of the token so far ahead."""
        index = self.index + distance
        return self.kinds[index] if index < len(self.kinds) else END

    def at_end(self) -> bool:
        """Whether all tokens have been taken."""
        return self.kinds[self.index] == END

    def at_name(self, distance: int = 0) -> bool:
        """Whether a name stands so far ahead: in backticks, or a word that is not reserved."""
        kind = self.peek_kind(distance)
        return kind == QUOTED or (kind == WORD and self.peek(distance) not in RESERVED)

    # --- taking

    def accept(self, *words: str) -> bool:
        """Take these words or signs if they come next, all of them or none."""
        if len(words) == 1:
            if self.words[self.index] != words[0]:
                return False
        elif not self.at(*words):
            return False
        self.index += len(words)
        return True

    def accept_any(self, *words: str) -> str:
        """Take one of these words or signs if it comes next; empty if none does."""
        word = self.words[self.index]
        if word and word in words:
            self.index += 1
            return word
        return ""

    def expect(self, *words: str) -> None:
        """Take these words or signs; anything else is an error."""
        for word in words:
            if not self.accept(word):
                self.fail()

    def expect_any(self, *words: str) -> str:
        """Take one of these words or signs; anything else is an error."""
        return self.accept_any(*words) or self.fail()

    def tried(self, what: str) -> None:
        """Tell what could have come next, for the error; nothing unless it is recorded."""

    def suggest(self, words: frozenset[str]) -> None:
        """Tell which words could have come next but are too many to list."""

    # --- names, strings, numbers

    def name(self) -> Name:
        """Take a name: in backticks, or a word that is not reserved."""
        if not self.at_name():
            self.tried(A_NAME)
            self.fail()
        return self.any_name()

    def any_name(self) -> Name:
        """Take a name, reserved words too."""
        index = self.index
        kind = self.kinds[index]
        if kind == WORD:
            value = self.tokens.source(index)
        elif kind == QUOTED:
            value = self.tokens.source(index)[1:-1].replace("``", "`")
        else:
            self.tried(A_NAME)
            self.fail()
        if not 0 < len(value) <= MAX_NAME_LENGTH:
            self.refuse(f"a name has 1 to {MAX_NAME_LENGTH} characters, this one {len(value)}")
        self.index += 1
        return Name(value, kind == QUOTED, position=self.span(index))

    def identifier(self) -> Identifier:
        """Take names with dots between them."""
        start = self.index
        parts = [self.name()]
        while self.accept("."):
            parts.append(self.name())
        return Identifier(tuple(parts), position=self.span(start))

    def at_string(self) -> bool:
        """Whether a string comes next."""
        return self.kinds[self.index] in _STRINGS

    def string(self) -> str:
        """Take a string in single quotes, also one that goes on in another line."""
        if not self.at_string():
            self.tried(A_STRING)
            self.fail()
        parts = [self._one_string()]
        while self.kinds[self.index] == STRING:
            if self.tokens.lines[self.index] == self.tokens.lines[self.index - 1]:
                self.refuse("two strings in one line: something is missing between them")
            parts.append(self._one_string())
        return "".join(parts)

    def _one_string(self) -> str:
        index, escape = self.index, "\\"
        self.index += 1
        if self.kinds[index] == UNICODE and self.accept("UESCAPE"):
            escape = self._one_string() if self.at_string() else self.fail_for(A_STRING)
        value = string_value(self.kinds[index], self.tokens.source(index), escape)
        return self.refuse_token(index, str(value)) if isinstance(value, ValueError) else value

    def integer(self) -> int:
        """Take a number without point and sign."""
        text = self.tokens.source(self.index)
        if self.kinds[self.index] != NUMBER or not text.isascii() or not text.isdigit():
            self.fail_for(A_NUMBER)
        self.index += 1
        return int(text)

    # --- lists

    def listed(self, item: Callable[[], _T]) -> tuple[_T, ...]:
        """Take items with commas between them, one at least."""
        items = [item()]
        while self.accept(","):
            items.append(item())
        return tuple(items)

    def parenthesized(self, item: Callable[[], _T]) -> tuple[_T, ...]:
        """Take items with commas between them, in parentheses, one at least."""
        self.expect("(")
        items = self.listed(item)
        self.expect(")")
        return items

    # --- places and errors

    def span(self, start: int) -> Position:
        """Where the tokens from ``start`` to the last one taken stand."""
        tokens = self.tokens
        return Position(
            tokens.lines[start],
            tokens.columns[start],
            tokens.starts[start],
            tokens.ends[self.index - 1],
        )

    def fail_for(self, what: str) -> NoReturn:
        """Raise: the next token is not what is expected here."""
        self.tried(what)
        self.fail()

    def fail(self) -> NoReturn:
        """Raise: the next token cannot stand here."""
        raise self.error_at(self.index, f"found {self.described(self.index)}")

    def refuse(self, what: str) -> NoReturn:
        """Raise: the next token is wrong for this reason."""
        self.refuse_token(self.index, what)

    def refuse_token(self, index: int, what: str) -> NoReturn:
        """Raise: this token is wrong for this reason."""
        raise self.error_at(index, what) from None

    def refuse_span(self, position: Position, what: str) -> NoReturn:
        """Raise: this part of the text is wrong for this reason."""
        raise parser_error(self.tokens.text, position.start, position.end, what) from None

    def unsupported(self, what: str, instead: str = "") -> NoReturn:
        """Raise: Flink has what begins at the next token, and Millstream has not.

        Args:
            what: Its name, as in "TABLESAMPLE".
            instead: What to write instead, as a clause.
        """
        tokens, index = self.tokens, self.index
        line, column = line_and_column(tokens.text, tokens.starts[index])
        hint = f"; {instead}" if instead else ""
        lines = excerpt(tokens.text, tokens.starts[index], tokens.ends[index])
        message = f"SQL, line {line}, column {column}: {what} is not supported{hint}\n{lines}"
        raise UnsupportedSqlError(message)

    def error_at(self, index: int, what: str) -> SqlParserError:
        """Make the error for a token."""
        tokens = self.tokens
        return parser_error(tokens.text, tokens.starts[index], tokens.ends[index], what)

    def described(self, index: int) -> str:
        """A token in words."""
        kind = self.kinds[index]
        if kind == END:
            return "the end of the text"
        masked = masked_statement(self.tokens.text)
        source = _shortened(masked[self.tokens.starts[index] : self.tokens.ends[index]])
        if kind in _STRINGS or kind in {BINARY, ENCODED}:
            return f"the string {source}"
        if kind == NUMBER:
            return f"the number {source}"
        return source if kind in {WORD, QUOTED} else f"'{source}'"


def _shortened(source: str) -> str:
    """The beginning of a token, as long as it fits into a sentence."""
    first = source.split("\n", 1)[0]
    shown = first[:_SHOWN]
    return shown if shown == source else f"{shown}..."
