"""A running job as the REST API shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.checkpoint.savepoint import SavepointFormatType
from millstream.logs import log_files
from millstream.metrics.reporting import Collected
from millstream.rest.view import JobView, vertices_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from millstream.execution.job_client import JobHandle
    from millstream.graph.model import JobGraph
    from millstream.metrics.job_history import JobHistory
    from millstream.metrics.registry import Measurement
    from millstream.rest.view import VertexView
    from millstream.runtime.pipelined.control import StackRequest, Stacks


class DriverView(JobView):
    """Shows a job from the driver that runs it.

    Args:
        handle: the job.
        graph: its graph.
        history: its history.
        collect: returns its metrics.
        is_ready: returns whether its tasks run.
        rescale: gives its vertices another parallelism.
        stacks: returns stacks of its slots (``Engine.stacks``).
    """

    def __init__(
        self,
        handle: JobHandle,
        graph: JobGraph,
        history: JobHistory,
        collect: Callable[[], list[Measurement]],
        is_ready: Callable[[], bool],
        rescale: Callable[[Mapping[str, tuple[int, int]]], None],
        stacks: Callable[[Collection[int], StackRequest, float], Mapping[int, Stacks]],
    ) -> None:
        self._handle = handle
        self._collected = Collected(collect)
        self._is_ready = is_ready
        self._rescale = rescale
        self._stacks = stacks
        self.job_id = handle.get_job_id()
        self.name = graph.job_name
        self.is_batch = graph.batch_mode
        self._graph = graph
        self._vertices: tuple[tuple[int, ...], tuple[VertexView, ...]] = ((), ())
        self.configuration = graph.configuration
        self.history = history

    @property
    def vertices(self) -> tuple[VertexView, ...]:
        # The autoscaler changes the graph between two runs.
        parallelism = tuple(stage.parallelism for stage in self._graph.stages)
        known, found = self._vertices
        if known != parallelism:
            found = vertices_of(self._graph)
            self._vertices = (parallelism, found)
        return found

    @property
    def status(self) -> str:
        return self._handle.get_job_status().name

    @property
    def is_ready(self) -> bool:
        return self._is_ready()

    def measurements(self) -> Sequence[Measurement]:
        return self._collected.get()

    def accumulators(self) -> Mapping[str, object]:
        return self._handle.get_accumulators()

    def stacks(
        self, slots: Collection[int], request: StackRequest, seconds: float
    ) -> Mapping[int, Stacks]:
        return self._stacks(slots, request, seconds)

    def log_files(self) -> Mapping[str, Path]:
        return log_files()

    def cancel(self) -> None:
        self._require_running()
        self._handle.cancel()

    def trigger_savepoint(self, directory: str | None, format_type: str) -> str:
        return self._handle.trigger_savepoint(directory, SavepointFormatType[format_type])

    def stop_with_savepoint(self, directory: str | None, format_type: str, *, drain: bool) -> str:
        kind = SavepointFormatType[format_type]
        return self._handle.stop_with_savepoint(directory, drain=drain, format_type=kind)

    def rescale(self, bounds: Mapping[str, tuple[int, int]]) -> None:
        self._require_running()
        self._rescale(bounds)

    def _require_running(self) -> None:
        if self._handle.get_job_status().is_terminal_state():
            raise self._refusal()
