"""Unparse queries, relations and expressions to Flink SQL, in which views are stored.

The text is canonical: quoted identifiers, built-in functions as written, one space between tokens,
on one line, and parentheses only where they are needed.  Parsed again it gives equal nodes.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from decimal import Decimal
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any, Final

from millstream.sql.parser import nodes as n
from millstream.sql.parser.expression_parser import (
    ACCESS_POWER,
    BINARY_POWERS,
    COMPARISON_POWER,
    IS_POWER,
    NOT_POWER,
    PREDICATE_POWER,
    SIGN_POWER,
)
from millstream.sql.parser.tokens import RESERVED, RESERVED_FUNCTIONS, quote
from millstream.types.logical_types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntType,
    LogicalType,
    NullType,
    YearMonthIntervalType,
    escape_identifier,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


#: Above all predicates: comparisons in one another stand in parentheses, for readers.
_OPERAND: Final = PREDICATE_POWER + 1
_ATOM: Final = ACCESS_POWER + 1
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEFAULT_DIGITS: Final = 2
_DEFAULT_FRACTION: Final = 6
_MAX_INT: Final = 2**31 - 1


def type_text(type_: LogicalType) -> str:
    """A type as the parser reads it."""
    if isinstance(type_, YearMonthIntervalType):
        return _interval_text(type_.units, type_.precision, _DEFAULT_FRACTION)
    if isinstance(type_, DayTimeIntervalType):
        return _interval_text(type_.units, type_.day_precision, type_.fractional_precision)
    return type_.as_serializable_string()


def _interval_text(resolution: str, digits: int, fraction: int) -> str:
    first, _, last = resolution.partition(" TO ")
    if first == "SECOND":
        return f"INTERVAL SECOND({digits}, {fraction})"
    text = f"INTERVAL {first}" + (f"({digits})" if digits != _DEFAULT_DIGITS else "")
    text += f" TO {last}" if last else ""
    return text + (f"({fraction})" if last == "SECOND" and fraction != _DEFAULT_FRACTION else "")


def name_text(name: n.Name) -> str:
    """A name in backticks."""
    return escape_identifier(name.value)


def names_text(names: Iterable[n.Name]) -> str:
    """Names in parentheses."""
    return f"({', '.join(map(name_text, names))})"


def identifier_text(identifier: n.Identifier) -> str:
    """A name of several parts, each in backticks."""
    return ".".join(map(name_text, identifier.parts))


def _power(node: n.Expression) -> int:
    """How tightly the outermost operator of an expression binds."""
    if isinstance(node, n.BinaryOperation):
        return BINARY_POWERS[node.operator]
    if isinstance(node, n.UnaryOperation):
        return NOT_POWER if node.operator == "NOT" else SIGN_POWER
    if isinstance(node, n.Literal) and isinstance(node.value, int | float | Decimal):
        return SIGN_POWER if node.value < 0 else _ATOM
    return _PREDICATES.get(type(node), _ATOM)


_PREDICATES: Final[dict[type[n.Expression], int]] = {
    n.IsPredicate: IS_POWER,
    n.IsJson: IS_POWER,
    n.IsDistinctFrom: COMPARISON_POWER,
    n.QuantifiedComparison: COMPARISON_POWER,
    n.PeriodPredicate: COMPARISON_POWER,
    n.InList: PREDICATE_POWER,
    n.InQuery: PREDICATE_POWER,
    n.Between: PREDICATE_POWER,
    n.Like: PREDICATE_POWER,
}


class ExpressionUnparser(ABC):
    """Expressions to text; queries by those above it."""

    @abstractmethod
    def query(self, query: n.Query) -> str:
        """The text of a query."""

    def expression(self, node: n.Expression, at_least: int = 0) -> str:
        """The text of an expression.

        Args:
            node: The expression.
            at_least: How tightly it has to bind not to stand in parentheses.
        """
        text = self._text(node)
        return f"({text})" if _power(node) < at_least else text

    def expressions(self, nodes: Iterable[n.Expression]) -> str:
        """Texts with commas between them."""
        return ", ".join(map(self.expression, nodes))

    @singledispatchmethod
    def _text(self, node: n.Expression) -> str:
        message = f"no expression of the parser's: {type(node).__name__}"
        raise TypeError(message)

    @_text.register
    def _of_identifier(self, node: n.Identifier) -> str:
        return identifier_text(node)

    @_text.register
    def _of_literal(self, node: n.Literal) -> str:
        text, type_ = _LITERALS[type(node.value)](node.value), node.type
        if node.value is None and isinstance(type_, BooleanType):
            return "UNKNOWN"
        return text if _is_natural(node.value, type_) else f"CAST({text} AS {type_text(type_)})"

    @_text.register
    def _of_temporal_literal(self, node: n.TemporalLiteral) -> str:
        name = node.type.as_serializable_string().partition("(")[0].removesuffix(" NOT NULL")
        if name == "TIMESTAMP_LTZ":
            name = "TIMESTAMP WITH LOCAL TIME ZONE"
        return f"{name} {quote(node.text)}"

    @_text.register
    def _of_interval_literal(self, node: n.IntervalLiteral) -> str:
        sign = "-" if node.negative else ""
        return f"INTERVAL {sign}{quote(node.text)} {_qualifier_text(node.qualifier)}"

    @_text.register
    def _of_symbol(self, node: n.Symbol) -> str:
        return node.value

    # --- operators

    @_text.register
    def _of_unary_operation(self, node: n.UnaryOperation) -> str:
        if node.operator == "NOT":
            return f"NOT {self.expression(node.operand, NOT_POWER)}"
        operand = self.expression(node.operand, SIGN_POWER)
        return f"{node.operator}{' ' if operand[0] in '+-' else ''}{operand}"

    @_text.register
    def _of_binary_operation(self, node: n.BinaryOperation) -> str:
        # A long chain leans to the left: in a loop, it does not end at Python's stack.
        power = BINARY_POWERS[node.operator]
        inner = _OPERAND if power == COMPARISON_POWER else power
        rights: list[str] = []
        left: n.Expression = node
        while isinstance(left, n.BinaryOperation) and BINARY_POWERS[left.operator] == power:
            if rights and power == COMPARISON_POWER:
                break
            right = self.expression(left.right, max(inner, power + 1))
            rights.append(f" {left.operator} {right}")
            left = left.left
        return self.expression(left, inner) + "".join(reversed(rights))

    @_text.register
    def _of_is_predicate(self, node: n.IsPredicate) -> str:
        return f"{self.expression(node.operand, _OPERAND)} IS {_not(node.negated)}{node.test}"

    @_text.register
    def _of_is_distinct_from(self, node: n.IsDistinctFrom) -> str:
        left, right = self._operand(node.left), self._operand(node.right)
        return f"{left} IS {_not(node.negated)}DISTINCT FROM {right}"

    @_text.register
    def _of_is_json(self, node: n.IsJson) -> str:
        return f"{self._operand(node.operand)} IS {_not(node.negated)}JSON {node.kind}"

    @_text.register
    def _of_between(self, node: n.Between) -> str:
        word = "BETWEEN SYMMETRIC" if node.symmetric else "BETWEEN"
        low, high = self._operand(node.low), self._operand(node.high)
        return f"{self._operand(node.operand)} {_not(node.negated)}{word} {low} AND {high}"

    @_text.register
    def _of_like(self, node: n.Like) -> str:
        word = "SIMILAR TO" if node.similar else "LIKE"
        text = f"{self._operand(node.operand)} {_not(node.negated)}{word} "
        text += self._operand(node.pattern)
        return text if node.escape is None else f"{text} ESCAPE {self._operand(node.escape)}"

    @_text.register
    def _of_in_list(self, node: n.InList) -> str:
        items = self.expressions(node.items)
        return f"{self._operand(node.operand)} {_not(node.negated)}IN ({items})"

    @_text.register
    def _of_in_query(self, node: n.InQuery) -> str:
        query = self.query(node.query)
        return f"{self._operand(node.operand)} {_not(node.negated)}IN ({query})"

    @_text.register
    def _of_quantified_comparison(self, node: n.QuantifiedComparison) -> str:
        right = node.right
        inside = self.query(right) if isinstance(right, n.Query) else self.expressions(right)
        return f"{self._operand(node.left)} {node.operator} {node.quantifier} ({inside})"

    @_text.register
    def _of_exists(self, node: n.Exists) -> str:
        return f"EXISTS ({self.query(node.query)})"

    @_text.register
    def _of_scalar_query(self, node: n.ScalarQuery) -> str:
        return f"({self.query(node.query)})"

    @_text.register
    def _of_period_predicate(self, node: n.PeriodPredicate) -> str:
        return f"{self._operand(node.left)} OVERLAPS {self._operand(node.right)}"

    @_text.register
    def _of_case(self, node: n.Case) -> str:
        text = "CASE" if node.operand is None else f"CASE {self.expression(node.operand)}"
        for when in node.whens:
            condition = self.expression(when.condition)
            text += f" WHEN {condition} THEN {self.expression(when.result)}"
        if node.otherwise is not None:
            text += f" ELSE {self.expression(node.otherwise)}"
        return f"{text} END"

    @_text.register
    def _of_cast(self, node: n.Cast) -> str:
        word = "TRY_CAST" if node.safe else "CAST"
        return f"{word}({self.expression(node.operand)} AS {type_text(node.type)})"

    # --- composite values

    @_text.register
    def _of_row_constructor(self, node: n.RowConstructor) -> str:
        return f"ROW({self.expressions(node.fields)})"

    @_text.register
    def _of_array_constructor(self, node: n.ArrayConstructor) -> str:
        return f"ARRAY[{self.expressions(node.elements)}]"

    @_text.register
    def _of_map_constructor(self, node: n.MapConstructor) -> str:
        return f"MAP[{self.expressions(each for entry in node.entries for each in entry)}]"

    @_text.register
    def _of_element_access(self, node: n.ElementAccess) -> str:
        return f"{self.expression(node.operand, ACCESS_POWER)}[{self.expression(node.index)}]"

    @_text.register
    def _of_field_access(self, node: n.FieldAccess) -> str:
        # A dot behind a name is part of the name, one behind a number is part of the number.
        alone = isinstance(node.operand, n.Identifier | n.Literal)
        operand = self.expression(node.operand, _ATOM + 1 if alone else ACCESS_POWER)
        return f"{operand}.{name_text(node.name)}"

    @_text.register
    def _of_star(self, node: n.Star) -> str:
        return "*" if node.qualifier is None else f"{identifier_text(node.qualifier)}.*"

    # --- calls

    @_text.register
    def _of_function_call(self, node: n.FunctionCall) -> str:
        name = self._function_name(node.name)
        if node.niladic and not node.arguments:
            return name
        inside = self._form(name.upper(), node.arguments)
        if inside is None:
            inside = self.expressions(node.arguments)
            if node.order_by:
                inside += f" ORDER BY {self.sort_items(node.order_by)}"
        text = f"{name}({'DISTINCT ' if node.distinct else ''}{inside})"
        if node.ignore_nulls is not None:
            text += " IGNORE NULLS" if node.ignore_nulls else " RESPECT NULLS"
        if node.within_group:
            text += f" WITHIN GROUP (ORDER BY {self.sort_items(node.within_group)})"
        return text + self._filter_and_over(node.filter, node.over)

    def _filter_and_over(
        self, condition: n.Expression | None, over: n.WindowSpecification | n.Name | None
    ) -> str:
        text = "" if condition is None else f" FILTER (WHERE {self.expression(condition)})"
        if isinstance(over, n.Name):
            return f"{text} OVER {name_text(over)}"
        return text if over is None else f"{text} OVER {self.window(over)}"

    @staticmethod
    def _function_name(name: n.Identifier) -> str:
        first = name.parts[0]
        word = first.value.upper()
        callable_ = word not in RESERVED or word in RESERVED_FUNCTIONS or word in _BARE
        if len(name.parts) > 1 or first.quoted or not callable_:
            return identifier_text(name)
        return first.value if _PLAIN_NAME.fullmatch(first.value) else name_text(first)

    def _form(self, name: str, arguments: Sequence[n.Expression]) -> str | None:
        """What stands in the parentheses of a function with a grammar of its own."""
        texts = [self.expression(argument) for argument in arguments]
        words = _FORM_WORDS.get(name)
        if name == "POSITION":
            texts[0] = self._operand(arguments[0])
        elif name == "TRIM" and isinstance(arguments[0], n.Symbol):
            words = (" FROM ",) if len(texts) == len(("BOTH", "x")) else (" ", " FROM ")
        elif name in {"CEIL", "FLOOR"} and isinstance(arguments[-1], n.Symbol):
            words = (" TO ",)
        if words is None:
            return None
        return texts[0] + "".join(map("".join, zip(words, texts[1:], strict=False)))

    @_text.register
    def _of_named_argument(self, node: n.NamedArgument) -> str:
        return f"{name_text(node.name)} => {self.expression(node.value)}"

    @_text.register
    def _of_default_argument(self, _node: n.DefaultArgument) -> str:
        return "DEFAULT"

    @_text.register
    def _of_descriptor(self, node: n.Descriptor) -> str:
        return f"DESCRIPTOR{names_text(node.columns)}"

    @_text.register
    def _of_table_argument(self, node: n.TableArgument) -> str:
        table = node.table
        text = (
            f"TABLE {identifier_text(table)}"
            if isinstance(table, n.Identifier)
            else f"({self.query(table)})"
        )
        if node.partition_by:
            text += f" PARTITION BY ({self.expressions(node.partition_by)})"
        if node.order_by:
            text += f" ORDER BY ({self.sort_items(node.order_by)})"
        return text

    @_text.register
    def _of_match_semantics(self, node: n.MatchSemantics) -> str:
        return f"{'FINAL' if node.final else 'RUNNING'} {self.expression(node.operand)}"

    # --- JSON

    @_text.register
    def _of_json_exists(self, node: n.JsonExists) -> str:
        return f"JSON_EXISTS({self._path(node)}{self._behavior(node.on_error, 'ERROR')})"

    @_text.register
    def _of_json_value(self, node: n.JsonValue) -> str:
        returning = f" RETURNING {type_text(node.returning)}" if node.returning else ""
        events = self._behavior(node.on_empty, "EMPTY") + self._behavior(node.on_error, "ERROR")
        return f"JSON_VALUE({self._path(node)}{returning}{events})"

    @_text.register
    def _of_json_query(self, node: n.JsonQuery) -> str:
        text = self._path(node)
        text += f" RETURNING {type_text(node.returning)}" if node.returning else ""
        if node.wrapper:
            with_ = "" if node.wrapper == "WITHOUT" else "WITH "
            text += f" {with_}{node.wrapper} ARRAY WRAPPER"
        text += self._behavior(node.on_empty, "EMPTY") + self._behavior(node.on_error, "ERROR")
        return f"JSON_QUERY({text})"

    def _path(self, node: n.JsonExists | n.JsonValue | n.JsonQuery) -> str:
        return f"{self.expression(node.operand)}, {self.expression(node.path)}"

    def _behavior(self, behavior: n.JsonBehavior | None, event: str) -> str:
        if behavior is None:
            return ""
        default = "" if behavior.default is None else f" {self.expression(behavior.default)}"
        return f" {behavior.kind}{default} ON {event}"

    @_text.register
    def _of_json_object(self, node: n.JsonObject) -> str:
        entries = ", ".join(
            f"KEY {self.expression(key)} VALUE {self.expression(value)}"
            for key, value in node.entries
        )
        name = "JSON_OBJECTAGG" if node.aggregate else "JSON_OBJECT"
        return f"{name}({(entries + _on_null(node.absent_on_null)).strip()})"

    @_text.register
    def _of_json_array(self, node: n.JsonArray) -> str:
        elements = self.expressions(node.elements)
        if node.order_by:
            elements += f" ORDER BY {self.sort_items(node.order_by)}"
        name = "JSON_ARRAYAGG" if node.aggregate else "JSON_ARRAY"
        return f"{name}({(elements + _on_null(node.absent_on_null)).strip()})"

    # --- ORDER BY and windows

    def sort_items(self, items: Iterable[n.SortItem]) -> str:
        """What stands behind ORDER BY."""
        return ", ".join(map(self._sort_item, items))

    def _sort_item(self, item: n.SortItem) -> str:
        text = self.expression(item.expression) + (" DESC" if item.descending else "")
        if item.nulls_first is None:
            return text
        return f"{text} NULLS {'FIRST' if item.nulls_first else 'LAST'}"

    def window(self, window: n.WindowSpecification) -> str:
        """What stands behind OVER, with its parentheses."""
        parts = [] if window.base is None else [name_text(window.base)]
        if window.partition_by:
            parts.append(f"PARTITION BY {self.expressions(window.partition_by)}")
        if window.order_by:
            parts.append(f"ORDER BY {self.sort_items(window.order_by)}")
        if window.frame is not None:
            start, end = self._bound(window.frame.start), self._bound(window.frame.end)
            parts.append(f"{window.frame.unit} BETWEEN {start} AND {end}")
        return f"({' '.join(parts)})"

    def _bound(self, bound: n.FrameBound) -> str:
        if bound.direction == "CURRENT ROW":
            return bound.direction
        offset = "UNBOUNDED" if bound.offset is None else self.expression(bound.offset)
        return f"{offset} {bound.direction}"

    def _operand(self, node: n.Expression) -> str:
        return self.expression(node, _OPERAND)


#: Functions with words between their arguments.
_FORM_WORDS: Final = {
    "EXTRACT": (" FROM ",),
    "POSITION": (" IN ", " FROM "),
    "OVERLAY": (" PLACING ", " FROM ", " FOR "),
}
#: Reserved words that are functions by a grammar of their own, or where rows are matched.
_BARE: Final = frozenset(
    """
    EXTRACT TRIM SUBSTRING OVERLAY POSITION CEIL TRANSLATE PREV NEXT MATCH_NUMBER CLASSIFIER
    CURRENT_CATALOG CURRENT_USER SESSION_USER SYSTEM_USER
    """.split()  # noqa: SIM905 - in groups
)


def _not(negated: bool) -> str:  # noqa: FBT001
    return "NOT " if negated else ""


def _on_null(absent: bool | None) -> str:  # noqa: FBT001
    return "" if absent is None else f" {'ABSENT' if absent else 'NULL'} ON NULL"


def _qualifier_text(qualifier: n.IntervalQualifier) -> str:
    text = qualifier.start.value
    digits = [] if qualifier.precision is None else [str(qualifier.precision)]
    if qualifier.end is None and qualifier.fraction is not None:
        digits.append(str(qualifier.fraction))
    text += f"({', '.join(digits)})" if digits else ""
    if qualifier.end is not None:
        text += f" TO {qualifier.end}"
        text += "" if qualifier.fraction is None else f"({qualifier.fraction})"
    return text


def _float_text(value: float) -> str:
    text = repr(value)
    return text if "e" in text else f"{text}E0"


#: Type of a value -> its text.
_LITERALS: Final[dict[type, Callable[[Any], str]]] = {
    type(None): lambda _: "NULL",
    bool: lambda value: "TRUE" if value else "FALSE",
    int: str,
    Decimal: lambda value: format(value, "f"),
    float: _float_text,
    str: quote,
    bytes: lambda value: f"X'{value.hex().upper()}'",
}
#: Type of a value -> the type that the parser gives its text, whatever the value.
_NATURAL: Final[dict[type, type[LogicalType]]] = {
    type(None): NullType,
    bool: BooleanType,
    float: DoubleType,
    Decimal: DecimalType,
}


def _is_natural(value: object, type_: LogicalType) -> bool:
    """Whether the parser gives the text of this value this type."""
    if isinstance(value, str):
        return type_ == CharType(len(value), nullable=False)
    if isinstance(value, bytes):
        return type_ == BinaryType(len(value), nullable=False)
    if type(value) is int:
        small = abs(value) <= _MAX_INT
        return isinstance(type_, IntType if small else BigIntType)
    return isinstance(type_, _NATURAL[type(value)])


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
