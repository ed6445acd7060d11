"""Key figures of a job and of its tasks, from the REST API, for `status` and `top`."""

from __future__ import annotations

import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.metrics.progress import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.cli.rest_client import RestClient

_SECOND: Final = 1000
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_KILO: Final = 1000
_AT_A_TIME: Final = 8
_TASK: Final = (
    *("numRecordsInPerSecond", "numRecordsOutPerSecond"),
    *("busyTimeMsPerSecond", "backPressuredTimeMsPerSecond"),
)
_OPERATOR: Final = (
    *("currentInputWatermark", "currentOutputWatermark", "lastCheckpointStateSize"),
    *("pendingRecords", "records-lag"),
)


@dataclass(frozen=True, slots=True)
class TaskLine:
    """What is shown of a task; None: not known."""

    name: str
    status: str
    parallelism: int
    #: Records per second.
    rate_in: float | None = None
    rate_out: float | None = None
    #: Shares of the last second: of all subtasks, and of the one that waits longest.
    busy: float | None = None
    backpressured: float | None = None
    #: Milliseconds from the lowest watermark to now.
    lag: float | None = None
    #: Records that wait in Kafka.
    pending: float | None = None
    #: Bytes.
    state: float | None = None


@dataclass(frozen=True, slots=True)
class JobFigures:
    """What is shown of a job."""

    name: str
    job_id: str
    status: str
    #: Milliseconds.
    duration: int
    tasks: list[TaskLine] = field(default_factory=list)
    completed: int = 0
    failed: int = 0
    #: The last completed checkpoint, as Flink has it.
    last: Mapping[str, Any] | None = None
    failure: str = ""
    restarts: int | None = None


def load_figures(api: RestClient, job_id: str) -> JobFigures:
    """Ask for everything that is shown of a job.

    Raises:
        JobError: the API does not answer, or has no such job.
    """
    path = f"jobs/{job_id}"
    job = api.get(path)
    checkpoints = api.get(f"{path}/checkpoints", {})
    errors = api.get(f"{path}/exceptions", {}).get("exceptionHistory", {}).get("entries", [])
    restarts = {m["id"]: m["value"] for m in api.get(f"{path}/metrics?get=numRestarts", [])}
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        tasks = list(pool.map(lambda vertex: _task(api, path, vertex), job["vertices"]))
    counts = checkpoints.get("counts", {})
    return JobFigures(
        job["name"],
        job_id,
        job["state"],
        job["duration"],
        tasks,
        counts.get("completed", 0),
        counts.get("failed", 0),
        (checkpoints.get("latest") or {}).get("completed"),
        errors[0]["stacktrace"].strip().partition("\n")[0] if errors else "",
        int(float(restarts["numRestarts"])) if "numRestarts" in restarts else None,
    )


def _task(api: RestClient, job_path: str, vertex: Mapping[str, Any]) -> TaskLine:
    path = f"{job_path}/vertices/{vertex['id']}/subtasks/metrics"
    ids = [metric["id"] for metric in api.get(path, [])]
    wanted = [each for each in ids if each in _TASK or each.rpartition(".")[2] in _OPERATOR]
    query = ",".join(urllib.parse.quote(each, safe="") for each in wanted)
    metrics = {m["id"]: m for m in api.get(f"{path}?get={query}", [])} if wanted else {}

    def value(name: str, how: str = "sum") -> float | None:
        found = metrics.get(name, {}).get(how)
        return None if found in (None, "NaN") else float(found)

    def of_operators(name: str, how: str = "sum") -> list[float]:
        values = [value(each, how) for each in metrics if each.rpartition(".")[2] == name]
        return [each for each in values if each is not None]

    marks = of_operators("currentInputWatermark", "min")
    marks += of_operators("currentOutputWatermark", "min")
    waiting = of_operators("pendingRecords") or of_operators("records-lag")
    states = of_operators("lastCheckpointStateSize")
    return TaskLine(
        vertex["name"],
        vertex["status"],
        vertex["parallelism"],
        value("numRecordsInPerSecond"),
        value("numRecordsOutPerSecond"),
        _share(value("busyTimeMsPerSecond", "avg")),
        _share(value("backPressuredTimeMsPerSecond", "max")),
        _lag(min(marks)) if marks else None,
        sum(waiting) if waiting else None,
        sum(states) if states else None,
    )


def _share(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / _SECOND


def _lag(watermark: float) -> float | None:
    if not MIN_TIMESTAMP < watermark < MAX_TIMESTAMP:
        return None
    return max(0.0, time.time() * _SECOND - watermark)


# -- text ------------------------------------------------------------------------------------------


def format_rate(value: float | None) -> str:
    """Write records per second, with three digits."""
    if value is None:
        return "-"
    for unit in ("", "k", "M", "G"):
        if abs(value) < _KILO or unit == "G":
            break
        value /= _KILO
    digits = f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"  # noqa: PLR2004 - three digits
    return f"{digits}{unit}/s"


def format_share(value: float | None) -> str:
    """Write a share of 1 as a percentage."""
    return "-" if value is None else f"{value:.0%}"


def format_duration(milliseconds: float | None) -> str:
    """Write milliseconds with two units at most."""
    if milliseconds is None or milliseconds < 0:
        return "-"
    if milliseconds < _SECOND:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / _SECOND
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def format_size(value: float | None) -> str:
    """Write bytes."""
    return "-" if value is None else format_bytes(int(value))


def format_count(value: float | None) -> str:
    """Write a count with separators."""
    return "-" if value is None else f"{value:,.0f}"


def checkpoint_words(figures: JobFigures) -> str:
    """Describe the last checkpoint, and how many there are."""
    counts = f"{figures.completed} completed, {figures.failed} failed"
    if figures.last is None:
        return f"none yet ({counts})"
    ended = figures.last["latest_ack_timestamp"]
    age = format_duration(time.time() * _SECOND - ended)
    took = format_duration(figures.last["end_to_end_duration"])
    size = format_size(figures.last["state_size"])
    return f"{figures.last['id']}, {age} ago, took {took}, {size} of state ({counts})"
