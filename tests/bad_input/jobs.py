"""The job of the tests: rows from a collection, or any source, into one sink, epoch by epoch."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from millstream.common import Row, Types, WatermarkStrategy
from millstream.connectors.basic.collect import CollectSink
from millstream.connectors.basic.collection import CollectionSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.graph.validation import validate_connectors
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source
    from millstream.graph.model import JobGraph
    from millstream.types.types import TypeInformation

RESULT = Types.ROW_NAMED(["key", "n", "id"], [Types.STRING(), Types.LONG(), Types.LONG()])
#: The same with a number that is text, for what does not parse.
TEXTS = Types.ROW_NAMED(["key", "n", "id"], [Types.STRING(), Types.STRING(), Types.LONG()])
PER_EPOCH = 4
ROWS: list[Row] = [Row(key=f"k{i}", n=i, id=i) for i in range(3 * PER_EPOCH)]
#: Which of them is bad: the second of the second epoch.
BAD = PER_EPOCH + 1


def rows_with(bad: Row | None = None) -> list[Row]:
    """The rows, with a bad one in its place."""
    return [bad if bad is not None and i == BAD else row for i, row in enumerate(ROWS)]


def sink_graph(
    sink: Sink, rows: Sequence[object] = ROWS, kind: TypeInformation = RESULT, parallelism: int = 2
) -> JobGraph:
    """Rows into a sink whose uid is ``results-sink``."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    source = CollectionSource(rows, kind)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    stream.rebalance().sink_to(sink).name("results").uid("results-sink")
    return env.get_job_graph("bad-input")


def source_graph(source: Source, directory: Path) -> JobGraph:
    """A source whose uid is ``rows``, into collected values."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    stream.sink_to(CollectSink(directory, fsync=False)).uid("collected")
    return env.get_job_graph("bad-input")


def submit(graph: JobGraph) -> None:
    """What a driver does first."""
    validate_connectors(graph)


def run(graph: JobGraph, checkpoints: Path, epochs: int = 100) -> None:
    """Take the job over, and run it to its end or for some epochs."""
    # The planner gives each subtask a share of the limit, and the one split is read in one.
    parallelism = max(node.parallelism for node in graph.nodes.values())
    cluster = MiniCluster(graph, checkpoints, limits=itertools.repeat(PER_EPOCH * parallelism))
    try:
        cluster.run(epochs)
    finally:
        cluster.coordinator.close()
        for node in graph.nodes.values():
            if node.source is not None:
                node.source.stop()
