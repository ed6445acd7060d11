"""Values of logical types as programs see them: datetime, Decimal, list, dict, Row.

They are converted to and from the values behind SQL's functions (the table in
``expressions/nodes.py``); Python literals of the Table API get their types here.
"""

from __future__ import annotations

import datetime as dt
import pickle
from dataclasses import is_dataclass
from decimal import Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.errors import ProgramError, TypeMismatchError
from millstream.types import logical_types as lt
from millstream.types.bitmaps import (
    BitmapType,
    VariantType,
    bitmap_bytes,
    bitmap_of_values,
    frozen_bitmap,
    is_bitmap,
)
from millstream.types.columns import as_key
from millstream.types.row import Row, row_class
from millstream.types.structured_types import StructuredType, has_class, python_class
from millstream.types.time import Duration, Instant
from millstream.types.type_derivation import common_type
from millstream.types.type_roots import INTEGER_BITS, TypeFamily, TypeRoot
from millstream.types.variants import Variant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
#: Wide enough for any DECIMAL.
_EXACT: Final = Context(prec=100)
_MICRO: Final = dt.timedelta(microseconds=1)
_INT_LIMIT: Final = 1 << 31
_LONG_LIMIT: Final = 1 << 63
_MILLIS: Final = 3
_MICROS: Final = 6


# -- to what programs see ---------------------------------------------------------------------


@lru_cache(maxsize=1000)
def to_external(type_: lt.LogicalType) -> Callable[[Any], Any]:
    """A function from values as SQL's functions have them to what programs see; NULL stays None.

    DATE becomes ``datetime.date``, TIME ``datetime.time``, TIMESTAMP a naive and TIMESTAMP_LTZ an
    aware ``datetime.datetime`` in UTC (nanoseconds are cut to microseconds), an interval of days
    ``datetime.timedelta`` and one of months an int, ARRAY a list, ROW a ``Row``, STRUCTURED an
    object of its class, or a ``Row``, RAW its object, BITMAP a ``pyroaring.FrozenBitMap`` of
    numbers without a sign, VARIANT a ``Variant``.
    """
    convert = _to_external(type_)
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _to_external(type_: lt.LogicalType) -> Callable[[Any], Any] | None:
    """None if values stay as they are."""
    if isinstance(type_, lt.ArrayType):
        item = to_external(type_.element)
        return lambda value: list(map(item, value))
    if isinstance(type_, lt.MapType | lt.MultisetType):
        key = to_external(type_.children[0])
        other = to_external(type_.children[-1] if isinstance(type_, lt.MapType) else lt.IntType())
        return _map_maker(type_.children[0], key, other)
    if isinstance(type_, lt.RowType):
        parts = [to_external(child) for child in type_.children]
        found = python_class(type_) if isinstance(type_, StructuredType) else None
        if found is not None:
            return _object_maker(found, tuple(type_.names), parts)
        make: Callable[[Any], Any] = row_class(tuple(type_.names))
        return lambda value: make(part(item) for part, item in zip(parts, value, strict=True))
    return _TO_EXTERNAL.get(type_.root)


