"""Data types as programs declare and read them: nullability, rows, intervals, conversions."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import TYPE_CHECKING

import pytest

from millstream.errors import ProgramError
from millstream.table import DataTypes
from millstream.table.types import (
    ArrayType,
    AtomicType,
    BigIntType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    FractionalType,
    IntegralType,
    LocalZonedTimestampType,
    MapType,
    NumericType,
    Row,
    RowField,
    RowKind,
    RowType,
    TimestampType,
    UserDefinedType,
    VarCharType,
    YearMonthIntervalType,
    ZonedTimestampType,
)
from millstream.types import row

if TYPE_CHECKING:
    from collections.abc import Callable

MAKERS: list[Callable[[], DataType]] = [
    DataTypes.NULL,
    DataTypes.STRING,
    DataTypes.BYTES,
    DataTypes.BOOLEAN,
    DataTypes.TINYINT,
    DataTypes.SMALLINT,
    DataTypes.INT,
    DataTypes.BIGINT,
    DataTypes.FLOAT,
    DataTypes.DOUBLE,
    DataTypes.DATE,
    DataTypes.TIME,
    DataTypes.TIMESTAMP,
    DataTypes.TIMESTAMP_LTZ,
    lambda: DataTypes.CHAR(3),
    lambda: DataTypes.VARCHAR(3),
    lambda: DataTypes.BINARY(3),
    lambda: DataTypes.VARBINARY(3),
    lambda: DataTypes.DECIMAL(10, 2),
    lambda: DataTypes.ARRAY(DataTypes.INT()),
    lambda: DataTypes.MULTISET(DataTypes.INT()),
    lambda: DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()),
    lambda: DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())]),
    lambda: DataTypes.INTERVAL(DataTypes.DAY(), DataTypes.SECOND()),
    lambda: DataTypes.INTERVAL(DataTypes.YEAR(), DataTypes.MONTH()),
]


@pytest.mark.parametrize("make", MAKERS)
def test_nullability_is_chosen_by_methods(make: Callable[[], DataType]) -> None:
    plain = make()
    strict = plain.not_null()
    assert plain.is_nullable
    assert not strict.is_nullable
    assert strict != plain
    assert strict.as_summary_string() == f"{plain.as_summary_string()} NOT NULL"
    assert strict.nullable() == plain
    assert hash(strict.nullable()) == hash(plain)


@pytest.mark.parametrize("make", MAKERS)
def test_a_pickled_type_is_the_same(make: Callable[[], DataType]) -> None:
    strict = make().not_null()
    assert pickle.loads(pickle.dumps(strict)) == strict


def test_nullability_is_the_last_argument_of_classes() -> None:
    assert BigIntType(False) == DataTypes.BIGINT().not_null()
    assert DecimalType(5, 2, False) == DataTypes.DECIMAL(5, 2, nullable=False)
    assert ArrayType(BigIntType(), nullable=False) == DataTypes.ARRAY(BigIntType()).not_null()
    assert not DataType(nullable=False).is_nullable


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (DataTypes.BIGINT(), "BigIntType(true)"),
        (DataTypes.STRING().not_null(), "VarCharType(2147483647, false)"),
        (DataTypes.DECIMAL(38, 18), "DecimalType(38, 18, true)"),
        (DataTypes.TIME(3), "TimeType(3, true)"),
        (DataTypes.ARRAY(DataTypes.DOUBLE(nullable=False)), "ArrayType(DoubleType(false), true)"),
        (
            DataTypes.MAP(DataTypes.CHAR(2), DataTypes.INT()),
            "MapType(CharType(2, true), IntType(true), true)",
        ),
        (
            DataTypes.ROW(
                [DataTypes.FIELD("a", DataTypes.INT()), RowField("b", DataTypes.DATE(), "day")]
            ),
            "RowType(RowField(a, IntType(true), ...),RowField(b, DateType(true), day))",
        ),
    ],
)
def test_representation(kind: DataType, text: str) -> None:
    assert repr(kind) == text


def test_kinds_of_types() -> None:
    assert issubclass(BigIntType, IntegralType)
    assert issubclass(DecimalType, FractionalType)
    assert issubclass(IntegralType, NumericType)
    assert issubclass(VarCharType, AtomicType)
    assert VarCharType.type_name() == "VARCHAR"
    assert DataTypes.INT().bridged_to("java.lang.Integer") == DataTypes.INT()


def test_parts_of_types() -> None:
    map_ = DataTypes.MAP(DataTypes.STRING(), DataTypes.INT())
    assert (map_.key_type, map_.value_type) == (DataTypes.STRING(), DataTypes.INT())
    assert DataTypes.ARRAY(map_).element_type == map_
    assert DataTypes.MULTISET(map_).element_type == map_
    with pytest.raises(ProgramError, match=r"ARRAY takes data types such as DataTypes\.INT\(\)"):
        DataTypes.ARRAY("INT")  # type: ignore[arg-type]


# -- rows ----------------------------------------------------------------------------------------


def test_fields_are_added_to_a_row_type() -> None:
    made = RowType().add("a", DataTypes.INT()).add(RowField("b", DataTypes.STRING()))
    assert made == DataTypes.ROW(
        [DataTypes.FIELD("a", DataTypes.INT()), DataTypes.FIELD("b", DataTypes.STRING())]
    )
    assert made.field_names() == made.names == ["a", "b"]
    assert made.field_types() == [DataTypes.INT(), DataTypes.STRING()]


def test_a_row_type_grows_in_place() -> None:
    made = DataTypes.ROW()
    made.add("a", DataTypes.INT())
    assert made.field_names() == ["a"]
    with pytest.raises(ValueError, match="Field 'b' has no type"):
        made.add("b")


def test_fields_are_found_by_name_position_and_slice() -> None:
    made = DataTypes.ROW().add("a", DataTypes.INT()).add("b", DataTypes.STRING())
    assert made["b"] is made[1] is made[-1] is made.fields[1]
    assert made["b"].data_type == DataTypes.STRING()
    assert made[:1] == DataTypes.ROW(made.fields[:1])
    assert [each.name for each in made] == ["a", "b"]
    assert len(made) == 2
    with pytest.raises(KeyError, match="has no field 'c', but a, b"):
        made["c"]
    with pytest.raises(IndexError):
        made[2]
    with pytest.raises(TypeError, match=r"not by 1\.5"):
        made[1.5]  # type: ignore[call-overload]


def test_a_list_of_fields_is_a_copy() -> None:
    made = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())])
    made.fields.append(RowField("b", DataTypes.INT()))
    made.names.append("b")
    assert len(made) == 1


def test_rows_are_in_the_module_of_types() -> None:
    assert Row is row.Row
    assert RowKind is row.RowKind


# -- intervals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (
            DataTypes.INTERVAL(DataTypes.DAY(3), DataTypes.SECOND(2)),
            DayTimeIntervalType(DayTimeIntervalType.DayTimeResolution.DAY_TO_SECOND, 3, 2),
        ),
        (
            DataTypes.INTERVAL(DataTypes.HOUR()),
            DayTimeIntervalType(DayTimeIntervalType.DayTimeResolution.HOUR),
        ),
        (
            DataTypes.INTERVAL(DataTypes.YEAR(4), DataTypes.MONTH()),
            YearMonthIntervalType(YearMonthIntervalType.YearMonthResolution.YEAR_TO_MONTH, 4),
        ),
        (
            DataTypes.INTERVAL(DataTypes.MONTH()),
            YearMonthIntervalType(YearMonthIntervalType.YearMonthResolution.MONTH),
        ),
    ],
)
def test_intervals_are_made_of_units(made: DataType, wanted: DataType) -> None:
    assert made == wanted


def test_the_units_of_an_interval() -> None:
    made = DataTypes.INTERVAL(DataTypes.DAY(), DataTypes.MINUTE())
    assert isinstance(made, DayTimeIntervalType)
    assert made.resolution is DayTimeIntervalType.DayTimeResolution.DAY_TO_MINUTE
    assert (made.day_precision, made.fractional_precision) == (2, 6)
    with pytest.raises(ProgramError, match="DAY TO YEAR is not one of"):
        DataTypes.INTERVAL(DataTypes.DAY(), DataTypes.YEAR())


# -- conversion ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "number"),
    [
        (DataTypes.DATE(), dt.date(1970, 1, 2), 1),
        (DataTypes.TIME(), dt.time(0, 0, 1, 5, tzinfo=dt.UTC), 1_000_005),
        (TimestampType(), dt.datetime(1970, 1, 1, 0, 0, 2, 7, tzinfo=dt.UTC), 2_000_007),
        (
            DataTypes.INTERVAL(DataTypes.DAY(), DataTypes.SECOND()),
            dt.timedelta(days=1, seconds=10),
            86_410_000_000,
        ),
        (
            ZonedTimestampType(),
            dt.datetime(1970, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
            (0, 3600),
        ),
        (DataTypes.INT(), 5, 5),
        (DataTypes.DATE(), None, None),
    ],
)
def test_values_become_numbers(kind: DataType, value: object, number: object) -> None:
    assert kind.to_sql_type(value) == number


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (DataTypes.DATE(), dt.date(2020, 2, 29)),
        (DataTypes.TIME(6), dt.time(23, 59, 59, 999_999)),
        (TimestampType(), dt.datetime(2020, 2, 29, 1, 2, 3, 456)),  # noqa: DTZ001 - local
        (LocalZonedTimestampType(), dt.datetime(2020, 2, 29, 1, 2, 3, 456)),  # noqa: DTZ001 - local
        (DataTypes.INTERVAL(DataTypes.DAY()), dt.timedelta(days=-3)),
        (DataTypes.ARRAY(DataTypes.DATE()), [dt.date(2020, 1, 1), None]),
        (DataTypes.MAP(DataTypes.STRING(), DataTypes.DATE()), {"a": dt.date(2020, 1, 1)}),
        (DataTypes.STRING(), "a"),
    ],
)
def test_numbers_become_values_again(kind: DataType, value: object) -> None:
    assert kind.from_sql_type(kind.to_sql_type(value)) == value
    assert kind.from_sql_type(None) is None


@pytest.mark.parametrize(
    "value",
    [
        Row(a=1, d=dt.date(1970, 1, 2)),
        Row(1, dt.date(1970, 1, 2)),
        (1, dt.date(1970, 1, 2)),
        [1, dt.date(1970, 1, 2)],
        {"a": 1, "d": dt.date(1970, 1, 2)},
    ],
)
def test_rows_become_tuples(value: object) -> None:
    kind = DataTypes.ROW().add("a", DataTypes.INT()).add("d", DataTypes.DATE())
    assert kind.need_conversion()
    assert kind.to_sql_type(value) == (0, 1, 1)
    assert kind.from_sql_type((1, 1)) == Row(a=1, d=dt.date(1970, 1, 2))


def test_a_value_without_fields_is_no_row() -> None:
    with pytest.raises(ValueError, match="Unexpected value 5 for a ROW"):
        DataTypes.ROW().add("a", DataTypes.INT()).to_sql_type(5)


class Point:
    """A point in a plane."""

    def __init__(self, x: float, y: float) -> None:
        self.x = x
        self.y = y


class PointType(UserDefinedType):
    @classmethod
    def sql_type(cls) -> DataType:
        return DataTypes.ARRAY(DataTypes.DOUBLE(nullable=False))

    def serialize(self, obj: Point) -> list[float]:
        return [obj.x, obj.y]

    def deserialize(self, datum: list[float]) -> Point:
        return Point(*datum)


def test_a_user_defined_type_converts_objects() -> None:
    kind = PointType()
    assert kind == PointType()
    assert kind != DataTypes.INT()
    assert kind.to_sql_type(Point(1.0, 2.0)) == [1.0, 2.0]
    back = kind.from_sql_type([1.0, 2.0])
    assert (back.x, back.y) == (1.0, 2.0)
    assert kind.as_summary_string() == "ARRAY<DOUBLE NOT NULL>"
    with pytest.raises(NotImplementedError, match=r"UserDefinedType must implement sql_type\(\)"):
        UserDefinedType.sql_type()


def test_parameters_are_checked() -> None:
    with pytest.raises(ProgramError, match="the precision must be between 0 and 9, not 10"):
        ZonedTimestampType(10)
    with pytest.raises(ProgramError, match="cannot be the type of a column"):
        ZonedTimestampType().to_arrow()
    assert MapType(VarCharType(), BigIntType()) == MapType(VarCharType(), BigIntType())
