"""Types: the types of streams and state, under PyFlink's names; also ``Row`` and ``RowKind``.

What it is: factories of ``TypeInformation``, such as ``Types.ROW([Types.STRING(), Types.LONG()])``.

What it is not: needed for a program to work.  Without types, values are pickled; with them,
records travel as Arrow columns, which is much faster.

Read next: ``types/type_information.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ProgramError
from millstream.types.basic_types import (
    BasicTypeInfo,
    BigDecimalTypeInfo,
    DateTypeInfo,
    DecimalTypeInfo,
    InstantTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
)
from millstream.types.composite_types import DataclassTypeInfo, RowTypeInfo, TupleTypeInfo
from millstream.types.row import Row, RowKind
from millstream.types.type_information import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Row", "RowKind", "Types"]

_PRIMITIVES = ("Boolean", "Byte", "Short", "Integer", "Long", "Float", "Double", "Character")


class Types:
    """The types of streams and state, under PyFlink's names."""

    @staticmethod
    def STRING() -> TypeInformation:
        """``str``."""
        return BasicTypeInfo("String")

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """``bool``."""
        return BasicTypeInfo("Boolean")

    @staticmethod
    def BYTE() -> TypeInformation:
        """``int`` of 8 bits."""
        return BasicTypeInfo("Byte")

    @staticmethod
    def SHORT() -> TypeInformation:
        """``int`` of 16 bits."""
        return BasicTypeInfo("Short")

    @staticmethod
    def INT() -> TypeInformation:
        """``int`` of 32 bits."""
        return BasicTypeInfo("Integer")

    @staticmethod
    def LONG() -> TypeInformation:
        """``int`` of 64 bits."""
        return BasicTypeInfo("Long")

    @staticmethod
    def FLOAT() -> TypeInformation:
        """``float``, rounded to 32 bits."""
        return BasicTypeInfo("Float")

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """``float``."""
        return BasicTypeInfo("Double")

    @staticmethod
    def CHAR() -> TypeInformation:
        """``str`` of one character (not checked)."""
        return BasicTypeInfo("Character")

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """``int`` of up to 38 digits."""
        return DecimalTypeInfo(38, 0, integers=True)

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """``decimal.Decimal`` of any size, kept digit for digit (a text column)."""
        return BigDecimalTypeInfo()

    @staticmethod
    def DECIMAL(precision: int, scale: int) -> TypeInformation:
        """``decimal.Decimal`` of up to 38 digits, ``scale`` of them after the point."""
        return DecimalTypeInfo(precision, scale)

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """``datetime.date``."""
        return DateTypeInfo()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """``datetime.time`` without time zone."""
        return TimeTypeInfo()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """``datetime.datetime`` without time zone."""
        return TimestampTypeInfo()

    @staticmethod
    def TIMESTAMP_LTZ() -> TypeInformation:
        """``datetime.datetime`` with time zone; comes back in UTC."""
        return SqlTimeTypeInfo("TimestampLtz")

    @staticmethod
    def INSTANT() -> TypeInformation:
        """``Instant``."""
        return InstantTypeInfo()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Any value, pickled."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """``Row`` with fields ``f0``, ``f1``, ...; a row itself must not be None."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(
        field_names: Sequence[str], field_types: Sequence[TypeInformation]
    ) -> RowTypeInfo:
        """``Row`` with the given fields; a row itself must not be None."""
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """``tuple``; a tuple itself must not be None."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def DATACLASS(dataclass: type) -> DataclassTypeInfo:
        """Instances of a dataclass; the types of its fields are read from its annotations.

        A field whose annotation has no type of its own is pickled.

        Raises:
            ProgramError: it is no dataclass, has no fields, or its annotations do not resolve.
        """
        from millstream.types.type_inference import dataclass_type  # which needs Types

        return dataclass_type(dataclass)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """``list`` of a primitive type without None; ``bytes`` if the type is BYTE.

        Raises:
            ProgramError: the element type is not primitive.
        """
        if str(element_type) not in _PRIMITIVES:
            message = f"invalid element type for a primitive array: {element_type}"
            raise ProgramError(message)
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """``list`` of a basic type.

        Raises:
            ProgramError: the element type is not basic.
        """
        if str(element_type) not in (*_PRIMITIVES, "String"):
            message = f"invalid element type for a basic array: {element_type}"
            raise ProgramError(message)
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """``list`` of any type."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> TypeInformation:
        """``dict``; keys must not be None."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:
        """``list`` of any type."""
        return ListTypeInfo(element_type_info)
