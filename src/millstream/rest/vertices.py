"""The details of a job: status, times, and what its vertices have processed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.rest.app import Call, Endpoint
from millstream.rest.metrics import index
from millstream.rest.overview import (
    EXECUTION_STATES,
    JOB_STATES,
    duration,
    execution_state,
    now,
    plan,
    type_of,
)
from millstream.rest.security import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.rest.view import JobView

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


def io_metrics(value: Callable[[str], float | str | None]) -> dict[str, Any]:
    """Return records, bytes and times.

    They are not complete before the subtasks have reported anything.  Bytes are those of other
    tasks: a source receives none, as in Flink.
    """
    is_complete = value("numRecordsIn") is not None
    found: dict[str, Any] = {}
    for name, metric in (_IO | _TIMES).items():
        number = value(metric)
        found[name] = int(number) if isinstance(number, int | float) else 0
        if name in _IO:
            found[f"{name}-complete"] = is_complete
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
            "metrics": io_metrics(totals.get(each.id, {}).get),
        }
        for each in job.vertices
    ]


def _job(call: Call) -> dict[str, Any]:
    job = call.job
    times = job.history.status_times()
    return {
        "jid": job.job_id,
        "application-id": job.job_id,
        "name": job.name,
        "isStoppable": False,
        "state": job.status,
        "job-type": type_of(job),
        "start-time": job.history.started,
        "end-time": job.history.ended,
        "duration": duration(job),
        "maxParallelism": max((each.max_parallelism for each in job.vertices), default=-1),
        "now": now(),
        "timestamps": {each: times.get(each, 0) for each in JOB_STATES},
        "vertices": vertex_summaries(job),
        "status-counts": {
            state: len(job.vertices) if state == execution_state(job) else 0
            for state in EXECUTION_STATES
        },
        "plan": plan(job),
        # Flink draws it while vertices are still to come, which does not happen here.
        "stream-graph": {"nodes": []},
        "pending-operators": 0,
        "schedulerType": "Default",
    }


def _requirements(call: Call) -> dict[str, Any]:
    return {
        vertex.id: {"parallelism": {"lowerBound": 1, "upperBound": vertex.parallelism}}
        for vertex in call.job.vertices
    }


def _require(call: Call) -> dict[str, Any]:
    """Rescale a job; as in Flink all vertices are given, and the job follows later."""
    job = call.job
    uids = {vertex.id: vertex.uid for vertex in job.vertices}
    missing, unknown = uids.keys() - call.body.keys(), call.body.keys() - uids.keys()
    if missing or unknown:
        message = (
            f"the body must have all vertices of the job and no others; missing:"
            f" {sorted(missing)}, unknown: {sorted(unknown)}"
        )
        raise Refused(400, message)
    bounds = {}
    for key, uid in uids.items():
        try:
            found = call.body[key]["parallelism"]
            bounds[uid] = (found.get("lowerBound", 1), found["upperBound"])
        except (TypeError, KeyError, AttributeError):
            bounds[uid] = (None, None)
        if not all(isinstance(each, int) for each in bounds[uid]):
            message = f'{key} must be {{"parallelism": {{"lowerBound": 1, "upperBound": 4}}}}'
            raise Refused(400, message)
    job.rescale(bounds)
    return {}


_REQUIREMENTS: Final = "/jobs/{jobid}/resource-requirements"
ENDPOINTS: Final = (
    Endpoint("GET", "/jobs/{jobid}", _job, "a job: status, times, vertices, plan"),
    Endpoint("GET", _REQUIREMENTS, _requirements, "the parallelism of each vertex, as bounds"),
    Endpoint("PUT", _REQUIREMENTS, _require, "rescale a job, by way of a checkpoint"),
)
