"""Scalar functions of users: of rows, of columns, async; by SQL, by name, on expressions."""

from __future__ import annotations

import asyncio
import datetime as dt
import pickle
from typing import TYPE_CHECKING, Any

import cloudpickle
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.query_running import environment

from millstream.common import Row
from millstream.errors import CatalogError, ProgramError, UserFunctionError, ValidationError
from millstream.table import DataTypes
from millstream.table.expressions import col
from millstream.table.udf import AsyncScalarFunction, FunctionContext, ScalarFunction, udf

if TYPE_CHECKING:
    import pandas as pd

    from millstream.table import TableEnvironment

VALUES = "(VALUES (1, 'a'), (CAST(NULL AS INT), 'b'), (3, CAST(NULL AS STRING))) AS t(n, s)"


def rows(env: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    with env.execute_sql(query).collect() as found:
        return [tuple(row) for row in found if isinstance(row, Row)]


def with_function(function: Any, name: str = "f") -> TableEnvironment:
    env = environment()
    env.create_temporary_function(name, function)
    return env


@udf(result_type="BIGINT")
def plus_hundred(n: int | None) -> int:
    return -1 if n is None else n + 100


def test_a_function_of_rows_sees_nulls_and_casts_nothing() -> None:
    env = with_function(plus_hundred)
    assert rows(env, f"SELECT f(n) FROM {VALUES}") == [(101,), (-1,), (103,)]


def test_values_are_those_of_python() -> None:
    @udf(result_type="ROW<d DATE, texts ARRAY<STRING>>")
    def seen(time: dt.datetime, items: list[str], row: Row) -> Row:
        assert isinstance(time, dt.datetime)
        return Row(time.date(), [*items, str(row[0])])

    env = with_function(seen)
    query = "SELECT f(TIMESTAMP '2024-02-29 13:14:15', ARRAY['x'], ROW(1, 2))"
    assert rows(env, query) == [(Row(dt.date(2024, 2, 29), ["x", "1"]),)]


def test_arguments_are_cast_to_input_types() -> None:
    env = with_function(udf(repr, input_types=[DataTypes.DOUBLE()], result_type="STRING"))
    assert rows(env, "SELECT f(1)") == [("1.0",)]
    with pytest.raises(ValidationError, match="repr does not take"):
        env.execute_sql("SELECT f(ARRAY[1])")
    with pytest.raises(ValidationError, match=r"it takes\s+repr\(arg0 <DOUBLE>\)"):
        env.execute_sql("SELECT f(1, 2)")


def test_the_result_type_comes_from_the_annotation() -> None:
    @udf
    def length(text: str) -> int | None:
        return None if text is None else len(text)

    assert length.definition.signatures[0].result([], []) == DataTypes.BIGINT()
    env = with_function(length)
    assert rows(env, f"SELECT f(s) FROM {VALUES}") == [(1,), (1,), (None,)]
    with pytest.raises(ProgramError, match="set result_type"):
        udf(lambda text: text)


class Opened(ScalarFunction):
    """Counts how often it was opened, for the process."""

    opened = 0

    def __init__(self) -> None:
        self.prefix = ""

    def open(self, function_context: FunctionContext) -> None:
        Opened.opened += 1
        self.prefix = function_context.get_job_parameter("prefix", "none")

    def is_deterministic(self) -> bool:
        return False

    def eval(self, text: str | None) -> str:
        return f"{self.prefix}:{text}"


def test_an_object_is_opened_before_the_first_row() -> None:
    function = udf(Opened(), result_type=DataTypes.STRING())
    assert not function.definition.deterministic
    env = with_function(function)
    assert rows(env, f"SELECT f(s) FROM {VALUES}") == [("none:a",), ("none:b",), ("none:None",)]


_PAIRS = f"SELECT CASE WHEN n IS NOT NULL THEN ROW(n, s) END AS r FROM {VALUES}"


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("general", lambda row: row),
        ("arrow", lambda rows: rows),  # its fields have names of their own
        ("arrow", lambda rows: rows.cast(pa.struct({"b": pa.string(), "a": pa.int32()}))),
        ("pandas", lambda frame: frame),
        ("pandas", lambda frame: frame.iloc[:, 0].to_frame("x").assign(y=frame.iloc[:, 1])),
    ],
)
def test_rows_keep_their_fields(kind: str, function: Any) -> None:
    if kind == "arrow" and "cast" in function.__code__.co_names:
        query = "SELECT CAST(r AS ROW<a INT, b STRING>) AS r FROM (" + _PAIRS + ")"
    else:
        query = _PAIRS
    env = with_function(udf(function, result_type="ROW<a INT, b STRING>", func_type=kind))
    found = rows(env, f"SELECT s.a, s.b FROM (SELECT f(r) AS s FROM ({query}))")
    assert found == [(1, "a"), (None, None), (3, None)]


