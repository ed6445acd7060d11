"""Functions as PyFlink's programs register and declare them, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from tests.support.query_running import environment, materialised

from millstream.common import Row
from millstream.connectors.basic.collect import read_collected
from millstream.errors import ProgramError
from millstream.table import DataTypes
from millstream.table.data_view import MapView
from millstream.table.expressions import call, col
from millstream.table.udf import (
    AggregateFunction,
    ScalarFunction,
    TableAggregateFunction,
    udaf,
    udf,
    udtaf,
    udtf,
)
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from millstream.table import Table, TableEnvironment


class Total(AggregateFunction):
    """A sum that declares its types."""

    def create_accumulator(self) -> Any:
        return [0]

    def accumulate(self, accumulator: Any, value: int) -> None:
        accumulator[0] += value

    def retract(self, accumulator: Any, value: int) -> None:
        accumulator[0] -= value

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0]

    def get_accumulator_type(self) -> Any:
        return "ARRAY<BIGINT>"

    def get_result_type(self) -> Any:
        return DataTypes.SMALLINT()


class Both(TableAggregateFunction):
    """The smallest and the largest."""

    def create_accumulator(self) -> Any:
        return []

    def accumulate(self, accumulator: Any, value: int) -> None:
        accumulator.append(value)

    def emit_value(self, accumulator: Any) -> Iterable[Any]:
        yield Row(min(accumulator))
        yield Row(max(accumulator))

    def get_accumulator_type(self) -> Any:
        return DataTypes.ARRAY(DataTypes.BIGINT())

    def get_result_type(self) -> Any:
        return "ROW<edge BIGINT>"


class Spread(AggregateFunction):
    """Largest minus smallest, of Series: all rows at once."""

    def open(self, function_context: Any) -> None:
        self.factor = int(function_context.get_job_parameter("factor", "1"))

    def create_accumulator(self) -> Any:
        return []

    def accumulate(self, accumulator: Any, values: Any, factor: Any) -> None:
        assert isinstance(values, pd.Series)
        accumulator.append((values.max() - values.min()) * factor.iloc[0] * self.factor)

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0]

    def get_result_type(self) -> Any:
        return DataTypes.BIGINT()


def sample() -> tuple[TableEnvironment, Table]:
    env = environment(1)
    rows = [("a", 1), ("b", 5), ("a", 4)]
    return env, env.from_elements(rows, ["k", "v"])


def result(table: Table, directory: Path) -> Counter[tuple[Any, ...]]:
    session = table._environment.session
    end = session.collected(table.plan, str(directory))
    MiniCluster(session.program.graph_of([end], "test"), limits=iter([1] * 100)).run()
    return materialised(read_collected(directory))


@pytest.mark.both_engines
@pytest.mark.parametrize("given", [Total(), Total, udaf(Total())])
def test_an_aggregate_function_is_registered_as_it_is(given: Any, tmp_path: Path) -> None:
    env, table = sample()
    env.create_temporary_system_function("total", given)
    made = table.group_by(col("k")).select(col("k"), call("total", col("v")).alias("t"))
    assert made.get_resolved_schema().types[1] == DataTypes.SMALLINT()
    assert result(made, tmp_path) == Counter([("a", 5), ("b", 5)])


@pytest.mark.both_engines
def test_a_table_aggregate_function_is_registered_as_it_is(tmp_path: Path) -> None:
    env, table = sample()
    env.create_temporary_function("both", Both())
    assert "both" in env.list_user_defined_functions()
    made = table.group_by(col("k")).flat_aggregate(udtaf(Both())(col("v")))
    shown = made.select(col("k"), col("edge"))
    wanted = Counter([("a", 1), ("a", 4), ("b", 5), ("b", 5)])
    assert result(shown, tmp_path / "1") == wanted
    named = table.group_by(col("k")).flat_aggregate(call("both", col("v")).alias("e"))
    assert result(named.select(col("k"), col("e")), tmp_path / "2") == wanted


@pytest.mark.both_engines
def test_functions_of_rows_are_called_by_their_names(tmp_path: Path) -> None:
    env, table = sample()
    kind = "ROW<k STRING, v BIGINT>"
    env.create_temporary_system_function("next", udf(lambda k, v: Row(k, v + 1), result_type=kind))
    made = table.map(call("next", col("k"), col("v")))
    assert made.plan.row.names == ["k", "v"]
    assert result(made, tmp_path / "1") == Counter([("a", 2), ("b", 6), ("a", 5)])
    twice = udtf(lambda k: [Row(k, 1), Row(k, 2)], result_types=["STRING", "INT"])
    env.create_temporary_function("twice", twice)
    flat = table.flat_map(call("twice", col("k")))
    assert result(flat, tmp_path / "2") == Counter(
        {("a", 1): 2, ("a", 2): 2, ("b", 1): 1, ("b", 2): 1}
    )
    with pytest.raises(ProgramError, match=r"map\(\) takes a call of what udf"):
        table.map(call("upper", col("k")))


@pytest.mark.both_engines
def test_an_aggregate_function_of_pandas_is_a_class(tmp_path: Path) -> None:
    env, table = sample()
    env.get_config().set("pipeline.global-job-parameters", "factor:3")
    spread = udaf(Spread(), func_type="pandas")
    made = table.group_by(col("k")).select(col("k"), spread(col("v"), 10).alias("s"))
    assert result(made, tmp_path) == Counter([("a", 90), ("b", 0)])


@pytest.mark.both_engines
@pytest.mark.parametrize("kind", ["pandas", "arrow", "async"])
def test_map_takes_functions_of_columns_and_async_ones(kind: str, tmp_path: Path) -> None:
    _, table = sample()
    function: Any
    if kind == "async":

        async def later(k: str, v: int) -> Row:
            return Row(k * 2, v + 1)

        function = udf(later, result_type="ROW<k STRING, v BIGINT>")
    elif kind == "pandas":
        function = udf(
            lambda k, v: pd.DataFrame({"k": k * 2, "v": v + 1}),
            result_type="ROW<k STRING, v BIGINT>",
            func_type="pandas",
        )
    else:
        import pyarrow as pa
        import pyarrow.compute as pc

        function = udf(
            lambda k, v: pa.StructArray.from_arrays(
                [pc.binary_repeat(k, 2), pc.add(v, 1)], names=["k", "v"]
            ),
            result_type="ROW<k STRING, v BIGINT>",
            func_type="arrow",
        )
    made = table.map(function(col("k"), col("v"))).alias("x", "y")
    assert made.plan.row.names == ["x", "y"]
    assert result(made, tmp_path) == Counter([("aa", 2), ("bb", 6), ("aa", 5)])


def test_map_of_pandas_takes_whole_rows_as_frames(tmp_path: Path) -> None:
    env = environment(1)
    kind = DataTypes.ROW(
        [
            DataTypes.FIELD("a", DataTypes.INT()),
            DataTypes.FIELD(
                "b",
                DataTypes.ROW(
                    [
                        DataTypes.FIELD("c", DataTypes.INT()),
                        DataTypes.FIELD("d", DataTypes.INT()),
                    ]
                ),
            ),
        ]
    )
    table = env.from_elements([(1, Row(2, 3)), (4, Row(5, 6))], kind)

    def added(frame: pd.DataFrame) -> pd.DataFrame:
        # Fields of rows are columns of the frame, as in PyFlink.
        return pd.concat([frame.a, frame.c + frame.d], axis=1)

    function = udf(added, result_type="ROW<a BIGINT, cd BIGINT>", func_type="pandas")
    assert result(table.map(function), tmp_path / "1") == Counter([(1, 5), (4, 11)])
    one = udf(lambda frame: frame.a * 2, result_type="BIGINT", func_type="pandas")
    assert result(table.map(one), tmp_path / "2") == Counter([(2,), (8,)])
    total = udaf(lambda frame: int(frame.d.sum()), result_type="BIGINT", func_type="pandas")
    summed = table.aggregate(total.alias("n")).select(col("n"))
    assert result(summed, tmp_path / "3") == Counter([(9,)])


def test_a_function_of_pandas_gives_columns() -> None:
    _, table = sample()
    short = udf(lambda v: v[1:], result_type="BIGINT", func_type="pandas", name="short")
    with pytest.raises(Exception, match="The result length '2' of Pandas UDF '<lambda>'"):
        list(table.select(short(col("v"))).execute().collect())
    single = udf(lambda v: v.iloc[0], result_type="BIGINT", func_type="pandas")
    with pytest.raises(Exception, match=r"must be pandas\.Series or pandas\.DataFrame, got <class"):
        list(table.select(single(col("v"))).execute().collect())


class Settled(ScalarFunction):
    """A function that says that it is deterministic."""

    def eval(self, value: int) -> int:
        return value


class NoFunction:
    """Nothing that can be called."""


_WRONG: Any = NoFunction()
_NO_TYPE: Any = 1
_MAP = DataTypes.MAP(DataTypes.INT(), DataTypes.INT())


async def _later(value: int) -> int:
    return value


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: udf(Settled(), result_type="INT", func_type="none"),
            ValueError,
            "The func_type must be one of 'general, pandas', got none",
        ),
        (
            lambda: udf(func_type="none"),
            ValueError,
            "The func_type must be one of 'general, pandas', got none",
        ),
        (
            lambda: udaf(Total(), func_type="none"),
            ValueError,
            "The func_type must be one of 'general, pandas', got none",
        ),
        (
            lambda: udtaf(Both(), func_type="pandas"),
            ValueError,
            "The func_type must be 'general', got pandas",
        ),
        (
            lambda: udf(_later, result_type="INT", func_type="pandas"),
            ValueError,
            "Async scalar functions do not support pandas func_type",
        ),
        (
            lambda: udf(Settled(), result_type="INT", deterministic=False),
            ValueError,
            "Inconsistent deterministic: False and True",
        ),
        (
            lambda: udf(_WRONG, result_type="INT"),
            TypeError,
            "not a function or callable",
        ),
        (
            lambda: udtf(_WRONG, result_types="INT"),
            TypeError,
            "not a function or callable",
        ),
        (
            lambda: udf(Settled(), result_type=_NO_TYPE),
            TypeError,
            "Invalid returnType: returnType should be DataType or str but is 1",
        ),
        (
            lambda: udf(Settled(), input_types=[_NO_TYPE], result_type="INT"),
            TypeError,
            "Invalid input_type",
        ),
        (
            lambda: udaf(Total(), accumulator_type=_NO_TYPE),
            TypeError,
            "Invalid accumulator_type",
        ),
        (
            lambda: udaf(lambda v: v, result_type=_MAP, func_type="pandas"),
            TypeError,
            "Invalid returnType: Pandas UDAF doesn't support DataType type MAP",
        ),
        (lambda: udaf(_WRONG), TypeError, "has no create_accumulator"),
        (lambda: udaf(Total(), accumulator_type="NO TYPE"), ProgramError, "NO"),
    ],
)
def test_declarations_are_refused_with_the_errors_of_pyflink(
    make: Callable[[], Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as found:
        make()
    assert isinstance(found.value, ProgramError)


def test_a_function_has_its_name_and_whether_it_is_deterministic() -> None:
    settled = udf(Settled(), result_type="INT")
    assert (settled._name, settled._deterministic) == ("Settled", True)
    other = udf(lambda v: v, result_type="INT", deterministic=False, name="other")
    assert (other._name, other._deterministic) == ("other", False)


def test_iterators_over_map_views_remove() -> None:
    view: MapView[str, int] = MapView()
    view.put_all({"a": 1, "b": 2, "c": 3})
    keys: Any = iter(view.keys())
    with pytest.raises(ValueError, match="no entry to remove"):
        keys.remove()
    for key in keys:
        if key == "b":
            keys.remove()
    assert dict(view.items()) == {"a": 1, "c": 3}
    items: Any = iter(view.items())
    assert next(items) == ("a", 1)
    items.remove()
    assert list(view) == ["c"]
