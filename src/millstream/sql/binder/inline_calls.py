"""A call of a user's function that has no name in a catalog.

What it is: the node that ``table/udf.py`` makes where a function is called on expressions.
What it is not: a node of the parser; no text has it.

Read next: ``sql/binder/calls.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.sql.parser.syntax import Expression

if TYPE_CHECKING:
    from millstream.expressions.functions.definition import FunctionDefinition

__all__ = ["InlineCall"]


@dataclass(frozen=True, slots=True)
class InlineCall(Expression):
    """A function with its arguments."""

    definition: FunctionDefinition
    arguments: tuple[Expression, ...]
