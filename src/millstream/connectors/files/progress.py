"""How far the writers of a sink of files are, kept beside the files; what waits for it.

What it is: the subtasks' reports (``Sink.wants_progress``), put together into the watermark of all
of them and whether all have ended; a durable record of that and of what is open, in
``<base>/.progress-<job id>/<sink uid>/``.
What it is not: the files' own commit (``connectors/files/pending_files.py``).

Cases, of a crash during the commit of an epoch; the next run commits it again, retried:

1. Before the record is written: files that are renamed already are passed over, the record is made
   again from the one before and the same reports, and what was done with a partition is done again.
2. Behind it: the record has the epoch, so nothing is added twice.

Read next: ``connectors/files/table_sink.py``.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.files.pending_files import sync_directory
from millstream.connectors.output_names import OutputNames
from millstream.contracts.sink import PROGRESS
from millstream.errors import PermanentSinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from millstream.contracts.sink import CommitRequest

__all__ = ["Progress", "ProgressFile", "files_and_reports"]

_NAME: Final = "progress.json"
_VERSION: Final = 1


@dataclass
class Progress:
    """What all subtasks have said up to an epoch."""

    epoch: int = -1
    parallelism: int = 0
    #: The run that the subtasks belong to: in another one they may read other splits.
    run: int = -1
    #: How far event time has got in all subtasks, in this run or one before; None: nobody knows.
    watermark: int | None = None
    #: Subtask -> watermark; those that have none are left out.
    watermarks: dict[str, int] = field(default_factory=dict)
    idle: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    #: Directories of partitions that are not complete -> when their first file came.
    open: dict[str, int] = field(default_factory=dict)
    #: Of an overwriting sink: what is to be moved into place and what is to be deleted.
    moves: list[str] | None = None
    deletes: list[str] = field(default_factory=list)
    is_done: bool = False

    def take(self, reports: Iterable[dict[str, Any]]) -> None:
        """Take what subtasks say."""
        for each in reports:
            if (each["parallelism"], each["run"]) != (self.parallelism, self.run):
                self.parallelism, self.run = each["parallelism"], each["run"]
                self.watermarks, self.idle, self.ended = {}, [], []
            subtask = str(each["subtask"])
            if each["watermark"] is not None:
                self.watermarks[subtask] = each["watermark"]
            self.idle = [one for one in self.idle if one != subtask]
            self.idle += [subtask] if each["idle"] else []
            self.ended += [subtask] if each["ended"] and subtask not in self.ended else []
        awake = [each for each in map(str, range(self.parallelism)) if each not in self.idle]
        known = [self.watermarks[each] for each in awake if each in self.watermarks]
        if known and len(known) == len(awake):
            self.watermark = (
                min(known) if self.watermark is None else max(self.watermark, min(known))
            )

    @property
    def all_ended(self) -> bool:
        """Whether nothing can come any more."""
        return self.parallelism > 0 and len(self.ended) == self.parallelism


class ProgressFile:
    """The record of a sink's progress."""

    def __init__(self, base: Path, job_id: str, sink_uid: str) -> None:
        self.base = base
        self.directory = base / f".progress-{OutputNames(job_id, sink_uid).directory}"

    def read(self) -> Progress:
        """What was written last; nothing at first.

        Raises:
            PermanentSinkError: it is of another version.
        """
        try:
            content = json.loads((self.directory / _NAME).read_text())
        except FileNotFoundError:
            return Progress()
        if content.pop("version") != _VERSION:
            message = f"{self.directory / _NAME} is of another release"
            raise PermanentSinkError(message)
        return Progress(**content)

    def write(self, progress: Progress, *, fsync: bool) -> None:
        """Replace it, all of it or nothing."""
        self.directory.mkdir(parents=True, exist_ok=True)
        beside = self.directory / f"{_NAME}.next"
        with beside.open("w") as stream:
            json.dump({"version": _VERSION, **asdict(progress)}, stream)
            if fsync:
                stream.flush()
                os.fsync(stream.fileno())
        beside.replace(self.directory / _NAME)
        if fsync:
            for each in (self.directory, self.directory.parent, self.base):
                sync_directory(each)


def files_and_reports(
    requests: Sequence[CommitRequest],
) -> tuple[list[CommitRequest], list[dict[str, Any]]]:
    """The requests that are about files, and what subtasks say of themselves."""
    files, reports = [], []
    for each in requests:
        committable = each.committable
        if isinstance(committable, dict) and PROGRESS in committable:
            reports.append(committable[PROGRESS])
        else:
            files.append(each)
    return files, reports
