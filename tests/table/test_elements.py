"""Tables of values of the program: inferred types, checks, rounding and user-defined types."""

from __future__ import annotations

import array
import datetime as dt
from collections import namedtuple
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import (
    ElementTypeError,
    ElementValueError,
    MillstreamError,
    TypeMismatchError,
)
from millstream.table import (
    DataTypes,
    EnvironmentSettings,
    Row,
    TableEnvironment,
    TableSchema,
    UserDefinedType,
)
from millstream.table.expressions import col
from millstream.table.udf import udf

if TYPE_CHECKING:
    from millstream.table import Table
    from millstream.table.types import DataType

Pair = namedtuple("Pair", "x y")  # noqa: PYI024 - as programs have it


class Thing:
    """An object without a type of its own."""

    def __init__(self) -> None:
        self.b = 1
        self.a = "x"


class PointType(UserDefinedType):
    @classmethod
    def sql_type(cls) -> DataType:
        return DataTypes.ARRAY(DataTypes.DOUBLE(nullable=False))

    def serialize(self, obj: Point) -> list[float]:
        return [obj.x, obj.y]


class Point:
    """A point in a plane."""

    __UDT__ = PointType()

    def __init__(self, x: float, y: float) -> None:
        self.x = x
        self.y = y


@pytest.fixture(scope="module")
def env() -> TableEnvironment:
    return TableEnvironment.create(EnvironmentSettings.in_batch_mode())


def collected(table: Table) -> list[Any]:
    with table.execute().collect() as rows:
        return list(rows)


def column(env: TableEnvironment, kind: DataType, *values: Any) -> list[Any]:
    schema = DataTypes.ROW([DataTypes.FIELD("a", kind)])
    return [each[0] for each in collected(env.from_elements([(each,) for each in values], schema))]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "BOOLEAN"),
        (1, "BIGINT"),
        (1.5, "DOUBLE"),
        ("a", "STRING"),
        (b"a", "BYTES"),
        (bytearray(b"a"), "BYTES"),
        (Decimal("1.5"), "DECIMAL(38, 18)"),
        (dt.date(2020, 1, 1), "DATE"),
        ([1], "ARRAY<BIGINT>"),
        ([None, 1], "ARRAY<BIGINT>"),
        (array.array("d", [1.0]), "ARRAY<DOUBLE NOT NULL>"),
        (array.array("b", [1]), "ARRAY<TINYINT NOT NULL>"),
        (array.array("B", [1]), "ARRAY<SMALLINT NOT NULL>"),
        ((1, "a"), "ROW<`_1` BIGINT, `_2` STRING>"),
        (Pair(1.0, 2.0), "ROW<`x` DOUBLE, `y` DOUBLE>"),
        (Row(x=1), "ROW<`x` BIGINT>"),
        ({"a": 1}, "MAP<STRING NOT NULL, BIGINT>"),
        (Thing(), "ROW<`a` STRING, `b` BIGINT>"),
    ],
)
def test_types_of_values(env: TableEnvironment, value: object, kind: str) -> None:
    table = env.from_elements([(value,)], ["a"])
    assert [each.as_summary_string() for each in table.get_resolved_schema().types] == [kind]


def test_types_of_all_rows_count(env: TableEnvironment) -> None:
    rows = [Row(a=[], b={}, c=None), Row(a=[Row(x=1)], b={"k": 1.5}, c="")]
    kinds = env.from_elements(rows).get_resolved_schema().types
    assert [each.as_summary_string() for each in kinds] == [
        "ARRAY<ROW<`x` BIGINT>>",
        "MAP<STRING NOT NULL, DOUBLE>",
        "STRING",
    ]


