"""Executors of the shell's statements: the interface, and the one in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from millstream.configuration.options import DML_SYNC
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.execution.job_client import JobClient
    from millstream.sql.catalog.schema import ResolvedSchema
    from millstream.table import TableEnvironment, TableResult


class _Identified(Protocol):
    """A job."""

    def get_job_id(self) -> str: ...


class StatementResult(Protocol):
    """The result of a statement, as far as the shell needs it; that of `TableResult`."""

    @property
    def is_query(self) -> bool:
        """Whether a query produces the rows."""

    def get_resolved_schema(self) -> ResolvedSchema:
        """Return the columns."""

    def get_job_client(self) -> _Identified | None:
        """Return the job of the statement; None: it has none."""

    def collect_texts(self) -> Any:
        """Return a closeable iterator over the changes: kinds, and texts of their columns."""

    def print(self) -> None:
        """Print the rows as Flink's tableau."""

    def wait(self) -> None:
        """Wait for the end of an INSERT job."""


class Executor(Protocol):
    """Runs the statements of a shell.

    Contract:
      1. Statements come one after the other, from one thread; ``complete`` may come from another.
         (shell)
      2. A KeyboardInterrupt within ``execute_sql``, or while rows are collected, ends the query.
         (executor)
      3. ``close`` comes last, and once.  (shell)
    """

    #: Whether INSERT jobs end with the shell.
    jobs_end_with_shell: bool

    def execute_sql(self, statement: str) -> StatementResult:
        """Run a statement.

        Raises:
            MillstreamError: it cannot be run, or its job failed.
        """

    def waits_for_inserts(self) -> bool:
        """Return whether ``table.dml-sync`` is set."""

    def end_of(self, job_id: str) -> str | None:
        """Return how an INSERT job of this executor has ended; None: it runs."""

    def complete(self, before: str, after: str) -> Sequence[str]:
        """Return what the word between two parts of a text could become."""

    def close(self, *, failed: bool) -> bool:
        """End.

        Args:
            failed: Whether jobs that end with the shell are cancelled instead of waited for.

        Returns:
            Whether no job that was waited for has failed.
        """


class EmbeddedExecutor(Executor):
    """Runs statements in this process; their jobs end with it."""

    jobs_end_with_shell = True

    def __init__(self, environment: TableEnvironment) -> None:
        """Take the environment that runs them."""
        self._environment = environment
        self._jobs: dict[str, JobClient] = {}

    def execute_sql(self, statement: str) -> TableResult:
        result = self._environment.execute_sql(statement)
        client = None if result.is_query else result.get_job_client()
        if client is not None:
            self._jobs[client.get_job_id()] = client
        return result

    def waits_for_inserts(self) -> bool:
        return self._environment.get_config().get(DML_SYNC.key, "false").lower() == "true"

    def end_of(self, job_id: str) -> str | None:
        job = self._jobs[job_id].job
        status = job.get_job_status()
        if not status.is_terminal_state():
            return None
        try:
            job.get_job_execution_result()
        except MillstreamError as error:
            return f"{status.name}\n{type(error).__name__}: {error}"
        return status.name

    def complete(self, before: str, after: str) -> Sequence[str]:
        # It knows all formats, which a script does not need.
        from millstream.table.completion import candidates

        return candidates(self._environment, before, after)

    def close(self, *, failed: bool) -> bool:
        from millstream.datastream.running_jobs import end_of_program

        return end_of_program(failed=failed)
