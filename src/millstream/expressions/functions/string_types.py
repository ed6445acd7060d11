"""Types of the results of string functions: lengths that follow from those of the arguments.

Read next: ``expressions/functions/string.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.types.logical_types import (
    ArrayType,
    BinaryType,
    CharType,
    MapType,
    VarBinaryType,
    VarCharType,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.functions.signatures import ResultRule
    from millstream.types.logical_types import LogicalType

__all__ = ["STRINGS", "STRING_MAP", "concatenated", "varying"]

STRINGS: Final = ArrayType(VarCharType())
STRING_MAP: Final = MapType(VarCharType(), VarCharType())
_MOST: Final = VarCharType().length


def _length(type_: LogicalType) -> int:
    if isinstance(type_, CharType | VarCharType | BinaryType | VarBinaryType):
        return type_.length
    return _MOST


def varying(*positions: int) -> ResultRule:
    """VARCHAR as long as the arguments at these positions are together."""

    def rule(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
        del constants
        return VarCharType(min(_MOST, sum(_length(types[position]) for position in positions)))

    return rule


def concatenated(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    """The type of ``a || b``: fixed if both are, of both lengths together."""
    del constants
    length = min(_MOST, sum(map(_length, types)))
    if all(isinstance(type_, BinaryType | VarBinaryType) for type_ in types):
        fixed = all(isinstance(type_, BinaryType) for type_ in types)
        return BinaryType(length) if fixed else VarBinaryType(length)
    fixed = all(isinstance(type_, CharType) for type_ in types)
    return CharType(length) if fixed and length else VarCharType(length)
