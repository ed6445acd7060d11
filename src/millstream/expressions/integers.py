"""Integers of Java's widths, in Python's unbounded ones.

What it is: ``wrapped`` makes of a result what an operation of that width gives.

Read next: ``expressions/functions/arithmetic.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from millstream.types.logical_types import LogicalType

__all__ = ["bits_of", "is_integer", "wrap", "wrapped"]

_BITS: Final = {
    TypeRoot.TINYINT: 8,
    TypeRoot.SMALLINT: 16,
    TypeRoot.INTEGER: 32,
    TypeRoot.BIGINT: 64,
}


def is_integer(type_: LogicalType) -> bool:
    """Whether it is an integer type of any width."""
    return type_.is_a(TypeFamily.INTEGER_NUMERIC)


def bits_of(type_: LogicalType) -> int:
    """The width of an integer type."""
    return _BITS[type_.root]


def wrap(value: int, bits: int) -> int:
    """The lowest bits of a number, with sign."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def wrapped(value: Any, type_: LogicalType) -> Any:
    """An integer cut to the width of an integer type; values of other types as they are."""
    bits = _BITS.get(type_.root)
    return value if bits is None else wrap(value, bits)
