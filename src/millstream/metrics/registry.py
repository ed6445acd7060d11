"""The registry of a job's metrics: takes figures of its driver and tasks, gives them Flink's names.

Counts of subtasks begin with the driver, as those of Flink begin with the task.  What a failure
takes back counts until it is read again: a counter never goes back.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from millstream.checkpoint.commit import CommitCounts
from millstream.checkpoint.publish import with_earlier
from millstream.configuration import options
from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.contracts.metrics import STATE_OBJECTS, MetricKind, all_together
from millstream.graph.model import by_chain
from millstream.metrics.definitions import DEFINED, REQUEST_METRICS, STATUSES, Scope
from millstream.metrics.spans import checkpoint_span, failed_checkpoint_span, start_span
from millstream.runtime.process_use import ProcessUse, this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from millstream.checkpoint.commit import PendingCommits
    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.contracts.metrics import InstanceFigures, Measure, MetricValue, Span
    from millstream.contracts.source import Source
    from millstream.graph.model import JobGraph, StreamNode
    from millstream.runtime.task_metrics import (
        RunningMetrics,
        SplitFigures,
        SubtaskTimes,
    )

#: Seconds that a rate is of, and between two counts that are remembered for it: as in Flink.
_RATE_SPAN: Final = 60.0
_RATE_STEP: Final = 5.0
#: Milliseconds per second from which a subtask is called backpressured.
_BACKPRESSURED: Final = 100.0
_SECOND: Final = 1000
#: Characters of an operator's name, as in Flink, and of a task's, which has those of all operators.
_LONGEST_NAME: Final = 80
_LONGEST_TASK_NAME: Final = 255
#: In the place of a slot's number.
_DRIVER: Final = -1
_PER_SECOND: Final = "PerSecond"
_RECORDS: Final = ("numRecordsIn", "numRecordsOut")
_BYTES: Final = ("numBytesIn", "numBytesOut")
_RATED: Final = (*_RECORDS, *_BYTES)
#: Flink's group of the metrics of a Kafka source.
_KAFKA: Final = "KafkaSourceReader"
_CACHE: Final = "rocksdb.block-cache-usage"


@dataclass(frozen=True, slots=True)
class Measurement:
    """The value of one metric, before a reporter's options give it an identifier."""

    scope: Scope
    groups: tuple[str, ...]
    name: str
    kind: MetricKind
    value: float | Mapping[str, float]
    #: Flink's variables, by name.
    variables: Mapping[str, str]
    #: Values of those of the groups that have one, which are variables, too.
    group_values: Mapping[str, str] = field(default_factory=dict)
    #: Whether a function of the program counts or measures it.
    of_function: bool = False


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """What the engine knows of running tasks."""

    counts: Sequence[RunningMetrics] = ()
    times: Mapping[tuple[int, int], SubtaskTimes] = field(default_factory=dict)
    #: Slot -> its machine, and what its process uses.
    uses: Mapping[int, tuple[str, ProcessUse]] = field(default_factory=dict)
    splits: Sequence[SplitFigures] = ()
    #: By uid of the sink.
    commits: Mapping[str, CommitCounts] = field(default_factory=dict)


@dataclass(slots=True)
class _Checkpoints:
    """Counts and sizes of checkpoints since the driver started."""

    completed: int = 0
    failed: int = 0
    restored: int = -1
    duration: int = 0
    size: int = 0
    #: To object stores, by kind, and bytes.
    requests: Counter[str] = field(default_factory=Counter)


class _Rates:
    """The rates of counters, over the last minute."""

    def __init__(self, now: float) -> None:
        self._seen: deque[tuple[float, dict[object, float]]] = deque([(now, {})])

    def update(self, now: float, counts: dict[object, float]) -> None:
        """Remember the counts of now, if the last ones are older than some seconds."""
        if now - self._seen[-1][0] >= _RATE_STEP:
            self._seen.append((now, counts))

    def forget(self, now: float) -> None:
        """Forget counts that no rate of now needs."""
        # One that is older than the span stays, for what has happened since.
        while len(self._seen) > 1 and now - self._seen[1][0] >= _RATE_SPAN:
            self._seen.popleft()

    def rate(self, now: float, key: object, count: float) -> float:
        """Return how much a counter has grown per second."""
        since, counts = self._seen[0]
        passed = now - since
        return max(0.0, count - counts.get(key, 0)) / passed if passed > 0 else 0.0


