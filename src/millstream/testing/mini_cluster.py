"""MiniCluster: runs a whole job in the process of the test, checkpoint by checkpoint.

The test chooses where checkpoints fall; tasks run in any order, workers forget their instances, and
the job can be stopped after any checkpoint and resumed, at another parallelism too.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from millstream.checkpoint.commit import CommitRetry
from millstream.checkpoint.job_directories import JobDirectories
from millstream.checkpoint.local_storage import LocalStorage, seal_of
from millstream.configuration import options
from millstream.directories import run_directory
from millstream.engines.local.engine import EpochTasks
from millstream.engines.local.worker import FrameFiles, TaskHost, TaskOutput, write_frames
from millstream.engines.pipelined.in_process import PipelinedTasks
from millstream.execution.job import Job
from millstream.execution.planned_source import SplitLog
from millstream.execution.planner import SourcePlanner, plan_sources
from millstream.execution.run import EpochLoop, Run
from millstream.types.pickling import dumps_by_value, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.engines.local.worker import TaskRequest
    from millstream.graph.model import JobGraph
    from millstream.runtime.plan import EpochPlan

__all__ = ["MiniCluster"]


class _ScriptedPlanner(SourcePlanner):
    """Cuts epochs where the test says, however long they take."""

    def epoch_finished(self, seconds: float) -> None:
        """Learn nothing of it."""

    def waiting(self) -> frozenset[tuple[str, str]]:
        """Source and split of those that have more than the last plan lets them read."""
        return frozenset(
            (planned.uid, planned.table.splits[number].id)
            for planned in self._sources
            for number in planned.waiting
        )


class MiniCluster:
    """Runs one job on one checkpoint directory.

    With ``pipelined`` its tasks are those of the pipelined engine, and each epoch ends with a
    barrier (``engines/pipelined/in_process.py``).  A job may change engines at any stop.

    Args:
        graph: the job, as for Spark; it is pickled and unpickled as there.
        directory: the checkpoint directory; a new temporary one if None.
        limit: units of source offset per epoch; a function of the epoch for random cuts.
        seed: shuffles the order in which tasks run and which of them forget their instance.
        state_backend: "hashmap" or "rocksdb".
        clock: processing time in milliseconds; the system's if None.
        tick_interval: milliseconds of ``clock`` after which an epoch runs though no data came;
            None: never.
        pipelined: whether tasks live on from epoch to epoch; None: as ``MiniCluster.pipelined``.
    """

    #: Which tasks run where nothing is said: those that end with each epoch, or those that go on.
    pipelined: ClassVar[bool] = False

    def __init__(
        self,
        graph: JobGraph,
        directory: Path | None = None,
        *,
        limits: Iterable[int] = (),
        seed: int = 0,
        state_backend: str = "hashmap",
        clock: Callable[[], int] | None = None,
        tick_interval: int | None = None,
        pipelined: bool | None = None,
    ) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix="millstream-mini-"))
        self._graph = graph
        self._limits = iter(limits)
        self._random = random.Random(seed)  # noqa: S311 - a seeded test
        seal = seal_of(graph.configuration.get(options.CHECKPOINT_HMAC_KEY_FILE))
        self.storage = LocalStorage(self.directory, fsync=False, seal=seal)
        local = self.directory.absolute() / "local"
        job = Job(
            graph,
            JobDirectories(self.storage, temporary=False, local=local),
            local_root=local,
            fsync=False,
            state_backend=state_backend,
            retry=CommitRetry((0.0, 0.0)),
        )
        self.job_id = job.job_id

        def make_planner(job: Job) -> _ScriptedPlanner:
            return _ScriptedPlanner(
                plan_sources(job.graph),
                SplitLog(job.storage),
                target_seconds=1.0,
                tick_interval=tick_interval,
                clock=clock or (lambda: time.time_ns() // 1_000_000),
                # Waiting brings nothing where the test moves the clock.
                wait_seconds=0.25 if clock is None else 0.0,
            )

        self.job = job
        lives_on = self.pipelined if pipelined is None else pipelined
        self._run = Run(
            job, make_planner=make_planner, by_chain=lives_on, clock_moves=clock is None
        )
        self.coordinator = self._run.coordinator
        self._run.open()
        pickled = dumps_by_value(graph)
        self._host = TaskHost(pickled, graph.files)
        self._files = FrameFiles()
        frames = run_directory().path / f"frames-{self._run.run_id}"
        self._tasks = EpochTasks(graph, frames, self._run_stage)
        self._pipelined_tasks: PipelinedTasks | None = None
        if lives_on:
            slots = max(stage.parallelism for stage in graph.stages)
            count = len(self._run.tasks())
            self._pipelined_tasks = PipelinedTasks(pickled, graph.files, slots, count, seed)
        self.loop = EpochLoop(self._run, self._run_tasks)

    @property
    def planner(self) -> SourcePlanner:
        """Plans what epochs read."""
        return self._run.planner

    def run(self, max_epochs: int = 10_000) -> Manifest | None:
        """Run epochs until the bounded job is over, or ``max_epochs`` more are done."""
        try:
            for _ in range(max_epochs):
                if not self.run_epoch():
                    break
        finally:
            self.close_instances()
        return self.coordinator.last

    def run_epoch(self) -> bool:
        """Plan and run one epoch; False if the sources have nothing."""
        if self._run.position["final"]:
            return False
        limit = next(self._limits, None)
        if limit is not None:
            self.planner.set_limit(limit)
        return self.loop.run_next()

    def _run_tasks(self, plan: EpochPlan) -> list[TaskAck]:
        if self._pipelined_tasks is not None:
            planner = cast("_ScriptedPlanner", self.planner)
            return self._pipelined_tasks.run(plan, planner.waiting())
        return self._tasks.run(plan)

    def _run_stage(self, requests: Sequence[TaskRequest]) -> list[TaskOutput]:
        # Which task finishes first must not matter.
        order = list(requests)
        self._random.shuffle(order)
        return [self._run_request(request) for request in order]

    def _run_request(self, request: TaskRequest) -> TaskOutput:
        self._host.bring_files()
        plan = cast("EpochPlan", loads(request.plan.read_bytes()))
        frames = self._files.read(request.inputs, request.subtask, request.parallelism)
        made = self._run_task(plan, request.level, request.subtask, list(frames))
        return TaskOutput(request.output, write_frames(made, request.output))

    def _run_task(
        self, plan: EpochPlan, level: int, subtask: int, frames: list[pa.RecordBatch]
    ) -> list[pa.RecordBatch]:
        if self._host.holds(level, subtask) and self._flips_coin():
            self._host.forget(level, subtask)  # it moves to another worker
        return list(self._host.run(plan, level, subtask, frames))

    def _flips_coin(self) -> bool:
        return self._random.random() < 0.5  # noqa: PLR2004 - a coin has two sides

    def close_instances(self) -> None:
        """Close the user functions."""
        if self._pipelined_tasks is not None:
            self._pipelined_tasks.close()
        self._host.close()
