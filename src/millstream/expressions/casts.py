"""CAST and TRY_CAST of single values (the reference) and of Arrow columns (the kernel).

As in Flink, numbers wrap or are cut towards zero, decimals are rounded HALF_UP and NULL where they
overflow, and text that does not fit raises ValueError.  The kernel gives NotImplemented for pairs
of types and values it does not handle; the reference runs then.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError
from millstream.expressions.decimals import (
    bits_of,
    fit,
    fit_column,
    is_integer,
    to_decimal_column,
    wrap,
)
from millstream.expressions.java.calendars import zone_of
from millstream.types import logical_types as lt
from millstream.types.bitmaps import bitmap_text
from millstream.types.structured_types import StructuredType
from millstream.types.text_values import (
    NANOS_PER_DAY,
    date_text,
    day_time_text,
    decimal_text,
    double_text,
    float_text,
    iso_instant_text,
    iso_time_text,
    iso_timestamp_text,
    parse_boolean,
    parse_date,
    parse_decimal,
    parse_double,
    parse_integer,
    parse_time,
    parse_timestamp,
    time_text,
    timestamp_text,
    to_float32,
    year_month_text,
)
from millstream.types.type_derivation import supports_explicit_cast
from millstream.types.type_roots import TypeFamily, TypeRoot
from millstream.types.variants import variant_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from millstream.expressions.functions.definition import CallInfo

    Cast: TypeAlias = Callable[[Any], Any]


def text_function(type_: lt.LogicalType, zone: str, style: TextStyle | None = None) -> Cast:
    """Return a function that writes values of that type that are not NULL.

    Args:
        type_: the type of the values.
        zone: the session's time zone.
        style: as a cast writes them unless given.

    Raises:
        ProgramError: values of the type have no text.
    """
    style = style or CAST_STYLE

    def part(kind: lt.LogicalType) -> Callable[[Any], str]:
        inner, null = text_function(kind, zone, style), style.null
        return lambda value: null if value is None else inner(value)

    leaf = style.leaves.get(type_.root) or _LEAVES.get(type_.root)
    if leaf is not None:
        return leaf(type_, zone)
    parts = [part(child) for child in type_.children]
    if isinstance(type_, lt.ArrayType):
        return lambda value: f"[{', '.join(map(parts[0], value))}]"
    if isinstance(type_, lt.MapType | lt.MultisetType):
        key, item = parts[0], str if len(parts) == 1 else parts[1]
        return lambda value: f"{{{', '.join(f'{key(k)}={item(v)}' for k, v in value.items())}}}"
    if not isinstance(type_, lt.RowType):
        message = f"values of type {type_.as_summary_string()} have no text"
        raise ProgramError(message)
    before, after = style.row
    named = style.names_fields and isinstance(type_, StructuredType)
    names = [f"{name}=" if named else "" for name in type_.names]

    def write_row(value: Any) -> str:
        fields = zip(names, parts, value, strict=True)
        return (
            f"{before}{', '.join([f'{name}{write(item)}' for name, write, item in fields])}{after}"
        )

    return write_row


def _boolean_text(value: bool) -> str:  # noqa: FBT001 - a truth value
    return "TRUE" if value else "FALSE"


def _local_timestamp_text(type_: Any, zone: str) -> Cast:
    to_local = zone_of(zone).to_local
    return lambda value: timestamp_text(to_local(value), type_.precision)


def _signed_bytes(value: bytes) -> str:
    return f"[{', '.join(str(each - 256 if each > 127 else each) for each in value)}]"  # noqa: PLR2004


#: What makes the writer of a type whose values are not made of others.
_Leaf: TypeAlias = "Callable[[Any, str], Cast]"


def _plain(write: Cast, *roots: TypeRoot) -> dict[TypeRoot, _Leaf]:
    """The same writer for types of any length or precision."""
    return dict.fromkeys(roots, lambda _type, _zone: write)


_R: Final = TypeRoot
_BYTES: Final = (_R.BINARY, _R.VARBINARY)
_INTEGERS: Final = (_R.TINYINT, _R.SMALLINT, _R.INTEGER, _R.BIGINT)
_INTERVALS: Final = (_R.INTERVAL_YEAR_MONTH, _R.INTERVAL_DAY_TIME)
_LEAVES: Final[dict[TypeRoot, _Leaf]] = {
    **_plain(lambda _: "NULL", _R.NULL),
    **_plain(str, _R.CHAR, _R.VARCHAR, *_INTEGERS),
    **_plain(_boolean_text, _R.BOOLEAN),
    **_plain(lambda value: value.decode("utf-8", "replace"), *_BYTES),
    **_plain(bitmap_text, _R.BITMAP),
    **_plain(variant_json, _R.VARIANT),
    **_plain(decimal_text, _R.DECIMAL),
    **_plain(float_text, _R.FLOAT),
    **_plain(double_text, _R.DOUBLE),
    **_plain(date_text, _R.DATE),
    **_plain(year_month_text, _R.INTERVAL_YEAR_MONTH),
    **_plain(day_time_text, _R.INTERVAL_DAY_TIME),
    _R.TIME_WITHOUT_TIME_ZONE: lambda type_, _: lambda nanos: time_text(nanos, type_.precision),
    _R.TIMESTAMP_WITHOUT_TIME_ZONE: lambda type_, _: (
        lambda nanos: timestamp_text(nanos, type_.precision)
    ),
    _R.TIMESTAMP_WITH_LOCAL_TIME_ZONE: _local_timestamp_text,
}


@dataclass(frozen=True)
class TextStyle:
    """How values are written: NULL inside of others, the ends of a row, and what differs."""

    null: str
    row: tuple[str, str]
    names_fields: bool
    leaves: Mapping[TypeRoot, _Leaf]


CAST_STYLE: Final = TextStyle("NULL", ("(", ")"), names_fields=True, leaves={})
#: What a person reads: bytes as ``x'0aff'``, which a cast decodes.
PRINTED_STYLE: Final = TextStyle(
    "NULL",
    ("(", ")"),
    names_fields=True,
    leaves={
        **_plain(lambda value: f"x'{value.hex()}'", *_BYTES),
        # A result of a job of this program.
        **_plain(lambda value: str(pickle.loads(value)), _R.RAW),
    },
)
#: What Java's ``toString`` says of Flink's values.
JAVA_STYLE: Final = TextStyle(
    "null",
    ("+I[", "]"),
    names_fields=False,
    leaves={
        **_plain(lambda value: "true" if value else "false", _R.BOOLEAN),
        **_plain(_signed_bytes, *_BYTES, _R.RAW),
        **_plain(str, _R.DECIMAL, _R.SYMBOL, *_INTERVALS),
        **_plain(iso_time_text, _R.TIME_WITHOUT_TIME_ZONE),
        **_plain(iso_timestamp_text, _R.TIMESTAMP_WITHOUT_TIME_ZONE),
        **_plain(iso_instant_text, _R.TIMESTAMP_WITH_LOCAL_TIME_ZONE),
    },
)


_MAX_PRECISION: Final = 9
_NANOS_LIMIT: Final = 1 << 63
_MILLI: Final = 1_000_000
_HALF_MILLI: Final = _MILLI // 2


def time_cast(source: lt.LogicalType, target: lt.LogicalType, zone: str) -> Callable[[Any], Any]:
    """A function that casts text, dates, times or timestamps to one of the latter; not of NULL.

    Raises:
        ProgramError: there is no such cast.
    """
    cast = _time_cast(source, target, zone)
    if isinstance(target, lt.TimestampType | lt.LocalZonedTimestampType) and target.unit == "ns":
        return lambda value: _within_nanos(cast(value), target)
    return cast


def _within_nanos(nanos: int, target: lt.LogicalType) -> int:
    """The value, if a column of nanoseconds holds it."""
    if not -_NANOS_LIMIT <= nanos < _NANOS_LIMIT:
        name = target.with_nullability(True).as_summary_string()  # noqa: FBT003
        message = f"{name} holds the years 1678 to 2261; use a precision of 6 for others"
        raise ValueError(message)
    return nanos


def _time_cast(source: lt.LogicalType, target: lt.LogicalType, zone: str) -> Callable[[Any], Any]:
    if source.is_a(TypeFamily.CHARACTER_STRING):
        return _times_from_text(target, zone)
    to_nanos = _to_local_nanos(source, zone)
    if isinstance(source, lt.LocalZonedTimestampType) and isinstance(
        target, lt.LocalZonedTimestampType
    ):
        return _cut(target.precision)
    from_nanos = _from_local_nanos(target, zone)
    return lambda value: from_nanos(to_nanos(value))


def _cut(precision: int) -> Callable[[int], int]:
    step = 10 ** (_MAX_PRECISION - precision)
    return lambda nanos: nanos - nanos % step


def _whole_millis(nanos: int) -> int:
    """A time that was read from text, rounded to milliseconds as in Flink; no day begins."""
    rounded = (nanos + _HALF_MILLI) // _MILLI * _MILLI
    return rounded if rounded < NANOS_PER_DAY else nanos // _MILLI * _MILLI


def _times_from_text(target: lt.LogicalType, zone: str) -> Callable[[Any], Any]:
    if isinstance(target, lt.DateType):
        return parse_date
    if isinstance(target, lt.TimeType):
        cut_time = _cut(target.precision)
        return lambda text: cut_time(_whole_millis(parse_time(text)))
    if isinstance(target, lt.TimestampType):
        precision = target.precision
        return lambda text: parse_timestamp(text, precision)
    if isinstance(target, lt.LocalZonedTimestampType):
        digits, from_local = target.precision, zone_of(zone).from_local
        return lambda text: from_local(parse_timestamp(text, digits))
    raise _refusal(target)


def _refusal(type_: lt.LogicalType) -> ProgramError:
    return ProgramError(f"{type_.as_summary_string()} is no time")


def _to_local_nanos(source: lt.LogicalType, zone: str) -> Callable[[int], int]:
    """Nanoseconds since 1970-01-01 00:00:00 of the session's clock."""
    if isinstance(source, lt.DateType):
        return lambda days: days * NANOS_PER_DAY
    if isinstance(source, lt.LocalZonedTimestampType):
        return zone_of(zone).to_local
    return lambda nanos: nanos


