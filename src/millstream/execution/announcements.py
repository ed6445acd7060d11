"""The jobs of this user that run on this machine: each driver announces its own.

An announcement is a file in the driver's run directory, which only this user can read, whose lock
tells whether the driver lives, and which is removed with everything in it when it has died.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from millstream.directories import live_run_directories, run_directory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_LOG: Final = logging.getLogger("millstream")
_PREFIX: Final = "job-"
_lock: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class AnnouncedJob:
    """A job that a driver on this machine runs."""

    job_id: str
    name: str
    #: The process of the driver.
    process: int
    #: When it started, in milliseconds since 1970.
    started: int
    #: The checkpoint directory, as an absolute path or URI; empty: a temporary one.
    checkpoints: str = ""
    #: Of the REST API, such as "http://127.0.0.1:8081"; empty: the job has none.
    address: str = ""
    #: Of the REST API; empty: none is needed.
    token: str = ""
    #: A PEM file with the certificate of the REST API; empty: it is not served over TLS.
    certificate: str = ""


def announce(job: AnnouncedJob) -> None:
    """Let others of this user find a job; a job is found less well rather than that it fails."""
    with _lock:
        try:
            _write(job)
        except OSError as error:
            _LOG.warning(
                "job %r cannot be found by other processes of this machine: %s", job.name, error
            )


def announce_address(job_id: str, address: str, token: str = "", certificate: str = "") -> None:
    """Add the REST API of a job of this process to what is announced of it."""
    with _lock:
        found = _read(_file(job_id))
        if found is None:
            return
        try:
            _write(replace(found, address=address, token=token, certificate=certificate))
        except OSError as error:
            _LOG.warning("the REST API of job %r cannot be found: %s", found.name, error)


def withdraw(job_id: str) -> None:
    """Note that a job of this process has ended."""
    with _lock:
        try:
            _file(job_id).unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("job %s still counts as running on this machine: %s", job_id, error)


def announced_jobs(parents: Iterable[Path] | None = None) -> list[AnnouncedJob]:
    """Return the jobs of this user on this machine, the oldest first.

    Args:
        parents: where run directories are; by default where drivers make them.
    """
    files = (
        file for path in live_run_directories(parents) for file in path.glob(f"{_PREFIX}*.json")
    )
    jobs = [job for job in map(_read, files) if job is not None]
    return sorted(jobs, key=lambda job: (job.started, job.name))


def _file(job_id: str) -> Path:
    return run_directory().path / f"{_PREFIX}{job_id}.json"


def _write(job: AnnouncedJob) -> None:
    file = _file(job.job_id)
    new = file.with_suffix(".new")
    descriptor = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(asdict(job), stream)
    new.replace(file)


def _read(file: Path) -> AnnouncedJob | None:
    """Return what is announced; None if it was withdrawn, or another version has written it."""
    try:
        return AnnouncedJob(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
