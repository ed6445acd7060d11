"""How tasks spend their time: busy, idle, backpressured.

What it is: what slots report of each subtask (``SubtaskTimes``), by operator and under Flink's
names, and in a few words for the progress line.  The slowest task of a job is the one that is busy;
those in front of it are backpressured.

What it is not: the measurement (``runtime/pipelined/main_loop.py``).

Read next: ``execution/monitor.py``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from millstream.graph.stages import by_chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.graph.model import JobGraph
    from millstream.runtime.pipelined.messages import SubtaskTimes

    Times = Mapping[tuple[int, int], SubtaskTimes]

__all__ = ["describe_times", "gauges"]

#: Milliseconds per second from which backpressure is worth a word.
_NOTABLE: Final = 100.0
_METRICS: Final[dict[str, Callable[[SubtaskTimes], float]]] = {
    "busyTimeMsPerSecond": attrgetter("busy"),
    "idleTimeMsPerSecond": attrgetter("idle"),
    "backPressuredTimeMsPerSecond": attrgetter("backpressured"),
    "inputQueueSize": attrgetter("waiting"),
}


def gauges(graph: JobGraph, labels: Mapping[str, str], times: Times) -> dict[str, object]:
    """The times as gauges of each operator; those of one chain share theirs.

    Args:
        graph: the job.
        labels: what people are shown of operators, by uid.
        times: (stage, subtask) -> times.

    Returns:
        "operator.metric" -> subtask -> milliseconds of the last second, or bytes that wait for
        it, as those of functions; subtasks of which nothing is known are not in it.
    """
    found: dict[str, object] = {}
    for stage in by_chain(graph).stages:
        subtasks = {
            str(n): each for (number, n), each in sorted(times.items()) if number == stage.number
        }
        for node in stage.nodes if subtasks else ():
            uid = graph.nodes[node].uid
            for name, of in _METRICS.items():
                values = {number: round(of(each), 1) for number, each in subtasks.items()}
                found[f"{labels.get(uid, uid)}.{name}"] = values
    return found


def describe_times(graph: JobGraph, labels: Mapping[str, str], times: Times) -> str:
    """What is busiest, and what waits most for others; empty if nothing is known.

    A chain counts as its subtask that has most of it, and is called by its first operator.
    """
    stages = list(_stages(graph, labels, times))
    if not stages:
        return ""
    busy, name = max((busy, name) for name, busy, _ in stages)
    words = f"busy {name} {busy / 10:.0f} %"
    stuck, name = max((stuck, name) for name, _, stuck in stages)
    return f"{words}, backpressured {name} {stuck / 10:.0f} %" if stuck >= _NOTABLE else words


def _stages(
    graph: JobGraph, labels: Mapping[str, str], times: Times
) -> Iterator[tuple[str, float, float]]:
    """Name, busy, backpressured."""
    for stage in by_chain(graph).stages:
        subtasks = [each for (number, _), each in times.items() if number == stage.number]
        if subtasks:
            uid = graph.nodes[stage.nodes[0]].uid
            busy = max(each.busy for each in subtasks)
            yield labels.get(uid, uid), busy, max(each.backpressured for each in subtasks)
