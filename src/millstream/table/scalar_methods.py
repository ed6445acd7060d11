"""Methods of expressions that are numbers, strings, dates or times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import ProgramError
from millstream.sql.parser import nodes
from millstream.table.expression_nodes import (
    BaseExpression,
    FunctionProperty,
    as_node,
    function_node,
    interval_of,
    milliseconds,
)
from millstream.types.logical_types import DateType, TimestampType, TimeType

if TYPE_CHECKING:
    from typing import Self

    from millstream.table.expression_nodes import TimeIntervalUnit


class NumberMethods(BaseExpression):
    """What can be made of numbers."""

    exp = FunctionProperty("EXP", "Euler's number to the power of it.")
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
    abs = FunctionProperty("ABS", "Without its sign.")
    sign = FunctionProperty("SIGN", "Its sign: -1, 0 or 1.")
    bin = FunctionProperty("BIN", "In binary digits.")
    hex = FunctionProperty("HEX", "In hexadecimal digits.")
    unhex = FunctionProperty("UNHEX", "The bytes of hexadecimal digits.")

    def log(self, base: Any = None) -> Self:
        """The logarithm of a base; without one, the natural one."""
        if base is None:
            return self._call("LOG")
        return self._of(function_node("LOG", base, self))

    def round(self, places: Any) -> Self:
        """Rounded to places behind the point."""
        return self._call("ROUND", places)

    def truncate(self, n: Any = 0) -> Self:
        """Cut off at places behind the point."""
        return self._call("TRUNCATE", n)


class TextMethods(BaseExpression):
    """What can be made of text."""

    char_length = FunctionProperty("CHAR_LENGTH", "How many characters it has.")
    upper_case = FunctionProperty("UPPER", "In capitals.")
    lower_case = FunctionProperty("LOWER", "In small letters.")
    init_cap = FunctionProperty("INITCAP", "Each word with a capital at its beginning.")
    from_base64 = FunctionProperty("FROM_BASE64", "The text that was written in base 64.")
    to_base64 = FunctionProperty("TO_BASE64", "In base 64.")
    ascii = FunctionProperty("ASCII", "The number of its first character.")
    chr = FunctionProperty("CHR", "The character of the number.")
    reverse = FunctionProperty("REVERSE", "The other way round.")
    md5 = FunctionProperty("MD5", "The hash of MD5, in hexadecimal digits.")
    sha1 = FunctionProperty("SHA1", "The hash of SHA-1, in hexadecimal digits.")
    sha224 = FunctionProperty("SHA224", "The hash of SHA-224, in hexadecimal digits.")
    sha256 = FunctionProperty("SHA256", "The hash of SHA-256, in hexadecimal digits.")
    sha384 = FunctionProperty("SHA384", "The hash of SHA-384, in hexadecimal digits.")
    sha512 = FunctionProperty("SHA512", "The hash of SHA-512, in hexadecimal digits.")

    def sha2(self, hash_length: Any) -> Self:
        """The hash of SHA-2 of a length in bits."""
        return self._call("SHA2", hash_length)

    def concat(self, other: Any) -> Self:
        """The text and another."""
        return self._call("CONCAT", other)

    def starts_with(self, start_expr: Any) -> Self:
        """Whether it begins with another."""
        return self._call("STARTSWITH", start_expr)

    def ends_with(self, end_expr: Any) -> Self:
        """Whether it ends with another."""
        return self._call("ENDSWITH", end_expr)

    def substring(self, begin_index: Any, length: Any = None) -> Self:
        """A part, from a position (from 1) on."""
        return self._call("SUBSTRING", begin_index, length)

    def substr(self, begin_index: Any, length: Any = None) -> Self:
        """A part, from a position (from 1) on."""
        return self._call("SUBSTR", begin_index, length)

    def replace(self, search: Any = None, replacement: Any = None) -> Self:
        """With a text in the place of another."""
        return self._call("REPLACE", search, replacement)

    def translate(self, from_str: Any, to_str: Any) -> Self:
        """With characters in the place of others."""
        return self._call("TRANSLATE", from_str, to_str)

    def lpad(self, length: Any, pad: Any) -> Self:
        """Filled on the left up to a length."""
        return self._call("LPAD", length, pad)

    def rpad(self, length: Any, pad: Any) -> Self:
        """Filled on the right up to a length."""
        return self._call("RPAD", length, pad)

    def overlay(self, new_string: Any, starting: Any, length: Any = None) -> Self:
        """With a text over a part, from a position on."""
        return self._call("OVERLAY", new_string, starting, length)

    def position(self, haystack: Any = None) -> Self:
        """Where it stands in another text, from 1; 0 if nowhere."""
        return self._call("POSITION", haystack)

    def regexp(self, regex: Any) -> Self:
        """Whether a regular expression fits somewhere."""
        return self._call("REGEXP", regex)

    def regexp_count(self, regex: Any) -> Self:
        """How often a regular expression fits."""
        return self._call("REGEXP_COUNT", regex)

    def regexp_replace(self, regex: Any, replacement: Any) -> Self:
        """With a text where a regular expression fits."""
        return self._call("REGEXP_REPLACE", regex, replacement)

    def regexp_extract(self, regex: Any, extract_index: Any = None) -> Self:
        """A group of a regular expression."""
        return self._call("REGEXP_EXTRACT", regex, extract_index)

    def regexp_extract_all(self, regex: Any, extract_index: Any = None) -> Self:
        """A group of each fit of a regular expression."""
        return self._call("REGEXP_EXTRACT_ALL", regex, extract_index)

    def regexp_instr(self, regex: Any) -> Self:
        """Where a regular expression first fits, from 1."""
        return self._call("REGEXP_INSTR", regex)

    def regexp_substr(self, regex: Any) -> Self:
        """What a regular expression first fits."""
        return self._call("REGEXP_SUBSTR", regex)

    def decode(self, charset: Any) -> Self:
        """The text of bytes."""
        return self._call("DECODE", charset)

    def encode(self, charset: Any) -> Self:
        """The bytes of the text."""
        return self._call("ENCODE", charset)

    def left(self, length: Any) -> Self:
        """The first characters."""
        return self._call("LEFT", length)

    def right(self, length: Any) -> Self:
        """The last characters."""
        return self._call("RIGHT", length)

    def instr(self, s: Any) -> Self:
        """Where another text stands in it, from 1; 0 if nowhere."""
        return self._call("INSTR", s)

    def locate(self, s: Any, pos: Any = None) -> Self:
        """Where it stands in another text, from a position on."""
        return self._call("LOCATE", s, pos)

    def url_decode(self) -> Self:
        """What was written for an URL."""
        return self._call("URL_DECODE")

    def url_encode(self) -> Self:
        """As it is written in an URL."""
        return self._call("URL_ENCODE")

    def inet_aton(self) -> Self:
        """The number of an IPv4 address."""
        return self._call("INET_ATON")

    def inet_ntoa(self) -> Self:
        """The IPv4 address of a number."""
        return self._call("INET_NTOA")

    def parse_url(self, part_to_extract: Any, key: Any = None) -> Self:
        """A part of an URL."""
        return self._call("PARSE_URL", part_to_extract, key)

    def ltrim(self, trim_str: Any = None) -> Self:
        """Without blanks, or these characters, on the left."""
        return self._call("LTRIM", trim_str)

    def rtrim(self, trim_str: Any = None) -> Self:
        """Without blanks, or these characters, on the right."""
        return self._call("RTRIM", trim_str)

    def btrim(self, trim_str: Any = None) -> Self:
        """Without blanks, or these characters, on both sides."""
        return self._call("BTRIM", trim_str)

    def repeat(self, n: Any) -> Self:
        """Several times in a row."""
        return self._call("REPEAT", n)

    def split_index(self, separator: Any, index: Any) -> Self:
        """A part between separators, from 0."""
        return self._call("SPLIT_INDEX", separator, index)

    def str_to_map(self, list_delimiter: Any = None, key_value_delimiter: Any = None) -> Self:
        """The map that it writes."""
        return self._call("STR_TO_MAP", list_delimiter, key_value_delimiter)

    def split(self, delimiter: Any) -> Self:
        """The parts between delimiters, as an array."""
        return self._call("SPLIT", delimiter)

    def printf(self, *obj: Any) -> Self:
        """This format, filled with values."""
        return self._call("PRINTF", *obj)

    def elt(self, expr: Any, *exprs: Any) -> Self:
        """The value at this position (from 1)."""
        return self._call("ELT", expr, *exprs)

    def trim(self, character: Any = None) -> Self:
        """Without blanks, or these characters, on both sides."""
        return self._trimmed("BOTH", character)

    def trim_leading(self, character: Any = None) -> Self:
        """Without blanks, or these characters, at the beginning."""
        return self._trimmed("LEADING", character)

    def trim_trailing(self, character: Any = None) -> Self:
        """Without blanks, or these characters, at the end."""
        return self._trimmed("TRAILING", character)

    def _trimmed(self, side: str, character: Any) -> Self:
        characters = as_node(" " if character is None else character)
        arguments = (nodes.Symbol(side), characters, self.node)
        return self._of(nodes.FunctionCall(nodes.identifier("TRIM"), arguments))

    def like(self, pattern: Any = None, escape: Any = None) -> Self:
        """Whether it fits a pattern of LIKE."""
        quoted = None if escape is None else as_node(escape)
        return self._of(nodes.Like(self.node, as_node(pattern), quoted))

    def similar(self, pattern: Any = None) -> Self:
        """Whether it fits a pattern of SIMILAR TO."""
        return self._of(nodes.Like(self.node, as_node(pattern), similar=True))


class TimeMethods(BaseExpression):
    """What can be made of times; ``lit(5).minutes`` is a length of time."""

    @property
    def to_date(self) -> Self:
        """As a DATE."""
        return self._of(nodes.Cast(self.node, DateType()))

    @property
    def to_time(self) -> Self:
        """As a TIME(0)."""
        return self._of(nodes.Cast(self.node, TimeType(0)))

    @property
    def to_timestamp(self) -> Self:
        """As a TIMESTAMP(3)."""
        return self._of(nodes.Cast(self.node, TimestampType(3)))

    def extract(self, time_interval_unit: TimeIntervalUnit) -> Self:
        """A part of a time, such as its hour."""
        return self._with_unit("EXTRACT", nodes.Symbol(time_interval_unit.name), self.node)

    def floor(self, time_interval_unit: TimeIntervalUnit | None = None) -> Self:
        """Rounded down: to a whole number, or a time to a unit."""
        return self._rounded("FLOOR", time_interval_unit)

    def ceil(self, time_interval_unit: TimeIntervalUnit | None = None) -> Self:
        """Rounded up: to a whole number, or a time to a unit."""
        return self._rounded("CEIL", time_interval_unit)

    def _rounded(self, name: str, unit: TimeIntervalUnit | None) -> Self:
        if unit is None:
            return self._call(name)
        return self._with_unit(name, self.node, nodes.Symbol(unit.name))

    def _with_unit(self, name: str, *arguments: nodes.Expression) -> Self:
        return self._of(nodes.FunctionCall(nodes.identifier(name), arguments))

    def _number(self, unit: str) -> int:
        value = getattr(self.node, "value", None)
        if not isinstance(self.node, nodes.Literal) or type(value) is not int:
            message = f"a length of time is of a whole number: lit(5).{unit}"
            raise ProgramError(message)
        return value

    def _length(self, unit: nodes.TimeUnit) -> Self:
        return self._of(interval_of(self._number(f"{unit.lower()}s"), unit))

    @property
    def year(self) -> Self:
        """A length of time of so many years."""
        return self._length(nodes.TimeUnit.YEAR)

    @property
    def years(self) -> Self:
        """A length of time of so many years."""
        return self._length(nodes.TimeUnit.YEAR)

    @property
    def quarter(self) -> Self:
        """A length of time of so many quarters."""
        return self._length(nodes.TimeUnit.QUARTER)

    @property
    def quarters(self) -> Self:
        """A length of time of so many quarters."""
        return self._length(nodes.TimeUnit.QUARTER)

    @property
    def month(self) -> Self:
        """A length of time of so many months."""
        return self._length(nodes.TimeUnit.MONTH)

    @property
    def months(self) -> Self:
        """A length of time of so many months."""
        return self._length(nodes.TimeUnit.MONTH)

    @property
    def week(self) -> Self:
        """A length of time of so many weeks."""
        return self._length(nodes.TimeUnit.WEEK)

    @property
    def weeks(self) -> Self:
        """A length of time of so many weeks."""
        return self._length(nodes.TimeUnit.WEEK)

    @property
    def day(self) -> Self:
        """A length of time of so many days."""
        return self._length(nodes.TimeUnit.DAY)

    @property
    def days(self) -> Self:
        """A length of time of so many days."""
        return self._length(nodes.TimeUnit.DAY)

    @property
    def hour(self) -> Self:
        """A length of time of so many hours."""
        return self._length(nodes.TimeUnit.HOUR)

    @property
    def hours(self) -> Self:
        """A length of time of so many hours."""
        return self._length(nodes.TimeUnit.HOUR)

    @property
    def minute(self) -> Self:
        """A length of time of so many minutes."""
        return self._length(nodes.TimeUnit.MINUTE)

    @property
    def minutes(self) -> Self:
        """A length of time of so many minutes."""
        return self._length(nodes.TimeUnit.MINUTE)

    @property
    def second(self) -> Self:
        """A length of time of so many seconds."""
        return self._length(nodes.TimeUnit.SECOND)

    @property
    def seconds(self) -> Self:
        """A length of time of so many seconds."""
        return self._length(nodes.TimeUnit.SECOND)

    @property
    def milli(self) -> Self:
        """A length of time of so many milliseconds."""
        return self._of(milliseconds(self._number("millis")))

    @property
    def millis(self) -> Self:
        """A length of time of so many milliseconds."""
        return self._of(milliseconds(self._number("millis")))
