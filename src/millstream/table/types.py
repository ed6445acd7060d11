"""DataTypes: logical types by PyFlink's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DataType", "DataTypes"]

#: PyFlink's name.
DataType = lt.LogicalType


class DataTypes:
    """Makes logical types; ``nullable`` is whether values may be NULL."""

    @staticmethod
    def NULL() -> lt.LogicalType:
        """The type of NULL."""
        return lt.NullType()

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """Text of a length."""
        return lt.CharType(length, nullable=nullable)

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """Text up to a length."""
        return lt.VarCharType(length, nullable=nullable)

    @staticmethod
    def STRING(nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """Text."""
        return lt.VarCharType(nullable=nullable)

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """True or false."""
        return lt.BooleanType(nullable=nullable)

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """Bytes of a number."""
        return lt.BinaryType(length, nullable=nullable)

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """Bytes up to a number."""
        return lt.VarBinaryType(length, nullable=nullable)

    @staticmethod
    def BYTES(nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """Bytes."""
        return lt.VarBinaryType(nullable=nullable)

    @staticmethod
    def DECIMAL(
        precision: int,
        scale: int,
        nullable: bool = True,  # noqa: FBT001, FBT002
    ) -> lt.LogicalType:
        """A decimal number."""
        return lt.DecimalType(precision, scale, nullable=nullable)

    @staticmethod
    def TINYINT(nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """A number of 8 bits."""
        return lt.TinyIntType(nullable=nullable)

    @staticmethod
    def SMALLINT(nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """A number of 16 bits."""
        return lt.SmallIntType(nullable=nullable)

    @staticmethod
    def INT(nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """A number of 32 bits."""
        return lt.IntType(nullable=nullable)

    @staticmethod
    def BIGINT(nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """A number of 64 bits."""
        return lt.BigIntType(nullable=nullable)

    @staticmethod
    def FLOAT(nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """A floating point number of 32 bits."""
        return lt.FloatType(nullable=nullable)

    @staticmethod
    def DOUBLE(nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """A floating point number of 64 bits."""
        return lt.DoubleType(nullable=nullable)

    @staticmethod
    def DATE(nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """A day."""
        return lt.DateType(nullable=nullable)

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """A time of day."""
        return lt.TimeType(precision, nullable=nullable)

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """A point in time of no time zone."""
        return lt.TimestampType(precision, nullable=nullable)

    @staticmethod
    def TIMESTAMP_LTZ(
        precision: int = 6,
        nullable: bool = True,  # noqa: FBT001, FBT002
    ) -> lt.LogicalType:
        """A point in time."""
        return lt.LocalZonedTimestampType(precision, nullable=nullable)

    TIMESTAMP_WITH_LOCAL_TIME_ZONE = TIMESTAMP_LTZ

    @staticmethod
    def ARRAY(element_type: lt.LogicalType, nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """A list."""
        return lt.ArrayType(element_type, nullable=nullable)

    @staticmethod
    def MULTISET(element_type: lt.LogicalType, nullable: bool = True) -> lt.LogicalType:  # noqa: FBT001, FBT002
        """A list without order."""
        return lt.MultisetType(element_type, nullable=nullable)

    @staticmethod
    def MAP(
        key_type: lt.LogicalType,
        value_type: lt.LogicalType,
        nullable: bool = True,  # noqa: FBT001, FBT002
    ) -> lt.LogicalType:
        """Values by key."""
        return lt.MapType(key_type, value_type, nullable=nullable)

    @staticmethod
    def FIELD(name: str, data_type: lt.LogicalType, description: str | None = None) -> lt.RowField:
        """A field of a row."""
        return lt.RowField(name, data_type, description)

    @staticmethod
    def ROW(row_fields: Sequence[lt.RowField] = (), nullable: bool = True) -> lt.RowType:  # noqa: FBT001, FBT002
        """A row."""
        return lt.RowType(tuple(row_fields), nullable=nullable)
