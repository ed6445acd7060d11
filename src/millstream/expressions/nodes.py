"""Bound expressions: what is left of an expression when names and types are known.

What it is: three nodes, frozen, hashable and picklable, each with its logical type.  ``str`` gives
Flink's text of an expression, as EXPLAIN prints it: ``+(amount, 1)``.

What it is not: what the parser gives; those nodes know names and positions in the text, no types.
Calls are made by ``resolve_call`` (``expressions/resolution.py``), which finds the signature, adds
implicit casts and derives the result type.

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

``types/values.py`` converts them to and from what programs see (datetime, Row, list).

Read next: ``expressions/evaluator.py``, ``expressions/functions/registry.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from millstream.expressions.texts import call_text, literal_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.types.logical_types import LogicalType

__all__ = ["Call", "Expression", "InputReference", "Literal", "transform", "walk"]


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

    Args:
        expression: what to rewrite.
        change: gives a node's replacement, or the node itself.

    Returns:
        The rewritten expression; parts that nothing changed are the same objects.
    """
    if isinstance(expression, Call):
        arguments = tuple(transform(argument, change) for argument in expression.arguments)
        if any(new is not old for new, old in zip(arguments, expression.arguments, strict=True)):
            expression = replace(expression, arguments=arguments)
    return change(expression)
