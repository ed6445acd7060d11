"""The jobs that statements of a session have started.

What it is: which there are, by id, for statements about jobs; of those that have ended the latest.
What it is not: the jobs of other programs: there is no cluster that knows them.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.execution.job_client import JobHandle

__all__ = ["SessionJob", "SessionJobs"]

#: How many that have ended are remembered.
_ENDED: Final = 100


@dataclass(frozen=True)
class SessionJob:
    """A job that a statement has started."""

    name: str
    job: JobHandle
    started: dt.datetime
    #: Whether it collects the rows of a query, which are gone when it ends.
    is_query: bool = False

    def shown(self) -> tuple[str, str, str, str]:
        """Id, name, status and start (UTC), as SHOW JOBS has them."""
        start = self.started.isoformat(timespec="milliseconds")
        return self.job.get_job_id(), self.name, self.job.get_job_status().name, start


class SessionJobs:
    """The jobs of a session, the oldest first."""

    def __init__(self) -> None:
        self._jobs: list[SessionJob] = []

    def add(self, name: str, job: JobHandle, *, is_query: bool = False) -> None:
        """Remember a job."""
        now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
        ended = [each for each in self._jobs if each.job.get_job_status().is_terminal_state()]
        forgotten = ended[: max(len(ended) - _ENDED + 1, 0)]
        kept = [each for each in self._jobs if each not in forgotten]
        self._jobs = [*kept, SessionJob(name, job, now, is_query)]

    def all(self) -> list[SessionJob]:
        """Return those that run, and the latest INSERT jobs that have ended."""
        return [
            each
            for each in self._jobs
            if not (each.is_query and each.job.get_job_status().is_terminal_state())
        ]

    def find(self, job_id: str) -> SessionJob | None:
        """The latest job of an id; None if there is none."""
        found = [each for each in self._jobs if each.job.get_job_id() == job_id]
        return found[-1] if found else None
