"""The logical types of SQL and the Table API: Flink's, with nullability.

What it is: one frozen dataclass per type, its text as Flink prints it, and the Arrow type of a
column that holds it.  The way back is in
``types/logical_type_info.py``.

What it is not: the types of DataStream programs (``types/type_information.py``); a table's types
become those, and back, in ``types/logical_type_info.py``.  Which type an operation gives stands in
``types/type_derivation.py``, which may be cast to which in ``types/type_casts.py``.

Read next: ``types/type_roots.py``, then ``types/type_derivation.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, Self

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.types.type_roots import TypeRoot
from millstream.types.type_texts import (
    DAY_TIME_FORMATS,
    YEAR_MONTH_FORMATS,
    escape_identifier,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.types.type_roots import TypeFamily

__all__ = [
    "MAX_DECIMAL_PRECISION",
    "MAX_LENGTH",
    "ArrayType",
    "BigIntType",
    "BinaryType",
    "BooleanType",
    "CharType",
    "DateType",
    "DayTimeIntervalType",
    "DecimalType",
    "DoubleType",
    "FloatType",
    "IntType",
    "LocalZonedTimestampType",
    "LogicalType",
    "MapType",
    "MultisetType",
    "NullType",
    "RawType",
    "RowField",
    "RowType",
    "SmallIntType",
    "SymbolType",
    "TimeType",
    "TimestampKind",
    "TimestampType",
    "TinyIntType",
    "VarBinaryType",
    "VarCharType",
    "YearMonthIntervalType",
    "escape_identifier",
]

#: The length of STRING and BYTES.
MAX_LENGTH: Final = 2**31 - 1
MAX_DECIMAL_PRECISION: Final = 38
_MAX_SECOND_DIGITS: Final = 9
_MILLIS: Final = 3
_MICROS: Final = 6
_MAX_YEAR_DIGITS: Final = 4
_MAX_DAY_DIGITS: Final = 6


def _check_range(type_name: str, what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        message = f"{type_name}: the {what} must be between {least} and {most}, not {value}"
        raise ProgramError(message)


@dataclass(frozen=True)
class LogicalType:
    """A type of a column or expression, and whether its values may be NULL."""

    nullable: bool = field(default=True, kw_only=True)

    root: ClassVar[TypeRoot]

    def with_nullability(self, nullable: bool) -> Self:  # noqa: FBT001 - the brief's name
        """The same type, its values nullable or not; itself if it is so already."""
        return self if nullable is self.nullable else replace(self, nullable=nullable)

    @property
    def not_null(self) -> Self:
        """The same type without NULL."""
        return self.with_nullability(False)  # noqa: FBT003

    @property
    def children(self) -> tuple[LogicalType, ...]:
        """The types that it is made of: of elements, keys and values, fields."""
        return ()

    def is_a(self, family: TypeFamily) -> bool:
        """Whether it belongs to that family."""
        return family in self.root.families

    def as_summary_string(self) -> str:
        """The text for people, as in plans and errors: ``DECIMAL(10, 2) NOT NULL``."""
        return self._with_null(self._summary())

    def as_serializable_string(self) -> str:
        """The text that a parser reads back as the same type."""
        return self._with_null(self._serializable())

    def _with_null(self, text: str) -> str:
        return text if self.nullable else f"{text} NOT NULL"

    def _summary(self) -> str:
        return self._serializable()

    def _serializable(self) -> str:
        """The text without nullability."""
        return self.root.name

    def to_arrow(self) -> pa.DataType:
        """The Arrow type of a column of it; whether it is nullable is not part of that."""
        return _PLAIN_ARROW[self.root]

    def __str__(self) -> str:
        return self.as_summary_string()


@dataclass(frozen=True)
class NullType(LogicalType):
    """The type of an untyped NULL."""

    root = TypeRoot.NULL


@dataclass(frozen=True)
class BooleanType(LogicalType):
    """TRUE, FALSE (and UNKNOWN, which is NULL)."""

    root = TypeRoot.BOOLEAN


@dataclass(frozen=True)
class TinyIntType(LogicalType):
    """An integer of 8 bits."""

    root = TypeRoot.TINYINT


@dataclass(frozen=True)
class SmallIntType(LogicalType):
    """An integer of 16 bits."""

    root = TypeRoot.SMALLINT


@dataclass(frozen=True)
class IntType(LogicalType):
    """An integer of 32 bits."""

    root = TypeRoot.INTEGER

    def _serializable(self) -> str:
        return "INT"


@dataclass(frozen=True)
class BigIntType(LogicalType):
    """An integer of 64 bits."""

    root = TypeRoot.BIGINT


@dataclass(frozen=True)
class FloatType(LogicalType):
    """A floating-point number of 32 bits."""

    root = TypeRoot.FLOAT


@dataclass(frozen=True)
class DoubleType(LogicalType):
    """A floating-point number of 64 bits."""

    root = TypeRoot.DOUBLE


@dataclass(frozen=True)
class DecimalType(LogicalType):
    """A decimal number of ``precision`` digits, ``scale`` of them behind the point."""

    precision: int = 10
    scale: int = 0

    root = TypeRoot.DECIMAL

    def __post_init__(self) -> None:
        _check_range("DECIMAL", "precision", self.precision, 1, MAX_DECIMAL_PRECISION)
        _check_range("DECIMAL", "scale", self.scale, 0, self.precision)

    def _serializable(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"

    def to_arrow(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)


@dataclass(frozen=True)
class CharType(LogicalType):
    """Text of exactly ``length`` characters; 0 is only the type of the literal ``''``."""

    length: int = 1

    root = TypeRoot.CHAR

    def __post_init__(self) -> None:
        _check_range("CHAR", "length", self.length, 0, MAX_LENGTH)

    def _serializable(self) -> str:
        return f"CHAR({self.length})"


@dataclass(frozen=True)
class VarCharType(LogicalType):
    """Text of at most ``length`` characters; STRING without an argument."""

    length: int = MAX_LENGTH

    root = TypeRoot.VARCHAR

    def __post_init__(self) -> None:
        _check_range("VARCHAR", "length", self.length, 0, MAX_LENGTH)

    def _summary(self) -> str:
        return "STRING" if self.length == MAX_LENGTH else self._serializable()

    def _serializable(self) -> str:
        return f"VARCHAR({self.length})"


@dataclass(frozen=True)
class BinaryType(LogicalType):
    """Exactly ``length`` bytes."""

    length: int = 1

    root = TypeRoot.BINARY

    def __post_init__(self) -> None:
        _check_range("BINARY", "length", self.length, 0, MAX_LENGTH)

    def _serializable(self) -> str:
        return f"BINARY({self.length})"


@dataclass(frozen=True)
class VarBinaryType(LogicalType):
    """At most ``length`` bytes; BYTES without an argument."""

    length: int = MAX_LENGTH

    root = TypeRoot.VARBINARY

    def __post_init__(self) -> None:
        _check_range("VARBINARY", "length", self.length, 0, MAX_LENGTH)

    def _summary(self) -> str:
        return "BYTES" if self.length == MAX_LENGTH else self._serializable()

    def _serializable(self) -> str:
        return f"VARBINARY({self.length})"


@dataclass(frozen=True)
class DateType(LogicalType):
    """A day of the calendar."""

    root = TypeRoot.DATE


@dataclass(frozen=True)
class TimeType(LogicalType):
    """A time of day with ``precision`` digits of the second."""

    precision: int = 0

    root = TypeRoot.TIME_WITHOUT_TIME_ZONE

    def __post_init__(self) -> None:
        _check_range("TIME", "precision", self.precision, 0, _MAX_SECOND_DIGITS)

    def _serializable(self) -> str:
        return f"TIME({self.precision})"

    def to_arrow(self) -> pa.DataType:
        return pa.time32("ms") if self.precision <= _MILLIS else pa.time64("us")


class TimestampKind(Enum):
    """Whether a timestamp is a time attribute, and of which kind."""

    REGULAR = ""
    ROWTIME = " *ROWTIME*"
    PROCTIME = " *PROCTIME*"


def _unit(precision: int) -> str:
    if precision <= _MILLIS:
        return "ms"
    return "us" if precision <= _MICROS else "ns"


@dataclass(frozen=True)
class _AnyTimestampType(LogicalType):
    precision: int = 6
    kind: TimestampKind = TimestampKind.REGULAR

    _name: ClassVar[str]
    _zone: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        _check_range(self._name, "precision", self.precision, 0, _MAX_SECOND_DIGITS)

    @property
    def is_time_attribute(self) -> bool:
        """Whether it is an event time or a processing time attribute."""
        return self.kind is not TimestampKind.REGULAR

    @property
    def unit(self) -> str:
        """The unit of Arrow that holds it: ``ms``, ``us`` or ``ns``."""
        return _unit(self.precision)

    def as_summary_string(self) -> str:
        # Flink puts the kind behind the nullability.
        return super().as_summary_string() + self.kind.value

    def _serializable(self) -> str:
        return f"{self._name}({self.precision})"

    def to_arrow(self) -> pa.DataType:
        return pa.timestamp(_unit(self.precision), self._zone)


@dataclass(frozen=True)
class TimestampType(_AnyTimestampType):
    """A date with a time of day, of no time zone."""

    root = TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE
    _name = "TIMESTAMP"


@dataclass(frozen=True)
class LocalZonedTimestampType(_AnyTimestampType):
    """A point in time, shown in the time zone of the session: TIMESTAMP_LTZ."""

    root = TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE
    _name = "TIMESTAMP_LTZ"
    _zone = "UTC"


@dataclass(frozen=True)
class YearMonthIntervalType(LogicalType):
    """A number of months.  ``resolution``: YEAR, YEAR TO MONTH or MONTH."""

    resolution: str = "YEAR TO MONTH"
    precision: int = 2

    root = TypeRoot.INTERVAL_YEAR_MONTH

    def __post_init__(self) -> None:
        if self.resolution not in YEAR_MONTH_FORMATS:
            message = f"INTERVAL: {self.resolution} is not one of {', '.join(YEAR_MONTH_FORMATS)}"
            raise ProgramError(message)
        _check_range("INTERVAL", "precision of years", self.precision, 1, _MAX_YEAR_DIGITS)

    def _serializable(self) -> str:
        return f"INTERVAL {YEAR_MONTH_FORMATS[self.resolution].format(self.precision)}"


@dataclass(frozen=True)
class DayTimeIntervalType(LogicalType):
    """A number of milliseconds.  ``resolution``: DAY, DAY TO SECOND, HOUR TO MINUTE, SECOND, ..."""

    resolution: str = "DAY TO SECOND"
    day_precision: int = 2
    fractional_precision: int = 6

    root = TypeRoot.INTERVAL_DAY_TIME

    def __post_init__(self) -> None:
        if self.resolution not in DAY_TIME_FORMATS:
            message = f"INTERVAL: {self.resolution} is not one of {', '.join(DAY_TIME_FORMATS)}"
            raise ProgramError(message)
        _check_range("INTERVAL", "precision of days", self.day_precision, 1, _MAX_DAY_DIGITS)
        digits = self.fractional_precision
        _check_range("INTERVAL", "precision of seconds", digits, 0, _MAX_SECOND_DIGITS)

    def _serializable(self) -> str:
        text = DAY_TIME_FORMATS[self.resolution]
        return f"INTERVAL {text.format(self.day_precision, self.fractional_precision)}"


@dataclass(frozen=True)
class ArrayType(LogicalType):
    """A list of elements of one type."""

    element: LogicalType

    root = TypeRoot.ARRAY

    @property
    def children(self) -> tuple[LogicalType, ...]:
        return (self.element,)

    def _summary(self) -> str:
        return f"ARRAY<{self.element.as_summary_string()}>"

    def _serializable(self) -> str:
        return f"ARRAY<{self.element.as_serializable_string()}>"

    def to_arrow(self) -> pa.DataType:
        return pa.list_(self.element.to_arrow())


@dataclass(frozen=True)
class MapType(LogicalType):
    """Values by key."""

    key: LogicalType
    value: LogicalType

    root = TypeRoot.MAP

    @property
    def children(self) -> tuple[LogicalType, ...]:
        return (self.key, self.value)

    def _summary(self) -> str:
        return f"MAP<{self.key.as_summary_string()}, {self.value.as_summary_string()}>"

    def _serializable(self) -> str:
        return f"MAP<{self.key.as_serializable_string()}, {self.value.as_serializable_string()}>"

    def to_arrow(self) -> pa.DataType:
        return pa.map_(self.key.to_arrow(), self.value.to_arrow())


@dataclass(frozen=True)
class MultisetType(LogicalType):
    """Elements, each with how often it is there."""

    element: LogicalType

    root = TypeRoot.MULTISET

    @property
    def children(self) -> tuple[LogicalType, ...]:
        return (self.element,)

    def _summary(self) -> str:
        return f"MULTISET<{self.element.as_summary_string()}>"

    def _serializable(self) -> str:
        return f"MULTISET<{self.element.as_serializable_string()}>"

    def to_arrow(self) -> pa.DataType:
        return pa.map_(self.element.to_arrow(), pa.int32())


@dataclass(frozen=True)
class RowField:
    """A field of a row: name, type and what it is for."""

    name: str
    type: LogicalType
    description: str | None = None


@dataclass(frozen=True)
class RowType(LogicalType):
    """Fields with names; the type of a table's rows as well."""

    fields: tuple[RowField, ...]

    root = TypeRoot.ROW

    @staticmethod
    def of(**types: LogicalType) -> RowType:
        """A row of these fields, in this order."""
        return RowType(tuple(RowField(name, type_) for name, type_ in types.items()))

    @property
    def children(self) -> tuple[LogicalType, ...]:
        return tuple(field_.type for field_ in self.fields)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(field_.name for field_ in self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __bool__(self) -> bool:
        """A type is there even if it has no fields: ``found or other`` must not take the other."""
        return True

    def __iter__(self) -> Iterator[RowField]:
        return iter(self.fields)

    def index_of(self, name: str) -> int:
        """The position of the field of that name, -1 if there is none."""
        return next((i for i, field_ in enumerate(self.fields) if field_.name == name), -1)

    def _summary(self) -> str:
        return self._text(summary=True)

    def _serializable(self) -> str:
        return self._text(summary=False)

    def _text(self, *, summary: bool) -> str:
        parts = []
        for field_ in self.fields:
            type_ = field_.type
            text = type_.as_summary_string() if summary else type_.as_serializable_string()
            part = f"{escape_identifier(field_.name)} {text}"
            if field_.description is not None:
                quoted = field_.description.replace("'", "''")
                part += " '...'" if summary else f" '{quoted}'"
            parts.append(part)
        return f"ROW<{', '.join(parts)}>"

    def to_arrow(self) -> pa.DataType:
        return pa.struct([pa.field(item.name, item.type.to_arrow()) for item in self.fields])

    def to_arrow_schema(self) -> pa.Schema:
        """The schema of a batch of such rows: one column per field."""
        return pa.schema([pa.field(item.name, item.type.to_arrow()) for item in self.fields])


@dataclass(frozen=True)
class RawType(LogicalType):
    """Python objects of a class that SQL only passes on; a column holds their pickles."""

    class_name: str = "builtins.object"

    root = TypeRoot.RAW

    def _summary(self) -> str:
        return f"RAW('{self.class_name}', ?)"

    def _serializable(self) -> str:
        quoted = self.class_name.replace("'", "''")
        return f"RAW('{quoted}', 'pickle')"


@dataclass(frozen=True)
class SymbolType(LogicalType):
    """A word of the language as an argument: DAY in EXTRACT, BOTH in TRIM.  Only of literals."""

    root = TypeRoot.SYMBOL


_PLAIN_ARROW: Final = {
    TypeRoot.NULL: pa.null(),
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INTEGER: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.CHAR: pa.string(),
    TypeRoot.VARCHAR: pa.string(),
    TypeRoot.BINARY: pa.binary(),
    TypeRoot.VARBINARY: pa.binary(),
    TypeRoot.DATE: pa.date32(),
    TypeRoot.INTERVAL_YEAR_MONTH: pa.int32(),
    TypeRoot.INTERVAL_DAY_TIME: pa.duration("ms"),
    TypeRoot.RAW: pa.binary(),
    TypeRoot.SYMBOL: pa.string(),
}
