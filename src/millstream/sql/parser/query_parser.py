"""Parse queries: WITH, SELECT, VALUES, set operations, ORDER BY and LIMIT."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from millstream.sql.parser import nodes as n
from millstream.sql.parser.expression_parser import ExpressionParser
from millstream.sql.parser.tokens import A_NAME, A_NUMBER, A_QUERY, NUMBER, OPERATOR, QUOTED


class MatchParser(ExpressionParser):
    """MATCH_RECOGNIZE behind a relation."""

    __slots__ = ()

    def match_recognize(self, relation: n.Relation, start: int) -> n.MatchRecognize:
        """Take ``MATCH_RECOGNIZE (...)``, the word itself already taken.

        Args:
            relation: What stands before it.
            start: The index of the first token of that.
        """
        self.expect("(")
        partition_by = self.by("PARTITION", self.expression)
        order_by = self.by("ORDER", self.sort_item)
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
        return n.MatchRecognize(
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

    def _measure(self) -> n.Measure:
        start = self.index
        expression = self.expression()
        self.expect("AS")
        return n.Measure(expression, self.name(), position=self.span(start))

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

    def _after_match(self) -> n.AfterMatch:
        start = self.index - 1
        self.expect("MATCH", "SKIP")
        if self.accept("PAST"):
            self.expect("LAST", "ROW")
            return n.AfterMatch(n.SkipKind.PAST_LAST_ROW, position=self.span(start))
        self.expect("TO")
        if self.accept("NEXT"):
            self.expect("ROW")
            return n.AfterMatch(n.SkipKind.TO_NEXT_ROW, position=self.span(start))
        # FIRST and LAST are names as well: ``SKIP TO last`` is a variable of that name.
        word = self.accept_any("FIRST", "LAST") if self.at_name(1) else ""
        kind = n.SkipKind.TO_FIRST if word == "FIRST" else n.SkipKind.TO_LAST
        return n.AfterMatch(kind, self.name(), position=self.span(start))

    def _within(self) -> n.IntervalLiteral:
        start = self.index
        interval = self.expression()
        if not isinstance(interval, n.IntervalLiteral):
            self.refuse_span(self.span(start), "WITHIN takes an interval: INTERVAL '1' HOUR")
        return interval

    def _subset(self) -> n.PatternSubset:
        start = self.index
        name = self.name()
        self.expect("=")
        return n.PatternSubset(name, self.parenthesized(self.name), position=self.span(start))

    def _definition(self) -> n.PatternDefinition:
        start = self.index
        variable = self.name()
        self.expect("AS")
        return n.PatternDefinition(variable, self.expression(), position=self.span(start))

    # --- patterns

    def _alternatives(self) -> n.PatternNode:
        start = self.index
        alternatives = [self._sequence()]
        while self.accept("|"):
            alternatives.append(self._sequence())
        if len(alternatives) == 1:
            return alternatives[0]
        return n.PatternAlternatives(tuple(alternatives), position=self.span(start))

    def _sequence(self) -> n.PatternNode:
        start = self.index
        parts = [self._quantified()]
        while self.at_name() or self.words[self.index] in {"(", "{-", "PERMUTE"}:
            parts.append(self._quantified())
        return (
            parts[0]
            if len(parts) == 1
            else n.PatternSequence(tuple(parts), position=self.span(start))
        )

    def _quantified(self) -> n.PatternNode:
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
        return n.PatternQuantifier(pattern, *bounds, reluctant, position=self.span(start))

    def _bounds(self) -> tuple[int, int | None]:
        start = self.index
        if self.at(","):
            self.refuse_token(start, "write how many rows there are at least, as in {0,2}")
        low = self.integer()
        high: int | None = low
        if self.accept(","):
            high = self.integer() if self.kinds[self.index] == NUMBER else None
        self.expect("}")
        if high is not None and high < low:
            self.refuse_token(start, f"no number of rows is at least {low} and at most {high}")
        return low, high

    def _primary_pattern(self) -> n.PatternNode:
        start = self.index
        if self.accept("("):
            pattern = self._alternatives()
            self.expect(")")
            return pattern
        if self.accept("{-"):
            excluded = self._alternatives()
            self.expect("-}")
            return n.PatternExclusion(excluded, position=self.span(start))
        if self.accept("PERMUTE"):
            patterns = self.parenthesized(self._alternatives)
            return n.PatternPermutation(patterns, position=self.span(start))
        if not self.at_name():
            self.fail_for(A_NAME)
        return n.PatternVariable(self.name(), position=self.span(start))


_UNSUPPORTED: Final = {
    "TABLESAMPLE": "filter by RAND() instead",
    "PIVOT": "use aggregates with FILTER instead",
    "UNPIVOT": "use CROSS JOIN UNNEST instead",
    "EXTEND": "",
}
_SIDES: Final = {
    "INNER": n.JoinKind.INNER,
    "LEFT": n.JoinKind.LEFT,
    "RIGHT": n.JoinKind.RIGHT,
    "FULL": n.JoinKind.FULL,
    "CROSS": n.JoinKind.CROSS,
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
    """Parser of the relations in FROM."""

    __slots__ = ()

    def from_clause(self) -> n.Relation:
        """Take what stands behind FROM."""
        start = self.index
        left = self.joined()
        while self.accept(","):
            right = self.joined()
            left = n.Join(left, right, n.JoinKind.COMMA, position=self.span(start))
        return left

    def joined(self) -> n.Relation:
        """Take a relation and all joins behind it."""
        start = self.index
        return self._joins(self._relation(), start)

    def _joins(self, left: n.Relation, start: int) -> n.Relation:
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
            kind = _SIDES.get(side, n.JoinKind.INNER)
            left = self._join(left, kind, natural, start)

    def refuse_apply(self, side: str) -> None:
        """Raise if CROSS APPLY or OUTER APPLY comes next."""
        if side == "CROSS" and self.words[self.index] == "APPLY":
            self.refuse("APPLY is none of Flink's joins: write CROSS JOIN LATERAL TABLE(...)")

    def _join(self, left: n.Relation, kind: n.JoinKind, natural: bool, start: int) -> n.Join:  # noqa: FBT001
        right = self._relation()
        condition: n.Expression | None = None
        using: tuple[n.Name, ...] = ()
        if self.accept("ON"):
            condition = self.expression()
        elif self.accept("USING"):
            using = self.parenthesized(self.name)
        if condition is not None or using:
            if natural:
                self.refuse_token(self.index - 1, "a NATURAL JOIN has no ON and no USING")
            if kind is n.JoinKind.CROSS:
                self.refuse_token(self.index - 1, "a CROSS JOIN has no ON and no USING")
        elif not natural and kind is not n.JoinKind.CROSS:
            # "INNER, LEFT, RIGHT or FULL join requires a condition", says Flink's validator.
            self.fail()
        return n.Join(left, right, kind, condition, using, natural, position=self.span(start))

    # --- one relation

    def _relation(self) -> n.Relation:
        start = self.index
        relation = self._plain_relation()
        word = self.words[self.index]
        if word in _UNSUPPORTED:
            self.unsupported(word, _UNSUPPORTED[word])
        if self.accept("MATCH_RECOGNIZE"):
            relation = self.match_recognize(relation, start)
        return self._aliased(relation, start)

    def _aliased(self, relation: n.Relation, start: int) -> n.Relation:
        if self.at_name():
            if self.words[self.index] in {"SEMI", "ANTI"} and self.peek() == "JOIN":
                self.refuse(_NO_SEMI_JOIN)
            self.suggest(_BEHIND_RELATIONS)
        elif not self.accept("AS"):
            return relation
        if isinstance(relation, n.Join):
            self.refuse("a join in parentheses has no alias: its tables have")
        alias = self.name()
        columns = self.parenthesized(self.name) if self.at("(") else ()
        aliased = n.AliasedRelation(relation, alias, columns, position=self.span(start))
        if self.accept("MATCH_RECOGNIZE"):
            return self._aliased(self.match_recognize(aliased, start), start)
        if self.at("FOR", "SYSTEM_TIME"):
            self.refuse("FOR SYSTEM_TIME AS OF stands before the alias")
        if self.at("/*+"):
            self.refuse("hints stand before the alias")
        return aliased

    def _plain_relation(self) -> n.Relation:
        start = self.index
        lateral = self.accept("LATERAL")
        if self.accept("UNNEST"):
            arguments = self.parenthesized(self.expression)
            ordinality = self.accept("WITH")
            if ordinality:
                self.expect("ORDINALITY")
            return n.Unnest(arguments, ordinality, position=self.span(start))
        if self.at("TABLE", "("):
            self.index += 2
            call = self._function()
            self.expect(")")
            return n.TableFunction(call, lateral, position=self.span(start))
        if self.at("("):
            return self._in_parentheses_relation(lateral, start)
        if lateral:
            self.tried("TABLE")
            self.fail()
        return self._table_or_function(start)

    def _in_parentheses_relation(self, lateral: bool, start: int) -> n.Relation:  # noqa: FBT001
        self.expect("(")
        if self.at_query() and not self.at("TABLE", "("):
            query = self.query()
            self.expect(")")
            return n.DerivedTable(query, lateral, position=self.span(start))
        begin = self.index
        inner = self.joined()
        if isinstance(inner, n.DerivedTable) and not lateral:
            # Parentheses around a query: maybe the first part of a larger one.
            query = self.query_from(inner.query, begin)
            self.expect(")")
            return n.DerivedTable(query, lateral, position=self.span(start))
        if not isinstance(inner, n.Join) or lateral:
            self.refuse_span(self.span(begin), "parentheses are for queries and joins")
        self.expect(")")
        return inner

    def _function(self) -> n.FunctionCall:
        start = self.index
        name = self.identifier()
        call = self.call(name, start)
        return replace(call, arguments=tuple(map(_as_table, call.arguments)))

    def _table_or_function(self, start: int) -> n.Relation:
        end = self.index
        while self.peek(end - self.index + 1) == ".":
            end += 2
        if self.peek(end - self.index + 1) == "(" and self.at_name():
            return n.TableFunction(self._function(), position=self.span(start))
        return self._table(start)

    def _table(self, start: int) -> n.TableReference:
        name: n.Identifier = self.identifier()
        hints = self.hints()
        as_of = None
        if self.accept("FOR"):
            self.expect("SYSTEM_TIME", "AS", "OF")
            as_of = self.expression()
        return n.TableReference(name, hints, as_of, position=self.span(start))

    # --- hints

    def hints(self) -> tuple[n.Hint, ...]:
        """Take ``/*+ ... */`` if it comes next."""
        if not self.accept("/*+"):
            return ()
        hints = [self._hint()]
        while self.accept(","):
            hints.append(self._hint())
        self.expect("*/")
        return tuple(hints)

    def _hint(self) -> n.Hint:
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
        return n.Hint(name, tuple(arguments), tuple(options), position=self.span(start))

    def _hint_argument(self) -> str:
        if self.at_string():
            return self.string()
        if self.kinds[self.index] == NUMBER:
            self.index += 1
            return self.tokens.source(self.index - 1)
        if self.kinds[self.index] == QUOTED or self.at_name():
            return str(self.identifier())
        return self.any_name().value


def _as_table(argument: n.Expression) -> n.Expression:
    """A query as an argument of a function of tables is a table."""
    if isinstance(argument, n.NamedArgument):
        return replace(argument, value=_as_table(argument.value))
    if isinstance(argument, n.ScalarQuery):
        return n.TableArgument(argument.query, position=argument.position)
    return argument


_BEHIND_ITEMS: Final = frozenset({"FROM"})
_SET_POWERS: Final = {"UNION": 1, "EXCEPT": 1, "MINUS": 1, "INTERSECT": 2}


class QueryParser(RelationParser):
    """Queries."""

    __slots__ = ()

    def query(self) -> n.Query:
        """Take a query, with its WITH, ORDER BY and LIMIT."""
        start = self.index
        if self.accept("WITH"):
            if self.at("RECURSIVE"):
                self.unsupported("WITH RECURSIVE")
            tables = self.listed(self._common_table)
            return n.WithQuery(tables, self._ordered(), position=self.span(start))
        return self._ordered()

    def _common_table(self) -> n.CommonTable:
        start = self.index
        name = self.name()
        columns = self.parenthesized(self.name) if self.at("(") else ()
        self.expect("AS")
        query = self.parenthesized_query()
        return n.CommonTable(name, columns, query, position=self.span(start))

    def _ordered(self) -> n.Query:
        start = self.index
        return self._order_and_limit(self._set_operation(self._term(), 0, start), start)

    def query_from(self, first: n.Query, start: int) -> n.Query:
        return self._order_and_limit(self._set_operation(first, 0, start), start)

    def _order_and_limit(self, query: n.Query, start: int) -> n.Query:
        order_by = self.by("ORDER", self.sort_item)
        offset = limit = None
        unlimited = False
        if self.accept("LIMIT"):
            unlimited = self.accept("ALL")
            limit = None if unlimited else self._count()
            if self.at(","):
                self.refuse("LIMIT takes one number: write LIMIT count OFFSET start")
        if self.accept("OFFSET"):
            offset = self._count()
            self.accept_any("ROW", "ROWS")
            if limit is None and self.at("LIMIT"):
                self.refuse("LIMIT stands before OFFSET")
        if limit is None and not unlimited and self.accept("FETCH"):
            self.expect_any("FIRST", "NEXT")
            limit = self._count()
            self.expect_any("ROW", "ROWS")
            self.expect("ONLY")
        if not order_by and offset is None and limit is None:
            return query
        return n.OrderedQuery(query, order_by, offset, limit, position=self.span(start))

    def _count(self) -> n.Expression:
        if self.at("?"):
            self.unsupported("a parameter (?)")
        if self.kinds[self.index] != NUMBER:
            self.fail_for(A_NUMBER)
        at = self.index
        number = self.literal()
        if not isinstance(number, n.Literal) or not isinstance(number.value, int):
            self.refuse_token(at, "a number of rows is a whole number")
        return number

    def _set_operation(self, left: n.Query, power: int, start: int) -> n.Query:
        """Operators from left to right, INTERSECT before the others."""
        while True:
            word = self.words[self.index]
            binding = _SET_POWERS.get(word, 0)
            if binding <= power:
                for each in ("UNION", "INTERSECT", "EXCEPT"):
                    self.tried(each)
                return left
            if word == "MINUS":
                self.refuse("MINUS is none of Flink's operators: EXCEPT is the one for that")
            self.index += 1
            quantifier = self.accept_any("ALL", "DISTINCT")
            begin = self.index
            right = self._set_operation(self._term(), binding, begin)
            operator = n.SetOperator(word)
            position = self.span(start)
            left = n.SetOperation(operator, quantifier == "ALL", left, right, position=position)

    def _term(self) -> n.Query:
        start = self.index
        if self.accept("SELECT"):
            return self._select(start)
        if self.at("("):
            return self.parenthesized_query()
        if self.accept("VALUES"):
            rows = self.listed(self._row)
            return n.Values(rows, position=self.span(start))
        if self.accept("TABLE"):
            return n.TableQuery(self.identifier(), position=self.span(start))
        return self.fail_for(A_QUERY)

    def _row(self) -> n.RowConstructor:
        start = self.index
        value = self.expression()
        if isinstance(value, n.RowConstructor):
            return value
        return n.RowConstructor((value,), position=self.span(start))

    # --- SELECT

    def _select(self, start: int) -> n.Select:
        hints = self.hints()
        if self.at("STREAM"):
            self.refuse("every query of a stream is continuous: leave out STREAM")
        distinct = self.accept_any("DISTINCT", "ALL") == "DISTINCT"
        items = self.listed(self._item)
        if not self.accept("FROM"):
            # As in Flink, nothing stands behind the items of a query without tables.
            return n.Select(items, distinct=distinct, hints=hints, position=self.span(start))
        source = self.from_clause()
        where = self.expression() if self.accept("WHERE") else None
        group_by = None
        if self.accept("GROUP"):
            self.expect("BY")
            group_by = self._group_by()
        having = self.expression() if self.accept("HAVING") else None
        windows = self.listed(self._named_window) if self.accept("WINDOW") else ()
        qualify = self.expression() if self.accept("QUALIFY") else None
        return n.Select(
            items,
            source,
            where,
            group_by,
            having,
            windows,
            qualify,
            distinct,
            hints,
            position=self.span(start),
        )

    def _item(self) -> n.SelectItem:
        start = self.index
        if self.accept("*"):
            return n.SelectItem(n.Star(position=self.span(start)), position=self.span(start))
        end = start
        while self.at_name(end - start) and self.words[end + 1] == ".":
            end += 2
        if end > start and self.words[end] == "*" and self.kinds[end] == OPERATOR:
            return self._qualified_star(end)
        expression = self.expression()
        alias: n.Name | None = None
        if not self.at_name():
            alias = self.name() if self.accept("AS") else None
        else:
            self.suggest(_BEHIND_ITEMS)
            alias = self.name()
        return n.SelectItem(expression, alias, position=self.span(start))

    def _qualified_star(self, end: int) -> n.SelectItem:
        start = self.index
        parts = [self.name()]
        while self.index < end - 1:
            self.expect(".")
            parts.append(self.name())
        qualifier = n.Identifier(tuple(parts), position=self.span(start))
        self.expect(".", "*")
        star = n.Star(qualifier, position=self.span(start))
        return n.SelectItem(star, position=star.position)

    def _group_by(self) -> tuple[n.Expression | n.GroupingSet | n.GroupingSets, ...]:
        if self.at("DISTINCT"):
            self.unsupported("GROUP BY DISTINCT")
        self.accept("ALL")
        return self.listed(self._grouping_element)

    def _grouping_element(self) -> n.Expression | n.GroupingSet | n.GroupingSets:
        start = self.index
        if self.at("(", ")"):
            self.index += 2
            return n.GroupingSet((), position=self.span(start))
        sets = self._grouping_sets()
        if sets is not None:
            return sets
        element = self.expression()
        if isinstance(element, n.RowConstructor):
            return n.GroupingSet(element.fields, position=self.span(start))
        return element

    def _grouping_sets(self) -> n.GroupingSets | None:
        start = self.index
        if self.accept("GROUPING", "SETS"):
            elements = self.parenthesized(self._grouping_set)
            return n.GroupingSets(n.GroupingKind.SETS, elements, position=self.span(start))
        if word := self.accept_any("ROLLUP", "CUBE"):
            kind = n.GroupingKind(word)
            keys = self.parenthesized(self._rolled_up)
            return n.GroupingSets(kind, keys, position=self.span(start))
        return None

    def _grouping_set(self) -> n.GroupingSet | n.GroupingSets:
        element = self._grouping_element()
        if isinstance(element, n.GroupingSet | n.GroupingSets):
            return element
        return n.GroupingSet((element,), position=element.position)

    def _rolled_up(self) -> n.GroupingSet:
        start = self.index
        if self.at("(", ")"):
            self.refuse("ROLLUP and CUBE take keys: an empty set is theirs in any case")
        element = self.expression()
        if isinstance(element, n.RowConstructor):
            return n.GroupingSet(element.fields, position=self.span(start))
        return n.GroupingSet((element,), position=self.span(start))

    def _named_window(self) -> n.NamedWindow:
        start = self.index
        name = self.name()
        self.expect("AS")
        return n.NamedWindow(name, self.window(), position=self.span(start))
