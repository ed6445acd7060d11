"""ProcessCluster: a MiniCluster whose tasks run in worker processes that can be killed.

What it is: the driver's side in this process, the tasks in processes forked at the start, each
subtask in the same one as long as it lives.  A worker that dies takes its stage instances with
it; its task is tried once more in a spare process, or the run fails, as the seed has it.

What it is not: parallel.  Tasks run one after the other, so that a seed replays a run.

Read next: ``testing/mini_cluster.py``, ``tests/support/faults.py``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import cloudpickle

from millstream.errors import MillstreamError
from millstream.runtime.stage import StageInstance
from millstream.runtime.task import Task
from millstream.testing.mini_cluster import MiniCluster
from millstream.types.pickling import dumps, loads

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess

    import pyarrow as pa

    from millstream.graph.model import JobGraph
    from millstream.runtime.plan import EpochPlan

__all__ = ["ProcessCluster", "WorkerLostError", "WorkerPool"]

#: Seconds that a worker whose driver has let go of it may take to end.
_PATIENCE: Final = 30.0


class WorkerLostError(MillstreamError):
    """A worker process died while it ran a task."""


@dataclass(frozen=True, slots=True)
class _TaskRequest:
    """A task to run."""

    #: Stage instances of another run are closed.
    run: str
    graph: bytes
    plan: EpochPlan
    level: int
    subtask: int
    frames: pa.Table
    #: The subtask comes from elsewhere: an instance that is here is not used.
    moved: bool


@dataclass(slots=True)
class _Worker:
    process: ForkProcess
    connection: Connection


class WorkerPool:
    """Worker processes, forked when the pool is made: before the driver has threads.

    Args:
        workers: how many run tasks; subtask n runs in worker n modulo this.
        spares: how many wait to take the place of one that dies.
    """

    def __init__(self, workers: int = 2, spares: int = 2) -> None:
        context = multiprocessing.get_context("fork")
        made: list[_Worker] = []
        for _ in range(workers + spares):
            here, there = context.Pipe()
            # A worker closes the others' ends, or none would ever see that the driver died.
            foreign = [*(worker.connection for worker in made), here]
            process = context.Process(target=_serve, args=(there, foreign))
            process.start()
            there.close()
            made.append(_Worker(process, here))
        self._serving, self._spares = made[:workers], made[workers:]

    @property
    def pids(self) -> list[int]:
        """The processes that run tasks."""
        return [worker.process.pid or 0 for worker in self._serving]

    def call(self, request: _TaskRequest) -> list[pa.RecordBatch]:
        """Run a task in the worker of its subtask.

        Raises:
            WorkerLostError: it died; the next call has another process.
            Exception: what the task raised.
        """
        index = request.subtask % len(self._serving)
        worker = self._serving[index]
        try:
            worker.connection.send_bytes(cloudpickle.dumps(request))
            answer = loads(worker.connection.recv_bytes())
        except (EOFError, OSError) as error:
            pid = worker.process.pid
            self._replace(index)
            message = f"worker process {pid} died while it ran subtask {request.subtask}"
            raise WorkerLostError(message) from error
        if isinstance(answer, BaseException):
            raise answer
        return cast("list[pa.RecordBatch]", answer)

    def _replace(self, index: int) -> None:
        lost = self._serving[index]
        lost.connection.close()
        lost.process.join(_PATIENCE)
        if not self._spares:
            message = "a worker process died, and there are no more spare ones"
            raise WorkerLostError(message)
        self._serving[index] = self._spares.pop()

    def kill(self) -> None:
        """Kill the processes that run tasks, with SIGKILL, and wait until they are gone."""
        for worker in self._serving:
            os.kill(worker.process.pid or 0, signal.SIGKILL)
            worker.process.join(_PATIENCE)

    def close(self) -> None:
        """Let the workers end."""
        for worker in [*self._serving, *self._spares]:
            worker.connection.close()
        for worker in [*self._serving, *self._spares]:
            worker.process.join(_PATIENCE)


class ProcessCluster(MiniCluster):
    """A MiniCluster that gives its tasks to a pool of processes.

    Args:
        pool: the worker processes; they outlive this run, as Spark's do.
        graph, directory, others: as for ``MiniCluster``.
    """

    def __init__(self, pool: WorkerPool, graph: JobGraph, *arguments: Any, **named: Any) -> None:
        self._pool = pool
        self._run_name = uuid.uuid4().hex
        super().__init__(graph, *arguments, **named)

    def _run_task(
        self, plan: EpochPlan, level: int, subtask: int, frames: pa.Table
    ) -> list[pa.RecordBatch]:
        moved = self._flips_coin()
        request = _TaskRequest(
            self._run_name, self._graph_bytes, plan, level, subtask, frames, moved
        )
        again = self._flips_coin()
        try:
            return self._pool.call(request)
        except WorkerLostError:
            if not again:
                raise
            return self._pool.call(request)


def _serve(connection: Connection, foreign: list[Connection]) -> None:
    """What a worker does: tasks, until the driver is gone."""
    for other in foreign:
        other.close()
    instances: dict[tuple[int, int], StageInstance] = {}
    current = ""
    with contextlib.suppress(EOFError, OSError):  # the driver is gone, or has let go
        while True:
            request = cast("_TaskRequest", loads(connection.recv_bytes()))
            if request.run != current:
                _close(instances)
                current = request.run
            try:
                answer: object = _run(request, instances)
            except Exception as error:  # noqa: BLE001 - the driver's to raise
                answer = _portable(error)
            connection.send_bytes(dumps(answer))
    _close(instances)


def _run(
    request: _TaskRequest, instances: dict[tuple[int, int], StageInstance]
) -> list[pa.RecordBatch]:
    key = (request.level, request.subtask)
    instance = instances.pop(key, None)
    if instance is not None and request.moved:
        instance.close()
        instance = None
    if instance is None:
        instance = StageInstance(cloudpickle.loads(request.graph), *key)
        instance.open()
    try:
        made = list(Task(instance, request.plan).run(iter(request.frames.to_batches(16))))
    except Exception:
        # As on Spark: operators give up what they had begun, while it may still be under way.
        with contextlib.suppress(Exception):
            instance.close()
        raise
    instances[key] = instance
    return made


def _portable(error: Exception) -> Exception:
    """The error, or its text if it cannot be unpickled."""
    try:
        loads(dumps(error))
    except Exception:  # noqa: BLE001 - whatever its constructor raises
        return MillstreamError("".join(traceback.format_exception(error)))
    return error


def _close(instances: dict[tuple[int, int], StageInstance]) -> None:
    while instances:
        instances.popitem()[1].close()
