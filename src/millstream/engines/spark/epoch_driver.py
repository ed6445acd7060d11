"""The epoch driver: one micro-batch of Structured Streaming is one epoch.

What it is: the body of ``foreachBatch``.  It asks the coordinator whether the epoch was published
before, plans it, has its tasks run, and hands the acknowledgements to the coordinator.
What it is not: the protocol (``checkpoint/coordinator.py``), the life of a job
(``engines/spark/driver.py``) or the Spark job of the tasks (``engines/spark/epoch_job.py``).

Read next: ``engines/spark/epoch_job.py``.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.publish import EpochMetadata
from millstream.crash_points import crash_point
from millstream.engines.spark.errors import original_error
from millstream.errors import CheckpointError, CheckpointExpiredError, JobError
from millstream.execution.epoch import make_plan
from millstream.execution.offsets import initial_offset
from millstream.execution.restored_program import program_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from millstream.checkpoint.coordinator import Coordinator
    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.engines.spark.epoch_job import EpochJob
    from millstream.execution.offsets import Offset
    from millstream.execution.planner import SourcePlanner
    from millstream.graph.model import JobGraph
    from millstream.runtime.plan import EpochPlan

__all__ = ["EpochDriver", "EpochSettings", "EpochTimeout"]

#: Characters of an error that Spark is told; the driver has the error itself.
_SHOWN_TO_SPARK: Final = 500
#: Where Spark's offset log has the time of a micro-batch, in milliseconds.
_BATCH_TIME: Final = "batchTimestampMs"


class EpochSettings:
    """What stays the same over all epochs of a run."""

    def __init__(
        self,
        *,
        job_id: str,
        run_id: str,
        storage: CheckpointStorage,
        local_root: str,
        state_backend: str,
        fsync: bool,
        timeout: float,
    ) -> None:
        self.job_id = job_id
        self.run_id = run_id
        self.storage = storage
        self.local_root = local_root
        self.state_backend = state_backend
        self.fsync = fsync
        #: Seconds that the tasks of an epoch may take.
        self.timeout = timeout


class EpochDriver:
    """Runs the epochs of one run of a job."""

    def __init__(
        self,
        graph: JobGraph,
        job: EpochJob,
        coordinator: Coordinator,
        planner: SourcePlanner,
        settings: EpochSettings,
        on_epoch: Callable[[Manifest, list[TaskAck], float], None],
    ) -> None:
        self._graph = graph
        self._program = program_of(graph)
        self._job = job
        self._coordinator = coordinator
        self._planner = planner
        self._settings = settings
        self._on_epoch = on_epoch
        last = coordinator.last
        if last is not None:
            planner.observe(last.splits)
            planner.committed(last.splits)
        #: The offset up to which everything is read, or is being read by the current epoch.
        self.position: Offset = initial_offset() if last is None else last.offsets
        self._planned: Offset | None = None
        #: What Spark has logged for ``position``; it is asked for data by being given another one.
        self._logged: Offset = self.position
        #: The last epoch of a bounded job is committed and Spark has logged that.
        self.drained = threading.Event()
        if last is not None and last.final:
            self.drained.set()
        #: The error that an epoch ended with: Spark's own keeps only its text.
        self.error: BaseException | None = None
        #: The run ends: nobody needs to wait for anything.
        self.ending = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        #: Gives up what Spark is running for the query; set once the query is known.
        self.cancel_jobs: Callable[[], None] = lambda: None

    def latest_offset(self) -> Offset:
        """Answer Spark's question how far the next epoch should read."""
        if self.position["final"]:
            # Spark asks again only once it has logged the commit of the epoch before.
            self.drained.set()
            return self.position
        offset = self._planner.latest_offset(self.position)
        if offset is self.position:
            return self._logged
        self._planned = offset
        return offset

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """The body of ``foreachBatch``."""
        self._idle.clear()
        try:
            self._run(rows, epoch)
        except BaseException as error:  # noqa: BLE001 - told to Spark in short form
            self.error = error
            # Short: Spark looks for an interruption in this text with a regular expression that
            # overflows the stack of its thread on the hundreds of lines of a task's error.
            cause = original_error(error)
            kind = f"{type(cause).__module__}.{type(cause).__qualname__}"
            message = f"{kind}: {str(cause)[:_SHOWN_TO_SPARK]}"
            raise JobError(message) from None
        finally:
            self._idle.set()

    def wait_until_idle(self, seconds: float) -> None:
        """Wait until no epoch runs, at most so long."""
        self._idle.wait(seconds)

    def _run(self, rows: DataFrame, epoch: int) -> None:
        started = time.monotonic()
        started_ms = int(time.time() * 1000)
        stop = self._offset_of(epoch)
        if self._coordinator.handle_replay(epoch, stop):
            self.position = stop
            return
        # The planner keeps the pause already, but Spark's own sources do not ask it.
        self.ending.wait(self._planner.remaining_pause())
        crash_point("epoch.start.before")
        last = self._coordinator.last
        start = initial_offset() if last is None else last.offsets
        plan = self._plan(epoch, start, stop, last)
        self.position = stop
        metadata = EpochMetadata(
            epoch=epoch,
            started=started_ms,
            offsets=stop,
            stages={stage.level: stage.parallelism for stage in self._graph.stages},
            max_parallelism=max(node.max_parallelism for node in self._graph.nodes.values()),
            final=plan.final,
            program=self._program,
        )
        self._coordinator.begin_epoch(metadata)
        with EpochTimeout(epoch, self._settings.timeout, self._give_up):
            acks = self._job.run(rows, plan)
        manifest = self._coordinator.complete_epoch(metadata, acks, self._expected())
        seconds = time.monotonic() - started
        self._planner.epoch_finished(seconds)
        self._planner.wake_at(acks)
        self._planner.observe(manifest.splits)
        self._planner.committed(manifest.splits)
        self._on_epoch(manifest, acks, seconds)

    def _offset_of(self, epoch: int) -> Offset:
        """The offset that Spark logged for the epoch.

        Cases:

        1. This run planned it -> it is remembered.
        2. An older run did and Spark replays it -> it is read from Spark's offset log.
        3. Only a Spark DataFrame had new data -> Spark logged our last offset again, and the time
           of the micro-batch beside it, which is the epoch's.

        What can never happen: the micro-batch runs and its offset is not logged.
        """
        planned = self._planned
        if planned is not None and planned["epoch"] == epoch:
            self._logged = planned
            return planned
        content = self._settings.storage.read(f"spark/offsets/{epoch}").decode()
        entries = [json.loads(line) for line in content.splitlines() if line.startswith("{")]
        time_of_batch = max((entry.get(_BATCH_TIME, 0) for entry in entries), default=0)
        for entry in entries:
            if "sources" in entry and "epoch" in entry:
                self._logged = entry
                if entry["epoch"] == epoch:
                    return self._logged
                return {**entry, "epoch": epoch, "time": max(entry["time"], time_of_batch)}
        message = f"Spark's offset log has no Millstream offset for epoch {epoch}:\n{content}"
        raise CheckpointError(message)

    def _expected(self) -> set[tuple[int, int]]:
        return {
            (stage.level, subtask)
            for stage in self._graph.stages
            for subtask in range(stage.parallelism)
        }

    # -- planning ------------------------------------------------------------------------------

    def _plan(self, epoch: int, start: Offset, stop: Offset, last: Manifest | None) -> EpochPlan:
        settings = self._settings
        return make_plan(
            epoch=epoch,
            assignments=self._planner.assignments(start, stop),
            stop=stop,
            last=last,
            job_id=settings.job_id,
            run_id=settings.run_id,
            generation=self._coordinator.generation,
            storage=settings.storage,
            local_root=settings.local_root,
            state_backend=settings.state_backend,
            fsync=settings.fsync,
        )

    def _give_up(self) -> None:
        self.cancel_jobs()  # asked here, when it is known


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
