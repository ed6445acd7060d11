"""The metrics of a job: scope, name and kind of each, as Flink has them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.configuration import options
from millstream.contracts.metrics import STATE_OBJECTS, MetricKind
from millstream.object_stores import RECEIVED_BYTES, SENT_BYTES


class Scope(Enum):
    """What a metric belongs to: Flink's logical scope."""

    JOB_MANAGER = "jobmanager"
    JOB = "jobmanager.job"
    TASK_MANAGER = "taskmanager"
    TASK_MANAGER_JOB = "taskmanager.job"
    TASK = "taskmanager.job.task"
    OPERATOR = "taskmanager.job.task.operator"


#: The option that has the format of its identifiers.
SCOPE_FORMATS: Final = {
    Scope.JOB_MANAGER: options.METRICS_SCOPE_JM,
    Scope.JOB: options.METRICS_SCOPE_JM_JOB,
    Scope.TASK_MANAGER: options.METRICS_SCOPE_TM,
    Scope.TASK_MANAGER_JOB: options.METRICS_SCOPE_TM_JOB,
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


#: What checkpoints count (``object_stores.Requests``) -> name and meaning of its metric.
REQUEST_METRICS: Final = {
    **{
        kind: (f"num{kind.title()}Requests", f"{text}, as of the last checkpoint")
        for kind, text in {
            "put": "writes of whole objects",
            "get": "reads of objects or their metadata",
            "list": "pages of listings",
            "delete": "deletions, of up to 1000 objects each",
            "multipart": "requests of uploads in parts",
        }.items()
    },
    SENT_BYTES: ("numBytesSent", "bytes of objects that were written, as of the last checkpoint"),
    RECEIVED_BYTES: ("numBytesReceived", "bytes of objects that were read, likewise"),
}


def _process(scope: Scope, process: str) -> list[MetricDefinition]:
    return [
        MetricDefinition(scope, f"Status.JVM.{name}", _GAUGE, f"{text} of {process}")
        for name, text in (
            ("Threads.Count", "threads, those of libraries included,"),
            ("GarbageCollector.All.Count", "collections of garbage since the start"),
        )
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
    *_process(Scope.JOB_MANAGER, "the driver's Python process"),
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
    *(
        MetricDefinition(Scope.JOB, f"ObjectStore.{name}", _COUNTER, text, is_flinks=False)
        for name, text in REQUEST_METRICS.values()
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

_AUTOSCALER: Final = tuple(
    MetricDefinition(Scope.JOB, f"AutoScaler.jobVertexID.{name}", _GAUGE, text, is_flinks)
    for name, text, is_flinks in (
        ("PARALLELISM.Current", "parallelism of a vertex; variable `jobVertexID`", True),
        ("RECOMMENDED_PARALLELISM.Current", "the one that the autoscaler has computed", True),
        ("TRUE_PROCESSING_RATE.Average", "records per second if it were busy all the time", True),
        ("TARGET_DATA_RATE.Average", "records per second that come if all keep up", True),
        (
            "REQUIRED_CAPACITY.Current",
            "records per second that it should be able to process",
            False,
        ),
    )
)

_SLOTS: Final = (
    MetricDefinition(
        Scope.TASK_MANAGER,
        "Status.JVM.CPU.Load",
        _GAUGE,
        "CPU use of the slot's Python process since the value before, as a fraction of all cores;"
        " in micro-batch execution that of the subtask's tasks over the last minute",
    ),
    MetricDefinition(
        Scope.TASK_MANAGER,
        "Status.JVM.CPU.Time",
        _GAUGE,
        "CPU time of the slot's process, in nanoseconds; in micro-batch execution that of workers"
        " while they ran tasks of the subtask, also on Spark, since the driver started",
    ),
    *_process(Scope.TASK_MANAGER, "the slot's process; with `millstream.execution: pipelined`"),
    MetricDefinition(
        Scope.TASK_MANAGER,
        "Status.Flink.Memory.Managed.Used",
        _GAUGE,
        "bytes of keyed state as Python objects, and of the block cache and write buffers of"
        " RocksDB, roughly; in micro-batch execution as of the last checkpoint",
    ),
    MetricDefinition(
        Scope.TASK_MANAGER,
        "Status.Flink.Memory.Managed.Total",
        _GAUGE,
        "bytes that these may take: `taskmanager.memory.managed.size`",
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

_LATENCY: Final = tuple(
    MetricDefinition(
        Scope.TASK_MANAGER_JOB,
        f"latency.{groups}operator_id.operator_subtask_index.latency",
        MetricKind.HISTOGRAM,
        "milliseconds that markers of sources took to come to an operator, with"
        f" `metrics.latency.interval` and granularity `{granularity}`; its groups are variables",
    )
    for granularity, groups in (
        ("single", ""),
        ("operator", "source_id."),
        ("subtask", "source_id.source_subtask_index."),
    )
)

_TASKS: Final = (
    *_counted(Scope.TASK, "numRecordsIn", "records that came into the chain"),
    *_counted(Scope.TASK, "numRecordsOut", "records that left the chain"),
    *_counted(Scope.TASK, "numBytesIn", "bytes of records that came from other tasks"),
    *_counted(Scope.TASK, "numBytesOut", "bytes of records that were sent to other tasks"),
    MetricDefinition(
        Scope.TASK,
        "checkpointStartDelayNanos",
        _GAUGE,
        "nanoseconds from the trigger of the last checkpoint to its first barrier here, with"
        " `millstream.execution: pipelined`",
    ),
    MetricDefinition(
        Scope.TASK,
        "checkpointAlignmentTime",
        _GAUGE,
        "nanoseconds from its first barrier to its last, with `millstream.execution: pipelined`",
    ),
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
    *(
        MetricDefinition(
            Scope.TASK,
            f"accumulate{name}TimeMs",
            _GAUGE,
            f"milliseconds {words} since the subtask was started last; in micro-batch execution"
            " since the driver started",
        )
        for name, words in (
            ("Busy", "at work"),
            ("Idle", "without input"),
            ("BackPressured", "in which the subtask waited for those after it"),
        )
    ),
    MetricDefinition(
        Scope.TASK,
        "Shuffle.Netty.Input.Buffers.inputQueueSize",
        _GAUGE,
        "bytes that have come and are not processed, with millstream.execution: pipelined",
    ),
)

_COMMITS: Final = tuple(
    MetricDefinition(Scope.OPERATOR, f"{name}Committables", _COUNTER, text)
    for name, text in (
        ("total", "output that a sink was to commit, since the driver started"),
        ("successful", "output that it has committed"),
        ("retried", "output that it has tried to commit again, each time"),
        ("failed", "output in tries that failed"),
    )
)

_SOURCES: Final = (
    MetricDefinition(
        Scope.OPERATOR,
        "pendingRecords",
        _GAUGE,
        "records that the source has and the subtask has not read; of sources whose offsets count"
        " records",
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "KafkaSourceReader.KafkaConsumer.records-lag-max",
        _GAUGE,
        "the longest of the lags of the subtask's partitions",
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "KafkaSourceReader.topic.partition.records-lag",
        _GAUGE,
        "records of a partition that were not read, as of the last second, in micro-batch execution"
        " as of the last checkpoint; variables `topic` and `partition`",
        is_flinks=False,
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "KafkaSourceReader.topic.partition.currentOffset",
        _GAUGE,
        "offset of the next record that is read",
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "KafkaSourceReader.topic.partition.committedOffset",
        _GAUGE,
        "offset that was committed last to the consumer group, if there is one",
    ),
    MetricDefinition(
        Scope.OPERATOR,
        "KafkaSourceReader.commitsSucceeded",
        _COUNTER,
        "commits of offsets that the broker has confirmed; they are for monitoring only",
    ),
    MetricDefinition(
        Scope.OPERATOR, "KafkaSourceReader.commitsFailed", _COUNTER, "those that it has refused"
    ),
)

_ROCKSDB: Final = tuple(
    MetricDefinition(
        Scope.OPERATOR,
        f"rocksdb.{name}",
        _GAUGE,
        f"{text}; with `state.backend.type: rocksdb`",
        is_flinks=name != "block-cache-capacity",
    )
    for name, text in (
        ("cur-size-all-mem-tables", "bytes of the operator's write buffers"),
        ("estimate-table-readers-mem", "bytes of indexes and filters outside of the block cache"),
        ("block-cache-usage", "bytes of the block cache, which all stores of a process share"),
        ("block-cache-pinned-usage", "bytes of it that cannot be evicted"),
        ("block-cache-capacity", "its size: the managed memory of the process"),
        ("estimate-num-keys", "entries"),
        ("total-sst-files-size", "bytes of its files"),
        ("num-running-compactions", "compactions at work"),
        ("num-running-flushes", "flushes at work"),
        ("estimate-pending-compaction-bytes", "bytes that are to be compacted"),
    )
)

_OPERATORS: Final = (
    *_counted(Scope.OPERATOR, "numRecordsIn", "records that came in"),
    *_counted(Scope.OPERATOR, "numRecordsOut", "records that were emitted"),
    *_counted(Scope.OPERATOR, "numBytesIn", "bytes of records that came from other tasks"),
    *_counted(Scope.OPERATOR, "numBytesOut", "bytes of records that were sent to other tasks"),
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
        STATE_OBJECTS,
        _GAUGE,
        "bytes of the operator's keyed state as Python objects, roughly",
        is_flinks=False,
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
    *_COMMITS,
    *_SOURCES,
    *_ROCKSDB,
)

DEFINITIONS: Final[tuple[MetricDefinition, ...]] = (
    *_JOB,
    *_AUTOSCALER,
    *_SLOTS,
    *_LATENCY,
    *_TASKS,
    *_OPERATORS,
)
#: By scope, and name with groups.
DEFINED: Final = {(each.scope, each.path): each for each in DEFINITIONS}
