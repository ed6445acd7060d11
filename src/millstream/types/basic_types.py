"""Basic types: strings, booleans, numbers, decimals, dates and times, one Arrow column each.

Each type takes one exact Python type and accepts a few more (numpy scalars, an ``int`` for a
DOUBLE).  A column whose values all have the exact type goes to Arrow unchanged; checking that is
one pass at C speed.
"""

from __future__ import annotations

import datetime as dt
from array import array as typed_array
from decimal import Decimal
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError
from millstream.types.columns import as_type, values_of
from millstream.types.time import Instant
from millstream.types.type_information import (
    ColumnMismatchError,
    TypeInformation,
    locate_mismatch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_NANOS: Final = 1_000_000_000
_ARROW_REFUSALS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)


class _ScalarTypeInfo(TypeInformation):
    """Base of types of one scalar column."""

    #: The Python types that Arrow takes without a change of value.
    _exact: frozenset[type]

    def column_to_arrow(self, values: Sequence[object]) -> pa.Array:
        """Check the Python types, then convert in one call."""
        kinds = set(map(type, values))
        if not kinds <= self._exact:
            values = [self._coerced(index, value) for index, value in enumerate(values)]
        return self._convert(values, has_none=type(None) in kinds)

    def _coerced(self, index: int, value: object) -> object:
        if value is None or type(value) in self._exact:
            return value
        try:
            return self._coerce(value)
        except _ARROW_REFUSALS as error:
            raise ColumnMismatchError(index, value, str(self), str(error)) from error

    def _coerce(self, value: Any) -> object:
        """The same value with an exact type.

        Raises:
            TypeError: it is not such a value.
        """
        raise TypeError(value)

    def _convert(self, values: Sequence[object], *, has_none: bool) -> pa.Array:
        del has_none
        try:
            return pa.array(values, self.arrow_type)
        except _ARROW_REFUSALS as error:
            raise locate_mismatch(values, self.arrow_type, str(self), error) from error

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        """The values, None where the column is null."""
        return values_of(as_type(array, self.arrow_type))


def _to_str(value: Any) -> object:
    if not isinstance(value, str):
        raise TypeError
    return str.__str__(value)


def _to_bool(value: Any) -> object:
    if not isinstance(value, np.bool_ | int | np.integer) or value not in {0, 1}:
        raise TypeError
    return bool(value)


def _to_int(value: Any) -> int:
    if not isinstance(value, int | np.integer | np.bool_):
        raise TypeError
    return int(value)


def _to_float(value: Any) -> object:
    if isinstance(value, bool) or not isinstance(value, float | int | np.floating | np.integer):
        raise TypeError
    return float(value)


_NONE: Final = type(None)
_BASIC: Final[dict[str, tuple[pa.DataType, type, Callable[[Any], object]]]] = {
    "String": (pa.string(), str, _to_str),
    "Character": (pa.string(), str, _to_str),
    "Boolean": (pa.bool_(), bool, _to_bool),
    "Byte": (pa.int8(), int, _to_int),
    "Short": (pa.int16(), int, _to_int),
    "Integer": (pa.int32(), int, _to_int),
    "Long": (pa.int64(), int, _to_int),
    "Float": (pa.float32(), float, _to_float),
    "Double": (pa.float64(), float, _to_float),
}


#: What ``array`` calls the integers of a width.  It takes what has an index and is in range.
_WIDTHS: Final = {"Byte": "b", "Short": "h", "Integer": "i", "Long": "q"}


