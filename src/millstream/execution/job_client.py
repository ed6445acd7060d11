"""JobClient: a handle on a submitted job, its status and its result.

``JobHandle`` is implemented by the driver, and its calls wait; ``JobClient`` has PyFlink's futures.
"""

from __future__ import annotations

import concurrent.futures
import os
import threading
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from millstream.checkpoint.savepoint import SavepointFormatType
from millstream.connectors.basic.collect import collected_files, read_collected_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.checkpoint.commit import PendingCommits
    from millstream.execution.monitor import CompletedCheckpoint, JobStart
    from millstream.metrics.progress import OperatorTime
    from millstream.state.query import StateQueryResult


T = TypeVar("T")
#: Waking up now and then lets the main thread take a keyboard interrupt on every platform.
_WAIT_SECONDS: Final = 0.2


class CompletableFuture(Generic[T]):
    """A value that comes later, or the error that came in its place."""

    def __init__(self) -> None:
        """Use ``completed_future`` or ``supply_async``."""
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()

    @staticmethod
    def completed_future(value: T) -> CompletableFuture[T]:
        """One whose value is known."""
        made: CompletableFuture[T] = CompletableFuture()
        made._future.set_result(value)
        return made

    @staticmethod
    def supply_async(supplier: Callable[[], T]) -> CompletableFuture[T]:
        """One whose value ``supplier`` returns; it is called in a thread that ends no later."""
        made: CompletableFuture[T] = CompletableFuture()
        thread = threading.Thread(
            target=made._fill, args=(supplier,), name="millstream-future", daemon=True
        )
        thread.start()
        return made

    def _fill(self, supplier: Callable[[], T]) -> None:
        try:
            value = supplier()
        except BaseException as error:  # noqa: BLE001 - raised to whoever asks for the result
            # False: it was cancelled meanwhile, and nobody wants the value.
            if self._future.set_running_or_notify_cancel():
                self._future.set_exception(error)
        else:
            if self._future.set_running_or_notify_cancel():
                self._future.set_result(value)

    def cancel(self) -> bool:
        """Give up waiting for the value; what makes it continues.

        Returns:
            Whether it is cancelled; False if the value was there before.
        """
        return self._future.cancel()

    def cancelled(self) -> bool:
        """Return whether it was cancelled before the value was there."""
        return self._future.cancelled()

    def done(self) -> bool:
        """Return whether there is a value or an error, or it was cancelled."""
        return self._future.done()

    def result(self) -> T:
        """Wait for the value.

        Raises:
            CancelledError: of ``concurrent.futures``: it was cancelled.
            Exception: what came in the place of the value.
        """
        while True:
            try:
                return self._future.result(_WAIT_SECONDS)
            except TimeoutError:
                # Also what the call itself may have raised.
                if self._future.done():
                    raise

    def exception(self) -> BaseException | None:
        """The error that came in the place of the value; None if there is none so far."""
        if not self._future.done() or self._future.cancelled():
            return None
        return self._future.exception()

    def __str__(self) -> str:
        if not self.done():
            state = "not completed"
        elif self.cancelled():
            state = "cancelled"
        elif self._future.exception() is not None:
            state = f"completed exceptionally: {self._future.exception()!r}"
        else:
            state = "completed normally"
        return f"CompletableFuture[{state}]"


class JobID(str):
    """The id of a job: text, as it stands in the checkpoint directory."""

    __slots__ = ()


class JobStatus(Enum):
    """Where a job is in its life; names as in Flink."""

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9
    INITIALIZING = 10

    def is_globally_terminal_state(self) -> bool:
        """Return whether the job is over and will not be recovered by itself."""
        return self in {JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED}

    def is_terminal_state(self) -> bool:
        """Return whether the job is over here."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED


@dataclass(frozen=True)
class JobExecutionResult:
    """The result of a finished job."""

    job_id: str
    job_name: str
    #: Milliseconds from submission to the end.
    net_runtime: int
    #: Totals such as "counts.numRecordsIn": by the uid that the program gives, else by name.
    accumulators: dict[str, object] = field(default_factory=dict)
    #: Those of them that the program's own functions have counted and measured.
    of_functions: frozenset[str] = frozenset()

    def get_job_id(self) -> JobID:
        """The id of the job."""
        return JobID(self.job_id)

    def get_net_runtime(self) -> int:
        """Milliseconds from submission to the end."""
        return self.net_runtime

    def get_accumulator_result(self, accumulator_name: str) -> object:
        """One accumulator, or one of the counters of operators; None if there is none."""
        return self.accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, object]:
        """All that the program's own functions have counted and measured, as in Flink."""
        return {
            name: value for name, value in self.accumulators.items() if name in self.of_functions
        }

    def is_job_execution_result(self) -> bool:
        """True; Flink has a result without content for detached jobs."""
        return True

    def __str__(self) -> str:
        """Id, time and accumulators, a line each."""
        lines = [
            "Program execution finished",
            f"Job with JobID {self.job_id} has finished.",
            f"Job Runtime: {self.net_runtime} ms",
        ]
        found = self.get_all_accumulator_results()
        if found:
            lines.append("Accumulator Results:")
            lines += [f"- {name}: {value}" for name, value in found.items()]
        return "\n".join(lines)


