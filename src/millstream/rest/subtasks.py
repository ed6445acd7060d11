"""Endpoints of one vertex: its subtasks, their times, watermarks, backpressure and accumulators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.contracts.metrics import quantile
from millstream.metrics.registry import operator_name
from millstream.rest.app import Call, Endpoint
from millstream.rest.metrics import index, name_in_metrics, subtask_number
from millstream.rest.overview import EXECUTION_STATES, execution_state, find_vertex, now, of_job
from millstream.rest.security import Refused
from millstream.rest.vertices import io_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.rest.view import JobView, VertexView

#: Of the last second: more is backpressure, and much of it.
_LOW, _HIGH = 0.1, 0.5
_SECOND: Final = 1000
_PERCENTILES: Final = {"median": 0.5, "p25": 0.25, "p75": 0.75, "p95": 0.95}
#: The states up to the end of a subtask.
_LIVE: Final = ("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING")
#: In place of a machine that is not known, as in Flink.
_UNASSIGNED: Final = "(unassigned)"


def _times(job: JobView) -> dict[str, int]:
    """Return since when the subtasks are, or were, in each state, from their last start on."""
    times = job.history.status_times()
    began = times.get("RESTARTING", job.history.started)
    found: dict[str, int] = {}
    for status, moment in sorted(times.items(), key=lambda each: each[1]):
        if moment >= began:
            found.setdefault(of_job(status), moment)
    return found


def _durations(job: JobView, times: Mapping[str, int]) -> dict[str, int]:
    """Return how long the subtasks have been in each state, in milliseconds."""
    ends = [*times.values()][1:]
    ends.append(now() if job.history.ended < 0 else job.history.ended)
    # Flink's dashboard reads them all.
    return dict.fromkeys(_LIVE, 0) | {
        state: max(0, end - began) for (state, began), end in zip(times.items(), ends, strict=True)
    }


def _subtasks_of(job: JobView, vertex: VertexView, numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Return subtasks as they run now; times and states are those of the whole job."""
    metrics, times, status = index(job), _times(job), execution_state(job)
    durations = _durations(job, times)
    began, ended = times.get("RUNNING", job.history.started), job.history.ended
    duration = max(0, (now() if ended < 0 else ended) - began)
    return [
        {
            "subtask": number,
            "status": status,
            "attempt": metrics.attempt,
            "endpoint": metrics.hosts.get(f"slot-{number}", _UNASSIGNED),
            "start-time": began,
            "start_time": began,
            "end-time": ended,
            "duration": duration,
            "metrics": io_metrics(metrics.subtasks.get((vertex.id, number), {}).get),
            "taskmanager-id": f"slot-{number}",
            "status-duration": durations,
        }
        for number in numbers
    ]


def _subtasks(call: Call) -> tuple[VertexView, list[dict[str, Any]]]:
    vertex = find_vertex(call)
    return vertex, _subtasks_of(call.job, vertex, range(vertex.parallelism))


def _statistics(values: Sequence[float]) -> dict[str, int]:
    ordered = sorted(values) or [0]
    return {
        "min": int(ordered[0]),
        "max": int(ordered[-1]),
        "avg": int(sum(ordered) / len(ordered)),
        "sum": int(sum(ordered)),
        **{name: int(quantile(ordered, part)) for name, part in _PERCENTILES.items()},
    }


