"""Conversion between logical types and the TypeInformation of streams.

Columns whose values look the same in both have the stream's own types; others a
``LogicalTypeInfo``, whose column is that of the table, so that nothing is converted until a Python
function asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.errors import ProgramError, TypeMismatchError
from millstream.types import logical_types as lt
from millstream.types.basic_types import DecimalTypeInfo
from millstream.types.columns import as_type
from millstream.types.composite_types import CompositeTypeInfo, RowTypeInfo
from millstream.types.external_values import from_external, to_external
from millstream.types.type_information import (
    ArrowTypeInfo,
    BasicArrayTypeInfo,
    ColumnMismatchError,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    TypeInformation,
)
from millstream.types.type_roots import TypeRoot
from millstream.types.types import Types
from millstream.types.values import column_of, values_of_column

if TYPE_CHECKING:
    from collections.abc import Sequence


class LogicalTypeInfo(TypeInformation):
    """A column of a table: Arrow as SQL has it, Python values as programs see them."""

    def __init__(self, type_: lt.LogicalType) -> None:
        """Take the logical type."""
        self.type = type_

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the logical type."""
        return self.type.to_arrow()

    def column_to_arrow(self, values: Sequence[object]) -> pa.Array:
        """The values as a column."""
        convert = from_external(self.type)
        converted = []
        for index, value in enumerate(values):
            try:
                converted.append(convert(value))
            except TypeMismatchError as error:
                raise ColumnMismatchError(index, value, str(self), str(error)) from error
        return column_of(converted, self.type)

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        """The values of a column."""
        column = as_type(array, self.arrow_type)
        return list(map(to_external(self.type), values_of_column(column, self.type)))

    def __str__(self) -> str:
        """The type's summary, ``TIMESTAMP(3)``."""
        return self.type.with_nullability(True).as_summary_string()  # noqa: FBT003


#: Types of streams with the logical type of the same columns and values.
_PAIRS: Final[tuple[tuple[TypeInformation, lt.LogicalType], ...]] = (
    (Types.STRING(), lt.VarCharType()),
    (Types.BOOLEAN(), lt.BooleanType()),
    (Types.BYTE(), lt.TinyIntType()),
    (Types.SHORT(), lt.SmallIntType()),
    (Types.INT(), lt.IntType()),
    (Types.LONG(), lt.BigIntType()),
    (Types.FLOAT(), lt.FloatType()),
    (Types.DOUBLE(), lt.DoubleType()),
    (Types.SQL_DATE(), lt.DateType()),
    (Types.PICKLED_BYTE_ARRAY(), lt.RawType()),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), lt.VarBinaryType()),
)
_OF_ROOT: Final = {type_.root: info for info, type_ in _PAIRS} | {
    TypeRoot.CHAR: Types.STRING(),
    TypeRoot.BINARY: Types.PRIMITIVE_ARRAY(Types.BYTE()),
}


def type_info_of(type_: lt.LogicalType) -> TypeInformation:
    """The type of a stream whose records or columns are of that logical type.

    Its columns have the Arrow types of the logical type; the fields of a ROW are columns.
    """
    if isinstance(type_, lt.RowType):
        return RowTypeInfo([type_info_of(field.type) for field in type_], type_.names)
    if isinstance(type_, lt.DecimalType):
        return DecimalTypeInfo(type_.precision, type_.scale)
    if isinstance(type_, lt.ArrayType):
        return ListTypeInfo(type_info_of(type_.element))
    if isinstance(type_, lt.MapType):
        return MapTypeInfo(type_info_of(type_.key), type_info_of(type_.value))
    if isinstance(type_, lt.TimestampType | lt.LocalZonedTimestampType) and type_.unit == "us":
        zoned = isinstance(type_, lt.LocalZonedTimestampType)
        return Types.TIMESTAMP_LTZ() if zoned else Types.SQL_TIMESTAMP()
    return _OF_ROOT.get(type_.root) or LogicalTypeInfo(type_)


_OF_INFO: Final[dict[TypeInformation, lt.LogicalType]] = dict(_PAIRS) | {
    Types.CHAR(): lt.VarCharType(),
    Types.BIG_DEC(): lt.DecimalType(38, 18),
    Types.SQL_TIME(): lt.TimeType(6),
    Types.SQL_TIMESTAMP(): lt.TimestampType(6),
    Types.TIMESTAMP_LTZ(): lt.LocalZonedTimestampType(6),
    Types.INSTANT(): lt.LocalZonedTimestampType(9),
}