@pytest.mark.parametrize(
    ("kind", "function", "message"),
    [
        ("arrow", lambda _: pa.array([{"a": 1}]), "the function gives struct<a: int64>, not"),
        ("pandas", lambda frame: frame.iloc[:, :1], "DataFrame of 1 columns, not ROW"),
        ("pandas", lambda f: f.iloc[:, 0].map(lambda _: {"z": 1}), "has no field 'z'"),
    ],
)
def test_rows_of_other_fields_are_refused(kind: str, function: Any, message: str) -> None:
    env = with_function(udf(function, result_type="ROW<a INT, b STRING>", func_type=kind))
    with pytest.raises(UserFunctionError, match=message):
        rows(env, f"SELECT f(r) FROM ({_PAIRS})")


def test_pandas_sees_series() -> None:
    @udf(result_type="DOUBLE", func_type="pandas")
    def half(n: pd.Series, by: pd.Series) -> pd.Series:
        return n / by

    env = with_function(half)
    assert rows(env, f"SELECT f(n, 2) FROM {VALUES}") == [(0.5,), (None,), (1.5,)]


def test_arrow_sees_arrays() -> None:
    @udf(result_type="STRING", func_type="arrow")
    def shout(text: pa.Array) -> pa.Array:
        return pc.utf8_upper(text)

    env = with_function(shout)
    assert rows(env, f"SELECT f(s) FROM {VALUES}") == [("A",), ("B",), (None,)]


def test_a_function_of_columns_must_give_a_value_per_row() -> None:
    cut = udf(lambda text: text.slice(1), result_type="STRING", func_type="arrow", name="cut")
    with pytest.raises(UserFunctionError, match="The result length '2' of Arrow UDF"):
        rows(with_function(cut), f"SELECT f(s) FROM {VALUES}")


def test_an_exception_of_a_function_of_columns_names_the_expression() -> None:
    fails = udf(lambda text: text.nothing, result_type="STRING", func_type="arrow", name="fails")
    with pytest.raises(UserFunctionError, match=r"fails\(.*\) fails: AttributeError: .*nothing"):
        rows(with_function(fails), f"SELECT f(s) FROM {VALUES}")


class Waits(AsyncScalarFunction):
    """The later a row, the sooner its answer."""

    async def eval(self, n: int | None) -> int | None:
        for _ in range(0 if n is None else 5 - n):
            await asyncio.sleep(0)
        return n


def test_async_keeps_the_order_of_rows() -> None:
    env = with_function(udf(Waits, result_type="INT"))
    assert rows(env, f"SELECT f(n) FROM {VALUES}") == [(1,), (None,), (3,)]


def test_on_expressions_without_a_name() -> None:
    env = environment()
    table = env.from_elements([(1,), (2,)], ["n"])
    found = table.select(plus_hundred(col("n")).alias("m")).where(col("m") > 101)
    with found.execute().collect() as result:
        assert [tuple(row) for row in result if isinstance(row, Row)] == [(102,)]


def test_created_by_sql_and_dropped() -> None:
    env = environment()
    path = f"{__name__}.plus_hundred"
    env.execute_sql(f"CREATE TEMPORARY SYSTEM FUNCTION g AS '{path}' LANGUAGE PYTHON")
    assert env.list_user_defined_functions() == ["g"]
    env.execute_sql("CREATE FUNCTION wrong AS 'nowhere.at_all' LANGUAGE PYTHON")
    with pytest.raises(ValidationError, match=r"There is no function 'nowhere\.at_all'"):
        env.execute_sql("SELECT wrong(1)")
    assert env.drop_temporary_system_function("g")
    assert not env.drop_temporary_system_function("g")


def test_a_name_is_given_once() -> None:
    env = with_function(plus_hundred)
    with pytest.raises(CatalogError, match="does already exist"):
        env.create_temporary_function("f", plus_hundred)
    assert env.drop_temporary_function("f")
    env.create_temporary_function("f", plus_hundred)


def test_an_exception_names_expression_and_values() -> None:
    def fails(n: int) -> int:
        return 1 // (n - 3)

    env = with_function(udf(fails, result_type="INT"))
    query = f"SELECT f(n) FROM {VALUES} WHERE n IS NOT NULL"
    with pytest.raises(UserFunctionError, match=r"fails\(.*\) fails where .* = 3: .*division"):
        rows(env, query)


def test_a_wrong_result_names_its_type() -> None:
    env = with_function(udf(lambda n: "x", result_type="INT", name="wrong"))
    with pytest.raises(UserFunctionError, match=r"'x'.*does not fit INT"):
        rows(env, f"SELECT f(n) FROM {VALUES}")


def test_it_travels() -> None:
    copied = pickle.loads(cloudpickle.dumps(udf(lambda n: n, result_type="INT").definition))
    assert copied.name == "<lambda>"


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ProgramError, match="The func_type must be one of"):
        udf(repr, result_type="STRING", func_type="scala")
