"""Casts of single values: the reference of CAST and TRY_CAST.

What it is: ``cast_function(source, target, zone)`` gives a function of one value that is not NULL,
as Flink casts: numbers wrap or are cut towards zero, decimals are rounded HALF_UP and NULL where
they overflow, text that does not fit raises ValueError.
"""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.expressions.decimals import bits_of, fit, is_integer, wrap
from millstream.expressions.java.calendars import zone_of
from millstream.types.bitmaps import bitmap_text
from millstream.types.logical_types import (
    ArrayType,
    BinaryType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    LogicalType,
    MapType,
    MultisetType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.types.structured_types import StructuredType
from millstream.types.text_values import (
    NANOS_PER_DAY,
    date_text,
    day_time_text,
    decimal_text,
    double_text,
    float_text,
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
    from collections.abc import Callable
    from typing import TypeAlias

    Cast: TypeAlias = Callable[[Any], Any]


_NULL: Final = "NULL"


def text_function(  # noqa: C901, PLR0911 - a table
    type_: LogicalType, zone: str, *, printing: bool = False
) -> Callable[[Any], str]:
    """Return a function that writes values of that type.

    Args:
        type_: the type of the values.
        zone: the session's time zone.
        printing: write what a person reads, where bytes are ``x'0aff'``; a cast decodes them.

    Returns:
        A function of one value that is not NULL.

    Raises:
        ProgramError: values of the type have no text.
    """
    if printing and type_.root in _PRINTED:
        return _PRINTED[type_.root]
    plain = _PLAIN.get(type_.root)
    if plain is not None:
        return plain
    if isinstance(type_, TimeType):
        return lambda value: time_text(value, type_.precision)
    if isinstance(type_, TimestampType):
        return lambda value: timestamp_text(value, type_.precision)
    if isinstance(type_, LocalZonedTimestampType):
        to_local = zone_of(zone).to_local
        return lambda value: timestamp_text(to_local(value), type_.precision)

    def part(kind: LogicalType) -> Callable[[Any], str]:
        inner = text_function(kind, zone, printing=printing)
        return lambda value: _NULL if value is None else inner(value)

    if isinstance(type_, ArrayType):
        item = part(type_.element)
        return lambda value: f"[{', '.join(map(item, value))}]"
    if isinstance(type_, MapType | MultisetType):
        key, other = type_.children[0], IntType()
        return _map_text(part(key), part(type_.value if isinstance(type_, MapType) else other))
    if isinstance(type_, StructuredType):
        fields = [(each.name, part(each.type)) for each in type_]
        return lambda value: (
            f"({', '.join(f'{n}={f(item)}' for (n, f), item in zip(fields, value, strict=True))})"
        )
    if isinstance(type_, RowType):
        items = [part(child) for child in type_.children]
        return lambda value: (
            f"({', '.join(write(item) for write, item in zip(items, value, strict=True))})"
        )
    message = f"values of type {type_.as_summary_string()} have no text"
    raise ProgramError(message)


def _map_text(key: Callable[[Any], str], item: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: f"{{{', '.join(f'{key(k)}={item(v)}' for k, v in value.items())}}}"


def _boolean_text(value: bool) -> str:  # noqa: FBT001 - a truth value
    return "TRUE" if value else "FALSE"


def _bytes_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _hex_text(value: bytes) -> str:
    return f"x'{value.hex()}'"


def _object_text(value: bytes) -> str:
    # A result of a job of this program.
    return str(pickle.loads(value))


def _null_text(value: object) -> str:
    del value
    return _NULL


_PLAIN: Final[dict[TypeRoot, Callable[[Any], str]]] = {
    TypeRoot.NULL: _null_text,
    TypeRoot.CHAR: str,
    TypeRoot.VARCHAR: str,
    TypeRoot.BOOLEAN: _boolean_text,
    TypeRoot.BINARY: _bytes_text,
    TypeRoot.VARBINARY: _bytes_text,
    TypeRoot.BITMAP: bitmap_text,
    TypeRoot.VARIANT: variant_json,
    TypeRoot.DECIMAL: decimal_text,
    TypeRoot.TINYINT: str,
    TypeRoot.SMALLINT: str,
    TypeRoot.INTEGER: str,
    TypeRoot.BIGINT: str,
    TypeRoot.FLOAT: float_text,
    TypeRoot.DOUBLE: double_text,
    TypeRoot.DATE: date_text,
    TypeRoot.INTERVAL_YEAR_MONTH: year_month_text,
    TypeRoot.INTERVAL_DAY_TIME: day_time_text,
}
#: What is written differently, or only there, when results are printed.
_PRINTED: Final[dict[TypeRoot, Callable[[Any], str]]] = {
    TypeRoot.BINARY: _hex_text,
    TypeRoot.VARBINARY: _hex_text,
    TypeRoot.RAW: _object_text,
}


_MAX_PRECISION: Final = 9
_NANOS_LIMIT: Final = 1 << 63
_MILLI: Final = 1_000_000
_HALF_MILLI: Final = _MILLI // 2


def time_cast(source: LogicalType, target: LogicalType, zone: str) -> Callable[[Any], Any]:
    """A function that casts to a date, a time or a timestamp.

    Args:
        source: the type of the values: one of those, or text.
        target: a date, a time or a timestamp.
        zone: the session's time zone.

    Returns:
        A function of one value that is not NULL.

    Raises:
        ProgramError: there is no such cast.
    """
    cast = _time_cast(source, target, zone)
    if isinstance(target, TimestampType | LocalZonedTimestampType) and target.unit == "ns":
        return lambda value: _within_nanos(cast(value), target)
    return cast


def _within_nanos(nanos: int, target: LogicalType) -> int:
    """The value, if a column of nanoseconds holds it."""
    if not -_NANOS_LIMIT <= nanos < _NANOS_LIMIT:
        name = target.with_nullability(True).as_summary_string()  # noqa: FBT003
        message = f"{name} holds the years 1678 to 2261; use a precision of 6 for others"
        raise ValueError(message)
    return nanos


def _time_cast(source: LogicalType, target: LogicalType, zone: str) -> Callable[[Any], Any]:
    if source.is_a(TypeFamily.CHARACTER_STRING):
        return _times_from_text(target, zone)
    to_nanos = _to_local_nanos(source, zone)
    if isinstance(source, LocalZonedTimestampType) and isinstance(target, LocalZonedTimestampType):
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


def _times_from_text(target: LogicalType, zone: str) -> Callable[[Any], Any]:
    if isinstance(target, DateType):
        return parse_date
    if isinstance(target, TimeType):
        cut_time = _cut(target.precision)
        return lambda text: cut_time(_whole_millis(parse_time(text)))
    if isinstance(target, TimestampType):
        precision = target.precision
        return lambda text: parse_timestamp(text, precision)
    if isinstance(target, LocalZonedTimestampType):
        digits, from_local = target.precision, zone_of(zone).from_local
        return lambda text: from_local(parse_timestamp(text, digits))
    raise _refusal(target)


def _refusal(type_: LogicalType) -> ProgramError:
    return ProgramError(f"{type_.as_summary_string()} is no time")


def _to_local_nanos(source: LogicalType, zone: str) -> Callable[[int], int]:
    """Nanoseconds since 1970-01-01 00:00:00 of the session's clock."""
    if isinstance(source, DateType):
        return lambda days: days * NANOS_PER_DAY
    if isinstance(source, LocalZonedTimestampType):
        return zone_of(zone).to_local
    return lambda nanos: nanos


def _from_local_nanos(target: LogicalType, zone: str) -> Callable[[int], int]:
    if isinstance(target, DateType):
        return lambda nanos: nanos // NANOS_PER_DAY
    if isinstance(target, TimeType):
        cut_time = _cut(target.precision)
        return lambda nanos: cut_time(nanos % NANOS_PER_DAY)
    if isinstance(target, TimestampType):
        return _cut(target.precision)
    if isinstance(target, LocalZonedTimestampType):
        cut, from_local = _cut(target.precision), zone_of(zone).from_local
        return lambda nanos: cut(from_local(nanos))
    raise _refusal(target)


_INT_BITS: Final = 32


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
