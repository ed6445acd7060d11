"""A job as the REST API shows it, running or ended: vertices, statistics, metrics, operations."""

from __future__ import annotations

import hashlib
import re
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.graph.explain import edge_words, sink_guarantees
from millstream.graph.model import by_chain
from millstream.metrics.registry import operator_name
from millstream.rest.security import Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from millstream.configuration.configuration import Configuration
    from millstream.graph.model import JobGraph
    from millstream.metrics.job_history import JobHistory
    from millstream.metrics.registry import Measurement
    from millstream.runtime.pipelined.control import StackRequest, Stacks

_ID: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class OperatorView:
    """An operator of a vertex."""

    uid: str
    name: str
    #: "source", "operator" or "sink".
    kind: str
    #: "job.py:12".
    location: str
    #: The delivery guarantee of a sink; empty for others.
    guarantee: str = ""


@dataclass(frozen=True, slots=True)
class InputView:
    """An edge into a vertex."""

    #: The id of the vertex that it comes from.
    vertex: str
    #: Flink's: HASH, REBALANCE and others.
    ship_strategy: str
    #: How records travel, in words.
    words: str


@dataclass(frozen=True, slots=True)
class VertexView:
    """A chain of operators, which Flink calls a job vertex."""

    id: str
    #: The uid of its first operator.
    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    operators: tuple[OperatorView, ...]
    inputs: tuple[InputView, ...]


def vertex_id(uid: str) -> str:
    """Return the id of the vertex that begins with an operator: 32 hexadecimal digits."""
    if _ID.fullmatch(uid):
        return uid
    return hashlib.md5(uid.encode(), usedforsecurity=False).hexdigest()


def vertices_of(graph: JobGraph) -> tuple[VertexView, ...]:
    """Return the vertices of a job; inputs come before those that read them."""
    chains = by_chain(graph)
    ids = {
        node: vertex_id(graph.nodes[stage.nodes[0]].uid)
        for stage in chains.stages
        for node in stage.nodes
    }
    guarantees = {each.node: each.guarantee for each in sink_guarantees(graph)}
    incoming: dict[str, list[InputView]] = {each: [] for each in ids.values()}
    for edge in graph.edges:
        source, target = ids[edge.source], ids[edge.target]
        if source != target:
            words = edge_words(edge)
            incoming[target].append(InputView(source, edge.partitioning.name, words))
    found = []
    for stage in chains.stages:
        nodes = [graph.nodes[each] for each in stage.nodes]
        operators = (
            OperatorView(each.uid, each.name, each.kind, each.location, guarantees.get(each.id, ""))
            for each in nodes
        )
        found.append(
            VertexView(
                id=ids[stage.nodes[0]],
                uid=nodes[0].uid,
                name=" -> ".join(map(operator_name, nodes)),
                parallelism=stage.parallelism,
                max_parallelism=max(each.max_parallelism for each in nodes),
                operators=tuple(operators),
                inputs=tuple(incoming[ids[stage.nodes[0]]]),
            )
        )
    return tuple(found)


class JobView(ABC):
    """What the REST API knows of one job.

    Contract:
      1. Everything may be called from any thread, at any time, also after the end of the job.
         (implementation)
      2. What changes the job may take long; it is called in a thread of its own.  (REST API)
    """

    job_id: str
    name: str
    is_batch: bool
    configuration: Configuration
    history: JobHistory

    @property
    @abstractmethod
    def status(self) -> str:
        """Return Flink's name of where the job is, such as "RUNNING"."""

    @property
    def is_ready(self) -> bool:
        """Return whether all tasks run: not while they are restored, nor after the end."""
        return False

    @property
    @abstractmethod
    def vertices(self) -> tuple[VertexView, ...]:
        """Return the vertices of the job as it runs; inputs come before those that read them."""

    def measurements(self) -> Sequence[Measurement]:
        """Return the metrics of the job as they are now."""
        return ()

    def accumulators(self) -> Mapping[str, object]:
        """Return the totals of user functions, by "operator.metric"."""
        return {}

    def stacks(
        self, slots: Collection[int], request: StackRequest, seconds: float
    ) -> Mapping[int, Stacks]:
        """Return Python stacks by slot; empty where tasks have no slots.

        Args:
            slots: their numbers.
            request: what to take.
            seconds: how long to wait for slots that do not answer, which are left out.
        """
        del slots, request, seconds
        return {}

    def log_files(self) -> Mapping[str, Path]:
        """Return the log files of the driver and of slots, by name; the driver's own is first."""
        return {}

    def cancel(self) -> None:
        """Cancel the job, and wait for that."""
        raise self._refusal()

    def trigger_savepoint(self, directory: str | None, format_type: str) -> str:
        """Take a savepoint and return its directory.

        Args:
            directory: below which it gets one; None: where the job's options say.
            format_type: "CANONICAL" or "NATIVE".
        """
        del directory, format_type
        raise self._refusal()

    def stop_with_savepoint(self, directory: str | None, format_type: str, *, drain: bool) -> str:
        """Stop the job with a savepoint and return its directory; arguments as those of both."""
        del directory, format_type, drain
        raise self._refusal()

    def rescale(self, bounds: Mapping[str, tuple[int, int]]) -> None:
        """Give vertices another parallelism, by way of a checkpoint; returns before that is done.

        Args:
            bounds: uid of the first operator of a vertex -> its least and most parallelism.
        """
        del bounds
        raise self._refusal()

    def _refusal(self) -> Refused:
        return Refused(409, f"job {self.name!r} has ended")


class Jobs:
    """The jobs that a server shows: those that run, and the last that have ended.

    Args:
        history: how many of the latter.
    """

    def __init__(self, history: int = 5) -> None:
        self._history = history
        self._views: dict[str, JobView] = {}
        self._ended: list[str] = []
        self._lock = threading.Lock()

    def add(self, view: JobView) -> None:
        """Show a job."""
        with self._lock:
            if view.job_id in self._ended:
                self._ended.remove(view.job_id)
            self._views[view.job_id] = view

    def ended(self, job_id: str) -> bool:
        """Note that a job has ended; returns whether no other runs."""
        with self._lock:
            self._ended.append(job_id)
            while len(self._ended) > self._history:
                self._views.pop(self._ended.pop(0), None)
            return len(self._views) == len(self._ended)

    @property
    def are_ready(self) -> bool:
        """Return whether all jobs that have not ended run, and there is one."""
        with self._lock:
            found = [view for job, view in self._views.items() if job not in self._ended]
        return bool(found) and all(view.is_ready for view in found)

    def all(self) -> list[JobView]:
        """Return all jobs, in the order in which they were added."""
        with self._lock:
            return list(self._views.values())

    def get(self, job_id: str) -> JobView:
        """Return a job.

        Raises:
            Refused: there is none with this id.
        """
        with self._lock:
            found = self._views.get(job_id)
        if found is None:
            raise Refused(404, f"Job {job_id[:64]} not found")
        return found
