"""What all functions of users have: the base class, and types as programs give them."""

from __future__ import annotations

import functools
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from millstream.sql.binder.inline_calls import InlineCall
from millstream.sql.parser.parser import parse_type
from millstream.table.expression import Expression, as_node
from millstream.types.logical_types import LogicalType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.expressions.user_functions import FunctionContext

__all__ = ["FunctionWrapper", "UserDefinedFunction", "type_of", "types_of"]


class FunctionWrapper:
    """What ``udf`` and its sisters make: a function with its types.

    Args:
        function: the user's.
        definition: what is bound for it.
    """

    #: Of its columns, where it is called on whole rows.
    names: tuple[str, ...] = ()

    def __init__(self, function: Any, definition: FunctionDefinition) -> None:
        self._function = function
        self.definition = definition
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any) -> Expression:
        """A call on expressions and plain values."""
        return Expression(InlineCall(self.definition, tuple(map(as_node, args))))

    def alias(self, *alias_names: str) -> Self:
        """The same with names of its columns, for whole rows: ``flat_map(f.alias("a"))``.

        Args:
            alias_names: the names.
        """
        made = copy(self)
        made.names = alias_names
        return made


class UserDefinedFunction:
    """A function of a user that keeps something, from ``open`` to ``close``."""

    def open(self, function_context: FunctionContext) -> None:
        """Get ready: called once wherever the function runs, before the first row."""

    def close(self) -> None:
        """Clean up: called when the operator is gone."""

    def is_deterministic(self) -> bool:
        """Whether equal arguments always give equal results."""
        return True


def type_of(given: LogicalType | str) -> LogicalType:
    """A type, or its text as in SQL."""
    if isinstance(given, LogicalType):
        return given
    return parse_type(given)


def types_of(
    given: Sequence[LogicalType | str] | LogicalType | str | None,
) -> list[LogicalType] | None:
    """Several types, or one; None: nothing is said."""
    if given is None:
        return None
    if isinstance(given, LogicalType | str):
        given = [given]
    return [type_of(each) for each in given]
