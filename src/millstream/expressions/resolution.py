"""Resolution of a function name and arguments to a bound call: signature, implicit casts, type."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from millstream.errors import ProgramError
from millstream.expressions.casts import cast_function
from millstream.expressions.decimals import wrapped
from millstream.expressions.functions.definition import NOT_CONSTANT
from millstream.expressions.functions.registry import get_function
from millstream.expressions.nodes import Call, Expression, Literal
from millstream.types.logical_types import LogicalType, SymbolType, VarCharType
from millstream.types.type_derivation import supports_explicit_cast, without_time_attribute
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.functions.definition import FunctionDefinition


def resolve_call(name: str, *arguments: Expression) -> Call | Literal:
    """Call a built-in function, by name or alias, with bound expressions.

    Arguments are wrapped in CAST where the signature asks for it.  The negative of a number that is
    a literal is a literal, and NULLIF is a CASE.

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
    """Call a function with a known definition; the call carries it if it is one of a user.

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
    """Return the error that says what a function takes."""
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
    """The argument as a value of another type, made nullable if the argument is.

    NULL literals just change their type.
    """
    target = target.with_nullability(argument.type.is_nullable)
    if argument.type == target:
        return argument
    if isinstance(argument, Literal) and argument.value is None:
        return Literal(None, target)
    return Call("CAST", (argument,), target)


def resolve_cast(argument: Expression, target: LogicalType, *, can_fail: bool = True) -> Expression:
    """CAST or (``can_fail=False``) TRY_CAST as a program writes it; nullability does not count.

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


_STRING: Final = VarCharType()
_SYMBOL: Final = SymbolType(nullable=False)
_MAKE_JSON: Final = frozenset({"JSON_OBJECT", "JSON_ARRAY", "JSON"})


def _symbol(word: str) -> Literal:
    return Literal(word, _SYMBOL)


def json_exists(json: Expression, path: Expression, on_error: str = "FALSE") -> Expression:
    """JSON_EXISTS; ``on_error``: TRUE, FALSE, UNKNOWN or ERROR."""
    return resolve_call("JSON_EXISTS", json, path, _symbol(on_error))


def json_value(
    json: Expression,
    path: Expression,
    *,
    returning: LogicalType | None = None,
    on_empty: str = "NULL",
    default_on_empty: Expression | None = None,
    on_error: str = "NULL",
    default_on_error: Expression | None = None,
) -> Expression:
    """JSON_VALUE.

    Args:
        json: a string, or a variant.
        path: a string, with ``lax`` or ``strict`` before it.
        returning: STRING (also if None), BOOLEAN, INT or DOUBLE.
        on_empty: NULL, ERROR or DEFAULT.
        default_on_empty: the default, cast to the type returned.
        on_error: NULL, ERROR or DEFAULT.
        default_on_error: the default, cast to the type returned.
    """
    type_ = (returning or _STRING).with_nullability(True)  # noqa: FBT003 - the type's own name
    nothing = Literal(None, type_)
    return resolve_call(
        "JSON_VALUE",
        _text(json),
        path,
        nothing,
        _symbol(on_empty),
        nothing if default_on_empty is None else _default(default_on_empty, type_),
        _symbol(on_error),
        nothing if default_on_error is None else _default(default_on_error, type_),
    )


def _text(json: Expression) -> Expression:
    """The JSON text; of a variant what JSON_STRING writes."""
    return resolve_call("JSON_STRING", json) if json.type.root is TypeRoot.VARIANT else json


def _default(value: Expression, type_: LogicalType) -> Expression:
    """A default, cast; a truth value becomes text as in JSON, in small letters."""
    found = cast(value, type_)
    if value.type.root is TypeRoot.BOOLEAN and type_.is_a(TypeFamily.CHARACTER_STRING):
        return resolve_call("LOWER", found)
    return found


def json_query(
    json: Expression,
    path: Expression,
    *,
    returning: LogicalType | None = None,
    wrapper: str = "WITHOUT",
    on_empty: str = "NULL",
    on_error: str = "NULL",
) -> Expression:
    """JSON_QUERY.

    Args:
        json: a string, or a variant.
        path: a string, with ``lax`` or ``strict`` before it.
        returning: STRING (also if None) or ARRAY<STRING>.
        wrapper: WITHOUT, CONDITIONAL or UNCONDITIONAL.
        on_empty: NULL, EMPTY ARRAY, EMPTY OBJECT or ERROR.
        on_error: as ``on_empty``.
    """
    type_ = (returning or _STRING).with_nullability(True)  # noqa: FBT003 - the type's own name
    words = map(_symbol, (wrapper, on_empty, on_error))
    return resolve_call("JSON_QUERY", _text(json), path, Literal(None, type_), *words)


def _makes_json(value: Expression) -> bool:
    return isinstance(value, Call) and value.function in _MAKE_JSON


def _with_raw(on_null: str, values: Sequence[Expression]) -> Literal:
    raw = ",".join(str(at) for at, value in enumerate(values) if _makes_json(value))
    return _symbol(f"{on_null}:{raw}" if raw else on_null)


def json_object(
    pairs: Sequence[tuple[Expression, Expression]], on_null: str = "NULL"
) -> Expression:
    """JSON_OBJECT of keys and values; ``on_null``: NULL or ABSENT.

    Raises:
        ProgramError: a key is no string, or NULL.
    """
    for key, _ in pairs:
        if not key.type.is_a(TypeFamily.CHARACTER_STRING) or (
            isinstance(key, Literal) and key.value is None
        ):
            message = f"JSON_OBJECT: the key {key} is no string"
            raise ProgramError(message)
    flat = [one for pair in pairs for one in pair]
    return resolve_call("JSON_OBJECT", _with_raw(on_null, [pair[1] for pair in pairs]), *flat)


def json_array(values: Sequence[Expression], on_null: str = "ABSENT") -> Expression:
    """JSON_ARRAY of values; ``on_null``: NULL or ABSENT."""
    return resolve_call("JSON_ARRAY", _with_raw(on_null, values), *values)


def json_string(value: Expression) -> Expression:
    """JSON_STRING of a value; what is made by JSON_OBJECT or JSON_ARRAY is JSON already."""
    if _makes_json(value):
        return resolve_call("JSON_STRING", value, _symbol("RAW"))
    return resolve_call("JSON_STRING", value)
