"""The workloads of SQL as Millstream programs, with statements alone.

What it is: one query per workload over the events of ``bench/data.py``, on the same engine and with
the same options as the programs of ``bench/millstream_jobs.py``.  What is only added to is
written to Parquet files, which are checked; changelogs go into a blackhole.

Run by ``bench/run.py``.  Read next: ``bench/peer_spark_sql.py``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from bench.data import MAX_OUT_OF_ORDERNESS_MS, Dataset
from bench.measure import Outcome, steady_rate
from bench.millstream_jobs import (
    FIRST_EPOCH,
    INTERVALS,
    OPTIONS,
    batches_of,
    manifests_of,
    new_environment,
)
from bench.spark_session import start_session, warm_up_dataset

from millstream.common import Types, WatermarkStrategy
from millstream.datastream.connectors.file_system import FileSource
from millstream.table import Schema, StreamTableEnvironment

_COUNTS: Final = "n BIGINT, total BIGINT"
_WINDOWS: Final = (
    "SELECT `key`, CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) AS "
    "BIGINT) * 1000, COUNT(*), SUM(`value`) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(t), "
    "INTERVAL '10' SECOND)) GROUP BY `key`, window_start, window_end"
)
_AGGREGATE: Final = "SELECT `key`, COUNT(*), SUM(`value`) FROM events GROUP BY `key`"
_FILTER: Final = "SELECT `key`, `value` * 3, ts FROM events WHERE MOD(`value`, 2) = 0"
#: Those whose result is only added to, so that it can be written to files.
_APPENDED: Final = ("filter", "windows")
#: The columns of the result, and the query.
_WORKLOADS: Final = {
    "filter": ("`key` BIGINT, `value` BIGINT, ts BIGINT", _FILTER),
    "aggregate": (f"`key` BIGINT, {_COUNTS}", _AGGREGATE),
    "windows": (f"`key` BIGINT, `start` BIGINT, {_COUNTS}", _WINDOWS),
}


def _run(
    workload: str, dataset: Dataset, scratch: Path, arguments: argparse.Namespace, limit: int
) -> None:
    """Run a workload to its end; ``limit`` is how many rows the first epoch reads."""
    environment = new_environment(scratch, arguments.execution)
    tables = StreamTableEnvironment.create(environment)
    schema = Types.ROW_NAMED(["key", "value", "ts"], [Types.LONG()] * 3)
    source = FileSource.parquet(str(dataset.ensure()), schema=schema)
    source.initial_limit = limit
    events = environment.from_source(source, WatermarkStrategy.no_watermarks(), "events")
    described = (
        Schema.new_builder()
        .column("key", "BIGINT")
        .column("value", "BIGINT")
        .column("ts", "BIGINT")
        .column_by_expression("t", "CAST(TO_TIMESTAMP_LTZ(ts, 3) AS TIMESTAMP(3))")
        .watermark("t", f"t - INTERVAL '{MAX_OUT_OF_ORDERNESS_MS / 1_000}' SECOND")
        .build()
    )
    tables.create_temporary_view("events", events.uid("events"), described)
    columns, query = _WORKLOADS[workload]
    place = "'connector' = 'blackhole'"
    if workload in _APPENDED and arguments.sink == "parquet":
        path = scratch / "output"
        place = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet'"
    tables.execute_sql(f"CREATE TABLE answer ({columns}) WITH ({place})")
    if arguments.mini_batch:
        tables.execute_sql("SET 'table.exec.mini-batch.enabled' = 'true'")
    tables.execute_sql(f"INSERT INTO answer {query}").wait()


def main() -> None:
    """Run one workload and save its outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", choices=sorted(_WORKLOADS), required=True)
    parser.add_argument("--mini-batch", action="store_true")
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--sink", choices=["parquet", "discard"], default="parquet")
    parser.add_argument("--execution", choices=sorted(INTERVALS), default="epochs")
    arguments = parser.parse_args()
    scratch: Path = arguments.scratch
    dataset = Dataset(arguments.events, arguments.keys, arguments.files)
    start_session("millstream", scratch, OPTIONS)
    warm_up = warm_up_dataset(dataset)
    limit = warm_up.events // warm_up.files
    _run(arguments.workload, warm_up, scratch / "warm-up", arguments, limit)
    limit = min(FIRST_EPOCH, arguments.events // 8)
    _run(arguments.workload, dataset, scratch, arguments, limit)
    batches = batches_of(manifests_of(scratch))
    outcome = Outcome(rows=sum(batch.rows for batch in batches), batches=batches)
    outcome.rows_per_second = steady_rate(batches)
    if arguments.workload in _APPENDED and arguments.sink == "parquet":
        outcome.output = str(scratch / "output")
    outcome.save(arguments.report)


if __name__ == "__main__":
    main()
