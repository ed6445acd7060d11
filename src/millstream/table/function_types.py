"""What all functions of users have: the base class, and types as programs give them."""

from __future__ import annotations

import functools
import inspect
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from millstream.errors import ArgumentTypeError, ArgumentValueError
from millstream.sql.binder.inline_calls import InlineCall
from millstream.sql.parser.parser import parse_type
from millstream.table.expression import Expression, as_node
from millstream.types.logical_types import LogicalType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.expressions.user_functions import FunctionContext

__all__ = [
    "FunctionWrapper",
    "UserDefinedFunction",
    "check_func_type",
    "checked_function",
    "is_deterministic",
    "type_of",
    "types_of",
]


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
        # PyFlink's names for them, which programs read.
        self._name = definition.name
        self._deterministic = definition.deterministic
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


def checked_function(given: Any, methods: Sequence[str] = ("eval",)) -> Any:
    """Return the function of a user, or an instance of the class of one.

    Args:
        given: a callable, an object with the methods, or a class of such objects.
        methods: what an object that cannot be called needs.

    Raises:
        ArgumentTypeError: it is none of them.
    """
    has_methods = all(hasattr(given, each) for each in methods)
    function = given() if inspect.isclass(given) and has_methods else given
    if not has_methods and not callable(function):
        message = (
            "Invalid function: not a function or callable (__call__ is not defined): "
            f"{type(given)}; an object needs {', '.join(methods)}"
        )
        raise ArgumentTypeError(message)
    return function


def is_deterministic(function: Any, given: bool | None) -> bool:  # noqa: FBT001 - PyFlink's
    """Return whether equal arguments give equal results.

    Args:
        function: the user's.
        given: as the program says; None: as ``is_deterministic`` of the function says.

    Raises:
        ArgumentValueError: the program and the function contradict each other.
    """
    says = getattr(function, "is_deterministic", None)
    if says is None:
        return given is not False
    own = bool(says())
    if given is not None and given != own and isinstance(function, UserDefinedFunction):
        message = (
            f"Inconsistent deterministic: {given} and {own}; is_deterministic() of "
            f"{type(function).__name__} says the latter"
        )
        raise ArgumentValueError(message)
    return own if given is None else given


def check_func_type(given: str, known: Sequence[str], *more: str) -> None:
    """Refuse a ``func_type`` that does not exist.

    Args:
        given: as the program says.
        known: those of PyFlink.
        more: those that only Millstream has.

    Raises:
        ArgumentValueError: it is none of them.
    """
    if given not in (*known, *more):
        which = f"one of '{', '.join(known)}'" if len(known) > 1 else f"'{known[0]}'"
        message = f"The func_type must be {which}, got {given}."
        if more:
            message += f" Beyond PyFlink's, '{', '.join(more)}' is known."
        raise ArgumentValueError(message)


def type_of(given: Any, what: str = "returnType") -> LogicalType:
    """Return a type, of which the text as in SQL may be given.

    Args:
        given: the type.
        what: it is, for errors.

    Raises:
        ArgumentTypeError: it is neither.
    """
    if isinstance(given, LogicalType):
        return given
    if not isinstance(given, str):
        message = f"Invalid {what}: {what} should be DataType or str but is {given}"
        raise ArgumentTypeError(message)
    return parse_type(given)


def types_of(
    given: Sequence[LogicalType | str] | LogicalType | str | None,
    what: str = "input_type",
) -> list[LogicalType] | None:
    """Several types, or one; None: nothing is said."""
    if given is None:
        return None
    if isinstance(given, LogicalType | str):
        given = [given]
    return [type_of(each, what) for each in given]