@dataclass(frozen=True, slots=True)
class _Task:
    """A chain of operators, which Flink calls a task."""

    name: str
    number: int
    level: int
    parallelism: int
    nodes: tuple[StreamNode, ...]
    #: Those that records come into from outside, and that send them outside.
    heads: tuple[StreamNode, ...]
    tails: tuple[StreamNode, ...]


class MetricRegistry:
    """The metrics of one job on its driver.

    Contract:
      1. Events come from the threads of the driver, ``collect`` from any thread.  (a lock)
      2. Every metric of the runtime is in ``DEFINITIONS``; others are of functions and of
         operators of other packages.  (``_defined``)

    Args:
        graph: the job.
        job_id: its id.
        seconds: a clock that does not go back.
        milliseconds: the time since 1970.
        on_span: told of each checkpoint, restart and recovery; from any thread.
    """

    def __init__(
        self,
        graph: JobGraph,
        job_id: str,
        seconds: Callable[[], float] = time.monotonic,
        milliseconds: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        on_span: Callable[[Span], None] = lambda _: None,
    ) -> None:
        self._lock = threading.Lock()
        self._seconds, self._milliseconds, self._on_span = seconds, milliseconds, on_span
        self._tasks = list(_tasks_of(graph))
        self._nodes = {node.uid: node for node in graph.nodes.values()}
        self._host, self._cores = socket.gethostname(), os.cpu_count() or 1
        self._job = {"host": self._host, "job_id": job_id, "job_name": graph.job_name}
        now = seconds()
        self._rates = _Rates(now)
        self._status, self._since, self._began = "CREATED", now, now
        self._spent = dict.fromkeys(STATUSES, 0.0)
        self._failed_at: float | None = None
        self._restarts = 0
        self._checkpoints = _Checkpoints()
        self._last: Manifest | None = None
        #: What is in checkpoints since the driver started, by (uid, subtask) and metric.
        self._committed: dict[tuple[str, int], dict[str, MetricValue]] = {}
        #: Counts that were given out last: none goes back.
        self._given: dict[tuple[str, int, str], int] = {}
        self._figures = _Figures()
        #: Of the last checkpoint, by (level, subtask).
        self._acks: dict[tuple[int, int], TaskAck] = {}
        #: (source uid, split id) -> the subtask that has read it last.
        self._readers: dict[tuple[str, str], int] = {}
        #: Milliseconds at work of tasks that end with their checkpoint, by (level, subtask).
        self._busy: dict[tuple[int, int], float] = {}
        #: The most memory of processes that ran a subtask of the last checkpoint, in bytes.
        self._peaks: dict[int, int] = {}
        #: Nanoseconds of CPU time of tasks that end with their checkpoint, by subtask.
        self._cpu: dict[int, int] = {}
        #: Of the driver (-1) and of slots, when metrics were collected last.
        self._uses: dict[int, ProcessUse] = {}
        #: What state of a process may take, in bytes.
        self._managed: int = graph.configuration.get(options.MANAGED_MEMORY)

    # -- events --------------------------------------------------------------------------------

    def rescaled(self, graph: JobGraph) -> None:
        """Note that operators of the job have another parallelism."""
        with self._lock:
            self._tasks = list(_tasks_of(graph))
            self._nodes = {node.uid: node for node in graph.nodes.values()}
            self._acks.clear()

    def moved(self, status: str) -> None:
        """Note that the job has another status."""
        with self._lock:
            now = self._seconds()
            if status == self._status:
                return
            if self._status in self._spent:
                self._spent[self._status] += now - self._since
            if status == "RESTARTING" and self._failed_at is None:
                self._failed_at = now
            elif status == "RUNNING":
                if self._failed_at is not None:
                    self._add_start("Restart", now - self._failed_at)
                self._failed_at = None
            self._status, self._since = status, now

    def _add_start(self, name: str, seconds: float) -> None:
        """Make the span of a start that has taken some seconds up to now."""
        end = self._milliseconds()
        epoch = -1 if self._last is None else self._last.epoch
        start = end - int(seconds * _SECOND)
        self._on_span(start_span(name, self._job, start, end, epoch))

    def initialized(self, seconds: float) -> None:
        """Note that a run has taken the job over, and what it has restored from.

        Args:
            seconds: that it took.
        """
        with self._lock:
            self._add_start("JobInitialization", seconds)

    def restarted(self) -> None:
        """Note that the job, or a region of it, is started again after a failure."""
        with self._lock:
            self._restarts += 1

    def driver_restarted(self, restarts: int, failed_at: int) -> None:
        """Note that drivers before this one have died.

        Args:
            restarts: how many.
            failed_at: when the last one did, in milliseconds since 1970.
        """
        with self._lock:
            self._restarts += restarts
            if restarts:
                self._failed_at = self._seconds() - (self._milliseconds() - failed_at) / _SECOND

    def recovered(self, manifest: Manifest) -> None:
        """Note that a run continues from a checkpoint."""
        with self._lock:
            self._last = manifest
            self._checkpoints.restored = self._milliseconds()

    def checkpoint_failed(self) -> None:
        """Note that a checkpoint was aborted."""
        with self._lock:
            self._checkpoints.failed += 1
            self._on_span(failed_checkpoint_span(self._job, self._milliseconds()))

    def checkpoint_completed(
        self, manifest: Manifest, acks: Sequence[TaskAck], seconds: float, size: int
    ) -> None:
        """Note a checkpoint that is committed.

        Args:
            manifest: of the checkpoint.
            acks: of its tasks.
            seconds: that it took.
            size: bytes that it uploaded.
        """
        with self._lock:
            before = -1 if self._last is None else self._last.epoch
            self._last = manifest
            self._checkpoints.completed += 1
            self._checkpoints.duration, self._checkpoints.size = int(seconds * _SECOND), size
            self._checkpoints.requests.update(manifest.requests)
            self._peaks.clear()
            for ack in acks:
                self._take(with_earlier(ack, before))
            sizes = [size, sum(each for *_, each in _state_sizes(manifest))]
            now = self._milliseconds()
            self._on_span(checkpoint_span(self._job, manifest, acks, now, sizes))

    def _take(self, ack: TaskAck) -> None:
        busy = (ack.stage, ack.subtask)
        self._acks[busy] = ack
        if ack.figures is not None:
            self._figures.take(ack.subtask, ack.figures)
        if ack.cpu:
            self._cpu[ack.subtask] = self._cpu.get(ack.subtask, 0) + int(ack.cpu * 1e9)
        self._busy[busy] = self._busy.get(busy, 0.0) + ack.seconds * _SECOND
        if ack.peak_memory:
            most = max(ack.peak_memory, self._peaks.get(ack.subtask, 0))
            self._peaks[ack.subtask] = most
        counted: dict[tuple[str, int], dict[str, MetricValue]] = {
            (each.uid, each.subtask): dict(each.metrics) for each in ack.operators
        }
        for split in ack.splits:
            source = counted.setdefault((split.source_uid, ack.subtask), {})
            source["numRecordsIn"] = _number(source.get("numRecordsIn", 0)) + split.records
            self._readers[split.source_uid, split.split_id] = ack.subtask
        for key, metrics in counted.items():
            self._committed[key] = all_together(self._committed.get(key, {}), metrics)

    # -- values --------------------------------------------------------------------------------

    def collect(
        self,
        tasks: TaskFigures,
        pending: PendingCommits,
        vertices: Mapping[str, Mapping[str, float]] | None = None,
    ) -> list[Measurement]:
        """Return all metrics as they are now.

        Args:
            tasks: what the engine knows of running tasks.
            pending: what sinks have not committed.
            vertices: what the autoscaler has computed, by the uid of a chain's first operator.
        """
        with self._lock:
            now = self._seconds()
            self._rates.forget(now)
            for each in tasks.counts:
                if each.figures is not None:
                    self._figures.take(each.subtask, each.figures)
            counts = self._counts(tasks.counts)
            rated: dict[object, float] = {
                (*key, name): _number(metrics[name])
                for key, metrics in counts.items()
                for name in _RATED
                if name in metrics
            }
            rated.update(self._busy)
            rated.update(((subtask, "cpu"), cpu) for subtask, cpu in self._cpu.items())
            rated.update(self._meters(counts))
            found = [
                *self._of_job_manager(),
                *self._of_slots(now, tasks.uses),
                *self._of_job(now),
                *self._of_autoscaler(vertices or {}),
                *self._of_operators(now, counts),
                *self._of_latency(),
                *self._of_sources(tasks.splits),
                *self._of_commits(pending, tasks.commits),
                *self._of_tasks(now, counts, tasks.times),
            ]
            self._rates.update(now, rated)
            return found

    def _counts(
        self, running: Sequence[RunningMetrics]
    ) -> dict[tuple[str, int], dict[str, MetricValue]]:
        """What subtasks have counted, in checkpoints and since then."""
        epoch = -1 if self._last is None else self._last.epoch
        found = {
            (node.uid, subtask): dict(self._committed.get((node.uid, subtask), {}))
            for node in self._nodes.values()
            for subtask in range(node.parallelism)
        }
        for each in running:
            if each.after >= epoch:  # else the last checkpoint has some of it
                for uid, metrics in _by_operator(each.metrics, self._nodes).items():
                    key = (uid, each.subtask)
                    found[key] = all_together(found.get(key, {}), metrics)
        for (uid, subtask, name), count in self._figures.counts.items():
            if (uid, subtask) in found:
                found[uid, subtask][name] = count
        for (uid, subtask), metrics in found.items():
            metrics.setdefault("numRecordsIn", 0)
            if self._nodes[uid].kind == "source":
                metrics["numRecordsOut"] = metrics["numRecordsIn"]
            metrics.setdefault("numRecordsOut", 0)
            for name, value in metrics.items():
                if isinstance(value, int):
                    given = (uid, subtask, name)
                    self._given[given] = metrics[name] = max(value, self._given.get(given, 0))
        return found

    def _meters(
        self, counts: Mapping[tuple[str, int], Mapping[str, MetricValue]]
    ) -> Iterator[tuple[object, float]]:
        for key, metrics in counts.items():
            for name, value in metrics.items():
                if isinstance(value, dict) and value["kind"] == "meter":
                    yield (*key, name), value["count"]

    def _of_job_manager(self) -> Iterator[Measurement]:
        variables = {"host": self._host}
        running = int(self._status in {"RUNNING", "RESTARTING", "CANCELLING"})
        yield _defined(Scope.JOB_MANAGER, "numRunningJobs", running, variables)
        yield from self._of_process(_DRIVER, Scope.JOB_MANAGER, this_process(), variables)

    def _of_slots(
        self, now: float, uses: Mapping[int, tuple[str, ProcessUse]]
    ) -> Iterator[Measurement]:
        for number, (machine, use) in sorted(uses.items()):
            variables = {"host": machine, "tm_id": f"slot-{number}"}
            yield from self._of_process(number, Scope.TASK_MANAGER, use, variables)
            yield from self._of_memory(number, variables)
        for number, most in sorted(self._peaks.items()):
            if number not in uses:
                variables = {"host": self._host, "tm_id": f"slot-{number}"}
                yield _defined(Scope.TASK_MANAGER, "Status.Process.Memory.RSS", most, variables)
                cpu = self._cpu.get(number, 0)
                load = self._rates.rate(now, (number, "cpu"), cpu) / 1e9 / self._cores
                yield _defined(Scope.TASK_MANAGER, "Status.JVM.CPU.Time", cpu, variables)
                yield _defined(Scope.TASK_MANAGER, "Status.JVM.CPU.Load", load, variables)
                yield from self._of_memory(number, variables)

    def _of_memory(self, subtask: int, variables: Mapping[str, str]) -> Iterator[Measurement]:
        """What state takes of the memory that a process has for it."""
        objects = caches = 0.0
        for (_, of, name), gauge in self._figures.gauges.items():
            if of == subtask and name == STATE_OBJECTS:
                objects += gauge
            elif of == subtask and name == _CACHE:  # which all stores share
                caches = max(caches, gauge)
        values = {"Used": int(objects + caches), "Total": self._managed}
        for name, value in values.items():
            path = f"Status.Flink.Memory.Managed.{name}"
            yield _defined(Scope.TASK_MANAGER, path, value, variables)

    def _of_process(
        self, number: int, scope: Scope, use: ProcessUse, variables: Mapping[str, str]
    ) -> Iterator[Measurement]:
        load, self._uses[number] = use.load(self._uses.get(number)), use
        yield _defined(scope, "Status.JVM.CPU.Load", max(0.0, load), variables)
        yield _defined(scope, "Status.JVM.CPU.Time", use.cpu, variables)
        yield _defined(scope, "Status.JVM.Threads.Count", use.threads, variables)
        collections = "Status.JVM.GarbageCollector.All.Count"
        yield _defined(scope, collections, use.collections, variables)
        yield _defined(scope, "Status.Process.Memory.RSS", use.memory, variables)

    def _of_job(self, now: float) -> Iterator[Measurement]:
        last, checkpoints = self._last, self._checkpoints
        values: dict[str, float] = {}
        for status in STATUSES:
            current = (now - self._since) * _SECOND if status == self._status else 0
            values[f"{status.lower()}State"] = int(status == self._status)
            values[f"{status.lower()}Time"] = int(current)
            values[f"{status.lower()}TimeTotal"] = int(self._spent[status] * _SECOND + current)
        values["uptime"] = values["runningTime"]
        values["downtime"] = (
            0 if self._failed_at is None else int((now - self._failed_at) * _SECOND)
        )
        values["numRestarts"] = self._restarts
        values["lastCheckpointDuration"] = checkpoints.duration
        values["lastCheckpointSize"] = checkpoints.size
        values["lastCheckpointFullSize"] = (
            0 if last is None else sum(size for *_, size in _state_sizes(last))
        )
        values["lastCompletedCheckpointId"] = 0 if last is None else last.epoch
        values["lastCheckpointCompletedTimestamp"] = 0 if last is None else last.published
        values["lastCheckpointRestoreTimestamp"] = checkpoints.restored
        values["numberOfCompletedCheckpoints"] = checkpoints.completed
        values["numberOfFailedCheckpoints"] = checkpoints.failed
        values["totalNumberOfCheckpoints"] = checkpoints.completed + checkpoints.failed
        for kind, (name, _) in REQUEST_METRICS.items():
            values[f"ObjectStore.{name}"] = checkpoints.requests[kind]
        for name, value in values.items():
            yield _defined(Scope.JOB, name, value, self._job)

    def _of_autoscaler(self, vertices: Mapping[str, Mapping[str, float]]) -> Iterator[Measurement]:
        for vertex, values in vertices.items():
            groups = {"jobVertexID": vertex}
            for name, value in values.items():
                path = f"AutoScaler.jobVertexID.{name}"
                found = _defined(Scope.JOB, path, value, {**self._job, **groups})
                yield replace(found, group_values=groups)

    def _of_operators(
        self, now: float, counts: Mapping[tuple[str, int], Mapping[str, MetricValue]]
    ) -> Iterator[Measurement]:
        tasks = {node.uid: task for task in self._tasks for node in task.nodes}
        for (uid, subtask), metrics in counts.items():
            node = self._nodes[uid]
            variables = self._variables(tasks[uid], subtask, node)
            for name, value in metrics.items():
                rate = self._rates.rate(now, (uid, subtask, name), _number(value))
                if isinstance(value, dict):
                    yield _of_function(name, value, rate, variables)
                    continue
                yield _counted(name, value, variables)
                if name in _RATED:
                    yield _defined(Scope.OPERATOR, name + _PER_SECOND, rate, variables)
        for (uid, subtask, name), gauge in self._figures.gauges.items():
            if uid in tasks and subtask < self._nodes[uid].parallelism:
                variables = self._variables(tasks[uid], subtask, self._nodes[uid])
                yield _defined(Scope.OPERATOR, name, gauge, variables)
        if self._last is not None:
            yield from self._of_checkpoint(self._last, tasks)

    def _of_latency(self) -> Iterator[Measurement]:
        for (uid, source, source_subtask, subtask), values in self._figures.latencies.items():
            if uid not in self._nodes or subtask >= self._nodes[uid].parallelism:
                continue
            groups = {"operator_id": uid, "operator_subtask_index": str(subtask)}
            if source_subtask >= 0:
                groups = {"source_subtask_index": str(source_subtask), **groups}
            if source:
                groups = {"source_id": source, **groups}
            path = ".".join(("latency", *groups, "latency"))
            definition = DEFINED[Scope.TASK_MANAGER_JOB, path]
            variables = {**self._job, "tm_id": f"slot-{subtask}", **groups}
            yield Measurement(
                definition.scope,
                definition.groups,
                definition.name,
                definition.kind,
                values,
                variables,
                groups,
            )

    def _of_sources(self, splits: Sequence[SplitFigures]) -> Iterator[Measurement]:
        """What sources have not read, and which offsets were committed to where they read."""
        tasks = {node.uid: task for task in self._tasks for node in task.nodes}
        by_subtask: dict[tuple[str, int], list[SplitFigures]] = {}
        for each in splits:
            subtask = each.subtask
            if subtask is None:
                subtask = self._readers.get((each.source_uid, each.split_id), 0)
            by_subtask.setdefault((each.source_uid, subtask), []).append(each)
        for node in self._nodes.values():
            if node.source is None:
                continue
            for subtask in range(node.parallelism):
                found = by_subtask.get((node.uid, subtask), [])
                variables = self._variables(tasks[node.uid], subtask, node)
                yield from _of_splits(node.source, found, variables)
            commits = node.source.commits
            if commits is not None:
                variables = self._variables(tasks[node.uid], 0, node)
                for name, count in (("Succeeded", commits.succeeded), ("Failed", commits.failed)):
                    path = f"{_KAFKA}.commits{name}"
                    yield _defined(Scope.OPERATOR, path, count, variables)

    def _of_checkpoint(self, last: Manifest, tasks: Mapping[str, _Task]) -> Iterator[Measurement]:
        """What the last checkpoint has: watermarks and sizes of state."""
        time_now = self._milliseconds()
        for uid, acks in last.operators.items():
            for ack in acks if uid in tasks else ():
                node, watermark = self._nodes[uid], ack.watermark
                variables = self._variables(tasks[uid], ack.subtask, node)
                if node.kind != "source":
                    name = "currentInputWatermark"
                    yield _defined(Scope.OPERATOR, name, watermark, variables)
                yield _defined(Scope.OPERATOR, "currentOutputWatermark", watermark, variables)
                if MIN_TIMESTAMP < watermark < MAX_TIMESTAMP:
                    lag = time_now - watermark
                    yield _defined(Scope.OPERATOR, "watermarkLag", lag, variables)
        for uid, subtask, size in _state_sizes(last):
            if uid in tasks:
                variables = self._variables(tasks[uid], subtask, self._nodes[uid])
                yield _defined(Scope.OPERATOR, "lastCheckpointStateSize", size, variables)

    def _of_commits(
        self, pending: PendingCommits, counts: Mapping[str, CommitCounts]
    ) -> Iterator[Measurement]:
        """What sinks have not committed; the driver commits, so the subtask is the first."""
        for task in self._tasks:
            for node in task.nodes:
                if node.kind == "sink":
                    count = pending.sinks.get(node.uid, pending.sinks.get(node.name, 0))
                    age = pending.age(self._milliseconds()) if count else 0
                    variables = self._variables(task, 0, node)
                    variables["operator_name"] = f"{node.name}: Committer"
                    yield _defined(Scope.OPERATOR, "pendingCommittables", count, variables)
                    yield _defined(Scope.OPERATOR, "pendingCommittablesAge", age, variables)
                    counted = counts.get(node.uid, CommitCounts())
                    for name in ("total", "successful", "retried", "failed"):
                        path = f"{name}Committables"
                        value = getattr(counted, "succeeded" if name == "successful" else name)
                        yield _defined(Scope.OPERATOR, path, value, variables)

    def _of_tasks(
        self,
        now: float,
        counts: Mapping[tuple[str, int], Mapping[str, MetricValue]],
        times: Mapping[tuple[int, int], SubtaskTimes],
    ) -> Iterator[Measurement]:
        for task in self._tasks:
            for subtask in range(task.parallelism):
                variables = self._variables(task, subtask)
                for name, nodes in zip(_RATED, 2 * (task.heads, task.tails), strict=True):
                    keys = [
                        (node.uid, subtask)
                        for node in nodes
                        if name in counts.get((node.uid, subtask), {})
                    ]
                    if not keys and name in _BYTES:
                        continue  # nothing of it comes from, or goes to, other tasks
                    total = sum(_number(counts[key][name]) for key in keys)
                    rate = sum(
                        self._rates.rate(now, (*key, name), _number(counts[key][name]))
                        for key in keys
                    )
                    yield _defined(Scope.TASK, name, total, variables)
                    yield _defined(Scope.TASK, name + _PER_SECOND, rate, variables)
                yield from self._times(now, task, subtask, times, variables)

    def _times(
        self,
        now: float,
        task: _Task,
        subtask: int,
        times: Mapping[tuple[int, int], SubtaskTimes],
        variables: Mapping[str, str],
    ) -> Iterator[Measurement]:
        found = times.get((task.number, subtask))
        level = (task.level, subtask)
        if found is not None:
            busy, idle, stuck = found.busy, found.idle, found.backpressured
            accumulated = found.accumulated
            path = "Shuffle.Netty.Input.Buffers.inputQueueSize"
            yield _defined(Scope.TASK, path, found.waiting, variables)
        elif self._busy.get(level):
            busy = min(1000.0, self._rates.rate(now, level, self._busy[level]))
            idle, stuck = 1000.0 - busy, 0.0
            # The clock of a job that has ended stands still.
            elapsed = (now if self._status in STATUSES else self._since) - self._began
            spent = self._busy[level]
            accumulated = (spent, max(0.0, elapsed * _SECOND - spent), 0.0)
        else:
            return  # nothing is known: it has not acknowledged anything
        yield from self._of_alignment(task, subtask, variables)
        yield _defined(Scope.TASK, "busyTimeMsPerSecond", busy, variables)
        yield _defined(Scope.TASK, "idleTimeMsPerSecond", idle, variables)
        yield _defined(Scope.TASK, "backPressuredTimeMsPerSecond", stuck, variables)
        yield _defined(Scope.TASK, "isBackPressured", int(stuck > _BACKPRESSURED), variables)
        for name, total in zip(("Busy", "Idle", "BackPressured"), accumulated, strict=True):
            yield _defined(Scope.TASK, f"accumulate{name}TimeMs", int(total), variables)

    def _of_alignment(
        self, task: _Task, subtask: int, variables: Mapping[str, str]
    ) -> Iterator[Measurement]:
        """How long the last checkpoint took to come to a long-running task, and to be aligned."""
        ack = self._acks.get((task.number, subtask))
        if ack is None or ack.barrier is None or self._last is None:
            return
        delay = max(0, ack.barrier - self._last.started) * 1_000_000
        yield _defined(Scope.TASK, "checkpointStartDelayNanos", delay, variables)
        yield _defined(Scope.TASK, "checkpointAlignmentTime", int(ack.aligning * 1e9), variables)

    def _variables(
        self, task: _Task, subtask: int, node: StreamNode | None = None
    ) -> dict[str, str]:
        """Flink's variables of a subtask, and of an operator in it."""
        task_id = task.nodes[0].uid
        found = {
            **self._job,
            "tm_id": f"slot-{subtask}",
            "task_id": task_id,
            "task_name": task.name,
            "task_attempt_id": f"{task_id}_{subtask}_{self._restarts}",
            "task_attempt_num": str(self._restarts),
            "subtask_index": str(subtask),
        }
        if node is not None:
            found |= {"operator_id": node.uid, "operator_name": operator_name(node)}
        return found


