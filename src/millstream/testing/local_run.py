"""``run_and_collect(stream)``: run a bounded program without Spark and return its records.

It runs on ``MiniCluster``: the same tasks, exchange, checkpoints and commits as on Spark.  The seed
decides where checkpoints fall, in which order tasks run and which instances are lost; none of it
may change a result.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.errors import ProgramError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream

__all__ = ["ManualClock", "run_and_collect"]


class ManualClock:
    """Processing time that stands still until it is told to move.

    For ``MiniCluster(..., clock=ManualClock())``.

    Args:
        now: milliseconds.
    """

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, milliseconds: int) -> None:
        """Let time pass."""
        self.now += milliseconds


def run_and_collect(
    *streams: DataStream,
    records_per_epoch: int | None = None,
    seed: int = 0,
    clock: ManualClock | None = None,
) -> list[list[object]]:
    """Run the program that streams belong to until it ends, and return their records.

    Args:
        streams: of one environment; its sources must be bounded.
        records_per_epoch: cut epochs after so many records of a source; None: as on Spark.
        seed: shuffles the order of tasks, and which of them go on in a fresh instance.
        clock: processing time; the system's if None.

    Returns:
        For each stream its records, in order of epoch and subtask.

    Raises:
        ProgramError: no stream was given, or the program has not ended.
        MillstreamError: what the program raises; there are no restarts.
    """
    if not streams:
        message = "run_and_collect() needs a stream whose records are wanted"
        raise ProgramError(message)
    env = streams[0].get_execution_environment()
    with tempfile.TemporaryDirectory(prefix="millstream-run-") as directory:
        places = [Path(directory) / f"stream-{number}" for number in range(len(streams))]
        for stream, place in zip(streams, places, strict=True):
            stream.sink_to(CollectSink(place, fsync=False))
        limits = itertools.repeat(records_per_epoch) if records_per_epoch else ()
        graph = env.get_job_graph("run_and_collect")
        cluster = MiniCluster(
            graph, Path(directory) / "checkpoints", limits=limits, seed=seed, clock=clock
        )
        last = cluster.run()
        cluster.coordinator.close()
        if last is None or not last.final:
            message = "the program has not ended: a source of it waits for more records"
            raise ProgramError(message)
        return [list(read_collected(place)) if place.exists() else [] for place in places]
