"""The check of the benchmark's statements: it takes what is right, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.check import CheckFailedError, check
from bench.data import Dataset
from bench.sql_check import QUERIES, write_changes
from bench.sql_queries import TIME, WATERMARK

from millstream.common import Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSource
from millstream.table import Schema, StreamTableEnvironment
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

_EVENTS = Dataset(3_000, 40, 2)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", sorted(QUERIES))
def test_changes_of_a_workload(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_BENCH_DATA", str(tmp_path / "data"))
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    tables = StreamTableEnvironment.create(env)
    row = Types.ROW_NAMED(["key", "value", "ts"], [Types.LONG()] * 3)
    source = FileSource.parquet(str(_EVENTS.ensure()), schema=row)
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events")
    schema = Schema.new_builder()
    for name in ("key", "value", "ts"):
        schema.column(name, "BIGINT")
    schema.column_by_expression("t", TIME).watermark("t", WATERMARK)
    tables.create_temporary_view("events", events, schema.build())
    out = tmp_path / "out"
    write_changes(tables, kind.removeprefix("sql_"), out)
    MiniCluster(env.get_job_graph(), tmp_path / "state", limits=iter([1_000] * 100)).run()
    assert check(kind, _EVENTS, out, closed_only=False) > 0
    _assert_it_notices(kind, out)


def _assert_it_notices(kind: str, out: Path) -> None:
    """A change that is lost, and one that comes twice, and another number in the last column."""
    file = next(path for path in sorted(out.rglob("*.parquet")) if pq.read_metadata(path).num_rows)
    right = pq.read_table(file)
    last = right.num_columns - 1
    other = pa.array([right.column(last)[0].as_py() + 1, *right.column(last).to_pylist()[1:]])
    wrong = [
        right.slice(1),
        pa.concat_tables([right, right.slice(0, 1)]),
        right.set_column(last, right.schema.field(last), other),
    ]
    for table in wrong:
        pq.write_table(table, file)
        with pytest.raises(CheckFailedError, match="differs from DuckDB"):
            check(kind, _EVENTS, out, closed_only=False)
