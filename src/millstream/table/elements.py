"""Tables of values of the program, and results as pandas DataFrames."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.contracts.batch import Batch
from millstream.errors import ProgramError, TypeMismatchError
from millstream.sql.binder.binding import query_binder
from millstream.sql.lowering.conversion import external_type, logical_type
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import ValuesNode, row_of
from millstream.table.building import bound
from millstream.table.expression_nodes import as_node
from millstream.types.logical_types import (
    DayTimeIntervalType,
    RowType,
    TimeType,
    YearMonthIntervalType,
)
from millstream.types.row import Row
from millstream.types.values import values_of_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.statements.session import Session
    from millstream.types.logical_types import LogicalType

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


#: Spark has no time of day, and its intervals are none of Arrow's.
_NOT_OF_SPARK: Final = (TimeType, DayTimeIntervalType, YearMonthIntervalType)
_UNITS: Final = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


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
        kinds = [_inferred([row[i] for row in rows]) for i in range(len(names))]
    except pa.ArrowException as error:
        message = f"from_elements(): values of one column are of different types: {error}"
        raise TypeMismatchError(message) from error
    row = row_of(names, [logical_type(kind) for kind in kinds])
    return _values(external_type(row).to_arrow([tuple(each) for each in rows]), row)


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


def _inferred(values: Sequence[Any]) -> pa.DataType:
    """The type of a column, as PyFlink infers it: of decimals DECIMAL(38, 18), of dicts MAP."""
    there = [each for each in values if each is not None]
    if there and all(isinstance(each, Decimal) for each in there):
        return pa.decimal128(38, 18)
    if there and all(isinstance(each, dict) for each in there):
        keys = [key for each in there for key in each]
        return pa.map_(_inferred(keys), _inferred([one for each in there for one in each.values()]))
    if there and all(isinstance(each, tuple | Row) for each in there):
        first = there[0]
        names = getattr(first, "_fields", None) or [f"_{n}" for n in range(1, len(first) + 1)]
        columns = zip(*there, strict=True)
        return pa.struct([(n, _inferred(each)) for n, each in zip(names, columns, strict=True)])
    if there and all(isinstance(each, list) for each in there):
        return pa.list_(_inferred([one for each in there for one in each]))
    return pa.array(values).type


def _fields(value: Any) -> Any:
    return value if isinstance(value, tuple | list | Row) else (value,)


def plan_of_frame(frame: pd.DataFrame, schema: Any) -> ValuesNode:
    """The plan of a pandas DataFrame."""
    return _plan_of_batch(pa.RecordBatch.from_pandas(frame, preserve_index=False), schema)


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
            shown = field.type.as_summary_string()
            message = f"column '{field.name}' cannot be {shown}: {error}"
            raise TypeMismatchError(message) from error
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


def arrow_of(rows: Sequence[Any], row: RowType) -> pa.Table:
    """The rows that are there after all changes, as a table of Arrow of the types of columns."""
    made = _columns_of(rows, row)
    return made.cast(pa.schema([(each.name, each.type.to_arrow()) for each in row.fields]))


def frame_of(rows: Sequence[Any], row: RowType) -> pd.DataFrame:
    """The rows that are there after all changes, as a DataFrame."""
    import pandas as pd

    return pd.DataFrame(_rows_there(rows), columns=list(row.names))


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
