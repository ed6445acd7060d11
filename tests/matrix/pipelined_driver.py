"""The job of the crash matrix on slots of this machine: as a program for ``run_forked``.

Run as ``python pipelined_driver.py KIND ADDRESS CHECKPOINTS [unaligned]``.  Each key is in one of
two splits, one of which is slower, so that barriers of one checkpoint come at different times;
``unaligned`` lets tasks go on behind the first of them.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from tests.databases.database_job import EVENT, Count
from tests.databases.targets import RESULT
from tests.integration.job_runs import SplitsSource
from tests.matrix.matrix_driver import events
from tests.matrix.matrix_targets import make_target

from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.runtime.pipelined.links import InLink

if TYPE_CHECKING:
    from tests.matrix.matrix_targets import MatrixTarget

    from millstream.common import Row
    from millstream.contracts.source import Split

#: Squares modulo 13 below it are of the slow split's keys.
HALF = 5


class _InPieces(SplitsSource):
    """Gives a few records at a time, so that barriers come between them."""

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        return super().next_stop(split, start, min(limit, 2), end)


def _is_slow(row: Row) -> bool:
    number: int = row.id
    return number * number % 13 < HALF


def _slowly(row: Row) -> bool:
    """Takes its time, so that there are several checkpoints."""
    time.sleep(0.012 if _is_slow(row) else 0.003)
    return True


def environment(
    target: MatrixTarget, checkpoints: str, settings: dict[str, str], *, regions: int = 1
) -> StreamExecutionEnvironment:
    """The job.

    Args:
        target: where it writes.
        checkpoints: the directory of its checkpoints.
        settings: further ones.
        regions: 2: each split, with its keys, is read and counted by a pipeline of its own.
    """
    configuration = Configuration()
    for key, value in {
        "execution.target": "local",
        "millstream.execution": "pipelined",
        "execution.checkpointing.dir": checkpoints,
        "execution.checkpointing.interval": "20 ms",
        "parallelism.default": "2",
        # A sink that commits slowly commits one checkpoint while the next is written.
        "execution.checkpointing.max-concurrent-checkpoints": "2",
        **settings,
    }.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    splits = [[row for row in events() if _is_slow(row) == slow] for slow in (False, True)]
    for number in range(regions):
        _add_pipeline(env, target, splits[number::regions], str(number) if number else "")
    return env


def _add_pipeline(
    env: StreamExecutionEnvironment, target: MatrixTarget, splits: list[list[Row]], name: str
) -> None:
    source = _InPieces(splits, EVENT)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "events")
    stream = stream.uid(f"events{name}").filter(_slowly).uid(f"slowly{name}")
    counts = stream.key_by(lambda row: row.key).process(Count(), RESULT).uid(f"counts{name}")
    for number, sink in enumerate(target.sinks()):
        counts.sink_to(sink).uid(f"sink{name}-{number}")


def main(
    kind: str,
    address: str,
    checkpoints: str,
    alignment: str = "aligned",
    execution: str = "pipelined",
) -> None:
    """Run the job to its end."""
    if alignment == "unaligned":
        # Slots are forked from this process.
        setattr(InLink, "is_ready", property(lambda link: bool(link.frames)))  # noqa: B010
    settings = {"restart-strategy.type": "none", "millstream.execution": execution}
    environment(make_target(kind, address), checkpoints, settings).execute("matrix")


if __name__ == "__main__":
    main(*sys.argv[1:])
