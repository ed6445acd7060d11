"""JobClient: a handle on a submitted job, its status and its result.

What it is: the contract that the driver (``engines/spark/driver.py``) meets.
What it is not: the driver.

Read next: ``engines/spark/driver.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from millstream.checkpoint.commit import PendingCommits
    from millstream.metrics.event_time import OperatorTime

__all__ = ["JobClient", "JobExecutionResult", "JobStatus"]


class JobStatus(Enum):
    """Where a job is in its life; names as in Flink."""

    INITIALIZING = 0
    CREATED = 1
    RUNNING = 2
    FAILING = 3
    FAILED = 4
    CANCELLING = 5
    CANCELED = 6
    FINISHED = 7
    RESTARTING = 8
    SUSPENDED = 9
    RECONCILING = 10

    def is_globally_terminal_state(self) -> bool:
        """Whether the job is over and will not be recovered by itself."""
        return self in {JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED}

    def is_terminal_state(self) -> bool:
        """Whether the job is over here."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED


@dataclass(frozen=True)
class JobExecutionResult:
    """What a finished job leaves."""

    job_id: str
    job_name: str
    #: Milliseconds from submission to the end.
    net_runtime: int
    #: Totals such as "counts.numRecordsIn": by the uid that the program gives, else by name.
    accumulators: dict[str, object] = field(default_factory=dict)

    def get_job_id(self) -> str:
        """The id of the job."""
        return self.job_id

    def result(self) -> JobExecutionResult:
        """Itself: where PyFlink gives a future, the result is there already."""
        return self

    def get_net_runtime(self) -> int:
        """Milliseconds from submission to the end."""
        return self.net_runtime

    def get_accumulator_result(self, accumulator_name: str) -> object:
        """One accumulator; KeyError if there is none."""
        return self.accumulators[accumulator_name]

    def get_all_accumulator_results(self) -> dict[str, object]:
        """All accumulators."""
        return dict(self.accumulators)

    def is_job_execution_result(self) -> bool:
        """True; Flink has a result without content for detached jobs."""
        return True


@runtime_checkable
class JobClient(Protocol):
    """A handle on a submitted job."""

    def get_job_id(self) -> str:
        """The id of the job, the same after every restart on the same checkpoint directory."""

    def get_job_status(self) -> JobStatus:
        """Where the job is."""

    def cancel(self) -> None:
        """Stop the job; returns when it has stopped.

        As Flink's cancel gives up the running checkpoint, the epoch that runs is given up: its
        output never becomes visible, and a new run on the same checkpoint directory reads its
        records again.
        """

    def get_job_execution_result(self) -> JobExecutionResult:
        """Wait for the end.

        Raises:
            JobError: the job failed, after the restarts that its strategy allows.
        """

    def get_accumulators(self) -> dict[str, object]:
        """Totals so far."""

    def get_pending_commits(self) -> PendingCommits:
        """What is published and not committed yet: sinks, committables, and since when.

        While a sink cannot commit, ``get_pending_commits().age(now)`` grows (milliseconds).
        """

    def get_watermarks(self) -> dict[str, OperatorTime]:
        """The event time of each operator at the last checkpoint, by uid.

        Its watermark and lag, the split that holds it back, idle splits, and the late records
        that it dropped.  Empty before the first checkpoint.
        """