class _Figures:
    """Figures of instances of tasks, put together over all that a subtask has had."""

    def __init__(self) -> None:
        #: By uid, subtask and metric: what was counted in all, and the gauges of now.
        self.counts: dict[tuple[str, int, str], int] = {}
        self.gauges: dict[tuple[str, int, str], float] = {}
        #: By (operator, source, its subtask) and subtask.
        self.latencies: dict[tuple[str, str, int, int], dict[str, float]] = {}
        #: The most that an instance has told of a count: it may be read again, and late.
        self._told: dict[tuple[tuple[str, int, str], str], int] = {}

    def take(self, subtask: int, figures: InstanceFigures) -> None:
        """Take what an instance of a subtask's task has told."""
        for name, count in figures.counts.items():
            uid, _, metric = name.rpartition(".")
            key = (uid, subtask, metric)
            before = self._told.get((key, figures.instance), 0)
            if count > before:
                self.counts[key] = self.counts.get(key, 0) + count - before
                self._told[key, figures.instance] = count
        for latency, statistics in figures.latencies.items():
            self.latencies[*latency, subtask] = statistics
        for name, gauge in figures.gauges.items():
            uid, is_rocksdb, metric = name.partition(".rocksdb.")
            if is_rocksdb:
                metric = f"rocksdb.{metric}"
            else:
                uid, _, metric = name.rpartition(".")
            self.gauges[uid, subtask, metric] = gauge


