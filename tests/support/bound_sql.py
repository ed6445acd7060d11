"""Expressions of SQL through the parser and the binder, without a table.

What it is: ``evaluated``, the value and the type of an expression of constants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.configuration.configuration import Configuration
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_expression
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import BindingContext, Scope
from millstream.sql.catalog.catalog import CatalogManager
from millstream.sql.parser.parser import parse_expression
from millstream.types.logical_types import RowType
from millstream.types.values import values_of_column

if TYPE_CHECKING:
    from millstream.types.logical_types import LogicalType

__all__ = ["evaluated"]

_ONE_ROW: Final = pa.record_batch({"a": pa.array([1])})


def evaluated(text: str, zone: str = "UTC") -> tuple[Any, LogicalType]:
    """The value of an expression, as functions see it, and its type."""
    context = BindingContext(CatalogManager(), Configuration(), text)
    expression = ExpressionBinder(context, Scope(RowType(()))).bind(parse_expression(text))
    column = compile_expression(expression).evaluate(_ONE_ROW, EvaluationContext(time_zone=zone))
    return values_of_column(column, expression.type)[0], expression.type
