"""Bound expressions: frozen, hashable, picklable nodes, each with its logical type.

``str`` gives Flink's text of an expression, as EXPLAIN prints it: ``+(amount, 1)``.

**Values.** Literals, and the Python functions behind SQL's, see values as follows (None is NULL):

========================  ==========================================================
BOOLEAN                   bool
TINYINT to BIGINT         int
FLOAT, DOUBLE             float (a FLOAT holds a value of 32 bits)
DECIMAL                   decimal.Decimal with exactly the scale of the type
CHAR, VARCHAR             str
BINARY, VARBINARY         bytes
DATE                      int, days since 1970-01-01
TIME                      int, nanoseconds since midnight
TIMESTAMP, TIMESTAMP_LTZ  int, nanoseconds since 1970-01-01 00:00:00 (of UTC)
INTERVAL YEAR TO MONTH    int, months
INTERVAL DAY TO SECOND    int, milliseconds
ARRAY                     tuple of values
MAP                       dict
MULTISET                  dict from element to how often
ROW                       tuple of values
RAW                       bytes
BITMAP                    bytes, one form for each set (``types/bitmaps.py``)
VARIANT                   bytes, one form for each value (``types/variants.py``)
symbol                    str
========================  ==========================================================

``types/external_values.py`` converts them to and from what programs see (datetime, Row, list).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream.types.logical_types import CharType, DecimalType, VarCharType
from millstream.types.text_values import date_text, double_text, time_text, timestamp_text
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.types.logical_types import LogicalType


#: Flink's plans have Calcite's names for some types.
_PLAN_NAMES: Final = {TypeRoot.INTEGER: "INTEGER"}


def plan_type_text(type_: LogicalType) -> str:
    """The text of a type inside plans: ``INTEGER``, ``VARCHAR(10) CHARACTER SET "UTF-16LE"``."""
    text = _PLAN_NAMES.get(type_.root)
    if text is None:
        text = type_.with_nullability(True).as_serializable_string()  # noqa: FBT003
    if isinstance(type_, CharType | VarCharType):
        text += ' CHARACTER SET "UTF-16LE"'
    return text if type_.is_nullable else f"{text} NOT NULL"


def literal_text(value: Any, type_: LogicalType) -> str:
    """The text of a literal, with its type where the value alone does not tell it."""
    shown = type_.with_nullability(True)  # noqa: FBT003
    if value is None:
        return f"null:{plan_type_text(shown)}"
    text = value_text(value, type_)
    if isinstance(type_, CharType | VarCharType):
        text = "_UTF-16LE" + text
    return text if _is_told(value, type_) else f"{text}:{plan_type_text(shown)}"


def _is_told(value: Any, type_: LogicalType) -> bool:
    if isinstance(type_, CharType):
        return len(value) == type_.length
    if isinstance(type_, DecimalType):
        digits = value.as_tuple()
        precision = max(len(digits.digits), -digits.exponent)
        return (precision, -digits.exponent) == (type_.precision, type_.scale)
    return type_.root in {TypeRoot.BOOLEAN, TypeRoot.INTEGER, TypeRoot.DATE, TypeRoot.SYMBOL}


def value_text(value: Any, type_: LogicalType) -> str:  # noqa: PLR0911 - a table
    """The text of a value without its type; text is quoted."""
    if value is None:
        return "null"
    if type_.is_a(TypeFamily.CHARACTER_STRING):
        return "'" + str(value).replace("'", "''") + "'"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if type_.root is TypeRoot.DATE:
        return date_text(value)
    if type_.root is TypeRoot.TIME_WITHOUT_TIME_ZONE:
        return time_text(value, 0)
    if type_.is_a(TypeFamily.TIMESTAMP):
        return timestamp_text(value, 0 if value % 1_000_000_000 == 0 else 3)
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def call_text(function: str, arguments: Sequence[str], type_: LogicalType) -> str:
    """The text of a call, its name in front: ``+(a, 1)``, ``CAST(a AS BIGINT)``."""
    if function in {"CAST", "TRY_CAST"}:
        target = plan_type_text(type_.with_nullability(True))  # noqa: FBT003
        return f"{function}({arguments[0]} AS {target})"
    return f"{function}({', '.join(arguments)})"


@dataclass(frozen=True, slots=True)
class InputReference:
    """The column at a position of the input."""

    index: int
    name: str
    type: LogicalType

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; ``value`` is as the module's table says, None for NULL."""

    value: Hashable
    type: LogicalType

    def __str__(self) -> str:
        return literal_text(self.value, self.type)


@dataclass(frozen=True, slots=True)
class Call:
    """A function, operator or special form applied to arguments.

    ``function`` is the name under which the registry knows it.  A function of users' is not in the
    registry: its ``definition`` is here.
    """

    function: str
    arguments: tuple[Expression, ...]
    type: LogicalType
    definition: FunctionDefinition | None = None

    def __str__(self) -> str:
        return call_text(self.function, tuple(map(str, self.arguments)), self.type)


Expression: TypeAlias = InputReference | Literal | Call


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all that is in it, outer ones first."""
    yield expression
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from walk(argument)


def transform(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The expression with ``change`` applied to each node, inner ones first.

    Parts that nothing changed are the same objects.
    """
    if isinstance(expression, Call):
        arguments = tuple(transform(argument, change) for argument in expression.arguments)
        if any(new is not old for new, old in zip(arguments, expression.arguments, strict=True)):
            expression = replace(expression, arguments=arguments)
    return change(expression)


_BINARY: Final = frozenset(
    {"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "||"}
    | {"IS DISTINCT FROM", "IS NOT DISTINCT FROM"}
)
_POSTFIX: Final = frozenset(
    {"IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE"}
    | {"IS UNKNOWN", "IS NOT UNKNOWN"}
)


def indexed_text(expression: Expression) -> str:
    """The expression with positions for columns: ``+($0, CAST($1):BIGINT)``."""
    if isinstance(expression, InputReference):
        return f"${expression.index}"
    if isinstance(expression, Literal):
        return str(expression)
    arguments = [indexed_text(argument) for argument in expression.arguments]
    if expression.function in {"CAST", "TRY_CAST"}:
        return f"{expression.function}({arguments[0]}):{plan_type_text(expression.type)}"
    return call_text(expression.function, arguments, expression.type)


def infix_text(expression: Expression) -> str:
    """The expression with operators between their arguments: ``((a + 1) > b)``."""
    if isinstance(expression, InputReference):
        return expression.name
    if isinstance(expression, Literal):
        return _plain_literal(expression)
    arguments = [infix_text(argument) for argument in expression.arguments]
    return _call(expression, arguments)


def _call(call: Call, arguments: list[str]) -> str:
    name = call.function
    if name in _BINARY and len(arguments) > 1:
        return f"({f' {name} '.join(arguments)})"
    if name in _POSTFIX:
        return f"{arguments[0]} {name}"
    if name == "NOT":
        return f"NOT {arguments[0]}"
    return call_text(name, arguments, call.type)


def _plain_literal(literal: Literal) -> str:
    told = literal.value is not None and not literal.type.is_a(TypeFamily.INTERVAL)
    return value_text(literal.value, literal.type) if told else str(literal)
