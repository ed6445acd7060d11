"""Peer: Spark's streaming SQL, as in ``bench/sql_jobs.py`` where Spark can do it.

What it is: a filter, a count and sum per key in update mode (whose result is dropped: files take no
updates), and count and sum per key and 10 s tumbling window in append mode.

Run by ``bench/run.py``.  Windows that the last watermark leaves open are never emitted.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bench.data import MAX_OUT_OF_ORDERNESS_MS, WINDOW_MS
from bench.spark_peer import run_peer
from pyspark.sql import functions as F  # noqa: N812 - its usual name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _windows(events: DataFrame) -> DataFrame:
    windowed = (
        events.withColumn("time", F.timestamp_millis("ts"))
        .withWatermark("time", f"{MAX_OUT_OF_ORDERNESS_MS} milliseconds")
        .groupBy("key", F.window("time", f"{WINDOW_MS} milliseconds"))
        .agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    )
    start = F.unix_millis(F.col("window.start")).alias("start")
    return windowed.select("key", start, "n", "total")


def _filter(events: DataFrame) -> DataFrame:
    return events.where("value % 2 = 0").selectExpr("key", "value * 3 AS value", "ts")


def _aggregate(events: DataFrame) -> DataFrame:
    return events.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


_VARIANTS = {"windows": _windows, "filter": _filter, "aggregate": _aggregate}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=sorted(_VARIANTS), default="windows")
    variant = parser.parse_known_args()[0].variant
    run_peer(_VARIANTS[variant], mode="update" if variant == "aggregate" else "append")
