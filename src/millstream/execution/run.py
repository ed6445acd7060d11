"""A run: from taking the job over, which fences older runs, to letting go of it.

What it is: recovery, the sources' monitoring, the planner, and the plan of an epoch; what every
engine needs, whether it runs epochs or keeps its tasks.

What it is not: a way to run plans (``engines/``), nor a decision when (``execution/epoch_loop.py``
has one for engines whose tasks end with each epoch).

Read next: ``execution/epoch_loop.py``, ``checkpoint/coordinator.py``.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, cast

from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.program import has_declared_states
from millstream.checkpoint.publish import EpochMetadata
from millstream.configuration import options
from millstream.execution.epoch import make_plan
from millstream.execution.offsets import initial_offset
from millstream.execution.planner import SourcePlanner, plan_sources
from millstream.execution.restored_program import describe_start, fit, program_of
from millstream.execution.ship_files import delete_older_files
from millstream.execution.split_log import SplitLog
from millstream.execution.stop_request import StopRequest
from millstream.graph import model
from millstream.runtime.live_counts import delete_counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.checkpoint.commit import PendingCommits
    from millstream.checkpoint.model import Manifest, OperatorRecord, TaskAck
    from millstream.execution.job import Job
    from millstream.execution.offsets import Offset
    from millstream.runtime.plan import EpochPlan, SplitAssignment

__all__ = ["Run", "planner_of"]


class Run:
    """One run of a job.

    Contract:
      1. ``open``, then all else, then ``close``, also after a failure; from one thread.  (caller)
      2. No task of the run is at work when it is closed.  (engine)

    Args:
        job: the job.
        on_recovered: told the manifest that the run goes on from, if there is one.
        on_epoch: told of each epoch that is committed: its manifest, the acknowledgements of its
            tasks, and the seconds it took.
        on_pending: told what is pending while a commit fails or takes long.
        make_planner: makes the planner.
        after: the generation that the driver began before; None if this is its first run.
        tasks_at_work: whether the engine's tasks go on from epoch to epoch.
        by_chain: whether each chain of operators is a task of its own; None: where tasks go on.
        stop: whether the job is to stop behind a last checkpoint; the engine looks at it.
        on_failure: told what the tasks of some sources have failed of, and which sources these are,
            where the engine can restart them alone; returns the seconds to wait before, or raises
            if the job has failed for good.  None: they are not restarted alone.
        on_resumed: told when all tasks run again.
        clock_moves: whether the planner goes by the system's clock.
    """

    def __init__(
        self,
        job: Job,
        *,
        on_recovered: Callable[[Manifest], None] = lambda _: None,
        on_epoch: Callable[[Manifest, list[TaskAck], float], None] = lambda *_: None,
        on_pending: Callable[[PendingCommits], None] = lambda _: None,
        make_planner: Callable[[Job], SourcePlanner] | None = None,
        after: int | None = None,
        tasks_at_work: bool = False,
        by_chain: bool | None = None,
        stop: StopRequest | None = None,
        on_failure: Callable[[Exception, frozenset[str]], float] | None = None,
        on_resumed: Callable[[], None] = lambda: None,
        clock_moves: bool = True,
    ) -> None:
        self.job = job
        #: Changes with every run, so that workers drop what an older one left.
        self.run_id = uuid.uuid4().hex
        self.coordinator = job.new_coordinator(on_pending, tasks_at_work=tasks_at_work)
        self.on_epoch = on_epoch
        self.on_failure = on_failure
        self.on_resumed = on_resumed
        self._on_recovered = on_recovered
        self._make_planner = make_planner or planner_of
        self._after = after
        self._clock_moves = clock_moves
        self._tasks_at_work = tasks_at_work
        one_by_one = tasks_at_work if by_chain is None else by_chain
        #: What a task is a subtask of.
        self.stages = (model.by_chain(job.graph) if one_by_one else job.graph).stages
        self.stop = stop or StopRequest()
        self._planner: SourcePlanner | None = None
        #: The operators as manifests record them.
        self._program: dict[str, OperatorRecord] = {}
        #: The planner knows a position by its identity.
        self._beginning = initial_offset()
        self._closing = contextlib.ExitStack()
        self._closing.callback(self.coordinator.close)

    @property
    def planner(self) -> SourcePlanner:
        """Plans what epochs read."""
        if self._planner is None:
            message = "a run is opened before anything is planned, and its tasks end each epoch"
            raise RuntimeError(message)
        return self._planner

    @property
    def last(self) -> Manifest | None:
        """The manifest to go on from; None before the first epoch."""
        return self.coordinator.last

    @property
    def position(self) -> Offset:
        """How far the last manifest has read."""
        last = self.last
        return self._beginning if last is None else last.offsets

    def open(self) -> bool:
        """Take the job over, and finish what the run before left.

        Returns:
            Whether there is anything to do: False if the job has finished before.

        Raises:
            CheckpointError: the checkpoints cannot be used, or a newer run has taken over.
            SinkError: what is published could not be committed.
        """
        job = self.job
        JobIdentity.require(job.storage, job.job_id)
        self.coordinator.open(self._after)
        last = self.coordinator.recover()
        fit(job.graph, job.storage, last)
        job.start = describe_start(job.graph, job.storage, last, temporary=job.temporary)
        self._program = program_of(job.graph)
        job.ship_missing()
        self.coordinator.check_fence()  # a newer run may have sent files, which this one would drop
        delete_older_files(job.graph.files, job.storage)
        if last is not None:
            self._on_recovered(last)
            if last.final:
                return False
        if not self._tasks_at_work:  # ``execution/split_enumerator.py`` starts and tells them else
            self._closing.callback(delete_counts, job.storage)
            for node in job.graph.nodes.values():
                if node.source is not None:
                    node.source.start()
                    self._closing.callback(node.source.stop)
            self.plan_again()
        return True

    def plan_again(self) -> None:
        """Plan from the last manifest on, whatever was planned and has not run."""
        planner = self._planner = self._make_planner(self.job)
        last = self.last
        if last is None:
            return
        planner.observe(last.splits)
        planner.committed(last.splits)
        if last.in_flight:
            planner.owe(last.epoch)
        elif self._after is None and has_declared_states(last, self._program):
            # Functions declare their states when they are opened: restored at once, those that do
            # not fit end the job now, and not when the first record comes.
            planner.owe()

    def close(self) -> None:
        """Stop the sources' monitoring, and let go of the log and the sinks."""
        self._closing.close()

    def metadata(self, stop: Offset, started: int) -> EpochMetadata:
        """What is known of the epoch that reads up to ``stop`` before it runs.

        Args:
            stop: the offset.
            started: milliseconds since 1970.
        """
        graph = self.job.graph
        return EpochMetadata(
            epoch=cast("int", stop["epoch"]),
            started=started,
            offsets=stop,
            stages={stage.level: stage.parallelism for stage in graph.stages},
            max_parallelism=max(node.max_parallelism for node in graph.nodes.values()),
            final=bool(stop["final"]),
            program=self._program,
        )

    def plan(self, stop: Offset) -> EpochPlan:
        """The plan of the epoch that reads up to ``stop``."""
        return self._plan(stop, self.planner.assignments(self.position, stop))

    def first_plan(self, assignments: list[SplitAssignment], processing_time: int) -> EpochPlan:
        """The plan that tasks begin with which go on from epoch to epoch.

        Args:
            assignments: the splits that they read from the beginning.
            processing_time: milliseconds since 1970.
        """
        epoch = cast("int", self.position["epoch"]) + 1
        return self._plan({"epoch": epoch, "time": processing_time, "final": False}, assignments)

    def plan_of_region(
        self, assignments: list[SplitAssignment], processing_time: int, epoch: int
    ) -> EpochPlan:
        """The plan that tasks begin with anew, while others go on.

        Args:
            assignments: the splits of their sources.
            processing_time: milliseconds since 1970.
            epoch: which they begin in; no task of theirs has written anything for it.
        """
        stop: Offset = {"epoch": epoch, "time": processing_time, "final": False}
        return self._plan(stop, assignments, begins=True)

    def _plan(
        self, stop: Offset, assignments: list[SplitAssignment], *, begins: bool = False
    ) -> EpochPlan:
        job = self.job
        return make_plan(
            epoch=cast("int", stop["epoch"]),
            assignments=assignments,
            stop=stop,
            last=self.last,
            program=self._program,
            job_id=job.job_id,
            run_id=self.run_id,
            generation=self.coordinator.generation,
            storage=job.storage,
            local_root=str(job.local_root),
            state_backend=job.state_backend,
            fsync=job.fsync,
            begins=begins,
            clock_moves=self._clock_moves,
        )

    def tasks(self) -> set[tuple[int, int]]:
        """(stage, subtask) of every task."""
        return {
            (stage.number, subtask) for stage in self.stages for subtask in range(stage.parallelism)
        }


def planner_of(job: Job) -> SourcePlanner:
    """The planner that a job's options ask for."""
    configuration = job.graph.configuration
    target = configuration.get(options.TARGET_EPOCH_DURATION) / 1000
    return SourcePlanner(
        plan_sources(job.graph),
        SplitLog(job.storage),
        target_seconds=max(target, job.interval / 1000),
        tick_interval=configuration.get(options.TICK_INTERVAL),
        wakes=any(node.needs_processing_time for node in job.graph.nodes.values()),
        retained=configuration.get(options.NUM_RETAINED),
        min_pause=configuration.get(options.CHECKPOINTING_MIN_PAUSE),
    )
