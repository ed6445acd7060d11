"""Conditions: CASE, NULLIF, COALESCE, IF, IS_ALPHA etc., GREATEST, LEAST.

The arguments of CASE are condition, value, condition, value, ..., otherwise; ``CASE x WHEN 1`` has
become ``x = 1`` before.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.functions.comparison import comparison_types
from millstream.expressions.functions.definition import (
    BOOLEAN,
    CallInfo,
    FunctionGroup,
    Nullability,
    NullBehaviour,
    Signature,
    any_type,
    same_as,
    signature,
)
from millstream.types.logical_types import NullType
from millstream.types.text_values import parse_double
from millstream.types.type_derivation import common_type, supports_implicit_cast
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.types.logical_types import LogicalType


functions: Final = FunctionGroup("conditional")

_LEAST_OF_CASE: Final = 3


def _common_or_null(types: Sequence[LogicalType]) -> LogicalType | None:
    if all(type_.root is TypeRoot.NULL for type_ in types):
        return NullType()
    return common_type(list(types))


def _all_cast(
    types: Sequence[LogicalType], target: LogicalType | None
) -> tuple[LogicalType, ...] | None:
    """The target for each, with its nullability; None if one is not implicitly cast to it."""
    if target is None:
        return None
    nullable = target.with_nullability(True)  # noqa: FBT003
    if not all(supports_implicit_cast(type_, nullable) for type_ in types):
        return None
    return tuple(target.with_nullability(type_.is_nullable) for type_ in types)


def _is_value_of_case(position: int, count: int) -> bool:
    return position % 2 == 1 or position == count - 1


def _case_types(types: Sequence[LogicalType]) -> tuple[LogicalType, ...] | None:
    """Conditions are BOOLEAN; values get their common type."""
    count = len(types)
    if count < _LEAST_OF_CASE or count % 2 == 0:
        return None
    values = [type_ for i, type_ in enumerate(types) if _is_value_of_case(i, count)]
    common = _common_or_null(values)
    if common is None:
        return None
    wanted: list[LogicalType] = []
    for i, type_ in enumerate(types):
        target = common if _is_value_of_case(i, count) else BOOLEAN
        if not supports_implicit_cast(type_, target.with_nullability(True)):  # noqa: FBT003
            return None
        wanted.append(target.with_nullability(type_.is_nullable))
    return tuple(wanted)


def _case_result(types: Sequence[LogicalType], _: Sequence[object]) -> LogicalType:
    values = [type_ for i, type_ in enumerate(types) if _is_value_of_case(i, len(types))]
    return values[0].with_nullability(any(type_.is_nullable for type_ in values))


_CASE: Final = signature(
    "any...", result=_case_result, unify=_case_types, nullability=Nullability.RULE
)
functions.special_form(
    "CASE",
    _CASE,
    syntax="CASE WHEN condition THEN value [WHEN ...] [ELSE value] END",
    documentation="The value of the first condition that is TRUE, else that of ELSE (NULL without)."
    " Values are only evaluated for the rows that they are for.",
    examples=(("CASE WHEN 1 = 2 THEN 'a' ELSE 'b' END", "b"),),
)
functions.special_form(
    "IF",
    signature(
        "boolean condition, any true_value, any false_value",
        result=_case_result,
        unify=_case_types,
        nullability=Nullability.RULE,
    ),
    documentation="true_value if the condition is TRUE, else false_value.",
    examples=(("IF(5 > 3, 5, 3)", "5"),),
)


def _coalesce_types(types: Sequence[LogicalType]) -> tuple[LogicalType, ...] | None:
    return _all_cast(types, _common_or_null(types))


def _coalesce_result(types: Sequence[LogicalType], _: Sequence[object]) -> LogicalType:
    return types[0].with_nullability(all(type_.is_nullable for type_ in types))


def _coalesce(*names: str, repeats: bool) -> Signature:
    return signature(
        *map(any_type, names),
        repeats=repeats,
        result=_coalesce_result,
        unify=_coalesce_types,
        nullability=Nullability.RULE,
    )


functions.special_form(
    "COALESCE",
    _coalesce("value", repeats=True),
    documentation="The first of the values that is not NULL; NULL if all are.",
    examples=(("COALESCE(CAST(NULL AS INT), 5)", "5"),),
)
functions.special_form(
    "IFNULL",
    _coalesce("input", "null_replacement", repeats=False),
    documentation="null_replacement if the input is NULL, else the input.",
    examples=(("IFNULL(CAST(NULL AS INT), 5)", "5"),),
)


def _nullif_types(types: Sequence[LogicalType]) -> tuple[LogicalType, ...] | None:
    return None if comparison_types(types[0], types[1]) is None else tuple(types)


# Calls of it become ``CASE(=(value1, value2), NULL, value1)``: values of different types are
# compared as = compares them.
functions.special_form(
    "NULLIF",
    signature(
        "any value1, any value2",
        result=same_as(0),
        unify=_nullif_types,
        nullability=Nullability.ALWAYS,
    ),
    documentation="NULL if the values are equal, else value1.",
    examples=(("NULLIF(5, 5)", "NULL"), ("NULLIF(5, 0)", "5")),
)


# -- what text consists of --------------------------------------------------------------------


def is_alpha(text: str) -> bool:
    """TRUE if there is at least one character and all are letters."""
    return bool(text) and all(character.isalpha() for character in text)


def is_digit(text: str) -> bool:
    """TRUE if there is at least one character and all are digits."""
    return bool(text) and all(character.isdecimal() for character in text)


def is_decimal(text: str) -> bool:
    """TRUE if CAST makes a DOUBLE of the text."""
    try:
        parse_double(text)
    except ValueError:
        return False
    return True


def _text_test(name: str, test: Callable[[str], bool], examples: Sequence[tuple[str, str]]) -> None:
    """List a test of text; NULL is none of it, numbers are tested by their text."""

    def reference(value: Any) -> object:
        return value is not None and test(value)

    functions.scalar(
        name,
        signature("string", result=BOOLEAN, nullability=Nullability.NEVER),
        nulls=NullBehaviour.CALLED,
        can_fail=False,
        costly=True,
        documentation=test.__doc__ or "",
        examples=examples,
    )(reference)


_text_test("IS_ALPHA", is_alpha, [("IS_ALPHA('abc')", "TRUE"), ("IS_ALPHA('a1')", "FALSE")])
_text_test("IS_DECIMAL", is_decimal, [("IS_DECIMAL('-1.5')", "TRUE")])
_text_test("IS_DIGIT", is_digit, [("IS_DIGIT('123')", "TRUE"), ("IS_DIGIT('1a')", "FALSE")])


# -- the greatest and the least ---------------------------------------------------------------


def _extreme_types(types: Sequence[LogicalType]) -> tuple[LogicalType, ...] | None:
    common = _common_or_null(types)
    if common is None or common.root in {TypeRoot.ARRAY, TypeRoot.ROW, TypeRoot.RAW}:
        return None
    if any(not _alike(type_, common) for type_ in types):
        return None
    return _all_cast(types, common)


def _alike(type_: LogicalType, common: LogicalType) -> bool:
    families = (TypeFamily.NUMERIC, TypeFamily.CHARACTER_STRING, TypeFamily.BINARY_STRING)
    return (
        type_.root in {TypeRoot.NULL, common.root}
        or any(type_.is_a(family) and common.is_a(family) for family in families)
        or (type_.is_a(TypeFamily.DATETIME) and common.is_a(TypeFamily.DATETIME))
    )


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _extreme(name: str, *, greatest: bool) -> None:
    """List GREATEST or LEAST."""
    compare = pc.greater if greatest else pc.less

    def kernel(info: CallInfo, *values: Any) -> Any:
        if pa.types.is_nested(values[0].type) or info.result_type.root is TypeRoot.NULL:
            return NotImplemented
        result = values[0]
        for value in values[1:]:
            # A NULL in the comparison makes the result NULL, as it has to be.
            better = compare(value, result)
            if pa.types.is_floating(result.type):
                # NaN is the greatest number here, as it is for Java's compareTo.
                better = pc.or_(better, pc.is_nan(value if greatest else result))
            result = pc.if_else(better, value, result)
        return result

    def reference(*values: Any) -> object:
        result = values[0]
        for value in values[1:]:
            better = value > result if greatest else value < result
            better = better or _is_nan(value if greatest else result)
            result = value if better else result
        return result

    word, shown = ("greatest", "3") if greatest else ("least", "1")
    functions.scalar(
        name,
        signature("comparable...", result=same_as(0), unify=_extreme_types),
        kernel=kernel,
        can_fail=False,
        documentation=f"The {word} of the values; NULL if one of them is NULL.",
        examples=[(f"{name}(1, 3, 2)", shown)],
    )(reference)


_extreme("GREATEST", greatest=True)
_extreme("LEAST", greatest=False)
