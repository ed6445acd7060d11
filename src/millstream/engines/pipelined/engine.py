"""The pipelined engine: runs a job in slots that live as long as the run.

What it is: what is the same wherever slots live: one run after the other on a host of slots; and
how a job is started on slots of this machine.

What it is not: a run (``engines/pipelined/run_loop.py``), nor the life of the job, which is
``execution/driver.py``, as on every engine.

Read next: ``engines/pipelined/run_loop.py``, ``engines/pipelined/slot_host.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.engines.local.engine import check_local_job
from millstream.engines.pipelined.local_slots import LocalSlots
from millstream.engines.pipelined.requirements import require_pipelined
from millstream.engines.pipelined.run_loop import RunLoop
from millstream.execution.driver import start_job
from millstream.execution.engine import Engine
from millstream.execution.inquiries import Inquiries

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from millstream.engines.pipelined.slot_host import SlotHost
    from millstream.execution.driver import JobDriver
    from millstream.execution.run import Run
    from millstream.graph.model import JobGraph
    from millstream.runtime.live_counts import RunningMetrics
    from millstream.runtime.pipelined.control import SubtaskTimes

__all__ = ["PipelinedEngine", "slots_of", "submit"]


def submit(job_graph: JobGraph, *, spark_dataframes: list[Any] | None = None) -> JobDriver:
    """Check a job and start it in slots that are processes of this machine.

    Args:
        job_graph: the job.
        spark_dataframes: of ``env.from_spark``, which needs Spark.

    Returns:
        A handle; the job runs in a thread of this process, its tasks in others.

    Raises:
        ProgramError: the program reads a Spark DataFrame.
        SourceError, SinkError, ConfigurationError, CheckpointError, DirectoryError,
        UnpicklableFunctionError:
            the job cannot run as it is; nothing was written.
    """
    del spark_dataframes
    require_pipelined(job_graph)
    check_local_job(job_graph)
    return start_job(job_graph, PipelinedEngine(slots_of(job_graph), LocalSlots()))


def slots_of(graph: JobGraph) -> int:
    """How many slots a job has: one for each subtask of its widest stage."""
    return graph.width


class PipelinedEngine(Engine):
    """Runs a job on the slots of a host.

    Args:
        slots: how many the job has.
        host: where they live; closed with the engine.
    """

    tasks_go_on = True

    def __init__(self, slots: int, host: SlotHost) -> None:
        self._slots = slots
        self._host = host
        self._inquiries = Inquiries(in_threads=True)
        #: While a run is at work.
        self._loop: RunLoop | None = None

    def require(self) -> None:
        """Make sure that there is room for all slots."""
        super().require()
        self._host.require(self._slots)

    def execute(self, run: Run, cancelled: threading.Event) -> bool:
        """Run until all is read and committed, or the job is cancelled."""
        loop = RunLoop(run, self._slots, self._host, self._inquiries)
        self._loop = loop
        try:
            return loop.run(cancelled)
        finally:
            self._loop = None

    def task_times(self) -> Mapping[tuple[int, int], SubtaskTimes]:
        """What each task has done in the last second."""
        loop = self._loop
        return {} if loop is None else loop.task_times

    def task_counts(self, run: Run) -> list[RunningMetrics]:
        """What the tasks have counted since the last complete checkpoint."""
        del run
        loop = self._loop
        return [] if loop is None else loop.task_counts

    def original_error(self, error: BaseException) -> BaseException:
        """What a task raised, where the host tells of it in its own way."""
        return self._host.original_error(error)

    def close(self) -> None:
        """Let the host go, and the sources."""
        self._inquiries.close()
        self._host.close()