def _of_splits(
    source: Source, splits: Sequence[SplitFigures], variables: Mapping[str, str]
) -> Iterator[Measurement]:
    """What a subtask of a source has to read, and where it is in the partitions of Kafka."""
    if not source.offsets_are_records:
        return
    lags = [max(0, each.end - each.position) for each in splits]
    yield _defined(Scope.OPERATOR, "pendingRecords", sum(lags), variables)
    commits = source.commits
    is_kafka = False
    for each, lag in zip(splits, lags, strict=True):
        groups = source.metric_groups(each.split_id)
        if not groups:
            continue
        is_kafka = True
        values = {"currentOffset": each.position, "records-lag": lag}
        if commits is not None and each.split_id in commits.offsets:
            values["committedOffset"] = commits.offsets[each.split_id]
        for name, value in values.items():
            path = f"{_KAFKA}.topic.partition.{name}"
            found = _defined(Scope.OPERATOR, path, value, {**variables, **groups})
            yield replace(found, group_values=groups)
    if is_kafka:
        path = f"{_KAFKA}.KafkaConsumer.records-lag-max"
        yield _defined(Scope.OPERATOR, path, max(lags), variables)


class _Named(Protocol):
    """An operator, as the graph or the REST API has it."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...


def operator_name(node: _Named) -> str:
    """Return what Flink calls an operator: sources and sinks by what they are, too; cut."""
    name = node.name
    if node.kind == "source" and not name.startswith("Source: "):
        name = f"Source: {name}"
    elif node.kind == "sink":
        name = f"{name}: Writer"
    return name[:_LONGEST_NAME]


def _tasks_of(graph: JobGraph) -> Iterator[_Task]:
    chains = by_chain(graph)
    for stage in chains.stages:
        inside = set(stage.nodes)
        heads = [
            each for each in stage.nodes if all(e.source not in inside for e in graph.inputs(each))
        ]
        tails = [
            each
            for each in stage.nodes
            if not graph.outputs(each) or any(e.target not in inside for e in graph.outputs(each))
        ]
        nodes, first, last = (
            tuple(graph.nodes[each] for each in many) for many in (stage.nodes, heads, tails)
        )
        name = " -> ".join(map(operator_name, nodes))[:_LONGEST_TASK_NAME]
        yield _Task(name, stage.number, stage.level, stage.parallelism, nodes, first, last)


def _state_sizes(last: Manifest) -> Iterator[tuple[str, int, int]]:
    """Uid, subtask and bytes of state of each operator that has any."""
    for uid, acks in last.operators.items():
        for ack in acks:
            size = sum(file["size"] for file in ack.files())
            if size:
                yield uid, ack.subtask, size


def _by_operator(
    metrics: Mapping[str, MetricValue], uids: Mapping[str, object]
) -> dict[str, dict[str, MetricValue]]:
    """Metrics of "uid.metric" by uid and metric; a uid, or a metric, may have dots."""
    found: dict[str, dict[str, MetricValue]] = {}
    for name, value in metrics.items():
        parts = name.split(".")
        for length in range(len(parts) - 1, 0, -1):
            uid = ".".join(parts[:length])
            if uid in uids:
                found.setdefault(uid, {})[".".join(parts[length:])] = value
                break
    return found


def _number(value: MetricValue) -> int:
    return value if isinstance(value, int) else int(value.get("count", 0))


def _defined(scope: Scope, path: str, value: float, variables: Mapping[str, str]) -> Measurement:
    """Make the measurement of a metric of ``DEFINITIONS``; a name that is not there is a bug."""
    definition = DEFINED[scope, path]
    return Measurement(scope, definition.groups, definition.name, definition.kind, value, variables)


def _counted(name: str, value: int, variables: Mapping[str, str]) -> Measurement:
    """Make the measurement of what an operator counts; those of other packages have any name."""
    *groups, last = name.split(".")
    return Measurement(Scope.OPERATOR, tuple(groups), last, MetricKind.COUNTER, value, variables)


def _of_function(
    path: str, measure: Measure, rate: float, variables: Mapping[str, str]
) -> Measurement:
    """Make the measurement of a metric of a user function."""
    *groups, name = path.split(".")
    kind = measure["kind"]
    value: float | Mapping[str, float]
    if kind == "counter":
        of, value = MetricKind.COUNTER, measure["count"]
    elif kind == "gauge":
        of, value = MetricKind.GAUGE, measure["value"]
    elif kind == "meter":
        of, value = MetricKind.METER, rate
    else:
        of = MetricKind.HISTOGRAM
        value = {each: measure[each] for each in ("count", "sum", "min", "max")}
        value["mean"] = measure["sum"] / measure["count"]
    where = (Scope.OPERATOR, tuple(groups), name)
    return Measurement(*where, of, value, variables, of_function=True)
