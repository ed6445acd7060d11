"""Parse data types to `LogicalType`."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Context, Decimal
from typing import Final

from millstream.errors import ProgramError
from millstream.sql.parser import nodes as n
from millstream.sql.parser.tokens import A_TYPE, TokenStream
from millstream.types import logical_types as lt
from millstream.types.bitmaps import BitmapType, VariantType
from millstream.types.structured_types import StructuredType, is_class_name

_PLAIN: Final[dict[str, lt.LogicalType]] = {
    "BOOLEAN": lt.BooleanType(),
    "TINYINT": lt.TinyIntType(),
    "SMALLINT": lt.SmallIntType(),
    "INT": lt.IntType(),
    "INTEGER": lt.IntType(),
    "BIGINT": lt.BigIntType(),
    "FLOAT": lt.FloatType(),
    "REAL": lt.FloatType(),
    "DATE": lt.DateType(),
    "STRING": lt.VarCharType(lt.MAX_LENGTH),
    "BYTES": lt.VarBinaryType(lt.MAX_LENGTH),
    "BITMAP": BitmapType(),
    "VARIANT": VariantType(),
    "NULL": lt.NullType(),
}
_CONSTRUCTED: Final = frozenset(
    """
    DOUBLE DECIMAL DEC NUMERIC CHAR CHARACTER VARCHAR BINARY VARBINARY TIME TIMESTAMP TIMESTAMP_LTZ
    ARRAY MULTISET MAP ROW RAW STRUCTURED
    """.split()  # noqa: SIM905 - fixed sizes first
)
_TYPE_NAMES: Final = frozenset(_PLAIN) | _CONSTRUCTED
_ODBC_TYPES: Final = frozenset(
    """
    BIGINT BINARY BOOLEAN CHAR DATE DECIMAL DOUBLE FLOAT INTEGER NUMERIC SMALLINT TIME TIMESTAMP
    TINYINT VARBINARY VARCHAR
    """.split()  # noqa: SIM905 - by their names
)
_UNSUPPORTED: Final = frozenset({"ANY"})
_UNITS: Final = {
    **{unit.value: unit for unit in n.TimeUnit},
    **{f"{unit.value}S": unit for unit in n.TimeUnit},
}
_FINER: Final = {
    n.TimeUnit.YEAR: (n.TimeUnit.MONTH,),
    n.TimeUnit.DAY: (n.TimeUnit.HOUR, n.TimeUnit.MINUTE, n.TimeUnit.SECOND),
    n.TimeUnit.HOUR: (n.TimeUnit.MINUTE, n.TimeUnit.SECOND),
    n.TimeUnit.MINUTE: (n.TimeUnit.SECOND,),
}
_ODBC_INTERVALS: Final = {
    f"INTERVAL_{unit}": n.IntervalQualifier(unit)
    for unit in (*_FINER, n.TimeUnit.MONTH, n.TimeUnit.SECOND)
}
_MAX_FRACTION: Final = 9
_MAX_PRECISION: Final = 10


class TypeParser(TokenStream):
    """Types and units of intervals."""

    __slots__ = ()

    def type(self) -> lt.LogicalType:
        """Take a type, with ``NULL`` or ``NOT NULL`` behind it."""
        type_ = self.type_without_nullability()
        return self._nullability(type_)

    def type_without_nullability(self) -> lt.LogicalType:
        """Take a type as CAST has it: parts may be NOT NULL, the whole may not."""
        start = self.index
        try:
            type_ = self._plain_type()
            while self.at("ARRAY") or self.at("MULTISET") or self._at_not_null_collection():
                type_ = self._nullability(type_)
                kind = self.expect_any("ARRAY", "MULTISET")
                type_ = lt.ArrayType(type_) if kind == "ARRAY" else lt.MultisetType(type_)
        except ProgramError as error:
            if type(error) is not ProgramError:
                raise
            # A length or a precision that the type itself refuses.
            self.refuse_span(self.span(start), str(error))
        return type_

    def odbc_type(self) -> lt.LogicalType:
        """Take ``SQL_INTEGER`` or ``INTEGER``, or an interval of one unit."""
        at = self.index
        word = self.words[at].removeprefix("SQL_")
        self.index += 1
        if word in _ODBC_TYPES:
            plain = _PLAIN.get(word)
            return plain if plain is not None else self._with_parameters(word)
        interval = _ODBC_INTERVALS.get(word)
        if interval is None:
            self.refuse_token(at, f"{{fn CONVERT}} has no type {self.tokens.source(at)}")
        return _interval_type(interval, interval.start.value)

    def _at_not_null_collection(self) -> bool:
        ahead = 1 if self.at("NULL") else 2 if self.at("NOT", "NULL") else 0
        return bool(ahead) and self.peek(ahead) in {"ARRAY", "MULTISET"}

    def _nullability(self, type_: lt.LogicalType) -> lt.LogicalType:
        if self.accept("NOT", "NULL"):
            return type_.not_null()
        self.accept("NULL")
        return type_

    def _plain_type(self) -> lt.LogicalType:
        word = self.words[self.index]
        if word in _UNSUPPORTED:
            self.unsupported(f"the type {word}")
        if word not in _TYPE_NAMES:
            if self.at_name():
                self.suggest(_TYPE_NAMES)
            self.fail_for(A_TYPE)
        self.index += 1
        plain = _PLAIN.get(word)
        return plain if plain is not None else self._with_parameters(word)

    def _with_parameters(self, word: str) -> lt.LogicalType:
        match word:
            case "DOUBLE":
                self.accept("PRECISION")
                return lt.DoubleType()
            case "DECIMAL" | "DEC" | "NUMERIC":
                return self._decimal()
            case "CHAR" | "CHARACTER" | "VARCHAR" | "BINARY" | "VARBINARY":
                return self._sized(word)
            case "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ":
                return self._time(word)
            case _:
                return self._composite(word)

    def _sized(self, word: str) -> lt.LogicalType:
        varying = word.startswith("VAR") or self.accept("VARYING")
        # Without a length, the varying types are STRING and BYTES.
        length = self._length(lt.MAX_LENGTH if varying else 1)
        if "BINARY" in word:
            return lt.VarBinaryType(length) if varying else lt.BinaryType(length)
        return lt.VarCharType(length) if varying else lt.CharType(length)

    def _composite(self, word: str) -> lt.LogicalType:
        if word == "ROW":
            return self._row_type()
        if word == "RAW":
            return self._raw()
        if word == "STRUCTURED":
            return self._structured()
        self.expect("<")
        if word == "MAP":
            key = self.type()
            self.expect(",")
            result: lt.LogicalType = lt.MapType(key, self.type())
        else:
            element = self.type()
            result = lt.ArrayType(element) if word == "ARRAY" else lt.MultisetType(element)
        self.expect(">")
        return result

    def _length(self, default: int) -> int:
        if not self.accept("("):
            return default
        length = self.integer()
        self.expect(")")
        return length

    def _decimal(self) -> lt.LogicalType:
        if not self.accept("("):
            return lt.DecimalType(10, 0)
        precision, scale = self.integer(), 0
        if self.accept(","):
            scale = self.integer()
        self.expect(")")
        return lt.DecimalType(precision, scale)

    def _time(self, word: str) -> lt.LogicalType:
        precision = None
        if self.accept("("):
            precision = self.integer()
            self.expect(")")
        if word == "TIME":
            self.accept("WITHOUT", "TIME", "ZONE")
            return lt.TimeType(0 if precision is None else precision)
        precision = 6 if precision is None else precision
        if word == "TIMESTAMP_LTZ" or self.accept("WITH", "LOCAL", "TIME", "ZONE"):
            return lt.LocalZonedTimestampType(precision)
        if self.at("WITH", "TIME", "ZONE"):
            self.unsupported(
                "TIMESTAMP WITH TIME ZONE", "take TIMESTAMP_LTZ (TIMESTAMP WITH LOCAL TIME ZONE)"
            )
        self.accept("WITHOUT", "TIME", "ZONE")
        return lt.TimestampType(precision)

    def _row_type(self) -> lt.LogicalType:
        if self.accept("<>"):
            return lt.RowType(())
        close = ">" if self.accept("<") else ")"
        if close == ")":
            self.expect("(")
        if self.accept(close):
            return lt.RowType(())
        return lt.RowType(self._fields(close))

    def _structured(self) -> lt.LogicalType:
        self.expect("<")
        start = self.index
        class_name = self.string()
        if not is_class_name(class_name):
            self.refuse_span(self.span(start), f"'{class_name}' cannot name a class")
        fields: tuple[lt.RowField, ...] = ()
        if self.accept(",") and not self.at(">"):
            fields = self._fields(">")
        else:
            self.expect(">")
        return StructuredType(fields, class_name=class_name)

    def _fields(self, close: str) -> tuple[lt.RowField, ...]:
        start = self.index
        fields = self.listed(self._field)
        self.expect(close)
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            self.refuse_span(self.span(start), f"the row has two fields of the name {twice}")
        return fields

    def _field(self) -> lt.RowField:
        name = self.name().value
        type_ = self.type()
        return lt.RowField(name, type_, self.string() if self.at_string() else None)

    def _raw(self) -> lt.LogicalType:
        self.expect("(")
        class_name = self.string()
        self.expect(",")
        self.string()
        self.expect(")")
        return lt.RawType(class_name)

    # --- intervals

    def interval_qualifier(self) -> n.IntervalQualifier:
        """Take ``DAY(3) TO SECOND(6)``."""
        begin = self.index
        start = self._unit()
        precision = fraction = end = None
        if self.accept("("):
            precision = self.integer()
            if start is n.TimeUnit.SECOND and self.accept(","):
                fraction = self.integer()
            self.expect(")")
        if start in _FINER and self.accept("TO"):
            end = self._unit()
            if end not in _FINER[start]:
                finer = " or ".join(_FINER[start])
                self.refuse_token(self.index - 1, f"an interval of {start} goes to {finer}")
            if end is n.TimeUnit.SECOND and self.accept("("):
                fraction = self.integer()
                self.expect(")")
        position = self.span(begin)
        if precision is not None and not 1 <= precision <= _MAX_PRECISION:
            self.refuse_span(position, f"an interval has 1 to {_MAX_PRECISION} digits")
        if fraction is not None and fraction > _MAX_FRACTION:
            self.refuse_span(position, f"seconds have 0 to {_MAX_FRACTION} digits")
        return n.IntervalQualifier(start, end, precision, fraction, position=position)

    def _unit(self) -> n.TimeUnit:
        unit = _UNITS.get(self.accept_any(*_UNITS))
        return self.fail() if unit is None else unit

    def interval_type(self) -> lt.LogicalType:
        """Take what stands behind INTERVAL in CAST."""
        qualifier = self.interval_qualifier()
        resolution = qualifier.start.value
        if resolution in {"WEEK", "QUARTER"}:
            self.refuse_span(
                qualifier.position or self.span(self.index - 1),
                f"an interval of type {resolution} is none: take DAY or MONTH",
            )
        if qualifier.end is not None:
            resolution = f"{resolution} TO {qualifier.end}"
        try:
            return _interval_type(qualifier, resolution)
        except ProgramError as error:
            self.refuse_span(qualifier.position or self.span(self.index - 1), str(error))


def _interval_type(qualifier: n.IntervalQualifier, resolution: str) -> lt.LogicalType:
    precision = qualifier.precision or 2
    if qualifier.is_year_month:
        return lt.YearMonthIntervalType(resolution, precision)
    fraction = 6 if qualifier.fraction is None else qualifier.fraction
    return lt.DayTimeIntervalType(resolution, precision, fraction)


_INT: Final = lt.IntType(nullable=False)
_BIGINT: Final = lt.BigIntType(nullable=False)
_DOUBLE: Final = lt.DoubleType(nullable=False)
_MAX_INT: Final = 2**31 - 1
_MAX_BIGINT: Final = 2**63 - 1
_EXACT: Final = Context(prec=2 * lt.MAX_DECIMAL_PRECISION)


def numeric_literal(text: str, position: n.Position) -> n.Literal:
    """The literal that a number is.

    Raises:
        ValueError: It has more digits than the longest decimal, or is no finite double.
    """
    if "e" in text or "E" in text:
        value = float(text)
        if value in {float("inf"), float("-inf")}:
            message = f"the number {text} does not fit into a DOUBLE"
            raise ValueError(message)
        return n.Literal(value, _DOUBLE, position=position)
    whole, _, fraction = text.partition(".")
    digits = (whole + fraction).lstrip("0")
    precision = max(len(digits), len(fraction), 1)
    if precision > lt.MAX_DECIMAL_PRECISION:
        message = f"a number has at most {lt.MAX_DECIMAL_PRECISION} digits, this one {precision}"
        raise ValueError(message)
    if fraction:
        type_: lt.LogicalType = lt.DecimalType(precision, len(fraction), nullable=False)
        return n.Literal(_EXACT.create_decimal(text), type_, position=position)
    number = int(whole)
    if number <= _MAX_BIGINT:
        return n.Literal(number, _INT if number <= _MAX_INT else _BIGINT, position=position)
    type_ = lt.DecimalType(precision, 0, nullable=False)
    return n.Literal(Decimal(number), type_, position=position)


# --- dates and times

_DATE: Final = r"(\d{4})-(\d{1,2})-(\d{1,2})"
_TIME: Final = r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?"
_PATTERNS: Final = {
    "DATE": re.compile(_DATE, re.ASCII),
    "TIME": re.compile(_TIME, re.ASCII),
    # A day alone is its midnight, as in Flink.
    "TIMESTAMP": re.compile(f"{_DATE}(?:[ T]{_TIME})?", re.ASCII),
    "TIMESTAMP_LTZ": re.compile(f"{_DATE}[ T]{_TIME}", re.ASCII),
}
_FORMATS: Final = {
    "DATE": "'yyyy-mm-dd'",
    "TIME": "'hh:mm:ss', maybe with a fraction of up to 9 digits",
    "TIMESTAMP": "'yyyy-mm-dd' or 'yyyy-mm-dd hh:mm:ss', maybe with a fraction of up to 9 digits",
    "TIMESTAMP_LTZ": "'yyyy-mm-dd hh:mm:ss', maybe with a fraction of up to 9 digits",
}


def temporal(kind: str, text: str) -> tuple[str, lt.LogicalType]:
    """The text and the type of a date, a time or a timestamp.

    Args:
        kind: DATE, TIME, TIMESTAMP or TIMESTAMP_LTZ.
        text: What stands in the quotes.

    Returns:
        The text with all zeros (``2024-01-01``), and the type, NOT NULL.

    Raises:
        ValueError: The text is none, or there is no such day or time.
    """
    match = _PATTERNS[kind].fullmatch(text.strip())
    if match is None:
        message = f"{kind} takes {_FORMATS[kind]}"
        raise ValueError(message)
    groups = list(match.groups())
    date = time = ""
    try:
        if kind != "TIME":
            date = dt.date(*map(int, groups[:3])).isoformat()
        if kind != "DATE":
            hour, minute, second, fraction = groups[-4:]
            time = dt.time(int(hour or 0), int(minute or 0), int(second or 0)).isoformat()
            time += f".{fraction}" if fraction else ""
    except ValueError as error:
        message = f"there is no {kind} '{text}': {error}"
        raise ValueError(message) from None
    digits = len(time.partition(".")[2])
    return f"{date} {time}".strip(), _temporal_type(kind, digits)


def _temporal_type(kind: str, digits: int) -> lt.LogicalType:
    if kind == "DATE":
        return lt.DateType(nullable=False)
    if kind == "TIME":
        return lt.TimeType(digits, nullable=False)
    if kind == "TIMESTAMP":
        return lt.TimestampType(digits, nullable=False)
    return lt.LocalZonedTimestampType(digits, nullable=False)


# --- intervals

_MILLIS: Final = {
    n.TimeUnit.WEEK: 7 * 86_400_000,
    n.TimeUnit.DAY: 86_400_000,
    n.TimeUnit.HOUR: 3_600_000,
    n.TimeUnit.MINUTE: 60_000,
    n.TimeUnit.SECOND: 1_000,
}
_MONTHS: Final = {n.TimeUnit.YEAR: 12, n.TimeUnit.QUARTER: 3, n.TimeUnit.MONTH: 1}
#: Units of an interval of several, in order, with what stands before each but the first.
_SERIES: Final = (
    (n.TimeUnit.YEAR, ""),
    (n.TimeUnit.MONTH, "-"),
    (n.TimeUnit.DAY, ""),
    (n.TimeUnit.HOUR, " "),
    (n.TimeUnit.MINUTE, ":"),
    (n.TimeUnit.SECOND, ":"),
)
_LARGEST: Final = {
    n.TimeUnit.MONTH: 11,
    n.TimeUnit.HOUR: 23,
    n.TimeUnit.MINUTE: 59,
    n.TimeUnit.SECOND: 59,
}
_EXAMPLES: Final = {
    "YEAR TO MONTH": "'1-6'",
    "DAY TO HOUR": "'1 12'",
    "DAY TO MINUTE": "'1 12:30'",
    "DAY TO SECOND": "'1 12:30:00.000'",
    "HOUR TO MINUTE": "'12:30'",
    "HOUR TO SECOND": "'12:30:00.000'",
    "MINUTE TO SECOND": "'30:00.000'",
    "SECOND": "'5' or '5.250'",
}


def interval_value(text: str, qualifier: n.IntervalQualifier) -> int:
    """Months or milliseconds of an interval.

    Args:
        text: What stands in the quotes.
        qualifier: The units behind it.

    Raises:
        ValueError: The text does not fit the units.
    """
    units = _units(qualifier)
    pattern = "".join(
        (sign if index else "")
        + (r"(\d+(?:\.\d{0,9})?)" if unit is n.TimeUnit.SECOND else r"(\d+)")
        for index, (unit, sign) in enumerate(units)
    )
    match = re.fullmatch(r"\s*([+-]?)" + pattern + r"\s*", text, re.ASCII)
    name = qualifier.start.value
    name += f" TO {qualifier.end}" if qualifier.end is not None else ""
    if match is None:
        example = _EXAMPLES.get(name, "'5'")
        message = f"an interval of {name} takes {example}, not '{text}'"
        raise ValueError(message)
    total = 0
    for index, (unit, _) in enumerate(units):
        amount = Decimal(match[index + 2])
        if index and int(amount) > _LARGEST[unit]:
            message = f"an interval of {name} has at most {_LARGEST[unit]} {unit}S, not {amount}"
            raise ValueError(message)
        total += int(amount * (_MILLIS.get(unit) or _MONTHS[unit]))
    return -total if match[1] == "-" else total


def _units(qualifier: n.IntervalQualifier) -> list[tuple[n.TimeUnit, str]]:
    if qualifier.end is None:
        return [(qualifier.start, "")]
    order = [unit for unit, _ in _SERIES]
    return list(_SERIES[order.index(qualifier.start) : order.index(qualifier.end) + 1])
