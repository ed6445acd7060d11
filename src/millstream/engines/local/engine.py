"""The local engine: runs a job micro-batch by micro-batch in processes of this machine."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from millstream.configuration import options
from millstream.directories import run_directory
from millstream.engines.local.pool import WorkerPool
from millstream.engines.local.worker import RunMessage, TaskRequest
from millstream.errors import ProgramError
from millstream.execution.driver import check_job, start_job
from millstream.execution.engine import Engine
from millstream.execution.run import EpochLoop
from millstream.types.pickling import dumps_by_value, loads

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from millstream.checkpoint.model import TaskAck
    from millstream.engines.local.worker import TaskOutput
    from millstream.execution.driver import JobDriver
    from millstream.execution.run import Run
    from millstream.graph.model import JobGraph
    from millstream.runtime.plan import EpochPlan


_LOG: Final = logging.getLogger("millstream")


class EpochTasks:
    """Runs the tasks of plans; frames go from stage to stage in files."""

    def __init__(
        self,
        graph: JobGraph,
        directory: Path,
        run_stage: Callable[[Sequence[TaskRequest]], Sequence[TaskOutput]],
    ) -> None:
        self._graph = graph
        self._directory = directory
        self._run_stage = run_stage

    def run(self, plan: EpochPlan) -> list[TaskAck]:
        """Run the tasks of an epoch; returns what they acknowledge."""
        place = self._directory / f"epoch-{plan.epoch}"
        place.mkdir(parents=True)
        file = place / "plan"
        acks: list[TaskAck] = []
        outputs: Sequence[TaskOutput] = ()
        try:
            file.write_bytes(dumps_by_value(plan))
            for stage in self._graph.stages:
                inputs = [output.frames for output in outputs]
                requests = [
                    TaskRequest(
                        plan=file,
                        level=stage.level,
                        subtask=subtask,
                        parallelism=stage.parallelism,
                        inputs=inputs,
                        output=place / f"{stage.level}-{subtask}",
                    )
                    for subtask in range(stage.parallelism)
                ]
                outputs = self._run_stage(requests)
                for output in outputs:
                    acks += [cast("TaskAck", loads(ack)) for ack in output.acks]
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return acks


def submit(job_graph: JobGraph, *, spark_dataframes: list[Any] | None = None) -> JobDriver:
    """Check a job and start it in processes of this machine.

    Raises:
        MillstreamError: as of ``engines/registry.py``; the program reads a Spark DataFrame.
    """
    del spark_dataframes
    for node in job_graph.nodes.values():
        if node.spark_index is not None:
            message = (
                f"source {node.name!r} ({node.location}) is a Spark DataFrame, which only Spark can"
                " read: run the program with execution.target: spark"
            )
            raise ProgramError(message)
    check_local_job(job_graph)
    return start_job(job_graph, LocalEngine(job_graph.width))


def check_local_job(job_graph: JobGraph) -> None:
    """``check_job``, and what is to be said of a job whose workers are processes of this machine.

    Raises:
        MillstreamError: as of ``check_job``.
    """
    if job_graph.configuration.get(options.PYTHON_EXECUTABLE):
        _LOG.warning("%s has no effect with execution.target: local", options.PYTHON_EXECUTABLE.key)
    check_job(job_graph)


class LocalEngine(Engine):
    """Runs a job in worker processes."""

    def __init__(self, workers: int) -> None:
        self._pool = WorkerPool(workers)

    def execute(self, run: Run, cancelled: threading.Event) -> bool:
        graph, pool = run.job.graph, self._pool
        pool.grow(graph.width)  # it may have been scaled
        pool.begin_run(RunMessage(dumps_by_value(graph), graph.files))
        with tempfile.TemporaryDirectory(prefix="frames-", dir=run_directory().path) as directory:
            tasks = EpochTasks(
                graph, Path(directory), lambda requests: pool.run(requests, cancelled)
            )

            def run_tasks(plan: EpochPlan) -> list[TaskAck]:
                # The timer of an epoch may have run out just after its end.
                pool.giving_up.clear()
                return tasks.run(plan)

            return EpochLoop(run, run_tasks, pool.giving_up.set).run(cancelled)

    def close(self) -> None:
        self._pool.close()
