"""Text to nodes: what others call.

A text that fails is parsed a second time by a parser that remembers what could have come, so that
the first time costs nothing for errors.  Read next: ``unparser.py``.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from millstream.errors import SqlParserError
from millstream.sql.parser.keywords import RESERVED
from millstream.sql.parser.lexer import WORD, parser_error
from millstream.sql.parser.statement_parser import StatementParser
from millstream.sql.parser.token_stream import (
    A_NAME,
    A_QUERY,
    A_STRING,
    AN_EXPRESSION,
    CATEGORIES,
    THE_END,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.parser.syntax import Expression, Identifier, Query, Statement
    from millstream.types.logical_types import LogicalType

__all__ = [
    "parse_expression",
    "parse_identifier",
    "parse_query",
    "parse_statement",
    "parse_statements",
    "parse_type",
]

_T = TypeVar("_T")
#: More are not listed in an error.
_MOST_EXPECTED: Final = 9
#: So few words that signs are listed beside them.
_FEW_EXPECTED: Final = 4
_SIGNS: Final = "(),:=<>[]"
#: Shorter reserved words are like too many others to be misspelt ones.
_SHORT: Final = 5
#: How alike a word and a keyword are for "did you mean".
_ALIKE: Final = 0.7
#: Reserved words that nobody means as a name.
_CLAUSES: Final = frozenset(
    """
    SELECT FROM WHERE GROUP HAVING ORDER LIMIT OFFSET FETCH UNION INTERSECT EXCEPT JOIN ON USING AND
    OR NOT THEN ELSE WHEN END WITH WINDOW AS INTO BY SET IS IN LIKE BETWEEN QUALIFY
    PARTITION
    """.split()  # noqa: SIM905 - in the order of the grammar
)


def parse_statements(text: str) -> tuple[Statement, ...]:
    """Parse a script: statements with semicolons between them.

    Args:
        text: The script; empty statements and comments are skipped.

    Returns:
        The statements, in order.

    Raises:
        SqlParserError: The text is not in the dialect.
        UnsupportedSqlError: It has a statement or clause of Flink's that Millstream has not.
    """
    return _parse(text, _script)


def parse_statement(text: str) -> Statement:
    """Parse one statement, with or without a semicolon behind it.

    Args:
        text: The statement.

    Raises:
        SqlParserError: The text is not in the dialect, or is not one statement.
        UnsupportedSqlError: It is a statement of Flink's that Millstream has not, or has a clause
            of that kind.
    """
    return _parse(text, _one_statement)


def parse_query(text: str) -> Query:
    """Parse a query.

    Args:
        text: The query, without a semicolon.

    Raises:
        SqlParserError: The text is no query.
        UnsupportedSqlError: It has a clause of Flink's that Millstream has not.
    """
    return _parse(text, lambda parser: parser.query())


def parse_expression(text: str) -> Expression:
    """Parse an expression, as of a computed column.

    Args:
        text: The expression.

    Raises:
        SqlParserError: The text is no expression.
        UnsupportedSqlError: It has a form of Flink's that Millstream has not.
    """
    return _parse(text, lambda parser: parser.expression())


def parse_type(text: str) -> LogicalType:
    """Parse a type: ``ROW<a INT NOT NULL, b STRING>``.

    Args:
        text: The type.

    Raises:
        SqlParserError: The text is no type.
        UnsupportedSqlError: It is a type of Flink's that Millstream has not.
    """

    def take(parser: StatementParser) -> LogicalType:
        return parser.interval_type() if parser.accept("INTERVAL") else parser.type()

    return _parse(text, take)


def parse_identifier(text: str) -> Identifier:
    """Parse a path as the Table API has it: reserved words are names there.

    Args:
        text: ``table``, ``database.table`` or ``catalog.database.table``; parts may stand in
            backticks.

    Raises:
        SqlParserError: The text is no such path.
    """
    return _parse(text, _path)


def _path(parser: StatementParser) -> Identifier:
    from millstream.sql.parser.syntax import Identifier

    start = parser.index
    parts = [parser.any_name()]
    while parser.accept("."):
        parts.append(parser.any_name())
    return Identifier(tuple(parts), position=parser.span(start))


def _script(parser: StatementParser) -> tuple[Statement, ...]:
    statements: list[Statement] = []
    while True:
        while parser.accept(";"):
            pass
        if parser.at_end():
            return tuple(statements)
        statements.append(parser.statement())
        if not parser.at_end():
            parser.expect(";")


def _one_statement(parser: StatementParser) -> Statement:
    statement = parser.statement()
    while parser.accept(";"):
        pass
    return statement


def _parse(text: str, take: Callable[[StatementParser], _T]) -> _T:
    try:
        return _taken(StatementParser(text), take)
    except SqlParserError as error:
        plain = error
    # Fails where the first one did, and knows what it expected there.
    _taken(_RecordingParser(text), take)
    raise plain


def _taken(parser: StatementParser, take: Callable[[StatementParser], _T]) -> _T:
    try:
        result = take(parser)
    except RecursionError:
        # Deeper than Python's stack: nobody writes that, and a generator of texts can flatten it.
        parser.refuse("too many parentheses or queries in one another")
    if not parser.at_end():
        parser.fail_for(THE_END)
    return result


class _RecordingParser(StatementParser):
    """A parser that remembers what it tried where, to say what was expected."""

    __slots__ = ("expected", "likely")

    def __init__(self, text: str) -> None:
        super().__init__(text)
        #: Index of a token -> what was tried there, in order.
        self.expected: dict[int, dict[str, None]] = {}
        #: The same for words that are only suggested.
        self.likely: dict[int, set[str]] = {}

    def accept(self, *words: str) -> bool:
        for distance, word in enumerate(words):
            if self.peek(distance) != word:
                phrase = word if distance else " ".join(words)
                self.expected.setdefault(self.index + distance, {})[phrase] = None
                break
        return super().accept(*words)

    def accept_any(self, *words: str) -> str:
        taken = super().accept_any(*words)
        if not taken:
            self.expected.setdefault(self.index, {}).update(dict.fromkeys(words))
        return taken

    def tried(self, what: str) -> None:
        self.expected.setdefault(self.index, {})[what] = None

    def suggest(self, words: frozenset[str]) -> None:
        self.likely.setdefault(self.index, set()).update(words)

    def fail(self) -> NoReturn:
        # A phrase of which the first words came is why the text fails, though the parser went on.
        index = max([self.index, *self.expected])
        tokens = self.tokens
        what = f"found {self.described(index)}{self._expectation(index)}{self._advice(index)}"
        raise parser_error(tokens.text, tokens.starts[index], tokens.ends[index], what)

    def _expectation(self, index: int) -> str:
        tried = list(self.expected.get(index, {}))
        words = [each for each in tried if each in CATEGORIES or each[0].isalpha()]
        signs = [f"'{each}'" for each in tried if each not in CATEGORIES and each[0] in _SIGNS]
        few = len(words) <= _FEW_EXPECTED
        shown = (signs if few else [each for each in signs if each == "')'"]) + words
        shown = shown or [f"'{each}'" for each in tried]
        shown.sort(key=lambda each: (each == THE_END, each not in CATEGORIES))
        if not shown:
            return ""
        if len(shown) > _MOST_EXPECTED:
            shown = [*shown[:_MOST_EXPECTED], "something else"]
        *first, last = shown
        return f", expected {', '.join(first)} or {last}" if first else f", expected {last}"

    def _advice(self, index: int) -> str:
        for near in (index, index - 1):
            if near >= 0 and self.kinds[near] == WORD:
                word = self._meant(near)
                if word and near == index:
                    return f". Did you mean {word}?"
                if word:
                    return f". Did you mean {word} instead of {self.described(near)}?"
        word = self.words[index]
        expected = self.expected.get(index, {})
        wants_name = A_NAME in expected or AN_EXPRESSION in expected
        sure = self.words[index - 1 : index] == ["."] or self.words[index + 1 :][:1] == ["=>"]
        if wants_name and word in RESERVED and (sure or word not in _CLAUSES):
            return f". {word} is a reserved word; as a name it stands in backticks"
        if self.tokens.text[self.tokens.starts[index] :].startswith('"') and A_STRING in expected:
            return ". A string stands in single quotes"
        return ""

    def _meant(self, index: int) -> str:
        """The keyword that could have stood there and is much like the word that does."""
        tried = {each.split()[0] for each in self.expected.get(index, {}) if each.isupper()}
        tried |= self.likely.get(index, set())
        if A_QUERY in self.expected.get(index, {}):
            tried |= {"SELECT", "VALUES", "WITH"}
        word = self.words[index]
        if word in RESERVED and len(word) < _SHORT:
            return ""
        found = difflib.get_close_matches(word, sorted(tried - {word}), n=1, cutoff=_ALIKE)
        return found[0] if found and word not in tried else ""