def _from_local_nanos(target: lt.LogicalType, zone: str) -> Callable[[int], int]:
    if isinstance(target, lt.DateType):
        return lambda nanos: nanos // NANOS_PER_DAY
    if isinstance(target, lt.TimeType):
        cut_time = _cut(target.precision)
        return lambda nanos: cut_time(nanos % NANOS_PER_DAY)
    if isinstance(target, lt.TimestampType):
        return _cut(target.precision)
    if isinstance(target, lt.LocalZonedTimestampType):
        cut, from_local = _cut(target.precision), zone_of(zone).from_local
        return lambda nanos: cut(from_local(nanos))
    raise _refusal(target)


_INT_BITS: Final = 32


@lru_cache(maxsize=1000)
def cast_function(  # noqa: PLR0911 - a table
    source: lt.LogicalType, target: lt.LogicalType, zone: str
) -> Cast:
    """A function that casts values that are not NULL; ValueError if a value does not fit.

    Raises:
        ProgramError: there is no such cast.
    """
    if not supports_explicit_cast(source, target):
        one, other = source.as_summary_string(), target.as_summary_string()
        message = f"there is no cast from {one} to {other}"
        raise ProgramError(message)
    if source.with_nullability(True) == target.with_nullability(True):  # noqa: FBT003
        return _identity
    if isinstance(target, lt.CharType | lt.VarCharType):
        return _to_text(source, target, zone)
    if source.is_a(TypeFamily.CHARACTER_STRING):
        return _from_text(target, zone)
    if target.is_a(TypeFamily.NUMERIC):
        return _to_number(source, target)
    if source.children:
        return _nested(source, target, zone)
    if target.root is TypeRoot.BOOLEAN:
        return bool
    if isinstance(target, lt.BinaryType | lt.VarBinaryType):
        return sized_bytes(target)
    if target.is_a(TypeFamily.INTERVAL):
        return _to_interval(source, target)
    return time_cast(source, target, zone)


