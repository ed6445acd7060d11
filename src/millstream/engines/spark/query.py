"""The epochs of a query: what Structured Streaming asks for, and what a micro-batch does.

What it is: the answer to Spark's question for the next offset, and the body of ``foreachBatch``,
which runs one epoch of the loop.  Spark logs each offset before the micro-batch that reads up to
it, and replays a micro-batch whose end it has not logged.

The number of an epoch is that of its manifest, and stands in the offset.  The number of Spark's
micro-batch is the same only as long as all epochs ran on Spark: those of another engine are not in
Spark's log.

What it is not: the loop (``execution/epoch_loop.py``), the protocol (``checkpoint/coordinator.py``)
or the Spark job of the tasks (``engines/spark/epoch_job.py``).

Read next: ``engines/spark/epoch_job.py``.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Final, cast

from millstream.engines.spark.epoch_job import has_spark_sources
from millstream.engines.spark.errors import original_error
from millstream.errors import CheckpointError, CorruptCheckpointError, JobError
from millstream.execution.epoch_loop import EpochLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.engines.spark.epoch_job import EpochJob
    from millstream.execution.offsets import Offset
    from millstream.execution.run import Run
    from millstream.runtime.plan import EpochPlan

__all__ = ["QueryEpochs", "require_one_history"]

_LOG: Final = logging.getLogger("millstream")
#: Characters of an error that Spark is told; the driver has the error itself.
_SHOWN_TO_SPARK: Final = 500
#: Where Spark's offset log has the time of a micro-batch, in milliseconds.
_BATCH_TIME: Final = "batchTimestampMs"


class QueryEpochs:
    """The epochs of one query.

    Args:
        run: the run, opened.
        job: runs the tasks of a plan.
    """

    def __init__(self, run: Run, job: EpochJob) -> None:
        self._run = run
        self._job = job
        self._rows: DataFrame | None = None
        self.loop = EpochLoop(run, self._run_tasks, self._give_up)
        #: Whether Spark has rows of its own to read, so that it starts epochs that nobody planned.
        self._spark_sources = has_spark_sources(run.job.graph)
        self._planned: Offset | None = None
        #: What Spark has logged for the position; it is asked for data by being given another one.
        self._logged: Offset = run.position
        #: Spark has asked for an offset or run a micro-batch.
        self.touched = False
        #: The last epoch, of a bounded job or of one that is to stop, is committed and Spark has
        #: logged that.
        self.drained = threading.Event()
        #: The error that an epoch ended with: Spark's own keeps only its text.
        self.error: BaseException | None = None
        self._idle = threading.Event()
        self._idle.set()
        #: Gives up what Spark is running for the query; set once the query is known.
        self.cancel_jobs: Callable[[], None] = lambda: None

    def latest_offset(self) -> Offset:
        """Answer Spark's question how far the next epoch should read."""
        self.touched = True
        position = self._run.position
        if position["final"] or self._run.stop.is_asked:
            # Spark asks again only once it has logged the commit of the epoch before.
            self.drained.set()
            return position
        offset = self._run.planner.latest_offset(position)
        if offset is position:
            return self._logged
        self._planned = offset
        return offset

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """The body of ``foreachBatch``."""
        self.touched = True
        self._idle.clear()
        self._rows = rows
        try:
            stop = self._offset_of(batch)
            if not self._is_before_all(stop) and not self._is_overtaken(stop):
                self.loop.run_epoch(stop)
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

    def _run_tasks(self, plan: EpochPlan) -> list[TaskAck]:
        if self._rows is None:
            message = "an epoch on Spark runs within a micro-batch"
            raise RuntimeError(message)
        return self._job.run(self._rows, plan)

    def _give_up(self) -> None:
        self.cancel_jobs()  # asked here, when it is known

    def _is_before_all(self, stop: Offset) -> bool:
        """Whether nothing is planned yet: Spark's first micro-batch reads up to any offset.

        Even up to the one before the first epoch, which is all there is to say of sources that have
        nothing yet.
        """
        return cast("int", stop["epoch"]) < 0

    def _is_overtaken(self, stop: Offset) -> bool:
        """Whether another engine has gone on since Spark logged the micro-batch that it replays.

        Spark's own runs publish the very offset that Spark has logged for an epoch, and none behind
        it before Spark has logged the end of its micro-batch.
        """
        last = self._run.last
        if self._spark_sources or last is None or self._planned is not None:
            return False
        epoch = cast("int", stop["epoch"])
        overtaken = epoch < last.epoch or (epoch == last.epoch and stop != last.offsets)
        if overtaken:
            _LOG.info("epoch %d ran on another engine; Spark's replay of it is skipped", epoch)
        return overtaken

    def _offset_of(self, batch: int) -> Offset:
        """The offset that Spark logged for a micro-batch.

        Cases:

        1. This run planned it -> it is remembered.
        2. An older run did and Spark replays it -> it is read from Spark's offset log.
        3. Only a Spark DataFrame had new data -> Spark logged our last offset again, and the time
           of the micro-batch beside it, which is the epoch's.

        What can never happen: the micro-batch runs and its offset is not logged.
        """
        planned = self._planned
        if planned is not None and (not self._spark_sources or planned["epoch"] == batch):
            self._logged = planned
            return planned
        self._logged, time_of_batch = _read_offset(self._run.job.storage, batch)
        if self._logged["epoch"] == batch or not self._spark_sources:
            return self._logged
        moment = max(cast("int", self._logged["time"]), time_of_batch)
        return {**self._logged, "epoch": batch, "time": moment}


