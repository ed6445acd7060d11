"""Calls of users' functions, and tables, that have no name in a catalog.

What it is: the node that ``table/udf.py`` makes where a function is called on expressions, and the
query that a table of the program is.
What it is not: nodes of the parser; no text has them.

Read next: ``sql/binder/calls.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.sql.parser.syntax import Expression, Query

if TYPE_CHECKING:
    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.sql.planner.logical import LogicalNode

__all__ = ["InlineCall", "InlinePlan"]


@dataclass(frozen=True, slots=True)
class InlineCall(Expression):
    """A function with its arguments."""

    definition: FunctionDefinition
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class InlinePlan(Query):
    """A table of the program as a query; compared by identity, as its plan is."""

    plan: LogicalNode