def _identity(value: Any) -> Any:
    return value


# -- text and bytes ---------------------------------------------------------------------------


def _to_text(source: lt.LogicalType, target: lt.CharType | lt.VarCharType, zone: str) -> Cast:
    write = text_function(source, zone)
    length = target.length
    if isinstance(target, lt.CharType):
        return lambda value: write(value)[:length].ljust(length)
    return lambda value: write(value)[:length]


def sized_bytes(target: lt.BinaryType | lt.VarBinaryType) -> Cast:
    """Return what cuts bytes to the length of a type, and fills up those of BINARY with zeros."""
    length = target.length
    if isinstance(target, lt.BinaryType):
        return lambda value: value[:length].ljust(length, b"\0")
    return lambda value: value[:length]


def _from_text(target: lt.LogicalType, zone: str) -> Cast:  # noqa: PLR0911 - a table
    name = target.with_nullability(True).as_summary_string()  # noqa: FBT003
    if is_integer(target):
        bits = bits_of(target)
        return lambda text: parse_integer(text, bits, name)
    if isinstance(target, lt.DecimalType):
        return _decimal_of_text(target, name)
    if isinstance(target, lt.BinaryType | lt.VarBinaryType):
        size = sized_bytes(target)
        return lambda text: size(text.encode())
    if isinstance(target, lt.FloatType):
        return lambda text: to_float32(parse_double(text, name))
    if target.root is TypeRoot.DOUBLE:
        return parse_double
    if target.root is TypeRoot.BOOLEAN:
        return parse_boolean
    return time_cast(lt.VarCharType(), target, zone)


