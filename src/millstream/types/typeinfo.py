"""All kinds of type information in one place, and types made from Arrow schemas.

What it is: where the package imports ``TypeInformation``, its kinds and ``Types`` from, and
``from_arrow_schema`` for sources whose files carry a schema.

What it is not: where they are written (``types/type_information.py``, ``types/basic_types.py``,
``types/composite_types.py``), nor what programs import (``millstream.common``).

Read next: ``types/types.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.types.basic_types import (
    BasicType,
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
from millstream.types.type_information import (
    ArrowTypeInfo,
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    TypeInformation,
)
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ArrowTypeInfo",
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "BigDecimalTypeInfo",
    "DataclassTypeInfo",
    "DateTypeInfo",
    "DecimalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
    "from_arrow_schema",
    "from_arrow_type",
]

_SAME: Final[dict[pa.DataType, TypeInformation]] = {
    pa.bool_(): Types.BOOLEAN(),
    pa.int8(): Types.BYTE(),
    pa.int16(): Types.SHORT(),
    pa.int32(): Types.INT(),
    pa.int64(): Types.LONG(),
    pa.float32(): Types.FLOAT(),
    pa.float64(): Types.DOUBLE(),
    pa.string(): Types.STRING(),
    pa.large_string(): Types.STRING(),
    pa.string_view(): Types.STRING(),
    pa.binary(): PrimitiveArrayTypeInfo(Types.BYTE()),
    pa.large_binary(): PrimitiveArrayTypeInfo(Types.BYTE()),
    pa.date32(): Types.SQL_DATE(),
    pa.date64(): Types.SQL_DATE(),
}


def from_arrow_schema(schema: pa.Schema, names: Sequence[str] | None = None) -> RowTypeInfo:
    """The type of rows with the columns of an Arrow schema.

    Columns of a type that has several widths (large strings, nanoseconds) get the usual one; bring
    the batches into the same form with ``TypeInformation.conform``.

    Args:
        schema: the columns.
        names: names for the fields, one per column; those of the columns by default.

    Raises:
        ProgramError: the numbers of names and columns differ, or a name occurs twice.
    """
    types = [from_arrow_type(field.type) for field in schema]
    return RowTypeInfo(types, schema.names if names is None else names)


def from_arrow_type(data_type: pa.DataType) -> TypeInformation:  # noqa: PLR0911 - a table
    """The type of the values of a column; an ArrowTypeInfo where Flink has no such type."""
    known = _SAME.get(data_type)
    if known is not None:
        return known
    kinds = pa.types
    if kinds.is_timestamp(data_type):
        return Types.SQL_TIMESTAMP() if data_type.tz is None else Types.TIMESTAMP_LTZ()
    if kinds.is_time(data_type):
        return Types.SQL_TIME()
    if kinds.is_decimal128(data_type):
        return DecimalTypeInfo(data_type.precision, data_type.scale)
    if kinds.is_dictionary(data_type):
        return from_arrow_type(data_type.value_type)
    if kinds.is_list(data_type) or kinds.is_large_list(data_type):
        return ListTypeInfo(from_arrow_type(data_type.value_type))
    if kinds.is_map(data_type):
        return MapTypeInfo(
            from_arrow_type(data_type.key_type), from_arrow_type(data_type.item_type)
        )
    if kinds.is_struct(data_type) and data_type.num_fields:
        return from_arrow_schema(pa.schema(list(data_type)))
    return ArrowTypeInfo(data_type)
