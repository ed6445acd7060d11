"""DataTypes: logical types by PyFlink's names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from millstream.types import logical_types as lt
from millstream.types.logical_types import ArrayType as ArrayType
from millstream.types.logical_types import AtomicType as AtomicType
from millstream.types.logical_types import BigIntType as BigIntType
from millstream.types.logical_types import BinaryType as BinaryType
from millstream.types.logical_types import BooleanType as BooleanType
from millstream.types.logical_types import CharType as CharType
from millstream.types.logical_types import DateType as DateType
from millstream.types.logical_types import DayTimeIntervalType as DayTimeIntervalType
from millstream.types.logical_types import DecimalType as DecimalType
from millstream.types.logical_types import DoubleType as DoubleType
from millstream.types.logical_types import FloatType as FloatType
from millstream.types.logical_types import FractionalType as FractionalType
from millstream.types.logical_types import IntegralType as IntegralType
from millstream.types.logical_types import IntType as IntType
from millstream.types.logical_types import LocalZonedTimestampType as LocalZonedTimestampType
from millstream.types.logical_types import MapType as MapType
from millstream.types.logical_types import MultisetType as MultisetType
from millstream.types.logical_types import NullType as NullType
from millstream.types.logical_types import NumericType as NumericType
from millstream.types.logical_types import RawType as RawType
from millstream.types.logical_types import RowField as RowField
from millstream.types.logical_types import RowType as RowType
from millstream.types.logical_types import SmallIntType as SmallIntType
from millstream.types.logical_types import TimestampType as TimestampType
from millstream.types.logical_types import TimeType as TimeType
from millstream.types.logical_types import TinyIntType as TinyIntType
from millstream.types.logical_types import VarBinaryType as VarBinaryType
from millstream.types.logical_types import VarCharType as VarCharType
from millstream.types.logical_types import YearMonthIntervalType as YearMonthIntervalType
from millstream.types.logical_types import ZonedTimestampType as ZonedTimestampType
from millstream.types.row import Row as Row
from millstream.types.row import RowKind as RowKind

if TYPE_CHECKING:
    from collections.abc import Sequence


#: PyFlink's name.
DataType = lt.LogicalType


@dataclass(frozen=True, init=False)
class Resolution:
    """A unit of an interval, with its digits (-1: as usual).  Made by ``DataTypes``."""

    class IntervalUnit(Enum):
        """Units of intervals."""

        SECOND = 0
        MINUTE = 1
        HOUR = 2
        DAY = 3
        MONTH = 4
        YEAR = 5

    _unit: IntervalUnit
    _precision: int

    def __init__(self, unit: IntervalUnit, precision: int = -1) -> None:
        object.__setattr__(self, "_unit", unit)
        object.__setattr__(self, "_precision", precision)

    @property
    def unit(self) -> IntervalUnit:
        """The unit."""
        return self._unit

    @property
    def precision(self) -> int:
        """The digits."""
        return self._precision

    def __str__(self) -> str:
        """Unit and digits."""
        return f"{self.unit}({self.precision})"


class ListViewType(ArrayType):
    """A ListView in an accumulator."""

    def __init__(self, element_type: lt.LogicalType) -> None:
        super().__init__(element_type)


class MapViewType(MapType):
    """A MapView in an accumulator."""

    def __init__(self, key_type: lt.LogicalType, value_type: lt.LogicalType) -> None:
        super().__init__(key_type, value_type)


class UserDefinedType(lt.LogicalType):
    """A type whose values are objects of a class of the program, kept as values of another type.

    A class names its type by ``__UDT__``.  ``from_elements`` makes values of ``sql_type()`` of such
    objects; as in PyFlink, results hold these and not the objects.
    """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    @classmethod
    def type_name(cls) -> str:
        """The name of the class, in small letters."""
        return cls.__name__.lower()

    @classmethod
    def sql_type(cls) -> lt.LogicalType:
        """Return the type of the values that ``serialize`` gives."""
        message = f"{cls.__name__} must implement sql_type()."
        raise NotImplementedError(message)

    @classmethod
    def module(cls) -> str:
        """Return the module of the class."""
        message = f"{cls.__name__} must implement module()."
        raise NotImplementedError(message)

    @classmethod
    def java_udt(cls) -> str:
        """Return an empty text: there are no classes of Java."""
        return ""

    def serialize(self, obj: Any) -> Any:
        """Convert an object to a value of ``sql_type()``."""
        message = f"{type(self).__name__} must implement serialize()."
        raise NotImplementedError(message)

    def deserialize(self, datum: Any) -> Any:
        """Convert a value of ``sql_type()`` to an object."""
        message = f"{type(self).__name__} must implement deserialize()."
        raise NotImplementedError(message)

    def need_conversion(self) -> bool:
        return True

    def to_sql_type(self, obj: Any) -> Any:
        return None if obj is None else self.sql_type().to_sql_type(self.serialize(obj))

    def from_sql_type(self, obj: Any) -> Any:
        value = self.sql_type().from_sql_type(obj)
        return None if value is None else self.deserialize(value)

    def as_summary_string(self) -> str:
        """The text of the type that values are kept as."""
        return self.sql_type().with_nullability(self.is_nullable).as_summary_string()


class DataTypes:
    """Logical types by their names in SQL; ``nullable`` is whether values may be NULL."""

    NULL = NullType
    CHAR = CharType
    VARCHAR = VarCharType
    BOOLEAN = BooleanType
    BINARY = BinaryType
    VARBINARY = VarBinaryType
    DECIMAL = DecimalType
    TINYINT = TinyIntType
    SMALLINT = SmallIntType
    INT = IntType
    BIGINT = BigIntType
    FLOAT = FloatType
    DOUBLE = DoubleType
    DATE = DateType
    TIME = TimeType
    TIMESTAMP = TimestampType
    TIMESTAMP_LTZ = TIMESTAMP_WITH_LOCAL_TIME_ZONE = LocalZonedTimestampType
    ARRAY = ArrayType
    MULTISET = MultisetType
    MAP = MapType
    LIST_VIEW = ListViewType
    MAP_VIEW = MapViewType

    @staticmethod
    def STRING(nullable: bool = True) -> VarCharType:  # noqa: FBT001, FBT002
        """Text of any length."""
        return VarCharType(nullable=nullable)

    @staticmethod
    def BYTES(nullable: bool = True) -> VarBinaryType:  # noqa: FBT001, FBT002
        """Bytes of any length."""
        return VarBinaryType(nullable=nullable)

    @staticmethod
    def FIELD(name: str, data_type: lt.LogicalType, description: str | None = None) -> lt.RowField:
        """A field of a row."""
        return lt.RowField(name, data_type, description)

    @staticmethod
    def ROW(row_fields: Sequence[lt.RowField] = (), nullable: bool = True) -> lt.RowType:  # noqa: FBT001, FBT002
        """A row."""
        return lt.RowType(row_fields, nullable)

    @staticmethod
    def SECOND(precision: int = 6) -> Resolution:
        """Seconds, with digits after the point."""
        return Resolution(Resolution.IntervalUnit.SECOND, precision)

    @staticmethod
    def MINUTE() -> Resolution:
        """Minutes."""
        return Resolution(Resolution.IntervalUnit.MINUTE)

    @staticmethod
    def HOUR() -> Resolution:
        """Hours."""
        return Resolution(Resolution.IntervalUnit.HOUR)

    @staticmethod
    def DAY(precision: int = 2) -> Resolution:
        """Days, with digits."""
        return Resolution(Resolution.IntervalUnit.DAY, precision)

    @staticmethod
    def MONTH() -> Resolution:
        """Months."""
        return Resolution(Resolution.IntervalUnit.MONTH)

    @staticmethod
    def YEAR(precision: int = 2) -> Resolution:
        """Years, with digits."""
        return Resolution(Resolution.IntervalUnit.YEAR, precision)

    @staticmethod
    def INTERVAL(
        upper_resolution: Resolution, lower_resolution: Resolution | None = None
    ) -> DayTimeIntervalType | YearMonthIntervalType:
        """A length of time: ``INTERVAL(DAY(), SECOND(3))``.

        Raises:
            ProgramError: there is no interval of these units.
        """
        units = [upper_resolution, *([] if lower_resolution is None else [lower_resolution])]
        text = " TO ".join(each.unit.name for each in units)
        digits = {each.unit.name: each.precision for each in units}
        if upper_resolution.unit.name in {"YEAR", "MONTH"}:
            return YearMonthIntervalType(text, digits.get("YEAR", 2))
        return DayTimeIntervalType(text, digits.get("DAY", 2), digits.get("SECOND", 6))