class BasicType(Enum):
    """The basic types by PyFlink's names."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


def _same_as(name: str, make: Callable[[], TypeInformation]) -> staticmethod[[], TypeInformation]:
    """Another name for a factory of ``Types``."""
    make.__doc__ = f"``Types.{name}()``."
    return staticmethod(make)


class BasicTypeInfo(_ScalarTypeInfo):
    """A string, boolean, integer or floating-point type, by the name that Flink prints."""

    def __init__(self, basic_type: BasicType | str) -> None:
        """Take which one it is.

        Raises:
            ProgramError: it has a class of its own; the message says how it is made.
        """
        name = basic_type.name if isinstance(basic_type, BasicType) else basic_type
        if isinstance(basic_type, BasicType):
            if basic_type.name in {"BIG_INT", "BIG_DEC", "INSTANT"}:
                message = f"{name} is no BasicTypeInfo here: write Types.{name}()"
                raise ProgramError(message)
            name = "Character" if basic_type is BasicType.CHAR else basic_type.value
        self._name = name
        self._arrow_type, python_type, self._to_exact = _BASIC[name]
        self._exact = frozenset({python_type, _NONE})

    STRING_TYPE_INFO = _same_as("STRING", lambda: BasicTypeInfo("String"))
    BOOLEAN_TYPE_INFO = _same_as("BOOLEAN", lambda: BasicTypeInfo("Boolean"))
    BYTE_TYPE_INFO = _same_as("BYTE", lambda: BasicTypeInfo("Byte"))
    SHORT_TYPE_INFO = _same_as("SHORT", lambda: BasicTypeInfo("Short"))
    INT_TYPE_INFO = _same_as("INT", lambda: BasicTypeInfo("Integer"))
    LONG_TYPE_INFO = _same_as("LONG", lambda: BasicTypeInfo("Long"))
    FLOAT_TYPE_INFO = _same_as("FLOAT", lambda: BasicTypeInfo("Float"))
    DOUBLE_TYPE_INFO = _same_as("DOUBLE", lambda: BasicTypeInfo("Double"))
    CHAR_TYPE_INFO = _same_as("CHAR", lambda: BasicTypeInfo("Character"))
    BIG_INT_TYPE_INFO = _same_as("BIG_INT", lambda: DecimalTypeInfo(38, 0, integers=True))
    BIG_DEC_TYPE_INFO = _same_as("BIG_DEC", lambda: BigDecimalTypeInfo())  # noqa: PLW0108 - below
    INSTANT_TYPE_INFO = _same_as("INSTANT", lambda: InstantTypeInfo())  # noqa: PLW0108 - below

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the same width."""
        return self._arrow_type

    def _coerce(self, value: Any) -> object:
        return self._to_exact(value)

    def column_to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """Check and convert in one pass where all are integers, else in two."""
        width = _WIDTHS.get(self._name)
        if width is not None:
            try:
                return pa.array(np.asarray(typed_array(width, values)))
            except (TypeError, OverflowError):
                pass  # a None, or a value to be named
        return super().column_to_arrow(values)

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        """The values; strings of any Arrow encoding are taken as they are."""
        if self._arrow_type.equals(pa.string()) and _is_text(array.type):
            return values_of(array)
        return super().column_from_arrow(array)

    def __reduce__(self) -> tuple[type, tuple[str]]:
        """Pickle by name."""
        return BasicTypeInfo, (self._name,)

    def __str__(self) -> str:
        """``Long``, as Flink prints it."""
        return self._name


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


class BigDecimalTypeInfo(_ScalarTypeInfo):
    """``decimal.Decimal`` of any size, digit for digit.

    The column is text, as in PyFlink, since no Arrow type holds every Decimal.  A DecimalTypeInfo
    has a number column instead.
    """

    _exact = frozenset({Decimal, _NONE})

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.string()

    def _coerce(self, value: Any) -> object:
        return Decimal(_to_int(value))

    def _convert(self, values: Sequence[object], *, has_none: bool) -> pa.Array:
        if has_none:
            return pa.array(
                [None if value is None else str(value) for value in values], pa.string()
            )
        return pa.array(list(map(str, values)), pa.string())

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        """Decimals, with the digits that they had."""
        texts = values_of(as_type(array, pa.string()))
        return [None if text is None else Decimal(text) for text in texts]

    def __str__(self) -> str:
        return "BigDecimal"


class DecimalTypeInfo(_ScalarTypeInfo):
    """Decimal numbers of up to 38 digits: ``decimal.Decimal``, or ``int`` if ``integers`` is set.

    Values with more digits than precision and scale allow are refused, not rounded.
    """

    def __init__(self, precision: int, scale: int, *, integers: bool = False) -> None:
        self._precision = precision
        self._scale = scale
        self._integers = integers
        self._exact = frozenset({int if integers else Decimal, _NONE})

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.decimal128(self._precision, self._scale)

    def _coerce(self, value: Any) -> object:
        return Decimal(_to_int(value)) if not self._integers else _to_int(value)

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        values = super().column_from_arrow(array)
        if self._integers:
            return [None if value is None else int(value) for value in values]
        return values

    def __str__(self) -> str:
        """``BigInteger`` or ``Decimal(10, 2)``."""
        return "BigInteger" if self._integers else f"Decimal({self._precision}, {self._scale})"


