"""What rows of results and streams look like to a program: with names, or without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment

from millstream.common import Configuration, Row, RowKind, Types
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment
from millstream.table.expressions import col
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.types.types import TypeInformation


def test_collected_rows_have_no_names_and_equal_plain_rows() -> None:
    env = environment()
    query = "SELECT 1 AS a, ROW(2, 'x') AS r, MAP['k', ROW(1, 2)] AS m, ARRAY[ROW(3, 'z')] AS l"
    found = list(env.execute_sql(query).collect())
    assert found == [Row(1, Row(2, "x"), {"k": Row(1, 2)}, [Row(3, "z")])]
    assert str(found[0]) == "<Row(1, <Row(2, 'x')>, {'k': <Row(1, 2)>}, [<Row(3, 'z')>])>"


def test_collected_rows_keep_their_kinds() -> None:
    env = environment()
    table = env.from_elements([("a", 1), ("a", 2)], ["k", "v"])
    sums = table.group_by(col("k")).select(col("k"), col("v").sum.alias("s"))
    expected = [
        Row("a", 1),
        Row.of_kind(RowKind.UPDATE_BEFORE, "a", 1),
        Row.of_kind(RowKind.UPDATE_AFTER, "a", 3),
    ]
    assert list(sums.execute().collect()) == expected


@pytest.mark.both_engines
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Types.ROW([Types.STRING(), Types.LONG()]), Row(f0="a", f1=3)),
        (Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()]), Row(k="a", n=3)),
        (Types.TUPLE([Types.STRING(), Types.LONG()]), ("a", 3)),
    ],
)
def test_retractions_have_the_names_of_their_type(
    kind: TypeInformation, value: Any, tmp_path: Path
) -> None:
    stream_env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env = StreamTableEnvironment.create(stream_env)
    table = env.from_elements([("a", 3)], ["k", "v"])
    sums = table.group_by(col("k")).select(col("k"), col("v").sum.alias("s"))
    env.to_retract_stream(sums, kind).sink_to(CollectSink(str(tmp_path)))
    MiniCluster(stream_env.get_job_graph("test")).run()
    found: list[Any] = list(read_collected(tmp_path))
    ((added, row),) = found
    assert added is True
    assert row == value


def test_floats_have_their_fewest_digits_as_in_pyflink() -> None:
    env = environment()
    f = "CAST(0.1 AS FLOAT)"
    query = (
        f"SELECT {f}, ARRAY[{f}], ROW({f}), MAP['a', {f}], CAST(NULL AS FLOAT), CAST(0.1 AS DOUBLE)"
    )
    with env.execute_sql(query).collect() as rows:
        assert list(rows) == [Row(0.1, [0.1], Row(0.1), {"a": 0.1}, None, 0.1)]
