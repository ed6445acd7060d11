"""The pipelined engine: runs a job in slots that live as long as the run."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import pickle
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from millstream.configuration import options
from millstream.engines.local.engine import check_local_job
from millstream.engines.local.fork_server import ForkServer
from millstream.engines.local.pool import how_it_ended
from millstream.engines.pipelined.failover import SlotHost
from millstream.engines.pipelined.run_loop import RunLoop
from millstream.errors import AuthenticationError, EngineError, ProgramError, WorkerLostError
from millstream.execution.driver import start_job
from millstream.execution.engine import Engine
from millstream.execution.source_requests import Inquiries
from millstream.graph.validation import connector_label, is_unaligned, why_not_unaligned
from millstream.runtime.last_given import begin_notes, last_given
from millstream.runtime.pipelined.control import FENCED, close_in_forks
from millstream.runtime.pipelined.main_loop import run_slot

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection

    from millstream.configuration.configuration import Configuration
    from millstream.configuration.option import ConfigOption
    from millstream.execution.driver import JobDriver
    from millstream.execution.run import Run
    from millstream.graph.model import JobGraph
    from millstream.runtime.pipelined.control import (
        SlotSettings,
        StackRequest,
        Stacks,
    )
    from millstream.runtime.process_use import ProcessUse
    from millstream.runtime.task_metrics import RunningMetrics, SplitFigures, SubtaskTimes


_LOG: Final = logging.getLogger("millstream")
#: Seconds that a process whose control connection has ended may take to be gone.
_GONE: Final = 0.5


@dataclass(slots=True, eq=False)
class _Process:
    slot: int
    pid: int
    #: Ends with the process.
    connection: Connection
    #: It was killed here.
    killed: bool = False
    gone: bool = False
    #: With which it ended.
    code: int = 0


class LocalSlots(SlotHost):
    """Runs slots in processes of this machine.

    To be made before the driver has threads of its own.

    Args:
        serve: what the process of a slot does; a function of a module.
    """

    def __init__(self, serve: Callable[[Connection], None] | None = None) -> None:
        self._fork_server = ForkServer(serve or serve_slot)
        self._processes: list[_Process] = []
        self._lost: BaseException | None = None
        #: A process was lost since slots were started.
        self._is_careful = False
        #: With which the process ended that is lost.
        self._code = 0

    @property
    def pids(self) -> list[int]:
        """The processes of the slots that are not known to be gone, in order."""
        return [process.pid for process in self._processes if not process.gone]

    @property
    def replaces_slots(self) -> bool:
        return True

    def start(self, settings: Sequence[SlotSettings]) -> None:
        self._processes, self._lost = [], None
        careful, self._is_careful = self._is_careful, False
        for each in settings:
            self._fork(dataclasses.replace(each, careful=careful))

    def _fork(self, settings: SlotSettings) -> None:
        try:
            process = _Process(settings.slot, *self._fork_server.fork())
            self._processes.append(process)
            # It may be large, but a new process reads it before anything else.
            process.connection.send_bytes(pickle.dumps(settings))
        except OSError as error:
            message = f"no process for a slot can be started: {error}"
            raise EngineError(message) from error

    def end_slot(self, slot: int) -> BaseException | None:
        process = self._process(slot)
        return None if process.gone else self._end(process, _GONE)

    def replace(self, settings: SlotSettings) -> None:
        self._processes.remove(self._process(settings.slot))
        self._fork(dataclasses.replace(settings, careful=True))

    def lost_slot(self, slot: int) -> BaseException | None:
        process = self._process(slot)
        if process.gone or not _has_ended(process.connection):
            return None
        return self._bury(process) or WorkerLostError(f"slot {slot} has ended")

    def _process(self, slot: int) -> _Process:
        return next(each for each in self._processes if each.slot == slot)

    def lost(self) -> BaseException | None:
        for process in self._processes:
            if not process.gone and _has_ended(process.connection):
                self._note(process, self._bury(process))
        return self._lost

    def stop(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        for process in self._processes:
            if not process.gone:
                self._note(process, self._end(process, deadline - time.monotonic()))

    def close(self) -> None:
        self._fork_server.close()

    def _end(self, process: _Process, patience: float) -> WorkerLostError | None:
        """Wait for the end of a process, and kill it if it stays; how it ended, if by itself."""
        if not _has_ended(process.connection, max(0.0, patience)):
            _LOG.debug("slot %d stays: killing process %d", process.slot, process.pid)
            process.killed = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        return self._bury(process)

    def _bury(self, process: _Process) -> WorkerLostError | None:
        """Wait for a process that has ended, or is about to; how, unless it was told to."""
        code = self._fork_server.wait(process.pid)
        process.gone = True
        process.connection.close()
        given = last_given(process.pid)
        if process.killed or code is None or code == FENCED:
            return None
        process.code, self._is_careful = code, True
        return WorkerLostError(
            f"slot {process.slot} (worker process {process.pid} of this machine)"
            f" {how_it_ended(code)}{given}"
        )

    def _note(self, process: _Process, lost: WorkerLostError | None) -> None:
        # One that was killed says more than one that ended.
        if lost is not None and (self._lost is None or process.code < 0 <= self._code):
            self._lost, self._code = lost, process.code


def serve_slot(connection: Connection) -> None:
    """Return what the process of a slot does.

    Args:
        connection: to the driver's host of slots; the settings come through it.
    """
    # Interrupts are for the driver; who wants the slot to end at once closes its connections.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # What functions print must not wait in a buffer: a slot may end at any moment.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True)
    close_in_forks(connection)
    try:
        settings = connection.recv_bytes()
    except (EOFError, OSError):
        return  # the driver was gone before it began
    try:
        given = cast("SlotSettings", pickle.loads(settings))
        begin_notes(careful=given.careful)
        run_slot(given)
    except (AuthenticationError, WorkerLostError) as error:
        # The driver has fenced before the slot was there: this process is of no use any more.
        _LOG.debug("a slot ends: %s", error)


def _has_ended(connection: Connection, wait: float = 0.0) -> bool:
    """Return whether the other end is closed; nothing is ever said through it."""
    try:
        return connection.poll(wait)
    except OSError:
        return True


def _named(process: _Process) -> tuple[int, int]:
    return process.slot, process.pid


def why_not_pipelined(graph: JobGraph) -> str | None:
    """Return why a job cannot run with long-running tasks, and what to do; None if it can."""
    for node in graph.nodes.values():
        if node.spark_index is not None:
            return (
                f"{connector_label(node)} is a Spark DataFrame: Spark reads it by micro-batches,"
                " and hands no record to a long-running task. Set millstream.execution: epochs,"
                " or read what it reads with a source of Millstream's "
                "(docs/how-to/custom-connectors.md)"
            )
    return why_not_unaligned(graph)


def require_pipelined(graph: JobGraph) -> None:
    """Check that a job can run with long-running tasks.

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
        (options.TICK_INTERVAL, "tasks check the clock every few milliseconds"),
    ):
        if given.get(option) != option.default:
            yield option, f"tasks are long-running, there are no epochs; {reason}"
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

    Raises:
        MillstreamError: as of ``engines/registry.py``; the program reads a Spark DataFrame.
    """
    del spark_dataframes
    require_pipelined(job_graph)
    check_local_job(job_graph)
    return start_job(job_graph, PipelinedEngine(slots_of(job_graph), LocalSlots()))


def slots_of(graph: JobGraph) -> int:
    """Return how many slots a job has: one for each subtask of its widest stage."""
    return graph.width


class PipelinedEngine(Engine):
    """Runs a job on the slots of a host."""

    long_running_tasks = True

    def __init__(self, slots: int, host: SlotHost) -> None:
        self._slots = slots
        self._host = host
        self._inquiries = Inquiries(in_threads=True)
        #: While a run is at work.
        self._loop: RunLoop | None = None

    def require(self) -> None:
        super().require()
        self._host.require(self._slots)

    def execute(self, run: Run, cancelled: threading.Event) -> bool:
        self._slots = slots_of(run.job.graph)  # it may have been scaled
        loop = RunLoop(run, self._slots, self._host, self._inquiries)
        self._loop = loop
        try:
            return loop.run(cancelled)
        finally:
            self._loop = None

    @property
    def all_run(self) -> bool:
        loop = self._loop
        return loop is not None and loop.all_run

    def task_times(self) -> Mapping[tuple[int, int], SubtaskTimes]:
        loop = self._loop
        return {} if loop is None else loop.task_times

    def slot_uses(self) -> Mapping[int, tuple[str, ProcessUse]]:
        loop = self._loop
        return {} if loop is None else loop.slot_uses

    def stacks(
        self, slots: Collection[int], request: StackRequest, seconds: float
    ) -> Mapping[int, Stacks]:
        loop = self._loop
        return {} if loop is None else loop.stacks(slots, request, seconds)

    def task_counts(self, run: Run) -> list[RunningMetrics]:
        del run
        loop = self._loop
        return [] if loop is None else loop.task_counts

    def split_figures(self, run: Run) -> list[SplitFigures]:
        del run
        loop = self._loop
        return [] if loop is None else loop.split_figures

    def original_error(self, error: BaseException) -> BaseException:
        return self._host.original_error(error)

    def close(self) -> None:
        self._inquiries.close()
        self._host.close()
