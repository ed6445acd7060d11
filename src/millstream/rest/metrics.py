"""Endpoints that query metrics, with Flink's ids, such as ``0.numRecordsIn`` of a vertex."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from millstream.metrics.definitions import Scope
from millstream.rest.app import Call, Endpoint
from millstream.rest.overview import find_vertex
from millstream.rest.security import Refused
from millstream.rest.view import vertex_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.metrics.registry import Measurement
    from millstream.rest.view import JobView

    Values = Mapping[str, float | str]

#: What Flink replaces in names of operators and metrics.
_REPLACED: Final = re.compile(r"[ .:,]")
_MOST_SUBTASKS: Final = 1 << 16


class MetricIndex:
    """The metrics of a job by what they belong to.

    Args:
        measurements: of the job.
    """

    def __init__(self, measurements: Sequence[Measurement]) -> None:
        self.job_manager: dict[str, float | str] = {}
        self.job: dict[str, float | str] = {}
        self.slots: dict[str, dict[str, float | str]] = defaultdict(dict)
        #: Slot -> the machine that it runs on.
        self.hosts: dict[str, str] = {}
        #: (vertex id, subtask) -> metrics of the task, and of its operators after their names.
        self.subtasks: dict[tuple[str, int], dict[str, float | str]] = defaultdict(dict)
        #: The same of what functions of the program count and measure.
        self.of_functions: dict[tuple[str, int], dict[str, float | str]] = defaultdict(dict)
        #: How often the subtasks of the job have been started before.
        self.attempt = 0
        for each in measurements:
            self._add(each)

    def _add(self, each: Measurement) -> None:
        name = ".".join((*each.groups, each.name))
        if each.scope is Scope.JOB_MANAGER:
            _put(self.job_manager, name, each.value)
        elif each.scope is Scope.JOB:
            _put(self.job, name, each.value)
        elif each.scope is Scope.TASK_MANAGER:
            slot = each.variables["tm_id"]
            self.hosts[slot] = each.variables["host"]
            _put(self.slots[slot], name, each.value)
        elif "task_id" in each.variables:
            if each.scope is Scope.OPERATOR:
                name = f"{name_in_metrics(each.variables['operator_name'])}.{name}"
            key = (vertex_id(each.variables["task_id"]), int(each.variables["subtask_index"]))
            _put(self.subtasks[key], name, each.value)
            self.attempt = int(each.variables["task_attempt_num"])
            if each.of_function:
                _put(self.of_functions[key], name, each.value)


def name_in_metrics(operator: str) -> str:
    """Return the name of an operator as ids of metrics have it."""
    return _REPLACED.sub("_", operator)


def _put(
    metrics: dict[str, float | str], name: str, value: float | str | Mapping[str, float]
) -> None:
    if isinstance(value, int | float | str):
        metrics[name] = value
        return
    for part, number in value.items():
        metrics[f"{name}_{part}"] = number


#: The last index of each job, with the measurements that it is of.
_kept: Final[WeakKeyDictionary[JobView, tuple[Sequence[Measurement], MetricIndex]]] = (
    WeakKeyDictionary()
)
_indexing: Final = threading.Lock()


def index(job: JobView) -> MetricIndex:
    """Return the metrics of a job as they are now."""
    with _indexing:  # made once for all who ask at the same time
        measurements = job.measurements()
        kept = _kept.get(job)
        if kept is None or kept[0] is not measurements:
            kept = (measurements, MetricIndex(measurements))
            _kept[job] = kept
        return kept[1]


def selected(metrics: Values, wanted: str | None) -> list[dict[str, str]]:
    """Return the names of all metrics, or the values of those that are wanted."""
    if not wanted:
        return [{"id": name} for name in sorted(metrics)]
    names = dict.fromkeys(wanted.split(","))
    return [{"id": name, "value": str(metrics[name])} for name in names if name in metrics]


def _skew(values: Sequence[float]) -> float:
    """Mean absolute deviation in percent of the mean, at most 100, as Flink has it."""
    mean = sum(values) / len(values)
    if mean == 0:
        return 0.0
    return min(100.0, sum(abs(each - mean) for each in values) / len(values) / abs(mean) * 100)


_AGGREGATIONS: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "avg": lambda values: sum(values) / len(values),
    "skew": _skew,
}


def aggregated(call: Call, each: Iterable[Values]) -> list[dict[str, Any]]:
    """Return aggregates of the metrics that a request wants, over subtasks, slots or jobs.

    Raises:
        Refused: an aggregation is unknown.
    """
    wanted, modes = call.query.get("get"), call.query.get("agg")
    names = [mode.strip().lower() for mode in modes.split(",")] if modes else [*_AGGREGATIONS]
    for mode in names:
        if mode not in _AGGREGATIONS:
            raise Refused(400, f"agg must be of {', '.join(_AGGREGATIONS)}, not {mode[:32]!r}")
    many = list(each)
    if not wanted:
        return [{"id": name} for name in sorted({name for metrics in many for name in metrics})]
    found: list[dict[str, Any]] = []
    for name in dict.fromkeys(wanted.split(",")):
        values = [value for metrics in many if isinstance(value := metrics.get(name), int | float)]
        if values:
            aggregates = {mode: float(_AGGREGATIONS[mode](values)) for mode in names}
            found.append({"id": name, **aggregates})
    return found


def _subtask_range(text: str | None, parallelism: int) -> list[int]:
    """The subtasks of ``0,2-4``.

    Raises:
        Refused: it is no such text.
    """
    if not text:
        return list(range(parallelism))
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise Refused(400, f"subtasks must be such as 0,2-4, not {text[:100]!r}")
        found += range(int(first), min(int(last or first), _MOST_SUBTASKS) + 1)
    return found


def subtask_number(call: Call, parallelism: int) -> int:
    """Return the subtask that the path names.

    Raises:
        Refused: there is none of this number.
    """
    number = call.path["subtaskindex"]
    if not number.isdecimal() or int(number) >= parallelism:
        raise Refused(404, f"Subtask {number[:32]} not found: there are {parallelism}")
    return int(number)


def _of_job(call: Call) -> Any:
    return selected(index(call.job).job, call.query.get("get"))


def _of_jobs(call: Call) -> Any:
    wanted = call.query.get("jobs")
    jobs = [call.jobs.get(each) for each in wanted.split(",")] if wanted else call.jobs.all()
    return aggregated(call, (index(job).job for job in jobs))


def _of_job_manager(call: Call) -> Any:
    metrics: dict[str, float | str] = {}
    for job in call.jobs.all():
        metrics |= index(job).job_manager
    return selected(metrics, call.query.get("get"))


def _of_vertex(call: Call) -> Any:
    vertex, found = find_vertex(call), index(call.job)
    metrics = {
        f"{subtask}.{name}": value
        for subtask in range(vertex.parallelism)
        for name, value in found.subtasks.get((vertex.id, subtask), {}).items()
    }
    return selected(metrics, call.query.get("get"))


def _of_subtasks(call: Call) -> Any:
    vertex, found = find_vertex(call), index(call.job)
    wanted = _subtask_range(call.query.get("subtasks"), vertex.parallelism)
    return aggregated(call, (found.subtasks.get((vertex.id, each), {}) for each in wanted))


def _of_subtask(call: Call) -> Any:
    vertex = find_vertex(call)
    number = subtask_number(call, vertex.parallelism)
    metrics = index(call.job).subtasks.get((vertex.id, number), {})
    return selected(metrics, call.query.get("get"))


def slot_metrics(call: Call) -> dict[str, dict[str, float | str]]:
    """Return the metrics of all slots, by the id of the slot."""
    found: dict[str, dict[str, float | str]] = {}
    for job in call.jobs.all():
        for slot, metrics in index(job).slots.items():
            found.setdefault(slot, {}).update(metrics)
    return found


def _of_slots(call: Call) -> Any:
    wanted = call.query.get("taskmanagers")
    found = slot_metrics(call)
    names = wanted.split(",") if wanted else list(found)
    return aggregated(call, (found.get(each, {}) for each in names))


_VERTEX: Final = "/jobs/{jobid}/vertices/{vertexid}"
ENDPOINTS: Final = (
    Endpoint("GET", "/jobmanager/metrics", _of_job_manager, "metrics of the driver"),
    Endpoint("GET", "/jobs/metrics", _of_jobs, "metrics of jobs, aggregated"),
    Endpoint("GET", "/jobs/{jobid}/metrics", _of_job, "metrics of a job"),
    Endpoint("GET", f"{_VERTEX}/metrics", _of_vertex, "metrics of the subtasks of a vertex"),
    Endpoint("GET", f"{_VERTEX}/subtasks/metrics", _of_subtasks, "the same, aggregated"),
    Endpoint(
        "GET", f"{_VERTEX}/subtasks/{{subtaskindex}}/metrics", _of_subtask, "metrics of a subtask"
    ),
    Endpoint("GET", "/taskmanagers/metrics", _of_slots, "metrics of slots, aggregated"),
)
