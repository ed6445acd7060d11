"""``millstream savepoint DIR``: have a running job take a savepoint, or stop with one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.local_storage import seal_of
from millstream.checkpoint.requests import Answer, Request
from millstream.checkpoint.storages import open_storage
from millstream.errors import CheckpointError, JobError

if TYPE_CHECKING:
    from collections.abc import Callable


#: How often it is looked for an answer while the job looks for a request once.
_LOOKS: Final = 5
#: Seconds within which a running job has heard of a request.
_HEARD: Final = 15.0


@dataclass(frozen=True, slots=True)
class SavepointOptions:
    """The arguments of ``millstream savepoint``."""

    #: The checkpoint directory of the job.
    checkpoints: str
    #: Where the savepoint is to be; None: where the options of the job say.
    directory: str | None = None
    stop: bool = False
    drain: bool = False
    #: Seconds to wait for the savepoint.
    timeout: float = 600.0
    key_file: str = ""
    #: "canonical" or "native".
    form: str = "canonical"


def take_savepoint(options: SavepointOptions) -> int:
    """Ask the job, wait for its answer, and print where the savepoint is.

    Raises:
        CheckpointError: it is no checkpoint directory.
        JobError: no run of the job has answered, or what it has answered.
    """
    storage = open_storage(options.checkpoints, seal=seal_of(options.key_file))
    if not storage.is_there():
        message = f"there is no directory {options.checkpoints!r}"
        raise CheckpointError(message)
    identity = JobIdentity.load(storage)
    if identity is None:
        message = f"{storage.location} is not the checkpoint directory of a job"
        raise CheckpointError(message)
    directory = options.directory
    if directory is not None and "://" not in directory:
        directory = str(Path(directory).absolute())
    request = Request.post(
        storage, directory, stop=options.stop, drain=options.drain, form=options.form
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
            lambda: _end_of(request.answer(storage)),
            options.timeout,
            f"job {identity.job_name!r} has not answered within {options.timeout:g} s; what it"
            " began it may still complete",
            interval,
        )
    finally:
        request.withdraw(storage)
    if answer.state == "failed":
        raise JobError(answer.error)
    print(answer.path)
    return 0


def _unheard(identity: JobIdentity, location: str) -> str:
    return (
        f"no run of job {identity.job_name!r} has answered within {_HEARD:g} s. If it does not run,"
        " nothing need be saved: a job starts from the checkpoint directory itself, with"
        f" --from-savepoint {location}"
    )


def _end_of(answer: Answer | None) -> Answer | None:
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
