"""Functions that make expressions: ``col``, ``lit`` and others, as in PyFlink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.sql.binder.calls import OPERATOR_FUNCTIONS, InlineOperation
from millstream.sql.parser import nodes
from millstream.sql.parser.parser import parse_expression
from millstream.table.building import ColumnRange, Columns, OverBound, RowInterval
from millstream.table.expression import Expression, JsonOnNull, as_node, function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.table.expression import TimePointUnit
    from millstream.types.logical_types import LogicalType

__all__ = [
    "CURRENT_RANGE",
    "CURRENT_ROW",
    "UNBOUNDED_RANGE",
    "UNBOUNDED_ROW",
    "and_",
    "array",
    "atan2",
    "call",
    "call_sql",
    "coalesce",
    "col",
    "concat",
    "concat_ws",
    "convert_tz",
    "current_database",
    "current_date",
    "current_time",
    "current_timestamp",
    "current_watermark",
    "date_format",
    "descriptor",
    "e",
    "from_unixtime",
    "if_then_else",
    "json",
    "json_array",
    "json_array_agg",
    "json_object",
    "json_object_agg",
    "json_string",
    "lag",
    "lead",
    "lit",
    "local_time",
    "local_timestamp",
    "log",
    "map_",
    "map_from_arrays",
    "negative",
    "not_",
    "null_of",
    "object_of",
    "or_",
    "pi",
    "proctime",
    "rand",
    "rand_integer",
    "range_",
    "row",
    "row_interval",
    "source_watermark",
    "temporal_overlaps",
    "timestamp_diff",
    "to_date",
    "to_timestamp",
    "to_timestamp_ltz",
    "unix_timestamp",
    "uuid",
    "with_all_columns",
    "with_columns",
    "without_columns",
]

#: The first row, of a window that counts rows.
UNBOUNDED_ROW: Final = Expression(OverBound("UNBOUNDED", "ROWS"))
#: The first row, of a window by time.
UNBOUNDED_RANGE: Final = Expression(OverBound("UNBOUNDED", "RANGE"))
#: The row itself.
CURRENT_ROW: Final = Expression(OverBound("CURRENT", "ROWS"))
#: All rows of the same time as the row.
CURRENT_RANGE: Final = Expression(OverBound("CURRENT", "RANGE"))


#: Flink's names of operators -> operators.
_OPERATORS: Final = {name: operator for operator, name in OPERATOR_FUNCTIONS.items()}
#: Flink's names of functions that no text of SQL has -> ours.
_SQL_NAMES: Final = {"sum0": "$SUM0"}


def col(name: str) -> Expression:
    """A column; ``*`` is all of them."""
    return Expression(nodes.Star() if name == "*" else nodes.identifier(name))


def lit(v: Any, data_type: LogicalType | None = None) -> Expression:
    """A value of the program.

    Args:
        v: the value.
        data_type: its type, if not the usual one.
    """
    node = as_node(v)
    return Expression(node if data_type is None else nodes.Cast(node, data_type))


def null_of(data_type: LogicalType) -> Expression:
    """NULL of a type."""
    return Expression(nodes.Cast(as_node(None), data_type))


def call(f: Any, *args: Any) -> Expression:
    """A function by its name, or one that ``udf`` and its sisters have made.

    Names are those of SQL, of functions of users, and Flink's names of operators: ``plus``.
    """
    if not isinstance(f, str):
        made: Expression = f(*args)
        return made
    operator = _OPERATORS.get(f)
    if operator is not None and len(args) == 2:  # noqa: PLR2004 - its sides
        return Expression(InlineOperation(operator, *map(as_node, args)))
    return function(_SQL_NAMES.get(f, f), *args)


def call_sql(sql_expression: str) -> Expression:
    """An expression as SQL writes it.

    Args:
        sql_expression: the text.

    Raises:
        SqlParserError: it is none.
    """
    made = Expression(parse_expression(sql_expression))
    made.written = sql_expression
    return made


# -- logic -----------------------------------------------------------------------------------------


def and_(predicate0: Any, predicate1: Any, *predicates: Any) -> Expression:
    """Whether all are true."""
    return _connected("AND", predicate0, predicate1, *predicates)


def or_(predicate0: Any, predicate1: Any, *predicates: Any) -> Expression:
    """Whether one is true."""
    return _connected("OR", predicate0, predicate1, *predicates)


def _connected(operator: str, *predicates: Any) -> Expression:
    made = as_node(predicates[0])
    for each in predicates[1:]:
        made = InlineOperation(operator, made, as_node(each))
    return Expression(made)


def not_(expression: Any) -> Expression:
    """Whether it is false; of NULL that is NULL."""
    return Expression(nodes.UnaryOperation("NOT", as_node(expression)))


def if_then_else(condition: Any, if_true: Any, if_false: Any) -> Expression:
    """One value or the other."""
    return Expression(as_node(condition)).then(if_true, if_false)


def coalesce(*args: Any) -> Expression:
    """The first that is not NULL."""
    return function("COALESCE", *args)


# -- values ----------------------------------------------------------------------------------------


def array(head: Any, *tail: Any) -> Expression:
    """An array of values."""
    return Expression(nodes.ArrayConstructor(tuple(map(as_node, (head, *tail)))))


def row(head: Any, *tail: Any) -> Expression:
    """A row of values."""
    return Expression(nodes.RowConstructor(tuple(map(as_node, (head, *tail)))))


def map_(key: Any, value: Any, *tail: Any) -> Expression:
    """A map of keys and values in turn.

    Raises:
        ProgramError: a key has no value.
    """
    entries = _pairs("map_()", (key, value, *tail))
    return Expression(nodes.MapConstructor(entries))


def _pairs(what: str, given: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    if len(given) % 2:
        message = f"{what} takes keys and values in turn; the last key has no value"
        raise ProgramError(message)
    flat = [as_node(each) for each in given]
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def map_from_arrays(key: Any, value: Any) -> Expression:
    """A map of an array of keys and an array of values."""
    return function("MAP_FROM_ARRAYS", key, value)


def descriptor(*column_names: str) -> Expression:
    """Names of columns as an argument of a function."""
    return Expression(nodes.Descriptor(tuple(nodes.Name(each) for each in column_names)))


# -- columns and windows ---------------------------------------------------------------------------


def range_(start: str | int, end: str | int) -> Expression:
    """Columns from one to another, by name or by position from 1, for ``with_columns``."""
    return Expression(ColumnRange(start, end))


def with_all_columns() -> Expression:
    """All columns."""
    return Expression(nodes.Star())


def with_columns(head: Any, *tails: Any) -> Expression:
    """Some columns: ``with_columns(range_("b", "c"), col("e"))``; numbers are positions."""
    return Expression(Columns(_parts(head, *tails), without=False))


def without_columns(head: Any, *tails: Any) -> Expression:
    """All columns but some."""
    return Expression(Columns(_parts(head, *tails), without=True))


def _parts(*given: Any) -> tuple[Any, ...]:
    return tuple(nodes.identifier(e) if isinstance(e, str) else as_node(e) for e in given)


def row_interval(rows: int) -> Expression:
    """A number of rows as the length of a window."""
    return Expression(RowInterval(rows))


def object_of(class_name: str, *args: Any) -> Expression:
    """An object of a structured type, of the names and values of its fields in turns."""
    return function("OBJECT_OF", class_name, *args)


def source_watermark() -> Expression:
    """Watermarks that come with the rows, in ``Schema.watermark``."""
    return function("SOURCE_WATERMARK")


def lag(expr: Any, offset: Any = 1, default: Any = None) -> Expression:
    """The value some rows before, in a window."""
    return function("LAG", *_with_default(expr, offset, default))


def lead(expr: Any, offset: Any = 1, default: Any = None) -> Expression:
    """The value some rows behind, in a window."""
    return function("LEAD", *_with_default(expr, offset, default))


def _with_default(*given: Any) -> tuple[Any, ...]:
    return given if given[-1] is not None else given[:-1]


# -- time ------------------------------------------------------------------------------------------


def current_database() -> Expression:
    """The name of the current database."""
    return function("CURRENT_DATABASE")


def current_date() -> Expression:
    """The date of now."""
    return function("CURRENT_DATE")


def current_time() -> Expression:
    """The time of day of now."""
    return function("CURRENT_TIME")


def current_timestamp() -> Expression:
    """The time of now, a TIMESTAMP_LTZ."""
    return function("CURRENT_TIMESTAMP")


def current_watermark(rowtimeAttribute: Any) -> Expression:  # noqa: N803 - PyFlink's
    """The watermark of an event time column; NULL as long as there is none."""
    return function("CURRENT_WATERMARK", rowtimeAttribute)


def local_time() -> Expression:
    """The time of day of now in the session's time zone."""
    return function("LOCALTIME")


