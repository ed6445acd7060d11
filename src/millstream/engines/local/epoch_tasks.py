"""The tasks of an epoch, stage by stage: all of one, then all of the next.

What it is: the order in which the tasks of a plan run, and what each gets of those before it.  How
the tasks of one stage run is the caller's: in processes (``engines/local/engine.py``), or one after
the other with faults between them (``testing/``).

What it is not: a scheduler: a stage has one task per subtask, and each its place.

Read next: ``engines/local/frame_files.py``, ``engines/local/pool.py``.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, cast

from millstream.engines.local.worker import TaskRequest
from millstream.types.pickling import dumps_by_value, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from millstream.checkpoint.model import TaskAck
    from millstream.engines.local.worker import TaskOutput
    from millstream.graph.model import JobGraph
    from millstream.runtime.plan import EpochPlan

__all__ = ["EpochTasks"]


class EpochTasks:
    """Runs the tasks of plans; frames go from stage to stage in files.

    Args:
        graph: the job.
        directory: for the frames and plans; each epoch leaves it empty.
        run_stage: runs the tasks of one stage and returns what they leave, in any order.
    """

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
