"""Bind expressions: resolve columns and functions, and report errors with their position.

Aggregates, OVER calls and sub-queries need a plan, so subclasses bind them through hooks.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration.flink_options import say_once
from millstream.errors import MillstreamError, ProgramError, ValidationError
from millstream.expressions.decimals import EXACT
from millstream.expressions.nodes import Literal
from millstream.expressions.resolution import json_string, resolve_definition
from millstream.expressions.user_functions import user_aggregate
from millstream.sql.binder import calls
from millstream.sql.binder.calls import (
    OPERATOR_FUNCTIONS,
    OVER_ONLY,
    InlineCall,
    InlineOperation,
    called,
)
from millstream.sql.binder.scope import NameProblem
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import SOURCE_WATERMARK
from millstream.types import logical_types as lt
from millstream.types.type_derivation import common_type
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.expressions.nodes import Call, Expression
    from millstream.sql.binder.scope import BindingContext, Scope
    from millstream.sql.catalog.objects import CatalogFunction
    from millstream.sql.parser.nodes import IntervalLiteral, Node, TemporalLiteral


_TEMPORAL: Final = re.compile(
    r"(?:(?P<date>\d{1,4}-\d{1,2}-\d{1,2}))?[ T]?"
    r"(?:(?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})(?:\.(?P<fraction>\d{0,9}))?)?"
)
_EPOCH: Final = dt.date(1970, 1, 1)
_SECOND: Final = 1_000_000_000
_DIGITS: Final = 9


def temporal_literal(node: TemporalLiteral) -> Literal:
    """DATE, TIME or TIMESTAMP.

    Raises:
        ValueError: there is no such day or time.
    """
    found = _TEMPORAL.fullmatch(node.text.strip())
    if found is None:
        message = f"'{node.text}' is no {node.type.as_summary_string()}"
        raise ValueError(message)
    days = 0
    if found["date"]:
        year, month, day = map(int, found["date"].split("-"))
        days = (dt.date(year, month, day) - _EPOCH).days
    nanos = 0
    if found["hour"]:
        clock = dt.time(int(found["hour"]), int(found["minute"]), int(found["second"]))
        seconds = clock.hour * 3600 + clock.minute * 60 + clock.second
        nanos = seconds * _SECOND + int((found["fraction"] or "").ljust(_DIGITS, "0")[:_DIGITS])
    if isinstance(node.type, lt.DateType):
        return Literal(days, node.type)
    if isinstance(node.type, lt.TimeType):
        return Literal(nanos, node.type)
    return Literal(days * 86_400 * _SECOND + nanos, node.type)


def typed_literal(literal: Literal, kind: lt.LogicalType) -> Literal | None:
    """A literal as one of another type, without a cast; None if its value would be another."""
    value, root = literal.value, kind.root
    if value is None:
        return Literal(None, kind)
    wanted = kind.with_nullability(False)  # noqa: FBT003
    families = TypeFamily.CHARACTER_STRING, TypeFamily.TIMESTAMP, TypeFamily.INTEGER_NUMERIC
    same_form = any(literal.type.is_a(each) and kind.is_a(each) for each in families)
    if same_form and root is not TypeRoot.CHAR:
        return Literal(value, wanted)
    if isinstance(kind, lt.DecimalType) and isinstance(value, int | Decimal):
        step = Decimal(1).scaleb(-kind.scale)
        return Literal(Decimal(value).quantize(step, context=EXACT), wanted)
    if root is TypeRoot.DOUBLE and isinstance(value, int | float | Decimal):
        return Literal(float(value), wanted)
    return None


def interval_literal(node: IntervalLiteral) -> Literal:
    """INTERVAL: months, or milliseconds."""
    qualifier = node.qualifier
    units = [qualifier.start.value, *([qualifier.end.value] if qualifier.end else [])]
    if qualifier.is_year_month:
        units = ["MONTH" if unit == "QUARTER" else unit for unit in units]
        months = lt.YearMonthIntervalType(
            " TO ".join(units), qualifier.precision or 4, nullable=False
        )
        return Literal(node.value, months)
    units = ["DAY" if unit == "WEEK" else unit for unit in units]
    fraction = 3 if qualifier.fraction is None else qualifier.fraction
    kind = lt.DayTimeIntervalType(
        " TO ".join(units), min(qualifier.precision or 6, 6), fraction, nullable=False
    )
    return Literal(node.value, kind)


#: The type of 9223372036854775808.
_NINETEEN_DIGITS: Final = lt.DecimalType(19, 0, nullable=False)


def is_time_attribute(kind: object) -> bool:
    """Return whether a type is that of an event time or processing time attribute."""
    return bool(getattr(kind, "is_time_attribute", False))


class ExpressionBinder:
    """Binds expressions over one scope."""

    def __init__(self, context: BindingContext, scope: Scope) -> None:
        self.context = context
        self.scope = scope

    def bind(self, node: Node) -> Expression:
        """The bound expression of a node.

        Raises:
            ValidationError: a name is unknown, types do not fit, or it cannot stand here.
        """
        handler = _HANDLERS.get(type(node))
        if handler is None:
            what = type(node).__name__
            raise self.context.error(node, f"{what} cannot stand here as a value.")
        try:
            return handler(self, node)
        except NameProblem as problem:
            raise self.context.error(node, str(problem)) from None

    def bind_all(self, found: Sequence[Node]) -> list[Expression]:
        """Several."""
        return [self.bind(node) for node in found]

    def condition(self, node: Node) -> Expression:
        """A BOOLEAN expression, as of WHERE.

        Raises:
            ValidationError: it is of another type.
        """
        found = self.bind(node)
        if found.type.root is TypeRoot.NULL:
            return Literal(None, lt.BooleanType())
        if found.type.root is not TypeRoot.BOOLEAN:
            shown = found.type.as_summary_string()
            message = f"A condition must be BOOLEAN; this is {shown}."
            raise self.context.error(node, message)
        return found

    def call(self, node: Node | None, function: str, *arguments: Expression) -> Expression:
        """A call of a built-in function.

        Raises:
            ValidationError: the arguments do not fit; lists the signatures that exist.
        """
        try:
            return calls.resolve(function, arguments)
        except ValidationError as error:
            raise self.context.error(node, str(error)) from error
        except MillstreamError as error:
            raise self.context.error(node, str(error)) from error

    # -- hooks -----------------------------------------------------------------------------------

    def aggregate(self, node: nodes.FunctionCall) -> Expression:
        """An aggregate call where none can stand."""
        message = f"Aggregate {called(node)} cannot stand here."
        raise self.context.error(node, message)

    def json_aggregate(self, node: Any) -> Expression:
        """JSON_ARRAYAGG or JSON_OBJECTAGG where none can stand."""
        name = "JSON_ARRAYAGG" if isinstance(node, nodes.JsonArray) else "JSON_OBJECTAGG"
        raise self.context.error(node, f"Aggregate {name} cannot stand here.")

    def special(self, node: nodes.FunctionCall) -> Expression | None:
        """A call that has a meaning only here; None: it is an ordinary one."""
        if node.name.last.upper() == "CURRENT_DATABASE" and not node.arguments:
            # The session knows it, so a query sees it as a constant.
            database = self.context.catalogs.current_database
            return Literal(database, lt.VarCharType(nullable=database is None))
        if node.name.last.upper() == SOURCE_WATERMARK:
            message = (
                "SOURCE_WATERMARK() is a declarative marker function and doesn't have concrete "
                "runtime implementation. It can only be used as a single expression in a WATERMARK "
                "FOR clause, or in Schema.watermark()."
            )
            raise self.context.error(node, message)
        return None

    def over(self, node: nodes.FunctionCall) -> Expression:
        """An OVER call where none can stand."""
        message = "A function with OVER can stand only in SELECT, ORDER BY and QUALIFY."
        raise self.context.error(node, message)

    def subquery(self, node: Node) -> Expression:
        """A sub-query where none can stand."""
        message = "A sub-query cannot stand here; put it into FROM and join it."
        raise self.context.error(node, message)

    # -- nodes -----------------------------------------------------------------------------------

    def _identifier(self, node: Any) -> Expression:
        if len(node.names) == 1 and node.names[0].upper() in calls.NILADIC:
            try:
                found = self.scope.find(node.names)
            except NameProblem:
                return self.niladic(node)
        else:
            found = self.scope.find(node.names)
        expression: Any = found.expression
        for part in found.rest:
            expression = self._field(node, expression, part)
        return expression  # type: ignore[no-any-return]

    def niladic(self, node: Any) -> Expression:
        """A call of a function without parentheses, such as CURRENT_DATE."""
        return self._function(nodes.FunctionCall(node, niladic=True, position=node.position))

    def _field(self, node: Node, operand: Expression, name: str) -> Expression:
        if not isinstance(operand.type, lt.RowType):
            shown = operand.type.as_summary_string()
            raise self.context.error(node, f"'{operand}' is {shown} and has no field '{name}'.")
        position = operand.type.index_of(name)
        if position < 0:
            from millstream.sql.suggestions import did_you_mean, listed

            names = operand.type.names
            hint = did_you_mean(name, names)
            message = f"Field '{name}' not found in '{operand}'.{hint} It has: {listed(names)}."
            raise self.context.error(node, message)
        return calls.field(operand, position)

    def _literal(self, node: Any) -> Expression:
        return Literal(node.value, node.type)

    def _temporal(self, node: Any) -> Expression:
        try:
            return temporal_literal(node)
        except ValueError as error:
            raise self.context.error(node, str(error)) from error

    def _interval(self, node: Any) -> Expression:
        return interval_literal(node)

    def _symbol(self, node: Any) -> Expression:
        return Literal(node.value, lt.SymbolType(nullable=False))

    def _unary(self, node: Any) -> Expression:
        operand = self.bind(node.operand)
        if node.operator == "+":
            return operand
        found = self.call(node, "MINUS" if node.operator == "-" else "NOT", operand)
        return _least_integer(found) if isinstance(operand, Literal) else found

    def _binary(self, node: Any) -> Expression:
        return self.call(node, node.operator, self.bind(node.left), self.bind(node.right))

    def _operation(self, node: InlineOperation) -> Expression:
        user = self.context.catalogs.system_function(OPERATOR_FUNCTIONS[node.operator])
        if user is not None:
            return calls.user_call(self.context, node, user, self.bind_all([node.left, node.right]))
        if node.operator != "+":
            return self._binary(node)
        left, right = self.bind_all([node.left, node.right])
        if left.type.root in {TypeRoot.CHAR, TypeRoot.VARCHAR}:
            text = lt.VarCharType()
            return self.call(node, "||", calls.cast(left, text), calls.cast(right, text))
        return self.call(node, "+", left, right)

    def _negated(self, node: Any, found: Expression) -> Expression:
        return self.call(node, "NOT", found) if node.negated else found

    def _is(self, node: Any) -> Expression:
        word = "IS NOT" if node.negated else "IS"
        return self.call(node, f"{word} {node.test}", self.bind(node.operand))

    def _is_distinct(self, node: Any) -> Expression:
        name = "IS NOT DISTINCT FROM" if node.negated else "IS DISTINCT FROM"
        return self.call(node, name, self.bind(node.left), self.bind(node.right))

    def _is_json(self, node: Any) -> Expression:
        word = "IS NOT JSON" if node.negated else "IS JSON"
        name = word if node.kind == "VALUE" else f"{word} {node.kind}"
        return self.call(node, name, self.bind(node.operand))

    def _between(self, node: Any) -> Expression:
        values = self.bind_all([node.operand, node.low, node.high])
        texts, others = _texts_and_others(values)
        operand, low, high = _texts_read_as(others, values) if texts else values
        inside = self._ordered(node, operand, low, high)
        if node.symmetric:
            inside = self.call(node, "OR", inside, self._ordered(node, operand, high, low))
        return self._negated(node, inside)

    def _ordered(
        self, node: Any, value: Expression, low: Expression, high: Expression
    ) -> Expression:
        above = self.call(node, ">=", value, low)
        return self.call(node, "AND", above, self.call(node, "<=", value, high))

    def _like(self, node: Any) -> Expression:
        parts = [node.operand, node.pattern, *([node.escape] if node.escape else [])]
        name = "SIMILAR TO" if node.similar else "LIKE"
        return self._negated(node, self.call(node, name, *self.bind_all(parts)))

    def _in_list(self, node: Any) -> Expression:
        values = self.bind_all([node.operand, *node.items])
        texts, others = _texts_and_others(values)
        # Those of the list are alike: only what they are compared with may be of another kind.
        if texts == values[1:] or texts == values[:1]:
            values = _texts_read_as(others, values)
        found = self.call(node, "IN", *values)
        return self._negated(node, found)

    def _case(self, node: Any) -> Expression:
        arguments: list[Expression] = []
        operand = None if node.operand is None else self.bind(node.operand)
        for when in node.whens:
            if operand is None:
                arguments.append(self.condition(when.condition))
            else:
                value = self.bind(when.condition)
                arguments.append(self.call(when, "=", operand, value))
            arguments.append(self.bind(when.result))
        if node.otherwise is None:
            arguments.append(Literal(None, lt.NullType()))
        else:
            arguments.append(self.bind(node.otherwise))
        return self.call(node, "CASE", *arguments)

    def _cast(self, node: Any) -> Expression:
        if node.safe:
            self._check_not_hidden(node, "TRY_CAST")
        operand = self.bind(node.operand)
        is_interval = operand.type.is_a(TypeFamily.INTERVAL)
        if is_interval and node.type.is_a(TypeFamily.NUMERIC) and self.context.text is not None:
            # The Table API does it, as in Flink: there it is no cast of SQL.
            shown = operand.type.as_summary_string(), node.type.as_summary_string()
            message = f"Cast function cannot convert value of type {shown[0]} to type {shown[1]}."
            raise self.context.error(node, message)
        try:
            return calls.cast(operand, node.type, safe=node.safe)
        except MillstreamError as error:
            raise self.context.error(node, str(error)) from error

    def _row(self, node: Any) -> Expression:
        return self.call(node, "ROW", *self.bind_all(node.fields))

    def _array(self, node: Any) -> Expression:
        return self.call(node, "ARRAY", *self.bind_all(node.elements))

    def _map(self, node: Any) -> Expression:
        flat = [part for entry in node.entries for part in entry]
        return self.call(node, "MAP", *self.bind_all(flat))

    def _element(self, node: Any) -> Expression:
        operand = self.bind(node.operand)
        index = self.bind(node.index)
        if isinstance(operand.type, lt.RowType) and isinstance(index, Literal):
            position = index.value
            if isinstance(position, int) and 1 <= position <= len(operand.type):
                return calls.field(operand, position - 1)
            if isinstance(position, str):
                return self._field(node, operand, position)
        return self.call(node, "AT", operand, index)

    def _field_access(self, node: Any) -> Expression:
        return self._field(node, self.bind(node.operand), node.name.value)

    def _check_null_treatment(self, node: Any, name: str) -> None:
        """IGNORE NULLS and RESPECT NULLS as Flink has them.

        Raises:
            ValidationError: the function takes neither.
        """
        if node.ignore_nulls is None or name in {"LAG", "LEAD"}:
            if node.ignore_nulls:
                say_once(f"{name} ... IGNORE NULLS has no effect, as in Flink: nulls are values.")
            return
        if name == "ARRAY_AGG":
            if node.ignore_nulls:
                raise self.context.error(node, "IGNORE NULLS in ARRAY_AGG is not in this release.")
            return
        message = f"Cannot specify IGNORE NULLS or RESPECT NULLS following '{name}'."
        if name in {"FIRST_VALUE", "LAST_VALUE"}:
            message += " It leaves nulls out in any case."
        raise self.context.error(node, message)

    def _function(self, node: Any) -> Expression:
        name = node.name.last.upper()
        self._check_null_treatment(node, name)
        user = calls.user_function(self.context, node)
        special = None if self._is_hidden(node) else self.special(node)
        if special is not None:
            return special
        if node.over is not None:
            return self.over(node)
        is_built_in = user is None and calls.is_aggregate(name)
        if is_built_in or (user is not None and calls.aggregate_of(self.context, node)):
            return self.aggregate(node)
        if node.distinct or node.filter is not None:
            word = "DISTINCT" if node.distinct else "FILTER"
            raise self.context.error(node, f"{word} is for aggregates; {name} is none.")
        if user is None and not calls.is_known(name):
            raise self._unknown(node)
        if any(isinstance(each, nodes.Star) for each in node.arguments):
            raise self.context.error(node, f"Only COUNT takes *; {name} does not.")
        if user is not None:
            arguments = self.bind_all(node.arguments)
            return calls.user_call(self.context, node, user, arguments)
        return self._built_in(node, name)

    def _is_hidden(self, node: Any) -> bool:
        """Check for a temporary system function of the name of a call, which hides all others."""
        name = node.name
        return len(name.parts) == 1 and self.context.catalogs.system_function(name.last) is not None

    def _unknown(self, node: Any) -> ValidationError:
        name = node.name.last.upper()
        window, _, what = name.partition("_")
        if window in _GROUP_WINDOWS and what in _OF_GROUP_WINDOWS:
            message = (
                f"Group function '{name}' can only appear in GROUP BY clause"
                if name == window
                else f"Call to auxiliary group function '{name}' must have matching call to group "
                f"function '{window}' in GROUP BY clause"
            )
            return self.context.error(node, message)
        known = [*calls.names(), *self.context.catalogs.function_names()]
        from millstream.sql.suggestions import did_you_mean

        hint = did_you_mean(node.name.last, known)
        return self.context.error(node, f"Function '{'.'.join(node.name.names)}' not found.{hint}")

    def _built_in(self, node: Any, name: str) -> Expression:
        if name == "JSON":
            message = (
                "The JSON() function is only supported as an element of JSON_ARRAY() or as a VALUE "
                "of JSON_OBJECT(), as in JSON_OBJECT('a' VALUE JSON('{\"key\": 1}'))."
            )
            raise self.context.error(node, message)
        if name in OVER_ONLY:
            message = f"{name} needs OVER: {name}(...) OVER (ORDER BY ...)."
            raise self.context.error(node, message)
        bound = self.bind_all(node.arguments)
        if (
            name == "TRIM"
            and len(bound) == _SIDE_AND_TEXT
            and isinstance(bound[0].type, lt.SymbolType)
        ):
            bound.insert(1, Literal(" ", lt.CharType(1, nullable=False)))
        if name == "JSON_STRING" and len(bound) == 1:
            # What JSON_OBJECT and JSON_ARRAY make is not put into quotes.
            return json_string(bound[0])
        return self.call(node, name, *bound)

    def _inline(self, node: Any) -> Expression:
        if calls.aggregate_of(self.context, node) is not None:
            return self.aggregate(node) if node.over is None else self.over(node)
        arguments = self.bind_all(node.arguments)
        return calls.inline_call(self.context, node, node.definition, arguments)

    def _json_exists(self, node: Any) -> Expression:
        user = self.context.catalogs.system_function("JSON_EXISTS")
        if user is not None and node.on_error is None:
            return self._json_by_user(node, user)
        self._check_not_hidden(node, "JSON_EXISTS")
        return calls.json_exists(self, node)

    def _json_value(self, node: Any) -> Expression:
        user = self.context.catalogs.system_function("JSON_VALUE")
        clauses = (node.returning, node.on_empty, node.on_error)
        if user is not None and not any(clauses):
            return self._json_by_user(node, user)
        self._check_not_hidden(node, "JSON_VALUE")
        return calls.json_value(self, node)

    def json_argument(self, node: Any) -> Expression:
        """Bind a value in JSON_OBJECT or JSON_ARRAY, which may be JSON(...)."""
        is_json = isinstance(node, nodes.FunctionCall) and node.name.names[0].upper() == "JSON"
        if is_json and calls.user_function(self.context, node) is None:
            return self.call(node, "JSON", *self.bind_all(node.arguments))
        return self.bind(node)

    def _json_by_user(self, node: Any, user: CatalogFunction) -> Expression:
        arguments = self.bind_all([node.operand, node.path])
        return calls.user_call(self.context, node, user, arguments)

    def _check_not_hidden(self, node: Node, name: str) -> None:
        """Refuse a call whose clauses no function of a user can take.

        Raises:
            ValidationError: a temporary system function hides the built-in one.
        """
        if self.context.catalogs.system_function(name) is not None:
            message = (
                f"A temporary system function hides {name}, and it cannot take what the grammar of "
                f"{name} gives. Drop it, or create it under another name."
            )
            raise self.context.error(node, message)

    def _json_query(self, node: Any) -> Expression:
        self._check_not_hidden(node, "JSON_QUERY")
        return calls.json_query(self, node)

    def _json_object(self, node: Any) -> Expression:
        self._check_not_hidden(node, "JSON_OBJECTAGG" if node.aggregate else "JSON_OBJECT")
        return self.json_aggregate(node) if node.aggregate else calls.json_object(self, node)

    def _json_array(self, node: Any) -> Expression:
        self._check_not_hidden(node, "JSON_ARRAYAGG" if node.aggregate else "JSON_ARRAY")
        return self.json_aggregate(node) if node.aggregate else calls.json_array(self, node)

    def _period(self, node: Any) -> Expression:
        left, right = node.left, node.right
        parts = self.bind_all([*left.fields, *right.fields])
        return self.call(node, "OVERLAPS", *parts)

    def _quantified(self, node: Any) -> Expression:
        if not isinstance(node.right, tuple):
            return self.subquery(node)
        left = self.bind(node.left)
        word = "OR" if node.quantifier == "ANY" else "AND"
        found: Expression | None = None
        for item in node.right:
            one = self.call(node, node.operator, left, self.bind(item))
            found = one if found is None else self.call(node, word, found, one)
        if found is None:
            raise self.context.error(node, "The list is empty.")
        return found

    def _subquery(self, node: Any) -> Expression:
        return self.subquery(node)


#: ``TRIM(LEADING FROM s)``: the characters are left out.
_SIDE_AND_TEXT: Final = 2
#: Windows of GROUP BY, and what functions tell of them.
_GROUP_WINDOWS: Final = frozenset({"TUMBLE", "HOP", "SESSION"})
_OF_GROUP_WINDOWS: Final = frozenset({"", "START", "END", "ROWTIME", "PROCTIME"})
_HANDLERS: Final[dict[type, Callable[[ExpressionBinder, Any], Expression]]] = {
    nodes.Identifier: ExpressionBinder._identifier,  # noqa: SLF001 - the table of this class
    nodes.Literal: ExpressionBinder._literal,  # noqa: SLF001
    nodes.TemporalLiteral: ExpressionBinder._temporal,  # noqa: SLF001
    nodes.IntervalLiteral: ExpressionBinder._interval,  # noqa: SLF001
    nodes.Symbol: ExpressionBinder._symbol,  # noqa: SLF001
    nodes.UnaryOperation: ExpressionBinder._unary,  # noqa: SLF001
    nodes.BinaryOperation: ExpressionBinder._binary,  # noqa: SLF001
    nodes.IsPredicate: ExpressionBinder._is,  # noqa: SLF001
    nodes.IsDistinctFrom: ExpressionBinder._is_distinct,  # noqa: SLF001
    nodes.IsJson: ExpressionBinder._is_json,  # noqa: SLF001
    nodes.Between: ExpressionBinder._between,  # noqa: SLF001
    nodes.Like: ExpressionBinder._like,  # noqa: SLF001
    nodes.InList: ExpressionBinder._in_list,  # noqa: SLF001
    nodes.Case: ExpressionBinder._case,  # noqa: SLF001
    nodes.Cast: ExpressionBinder._cast,  # noqa: SLF001
    nodes.RowConstructor: ExpressionBinder._row,  # noqa: SLF001
    nodes.ArrayConstructor: ExpressionBinder._array,  # noqa: SLF001
    nodes.MapConstructor: ExpressionBinder._map,  # noqa: SLF001
    nodes.ElementAccess: ExpressionBinder._element,  # noqa: SLF001
    nodes.FieldAccess: ExpressionBinder._field_access,  # noqa: SLF001
    nodes.FunctionCall: ExpressionBinder._function,  # noqa: SLF001
    InlineOperation: ExpressionBinder._operation,  # noqa: SLF001
    InlineCall: ExpressionBinder._inline,  # noqa: SLF001
    nodes.JsonExists: ExpressionBinder._json_exists,  # noqa: SLF001
    nodes.JsonValue: ExpressionBinder._json_value,  # noqa: SLF001
    nodes.JsonQuery: ExpressionBinder._json_query,  # noqa: SLF001
    nodes.JsonObject: ExpressionBinder._json_object,  # noqa: SLF001
    nodes.JsonArray: ExpressionBinder._json_array,  # noqa: SLF001
    nodes.PeriodPredicate: ExpressionBinder._period,  # noqa: SLF001
    nodes.QuantifiedComparison: ExpressionBinder._quantified,  # noqa: SLF001
    nodes.Exists: ExpressionBinder._subquery,  # noqa: SLF001
    nodes.InQuery: ExpressionBinder._subquery,  # noqa: SLF001
    nodes.ScalarQuery: ExpressionBinder._subquery,  # noqa: SLF001
}


def _texts_and_others(values: list[Expression]) -> tuple[list[Expression], list[Expression]]:
    """Strings, and what else there is."""
    texts = [each for each in values if each.type.is_a(TypeFamily.CHARACTER_STRING)]
    return texts, [each for each in values if each not in texts]


def _texts_read_as(others: list[Expression], values: list[Expression]) -> list[Expression]:
    """The values of IN and BETWEEN with strings cast to numbers if all others are numbers."""
    is_number = all(each.type.is_a(TypeFamily.NUMERIC) for each in others)
    target = common_type([each.type for each in others]) if is_number and others else None
    if target is None:
        return values
    return [each if each in others else calls.cast(each, target) for each in values]


def _least_integer(negative: Expression) -> Expression:
    """The negative of a literal in the type that holds it, if its positive is one too large."""
    if isinstance(negative, Literal) and negative.value is not None:
        if negative.type == lt.BigIntType(nullable=False) and negative.value == -(1 << 31):
            return Literal(negative.value, lt.IntType(nullable=False))
        if negative.type == _NINETEEN_DIGITS and negative.value == -(1 << 63):
            return Literal(-(1 << 63), lt.BigIntType(nullable=False))
    return negative


def user_aggregate_arguments(
    base: ExpressionBinder, node: Any, definition: FunctionDefinition
) -> Call:
    """A call with bound arguments, cast to what the function takes.

    Raises:
        ValidationError: it does not take them, or gives rows.
    """
    user = user_aggregate(definition)
    is_over = getattr(node, "over", None) is not None
    if user.gives_rows and (is_over or not isinstance(node, InlineCall)):
        message = f"{definition.name} gives rows: flat_aggregate() of the Table API takes it."
        raise base.context.error(node, message)
    if isinstance(node, nodes.FunctionCall) and (node.order_by or node.within_group):
        raise base.context.error(node, f"ORDER BY in {definition.name} is not in this release.")
    if any(isinstance(each, nodes.Star) for each in node.arguments):
        raise base.context.error(node, f"Only COUNT takes *; {definition.name} does not.")
    try:
        return resolve_definition(definition, base.bind_all(node.arguments), user=True)
    except ProgramError as error:
        raise base.context.error(node, str(error)) from error
