"""Casts of single values: the reference of CAST and TRY_CAST.

What it is: ``cast_function(source, target, zone)`` gives a function of one value that is not NULL,
as Flink casts: numbers wrap or are cut towards zero, decimals are rounded HALF_UP and NULL where
they overflow, text that does not fit raises ValueError.

What it is not: which casts are allowed (``types/type_derivation.py``), or casts of columns
(``expressions/casts/columns.py``).

Read next: ``expressions/casts/texts.py``, ``types/text_values.py``.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.expressions.casts.texts import text_function
from millstream.expressions.casts.times import time_cast
from millstream.expressions.decimals import fit
from millstream.expressions.integers import bits_of, is_integer, wrap
from millstream.types.logical_types import (
    ArrayType,
    BinaryType,
    CharType,
    DayTimeIntervalType,
    DecimalType,
    FloatType,
    LogicalType,
    MapType,
    MultisetType,
    RowType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.types.text_values import (
    parse_boolean,
    parse_decimal,
    parse_double,
    parse_integer,
    to_float32,
)
from millstream.types.type_derivation import supports_explicit_cast
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["cast_function", "interval_unit"]

_INT_BITS: Final = 32

if TYPE_CHECKING:
    from typing import TypeAlias

    Cast: TypeAlias = Callable[[Any], Any]


@lru_cache(maxsize=1000)
def cast_function(  # noqa: PLR0911 - a table
    source: LogicalType, target: LogicalType, zone: str
) -> Cast:
    """A function that casts values from one type to another.

    Args:
        source: the type of the values.
        target: the type of the results.
        zone: the session's time zone.

    Returns:
        A function of one value that is not NULL; it raises ValueError if the value does not fit.

    Raises:
        ProgramError: there is no such cast.
    """
    if not supports_explicit_cast(source, target):
        one, other = source.as_summary_string(), target.as_summary_string()
        message = f"there is no cast from {one} to {other}"
        raise ProgramError(message)
    if source.with_nullability(True) == target.with_nullability(True):  # noqa: FBT003
        return _identity
    if isinstance(target, CharType | VarCharType):
        return _to_text(source, target, zone)
    if source.is_a(TypeFamily.CHARACTER_STRING):
        return _from_text(target, zone)
    if target.is_a(TypeFamily.NUMERIC):
        return _to_number(source, target)
    if source.children:
        return _nested(source, target, zone)
    if target.root is TypeRoot.BOOLEAN:
        return bool
    if isinstance(target, BinaryType | VarBinaryType):
        return sized_bytes(target)
    if target.is_a(TypeFamily.INTERVAL):
        return _to_interval(source, target)
    return time_cast(source, target, zone)


def _identity(value: Any) -> Any:
    return value


# -- text and bytes ---------------------------------------------------------------------------


def _to_text(source: LogicalType, target: CharType | VarCharType, zone: str) -> Cast:
    write = text_function(source, zone)
    length = target.length
    if isinstance(target, CharType):
        return lambda value: write(value)[:length].ljust(length)
    return lambda value: write(value)[:length]


def sized_bytes(target: BinaryType | VarBinaryType) -> Cast:
    """What cuts bytes to the length of a type, and fills up those of BINARY with zeros."""
    length = target.length
    if isinstance(target, BinaryType):
        return lambda value: value[:length].ljust(length, b"\0")
    return lambda value: value[:length]


def _from_text(target: LogicalType, zone: str) -> Cast:  # noqa: PLR0911 - a table
    name = target.with_nullability(True).as_summary_string()  # noqa: FBT003
    if is_integer(target):
        bits = bits_of(target)
        return lambda text: parse_integer(text, bits, name)
    if isinstance(target, DecimalType):
        return _decimal_of_text(target, name)
    if isinstance(target, BinaryType | VarBinaryType):
        size = sized_bytes(target)
        return lambda text: size(text.encode())
    if isinstance(target, FloatType):
        return lambda text: to_float32(parse_double(text, name))
    if target.root is TypeRoot.DOUBLE:
        return parse_double
    if target.root is TypeRoot.BOOLEAN:
        return parse_boolean
    return time_cast(VarCharType(), target, zone)


def _decimal_of_text(target: DecimalType, name: str) -> Cast:
    def cast(text: str) -> Decimal:
        fitted = fit(parse_decimal(text), target)
        if fitted is None:
            message = f"{text!r} is no {name}: it is too large"
            raise ValueError(message)
        return fitted

    return cast


# -- numbers ----------------------------------------------------------------------------------


def _to_number(source: LogicalType, target: LogicalType) -> Cast:
    unit = interval_unit(source)
    if unit is not None:
        inner = _integer_to(target)
        return lambda value: inner(_towards_zero(value, unit))
    if source.is_a(TypeFamily.APPROXIMATE_NUMERIC):
        return _float_to(target)
    if isinstance(source, DecimalType):
        return _decimal_to(target)
    return _integer_to(target)


def _towards_zero(value: int, unit: int) -> int:
    return value // unit if value >= 0 else -(-value // unit)


def _integer_to(target: LogicalType) -> Cast:
    """From integers, and from truth values, which Python counts among them."""
    if is_integer(target):
        bits = bits_of(target)
        return lambda value: wrap(int(value), bits)
    if isinstance(target, DecimalType):
        return lambda value: fit(Decimal(int(value)), target)
    return _narrowed(target)


def _narrowed(target: LogicalType) -> Cast:
    if isinstance(target, FloatType):
        return to_float32
    return float


def _decimal_to(target: LogicalType) -> Cast:
    if is_integer(target):
        bits = bits_of(target)
        return lambda value: wrap(int(value), bits)
    if isinstance(target, DecimalType):
        return lambda value: fit(value, target)
    return _narrowed(target)


def _float_to(target: LogicalType) -> Cast:
    if is_integer(target):
        bits = bits_of(target)
        through = max(bits, _INT_BITS)
        return lambda value: wrap(_saturated(value, through), bits)
    if isinstance(target, DecimalType):
        return lambda value: fit(Decimal(repr(_finite(value))), target)
    return _narrowed(target)


def _saturated(value: float, bits: int) -> int:
    """As Java: what is too large becomes the largest, NaN becomes 0; narrower types wrap that."""
    if math.isnan(value):
        return 0
    half = 1 << (bits - 1)
    if math.isinf(value):
        return half - 1 if value > 0 else -half
    return min(max(int(value), -half), half - 1)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        message = f"{value} is no DECIMAL"
        raise ValueError(message)
    return value


# -- intervals --------------------------------------------------------------------------------

_UNITS: Final = {
    "YEAR": 12,
    "MONTH": 1,
    "DAY": 86_400_000,
    "HOUR": 3_600_000,
    "MINUTE": 60_000,
    "SECOND": 1000,
}


def interval_unit(type_: LogicalType) -> int | None:
    """Months or milliseconds that the number 1 stands for in an interval; None for other types."""
    if isinstance(type_, YearMonthIntervalType | DayTimeIntervalType):
        return _UNITS[type_.units.split(" ")[-1]]
    return None


def _to_interval(source: LogicalType, target: LogicalType) -> Cast:
    unit = interval_unit(target)
    assert unit is not None  # noqa: S101 - the target is an interval
    bits = 32 if isinstance(target, YearMonthIntervalType) else 64
    if source.is_a(TypeFamily.INTERVAL):
        return _identity
    return lambda value: wrap(int(value * unit), bits)


# -- arrays, maps, rows -----------------------------------------------------------------------


def _nullable(source: LogicalType, target: LogicalType, zone: str) -> Cast:
    if source.root is TypeRoot.NULL:
        return _identity
    inner = cast_function(source, target, zone)
    return lambda value: None if value is None else inner(value)


def _nested(source: LogicalType, target: LogicalType, zone: str) -> Cast:
    parts = [
        _nullable(one, other, zone)
        for one, other in zip(source.children, target.children, strict=True)
    ]
    if isinstance(target, ArrayType):
        return lambda value: tuple(map(parts[0], value))
    if isinstance(target, MultisetType):
        return lambda value: {parts[0](key): count for key, count in value.items()}
    if isinstance(target, MapType):
        return lambda value: {parts[0](key): parts[1](item) for key, item in value.items()}
    assert isinstance(target, RowType)  # noqa: S101 - supports_explicit_cast
    return lambda value: tuple(part(item) for part, item in zip(parts, value, strict=True))
