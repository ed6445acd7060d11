"""Calls of users' functions, operators, and tables that only the Table API has.

What it is: the node that ``table/udf.py`` makes where a function is called on expressions, the one
of operators between expressions, and the query that a table of the program is.
What it is not: nodes of the parser; no text has them.

Read next: ``sql/binder/calls.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.sql.parser.nodes import BinaryOperation
from millstream.sql.parser.syntax import Expression, Name, Query

if TYPE_CHECKING:
    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.sql.planner.logical import LogicalNode

__all__ = ["OPERATOR_FUNCTIONS", "InlineCall", "InlineOperation", "InlinePlan", "called"]


@dataclass(frozen=True, slots=True)
class InlineCall(Expression):
    """A function with its arguments."""

    definition: FunctionDefinition
    arguments: tuple[Expression, ...]
    #: Of an aggregate: whether values that were there already count for nothing.
    distinct: bool = False
    #: Of an aggregate: the name of its window.
    over: Name | None = None


@dataclass(frozen=True, slots=True)
class InlineOperation(BinaryOperation):
    """An operator of the Table API: a call of the function of ``OPERATOR_FUNCTIONS``.

    Where the left side of ``+`` is text, the right side is appended to it.
    """


#: As Flink's Table API calls them; a temporary system function of the name hides the operator.
OPERATOR_FUNCTIONS: Final = {
    "=": "equals",
    "<>": "notEquals",
    "<": "lessThan",
    "<=": "lessThanOrEqual",
    ">": "greaterThan",
    ">=": "greaterThanOrEqual",
    "+": "plus",
    "-": "minus",
    "*": "times",
    "/": "divide",
    "%": "mod",
    "AND": "and",
    "OR": "or",
}


def called(node: Any) -> str:
    """The name of the function that a call calls, for errors."""
    return node.definition.name if isinstance(node, InlineCall) else node.name.last.upper()


@dataclass(frozen=True, slots=True)
class InlinePlan(Query):
    """A table of the program as a query; compared by identity, as its plan is."""

    plan: LogicalNode
