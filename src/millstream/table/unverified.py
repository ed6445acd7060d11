"""Values of a program that are not verified: what does not fit is converted, or is NULL.

As in Flink with ``from_elements(verify_schema=False)``: text is made of anything, a number is cut
to the width of an integer, and a value of another type is NULL.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.text_values import text_of
from millstream.table.element_types import values_of
from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LogicalType,
    MapType,
    RowType,
    SmallIntType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
)
from millstream.types.structured_types import StructuredType

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["converted"]

#: Wider integers are numbers of another class in Java.
_LONG: Final = range(-(2**63), 2**63)


def converted(value: Any, kind: LogicalType) -> Any:
    """Return a value that fits the type, or None."""
    if value is None or isinstance(kind, StructuredType):
        return value
    if isinstance(kind, RowType):
        given = values_of(value, kind)
        fits = len(given) == len(kind.children)  # else refused when rows are made
        return tuple(map(converted, given, kind.children)) if fits else value
    if isinstance(kind, ArrayType) and isinstance(value, list | tuple):
        return [converted(each, kind.element) for each in value]
    if isinstance(kind, MapType) and isinstance(value, dict):
        pairs = value.items()
        return {converted(key, kind.key): converted(item, kind.value) for key, item in pairs}
    convert = _CONVERSIONS.get(type(kind))
    return value if convert is None else convert(value)


def _integer(width: int) -> Callable[[object], int | None]:
    half = 1 << (width - 1)

    def cut(value: object) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int) or value not in _LONG:
            return None
        return (value + half) % (2 * half) - half

    return cut


def _bytes(value: object) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _only(kind: type) -> Callable[[object], object]:
    return lambda value: value if isinstance(value, kind) else None


_CONVERSIONS: Final[dict[type[LogicalType], Callable[[Any], object]]] = {
    BooleanType: _only(bool),
    TinyIntType: _integer(8),
    SmallIntType: _integer(16),
    IntType: _integer(32),
    BigIntType: _integer(64),
    FloatType: _only(float),
    DoubleType: _only(float),
    DecimalType: _only(Decimal),
    CharType: text_of,
    VarCharType: text_of,
    BinaryType: _bytes,
    VarBinaryType: _bytes,
}
