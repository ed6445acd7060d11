"""The pipelined engine: runs a job in slots that live as long as the run.

What it is: what is the same wherever slots live: one run after the other on a host of slots; and
how a job is started on slots of this machine.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration import options
from millstream.engines.local.engine import check_local_job
from millstream.engines.pipelined.local_slots import LocalSlots
from millstream.engines.pipelined.run_loop import RunLoop
from millstream.errors import ProgramError
from millstream.execution.driver import start_job
from millstream.execution.engine import Engine
from millstream.execution.source_requests import Inquiries
from millstream.graph.validation import connector_label, is_unaligned, why_not_unaligned

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping

    from millstream.configuration.configuration import Configuration
    from millstream.configuration.option import ConfigOption
    from millstream.engines.pipelined.slot_host import SlotHost
    from millstream.execution.driver import JobDriver
    from millstream.execution.run import Run
    from millstream.graph.model import JobGraph
    from millstream.runtime.live_counts import RunningMetrics
    from millstream.runtime.pipelined.control import SubtaskTimes


_LOG: Final = logging.getLogger("millstream")


def why_not_pipelined(graph: JobGraph) -> str | None:
    """Why a job cannot run with tasks that live on, and what to do; None if it can."""
    for node in graph.nodes.values():
        if node.spark_index is not None:
            return (
                f"{connector_label(node)} is a Spark DataFrame: Spark reads it by micro-batches,"
                " and hands no record to a task that lives on. Set millstream.execution: epochs,"
                " or read what it reads with a source of Millstream's "
                "(docs/how-to/custom-connectors.md)"
            )
    return why_not_unaligned(graph)


def require_pipelined(graph: JobGraph) -> None:
    """Check that a job can run with tasks that live on.

    Raises:
        ProgramError: it cannot; says why.
    """
    reason = why_not_pipelined(graph)
    if reason is not None:
        raise ProgramError(reason)
    for option, reason in _without_effect(graph.configuration):
        _LOG.warning("%s has no effect: %s", option.key, reason)


def _without_effect(given: Configuration) -> Iterator[tuple[ConfigOption[Any], str]]:
    """Options that were set to what does nothing in this job, and why."""
    for option, reason in (
        (options.TARGET_EPOCH_DURATION, f"see {options.CHECKPOINTING_INTERVAL.key}"),
        (options.TICK_INTERVAL, "tasks look at the clock every few milliseconds"),
    ):
        if given.get(option) != option.default:
            yield option, f"tasks live on, there are no epochs; {reason}"
    if not given.get(options.UNALIGNED_CHECKPOINTS):
        overtake = f"barriers overtake with {options.UNALIGNED_CHECKPOINTS.key} only"
        if given.get(options.ALIGNED_CHECKPOINT_TIMEOUT):
            yield options.ALIGNED_CHECKPOINT_TIMEOUT, overtake
        if given.get(options.FORCE_UNALIGNED_CHECKPOINTS):
            yield options.FORCE_UNALIGNED_CHECKPOINTS, overtake
    elif not is_unaligned(given):
        # As in Flink.
        exactly_once = f"{options.CHECKPOINTING_MODE.key}: EXACTLY_ONCE"
        yield options.UNALIGNED_CHECKPOINTS, f"barriers overtake with {exactly_once} only"
    if (
        given.get(options.CHECKPOINTING_MIN_PAUSE)
        and given.get(options.MAX_CONCURRENT_CHECKPOINTS) > 1
    ):
        # As in Flink.
        pause = options.CHECKPOINTING_MIN_PAUSE.key
        yield options.MAX_CONCURRENT_CHECKPOINTS, f"{pause} leaves one checkpoint at a time"
    if given.contains(options.BUFFER_TIMEOUT) and not given.get(options.BUFFER_TIMEOUT_ENABLED):
        yield options.BUFFER_TIMEOUT, f"{options.BUFFER_TIMEOUT_ENABLED.key} is false"


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
