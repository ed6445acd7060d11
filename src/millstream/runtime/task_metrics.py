"""Metrics of running tasks, shown before the checkpoint that will contain them is complete.

Tasks of the pipelined engine send theirs with their heartbeat.  A task that ends with its
checkpoint writes them to the checkpoint storage once a second, because the storage is what every
engine shares with its tasks.  Nothing depends on these files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.contracts.metrics import STATE_OBJECTS, InstanceFigures
from millstream.errors import MillstreamError
from millstream.state.keyed import KeyedState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.metrics import MetricValue
    from millstream.runtime.split_reader import SplitReader
    from millstream.runtime.stage import StageInstance


_LOG: Final = logging.getLogger("millstream")
#: Directory of the checkpoint storage.
COUNTS: Final = "counts"
#: Seconds that a task runs before its counts are written, and between two times.
_INTERVAL: Final = 1.0


@dataclass(frozen=True, slots=True)
class RunningMetrics:
    """The counts and measurements of a task since a checkpoint, by "uid.metric"."""

    #: The last checkpoint that the task knows to be complete: what it has is not in ``metrics``.
    after: int
    metrics: dict[str, MetricValue]
    #: Whose they are.
    subtask: int
    figures: InstanceFigures | None = None


@dataclass(frozen=True, slots=True)
class SplitFigures:
    """How far a split of a source is read, and how far it can be read."""

    source_uid: str
    split_id: str
    position: int
    end: int
    #: Who reads it; None: another one may in each epoch.
    subtask: int | None = None


@dataclass(frozen=True, slots=True)
class SubtaskTimes:
    """Milliseconds of the last second that a subtask was at work, waiting, or without credit.

    Their sum is 1000.  The subtasks of a slot share its thread: one that has to wait for another's
    turn to be over is backpressured if it feeds others, else busy.
    """

    busy: float
    idle: float
    backpressured: float
    #: Bytes of records that have come and are not processed.
    waiting: int = 0
    #: Milliseconds at work, waiting and without credit since the task was started.
    accumulated: tuple[float, float, float] = (0.0, 0.0, 0.0)


def metrics_of(instance: StageInstance, splits: SplitReader | None) -> dict[str, MetricValue]:
    """Return what the operators of a task have counted and measured since the last snapshot.

    Gauges are those that the task read last; it reads them again when it is at its next batch.

    Args:
        instance: of the task.
        splits: reads its splits; None: it has none.
    """
    instance.wants_gauges = True
    found: dict[str, MetricValue] = {}
    for node in instance.nodes:
        metrics = instance.operators[node.id].current_metrics()
        if node.kind == "source":
            metrics = {"numRecordsIn": 0 if splits is None else splits.counted.get(node.id, 0)}
        unparsed = 0 if splits is None else splits.unparsed.get(node.id, 0)
        if unparsed:
            metrics["numRecordsInErrors"] = unparsed
        unread = instance.outputs[node.id].unread
        if unread:
            metrics["numSideOutputRecordsUnread"] = unread
        for name, value in metrics.items():
            found[f"{node.uid}.{name}"] = value
    return found


def figures_of(instance: StageInstance, stores: Mapping[int, KeyValueStore]) -> InstanceFigures:
    """Return what is known of a task here and now; from any thread.

    Args:
        instance: of the task.
        stores: its open stores, by node.
    """
    counts: dict[str, int] = {}
    uids = {node.id: node.uid for node in instance.nodes}
    for node, size in list(instance.received.items()):
        counts[f"{uids[node]}.numBytesIn"] = size
    for writer in instance.writers:
        name = f"{uids[writer.source_node]}.numBytesOut"
        counts[name] = counts.get(name, 0) + writer.sent
    gauges = {
        f"{uids[node]}.{name}": value
        for node, store in list(stores.items())
        for name, value in store.gauges().items()
    }
    for node, operator in list(instance.operators.items()):
        keyed = getattr(operator, "keyed_state", None)
        if isinstance(keyed, KeyedState):
            gauges[f"{uids[node]}.{STATE_OBJECTS}"] = keyed.objects_size
    return InstanceFigures(instance.id, counts, gauges)


@dataclass(eq=False, slots=True)
class _Published:
    storage: CheckpointStorage
    name: str
    counts: Callable[[], RunningMetrics]
    due: float
    interval: float
    #: Around a write: the task may end, and the next one of this name begin.
    writing: threading.Lock = field(default_factory=threading.Lock)
    is_over: bool = False

    def write(self) -> None:
        with self.writing:
            if self.is_over:
                return
            try:
                counts = self.counts()
                content = json.dumps(asdict(counts))
                self.storage.write(self.name, content.encode())
            except Exception:  # noqa: BLE001 - the task itself meets what is wrong, and raises it
                _LOG.debug("the counts of a running task are not written", exc_info=True)


class _Publisher:
    """The thread of a process that writes the counts of its tasks; started by the first one."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._tasks: set[_Published] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def is_of_this_process(self) -> bool:
        """Return whether it was not inherited by a fork, which has no thread of it."""
        return self._pid == os.getpid()

    def add(self, task: _Published) -> None:
        with self._changed:
            self._tasks.add(task)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="millstream-counts", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def remove(self, task: _Published) -> None:
        with self._changed:
            self._tasks.discard(task)
        with task.writing:
            task.is_over = True

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._tasks:
                    self._changed.wait()
                    continue
                now = time.monotonic()
                due = [task for task in self._tasks if task.due <= now]
                if not due:
                    self._changed.wait(min(task.due for task in self._tasks) - now)
                    continue
            for task in due:
                task.write()
                task.due = time.monotonic() + task.interval


_publisher = _Publisher()


@contextlib.contextmanager
def published(
    storage: CheckpointStorage, task: tuple[int, int], counts: Callable[[], RunningMetrics]
) -> Iterator[None]:
    """Publish the counts of a task while it runs."""
    global _publisher  # noqa: PLW0603 - one thread for a process
    if not _publisher.is_of_this_process:
        _publisher = _Publisher()
    stage, subtask = task
    name = f"{COUNTS}/{stage}-{subtask}.json"
    interval = max(_INTERVAL, storage.poll_interval)
    each = _Published(storage, name, counts, time.monotonic() + interval, interval)
    publisher = _publisher
    publisher.add(each)
    try:
        yield
    finally:
        publisher.remove(each)


def read_counts(storage: CheckpointStorage) -> list[RunningMetrics]:
    """Return what tasks have published; what cannot be read is left out, for it is only shown."""
    found = []
    try:
        for name in storage.list_names(COUNTS):
            value = json.loads(storage.read(name))
            after, subtask = int(value["after"]), int(value["subtask"])
            figures = None if value["figures"] is None else InstanceFigures(**value["figures"])
            found.append(RunningMetrics(after, value["metrics"], subtask, figures))
    except (MillstreamError, OSError, ValueError, KeyError, TypeError, AttributeError):
        _LOG.debug("the counts of running tasks cannot be read", exc_info=True)
    return found


def delete_counts(storage: CheckpointStorage) -> None:
    """Delete what the tasks of a run have published."""
    try:
        storage.delete(storage.list_names(COUNTS))
    except (MillstreamError, OSError):
        _LOG.debug("the counts of tasks are not deleted", exc_info=True)
