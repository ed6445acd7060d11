"""Tables of values of the program, and results as pandas DataFrames."""

from __future__ import annotations

import array
import datetime as dt
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.formats.text_values import text_of
from millstream.errors import ElementTypeError, ElementValueError, ProgramError, TypeMismatchError
from millstream.expressions.java.calendars import zone_of
from millstream.sql.binder.binding import query_binder
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import ValuesNode, row_of
from millstream.sql.stream_types import external_type, logical_type
from millstream.table.building import bound
from millstream.table.expression_nodes import as_node
from millstream.table.types import DataTypes, UserDefinedType
from millstream.types.bitmaps import BitmapType, VariantType
from millstream.types.external_values import to_external
from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    IntType,
    LocalZonedTimestampType,
    LogicalType,
    MapType,
    MultisetType,
    NullType,
    RawType,
    RowField,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.types.row import Row, RowKind
from millstream.types.structured_types import StructuredType, has_class
from millstream.types.values import values_of_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd

    from millstream.contracts.batch import Batch
    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.statements.session import Session


_SCALARS: Final[dict[type, LogicalType]] = {
    bool: DataTypes.BOOLEAN(),
    int: DataTypes.BIGINT(),
    float: DataTypes.DOUBLE(),
    str: DataTypes.STRING(),
    bytes: DataTypes.BYTES(),
    bytearray: DataTypes.BYTES(),
    Decimal: DataTypes.DECIMAL(38, 18),
    dt.date: DataTypes.DATE(),
    dt.time: DataTypes.TIME(6),
}
_WIDTHS: Final = {
    1: DataTypes.TINYINT(),
    2: DataTypes.SMALLINT(),
    4: DataTypes.INT(),
    8: DataTypes.BIGINT(),
}
_ARRAYS: Final = {"f": DataTypes.FLOAT(), "d": DataTypes.DOUBLE(), "u": DataTypes.CHAR(4)}
_SIGNED: Final = "bhilq"
#: Wide enough for any DECIMAL.
_EXACT: Final = Context(prec=100, rounding=ROUND_HALF_UP)


# -- inference -----------------------------------------------------------------------------------


def infer_row(elements: Sequence[Any], names: Sequence[str] | None = None) -> RowType:
    """The type of rows of a program.

    Args:
        elements: tuples, lists, rows, dicts or objects.
        names: of the columns; what they do not name is ``_1``, ``_2`` and so on.

    Raises:
        ValueError: there are no rows, or a column holds None alone.
        TypeError: a value has no type, or values of one column have different ones.
    """
    if not elements:
        message = "The schema cannot be inferred from no rows; give it as DataTypes.ROW([...])."
        raise ElementValueError(message)
    made = merged(_row_of(each, names) for each in elements)
    assert isinstance(made, RowType)  # noqa: S101 - of rows
    for each in made:
        if _has_null(each.type):
            message = (
                f"The type of column '{each.name}' cannot be inferred, since it holds None or "
                "empty collections alone; give the schema as DataTypes.ROW([...])."
            )
            raise ElementValueError(message)
    return made


def infer_type(value: Any) -> LogicalType:  # noqa: PLR0911 - a table
    """The type of a value.

    Raises:
        TypeError: it has none.
    """
    if value is None:
        return NullType()
    named = getattr(value, "__UDT__", None)
    if isinstance(named, UserDefinedType):
        return named
    known = _SCALARS.get(type(value))
    if known is not None:
        return known
    if isinstance(value, dict):
        keys = merged(infer_type(each) for each in value)
        return MapType(keys.not_null(), merged(map(infer_type, value.values())))
    if type(value) is list:
        return ArrayType(merged(map(infer_type, value)))
    if isinstance(value, array.array):
        return ArrayType(_type_of_code(value.typecode).not_null())
    if isinstance(value, tuple | Row):
        return _row_of(value, None)
    return _other_type(value)


def _other_type(value: Any) -> LogicalType:
    try:
        return logical_type(pa.array([value]).type)
    except (pa.ArrowException, ProgramError) as error:
        if hasattr(value, "__dict__"):
            return _row_of(value, None)
        message = f"A value of type {type(value).__name__} has no type in tables: {value!r:.100}"
        raise ElementTypeError(message) from error


def _type_of_code(code: str) -> LogicalType:
    known = _ARRAYS.get(code)
    # An integer without sign needs one bit more.
    width = array.array(code).itemsize * (1 if code in _SIGNED else 2)
    known = known or _WIDTHS.get(width)
    if known is None:
        message = f"An array of type code '{code}' has no type in tables; make a list of it."
        raise ElementTypeError(message)
    return known


def _row_of(value: Any, names: Sequence[str] | None) -> RowType:
    return RowType([RowField(name, infer_type(each)) for name, each in _named(value, names)])


