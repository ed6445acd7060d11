"""The job of the kill tests of databases: a running count per key into one sink.

Run as ``python database_job.py KIND ADDRESS CHECKPOINTS``; in this process, without Spark.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Started as a program: ``tests`` is not on the path yet.
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.databases.targets import RESULT, TARGETS

from millstream.common import Row, Types
from millstream.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.sink import Sink
    from millstream.graph.model import JobGraph

RECORDS = 240
PER_EPOCH = 40
EVENT = Types.ROW_NAMED(["id", "key"], [Types.LONG(), Types.STRING()])


def events() -> list[object]:
    """The records, in the order in which they are read."""
    return [Row(id=i, key=f"key-{i * i % 13}") for i in range(RECORDS)]


def expected() -> list[tuple[str, int, int]]:
    """The rows (key, n, id) that the job writes."""
    rows = []
    counts: dict[str, int] = {}
    for event in events():
        assert isinstance(event, Row)
        counts[event.key] = counts.get(event.key, 0) + 1
        rows.append((event.key, counts[event.key], event.id))
    return sorted(rows)


class Count(KeyedProcessFunction):
    """Numbers the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield Row(key=value.key, n=count, id=value.id)


def job_graph(sink: Sink, parallelism: int = 2) -> JobGraph:
    """The job, with its results in ``sink``."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    stream = env.from_collection(events(), EVENT).uid("events")
    counts = stream.key_by(lambda row: row.key).process(Count(), RESULT).uid("counts")
    counts.sink_to(sink).uid("results-sink")
    return env.get_job_graph("databases")


def cluster(sink: Sink, checkpoints: Path, seed: int = 0) -> MiniCluster:
    """The job's run, up to recovery."""
    return MiniCluster(job_graph(sink), checkpoints, limits=itertools.repeat(PER_EPOCH), seed=seed)


if __name__ == "__main__":
    kind, address, directory = sys.argv[1:]
    target = TARGETS[kind](address)
    made = target.sink()
    made.validate()
    cluster(made, Path(directory)).run()
