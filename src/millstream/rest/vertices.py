"""Endpoints of vertices and their subtasks: times, records, watermarks, backpressure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.rest.metrics import index
from millstream.rest.overview import (
    EXECUTION_STATES,
    duration,
    execution_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.rest.view import JobView

#: Fractions of a second from which Flink calls a subtask backpressured.
_LOW, _HIGH = 0.1, 0.5
_PERCENTILES: Final = {"median": 0.5, "p25": 0.25, "p75": 0.75, "p95": 0.95}
#: In Flink's I/O metrics -> the metric.
_IO: Final = {
    "read-bytes": "numBytesIn",
    "write-bytes": "numBytesOut",
    "read-records": "numRecordsIn",
    "write-records": "numRecordsOut",
}
_TIMES: Final = {
    "accumulated-backpressured-time": "accumulateBackPressuredTimeMs",
    "accumulated-idle-time": "accumulateIdleTimeMs",
    "accumulated-busy-time": "accumulateBusyTimeMs",
}


def _io_metrics(value: Callable[[str], float | str | None]) -> dict[str, Any]:
    """Records, bytes and times; what is not measured is 0 and not complete."""
    found: dict[str, Any] = {}
    for name, metric in _IO.items():
        number = value(metric)
        found[name] = int(number) if isinstance(number, int | float) else 0
        found[f"{name}-complete"] = number is not None
    for name, metric in _TIMES.items():
        number = value(metric)
        found[name] = int(number) if isinstance(number, int | float) else 0
    return found


def vertex_summaries(job: JobView) -> list[dict[str, Any]]:
    """Return the vertices of a job as its details have them."""
    metrics = index(job)
    totals: dict[str, dict[str, float]] = {}
    for (vertex, _), values in metrics.subtasks.items():
        sums = totals.setdefault(vertex, {})
        for name in (*_IO.values(), *_TIMES.values()):
            value = values.get(name)
            if isinstance(value, int | float):
                sums[name] = sums.get(name, 0) + value
    state = execution_state(job)
    return [
        {
            "id": each.id,
            "name": each.name,
            "maxParallelism": each.max_parallelism,
            "parallelism": each.parallelism,
            "status": state,
            "start-time": job.history.started,
            "end-time": job.history.ended,
            "duration": duration(job),
            "tasks": {name: each.parallelism if name == state else 0 for name in EXECUTION_STATES},
            "metrics": _io_metrics(totals.get(each.id, {}).get),
        }
        for each in job.vertices
    ]
