"""Statements of the jobs of a session: SHOW JOBS, DESCRIBE JOB, STOP JOB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.configuration import options
from millstream.errors import ProgramError
from millstream.sql.parser import nodes
from millstream.sql.statements.session import OK, RowsResult, texts
from millstream.sql.suggestions import listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.statements.session import Session, SessionJob


_COLUMNS: Final = ("job id", "job name", "status", "start time")


def show_jobs(session: Session) -> RowsResult:
    """The rows of SHOW JOBS."""
    return texts(_COLUMNS, [each.shown() for each in session.jobs.all()])


def describe_job(session: Session, node: Any, text: str | None) -> RowsResult:
    """The row of DESCRIBE JOB."""
    return texts(_COLUMNS, [_found(session, node.name.last, node, text).shown()])


def _found(session: Session, job_id: str, node: Any, text: str | None) -> SessionJob:
    found = session.jobs.find(job_id)
    if found is None:
        known = [each.job.get_job_id() for each in session.jobs.all()]
        there = f"There are: {listed(known)}" if known else "It has started none"
        message = f"No statement of this session has started a job '{job_id}'. {there}."
        raise session.context(text).error(node, message)
    return found


def _stop(session: Session, node: Any, text: str | None) -> RowsResult:
    found = _found(session, node.job_id, node, text)
    status = found.job.get_job_status()
    if status.is_terminal_state():
        message = f"Job '{node.job_id}' has ended: it is {status.name}."
        raise session.context(text).error(node, message)
    if not node.with_savepoint:
        found.job.cancel()
        return OK
    try:
        # No savepoint: what a new run of the same job continues from.
        return texts(["checkpoint directory"], [[found.job.stop(drain=node.with_drain)]])
    except ProgramError as error:
        message = (
            f"{error}. In SQL: SET '{options.CHECKPOINTS_DIRECTORY.key}' = '/a/directory' before"
            f" the INSERT; STOP JOB '{node.job_id}' cancels the job"
        )
        raise session.context(text).error(node, message) from error


HANDLERS: Final[dict[type, Callable[[Any, Any, str | None], RowsResult]]] = {nodes.StopJob: _stop}
