"""Decimal arithmetic as in Flink: rounded HALF_UP to the result's scale, NULL on overflow."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.types.type_roots import INTEGER_BITS, TypeFamily

if TYPE_CHECKING:
    from millstream.types.logical_types import DecimalType, LogicalType


_MAX_DIGITS: Final = 38
_MAX_ARROW_DIGITS: Final = 76
#: Wide enough for sums, products and remainders of what 38 digits hold.
EXACT: Final = Context(prec=200, rounding=ROUND_HALF_UP, Emin=-999_999, Emax=999_999)
#: Flink rounds a quotient to 38 digits first.
QUOTIENT: Final = Context(prec=_MAX_DIGITS, rounding=ROUND_HALF_UP, Emin=-999_999, Emax=999_999)


@lru_cache(maxsize=100)
def _step(scale: int) -> Decimal:
    return Decimal(1).scaleb(-scale)


def fit(value: Decimal, type_: DecimalType, *, rounding: str = ROUND_HALF_UP) -> Decimal | None:
    """A finite number with the type's scale; None if it has too many digits."""
    if value.adjusted() >= type_.precision - type_.scale and value:
        return None
    fitted = value.quantize(_step(type_.scale), rounding=rounding, context=EXACT)
    digits = len(fitted.as_tuple().digits)
    if digits > type_.precision and fitted:
        return None
    return fitted or _step(type_.scale) * 0


def fit_column(array: Any, type_: DecimalType, *, rounding: str = ROUND_HALF_UP) -> Any:
    """A column (or scalar) of decimals as one of the type: rounded, NULL where it overflows."""
    source, target = array.type, type_.to_arrow()
    if source == target:
        return array
    whole = source.precision - source.scale
    if source.scale <= target.scale and whole <= target.precision - target.scale:
        return array.cast(target)
    if source.scale > target.scale and rounding != ROUND_DOWN:
        array = _half_more(array, target.scale)
    # What the scale cannot hold is cut.
    wide = pc.cast(array, pa.decimal256(_MAX_ARROW_DIGITS, target.scale), safe=False)
    limit = Decimal(10) ** (target.precision - target.scale)
    bound = pa.scalar(limit, pa.decimal256(target.precision + 1, target.scale))
    fits = pc.less(pc.abs(wide), bound)
    return pc.if_else(fits, wide, pa.scalar(None, wide.type)).cast(target)


def _half_more(array: Any, scale: int) -> Any:
    """Half a unit of the last digit that is kept added to each number's size.

    Cut then, it is rounded HALF_UP.  Arrow's own rounding of decimals goes wrong where it removes
    18 to 20 digits (as of 26.0).
    """
    precision = min(array.type.precision + 1, _MAX_ARROW_DIGITS - 1)
    wide = array.cast(pa.decimal256(precision, array.type.scale))
    half = Decimal((0, (5,), -scale - 1))
    type_ = pa.decimal256(precision, array.type.scale)
    negative = pc.less(wide, pa.scalar(Decimal(0), type_))
    return pc.add(wide, pc.if_else(negative, pa.scalar(-half, type_), pa.scalar(half, type_)))


def comparable_columns(left: Any, right: Any) -> tuple[Any, Any]:
    """Two columns of decimals with the same scale, so that Arrow compares them."""
    one, other = left.type, right.type
    if one.scale == other.scale:
        return left, right
    scale = max(one.scale, other.scale)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    type_ = pa.decimal256(whole + scale, scale)
    return left.cast(type_), right.cast(type_)


def to_decimal_column(array: Any, type_: DecimalType) -> Any:
    """Integers as decimals of the type; NULL where they overflow."""
    digits = 19
    if type_.precision - type_.scale >= digits:
        return array.cast(type_.to_arrow())
    return fit_column(array.cast(pa.int64()).cast(pa.decimal128(digits, 0)), type_)


def combine_columns(operation: str, left: Any, right: Any, type_: DecimalType) -> Any:
    """Add, subtract or multiply decimals exactly, then fit them to the type.

    NotImplemented if the exact result may have more than 76 digits.
    """
    precision = _exact_precision(operation, left.type, right.type)
    if precision > _MAX_ARROW_DIGITS:
        return NotImplemented
    if precision > _MAX_DIGITS:
        left = left.cast(pa.decimal256(left.type.precision, left.type.scale))
        right = right.cast(pa.decimal256(right.type.precision, right.type.scale))
    return fit_column(getattr(pc, operation)(left, right), type_)


def divide_columns(left: Any, right: Any, type_: DecimalType) -> Any:
    """Divide decimals as Flink does: rounded HALF_UP to 38 digits, then to the type.

    The two roundings are one if the first never makes a half of less than a half.  A quotient
    is no nearer to a half of the last digit than ``1 / (2 * divisor)``, so it suffices that the
    first keeps more digits behind the last than the divisor has; else NotImplemented.

    Raises:
        pa.ArrowException: a divisor is 0.
    """
    one, other = left.type, right.type
    whole = one.precision - one.scale + other.scale
    kept = _MAX_DIGITS - whole - type_.scale
    # With that scale of the dividend, Arrow's quotient has a digit more than is needed.
    scale = max(one.scale, type_.scale + other.scale - other.precision)
    precision = one.precision + scale - one.scale
    digits = precision + other.precision + 1
    if kept <= other.precision or digits > _MAX_ARROW_DIGITS - 1:
        return NotImplemented
    dividend = left.cast(pa.decimal256(precision, scale))
    divisor = right.cast(pa.decimal256(other.precision, other.scale))
    return fit_column(pc.divide(dividend, divisor), type_)


def _exact_precision(operation: str, left: pa.DataType, right: pa.DataType) -> int:
    if operation == "multiply":
        return int(left.precision + right.precision + 1)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return int(whole + max(left.scale, right.scale) + 1)


def is_integer(type_: LogicalType) -> bool:
    """Return whether it is an integer type of any width."""
    return type_.is_a(TypeFamily.INTEGER_NUMERIC)


def bits_of(type_: LogicalType) -> int:
    """The width of an integer type."""
    return INTEGER_BITS[type_.root]


def wrap(value: int, bits: int) -> int:
    """The lowest bits of a number, with sign."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def wrapped(value: Any, type_: LogicalType) -> Any:
    """An integer cut to the width of an integer type; values of other types as they are."""
    bits = INTEGER_BITS.get(type_.root)
    return value if bits is None else wrap(value, bits)
