"""Endpoints of the cluster as a whole, of jobs, and of their plans."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

import millstream
from millstream.rest.app import Call, Endpoint
from millstream.rest.security import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.rest.view import JobView, VertexView

#: The release of Flink whose API this is.
_API: Final = "2.3.0"
_VERSION: Final = f"{_API}-millstream-{millstream.__version__}"
#: Of Flink, of a subtask.
EXECUTION_STATES: Final = (
    *("INITIALIZING", "CREATED", "SCHEDULED", "DEPLOYING", "RUNNING", "FAILED", "RECONCILING"),
    *("CANCELED", "FINISHED", "CANCELING"),
)
#: Of Flink, of a job.
JOB_STATES: Final = (
    *("INITIALIZING", "CREATED", "RUNNING", "FAILING", "FAILED", "CANCELLING", "CANCELED"),
    *("FINISHED", "RESTARTING", "SUSPENDED", "RECONCILING"),
)
#: Status of the job -> that of its subtasks.
_OF_JOB: Final = {
    "RESTARTING": "SCHEDULED",
    "CANCELLING": "CANCELING",
    "FAILING": "FAILED",
    "SUSPENDED": "CANCELED",
}


def now() -> int:
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def execution_state(job: JobView) -> str:
    """Return the state of the subtasks of a job."""
    return of_job(job.status)


def of_job(status: str) -> str:
    """Return the state of the subtasks of a job that has a status."""
    return _OF_JOB.get(status, status)


def duration(job: JobView) -> int:
    """Return how long the job has run so far, in milliseconds."""
    ended = job.history.ended
    return (now() if ended < 0 else ended) - job.history.started


def slots(jobs: Iterable[JobView]) -> int:
    """Return how many slots the running jobs have."""
    return sum(
        max((vertex.parallelism for vertex in job.vertices), default=0)
        for job in jobs
        if job.history.ended < 0
    )


def _overview(call: Call) -> dict[str, Any]:
    jobs = call.jobs.all()
    counts = Counter(job.status for job in jobs)
    ended = sum(counts[each] for each in ("FINISHED", "CANCELED", "FAILED"))
    total = slots(jobs)
    return {
        "taskmanagers": total,
        "slots-total": total,
        "slots-available": 0,
        "jobs-running": len(jobs) - ended,
        "jobs-finished": counts["FINISHED"],
        "jobs-cancelled": counts["CANCELED"],
        "jobs-failed": counts["FAILED"],
        "flink-version": _VERSION,
        "flink-commit": "millstream",
    }


def _config(call: Call) -> dict[str, Any]:
    zone = datetime.now().astimezone()
    offset = zone.utcoffset()
    settings = call.settings
    return {
        "refresh-interval": settings.refresh_interval,
        "timezone-name": zone.tzname() or "UTC",
        "timezone-offset": 0 if offset is None else int(offset.total_seconds() * 1000),
        "flink-version": _VERSION,
        "flink-revision": f"millstream @ {millstream.__version__}",
        "features": {
            "web-submit": False,
            "web-cancel": settings.can_cancel and not settings.is_read_only,
            "web-rescale": False,
            "web-history": False,
        },
    }


def _jobs(call: Call) -> dict[str, Any]:
    return {"jobs": [{"id": job.job_id, "status": job.status} for job in call.jobs.all()]}


def task_counts(job: JobView) -> dict[str, int]:
    """Return how many subtasks of a job are in each state."""
    state = execution_state(job)
    total = sum(vertex.parallelism for vertex in job.vertices)
    return {each.lower(): total if each == state else 0 for each in EXECUTION_STATES}


def _jobs_overview(call: Call) -> dict[str, Any]:
    return {"jobs": [job_summary(job) for job in call.jobs.all()]}


def job_summary(job: JobView) -> dict[str, Any]:
    """Return a job as lists of jobs have it."""
    times = job.history.status_times()
    counts = task_counts(job)
    return {
        "jid": job.job_id,
        "name": job.name,
        "state": job.status,
        "job-type": type_of(job),
        "jobType": type_of(job),
        "start-time": job.history.started,
        "end-time": job.history.ended,
        "duration": duration(job),
        "last-modification": max(times.values()),
        "tasks": {"total": sum(counts.values()), **counts},
        "pending-operators": 0,
        "schedulerType": "Default",
    }


def type_of(job: JobView) -> str:
    """Return Flink's name of the mode of a job."""
    return "BATCH" if job.is_batch else "STREAMING"


def plan(job: JobView) -> dict[str, Any]:
    """Return the plan of a job in Flink's form, with the operators of each vertex beside it."""
    return {
        "jid": job.job_id,
        "name": job.name,
        "type": type_of(job),
        "nodes": [_node(vertex) for vertex in job.vertices],
    }


def _node(vertex: VertexView) -> dict[str, Any]:
    return {
        "id": vertex.id,
        "parallelism": vertex.parallelism,
        "operator": "",
        "operator_strategy": "",
        "description": "".join(
            f"{'' if number == 0 else '+- '}{escape(each.name)}<br/>"
            for number, each in enumerate(vertex.operators)
        ),
        "inputs": [
            {
                "num": number,
                "id": each.vertex,
                "ship_strategy": each.ship_strategy,
                "exchange": "pipelined_bounded",
            }
            for number, each in enumerate(vertex.inputs)
        ],
        "optimizer_properties": {},
        "operators": [
            {
                "uid": each.uid,
                "name": each.name,
                "kind": each.kind,
                "location": each.location,
                "guarantee": each.guarantee or None,
            }
            for each in vertex.operators
        ],
    }


def _status(call: Call) -> dict[str, Any]:
    return {"status": call.job.status}


def find_vertex(call: Call) -> VertexView:
    """Return the vertex that the path names.

    Raises:
        Refused: the job has none with this id.
    """
    wanted = call.path["vertexid"]
    found = next((each for each in call.job.vertices if each.id == wanted), None)
    if found is None:
        raise Refused(404, f"Job vertex {wanted[:64]} not found")
    return found


ENDPOINTS: Final = (
    Endpoint("GET", "/overview", _overview, "how many jobs and slots there are"),
    Endpoint("GET", "/config", _config, "what the web UI may do, and how often it refreshes"),
    Endpoint("GET", "/jobs", _jobs, "ids and statuses of the jobs"),
    Endpoint("GET", "/jobs/overview", _jobs_overview, "the jobs, with their times and subtasks"),
    Endpoint("GET", "/jobs/{jobid}/status", _status, "the status of a job"),
    Endpoint(
        "GET",
        "/jobs/{jobid}/plan",
        lambda call: {"plan": plan(call.job)},
        "the vertices of a job and the exchanges between them",
    ),
)
