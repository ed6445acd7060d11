"""MiniCluster: runs a whole job in this process, without Spark, epoch by epoch.

What it is: the same planner, tasks, exchange, coordinator and recovery as on Spark, with a list
and a sort in the place of the shuffle.  Epochs are cut where the test says, tasks may be failed
or run twice, workers forget their instances, and the job can be stopped after any epoch and be
resumed, at another parallelism too.

What it is not: fast or parallel, and it has no restart strategy: an error is the test's to see.

Read next: ``runtime/task.py``, ``execution/epoch_loop.py`` (the same on Spark),
``testing/process_cluster.py`` (tasks in processes that can be killed).
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import cloudpickle
import pyarrow as pa

from millstream.checkpoint.commit import CommitRetry
from millstream.checkpoint.job_directories import JobDirectories
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.signature import seal_of
from millstream.configuration import options
from millstream.execution.epoch_loop import EpochLoop
from millstream.execution.job import Job
from millstream.execution.planner import SourcePlanner, plan_sources
from millstream.execution.run import Run
from millstream.execution.split_log import SplitLog
from millstream.runtime.frames import ACKNOWLEDGEMENT_STAGE, FRAME_SCHEMA
from millstream.runtime.job_files import bring_files, working_directory
from millstream.runtime.stage import StageInstance
from millstream.runtime.task import Task
from millstream.types.pickling import loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.graph.model import JobGraph
    from millstream.runtime.plan import EpochPlan

__all__ = ["MiniCluster"]

_SORT_KEYS = [(name, "ascending") for name in ("watermark", "edge", "channel", "sequence")]


class _ScriptedPlanner(SourcePlanner):
    """Cuts epochs where the test says, however long they take."""

    def epoch_finished(self, seconds: float) -> None:
        """Learn nothing of it."""


class MiniCluster:
    """Runs one job on one checkpoint directory.

    Args:
        graph: the job, as for Spark; it is pickled and unpickled as there.
        directory: the checkpoint directory; a new temporary one if None.
        limit: units of source offset per epoch; a function of the epoch for random cuts.
        seed: shuffles the order in which tasks run and which of them forget their instance.
        state_backend: "hashmap" or "rocksdb".
        clock: processing time in milliseconds; the system's if None.
        tick_interval: milliseconds of ``clock`` after which an epoch runs though no data came;
            None: never.
    """

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
    ) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix="millstream-mini-"))
        self._graph = graph
        self._limits = iter(limits)
        self._random = random.Random(seed)  # noqa: S311 - a seeded test
        self._instances: dict[tuple[int, int], StageInstance] = {}
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

        def make_planner(job: Job) -> SourcePlanner:
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
        self._run = Run(job, make_planner=make_planner)
        self.coordinator = self._run.coordinator
        self._run.open()
        self._graph_bytes = cloudpickle.dumps(graph)
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
        frames = pa.Table.from_batches([], schema=FRAME_SCHEMA)
        for stage in self._graph.stages:
            made: list[pa.RecordBatch] = []
            subtasks = list(range(stage.parallelism))
            self._random.shuffle(subtasks)  # which task finishes first must not matter
            for subtask in subtasks:
                mine = _addressed(frames, subtask, stage.parallelism)
                made.extend(self._run_task(plan, stage.level, subtask, mine))
            frames = pa.Table.from_batches(made, schema=FRAME_SCHEMA)
        rows = frames.to_pylist()
        return [
            cast("TaskAck", loads(row["payload"]))
            for row in rows
            if row["stage"] == ACKNOWLEDGEMENT_STAGE
        ]

    def _run_task(
        self, plan: EpochPlan, level: int, subtask: int, frames: pa.Table
    ) -> list[pa.RecordBatch]:
        bring_files(self._graph.files)
        with working_directory(self._graph.files):
            return self._run_here(plan, level, subtask, frames)

    def _run_here(
        self, plan: EpochPlan, level: int, subtask: int, frames: pa.Table
    ) -> list[pa.RecordBatch]:
        key = (level, subtask)
        instance = self._instances.pop(key, None)
        if instance is not None and self._flips_coin():
            instance.close()  # the subtask moves to another worker
            instance = None
        if instance is None:
            instance = StageInstance(cloudpickle.loads(self._graph_bytes), level, subtask)
            instance.open()
        made = list(Task(instance, plan).run(iter(frames.to_batches(max_chunksize=16))))
        self._instances[key] = instance
        return made

    def _flips_coin(self) -> bool:
        return self._random.random() < 0.5  # noqa: PLR2004 - a coin has two sides

    def close_instances(self) -> None:
        """Close the user functions."""
        while self._instances:
            self._instances.popitem()[1].close()


def _addressed(frames: pa.Table, subtask: int, parallelism: int) -> pa.Table:
    targets = frames.column("subtask").to_numpy() % parallelism
    mine = frames.filter(pa.array(targets == subtask))
    return mine.sort_by(_SORT_KEYS)
