"""Derivation of types: common types, arithmetic, aggregates, casts."""

from __future__ import annotations

import pytest

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
    NullType,
    RowType,
    SmallIntType,
    TimestampKind,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.types.type_derivation import (
    add_types,
    average_type,
    common_type,
    divide_types,
    modulo_types,
    multiply_types,
    needs_no_cast,
    round_type,
    sum_type,
    supports_explicit_cast,
    supports_implicit_cast,
)


def dec(precision: int, scale: int) -> DecimalType:
    return DecimalType(precision, scale)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([IntType(), BigIntType(), dec(2, 2)], "DECIMAL(21, 2)"),
        ([TinyIntType(), SmallIntType()], "SMALLINT"),
        ([IntType(nullable=False), IntType(nullable=False)], "INT NOT NULL"),
        ([IntType(nullable=False), NullType()], "INT"),
        ([IntType(), FloatType()], "FLOAT"),
        ([BigIntType(), DoubleType()], "DOUBLE"),
        ([dec(10, 2), DoubleType()], "DOUBLE"),
        ([FloatType(), dec(10, 2)], "DOUBLE"),
        ([dec(10, 2), FloatType()], "FLOAT"),
        ([dec(38, 0), dec(10, 10)], "DECIMAL(38, 0)"),
        ([CharType(2), CharType(2)], "CHAR(2)"),
        ([CharType(2), CharType(3)], "VARCHAR(3)"),
        ([CharType(5), VarCharType(3)], "VARCHAR(5)"),
        ([BinaryType(2), VarBinaryType(1)], "VARBINARY(2)"),
        ([TimestampType(3), TimestampType(6)], "TIMESTAMP(6)"),
        ([TimestampType(3), LocalZonedTimestampType(0)], "TIMESTAMP_LTZ(3)"),
        ([TimestampType(3, kind=TimestampKind.ROWTIME)] * 2, "TIMESTAMP(3)"),
        ([TimeType(0), TimeType(3)], "TIME(3)"),
        ([DateType(), DayTimeIntervalType("DAY")], "DATE"),
        ([YearMonthIntervalType("YEAR"), YearMonthIntervalType("MONTH")], None),
        ([DayTimeIntervalType("DAY"), DayTimeIntervalType("MINUTE")], None),
        ([ArrayType(IntType()), ArrayType(BigIntType())], "ARRAY<BIGINT>"),
        ([RowType.of(a=IntType()), RowType.of(b=DoubleType())], "ROW<`a` DOUBLE>"),
        (
            [MapType(CharType(1), IntType()), MapType(CharType(2), IntType())],
            "MAP<VARCHAR(2), INT>",
        ),
        ([IntType(), VarCharType()], "none"),
        ([BooleanType(), IntType()], "none"),
        ([ArrayType(IntType()), IntType()], "none"),
        ([NullType(), NullType()], "none"),
    ],
    ids=str,
)
def test_common_type(types: list[LogicalType], expected: str | None) -> None:
    found = common_type(types)
    if expected is None:
        expected = {
            "INTERVAL_YEAR_MONTH": "INTERVAL YEAR(2) TO MONTH",
            "INTERVAL_DAY_TIME": "INTERVAL DAY(2) TO MINUTE",
        }[types[0].root.name]
    assert str(found).lower() == expected.lower()


#: Two types, and what +, *, /, % give: as in Flink's LogicalTypeMerging.
ARITHMETIC = [
    (dec(10, 2), dec(5, 3), "DECIMAL(12, 3)", "DECIMAL(16, 5)", "DECIMAL(19, 8)", "DECIMAL(5, 3)"),
    (
        dec(38, 8),
        dec(32, 8),
        "DECIMAL(38, 7)",
        "DECIMAL(38, 6)",
        "DECIMAL(38, 6)",
        "DECIMAL(32, 8)",
    ),
    (
        IntType(),
        dec(3, 1),
        "DECIMAL(12, 1)",
        "DECIMAL(14, 1)",
        "DECIMAL(17, 6)",
        "DECIMAL(3, 1)",
    ),
    (IntType(), BigIntType(), "BIGINT", "BIGINT", "BIGINT", "BIGINT"),
    (BigIntType(), SmallIntType(), "BIGINT", "BIGINT", "BIGINT", "SMALLINT"),
    (FloatType(), IntType(), "FLOAT", "FLOAT", "FLOAT", "FLOAT"),
    (dec(5, 2), DoubleType(), "DOUBLE", "DOUBLE", "DOUBLE", "DOUBLE"),
]


