"""The scaling of a running job: stop with a checkpoint, another parallelism, and continue."""

from __future__ import annotations

import json
import logging
import math
from typing import TYPE_CHECKING, Final

from millstream.autoscale.autoscaler import Autoscaler, apply_parallelism, vertices_of
from millstream.configuration import options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.execution.job import Job
    from millstream.metrics.registry import Measurement

_LOG: Final = logging.getLogger("millstream")
#: File of the checkpoint directory: vertex -> its parallelism, for the next driver.
PARALLELISM_FILE: Final = "autoscaler.json"


class Autoscaling:
    """The autoscaler of a job, and what it is about to do.

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
        self._scales = job.graph.configuration.get(options.AUTOSCALER_SCALING)
        if self._scales:
            self._restore()
        self._scaler = Autoscaler(job.graph)
        self._changes: dict[str, int] = {}
        #: The vertices are to be scaled as soon as the run has stopped.
        self.is_under_way = False

    @staticmethod
    def of(job: Job, most: Callable[[], int]) -> Autoscaling | None:
        """Make that of a job; None: it is not to be scaled."""
        configuration = job.graph.configuration
        if not configuration.get(options.AUTOSCALER_ENABLED) or job.graph.batch_mode:
            return None
        return Autoscaling(job, most)

    def _restore(self) -> None:
        """Continue with the parallelism that a driver before has chosen."""
        try:
            kept = json.loads(self._job.storage.read(PARALLELISM_FILE))
        except FileNotFoundError:
            return
        apply_parallelism(self._job.graph, kept)

    @property
    def interval(self) -> float:
        """Seconds between two observations."""
        return self._scaler.interval

    def observe(self, measurements: Iterable[Measurement]) -> bool:
        """Take the metrics of the job; whether it is to be scaled."""
        if self.is_under_way:
            return False
        changes = self._scaler.observe(measurements)
        widest = max(self._most(), self._job.graph.width)
        vertices = vertices_of(self._job.graph)
        limited = {name: min(wanted, widest) for name, wanted in changes.items()}
        self._changes = {
            name: wanted for name, wanted in limited.items() if wanted != vertices[name].parallelism
        }
        return bool(self._changes) and self._scales

    def begin(self) -> bool:
        """Note that the run is stopped for it; False: it is already."""
        if self.is_under_way:
            return False
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
        chosen = {name: each.parallelism for name, each in vertices_of(graph).items()}
        self._job.storage.write(PARALLELISM_FILE, json.dumps(chosen).encode())
        words = ", ".join(f"{name} to {each}" for name, each in self._changes.items())
        _LOG.info(
            "autoscaler: job %r continues with another parallelism: %s", graph.job_name, words
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
