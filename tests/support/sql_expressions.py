"""Expressions of SQL without columns, evaluated: for tests of functions.

What it is: parser, binder and evaluator put together, without tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.configuration.configuration import Configuration
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_expression
from millstream.expressions.resolution import resolve_cast
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import BindingContext, Scope
from millstream.sql.catalog.catalog import CatalogManager
from millstream.sql.parser.parser import parse_expression
from millstream.types.logical_types import CharType, LogicalType, RowType, VarCharType
from millstream.types.values import value_of

if TYPE_CHECKING:
    from millstream.expressions.nodes import Expression

__all__ = ["NOW", "bind", "evaluate", "value_and_type"]

#: 2026-01-31 13:05:00.250 UTC, in milliseconds.
NOW: Final = 1_769_864_700_250
_ONE_ROW: Final = pa.record_batch({"n": pa.array([0])})


def bind(text: str) -> Expression:
    """The bound expression of a text."""
    context = BindingContext(CatalogManager(), Configuration(), text)
    return ExpressionBinder(context, Scope.of(RowType(()))).bind(parse_expression(text))


def _evaluated(expression: Expression, zone: str) -> pa.Scalar:
    context = EvaluationContext(time_zone=zone, processing_time=NOW)
    return compile_expression(expression).evaluate(_ONE_ROW, context)[0]


def value_and_type(text: str, zone: str = "UTC") -> tuple[object, LogicalType]:
    """The value of an expression, as functions see it, and its type."""
    expression = bind(text)
    return value_of(_evaluated(expression, zone), expression.type), expression.type


def evaluate(text: str, zone: str = "UTC") -> str:
    """The value of an expression, as CAST to STRING writes it."""
    expression = bind(text)
    if not isinstance(expression.type, VarCharType | CharType):
        expression = resolve_cast(expression, VarCharType())
    found = _evaluated(expression, zone).as_py()
    return "NULL" if found is None else str(found)