def local_timestamp() -> Expression:
    """The time of now in the session's time zone, a TIMESTAMP."""
    return function("LOCALTIMESTAMP")


def proctime() -> Expression:
    """A processing time attribute."""
    return function("PROCTIME")


def to_date(date_str: Any, format: Any = None) -> Expression:  # noqa: A002 - PyFlink's
    """The date of a text."""
    return function("TO_DATE", *_with_default(date_str, format))


def to_timestamp(timestamp_str: Any, format: Any = None) -> Expression:  # noqa: A002 - PyFlink's
    """The TIMESTAMP of a text."""
    return function("TO_TIMESTAMP", *_with_default(timestamp_str, format))


def to_timestamp_ltz(*args: Any) -> Expression:
    """The TIMESTAMP_LTZ of a number of seconds or milliseconds, or of a text."""
    return function("TO_TIMESTAMP_LTZ", *args)


def temporal_overlaps(
    left_time_point: Any, left_temporal: Any, right_time_point: Any, right_temporal: Any
) -> Expression:
    """Whether two times, each a point and its end or length, have a moment in common."""
    left = nodes.RowConstructor((as_node(left_time_point), as_node(left_temporal)))
    right = nodes.RowConstructor((as_node(right_time_point), as_node(right_temporal)))
    return Expression(nodes.PeriodPredicate(left, right))


