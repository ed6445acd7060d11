"""Peer: Spark's ``transformWithState`` in Python, running count per key, one output per record.

Run by ``bench/run.py``.  The variant over pandas data frames is used: it was faster than the one
over rows (see the figures in ``docs/benchmarks.md``).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from bench.spark_peer import run_peer
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle


class _CountFrames(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ANN401 - what the key columns hold
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ANN401, ARG002, N803
    ) -> Iterator[Any]:
        state = self._count.get()
        count = state[0] if state else 0
        for frame in rows:
            size = len(frame)
            yield pd.DataFrame({"key": key[0], "count": np.arange(count + 1, count + size + 1)})
            count += size
        self._count.update((count,))

    def close(self) -> None:
        """Nothing to close."""


class _CountRows(_CountFrames):
    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ANN401 - what the key columns hold
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ANN401, ARG002, N803
    ) -> Iterator[Any]:
        state = self._count.get()
        count = state[0] if state else 0
        for _ in rows:
            count += 1
            yield Row(key=key[0], count=count)
        self._count.update((count,))


def _running_count(events: DataFrame) -> DataFrame:
    grouped = events.groupBy("key")
    if os.environ.get("BENCH_TWS") == "rows":
        return grouped.transformWithState(_CountRows(), "key long, count long", "Append", "None")
    return grouped.transformWithStateInPandas(
        _CountFrames(), "key long, count long", "Append", "None"
    )


if __name__ == "__main__":
    run_peer(_running_count)
