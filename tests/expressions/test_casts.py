"""CAST and TRY_CAST: Flink's results, value by value, and on columns."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any
from unittest.mock import sentinel

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.errors import ExpressionError, ProgramError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_expression
from millstream.expressions.nodes import InputReference, Literal
from millstream.expressions.resolution import cast, resolve_cast
from millstream.types.logical_types import (
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
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.types.text_values import (
    civil_of_days,
    days_of_civil,
    double_text,
    float_text,
    parse_double,
    parse_integer,
    to_float32,
)
from millstream.types.values import column_of, values_of_column

STRING = VarCharType()
DAY = 86_400 * 10**9
SECOND = 10**9
#: 2021-09-24 12:34:56.1234567
MOMENT = 18_894 * DAY + ((12 * 60 + 34) * 60 + 56) * SECOND + 123_456_700
NOON = (12 * 3600 + 34 * 60 + 56) * SECOND
FAILS = sentinel.fails

#: From, to, value, result.  As Flink's CastFunctionITCase has it where that has the case.
CASES: list[tuple[LogicalType, LogicalType, Any, Any]] = [
    # to text
    (VarCharType(5), CharType(3), "abcdef"[:5], "abc"),
    (CharType(3), CharType(5), "foo", "foo  "),
    (STRING, VarCharType(3), "abcdef", "abc"),
    (STRING, VarCharType(2), "\U0001f600\U0001f601\U0001f602", "\U0001f600\U0001f601"),
    (DateType(), CharType(3), 18_894, "202"),
    (BooleanType(), STRING, True, "TRUE"),
    (BooleanType(), STRING, False, "FALSE"),
    (VarBinaryType(), STRING, b"h\xc3\xa4", "hä"),
    (VarBinaryType(), STRING, b"\xff", "�"),
    (DecimalType(4, 3), STRING, Decimal("9.870"), "9.870"),
    (DecimalType(10, 8), STRING, Decimal("0.00000001"), "0.00000001"),
    (TinyIntType(), STRING, -128, "-128"),
    (FloatType(), STRING, to_float32(123.456), "123.456"),
    (FloatType(), STRING, to_float32(3.27691403e12), "3.276914E12"),
    (DoubleType(), STRING, 123.456789, "123.456789"),
    (DoubleType(), STRING, 1.0, "1.0"),
    (DoubleType(), STRING, 1e7, "1.0E7"),
    (DoubleType(), STRING, 12345678.9, "1.23456789E7"),
    (DoubleType(), STRING, 0.001, "0.001"),
    (DoubleType(), STRING, 0.0001, "1.0E-4"),
    (DoubleType(), STRING, -0.0, "-0.0"),
    (DoubleType(), STRING, math.nan, "NaN"),
    (DoubleType(), STRING, -math.inf, "-Infinity"),
    (DateType(), STRING, 18_894, "2021-09-24"),
    (DateType(), STRING, -719_162, "0001-01-01"),
    (TimeType(0), STRING, NOON, "12:34:56"),
    (TimeType(3), STRING, NOON + 123_000_000, "12:34:56.123"),
    (TimestampType(6), STRING, MOMENT - 700, "2021-09-24 12:34:56.123456"),
    (TimestampType(9), STRING, MOMENT, "2021-09-24 12:34:56.123456700"),
    (TimestampType(4), STRING, MOMENT - 56_700, "2021-09-24 12:34:56.1234"),
    (TimestampType(3), STRING, 18_894 * DAY + 100_000_000, "2021-09-24 00:00:00.100"),
    (TimestampType(0), STRING, -SECOND, "1969-12-31 23:59:59"),
    (YearMonthIntervalType("YEAR"), STRING, 84, "+7-00"),
    (YearMonthIntervalType("MONTH"), STRING, 12_334, "+1027-10"),
    (YearMonthIntervalType("MONTH"), STRING, -5, "-0-05"),
    (DayTimeIntervalType("DAY"), STRING, 10, "+0 00:00:00.010"),
    (DayTimeIntervalType("DAY"), STRING, 123_456_789, "+1 10:17:36.789"),
    (ArrayType(IntType()), STRING, (1, None, 3), "[1, NULL, 3]"),
    (MapType(STRING, IntType()), STRING, {"a": 1, "b": None}, "{a=1, b=NULL}"),
    (MultisetType(STRING), STRING, {"a": 2}, "{a=2}"),
    (RowType.of(a=IntType(), b=BooleanType()), STRING, (1, None), "(1, NULL)"),
    (RowType.of(a=ArrayType(DateType())), STRING, ((0,),), "([1970-01-01])"),
    # to BOOLEAN
    (STRING, BooleanType(), "FalsE", False),
    (STRING, BooleanType(), " yes ", FAILS),
    (STRING, BooleanType(), "1", True),
    (STRING, BooleanType(), "", FAILS),
    (STRING, BooleanType(), "Apache", FAILS),
    (IntType(), BooleanType(), -5, True),
    (BigIntType(), BooleanType(), 0, False),
    # to bytes
    (STRING, VarBinaryType(), "ä", b"\xc3\xa4"),
    (STRING, BinaryType(3), "a", b"a\0\0"),
    (VarBinaryType(), BinaryType(2), b"abc", b"ab"),
    (BinaryType(2), VarBinaryType(1), b"ab", b"a"),
    # to integers
    (STRING, TinyIntType(), "1.234", 1),
    (STRING, TinyIntType(), " -12 ", -12),
    (STRING, TinyIntType(), "128", FAILS),
    (STRING, SmallIntType(), "-32769", FAILS),
    (STRING, IntType(), "+5", 5),
    (STRING, IntType(), "", FAILS),
    (STRING, IntType(), "-", FAILS),
    (STRING, IntType(), "foo", FAILS),
    (STRING, IntType(), "1e3", FAILS),
    (STRING, IntType(), "0x10", FAILS),
    (STRING, BigIntType(), "-9223372036854775808", -(2**63)),
    (STRING, BigIntType(), "9223372036854775808", FAILS),
    (BooleanType(), SmallIntType(), True, 1),
    (DecimalType(4, 3), SmallIntType(), Decimal("9.870"), 9),
    (DecimalType(4, 3), SmallIntType(), Decimal("-9.870"), -9),
    (DecimalType(10, 3), SmallIntType(), Decimal("91235.870"), 25_699),
    (DecimalType(20, 3), IntType(), Decimal("3276913443134.870"), -146_603_714),
    (IntType(), TinyIntType(), 128, -128),
    (SmallIntType(), TinyIntType(), -129, 127),
    (BigIntType(), IntType(), 2**31, -(2**31)),
    (DoubleType(), TinyIntType(), -123.456789, -123),
    (DoubleType(), SmallIntType(), 123_456.789, -7616),
    (DoubleType(), IntType(), 9_234_567_891.12345, 2**31 - 1),
    (DoubleType(), TinyIntType(), 1e10, -1),
    (DoubleType(), BigIntType(), 1e300, 2**63 - 1),
    (DoubleType(), BigIntType(), math.nan, 0),
    (FloatType(), IntType(), to_float32(-9_234_567_891.12), -(2**31)),
    (YearMonthIntervalType("YEAR"), IntType(), 84, 7),
    (DayTimeIntervalType("DAY"), BigIntType(), 3 * 86_400_000, 3),
    # to floating-point numbers
    (STRING, FloatType(), "-3276913443134", to_float32(-3_276_913_443_134)),
    (STRING, DoubleType(), "1.234", 1.234),
    (STRING, DoubleType(), " 1e3 ", 1000.0),
    (STRING, DoubleType(), "Infinity", math.inf),
    (STRING, DoubleType(), "inf", FAILS),
    (STRING, DoubleType(), "1_000", FAILS),
    (STRING, DoubleType(), "1.5f", 1.5),
    (DecimalType(4, 3), FloatType(), Decimal("9.870"), to_float32(9.87)),
    (DecimalType(38, 0), DoubleType(), Decimal(10**37 + 1), 1e37),
    (DoubleType(), FloatType(), -1.7976931348623157e308, -math.inf),
    (BooleanType(), DoubleType(), True, 1.0),
    (BigIntType(), FloatType(), 2**53 + 1, to_float32(2**53 + 1)),
    # to DECIMAL
    (DoubleType(), DecimalType(8, 4), 3.123456, Decimal("3.1235")),
    (DoubleType(), DecimalType(8, 4), 0.00005, Decimal("0.0001")),
    (DecimalType(10, 8), DecimalType(8, 4), Decimal("12.34561234"), Decimal("12.3456")),
    (DecimalType(3, 2), DecimalType(3, 1), Decimal("-0.05"), Decimal("-0.1")),
    (IntType(), DecimalType(8, 4), 12_345, None),
    (IntType(), DecimalType(8, 4), 1234, Decimal("1234.0000")),
    (FloatType(), DecimalType(8, 4), to_float32(12345.678912), None),
    (STRING, DecimalType(8, 4), "12345.6789", FAILS),
    (STRING, DecimalType(8, 4), " 1.23456e1 ", Decimal("12.3456")),
    (STRING, DecimalType(8, 4), "1.2.3", FAILS),
    (DoubleType(), DecimalType(38, 32), 1.7976931348623157e308, None),
    (DoubleType(), DecimalType(5, 2), math.nan, FAILS),
    (BooleanType(), DecimalType(5, 2), True, Decimal("1.00")),
    # to DATE
    (STRING, DateType(), "123", days_of_civil(123, 1, 1)),
    (STRING, DateType(), "2021-09-27", 18_897),
    (STRING, DateType(), "2021-9-27", 18_897),
    (STRING, DateType(), "2021-09", 18_871),
    (STRING, DateType(), "2021-09-27 12:34:56.123", 18_897),
    (STRING, DateType(), "2021/09/27", FAILS),
    (STRING, DateType(), "+5", FAILS),
    (STRING, DateType(), "2021-02-29", FAILS),
    (STRING, DateType(), "Flink", FAILS),
    (TimestampType(4), DateType(), MOMENT, 18_894),
    (TimestampType(3), DateType(), -1_000_000, -1),
    # to TIME
    (STRING, TimeType(0), "12:34:56.123456789", NOON),
    (STRING, TimeType(3), "12:34:56.123456789", NOON + 123_000_000),
    (STRING, TimeType(0), "12:34", NOON - 56 * SECOND),
    (STRING, TimeType(0), "2021-09-27", FAILS),
    (STRING, TimeType(0), "24:00:00", FAILS),
    (TimestampType(6), TimeType(0), MOMENT - 700, NOON),
    (TimeType(3), TimeType(0), NOON + 123_000_000, NOON),
    # to TIMESTAMP
    (STRING, TimestampType(9), "2021-09-24 12:34:56.1234567", MOMENT),
    (STRING, TimestampType(3), "2021-9-24 12:34:56.1234567", MOMENT - 456_700),
    (STRING, TimestampType(3), "2021-09-24", 18_894 * DAY),
    (STRING, TimestampType(3), "2021-02-30", days_of_civil(2021, 2, 28) * DAY),
    (STRING, TimestampType(3), "2021-09-24T12:34:56", FAILS),
    (STRING, TimestampType(3), "123", FAILS),
    (STRING, TimestampType(3), "2021-09-23 24:00:00", 18_894 * DAY),
    (DateType(), TimestampType(3), 18_894, 18_894 * DAY),
    (TimeType(0), TimestampType(3), NOON, NOON),
    (TimestampType(9), TimestampType(4), MOMENT, MOMENT - 56_700),
    (TimestampType(9), TimestampType(0), -1, -SECOND),
    # intervals
    (IntType(), YearMonthIntervalType("MONTH"), 5, 5),
    (IntType(), YearMonthIntervalType("YEAR"), 5, 60),
    (BigIntType(), DayTimeIntervalType("SECOND"), 5, 5000),
    (YearMonthIntervalType("YEAR"), YearMonthIntervalType("MONTH"), 89, 89),
    # nested
    (ArrayType(STRING), ArrayType(IntType()), ("1", None), (1, None)),
    (ArrayType(STRING), ArrayType(IntType()), ("x",), FAILS),
    (MapType(IntType(), IntType()), MapType(STRING, STRING), {1: 2}, {"1": "2"}),
    (
        RowType.of(a=IntType(), b=TimeType(0)),
        RowType.of(x=BigIntType(), y=STRING),
        (10, NOON),
        (10, "12:34:56"),
    ),
]


def outcome(
    source: LogicalType, target: LogicalType, value: Any, *, safe: bool = False, zone: str = "UTC"
) -> Any:
    """The cast of a column that holds the value twice and a NULL."""
    batch = pa.record_batch({"v": column_of([value, None, value], source)})
    expression = resolve_cast(InputReference(0, "v", source), target, can_fail=not safe)
    context = EvaluationContext(time_zone=zone)
    column = compile_expression(expression).evaluate(batch, context)
    assert column.type == target.to_arrow()
    first, null, third = values_of_column(column, target)
    assert null is None
    assert first == third or first != first  # noqa: PLR0124 - NaN
    return first


@pytest.mark.parametrize(("source", "target", "value", "expected"), CASES, ids=str)
def test_cast(source: LogicalType, target: LogicalType, value: Any, expected: Any) -> None:
    if expected is FAILS:
        with pytest.raises(ExpressionError, match="CAST"):
            outcome(source, target, value)
        assert outcome(source, target, value, safe=True) is None
        return
    for safe in (False, True):
        found = outcome(source, target, value, safe=safe)
        if isinstance(expected, float) and math.isnan(expected):
            assert math.isnan(found)
        else:
            assert found == expected
            assert type(found) is type(expected)
            assert str(found) == str(expected)  # scale and sign of zero


#: Zone, local text, instant in seconds: winter, summer, a gap (moved on), an overlap (earlier).
ZONED = [
    ("America/New_York", "2026-01-15 12:00:00", 1_768_496_400),
    ("America/New_York", "2026-07-15 12:00:00", 1_784_131_200),
    ("America/New_York", "2026-11-01 01:30:00", 1_793_511_000),
    ("GMT+05:30", "2026-01-15 12:00:00", 1_768_458_600),
    ("UTC", "2026-01-15 12:00:00", 1_768_478_400),
    ("America/New_York", "2115-09-15 12:30:07", 4_597_994_000 - 4_597_994_000 % 86_400 + 59_407),
]


@pytest.mark.parametrize(("zone", "text", "seconds"), ZONED)
def test_time_zones(zone: str, text: str, seconds: int) -> None:
    instant = seconds * SECOND
    zoned = LocalZonedTimestampType(3)
    assert outcome(STRING, zoned, text, zone=zone) == instant
    assert outcome(zoned, STRING, instant, zone=zone) == f"{text}.000"
    plain = outcome(STRING, TimestampType(3), text)
    assert outcome(TimestampType(3), zoned, plain, zone=zone) == instant
    assert outcome(zoned, TimestampType(3), instant, zone=zone) == plain
    assert outcome(zoned, DateType(), instant, zone=zone) == plain // DAY
    assert outcome(zoned, TimeType(0), instant, zone=zone) == plain % DAY


def test_a_local_time_in_a_gap_moves_on() -> None:
    found = outcome(
        STRING, LocalZonedTimestampType(0), "2026-03-08 02:30:00", zone="America/New_York"
    )
    assert outcome(LocalZonedTimestampType(0), STRING, found, zone="America/New_York") == (
        "2026-03-08 03:30:00"
    )


def test_midnight_is_that_of_the_session() -> None:
    zoned = LocalZonedTimestampType(0)
    found = outcome(DateType(), zoned, 0, zone="Asia/Tokyo")
    assert found == -9 * 3600 * SECOND


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (IntType(), TimestampType(3), "TO_TIMESTAMP"),
        (TimestampType(3), BigIntType(), "UNIX_TIMESTAMP"),
        (VarBinaryType(), IntType(), "there is no cast from BYTES to INT"),
        (DoubleType(), BooleanType(), "there is no cast from DOUBLE to BOOLEAN"),
        (STRING, ArrayType(IntType()), "there is no cast from STRING to ARRAY<INT>"),
        (STRING, YearMonthIntervalType(), "there is no cast"),
    ],
)
def test_casts_that_are_refused(source: LogicalType, target: LogicalType, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        resolve_cast(InputReference(0, "v", source), target)


def test_null_becomes_any_type() -> None:
    null = Literal(None, NullType())
    assert resolve_cast(null, IntType()) == Literal(None, IntType())
    assert cast(Literal(1, IntType(nullable=False)), BigIntType()).type == BigIntType(
        nullable=False
    )


# -- texts ------------------------------------------------------------------------------------


@examples(30)
@given(st.floats(allow_nan=False))
def test_a_double_is_read_back(value: float) -> None:
    assert parse_double(double_text(value)) == value


@examples(30)
@given(st.floats(width=32, allow_nan=False))
def test_a_float_is_read_back(value: float) -> None:
    assert to_float32(parse_double(float_text(value))) == value


@examples(30)
@given(st.integers(-(2**63), 2**63 - 1))
def test_an_integer_is_read_back(value: int) -> None:
    assert parse_integer(f" {value} ", 64, "BIGINT") == value


@examples(30)
@given(st.integers(-1_000_000, 5_000_000))
def test_days_and_civil_dates(days: int) -> None:
    assert days_of_civil(*civil_of_days(days)) == days


@examples(60)
@given(st.lists(st.text("0123456789+-.eE :xNaI\u0661 ", max_size=8), min_size=1, max_size=8))
def test_agree_text_to_number_by_column_and_by_value(texts: list[str]) -> None:
    """A column is cast as a whole, or value by value: the results are the same."""
    for target in (TinyIntType(), BigIntType(), DoubleType(), DecimalType(6, 2)):
        together = values_of_column(_try(texts, target), target)
        apart = [values_of_column(_try([text], target), target)[0] for text in texts]
        assert list(map(repr, together)) == list(map(repr, apart))


def _try(texts: list[str], target: LogicalType) -> pa.Array:
    batch = pa.record_batch({"v": pa.array(texts)})
    expression = resolve_cast(InputReference(0, "v", STRING), target, can_fail=False)
    return compile_expression(expression).evaluate(batch, EvaluationContext())
