"""Tables of values of the program, and results as pandas DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from millstream.contracts.batch import Batch
from millstream.errors import ElementTypeError, ProgramError, TypeMismatchError
from millstream.expressions.java.time_zones import zone_of
from millstream.sql.binder.binding import query_binder
from millstream.sql.lowering.conversion import external_type, logical_type
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import ValuesNode, row_of
from millstream.table.building import bound
from millstream.table.element_types import fitted_rows, infer_row, stored_type
from millstream.table.expression_nodes import as_node
from millstream.types.extension_types import BitmapType, VariantType
from millstream.types.logical_types import (
    DayTimeIntervalType,
    LocalZonedTimestampType,
    LogicalType,
    RawType,
    RowField,
    RowType,
    TimeType,
    YearMonthIntervalType,
)
from millstream.types.row import Row
from millstream.types.structured_types import has_class
from millstream.types.values import values_of_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.statements.session import Session

__all__ = [
    "arrow_of",
    "frame_of",
    "plan_of_arrow",
    "plan_of_elements",
    "plan_of_expressions",
    "plan_of_frame",
    "plan_of_spark",
    "spark_frame_of",
]


_P = TypeVar("_P")
#: Types whose values are objects in Python, and bytes in columns.
_OBJECTS: Final = (RawType, BitmapType, VariantType)
#: Spark has no time of day, and its intervals are none of Arrow's.
_NOT_OF_SPARK: Final = (TimeType, DayTimeIntervalType, YearMonthIntervalType)
_UNITS: Final = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


def plan_of_elements(elements: Sequence[Any], schema: Any) -> ValuesNode:
    """The plan of a list of values.

    Args:
        elements: the rows.
        schema: a ROW type, or names of the columns, whose types are inferred.

    Raises:
        TypeMismatchError: types cannot be inferred from the values, or values do not fit them.
    """
    row = schema if isinstance(schema, RowType) else infer_row(elements, list(schema or ()))
    values = fitted_rows(elements, row)
    stored = stored_type(row)
    assert isinstance(stored, RowType)  # noqa: S101 - as the other
    try:
        return _values(external_type(stored).to_arrow(values), stored)
    except TypeMismatchError as error:
        raise ElementTypeError(str(error)) from error


def plan_of_expressions(session: Session, elements: Sequence[Any], schema: Any) -> LogicalNode:
    """Return the plan of rows that are expressions: ``row(1, "a")``, ``lit(1)``.

    Args:
        session: where their functions are found.
        elements: expressions, or tuples of values among them.
        schema: a ROW type, to whose fields they are cast; or names of the columns.

    Raises:
        ProgramError: rows do not have as many values as the schema has columns.
    """
    rows = tuple(_row_node(each) for each in elements)
    width = len(rows[0].fields)
    names = _names_of(schema, width)
    if any(len(each.fields) != len(names) for each in rows):
        message = f"from_elements(): rows do not have {len(names)} values: {names}"
        raise ProgramError(message)
    values = query_binder(session.context(None)).bind(nodes.Values(rows))
    columns = [nodes.identifier(name) for name in values.row.names]
    kinds = schema.children if isinstance(schema, RowType) else values.row.children
    items = tuple(
        nodes.SelectItem(nodes.Cast(column, kind), nodes.Name(name))
        for column, kind, name in zip(columns, kinds, names, strict=True)
    )
    return bound(session, values, lambda source: nodes.Select(items=items, source=source))


def _row_node(element: Any) -> nodes.RowConstructor:
    node = getattr(element, "node", None)
    if isinstance(node, nodes.RowConstructor):
        return node
    return nodes.RowConstructor(tuple(map(as_node, _fields(element))))


def _names_of(schema: Any, width: int) -> list[str]:
    if isinstance(schema, RowType):
        return list(schema.names)
    return list(schema or [f"_{number}" for number in range(1, width + 1)])


def _fields(value: Any) -> Any:
    return value if isinstance(value, tuple | list | Row) else (value,)


def plan_of_frame(frame: pd.DataFrame, schema: Any) -> ValuesNode:
    """The plan of a pandas DataFrame.

    Args:
        frame: the rows.
        schema: a ROW type; names of the columns; or their types, in a list or a tuple.

    Raises:
        ProgramError: there are more columns than in the DataFrame, or fewer.
        TypeMismatchError: a column is not of the type.
    """
    if isinstance(schema, list | tuple) and schema and isinstance(schema[0], LogicalType):
        schema = RowType([RowField(str(n), kind) for n, kind in _pairs(frame.columns, schema)])
    if not isinstance(schema, RowType):
        return _plan_of_batch(pa.RecordBatch.from_pandas(frame, preserve_index=False), schema)
    arrays = [
        _array_of(frame.iloc[:, at], field)
        for at, (_, field) in enumerate(_pairs(frame.columns, schema.fields))
    ]
    return _values(pa.RecordBatch.from_arrays(arrays, names=schema.names), schema)


def _pairs(columns: Sequence[Any], parts: Sequence[_P]) -> list[tuple[Any, _P]]:
    if len(columns) != len(parts):
        message = f"the schema has {len(parts)} columns, the DataFrame has {list(columns)}"
        raise ProgramError(message)
    return list(zip(columns, parts, strict=True))


def _array_of(series: pd.Series, field: RowField) -> pa.Array:
    """A column of a DataFrame; it is not made a column of another kind of type."""
    wanted = field.type.to_arrow()
    if pa.types.is_temporal(wanted) or pa.types.is_nested(wanted):
        # These are cut to the digits of the type, by ``_values``.
        return pa.Array.from_pandas(series)
    try:
        return pa.Array.from_pandas(series, type=wanted)
    except pa.ArrowException as error:
        raise _misfit(field, error) from error


def _misfit(field: RowField, error: Exception) -> TypeMismatchError:
    shown = field.type.as_summary_string()
    return TypeMismatchError(f"column '{field.name}' cannot be {shown}: {error}")


def _plan_of_batch(batch: pa.RecordBatch, schema: Any) -> ValuesNode:
    if isinstance(schema, RowType):
        return _values(batch, schema)
    names = list(schema or batch.schema.names)
    if len(names) != batch.num_columns:
        raise _of_other_columns(names, batch)
    row = row_of(names, [logical_type(each.type) for each in batch.schema])
    return _values(batch, row)


def _values(batch: pa.RecordBatch, row: RowType) -> ValuesNode:
    columns = []
    if len(row) != batch.num_columns:
        raise _of_other_columns(row.names, batch)
    for array, field in zip(batch.columns, row.fields, strict=True):
        wanted = field.type.to_arrow()
        if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(array.type):
            # Digits that the type has not are cut.
            array = pc.floor_temporal(array, unit=_UNITS[wanted.unit])  # noqa: PLW2901
        is_time = pa.types.is_time(wanted) and pa.types.is_time(array.type)
        try:
            cast = array if array.type == wanted else array.cast(wanted, safe=not is_time)
        except pa.ArrowException as error:
            raise _misfit(field, error) from error
        columns.append(values_of_column(cast, field.type))
    return ValuesNode(row=row, rows=tuple(zip(*columns, strict=True)))


def _of_other_columns(names: Sequence[str], batch: pa.RecordBatch) -> ProgramError:
    message = f"the schema has columns {list(names)}, the rows have {batch.schema.names}"
    return ProgramError(message)


def plan_of_spark(dataframe: Any, schema: Any) -> ValuesNode:
    """The plan of a DataFrame of Spark whose rows are there.

    Raises:
        ProgramError: it is none.
    """
    if not hasattr(dataframe, "toArrow"):
        message = f"from_spark() takes a DataFrame of Spark, not {dataframe!r:.200}"
        raise ProgramError(message)
    return plan_of_arrow(dataframe.toArrow(), schema)


def plan_of_arrow(data: pa.Table | pa.RecordBatch, schema: Any) -> ValuesNode:
    """The plan of a table or a batch of Arrow.

    Raises:
        ProgramError: it is neither.
    """
    if isinstance(data, pa.RecordBatch):
        return _plan_of_batch(data, schema)
    if not isinstance(data, pa.Table):
        message = f"from_arrow() takes a pyarrow.Table or a RecordBatch, not {data!r:.200}"
        raise ProgramError(message)
    batches = data.to_batches() or [pa.RecordBatch.from_pylist([], schema=data.schema)]
    first, *others = (_plan_of_batch(each, schema) for each in batches)
    rows = [row for each in (first, *others) for row in each.rows]
    return ValuesNode(row=first.row, rows=tuple(rows))


def _parts(kind: LogicalType) -> Iterator[LogicalType]:
    """A type, and those within it."""
    yield kind
    for each in kind.children:
        yield from _parts(each)


def spark_frame_of(rows: Sequence[Any], row: RowType, spark: Any) -> Any:
    """The rows that are there after all changes, as a DataFrame of Spark.

    Raises:
        ProgramError: Spark has no such type.
    """
    for field in row.fields:
        if any(isinstance(each, _NOT_OF_SPARK) for each in _parts(field.type)):
            shown = field.type.as_summary_string()
            message = f"to_spark(): column '{field.name}' {shown} has no type of Spark's; cast it"
            raise ProgramError(message)
    return spark.createDataFrame(_columns_of(rows, row))


def _columns_of(rows: Sequence[Any], row: RowType) -> pa.Table:
    values: list[object] = [Row(*each) for each in _rows_there(rows)]
    return pa.Table.from_batches([Batch(external_type(row), values=values).arrow])


def _typed(rows: list[Row], row: RowType) -> pa.Table:
    made = pa.Table.from_batches([Batch(external_type(row), values=list(rows)).arrow])
    return made.cast(row.to_arrow_schema())


def arrow_of(rows: Sequence[Any], row: RowType) -> pa.Table:
    """The rows that are there after all changes, as a table of Arrow of the types of columns."""
    return _typed([Row(*each) for each in _rows_there(rows)], row)


def frame_of(rows: Sequence[Any], row: RowType, time_zone: str) -> pd.DataFrame:
    """The rows that are there after all changes, as a DataFrame with the types of the columns.

    As in PyFlink, numbers keep their width, timestamps their unit, arrays are of numpy and rows
    dicts; a column of integers with NULL is one of floating-point numbers.

    Args:
        rows: with their change types.
        row: their columns.
        time_zone: of the values of TIMESTAMP_LTZ.
    """
    import pandas as pd

    there = _rows_there(rows)
    columns = [
        _series_of([values[at] for values in there], field.type, time_zone)
        for at, field in enumerate(row.fields)
    ]
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(len(there)))
    frame.columns = pd.Index(row.names)
    return frame


def _series_of(values: list[Any], kind: LogicalType, time_zone: str) -> pd.Series:
    import pandas as pd

    if any(isinstance(each, _OBJECTS) for each in _parts(kind)) or has_class(kind):
        return pd.Series(values, dtype=object)
    one = RowType([RowField("value", kind)])
    array = _typed([Row(each) for each in values], one).column(0)
    series = array.to_pandas(date_as_object=True)
    if isinstance(kind, LocalZonedTimestampType):
        return series.dt.tz_convert(zone_of(time_zone).tzinfo)
    return series


def _rows_there(rows: Sequence[Any]) -> list[list[Any]]:
    there: dict[int, list[Any]] = {}
    # By their texts: a NaN is no other's equal, and lists have no hash.
    places: dict[str, list[int]] = {}
    for number, each in enumerate(rows):
        values = list(each)
        if each.get_row_kind().value in {1, 3}:
            del there[places[repr(values)].pop(0)]
        else:
            there[number] = values
            places.setdefault(repr(values), []).append(number)
    return list(there.values())