@pytest.mark.parametrize(("left", "right", "plus", "times", "by", "rest"), ARITHMETIC, ids=str)
def test_arithmetic(
    left: LogicalType, right: LogicalType, plus: str, times: str, by: str, rest: str
) -> None:
    assert str(add_types(left, right)) == plus
    assert str(multiply_types(left, right)) == times
    assert str(divide_types(left, right)) == by
    assert str(modulo_types(left, right)) == rest
    assert add_types(left.not_null(), right.not_null()).is_nullable is False
    assert add_types(left.not_null(), right).is_nullable is True


def test_aggregates() -> None:
    assert str(sum_type(BigIntType())) == "BIGINT"
    assert str(sum_type(dec(10, 2))) == "DECIMAL(38, 2)"
    assert str(average_type(BigIntType())) == "BIGINT"
    assert str(average_type(IntType())) == "INT"
    assert str(average_type(DoubleType())) == "DOUBLE"
    assert str(average_type(dec(10, 2))) == "DECIMAL(38, 6)"
    assert str(average_type(dec(10, 8))) == "DECIMAL(38, 8)"


@pytest.mark.parametrize(
    ("type_", "digits", "expected"),
    [
        (dec(10, 4), 2, "DECIMAL(9, 2)"),
        (dec(10, 4), 4, "DECIMAL(10, 4)"),
        (dec(10, 4), 9, "DECIMAL(10, 4)"),
        (dec(10, 4), -1, "DECIMAL(7, 0)"),
        (IntType(), -1, "INT"),
        (DoubleType(), 2, "DOUBLE"),
    ],
)
def test_round(type_: LogicalType, digits: int, expected: str) -> None:
    assert str(round_type(type_, digits)) == expected


@pytest.mark.parametrize(
    ("source", "target", "implicit", "explicit"),
    [
        (IntType(), BigIntType(), True, True),
        (BigIntType(), IntType(), False, True),
        (IntType(), IntType(nullable=False), False, True),
        (IntType(), VarCharType(), False, True),
        (VarCharType(), IntType(), False, True),
        (CharType(3), VarCharType(2), True, True),
        (VarCharType(), CharType(2), False, True),
        (dec(3, 1), DoubleType(), True, True),
        (DoubleType(), dec(3, 1), True, True),
        (BooleanType(), IntType(), False, True),
        (DoubleType(), BooleanType(), False, False),
        (IntType(), TimestampType(3), False, False),
        (TimestampType(3), BigIntType(), False, False),
        (TimestampType(3), DateType(), True, True),
        (DateType(), TimestampType(3), False, True),
        (LocalZonedTimestampType(3), TimestampType(3), True, True),
        (DateType(), TimeType(), False, False),
        (VarBinaryType(), IntType(), False, False),
        (VarBinaryType(), VarCharType(), False, True),
        (NullType(), IntType(), True, True),
        (DayTimeIntervalType("DAY"), BigIntType(), False, True),
        (DayTimeIntervalType("DAY TO HOUR"), BigIntType(), False, False),
        (ArrayType(IntType()), VarCharType(), False, True),
        (VarCharType(), ArrayType(IntType()), False, False),
        (ArrayType(IntType()), ArrayType(BigIntType()), True, True),
        (ArrayType(BigIntType()), ArrayType(IntType()), False, True),
        (RowType.of(a=IntType()), RowType.of(b=VarCharType()), False, True),
        (RowType.of(a=IntType()), RowType.of(a=IntType(), b=IntType()), False, False),
    ],
    ids=str,
)
def test_casts(source: LogicalType, target: LogicalType, implicit: bool, explicit: bool) -> None:
    assert supports_implicit_cast(source, target) is implicit
    assert supports_explicit_cast(source, target) is explicit


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (CharType(3), VarCharType(5), True),
        (VarCharType(5), VarCharType(3), False),
        (VarCharType(3), CharType(3), False),
        (IntType(nullable=False), IntType(), True),
        (IntType(), IntType(nullable=False), False),
        (IntType(), BigIntType(), False),
        (RowType.of(a=CharType(1)), RowType.of(b=VarCharType()), True),
        (ArrayType(IntType()), ArrayType(BigIntType()), False),
    ],
    ids=str,
)
def test_what_needs_no_cast(source: LogicalType, target: LogicalType, expected: bool) -> None:
    assert needs_no_cast(source, target) is expected
