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
    from collections.abc import Callable, Sequence

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
    """Return a column; ``*`` is all of them."""
    return Expression(nodes.Star() if name == "*" else nodes.identifier(name))


def lit(v: Any, data_type: LogicalType | None = None) -> Expression:
    """Return a value of the program as a literal.

    Args:
        v: the value.
        data_type: its type, if not the usual one.
    """
    node = as_node(v)
    return Expression(node if data_type is None else nodes.Cast(node, data_type))


def null_of(data_type: LogicalType) -> Expression:
    """Return NULL of a type."""
    return Expression(nodes.Cast(as_node(None), data_type))


def call(f: Any, *args: Any) -> Expression:
    """Call a function by its name, or one that ``udf`` and its sisters have made.

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
    """Parse an expression of SQL.

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
    """Test if all predicates are true."""
    return _connected("AND", predicate0, predicate1, *predicates)


def or_(predicate0: Any, predicate1: Any, *predicates: Any) -> Expression:
    """Test if any predicate is true."""
    return _connected("OR", predicate0, predicate1, *predicates)


def _connected(operator: str, *predicates: Any) -> Expression:
    made = as_node(predicates[0])
    for each in predicates[1:]:
        made = InlineOperation(operator, made, as_node(each))
    return Expression(made)


def not_(expression: Any) -> Expression:
    """Negate a predicate; of NULL that is NULL."""
    return Expression(nodes.UnaryOperation("NOT", as_node(expression)))


def if_then_else(condition: Any, if_true: Any, if_false: Any) -> Expression:
    """Return one value where the condition is true, the other elsewhere."""
    return Expression(as_node(condition)).then(if_true, if_false)


def coalesce(*args: Any) -> Expression:
    """Return the first value that is not NULL."""
    return function("COALESCE", *args)


# -- values ----------------------------------------------------------------------------------------


def array(head: Any, *tail: Any) -> Expression:
    """Make an array of values."""
    return Expression(nodes.ArrayConstructor(tuple(map(as_node, (head, *tail)))))


def row(head: Any, *tail: Any) -> Expression:
    """Make a row of values."""
    return Expression(nodes.RowConstructor(tuple(map(as_node, (head, *tail)))))


def map_(key: Any, value: Any, *tail: Any) -> Expression:
    """Make a map of keys and values, given alternately.

    Raises:
        ProgramError: a key has no value.
    """
    entries = _pairs("map_()", (key, value, *tail))
    return Expression(nodes.MapConstructor(entries))


