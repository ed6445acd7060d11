"""What the three Spark peers share: the session, the input stream, and timing by micro-batch.

What it is: Structured Streaming set up as its documentation recommends for speed: RocksDB with
changelog checkpointing where there is state, two shuffle partitions for two cores, Arrow on.
When a micro-batch ended is taken from ``query.recentProgress``.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING

from bench.data import Dataset
from bench.measure import Batch, Outcome, add_measurement_arguments, steady_rate
from bench.spark_session import start_session, warm_up_dataset

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["run_peer"]

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


_OPTIONS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Let one small file be read by both cores.
    "spark.sql.files.openCostInBytes": "0",
    "spark.sql.files.minPartitionNum": "2",
}


def _finished(progress: dict[str, object]) -> float:
    started = datetime.fromisoformat(str(progress["timestamp"]))
    durations = progress["durationMs"]
    assert isinstance(durations, dict)
    return started.timestamp() + float(durations["triggerExecution"]) / 1_000


def _batches(query: StreamingQuery) -> list[Batch]:
    progress = [dict(entry) for entry in query.recentProgress]
    return [
        Batch(int(str(entry["numInputRows"])), _finished(entry))
        for entry in progress
        if entry["numInputRows"]
    ]


def run_peer(
    build: Callable[[DataFrame], DataFrame], *, files_per_batch: int = 2, mode: str = "append"
) -> None:
    """Run ``build`` over the data set of the command line and report its rate by micro-batch.

    Args:
        build: makes the result stream from the stream of events.
        mode: Spark's output mode; what is not appended is dropped, for files take no updates.
        files_per_batch: how many input files make one micro-batch: two are faster than one, and
            are 500,000 events, about as many as Millstream reads in a later epoch.
    """
    parser = argparse.ArgumentParser()
    add_measurement_arguments(parser)
    parser.add_argument("--files-per-batch", type=int, default=files_per_batch)
    # A peer may have options of its own.
    arguments, _ = parser.parse_known_args()
    dataset = Dataset(arguments.events, arguments.keys, arguments.files)
    scratch: Path = arguments.scratch
    writes_files = arguments.sink == "parquet" and mode == "append"
    session = start_session("peer", scratch, _OPTIONS)

    def run(dataset: Dataset, place: Path, files: int) -> list[Batch]:
        events = (
            session.readStream.schema("key long, value long, ts long")
            .option("maxFilesPerTrigger", files)
            .parquet(str(dataset.ensure()))
        )
        writer = build(events).writeStream.trigger(availableNow=True).outputMode(mode)
        writer = writer.option("checkpointLocation", str(place / "checkpoint"))
        if writes_files:
            query = writer.format("parquet").option("path", str(place / "output")).start()
        else:
            query = writer.format("noop").start()
        query.awaitTermination()
        return _batches(query)

    run(warm_up_dataset(dataset), scratch / "warm-up", 1)
    batches = run(dataset, scratch, arguments.files_per_batch)
    output = scratch / "output"
    session.stop()
    rows = sum(batch.rows for batch in batches)
    written = str(output) if writes_files else ""
    Outcome(steady_rate(batches), rows, batches, written).save(arguments.report)
