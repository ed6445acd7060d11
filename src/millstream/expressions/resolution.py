"""From a function's name and its arguments to a bound call: signature, implicit casts, type.

What it is: ``resolve_call``, by which the binder, the Table API and our own tests make calls.

What it is not: the resolution of names of columns and of users' functions; that is the binder's.

Read next: ``expressions/functions/signatures.py``, ``expressions/evaluator.py``.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from millstream.errors import ProgramError
from millstream.expressions.casts.values import cast_function
from millstream.expressions.functions.definition import NOT_CONSTANT
from millstream.expressions.functions.registry import get_function
from millstream.expressions.integers import wrapped
from millstream.expressions.nodes import Call, Expression, Literal
from millstream.types.type_derivation import supports_explicit_cast, without_time_attribute
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.types.logical_types import LogicalType

__all__ = ["cast", "no_signature", "resolve_call", "resolve_cast", "resolve_definition"]


def resolve_call(name: str, *arguments: Expression) -> Call | Literal:
    """Call a built-in function.

    Args:
        name: its name or alias, whatever its case.
        arguments: bound expressions, before implicit casts.

    Returns:
        The call with its type; arguments are wrapped in CAST where the signature asks for it.
        The negative of a number that is a literal is a literal, and NULLIF is a CASE.

    Raises:
        ProgramError: there is no such function, or no signature fits the arguments.
    """
    definition = get_function(name)
    negative = _negative_literal(definition.name, arguments)
    if negative is not None:
        return negative
    call = resolve_definition(definition, arguments)
    return _null_if_equal(call) if definition.name == "NULLIF" else call


def _null_if_equal(call: Call) -> Call | Literal:
    """NULLIF as the CASE that it stands for."""
    value, other = call.arguments
    condition = resolve_definition(get_function("="), (value, other))
    return Call("CASE", (condition, Literal(None, call.type), value), call.type)


def _negative_literal(name: str, arguments: Sequence[Expression]) -> Literal | None:
    """What a sign before a number makes: types may depend on the value, as in ROUND(x, -2)."""
    if name != "-" or len(arguments) != 1 or not isinstance(arguments[0], Literal):
        return None
    value, type_ = arguments[0].value, arguments[0].type
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    negative = -value if not isinstance(value, Decimal) else value.copy_negate()
    return Literal(wrapped(negative, type_), type_)


def resolve_definition(
    definition: FunctionDefinition, arguments: Sequence[Expression], *, user: bool = False
) -> Call:
    """Call a function whose definition is at hand.

    Args:
        definition: the function.
        arguments: bound expressions, before implicit casts.
        user: whether it is not in the registry: then the call carries the definition.

    Returns:
        The call.

    Raises:
        ProgramError: no signature fits the arguments.
    """
    types = [argument.type for argument in arguments]
    for candidate in definition.signatures:
        wanted = candidate.match(types)
        if wanted is None:
            continue
        adapt = _leniently if definition.reads_leniently else _implicitly
        casted = tuple(map(adapt, arguments, wanted))
        constants = [
            argument.value if isinstance(argument, Literal) else NOT_CONSTANT for argument in casted
        ]
        plain = [without_time_attribute(argument.type) for argument in casted]
        result = candidate.result_type(plain, constants)
        return Call(definition.name, casted, result, definition if user else None)
    raise no_signature(definition, types)


def no_signature(definition: FunctionDefinition, types: Sequence[LogicalType]) -> ProgramError:
    """The error that says what a function takes.

    Args:
        definition: the function.
        types: what it was given.

    Returns:
        The error, to be raised.
    """
    name = definition.name
    given = ", ".join(type_.as_summary_string() for type_ in types)
    if all(candidate.lacks_common_type(types) for candidate in definition.signatures):
        return ProgramError(_no_common_type(name, types))
    forms = "\n".join(f"    {candidate.text(name)}" for candidate in definition.signatures)
    return ProgramError(f"{name} does not take ({given}); it takes\n{forms}")


def _no_common_type(name: str, types: Sequence[LogicalType]) -> str:
    kinds = list(
        dict.fromkeys(
            type_.with_nullability(True).as_summary_string()  # noqa: FBT003 - as in Flink
            for type_ in types
        )
    )
    if len(kinds) == 1:
        return f"{name} does not take values of type {kinds[0]}"
    return (
        f"{name} does not take {' and '.join(kinds)} together: they have no type in common."
        f" Convert one of them, as in CAST(... AS {kinds[0]})"
    )


def _implicitly(argument: Expression, wanted: LogicalType) -> Expression:
    return argument if argument.type == wanted else cast(argument, wanted)


def _leniently(argument: Expression, wanted: LogicalType) -> Expression:
    """The argument cast, where a text that is no time becomes NULL."""
    is_text = argument.type.is_a(TypeFamily.CHARACTER_STRING)
    if not (is_text and wanted.is_a(TypeFamily.DATETIME)):
        return _implicitly(argument, wanted)
    if not isinstance(argument, Literal):
        return resolve_cast(argument, wanted, can_fail=False)
    if argument.value is not None:
        try:
            cast_function(argument.type, wanted, "UTC")(argument.value)
        except ValueError:
            return Literal(None, wanted.with_nullability(True))  # noqa: FBT003
    return cast(argument, wanted)


def cast(argument: Expression, target: LogicalType) -> Expression:
    """The argument as a value of another type; NULL literals just change their type.

    Args:
        argument: a bound expression.
        target: the type; it is made nullable if the argument is.

    Returns:
        A CAST, or the argument if it has that type.
    """
    target = target.with_nullability(argument.type.is_nullable)
    if argument.type == target:
        return argument
    if isinstance(argument, Literal) and argument.value is None:
        return Literal(None, target)
    return Call("CAST", (argument,), target)


def resolve_cast(argument: Expression, target: LogicalType, *, can_fail: bool = True) -> Expression:
    """CAST or TRY_CAST as a program writes it.

    Args:
        argument: a bound expression.
        target: the type; its nullability does not count.
        can_fail: False for TRY_CAST, which gives NULL where a value does not fit.

    Returns:
        The cast; of CAST the argument itself if it has that type.

    Raises:
        ProgramError: there is no such cast.
    """
    if not supports_explicit_cast(argument.type, target):
        raise _no_cast(argument.type, target)
    if can_fail:
        return cast(argument, target)
    return Call("TRY_CAST", (argument,), target.with_nullability(True))  # noqa: FBT003


def _no_cast(source: LogicalType, target: LogicalType) -> ProgramError:
    one, other = source.as_summary_string(), target.as_summary_string()
    message = f"there is no cast from {one} to {other}"
    if source.is_a(TypeFamily.NUMERIC) and target.is_a(TypeFamily.TIMESTAMP):
        message += "; use TO_TIMESTAMP(FROM_UNIXTIME(number)) or TO_TIMESTAMP_LTZ(number, digits)"
    elif source.is_a(TypeFamily.TIMESTAMP) and target.is_a(TypeFamily.NUMERIC):
        message += "; use UNIX_TIMESTAMP(CAST(time AS STRING))"
    return ProgramError(message)
