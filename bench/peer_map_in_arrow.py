"""Peer: Spark's ``mapInArrow`` that calls the Python functions of the workload per record.

Run by ``bench/run.py``.  Columns become tuples by ``zip`` and back, the fastest way that was
found in plain Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from bench.functions import is_even, triple
from bench.spark_peer import run_peer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

_NAMES = ["key", "value", "ts"]


def _call_functions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        # Without nulls numpy makes Python integers several times faster than pyarrow.
        columns = [column.to_numpy().tolist() for column in batch.columns]
        events = list(filter(is_even, map(triple, zip(*columns, strict=True))))
        if events:
            arrays = [pa.array(column, pa.int64()) for column in zip(*events, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=_NAMES)


def _map_and_filter(events: DataFrame) -> DataFrame:
    return events.mapInArrow(_call_functions, "key long, value long, ts long")


if __name__ == "__main__":
    run_peer(_map_and_filter)
