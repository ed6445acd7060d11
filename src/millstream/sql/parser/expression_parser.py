"""Parse expressions by precedence climbing, with Calcite's precedences."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from millstream.sql.parser import nodes as n
from millstream.sql.parser.function_parser import FunctionParser
from millstream.sql.parser.tokens import (
    AN_EXPRESSION,
    OPERATOR,
    QUOTED,
    RESERVED,
    RESERVED_FUNCTIONS,
    WORD,
)

NOT_POWER: Final = 26
IS_POWER: Final = 28
COMPARISON_POWER: Final = 30
#: IN, BETWEEN, LIKE, SIMILAR TO.
PREDICATE_POWER: Final = 32
SIGN_POWER: Final = 80
ACCESS_POWER: Final = 100
#: Operators between two operands -> how tightly they bind; all from left to right.
BINARY_POWERS: Final = {
    "OR": 22,
    "AND": 24,
    "=": COMPARISON_POWER,
    "<>": COMPARISON_POWER,
    "<": COMPARISON_POWER,
    "<=": COMPARISON_POWER,
    ">": COMPARISON_POWER,
    ">=": COMPARISON_POWER,
    "+": 40,
    "-": 40,
    "*": 60,
    "/": 60,
    "%": 60,
    "||": 60,
}
_POWERS: Final = {
    **BINARY_POWERS,
    "IS": IS_POWER,
    "OVERLAPS": COMPARISON_POWER,
    "NOT": PREDICATE_POWER,
    "IN": PREDICATE_POWER,
    "BETWEEN": PREDICATE_POWER,
    "LIKE": PREDICATE_POWER,
    "SIMILAR": PREDICATE_POWER,
    "[": ACCESS_POWER,
    ".": ACCESS_POWER,
}
_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})
_SPELT: Final = frozenset(word for word in _POWERS if word.isalpha())
#: Reserved, and yet functions where rows are matched.
_MATCH_FUNCTIONS: Final = frozenset({"PREV", "NEXT", "MATCH_NUMBER", "CLASSIFIER"})
_INSTEAD: Final = {
    "!=": "<> is the operator for that",
    "ILIKE": "write LOWER(x) LIKE LOWER(y)",
    "RLIKE": "write REGEXP(x, y)",
}
_PERIODS: Final = frozenset({"CONTAINS", "EQUALS", "PRECEDES", "SUCCEEDS", "IMMEDIATELY"})


class ExpressionParser(FunctionParser):
    """Expressions."""

    __slots__ = ()

    def expression(self) -> n.Expression:
        """Take an expression."""
        return self.operand(0)

    def operand(self, power: int) -> n.Expression:
        """Take an expression of operators that bind more tightly than ``power``."""
        start = self.index
        left = self._prefixed()
        while True:
            word = self.words[self.index]
            binding = _POWERS.get(word, 0)
            if binding <= power:
                self._after_operand(word)
                return left
            if word in BINARY_POWERS:
                left = self._binary(left, word, binding, start)
            else:
                following = self._postfix(left, word, start, power)
                if following is None:
                    return left
                left = following

    def _after_operand(self, word: str) -> None:
        self.suggest(_SPELT)
        if word in _INSTEAD:
            self.refuse(f"{word} is none of Flink's operators: {_INSTEAD[word]}")
        if word in _PERIODS and word in RESERVED:
            self.unsupported(f"the predicate {word} of periods")

    def _prefixed(self) -> n.Expression:
        start = self.index
        word = self.words[start]
        if word == "NOT":
            self.index += 1
            operand = self.operand(NOT_POWER)
            return n.UnaryOperation("NOT", operand, position=self.span(start))
        if word in {"-", "+"}:
            self.index += 1
            operand = self.operand(SIGN_POWER)
            return n.UnaryOperation(word, operand, position=self.span(start))
        return self._primary()

    def _binary(self, left: n.Expression, word: str, power: int, start: int) -> n.Expression:
        self.index += 1
        if word in _COMPARISONS and (quantifier := self.accept_any("ANY", "SOME", "ALL")):
            self.expect("(")
            right = self._query_or_list()
            self.expect(")")
            quantifier = "ALL" if quantifier == "ALL" else "ANY"
            return n.QuantifiedComparison(word, left, quantifier, right, position=self.span(start))
        return n.BinaryOperation(word, left, self.operand(power), position=self.span(start))

    def _query_or_list(self) -> n.Query | tuple[n.Expression, ...]:
        """Take what stands in the parentheses of IN or ANY."""
        if self.at_query():
            return self.query()
        start = self.index
        items = self.listed(self.expression)
        if len(items) == 1 and isinstance(items[0], n.ScalarQuery):
            return self.query_from(items[0].query, start)
        return items

    @abstractmethod
    def query_from(self, first: n.Query, start: int) -> n.Query:
        """Take what may follow a query in parentheses to make a larger query of it.

        Args:
            first: That query.
            start: The index of its opening parenthesis.
        """

    # --- behind an operand

    def _postfix(
        self, left: n.Expression, word: str, start: int, power: int
    ) -> n.Expression | None:
        if word == "[":
            self.index += 1
            index = self.expression()
            self.expect("]")
            return n.ElementAccess(left, index, position=self.span(start))
        if word == ".":
            self.index += 1
            return n.FieldAccess(left, self.name(), position=self.span(start))
        if word == "IS":
            return self._is(left, start, power)
        if word == "OVERLAPS":
            self.index += 1
            right = self.operand(COMPARISON_POWER)
            return n.PeriodPredicate(left, right, position=self.span(start))
        negated = word == "NOT"
        if negated and self.peek() not in {"IN", "BETWEEN", "LIKE", "SIMILAR"}:
            self.suggest(_SPELT)
            if self.peek() in _INSTEAD:
                self.index += 1
                self._after_operand(self.words[self.index])
            return None
        self.index += negated
        return self._predicate(left, negated, start)

    def _is(self, left: n.Expression, start: int, power: int) -> n.Expression | None:
        negated = self.peek() == "NOT"
        distinct = self.peek(2 if negated else 1) == "DISTINCT"
        if distinct and power >= COMPARISON_POWER:
            return None
        self.index += 2 if negated else 1
        if self.accept("DISTINCT"):
            self.expect("FROM")
            right = self.operand(COMPARISON_POWER)
            return n.IsDistinctFrom(left, right, negated, position=self.span(start))
        if self.accept("JSON"):
            kind = self.accept_any("VALUE", "ARRAY", "OBJECT", "SCALAR") or "VALUE"
            return n.IsJson(left, kind, negated, position=self.span(start))
        test = self.expect_any("NULL", "TRUE", "FALSE", "UNKNOWN")
        return n.IsPredicate(left, test, negated, position=self.span(start))

    def _predicate(self, left: n.Expression, negated: bool, start: int) -> n.Expression:  # noqa: FBT001
        word = self.expect_any("IN", "BETWEEN", "LIKE", "SIMILAR")
        if word == "IN":
            self.expect("(")
            right = self._query_or_list()
            self.expect(")")
            if isinstance(right, n.Query):
                return n.InQuery(left, right, negated, position=self.span(start))
            return n.InList(left, right, negated, position=self.span(start))
        if word == "BETWEEN":
            symmetric = self.accept_any("SYMMETRIC", "ASYMMETRIC") == "SYMMETRIC"
            low = self.operand(PREDICATE_POWER)
            self.expect("AND")
            high = self.operand(PREDICATE_POWER)
            return n.Between(left, low, high, negated, symmetric, position=self.span(start))
        if word == "SIMILAR":
            self.expect("TO")
        pattern = self.operand(PREDICATE_POWER)
        escape = self.operand(PREDICATE_POWER) if self.accept("ESCAPE") else None
        similar = word == "SIMILAR"
        return n.Like(left, pattern, escape, negated, similar, position=self.span(start))

    # --- operands

    def _primary(self) -> n.Expression:
        literal = self.literal()
        if literal is not None:
            return literal
        start = self.index
        word, kind = self.words[start], self.kinds[start]
        if kind == OPERATOR:
            if word == "(":
                return self._in_parentheses()
            if word == "?":
                self.unsupported("a parameter (?)")
            if word == "{" and (escaped := self.odbc_literal() or self.odbc_call()):
                return escaped
            self.fail_for(AN_EXPRESSION)
        if kind == WORD and (special := self.special_form() or self._constructed(word)):
            return special
        if word in {"RUNNING", "FINAL"} and self.peek_kind() == WORD and self.peek(2) == "(":
            self.index += 1
            operand = self._primary()
            return n.MatchSemantics(word == "FINAL", operand, position=self.span(start))
        return self._name_or_call()

    def _name_or_call(self) -> n.Expression:
        start = self.index
        word = self.words[start]
        reserved = self.kinds[start] == WORD and word in RESERVED
        callable_ = word in RESERVED_FUNCTIONS or word in _MATCH_FUNCTIONS
        is_call = callable_ and self.peek() == "("
        if (reserved and not is_call) or self.kinds[start] not in {WORD, QUOTED}:
            self.fail_for(AN_EXPRESSION)
        parts: list[n.Name] = [self.any_name()]
        while self.words[self.index] == "." and self.peek() != "*":
            self.index += 1
            parts.append(self.name())
        name = n.Identifier(tuple(parts), position=self.span(start))
        return self.call(name, start) if self.at("(") else name

    def _constructed(self, word: str) -> n.Expression | None:
        start = self.index
        match word:
            case "CASE":
                return self._case()
            case "EXISTS":
                self.index += 1
                return n.Exists(self.parenthesized_query(), position=self.span(start))
            case "ROW" | "PERIOD" if self.peek() == "(":
                self.index += 1
                fields = self.expressions_in_parentheses()
                return n.RowConstructor(fields, position=self.span(start))
            case "ARRAY" | "MAP" if self.peek() == "[":
                return self._collection(word)
            case "ARRAY" | "MAP" | "MULTISET" | "CURSOR" if self.peek() in {"(", "["}:
                signs = "(...)" if self.peek() == "(" else "[...]"
                self.unsupported(f"{word}{signs}", "take ARRAY[...] or MAP[...]")
            case "NEXT" if self.peek() == "VALUE":
                self.unsupported("NEXT VALUE FOR")
        return None

    def _collection(self, word: str) -> n.Expression:
        start = self.index
        self.expect(word, "[")
        elements = () if self.at("]") else self.listed(self.expression)
        self.expect("]")
        if word == "ARRAY":
            return n.ArrayConstructor(elements, position=self.span(start))
        if len(elements) % 2:
            self.refuse_span(self.span(start), "MAP takes a value to each key")
        entries = tuple(zip(elements[::2], elements[1::2], strict=True))
        return n.MapConstructor(entries, position=self.span(start))

    def _case(self) -> n.Expression:
        start = self.index
        self.expect("CASE")
        operand = None if self.at("WHEN") else self.expression()
        whens: list[n.WhenClause] = []
        while not whens or self.at("WHEN"):
            begin = self.index
            self.expect("WHEN")
            several = operand is not None
            conditions = self.listed(self.expression) if several else (self.expression(),)
            self.expect("THEN")
            result = self.expression()
            position = self.span(begin)
            whens += [n.WhenClause(each, result, position=position) for each in conditions]
        otherwise = self.expression() if self.accept("ELSE") else None
        if otherwise is None:
            self.tried("WHEN")
        self.expect("END")
        return n.Case(operand, tuple(whens), otherwise, position=self.span(start))

    def _in_parentheses(self) -> n.Expression:
        """Take a scalar query, a row, or an expression in parentheses."""
        start = self.index
        self.expect("(")
        if self.at_query():
            query = self.query()
            self.expect(")")
            return n.ScalarQuery(query, position=self.span(start))
        begin = self.index
        items = self.listed(self.expression)
        if len(items) == 1 and isinstance(items[0], n.ScalarQuery):
            # Parentheses around a query: maybe the first part of a larger one.
            larger = self.query_from(items[0].query, begin)
            self.expect(")")
            return n.ScalarQuery(larger, position=self.span(start))
        self.expect(")")
        if len(items) > 1:
            return n.RowConstructor(items, position=self.span(start))
        if self.words[self.index] in {"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"}:
            self.unsupported("a difference with a unit after it", "take TIMESTAMPDIFF")
        return items[0]
