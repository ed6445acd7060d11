"""The workloads of SQL as Millstream programs, with statements alone.

What it is: one query per workload over the events of ``bench/data.py``, on the same engine and with
the same options as the programs of ``bench/millstream_jobs.py``.  What is only added to is
written to Parquet files, which are checked; changelogs, and what Flink is compared with, go into a
blackhole, and a second run, which is not measured, writes their changes to be checked.

Run by ``bench/run.py``.  Read next: ``bench/peer_spark_sql.py``.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from bench.data import Dataset
from bench.measure import Outcome, add_measurement_arguments, steady_rate
from bench.millstream_jobs import (
    FIRST_EPOCH,
    INTERVALS,
    OPTIONS,
    batches_of,
    manifests_of,
    new_environment,
)
from bench.spark_session import start_session, warm_up_dataset
from bench.sql_check import write_changes
from bench.sql_queries import APPENDED, TIME, WATERMARK, WORKLOADS

from millstream.common import Types, WatermarkStrategy
from millstream.datastream.connectors.file_system import FileSource
from millstream.table import Schema, StreamTableEnvironment

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.datastream import StreamExecutionEnvironment

#: Epochs over CSV are cut by bytes.
_LINE_BYTES: Final = 25


def _is_checked(arguments: argparse.Namespace) -> bool:
    return arguments.workload in APPENDED and arguments.sink == "parquet" and not arguments.csv


def _tables(
    dataset: Dataset, scratch: Path, arguments: argparse.Namespace, limit: int
) -> tuple[StreamExecutionEnvironment, StreamTableEnvironment]:
    """Where ``events`` is a table; ``limit`` is how many rows the first epoch reads."""
    environment = new_environment(scratch, arguments.execution)
    tables = StreamTableEnvironment.create(environment)
    schema = Types.ROW_NAMED(["key", "value", "ts"], [Types.LONG()] * 3)
    if arguments.csv:
        source = FileSource.csv(str(dataset.ensure_csv()), schema=schema, header=False)
        limit *= _LINE_BYTES
    else:
        source = FileSource.parquet(str(dataset.ensure()), schema=schema)
    source.initial_limit = limit
    events = environment.from_source(source, WatermarkStrategy.no_watermarks(), "events")
    described = (
        Schema.new_builder()
        .column("key", "BIGINT")
        .column("value", "BIGINT")
        .column("ts", "BIGINT")
        .column_by_expression("t", TIME)
        .watermark("t", WATERMARK)
        .build()
    )
    tables.create_temporary_view("events", events.uid("events"), described)
    if arguments.mini_batch:
        tables.execute_sql("SET 'table.exec.mini-batch.enabled' = 'true'")
    return environment, tables


def _run(
    workload: str, dataset: Dataset, scratch: Path, arguments: argparse.Namespace, limit: int
) -> None:
    """Run a workload to its end; ``limit`` is how many rows the first epoch reads."""
    _, tables = _tables(dataset, scratch, arguments, limit)
    columns, query = WORKLOADS[workload]
    place = "'connector' = 'blackhole'"
    if _is_checked(arguments):
        path = scratch / "output"
        place = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet'"
    tables.execute_sql(f"CREATE TABLE answer ({columns}) WITH ({place})")
    tables.execute_sql(f"INSERT INTO answer {query}").wait()


def _write_output(dataset: Dataset, arguments: argparse.Namespace, limit: int) -> Path:
    """Run the workload again, not measured, and keep its changes to be checked."""
    scratch: Path = arguments.scratch / "check"
    environment, tables = _tables(dataset, scratch, arguments, limit)
    write_changes(tables, arguments.workload, scratch / "output")
    environment.execute("check")
    return scratch / "output"


def main() -> None:
    """Run one workload and save its outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", choices=sorted(WORKLOADS), required=True)
    parser.add_argument("--mini-batch", action="store_true")
    parser.add_argument("--csv", action="store_true", help="as Flink reads them")
    add_measurement_arguments(parser)
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
    if _is_checked(arguments):
        outcome.output = str(scratch / "output")
    elif arguments.sink == "parquet":
        outcome.output = str(_write_output(dataset, arguments, limit))
    outcome.save(arguments.report)


if __name__ == "__main__":
    main()