def _map_maker(
    kind: lt.LogicalType, key: Callable[[Any], Any], other: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    def make(value: Any) -> Any:
        try:
            return {as_key(key(k)): other(v) for k, v in value.items()}
        except TypeError as error:
            if not has_class(kind):
                raise
            message = (
                f"values of {kind.as_summary_string()} are keys of a map or a multiset, and cannot "
                f"be hashed ({error}): have the class be @dataclass(frozen=True)"
            )
            raise TypeMismatchError(message) from error

    return make


def _object_maker(
    found: type, names: tuple[str, ...], parts: list[Callable[[Any], Any]]
) -> Callable[[Any], Any]:
    fields = list(zip(names, parts, strict=True))

    def make(value: Any) -> Any:
        return found(**{n: part(item) for (n, part), item in zip(fields, value, strict=True)})

    return make


def _date(days: int) -> dt.date:
    return dt.date.fromordinal(days + _EPOCH_DAY)


def _time(nanos: int) -> dt.time:
    seconds, rest = divmod(nanos, 1_000_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return dt.time(hour, minute, second, rest // 1000)


def _timestamp(nanos: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=nanos // 1000)


def _instant(nanos: int) -> dt.datetime:
    return _timestamp(nanos).replace(tzinfo=dt.UTC)


def _duration(millis: int) -> dt.timedelta:
    return dt.timedelta(milliseconds=millis)


_TO_EXTERNAL: Final[dict[TypeRoot, Callable[[Any], Any]]] = {
    TypeRoot.DATE: _date,
    TypeRoot.TIME_WITHOUT_TIME_ZONE: _time,
    TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE: _timestamp,
    TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE: _instant,
    TypeRoot.INTERVAL_DAY_TIME: _duration,
    TypeRoot.RAW: pickle.loads,
    TypeRoot.BITMAP: frozen_bitmap,
    TypeRoot.VARIANT: Variant,
}


# -- from what programs give ------------------------------------------------------------------


@lru_cache(maxsize=1000)
def from_external(type_: lt.LogicalType) -> Callable[[Any], Any]:
    """A function from what programs give to values as SQL's functions have them; None stays NULL.

    It takes what ``to_external`` gives, numpy's scalars, ints for other numbers, tuples, lists
    and dicts for rows, and ``Instant`` for TIMESTAMP_LTZ; else it raises TypeMismatchError.
    """
    convert = _from_external(type_)
    text = type_.as_summary_string()

    def checked(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
            kind = type(value).__name__
            message = f"{value!r} ({kind}) does not fit {text}"
            reason = str(error)
            raise TypeMismatchError(f"{message}: {reason}" if reason else message) from error

    return checked


def _from_external(type_: lt.LogicalType) -> Callable[[Any], Any]:  # noqa: PLR0911 - a table
    if isinstance(type_, lt.ArrayType):
        item = from_external(type_.element)
        return lambda value: tuple(map(item, _sequence(value)))
    if isinstance(type_, lt.MapType | lt.MultisetType):
        key = from_external(type_.children[0])
        other = from_external(type_.children[-1] if isinstance(type_, lt.MapType) else lt.IntType())
        return lambda value: {key(k): other(v) for k, v in value.items()}
    if isinstance(type_, lt.RowType):
        return _row_taker(type_)
    if isinstance(type_, lt.DecimalType):
        return _decimal_taker(type_)
    if type_.is_a(TypeFamily.INTEGER_NUMERIC):
        return _integer_taker(type_)
    if isinstance(type_, lt.TimestampType | lt.LocalZonedTimestampType):
        return _timestamp_taker(type_)
    return _FROM_EXTERNAL[type_.root]


def _sequence(value: Any) -> Sequence[Any]:
    if isinstance(value, np.ndarray):
        as_list: list[Any] = value.tolist()
        return as_list
    if not isinstance(value, list | tuple):
        raise TypeError
    return value


def _row_taker(type_: lt.RowType) -> Callable[[Any], Any]:
    parts = [from_external(child) for child in type_.children]
    names = type_.names

    def take(value: Any) -> tuple[Any, ...]:
        given = value
        if isinstance(value, dict):
            given = [value.get(name) for name in names]
        elif is_dataclass(value):
            given = [getattr(value, name) for name in names]
        elif isinstance(value, Row):
            fields = value.get_field_names()
            if fields is not None and set(fields) == set(names):
                given = value.get_fields_by_names(names)
        if not isinstance(given, list | tuple) or len(given) != len(parts):
            message = f"a row of {len(parts)} fields is needed"
            raise TypeError(message)
        return tuple(part(item) for part, item in zip(parts, given, strict=True))

    return take


def _decimal_taker(type_: lt.DecimalType) -> Callable[[Any], Any]:
    unit = Decimal(1).scaleb(-type_.scale)
    limit = Decimal(10) ** (type_.precision - type_.scale)

    def take(value: Any) -> Decimal:
        if isinstance(value, bool | np.bool_) or not isinstance(value, Decimal | int | np.integer):
            raise TypeError
        number = value if isinstance(value, Decimal) else Decimal(int(value))
        # Digits behind the point are rounded half to even, as Flink does with results of functions.
        fitted = number.quantize(unit, context=_EXACT) if abs(number) < limit else None
        if fitted is None or abs(fitted) >= limit:
            message = "it has more digits before the point"
            raise ValueError(message)
        return fitted

    return take


def _integer_taker(type_: lt.LogicalType) -> Callable[[Any], Any]:
    half = 1 << (INTEGER_BITS[type_.root] - 1)

    def take(value: Any) -> int:
        if not isinstance(value, int | np.integer | np.bool_):
            raise TypeError
        if not -half <= value < half:
            message = "it is too large"
            raise ValueError(message)
        return int(value)

    return take


def _timestamp_taker(type_: lt.TimestampType | lt.LocalZonedTimestampType) -> Callable[[Any], Any]:
    zoned = isinstance(type_, lt.LocalZonedTimestampType)
    step: int = 10 ** (9 - type_.precision)

    def take(value: Any) -> int:
        if zoned and isinstance(value, Instant):
            nanos = value.seconds * 1_000_000_000 + value.nanos
            return nanos - nanos % step
        if not isinstance(value, dt.datetime):
            raise TypeError
        if (value.tzinfo is None) is zoned:
            message = "it has no time zone" if zoned else "it has a time zone"
            raise ValueError(message)
        plain = value.astimezone(dt.UTC).replace(tzinfo=None) if zoned else value
        nanos = (plain - _EPOCH) // _MICRO * 1000
        return nanos - nanos % step

    return take


def _taker(accepted: Any, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what converts values of some classes, and refuses others."""

    def take(value: Any) -> Any:
        if not isinstance(value, accepted):
            raise TypeError
        return convert(value)

    return take


def _taker_but(refused: type, accepted: Any, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same, where a class that Python counts among the others is refused."""

    def take(value: Any) -> Any:
        if isinstance(value, refused) or not isinstance(value, accepted):
            raise TypeError
        return convert(value)

    return take


def _take_time(value: Any) -> int:
    if not isinstance(value, dt.time) or value.tzinfo is not None:
        raise TypeError
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 1_000_000 + value.microsecond) * 1000


def _take_duration(value: Any) -> int:
    if isinstance(value, Duration):
        return value.to_millis()
    if not isinstance(value, dt.timedelta):
        raise TypeError
    return value // dt.timedelta(milliseconds=1)


def _take_bitmap(value: Any) -> bytes:
    if isinstance(value, set | frozenset):
        value = bitmap_of_values(value)
    if not is_bitmap(value):
        message = "a bitmap of pyroaring or a set of ints is needed"
        raise TypeError(message)
    return bitmap_bytes(value)


def _take_variant(value: Any) -> bytes:
    if not isinstance(value, Variant):
        message = "a Variant is needed, as Variant.of({'a': 1}) gives it"
        raise TypeError(message)
    return value.data


_take_text: Final = _taker(str, str.__str__)
_take_bytes: Final = _taker(bytes | bytearray | memoryview, bytes)
_take_float: Final = _taker_but(bool, float | int | np.floating | np.integer, float)
_FROM_EXTERNAL: Final[dict[TypeRoot, Callable[[Any], Any]]] = {
    TypeRoot.NULL: lambda value: value,
    TypeRoot.BOOLEAN: _taker(bool | np.bool_, bool),
    TypeRoot.FLOAT: _take_float,
    TypeRoot.DOUBLE: _take_float,
    TypeRoot.CHAR: _take_text,
    TypeRoot.VARCHAR: _take_text,
    TypeRoot.BINARY: _take_bytes,
    TypeRoot.VARBINARY: _take_bytes,
    TypeRoot.DATE: _taker_but(dt.datetime, dt.date, lambda value: value.toordinal() - _EPOCH_DAY),
    TypeRoot.TIME_WITHOUT_TIME_ZONE: _take_time,
    TypeRoot.INTERVAL_YEAR_MONTH: _taker_but(bool, int | np.integer, int),
    TypeRoot.INTERVAL_DAY_TIME: _take_duration,
    TypeRoot.RAW: pickle.dumps,
    TypeRoot.BITMAP: _take_bitmap,
    TypeRoot.VARIANT: _take_variant,
    TypeRoot.SYMBOL: _take_text,
}


# -- the type of a value ----------------------------------------------------------------------


def type_of_value(value: Any) -> lt.LogicalType:  # noqa: C901, PLR0911 - a table
    """The type of a Python value as a literal, as ``lit`` gives it.

    It is the narrowest of Flink's types that the value is read as: INT or BIGINT for an int,
    CHAR(n) for a text of n characters, TIMESTAMP with the digits that are needed, ...

    Raises:
        ProgramError: the value is of no type of SQL.
    """
    if value is None:
        return lt.NullType()
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return _integer_type(int(value))
    if isinstance(value, Decimal):
        return _decimal_type(value)
    if isinstance(value, dt.datetime):
        digits = _MILLIS if value.microsecond % 1000 == 0 else _MICROS
        cls = lt.TimestampType if value.tzinfo is None else lt.LocalZonedTimestampType
        return cls(digits, nullable=False)
    if isinstance(value, str):
        return lt.CharType(len(value), nullable=False)
    if isinstance(value, bytes | bytearray):
        return lt.BinaryType(len(value), nullable=False)
    if isinstance(value, list | tuple | dict):
        return _collection_type(value)
    for cls, type_ in _SIMPLE:
        if isinstance(value, cls):
            return type_
    if is_bitmap(value):
        return BitmapType(nullable=False)
    message = f"a {type(value).__name__} is no value of SQL: {value!r}"
    raise ProgramError(message)


_SIMPLE: Final[tuple[tuple[Any, lt.LogicalType], ...]] = (
    (bool | np.bool_, lt.BooleanType(nullable=False)),
    (float | np.floating, lt.DoubleType(nullable=False)),
    (dt.date, lt.DateType(nullable=False)),
    (dt.time, lt.TimeType(0, nullable=False)),
    (dt.timedelta | Duration, lt.DayTimeIntervalType("DAY TO SECOND", 2, 3, nullable=False)),
    (Instant, lt.LocalZonedTimestampType(9, nullable=False)),
    (Variant, VariantType(nullable=False)),
)


def _integer_type(value: int) -> lt.LogicalType:
    if -_INT_LIMIT <= value < _INT_LIMIT:
        return lt.IntType(nullable=False)
    if -_LONG_LIMIT <= value < _LONG_LIMIT:
        return lt.BigIntType(nullable=False)
    return lt.DecimalType(min(len(str(abs(value))), 38), 0, nullable=False)


def _decimal_type(value: Decimal) -> lt.LogicalType:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        message = f"{value} is no value of SQL"
        raise ProgramError(message)
    scale = max(-exponent, 0)
    return lt.DecimalType(max(len(digits) + max(exponent, 0), scale, 1), scale, nullable=False)


def _collection_type(value: Any) -> lt.LogicalType:
    if isinstance(value, dict):
        return lt.MapType(
            _common_of_values(value, value),
            _common_of_values(value.values(), value),
            nullable=False,
        )
    if isinstance(value, list) and not isinstance(value, Row):
        return lt.ArrayType(_common_of_values(value, value), nullable=False)
    names = value.get_field_names() if isinstance(value, Row) else None
    names = names or [f"f{i}" for i in range(len(value))]
    pairs = zip(names, value, strict=True)
    fields = tuple(lt.RowField(str(name), type_of_value(item)) for name, item in pairs)
    return lt.RowType(fields, nullable=False)


def _common_of_values(values: Any, whole: Any) -> lt.LogicalType:
    types = [type_of_value(value) for value in values]
    common = common_type(types) if types else None
    if common is None:
        message = f"the items of {whole!r} have no common type; give one to the literal"
        raise ProgramError(message)
    return common
