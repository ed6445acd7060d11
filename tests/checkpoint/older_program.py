"""The program whose checkpoint of format 1 is kept in ``format-1``, with windows still open.

What it is: built by the tests that restore the checkpoint.  ``python -m
tests.checkpoint.older_program DIRECTORY`` wrote it, with the code of commit 7975c3f.

What it is not: to be changed; what is kept was made of it as it is.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.job_runs import SplitsSource, collect, environment, event_time

from millstream.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

#: (key, value, timestamp).
EVENTS = [("abc"[number % 3], number, number * 10) for number in range(60)]
#: Records per epoch and subtask before the checkpoint; the last epoch ends no window, so that no
#: output of it, whose path is in the manifest, is to be committed again.
CUTS = (31, 5)


class Running(KeyedProcessFunction):
    """Adds up the sums of the windows of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total"))

    def process_element(
        self, value: tuple[str, int, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, int, int]]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], value[1], total


def build(parallelism: int, results: Path) -> StreamExecutionEnvironment:
    """The program; its sink writes to ``results``."""
    env = environment(parallelism)
    source = SplitsSource([EVENTS])
    events = env.from_source(source, event_time(0), "events").uid("events")
    sums = (
        events.key_by(lambda event: event[0])
        .window(TumblingEventTimeWindows.of(100))
        .reduce(lambda one, other: (one[0], one[1] + other[1], other[2]))
        .uid("sums")
    )
    running = sums.key_by(lambda each: each[0]).process(Running()).uid("running")
    collect(running, results)
    return env


def expected() -> list[tuple[str, int, int]]:
    """All results, by plain Python."""
    sums: dict[tuple[int, str], int] = {}
    for key, value, stamp in EVENTS:
        sums[stamp // 100, key] = sums.get((stamp // 100, key), 0) + value
    totals: dict[str, int] = {}
    found = []
    for (_, key), value in sorted(sums.items()):
        totals[key] = totals.get(key, 0) + value
        found.append((key, value, totals[key]))
    return found


if __name__ == "__main__":
    root = Path(sys.argv[1])
    graph = build(2, root / "results").get_job_graph("older")
    limits = [2 * cut for cut in CUTS]
    MiniCluster(graph, root / "checkpoint", limits=limits).run(2)
    shutil.rmtree(root / "checkpoint" / "local")
