"""Conversion of columns of logical types to Python values and back, for SQL's functions.

Values look as the table in ``expressions/nodes.py`` says: times are integers, arrays and rows are
tuples, so nothing is lost and everything but a map is hashable.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.types import columns
from millstream.types.logical_types import (
    IntType,
    LocalZonedTimestampType,
    LogicalType,
    TimestampType,
)
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_NANOS_PER: Final = {"ms": 1_000_000, "us": 1000, "ns": 1}
_COUNT: Final = IntType(nullable=False)


def values_of_column(array: pa.Array, type_: LogicalType) -> list[Any]:
    """The values of a column of the type's Arrow type, None where it is NULL."""
    convert = _FROM_COLUMN.get(type_.root)
    return columns.values_of(array) if convert is None else convert(array, type_)


def column_of(values: Sequence[Any], type_: LogicalType) -> pa.Array:
    """A column of the type's Arrow type, of values as ``values_of_column`` gives them.

    Raises:
        pa.ArrowException: a value does not fit the type.
    """
    convert = _TO_COLUMN.get(type_.root)
    if convert is None:
        return pa.array(values, type_.to_arrow())
    return convert(values, type_)


def scalar_of(value: Any, type_: LogicalType) -> pa.Scalar:
    """One value as a scalar of Arrow."""
    return column_of([value], type_)[0]


def value_of(scalar: pa.Scalar, type_: LogicalType) -> Any:
    """The value of a scalar of Arrow."""
    return values_of_column(pa.repeat(scalar, 1), type_)[0]


# -- from columns -----------------------------------------------------------------------------


def _width(arrow_type: pa.DataType) -> pa.DataType:
    """The integers of a type of times."""
    return pa.int32() if arrow_type.bit_width == 32 else pa.int64()  # noqa: PLR2004 - bits


def _numbers(array: pa.Array, _: LogicalType) -> list[Any]:
    return columns.values_of(array.cast(_width(array.type)))


def _nanos(array: pa.Array, _: LogicalType) -> list[Any]:
    values, factor = columns.values_of(array.cast(_width(array.type))), _NANOS_PER[array.type.unit]
    if factor == 1:
        return values
    return [None if value is None else value * factor for value in values]


def _nulls(array: pa.Array, _: LogicalType) -> list[Any]:
    return [None] * len(array)


def _arrays(array: pa.Array, type_: LogicalType) -> list[Any]:
    return columns.lists_of(array, lambda items: tuple(values_of_column(items, type_.children[0])))


def _maps(array: pa.Array, type_: LogicalType) -> list[Any]:
    key, value = (*type_.children, _COUNT)[:2]
    return columns.maps_of(
        array, partial(values_of_column, type_=key), partial(values_of_column, type_=value)
    )


def _rows(array: pa.Array, type_: LogicalType) -> list[Any]:
    return columns.records_of(
        array,
        [partial(values_of_column, type_=child) for child in type_.children],
        lambda fields: list(zip(*fields, strict=True)) if fields else [()] * len(array),
    )


_FROM_COLUMN: Final[dict[TypeRoot, Callable[[pa.Array, LogicalType], list[Any]]]] = {
    TypeRoot.NULL: _nulls,
    TypeRoot.DATE: _numbers,
    TypeRoot.TIME_WITHOUT_TIME_ZONE: _nanos,
    TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE: _nanos,
    TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE: _nanos,
    TypeRoot.INTERVAL_DAY_TIME: _numbers,
    TypeRoot.ARRAY: _arrays,
    TypeRoot.MAP: _maps,
    TypeRoot.MULTISET: _maps,
    TypeRoot.ROW: _rows,
}


# -- to columns -------------------------------------------------------------------------------


def _to_numbers(values: Sequence[Any], type_: LogicalType) -> pa.Array:
    target = type_.to_arrow()
    return pa.array(values, _width(target)).cast(target)


def _to_times(values: Sequence[Any], type_: LogicalType) -> pa.Array:
    factor = _NANOS_PER[type_.to_arrow().unit]
    return _to_numbers([None if value is None else value // factor for value in values], type_)


def _to_timestamps(values: Sequence[Any], type_: LogicalType) -> pa.Array:
    """Digits beyond the type's precision are cut, as Flink does."""
    assert isinstance(type_, TimestampType | LocalZonedTimestampType)  # noqa: S101
    factor = 10 ** (9 - type_.precision)
    per_unit = _NANOS_PER[type_.unit]
    units = [None if value is None else (value - value % factor) // per_unit for value in values]
    try:
        return pa.array(units, pa.int64()).cast(type_.to_arrow())
    except OverflowError as error:
        message = f"a value of {type_.as_summary_string()} is beyond what its column holds" + (
            ": the years 1678 to 2261; use TIMESTAMP(6)" if per_unit == 1 else ""
        )
        raise ValueError(message) from error


def _to_arrays(values: Sequence[Any], type_: LogicalType) -> pa.Array:
    return columns.list_column(
        values, partial(column_of, type_=type_.children[0]), type_.to_arrow()
    )


def _to_maps(values: Sequence[Any], type_: LogicalType) -> pa.Array:
    key, item = (*type_.children, _COUNT)[:2]

    def keys_to_column(keys: Sequence[Any]) -> pa.Array:
        if None in keys:
            message = "a key of a map is NULL, which columns of maps do not hold"
            raise ValueError(message)
        return column_of(keys, key)

    return columns.map_column(
        values, keys_to_column, partial(column_of, type_=item), type_.to_arrow()
    )


def _to_rows(values: Sequence[Any], type_: LogicalType) -> pa.Array:
    def fields(rows: Sequence[Any]) -> list[pa.Array]:
        parts = zip(*rows, strict=True) if rows else [()] * len(type_.children)
        return [column_of(*pair) for pair in zip(parts, type_.children, strict=True)]

    return columns.record_column(values, fields, type_.to_arrow())


_TO_COLUMN: Final[dict[TypeRoot, Callable[[Sequence[Any], LogicalType], pa.Array]]] = {
    TypeRoot.DATE: _to_numbers,
    TypeRoot.TIME_WITHOUT_TIME_ZONE: _to_times,
    TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE: _to_timestamps,
    TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE: _to_timestamps,
    TypeRoot.INTERVAL_DAY_TIME: _to_numbers,
    TypeRoot.ARRAY: _to_arrays,
    TypeRoot.MAP: _to_maps,
    TypeRoot.MULTISET: _to_maps,
    TypeRoot.ROW: _to_rows,
}
