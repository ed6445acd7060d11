"""Type information under PyFlink's import path."""

from __future__ import annotations

from millstream.types.typeinfo import (
    ArrowTypeInfo,
    BasicArrayTypeInfo,
    BasicTypeInfo,
    BigDecimalTypeInfo,
    DataclassTypeInfo,
    DecimalTypeInfo,
    InstantTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
    from_arrow_schema,
    from_arrow_type,
)

__all__ = [
    "ArrowTypeInfo",
    "BasicArrayTypeInfo",
    "BasicTypeInfo",
    "BigDecimalTypeInfo",
    "DataclassTypeInfo",
    "DecimalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
    "from_arrow_schema",
    "from_arrow_type",
]
