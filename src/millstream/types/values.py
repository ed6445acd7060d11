"""Conversion of columns of logical types to Python values and back, for SQL's functions.

Values look as the table in ``expressions/nodes.py`` says: times are integers, arrays and rows are
tuples, so nothing is lost and everything but a map is hashable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.types.logical_types import (
    ArrayType,
    IntType,
    LocalZonedTimestampType,
    LogicalType,
    RowType,
    TimestampType,
)
from millstream.types.type_information import as_key, offsets_of, slices_of, values_of
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_NANOS_PER: Final = {"ms": 1_000_000, "us": 1000, "ns": 1}
_COUNT: Final = IntType(nullable=False)


def values_of_column(array: pa.Array, type_: LogicalType) -> list[Any]:
    """The values of a column of the type's Arrow type, None where it is NULL."""
    convert = _FROM_COLUMN.get(type_.root)
    return values_of(array) if convert is None else convert(array, type_)


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
    return values_of(array.cast(_width(array.type)))


def _nanos(array: pa.Array, _: LogicalType) -> list[Any]:
    values, factor = values_of(array.cast(_width(array.type))), _NANOS_PER[array.type.unit]
    if factor == 1:
        return values
    return [None if value is None else value * factor for value in values]  # type: ignore[operator]


def _nulls(array: pa.Array, _: LogicalType) -> list[Any]:
    return [None] * len(array)


def _arrays(array: pa.Array, type_: LogicalType) -> list[Any]:
    assert isinstance(type_, ArrayType)  # noqa: S101
    if len(array) == 0:
        return []
    # Not flattened: a null list may stand over items.
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    items = tuple(values_of_column(array.values.slice(first, last - first), type_.element))
    return slices_of(array, lambda start, stop: items[start:stop])


def _maps(array: pa.Array, type_: LogicalType) -> list[Any]:
    key, value = (*type_.children, _COUNT)[:2]
    if len(array) == 0:
        return []
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    keys = values_of_column(array.keys.slice(first, last - first), key)
    if key.children:
        keys = list(map(as_key, keys))
    values = values_of_column(array.items.slice(first, last - first), value)
    return slices_of(
        array, lambda start, stop: dict(zip(keys[start:stop], values[start:stop], strict=True))
    )


def _rows(array: pa.Array, type_: LogicalType) -> list[Any]:
    columns = [
        values_of_column(child, child_type)
        for child, child_type in zip(array.flatten(), type_.children, strict=True)
    ]
    rows: list[Any] = list(zip(*columns, strict=True)) if columns else [()] * len(array)
    if array.null_count:
        valid = array.is_valid().to_pylist()
        rows = [row if is_there else None for row, is_there in zip(rows, valid, strict=True)]
    return rows


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
    assert isinstance(type_, ArrayType)  # noqa: S101
    offsets, mask, items = offsets_of(values)
    return pa.ListArray.from_arrays(
        offsets, column_of(items, type_.element), type=type_.to_arrow(), mask=mask
    )


def _to_maps(values: Sequence[Any], type_: LogicalType) -> pa.Array:
    key, item = (*type_.children, _COUNT)[:2]
    offsets, mask, keys = offsets_of(values)
    if None in keys:
        message = "a key of a map is NULL, which columns of maps do not hold"
        raise ValueError(message)
    items = [inner for value in values if value is not None for inner in value.values()]
    return pa.MapArray.from_arrays(
        offsets, column_of(keys, key), column_of(items, item), type=type_.to_arrow(), mask=mask
    )


def _to_rows(values: Sequence[Any], type_: LogicalType) -> pa.Array:
    assert isinstance(type_, RowType)  # noqa: S101
    empty = (None,) * len(type_)
    is_null = [value is None for value in values]
    columns = zip(*(empty if value is None else value for value in values), strict=True)
    lists = list(columns) if len(values) else [()] * len(type_)
    arrays = [
        column_of(column, field.type) for column, field in zip(lists, type_.fields, strict=True)
    ]
    mask = pa.array(is_null, pa.bool_()) if any(is_null) else None
    if not arrays:
        return pa.array([None if null else {} for null in is_null], type_.to_arrow())
    return pa.StructArray.from_arrays(arrays, fields=list(type_.to_arrow()), mask=mask)


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
