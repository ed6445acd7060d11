"""The contract of engines, which run the tasks of a job.

Everything else in the life of a job (checks, fencing, recovery, restarts, progress, cancelling) is
in ``execution/driver.py``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from millstream.runtime.task_metrics import read_counts

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Mapping

    from millstream.errors import EngineError
    from millstream.execution.run import Run
    from millstream.runtime.pipelined.control import StackRequest, Stacks
    from millstream.runtime.process_use import ProcessUse
    from millstream.runtime.task_metrics import RunningMetrics, SplitFigures, SubtaskTimes


class Engine(ABC):
    """Runs the tasks of one job, run after run.

    Contract:
      1. ``require`` is called before each run takes the job over.  (driver)
      2. ``execute`` returns, or raises, only when no task of the run is at work any more, or none
         can acknowledge anything that is still read.  (engine)
      3. It checks ``cancelled`` often, and gives up what runs when it is set.  (engine)
      4. ``close`` is called once, at the end of the job.  (driver)
    """

    #: Whether its tasks are long-running; else they end with each epoch.
    long_running_tasks: bool = False

    @abstractmethod
    def execute(self, run: Run, cancelled: threading.Event) -> bool:
        """Run until the job is over (True) or cancelled (False).

        Args:
            run: the run, opened; the driver closes it.
            cancelled: set when the job is to stop.

        Raises:
            Exception: the run failed; the restart strategy decides what follows.
        """

    def most_subtasks(self) -> int:
        """Return the most subtasks of a stage that have cores here or in the cluster."""
        return os.cpu_count() or 1

    def require(self) -> None:
        """Make sure that tasks can be run.

        Raises:
            EngineError: nothing will be able to run any more.
        """
        error = self.lost()
        if error is not None:
            raise error

    def lost(self) -> EngineError | None:
        """The error to end with if nothing can run any more; None if all is well."""
        return None

    @property
    def all_run(self) -> bool:
        """Return whether all tasks of the run are restored; from any thread.

        Where tasks end with each checkpoint: that the run has begun.
        """
        return True

    def task_times(self) -> Mapping[tuple[int, int], SubtaskTimes]:
        """(stage, subtask) -> what it has done in the last second; from any thread.

        Empty where that is not known: tasks that end with each epoch, a run that has not begun.
        """
        return {}

    def slot_uses(self) -> Mapping[int, tuple[str, ProcessUse]]:
        """The machine, CPU time and memory of each slot's process; from any thread.

        Empty where tasks have no slots.
        """
        return {}

    def stacks(
        self, slots: Collection[int], request: StackRequest, seconds: float
    ) -> Mapping[int, Stacks]:
        """Return the Python stacks of slots, from any thread; empty where tasks have no slots.

        Args:
            slots: their numbers.
            request: what to take.
            seconds: how long to wait for slots that do not answer, which are left out.
        """
        del slots, request, seconds
        return {}

    def task_counts(self, run: Run) -> list[RunningMetrics]:
        """Return what the tasks of a run have counted since the last checkpoint.

        From any thread.
        """
        return read_counts(run.job.storage)

    def split_figures(self, run: Run) -> list[SplitFigures]:
        """Return how far the splits of sources are read; from any thread."""
        return run.split_figures()

    def original_error(self, error: BaseException) -> BaseException:
        """Return what a task raised, if ``error`` is the engine's way to tell of it.

        Else ``error``.
        """
        return error

    def one_line(self, error: BaseException) -> str:
        """Return what an error says, for a line in a log."""
        return str(error) or type(error).__name__

    def close(self) -> None:
        """Release what only this job needs."""
