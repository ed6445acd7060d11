"""Latency markers: how long records of a source take to come to each operator.

A task that reads a source sends a marker every ``metrics.latency.interval``.  It travels with the
records: behind those that were sent before it, and to one subtask of each task that reads them.
Operators do not see it: windows, timers and functions hold up records, and no marker.  So it shows
how long records wait on their way, not how long they are kept by what is computed.
"""

from __future__ import annotations

import math
import random
import struct
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.configuration import options
from millstream.contracts.metrics import quantile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.runtime.stage import StageInstance

_HEAD: Final = struct.Struct("<qI")
#: Name -> quantile, as Flink's reporters have them.
_QUANTILES: Final = {
    "p50": 0.5,
    "p75": 0.75,
    "p95": 0.95,
    "p98": 0.98,
    "p99": 0.99,
    "p999": 0.999,
}


class LatencyMarker(NamedTuple):
    """A marker on its way."""

    #: Milliseconds since 1970, when it was made.
    time: int
    #: The subtask of the source.
    subtask: int
    source_uid: str

    def encode(self) -> bytes:
        """The bytes."""
        return _HEAD.pack(self.time, self.subtask) + self.source_uid.encode()

    @staticmethod
    def decode(content: bytes) -> LatencyMarker:
        """The inverse of ``encode``."""
        time, subtask = _HEAD.unpack_from(content)
        return LatencyMarker(time, subtask, content[_HEAD.size :].decode())


class LatencyTracking:
    """The markers of one task, and what its operators have seen of them.

    Args:
        instance: the operators of the task.
        interval: milliseconds between two markers of a source.
    """

    def __init__(self, instance: StageInstance, interval: int) -> None:
        graph = instance.graph
        configuration = graph.configuration
        self._interval = interval
        self._granularity = configuration.get(options.METRICS_LATENCY_GRANULARITY).lower()
        self._size = configuration.get(options.METRICS_LATENCY_HISTORY)
        self._subtask = instance.subtask
        self._sources = [node.uid for node in instance.nodes if node.kind == "source"]
        #: Source uid -> the operators here that its records come to, and stages after this one.
        self._reached: dict[str, list[str]] = {}
        self._next_stages: dict[str, set[int]] = {}
        of_node = {node: stage.number for stage in graph.stages for node in stage.nodes}
        for node in graph.nodes.values():
            for above in graph.upstream(graph.inputs(node.id)):
                if above.kind != "source":
                    continue
                if node.id in instance.operators:
                    self._reached.setdefault(above.uid, []).append(node.uid)
                else:
                    self._next_stages.setdefault(above.uid, set()).add(of_node[node.id])
        self._due = -math.inf
        #: (operator, source, its subtask) -> milliseconds, the newest last.
        self._seen: dict[tuple[str, str, int], deque[int]] = {}

    @staticmethod
    def of(instance: StageInstance) -> LatencyTracking | None:
        """Make that of a task; None: latency is not tracked, and costs nothing."""
        interval: int = instance.graph.configuration.get(options.METRICS_LATENCY_INTERVAL)
        return LatencyTracking(instance, interval) if interval > 0 else None

    def due(self, now: int) -> list[LatencyMarker]:
        """Return the markers that are to be sent now, in milliseconds since 1970."""
        if not self._sources or now < self._due:
            return []
        self._due = now + self._interval
        return [LatencyMarker(now, self._subtask, uid) for uid in self._sources]

    def take(self, marker: LatencyMarker, now: int) -> None:
        """Note a marker that has come to the task, or was made in it."""
        single, by_subtask = self._granularity == "single", self._granularity == "subtask"
        source = "" if single else marker.source_uid
        subtask = marker.subtask if by_subtask else -1
        for uid in self._reached.get(marker.source_uid, ()):
            key = (uid, source, subtask)
            seen = self._seen.get(key)
            if seen is None:
                seen = self._seen[key] = deque(maxlen=self._size)
            # Clocks of machines differ.
            seen.append(max(0, now - marker.time))

    def targets(
        self, marker: LatencyMarker, links: Mapping[int, list[int]]
    ) -> list[tuple[int, int]]:
        """Return where a marker goes: to one subtask of each task that reads records of its source.

        Args:
            marker: the marker.
            links: stage -> its subtasks that this task sends to.
        """
        reached = self._next_stages.get(marker.source_uid, set())
        return [
            (stage, random.choice(subtasks))  # noqa: S311 - no secret
            for stage, subtasks in links.items()
            if stage in reached
        ]

    def histograms(self) -> dict[tuple[str, str, int], dict[str, float]]:
        """Return what was seen: (operator, source, its subtask) -> statistics; from any thread."""
        return {key: _statistics(sorted(seen)) for key, seen in list(self._seen.items())}


def _statistics(values: list[int]) -> dict[str, float]:
    count, total = len(values), sum(values)
    found = {name: quantile(values, part) for name, part in _QUANTILES.items()}
    extent = {"count": count, "sum": total, "min": values[0], "max": values[-1]}
    return {**extent, "mean": total / count, **found}
