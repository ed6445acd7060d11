"""The epoch loop: plan, run the tasks, publish and commit; for engines whose tasks end each epoch.

What it is: one epoch (``run_epoch``), and the loop over them (``run``) for an engine that has no
scheduler of its own.  The engine brings only how a plan is run.

What it is not: the protocol (``checkpoint/coordinator.py``), nor what an engine with long-lived
tasks needs: that plans by ``Run`` alone.

Read next: ``execution/run.py``, ``checkpoint/coordinator.py``.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from millstream.configuration import options
from millstream.crash_points import crash_point
from millstream.errors import CheckpointExpiredError
from millstream.execution.fence_watch import FenceWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.checkpoint.model import TaskAck
    from millstream.execution.offsets import Offset
    from millstream.execution.run import Run
    from millstream.runtime.plan import EpochPlan

__all__ = ["EpochLoop", "EpochTimeout"]


class EpochLoop:
    """Runs the epochs of one run.

    Contract:
      1. ``run_tasks`` returns when no task of the epoch is at work any more, or raises; then the
         run is over.  (engine)
      2. ``give_up`` makes ``run_tasks`` raise, soon; it comes from another thread.  (engine)

    Args:
        run: the run, opened.
        run_tasks: runs the tasks of a plan and returns what they acknowledge.
        give_up: ends the tasks that are at work.
    """

    def __init__(
        self,
        run: Run,
        run_tasks: Callable[[EpochPlan], list[TaskAck]],
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._run = run
        self._run_tasks = run_tasks
        self._give_up = give_up
        configuration = run.job.graph.configuration
        self._timeout = configuration.get(options.CHECKPOINTING_TIMEOUT) / 1000
        #: Nobody needs to wait for anything any more.
        self.ending = threading.Event()

    def run(self, cancelled: threading.Event) -> bool:
        """Run epochs until the job is over or to be stopped (True), or cancelled (False)."""
        interval = self._run.job.interval / 1000
        due = time.monotonic()
        fence = FenceWatch(self._run.coordinator)
        while not cancelled.wait(max(0.0, due - time.monotonic())):
            if self._run.position["final"] or self._run.stop.is_asked:
                return True
            started = time.monotonic()
            if self.run_next():
                due = started + interval
            else:
                fence.look()
        return False

    def run_next(self) -> bool:
        """Plan and run an epoch; False if there is nothing to do now."""
        start = self._run.position
        stop = self._run.planner.latest_offset(start)
        if stop is start:
            return False
        self.run_epoch(stop)
        return True

    def run_epoch(self, stop: Offset) -> None:
        """Run the epoch that reads up to ``stop``, unless it is published already.

        Raises:
            MillstreamError: it failed, and so has the run.
        """
        run, planner = self._run, self._run.planner
        started = time.monotonic()
        metadata = run.metadata(stop, int(time.time() * 1000))
        if run.coordinator.handle_replay(metadata.epoch, stop):
            return
        # The planner keeps the pause already, but Spark's own sources do not ask it.
        self.ending.wait(planner.remaining_pause())
        crash_point("epoch.start.before")
        plan = run.plan(stop)
        run.coordinator.begin_epoch(metadata)
        with EpochTimeout(metadata.epoch, self._timeout, self._give_up):
            acks = self._run_tasks(plan)
        manifest = run.coordinator.complete_epoch(metadata, acks, run.tasks())
        seconds = time.monotonic() - started
        planner.epoch_finished(seconds)
        planner.wake_at(acks)
        planner.observe(manifest.splits)
        planner.committed(manifest.splits)
        run.on_epoch(manifest, acks, seconds)


class EpochTimeout:
    """Gives an epoch up that takes longer than ``execution.checkpointing.timeout``.

    As in Flink with its default of no tolerated failure, the job fails then, and the restart
    strategy decides whether the epoch is run again.  What was published is never given up: only
    the tasks are timed.
    """

    def __init__(self, epoch: int, seconds: float, cancel: Callable[[], None]) -> None:
        """Time epoch ``epoch``; ``cancel`` makes its tasks fail, and is called in a thread."""
        self._epoch = epoch
        self._seconds = seconds
        self._cancel = cancel
        self._expired = False
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def _expire(self) -> None:
        self._expired = True
        self._cancel()

    def __enter__(self) -> None:
        """Begin."""
        self._timer.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End; raises CheckpointExpiredError in place of the error that giving up has caused."""
        self._timer.cancel()
        if self._expired and kind is not None:
            message = (
                f"epoch {self._epoch} was given up: it took longer than "
                f"execution.checkpointing.timeout ({self._seconds:g} s); raise it, or read less "
                "per epoch (millstream.epoch.target-duration)"
            )
            raise CheckpointExpiredError(message) from None
