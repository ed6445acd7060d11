"""Whose checkpoint directory it is: ``job.json``, written once by the first run.

What it is: the job's id, its name and the operators of its first run.  A run of another job is
refused before anything is written.

What it is not: fencing between runs of the same job; that is the manifest log.  Nor a check of a
program that was changed: manifests say what they are of (``checkpoint/program_changes.py``).

Read next: ``checkpoint/manifest_log.py``.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.checkpoint.model import FORMAT_VERSION, OperatorRecord, require_format
from millstream.checkpoint.program import record_from_json, record_to_json
from millstream.checkpoint.signature import IDENTITY
from millstream.directories.ownership import CHECKPOINTS, directory_error
from millstream.errors import CorruptCheckpointError, ForeignCheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.contracts.checkpoint_storage import CheckpointStorage

__all__ = ["JobIdentity"]

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
                    f"{storage.location} has checkpoints but no {_NAME}, so it cannot be told"
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
            program = {
                uid: record_from_json(uid, record) for uid, record in value["program"].items()
            }
            return cls(str(value["job_id"]), str(value["job_name"]), program)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            message = f"{file} is damaged ({error!r}). Put the file back from a copy."
            raise CorruptCheckpointError(message) from error

    @classmethod
    def require(cls, storage: CheckpointStorage, job_id: str) -> None:
        """Make sure, before a run, that the directory is still there: else it would begin anew.

        Raises:
            DirectoryError: it has gone, or another one is in its place.
        """
        found = cls.load(storage)
        if found is None or found.job_id != job_id:
            missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            raise directory_error(CHECKPOINTS, Path(storage.location), missing)

    def encode(self) -> bytes:
        """The content of ``job.json``."""
        value = {
            "format_version": FORMAT_VERSION,
            "job_id": self.job_id,
            "job_name": self.job_name,
            "program": {uid: record_to_json(record) for uid, record in self.program.items()},
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
