"""ProcessCluster: a MiniCluster whose tasks run in worker processes that can be killed.

The seed decides which subtasks move to a fresh instance, and whether the task of a dead worker is
retried in another process or fails the run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.engines.local.pool import WorkerPool
from millstream.engines.local.worker import RunMessage
from millstream.errors import WorkerLostError
from millstream.testing.mini_cluster import MiniCluster
from millstream.types.pickling import dumps_by_value

if TYPE_CHECKING:
    from millstream.engines.local.worker import TaskOutput, TaskRequest
    from millstream.graph.model import JobGraph

__all__ = ["ProcessCluster", "WorkerLostError", "WorkerPool"]


class ProcessCluster(MiniCluster):
    """A MiniCluster that gives its tasks to a pool of processes.

    Args:
        pool: the worker processes; they outlive this run, as Spark's do.
        graph, directory, others: as for ``MiniCluster``.
    """

    def __init__(self, pool: WorkerPool, graph: JobGraph, *arguments: Any, **named: Any) -> None:
        self._pool = pool
        super().__init__(graph, *arguments, **named)
        pool.begin_run(RunMessage(dumps_by_value(graph), graph.files))

    def _run_request(self, request: TaskRequest) -> TaskOutput:
        request = replace(request, moved=self._flips_coin())
        again = self._flips_coin()
        try:
            return self._pool.run([request])[0]
        except WorkerLostError:
            if not again:
                raise
            return self._pool.run([request])[0]
