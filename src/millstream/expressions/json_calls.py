"""Calls of the JSON functions from the clauses of their grammar.

What it is: what the binder and the Table API use to make calls of JSON_VALUE, JSON_QUERY,
JSON_EXISTS, JSON_OBJECT and JSON_ARRAY; the order of the arguments is said in
``expressions/functions/json.py``.

Read next: ``expressions/functions/json.py``, ``expressions/resolution.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import ProgramError
from millstream.expressions.nodes import Call, Expression, Literal
from millstream.expressions.resolution import cast, resolve_call
from millstream.types.logical_types import LogicalType, SymbolType, VarCharType
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["json_array", "json_exists", "json_object", "json_query", "json_string", "json_value"]

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
