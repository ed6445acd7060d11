"""Types that pyarrow does not read from JSON as it stands: decimals, dates, times.

What it is: ``Types.BIG_DEC()`` is a column of texts, which pyarrow does not make of numbers, so
numbers are read as decimals of 38 digits, 18 of them behind the point, and become texts then.
Dates and times are read as texts.
What it is not: for decimals with more digits: those have to stand in quotes.

Read next: ``connectors/formats/message_formats.py``.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.types.basic_types import BigDecimalTypeInfo
from millstream.types.composite_types import CompositeTypeInfo

if TYPE_CHECKING:
    from millstream.types.typeinfo import TypeInformation

__all__ = ["readable_schema", "typed_columns"]

_DECIMAL: Final = pa.decimal128(38, 18)


def readable_schema(kind: TypeInformation, *, numbers: bool) -> pa.Schema:
    """The columns of a record type, with types in their place that pyarrow reads.

    Args:
        kind: the record type.
        numbers: whether decimals of any size are numbers, or else texts.
    """
    return pa.schema(list(_readable(kind, numbers=numbers)))


def _readable(kind: TypeInformation, *, numbers: bool) -> pa.DataType:
    element: TypeInformation | None = getattr(kind, "elem_type", None)
    if isinstance(kind, BigDecimalTypeInfo):
        return _DECIMAL if numbers else pa.string()
    if isinstance(kind, CompositeTypeInfo):
        fields = zip(kind.get_field_names(), kind.get_field_types(), strict=True)
        return pa.struct([(name, _readable(field, numbers=numbers)) for name, field in fields])
    if element is not None and pa.types.is_list(kind.arrow_type):
        return pa.list_(_readable(element, numbers=numbers))
    if pa.types.is_date(kind.arrow_type) or pa.types.is_time(kind.arrow_type):
        return pa.string()
    return kind.arrow_type


def typed_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the types of ``schema``.

    Raises:
        ValueError: a text is no date or time.
    """
    if table.schema.equals(schema):
        return table
    columns = [
        pa.chunked_array([_typed(chunk, field.type) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if array.type == _DECIMAL:
        texts = [None if v is None else f"{v.normalize():f}" for v in array.to_pylist()]
        return pa.array(texts, kind)
    if pa.types.is_time(kind):  # no cast of pyarrow's
        texts = array.to_pylist()
        times = [None if text is None else dt.time.fromisoformat(text) for text in texts]
        return pa.array(times, kind)
    missing = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        fields = [_typed(array.field(index), field.type) for index, field in enumerate(kind)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=missing)
    if pa.types.is_list(kind):
        values = _typed(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=missing)
    return array.cast(kind)