def _pairs(what: str, given: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    if len(given) % 2:
        message = f"{what} takes keys and values alternately; the last key has no value"
        raise ProgramError(message)
    flat = [as_node(each) for each in given]
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def map_from_arrays(key: Any, value: Any) -> Expression:
    """Make a map of an array of keys and an array of values."""
    return function("MAP_FROM_ARRAYS", key, value)


def descriptor(*column_names: str) -> Expression:
    """Make an argument of names of columns."""
    return Expression(nodes.Descriptor(tuple(nodes.Name(each) for each in column_names)))


# -- columns and windows ---------------------------------------------------------------------------


def range_(start: str | int, end: str | int) -> Expression:
    """Select columns from one to another, by name or by position from 1, for ``with_columns``."""
    return Expression(ColumnRange(start, end))


def with_all_columns() -> Expression:
    """Select all columns."""
    return Expression(nodes.Star())


def with_columns(head: Any, *tails: Any) -> Expression:
    """Select columns: ``with_columns(range_("b", "c"), col("e"))``; numbers are positions."""
    return Expression(Columns(_parts(head, *tails), without=False))


def without_columns(head: Any, *tails: Any) -> Expression:
    """Select all columns but these."""
    return Expression(Columns(_parts(head, *tails), without=True))


def _parts(*given: Any) -> tuple[Any, ...]:
    return tuple(nodes.identifier(e) if isinstance(e, str) else as_node(e) for e in given)


def row_interval(rows: int) -> Expression:
    """Make a number of rows the length of a window."""
    return Expression(RowInterval(rows))


def object_of(class_name: str, *args: Any) -> Expression:
    """Make an object of a structured type; names and values of fields alternate."""
    return function("OBJECT_OF", class_name, *args)


def lag(expr: Any, offset: Any = 1, default: Any = None) -> Expression:
    """Return the value of an earlier row, in a window."""
    return function("LAG", *_with_default(expr, offset, default))


def lead(expr: Any, offset: Any = 1, default: Any = None) -> Expression:
    """Return the value of a later row, in a window."""
    return function("LEAD", *_with_default(expr, offset, default))


def _with_default(*given: Any) -> tuple[Any, ...]:
    return given if given[-1] is not None else given[:-1]


# -- functions without arguments -------------------------------------------------------------------


def _constant(name: str, documentation: str, function_name: str = "") -> Callable[[], Expression]:
    def call() -> Expression:
        return function(function_name or name.upper())

    call.__name__ = call.__qualname__ = name
    call.__doc__ = documentation
    return call


source_watermark = _constant(
    "source_watermark", "Return the watermarks that come with the rows, in ``Schema.watermark``."
)
current_database = _constant("current_database", "Return the name of the current database.")
current_date = _constant("current_date", "Return the current date.")
current_time = _constant("current_time", "Return the current time of day.")
current_timestamp = _constant("current_timestamp", "Return the current time, a TIMESTAMP_LTZ.")
local_time = _constant(
    "local_time", "Return the current time of day in the session's time zone.", "LOCALTIME"
)
local_timestamp = _constant(
    "local_timestamp",
    "Return the current time in the session's time zone, a TIMESTAMP.",
    "LOCALTIMESTAMP",
)
proctime = _constant("proctime", "Return a processing time attribute.")
pi = _constant("pi", "Return the number pi.")
e = _constant("e", "Return the number e.")
uuid = _constant("uuid", "Return a random UUID.")


# -- time ------------------------------------------------------------------------------------------


def current_watermark(rowtimeAttribute: Any) -> Expression:  # noqa: N803 - PyFlink's
    """Return the watermark of an event time column; NULL while there is none."""
    return function("CURRENT_WATERMARK", rowtimeAttribute)


def to_date(date_str: Any, format: Any = None) -> Expression:  # noqa: A002 - PyFlink's
    """Parse a date."""
    return function("TO_DATE", *_with_default(date_str, format))


def to_timestamp(timestamp_str: Any, format: Any = None) -> Expression:  # noqa: A002 - PyFlink's
    """Parse a TIMESTAMP."""
    return function("TO_TIMESTAMP", *_with_default(timestamp_str, format))


def to_timestamp_ltz(*args: Any) -> Expression:
    """Return the TIMESTAMP_LTZ of a number of seconds or milliseconds, or of a text."""
    return function("TO_TIMESTAMP_LTZ", *args)


def temporal_overlaps(
    left_time_point: Any, left_temporal: Any, right_time_point: Any, right_temporal: Any
) -> Expression:
    """Test if two times, each a point and its end or length, overlap."""
    left = nodes.RowConstructor((as_node(left_time_point), as_node(left_temporal)))
    right = nodes.RowConstructor((as_node(right_time_point), as_node(right_temporal)))
    return Expression(nodes.PeriodPredicate(left, right))


def date_format(timestamp: Any, format: Any) -> Expression:  # noqa: A002 - PyFlink's
    """Format a time."""
    return function("DATE_FORMAT", timestamp, format)


def timestamp_diff(
    time_point_unit: TimePointUnit, time_point1: Any, time_point2: Any
) -> Expression:
    """Count the units between two times."""
    unit = Expression(nodes.Symbol(time_point_unit.name))
    return function("TIMESTAMPDIFF", unit, time_point1, time_point2)


def convert_tz(date_str: Any, tz_from: Any, tz_to: Any) -> Expression:
    """Convert the text of a time to another time zone."""
    return function("CONVERT_TZ", date_str, tz_from, tz_to)


def from_unixtime(unixtime: Any, format: Any = None) -> Expression:  # noqa: A002 - PyFlink's
    """Format seconds since 1970, in the session's time zone."""
    return function("FROM_UNIXTIME", *_with_default(unixtime, format))


def unix_timestamp(date_str: Any = None, format: Any = None) -> Expression:  # noqa: A002 - PyFlink's
    """Return the seconds since 1970 of a text; without one, of the current time."""
    given = () if date_str is None else _with_default(date_str, format)
    return function("UNIX_TIMESTAMP", *given)


# -- numbers and texts -----------------------------------------------------------------------------


def rand(seed: Any = None) -> Expression:
    """Return a random number from 0 to 1, of a seed."""
    return function("RAND", *(() if seed is None else (seed,)))


def rand_integer(bound: Any, seed: Any = None) -> Expression:
    """Return a random whole number from 0 to below a bound, of a seed."""
    return function("RAND_INTEGER", *((bound,) if seed is None else (seed, bound)))


def atan2(y: Any, x: Any) -> Expression:
    """Return the arc tangent of a point."""
    return function("ATAN2", y, x)


def negative(v: Any) -> Expression:
    """Negate a number."""
    return -Expression(as_node(v))


def concat(first: Any, *others: Any) -> Expression:
    """Concatenate texts."""
    return function("CONCAT", first, *others)


def concat_ws(separator: Any, first: Any, *others: Any) -> Expression:
    """Concatenate texts with separators."""
    return function("CONCAT_WS", separator, first, *others)


def log(v: Any, base: Any = None) -> Expression:
    """Return the logarithm of a base; without one, the natural one."""
    return Expression(as_node(v)).log(base)


# -- JSON ------------------------------------------------------------------------------------------


def json(value: Any) -> Expression:
    """Take a text as JSON, to be written as it is."""
    return function("JSON", value)


def json_string(value: Any) -> Expression:
    """Write a value as JSON."""
    return function("JSON_STRING", value)


def json_object(on_null: JsonOnNull = JsonOnNull.NULL, *args: Any) -> Expression:
    """Make an object of keys and values, given alternately."""
    entries = _pairs("json_object()", args)
    return Expression(nodes.JsonObject(entries, on_null is JsonOnNull.ABSENT))


def json_object_agg(on_null: JsonOnNull, key_expr: Any, value_expr: Any) -> Expression:
    """Make an object of the keys and values of all rows."""
    entry = (as_node(key_expr), as_node(value_expr))
    return Expression(nodes.JsonObject((entry,), on_null is JsonOnNull.ABSENT, aggregate=True))


def json_array(on_null: JsonOnNull = JsonOnNull.ABSENT, *args: Any) -> Expression:
    """Make an array of values."""
    elements = tuple(map(as_node, args))
    return Expression(nodes.JsonArray(elements, on_null is JsonOnNull.ABSENT))


def json_array_agg(on_null: JsonOnNull, item_expr: Any) -> Expression:
    """Make an array of the values of all rows."""
    element = (as_node(item_expr),)
    return Expression(nodes.JsonArray(element, on_null is JsonOnNull.ABSENT, aggregate=True))
