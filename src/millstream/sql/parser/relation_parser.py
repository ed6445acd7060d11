"""FROM: tables with hints and points in time, sub-queries, functions of tables, joins.

Read next: ``query_parser.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.sql.parser.expression_nodes import FunctionCall, NamedArgument, ScalarQuery
from millstream.sql.parser.expression_nodes import TableArgument as TableArgumentNode
from millstream.sql.parser.lexer import NUMBER, QUOTED
from millstream.sql.parser.match_parser import MatchParser
from millstream.sql.parser.query_nodes import (
    AliasedRelation,
    DerivedTable,
    Hint,
    Join,
    JoinKind,
    TableFunction,
    TableReference,
    Unnest,
)

if TYPE_CHECKING:
    from millstream.sql.parser.syntax import Expression, Identifier, Name, Relation

_UNSUPPORTED: Final = {
    "TABLESAMPLE": "filter by RAND() instead",
    "PIVOT": "use aggregates with FILTER instead",
    "UNPIVOT": "use CROSS JOIN UNNEST instead",
    "EXTEND": "",
}
_SIDES: Final = {
    "INNER": JoinKind.INNER,
    "LEFT": JoinKind.LEFT,
    "RIGHT": JoinKind.RIGHT,
    "FULL": JoinKind.FULL,
    "CROSS": JoinKind.CROSS,
}
_BEHIND_RELATIONS: Final = frozenset(
    (
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "JOIN",
        "LEFT",
        "RIGHT",
        "FULL",
        "INNER",
        "CROSS",
        "UNION",
    )
)
_NO_SEMI_JOIN: Final = "a semi or anti join is written as [NOT] EXISTS or [NOT] IN"
_OUTER: Final = frozenset({"LEFT", "RIGHT", "FULL"})


class RelationParser(MatchParser):
    """What stands in FROM."""

    __slots__ = ()

    def from_clause(self) -> Relation:
        """Take what stands behind FROM."""
        start = self.index
        left = self.joined()
        while self.accept(","):
            right = self.joined()
            left = Join(left, right, JoinKind.COMMA, position=self.span(start))
        return left

    def joined(self) -> Relation:
        """Take a relation and all joins behind it."""
        start = self.index
        return self._joins(self._relation(), start)

    def _joins(self, left: Relation, start: int) -> Relation:
        while True:
            begin = self.index
            natural = self.accept("NATURAL")
            side = self.accept_any(*_SIDES)
            if side in _OUTER:
                self.accept("OUTER")
            if self.at("SEMI") or self.at("ANTI"):
                self.refuse(_NO_SEMI_JOIN)
            if not self.accept("JOIN"):
                if side or natural:
                    self.refuse_apply(side)
                    self.fail()
                self.index = begin
                return left
            kind = _SIDES.get(side, JoinKind.INNER)
            left = self._join(left, kind, natural, start)

    def refuse_apply(self, side: str) -> None:
        """Raise if CROSS APPLY or OUTER APPLY comes next."""
        if side == "CROSS" and self.words[self.index] == "APPLY":
            self.refuse("APPLY is none of Flink's joins: write CROSS JOIN LATERAL TABLE(...)")

    def _join(self, left: Relation, kind: JoinKind, natural: bool, start: int) -> Join:  # noqa: FBT001
        right = self._relation()
        condition: Expression | None = None
        using: tuple[Name, ...] = ()
        if self.accept("ON"):
            condition = self.expression()
        elif self.accept("USING"):
            using = self.parenthesized(self.name)
        if condition is not None or using:
            if natural:
                self.refuse_token(self.index - 1, "a NATURAL JOIN has no ON and no USING")
            if kind is JoinKind.CROSS:
                self.refuse_token(self.index - 1, "a CROSS JOIN has no ON and no USING")
        elif not natural and kind is not JoinKind.CROSS:
            # "INNER, LEFT, RIGHT or FULL join requires a condition", says Flink's validator.
            self.fail()
        return Join(left, right, kind, condition, using, natural, position=self.span(start))

    # --- one relation

    def _relation(self) -> Relation:
        start = self.index
        relation = self._plain_relation()
        word = self.words[self.index]
        if word in _UNSUPPORTED:
            self.unsupported(word, _UNSUPPORTED[word])
        if self.accept("MATCH_RECOGNIZE"):
            relation = self.match_recognize(relation, start)
        return self._aliased(relation, start)

    def _aliased(self, relation: Relation, start: int) -> Relation:
        if self.at_name():
            if self.words[self.index] in {"SEMI", "ANTI"} and self.peek() == "JOIN":
                self.refuse(_NO_SEMI_JOIN)
            self.suggest(_BEHIND_RELATIONS)
        elif not self.accept("AS"):
            return relation
        if isinstance(relation, Join):
            self.refuse("a join in parentheses has no alias: its tables have")
        alias = self.name()
        columns = self.parenthesized(self.name) if self.at("(") else ()
        aliased = AliasedRelation(relation, alias, columns, position=self.span(start))
        if self.accept("MATCH_RECOGNIZE"):
            return self._aliased(self.match_recognize(aliased, start), start)
        if self.at("FOR", "SYSTEM_TIME"):
            self.refuse("FOR SYSTEM_TIME AS OF stands before the alias")
        if self.at("/*+"):
            self.refuse("hints stand before the alias")
        return aliased

    def _plain_relation(self) -> Relation:
        start = self.index
        lateral = self.accept("LATERAL")
        if self.accept("UNNEST"):
            arguments = self.parenthesized(self.expression)
            ordinality = self.accept("WITH")
            if ordinality:
                self.expect("ORDINALITY")
            return Unnest(arguments, ordinality, position=self.span(start))
        if self.at("TABLE", "("):
            self.index += 2
            call = self._function()
            self.expect(")")
            return TableFunction(call, lateral, position=self.span(start))
        if self.at("("):
            return self._in_parentheses_relation(lateral, start)
        if lateral:
            self.tried("TABLE")
            self.fail()
        return self._table_or_function(start)

    def _in_parentheses_relation(self, lateral: bool, start: int) -> Relation:  # noqa: FBT001
        self.expect("(")
        if self.at_query() and not self.at("TABLE", "("):
            query = self.query()
            self.expect(")")
            return DerivedTable(query, lateral, position=self.span(start))
        begin = self.index
        inner = self.joined()
        if isinstance(inner, DerivedTable) and not lateral:
            # Parentheses around a query: maybe the first part of a larger one.
            query = self.query_from(inner.query, begin)
            self.expect(")")
            return DerivedTable(query, lateral, position=self.span(start))
        if not isinstance(inner, Join) or lateral:
            self.refuse_span(self.span(begin), "parentheses are for queries and joins")
        self.expect(")")
        return inner

    def _function(self) -> FunctionCall:
        start = self.index
        name = self.identifier()
        call = self.call(name, start)
        return replace(call, arguments=tuple(map(_as_table, call.arguments)))

    def _table_or_function(self, start: int) -> Relation:
        end = self.index
        while self.peek(end - self.index + 1) == ".":
            end += 2
        if self.peek(end - self.index + 1) == "(" and self.at_name():
            return TableFunction(self._function(), position=self.span(start))
        return self._table(start)

    def _table(self, start: int) -> TableReference:
        name: Identifier = self.identifier()
        hints = self.hints()
        as_of = None
        if self.accept("FOR"):
            self.expect("SYSTEM_TIME", "AS", "OF")
            as_of = self.expression()
        return TableReference(name, hints, as_of, position=self.span(start))

    # --- hints

    def hints(self) -> tuple[Hint, ...]:
        """Take ``/*+ ... */`` if it comes next."""
        if not self.accept("/*+"):
            return ()
        hints = [self._hint()]
        while self.accept(","):
            hints.append(self._hint())
        self.expect("*/")
        return tuple(hints)

    def _hint(self) -> Hint:
        start = self.index
        name = self.name().value.upper()
        arguments: list[str] = []
        options: list[tuple[str, str]] = []
        if self.accept("(") and not self.accept(")"):
            while True:
                argument = self._hint_argument()
                if self.accept("="):
                    options.append((argument, self._hint_argument()))
                else:
                    arguments.append(argument)
                if not self.accept(","):
                    break
            self.expect(")")
        return Hint(name, tuple(arguments), tuple(options), position=self.span(start))

    def _hint_argument(self) -> str:
        if self.at_string():
            return self.string()
        if self.kinds[self.index] == NUMBER:
            self.index += 1
            return self.tokens.source(self.index - 1)
        if self.kinds[self.index] == QUOTED or self.at_name():
            return str(self.identifier())
        return self.any_name().value


def _as_table(argument: Expression) -> Expression:
    """A query as an argument of a function of tables is a table."""
    if isinstance(argument, NamedArgument):
        return replace(argument, value=_as_table(argument.value))
    if isinstance(argument, ScalarQuery):
        return TableArgumentNode(argument.query, position=argument.position)
    return argument
