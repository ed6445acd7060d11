"""MATCH_RECOGNIZE: patterns of rows.

Read next: ``relation_parser.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.parser.expression_nodes import IntervalLiteral
from millstream.sql.parser.expression_parser import ExpressionParser
from millstream.sql.parser.lexer import NUMBER
from millstream.sql.parser.query_nodes import (
    AfterMatch,
    MatchRecognize,
    Measure,
    PatternAlternatives,
    PatternDefinition,
    PatternExclusion,
    PatternPermutation,
    PatternQuantifier,
    PatternSequence,
    PatternSubset,
    PatternVariable,
    SkipKind,
)
from millstream.sql.parser.token_stream import A_NAME

if TYPE_CHECKING:
    from millstream.sql.parser.expression_nodes import SortItem
    from millstream.sql.parser.query_nodes import PatternNode
    from millstream.sql.parser.syntax import Expression, Relation


class MatchParser(ExpressionParser):
    """MATCH_RECOGNIZE behind a relation."""

    __slots__ = ()

    def match_recognize(self, relation: Relation, start: int) -> MatchRecognize:
        """Take ``MATCH_RECOGNIZE (...)``, the word itself already taken.

        Args:
            relation: What stands before it.
            start: The index of the first token of that.
        """
        self.expect("(")
        partition_by: tuple[Expression, ...] = ()
        order_by: tuple[SortItem, ...] = ()
        if self.accept("PARTITION"):
            self.expect("BY")
            partition_by = self.listed(self.expression)
        if self.accept("ORDER"):
            self.expect("BY")
            order_by = self.order_by()
        measures = self.listed(self._measure) if self.accept("MEASURES") else ()
        all_rows = self._rows_per_match()
        after_match = self._after_match() if self.accept("AFTER") else None
        self.expect("PATTERN", "(")
        anchored_start = self.accept("^")
        pattern = self._alternatives()
        anchored_end = self.accept("$")
        self.expect(")")
        within = self._within() if self.accept("WITHIN") else None
        subsets = self.listed(self._subset) if self.accept("SUBSET") else ()
        self.expect("DEFINE")
        definitions = self.listed(self._definition)
        self.expect(")")
        return MatchRecognize(
            relation,
            pattern,
            definitions,
            partition_by,
            order_by,
            measures,
            all_rows,
            after_match,
            anchored_start,
            anchored_end,
            within,
            subsets,
            position=self.span(start),
        )

    def _measure(self) -> Measure:
        start = self.index
        expression = self.expression()
        self.expect("AS")
        return Measure(expression, self.name(), position=self.span(start))

    def _rows_per_match(self) -> bool | None:
        if self.accept("ONE"):
            self.expect("ROW", "PER", "MATCH")
            return False
        if not self.accept("ALL"):
            return None
        self.expect("ROWS", "PER", "MATCH")
        if self.at("SHOW") or self.at("OMIT") or self.at("WITH"):
            self.unsupported("a clause on empty or unmatched rows")
        return True

    def _after_match(self) -> AfterMatch:
        start = self.index - 1
        self.expect("MATCH", "SKIP")
        if self.accept("PAST"):
            self.expect("LAST", "ROW")
            return AfterMatch(SkipKind.PAST_LAST_ROW, position=self.span(start))
        self.expect("TO")
        if self.accept("NEXT"):
            self.expect("ROW")
            return AfterMatch(SkipKind.TO_NEXT_ROW, position=self.span(start))
        # FIRST and LAST are names as well: ``SKIP TO last`` is a variable of that name.
        word = self.accept_any("FIRST", "LAST") if self.at_name(1) else ""
        kind = SkipKind.TO_FIRST if word == "FIRST" else SkipKind.TO_LAST
        return AfterMatch(kind, self.name(), position=self.span(start))

    def _within(self) -> IntervalLiteral:
        start = self.index
        interval = self.expression()
        if not isinstance(interval, IntervalLiteral):
            self.refuse_span(self.span(start), "WITHIN takes an interval: INTERVAL '1' HOUR")
        return interval

    def _subset(self) -> PatternSubset:
        start = self.index
        name = self.name()
        self.expect("=")
        return PatternSubset(name, self.parenthesized(self.name), position=self.span(start))

    def _definition(self) -> PatternDefinition:
        start = self.index
        variable = self.name()
        self.expect("AS")
        return PatternDefinition(variable, self.expression(), position=self.span(start))

    # --- patterns

    def _alternatives(self) -> PatternNode:
        start = self.index
        alternatives = [self._sequence()]
        while self.accept("|"):
            alternatives.append(self._sequence())
        if len(alternatives) == 1:
            return alternatives[0]
        return PatternAlternatives(tuple(alternatives), position=self.span(start))

    def _sequence(self) -> PatternNode:
        start = self.index
        parts = [self._quantified()]
        while self.at_name() or self.words[self.index] in {"(", "{-", "PERMUTE"}:
            parts.append(self._quantified())
        return (
            parts[0]
            if len(parts) == 1
            else PatternSequence(tuple(parts), position=self.span(start))
        )

    def _quantified(self) -> PatternNode:
        start = self.index
        pattern = self._primary_pattern()
        bounds: tuple[int, int | None]
        if sign := self.accept_any("*", "+", "?"):
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        elif self.accept("{"):
            bounds = self._bounds()
        else:
            return pattern
        reluctant = self.accept("?")
        return PatternQuantifier(pattern, *bounds, reluctant, position=self.span(start))

    def _bounds(self) -> tuple[int, int | None]:
        start = self.index
        low = self.integer() if self.kinds[start] == NUMBER else None
        high: int | None = low
        if low is None or self.at(","):
            self.expect(",")
            high = self.integer() if low is None or self.kinds[self.index] == NUMBER else None
        self.expect("}")
        if high is not None and high < (low or 0):
            self.refuse_token(start, f"no number of rows is at least {low} and at most {high}")
        return low or 0, high

    def _primary_pattern(self) -> PatternNode:
        start = self.index
        if self.accept("("):
            pattern = self._alternatives()
            self.expect(")")
            return pattern
        if self.accept("{-"):
            excluded = self._alternatives()
            self.expect("-}")
            return PatternExclusion(excluded, position=self.span(start))
        if self.accept("PERMUTE"):
            patterns = self.parenthesized(self._alternatives)
            return PatternPermutation(patterns, position=self.span(start))
        if not self.at_name():
            self.fail_for(A_NAME)
        return PatternVariable(self.name(), position=self.span(start))