def date_format(timestamp: Any, format: Any) -> Expression:  # noqa: A002 - PyFlink's
    """A time as text."""
    return function("DATE_FORMAT", timestamp, format)


def timestamp_diff(
    time_point_unit: TimePointUnit, time_point1: Any, time_point2: Any
) -> Expression:
    """How many units lie between two times."""
    unit = Expression(nodes.Symbol(time_point_unit.name))
    return function("TIMESTAMPDIFF", unit, time_point1, time_point2)


def convert_tz(date_str: Any, tz_from: Any, tz_to: Any) -> Expression:
    """A time as text, in another time zone."""
    return function("CONVERT_TZ", date_str, tz_from, tz_to)


def from_unixtime(unixtime: Any, format: Any = None) -> Expression:  # noqa: A002 - PyFlink's
    """Seconds since 1970 as text, in the session's time zone."""
    return function("FROM_UNIXTIME", *_with_default(unixtime, format))


def unix_timestamp(date_str: Any = None, format: Any = None) -> Expression:  # noqa: A002 - PyFlink's
    """Seconds since 1970 of a text; without one, of now."""
    given = () if date_str is None else _with_default(date_str, format)
    return function("UNIX_TIMESTAMP", *given)


# -- numbers and texts -----------------------------------------------------------------------------


def pi() -> Expression:
    """The number pi."""
    return function("PI")


def e() -> Expression:
    """The number e."""
    return function("E")


def rand(seed: Any = None) -> Expression:
    """A random number from 0 to 1, of a seed."""
    return function("RAND", *(() if seed is None else (seed,)))


def rand_integer(bound: Any, seed: Any = None) -> Expression:
    """A random whole number from 0 to below a bound, of a seed."""
    return function("RAND_INTEGER", *((bound,) if seed is None else (seed, bound)))


def atan2(y: Any, x: Any) -> Expression:
    """The arc tangent of a point."""
    return function("ATAN2", y, x)


def negative(v: Any) -> Expression:
    """With the other sign."""
    return -Expression(as_node(v))


def concat(first: Any, *others: Any) -> Expression:
    """Texts behind each other."""
    return function("CONCAT", first, *others)


def concat_ws(separator: Any, first: Any, *others: Any) -> Expression:
    """Texts behind each other, with separators."""
    return function("CONCAT_WS", separator, first, *others)


def uuid() -> Expression:
    """A random UUID."""
    return function("UUID")


def log(v: Any, base: Any = None) -> Expression:
    """The logarithm of a base; without one, the natural one."""
    return Expression(as_node(v)).log(base)


# -- JSON ------------------------------------------------------------------------------------------


def json(value: Any) -> Expression:
    """A text that is JSON, to stand in JSON as it is."""
    return function("JSON", value)


def json_string(value: Any) -> Expression:
    """A value as JSON."""
    return function("JSON_STRING", value)


def json_object(on_null: JsonOnNull = JsonOnNull.NULL, *args: Any) -> Expression:
    """An object of keys and values in turn."""
    entries = _pairs("json_object()", args)
    return Expression(nodes.JsonObject(entries, on_null is JsonOnNull.ABSENT))


def json_object_agg(on_null: JsonOnNull, key_expr: Any, value_expr: Any) -> Expression:
    """An object of the keys and values of all rows."""
    entry = (as_node(key_expr), as_node(value_expr))
    return Expression(nodes.JsonObject((entry,), on_null is JsonOnNull.ABSENT, aggregate=True))


def json_array(on_null: JsonOnNull = JsonOnNull.ABSENT, *args: Any) -> Expression:
    """An array of values."""
    elements = tuple(map(as_node, args))
    return Expression(nodes.JsonArray(elements, on_null is JsonOnNull.ABSENT))


def json_array_agg(on_null: JsonOnNull, item_expr: Any) -> Expression:
    """An array of the values of all rows."""
    element = (as_node(item_expr),)
    return Expression(nodes.JsonArray(element, on_null is JsonOnNull.ABSENT, aggregate=True))
