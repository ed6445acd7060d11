"""Values of any logical type for tests: extremes and NULL first, then seeded chance."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.expressions.decimals import EXACT
from millstream.types.logical_types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    LocalZonedTimestampType,
    LogicalType,
    MapType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    import random

BITS = {
    TypeRoot.TINYINT: 8,
    TypeRoot.SMALLINT: 16,
    TypeRoot.INTEGER: 32,
    TypeRoot.BIGINT: 64,
}
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-7, 1e300, -1e300, 5e-324, 9.3e18, -9.3e18]
FLOATS += [math.nan, math.inf, -math.inf, 123456.789, 2.675, 1.005, 0.1, 1e22, 2.0**31, 2.0**63]
TEXTS = ["", " ", "a", "abc", "ABC", "  12 ", "12", "-7", "1.5", "1e3", "true", "No", "NaN", "x%_"]
TEXTS += [
    "Infinity",
    "2026-02-31",
    "2026-1-5 1:2:3.5",
    "13:05",
    "ä€\U0001f600",
    "a\nb",
    "99999999999",
]
TEXTS += ["2026-01-05 23:59:59.999999999", "1970-01-01", "0001-01-01 00:00:00", "+5", "0x1p3", "5d"]
MAX_DAY = 2_932_896
MIN_DAY = -719_162
NANOS_PER_DAY = 86_400 * 10**9


def values_of(type_: LogicalType, count: int, chance: random.Random) -> list[Any]:
    """Values of a type, NULL among them if it is nullable."""
    special = _special(type_)
    found = [
        chance.choice(special) if chance.random() < 0.5 else _random(type_, chance)
        for _ in range(count)
    ]
    if type_.is_nullable:
        found = [None if chance.random() < 0.15 else value for value in found]
    return found


def boundaries(type_: LogicalType) -> list[Any]:
    """The ends and the odd values of a type; none of types that have no order."""
    if isinstance(type_, ArrayType):
        return [(), (None,), *((one,) for one in boundaries(type_.element))]
    if isinstance(type_, MapType):
        keys, values = boundaries(type_.key), boundaries(type_.value)
        pairs = [{key: value} for key, value in zip(keys, values, strict=False)]
        return [{}, *pairs, *({key: None} for key in keys[:1])]
    if isinstance(type_, RowType):
        columns = [[None, *boundaries(child)] for child in type_.children]
        return list(zip(*columns, strict=False))
    if type_.root in {TypeRoot.BITMAP, TypeRoot.VARIANT, TypeRoot.RAW, TypeRoot.SYMBOL}:
        return []
    return _special(type_)


def _float32(values: list[float]) -> list[float]:
    with np.errstate(over="ignore"):
        return [float(np.float32(value)) for value in values]


def _special(type_: LogicalType) -> list[Any]:  # noqa: PLR0911 - a table
    bits = BITS.get(type_.root)
    if bits is not None:
        half = 1 << (bits - 1)
        return [0, 1, -1, 2, 7, -7, half - 1, -half]
    if isinstance(type_, DecimalType):
        most = 10**type_.precision - 1
        return [EXACT.scaleb(Decimal(n), -type_.scale) for n in (0, 1, -1, 5, most, -most)]
    if isinstance(type_, DoubleType):
        return FLOATS
    if isinstance(type_, FloatType):
        return _float32(FLOATS)
    if isinstance(type_, VarCharType | CharType):
        return [_sized(text, type_) for text in TEXTS]
    if isinstance(type_, VarBinaryType):
        return [b"", b"abc", b"\xff\xfe", "ä".encode()]
    if isinstance(type_, BinaryType):
        return [bytes(type_.length), b"\xff" * type_.length]
    if isinstance(type_, BooleanType):
        return [True, False]
    if type_.root is TypeRoot.NULL:
        return [None]
    return [_random_special(type_, number) for number in (0, 1, -1, MAX_DAY, MIN_DAY)]


def _sized(text: str, type_: VarCharType | CharType) -> str:
    cut = text[: type_.length]
    return cut.ljust(type_.length) if isinstance(type_, CharType) else cut


def _random_special(type_: LogicalType, days: int) -> Any:  # noqa: PLR0911 - a table
    if isinstance(type_, DateType):
        return days
    if isinstance(type_, TimestampType | LocalZonedTimestampType):
        limited = days if type_.precision <= 6 else max(min(days, 90_000), -90_000)
        return limited * NANOS_PER_DAY
    if isinstance(type_, TimeType):
        return 0 if days <= 0 else NANOS_PER_DAY - 10 ** (9 - type_.precision)
    if isinstance(type_, DayTimeIntervalType):
        return days * 86_400_000
    if isinstance(type_, YearMonthIntervalType):
        return days % 5000 - 2500
    if isinstance(type_, ArrayType):
        return (None, _special(type_.element)[days % 3])
    assert isinstance(type_, RowType), type_
    return tuple(_special(child)[days % 2] for child in type_.children)


def _random(type_: LogicalType, chance: random.Random) -> Any:  # noqa: PLR0911 - a table
    bits = BITS.get(type_.root)
    if bits is not None:
        return chance.randrange(-(1 << (bits - 1)), 1 << (bits - 1)) >> chance.randrange(bits)
    if isinstance(type_, DecimalType):
        digits = chance.randrange(1, type_.precision + 1)
        number = Decimal(chance.randrange(-(10**digits) + 1, 10**digits))
        return EXACT.scaleb(number, -type_.scale)
    if isinstance(type_, DoubleType | FloatType):
        value = chance.gauss(0, 1) * 10.0 ** chance.randrange(-3, 12)
        value = round(value, 3) if chance.random() < 0.3 else value
        return _float32([value])[0] if isinstance(type_, FloatType) else value
    if isinstance(type_, VarCharType | CharType):
        text = "".join(chance.choices("aAbB 019.-:%_€\n", k=chance.randrange(12)))
        return _sized(text, type_)
    if isinstance(type_, VarBinaryType):
        return chance.randbytes(chance.randrange(4))
    if isinstance(type_, BooleanType):
        return chance.random() < 0.5
    if type_.root is TypeRoot.NULL:
        return None
    return _random_time(type_, chance)


def _random_time(type_: LogicalType, chance: random.Random) -> Any:
    days = chance.randrange(-40_000, 60_000)
    if isinstance(type_, TimestampType | LocalZonedTimestampType):
        step = 10 ** (9 - type_.precision)
        return (days * NANOS_PER_DAY + chance.randrange(NANOS_PER_DAY)) // step * step
    if isinstance(type_, TimeType):
        step = 10 ** (9 - type_.precision)
        return chance.randrange(NANOS_PER_DAY) // step * step
    if isinstance(type_, ArrayType):
        return tuple(_random(type_.element, chance) for _ in range(chance.randrange(3)))
    if isinstance(type_, RowType):
        return tuple(_random(child, chance) for child in type_.children)
    return _random_special(type_, days)