def _decimal_of_text(target: lt.DecimalType, name: str) -> Cast:
    def cast(text: str) -> Decimal:
        fitted = fit(parse_decimal(text), target)
        if fitted is None:
            message = f"{text!r} is no {name}: it is too large"
            raise ValueError(message)
        return fitted

    return cast


# -- numbers ----------------------------------------------------------------------------------


def _to_number(source: lt.LogicalType, target: lt.LogicalType) -> Cast:
    unit = interval_unit(source)
    if unit is not None:
        inner = _number_to(target)
        return lambda value: inner(_towards_zero(value, unit))
    if source.is_a(TypeFamily.APPROXIMATE_NUMERIC):
        bits = max(bits_of(target), _INT_BITS) if is_integer(target) else 0
        return _number_to(
            target,
            lambda value: _saturated(value, bits),
            lambda value: Decimal(repr(_finite(value))),
        )
    return _number_to(target)


def _towards_zero(value: int, unit: int) -> int:
    return value // unit if value >= 0 else -(-value // unit)


def _number_to(
    target: lt.LogicalType, whole: Callable[[Any], int] = int, decimal: Cast = Decimal
) -> Cast:
    """From numbers, and from truth values, which Python counts among them."""
    if is_integer(target):
        bits = bits_of(target)
        return lambda value: wrap(whole(value), bits)
    if isinstance(target, lt.DecimalType):
        return lambda value: fit(decimal(value), target)
    return to_float32 if isinstance(target, lt.FloatType) else float


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


def interval_unit(type_: lt.LogicalType) -> int | None:
    """Months or milliseconds that the number 1 stands for in an interval; None for other types."""
    if isinstance(type_, lt.YearMonthIntervalType | lt.DayTimeIntervalType):
        return _UNITS[type_.units.split(" ")[-1]]
    return None


def _to_interval(source: lt.LogicalType, target: lt.LogicalType) -> Cast:
    unit = interval_unit(target)
    assert unit is not None  # noqa: S101 - the target is an interval
    bits = 32 if isinstance(target, lt.YearMonthIntervalType) else 64
    if source.is_a(TypeFamily.INTERVAL):
        return _identity
    return lambda value: wrap(int(value * unit), bits)


# -- arrays, maps, rows -----------------------------------------------------------------------


def _nullable(source: lt.LogicalType, target: lt.LogicalType, zone: str) -> Cast:
    if source.root is TypeRoot.NULL:
        return _identity
    inner = cast_function(source, target, zone)
    return lambda value: None if value is None else inner(value)


