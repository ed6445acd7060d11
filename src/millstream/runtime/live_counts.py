"""Counts of running tasks, shown before the checkpoint that will have them is complete.

Tasks of the pipelined engine send theirs with their heartbeat.  A task that ends with its
checkpoint writes them to the checkpoint storage, once a second, if it takes longer than that: the
storage is what every engine shares with its tasks.  Nothing depends on these files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.runtime.stage import StageInstance

__all__ = ["COUNTS", "RecordCounts", "counts_of", "delete_counts", "published", "read_counts"]

_LOG: Final = logging.getLogger("millstream")
#: Directory of the checkpoint storage.
COUNTS: Final = "counts"
#: Seconds that a task runs before its counts are written, and between two times.
_INTERVAL: Final = 1.0


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """What a task has counted since a checkpoint."""

    #: The last checkpoint that the task knows to be complete: what it has is not in ``counts``.
    after: int
    #: "uid.metric" -> number.
    counts: dict[str, int]


def counts_of(instance: StageInstance, read: Mapping[int, int]) -> dict[str, int]:
    """Counters of the operators of a task since the last snapshot.

    Args:
        instance: of the task.
        read: source node -> records read since then.
    """
    found: dict[str, int] = {}
    for node in instance.nodes:
        operator = instance.operators[node.id]
        counts = dict(operator.record_counts())
        if node.kind == "source":
            counts = {"numRecordsIn": read.get(node.id, 0)}
        for name, count in counts.items():
            found[f"{node.uid}.{name}"] = count
    return found


@dataclass(eq=False, slots=True)
class _Published:
    storage: CheckpointStorage
    name: str
    counts: Callable[[], RecordCounts]
    due: float
    #: Around a write: the task may end, and the next one of this name begin.
    writing: threading.Lock = field(default_factory=threading.Lock)
    is_over: bool = False

    def write(self) -> None:
        with self.writing:
            if self.is_over:
                return
            try:
                counts = self.counts()
                content = json.dumps({"after": counts.after, "counts": counts.counts})
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
        """Whether it was not inherited by a fork, which has no thread of it."""
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
                task.due = time.monotonic() + _INTERVAL


_publisher = _Publisher()


@contextlib.contextmanager
def published(
    storage: CheckpointStorage, task: tuple[int, int], counts: Callable[[], RecordCounts]
) -> Iterator[None]:
    """Publish the counts of a task while it runs.

    Args:
        storage: of the job.
        task: (stage, subtask).
        counts: returns them; called in another thread.
    """
    global _publisher  # noqa: PLW0603 - one thread for a process
    if not _publisher.is_of_this_process:
        _publisher = _Publisher()
    stage, subtask = task
    name = f"{COUNTS}/{stage}-{subtask}.json"
    each = _Published(storage, name, counts, time.monotonic() + _INTERVAL)
    publisher = _publisher
    publisher.add(each)
    try:
        yield
    finally:
        publisher.remove(each)


def read_counts(storage: CheckpointStorage) -> list[RecordCounts]:
    """What tasks have published; what cannot be read is left out, for it is only shown."""
    found = []
    try:
        for name in storage.list_names(COUNTS):
            value = json.loads(storage.read(name))
            counts = {str(key): int(count) for key, count in value["counts"].items()}
            found.append(RecordCounts(int(value["after"]), counts))
    except (MillstreamError, OSError, ValueError, KeyError, TypeError, AttributeError):
        _LOG.debug("the counts of running tasks cannot be read", exc_info=True)
    return found


def delete_counts(storage: CheckpointStorage) -> None:
    """Delete what the tasks of a run have published."""
    try:
        storage.delete(storage.list_names(COUNTS))
    except (MillstreamError, OSError):
        _LOG.debug("the counts of tasks are not deleted", exc_info=True)