def require_one_history(
    storage: CheckpointStorage, last: Manifest | None, *, spark_sources: bool = False
) -> None:
    """Have Spark's offset log not be ahead of the manifests.

    Behind them it may be, for another engine may have gone on; but not if Spark has rows of its own
    to read: only its log says which rows an epoch has, so it would read those of an epoch that
    stands anew, beside others, and they would be skipped as a replay.

    Args:
        storage: of the job.
        last: its newest manifest.
        spark_sources: whether Spark has rows of its own to read.

    Raises:
        CorruptCheckpointError: the two are not of one history.
    """
    names = (name.rsplit("/", 1)[-1] for name in storage.list_names("spark/offsets"))
    batches = [int(name) for name in names if name.isdecimal()]
    newest = max(batches, default=-1)
    done = -1 if last is None else last.epoch
    # Spark logs a micro-batch before its epoch runs, and its numbers are those of the epochs.
    if spark_sources and newest not in {done, done + 1}:
        message = (
            f"Spark's offset log in {storage.location} ends with micro-batch {newest}, the manifest"
            f" log with epoch {done} (-1: there is none). Rows of Spark DataFrames would be lost or"
            " read twice. Put the directory back from one copy, or start with an empty one."
        )
        raise CorruptCheckpointError(message)
    if not batches:
        return
    logged = cast("int", _read_offset(storage, newest)[0]["epoch"])
    if logged > done + 1:
        message = (
            f"Spark has logged the offset of epoch {logged}, but the manifest log in"
            f" {storage.location} ends before epoch {done + 1}: checkpoints are missing. Put the"
            " directory back from one copy, or start with an empty one."
        )
        raise CorruptCheckpointError(message)


def _read_offset(storage: CheckpointStorage, batch: int) -> tuple[Offset, int]:
    """What Spark has logged for a micro-batch: our offset, and the time in milliseconds."""
    content = storage.read(f"spark/offsets/{batch}").decode()
    entries = [json.loads(line) for line in content.splitlines() if line.startswith("{")]
    moment = max((entry.get(_BATCH_TIME, 0) for entry in entries), default=0)
    for entry in entries:
        if "sources" in entry and "epoch" in entry:
            return entry, moment
    message = f"Spark's offset log has no Millstream offset for epoch {batch}:\n{content}"
    raise CheckpointError(message)