_SQL_TIMES: Final[dict[str, tuple[pa.DataType, type]]] = {
    "Date": (pa.date32(), dt.date),
    "Time": (pa.time64("us"), dt.time),
    "Timestamp": (pa.timestamp("us"), dt.datetime),
    "TimestampLtz": (pa.timestamp("us", tz="UTC"), dt.datetime),
}


class SqlTimeTypeInfo(_ScalarTypeInfo):
    """Dates, times and timestamps.

    Date, Time and Timestamp are without time zone, as in SQL, and take no zoned values; the
    timestamp with local time zone (TimestampLtz) takes zoned values only and gives them in UTC.
    """

    DATE = _same_as("SQL_DATE", lambda: DateTypeInfo())  # noqa: PLW0108 - below
    TIME = _same_as("SQL_TIME", lambda: TimeTypeInfo())  # noqa: PLW0108 - below
    TIMESTAMP = _same_as("SQL_TIMESTAMP", lambda: TimestampTypeInfo())  # noqa: PLW0108 - below

    def __init__(self, name: str) -> None:
        self._name = name
        self._arrow_type, python_type = _SQL_TIMES[name]
        self._exact = frozenset({python_type, _NONE})

    @property
    def arrow_type(self) -> pa.DataType:
        return self._arrow_type

    def _coerce(self, value: Any) -> object:
        if self._name.startswith("Timestamp") and isinstance(value, dt.datetime):
            return value  # a subclass, such as pandas' Timestamp
        raise TypeError(value)

    def _convert(self, values: Sequence[object], *, has_none: bool) -> pa.Array:
        if self._name != "Date":
            self._check_zones(values, has_none=has_none)
        return super()._convert(values, has_none=has_none)

    def _check_zones(self, values: Sequence[object], *, has_none: bool) -> None:
        present = [value for value in values if value is not None] if has_none else values
        zoned = self._name == "TimestampLtz"
        zones = set(map(attrgetter("tzinfo"), present))
        if not zones or (zoned and None not in zones) or (not zoned and zones == {None}):
            return
        reason = "it has no time zone" if zoned else "it has a time zone; see Types.TIMESTAMP_LTZ"
        for index, value in enumerate(values):
            if value is not None and (attrgetter("tzinfo")(value) is None) is zoned:
                raise ColumnMismatchError(index, value, str(self), reason)

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        values = super().column_from_arrow(array)
        if self._name == "TimestampLtz":
            utc = dt.UTC
            return [None if value is None else value.replace(tzinfo=utc) for value in values]
        return values

    def __reduce__(self) -> tuple[type, tuple[str]]:
        """Pickle by name."""
        return SqlTimeTypeInfo, (self._name,)

    def __str__(self) -> str:
        """``Timestamp``, as Flink prints it."""
        return self._name


class DateTypeInfo(SqlTimeTypeInfo):
    """Dates."""

    def __init__(self) -> None:
        super().__init__("Date")


class TimeTypeInfo(SqlTimeTypeInfo):
    """Times of a day."""

    def __init__(self) -> None:
        super().__init__("Time")


class TimestampTypeInfo(SqlTimeTypeInfo):
    """Timestamps without time zone."""

    def __init__(self) -> None:
        super().__init__("Timestamp")


class InstantTypeInfo(_ScalarTypeInfo):
    """Points of time to the nanosecond, between the years 1678 and 2262."""

    _exact = frozenset({Instant, _NONE})

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.timestamp("ns", tz="UTC")

    def _convert(self, values: Sequence[Any], *, has_none: bool) -> pa.Array:
        del has_none
        nanos = [
            None if value is None else value.seconds * _NANOS + value.nanos for value in values
        ]
        try:
            return pa.array(nanos, pa.int64()).cast(self.arrow_type)
        except OverflowError as error:
            for index, number in enumerate(nanos):
                if number is not None and not -(2**63) <= number < 2**63:
                    reason = "it lies outside of the years 1678 to 2262"
                    raise ColumnMismatchError(index, values[index], str(self), reason) from error
            raise

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        nanos = values_of(as_type(array, self.arrow_type).cast(pa.int64()))
        return [None if value is None else Instant(*divmod(value, _NANOS)) for value in nanos]

    def __str__(self) -> str:
        return "Instant"