class JobHandle(Protocol):
    """Control of a running job, given by its engine; calls return when there is an answer.

    They do and raise what ``JobClient`` says of its futures.
    """

    def get_job_id(self) -> str:
        """The id of the job."""

    def get_job_status(self) -> JobStatus:
        """Return where the job is."""

    def cancel(self) -> None:
        """Stop the job; returns when it has stopped."""

    def stop(self, *, drain: bool = False) -> str:
        """Stop the job after a last checkpoint; returns the directory when it has stopped."""

    def trigger_savepoint(
        self,
        directory: str | None = None,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> str:
        """Take a savepoint while the job runs on; returns when it is complete.

        Args:
            directory: below which; None: where the options say.
            format_type: how its state is stored.

        Returns:
            The directory of the savepoint.

        Raises:
            ProgramError: no directory is named, or the job can have no savepoints.
            JobError: the job has ended before.
        """

    def stop_with_savepoint(
        self,
        directory: str | None = None,
        *,
        drain: bool = False,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> str:
        """Stop the job after a last checkpoint, and make that a savepoint.

        Args:
            directory: below which; None: where the options say; if they do not, the last checkpoint
                stays in the checkpoint directory, as with ``stop``.
            drain: as for ``stop``.
            format_type: how the state of the savepoint is stored.

        Returns:
            The directory of the savepoint, or of the checkpoint.
        """

    def query_state(self, uid: str, state: str, key: object) -> StateQueryResult:
        """Read what the last checkpoint has of a keyed state for a key."""

    def get_job_execution_result(self) -> JobExecutionResult:
        """Wait for the end."""

    def get_accumulators(self) -> dict[str, object]:
        """Totals so far."""

    def get_metrics(self) -> dict[str, object]:
        """Counts of now, by "operator.metric", and how tasks of slots spend their time."""

    def get_last_checkpoint(self) -> CompletedCheckpoint | None:
        """The last complete checkpoint, or the one that the run continues from."""

    def get_start(self) -> JobStart:
        """Return how the current run has started; before the first one, how that will."""

    def get_pending_commits(self) -> PendingCommits:
        """Return what is published and not committed yet by the current run."""

    def get_watermarks(self) -> dict[str, OperatorTime]:
        """The event time of each operator at the last checkpoint, by uid; empty before it."""


class JobClient:
    """A handle on a submitted job.

    What may take its time is answered by a future, whose ``result()`` waits.
    """

    def __init__(self, job: JobHandle) -> None:
        self.job = job
        self._result: CompletableFuture[JobExecutionResult] | None = None

    def get_job_id(self) -> JobID:
        """The id of the job, the same after every restart on the same checkpoint directory."""
        return JobID(self.job.get_job_id())

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Return where the job is now."""
        return CompletableFuture.completed_future(self.job.get_job_status())

    def cancel(self) -> CompletableFuture[None]:
        """Stop the job; the future is done when it has stopped.

        As Flink's cancel aborts the running checkpoint, the epoch that runs is aborted: its
        output never becomes visible, and a new run on the same checkpoint directory reads its
        records again.
        """
        return CompletableFuture.supply_async(self.job.cancel)

    def stop(self, *, drain: bool = False) -> CompletableFuture[str]:
        """Stop the job after a last checkpoint: what it has read is committed, and it is finished.

        A new run on the same checkpoint directory continues exactly there.

        Args:
            drain: let event time end first, as at the end of bounded input: windows and timers
                fire, and a new run finds the job finished.  Only with ``millstream.execution:
                pipelined``.

        Returns:
            Done when the job has stopped; the directory of the checkpoint, which stays whatever
            the retention of checkpoints says, unless the job was drained.  ``result()`` raises
            ProgramError if the engine cannot drain, or if the checkpoints are in a temporary
            directory and it is not drained; JobError if somebody cancels the job meanwhile; and
            what ended the job if it failed.
        """
        return CompletableFuture.supply_async(lambda: self.job.stop(drain=drain))

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool,  # noqa: FBT001 - PyFlink's
        savepoint_directory: str | None = None,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> CompletableFuture[str]:
        """Stop the job after a last checkpoint, and make that a savepoint.

        Args:
            advance_to_end_of_event_time: as ``drain`` of ``stop``.
            savepoint_directory: below which the savepoint gets a directory of its own; None: below
                ``execution.checkpointing.savepoint-dir``.  If that is not set, the last checkpoint
                stays in the checkpoint directory, as with ``stop``.
            format_type: how the state of the savepoint is stored: as Parquet, or as the state
                backend stores it.

        Returns:
            Done when the job has stopped and the savepoint is complete; its directory.
            ``result()`` raises as that of ``stop``, and JobError if the job had ended before.
        """
        return CompletableFuture.supply_async(
            lambda: self.job.stop_with_savepoint(
                savepoint_directory, drain=advance_to_end_of_event_time, format_type=format_type
            )
        )

    def trigger_savepoint(
        self,
        savepoint_directory: str | None = None,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> CompletableFuture[str]:
        """Take a savepoint while the job runs on.

        It is a copy of an aligned checkpoint, so all output before it is committed by this job.
        Other jobs start from it with ``execution.state-recovery.path``.

        Args:
            savepoint_directory: below which the savepoint gets a directory of its own; None: below
                ``execution.checkpointing.savepoint-dir``.
            format_type: how its state is stored: as Parquet, or as the state backend stores it.

        Returns:
            Done when the savepoint is complete; its directory.  ``result()`` raises ProgramError
            if no directory is named, or the job can have no savepoints; JobError if the job has
            ended before; DirectoryError if it cannot be written.
        """
        return CompletableFuture.supply_async(
            lambda: self.job.trigger_savepoint(savepoint_directory, format_type)
        )

    def query_state(self, uid: str, state: str, key: object) -> CompletableFuture[StateQueryResult]:
        """Read the keyed state of a function for one key, as the last checkpoint has it.

        The job is not disturbed.  The result has the id of the checkpoint; what was processed
        after it is not in the value.

        Args:
            uid: of the operator.
            state: the name of the state.
            key: as the function sees it.

        Returns:
            Done when it is read; ``value`` is None if the key has no state.  ``result()`` raises
            StateError if there is no such operator or state, and CheckpointError if there is no
            checkpoint yet.
        """
        return CompletableFuture.supply_async(lambda: self.job.query_state(uid, state, key))

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """The result of the job, once it has ended.

        ``result()`` raises JobError, or what says more plainly what ended the job, if it failed
        after the restarts that its strategy allows.
        """
        if self._result is None:
            self._result = CompletableFuture.supply_async(self.job.get_job_execution_result)
        return self._result

    def get_accumulators(self) -> CompletableFuture[dict[str, object]]:
        """Totals so far, by "operator.metric": the uid that the program gives, else the name."""
        return CompletableFuture.completed_future(self.job.get_accumulators())

    def get_metrics(self) -> dict[str, object]:
        """Counts of now, by "operator.metric", such as ``counts.numRecordsIn``.

        They are at most about two seconds old, whether or not a checkpoint was completed meanwhile;
        what a failure takes back counts until it is read again.  A gauge is read between two
        batches of its task.
        """
        return self.job.get_metrics()

    def get_last_checkpoint(self) -> CompletedCheckpoint | None:
        """The last complete checkpoint, or the one that the run continues from; its ``age()``.

        None: there is none yet.
        """
        return self.job.get_last_checkpoint()

    def get_start(self) -> JobStart:
        """Return how the current run has started: from which checkpoint, or from scratch.

        It has the id, run, time and directory of the checkpoint, and which operators and states are
        restored, new or dropped.  Before the first run it is what would happen now.
        """
        return self.job.get_start()

    def get_pending_commits(self) -> PendingCommits:
        """Return what is published and not committed yet: sinks, committables, and since when.

        While a sink cannot commit, ``get_pending_commits().age(now)`` grows (milliseconds).
        """
        return self.job.get_pending_commits()

    def get_watermarks(self) -> dict[str, OperatorTime]:
        """The event time of each operator at the last checkpoint, by uid; empty before it.

        Its watermark and lag, the split that holds it back, idle splits, and the late records
        that it dropped.
        """
        return self.job.get_watermarks()


_FIRST_WAIT: Final = 0.02
_LONGEST_WAIT: Final = 1.0


def collected_records(client: JobClient, directory: str) -> Iterator[object]:
    """Return what the sink commits, as it commits it; raises what ended the job if it failed."""
    seen: set[Path] = set()
    wait = _FIRST_WAIT
    while True:
        # Asked before looking: what is committed before the end is then read for sure.
        over = client.job.get_job_status().is_terminal_state()
        new = [path for path in collected_files(directory) if path not in seen]
        for path in new:
            seen.add(path)
            yield from read_collected_file(path)
            # Read once; the name stays, so that a commit that is repeated finds it.
            os.truncate(path, 0)
        if over:
            client.job.get_job_execution_result()
            return
        wait = _FIRST_WAIT if new else min(wait * 1.5, _LONGEST_WAIT)
        time.sleep(wait)
