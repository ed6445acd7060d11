"""The directories of a job: checkpoints, local state, temporary files; judged when it is submitted.

What it is: where they are, by the job's options, and the checks that can be made before anything
runs: each can be written to, and nobody else can write to what is loaded from it.

What it is not: whose checkpoints they are; that is ``checkpoint/job_identity.py``.

Read next: ``directories/ownership.py``.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.signature import seal_of
from millstream.configuration import options
from millstream.directories.ownership import (
    LOCAL_STATE,
    TEMPORARY,
    default_local_directory,
    error_in_text,
    probe,
    require_private,
)
from millstream.directories.run_directory import run_directory
from millstream.errors import DirectoryError, MillstreamError

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration

__all__ = ["JobDirectories", "check_directories"]


@dataclass(frozen=True, slots=True)
class JobDirectories:
    """Where a job keeps things."""

    storage: LocalStorage
    #: The checkpoint directory is a temporary one, which lives as long as the job.
    temporary: bool
    #: Of all jobs of this user on this machine; of this one if its checkpoints are temporary.
    local: Path

    @classmethod
    def of(cls, configuration: Configuration) -> JobDirectories:
        """The directories that a job's options name; without any, a new temporary one.

        Raises:
            ConfigurationError: the checkpoint directory is none of a file system.
        """
        directory = configuration.get(options.CHECKPOINTS_DIRECTORY)
        fsync = configuration.get(options.CHECKPOINT_FSYNC) and bool(directory)
        made = directory or tempfile.mkdtemp(prefix="checkpoint-", dir=run_directory().path)
        # Nobody else can know of a temporary one before it is made, for its owner only.
        key_file = configuration.get(options.CHECKPOINT_HMAC_KEY_FILE) if directory else ""
        storage = LocalStorage(made, fsync=fsync, seal=seal_of(key_file))
        if not directory and not configuration.get(options.LOCAL_DIRECTORY):
            # No other run can use it, so it goes with this one, however that ends.
            return cls(storage, temporary=True, local=Path(f"{made}-local"))
        return cls(storage, not directory, _local(configuration))

    def failure(self, error: BaseException) -> DirectoryError | None:
        """Which directory it was, if ``error`` tells in words that a disk is full or read-only.

        The JVM and libraries say "No space left on device", and not where.
        """
        if isinstance(error, MillstreamError) or error_in_text(str(error)) is None:
            return None
        try:
            self.storage.probe()
            probe(LOCAL_STATE, self.local)
            probe(TEMPORARY, Path(tempfile.gettempdir()))
        except DirectoryError as found:
            return found
        return None


def check_directories(configuration: Configuration) -> None:
    """Check, before anything runs, the directories that a job's options name; make those missing.

    Raises:
        DirectoryError: one cannot be written to, or others could write to it.
        ConfigurationError: the checkpoint directory is none of a file system, or the key to sign
            it cannot be used.
    """
    try:
        scratch = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        message = f"no temporary directory: {error.strerror}. Set {TEMPORARY.setting}"
        raise DirectoryError(message) from error
    probe(TEMPORARY, scratch)
    directory = configuration.get(options.CHECKPOINTS_DIRECTORY)
    if directory or configuration.get(options.LOCAL_DIRECTORY):
        local = _local(configuration)
        require_private(LOCAL_STATE, local)
        probe(LOCAL_STATE, local)
    if directory:
        key_file = configuration.get(options.CHECKPOINT_HMAC_KEY_FILE)
        storage = LocalStorage(directory, seal=seal_of(key_file))
        storage.check()
        storage.probe()


def _local(configuration: Configuration) -> Path:
    directory = configuration.get(options.LOCAL_DIRECTORY)
    return Path(directory).absolute() if directory else default_local_directory()
