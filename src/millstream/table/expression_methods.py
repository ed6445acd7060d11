"""Methods of expressions that take more than a call of a function of SQL, and its properties."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.sql.binder.calls import InlineCall
from millstream.sql.parser import nodes
from millstream.sql.parser.nodes import TimeUnit
from millstream.table.building import WindowProperty
from millstream.table.expression_nodes import (
    BaseExpression,
    ExpressionProperty,
    FunctionProperty,
    JsonExistsOnError,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
    as_node,
    function_node,
    interval_of,
    milliseconds,
)
from millstream.types.logical_types import DateType, TimestampType, TimeType, VarCharType

if TYPE_CHECKING:
    from typing import Self

    from millstream.table.expression_nodes import TimeIntervalUnit
    from millstream.types.logical_types import LogicalType


class ScalarMethods(BaseExpression):
    """Functions of numbers, text, arrays and maps."""

    exp = FunctionProperty("EXP", "Euler's number to the power of the value.")
    log10 = FunctionProperty("LOG10", "The logarithm of base 10.")
    log2 = FunctionProperty("LOG2", "The logarithm of base 2.")
    ln = FunctionProperty("LN", "The natural logarithm.")
    cosh = FunctionProperty("COSH", "The hyperbolic cosine.")
    sinh = FunctionProperty("SINH", "The hyperbolic sine.")
    sin = FunctionProperty("SIN", "The sine.")
    cos = FunctionProperty("COS", "The cosine.")
    tan = FunctionProperty("TAN", "The tangent.")
    cot = FunctionProperty("COT", "The cotangent.")
    asin = FunctionProperty("ASIN", "The arc sine.")
    acos = FunctionProperty("ACOS", "The arc cosine.")
    atan = FunctionProperty("ATAN", "The arc tangent.")
    tanh = FunctionProperty("TANH", "The hyperbolic tangent.")
    degrees = FunctionProperty("DEGREES", "An angle in degrees.")
    radians = FunctionProperty("RADIANS", "An angle in radians.")
    sqrt = FunctionProperty("SQRT", "The square root.")
    abs = FunctionProperty("ABS", "The absolute value.")
    sign = FunctionProperty("SIGN", "The sign: -1, 0 or 1.")
    bin = FunctionProperty("BIN", "The binary digits.")
    hex = FunctionProperty("HEX", "The hexadecimal digits.")
    unhex = FunctionProperty("UNHEX", "The bytes of hexadecimal digits.")

    char_length = FunctionProperty("CHAR_LENGTH", "The number of characters.")
    upper_case = FunctionProperty("UPPER", "The text in upper case.")
    lower_case = FunctionProperty("LOWER", "The text in lower case.")
    init_cap = FunctionProperty("INITCAP", "The text with a capital at the start of each word.")
    from_base64 = FunctionProperty("FROM_BASE64", "The text that is encoded in base 64.")
    to_base64 = FunctionProperty("TO_BASE64", "The text encoded in base 64.")
    ascii = FunctionProperty("ASCII", "The number of the first character.")
    chr = FunctionProperty("CHR", "The character of the number.")
    reverse = FunctionProperty("REVERSE", "The characters in reverse order.")
    md5 = FunctionProperty("MD5", "The MD5 hash, in hexadecimal digits.")
    sha1 = FunctionProperty("SHA1", "The SHA-1 hash, in hexadecimal digits.")
    sha224 = FunctionProperty("SHA224", "The SHA-224 hash, in hexadecimal digits.")
    sha256 = FunctionProperty("SHA256", "The SHA-256 hash, in hexadecimal digits.")
    sha384 = FunctionProperty("SHA384", "The SHA-384 hash, in hexadecimal digits.")
    sha512 = FunctionProperty("SHA512", "The SHA-512 hash, in hexadecimal digits.")

    cardinality = FunctionProperty("CARDINALITY", "The number of elements.")
    element = FunctionProperty("ELEMENT", "The only element.")
    map_keys = FunctionProperty("MAP_KEYS", "The keys of a map.")
    map_values = FunctionProperty("MAP_VALUES", "The values of a map.")
    map_entries = FunctionProperty("MAP_ENTRIES", "The entries of a map, as rows.")

    def log(self, base: Any = None) -> Self:
        """Return the logarithm of a base; without one, the natural one."""
        if base is None:
            return self._call("LOG")
        return self._of(function_node("LOG", base, self))

    def trim(self, character: Any = None) -> Self:
        """Remove blanks, or these characters, on both sides."""
        return self._trimmed("BOTH", character)

    def trim_leading(self, character: Any = None) -> Self:
        """Remove blanks, or these characters, at the beginning."""
        return self._trimmed("LEADING", character)

    def trim_trailing(self, character: Any = None) -> Self:
        """Remove blanks, or these characters, at the end."""
        return self._trimmed("TRAILING", character)

    def _trimmed(self, side: str, character: Any) -> Self:
        characters = as_node(" " if character is None else character)
        arguments = (nodes.Symbol(side), characters, self.node)
        return self._of(nodes.FunctionCall(nodes.identifier("TRIM"), arguments))

    def like(self, pattern: Any = None, escape: Any = None) -> Self:
        """Test if the text matches a pattern of LIKE."""
        quoted = None if escape is None else as_node(escape)
        return self._of(nodes.Like(self.node, as_node(pattern), quoted))

    def similar(self, pattern: Any = None) -> Self:
        """Test if the text matches a pattern of SIMILAR TO."""
        return self._of(nodes.Like(self.node, as_node(pattern), similar=True))


def _cast_to(kind: LogicalType) -> ExpressionProperty:
    def cast(expression: BaseExpression) -> nodes.Cast:
        return nodes.Cast(expression.node, kind)

    return ExpressionProperty(cast, f"The value as a {kind.as_summary_string()}.")


def _number(node: Any, unit: str) -> int:
    value = getattr(node, "value", None)
    if not isinstance(node, nodes.Literal) or type(value) is not int:
        message = f"a length of time is of a whole number: lit(5).{unit}"
        raise ProgramError(message)
    return value


def _length_in(unit: TimeUnit) -> ExpressionProperty:
    name = f"{unit.lower()}s"

    def interval(expression: BaseExpression) -> nodes.IntervalLiteral:
        return interval_of(_number(expression.node, name), unit)

    return ExpressionProperty(interval, f"A length of time of this number of {name}.")


class TimeMethods(BaseExpression):
    """Functions of dates and times; ``lit(5).minutes`` is a length of time."""

    to_date = _cast_to(DateType())
    to_time = _cast_to(TimeType(0))
    to_timestamp = _cast_to(TimestampType(3))

    year = years = _length_in(TimeUnit.YEAR)
    quarter = quarters = _length_in(TimeUnit.QUARTER)
    month = months = _length_in(TimeUnit.MONTH)
    week = weeks = _length_in(TimeUnit.WEEK)
    day = days = _length_in(TimeUnit.DAY)
    hour = hours = _length_in(TimeUnit.HOUR)
    minute = minutes = _length_in(TimeUnit.MINUTE)
    second = seconds = _length_in(TimeUnit.SECOND)
    milli = millis = ExpressionProperty(
        lambda expression: milliseconds(_number(expression.node, "millis")),
        "A length of time of this number of milliseconds.",
    )

    def extract(self, time_interval_unit: TimeIntervalUnit) -> Self:
        """Return a part of a time, such as its hour."""
        return self._with_unit("EXTRACT", nodes.Symbol(time_interval_unit.name), self.node)

    def floor(self, time_interval_unit: TimeIntervalUnit | None = None) -> Self:
        """Round down: to a whole number, or a time to a unit."""
        return self._rounded("FLOOR", time_interval_unit)

    def ceil(self, time_interval_unit: TimeIntervalUnit | None = None) -> Self:
        """Round up: to a whole number, or a time to a unit."""
        return self._rounded("CEIL", time_interval_unit)

    def _rounded(self, name: str, unit: TimeIntervalUnit | None) -> Self:
        if unit is None:
            return self._call(name)
        return self._with_unit(name, self.node, nodes.Symbol(unit.name))

    def _with_unit(self, name: str, *arguments: nodes.Expression) -> Self:
        return self._of(nodes.FunctionCall(nodes.identifier(name), arguments))


_WRAPPERS: Final = {
    JsonQueryWrapper.WITHOUT_ARRAY: "WITHOUT",
    JsonQueryWrapper.CONDITIONAL_ARRAY: "CONDITIONAL",
    JsonQueryWrapper.UNCONDITIONAL_ARRAY: "UNCONDITIONAL",
}


class JsonMethods(BaseExpression):
    """Functions of JSON."""

    def is_json(self, json_type: JsonType | None = None) -> Self:
        """Test if the text is JSON, of a kind."""
        kind = JsonType.VALUE if json_type is None else json_type
        return self._of(nodes.IsJson(self.node, kind.name))

    def json_exists(self, path: str, on_error: JsonExistsOnError | None = None) -> Self:
        """Test if there is something at a path."""
        behaviour = None if on_error is None else nodes.JsonBehavior(on_error.name)
        return self._of(nodes.JsonExists(self.node, as_node(path), behaviour))

    def json_value(
        self,
        path: str,
        returning_type: LogicalType = VarCharType(),  # noqa: B008 - frozen
        on_empty: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_empty: Any = None,
        on_error: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_error: Any = None,
    ) -> Self:
        """Return the plain value at a path.

        Args:
            path: of JSON.
            returning_type: of the result.
            on_empty: what is given if there is nothing.
            default_on_empty: the value then, for DEFAULT.
            on_error: what is given if there is no plain value, or no JSON.
            default_on_error: the value then, for DEFAULT.
        """
        return self._of(
            nodes.JsonValue(
                self.node,
                as_node(path),
                returning_type,
                _value_behaviour(on_empty, default_on_empty),
                _value_behaviour(on_error, default_on_error),
            )
        )

    def json_query(
        self,
        path: str,
        wrapping_behavior: JsonQueryWrapper = JsonQueryWrapper.WITHOUT_ARRAY,
        on_empty: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
        on_error: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
    ) -> Self:
        """Return the object or array at a path, as text.

        Args:
            path: of JSON.
            wrapping_behavior: when an array is put around it.
            on_empty: what is given if there is nothing.
            on_error: what is given if there is a plain value, or no JSON.
        """
        return self._of(
            nodes.JsonQuery(
                self.node,
                as_node(path),
                wrapper=_WRAPPERS[wrapping_behavior],
                on_empty=nodes.JsonBehavior(on_empty.name.replace("_", " ")),
                on_error=nodes.JsonBehavior(on_error.name.replace("_", " ")),
            )
        )


def _value_behaviour(kind: JsonValueOnEmptyOrError, default: Any) -> nodes.JsonBehavior:
    if kind is JsonValueOnEmptyOrError.DEFAULT:
        return nodes.JsonBehavior("DEFAULT", as_node(default))
    return nodes.JsonBehavior(kind.name)


def _window_property(kind: str, documentation: str) -> ExpressionProperty:
    return ExpressionProperty(lambda window: WindowProperty(window.node, kind), documentation)


class AggregateMethods(BaseExpression):
    """Aggregates of the values of several rows, and properties of windows."""

    sum = FunctionProperty("SUM", "The sum; NULL of no rows.")
    sum0 = FunctionProperty("$SUM0", "The sum; 0 of no rows.")
    avg = FunctionProperty("AVG", "The average.")
    min = FunctionProperty("MIN", "The least value.")
    max = FunctionProperty("MAX", "The greatest value.")
    count = FunctionProperty("COUNT", "The number of values that are not NULL.")
    first_value = FunctionProperty("FIRST_VALUE", "The first value.")
    last_value = FunctionProperty("LAST_VALUE", "The last value.")
    stddev_pop = FunctionProperty("STDDEV_POP", "The standard deviation of all.")
    stddev_samp = FunctionProperty("STDDEV_SAMP", "The standard deviation of a sample.")
    var_pop = FunctionProperty("VAR_POP", "The variance of all.")
    var_samp = FunctionProperty("VAR_SAMP", "The variance of a sample.")
    collect = FunctionProperty("COLLECT", "All values, as a multiset.")
    array_agg = FunctionProperty("ARRAY_AGG", "All values, as an array.")

    @property
    def count_distinct(self) -> Self:
        """Count the distinct values."""
        return self._call("COUNT").distinct

    @property
    def distinct(self) -> Self:
        """Aggregate distinct values only: ``col("a").sum.distinct``.

        Raises:
            ProgramError: it is no aggregate.
        """
        if not isinstance(self.node, nodes.FunctionCall | InlineCall):
            message = "distinct is for aggregates: col('a').sum.distinct"
            raise ProgramError(message)
        return self._of(replace(self.node, distinct=True))

    def over(self, alias: Any) -> Self:
        """Aggregate over the window that ``over_window`` gave a name.

        Args:
            alias: the name, or ``col(name)``.

        Raises:
            ProgramError: it is no aggregate, or ``alias`` no name.
        """
        name = as_node(alias)
        if isinstance(alias, str):
            name = nodes.identifier(alias)
        is_call = isinstance(self.node, nodes.FunctionCall | InlineCall)
        if not is_call or not isinstance(name, nodes.Identifier):
            message = "over() is for aggregates, and takes the name of a window: over(col('w'))"
            raise ProgramError(message)
        return self._of(replace(self.node, over=nodes.Name(name.last)))

    # -- windows ---------------------------------------------------------------------------------

    start = _window_property("window_start", "The start of the window.")
    end = _window_property("window_end", "The end of the window, which is not in it.")
    rowtime = _window_property("rowtime", "The event time of the window: its last millisecond.")
    proctime = _window_property("proctime", "The processing time of the window.")
