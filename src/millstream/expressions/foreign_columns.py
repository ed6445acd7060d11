"""Columns as functions of pandas and Arrow see them, and what these give as columns of a type.

What it is: Series, and DataFrames for rows, as in PyFlink; results are taken by the places of
fields, or by their names where these are those of the type.
What it is not: values of functions that see one row at a time (``types/external_values.py``).

Read next: ``expressions/user_functions.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.types.logical_types import ArrayType, RowType

if TYPE_CHECKING:
    from millstream.types.logical_types import LogicalType

__all__ = ["arrow_column", "pandas_column", "to_pandas"]


def to_pandas(array: pa.Array, kind: LogicalType, *, is_whole: bool = False) -> Any:
    """Return a Series; of rows a DataFrame.

    Args:
        array: the column.
        kind: its type.
        is_whole: whether it is all columns of a table as one; then the fields of columns that are
            rows themselves are columns of the DataFrame, as in PyFlink.
    """
    if not isinstance(kind, RowType):
        return array.to_pandas()
    import pandas as pd

    fields: list[Any] = []
    for column, field in zip(array.flatten(), kind.fields, strict=True):
        if is_whole and isinstance(field.type, RowType):
            fields.append(to_pandas(column, field.type))
        else:
            fields.append(column.to_pandas().rename(field.name))
    return pd.concat(fields, axis=1)


def pandas_column(result: Any, kind: LogicalType) -> pa.Array:
    """The column of a Series, or of a DataFrame whose columns are the fields of rows.

    Raises:
        ValueError: it has other fields than the type.
    """
    import pandas as pd

    target = kind.to_arrow()
    if not isinstance(result, pd.DataFrame):
        for each in result if _has_rows(kind) else ():
            _check_names(each, kind)
        return pa.Array.from_pandas(result, type=target)
    if not isinstance(kind, RowType) or len(result.columns) != len(kind):
        message = (
            f"the function gives a DataFrame of {len(result.columns)} columns, not "
            f"{kind.as_summary_string()}"
        )
        raise ValueError(message)
    columns = [
        pa.Array.from_pandas(result.iloc[:, place], type=field.type)
        for place, field in enumerate(target)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(target))


def _has_rows(kind: LogicalType) -> bool:
    return isinstance(kind, RowType) or (isinstance(kind, ArrayType) and _has_rows(kind.element))


def _check_names(value: Any, kind: LogicalType) -> None:
    """Raise ValueError for a dict in the place of a row that has a field which the row has not."""
    if isinstance(kind, ArrayType):
        for each in value if value is not None else ():
            _check_names(each, kind.element)
    elif isinstance(kind, RowType) and isinstance(value, dict):
        unknown = [name for name in value if name not in kind.names]
        if unknown:
            message = f"{kind.as_summary_string()} has no field {unknown[0]!r}"
            raise ValueError(message)
        for field in kind.fields:
            _check_names(value.get(field.name), field.type)


def arrow_column(result: pa.Array, kind: LogicalType) -> pa.Array:
    """The column with the type: rows whose fields have other names are taken by place.

    Raises:
        ValueError: rows have more fields, or fewer.
    """
    target = kind.to_arrow()
    return _by_place(result, target).cast(target)


def _by_place(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Arrow casts by names, and makes nulls of fields that it does not find."""
    kind = array.type
    if pa.types.is_struct(kind) and pa.types.is_struct(target):
        if {field.name for field in kind} == {field.name for field in target}:
            return array
        if kind.num_fields != target.num_fields:
            message = f"the function gives {kind}, not {target}"
            raise ValueError(message)
        pairs = zip(array.flatten(), target, strict=True)
        fields = [_by_place(column, field.type) for column, field in pairs]
        names = [field.name for field in target]
        return pa.StructArray.from_arrays(fields, names=names, mask=array.is_null())
    nested = pa.types.is_list(kind) and pa.types.is_list(target)
    if nested and pa.types.is_struct(target.value_type):
        offsets = array.offsets
        missing = array.is_null() if array.null_count else None
        values = _by_place(array.values, target.value_type)
        return pa.ListArray.from_arrays(offsets, values, mask=missing)
    return array
