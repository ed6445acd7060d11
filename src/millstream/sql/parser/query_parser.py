"""Queries: WITH, SELECT, VALUES, set operations, ORDER BY, LIMIT.

Read next: ``table_parser.py``, ``statement_parser.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.sql.parser.expression_nodes import Literal, RowConstructor, Star
from millstream.sql.parser.lexer import NUMBER, OPERATOR
from millstream.sql.parser.query_nodes import (
    CommonTable,
    GroupingKind,
    GroupingSet,
    GroupingSets,
    NamedWindow,
    OrderedQuery,
    Select,
    SelectItem,
    SetOperation,
    SetOperator,
    TableQuery,
    Values,
    WithQuery,
)
from millstream.sql.parser.relation_parser import RelationParser
from millstream.sql.parser.syntax import Identifier
from millstream.sql.parser.token_stream import A_NUMBER, A_QUERY

if TYPE_CHECKING:
    from millstream.sql.parser.expression_nodes import SortItem
    from millstream.sql.parser.syntax import Expression, Name, Query

_BEHIND_ITEMS: Final = frozenset({"FROM"})
_SET_POWERS: Final = {"UNION": 1, "EXCEPT": 1, "MINUS": 1, "INTERSECT": 2}


class QueryParser(RelationParser):
    """Queries."""

    __slots__ = ()

    def query(self) -> Query:
        """Take a query, with its WITH, ORDER BY and LIMIT."""
        start = self.index
        if self.accept("WITH"):
            if self.at("RECURSIVE"):
                self.unsupported("WITH RECURSIVE")
            tables = self.listed(self._common_table)
            return WithQuery(tables, self._ordered(), position=self.span(start))
        return self._ordered()

    def _common_table(self) -> CommonTable:
        start = self.index
        name = self.name()
        columns = self.parenthesized(self.name) if self.at("(") else ()
        self.expect("AS")
        query = self.parenthesized_query()
        return CommonTable(name, columns, query, position=self.span(start))

    def _ordered(self) -> Query:
        start = self.index
        return self._order_and_limit(self._set_operation(self._term(), 0, start), start)

    def query_from(self, first: Query, start: int) -> Query:
        return self._order_and_limit(self._set_operation(first, 0, start), start)

    def _order_and_limit(self, query: Query, start: int) -> Query:
        order_by: tuple[SortItem, ...] = ()
        offset = limit = None
        if self.accept("ORDER"):
            self.expect("BY")
            order_by = self.order_by()
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
        return OrderedQuery(query, order_by, offset, limit, position=self.span(start))

    def _count(self) -> Expression:
        if self.at("?"):
            self.unsupported("a parameter (?)")
        if self.kinds[self.index] != NUMBER:
            self.fail_for(A_NUMBER)
        at = self.index
        number = self.literal()
        if not isinstance(number, Literal) or not isinstance(number.value, int):
            self.refuse_token(at, "a number of rows is a whole number")
        return number

    def _set_operation(self, left: Query, power: int, start: int) -> Query:
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
            operator = SetOperator(word)
            position = self.span(start)
            left = SetOperation(operator, quantifier == "ALL", left, right, position=position)

    def _term(self) -> Query:
        start = self.index
        if self.accept("SELECT"):
            return self._select(start)
        if self.at("("):
            return self.parenthesized_query()
        if self.accept("VALUES"):
            rows = self.listed(self._row)
            return Values(rows, position=self.span(start))
        if self.accept("TABLE"):
            return TableQuery(self.identifier(), position=self.span(start))
        return self.fail_for(A_QUERY)

    def _row(self) -> RowConstructor:
        start = self.index
        value = self.expression()
        if isinstance(value, RowConstructor):
            return value
        return RowConstructor((value,), position=self.span(start))

    # --- SELECT

    def _select(self, start: int) -> Select:
        hints = self.hints()
        if self.at("STREAM"):
            self.refuse("every query of a stream is continuous: leave out STREAM")
        distinct = self.accept_any("DISTINCT", "ALL") == "DISTINCT"
        items = self.listed(self._item)
        if not self.accept("FROM"):
            # As in Flink, nothing stands behind the items of a query without tables.
            return Select(items, distinct=distinct, hints=hints, position=self.span(start))
        source = self.from_clause()
        where = self.expression() if self.accept("WHERE") else None
        group_by = None
        if self.accept("GROUP"):
            self.expect("BY")
            group_by = self._group_by()
        having = self.expression() if self.accept("HAVING") else None
        windows = self.listed(self._named_window) if self.accept("WINDOW") else ()
        qualify = self.expression() if self.accept("QUALIFY") else None
        return Select(
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

    def _item(self) -> SelectItem:
        start = self.index
        if self.accept("*"):
            return SelectItem(Star(position=self.span(start)), position=self.span(start))
        end = start
        while self.at_name(end - start) and self.words[end + 1] == ".":
            end += 2
        if end > start and self.words[end] == "*" and self.kinds[end] == OPERATOR:
            return self._qualified_star(end)
        expression = self.expression()
        alias: Name | None = None
        if not self.at_name():
            alias = self.name() if self.accept("AS") else None
        else:
            self.suggest(_BEHIND_ITEMS)
            alias = self.name()
        return SelectItem(expression, alias, position=self.span(start))

    def _qualified_star(self, end: int) -> SelectItem:
        start = self.index
        parts = [self.name()]
        while self.index < end - 1:
            self.expect(".")
            parts.append(self.name())
        qualifier = Identifier(tuple(parts), position=self.span(start))
        self.expect(".", "*")
        star = Star(qualifier, position=self.span(start))
        return SelectItem(star, position=star.position)

    def _group_by(self) -> tuple[Expression | GroupingSet | GroupingSets, ...]:
        if self.at("DISTINCT"):
            self.unsupported("GROUP BY DISTINCT")
        self.accept("ALL")
        return self.listed(self._grouping_element)

    def _grouping_element(self) -> Expression | GroupingSet | GroupingSets:
        start = self.index
        if self.at("(", ")"):
            self.index += 2
            return GroupingSet((), position=self.span(start))
        sets = self._grouping_sets()
        if sets is not None:
            return sets
        element = self.expression()
        if isinstance(element, RowConstructor):
            return GroupingSet(element.fields, position=self.span(start))
        return element

    def _grouping_sets(self) -> GroupingSets | None:
        start = self.index
        if self.accept("GROUPING", "SETS"):
            elements = self.parenthesized(self._grouping_set)
            return GroupingSets(GroupingKind.SETS, elements, position=self.span(start))
        if word := self.accept_any("ROLLUP", "CUBE"):
            kind = GroupingKind(word)
            keys = self.parenthesized(self._rolled_up)
            return GroupingSets(kind, keys, position=self.span(start))
        return None

    def _grouping_set(self) -> GroupingSet | GroupingSets:
        element = self._grouping_element()
        if isinstance(element, GroupingSet | GroupingSets):
            return element
        return GroupingSet((element,), position=element.position)

    def _rolled_up(self) -> GroupingSet:
        start = self.index
        if self.at("(", ")"):
            self.refuse("ROLLUP and CUBE take keys: an empty set is theirs in any case")
        element = self.expression()
        if isinstance(element, RowConstructor):
            return GroupingSet(element.fields, position=self.span(start))
        return GroupingSet((element,), position=self.span(start))

    def _named_window(self) -> NamedWindow:
        start = self.index
        name = self.name()
        self.expect("AS")
        return NamedWindow(name, self.window(), position=self.span(start))