def _nested(source: lt.LogicalType, target: lt.LogicalType, zone: str) -> Cast:
    parts = [
        _nullable(one, other, zone)
        for one, other in zip(source.children, target.children, strict=True)
    ]
    if isinstance(target, lt.ArrayType):
        return lambda value: tuple(map(parts[0], value))
    if isinstance(target, lt.MultisetType):
        return lambda value: {parts[0](key): count for key, count in value.items()}
    if isinstance(target, lt.MapType):
        return lambda value: {parts[0](key): parts[1](item) for key, item in value.items()}
    assert isinstance(target, lt.RowType)  # noqa: S101 - supports_explicit_cast
    return lambda value: tuple(part(item) for part, item in zip(parts, value, strict=True))


#: 2037-01-01: from then on Arrow (26.0) leaves out daylight saving time.
_LAST_RULES: Final = 2_114_380_800
#: 0001-01-01 and the day after 9999-12-31, in days since 1970.
_FIRST_DAY: Final = -719_162
_BEHIND_DAYS: Final = 2_932_897
_PER_SECOND: Final = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def local_column(column: Any, zone: str) -> Any:
    """A column of instants as the session's clock shows them; None if Arrow cannot tell."""
    if is_utc(zone):
        plain = pa.timestamp(column.type.unit)
        if isinstance(column, pa.Array):
            return column.view(plain)
        return pc.cast(column, pa.timestamp(column.type.unit, "UTC")).cast(plain)
    if isinstance(column, pa.Array):
        latest = pc.max(column.cast(pa.int64())).as_py()
        if latest is not None and latest >= _LAST_RULES * _PER_SECOND[column.type.unit]:
            return None
    try:
        return pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, zone)))
    except (pa.ArrowInvalid, OSError):
        return None


def has_plain_years(column: Any) -> bool:
    """Return whether all years of dates or timestamps are from 1 to 9999.

    Arrow errs beyond some.
    """
    if isinstance(column, pa.Scalar):
        column = pa.repeat(column, 1)
    is_date = pa.types.is_date(column.type)
    per_day = 1 if is_date else 86_400 * _PER_SECOND[column.type.unit]
    ends = pc.min_max(column.cast(pa.int32() if is_date else pa.int64())).as_py()
    if ends["min"] is None:
        return True
    return bool(_FIRST_DAY * per_day <= ends["min"] and ends["max"] < _BEHIND_DAYS * per_day)


def is_utc(zone: str) -> bool:
    """Return whether a time zone is UTC by whatever name."""
    found = zone_of(zone)
    return found.rules is None and found.offset == 0


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
    """The column, or scalar, cast to the result type of the call.

    NotImplemented if it has to be done value by value.
    """
    source, target = info.argument_types[0], info.result_type
    if source.root is TypeRoot.NULL:
        return pa.scalar(None, target.to_arrow())
    if source.with_nullability(target.is_nullable) == target:
        return column
    if isinstance(target, lt.CharType | lt.VarCharType):
        return _column_to_text(info, column, source, target)
    if isinstance(source, lt.CharType | lt.VarCharType):
        return _column_from_text(column, target)
    if target.is_a(TypeFamily.NUMERIC):
        return _column_to_number(column, source, target)
    if target.root is TypeRoot.BOOLEAN:
        return pc.not_equal(column, pa.scalar(0, column.type))
    if isinstance(source, lt.BinaryType | lt.VarBinaryType) and isinstance(
        target, lt.VarBinaryType
    ):
        return column if source.length <= target.length else NotImplemented
    return _to_time(info, column, source, target)


# -- text -------------------------------------------------------------------------------------


def _column_to_text(info: CallInfo, column: Any, source: lt.LogicalType, target: Any) -> Any:
    text = _text(info, column, source)
    if text is NotImplemented:
        return text
    known = isinstance(source, lt.CharType | lt.VarCharType) and source.length <= target.length
    if isinstance(target, lt.VarCharType) and (known or target.length == lt.VarCharType().length):
        return text
    return text_of_length(text, target)


def text_of_length(text: Any, kind: lt.CharType | lt.VarCharType) -> Any:
    """Texts cut to the length of a type, and those of CHAR filled up with blanks."""
    if isinstance(kind, lt.CharType):
        text = pc.utf8_rpad(text, kind.length, " ")
    return pc.utf8_slice_codeunits(text, 0, kind.length)


