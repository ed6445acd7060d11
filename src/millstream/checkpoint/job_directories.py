"""The directories of a job for checkpoints, local state and temporary files, and their checks."""

from __future__ import annotations

import json
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.checkpoint.local_storage import IDENTITY
from millstream.checkpoint.model import FORMAT_VERSION, PROGRAM, OperatorRecord, require_format
from millstream.checkpoint.storages import open_storage, open_storage_of
from millstream.configuration import options
from millstream.directories import (
    LOCAL_STATE,
    TEMPORARY,
    default_local_directory,
    error_in_text,
    probe,
    require_private,
    run_directory,
)
from millstream.errors import (
    CorruptCheckpointError,
    DirectoryError,
    ForeignCheckpointError,
    MillstreamError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.configuration.configuration import Configuration
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.object_stores import StoreOptions


@dataclass(frozen=True, slots=True)
class JobDirectories:
    """Where a job keeps things."""

    storage: CheckpointStorage
    #: The checkpoint directory is a temporary one, which lives as long as the job.
    temporary: bool
    #: Of all jobs of this user on this machine; of this one if its checkpoints are temporary.
    local: Path

    @classmethod
    def of(
        cls, configuration: Configuration, store_options: StoreOptions | None = None
    ) -> JobDirectories:
        """The directories that a job's options name; without any, a new temporary one.

        Args:
            configuration: the options.
            store_options: with which the job opens object stores; None: those of the options.

        Raises:
            ConfigurationError: the checkpoint directory is at a place that is not supported.
        """
        directory = configuration.get(options.CHECKPOINTS_DIRECTORY)
        if directory:
            storage = open_storage_of(configuration, directory, store_options)
            return cls(storage, temporary=False, local=_local(configuration))
        made = tempfile.mkdtemp(prefix="checkpoint-", dir=run_directory().path)
        # Nobody else can know of a temporary one before it is made, for its owner only.
        storage = open_storage(made, fsync=False)
        if not configuration.get(options.LOCAL_DIRECTORY):
            # No other run can use it, so it goes with this one, however that ends.
            return cls(storage, temporary=True, local=Path(f"{made}-local"))
        return cls(storage, temporary=True, local=_local(configuration))

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


def check_directories(
    configuration: Configuration, store_options: StoreOptions | None = None
) -> None:
    """Check, before anything runs, the directories that a job's options name; make those missing.

    Args:
        configuration: the options.
        store_options: with which the job opens object stores; None: those of the options.

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
        storage = open_storage_of(configuration, directory, store_options)
        storage.check()
        storage.probe()


def _local(configuration: Configuration) -> Path:
    directory = configuration.get(options.LOCAL_DIRECTORY)
    return Path(directory).absolute() if directory else default_local_directory()


_NAME: Final = IDENTITY


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """The job that a checkpoint directory belongs to."""

    job_id: str
    job_name: str
    #: Operator uid -> its record, in the first run.
    program: dict[str, OperatorRecord] = field(default_factory=dict)

    @classmethod
    def claim(
        cls, storage: CheckpointStorage, job_name: str, program: Mapping[str, OperatorRecord]
    ) -> str:
        """Take an unused checkpoint directory for this job, or check that it is this job's.

        Args:
            storage: the checkpoint directory.
            job_name: the name given to ``execute``.
            program: operator uid -> its record, of the job as it is now.

        Returns:
            The job's id: new for an unused directory, else the one given by the first run.

        Raises:
            ForeignCheckpointError: it belongs to another job.
            UnknownFormatError: it was written in another format version.
            CorruptCheckpointError: ``job.json`` is damaged, or missing beside a manifest log.
        """
        wanted = cls(uuid.uuid4().hex, job_name, dict(program))
        found = cls.load(storage)
        if found is None:
            if next(iter(storage.list_names("log")), None) is not None:
                message = (
                    f"{storage.location} has checkpoints but no {_NAME}, so it is unknown"
                    " whose they are. Put the file back from a copy or use an empty directory."
                )
                raise CorruptCheckpointError(message)
            if storage.put_if_absent(_NAME, wanted.encode()):
                storage.bind(wanted.job_id)
                return wanted.job_id
            found = cls.load(storage)
        if found is None:  # somebody deletes the directory while we start
            message = f"{_NAME} in {storage.location} vanished while the job was starting"
            raise CorruptCheckpointError(message)
        found.require_name(job_name, storage.location)
        return found.job_id

    @classmethod
    def load(cls, storage: CheckpointStorage) -> JobIdentity | None:
        """Whose directory it is; None if nobody's.

        Raises:
            UnknownFormatError: it was written in another format version.
            CorruptCheckpointError: ``job.json`` is damaged.
        """
        try:
            content = storage.read(_NAME)
        except FileNotFoundError:
            return None
        file = f"{_NAME} in {storage.location}"
        try:
            value: dict[str, Any] = json.loads(content)
            require_format(value["format_version"], file)
            storage.bind(str(value["job_id"]))
            program = PROGRAM.read(value["program"])
            return cls(str(value["job_id"]), str(value["job_name"]), program)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            message = f"{file} is damaged ({error!r}). Put the file back from a copy."
            raise CorruptCheckpointError(message) from error

    @classmethod
    def require(cls, storage: CheckpointStorage, job_id: str) -> None:
        """Make sure, before a run, that the directory is still there: else it would begin again.

        Raises:
            DirectoryError: it has gone, or another one is in its place.
        """
        found = cls.load(storage)
        if found is None or found.job_id != job_id:
            raise storage.gone()

    def encode(self) -> bytes:
        """The content of ``job.json``."""
        value = {
            "format_version": FORMAT_VERSION,
            "job_id": self.job_id,
            "job_name": self.job_name,
            "program": PROGRAM.write(self.program),
        }
        return (json.dumps(value, indent=2) + "\n").encode()

    def require_name(self, job_name: str, location: str) -> None:
        """Raise ForeignCheckpointError if the job is not called ``job_name``."""
        if self.job_name == job_name:
            return
        message = (
            f"the checkpoint directory {location} belongs to another job: its job is called"
            f" {self.job_name!r}, this one {job_name!r}. Use another directory for this job; if it"
            f" is the same one, run it under its name, with execute({self.job_name!r})."
        )
        raise ForeignCheckpointError(message)
