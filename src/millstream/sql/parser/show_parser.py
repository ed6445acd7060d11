"""Statements that look: SHOW, DESCRIBE, EXPLAIN.

Read next: ``statement_parser.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from millstream.sql.parser.statement_nodes import (
    Describe,
    Explain,
    NamePattern,
    Show,
    ShowCreate,
    ShowKind,
    ShowPartitions,
)
from millstream.sql.parser.syntax import Identifier, Name
from millstream.sql.parser.table_parser import TableParser

if TYPE_CHECKING:
    from millstream.sql.parser.syntax import Statement

_DETAILS: Final = ("CHANGELOG_MODE", "ESTIMATED_COST", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")
#: Kinds that take neither FROM nor LIKE.
_BARE: Final = frozenset(
    {
        ShowKind.CURRENT_CATALOG,
        ShowKind.CURRENT_DATABASE,
        ShowKind.MODULES,
        ShowKind.FULL_MODULES,
        ShowKind.JARS,
        ShowKind.JOBS,
    }
)
_ILIKE: Final = frozenset(
    {
        ShowKind.CATALOGS,
        ShowKind.DATABASES,
        ShowKind.FUNCTIONS,
        ShowKind.USER_FUNCTIONS,
        ShowKind.PROCEDURES,
    }
)
_DESCRIBED: Final = ("CATALOG", "DATABASE", "FUNCTION", "MODEL", "CONNECTION", "JOB")


class ShowParser(TableParser):
    """SHOW, DESCRIBE and EXPLAIN, their first word already taken."""

    __slots__ = ()

    @abstractmethod
    def explained(self) -> Statement:
        """Take what EXPLAIN may explain."""

    def show(self, start: int) -> Statement:
        """Take SHOW."""
        if self.accept("CREATE"):
            return self._show_create(start)
        if self.accept("PARTITIONS"):
            table = self.identifier()
            partition = self.partition() if self.accept("PARTITION") else ()
            return ShowPartitions(table, partition, position=self.span(start))
        kind = self._show_kind()
        scope = pattern = None
        if kind is ShowKind.COLUMNS:
            self.expect_any("FROM", "IN")
            scope = self.identifier()
        elif kind not in _BARE and kind is not ShowKind.CATALOGS and self.accept_any("FROM", "IN"):
            scope = self.identifier()
        if kind not in _BARE:
            pattern = self._pattern(ignore_case=kind in _ILIKE)
        return Show(kind, scope, pattern, position=self.span(start))

    def _show_kind(self) -> ShowKind:
        for kind in ShowKind:
            if self.accept(*kind.value.split()):
                return kind
        for word in ("CREATE", "PARTITIONS"):
            self.tried(word)
        return self.fail()

    def _pattern(self, *, ignore_case: bool) -> NamePattern | None:
        start = self.index
        negated = self.accept("NOT")
        words = ("LIKE", "ILIKE") if ignore_case else ("LIKE",)
        word = self.expect_any(*words) if negated else self.accept_any(*words)
        if not word:
            return None
        return NamePattern(self.string(), negated, word == "ILIKE", position=self.span(start))

    def _show_create(self, start: int) -> ShowCreate:
        kind = self.expect_any("TABLE", "VIEW", "CATALOG", "MODEL", "CONNECTION", "MATERIALIZED")
        if kind in {"MODEL", "CONNECTION", "MATERIALIZED"}:
            self.index -= 1
            self.unsupported(f"a {kind}{' TABLE' * (kind == 'MATERIALIZED')}")
        if kind == "CATALOG":
            begin = self.index
            name = Identifier((self.name(),), position=self.span(begin))
        else:
            name = self.identifier()
        return ShowCreate(kind, name, position=self.span(start))

    def describe(self, start: int) -> Describe:
        """Take DESCRIBE."""
        kind = "TABLE"
        word = self.words[self.index]
        if word == "JOB" and self.peek_kind() and self.peek() not in {".", ";"}:
            self.index += 1
            begin = self.index
            name = Name(self.string(), quoted=True, position=self.span(begin))
            return Describe("JOB", Identifier((name,)), position=self.span(start))
        if word in _DESCRIBED and (self.at_name(1) or self.peek() == "EXTENDED"):
            kind = word
            self.index += 1
        elif word == "TABLE":
            self.index += 1
        if kind in {"MODEL", "CONNECTION"}:
            self.index -= 1
            self.unsupported(f"a {kind}")
        extended = self.accept("EXTENDED")
        return Describe(kind, self.identifier(), extended, position=self.span(start))

    def explain(self, start: int) -> Explain:
        """Take EXPLAIN."""
        details: list[str] = []
        if not self.accept("PLAN", "FOR"):
            while word := self.accept_any(*_DETAILS):
                if word in details:
                    self.refuse_token(self.index - 1, f"{word} stands here twice")
                details.append(word)
                if not self.accept(","):
                    break
                if self.words[self.index] not in _DETAILS:
                    self.expect_any(*_DETAILS)
        return Explain(self.explained(), tuple(details), position=self.span(start))