def _named(value: Any, names: Sequence[str] | None) -> list[tuple[str, Any]]:
    """The fields of a record with their names."""
    if isinstance(value, dict):
        return [(name, value.get(name)) for name in names or sorted(value)]
    own = getattr(value, "_fields", None)
    if isinstance(value, Row | tuple | list):
        given = list(names or own or ())
        given += [f"_{at + 1}" for at in range(len(given), len(value))]
        if len(given) != len(value):
            message = f"from_elements(): a row has {len(value)} values, but {len(given)} names."
            raise ElementValueError(message)
        return list(zip(given, value, strict=True))
    if type(value) in _SCALARS or not hasattr(value, "__dict__"):
        return _named((value,), names)
    return [(name, vars(value).get(name)) for name in names or sorted(vars(value))]


def merged(kinds: Iterable[LogicalType]) -> LogicalType:
    """The type of all of several values."""
    made: LogicalType = NullType()
    for each in kinds:
        made = merge_types(made, each)
    return made


def merge_types(one: LogicalType, other: LogicalType, where: str = "") -> LogicalType:
    """The type of values of which some are of one type and some of another.

    Raises:
        TypeError: there is none.
    """
    if isinstance(one, NullType):
        return other
    if isinstance(other, NullType) or one == other:
        return one
    if {type(one), type(other)} <= {type(DataTypes.BIGINT()), DoubleType}:
        return DoubleType()
    if isinstance(one, RowType) and isinstance(other, RowType):
        return _merged_rows(one, other, where)
    if type(one) is type(other) and isinstance(one, ArrayType | MultisetType | MapType):
        pairs = zip(one.children, other.children, strict=True)
        parts = [merge_types(a, b, where) for a, b in pairs]
        if isinstance(one, MapType):
            return MapType(parts[0], parts[1])
        return ArrayType(parts[0]) if isinstance(one, ArrayType) else MultisetType(parts[0])
    names = (each.as_summary_string() for each in (one, other))
    message = f"{f'{where}: ' if where else ''}values are of different types, {' and '.join(names)}"
    raise ElementTypeError(message)


def _merged_rows(one: RowType, other: RowType, where: str) -> RowType:
    if one.names != other.names:
        message = f"{where}: " if where else ""
        message += f"rows have different columns, {one.names} and {other.names}"
        raise ElementTypeError(message)
    return RowType(
        [
            RowField(
                a.name, merge_types(a.type, b.type, f"field {a.name}{where and f' in {where}'}")
            )
            for a, b in zip(one, other, strict=True)
        ]
    )


def _has_null(kind: LogicalType) -> bool:
    return isinstance(kind, NullType) or any(map(_has_null, kind.children))


# -- values --------------------------------------------------------------------------------------


def stored_type(kind: LogicalType) -> LogicalType:
    """The type that values are kept as: user-defined types are replaced by theirs."""
    if isinstance(kind, UserDefinedType):
        return stored_type(kind.sql_type()).with_nullability(kind.is_nullable)
    if isinstance(kind, RowType):
        fields = [RowField(each.name, stored_type(each.type), each.description) for each in kind]
        return kind.with_parameters(members=tuple(fields))
    if isinstance(kind, ArrayType | MultisetType):
        return kind.with_parameters(element=stored_type(kind.element))
    if isinstance(kind, MapType):
        return kind.with_parameters(key=stored_type(kind.key), value=stored_type(kind.value))
    return kind


def fitted_rows(elements: Sequence[Any], row: RowType) -> list[tuple[Any, ...]]:
    """The rows with values that fit the types: decimals are rounded, objects serialized.

    As in Flink, a decimal that has too many digits before the point is NULL.

    Raises:
        TypeError: a value is of another type.
        ValueError: a value is None in a column without NULL, or there are too few or too many.
    """
    convert = _fitter(row, "")
    return [convert(each) for each in elements]


def _fitter(kind: LogicalType, where: str) -> Callable[[Any], Any]:
    inner = _fitter_of_value(kind, where)

    def fit(value: Any) -> Any:
        if value is not None:
            return inner(value)
        if not kind.is_nullable and where:
            message = f"{where}: This field is not nullable, but got None"
            raise ElementValueError(message)
        return None

    return fit


def _fitter_of_value(kind: LogicalType, where: str) -> Callable[[Any], Any]:  # noqa: PLR0911 - a table
    if isinstance(kind, UserDefinedType):
        return _serializer(kind, where)
    if isinstance(kind, DecimalType):
        return lambda value: _rounded(value, kind)
    if isinstance(kind, RowType) and not isinstance(kind, StructuredType):
        return _fitter_of_rows(kind, where)
    if isinstance(kind, ArrayType):
        element = _fitter(kind.element, f"element in array {where}")
        return lambda value: (
            list(map(element, value)) if isinstance(value, list | tuple | array.array) else value
        )
    if isinstance(kind, MapType):
        key = _fitter(kind.key, f"key of map in {where}")
        item = _fitter(kind.value, f"value of map in {where}")
        return lambda value: (
            {key(k): item(v) for k, v in value.items()} if isinstance(value, dict) else value
        )
    if isinstance(kind, IntegralType):
        return lambda value: _in_range(value, kind, where)
    if isinstance(kind, CharType | VarCharType | BinaryType | VarBinaryType):
        return lambda value: _of_length(value, kind, where)
    return lambda value: value


