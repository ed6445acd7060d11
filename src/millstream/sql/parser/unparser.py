"""Unparse queries, relations and expressions to Flink SQL, in which views are stored.

The text is canonical: quoted identifiers, built-in functions as written, one space between tokens,
on one line, and parentheses only where they are needed.  Parsed again it gives equal nodes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
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
from millstream.types import logical_types as lt
from millstream.types.type_roots import escape_identifier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


#: How tightly the outermost operator of a node binds that has no power below: as an atom.
_ATOM: Final = ACCESS_POWER + 1
#: Of expressions, of queries (UNION, EXCEPT: 1, INTERSECT: 2), of joins and of row patterns.
_POWERS: Final[dict[type, int]] = {
    n.IsPredicate: IS_POWER,
    n.IsJson: IS_POWER,
    n.IsDistinctFrom: COMPARISON_POWER,
    n.QuantifiedComparison: COMPARISON_POWER,
    n.PeriodPredicate: COMPARISON_POWER,
    n.InList: PREDICATE_POWER,
    n.InQuery: PREDICATE_POWER,
    n.Between: PREDICATE_POWER,
    n.Like: PREDICATE_POWER,
    n.WithQuery: -1,
    n.OrderedQuery: 0,
    n.AliasedRelation: 2,
    n.PatternAlternatives: 1,
    n.PatternSequence: 2,
    n.PatternQuantifier: 3,
}
#: Above all predicates: comparisons in one another stand in parentheses, for readers.
_OPERAND: Final = PREDICATE_POWER + 1
_LOOSEST: Final = min(_POWERS.values())

#: A field of a node in its syntax:
#:
#: - ``{field}``: its text; items of a tuple have commas between them, or what stands behind ``/``;
#: - ``{field@3}``: in parentheses where it binds less tightly; ``!`` stands for an operand;
#: - ``{before|field|after}``: with these texts around it, or nothing if it is None or empty;
#: - ``{yes?field:no}``: one of two texts, or neither if it is None.
_FIELD: Final = re.compile(
    r"\{(?:(?P<yes>[^{}?|]*)\?(?P<flag>\w+)(?::(?P<no>[^{}]*))?"
    r"|(?:(?P<before>[^{}|]*)\|)?(?P<field>\w+)(?P<power>!|@\d+)?(?:/(?P<between>[^{}|]*))?"
    r"(?:\|(?P<after>[^{}]*))?)\}"
)
_MATCH: Final = (
    "{relation@2} MATCH_RECOGNIZE ({PARTITION BY |partition_by| }{ORDER BY |order_by| }"
    "{MEASURES |measures| }{ALL ROWS PER MATCH ?all_rows:ONE ROW PER MATCH }"
    "{AFTER MATCH SKIP |after_match| }PATTERN ({^ ?anchored_start}{pattern}{ $?anchored_end}) "
    "{WITHIN |within| }{SUBSET |subsets| }DEFINE {definitions})"
)
#: The syntax of nodes; those with a function of their own are in ``_SPECIAL``.
_SYNTAX: Final[dict[type, str]] = {
    n.Identifier: "{parts/.}",
    n.Symbol: "{value}",
    n.IsPredicate: "{operand!} IS {NOT ?negated}{test}",
    n.IsDistinctFrom: "{left!} IS {NOT ?negated}DISTINCT FROM {right!}",
    n.IsJson: "{operand!} IS {NOT ?negated}JSON {kind}",
    n.Between: "{operand!} {NOT ?negated}BETWEEN {SYMMETRIC ?symmetric}{low!} AND {high!}",
    n.Like: "{operand!} {NOT ?negated}{SIMILAR TO?similar:LIKE} {pattern!}{ ESCAPE |escape!}",
    n.InList: "{operand!} {NOT ?negated}IN ({items})",
    n.InQuery: "{operand!} {NOT ?negated}IN ({query})",
    n.QuantifiedComparison: "{left!} {operator} {quantifier} ({right})",
    n.Exists: "EXISTS ({query})",
    n.ScalarQuery: "({query})",
    n.PeriodPredicate: "{left!} OVERLAPS {right!}",
    n.Case: "CASE{ |operand} {whens/ }{ ELSE |otherwise} END",
    n.WhenClause: "WHEN {condition} THEN {result}",
    n.Cast: "{TRY_CAST?safe:CAST}({operand} AS {type})",
    # --- composite values
    n.RowConstructor: "ROW({fields})",
    n.ArrayConstructor: "ARRAY[{elements}]",
    n.MapConstructor: "MAP[{entries}]",
    n.ElementAccess: f"{{operand@{ACCESS_POWER}}}[{{index}}]",
    n.Star: "{|qualifier|.}*",
    # --- calls
    n.NamedArgument: "{name} => {value}",
    n.DefaultArgument: "DEFAULT",
    n.Descriptor: "DESCRIPTOR({columns})",
    n.MatchSemantics: "{FINAL?final:RUNNING} {operand}",
    n.SortItem: "{expression}{ DESC?descending}{ NULLS FIRST?nulls_first: NULLS LAST}",
    n.WindowFrame: "{unit} BETWEEN {start} AND {end}",
    # --- JSON
    n.JsonBehavior: "{kind}{ |default}",
    n.JsonExists: "JSON_EXISTS({operand}, {path}{ |on_error| ON ERROR})",
    n.JsonValue: (
        "JSON_VALUE({operand}, {path}{ RETURNING |returning}"
        "{ |on_empty| ON EMPTY}{ |on_error| ON ERROR})"
    ),
    # --- queries
    n.Select: (
        "SELECT{ /*+ |hints| */}{ DISTINCT?distinct} {items}{ FROM |source}{ WHERE |where}"
        "{ GROUP BY |group_by}{ HAVING |having}{ WINDOW |windows}{ QUALIFY |qualify}"
    ),
    n.SelectItem: "{expression}{ AS |alias}",
    n.GroupingSets: "{kind} ({elements})",
    n.NamedWindow: "{name} AS {specification}",
    n.TableQuery: "TABLE {name}",
    n.OrderedQuery: "{query@1}{ ORDER BY |order_by}{ LIMIT |limit}{ OFFSET |offset}",
    n.WithQuery: "WITH {tables} {query@0}",
    n.CommonTable: "{name}{ (|columns|)} AS ({query})",
    # --- FROM
    n.TableReference: "{name}{ /*+ |hints| */}{ FOR SYSTEM_TIME AS OF |as_of}",
    n.DerivedTable: "{LATERAL ?lateral}({query})",
    n.TableFunction: "{LATERAL ?lateral}TABLE({call})",
    n.Unnest: "UNNEST({arguments}){ WITH ORDINALITY?with_ordinality}",
    n.AliasedRelation: "{relation@3} AS {alias}{ (|columns|)}",
    # --- MATCH_RECOGNIZE
    n.MatchRecognize: _MATCH,
    n.AfterMatch: "{kind}{ |variable}",
    n.Measure: "{expression} AS {name}",
    n.PatternSubset: "{name} = ({variables})",
    n.PatternDefinition: "{variable} AS {condition}",
    n.PatternVariable: "{name}",
    n.PatternSequence: "{parts@3/ }",
    n.PatternPermutation: "PERMUTE({patterns})",
}
_COMMA_JOIN: Final = "{left@0}, {right@1}"
_JOIN: Final = "{left@1}{ NATURAL?natural} {kind} JOIN {right@2}{ ON |condition}{ USING (|using|)}"


def unparse(node: n.Node, at_least: int = _LOOSEST) -> str:
    """Return the canonical text of a query, an expression or a relation.

    Args:
        node: The node.
        at_least: How tightly it has to bind not to stand in parentheses.

    Raises:
        TypeError: the node is none of the parser's.
    """
    text = _text(node)
    return f"({text})" if _power(node) < at_least else text


def _power(node: n.Node) -> int:
    """How tightly the outermost operator of a node binds."""
    match node:
        case n.BinaryOperation():
            return BINARY_POWERS[node.operator]
        case n.UnaryOperation():
            return NOT_POWER if node.operator == "NOT" else SIGN_POWER
        case n.Literal(value=int() | float() | Decimal() as value) if value < 0:
            return SIGN_POWER
        case n.SetOperation():
            return 2 if node.operator is n.SetOperator.INTERSECT else 1
        case n.Join():
            return 0 if node.kind is n.JoinKind.COMMA else 1
    return _POWERS.get(type(node), _ATOM)


def _text(node: n.Node) -> str:
    for kind in type(node).__mro__:
        if kind in _SPECIAL:
            return _SPECIAL[kind](node)
        if kind in _SYNTAX:
            return _filled(_SYNTAX[kind], node)
    message = f"no node of the parser's: {type(node).__name__}"
    raise TypeError(message)


def _filled(syntax: str, node: n.Node) -> str:
    """The syntax of a node with its fields."""
    made, end = [], 0
    for found in _FIELD.finditer(syntax):
        made += [syntax[end : found.start()], _field(node, found)]
        end = found.end()
    return "".join([*made, syntax[end:]])


def _field(node: n.Node, found: re.Match[str]) -> str:
    flag, power = found["flag"], found["power"]
    if flag:
        value = getattr(node, flag)
        return "" if value is None else found["yes"] if value else found["no"] or ""
    value = getattr(node, found["field"])
    if found["before"] is not None and value in (None, ()):
        return ""
    at_least = _LOOSEST if power is None else _OPERAND if power == "!" else int(power[1:])
    between = ", " if found["between"] is None else found["between"]
    return f"{found['before'] or ''}{_value(value, at_least, between)}{found['after'] or ''}"


def _value(value: Any, at_least: int = _LOOSEST, between: str = ", ") -> str:
    """A field, whose items have something between them."""
    if isinstance(value, tuple):
        return between.join([_value(each, at_least) for each in value])
    if isinstance(value, n.Node):
        return unparse(value, at_least)
    return _type_text(value) if isinstance(value, lt.LogicalType) else str(value)


# -- types and literals --------------------------------------------------------------------------

_DEFAULT_DIGITS: Final = 2
_DEFAULT_FRACTION: Final = 6
_MAX_INT: Final = 2**31 - 1


def _type_text(type_: lt.LogicalType) -> str:
    """A type as the parser reads it."""
    if isinstance(type_, lt.YearMonthIntervalType):
        return _interval_text(type_.units, type_.precision, _DEFAULT_FRACTION)
    if isinstance(type_, lt.DayTimeIntervalType):
        return _interval_text(type_.units, type_.day_precision, type_.fractional_precision)
    return type_.as_serializable_string()


def _interval_text(resolution: str, digits: int, fraction: int) -> str:
    first, _, last = resolution.partition(" TO ")
    if first == "SECOND":
        return f"INTERVAL SECOND({digits}, {fraction})"
    text = f"INTERVAL {first}" + (f"({digits})" if digits != _DEFAULT_DIGITS else "")
    text += f" TO {last}" if last else ""
    return text + (f"({fraction})" if last == "SECOND" and fraction != _DEFAULT_FRACTION else "")


def _literal(node: n.Literal) -> str:
    text, type_ = _LITERALS[type(node.value)](node.value), node.type
    if node.value is None and isinstance(type_, lt.BooleanType):
        return "UNKNOWN"
    return text if _is_natural(node.value, type_) else f"CAST({text} AS {_type_text(type_)})"


def _temporal_literal(node: n.TemporalLiteral) -> str:
    name = node.type.as_serializable_string().partition("(")[0].removesuffix(" NOT NULL")
    if name == "TIMESTAMP_LTZ":
        name = "TIMESTAMP WITH LOCAL TIME ZONE"
    return f"{name} {quote(node.text)}"


def _interval_literal(node: n.IntervalLiteral) -> str:
    sign, qualifier = "-" if node.negative else "", node.qualifier
    digits = [] if qualifier.precision is None else [str(qualifier.precision)]
    if qualifier.end is None and qualifier.fraction is not None:
        digits.append(str(qualifier.fraction))
    text = f"INTERVAL {sign}{quote(node.text)} {qualifier.start}"
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
_NATURAL: Final[dict[type, type[lt.LogicalType]]] = {
    type(None): lt.NullType,
    bool: lt.BooleanType,
    float: lt.DoubleType,
    Decimal: lt.DecimalType,
}


def _is_natural(value: object, type_: lt.LogicalType) -> bool:
    """Return whether the parser gives the text of this value this type."""
    if isinstance(value, str):
        return type_ == lt.CharType(len(value), nullable=False)
    if isinstance(value, bytes):
        return type_ == lt.BinaryType(len(value), nullable=False)
    if type(value) is int:
        small = abs(value) <= _MAX_INT
        return isinstance(type_, lt.IntType if small else lt.BigIntType)
    return isinstance(type_, _NATURAL[type(value)])


# -- nodes whose text depends on more than their fields ------------------------------------------

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
_CALL_CLAUSES: Final = (
    "{ IGNORE NULLS?ignore_nulls: RESPECT NULLS}{ WITHIN GROUP (ORDER BY |within_group|)}"
    "{ FILTER (WHERE |filter|)}{ OVER |over}"
)


def _unary_operation(node: n.UnaryOperation) -> str:
    if node.operator == "NOT":
        return f"NOT {unparse(node.operand, NOT_POWER)}"
    operand = unparse(node.operand, SIGN_POWER)
    return f"{node.operator}{' ' if operand[0] in '+-' else ''}{operand}"


def _binary_operation(node: n.BinaryOperation) -> str:
    # A long chain leans to the left: in a loop, it does not end at Python's stack.
    power = BINARY_POWERS[node.operator]
    inner = _OPERAND if power == COMPARISON_POWER else power
    rights: list[str] = []
    left: n.Expression = node
    while isinstance(left, n.BinaryOperation) and BINARY_POWERS[left.operator] == power:
        if rights and power == COMPARISON_POWER:
            break
        right = unparse(left.right, max(inner, power + 1))
        rights.append(f" {left.operator} {right}")
        left = left.left
    return unparse(left, inner) + "".join(reversed(rights))


def _field_access(node: n.FieldAccess) -> str:
    # A dot behind a name is part of the name, one behind a number is part of the number.
    alone = isinstance(node.operand, n.Identifier | n.Literal)
    return f"{unparse(node.operand, _ATOM + 1 if alone else ACCESS_POWER)}.{unparse(node.name)}"


def _function_call(node: n.FunctionCall) -> str:
    name = _function_name(node.name)
    if node.niladic and not node.arguments:
        return name
    inside = _form(name.upper(), node.arguments)
    if inside is None:
        inside = _filled("{arguments}{ ORDER BY |order_by}", node)
    return f"{name}({'DISTINCT ' if node.distinct else ''}{inside})" + _filled(_CALL_CLAUSES, node)


def _function_name(name: n.Identifier) -> str:
    first = name.parts[0]
    word = first.value.upper()
    callable_ = word not in RESERVED or word in RESERVED_FUNCTIONS or word in _BARE
    if len(name.parts) > 1 or first.quoted or not callable_:
        return unparse(name)
    return first.value if _PLAIN_NAME.fullmatch(first.value) else unparse(first)


def _form(name: str, arguments: Sequence[n.Expression]) -> str | None:
    """Return what stands in the parentheses of a function with a grammar of its own."""
    words = _FORM_WORDS.get(name)
    if name == "TRIM" and isinstance(arguments[0], n.Symbol):
        words = (" FROM ",) if len(arguments) == len(("BOTH", "x")) else (" ", " FROM ")
    elif name in {"CEIL", "FLOOR"} and isinstance(arguments[-1], n.Symbol):
        words = (" TO ",)
    if words is None:
        return None
    first = unparse(arguments[0], _OPERAND if name == "POSITION" else _LOOSEST)
    return first + "".join(map("".join, zip(words, map(unparse, arguments[1:]), strict=False)))


def _table_argument(node: n.TableArgument) -> str:
    table = "TABLE {table}" if isinstance(node.table, n.Identifier) else "({table})"
    return _filled(f"{table}{{ PARTITION BY (|partition_by|)}}{{ ORDER BY (|order_by|)}}", node)


def _json_query(node: n.JsonQuery) -> str:
    if node.wrapper and not node.wrapper.startswith("WITH"):
        node = replace(node, wrapper=f"WITH {node.wrapper}")
    syntax = "JSON_QUERY({operand}, {path}{ RETURNING |returning}{ |wrapper| ARRAY WRAPPER}"
    return _filled(syntax + "{ |on_empty| ON EMPTY}{ |on_error| ON ERROR})", node)


def _json_object(node: n.JsonObject) -> str:
    entries = [f"KEY {unparse(key)} VALUE {unparse(value)}" for key, value in node.entries]
    return _json_constructor("JSON_OBJECT", node, ", ".join(entries))


def _json_array(node: n.JsonArray) -> str:
    return _json_constructor("JSON_ARRAY", node, _filled("{elements}{ ORDER BY |order_by}", node))


def _json_constructor(name: str, node: n.JsonObject | n.JsonArray, inside: str) -> str:
    inside += _filled("{ ABSENT ON NULL?absent_on_null: NULL ON NULL}", node)
    return f"{name}{'AGG' if node.aggregate else ''}({inside.strip()})"


def _window(node: n.WindowSpecification) -> str:
    inside = _filled("{|base}{ PARTITION BY |partition_by}{ ORDER BY |order_by}{ |frame}", node)
    return f"({inside.strip()})"


def _bound(node: n.FrameBound) -> str:
    if node.direction == "CURRENT ROW":
        return node.direction
    return f"{'UNBOUNDED' if node.offset is None else unparse(node.offset)} {node.direction}"


def _grouping_set(node: n.GroupingSet) -> str:
    return _value(node.keys) if len(node.keys) == 1 else f"({_value(node.keys)})"


def _set_operation(node: n.SetOperation) -> str:
    power = _power(node)
    return _filled(f"{{left@{power}}} {{operator}}{{ ALL?all}} {{right@{power + 1}}}", node)


def _values(node: n.Values) -> str:
    def row(each: n.RowConstructor) -> str:
        nested = len(each.fields) == 1 and isinstance(each.fields[0], n.RowConstructor)
        return unparse(each) if nested else f"({_value(each.fields)})"

    return f"VALUES {', '.join(map(row, node.rows))}"


def _hint(node: n.Hint) -> str:
    arguments = [quote(each) for each in node.arguments]
    arguments += [f"{quote(key)} = {quote(value)}" for key, value in node.options]
    return f"{node.name}({', '.join(arguments)})" if arguments else node.name


def _quantifier(node: n.PatternQuantifier) -> str:
    bounds = (node.minimum, node.maximum)
    text = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get(bounds)
    if text is None and node.minimum == node.maximum:
        text = f"{{{node.minimum}}}"
    elif text is None:
        text = f"{{{node.minimum},{'' if node.maximum is None else node.maximum}}}"
    return f"{unparse(node.pattern, 4)}{text}{'?' if node.reluctant else ''}"


_SPECIAL: Final[dict[type, Callable[[Any], str]]] = {
    n.Name: lambda node: escape_identifier(node.value),
    n.Literal: _literal,
    n.TemporalLiteral: _temporal_literal,
    n.IntervalLiteral: _interval_literal,
    n.UnaryOperation: _unary_operation,
    n.BinaryOperation: _binary_operation,
    n.FieldAccess: _field_access,
    n.FunctionCall: _function_call,
    n.TableArgument: _table_argument,
    n.JsonQuery: _json_query,
    n.JsonObject: _json_object,
    n.JsonArray: _json_array,
    n.WindowSpecification: _window,
    n.FrameBound: _bound,
    n.GroupingSet: _grouping_set,
    n.SetOperation: _set_operation,
    n.Values: _values,
    n.Hint: _hint,
    n.Join: lambda node: _filled(_COMMA_JOIN if node.kind is n.JoinKind.COMMA else _JOIN, node),
    n.PatternAlternatives: lambda node: _value(node.alternatives, 2, " | "),
    n.PatternExclusion: lambda node: f"{{- {unparse(node.pattern)} -}}",
    n.PatternQuantifier: _quantifier,
}
