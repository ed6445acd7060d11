"""Have a running job take a savepoint, stop or be cancelled, through its checkpoint directory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.requests import Answer, Request
from millstream.errors import CheckpointError, JobError
from millstream.object_stores import is_object_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.contracts.checkpoint_storage import CheckpointStorage


#: How often it is looked for an answer while the job looks for a request once.
_LOOKS: Final = 5
#: Seconds within which a running job has heard of a request.
_HEARD: Final = 15.0


@dataclass(frozen=True, slots=True)
class SavepointOptions:
    """What a running job is asked for."""

    #: Where the savepoint is to be; None: where the options of the job say.
    directory: str | None = None
    stop: bool = False
    drain: bool = False
    #: Seconds to wait for the savepoint.
    timeout: float = 600.0
    #: "canonical" or "native".
    form: str = "canonical"
    #: End the job, without a savepoint.
    cancel: bool = False

    @property
    def absolute_directory(self) -> str | None:
        """Return the directory as the driver finds it, wherever that was started."""
        if self.directory is None or is_object_store(self.directory) or "://" in self.directory:
            return self.directory
        return str(Path(self.directory).absolute())


def request_savepoint(storage: CheckpointStorage, options: SavepointOptions) -> str:
    """Ask the job, wait for its answer, and return where the savepoint is.

    Raises:
        CheckpointError: it is no checkpoint directory.
        JobError: no run of the job has answered, or what it has answered.
    """
    identity = JobIdentity.load(storage)
    if identity is None:
        message = f"{storage.location} is not the checkpoint directory of a job"
        raise CheckpointError(message)
    request = Request.post(
        storage,
        options.absolute_directory,
        stop=options.stop,
        drain=options.drain,
        form=options.form,
        cancel=options.cancel,
    )
    try:
        interval = storage.poll_interval / _LOOKS
        _wait(
            lambda: request.answer(storage),
            _HEARD,
            _unheard(identity, storage.location),
            interval,
        )
        answer = _wait(
            lambda: _end_of(request, storage),
            options.timeout,
            f"job {identity.job_name!r} has not answered within {options.timeout:g} s; what it"
            " began it may still complete",
            interval,
        )
    finally:
        request.withdraw(storage)
    if answer.state == "failed":
        raise JobError(answer.error)
    return answer.path


def _unheard(identity: JobIdentity, location: str) -> str:
    return (
        f"no run of job {identity.job_name!r} has answered within {_HEARD:g} s. If it does not run,"
        " nothing need be saved: a job starts from the checkpoint directory itself, with"
        f" --from-savepoint {location}"
    )


def _end_of(request: Request, storage: CheckpointStorage) -> Answer | None:
    answer = request.answer(storage)
    if answer is None and request.cancel:
        # The job has deleted its checkpoint directory, as its options say.
        return Answer("done", storage.location)
    return None if answer is None or answer.state == "accepted" else answer


def _wait(
    look: Callable[[], Answer | None], seconds: float, otherwise: str, interval: float
) -> Answer:
    deadline = time.monotonic() + seconds
    while (answer := look()) is None:
        if time.monotonic() >= deadline:
            raise JobError(otherwise)
        time.sleep(interval)
    return answer