def test_names_of_columns(env: TableEnvironment) -> None:
    assert env.from_elements([(1, 2)], ["x"]).get_schema().get_field_names() == ["x", "_2"]
    assert env.from_elements([{"b": 1, "a": 2}]).get_schema().get_field_names() == ["a", "b"]
    assert env.from_elements([Row(b=1, a=2)], ["p", "q"]).get_schema().get_field_names() == [
        "p",
        "q",
    ]
    assert env.from_elements([1, 2]).get_schema() == TableSchema(["_1"], [DataTypes.BIGINT()])


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([(1,), ("x",)], "field _1: values are of different types, BIGINT and STRING"),
        ([([1],), ([Decimal(1)],)], "BIGINT and DECIMAL"),
        ([Row(a=1), Row(b=1)], "rows have different columns"),
        ([(object(),)], "A value of type object has no type in tables"),
        ([(array.array("L", [1]),)], "type code 'L' has no type"),
    ],
)
def test_values_without_one_type(env: TableEnvironment, rows: list[Any], wrong: str) -> None:
    with pytest.raises(TypeError, match=wrong) as caught:
        env.from_elements(rows)
    assert isinstance(caught.value, TypeMismatchError)


@pytest.mark.parametrize("rows", [[], [(None,)], [([],)], [({},)]])
def test_types_that_no_value_shows(env: TableEnvironment, rows: list[Any]) -> None:
    with pytest.raises(ElementValueError, match="cannot be inferred"):
        env.from_elements(rows)


@pytest.mark.parametrize(
    ("kind", "value", "error", "wrong"),
    [
        (DataTypes.INT(), "x", ElementTypeError, "'x'"),
        (DataTypes.BOOLEAN(), "True", ElementTypeError, "'True'"),
        (DataTypes.ARRAY(DataTypes.INT()), [1, "2"], ElementTypeError, "'2'"),
        (DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()), {"a": "1"}, ElementTypeError, "'1'"),
        (DataTypes.INT(), 2**31, ElementValueError, "field a: object of INT out of range"),
        (DataTypes.TINYINT(), -129, ElementValueError, "field a: object of TINYINT out of range"),
        (DataTypes.BIGINT(), 2**64, ElementValueError, "out of range"),
        (DataTypes.VARCHAR(2), "abc", ElementValueError, "of VARCHAR exceeds: 2"),
        (DataTypes.CHAR(2), "a", ElementValueError, "of CHAR is not: 2"),
        (DataTypes.BINARY(1), b"ab", ElementValueError, "of BINARY is not: 1"),
        (DataTypes.INT().not_null(), None, ElementValueError, "field a: .* not nullable"),
        (
            DataTypes.ARRAY(DataTypes.INT(nullable=False)),
            [None],
            ElementValueError,
            "element in array field a: .* not nullable",
        ),
        (
            DataTypes.ROW().add("x", DataTypes.INT()).add("y", DataTypes.INT()),
            (1,),
            ElementValueError,
            "field a: a row has 1 values, and there are 2 fields",
        ),
    ],
)
def test_values_that_do_not_fit(
    env: TableEnvironment, kind: DataType, value: object, error: type[Exception], wrong: str
) -> None:
    with pytest.raises(error, match=wrong):
        column(env, kind, value)
    assert issubclass(error, TypeError | ValueError)


def test_decimals_are_rounded_half_up(env: TableEnvironment) -> None:
    values = [Decimal(each) for each in ("1.235", "1.245", "-1.235", "1.2349999", "1")]
    assert list(map(str, column(env, DataTypes.DECIMAL(5, 2), *values))) == [
        "1.24",
        "1.25",
        "-1.24",
        "1.23",
        "1.00",
    ]


@pytest.mark.parametrize("value", ["12345.6", "999.995", "-1E+30"])
def test_a_decimal_that_is_too_large_is_null(env: TableEnvironment, value: str) -> None:
    assert column(env, DataTypes.DECIMAL(5, 2), Decimal(value)) == [None]


def test_decimals_within_other_values_are_rounded(env: TableEnvironment) -> None:
    inner = DataTypes.DECIMAL(3, 1)
    kind = (
        DataTypes.ROW()
        .add("l", DataTypes.ARRAY(inner))
        .add("m", DataTypes.MAP(DataTypes.STRING(), inner))
    )
    made = column(env, kind, ([Decimal("1.25"), Decimal(100)], {"k": Decimal("-0.05")}))
    assert list(made[0]) == [[Decimal("1.3"), None], {"k": Decimal("-0.1")}]


