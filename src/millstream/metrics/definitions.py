"""The metrics of a job: scope, name and kind of each, as Flink has them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.configuration import options
from millstream.contracts.metrics import MetricKind


class Scope(Enum):
    """What a metric belongs to: Flink's logical scope."""

    JOB_MANAGER = "jobmanager"
    JOB = "jobmanager.job"
    TASK_MANAGER = "taskmanager"
    TASK = "taskmanager.job.task"
    OPERATOR = "taskmanager.job.task.operator"


#: The option that has the format of its identifiers.
SCOPE_FORMATS: Final = {
    Scope.JOB_MANAGER: options.METRICS_SCOPE_JM,
    Scope.JOB: options.METRICS_SCOPE_JM_JOB,
    Scope.TASK_MANAGER: options.METRICS_SCOPE_TM,
    Scope.TASK: options.METRICS_SCOPE_TASK,
    Scope.OPERATOR: options.METRICS_SCOPE_OPERATOR,
}
#: Those of Flink's statuses that a job can be in for a while.
STATUSES: Final = ("INITIALIZING", "CREATED", "RUNNING", "RESTARTING", "CANCELLING", "FAILING")


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric that every job has, or that operators of one kind have."""

    scope: Scope
    #: With the groups before it: ``Status.JVM.CPU.Load``.
    path: str
    kind: MetricKind
    description: str
    #: Whether Flink has a metric of this scope and name.
    is_flinks: bool = True

    @property
    def name(self) -> str:
        """The name without groups."""
        return self.path.rpartition(".")[2]

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups between the scope and the name."""
        return tuple(self.path.split(".")[:-1])


def _status(status: str) -> list[MetricDefinition]:
    word = status.lower()
    return [
        MetricDefinition(Scope.JOB, f"{word}{what}", MetricKind.GAUGE, f"{text}: `{status}`")
        for what, text in (
            ("State", "1 while the job has this status, else 0"),
            ("Time", "milliseconds since the job got this status, 0 if it has another"),
            ("TimeTotal", "milliseconds that the job has had this status in total"),
        )
    ]


_COUNTER, _GAUGE, _METER = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.METER


def _counted(scope: Scope, name: str, counts: str) -> list[MetricDefinition]:
    """A counter and the meter of its rate."""
    rate = f"{counts} per second, over the last minute"
    return [
        MetricDefinition(scope, name, _COUNTER, counts),
        MetricDefinition(scope, f"{name}PerSecond", _METER, rate),
    ]


_JOB: Final = (
    MetricDefinition(Scope.JOB_MANAGER, "numRunningJobs", _GAUGE, "1 while the job runs, else 0"),
    MetricDefinition(
        Scope.JOB_MANAGER,
        "Status.JVM.CPU.Load",
        _GAUGE,
        "CPU use of the driver's Python process since the value before, as a fraction of all cores",
    ),
    MetricDefinition(
        Scope.JOB_MANAGER, "Status.JVM.CPU.Time", _GAUGE, "CPU time of the driver, in nanoseconds"
    ),
    MetricDefinition(
        Scope.JOB_MANAGER,
        "Status.Process.Memory.RSS",
        _GAUGE,
        "resident memory of the driver's Python process, in bytes",
        is_flinks=False,
    ),
    *(each for status in STATUSES for each in _status(status)),
    MetricDefinition(Scope.JOB, "uptime", _GAUGE, "the same as runningTime"),
    MetricDefinition(
        Scope.JOB, "downtime", _GAUGE, "milliseconds since the job failed; 0 while it runs"
    ),
    MetricDefinition(
        Scope.JOB,
        "numRestarts",
        _GAUGE,
        "restarts of the job or of a region since the driver started",
    ),
    MetricDefinition(
        Scope.JOB, "lastCheckpointDuration", _GAUGE, "duration of the last one, in milliseconds"
    ),
    MetricDefinition(
        Scope.JOB, "lastCheckpointSize", _GAUGE, "what the last one uploaded, in bytes"
    ),
    MetricDefinition(
        Scope.JOB, "lastCheckpointFullSize", _GAUGE, "all state of the last one, in bytes"
    ),
    MetricDefinition(
        Scope.JOB, "lastCompletedCheckpointId", _GAUGE, "id of the last completed checkpoint"
    ),
    MetricDefinition(
        Scope.JOB,
        "lastCheckpointCompletedTimestamp",
        _GAUGE,
        "when the last one was completed, in milliseconds since 1970",
    ),
    MetricDefinition(
        Scope.JOB,
        "lastCheckpointRestoreTimestamp",
        _GAUGE,
        "when a run last started from a checkpoint, in milliseconds since 1970; -1: never",
    ),
    MetricDefinition(Scope.JOB, "numberOfCompletedCheckpoints", _GAUGE, "since the driver started"),
    MetricDefinition(
        Scope.JOB,
        "numberOfFailedCheckpoints",
        _GAUGE,
        "checkpoints that were aborted, and micro-batches that failed, since the driver started",
    ),
    MetricDefinition(
        Scope.JOB,
        "totalNumberOfCheckpoints",
        _GAUGE,
        "completed and failed ones since the driver started",
    ),
)

