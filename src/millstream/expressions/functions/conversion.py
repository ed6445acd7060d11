"""Conversions: CAST, TRY_CAST, TYPEOF; the target of a cast is the type of the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.expressions.casts import cast_column, cast_function
from millstream.expressions.functions.definition import (
    STRING,
    CallInfo,
    FunctionGroup,
    Nullability,
    NullBehaviour,
    same_as,
    signature,
)

if TYPE_CHECKING:
    from collections.abc import Callable


functions: Final = FunctionGroup("conversion")


def _function(info: CallInfo) -> Callable[[Any], Any]:
    """The cast of this call, for the session's time zone."""
    zone = info.context.time_zone
    if info.state.get("zone") != zone:
        info.state["function"] = cast_function(info.argument_types[0], info.result_type, zone)
        info.state["zone"] = zone
    function: Callable[[Any], Any] = info.state["function"]
    return function


@functions.scalar(
    "CAST",
    signature("any", result=same_as(0)),
    kernel=cast_column,
    contextual=True,
    syntax="CAST(value AS type)",
    examples=[("CAST('42' AS INT)", "42"), ("CAST(42 AS STRING)", "42")],
)
def cast(info: CallInfo, value: Any) -> object:
    """The value as one of another type; fails if it does not fit."""
    return _function(info)(value)


def _try_cast_column(info: CallInfo, column: Any) -> Any:
    try:
        return cast_column(info, column)
    except pa.ArrowInvalid:
        return NotImplemented


@functions.scalar(
    "TRY_CAST",
    signature("any", result=same_as(0), nullability=Nullability.ALWAYS),
    kernel=_try_cast_column,
    contextual=True,
    can_fail=False,
    syntax="TRY_CAST(value AS type)",
    examples=[("TRY_CAST('42' AS INT)", "42"), ("TRY_CAST('abc' AS INT)", "NULL")],
)
def try_cast(info: CallInfo, value: Any) -> object:
    """The value as one of another type; NULL if it does not fit."""
    try:
        return _function(info)(value)
    except ValueError:
        return None


@functions.scalar(
    "TYPEOF",
    signature("any[, boolean force_serializable]", result=STRING, nullability=Nullability.ALWAYS),
    nulls=NullBehaviour.CALLED,
    contextual=True,
    can_fail=False,
    examples=[("TYPEOF(1)", "INT NOT NULL"), ("TYPEOF('a', TRUE)", "CHAR(1) NOT NULL")],
)
def type_of(info: CallInfo, value: Any, force_serializable: bool = False) -> object:  # noqa: FBT001, FBT002
    """The text of the type of the value; with TRUE the one that a parser reads back."""
    del value
    type_ = info.argument_types[0]
    if force_serializable:
        return type_.as_serializable_string()
    return type_.as_summary_string()
