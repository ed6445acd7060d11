"""What the layers of the expression parser share: hooks, literals, lists of expressions.

Read next: ``function_parser.py``, ``expression_parser.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from string import hexdigits
from typing import TYPE_CHECKING, Final

from millstream.sql.parser.expression_nodes import (
    BinaryOperation,
    FrameBound,
    IntervalLiteral,
    Literal,
    SortItem,
    TemporalLiteral,
    WindowFrame,
    WindowSpecification,
)
from millstream.sql.parser.keywords import QUERY_STARTS
from millstream.sql.parser.lexer import BINARY, ENCODED, NUMBER, STRING
from millstream.sql.parser.literals import interval_value, numeric_literal, temporal
from millstream.sql.parser.strings import encoded_value
from millstream.sql.parser.token_stream import A_STRING
from millstream.sql.parser.type_parser import TypeParser
from millstream.types.logical_types import BinaryType, BooleanType, CharType, NullType

if TYPE_CHECKING:
    from millstream.sql.parser.syntax import Expression, Name, Query

_BOOLEAN: Final = BooleanType(nullable=False)
_WORDS: Final[dict[str, tuple[bool | None, BooleanType | NullType]]] = {
    "TRUE": (True, _BOOLEAN),
    "FALSE": (False, _BOOLEAN),
    "UNKNOWN": (None, BooleanType()),
    "NULL": (None, NullType()),
}
_ODBC: Final = {"D": "DATE", "T": "TIME", "TS": "TIMESTAMP"}
_TEMPORAL: Final = frozenset({"DATE", "TIME", "TIMESTAMP"})


class OperandParser(TypeParser):
    """Literals, ORDER BY and windows; expressions and queries by those above it."""

    __slots__ = ()

    # --- hooks

    @abstractmethod
    def expression(self) -> Expression:
        """Take an expression."""

    @abstractmethod
    def operand(self, power: int) -> Expression:
        """Take an expression of operators that bind more tightly than ``power``."""

    @abstractmethod
    def query(self) -> Query:
        """Take a query, with its WITH, ORDER BY and LIMIT."""

    def at_query(self) -> bool:
        """Whether a query begins here, rather than an expression or a relation."""
        return self.words[self.index] in QUERY_STARTS

    def parenthesized_query(self) -> Query:
        """Take a query in parentheses."""
        self.expect("(")
        query = self.query()
        self.expect(")")
        return query

    # --- literals

    def literal(self) -> Expression | None:
        """Take a literal if one comes next."""
        start = self.index
        kind, word = self.kinds[start], self.words[start]
        if kind == NUMBER:
            self.index += 1
            try:
                return numeric_literal(self.tokens.source(start), self.span(start))
            except ValueError as error:
                self.refuse_token(start, str(error))
        if self.at_string():
            text = self.string()
            return Literal(text, CharType(len(text), nullable=False), position=self.span(start))
        if kind in {BINARY, ENCODED}:
            return self._bytes(start) if kind == BINARY else self._encoded(start)
        if word in _WORDS:
            self.index += 1
            value, type_ = _WORDS[word]
            return Literal(value, type_, position=self.span(start))
        if word in _TEMPORAL:
            return self._temporal(word)
        return self._interval() if word == "INTERVAL" else None

    def _encoded(self, start: int) -> Literal:
        self.index += 1
        try:
            text = encoded_value(self.tokens.source(start))
        except ValueError as error:
            self.refuse_token(start, str(error))
        return Literal(text, CharType(len(text), nullable=False), position=self.span(start))

    def _bytes(self, start: int) -> Literal:
        digits = self.tokens.source(start)[2:-1]
        self.index += 1
        if len(digits) % 2 or not set(digits) <= set(hexdigits):
            self.refuse_token(start, "X'...' takes an even number of hexadecimal digits")
        value = bytes.fromhex(digits)
        type_ = BinaryType(len(value), nullable=False)
        return Literal(value, type_, position=self.span(start))

    def _temporal(self, word: str) -> TemporalLiteral | None:
        start = self.index
        if self.peek_kind() == STRING:
            self.index += 1
        elif self.words[start + 1 : start + 5] == ["WITH", "LOCAL", "TIME", "ZONE"]:
            self.index += 5
            word = "TIMESTAMP_LTZ" if word == "TIMESTAMP" else self.fail()
        else:
            return None
        at = self.index
        try:
            text, type_ = temporal(word, self.string())
        except ValueError as error:
            self.refuse_token(at, str(error))
        return TemporalLiteral(text, type_, position=self.span(start))

    def odbc_literal(self) -> TemporalLiteral | None:
        """Take ``{d '...'}``, ``{t '...'}`` or ``{ts '...'}``, ODBC's literals, if one comes."""
        start = self.index
        word = _ODBC.get(self.words[start + 1])
        if word is None or self.peek_kind(2) != STRING:
            return None
        self.index += 1
        literal = self._temporal(word)
        self.expect("}")
        return literal

    def _interval(self) -> Expression:
        start = self.index
        self.expect("INTERVAL")
        sign = self.accept_any("+", "-")
        at = self.index
        if not self.at_string():
            return self._computed_interval(start, sign)
        text = self.string()
        qualifier = self.interval_qualifier()
        try:
            value = interval_value(text, qualifier)
        except ValueError as error:
            self.refuse_token(at, str(error))
        return IntervalLiteral(
            text,
            qualifier,
            -value if sign == "-" else value,
            sign == "-",
            position=self.span(start),
        )

    def _computed_interval(self, start: int, sign: str) -> Expression:
        """``INTERVAL 3 DAY``, ``INTERVAL x DAY``: so many times one day."""
        if sign:
            self.fail_for(A_STRING)
        if self.accept("("):
            amount = self.expression()
            self.expect(")")
        else:
            amount = self.operand(80)
        qualifier = self.interval_qualifier()
        if qualifier.end is not None:
            self.refuse_token(start, "an interval of several units takes a string")
        one = IntervalLiteral("1", qualifier, interval_value("1", qualifier))
        return BinaryOperation("*", amount, one, position=self.span(start))

    # --- ORDER BY and windows

    def expressions_in_parentheses(self) -> tuple[Expression, ...]:
        """Take ``(a, b)``."""
        return self.parenthesized(self.expression)

    def order_by(self) -> tuple[SortItem, ...]:
        """Take what stands behind ORDER BY."""
        return self.listed(self.sort_item)

    def sort_item(self) -> SortItem:
        """Take ``x DESC NULLS LAST``."""
        start = self.index
        expression = self.expression()
        descending = self.accept_any("ASC", "DESC") == "DESC"
        nulls_first = None
        if self.accept("NULLS"):
            nulls_first = self.expect_any("FIRST", "LAST") == "FIRST"
        return SortItem(expression, descending, nulls_first, position=self.span(start))

    def window(self) -> WindowSpecification:
        """Take what stands in the parentheses of OVER, and these."""
        start = self.index
        self.expect("(")
        base: Name | None = self.name() if self.at_name() else None
        partition_by: tuple[Expression, ...] = ()
        order_by: tuple[SortItem, ...] = ()
        frame = None
        if self.accept("PARTITION"):
            self.expect("BY")
            partition_by = self.listed(self.expression)
        if self.accept("ORDER"):
            self.expect("BY")
            order_by = self.order_by()
        if unit := self.accept_any("ROWS", "RANGE"):
            frame = self._frame(unit)
        self.expect(")")
        return WindowSpecification(base, partition_by, order_by, frame, position=self.span(start))

    def _frame(self, unit: str) -> WindowFrame:
        start = self.index - 1
        if self.accept("BETWEEN"):
            first = self._bound()
            self.expect("AND")
            last = self._bound()
        else:
            first, last = self._bound(), FrameBound("CURRENT ROW")
            if first.direction == "FOLLOWING" and first.offset is not None:
                first, last = last, first  # as Flink reads it
        return WindowFrame(unit, first, last, position=self.span(start))

    def _bound(self) -> FrameBound:
        start = self.index
        if self.accept("CURRENT"):
            self.expect("ROW")
            return FrameBound("CURRENT ROW", position=self.span(start))
        offset = None if self.accept("UNBOUNDED") else self.expression()
        direction = self.expect_any("PRECEDING", "FOLLOWING")
        return FrameBound(direction, offset, position=self.span(start))