_SLOTS: Final = (
    MetricDefinition(
        Scope.TASK_MANAGER,
        "Status.JVM.CPU.Load",
        _GAUGE,
        "CPU use of the slot's Python process since the value before, as a fraction of all cores;"
        " with `millstream.execution: pipelined`",
    ),
    MetricDefinition(
        Scope.TASK_MANAGER,
        "Status.JVM.CPU.Time",
        _GAUGE,
        "CPU time of the slot's process, in nanoseconds; with `millstream.execution: pipelined`",
    ),
    MetricDefinition(
        Scope.TASK_MANAGER,
        "Status.Process.Memory.RSS",
        _GAUGE,
        "resident memory of the slot's process, in bytes; in micro-batch execution the most that"
        " a process with this subtask had at the last checkpoint",
        is_flinks=False,
    ),
)

_TASKS: Final = (
    *_counted(Scope.TASK, "numRecordsIn", "records that came into the chain"),
    *_counted(Scope.TASK, "numRecordsOut", "records that left the chain"),
    MetricDefinition(Scope.TASK, "busyTimeMsPerSecond", _GAUGE, "milliseconds of a second at work"),
    MetricDefinition(
        Scope.TASK, "idleTimeMsPerSecond", _METER, "milliseconds of a second without input"
    ),
    MetricDefinition(
        Scope.TASK,
        "backPressuredTimeMsPerSecond",
        _GAUGE,
        "milliseconds of a second in which the subtask waited for those after it; always 0 in"
        " micro-batch execution",
    ),
    MetricDefinition(
        Scope.TASK, "isBackPressured", _GAUGE, "1 if more than 10 % of the last second was that"
    ),
    MetricDefinition(
        Scope.TASK,
        "Shuffle.Netty.Input.Buffers.inputQueueSize",
        _GAUGE,
        "bytes that have come and are not processed, with millstream.execution: pipelined",
    ),
)

_OPERATORS: Final = (
    *_counted(Scope.OPERATOR, "numRecordsIn", "records that came in"),
    *_counted(Scope.OPERATOR, "numRecordsOut", "records that were emitted"),
    MetricDefinition(
        Scope.OPERATOR, "numLateRecordsDropped", _COUNTER, "records that came too late"
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "numNullRowTimeRecordsDropped",
        _COUNTER,
        "rows without a time, of SQL's windows",
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "numRecordsInErrors",
        _COUNTER,
        "records that a source could not read, and that went to dead letters",
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "numSideOutputRecordsUnread",
        _COUNTER,
        "records for side outputs that nothing reads",
        is_flinks=False,
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "numLookups",
        _COUNTER,
        "requests of a lookup join",
        is_flinks=False,
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "currentInputWatermark",
        _GAUGE,
        "watermark at the last checkpoint, in milliseconds; not of sources",
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "currentOutputWatermark",
        _GAUGE,
        "watermark that was emitted, at the last checkpoint, in milliseconds",
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "watermarkLag",
        _GAUGE,
        "milliseconds from the watermark to now; missing before the first watermark and after the"
        " end of the input. Flink has it for sources",
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "lastCheckpointStateSize",
        _GAUGE,
        "bytes of the operator's state in the last checkpoint",
        is_flinks=False,
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "pendingCommittables",
        _GAUGE,
        "output of a sink that is in a checkpoint and not committed",
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "pendingCommittablesAge",
        _GAUGE,
        "milliseconds since the oldest of these was in a checkpoint",
        is_flinks=False,
    ),
)

DEFINITIONS: Final[tuple[MetricDefinition, ...]] = (*_JOB, *_SLOTS, *_TASKS, *_OPERATORS)
#: By scope, and name with groups.
DEFINED: Final = {(each.scope, each.path): each for each in DEFINITIONS}
