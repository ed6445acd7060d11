"""Queries, relations and expressions to Flink's SQL: what views are kept as.

The text is canonical: names in backticks, built-in functions as written, one space between words,
on one line.  Parsed again it gives equal nodes.
"""

from __future__ import annotations

from functools import singledispatchmethod
from typing import TYPE_CHECKING, Final

from millstream.sql.parser import nodes as n
from millstream.sql.parser.expression_unparser import (
    ExpressionUnparser,
    identifier_text,
    name_text,
    names_text,
)
from millstream.sql.parser.tokens import quote

if TYPE_CHECKING:
    from collections.abc import Iterable


_SET_POWERS: Final = {
    n.SetOperator.UNION: 1,
    n.SetOperator.EXCEPT: 1,
    n.SetOperator.INTERSECT: 2,
}


def unparse(node: n.Query | n.Expression | n.Relation) -> str:
    """Return the canonical text of a query, an expression or a relation.

    Raises:
        TypeError: the node is none of the parser's.
    """
    if isinstance(node, n.Expression):
        return _UNPARSER.expression(node)
    return _UNPARSER.relation(node) if isinstance(node, n.Relation) else _UNPARSER.query(node)


class _QueryUnparser(ExpressionUnparser):
    """Queries and relations to text."""

    def query(self, query: n.Query) -> str:
        """The text of a query."""
        return self._query(query)

    @singledispatchmethod
    def _query(self, query: n.Query) -> str:
        message = f"no query of the parser's: {type(query).__name__}"
        raise TypeError(message)

    @_query.register
    def _of_select(self, query: n.Select) -> str:
        words = ["SELECT"]
        if query.hints:
            words.append(self.hints(query.hints))
        if query.distinct:
            words.append("DISTINCT")
        words.append(", ".join(map(self._item, query.items)))
        if query.source is not None:
            words.append(f"FROM {self.relation(query.source)}")
        if query.where is not None:
            words.append(f"WHERE {self.expression(query.where)}")
        if query.group_by is not None:
            words.append(f"GROUP BY {', '.join(map(self._grouping, query.group_by))}")
        if query.having is not None:
            words.append(f"HAVING {self.expression(query.having)}")
        if query.windows:
            windows = (
                f"{name_text(each.name)} AS {self.window(each.specification)}"
                for each in query.windows
            )
            words.append(f"WINDOW {', '.join(windows)}")
        if query.qualify is not None:
            words.append(f"QUALIFY {self.expression(query.qualify)}")
        return " ".join(words)

    def _item(self, item: n.SelectItem) -> str:
        text = self.expression(item.expression)
        return text if item.alias is None else f"{text} AS {name_text(item.alias)}"

    def _grouping(self, element: n.Expression | n.GroupingSet | n.GroupingSets) -> str:
        if isinstance(element, n.GroupingSet):
            keys = self.expressions(element.keys)
            return keys if len(element.keys) == 1 else f"({keys})"
        if isinstance(element, n.GroupingSets):
            return f"{element.kind} ({', '.join(map(self._grouping, element.elements))})"
        return self.expression(element)

    @_query.register
    def _of_set_operation(self, query: n.SetOperation) -> str:
        power = _SET_POWERS[query.operator]
        left, right = self._side(query.left, power), self._side(query.right, power + 1)
        return f"{left} {query.operator}{' ALL' if query.all else ''} {right}"

    def _side(self, query: n.Query, at_least: int) -> str:
        """One side of a set operation, in parentheses where it has to be."""
        loose = isinstance(query, n.SetOperation) and _SET_POWERS[query.operator] < at_least
        return self._enclosed(query, loose)

    def _enclosed(self, query: n.Query, loose: bool = False) -> str:  # noqa: FBT001, FBT002
        text = self.query(query)
        return f"({text})" if loose or isinstance(query, n.OrderedQuery | n.WithQuery) else text

    @_query.register
    def _of_values(self, query: n.Values) -> str:
        return f"VALUES {', '.join(map(self._row, query.rows))}"

    def _row(self, row: n.RowConstructor) -> str:
        nested = len(row.fields) == 1 and isinstance(row.fields[0], n.RowConstructor)
        return self.expression(row) if nested else f"({self.expressions(row.fields)})"

    @_query.register
    def _of_table_query(self, query: n.TableQuery) -> str:
        return f"TABLE {identifier_text(query.name)}"

    @_query.register
    def _of_ordered_query(self, query: n.OrderedQuery) -> str:
        text = self._enclosed(query.query)
        if query.order_by:
            text += f" ORDER BY {self.sort_items(query.order_by)}"
        if query.limit is not None:
            text += f" LIMIT {self.expression(query.limit)}"
        if query.offset is not None:
            text += f" OFFSET {self.expression(query.offset)}"
        return text

    @_query.register
    def _of_with_query(self, query: n.WithQuery) -> str:
        tables = ", ".join(map(self._common_table, query.tables))
        body = self.query(query.query)
        return f"WITH {tables} " + (f"({body})" if isinstance(query.query, n.WithQuery) else body)

    def _common_table(self, table: n.CommonTable) -> str:
        columns = f" {names_text(table.columns)}" if table.columns else ""
        return f"{name_text(table.name)}{columns} AS ({self.query(table.query)})"

    # --- FROM

    def relation(self, relation: n.Relation) -> str:
        """The text of a relation."""
        return self._relation(relation)

    @singledispatchmethod
    def _relation(self, relation: n.Relation) -> str:
        message = f"no relation of the parser's: {type(relation).__name__}"
        raise TypeError(message)

    @_relation.register
    def _of_table_reference(self, relation: n.TableReference) -> str:
        text = identifier_text(relation.name)
        if relation.hints:
            text += f" {self.hints(relation.hints)}"
        if relation.as_of is not None:
            text += f" FOR SYSTEM_TIME AS OF {self.expression(relation.as_of)}"
        return text

    @_relation.register
    def _of_derived_table(self, relation: n.DerivedTable) -> str:
        return f"{'LATERAL ' if relation.lateral else ''}({self.query(relation.query)})"

    @_relation.register
    def _of_table_function(self, relation: n.TableFunction) -> str:
        return f"{'LATERAL ' if relation.lateral else ''}TABLE({self.expression(relation.call)})"

    @_relation.register
    def _of_unnest(self, relation: n.Unnest) -> str:
        ordinality = " WITH ORDINALITY" if relation.with_ordinality else ""
        return f"UNNEST({self.expressions(relation.arguments)}){ordinality}"

    @_relation.register
    def _of_aliased_relation(self, relation: n.AliasedRelation) -> str:
        compound = isinstance(relation.relation, n.Join | n.AliasedRelation)
        text = f"{self._in_parentheses(relation.relation, compound)} AS {name_text(relation.alias)}"
        return f"{text} {names_text(relation.columns)}" if relation.columns else text

    def _in_parentheses(self, relation: n.Relation, needed: bool) -> str:  # noqa: FBT001
        text = self.relation(relation)
        return f"({text})" if needed else text

    @_relation.register
    def _of_join(self, relation: n.Join) -> str:
        comma = relation.kind is n.JoinKind.COMMA
        left, right = relation.left, relation.right
        left_comma = isinstance(left, n.Join) and left.kind is n.JoinKind.COMMA
        right_comma = isinstance(right, n.Join) and right.kind is n.JoinKind.COMMA
        text = self._in_parentheses(left, left_comma and not comma)
        if comma:
            return f"{text}, {self._in_parentheses(right, right_comma)}"
        natural = "NATURAL " if relation.natural else ""
        text += f" {natural}{relation.kind} JOIN "
        text += self._in_parentheses(right, isinstance(right, n.Join))
        if relation.condition is not None:
            text += f" ON {self.expression(relation.condition)}"
        return f"{text} USING {names_text(relation.using)}" if relation.using else text

    @_relation.register
    def _of_match_recognize(self, relation: n.MatchRecognize) -> str:
        text = self._in_parentheses(relation.relation, isinstance(relation.relation, n.Join))
        return f"{text} MATCH_RECOGNIZE ({' '.join(self._match_clauses(relation))})"

    def _match_clauses(self, match: n.MatchRecognize) -> Iterable[str]:
        if match.partition_by:
            yield f"PARTITION BY {self.expressions(match.partition_by)}"
        if match.order_by:
            yield f"ORDER BY {self.sort_items(match.order_by)}"
        if match.measures:
            measures = (
                f"{self.expression(each.expression)} AS {name_text(each.name)}"
                for each in match.measures
            )
            yield f"MEASURES {', '.join(measures)}"
        if match.all_rows is not None:
            yield "ALL ROWS PER MATCH" if match.all_rows else "ONE ROW PER MATCH"
        if match.after_match is not None:
            variable = match.after_match.variable
            to = "" if variable is None else f" {name_text(variable)}"
            yield f"AFTER MATCH SKIP {match.after_match.kind}{to}"
        start, end = "^ " * match.anchored_start, " $" * match.anchored_end
        yield f"PATTERN ({start}{self._pattern(match.pattern)}{end})"
        if match.within is not None:
            yield f"WITHIN {self.expression(match.within)}"
        if match.subsets:
            subsets = (
                f"{name_text(each.name)} = {names_text(each.variables)}" for each in match.subsets
            )
            yield f"SUBSET {', '.join(subsets)}"
        definitions = (
            f"{name_text(each.variable)} AS {self.expression(each.condition)}"
            for each in match.definitions
        )
        yield f"DEFINE {', '.join(definitions)}"

    def _pattern(self, node: n.PatternNode) -> str:
        match node:
            case n.PatternVariable():
                return name_text(node.name)
            case n.PatternSequence():
                return " ".join(map(self._pattern_part, node.parts))
            case n.PatternAlternatives():
                return " | ".join(
                    f"({self._pattern(each)})"
                    if isinstance(each, n.PatternAlternatives)
                    else self._pattern(each)
                    for each in node.alternatives
                )
            case n.PatternQuantifier():
                return f"{self._quantified(node.pattern)}{_quantifier(node)}"
            case n.PatternExclusion():
                return f"{{- {self._pattern(node.pattern)} -}}"
            case n.PatternPermutation():
                return f"PERMUTE({', '.join(map(self._pattern, node.patterns))})"
            case _:
                message = f"no pattern of the parser's: {type(node).__name__}"
                raise TypeError(message)

    def _pattern_part(self, node: n.PatternNode) -> str:
        text = self._pattern(node)
        compound = isinstance(node, n.PatternSequence | n.PatternAlternatives)
        return f"({text})" if compound else text

    def _quantified(self, node: n.PatternNode) -> str:
        text = self._pattern_part(node)
        return f"({text})" if isinstance(node, n.PatternQuantifier) else text

    def hints(self, hints: Iterable[n.Hint]) -> str:
        """``/*+ ... */``."""
        return f"/*+ {', '.join(map(_hint, hints))} */"


def _hint(hint: n.Hint) -> str:
    arguments = [quote(each) for each in hint.arguments]
    arguments += [f"{quote(key)} = {quote(value)}" for key, value in hint.options]
    return f"{hint.name}({', '.join(arguments)})" if arguments else hint.name


def _quantifier(node: n.PatternQuantifier) -> str:
    bounds = (node.minimum, node.maximum)
    signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    if bounds in signs:
        text = signs[bounds]
    elif node.minimum == node.maximum:
        text = f"{{{node.minimum}}}"
    else:
        text = f"{{{node.minimum},{'' if node.maximum is None else node.maximum}}}"
    return f"{text}?" if node.reluctant else text


_UNPARSER: Final = _QueryUnparser()
