"""Functions of the groups comparison, arithmetic, conditional: Flink's results."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any
from unittest.mock import sentinel

import pyarrow as pa
import pytest

from millstream.errors import ExpressionError, ProgramError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_expression
from millstream.expressions.functions.arithmetic import JavaRandom
from millstream.expressions.nodes import Expression, InputReference, Literal
from millstream.expressions.resolution import resolve_call
from millstream.types.external_values import from_external, type_of_value
from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LogicalType,
    MapType,
    NullType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.types.text_values import parse_date, parse_timestamp
from millstream.types.values import values_of_column

FAILS = sentinel.fails
D = Decimal
NULL = Literal(None, NullType())


def typed(value: Any, type_: LogicalType) -> Literal:
    return Literal(value, type_.with_nullability(value is None))


def argument(value: Any) -> Expression:
    """Literals as the Table API makes them."""
    if isinstance(value, Literal):
        return value
    type_ = type_of_value(value)
    return Literal(from_external(type_)(value), type_)


def result(name: str, *values: Any) -> tuple[Any, str]:
    """The result for constants, and its type."""
    expression = resolve_call(name, *map(argument, values))
    batch = pa.record_batch({"a": pa.array([1], pa.int32())})
    column = compile_expression(expression).evaluate(batch, EvaluationContext())
    return values_of_column(column, expression.type)[0], str(expression.type.with_nullability(True))


def tiny(value: int) -> Literal:
    return typed(value, TinyIntType())


def small(value: int) -> Literal:
    return typed(value, SmallIntType())


def long(value: int) -> Literal:
    return typed(value, BigIntType())


def single(value: float) -> Literal:
    return typed(value, FloatType())


def day(text: str) -> Literal:
    return typed(parse_date(text), DateType())


def moment(text: str, precision: int = 3) -> Literal:
    return typed(parse_timestamp(text, precision), TimestampType(precision))


def clock(hours: int) -> Literal:
    return typed(hours * 3600 * 10**9, TimeType(0))


def months(value: int) -> Literal:
    return typed(value, YearMonthIntervalType("MONTH"))


def hours(value: int) -> Literal:
    return typed(value * 3_600_000, DayTimeIntervalType("HOUR"))


def seconds(value: float) -> Literal:
    return typed(int(value * 1000), DayTimeIntervalType("SECOND"))


def days(value: int) -> Literal:
    return typed(value * 86_400_000, DayTimeIntervalType("DAY"))


ARITHMETIC: list[tuple[str, list[Any], Any, str]] = [
    ("+", [1, 2], 3, "INT"),
    ("+", [2**31 - 1, 1], -(2**31), "INT"),
    ("+", [tiny(127), tiny(1)], -128, "TINYINT"),
    ("+", [tiny(127), small(1)], 128, "SMALLINT"),
    ("+", [1, long(2)], 3, "BIGINT"),
    ("-", [-(2**31), 1], 2**31 - 1, "INT"),
    ("*", [2**30, 4], 0, "INT"),
    ("*", [D("1.50"), D("2.5")], D("3.750"), "DECIMAL(6, 3)"),
    ("+", [D("1.50"), 2], D("3.50"), "DECIMAL(13, 2)"),
    ("+", [D("9.9"), D("0.1")], D("10.0"), "DECIMAL(3, 1)"),
    ("+", [D("0.1"), 0.2], 0.30000000000000004, "DOUBLE"),
    ("/", [7, 2], 3, "INT"),
    ("/", [-7, 2], -3, "INT"),
    ("/", [-(2**31), -1], -(2**31), "INT"),
    ("/", [1, 0], FAILS, "INT"),
    ("/", [1.0, 0.0], math.inf, "DOUBLE"),
    ("/", [-1.0, 0.0], -math.inf, "DOUBLE"),
    ("/", [D("1"), D("3")], D("0.333333"), "DECIMAL(7, 6)"),
    ("/", [D("2"), D("3")], D("0.666667"), "DECIMAL(7, 6)"),
    ("/", [D("1"), D("0")], FAILS, ""),
    ("/", [7, D("2.0")], D("3.500000"), "DECIMAL(17, 6)"),
    ("%", [-7, 2], -1, "INT"),
    ("%", [7, -2], 1, "INT"),
    ("%", [7, 0], FAILS, ""),
    ("%", [-(2**31), -1], 0, "INT"),
    ("%", [long(5_000_000_007), 10], 7, "INT"),
    ("%", [-5.5, 2.0], -1.5, "DOUBLE"),
    ("MOD", [D("-5.5"), 2], D("-1.5"), "DECIMAL(2, 1)"),
    ("ABS", [-(2**31)], -(2**31), "INT"),
    ("ABS", [D("-1.50")], D("1.50"), "DECIMAL(3, 2)"),
    ("SIGN", [-5], -1, "INT"),
    ("SIGN", [D("-2.50")], D("-1.00"), "DECIMAL(3, 2)"),
    ("SIGN", [-0.5], -1.0, "DOUBLE"),
    ("CEIL", [D("-1.2")], D("-1"), "DECIMAL(2, 0)"),
    ("CEIL", [D("9.9")], D("10"), "DECIMAL(2, 0)"),
    ("CEILING", [1.2], 2.0, "DOUBLE"),
    ("FLOOR", [D("-1.2")], D("-2"), "DECIMAL(2, 0)"),
    ("FLOOR", [5], 5, "INT"),
    ("ROUND", [D("2.345"), 2], D("2.35"), "DECIMAL(4, 2)"),
    ("ROUND", [D("-2.345"), 2], D("-2.35"), "DECIMAL(4, 2)"),
    ("ROUND", [2.675, 2], 2.68, "DOUBLE"),
    ("ROUND", [1251, -2], 1300, "INT"),
    ("ROUND", [2.5], 3.0, "DOUBLE"),
    ("ROUND", [single(2.6749999523162842), 2], 2.6700000762939453, "FLOAT"),
    ("ROUND", [D("15.1"), -1], D("20"), "DECIMAL(3, 0)"),
    ("TRUNCATE", [42.345, 2], 42.34, "DOUBLE"),
    ("TRUNCATE", [D("-42.345"), 2], D("-42.34"), "DECIMAL(5, 2)"),
    ("TRUNCATE", [1299, -2], 1200, "INT"),
    ("TRUNCATE", [42.9], 42.0, "DOUBLE"),
    ("POWER", [2, 10], 1024.0, "DOUBLE"),
    ("POWER", [0.0, -1.0], math.inf, "DOUBLE"),
    ("SQRT", [16], 4.0, "DOUBLE"),
    ("LN", [0.0], -math.inf, "DOUBLE"),
    ("LOG", [2.0, 8.0], 3.0, "DOUBLE"),
    ("LOG10", [1000], 3.0, "DOUBLE"),
    ("LOG2", [8], 3.0, "DOUBLE"),
    ("EXP", [1000.0], math.inf, "DOUBLE"),
    ("ATAN2", [1.0, 0.0], math.pi / 2, "DOUBLE"),
    ("COT", [1.0], 0.6420926159343306, "DOUBLE"),
    ("DEGREES", [math.pi], 180.0, "DOUBLE"),
    ("BIN", [-1], "1" * 64, "STRING"),
    ("HEX", [255], "FF", "STRING"),
    ("HEX", ["hello,world"], "68656C6C6F2C776F726C64", "STRING"),
    ("RAND_INTEGER", [1, 100], 85, "INT"),
    ("RAND", [0], 0.730967787376657, "DOUBLE"),
]

TIME = [
    ("+", [day("2026-01-31"), months(1)], parse_date("2026-02-28"), "DATE"),
    ("-", [day("2024-03-31"), months(13)], parse_date("2023-02-28"), "DATE"),
    ("+", [day("2026-12-31"), days(1)], parse_date("2027-01-01"), "DATE"),
    ("+", [day("2026-01-01"), hours(25)], parse_date("2026-01-02"), "DATE"),
    ("-", [day("2026-01-31"), hours(25)], parse_date("2026-01-30"), "DATE"),
    ("-", [clock(23), seconds(1.5)], (23 * 3600 - 2) * 10**9, "TIME(0)"),
    (
        "+",
        [moment("2026-01-31 10:00:00"), months(1)],
        parse_timestamp("2026-02-28 10:00:00", 3),
        "TIMESTAMP(3)",
    ),
    (
        "-",
        [moment("2026-01-01 00:00:00", 9), hours(1)],
        parse_timestamp("2025-12-31 23:00:00", 3),
        "TIMESTAMP(9)",
    ),
    (
        "+",
        [hours(1), moment("2026-01-01 00:00:00")],
        parse_timestamp("2026-01-01 01:00:00", 3),
        "TIMESTAMP(3)",
    ),
    ("+", [clock(23), months(2)], 23 * 3600 * 10**9, "TIME(0)"),
    ("-", [clock(23), months(2)], 23 * 3600 * 10**9, "TIME(0)"),
    ("+", [clock(23), hours(2)], 3600 * 10**9, "TIME(0)"),
    ("-", [clock(1), hours(2)], 23 * 3600 * 10**9, "TIME(0)"),
    ("+", [hours(1), days(1)], 25 * 3_600_000, "INTERVAL DAY(2) TO HOUR"),
    ("-", [months(1), months(3)], -2, "INTERVAL MONTH"),
    ("*", [hours(2), 3], 6 * 3_600_000, "INTERVAL HOUR"),
    ("*", [2, months(3)], 6, "INTERVAL MONTH"),
    ("/", [hours(3), 2], 5_400_000, "INTERVAL HOUR"),
    ("/", [hours(3), 0], FAILS, ""),
    ("-", [hours(3)], -3 * 3_600_000, "INTERVAL HOUR"),
]

OTHERS = [
    ("=", [1, 1.0], True, "BOOLEAN"),
    ("=", [D("1.50"), D("1.5")], True, "BOOLEAN"),
    ("=", ["a", "a "], False, "BOOLEAN"),
    ("=", [math.nan, math.nan], False, "BOOLEAN"),
    ("=", [0.0, -0.0], True, "BOOLEAN"),
    ("<", ["Z", "a"], True, "BOOLEAN"),
    ("<", ["\uffff", "\U0001f600"], True, "BOOLEAN"),
    ("=", [NULL, 1], None, "BOOLEAN"),
    ("=", [[1, None], [1, None]], True, "BOOLEAN"),
    (">", [moment("2026-01-01 00:00:01"), day("2026-01-01")], True, "BOOLEAN"),
    ("=", ["2026-01-01", day("2026-01-01")], True, "BOOLEAN"),
    ("<>", [long(2**62), 2**62], False, "BOOLEAN"),
    ("=", [D("1" * 30), D("0." + "1" * 30)], False, "BOOLEAN"),
    ("IS DISTINCT FROM", [NULL, NULL], False, "BOOLEAN"),
    ("IS NOT DISTINCT FROM", [NULL, 1], False, "BOOLEAN"),
    ("BETWEEN", [12, 10, NULL], None, "BOOLEAN"),
    ("BETWEEN", [12, NULL, 10], False, "BOOLEAN"),
    ("NOT BETWEEN", [12, 15, NULL], True, "BOOLEAN"),
    ("BETWEEN SYMMETRIC", [12, 15, 12], True, "BOOLEAN"),
    ("BETWEEN SYMMETRIC", [12, NULL, 12], None, "BOOLEAN"),
    ("IN", [4, 1, 2, NULL], None, "BOOLEAN"),
    ("IN", [1, 1, 2, NULL], True, "BOOLEAN"),
    ("IN", [1, 1.0, D("2.5")], True, "BOOLEAN"),
    ("NOT IN", [1, 1, 2, NULL], False, "BOOLEAN"),
    ("NOT IN", [4, 1, 2, 3], True, "BOOLEAN"),
    ("IN", [day("2026-01-01"), moment("2026-01-01 10:00:00")], False, "BOOLEAN"),
    ("IN", ["2026-1-1", day("2026-01-01")], True, "BOOLEAN"),
    ("BETWEEN", [moment("2026-01-01"), "2026-01-01", day("2026-01-02")], True, "BOOLEAN"),
    ("IN", [NULL, NULL], None, "BOOLEAN"),
    ("LIKE", ["abc", "a_c"], True, "BOOLEAN"),
    ("LIKE", ["a\nc", "a_c"], False, "BOOLEAN"),
    ("LIKE", ["a\nc", "a%c"], True, "BOOLEAN"),
    ("LIKE", ["a.c", "a.c"], True, "BOOLEAN"),
    ("LIKE", ["abc", "a.c"], False, "BOOLEAN"),
    ("LIKE", ["10%", "10\\%", "\\"], True, "BOOLEAN"),
    ("LIKE", ["10%", "10!a", "!"], FAILS, ""),
    ("NOT LIKE", ["abc", NULL], None, "BOOLEAN"),
    ("SIMILAR TO", ["aab", "(a|b)+"], True, "BOOLEAN"),
    ("SIMILAR TO", ["abc", "a%"], True, "BOOLEAN"),
    ("SIMILAR TO", ["a1", "[a-c][[:DIGIT:]_]"], True, "BOOLEAN"),
    ("SIMILAR TO", ["a1", "[[:ALPHA:][:digit:]]+"], True, "BOOLEAN"),
    ("SIMILAR TO", ["abc", "^abc$"], False, "BOOLEAN"),
    ("SIMILAR TO", ["a\\w", "a\\w"], True, "BOOLEAN"),
    ("SIMILAR TO", ["ab", "[a"], FAILS, ""),
    ("SIMILAR TO", ["a.", "a."], True, "BOOLEAN"),
    ("SIMILAR TO", ["ab", "a."], True, "BOOLEAN"),
    ("SIMILAR TO", ["ab", "(a"], FAILS, ""),
    ("NULLIF", [5, 5], None, "INT"),
    ("NULLIF", [5, 5.0], None, "INT"),
    ("NULLIF", [5, 0], 5, "INT"),
    ("NULLIF", ["2026-01-01", day("2026-01-01")], None, "CHAR(10)"),
    ("NULLIF", [day("2026-01-01"), moment("2026-01-01")], None, "DATE"),
    ("NULLIF", [NULL, 1], None, "NULL"),
    ("NULLIF", [[1], [1]], None, "ARRAY<INT NOT NULL>"),
    ("COALESCE", [NULL, 5], 5, "INT"),
    ("COALESCE", [1, 2.5], 1.0, "DOUBLE"),
    ("COALESCE", ["a", "bcd"], "a", "VARCHAR(3)"),
    ("IF", [True, 1, D("2.5")], D("1.0"), "DECIMAL(11, 1)"),
    ("IFNULL", [NULL, "x"], "x", "CHAR(1)"),
    ("CASE", [NULL, 1, True, 2, 3], 2, "INT"),
    ("GREATEST", [1, 3, 2], 3, "INT"),
    ("GREATEST", [1, 2.5], 2.5, "DOUBLE"),
    ("GREATEST", [1, NULL], None, "INT"),
    ("GREATEST", [1.0, math.nan, 2.0], math.nan, "DOUBLE"),
    ("LEAST", [math.nan, 1.0], 1.0, "DOUBLE"),
    ("%", [typed(D(17), DecimalType(38, 0)), small(-5)], 2, "SMALLINT"),
    ("LEAST", ["b", "a"], "a", "CHAR(1)"),
    ("LEAST", [day("2026-01-02"), day("2026-01-01")], parse_date("2026-01-01"), "DATE"),
    ("IS_ALPHA", ["abc"], True, "BOOLEAN"),
    ("IS_ALPHA", [""], False, "BOOLEAN"),
    ("IS_ALPHA", [typed(None, VarCharType())], False, "BOOLEAN"),
    ("IS_DECIMAL", ["-1.5e3"], True, "BOOLEAN"),
    ("IS_DECIMAL", ["1,5"], False, "BOOLEAN"),
    ("IS_DECIMAL", ["1.5f"], True, "BOOLEAN"),
    ("IS_DIGIT", ["12"], True, "BOOLEAN"),
    ("IS_DIGIT", ["1a"], False, "BOOLEAN"),
    ("TYPEOF", [1], "INT NOT NULL", "STRING"),
    ("TYPEOF", [NULL], "NULL", "STRING"),
]


@pytest.mark.parametrize(
    ("name", "values", "expected", "type_"), [*ARITHMETIC, *TIME, *OTHERS], ids=str
)
def test_results(name: str, values: list[Any], expected: Any, type_: str) -> None:
    if expected is FAILS:
        with pytest.raises(ExpressionError):
            result(name, *values)
        return
    found, found_type = result(name, *values)
    assert found == expected or math.isnan(expected)
    assert str(found) == str(expected)
    assert found_type == type_


def test_decimals_that_overflow_are_null() -> None:
    most = typed(D("9" * 38), DecimalType(38, 0))
    assert result("+", most, most) == (None, "DECIMAL(38, 0)")
    assert result("*", most, most) == (None, "DECIMAL(38, 0)")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("+", [day("2026-01-01"), 1]),
        ("-", [day("2026-01-01"), day("2026-01-01")]),
        ("+", [hours(1), months(1)]),
        ("=", [1, "1"]),
        ("=", [True, 1]),
        ("<", [Literal(None, MapType(IntType(), IntType()))] * 2),
        ("GREATEST", [[1], [2]]),
        ("BETWEEN", [1, "a", "b"]),
        ("IN", [1, "a"]),
        ("NULLIF", [1, "a"]),
        ("COALESCE", [moment("2026-01-01"), months(1)]),
        ("IFNULL", [day("2026-01-01"), 1]),
        ("CASE", [True, 1]),
    ],
    ids=str,
)
def test_arguments_that_are_refused(name: str, values: list[Any]) -> None:
    with pytest.raises(ProgramError, match="does not take"):
        result(name, *values)


def test_an_error_lists_the_signatures() -> None:
    with pytest.raises(ProgramError) as caught:
        result("ROUND", "x")
    assert str(caught.value) == (
        "ROUND does not take (CHAR(1) NOT NULL); it takes\n"
        "    ROUND(numeric <NUMERIC>, [digits <INT>])"
    )


def test_seeded_numbers_are_javas() -> None:
    generator = JavaRandom(42)
    assert [generator.next_int(10) for _ in range(5)] == [0, 3, 8, 4, 0]
    assert JavaRandom(42).next_int(1 << 4) == 11
    with pytest.raises(ValueError, match="positive"):
        generator.next_int(0)


def test_random_numbers_without_a_seed() -> None:
    found, type_ = result("RAND")
    assert 0 <= found < 1
    assert type_ == "DOUBLE"
    assert result("RAND_INTEGER", 5)[0] in range(5)
    text, type_ = result("UUID")
    assert (len(text), text.count("-"), type_) == (36, 4, "CHAR(36)")


def test_a_null_argument_of_any_type() -> None:
    assert result("SIN", NULL) == (None, "DOUBLE")
    assert result("+", typed(None, IntType()), 1) == (None, "INT")
    assert result("CASE", True, NULL, NULL) == (None, "NULL")
    array = InputReference(0, "a", ArrayType(IntType()))
    assert resolve_call("COALESCE", array, NULL).type == ArrayType(IntType())
    assert resolve_call("+", InputReference(0, "a", DoubleType()), NULL).type == DoubleType()
