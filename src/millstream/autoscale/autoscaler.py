"""The autoscaler of a job: collects figures of its vertices, and decides when to scale."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from millstream.autoscale.algorithm import (
    Decision,
    PastScaling,
    ScalingSettings,
    VertexFigures,
    evaluate,
    grouped,
)
from millstream.configuration import options
from millstream.configuration.option import parse_list
from millstream.graph.model import Partitioning, by_chain, cut_stages
from millstream.metrics.definitions import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.configuration.configuration import Configuration
    from millstream.graph.model import JobGraph
    from millstream.metrics.registry import Measurement

_LOG: Final = logging.getLogger("millstream")


@dataclass(slots=True)
class _Observation:
    """Figures of a vertex at one moment."""

    records_in: float = 0.0
    records_out: float = 0.0
    lag: float = 0.0
    #: Of each subtask of which it is known.
    busy: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Vertex:
    """A chain of operators of a graph, by the uid of its first."""

    name: str
    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    reads_all: bool
    parallelism: int
    max_parallelism: int
    is_fixed: bool


def vertices_of(graph: JobGraph) -> dict[str, Vertex]:
    """Return the vertices of a job, inputs before those that read them."""
    stages = by_chain(graph).stages
    of_node = {node: graph.nodes[stage.nodes[0]].uid for stage in stages for node in stage.nodes}
    found = {}
    for stage in stages:
        nodes = [graph.nodes[node] for node in stage.nodes]
        name = nodes[0].uid
        edges = [edge for node in stage.nodes for edge in graph.inputs(node)]
        outside = [edge for edge in edges if of_node[edge.source] != name]
        found[name] = Vertex(
            name,
            tuple(stage.nodes),
            tuple(dict.fromkeys(of_node[edge.source] for edge in outside)),
            all(edge.tag is None and edge.combiner is None for edge in outside),
            stage.parallelism,
            min(node.max_parallelism for node in nodes),
            # One that may have one subtask only, by the program or what it computes.
            any(node.has_one_subtask or node.spark_index is not None for node in nodes),
        )
    return found


def groups_of(graph: JobGraph) -> list[list[str]]:
    """Return vertices that must have one parallelism: records stay in their subtasks."""
    vertices = vertices_of(graph)
    of_node = {node: each.name for each in vertices.values() for node in each.nodes}
    group = {name: {name} for name in vertices}
    for edge in graph.edges:
        if edge.partitioning is Partitioning.FORWARD:
            one, other = group[of_node[edge.source]], group[of_node[edge.target]]
            if one is not other:
                one |= other
                for name in other:
                    group[name] = one
    unique = {id(each): each for each in group.values()}
    return [sorted(each) for each in unique.values()]


def apply_parallelism(graph: JobGraph, wanted: Mapping[str, int]) -> None:
    """Give vertices of a job, by the uid of their first operator, another parallelism.

    Its state is redistributed where it is restored; vertices that are gone are left out.
    """
    for name, vertex in vertices_of(graph).items():
        parallelism = wanted.get(name, vertex.parallelism)
        if vertex.is_fixed or parallelism == vertex.parallelism:
            continue
        for number in vertex.nodes:
            graph.nodes[number] = replace(
                graph.nodes[number], parallelism=min(parallelism, vertex.max_parallelism)
            )
    graph.stages = cut_stages(graph.nodes, graph.edges)


def settings_of(configuration: Configuration) -> ScalingSettings:
    """Read the options of a job."""
    target = configuration.get(options.AUTOSCALER_TARGET)
    boundary = configuration.get(options.AUTOSCALER_BOUNDARY)
    return ScalingSettings(
        target=target,
        least=max(0.01, target - boundary),
        most=target + boundary,
        up_factor=configuration.get(options.AUTOSCALER_UP_FACTOR),
        down_factor=configuration.get(options.AUTOSCALER_DOWN_FACTOR),
        least_parallelism=max(1, configuration.get(options.AUTOSCALER_LEAST)),
        most_parallelism=max(1, configuration.get(options.AUTOSCALER_MOST)),
        catch_up=configuration.get(options.AUTOSCALER_CATCH_UP) / 1000,
        restart=configuration.get(options.AUTOSCALER_RESTART) / 1000,
        detects_ineffective=configuration.get(options.AUTOSCALER_DETECTION),
        effectiveness=configuration.get(options.AUTOSCALER_EFFECTIVENESS),
        excluded=frozenset(parse_list(configuration.get(options.AUTOSCALER_EXCLUDED))),
    )


class Autoscaler:
    """Observes a job, and says which vertices should have another parallelism.

    Contract:
      1. ``observe`` is called again and again while the job runs, ``begin`` when it has started or
         was scaled.  From one thread.  (driver)
      2. Nothing is decided before the stabilization interval and one window have passed after
         that.  (here)

    Args:
        graph: the job.
        seconds: a clock that does not go back.
    """

    def __init__(self, graph: JobGraph, seconds: Callable[[], float] = time.monotonic) -> None:
        configuration = graph.configuration
        self._settings = settings_of(configuration)
        self._window = configuration.get(options.AUTOSCALER_WINDOW) / 1000
        self._stabilization = configuration.get(options.AUTOSCALER_STABILIZATION) / 1000
        self._seconds = seconds
        self._past: dict[str, PastScaling] = {}
        self.begin(graph)

    def begin(self, graph: JobGraph) -> None:
        """Note that the job runs with these parallelisms from now on."""
        self._vertices = vertices_of(graph)
        self._groups = groups_of(graph)
        self._began = self._seconds()
        self._seen: deque[tuple[float, dict[str, _Observation]]] = deque()
        #: What was computed last, and what was logged of it.
        self.last = Decision()
        self._logged: dict[str, int] = {}

    @property
    def interval(self) -> float:
        """Seconds between two observations."""
        return min(10.0, self._window / 5)

    def observe(self, measurements: Iterable[Measurement]) -> dict[str, int]:
        """Take the metrics of the job as they are now.

        Returns:
            Vertex -> its new parallelism; empty: all stay.
        """
        now = self._seconds()
        if now - self._began < self._stabilization:
            return {}
        self._seen.append((now, self._observed(measurements)))
        while len(self._seen) > 1 and now - self._seen[1][0] >= self._window:
            self._seen.popleft()
        if now - self._seen[0][0] < self._window:
            return {}
        figures = self._figures()
        if figures is None:
            return {}
        self.last = Decision(evaluate(figures, self._settings, self._past))
        changes = grouped(self.last, self._groups)
        if changes != self._logged:
            self._log(changes)
            self._logged = changes
        return changes

    def scaled(self, changes: Mapping[str, int]) -> None:
        """Note that the changes are made."""
        for name, after in changes.items():
            each = self.last.evaluations.get(name)
            if each is None:  # scaled by request, before there were figures
                continue
            expected = each.true_rate * after / each.parallelism
            self._past[name] = PastScaling(each.parallelism, after, each.true_rate, expected)

    def _observed(self, measurements: Iterable[Measurement]) -> dict[str, _Observation]:
        found = {name: _Observation() for name in self._vertices}
        for each in measurements:
            vertex = found.get(each.variables.get("task_id", ""))
            if vertex is None or not isinstance(each.value, int | float):
                continue
            if each.scope is Scope.TASK and each.name == "numRecordsIn":
                vertex.records_in += each.value
            elif each.scope is Scope.TASK and each.name == "numRecordsOut":
                vertex.records_out += each.value
            elif each.scope is Scope.TASK and each.name == "busyTimeMsPerSecond":
                vertex.busy = (*vertex.busy, float(each.value))
            elif each.scope is Scope.OPERATOR and each.name == "pendingRecords":
                vertex.lag += each.value
        return found

    def _figures(self) -> dict[str, VertexFigures] | None:
        """Figures of the window; None: of some vertex it is not known whether it is busy."""
        (since, first), (now, last) = self._seen[0], self._seen[-1]
        passed = now - since
        figures = {}
        for name, vertex in self._vertices.items():
            before, after = first[name], last[name]
            busy = [each for _, seen in self._seen for each in seen[name].busy]
            if not busy:
                return None
            figures[name] = VertexFigures(
                parallelism=vertex.parallelism,
                max_parallelism=vertex.max_parallelism,
                records_in=max(0.0, after.records_in - before.records_in) / passed,
                records_out=max(0.0, after.records_out - before.records_out) / passed,
                busy=sum(busy) / len(busy),
                lag=after.lag,
                lag_growth=(after.lag - before.lag) / passed,
                inputs=vertex.inputs,
                reads_all=vertex.reads_all,
                is_fixed=vertex.is_fixed,
            )
        return figures

    def _log(self, changes: Mapping[str, int]) -> None:
        for name, after in changes.items():
            each = self.last.evaluations[name]
            _LOG.info(
                "autoscaler: vertex %s should have parallelism %d instead of %d: %.0f records/s"
                " come, it can process %.0f and needs %.0f",
                *(name, after, each.parallelism, each.target_rate, each.true_rate, each.capacity),
            )
