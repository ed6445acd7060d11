"""Tables of values of the program, and results as pandas DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import ProgramError, TypeMismatchError
from millstream.sql.lowering.conversion import external_type, logical_type
from millstream.sql.planner.logical import ValuesNode, row_of
from millstream.types.logical_types import RowType
from millstream.types.row import Row
from millstream.types.values import values_of_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

__all__ = ["frame_of", "plan_of_elements", "plan_of_frame"]


def plan_of_elements(elements: Sequence[Any], schema: Any) -> ValuesNode:
    """The plan of a list of values.

    Raises:
        ProgramError: types cannot be told from the values.
    """
    if isinstance(schema, RowType):
        return _values(external_type(schema).to_arrow([_fields(each) for each in elements]), schema)
    if not elements:
        message = "from_elements() needs a value, or DataTypes.ROW([...]) as its schema"
        raise ProgramError(message)
    first = elements[0]
    names = list(schema or [])
    if isinstance(first, dict):
        names = names or list(first)
        rows = [[each.get(name) for name in names] for each in elements]
    else:
        rows = [list(_fields(each)) for each in elements]
        own = list(first._fields or ()) if isinstance(first, Row) else []
        names = names or own or [f"_{number}" for number in range(1, len(rows[0]) + 1)]
    if any(len(row) != len(names) for row in rows):
        message = f"from_elements(): rows do not have {len(names)} values: {names}"
        raise ProgramError(message)
    try:
        arrays = [pa.array([row[i] for row in rows]) for i in range(len(names))]
    except pa.ArrowException as error:
        message = f"from_elements(): values of one column are of different types: {error}"
        raise TypeMismatchError(message) from error
    row = row_of(names, [logical_type(array.type) for array in arrays])
    return _values(pa.RecordBatch.from_arrays(arrays, names), row)


def _fields(value: Any) -> Any:
    return value if isinstance(value, tuple | list | Row) else (value,)


def plan_of_frame(frame: pd.DataFrame, schema: Any) -> ValuesNode:
    """The plan of a pandas DataFrame."""
    batch = pa.RecordBatch.from_pandas(frame, preserve_index=False)
    if isinstance(schema, RowType):
        return _values(batch, schema)
    names = list(schema or batch.schema.names)
    row = row_of(names, [logical_type(each.type) for each in batch.schema])
    return _values(batch, row)


def _values(batch: pa.RecordBatch, row: RowType) -> ValuesNode:
    columns = []
    for array, field in zip(batch.columns, row.fields, strict=True):
        wanted = field.type.to_arrow()
        cast = array if array.type == wanted else array.cast(wanted)
        columns.append(values_of_column(cast, field.type))
    return ValuesNode(row=row, rows=tuple(zip(*columns, strict=True)))


def frame_of(rows: Sequence[Any], row: RowType) -> pd.DataFrame:
    """The rows that are there after all changes, as a DataFrame."""
    import pandas as pd

    there: list[list[Any]] = []
    for each in rows:
        values = list(each)
        if each.get_row_kind().value in {1, 3}:
            there.remove(values)
        else:
            there.append(values)
    return pd.DataFrame(there, columns=list(row.names))