def test_inferred_decimals_are_rounded(env: TableEnvironment) -> None:
    table = env.from_elements([(Decimal("1.1234567890123456789123"),)], ["a"])
    assert [each[0] for each in collected(table)] == [Decimal("1.123456789012345679")]


def test_rows_by_name_and_position(env: TableEnvironment) -> None:
    schema = DataTypes.ROW().add("a", DataTypes.INT()).add("b", DataTypes.STRING())
    given = [Row(b="x", a=1), Row(1, "x"), (1, "x"), [1, "x"], {"b": "x", "a": 1}, {"a": 1}]
    assert [tuple(each) for each in collected(env.from_elements(given, schema))] == [
        (1, "x")
    ] * 5 + [(1, None)]


def test_user_defined_types_are_kept_as_others(env: TableEnvironment) -> None:
    table = env.from_elements([(1, Point(1.0, 2.0)), (2, None)], ["k", "p"])
    assert table.get_schema().get_field_data_type("p") == PointType.sql_type()
    assert [tuple(each) for each in collected(table)] == [(1, [1.0, 2.0]), (2, None)]
    assert column(env, DataTypes.ARRAY(PointType()), [Point(0.0, 1.0)]) == [[[0.0, 1.0]]]
    with pytest.raises(ElementValueError, match=r"field a: .* is no value of PointType"):
        column(env, PointType(), [1.0, 2.0])


@udf(result_type=DataTypes.DECIMAL(5, 2))
def parsed(text: str) -> Decimal:
    return Decimal(text)


def test_decimals_of_functions_are_rounded_half_to_even(env: TableEnvironment) -> None:
    table = env.from_elements([("1.235",), ("1.245",), ("-1.235",), ("2",)], ["a"])
    made = sorted(str(each[0]) for each in collected(table.select(parsed(col("a")))))
    assert made == ["-1.24", "1.24", "1.24", "2.00"]


@pytest.mark.parametrize("text", ["12345.6", "999.995"])
def test_a_decimal_of_a_function_that_is_too_large(env: TableEnvironment, text: str) -> None:
    table = env.from_elements([(text,)], ["a"]).select(parsed(col("a")))
    with pytest.raises(MillstreamError, match="has more digits before the point"):
        list(table.execute().collect())


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("value", "kind", "made"),
    [
        (1, DataTypes.STRING(), "1"),
        (True, DataTypes.STRING(), "true"),
        (2**40, DataTypes.INT(), 0),
        (200, DataTypes.TINYINT(), -56),
        (2**64, DataTypes.BIGINT(), None),
        ("1", DataTypes.INT(), None),
        (True, DataTypes.INT(), None),
        (1, DataTypes.DOUBLE(), None),
        (1, DataTypes.BOOLEAN(), None),
        (1.5, DataTypes.DECIMAL(5, 2), None),
        ("x", DataTypes.BYTES(), b"x"),
        ([1, "2"], DataTypes.ARRAY(DataTypes.INT()), [1, None]),
        ({1: 2}, DataTypes.MAP(DataTypes.STRING(), DataTypes.DOUBLE()), {"1": None}),
        ((1,), DataTypes.ROW([DataTypes.FIELD("x", DataTypes.STRING())]), Row("1")),
    ],
)
def test_values_that_are_not_verified_are_converted(
    value: object, kind: DataType, made: object
) -> None:
    """As Flink 2.3.0 converts them."""
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    schema = DataTypes.ROW([DataTypes.FIELD("a", kind)])
    with env.from_elements([(value,)], schema, False).execute().collect() as rows:
        assert list(rows) == [Row(made)]


def test_what_is_not_verified_still_needs_values() -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    field = DataTypes.FIELD("a", DataTypes.INT().not_null())
    with pytest.raises(ElementValueError, match="not nullable"):
        env.from_elements([(None,)], DataTypes.ROW([field]), verify_schema=False)
    with pytest.raises(ElementValueError, match="a row has 2 values"):
        env.from_elements([(1, 2)], DataTypes.ROW([field]), verify_schema=False)
