"""Endpoints of applications: Flink 2.3 lists jobs under them, and here each job is one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from millstream.rest.app import Call, Endpoint
from millstream.rest.checkpoints import exceptions
from millstream.rest.overview import duration, job_summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.rest.view import JobView

_STATES: Final = ("CREATED", "RUNNING", "FAILING", "FAILED", "CANCELING", "CANCELED", "FINISHED")
#: Status of a job -> that of its application, where they differ.
_OF_JOB: Final = {"CANCELLING": "CANCELING", "RESTARTING": "RUNNING", "INITIALIZING": "CREATED"}


def _state(status: str) -> str:
    return _OF_JOB.get(status, status)


def _application(job: JobView) -> dict[str, Any]:
    return {
        "id": job.job_id,
        "name": job.name,
        "start-time": job.history.started,
        "end-time": job.history.ended,
        "duration": duration(job),
        "status": _state(job.status),
    }


def _overview(call: Call) -> dict[str, Any]:
    found = [{**_application(job), "jobs": dict(Counter([job.status]))} for job in call.jobs.all()]
    return {"applications": found}


def _as_job(respond: Callable[[Call], Any]) -> Callable[[Call], Any]:
    """Have an endpoint of a job respond for its application."""

    def respond_for_application(call: Call) -> Any:
        return respond(call.with_path({"jobid": call.path["applicationid"]}))

    return respond_for_application


def _details(call: Call) -> dict[str, Any]:
    job = call.job
    times = dict.fromkeys(_STATES, 0)
    for status, moment in sorted(job.history.status_times().items(), key=lambda each: each[1]):
        if _state(status) in times:
            times[_state(status)] = moment
    return {**_application(job), "timestamps": times, "jobs": [job_summary(job)]}


_ONE: Final = "/applications/{applicationid}"
ENDPOINTS: Final = (
    Endpoint("GET", "/applications/overview", _overview, "the applications: one for each job"),
    Endpoint("GET", _ONE, _as_job(_details), "an application, with its job"),
    Endpoint("GET", f"{_ONE}/exceptions", _as_job(exceptions), "the last failures of its job"),
)