def _fitter_of_rows(kind: RowType, where: str) -> Callable[[Any], Any]:
    inside = f" in {where}" if where else ""
    parts = [_fitter(each.type, f"field {each.name}{inside}") for each in kind]

    def fit(value: Any) -> Any:
        given = values_of(value, kind)
        if len(given) != len(parts):
            message = (
                f"{where or 'from_elements()'}: a row has {len(given)} values, and there are "
                f"{len(parts)} fields"
            )
            raise ElementValueError(message)
        return tuple(part(each) for part, each in zip(parts, given, strict=True))

    return fit


def values_of(value: Any, kind: RowType) -> list[Any]:
    """Return the values of a record for the fields of a row, by name where it has names."""
    own = getattr(value, "_fields", None) if isinstance(value, Row) else None
    if own and set(kind.names) <= set(own):
        return [value[name] for name in kind.names]
    if isinstance(value, dict):
        return [value.get(name) for name in kind.names]
    if isinstance(value, Row | tuple | list):
        return list(value)
    if hasattr(value, "__dict__") and type(value) not in _SCALARS:
        return [vars(value).get(name) for name in kind.names]
    return [value]


def _serializer(kind: UserDefinedType, where: str) -> Callable[[Any], Any]:
    stored = _fitter(kind.sql_type(), where)

    def fit(value: Any) -> Any:
        if getattr(value, "__UDT__", None) != kind:
            message = f"{where}: {value!r:.100} is no value of {type(kind).__name__}"
            raise ElementValueError(message)
        return stored(kind.serialize(value))

    return fit


def _rounded(value: Any, kind: DecimalType) -> Any:
    if not isinstance(value, Decimal) or not value.is_finite():
        return value
    made = value.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    return made if abs(made) < Decimal(10) ** (kind.precision - kind.scale) else None


def _of_length(
    value: Any, kind: CharType | VarCharType | BinaryType | VarBinaryType, where: str
) -> Any:
    if isinstance(value, str | bytes | bytearray):
        exact = isinstance(kind, CharType | BinaryType)
        if len(value) != kind.length if exact else len(value) > kind.length:
            wrong = "is not" if exact else "exceeds"
            message = (
                f"{where}: length of object ({value!r:.100}) of {kind.type_name()} {wrong}: "
                f"{kind.length}"
            )
            raise ElementValueError(message)
    return value


def _in_range(value: Any, kind: LogicalType, where: str) -> Any:
    if isinstance(value, int):
        half = 1 << (kind.to_arrow().bit_width - 1)
        if not -half <= value < half:
            message = f"{where}: object of {kind.type_name()} out of range, got: {value}"
            raise ElementValueError(message)
    return value


#: Wider integers are numbers of another class in Java.
_LONG: Final = range(-(2**63), 2**63)


def converted(value: Any, kind: LogicalType) -> Any:
    """Return a value that fits the type, or None."""
    if value is None or isinstance(kind, StructuredType):
        return value
    if isinstance(kind, RowType):
        given = values_of(value, kind)
        fits = len(given) == len(kind.children)  # else refused when rows are made
        return tuple(map(converted, given, kind.children)) if fits else value
    if isinstance(kind, ArrayType) and isinstance(value, list | tuple):
        return [converted(each, kind.element) for each in value]
    if isinstance(kind, MapType) and isinstance(value, dict):
        pairs = value.items()
        return {converted(key, kind.key): converted(item, kind.value) for key, item in pairs}
    convert = _CONVERSIONS.get(type(kind))
    return value if convert is None else convert(value)


def _integer(width: int) -> Callable[[object], int | None]:
    half = 1 << (width - 1)

    def cut(value: object) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int) or value not in _LONG:
            return None
        return (value + half) % (2 * half) - half

    return cut


def _bytes(value: object) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _only(kind: type) -> Callable[[object], object]:
    return lambda value: value if isinstance(value, kind) else None


_CONVERSIONS: Final[dict[type[LogicalType], Callable[[Any], object]]] = {
    BooleanType: _only(bool),
    TinyIntType: _integer(8),
    SmallIntType: _integer(16),
    IntType: _integer(32),
    BigIntType: _integer(64),
    FloatType: _only(float),
    DoubleType: _only(float),
    DecimalType: _only(Decimal),
    CharType: text_of,
    VarCharType: text_of,
    BinaryType: _bytes,
    VarBinaryType: _bytes,
}


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
    for column, field in zip(batch.columns, row.fields, strict=True):
        wanted = field.type.to_arrow()
        if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(column.type):
            # Digits that the type has not are cut.
            column = pc.floor_temporal(column, unit=_UNITS[wanted.unit])  # noqa: PLW2901
        is_time = pa.types.is_time(wanted) and pa.types.is_time(column.type)
        try:
            cast = column if column.type == wanted else column.cast(wanted, safe=not is_time)
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
