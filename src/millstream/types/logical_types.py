"""The logical types of SQL and the Table API: Flink's, with nullability and Arrow types."""

from __future__ import annotations

import inspect
import pickle
from copy import copy
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, overload

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.types import sql_values
from millstream.types.row import Row, row_class
from millstream.types.type_roots import (
    DAY_TIME_FORMATS,
    YEAR_MONTH_FORMATS,
    TypeRoot,
    escape_identifier,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.types.type_roots import TypeFamily


#: The length of STRING and BYTES.
MAX_LENGTH: Final = 2**31 - 1
MAX_DECIMAL_PRECISION: Final = 38
_MAX_SECOND_DIGITS: Final = 9
_MILLIS: Final = 3
_MICROS: Final = 6
_MAX_YEAR_DIGITS: Final = 4
_MAX_DAY_DIGITS: Final = 6
#: Attributes that are called otherwise than the arguments of ``__init__`` that set them.
_ATTRIBUTES: Final = {"nullable": "is_nullable", "resolution": "units"}


def _check_type(of: LogicalType, given: object) -> None:
    if not isinstance(given, LogicalType):
        message = f"{of.root.name} takes data types such as DataTypes.INT(), not {given!r:.100}"
        raise ProgramError(message)


def _check_range(type_name: str, what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        message = f"{type_name}: the {what} must be between {least} and {most}, not {value}"
        raise ProgramError(message)


@dataclass(frozen=True, init=False, repr=False)
class LogicalType:
    """A type of a column or expression, and whether its values may be NULL.

    Args:
        nullable: whether values may be NULL.
    """

    _nullable: bool

    root: ClassVar[TypeRoot]
    #: What SQL calls it; that of the root unless given.
    _name: ClassVar[str] = ""

    def __init__(self, nullable: bool = True) -> None:  # noqa: FBT001, FBT002 - PyFlink's
        self._set(_nullable=nullable)

    def _set(self, **parameters: object) -> None:
        """Set fields once, in ``__init__`` or in a new copy."""
        for name, value in parameters.items():
            object.__setattr__(self, name, value)

    def with_parameters(self, **changed: object) -> Self:
        """The same type with other values of some fields."""
        made = copy(self)
        made._set(**changed)  # noqa: SLF001 - of the same class
        return made

    def arguments(self) -> dict[str, Any]:
        """The arguments that make the same type again, without those that are as by default."""
        found = inspect.signature(type(self)).parameters.values()
        values = {each: getattr(self, _ATTRIBUTES.get(each.name, each.name)) for each in found}
        return {each.name: value for each, value in values.items() if value != each.default}

    @property
    def is_nullable(self) -> bool:
        """Return whether values may be NULL."""
        return self._nullable

    def with_nullability(self, nullable: bool) -> Self:  # noqa: FBT001 - the brief's name
        """The same type, its values nullable or not; itself if it is so already."""
        return self if nullable is self._nullable else self.with_parameters(_nullable=nullable)

    def not_null(self) -> Self:
        """The same type without NULL."""
        return self.with_nullability(False)  # noqa: FBT003

    def nullable(self) -> Self:
        """The same type with NULL."""
        return self.with_nullability(True)  # noqa: FBT003

    @classmethod
    def type_name(cls) -> str:
        """The name of the kind of type, as PyFlink has it: ``VARCHAR``."""
        return cls.__name__.removesuffix("Type").upper()

    def bridged_to(self, conversion_cls: str) -> Self:
        """Return the type itself: values are Python's, whatever class of Java is named."""
        del conversion_cls
        return self

    def need_conversion(self) -> bool:
        """Return whether ``to_sql_type`` and ``from_sql_type`` change values."""
        return any(child.need_conversion() for child in self.children)

    def to_sql_type(self, obj: Any) -> Any:
        """Convert a value to the number or tuple that stands for it; None stays None."""
        return obj

    def from_sql_type(self, obj: Any) -> Any:
        """Convert back what ``to_sql_type`` gives."""
        return obj

    @property
    def children(self) -> tuple[LogicalType, ...]:
        """The types that it is made of: of elements, keys and values, fields."""
        return ()

    def is_a(self, family: TypeFamily) -> bool:
        """Return whether it belongs to that family."""
        return family in self.root.families

    def as_summary_string(self) -> str:
        """The text for people, as in plans and errors: ``DECIMAL(10, 2) NOT NULL``."""
        return self._with_null(self._summary())

    def as_serializable_string(self) -> str:
        """The text that a parser reads back as the same type."""
        return self._with_null(self._serializable())

    def _with_null(self, text: str) -> str:
        return text if self._nullable else f"{text} NOT NULL"

    def _summary(self) -> str:
        return self._serializable()

    def _serializable(self) -> str:
        """The text without nullability."""
        name, parameters = self._name or self.root.name, self._parameters()
        return f"{name}({', '.join(parameters)})" if parameters else name

    def to_arrow(self) -> pa.DataType:
        """The Arrow type of a column of it; whether it is nullable is not part of that."""
        return _PLAIN_ARROW[self.root]

    def __str__(self) -> str:
        return self.as_summary_string()

    def __repr__(self) -> str:
        """The class with its parameters, as PyFlink prints it: ``DecimalType(10, 2, true)``."""
        shown = ", ".join([*self._parameters(), str(self._nullable).lower()])
        return f"{type(self).__name__}({shown})"

    def _parameters(self) -> list[str]:
        """The parameters before nullability that ``repr`` shows."""
        return []


@dataclass(frozen=True, init=False, repr=False)
class AtomicType(LogicalType):
    """A type that is not made of others."""


@dataclass(frozen=True, init=False, repr=False)
class NumericType(AtomicType):
    """A type of numbers."""


@dataclass(frozen=True, init=False, repr=False)
class IntegralType(NumericType):
    """A type of integers."""


@dataclass(frozen=True, init=False, repr=False)
class FractionalType(NumericType):
    """A type of numbers with digits after the point."""


@dataclass(frozen=True, init=False, repr=False)
class NullType(AtomicType):
    """The type of an untyped NULL."""

    root = TypeRoot.NULL


@dataclass(frozen=True, init=False, repr=False)
class BooleanType(AtomicType):
    """TRUE, FALSE (and UNKNOWN, which is NULL)."""

    root = TypeRoot.BOOLEAN


@dataclass(frozen=True, init=False, repr=False)
class TinyIntType(IntegralType):
    """An integer of 8 bits."""

    root = TypeRoot.TINYINT


@dataclass(frozen=True, init=False, repr=False)
class SmallIntType(IntegralType):
    """An integer of 16 bits."""

    root = TypeRoot.SMALLINT


@dataclass(frozen=True, init=False, repr=False)
class IntType(IntegralType):
    """An integer of 32 bits."""

    root = TypeRoot.INTEGER
    _name = "INT"


@dataclass(frozen=True, init=False, repr=False)
class BigIntType(IntegralType):
    """An integer of 64 bits."""

    root = TypeRoot.BIGINT


@dataclass(frozen=True, init=False, repr=False)
class FloatType(FractionalType):
    """A floating-point number of 32 bits."""

    root = TypeRoot.FLOAT


@dataclass(frozen=True, init=False, repr=False)
class DoubleType(FractionalType):
    """A floating-point number of 64 bits."""

    root = TypeRoot.DOUBLE


@dataclass(frozen=True, init=False, repr=False)
class DecimalType(FractionalType):
    """A decimal number of ``precision`` digits, ``scale`` of them behind the point."""

    precision: int
    scale: int

    root = TypeRoot.DECIMAL

    def __init__(
        self,
        precision: int = 10,
        scale: int = 0,
        nullable: bool = True,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> None:
        _check_range("DECIMAL", "precision", precision, 1, MAX_DECIMAL_PRECISION)
        _check_range("DECIMAL", "scale", scale, 0, precision)
        self._set(_nullable=nullable, precision=precision, scale=scale)

    @property
    def has_precision_info(self) -> bool:
        """Return whether precision and scale are known: always."""
        return True

    def _parameters(self) -> list[str]:
        return [str(self.precision), str(self.scale)]

    def to_arrow(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)


@dataclass(frozen=True, init=False, repr=False)
class _SizedType(AtomicType):
    length: int

    def __init__(self, length: int = 1, nullable: bool = True) -> None:  # noqa: FBT001, FBT002 - PyFlink's
        _check_range(self.root.name, "length", length, 0, MAX_LENGTH)
        self._set(_nullable=nullable, length=length)

    def _parameters(self) -> list[str]:
        return [str(self.length)]


@dataclass(frozen=True, init=False, repr=False)
class CharType(_SizedType):
    """Text of exactly ``length`` characters; 0 is only the type of the literal ``''``."""

    root = TypeRoot.CHAR


@dataclass(frozen=True, init=False, repr=False)
class VarCharType(_SizedType):
    """Text of at most ``length`` characters; STRING without an argument."""

    root = TypeRoot.VARCHAR

    def __init__(self, length: int = MAX_LENGTH, nullable: bool = True) -> None:  # noqa: FBT001, FBT002 - PyFlink's
        super().__init__(length, nullable)

    def _summary(self) -> str:
        return "STRING" if self.length == MAX_LENGTH else self._serializable()


@dataclass(frozen=True, init=False, repr=False)
class BinaryType(_SizedType):
    """Exactly ``length`` bytes."""

    root = TypeRoot.BINARY


@dataclass(frozen=True, init=False, repr=False)
class VarBinaryType(_SizedType):
    """At most ``length`` bytes; BYTES without an argument."""

    root = TypeRoot.VARBINARY

    def __init__(self, length: int = MAX_LENGTH, nullable: bool = True) -> None:  # noqa: FBT001, FBT002 - PyFlink's
        super().__init__(length, nullable)

    def _summary(self) -> str:
        return "BYTES" if self.length == MAX_LENGTH else self._serializable()


class _Converted(AtomicType):
    """A type with methods that convert values."""

    def need_conversion(self) -> bool:
        return True


@dataclass(frozen=True, init=False, repr=False)
class DateType(_Converted):
    """A day of the calendar."""

    root = TypeRoot.DATE
    EPOCH_ORDINAL: ClassVar[int] = sql_values.EPOCH_ORDINAL

    def to_sql_type(self, d: Any) -> Any:
        return None if d is None else d.toordinal() - self.EPOCH_ORDINAL

    def from_sql_type(self, v: Any) -> Any:
        return None if v is None else sql_values.date_from_days(v)


@dataclass(frozen=True, init=False, repr=False)
class TimeType(_Converted):
    """A time of day with ``precision`` digits of the second."""

    precision: int

    root = TypeRoot.TIME_WITHOUT_TIME_ZONE
    _name = "TIME"
    EPOCH_ORDINAL: ClassVar[int] = sql_values.EPOCH_MICROS

    def __init__(self, precision: int = 0, nullable: bool = True) -> None:  # noqa: FBT001, FBT002 - PyFlink's
        _check_range("TIME", "precision", precision, 0, _MAX_SECOND_DIGITS)
        self._set(_nullable=nullable, precision=precision)

    def _parameters(self) -> list[str]:
        return [str(self.precision)]

    def to_sql_type(self, t: Any) -> Any:
        return None if t is None else sql_values.time_to_micros(t, self.EPOCH_ORDINAL)

    def from_sql_type(self, t: Any) -> Any:
        return None if t is None else sql_values.time_from_micros(t, self.EPOCH_ORDINAL)

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


@dataclass(frozen=True, init=False, repr=False)
class _AnyTimestampType(_Converted):
    precision: int
    kind: TimestampKind

    _zone: ClassVar[str | None] = None

    def __init__(
        self,
        precision: int = 6,
        nullable: bool = True,  # noqa: FBT001, FBT002 - PyFlink's
        *,
        kind: TimestampKind = TimestampKind.REGULAR,
    ) -> None:
        _check_range(self._name, "precision", precision, 0, _MAX_SECOND_DIGITS)
        self._set(_nullable=nullable, precision=precision, kind=kind)

    @property
    def is_time_attribute(self) -> bool:
        """Return whether it is an event time or a processing time attribute."""
        return self.kind is not TimestampKind.REGULAR

    @property
    def unit(self) -> str:
        """The unit of Arrow that holds it: ``ms``, ``us`` or ``ns``."""
        return _unit(self.precision)

    def as_summary_string(self) -> str:
        # Flink puts the kind behind the nullability.
        return super().as_summary_string() + self.kind.value

    def _parameters(self) -> list[str]:
        return [str(self.precision)]

    def to_arrow(self) -> pa.DataType:
        return pa.timestamp(_unit(self.precision), self._zone)


@dataclass(frozen=True, init=False, repr=False)
class TimestampType(_AnyTimestampType):
    """A date with a time of day, of no time zone."""

    root = TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE
    _name = "TIMESTAMP"

    def to_sql_type(self, dt: Any) -> Any:
        return None if dt is None else sql_values.timestamp_to_micros(dt)

    def from_sql_type(self, ts: Any) -> Any:
        return None if ts is None else sql_values.timestamp_from_micros(ts)


@dataclass(frozen=True, init=False, repr=False)
class LocalZonedTimestampType(_AnyTimestampType):
    """A point in time, shown in the time zone of the session: TIMESTAMP_LTZ."""

    root = TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE
    _name = "TIMESTAMP_LTZ"
    _zone = "UTC"
    EPOCH_ORDINAL: ClassVar[int] = sql_values.EPOCH_MICROS

    def to_sql_type(self, dt: Any) -> Any:
        return None if dt is None else sql_values.timestamp_to_micros(dt) + self.EPOCH_ORDINAL

    def from_sql_type(self, ts: Any) -> Any:
        return None if ts is None else sql_values.timestamp_from_micros(ts - self.EPOCH_ORDINAL)


@dataclass(frozen=True, init=False, repr=False)
class ZonedTimestampType(_Converted):
    """A point in time with the time zone that it was written in.

    As in Flink, no column can have it; only its conversion of values can be used.
    """

    precision: int

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:  # noqa: FBT001, FBT002 - PyFlink's
        name = "TIMESTAMP WITH TIME ZONE"
        _check_range(name, "precision", precision, 0, _MAX_SECOND_DIGITS)
        self._set(_nullable=nullable, precision=precision)

    def _serializable(self) -> str:
        return f"TIMESTAMP({self.precision}) WITH TIME ZONE"

    def _parameters(self) -> list[str]:
        return [str(self.precision)]

    def to_arrow(self) -> pa.DataType:
        message = "TIMESTAMP WITH TIME ZONE cannot be the type of a column; take TIMESTAMP_LTZ"
        raise ProgramError(message)

    def to_sql_type(self, dt: Any) -> Any:
        return None if dt is None else sql_values.zoned_to_micros(dt)

    def from_sql_type(self, zoned_ts: Any) -> Any:
        return None if zoned_ts is None else sql_values.zoned_from_micros(zoned_ts)


def _units(resolution: str | int, names: type[IntEnum], formats: dict[str, str]) -> str:
    """The units of an interval, as SQL writes them."""
    text = resolution if isinstance(resolution, str) else names(resolution).name.replace("_", " ")
    if text not in formats:
        message = f"INTERVAL: {text} is not one of {', '.join(formats)}"
        raise ProgramError(message)
    return text


@dataclass(frozen=True, init=False, repr=False)
class YearMonthIntervalType(AtomicType):
    """A number of months.

    Args:
        resolution: one of ``YearMonthResolution``, or as SQL writes it: ``YEAR TO MONTH``.
        precision: the digits of years.
        nullable: whether values may be NULL.
    """

    class YearMonthResolution(IntEnum):
        """The units that an interval has."""

        YEAR = 1
        MONTH = 2
        YEAR_TO_MONTH = 3

    DEFAULT_PRECISION: ClassVar[int] = 2

    units: str
    precision: int = 2

    root = TypeRoot.INTERVAL_YEAR_MONTH

    def __init__(
        self,
        resolution: str | int = YearMonthResolution.YEAR_TO_MONTH,
        precision: int = 2,
        nullable: bool = True,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> None:
        units = _units(resolution, self.YearMonthResolution, YEAR_MONTH_FORMATS)
        _check_range("INTERVAL", "precision of years", precision, 1, _MAX_YEAR_DIGITS)
        self._set(_nullable=nullable, units=units, precision=precision)

    @property
    def resolution(self) -> YearMonthResolution:
        """The units."""
        return self.YearMonthResolution[self.units.replace(" ", "_")]

    def _serializable(self) -> str:
        return f"INTERVAL {YEAR_MONTH_FORMATS[self.units].format(self.precision)}"


@dataclass(frozen=True, init=False, repr=False)
class DayTimeIntervalType(_Converted):
    """A number of milliseconds.

    Args:
        resolution: one of ``DayTimeResolution``, or as SQL writes it: ``DAY TO SECOND``.
        day_precision: the digits of days.
        fractional_precision: the digits after the point of seconds.
        nullable: whether values may be NULL.
    """

    class DayTimeResolution(IntEnum):
        """The units that an interval has."""

        DAY = 1
        DAY_TO_HOUR = 2
        DAY_TO_MINUTE = 3
        DAY_TO_SECOND = 4
        HOUR = 5
        HOUR_TO_MINUTE = 6
        HOUR_TO_SECOND = 7
        MINUTE = 8
        MINUTE_TO_SECOND = 9
        SECOND = 10

    DEFAULT_DAY_PRECISION: ClassVar[int] = 2
    DEFAULT_FRACTIONAL_PRECISION: ClassVar[int] = 6

    units: str
    day_precision: int = 2
    fractional_precision: int = 6

    root = TypeRoot.INTERVAL_DAY_TIME

    def __init__(
        self,
        resolution: str | int = DayTimeResolution.DAY_TO_SECOND,
        day_precision: int = 2,
        fractional_precision: int = 6,
        nullable: bool = True,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> None:
        units = _units(resolution, self.DayTimeResolution, DAY_TIME_FORMATS)
        _check_range("INTERVAL", "precision of days", day_precision, 1, _MAX_DAY_DIGITS)
        digits = fractional_precision
        _check_range("INTERVAL", "precision of seconds", digits, 0, _MAX_SECOND_DIGITS)
        self._set(
            _nullable=nullable,
            units=units,
            day_precision=day_precision,
            fractional_precision=fractional_precision,
        )

    @property
    def resolution(self) -> DayTimeResolution:
        """The units."""
        return self.DayTimeResolution[self.units.replace(" ", "_")]

    def _serializable(self) -> str:
        text = DAY_TIME_FORMATS[self.units]
        return f"INTERVAL {text.format(self.day_precision, self.fractional_precision)}"

    def to_sql_type(self, timedelta: Any) -> Any:
        return None if timedelta is None else sql_values.interval_to_micros(timedelta)

    def from_sql_type(self, ts: Any) -> Any:
        return None if ts is None else sql_values.interval_from_micros(ts)


@dataclass(frozen=True, init=False, repr=False)
class _CollectionType(LogicalType):
    def _summary(self) -> str:
        inner = [child.as_summary_string() for child in self.children]
        return f"{self.root.name}<{', '.join(inner)}>"

    def _serializable(self) -> str:
        inner = [child.as_serializable_string() for child in self.children]
        return f"{self.root.name}<{', '.join(inner)}>"

    def _parameters(self) -> list[str]:
        return list(map(repr, self.children))


@dataclass(frozen=True, init=False, repr=False)
class _ElementsType(_CollectionType):
    element: LogicalType

    def __init__(self, element_type: LogicalType, nullable: bool = True) -> None:  # noqa: FBT001, FBT002 - PyFlink's
        _check_type(self, element_type)
        self._set(_nullable=nullable, element=element_type)

    @property
    def element_type(self) -> LogicalType:
        """The type of the elements."""
        return self.element

    @property
    def children(self) -> tuple[LogicalType, ...]:
        return (self.element,)

    def to_sql_type(self, obj: Any) -> Any:
        if not obj or not self.need_conversion():
            return obj
        return [self.element.to_sql_type(each) for each in obj]

    def from_sql_type(self, obj: Any) -> Any:
        if not obj or not self.need_conversion():
            return obj
        return [self.element.from_sql_type(each) for each in obj]


@dataclass(frozen=True, init=False, repr=False)
class ArrayType(_ElementsType):
    """A list of elements of one type."""

    root = TypeRoot.ARRAY

    def to_arrow(self) -> pa.DataType:
        return pa.list_(self.element.to_arrow())


@dataclass(frozen=True, init=False, repr=False)
class MapType(_CollectionType):
    """Values by key."""

    key: LogicalType
    value: LogicalType

    root = TypeRoot.MAP

    def __init__(
        self,
        key_type: LogicalType,
        value_type: LogicalType,
        nullable: bool = True,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> None:
        _check_type(self, key_type)
        _check_type(self, value_type)
        self._set(_nullable=nullable, key=key_type, value=value_type)

    @property
    def key_type(self) -> LogicalType:
        """The type of the keys."""
        return self.key

    @property
    def value_type(self) -> LogicalType:
        """The type of the values."""
        return self.value

    @property
    def children(self) -> tuple[LogicalType, ...]:
        return (self.key, self.value)

    def to_sql_type(self, obj: Any) -> Any:
        if not obj or not self.need_conversion():
            return obj
        return {self.key.to_sql_type(k): self.value.to_sql_type(v) for k, v in obj.items()}

    def from_sql_type(self, obj: Any) -> Any:
        if not obj or not self.need_conversion():
            return obj
        return {self.key.from_sql_type(k): self.value.from_sql_type(v) for k, v in obj.items()}

    def to_arrow(self) -> pa.DataType:
        return pa.map_(self.key.to_arrow(), self.value.to_arrow())


@dataclass(frozen=True, init=False, repr=False)
class MultisetType(_ElementsType):
    """Elements, each with how often it is there."""

    root = TypeRoot.MULTISET

    def to_arrow(self) -> pa.DataType:
        return pa.map_(self.element.to_arrow(), pa.int32())


@dataclass(frozen=True, repr=False)
class RowField:
    """A field of a row: name, type and what it is for."""

    name: str
    data_type: LogicalType
    description: str | None = None

    @property
    def type(self) -> LogicalType:
        """The type, under a short name."""
        return self.data_type

    def need_conversion(self) -> bool:
        """Return whether the type converts values."""
        return self.type.need_conversion()

    def to_sql_type(self, obj: Any) -> Any:
        """Convert a value as its type does."""
        return self.type.to_sql_type(obj)

    def from_sql_type(self, obj: Any) -> Any:
        """Convert a value back as its type does."""
        return self.type.from_sql_type(obj)

    def __repr__(self) -> str:
        description = "..." if self.description is None else self.description
        return f"RowField({self.name}, {self.type!r}, {description})"

    def __str__(self) -> str:
        """Name and type."""
        return f"RowField({self.name}, {self.type})"


@dataclass(frozen=True, init=False, repr=False)
class RowType(LogicalType):
    """Fields with names; the type of a table's rows as well."""

    members: tuple[RowField, ...]

    root = TypeRoot.ROW

    def __init__(self, fields: Sequence[RowField] | None = None, nullable: bool = True) -> None:  # noqa: FBT001, FBT002 - PyFlink's
        self._set(_nullable=nullable, members=tuple(fields or ()))

    @staticmethod
    def of(**types: LogicalType) -> RowType:
        """A row of these fields, in this order."""
        return RowType(tuple(RowField(name, type_) for name, type_ in types.items()))

    def add(self, field: RowField | str, data_type: LogicalType | None = None) -> Self:
        """Add a field to this row type itself, and return it.

        Args:
            field: the field, or its name.
            data_type: the type of the field of that name.

        Raises:
            ValueError: there is a name, and no type.
        """
        if isinstance(field, str):
            if data_type is None:
                message = f"Field '{field}' has no type; pass it as the second argument of add()."
                raise ValueError(message)
            field = RowField(field, data_type)
        self._set(members=(*self.members, field))
        return self

    @property
    def fields(self) -> list[RowField]:
        """The fields, in order."""
        return list(self.members)

    @property
    def children(self) -> tuple[LogicalType, ...]:
        return tuple(field_.type for field_ in self.members)

    @property
    def names(self) -> list[str]:
        """The names of the fields, in order."""
        return [field_.name for field_ in self.members]

    def field_names(self) -> list[str]:
        """The names of the fields, in order."""
        return self.names

    def field_types(self) -> list[LogicalType]:
        """The types of the fields, in order."""
        return list(self.children)

    def __len__(self) -> int:
        return len(self.members)

    def __bool__(self) -> bool:
        """A type is there even if it has no fields: ``found or other`` must not take the other."""
        return True

    def __iter__(self) -> Iterator[RowField]:
        return iter(self.members)

    @overload
    def __getitem__(self, key: str | int) -> RowField: ...

    @overload
    def __getitem__(self, key: slice) -> RowType: ...

    def __getitem__(self, key: object) -> RowField | RowType:
        """A field by name or position; a row of several fields.

        Raises:
            KeyError: there is no field of that name.
            IndexError: there is no field at that position.
            TypeError: the key is of another type.
        """
        if isinstance(key, str):
            if key not in self.names:
                message = f"Row type has no field '{key}', but {', '.join(self.names)}."
                raise KeyError(message)
            return self.members[self.index_of(key)]
        if isinstance(key, slice):
            return RowType(self.members[key])
        if isinstance(key, int):
            return self.members[key]
        message = f"Fields of a row type are found by name, position or slice, not by {key!r:.100}"
        raise TypeError(message)

    def index_of(self, name: str) -> int:
        """The position of the field of that name, -1 if there is none."""
        return next((i for i, field_ in enumerate(self.members) if field_.name == name), -1)

    def _summary(self) -> str:
        return self._text(summary=True)

    def _serializable(self) -> str:
        return self._text(summary=False)

    def _text(self, *, summary: bool) -> str:
        parts = []
        for field_ in self.members:
            type_ = field_.type
            text = type_.as_summary_string() if summary else type_.as_serializable_string()
            part = f"{escape_identifier(field_.name)} {text}"
            if field_.description is not None:
                quoted = field_.description.replace("'", "''")
                part += " '...'" if summary else f" '{quoted}'"
            parts.append(part)
        return f"ROW<{', '.join(parts)}>"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(map(repr, self.members))})"

    def need_conversion(self) -> bool:
        return True

    def to_sql_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        change, values = sql_values.fields_of(obj, self.names)
        pairs = zip(self.members, values, strict=False)
        return (change, *(each.to_sql_type(value) for each, value in pairs))

    def from_sql_type(self, obj: Any) -> Any:
        if obj is None or isinstance(obj, Row):
            return obj
        pairs = zip(self.members, obj, strict=False)
        return row_class(tuple(self.names))([each.from_sql_type(value) for each, value in pairs])

    def to_arrow(self) -> pa.DataType:
        return pa.struct([pa.field(item.name, item.type.to_arrow()) for item in self.members])

    def to_arrow_schema(self) -> pa.Schema:
        """The schema of a batch of such rows: one column per field."""
        return pa.schema([pa.field(item.name, item.type.to_arrow()) for item in self.members])


@dataclass(frozen=True, init=False, repr=False)
class RawType(LogicalType):
    """Python objects of a class that SQL only passes on; a column holds their pickles."""

    class_name: str

    root = TypeRoot.RAW

    def __init__(self, class_name: str = "builtins.object", nullable: bool = True) -> None:  # noqa: FBT001, FBT002 - as others
        self._set(_nullable=nullable, class_name=class_name)

    def _summary(self) -> str:
        return f"RAW('{self.class_name}', '...')"

    def _serializable(self) -> str:
        quoted = self.class_name.replace("'", "''")
        return f"RAW('{quoted}', 'pickle')"

    def from_sql_type(self, obj: Any) -> Any:
        return pickle.loads(obj)


@dataclass(frozen=True, init=False, repr=False)
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
