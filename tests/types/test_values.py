"""Values of logical types: columns and back, what programs see and back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from unittest.mock import sentinel

import numpy as np
import pyarrow as pa
import pytest

from millstream.errors import ProgramError, TypeMismatchError
from millstream.types.external_values import from_external, to_external, type_of_value
from millstream.types.logical_type_info import LogicalTypeInfo
from millstream.types.logical_types import (
    ArrayType,
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
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.types.row import Row
from millstream.types.time import Instant
from millstream.types.values import column_of, scalar_of, value_of, values_of_column


def naive(*parts: int) -> dt.datetime:
    return dt.datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001 - TIMESTAMP has no zone


VALUES: list[tuple[LogicalType, list[Any]]] = [
    (NullType(), [None, None]),
    (BooleanType(), [True, None, False]),
    (IntType(), [1, None, -(2**31)]),
    (FloatType(), [1.5, None]),
    (DoubleType(), [0.1, None, float("inf")]),
    (DecimalType(5, 2), [Decimal("1.50"), None, Decimal("-999.99")]),
    (VarCharType(), ["a", None, "", "\U0001f600"]),
    (VarBinaryType(), [b"\0", None]),
    (DateType(), [None, 20_000, -5]),
    (TimeType(3), [None, 5_000_000, 86_399_999_000_000]),
    (TimeType(6), [None, 5_001_000]),
    (TimestampType(3), [None, -1_000_000, 5_000_000]),
    (TimestampType(9), [5, None, -1]),
    (LocalZonedTimestampType(6), [7000, None]),
    (YearMonthIntervalType(), [5, None, -13]),
    (DayTimeIntervalType(), [5, None, -(2**40)]),
    (ArrayType(IntType()), [(1, None), None, (), (3,)]),
    (ArrayType(TimestampType(3)), [(1_000_000,), None]),
    (MapType(VarCharType(), IntType()), [{"a": 1}, None, {}, {"b": None, "c": 4}]),
    (MultisetType(ArrayType(IntType())), [{(1,): 1, (2, None): 3}, None]),
    (
        RowType.of(a=IntType(), b=ArrayType(VarCharType())),
        [(1, ("a",)), None, (None, None)],
    ),
    (RowType(()), [(), None]),
]


@pytest.mark.parametrize(("type_", "values"), VALUES, ids=lambda item: str(item)[:40])
def test_columns_and_back(type_: LogicalType, values: list[Any]) -> None:
    column = column_of(values, type_)
    assert column.type == type_.to_arrow()
    assert values_of_column(column, type_) == values
    assert values_of_column(column.slice(1), type_) == values[1:]
    assert values_of_column(column_of([], type_), type_) == []
    for index, value in enumerate(values):
        assert value_of(column[index], type_) == value
        assert scalar_of(value, type_).type == type_.to_arrow()


def test_a_null_list_may_stand_over_items() -> None:
    column = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 5], pa.int32()),
        pa.array([1, 2, 3, 4, 5], pa.int32()),
        mask=pa.array([False, True, False]),
    )
    assert values_of_column(column, ArrayType(IntType())) == [(1, 2), None, (5,)]


def test_digits_that_a_timestamp_lacks_are_cut() -> None:
    assert values_of_column(column_of([1_999_999], TimestampType(3)), TimestampType(3)) == [
        1_000_000
    ]
    assert values_of_column(column_of([-1], TimestampType(0)), TimestampType(0)) == [-1_000_000_000]


BERLIN = dt.timezone(dt.timedelta(hours=2))

EXTERNAL: list[tuple[LogicalType, Any, Any]] = [
    (DateType(), dt.date(1970, 1, 2), 1),
    (DateType(), dt.date(1, 1, 1), -719_162),
    (TimeType(6), dt.time(0, 0, 1, 5), 1_000_005_000),
    (TimestampType(6), naive(1969, 12, 31, 23, 59, 59, 999_999), -1000),
    (LocalZonedTimestampType(3), dt.datetime(1970, 1, 1, tzinfo=dt.UTC), 0),
    (DayTimeIntervalType(), dt.timedelta(days=1, milliseconds=-1), 86_399_999),
    (YearMonthIntervalType(), 14, 14),
    (ArrayType(DateType()), [dt.date(1970, 1, 1), None], (0, None)),
    (MapType(VarCharType(), DateType()), {"a": dt.date(1970, 1, 3)}, {"a": 2}),
    (MultisetType(DateType()), {dt.date(1970, 1, 3): 5}, {2: 5}),
    (RowType.of(b=IntType(), a=DateType()), Row("b", "a")(1, dt.date(1970, 1, 1)), (1, 0)),
    (DecimalType(4, 2), Decimal("1.50"), Decimal("1.50")),
]


@pytest.mark.parametrize(("type_", "external", "internal"), EXTERNAL, ids=str)
def test_what_programs_see_and_back(type_: LogicalType, external: Any, internal: Any) -> None:
    assert from_external(type_)(external) == internal
    assert to_external(type_)(internal) == external
    assert from_external(type_)(None) is None
    assert to_external(type_)(None) is None
    info = LogicalTypeInfo(type_)
    assert info.column_from_arrow(info.column_to_arrow([external, None])) == [external, None]


@pytest.mark.parametrize(
    ("type_", "given", "internal"),
    [
        (DoubleType(), 1, 1.0),
        (IntType(), np.int64(5), 5),
        (DecimalType(5, 2), 3, Decimal("3.00")),
        (RowType.of(a=IntType(), b=IntType()), {"b": 1, "a": 2}, (2, 1)),
        (RowType.of(b=IntType(), a=IntType()), Row(a=1, b=2), (2, 1)),
        (RowType.of(a=IntType()), (7,), (7,)),
        (ArrayType(IntType()), np.array([1, 2]), (1, 2)),
        (LocalZonedTimestampType(9), Instant(1, 5), 1_000_000_005),
        (LocalZonedTimestampType(3), dt.datetime(1970, 1, 1, 2, tzinfo=BERLIN), 0),
    ],
    ids=str,
)
def test_what_else_programs_may_give(type_: LogicalType, given: Any, internal: Any) -> None:
    assert from_external(type_)(given) == internal


@pytest.mark.parametrize(
    ("type_", "given"),
    [
        (IntType(), "1"),
        (IntType(), 2**31),
        (IntType(), 1.0),
        (VarCharType(), 1),
        (BooleanType(), 1),
        (DoubleType(), True),
        (DecimalType(3, 1), Decimal("99.95")),
        (DecimalType(3, 1), Decimal(100)),
        (DateType(), naive(2026, 1, 1)),
        (TimestampType(), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        (LocalZonedTimestampType(), naive(2026, 1, 1)),
        (RowType.of(a=IntType()), (1, 2)),
        (ArrayType(IntType()), "ab"),
        (ArrayType(IntType()), ["x"]),
    ],
    ids=str,
)
def test_values_that_do_not_fit(type_: LogicalType, given: Any) -> None:
    with pytest.raises(TypeMismatchError, match="does not fit"):
        from_external(type_)(given)


@pytest.mark.parametrize(("given", "kept"), [("1.25", "1.2"), ("1.35", "1.4"), ("-1.26", "-1.3")])
def test_decimals_are_rounded_half_to_even(given: str, kept: str) -> None:
    assert str(from_external(DecimalType(3, 1))(Decimal(given))) == kept


def test_raw_values_are_pickled() -> None:
    raw = from_external(RawType())({"any": "object"})
    assert to_external(RawType())(raw) == {"any": "object"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "NULL"),
        (True, "BOOLEAN NOT NULL"),
        (1, "INT NOT NULL"),
        (2**31, "BIGINT NOT NULL"),
        (2**63, "DECIMAL(19, 0) NOT NULL"),
        (1.0, "DOUBLE NOT NULL"),
        ("abc", "CHAR(3) NOT NULL"),
        (b"ab", "BINARY(2) NOT NULL"),
        (Decimal("0.05"), "DECIMAL(2, 2) NOT NULL"),
        (Decimal("1E3"), "DECIMAL(4, 0) NOT NULL"),
        (dt.date(2026, 1, 1), "DATE NOT NULL"),
        (dt.time(1), "TIME(0) NOT NULL"),
        (naive(2026, 1, 1), "TIMESTAMP(3) NOT NULL"),
        (naive(2026, 1, 1, 0, 0, 0, 1), "TIMESTAMP(6) NOT NULL"),
        (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "TIMESTAMP_LTZ(3) NOT NULL"),
        (dt.timedelta(1), "INTERVAL DAY(2) TO SECOND(3) NOT NULL"),
        ([1, None], "ARRAY<INT> NOT NULL"),
        ({"a": 1}, "MAP<CHAR(1) NOT NULL, INT NOT NULL> NOT NULL"),
        (Row(a=1), "ROW<`a` INT NOT NULL> NOT NULL"),
        ((1, "x"), "ROW<`f0` INT NOT NULL, `f1` CHAR(1) NOT NULL> NOT NULL"),
    ],
    ids=str,
)
def test_type_of_a_literal(value: Any, expected: str) -> None:
    assert str(type_of_value(value)) == expected


@pytest.mark.parametrize("value", [sentinel.anything, [], [1, "a"], Decimal("NaN")], ids=str)
def test_values_that_are_no_literals(value: Any) -> None:
    with pytest.raises(ProgramError):
        type_of_value(value)


def test_text_of_a_type_is_not_that_of_char() -> None:
    assert str(type_of_value("")) == "CHAR(0) NOT NULL"
    assert CharType(0).to_arrow() == pa.string()


def test_a_name_is_in_a_row_that_has_a_field_of_it() -> None:
    named = Row(name=1, age=None)
    assert "name" in named
    assert "other" not in named
    assert 1 not in named
    without_names = Row(1, "x")
    assert 1 in without_names
    assert "name" not in without_names
    assert "a" in Row("a", "b")(1, 2)
