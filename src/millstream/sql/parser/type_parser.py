"""Types in the text: to `LogicalType` at once.

Read next: ``expression_parser.py``.
"""

from __future__ import annotations

from typing import Final

from millstream.errors import ProgramError
from millstream.sql.parser.expression_nodes import IntervalQualifier, TimeUnit
from millstream.sql.parser.token_stream import A_TYPE, TokenStream
from millstream.types.bitmaps import BitmapType, VariantType
from millstream.types.logical_types import (
    MAX_LENGTH,
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
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
from millstream.types.structured_types import StructuredType, is_class_name

_PLAIN: Final[dict[str, LogicalType]] = {
    "BOOLEAN": BooleanType(),
    "TINYINT": TinyIntType(),
    "SMALLINT": SmallIntType(),
    "INT": IntType(),
    "INTEGER": IntType(),
    "BIGINT": BigIntType(),
    "FLOAT": FloatType(),
    "REAL": FloatType(),
    "DATE": DateType(),
    "STRING": VarCharType(MAX_LENGTH),
    "BYTES": VarBinaryType(MAX_LENGTH),
    "BITMAP": BitmapType(),
    "VARIANT": VariantType(),
    "NULL": NullType(),
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
    **{unit.value: unit for unit in TimeUnit},
    **{f"{unit.value}S": unit for unit in TimeUnit},
}
_FINER: Final = {
    TimeUnit.YEAR: (TimeUnit.MONTH,),
    TimeUnit.DAY: (TimeUnit.HOUR, TimeUnit.MINUTE, TimeUnit.SECOND),
    TimeUnit.HOUR: (TimeUnit.MINUTE, TimeUnit.SECOND),
    TimeUnit.MINUTE: (TimeUnit.SECOND,),
}
_ODBC_INTERVALS: Final = {
    f"INTERVAL_{unit}": IntervalQualifier(unit)
    for unit in (*_FINER, TimeUnit.MONTH, TimeUnit.SECOND)
}
_MAX_FRACTION: Final = 9
_MAX_PRECISION: Final = 10


class TypeParser(TokenStream):
    """Types and units of intervals."""

    __slots__ = ()

    def type(self) -> LogicalType:
        """Take a type, with ``NULL`` or ``NOT NULL`` behind it."""
        type_ = self.type_without_nullability()
        return self._nullability(type_)

    def type_without_nullability(self) -> LogicalType:
        """Take a type as CAST has it: parts may be NOT NULL, the whole may not."""
        start = self.index
        try:
            type_ = self._plain_type()
            while self.at("ARRAY") or self.at("MULTISET") or self._at_not_null_collection():
                type_ = self._nullability(type_)
                kind = self.expect_any("ARRAY", "MULTISET")
                type_ = ArrayType(type_) if kind == "ARRAY" else MultisetType(type_)
        except ProgramError as error:
            if type(error) is not ProgramError:
                raise
            # A length or a precision that the type itself refuses.
            self.refuse_span(self.span(start), str(error))
        return type_

    def odbc_type(self) -> LogicalType:
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

    def _nullability(self, type_: LogicalType) -> LogicalType:
        if self.accept("NOT", "NULL"):
            return type_.not_null()
        self.accept("NULL")
        return type_

    def _plain_type(self) -> LogicalType:
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

    def _with_parameters(self, word: str) -> LogicalType:
        match word:
            case "DOUBLE":
                self.accept("PRECISION")
                return DoubleType()
            case "DECIMAL" | "DEC" | "NUMERIC":
                return self._decimal()
            case "CHAR" | "CHARACTER" | "VARCHAR" | "BINARY" | "VARBINARY":
                return self._sized(word)
            case "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ":
                return self._time(word)
            case _:
                return self._composite(word)

    def _sized(self, word: str) -> LogicalType:
        varying = word.startswith("VAR") or self.accept("VARYING")
        # Without a length, the varying types are STRING and BYTES.
        length = self._length(MAX_LENGTH if varying else 1)
        if "BINARY" in word:
            return VarBinaryType(length) if varying else BinaryType(length)
        return VarCharType(length) if varying else CharType(length)

    def _composite(self, word: str) -> LogicalType:
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
            result: LogicalType = MapType(key, self.type())
        else:
            element = self.type()
            result = ArrayType(element) if word == "ARRAY" else MultisetType(element)
        self.expect(">")
        return result

    def _length(self, default: int) -> int:
        if not self.accept("("):
            return default
        length = self.integer()
        self.expect(")")
        return length

    def _decimal(self) -> LogicalType:
        if not self.accept("("):
            return DecimalType(10, 0)
        precision, scale = self.integer(), 0
        if self.accept(","):
            scale = self.integer()
        self.expect(")")
        return DecimalType(precision, scale)

    def _time(self, word: str) -> LogicalType:
        precision = None
        if self.accept("("):
            precision = self.integer()
            self.expect(")")
        if word == "TIME":
            self.accept("WITHOUT", "TIME", "ZONE")
            return TimeType(0 if precision is None else precision)
        precision = 6 if precision is None else precision
        if word == "TIMESTAMP_LTZ" or self.accept("WITH", "LOCAL", "TIME", "ZONE"):
            return LocalZonedTimestampType(precision)
        if self.at("WITH", "TIME", "ZONE"):
            self.unsupported(
                "TIMESTAMP WITH TIME ZONE", "take TIMESTAMP_LTZ (TIMESTAMP WITH LOCAL TIME ZONE)"
            )
        self.accept("WITHOUT", "TIME", "ZONE")
        return TimestampType(precision)

    def _row_type(self) -> LogicalType:
        if self.accept("<>"):
            return RowType(())
        close = ">" if self.accept("<") else ")"
        if close == ")":
            self.expect("(")
        if self.accept(close):
            return RowType(())
        return RowType(self._fields(close))

    def _structured(self) -> LogicalType:
        self.expect("<")
        start = self.index
        class_name = self.string()
        if not is_class_name(class_name):
            self.refuse_span(self.span(start), f"'{class_name}' cannot name a class")
        fields: tuple[RowField, ...] = ()
        if self.accept(",") and not self.at(">"):
            fields = self._fields(">")
        else:
            self.expect(">")
        return StructuredType(fields, class_name=class_name)

    def _fields(self, close: str) -> tuple[RowField, ...]:
        start = self.index
        fields = self.listed(self._field)
        self.expect(close)
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            self.refuse_span(self.span(start), f"the row has two fields of the name {twice}")
        return fields

    def _field(self) -> RowField:
        name = self.name().value
        type_ = self.type()
        return RowField(name, type_, self.string() if self.at_string() else None)

    def _raw(self) -> LogicalType:
        self.expect("(")
        class_name = self.string()
        self.expect(",")
        self.string()
        self.expect(")")
        return RawType(class_name)

    # --- intervals

    def interval_qualifier(self) -> IntervalQualifier:
        """Take ``DAY(3) TO SECOND(6)``."""
        begin = self.index
        start = self._unit()
        precision = fraction = end = None
        if self.accept("("):
            precision = self.integer()
            if start is TimeUnit.SECOND and self.accept(","):
                fraction = self.integer()
            self.expect(")")
        if start in _FINER and self.accept("TO"):
            end = self._unit()
            if end not in _FINER[start]:
                finer = " or ".join(_FINER[start])
                self.refuse_token(self.index - 1, f"an interval of {start} goes to {finer}")
            if end is TimeUnit.SECOND and self.accept("("):
                fraction = self.integer()
                self.expect(")")
        position = self.span(begin)
        if precision is not None and not 1 <= precision <= _MAX_PRECISION:
            self.refuse_span(position, f"an interval has 1 to {_MAX_PRECISION} digits")
        if fraction is not None and fraction > _MAX_FRACTION:
            self.refuse_span(position, f"seconds have 0 to {_MAX_FRACTION} digits")
        return IntervalQualifier(start, end, precision, fraction, position=position)

    def _unit(self) -> TimeUnit:
        unit = _UNITS.get(self.accept_any(*_UNITS))
        return self.fail() if unit is None else unit

    def interval_type(self) -> LogicalType:
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


def _interval_type(qualifier: IntervalQualifier, resolution: str) -> LogicalType:
    precision = qualifier.precision or 2
    if qualifier.is_year_month:
        return YearMonthIntervalType(resolution, precision)
    fraction = 6 if qualifier.fraction is None else qualifier.fraction
    return DayTimeIntervalType(resolution, precision, fraction)
