"""The scaling of a running job: stop with a checkpoint, another parallelism, and continue."""

from __future__ import annotations

import json
import logging
import math
from typing import TYPE_CHECKING, Final

from millstream.autoscale.autoscaler import (
    Autoscaler,
    apply_parallelism,
    groups_of,
    vertices_of,
)
from millstream.configuration import options
from millstream.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.execution.job import Job
    from millstream.metrics.registry import Measurement

_LOG: Final = logging.getLogger("millstream")
#: File of the checkpoint directory: vertex -> its parallelism, for the next driver.
PARALLELISM_FILE: Final = "autoscaler.json"
#: The same of a job that is scaled by request, with the parallelism that its program gives: another
#: program, or another ``-p``, takes precedence.
REQUESTED_FILE: Final = "requested-parallelism.json"


class Autoscaling:
    """The scaling of a job, by its autoscaler or by request, and what is about to be done.

    Contract:
      1. ``begin``, then ``scale`` or ``give_up`` when the run has stopped.  (driver)
      2. A scaling is kept before the next run begins: a driver that follows has the parallelism of
         the last checkpoint, or the one before it.  Both can be restored.  (here)

    Args:
        job: the job, whose graph is changed.
        most: returns the most subtasks that there is room for.
    """

    def __init__(self, job: Job, most: Callable[[], int]) -> None:
        self._job = job
        self._most = most
        configuration = job.graph.configuration
        #: Whether the autoscaler decides; else the job is scaled by request alone.
        self.is_automatic = configuration.get(options.AUTOSCALER_ENABLED)
        self._scales = self.is_automatic and configuration.get(options.AUTOSCALER_SCALING)
        #: What the program gives.
        self._given = self._parallelism()
        self._restore()
        self._scaler = Autoscaler(job.graph)
        self._changes: dict[str, int] = {}
        #: The vertices are to be scaled as soon as the run has stopped.
        self.is_under_way = False

    @staticmethod
    def of(job: Job, most: Callable[[], int]) -> Autoscaling | None:
        """Make that of a job; None: it cannot be scaled, since it is bounded."""
        return None if job.graph.batch_mode else Autoscaling(job, most)

    def _restore(self) -> None:
        """Continue with the parallelism that a driver before has chosen."""
        try:
            if self._scales:
                kept = json.loads(self._job.storage.read(PARALLELISM_FILE))
            elif not self.is_automatic:
                found = json.loads(self._job.storage.read(REQUESTED_FILE))
                kept = found["requested"] if found["given"] == self._given else {}
            else:
                return
        except FileNotFoundError:
            return
        apply_parallelism(self._job.graph, kept)

    def _parallelism(self) -> dict[str, int]:
        return {name: each.parallelism for name, each in vertices_of(self._job.graph).items()}

    @property
    def interval(self) -> float:
        """Seconds between two observations."""
        return self._scaler.interval

    def observe(self, measurements: Iterable[Measurement]) -> dict[str, int]:
        """Take the metrics of the job; return what is to be scaled, empty: nothing."""
        if self.is_under_way:
            return {}
        changes = self._scaler.observe(measurements)
        widest = max(self._most(), self._job.graph.width)
        vertices = vertices_of(self._job.graph)
        limited = {name: min(wanted, widest) for name, wanted in changes.items()}
        if not self._scales:
            return {}
        return {
            name: wanted for name, wanted in limited.items() if wanted != vertices[name].parallelism
        }

    def requested(self, bounds: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """Return what is to be scaled so that vertices have a parallelism within bounds.

        Args:
            bounds: vertex -> its least and its most parallelism; it gets the most for which there
                are cores.

        Raises:
            ProgramError: that cannot be; nothing is changed.
        """
        vertices = vertices_of(self._job.graph)
        room = max(self._most(), self._job.graph.width)
        wanted = {name: min(most, room) for name, (_, most) in bounds.items()}
        for name, (least, most) in bounds.items():
            vertex = vertices[name]
            if not 1 <= least <= most <= vertex.max_parallelism:
                message = (
                    f"vertex {name!r}: bounds are from 1 to its maximum parallelism"
                    f" {vertex.max_parallelism}, the lower one first, not {least} and {most}"
                )
                raise ProgramError(message)
            if least > room:
                message = (
                    f"vertex {name!r} cannot have parallelism {least}: there are cores for {room}"
                    " subtasks; lower lowerBound, or add cores"
                )
                raise ProgramError(message)
            if vertex.is_fixed and wanted[name] != vertex.parallelism:
                message = (
                    f"vertex {name!r} always has parallelism {vertex.parallelism}, by the program"
                    " or by what it computes"
                )
                raise ProgramError(message)
        for group in groups_of(self._job.graph):
            if len({wanted[name] for name in group}) > 1:
                message = (
                    f"vertices {', '.join(group)} pass records on within a subtask: give them the"
                    " same parallelism"
                )
                raise ProgramError(message)
        return {name: each for name, each in wanted.items() if each != vertices[name].parallelism}

    def begin(self, changes: dict[str, int]) -> bool:
        """Note that the run is stopped for these changes; False: it is already for others."""
        if self.is_under_way:
            return False
        self._changes = changes
        self.is_under_way = True
        return True

    def give_up(self) -> None:
        """Note that the job is over."""
        self.is_under_way = False

    def scale(self) -> None:
        """Give the vertices their parallelism, and keep it for drivers that follow."""
        graph = self._job.graph
        self._scaler.scaled(self._changes)
        apply_parallelism(graph, self._changes)
        chosen = self._parallelism()
        if self.is_automatic:
            self._job.storage.write(PARALLELISM_FILE, json.dumps(chosen).encode())
        else:
            kept = {"given": self._given, "requested": chosen}
            self._job.storage.write(REQUESTED_FILE, json.dumps(kept).encode())
        words = ", ".join(f"{name} to {each}" for name, each in self._changes.items())
        _LOG.info(
            "%s: job %r continues with another parallelism: %s",
            *("autoscaler" if self.is_automatic else "by request", graph.job_name, words),
        )
        self._scaler.begin(graph)
        self.is_under_way = False

    def measurements(self) -> dict[str, dict[str, float]]:
        """Return what was computed last, by vertex, under the names of the autoscaler's metrics."""
        return {
            name: {
                "PARALLELISM.Current": each.parallelism,
                "RECOMMENDED_PARALLELISM.Current": each.recommended,
                "TARGET_DATA_RATE.Average": each.target_rate,
                "REQUIRED_CAPACITY.Current": each.capacity,
                **(
                    {"TRUE_PROCESSING_RATE.Average": each.true_rate}
                    if math.isfinite(each.true_rate)
                    else {}
                ),
            }
            for name, each in self._scaler.last.evaluations.items()
        }
