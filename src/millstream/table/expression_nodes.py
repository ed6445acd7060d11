"""Parser nodes and program values behind Table API expressions."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from millstream.errors import ProgramError
from millstream.sql.parser import nodes
from millstream.types.logical_types import (
    BigIntType,
    BooleanType,
    CharType,
    DateType,
    DecimalType,
    DoubleType,
    IntType,
    NullType,
    TimestampType,
    TimeType,
    VarBinaryType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_INT: Final = 2**31
#: Of the first unit of an interval, unless more are said.
_DIGITS: Final = 2
_MILLISECONDS: Final = dt.timedelta(milliseconds=1)


class BaseExpression:
    """A node of the parser, with the names that it has as a column."""

    def __init__(self, node: Any, alias: str | None = None, *extra_names: str) -> None:
        """Made by ``col``, ``lit`` and other expressions.

        Args:
            node: of the parser.
            alias: the name as a column.
            extra_names: of further columns, if it gives several.
        """
        self.node = node
        self.names: tuple[str, ...] = () if alias is None else (alias, *extra_names)
        #: As an item of ORDER BY.
        self.descending = False

    def _of(self, node: Any) -> Self:
        return type(self)(node)

    def _call(self, name: str, *arguments: Any) -> Self:
        """A function of this expression and others; those that are None are left out at the end."""
        given = list(arguments)
        while given and given[-1] is None:
            given.pop()
        return self._of(function_node(name, self, *given))

    def select_item(self) -> nodes.SelectItem:
        """As an item of SELECT.

        Raises:
            ProgramError: it has several names.
        """
        if len(self.names) > 1:
            message = f"a column has one name, not {len(self.names)}: {', '.join(self.names)}"
            raise ProgramError(message)
        return nodes.SelectItem(self.node, nodes.Name(self.names[0]) if self.names else None)

    def sort_item(self) -> nodes.SortItem:
        """As an item of ORDER BY."""
        return nodes.SortItem(self.node, self.descending)


_Expression = TypeVar("_Expression")


class ExpressionProperty(property):
    """An expression that is made of this one alone."""

    def __init__(self, make: Callable[[BaseExpression], Any], documentation: str) -> None:
        """Take what makes the node, and the docstring of the property."""

        @wraps(BaseExpression._of)  # noqa: SLF001 - what the properties are short for
        def expression(operand: BaseExpression) -> BaseExpression:
            return type(operand)(make(operand))

        super().__init__(expression)
        self.__doc__ = documentation

    if TYPE_CHECKING:  # the type of an expression's property is that of the expression

        @overload
        def __get__(self, instance: None, owner: type, /) -> Self: ...

        @overload
        def __get__(self, instance: _Expression, owner: type | None = None, /) -> _Expression: ...

        def __get__(self, instance: object, owner: type | None = None, /) -> object: ...


class FunctionProperty(ExpressionProperty):
    """A function of SQL, called on the expression alone."""

    def __init__(self, function: str, documentation: str) -> None:
        """Take the name of the function and the docstring of the property."""
        super().__init__(lambda operand: function_node(function, operand), documentation)


def function_node(name: str, *arguments: Any) -> nodes.FunctionCall:
    """The node of a call."""
    return nodes.FunctionCall(nodes.identifier(name), tuple(map(as_node, arguments)))


def interval_of(value: int, unit: nodes.TimeUnit) -> nodes.IntervalLiteral:
    """A length of time; its value is in months or in milliseconds."""
    digits = len(str(abs(value)))
    qualifier = nodes.IntervalQualifier(unit, precision=digits if digits > _DIGITS else None)
    length = value * (_MONTHS.get(unit) or _MILLIS[unit])
    return nodes.IntervalLiteral(str(value), qualifier, length)


_MONTHS: Final = {nodes.TimeUnit.YEAR: 12, nodes.TimeUnit.QUARTER: 3, nodes.TimeUnit.MONTH: 1}
_MILLIS: Final = {
    nodes.TimeUnit.WEEK: 604_800_000,
    nodes.TimeUnit.DAY: 86_400_000,
    nodes.TimeUnit.HOUR: 3_600_000,
    nodes.TimeUnit.MINUTE: 60_000,
    nodes.TimeUnit.SECOND: 1_000,
}


def milliseconds(value: int) -> nodes.IntervalLiteral:
    """A length of time of milliseconds."""
    sign = "-" if value < 0 else ""
    seconds, rest = divmod(abs(value), 1_000)
    digits = len(str(seconds))
    precision = digits if digits > _DIGITS else None
    qualifier = nodes.IntervalQualifier(nodes.TimeUnit.SECOND, precision=precision)
    return nodes.IntervalLiteral(f"{sign}{seconds}.{rest:03}", qualifier, value)


def as_node(value: Any) -> Any:
    """The node of an expression or of a value.

    Raises:
        ProgramError: there is no literal of it.
    """
    if isinstance(value, BaseExpression):
        return value.node
    for kind, make in _LITERALS:
        if isinstance(value, kind):
            return make(value)
    message = f"lit() takes plain values, not {value!r}"
    raise ProgramError(message)


def _whole(value: int) -> nodes.Literal:
    wide = not -_INT <= value < _INT
    return nodes.Literal(value, BigIntType(nullable=False) if wide else IntType(nullable=False))


def _decimal(value: Decimal) -> nodes.Literal:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        message = f"there is no DECIMAL for {value}"
        raise ProgramError(message)
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    return nodes.Literal(value, DecimalType(precision, scale, nullable=False))


def _timestamp(value: dt.datetime) -> nodes.TemporalLiteral:
    if value.tzinfo is not None:
        message = "lit() takes datetimes without a time zone; cast() to TIMESTAMP_LTZ gives one"
        raise ProgramError(message)
    text = value.isoformat(sep=" ", timespec="microseconds")
    return nodes.TemporalLiteral(text, TimestampType(6, nullable=False))


def _time(value: dt.time) -> nodes.TemporalLiteral:
    text = value.isoformat(timespec="seconds")
    if value.microsecond or value.tzinfo is not None:
        message = f"lit() takes times of whole seconds and no time zone, not {value}"
        raise ProgramError(message)
    return nodes.TemporalLiteral(text, TimeType(0, nullable=False))


def _array(value: Sequence[Any]) -> nodes.ArrayConstructor:
    return nodes.ArrayConstructor(tuple(map(as_node, value)))


#: The first that fits.
_LITERALS: Final[tuple[tuple[type, Any], ...]] = (
    (type(None), lambda _: nodes.Literal(None, NullType())),
    (bool, lambda value: nodes.Literal(value, BooleanType(nullable=False))),
    (int, _whole),
    (float, lambda value: nodes.Literal(value, DoubleType(nullable=False))),
    (Decimal, _decimal),
    (str, lambda value: nodes.Literal(value, CharType(len(value), nullable=False))),
    (bytes, lambda value: nodes.Literal(value, VarBinaryType(len(value) or 1, nullable=False))),
    (dt.datetime, _timestamp),
    (dt.date, lambda each: nodes.TemporalLiteral(each.isoformat(), DateType(nullable=False))),
    (dt.time, _time),
    (dt.timedelta, lambda value: milliseconds(value // _MILLISECONDS)),
    (list, _array),
)


class TimeIntervalUnit(Enum):
    """Units of lengths of time, and of parts of points in time."""

    YEAR = (0,)
    YEAR_TO_MONTH = (1,)
    QUARTER = (2,)
    MONTH = (3,)
    WEEK = (4,)
    DAY = (5,)
    DAY_TO_HOUR = (6,)
    DAY_TO_MINUTE = (7,)
    DAY_TO_SECOND = (8,)
    HOUR = (9,)
    SECOND = (10,)
    HOUR_TO_MINUTE = (11,)
    HOUR_TO_SECOND = (12,)
    MINUTE = (13,)
    MINUTE_TO_SECOND = 14


class TimePointUnit(Enum):
    """Units of points in time."""

    YEAR = (0,)
    MONTH = (1,)
    DAY = (2,)
    HOUR = (3,)
    MINUTE = (4,)
    SECOND = (5,)
    QUARTER = (6,)
    WEEK = (7,)
    MILLISECOND = (8,)
    MICROSECOND = 9


class JsonType(Enum):
    """Kinds of JSON that ``is_json`` tells apart."""

    VALUE = (0,)
    SCALAR = (1,)
    ARRAY = (2,)
    OBJECT = 3


class JsonExistsOnError(Enum):
    """The result of ``json_exists`` where the text is no JSON."""

    TRUE = (0,)
    FALSE = (1,)
    UNKNOWN = (2,)
    ERROR = 3


class JsonValueOnEmptyOrError(Enum):
    """The result of ``json_value`` where there is nothing."""

    NULL = (0,)
    ERROR = (1,)
    DEFAULT = 2


class JsonQueryWrapper(Enum):
    """When ``json_query`` puts an array around what it finds."""

    WITHOUT_ARRAY = (0,)
    CONDITIONAL_ARRAY = (1,)
    UNCONDITIONAL_ARRAY = 2


class JsonQueryOnEmptyOrError(Enum):
    """The result of ``json_query`` where there is nothing."""

    NULL = (0,)
    EMPTY_ARRAY = (1,)
    EMPTY_OBJECT = (2,)
    ERROR = 3


class JsonOnNull(Enum):
    """The handling of NULL in objects and arrays of JSON."""

    NULL = (0,)
    ABSENT = 1
