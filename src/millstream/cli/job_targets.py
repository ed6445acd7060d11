"""The job that a command is for: by address, by name or id, or by its checkpoint directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.local_storage import seal_of
from millstream.checkpoint.storages import open_storage
from millstream.cli.rest_client import RestClient
from millstream.errors import CheckpointError, ConfigurationError, JobError
from millstream.execution.announcements import AnnouncedJob, announced_jobs
from millstream.object_stores import is_object_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.checkpoint_storage import CheckpointStorage

#: Statuses, as Flink has them, of jobs that are over.
ENDED: Final = ("FINISHED", "CANCELED", "FAILED")
_SHORTEST_ID: Final = 4


@dataclass(frozen=True, slots=True)
class Access:
    """What a command needs to be let in."""

    #: A file with the token of the REST API.
    token_file: str = ""
    #: The key file of a signed checkpoint directory.
    key_file: str = ""

    @property
    def token(self) -> str:
        """Return the token; empty: there is none.

        Raises:
            ConfigurationError: its file cannot be read.
        """
        if not self.token_file:
            return ""
        try:
            return Path(self.token_file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            message = f"--token-file {self.token_file} cannot be read: {error}"
            raise ConfigurationError(message) from error


@dataclass(frozen=True, slots=True)
class JobTarget:
    """A job and how to reach it.

    Invariant: it has an API, a checkpoint directory, or both.
    """

    job_id: str
    name: str
    api: RestClient | None = None
    storage: CheckpointStorage | None = None

    def require_api(self, command: str) -> RestClient:
        """Return the client of the REST API.

        Raises:
            JobError: the job has none.
        """
        if self.api is None:
            message = (
                f"{command} asks the driver of job {self.name!r}, which has no REST API, or does"
                " not run on this machine: set rest.port, or give the address"
            )
            raise JobError(message)
        return self.api


def find_job(text: str | None, access: Access) -> JobTarget:
    """Return the job that a command names.

    Cases:

    1. Nothing -> the only job that runs on this machine.
    2. An address, with or without ``#/jobs/ID`` as the web UI has it -> the job there.
    3. The name, or the beginning of the id, of a job that runs on this machine -> that.
    4. Anything else -> a checkpoint directory; its job may run on this machine.

    Raises:
        JobError: there is no such job, or more than one.
        CheckpointError: the directory is not one of a job.
    """
    jobs = announced_jobs()
    if text is None:
        return _of_announced(_only(jobs), access)
    if text.startswith(("http://", "https://")):
        return _at(text, access)
    named = [job for job in jobs if _is_meant(job, text)]
    if named:
        return _of_announced(_only(named), access)
    return _in_directory(text, jobs, access)


def _is_meant(job: AnnouncedJob, text: str) -> bool:
    return job.name == text or (len(text) >= _SHORTEST_ID and job.job_id.startswith(text))


def _only(jobs: Sequence[AnnouncedJob]) -> AnnouncedJob:
    if len(jobs) == 1:
        return jobs[0]
    if not jobs:
        message = (
            "no job of yours runs on this machine: give the address of a REST API, or a checkpoint"
            " directory"
        )
        raise JobError(message)
    found = ", ".join(f"{job.name!r} ({job.job_id})" for job in jobs)
    message = f"several jobs run on this machine, give the id of one: {found}"
    raise JobError(message)


def client_of(job: AnnouncedJob, access: Access) -> RestClient | None:
    """Return a client of the REST API of a job; None if it has none."""
    if not job.address:
        return None
    return RestClient(job.address, access.token or job.token, job.certificate)


def _of_announced(job: AnnouncedJob, access: Access) -> JobTarget:
    storage = _open(job.checkpoints, access) if job.checkpoints else None
    return JobTarget(job.job_id, job.name, client_of(job, access), storage)


def _at(address: str, access: Access) -> JobTarget:
    base, _, wanted = address.partition("#/jobs/")
    base, wanted = base.partition("#")[0], wanted.partition("/")[0]
    api = RestClient(base, access.token)
    jobs: list[dict[str, Any]] = api.get("jobs/overview")["jobs"]
    if wanted:
        jobs = [job for job in jobs if job["jid"] == wanted]
    else:
        jobs = [job for job in jobs if job["state"] not in ENDED] or jobs
    if len(jobs) == 1:
        return JobTarget(jobs[0]["jid"], jobs[0]["name"], api)
    if not jobs:
        message = f"there is no such job at {base}"
        raise JobError(message)
    found = ", ".join(f"{base.rstrip('/')}/#/jobs/{job['jid']} ({job['name']!r})" for job in jobs)
    message = f"several jobs are at {base}, give the address of one: {found}"
    raise JobError(message)


def _open(directory: str, access: Access) -> CheckpointStorage:
    return open_storage(directory, seal=seal_of(access.key_file))


def _in_directory(directory: str, jobs: Sequence[AnnouncedJob], access: Access) -> JobTarget:
    storage = _open(directory, access)
    if not storage.is_there():
        kind = "directory" if is_object_store(directory) else "directory, and no running job,"
        message = f"there is no {kind} {directory!r}"
        raise CheckpointError(message)
    identity = JobIdentity.load(storage)
    if identity is None:
        message = f"{storage.location} is not the checkpoint directory of a job"
        raise CheckpointError(message)
    running = [job for job in jobs if job.checkpoints == storage.location]
    api = client_of(running[0], access) if running else None
    return JobTarget(identity.job_id, identity.job_name, api, storage)