def logical_type_of(info: TypeInformation) -> lt.LogicalType:  # noqa: PLR0911 - a table
    """The logical type of a stream's records, nullable.

    Rows, tuples and dataclasses become ROW; Python objects without columns become RAW; ``BIG_DEC``
    becomes DECIMAL(38, 18), as in Flink.  Times have the microseconds that Python's have.
    """
    if isinstance(info, LogicalTypeInfo):
        return info.type
    if isinstance(info, CompositeTypeInfo):
        pairs = zip(info.get_field_names(), info.get_field_types(), strict=True)
        return lt.RowType(tuple(lt.RowField(name, logical_type_of(inner)) for name, inner in pairs))
    if isinstance(info, DecimalTypeInfo):
        decimal = info.arrow_type
        return lt.DecimalType(decimal.precision, decimal.scale)
    if isinstance(info, MapTypeInfo):
        return lt.MapType(
            logical_type_of(info.key_type_info), logical_type_of(info.value_type_info)
        )
    if isinstance(info, ArrowTypeInfo):
        return logical_type_of_arrow(info.arrow_type)
    sequences = ListTypeInfo | BasicArrayTypeInfo | ObjectArrayTypeInfo | PrimitiveArrayTypeInfo
    if isinstance(info, sequences):
        if pa.types.is_binary(info.arrow_type):
            return lt.VarBinaryType()
        return lt.ArrayType(logical_type_of(info.elem_type))
    return _OF_INFO[info]


_OF_ARROW: Final[dict[pa.DataType, lt.LogicalType]] = {
    pa.null(): lt.NullType(),
    pa.bool_(): lt.BooleanType(),
    pa.int8(): lt.TinyIntType(),
    pa.int16(): lt.SmallIntType(),
    pa.int32(): lt.IntType(),
    pa.int64(): lt.BigIntType(),
    pa.uint8(): lt.SmallIntType(),
    pa.uint16(): lt.IntType(),
    pa.uint32(): lt.BigIntType(),
    pa.uint64(): lt.DecimalType(20, 0),
    pa.float16(): lt.FloatType(),
    pa.float32(): lt.FloatType(),
    pa.float64(): lt.DoubleType(),
    pa.string(): lt.VarCharType(),
    pa.large_string(): lt.VarCharType(),
    pa.string_view(): lt.VarCharType(),
    pa.binary(): lt.VarBinaryType(),
    pa.large_binary(): lt.VarBinaryType(),
    pa.binary_view(): lt.VarBinaryType(),
    pa.date32(): lt.DateType(),
    pa.date64(): lt.DateType(),
}
_UNIT_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def logical_type_of_arrow(  # noqa: C901, PLR0911 - a table
    data_type: pa.DataType, *, nullable: bool = True
) -> lt.LogicalType:
    """The logical type that holds the values of an Arrow column.

    Its own Arrow type may differ (large strings, dictionaries, seconds, the next wider integer for
    an unsigned one): columns are to be cast to it.

    Raises:
        ProgramError: no logical type holds such values.
    """
    kinds = pa.types
    found = _OF_ARROW.get(data_type)
    if found is not None:
        return found.with_nullability(nullable)
    if kinds.is_decimal(data_type) and data_type.precision <= lt.DecimalType(38).precision:
        return lt.DecimalType(data_type.precision, data_type.scale, nullable=nullable)
    if kinds.is_timestamp(data_type):
        cls = lt.TimestampType if data_type.tz is None else lt.LocalZonedTimestampType
        return cls(_UNIT_DIGITS[data_type.unit], nullable=nullable)
    if kinds.is_time(data_type):
        return lt.TimeType(_UNIT_DIGITS[data_type.unit], nullable=nullable)
    if kinds.is_duration(data_type):
        return lt.DayTimeIntervalType("DAY TO SECOND", 2, 3, nullable=nullable)
    if kinds.is_dictionary(data_type):
        return logical_type_of_arrow(data_type.value_type, nullable=nullable)
    if kinds.is_fixed_size_binary(data_type):
        return lt.VarBinaryType(nullable=nullable)
    if kinds.is_map(data_type):
        key = logical_type_of_arrow(data_type.key_type, nullable=False)
        return lt.MapType(key, logical_type_of_arrow(data_type.item_type), nullable=nullable)
    if kinds.is_nested(data_type) and hasattr(data_type, "value_type"):
        return lt.ArrayType(logical_type_of_arrow(data_type.value_type), nullable=nullable)
    if kinds.is_struct(data_type):
        return row_type_of_schema(pa.schema(list(data_type))).with_nullability(nullable)
    message = f"no type of SQL holds the values of the Arrow type {data_type}"
    raise ProgramError(message)


def row_type_of_schema(schema: pa.Schema) -> lt.RowType:
    """The type of the rows of an Arrow schema; columns that are not nullable become NOT NULL.

    Raises:
        ProgramError: no logical type holds the values of a column.
    """
    fields = [
        lt.RowField(field.name, logical_type_of_arrow(field.type, nullable=field.nullable))
        for field in schema
    ]
    return lt.RowType(tuple(fields), nullable=False)
