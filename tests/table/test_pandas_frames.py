"""Tables from and to DataFrames of pandas: types of columns and of values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from millstream.errors import ProgramError, TypeMismatchError
from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment, TableSchema
from millstream.table.expressions import col


@pytest.fixture(scope="module")
def env() -> TableEnvironment:
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    made.get_config().set_local_timezone("Asia/Tokyo")
    return made


def frame_of(env: TableEnvironment, expression: str) -> pd.DataFrame:
    return env.sql_query(f"SELECT {expression} AS a").to_pandas()


@pytest.mark.parametrize(
    ("expression", "dtype", "value"),
    [
        ("CAST(1 AS TINYINT)", "int8", 1),
        ("CAST(1 AS SMALLINT)", "int16", 1),
        ("1", "int32", 1),
        ("CAST(1 AS BIGINT)", "int64", 1),
        ("CAST(1.5 AS FLOAT)", "float32", 1.5),
        ("CAST(1.5 AS DOUBLE)", "float64", 1.5),
        ("TRUE", "bool", True),
        ("'x'", "object", "x"),
        ("x'01'", "object", b"\x01"),
        ("CAST(1.5 AS DECIMAL(5, 2))", "object", Decimal("1.50")),
        ("DATE '2020-01-02'", "object", dt.date(2020, 1, 2)),
        ("TIME '10:00:00'", "object", dt.time(10)),
        (
            "CAST(TIMESTAMP '2020-01-01 00:00:00' AS TIMESTAMP(3))",
            "datetime64[ms]",
            pd.Timestamp("2020-01-01"),
        ),
        (
            "TIMESTAMP '2020-01-01 00:00:00.123456'",
            "datetime64[us]",
            pd.Timestamp("2020-01-01 00:00:00.123456"),
        ),
        (
            "CAST(TIMESTAMP '2020-01-01 00:00:00' AS TIMESTAMP_LTZ(3))",
            "datetime64[ms, Asia/Tokyo]",
            pd.Timestamp("2020-01-01", tz="Asia/Tokyo"),
        ),
        (
            "CAST('2020-01-01 00:00:00.123456789' AS TIMESTAMP(9))",
            "datetime64[ns]",
            pd.Timestamp("2020-01-01 00:00:00.123456789"),
        ),
        (
            "CAST(TIMESTAMP '2020-01-01 00:00:00' AS TIMESTAMP(0))",
            "datetime64[s]",
            pd.Timestamp("2020-01-01"),
        ),
        ("MAP['a', 1]", "object", [("a", 1)]),
        ("ROW(1, 'x')", "object", {"EXPR$0": 1, "EXPR$1": "x"}),
    ],
)
def test_types_of_columns(
    env: TableEnvironment, expression: str, dtype: str, value: object
) -> None:
    frame = frame_of(env, expression)
    assert str(frame["a"].dtype).replace("str", "object") == dtype
    assert frame["a"].tolist() == [value]


def test_arrays_are_of_numpy(env: TableEnvironment) -> None:
    made = frame_of(env, "ARRAY[1, 2]")["a"].iloc[0]
    assert isinstance(made, np.ndarray)
    assert made.dtype == np.int32
    assert made.tolist() == [1, 2]
    nested = frame_of(env, "ROW(ARRAY[1], 'x')")["a"].iloc[0]
    assert isinstance(nested["EXPR$0"], np.ndarray)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("TINYINT", "float64"),
        ("FLOAT", "float32"),
        ("BOOLEAN", "object"),
        ("TIMESTAMP(3)", "datetime64[ms]"),
    ],
)
def test_columns_with_null(env: TableEnvironment, kind: str, dtype: str) -> None:
    frame = frame_of(env, f"CAST(NULL AS {kind})")
    assert str(frame["a"].dtype) == dtype
    assert frame["a"].isna().all()


def test_an_empty_table_keeps_its_types(env: TableEnvironment) -> None:
    frame = env.from_elements([(1, 1.5)], ["a", "b"]).filter(col("a") < 0).to_pandas()
    assert frame.empty
    assert list(map(str, frame.dtypes)) == ["int64", "float64"]


def test_a_changing_table(env: TableEnvironment) -> None:
    frame = pd.DataFrame({"k": np.array([1, 1], np.int8), "v": np.array([1, 2], np.int16)})
    table = env.from_pandas(frame)
    made = table.group_by(col("k")).select(col("k"), col("v").max.alias("v")).to_pandas()
    wanted = pd.DataFrame({"k": np.array([1], np.int8), "v": np.array([2], np.int16)})
    assert_frame_equal(made, wanted)


def test_rows_that_differ_by_nanoseconds_are_told_apart(env: TableEnvironment) -> None:
    """Of one key the first time is retracted, and that of the other key stays."""
    env.get_config().set("parallelism.default", "1")
    query = """SELECT MAX(t) AS t FROM (VALUES
        (1, CAST('2020-01-01 00:00:00.000000001' AS TIMESTAMP(9))),
        (2, CAST('2020-01-01 00:00:00.000000002' AS TIMESTAMP(9))),
        (2, CAST('2020-01-01 00:00:00.000000003' AS TIMESTAMP(9)))
    ) AS v(k, t) GROUP BY k"""
    times = env.sql_query(query).to_pandas()["t"]
    assert sorted(time.nanosecond for time in times) == [1, 3]


def test_a_frame_comes_back(env: TableEnvironment) -> None:
    frame = pd.DataFrame(
        {
            "a": np.array([1, 2], np.int8),
            "b": np.array([1.5, 2.5], np.float32),
            "c": [Decimal("1.50"), Decimal("2.50")],
            "d": pd.Series([dt.datetime(2020, 1, 1), None], dtype="datetime64[ms]"),  # noqa: DTZ001
            "e": [True, False],
        }
    )
    assert_frame_equal(env.from_pandas(frame).to_pandas(), frame)


def test_schemas_of_frames(env: TableEnvironment) -> None:
    frame = pd.DataFrame({"a": np.array([1], np.int8), "b": ["x"]})
    types = [DataTypes.BIGINT(), DataTypes.STRING()]
    for given in (types, tuple(types)):
        assert env.from_pandas(frame, given).get_schema() == TableSchema(["a", "b"], types)
    for names in (["p", "q"], ("p", "q")):
        assert env.from_pandas(frame, names).get_schema().get_field_names() == ["p", "q"]
    row = DataTypes.ROW([DataTypes.FIELD("p", types[0]), DataTypes.FIELD("q", types[1])])
    assert env.from_pandas(frame, row).get_schema().get_field_data_types() == types


def test_a_column_is_not_made_one_of_another_kind(env: TableEnvironment) -> None:
    frame = pd.DataFrame({"a": np.array([1], np.int8)})
    with pytest.raises(TypeMismatchError, match=r"'a' cannot be STRING: Expected a string.*int8"):
        env.from_pandas(frame, [DataTypes.STRING()])
    with pytest.raises(TypeMismatchError, match="'a' cannot be DECIMAL"):
        env.from_pandas(pd.DataFrame({"a": [Decimal("1.235")]}), [DataTypes.DECIMAL(5, 2)])
    with pytest.raises(ProgramError, match=r"the schema has 2 columns, the DataFrame has \['a'\]"):
        env.from_pandas(frame, [DataTypes.INT(), DataTypes.INT()])
