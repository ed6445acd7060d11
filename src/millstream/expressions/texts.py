"""The text of literals and calls in Flink's plans: ``+(a, 1)``, ``_UTF-16LE'text'``, ``5:BIGINT``.

What it is: rules for one node, given the texts of its arguments.

What it is not: SQL that a parser reads back, or the other styles of EXPLAIN; those are in
``expressions/rendering.py``.

Read next: ``expressions/nodes.py``, ``expressions/rendering.py``.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from millstream.types.logical_types import CharType, DecimalType, VarCharType
from millstream.types.text_values import date_text, double_text, time_text, timestamp_text
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.types.logical_types import LogicalType

__all__ = ["call_text", "literal_text", "plan_type_text", "value_text"]

#: Flink's plans have Calcite's names for some types.
_PLAN_NAMES: Final = {TypeRoot.INTEGER: "INTEGER"}


def plan_type_text(type_: LogicalType) -> str:
    """The text of a type inside plans: ``INTEGER``, ``VARCHAR(10) CHARACTER SET "UTF-16LE"``."""
    text = _PLAN_NAMES.get(type_.root)
    if text is None:
        text = type_.with_nullability(True).as_serializable_string()  # noqa: FBT003
    if isinstance(type_, CharType | VarCharType):
        text += ' CHARACTER SET "UTF-16LE"'
    return text if type_.is_nullable else f"{text} NOT NULL"


def literal_text(value: Any, type_: LogicalType) -> str:
    """The text of a literal, with its type where the value alone does not tell it."""
    shown = type_.with_nullability(True)  # noqa: FBT003
    if value is None:
        return f"null:{plan_type_text(shown)}"
    text = value_text(value, type_)
    if isinstance(type_, CharType | VarCharType):
        text = "_UTF-16LE" + text
    return text if _is_told(value, type_) else f"{text}:{plan_type_text(shown)}"


def _is_told(value: Any, type_: LogicalType) -> bool:
    if isinstance(type_, CharType):
        return len(value) == type_.length
    if isinstance(type_, DecimalType):
        digits = value.as_tuple()
        precision = max(len(digits.digits), -digits.exponent)
        return (precision, -digits.exponent) == (type_.precision, type_.scale)
    return type_.root in {
        TypeRoot.BOOLEAN,
        TypeRoot.INTEGER,
        TypeRoot.DATE,
        TypeRoot.SYMBOL,
    }


def value_text(value: Any, type_: LogicalType) -> str:  # noqa: PLR0911 - a table
    """The text of a value without its type; text is quoted."""
    if value is None:
        return "null"
    if type_.is_a(TypeFamily.CHARACTER_STRING):
        return "'" + str(value).replace("'", "''") + "'"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if type_.root is TypeRoot.DATE:
        return date_text(value)
    if type_.root is TypeRoot.TIME_WITHOUT_TIME_ZONE:
        return time_text(value, 0)
    if type_.is_a(TypeFamily.TIMESTAMP):
        return timestamp_text(value, 0 if value % 1_000_000_000 == 0 else 3)
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def call_text(function: str, arguments: Sequence[str], type_: LogicalType) -> str:
    """The text of a call, its name in front: ``+(a, 1)``, ``CAST(a AS BIGINT)``."""
    if function in {"CAST", "TRY_CAST"}:
        target = plan_type_text(type_.with_nullability(True))  # noqa: FBT003
        return f"{function}({arguments[0]} AS {target})"
    return f"{function}({', '.join(arguments)})"
