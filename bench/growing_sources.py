"""What a driver's sources cost while nothing comes, as they grow, without Spark.

What it is: the planner of a job asked for data again and again, as Spark asks it, in this process.

``polled``: CPU seconds per second of asking, when so many splits are read to their end.
``discovered``: files in ``sources/`` after so many discoveries of one split each.
``idle``: CPU seconds per second of a whole job (``MiniCluster``) with so many splits, all of them
idle by ``with_idleness``.

Run by ``bench/run.py``.  Read next: ``bench/growing.py``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from bench.growing import growing_arguments
from bench.measure import Outcome

from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Types, WatermarkStrategy
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors import DiscardingSink
from millstream.execution import planner as planning
from millstream.execution.planned_source import PlannedSource, SplitLog
from millstream.execution.planner import SourcePlanner
from millstream.testing.mini_cluster import MiniCluster

try:
    from millstream.execution.planned_source import initial_offset
except ImportError:  # an older version
    initial_offset = planning.initial_offset  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.types.types import TypeInformation

__all__ = ["WORKLOADS"]

WORKLOADS: Final = ("polled", "discovered", "idle")

_SECONDS: Final = 5.0
_TICK: Final = 200
_IDLE_AFTER: Final = 500


class _Splits(Source):
    """Splits of one record each; complete, or such as may still grow."""

    def __init__(self, count: int, *, complete: bool) -> None:
        self.count = count
        self._complete = complete

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return Types.LONG()

    def discover(self, known: Any) -> list[Split]:
        if len(known) == self.count:
            return []
        names = (f"/data/incoming/part-{number:09d}.parquet" for number in range(self.count))
        return [Split(name) for name in names if name not in known]

    def end_offset(self, split: Split) -> int:
        del split
        return 1

    def is_final(self, split: Split) -> bool:
        del split
        return self._complete

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        del split
        yield SourceBatch(values=list(range(start, stop)))


def _planner(source: Source, directory: Path, wait: float) -> SourcePlanner:
    log = SplitLog(LocalStorage(directory, fsync=False))
    planned = PlannedSource("source", source, 1)
    return SourcePlanner([planned], log, target_seconds=1, tick_interval=None, wait_seconds=wait)


def _polled(splits: int, directory: Path) -> dict[str, float]:
    planner = _planner(_Splits(splits, complete=True), directory, 0.25)
    offset = initial_offset()
    while (stop := planner.latest_offset(offset)) != offset:
        planner.set_limit(2 * splits)
        offset = stop
    return _share(lambda: planner.latest_offset(offset))


def _discovered(splits: int, directory: Path) -> dict[str, float]:
    source = _Splits(0, complete=True)
    planner = _planner(source, directory, 0.0)
    offset = initial_offset()
    for number in range(1, splits + 1):
        source.count = number
        # The source's own listing is not what is measured.
        source.discover = lambda known, n=number: (  # type: ignore[method-assign,misc]
            [Split(f"/data/incoming/part-{n:09d}.parquet")] if len(known) < n else []
        )
        offset = planner.latest_offset(offset)
    files = sum(1 for path in directory.rglob("sources/source/*") if path.is_file())
    return {"seconds": files}


def _idle(splits: int, directory: Path) -> dict[str, float]:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(_IDLE_AFTER)
    stream = env.from_source(_Splits(splits, complete=False), strategy, "idle")
    stream.key_by(lambda number: number).reduce(lambda _, new: new).sink_to(DiscardingSink())
    cluster = MiniCluster(env.get_job_graph("idle"), directory, tick_interval=_TICK)
    until = time.monotonic() + 2 * _IDLE_AFTER / 1000 + 1
    while time.monotonic() < until:
        cluster.run_epoch()
    return _share(cluster.run_epoch)


def _share(ask: Any) -> dict[str, float]:
    """CPU seconds per second."""
    started, cpu = time.monotonic(), time.process_time()
    while time.monotonic() - started < _SECONDS:
        ask()
    seconds = time.monotonic() - started
    return {"cpu_seconds": (time.process_time() - cpu) / seconds}


def main() -> None:
    """Measure one quantity at one size and save the outcome."""
    arguments = growing_arguments(WORKLOADS)
    measure = {"polled": _polled, "discovered": _discovered, "idle": _idle}[arguments.workload]
    Outcome(figures=measure(arguments.size, arguments.scratch)).save(arguments.report)


if __name__ == "__main__":
    main()
