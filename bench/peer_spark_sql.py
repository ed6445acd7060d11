"""Peer: Spark's streaming SQL, 10 s tumbling windows with count and sum per key, append mode.

Run by ``bench/run.py``.  Windows that the last watermark leaves open are never emitted.
"""

from __future__ import annotations

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


if __name__ == "__main__":
    run_peer(_windows)
