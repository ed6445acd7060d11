"""Tables of values of the program, and results as pandas DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ElementTypeError, ProgramError, TypeMismatchError
from millstream.expressions.java.time_zones import zone_of
from millstream.sql.binder.binding import query_binder
from millstream.sql.lowering.conversion import external_type, logical_type
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import ValuesNode, row_of
from millstream.table.building import bound
from millstream.table.element_types import fitted_rows, infer_row, stored_type
from millstream.table.expression_nodes import as_node
from millstream.table.unverified import converted
from millstream.types.bitmaps import BitmapType, VariantType
from millstream.types.external_values import to_external
from millstream.types.logical_types import (
    DayTimeIntervalType,
    LocalZonedTimestampType,
    LogicalType,
    RawType,
    RowField,
    RowType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
)
from millstream.types.row import Row, RowKind
from millstream.types.structured_types import has_class
from millstream.types.values import values_of_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from millstream.contracts.batch import Batch
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


def plan_of_elements(
    elements: Sequence[Any], schema: Any, *, verify_schema: bool = True
) -> ValuesNode:
    """Return the plan of a list of values.

    Args:
        elements: the rows.
        schema: a ROW type, or names of the columns, whose types are inferred.
        verify_schema: whether values must fit the types; else they are converted.

    Raises:
        TypeMismatchError: types cannot be inferred from the values, or values do not fit them.
    """
    row = schema if isinstance(schema, RowType) else infer_row(elements, list(schema or ()))
    if not verify_schema:
        elements = [converted(each, row) for each in elements]
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


def spark_frame_of(batches: Sequence[Batch], row: RowType, spark: Any) -> Any:
    """Return the rows that are there after all changes as a DataFrame of Spark.

    Raises:
        ProgramError: Spark has no such type.
    """
    for field in row.fields:
        if any(isinstance(each, _NOT_OF_SPARK) for each in _parts(field.type)):
            shown = field.type.as_summary_string()
            message = f"to_spark(): column '{field.name}' {shown} has no type of Spark's; cast it"
            raise ProgramError(message)
    schema = external_type(row).arrow_schema  # Spark has no nanoseconds
    return spark.createDataFrame(_columns_there(batches, row).cast(schema, safe=False))


def arrow_of(batches: Sequence[Batch], row: RowType) -> pa.Table:
    """Return the rows that are there after all changes as columns of the types of the table."""
    return _columns_there(batches, row).cast(row.to_arrow_schema())


def frame_of(batches: Sequence[Batch], row: RowType, time_zone: str) -> pd.DataFrame:
    """Return the rows that are there after all changes as a DataFrame.

    As in PyFlink, numbers keep their width, timestamps their unit, arrays are of numpy and rows
    dicts; a column of integers with NULL is one of floating-point numbers.

    Args:
        batches: of a query, with the changes.
        row: the columns.
        time_zone: of the values of TIMESTAMP_LTZ.
    """
    import pandas as pd

    there = _columns_there(batches, row)
    columns = [
        _series_of(column, field.type, time_zone)
        for column, field in zip(there.columns, row.fields, strict=True)
    ]
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(len(there)))
    frame.columns = pd.Index(row.names)
    return frame


def _series_of(column: pa.ChunkedArray, kind: LogicalType, time_zone: str) -> pd.Series:
    import pandas as pd

    if any(isinstance(each, _OBJECTS) for each in _parts(kind)) or has_class(kind):
        convert = to_external(kind)
        values = [convert(each) for each in values_of_column(column.combine_chunks(), kind)]
        return pd.Series(values, dtype=object)
    series = column.cast(kind.to_arrow()).to_pandas(date_as_object=True)
    if isinstance(kind, TimestampType | LocalZonedTimestampType) and kind.precision == 0:
        series = series.dt.as_unit("s")
    if isinstance(kind, LocalZonedTimestampType):
        return series.dt.tz_convert(zone_of(time_zone).tzinfo)
    return series


def _columns_there(batches: Sequence[Batch], row: RowType) -> pa.Table:
    """Return the rows that are there after all changes, in the order in which they came."""
    if not batches:
        return row.to_arrow_schema().empty_table()
    table = pa.Table.from_batches([each.arrow for each in batches])
    if all(each.row_kinds is None for each in batches):
        return table
    there: dict[int, None] = {}
    # By their texts: a NaN is no other's equal, and lists have no hash.
    places: dict[str, list[int]] = {}
    kinds = [kind for each in batches for kind in _kinds_of(each)]
    for number, (kind, values) in enumerate(zip(kinds, _texts_of(table), strict=True)):
        if kind in {RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value}:
            del there[places[values].pop(0)]
        else:
            there[number] = None
            places.setdefault(values, []).append(number)
    return table.take(pa.array(there, pa.int64()))


def _kinds_of(batch: Batch) -> list[int]:
    return [0] * len(batch) if batch.row_kinds is None else batch.row_kinds.tolist()


def _texts_of(table: pa.Table) -> Iterator[str]:
    return map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True))
