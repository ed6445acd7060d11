"""The tasks of one process: stage instances, kept from epoch to epoch.

What it is: what a worker process does with a request, and what the test kit's cluster does in the
process of the test.

What it is not: the task (``runtime/task.py``).

Read next: ``runtime/task.py``, ``engines/local/worker.py``.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import cloudpickle

from millstream.runtime.job_files import bring_files, working_directory
from millstream.runtime.last_given import end_care
from millstream.runtime.stage import StageInstance
from millstream.runtime.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from millstream.graph.job_files import JobFiles
    from millstream.graph.model import JobGraph
    from millstream.runtime.plan import EpochPlan

__all__ = ["TaskHost"]


class TaskHost:
    """Runs tasks of one job in this process.

    Args:
        graph: the job, pickled.
        files: of the job.
    """

    def __init__(self, graph: bytes, files: JobFiles) -> None:
        self._pickled = graph
        self._files = files
        self._instances: dict[tuple[int, int], StageInstance] = {}
        self._first_epoch: int | None = None

    def bring_files(self) -> None:
        """Bring the files of the job, before plan and graph, which may be of what they hold."""
        bring_files(self._files)

    def run(
        self, plan: EpochPlan, level: int, subtask: int, frames: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Run a task; ``bring_files`` has been called.

        Args:
            plan: the epoch.
            level: the stage.
            subtask: which of its subtasks.
            frames: what it reads, in processing order.

        Returns:
            The frames that it makes, and its acknowledgement.
        """
        if self._first_epoch is None:
            self._first_epoch = plan.epoch
        elif plan.epoch != self._first_epoch:
            end_care()
        key = (level, subtask)
        with working_directory(self._files):
            instance = self._instances.pop(key, None) or self._open(level, subtask)
            # While it runs, the instance is not kept: a failure leaves it unusable.
            yield from _run(instance, plan, frames)
            self._instances[key] = instance

    def holds(self, level: int, subtask: int) -> bool:
        """Whether an instance of that subtask lives here."""
        return (level, subtask) in self._instances

    def forget(self, level: int, subtask: int) -> None:
        """Close the instance of a subtask, which goes on elsewhere."""
        instance = self._instances.pop((level, subtask), None)
        if instance is not None:
            instance.close()

    def close(self) -> None:
        """Close all user functions."""
        with contextlib.ExitStack() as closing:
            while self._instances:
                closing.callback(self._instances.popitem()[1].close)

    def _open(self, level: int, subtask: int) -> StageInstance:
        # A graph of its own for each: the functions of two subtasks share nothing.
        graph: JobGraph = cloudpickle.loads(self._pickled)
        instance = StageInstance(graph, level, subtask)
        instance.open()
        return instance


def _run(
    instance: StageInstance, plan: EpochPlan, frames: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    try:
        yield from Task(instance, plan).run(iter(frames))
    except BaseException:
        # Operators give up what they had begun, while it may still be under way.
        instance.give_up()
        raise
