"""Type information of table rows outside of tables, and the logical row of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import UnsupportedSqlError
from millstream.runtime.operators.table.aggregate_calls import partial_fields
from millstream.sql.planner.logical import row_of
from millstream.types import logical_types as lt
from millstream.types.bitmaps import has_extension
from millstream.types.logical_type_info import LogicalTypeInfo
from millstream.types.structured_types import has_class
from millstream.types.type_information import PickledBytesTypeInfo
from millstream.types.types import ArrowTypeInfo, RowTypeInfo, from_arrow_type

if TYPE_CHECKING:
    from millstream.runtime.operators.table.group_aggregate import LocalGroupAggregateFactory
    from millstream.runtime.operators.table.window_aggregate import LocalWindowAggregateFactory
    from millstream.types.types import TypeInformation


def external_type(row: lt.RowType) -> RowTypeInfo:
    """The type of rows as programs see them."""
    return RowTypeInfo([_external_field(field.type) for field in row.fields], list(row.names))


def _external_field(kind: lt.LogicalType) -> TypeInformation:
    """The type of a column; where its bytes or fields have a meaning, programs see that."""
    if has_extension(kind) or has_class(kind) or _has_empty_row(kind) or _has_objects(kind):
        return LogicalTypeInfo(kind)
    return from_arrow_type(kind.to_arrow())


def _has_objects(kind: lt.LogicalType) -> bool:
    """Return whether pickled objects are in values of a type."""
    return isinstance(kind, lt.RawType) or any(map(_has_objects, kind.children))


def _has_empty_row(kind: lt.LogicalType) -> bool:
    """Return whether there are rows without fields in values of a type.

    To Arrow these are dicts.
    """
    is_empty = isinstance(kind, lt.RowType) and not kind.fields
    return is_empty or any(map(_has_empty_row, kind.children))


_PLAIN: Final = {
    pa.bool_(): lt.BooleanType(),
    pa.int8(): lt.TinyIntType(),
    pa.int16(): lt.SmallIntType(),
    pa.int32(): lt.IntType(),
    pa.int64(): lt.BigIntType(),
    pa.float32(): lt.FloatType(),
    pa.float64(): lt.DoubleType(),
    pa.string(): lt.VarCharType(),
    pa.large_string(): lt.VarCharType(),
    pa.binary(): lt.VarBinaryType(),
    pa.large_binary(): lt.VarBinaryType(),
    pa.date32(): lt.DateType(),
    pa.date64(): lt.DateType(),
}
_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def logical_type(kind: pa.DataType) -> lt.LogicalType:  # noqa: PLR0911 - a table
    """The type of a table's column that holds the values of an Arrow column.

    Raises:
        UnsupportedSqlError: there is none.
    """
    found = _PLAIN.get(kind)
    if found is not None:
        return found
    kinds = pa.types
    if kinds.is_timestamp(kind):
        made = lt.TimestampType if kind.tz is None else lt.LocalZonedTimestampType
        return made(_DIGITS[kind.unit])
    if kinds.is_time(kind):
        return lt.TimeType(min(_DIGITS[kind.unit], 6))
    if kinds.is_decimal128(kind):
        return lt.DecimalType(kind.precision, kind.scale)
    if kinds.is_dictionary(kind):
        return logical_type(kind.value_type)
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return lt.ArrayType(logical_type(kind.value_type))
    if kinds.is_map(kind):
        return lt.MapType(logical_type(kind.key_type), logical_type(kind.item_type))
    if kinds.is_struct(kind):
        fields = tuple(lt.RowField(each.name, logical_type(each.type)) for each in kind)
        return lt.RowType(fields)
    message = f"a table has no column of the type {kind}"
    raise UnsupportedSqlError(message)


def _own_type(info: TypeInformation) -> lt.LogicalType | None:
    """The type of a field that its Arrow type does not tell."""
    if isinstance(info, LogicalTypeInfo):
        return info.type
    # Flink's name of the class of pickled values.
    return lt.RawType("[B") if isinstance(info, PickledBytesTypeInfo) else None


def logical_row(kind: TypeInformation) -> lt.RowType:
    """The row of a table that is a stream of that type."""
    schema = kind.arrow_schema
    assert schema is not None  # noqa: S101 - asked before
    types = [logical_type(each.type) for each in schema]
    if isinstance(kind, RowTypeInfo):
        infos = enumerate(kind.get_field_types())
        own = {at: found for at, info in infos if (found := _own_type(info)) is not None}
        types = [own.get(at, found) for at, found in enumerate(types)]
    return row_of(schema.names, types)


def stream_type(row: lt.RowType) -> RowTypeInfo:
    """The type of a stream of such rows."""
    types = [ArrowTypeInfo(field.type.to_arrow()) for field in row.fields]
    return RowTypeInfo(types, list(row.names))


def partial_type(plan: LocalGroupAggregateFactory) -> RowTypeInfo:
    """The type of a stream of partial aggregates."""
    fields = partial_fields(plan.aggregates, plan.input_type, retracts=plan.retracts)
    return _partial(plan, fields)


def partial_window_type(plan: LocalWindowAggregateFactory) -> RowTypeInfo:
    """The type of a stream of partial aggregates of slices of windows."""
    fields = partial_fields(plan.aggregates, plan.input_type, retracts=plan.retracts)
    return _partial(plan, [*fields, *(pa.field(name, pa.int64()) for name in ("start", "end"))])


def _partial(
    plan: LocalGroupAggregateFactory | LocalWindowAggregateFactory, fields: list[pa.Field]
) -> RowTypeInfo:
    row = plan.input_type
    kinds = [row.children[key].to_arrow() for key in plan.keys] + [each.type for each in fields]
    names = [f"k{number}" for number in range(len(plan.keys))] + [each.name for each in fields]
    return RowTypeInfo([ArrowTypeInfo(kind) for kind in kinds], names)