def _aggregated(subtasks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return statistics over subtasks, of their metrics and of the time in each state."""
    found: dict[str, Any] = {}
    for part in ("metrics", "status-duration"):
        names = dict.fromkeys(name for each in subtasks for name in each[part])
        found[part] = {
            name: _statistics([each[part].get(name, 0) for each in subtasks])
            for name in names
            if not name.endswith("-complete")
        }
    return found


def _vertex(call: Call) -> dict[str, Any]:
    vertex, subtasks = _subtasks(call)
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "now": now(),
        "aggregated": _aggregated(subtasks),
        "subtasks": subtasks,
    }


def _one(call: Call) -> dict[str, Any]:
    vertex = find_vertex(call)
    number = subtask_number(call, vertex.parallelism)
    (subtask,) = _subtasks_of(call.job, vertex, [number])
    return subtask


def _attempt(call: Call) -> dict[str, Any]:
    _require_attempt(call)
    return _one(call)


def _require_attempt(call: Call) -> None:
    """Refuse an attempt that is not the last one: no others are kept.

    Raises:
        Refused: it is another one.
    """
    last, wanted = index(call.job).attempt, call.path["attempt"]
    if wanted != str(last):
        raise Refused(404, f"Attempt {wanted[:32]} not found: only the last one, {last}, is kept")


def _subtask_times(call: Call) -> dict[str, Any]:
    vertex, subtasks = _subtasks(call)
    times = _times(call.job)
    stamps = {state: times.get(state, 0) for state in EXECUTION_STATES}
    return {
        "id": vertex.id,
        "name": vertex.name,
        "now": now(),
        "subtasks": [
            {
                "subtask": each["subtask"],
                "endpoint": each["endpoint"],
                "duration": each["duration"],
                "timestamps": stamps,
            }
            for each in subtasks
        ],
    }


def _task_managers(call: Call) -> dict[str, Any]:
    """Return the slots of a vertex; each runs one of its subtasks."""
    vertex, subtasks = _subtasks(call)
    state = execution_state(call.job)
    same = ("endpoint", "status", "start-time", "end-time", "duration", "metrics", "taskmanager-id")
    found = [
        {
            **{name: each[name] for name in same},
            "status-counts": {name: int(name == state) for name in EXECUTION_STATES},
            "aggregated": _aggregated([each]),
        }
        for each in subtasks
    ]
    return {"id": vertex.id, "name": vertex.name, "now": now(), "taskmanagers": found}


def _watermarks(call: Call) -> list[dict[str, str]]:
    """Return the watermark that each subtask has received; of sources, that they emit.

    Flink has none for sources.  They have another id here, so nothing takes one for the other.
    """
    vertex, metrics = find_vertex(call), index(call.job)
    first = name_in_metrics(operator_name(vertex.operators[0]))
    found = []
    for number in range(vertex.parallelism):
        values = metrics.subtasks.get((vertex.id, number), {})
        for name in ("currentInputWatermark", "currentOutputWatermark"):
            if f"{first}.{name}" in values:
                found.append({"id": f"{number}.{name}", "value": str(values[f"{first}.{name}"])})
                break
    return found


def _level(ratio: float) -> str:
    if ratio <= _LOW:
        return "ok"
    return "low" if ratio <= _HIGH else "high"


def _backpressure(call: Call) -> dict[str, Any]:
    vertex, metrics = find_vertex(call), index(call.job)
    subtasks: list[dict[str, Any]] = []
    for number in range(vertex.parallelism):
        values = metrics.subtasks.get((vertex.id, number), {})
        shares = [
            values.get(f"{name}TimeMsPerSecond") for name in ("backPressured", "idle", "busy")
        ]
        known = [each / _SECOND for each in shares if isinstance(each, int | float)]
        if len(known) < len(shares):
            continue  # it has not said anything yet
        ratio, idle, busy = known
        subtasks.append(
            {
                "subtask": number,
                "attempt-number": metrics.attempt,
                "backpressureLevel": _level(ratio),
                "backpressure-level": _level(ratio),
                "ratio": ratio,
                "idleRatio": idle,
                "busyRatio": busy,
            }
        )
    if not subtasks:
        return {"status": "deprecated", "subtasks": []}
    level = _level(max(each["ratio"] for each in subtasks))
    return {
        "status": "ok",
        "backpressureLevel": level,
        "backpressure-level": level,
        "end-timestamp": now(),
        "subtasks": subtasks,
    }


def _accumulator(name: str, value: object) -> dict[str, str]:
    """Return an accumulator, with the name of the class that Flink has for one of its kind."""
    kinds = {int: "LongCounter", float: "DoubleCounter", dict: "Histogram"}
    return {"name": name, "type": kinds.get(type(value), "Object"), "value": str(value)}


def _of_job(call: Call) -> dict[str, Any]:
    found = [_accumulator(*each) for each in sorted(call.job.accumulators().items())]
    return {
        "job-accumulators": [],
        "user-task-accumulators": found,
        "serialized-user-task-accumulators": {},
    }


def _of_subtask(call: Call, vertex: VertexView, number: int) -> list[dict[str, str]]:
    values = index(call.job).of_functions.get((vertex.id, number), {})
    return [_accumulator(*each) for each in sorted(values.items())]


def _of_vertex(call: Call) -> dict[str, Any]:
    """Return what functions of a vertex count, over all its subtasks."""
    vertex, metrics = find_vertex(call), index(call.job)
    totals: dict[str, float] = {}
    for number in range(vertex.parallelism):
        for name, value in metrics.of_functions.get((vertex.id, number), {}).items():
            if isinstance(value, int):  # rates and gauges have no sum
                totals[name] = totals.get(name, 0) + value
    found = [_accumulator(*each) for each in sorted(totals.items())]
    return {"id": vertex.id, "user-accumulators": found}


def _of_subtasks(call: Call) -> dict[str, Any]:
    vertex, subtasks = _subtasks(call)
    found = [
        {
            "subtask": each["subtask"],
            "attempt": each["attempt"],
            "endpoint": each["endpoint"],
            "user-accumulators": _of_subtask(call, vertex, each["subtask"]),
        }
        for each in subtasks
    ]
    return {"id": vertex.id, "parallelism": vertex.parallelism, "subtasks": found}


def _of_attempt(call: Call) -> dict[str, Any]:
    _require_attempt(call)
    vertex, metrics = find_vertex(call), index(call.job)
    number = subtask_number(call, vertex.parallelism)
    return {
        "id": f"{vertex.id}_{number}_{metrics.attempt}",
        "subtask": number,
        "attempt": metrics.attempt,
        "user-accumulators": _of_subtask(call, vertex, number),
    }


_VERTEX: Final = "/jobs/{jobid}/vertices/{vertexid}"
_SUBTASK: Final = f"{_VERTEX}/subtasks/{{subtaskindex}}"
_ATTEMPT: Final = f"{_SUBTASK}/attempts/{{attempt}}"
ENDPOINTS: Final = (
    Endpoint("GET", _VERTEX, _vertex, "a vertex, with its subtasks"),
    Endpoint("GET", f"{_VERTEX}/subtasktimes", _subtask_times, "since when its subtasks run"),
    Endpoint("GET", f"{_VERTEX}/taskmanagers", _task_managers, "the slots of a vertex"),
    Endpoint("GET", f"{_VERTEX}/watermarks", _watermarks, "the watermarks of its subtasks"),
    Endpoint("GET", f"{_VERTEX}/backpressure", _backpressure, "how its subtasks spend their time"),
    Endpoint("GET", f"{_VERTEX}/accumulators", _of_vertex, "what its functions count"),
    Endpoint("GET", f"{_VERTEX}/subtasks/accumulators", _of_subtasks, "the same, by subtask"),
    Endpoint("GET", _SUBTASK, _one, "a subtask"),
    Endpoint("GET", _ATTEMPT, _attempt, "a subtask, by its last attempt"),
    Endpoint("GET", f"{_ATTEMPT}/accumulators", _of_attempt, "what its functions count"),
    Endpoint("GET", "/jobs/{jobid}/accumulators", _of_job, "what the job has counted so far"),
)
