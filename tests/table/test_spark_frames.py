"""DataFrames of Spark in and out of tables, with a stand-in for Spark.

The real one is in ``tests/spark/test_sql.py``.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.query_running import environment

from millstream.errors import ProgramError, TypeMismatchError
from millstream.table import DataTypes

if TYPE_CHECKING:
    from millstream.table import TableEnvironment


class Frame:
    """A DataFrame whose rows are there."""

    isStreaming = False  # noqa: N815 - Spark's

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's
        return self._table


class Session:
    """Takes a table."""

    def createDataFrame(self, data: pa.Table) -> Frame:  # noqa: N802 - Spark's
        return Frame(data)


@pytest.fixture
def env() -> TableEnvironment:
    return environment(execution__target="local", millstream__progress="off")


_TABLE = pa.table(
    {
        "k": ["a", "b", None, "a"],
        "n": pa.array([1, 2, 3, 4], pa.int64()),
        "d": pa.array(
            [Decimal("1.50"), None, Decimal("2.25"), Decimal("0.25")], pa.decimal128(9, 2)
        ),
        "t": pa.array([n * 1_000_007 for n in range(4)], pa.timestamp("us")),
        "at": pa.array([n * 1_000_000 for n in range(4)], pa.timestamp("us", "UTC")),
        "xs": [[1], [], None, [2, 3]],
        "s": [{"x": 1}, {"x": None}, None, {"x": 4}],
    }
)


def test_rows_of_a_frame_come_in_and_go_out_as_they_are(env: TableEnvironment) -> None:
    halves = pa.concat_tables([_TABLE.slice(0, 1), _TABLE.slice(1)])
    table = env.from_spark(Frame(halves))
    out: Any = table.to_spark(Session())
    assert out.toArrow().to_pylist() == _TABLE.to_pylist()
    assert out.toArrow().schema.types == _TABLE.schema.types
    empty: Any = env.from_spark(Frame(_TABLE.slice(0, 0))).to_spark(Session())
    assert empty.toArrow().num_rows == 0


def test_the_rows_at_the_end_go_out(env: TableEnvironment) -> None:
    env.create_temporary_view(
        "f", env.from_spark(Frame(_TABLE), ["k", "n", "d", "t", "at", "x", "s"])
    )
    query = "SELECT k, SUM(n) AS n FROM f GROUP BY k"
    out: Any = env.sql_query(query).to_spark(Session())
    rows = sorted(map(tuple, (row.values() for row in out.toArrow().to_pylist())), key=str)
    assert rows == [("a", 5), ("b", 2), (None, 3)]


def test_what_is_no_frame_or_no_type_of_spark_is_refused(env: TableEnvironment) -> None:
    with pytest.raises(ProgramError, match="takes a DataFrame of Spark"):
        env.from_spark([1, 2])
    streaming = Frame(_TABLE)
    streaming.isStreaming = True
    with pytest.raises(ProgramError, match="takes a DataFrame whose rows are there"):
        env.from_spark(streaming)
    for value in (
        "TIME '10:00:00'",
        "INTERVAL '1' YEAR",
        "ARRAY[INTERVAL '1' DAY]",
        "ROW(1, MAP[1, TIME '10:00:00'])",
    ):
        with pytest.raises(ProgramError, match=r"'c' .* has no type of Spark's; cast it"):
            env.sql_query(f"SELECT {value} AS c").to_spark(Session())
    with pytest.raises(ProgramError, match=r"the schema has columns \['k'\], the rows have"):
        env.from_spark(Frame(_TABLE), ["k"])
    tiny = DataTypes.ROW([DataTypes.FIELD("n", DataTypes.TINYINT())])
    with pytest.raises(TypeMismatchError, match=r"'n' cannot be TINYINT: .*300"):
        env.from_spark(Frame(pa.table({"n": [300]})), tiny)
    with pytest.raises(ProgramError, match="the schema has columns"):
        env.from_spark(Frame(_TABLE), tiny)