def _text(info: CallInfo, column: Any, source: lt.LogicalType) -> Any:  # noqa: PLR0911 - a table
    """The column in the format of its type."""
    if isinstance(source, lt.CharType | lt.VarCharType):
        return column
    if is_integer(source):
        return column.cast(pa.string())
    if isinstance(source, lt.DateType):
        return column.cast(pa.string()) if has_plain_years(column) else NotImplemented
    if source.root is TypeRoot.BOOLEAN:
        return pc.if_else(column, "TRUE", "FALSE")
    if isinstance(source, lt.DecimalType) and source.scale <= _PLAIN_SCALE:
        return column.cast(pa.string())
    if source.root is TypeRoot.DOUBLE:
        return _double_text(column)
    if isinstance(source, lt.TimestampType):
        return _timestamp_text(column, source.precision)
    if isinstance(source, lt.LocalZonedTimestampType):
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


def _column_from_text(column: Any, target: lt.LogicalType) -> Any:
    """Text that is plainly a number; all else is left to the parsers."""
    integer = is_integer(target)
    if not integer and target.root is not TypeRoot.DOUBLE:
        if isinstance(target, lt.VarBinaryType) and target.length == lt.VarBinaryType().length:
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


def _column_to_number(column: Any, source: lt.LogicalType, target: lt.LogicalType) -> Any:  # noqa: PLR0911
    if isinstance(target, lt.DecimalType):
        if isinstance(source, lt.DecimalType):
            return fit_column(column, target)
        if source.root is TypeRoot.BOOLEAN:
            return to_decimal_column(column.cast(pa.int64()), target)
        return to_decimal_column(column, target) if is_integer(source) else NotImplemented
    if isinstance(source, lt.DecimalType):
        return _from_decimal(column, source, target)
    if source.is_a(TypeFamily.APPROXIMATE_NUMERIC) and is_integer(target):
        return _truncated(column, target)
    if source.is_a(TypeFamily.NUMERIC) or source.root is TypeRoot.BOOLEAN:
        return pc.cast(column, target.to_arrow(), safe=False)
    return NotImplemented


def _truncated(column: Any, target: lt.LogicalType) -> Any:
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


def _from_decimal(column: Any, source: lt.DecimalType, target: lt.LogicalType) -> Any:
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


def _to_time(info: CallInfo, column: Any, source: lt.LogicalType, target: lt.LogicalType) -> Any:
    if isinstance(source, lt.LocalZonedTimestampType) and not isinstance(
        target, lt.LocalZonedTimestampType
    ):
        local = local_column(column, info.context.time_zone)
        if local is None:
            return NotImplemented
        return _from_local(local, lt.TimestampType(source.precision), target)
    if isinstance(target, lt.LocalZonedTimestampType) and not isinstance(
        source, lt.LocalZonedTimestampType
    ):
        if not is_utc(info.context.time_zone):
            return NotImplemented  # Arrow moves local times that do not exist elsewhere
        local = _from_local(column, source, lt.TimestampType(target.precision))
        return local if local is NotImplemented else local.cast(target.to_arrow())
    return _from_local(column, source, target)


def _from_local(column: Any, source: lt.LogicalType, target: lt.LogicalType) -> Any:
    if isinstance(target, lt.DateType) and isinstance(source, lt.TimestampType):
        return column.cast(pa.date32(), safe=False)
    if not isinstance(target, lt.TimestampType | lt.LocalZonedTimestampType):
        return NotImplemented
    if isinstance(source, lt.DateType):
        return column.cast(target.to_arrow())
    if not isinstance(source, lt.TimestampType | lt.LocalZonedTimestampType):
        return NotImplemented
    if source.precision <= target.precision:
        wanted = target.to_arrow()
        return column if column.type == wanted else column.cast(wanted)
    return _cut_column(column, target)


def _cut_column(column: Any, target: lt.TimestampType | lt.LocalZonedTimestampType) -> Any:
    """Timestamps with fewer digits of the second, cut towards the past."""
    if target.precision not in {_MILLIS, _MICROS}:
        return NotImplemented
    unit = {_MILLIS: "millisecond", _MICROS: "microsecond"}[target.precision]
    return pc.floor_temporal(column, unit=unit).cast(target.to_arrow())
