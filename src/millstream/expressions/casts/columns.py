"""Casts of columns: the kernel of CAST and TRY_CAST.

What it is: a table from pairs of types to functions on Arrow columns, for the casts that Arrow, or
a few of its functions together, does as Flink does.  A cast that is not here, or a value that one
of these does not take (text that is no plain number), gives NotImplemented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.decimals import fit_column, is_integer, to_decimal_column
from millstream.expressions.local_times import has_plain_years, is_utc, local_column
from millstream.types.logical_types import (
    BinaryType,
    CharType,
    DateType,
    DecimalType,
    LocalZonedTimestampType,
    LogicalType,
    TimestampType,
    VarBinaryType,
    VarCharType,
)
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.expressions.functions.definition import CallInfo


_LONG_DIGITS: Final = 18
_PLAIN_SCALE: Final = 6
_EXACT_DIGITS: Final = 15
_EXACT_POWER: Final = 22
_MILLIS: Final = 3
_MICROS: Final = 6
_LEAST_PLAIN: Final = 1e-3
_LEAST_LARGE: Final = 1e7
_UNIT_DIGITS: Final = {"ms": 3, "us": 6, "ns": 9}
_INTEGER_TEXT: Final = "^-?[0-9]{1,18}$"
_DOUBLE_TEXT: Final = r"^-?[0-9]{1,300}(\.[0-9]+)?$"


def cast_column(info: CallInfo, column: Any) -> Any:  # noqa: PLR0911 - a table
    """The column cast to the result type of the call.

    Args:
        info: the call.
        column: an array, or a scalar.

    Returns:
        A column, or NotImplemented if it has to be done value by value.
    """
    source, target = info.argument_types[0], info.result_type
    if source.root is TypeRoot.NULL:
        return pa.scalar(None, target.to_arrow())
    if source.with_nullability(target.is_nullable) == target:
        return column
    if isinstance(target, CharType | VarCharType):
        return _to_text(info, column, source, target)
    if isinstance(source, CharType | VarCharType):
        return _from_text(column, target)
    if target.is_a(TypeFamily.NUMERIC):
        return _to_number(column, source, target)
    if target.root is TypeRoot.BOOLEAN:
        return pc.not_equal(column, pa.scalar(0, column.type))
    if isinstance(source, BinaryType | VarBinaryType) and isinstance(target, VarBinaryType):
        return column if source.length <= target.length else NotImplemented
    return _to_time(info, column, source, target)


# -- text -------------------------------------------------------------------------------------


def _to_text(info: CallInfo, column: Any, source: LogicalType, target: Any) -> Any:
    text = _text(info, column, source)
    if text is NotImplemented:
        return text
    known = isinstance(source, CharType | VarCharType) and source.length <= target.length
    if isinstance(target, VarCharType) and (known or target.length == VarCharType().length):
        return text
    return text_of_length(text, target)


def text_of_length(text: Any, kind: CharType | VarCharType) -> Any:
    """Texts cut to the length of a type, and those of CHAR filled up with blanks."""
    if isinstance(kind, CharType):
        text = pc.utf8_rpad(text, kind.length, " ")
    return pc.utf8_slice_codeunits(text, 0, kind.length)


def _text(info: CallInfo, column: Any, source: LogicalType) -> Any:  # noqa: PLR0911 - a table
    """The column in the format of its type."""
    if isinstance(source, CharType | VarCharType):
        return column
    if is_integer(source):
        return column.cast(pa.string())
    if isinstance(source, DateType):
        return column.cast(pa.string()) if has_plain_years(column) else NotImplemented
    if source.root is TypeRoot.BOOLEAN:
        return pc.if_else(column, "TRUE", "FALSE")
    if isinstance(source, DecimalType) and source.scale <= _PLAIN_SCALE:
        return column.cast(pa.string())
    if source.root is TypeRoot.DOUBLE:
        return _double_text(column)
    if isinstance(source, TimestampType):
        return _timestamp_text(column, source.precision)
    if isinstance(source, LocalZonedTimestampType):
        local = local_column(column, info.context.time_zone)
        return NotImplemented if local is None else _timestamp_text(local, source.precision)
    return NotImplemented


def _double_text(column: Any) -> Any:
    """Numbers that Java writes without an exponent; Arrow leaves out the zero behind the point."""
    size = pc.abs(column)
    plain = pc.and_(pc.greater_equal(size, _LEAST_PLAIN), pc.less(size, _LEAST_LARGE))
    if not _all_true(pc.or_(plain, pc.equal(column, 0.0))):
        return NotImplemented
    text = column.cast(pa.string())
    fraction = pc.if_else(pc.match_substring(text, "."), "", ".0")
    return pc.binary_join_element_wise(text, fraction, "")


def _timestamp_text(column: Any, precision: int) -> Any:
    if not has_plain_years(column):
        return NotImplemented
    text = column.cast(pa.string())
    if precision == _UNIT_DIGITS[column.type.unit]:
        return text
    surplus = _UNIT_DIGITS[column.type.unit] - precision + (precision == 0)
    return pc.utf8_slice_codeunits(text, 0, -surplus)


def _from_text(column: Any, target: LogicalType) -> Any:
    """Text that is plainly a number; all else is left to the parsers."""
    integer = is_integer(target)
    if not integer and target.root is not TypeRoot.DOUBLE:
        if isinstance(target, VarBinaryType) and target.length == VarBinaryType().length:
            return column.cast(pa.binary())
        return NotImplemented
    plain = pc.match_substring_regex(column, _INTEGER_TEXT if integer else _DOUBLE_TEXT)
    if not _all_true(plain):
        return NotImplemented
    try:
        return column.cast(target.to_arrow())
    except pa.ArrowInvalid:
        return NotImplemented  # too large: the parser says which


def _all_true(mask: Any) -> bool:
    if isinstance(mask, pa.Scalar):
        return mask.as_py() is not False
    return bool(pc.all(mask).as_py() is not False)


# -- numbers ----------------------------------------------------------------------------------


def _to_number(column: Any, source: LogicalType, target: LogicalType) -> Any:  # noqa: PLR0911
    if isinstance(target, DecimalType):
        if isinstance(source, DecimalType):
            return fit_column(column, target)
        if source.root is TypeRoot.BOOLEAN:
            return to_decimal_column(column.cast(pa.int64()), target)
        return to_decimal_column(column, target) if is_integer(source) else NotImplemented
    if isinstance(source, DecimalType):
        return _from_decimal(column, source, target)
    if source.is_a(TypeFamily.APPROXIMATE_NUMERIC) and is_integer(target):
        return _truncated(column, target)
    if source.is_a(TypeFamily.NUMERIC) or source.root is TypeRoot.BOOLEAN:
        return pc.cast(column, target.to_arrow(), safe=False)
    return NotImplemented


def _truncated(column: Any, target: LogicalType) -> Any:
    """Floating-point numbers cut towards zero as Java does: to 32 or 64 bits, then to fewer."""
    if isinstance(column, pa.Scalar):
        return NotImplemented
    values = column.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)
    through = np.int64 if target.root is TypeRoot.BIGINT else np.int32
    bounds = np.iinfo(through)
    limit = -float(bounds.min)
    inside = np.abs(values) < limit
    longs = np.where(inside, values, 0.0).astype(through)
    if not inside.all():
        longs[values >= limit] = bounds.max
        longs[values <= -limit] = bounds.min
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(longs.astype(target.to_arrow().to_pandas_dtype()), mask=mask)


def _from_decimal(column: Any, source: DecimalType, target: LogicalType) -> Any:
    if is_integer(target) and source.precision <= _LONG_DIGITS:
        longs = pc.cast(column, pa.int64(), safe=False)
        return pc.cast(longs, target.to_arrow(), safe=False)
    exact = source.precision <= _EXACT_DIGITS and source.scale <= _EXACT_POWER
    if target.root is TypeRoot.DOUBLE and exact and isinstance(column, pa.Array):
        # Both are exact in 64 bits, so the quotient is rounded once.
        mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        return pa.array(_unscaled(column) / 10.0**source.scale, mask=mask)
    return NotImplemented


def _unscaled(column: pa.Array) -> NDArray[np.float64]:
    """The digits of decimals that fit 64 bits, without their point."""
    words = np.frombuffer(column.buffers()[1], dtype="<i8")
    lowest = words[2 * column.offset : 2 * (column.offset + len(column)) : 2]
    return lowest.astype(np.float64)


# -- times ------------------------------------------------------------------------------------


def _to_time(info: CallInfo, column: Any, source: LogicalType, target: LogicalType) -> Any:
    if isinstance(source, LocalZonedTimestampType) and not isinstance(
        target, LocalZonedTimestampType
    ):
        local = local_column(column, info.context.time_zone)
        if local is None:
            return NotImplemented
        return _from_local(local, TimestampType(source.precision), target)
    if isinstance(target, LocalZonedTimestampType) and not isinstance(
        source, LocalZonedTimestampType
    ):
        if not is_utc(info.context.time_zone):
            return NotImplemented  # Arrow moves local times that do not exist elsewhere
        local = _from_local(column, source, TimestampType(target.precision))
        return local if local is NotImplemented else local.cast(target.to_arrow())
    return _from_local(column, source, target)


def _from_local(column: Any, source: LogicalType, target: LogicalType) -> Any:
    if isinstance(target, DateType) and isinstance(source, TimestampType):
        return column.cast(pa.date32(), safe=False)
    if not isinstance(target, TimestampType | LocalZonedTimestampType):
        return NotImplemented
    if isinstance(source, DateType):
        return column.cast(target.to_arrow())
    if not isinstance(source, TimestampType | LocalZonedTimestampType):
        return NotImplemented
    if source.precision <= target.precision:
        wanted = target.to_arrow()
        return column if column.type == wanted else column.cast(wanted)
    return _cut(column, target)


def _cut(column: Any, target: TimestampType | LocalZonedTimestampType) -> Any:
    """Timestamps with fewer digits of the second, cut towards the past."""
    if target.precision not in {_MILLIS, _MICROS}:
        return NotImplemented
    unit = {_MILLIS: "millisecond", _MICROS: "microsecond"}[target.precision]
    return pc.floor_temporal(column, unit=unit).cast(target.to_arrow())
