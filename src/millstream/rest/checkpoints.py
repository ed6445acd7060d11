"""Endpoints of a job's checkpoints and failures, and of what ends it or saves its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.contracts.metrics import quantile
from millstream.rest.app import Call, Endpoint
from millstream.rest.overview import find_vertex
from millstream.rest.security import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.metrics.job_history import (
        CheckpointRecord,
        Failure,
        Restored,
        SubtaskCheckpoint,
    )
    from millstream.rest.view import JobView, VertexView

_CLASSES: Final = {"COMPLETED": "completed", "FAILED": "failed", "IN_PROGRESS": "in_progress"}
_FORMATS: Final = ("CANONICAL", "NATIVE")
_PERCENTILES: Final = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))
#: Columns of the summary -> the field of a checkpoint.
_SUMMARY: Final = (
    *("checkpointed_size", "state_size", "end_to_end_duration", "alignment_buffered"),
    *("processed_data", "persisted_data"),
)


def _duration(record: CheckpointRecord) -> int:
    return -1 if record.ended < 0 else record.ended - record.triggered


def _latest(subtasks: Mapping[Any, SubtaskCheckpoint]) -> int:
    return max((each.acknowledged for each in subtasks.values()), default=-1)


def _statistics(job: JobView, record: CheckpointRecord) -> dict[str, Any]:
    """Return a checkpoint as the history shows it; its savepoint is a part of it, as in Flink."""
    found: dict[str, Any] = {
        "className": _CLASSES[record.status],
        "id": record.id,
        "status": record.status,
        "is_savepoint": bool(record.savepoint),
        "savepointFormat": record.savepoint_format or None,
        "trigger_timestamp": record.triggered,
        "latest_ack_timestamp": _latest(record.subtasks),
        "checkpointed_size": record.uploaded,
        "state_size": record.state_size,
        "end_to_end_duration": _duration(record),
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": record.persisted,
        "num_subtasks": sum(vertex.parallelism for vertex in job.vertices),
        "num_acknowledged_subtasks": record.acknowledged,
        "checkpoint_type": _type(record),
        "tasks": {},
    }
    if record.status == "COMPLETED":
        found |= {"external_path": record.savepoint, "discarded": False}
    elif record.status == "FAILED":
        found |= {"failure_timestamp": record.ended, "failure_message": record.failure}
    return found


def _type(record: CheckpointRecord) -> str:
    if record.savepoint:
        return "SAVEPOINT"
    return "UNALIGNED_CHECKPOINT" if record.is_unaligned else "CHECKPOINT"


def _statistics_of(values: Sequence[int]) -> dict[str, Any]:
    """Return minimum, mean, maximum and percentiles; zeros of nothing."""
    ordered = sorted(values) or [0]
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "avg": sum(ordered) // len(ordered),
        **{name: quantile(ordered, part) for name, part in _PERCENTILES},
    }


def _checkpoints(call: Call) -> dict[str, Any]:
    job = call.job
    known = job.history.checkpoints()
    history = [_statistics(job, each) for each in known.records]
    completed = [each for each in history if each["status"] == "COMPLETED"]
    return {
        "counts": {
            "restored": known.restored,
            "total": known.completed + known.failed + known.in_progress,
            "in_progress": known.in_progress,
            "completed": known.completed,
            "failed": known.failed,
        },
        "summary": {name: _statistics_of([each[name] for each in completed]) for name in _SUMMARY},
        "latest": {
            "completed": _if_any(job, known.last_completed),
            "savepoint": _if_any(job, known.last_savepoint),
            "failed": _if_any(job, known.last_failed),
            "restored": _restored(known.last_restored),
        },
        "history": history,
    }


def _if_any(job: JobView, record: CheckpointRecord | None) -> dict[str, Any] | None:
    return None if record is None else _statistics(job, record)


def _restored(found: Restored | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "id": found.id,
        "restore_timestamp": found.time,
        "is_savepoint": found.is_savepoint,
        "external_path": found.path,
    }


def _record(call: Call) -> CheckpointRecord:
    """Return the checkpoint that the path names.

    Raises:
        Refused: it is not kept.
    """
    wanted = call.path["checkpointid"]
    known = call.job.history.checkpoints()
    kept = (*known.records, known.last_completed, known.last_failed, known.last_savepoint)
    for each in kept:
        if each is not None and str(each.id) == wanted:
            return each
    raise Refused(404, f"Checkpoint {wanted[:20]} not found")


def _details(call: Call) -> dict[str, Any]:
    record, job = _record(call), call.job
    found = _statistics(job, record)
    found["tasks"] = {vertex.id: _task(record, vertex) for vertex in job.vertices}
    return found


def _subtasks_of(record: CheckpointRecord, vertex: VertexView) -> dict[int, SubtaskCheckpoint]:
    """Return the acknowledgements of a vertex, by subtask."""
    uids = {each.uid for each in vertex.operators}
    return {
        subtask: each for (uid, subtask), each in sorted(record.subtasks.items()) if uid in uids
    }


def _task(record: CheckpointRecord, vertex: VertexView) -> dict[str, Any]:
    """Return what a checkpoint says of a vertex."""
    uids = [each.uid for each in vertex.operators]
    states = [each for uid in uids for each in record.operators.get(uid, ())]
    subtasks = _subtasks_of(record, vertex)
    latest = _latest(subtasks)
    return {
        "id": record.id,
        "status": record.status,
        "latest_ack_timestamp": latest,
        "checkpointed_size": sum(each.uploaded for each in states),
        "state_size": sum(each.state_size for each in states),
        "end_to_end_duration": -1 if latest < 0 else latest - record.triggered,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": sum(each.persisted for each in subtasks.values()),
        "num_subtasks": vertex.parallelism,
        "num_acknowledged_subtasks": len(subtasks),
    }


def exceptions(call: Call) -> dict[str, Any]:
    """Return the last failures of a job."""
    failures, truncated = call.job.history.failures()
    entries = [_failure(each) for each in failures]
    return {"exceptionHistory": {"entries": entries, "truncated": truncated}}


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "timestamp": failure.time,
        "exceptionName": failure.name,
        "stacktrace": failure.trace,
        "taskName": failure.task or None,
        "endpoint": None,
        "taskManagerId": None,
        "failureLabels": {},
        "concurrentExceptions": [],
    }


def _cancel(call: Call) -> dict[str, Any]:
    """Cancel a job; returns at once, as Flink does."""
    mode = call.query.get("mode", "cancel")
    if mode != "cancel":
        raise Refused(400, f"mode is {mode[:40]!r}; a job is stopped by POST to its stop")
    if not call.settings.can_cancel:
        raise Refused(403, "web.cancel.enable is false")
    job = call.job
    call.operations.start(job.job_id, "cancel", lambda: _cancelled(job), has_result=False)
    return {}


def _cancelled(job: JobView) -> str:
    job.cancel()
    return ""


def _format_of(call: Call) -> str:
    kind = str(call.body.get("formatType") or "CANONICAL")
    if kind not in _FORMATS:
        raise Refused(400, f"formatType must be one of {', '.join(_FORMATS)}")
    return kind


def _directory_of(call: Call, name: str) -> str | None:
    found = call.body.get(name)
    if found is not None and not isinstance(found, str):
        raise Refused(400, f"{name} must be a text")
    return found or None


def _savepoint(call: Call) -> dict[str, Any]:
    job, kind = call.job, _format_of(call)
    directory = _directory_of(call, "target-directory")
    if call.body.get("cancel-job"):
        raise Refused(400, "cancel-job is gone from Flink, too: use the stop of the job")
    key = call.operations.start(
        job.job_id,
        "savepoint",
        lambda: job.trigger_savepoint(directory, kind),
        call.body.get("triggerId"),
    )
    return {"request-id": key}


def _stop(call: Call) -> dict[str, Any]:
    job, kind = call.job, _format_of(call)
    directory, drain = _directory_of(call, "targetDirectory"), bool(call.body.get("drain"))
    key = call.operations.start(
        job.job_id,
        "stop",
        lambda: job.stop_with_savepoint(directory, kind, drain=drain),
        call.body.get("triggerId"),
    )
    return {"request-id": key}


def _result(call: Call) -> dict[str, Any]:
    return call.operations.status(call.job.job_id, ("savepoint", "stop"), call.path["triggerid"])


def _subtasks(call: Call) -> dict[str, Any]:
    record, vertex = _record(call), find_vertex(call)
    found = _subtasks_of(record, vertex)
    subtasks: list[dict[str, Any]] = []
    for number in range(vertex.parallelism):
        each = found.get(number)
        if each is None:
            subtasks.append(
                {"className": "pending", "index": number, "status": "pending_or_failed"}
            )
            continue
        subtasks.append(
            {
                "className": "completed",
                "index": number,
                "status": "completed",
                "ack_timestamp": each.acknowledged,
                "end_to_end_duration": each.acknowledged - record.triggered,
            }
        )
    return {**_task(record, vertex), "subtasks": subtasks}


_OF_JOB: Final = "/jobs/{jobid}"
_DETAILS: Final = f"{_OF_JOB}/checkpoints/details/{{checkpointid}}"
ENDPOINTS: Final = (
    Endpoint("GET", f"{_OF_JOB}/checkpoints", _checkpoints, "the history of checkpoints"),
    Endpoint("GET", _DETAILS, _details, "a checkpoint, with its vertices"),
    Endpoint("GET", f"{_DETAILS}/subtasks/{{vertexid}}", _subtasks, "a vertex in a checkpoint"),
    Endpoint("GET", f"{_OF_JOB}/exceptions", exceptions, "the last failures"),
    Endpoint("PATCH", _OF_JOB, _cancel, "cancel a job", status=202),
    Endpoint("GET", f"{_OF_JOB}/yarn-cancel", _cancel, "the same, by GET", status=202),
    Endpoint("POST", f"{_OF_JOB}/savepoints", _savepoint, "take a savepoint", status=202),
    Endpoint("POST", f"{_OF_JOB}/stop", _stop, "stop with a savepoint", status=202),
    Endpoint(
        "GET", f"{_OF_JOB}/savepoints/{{triggerid}}", _result, "the result of a savepoint or stop"
    ),
)
