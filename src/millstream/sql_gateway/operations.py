"""Operations: statements of a session, run one after the other, each with status and result."""

from __future__ import annotations

import contextlib
import threading
import uuid
from enum import Enum
from typing import TYPE_CHECKING, Final

from millstream.errors import JobError, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.execution.job_client import JobClient
    from millstream.sql_gateway.results import Result

#: Seconds between two looks at a job whose end a statement waits for.
_POLL: Final = 0.05


class OperationStatus(Enum):
    """Where an operation is in its life; names as in Flink."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"
    CLOSED = "CLOSED"

    @property
    def is_terminal(self) -> bool:
        """Whether the statement is done."""
        return self not in {OperationStatus.PENDING, OperationStatus.RUNNING}


class Operation:
    """A statement: its status, the job that it waits for, and its result or error."""

    def __init__(self, run: Callable[[Operation], Result]) -> None:
        """Take what runs the statement; ``execute`` calls it once."""
        #: Random, so that nobody can guess it.
        self.handle = str(uuid.uuid4())
        self._run = run
        self._changed = threading.Condition()
        #: Invariant: once terminal, changed to CANCELED or CLOSED only.
        self._status = OperationStatus.PENDING
        self._result: Result | None = None
        self.error: BaseException | None = None

    @property
    def status(self) -> OperationStatus:
        """Where the operation is."""
        return self._status

    @property
    def is_live(self) -> bool:
        """Whether something of it still runs: the statement, or the job that produces its rows."""
        return not self._status.is_terminal or (self._result is not None and self._result.is_live)

    def execute(self) -> None:
        """Run the statement, unless it was cancelled before."""
        if not self._move(OperationStatus.RUNNING):
            return
        try:
            result = self._run(self)
        except Exception as error:  # noqa: BLE001 - the client asks for it
            self.error = error
            self._move(OperationStatus.ERROR)
            return
        with self._changed:
            wanted = not self._status.is_terminal
            if wanted:
                self._result = result
                self._status = OperationStatus.FINISHED
                self._changed.notify_all()
        if not wanted:
            result.close()

    def wait_for_job(self, client: JobClient) -> None:
        """Wait for the end of a job that the statement has started.

        Raises:
            JobError: it failed, or the operation was cancelled and so was the job.
        """
        with self._changed:
            while not (self._status.is_terminal or client.job.get_job_status().is_terminal_state()):
                self._changed.wait(_POLL)
        if self._status.is_terminal:
            client.job.cancel()
        client.job.get_job_execution_result()

    def result(self) -> Result | None:
        """Return the result; None while the statement runs.

        Raises:
            MillstreamError: the statement failed, or was cancelled or closed.
        """
        if self.error is not None and self._status is OperationStatus.ERROR:
            raise self.error
        if not self._status.is_terminal:
            return None
        if self._result is None or self._status is not OperationStatus.FINISHED:
            message = (
                f"Cannot fetch results of the operation {self.handle}: it is {self._status.name}."
            )
            raise JobError(message)
        return self._result

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the statement is done.

        Args:
            timeout: seconds; None: as long as it takes.

        Returns:
            Whether it is done.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._status.is_terminal, timeout)

    def end(self, status: OperationStatus) -> None:
        """Cancel or close the operation, and the job that produces its rows.

        An INSERT job that has been submitted continues, as in Flink; one that the statement waits
        for is cancelled.

        Args:
            status: CANCELED or CLOSED.
        """
        with self._changed:
            failed = self._status is OperationStatus.ERROR
            if status is OperationStatus.CLOSED or not failed:
                self._status = status
            result, self._result = self._result, None
            self._changed.notify_all()
        if result is not None:
            with contextlib.suppress(MillstreamError):
                result.close()

    def _move(self, status: OperationStatus) -> bool:
        with self._changed:
            if self._status.is_terminal:
                return False
            self._status = status
            self._changed.notify_all()
            return True
