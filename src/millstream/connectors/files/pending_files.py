"""The commit protocol of files: written invisibly, made visible by a rename.

A task writes to ``<base>/.pending-<job id>/<sink uid>/<unique name>``, which readers ignore
because of the dot, and makes it durable.  Its committable is ``{"pending": ..., "final": ...}``
with paths relative to the base.  The committer renames.  For each committable it finds one of:

1. Only the pending file exists: nobody committed it yet.  Rename it.  A rename is atomic:
   readers see the whole file or none.
2. Only the final file exists: an earlier run renamed it and died before it could report it.
3. Both exist: the checkpoint directory is an older copy, and the job wrote this epoch before,
   maybe with other records.  SinkError: a rename would replace output that readers have seen.  In
   mode AT_LEAST_ONCE it is the output of a run that died before it published: this comes beside.
4. Neither exists, and the run that committed it has reported that: a reader took the file away.
5. Neither exists otherwise: the pending file was deleted by somebody else, or the disk lost what
   it had confirmed.  The output of a published epoch is gone; SinkError reports it.  Millstream
   deletes only pending files that no manifest names, so this can never happen by its doing.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from millstream.configuration.redaction import redacted_text
from millstream.connectors.error_classification import directory_refusal
from millstream.connectors.output_names import OutputNames, generation_of
from millstream.contracts.sink import Committer, says_progress
from millstream.crash_points import crash_point
from millstream.directories import make_directories, sync_directory
from millstream.errors import PermanentSinkError, SinkError
from millstream.object_stores import unsupported_scheme

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.contracts.sink import CommitRequest, Committable, WriterContext

__all__ = [
    "PendingFile",
    "PendingFileCommitter",
    "local_directory",
    "locked_by",
    "pending_directory",
    "sync_directory",
]


def local_directory(path: str) -> Path:
    """The absolute local directory of a path or ``file:`` URI.

    Raises:
        SinkError: the path is on another file system.
    """
    path = str(path)
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    if "://" in path:
        message = f"{redacted_text(path)!r}: {unsupported_scheme(path)}"
        raise SinkError(message)
    return Path(path).absolute()


def pending_directory(base: Path, job_id: str, sink_uid: str) -> Path:
    """Where the pending files of a sink of a job are."""
    return base / f".pending-{OutputNames(job_id, sink_uid).directory}"


class PendingFile:
    """A file being written under a name that is unique for the attempt."""

    def __init__(self, base: Path, context: WriterContext, final: str, *, fsync: bool) -> None:
        """``final`` is the path, relative to ``base``, that the file gets at the commit."""
        self.base = base
        self.final = final
        self._fsync = fsync
        directory = pending_directory(base, context.job_id, context.sink_uid)
        self.path = directory / OutputNames.of_file(context, "pending")
        try:
            make_directories(base, fsync=fsync)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.stream: IO[bytes] = self.path.open("xb")
        except OSError as error:
            what = "cannot write"
            raise directory_refusal(what, base, error) from error

    @property
    def size(self) -> int:
        """Bytes written so far (a writer may hold back more)."""
        return self.stream.tell()

    def seal(self) -> Committable:
        """Make the file durable, close it and describe it."""
        self.stream.flush()
        if self._fsync:
            os.fsync(self.stream.fileno())
        self.stream.close()
        return {"pending": str(self.path.relative_to(self.base)), "final": self.final}

    def sync_directory(self) -> None:
        """Make the name of the file durable; once for all files of a writer."""
        if self._fsync:
            sync_directory(self.path.parent)
            sync_directory(self.path.parent.parent)
            sync_directory(self.base)

    def discard(self) -> None:
        """Delete the file; nothing named it yet."""
        self.stream.close()
        self.path.unlink(missing_ok=True)


class PendingFileCommitter(Committer):
    """Renames pending files; deletes those that no manifest names."""

    def __init__(self, base: Path, *, fsync: bool = True) -> None:
        self.target = f"files in {base}"
        self._base = base
        self._fsync = fsync

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Rename every pending file to its final name.

        Raises:
            SinkError: a rename failed, or the output of a published epoch is missing.
        """
        directories: set[Path] = set()
        for request in requests:
            if says_progress(request.committable):
                continue  # the program does not ask for it any more
            paths = _paths(request.committable)
            pending = self._base / paths["pending"]
            final = _final_path(pending, self._base / paths["final"], request)
            try:
                final.parent.mkdir(parents=True, exist_ok=True)
                if not final.exists():
                    crash_point("file.rename.before")
                    pending.rename(final)
                    crash_point("file.rename.after")
            except FileNotFoundError:
                if not final.exists() and not request.confirmed:
                    message = (
                        f"output of checkpoint {request.epoch} is lost: neither {pending} nor"
                        f" {final} "
                        "exists; nothing but this sink may delete files there. If a reader took "
                        "it away after it was committed, confirm it by `millstream checkpoints DIR "
                        f"confirm {request.epoch}` (DIR: the checkpoint directory)"
                    )
                    raise PermanentSinkError(message) from None
            except OSError as error:
                what = f"cannot rename {pending} to {final}"
                raise directory_refusal(what, self._base, error) from error
            directories.add(final.parent)
        if self._fsync and directories:  # before the first file there may be no base
            for directory in self._with_parents(directories):
                sync_directory(directory)

    def _with_parents(self, directories: set[Path]) -> set[Path]:
        """Directories and those between them and the base, any of which may be new."""
        found = {self._base}
        for directory in directories:
            each = directory
            while each not in found:
                found.add(each)
                each = each.parent
        return found

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        directory = pending_directory(self._base, job_id, sink_uid)
        files = [each for each in keep if not says_progress(each)]
        kept = {(self._base / _paths(committable)["pending"]).name for committable in files}
        try:
            entries = [path.name for path in directory.iterdir()]
        except FileNotFoundError:
            return
        except OSError as error:
            what = f"cannot list {directory}"
            raise directory_refusal(what, self._base, error) from error
        for name in OutputNames.orphans(entries, kept, generation):
            try:
                (directory / name).unlink(missing_ok=True)
            except OSError as error:
                what = f"cannot delete {directory / name}"
                raise directory_refusal(what, self._base, error) from error
        # Leave no traces; a directory that is not empty, or being used, stays.
        with contextlib.suppress(OSError):
            directory.rmdir()
            directory.parent.rmdir()


def _final_path(pending: Path, final: Path, request: CommitRequest) -> Path:
    if not (pending.exists() and final.exists()):
        return final
    if not request.published:
        beside = final.with_name(f"{final.stem}-g{generation_of(pending.name) or 0}{final.suffix}")
        if not beside.exists():
            return beside
    message = (
        f"output of checkpoint {request.epoch} is not committed: {final} exists already, written"
        " by a"
        " run that this checkpoint directory does not know, so it is older than the output. Put"
        " back both from one copy, or move the output that was written since out of the way"
    )
    raise PermanentSinkError(message)


def _paths(committable: Committable) -> dict[str, str]:
    if not isinstance(committable, dict) or not {"pending", "final"} <= committable.keys():
        message = f"not a committable of a file sink: {committable!r:.200}"
        raise SinkError(message)
    return cast("dict[str, str]", committable)


def locked_by(paths: Sequence[Path]) -> str:
    """Who holds locks on files, and what to do, in words; empty if nobody is found.

    Args:
        paths: of one database; those that are missing are passed over.
    """
    found = sorted(set(_holders(paths)))
    if not found:
        return ""
    named = "; ".join(_described(pid) for pid in found)
    return (
        f"Its lock is held by {named}. If that is a driver that hangs or was stopped, end it"
        f" (kill -9 {' '.join(map(str, found))}): a lock goes with its process, and what it had not"
        " committed is undone"
    )


def _holders(paths: Sequence[Path]) -> Iterator[int]:
    """The processes that have an open file among ``paths`` locked."""
    names = {str(path.resolve()): path.stat().st_ino for path in paths if path.exists()}
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        # "1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 120 120"; one that waits has a "->".
        fields = line.split()
        if "->" in fields or len(fields) < 6:  # noqa: PLR2004 - as above
            continue
        pid, inode = int(fields[4]), int(fields[5].rpartition(":")[2])
        # Numbers of files are unique on one disk only.
        if pid not in {0, -1, os.getpid()} and inode in names.values() and _has_open(pid, names):
            yield pid


def _has_open(pid: int, names: dict[str, int]) -> bool:
    try:
        opened = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:  # of another user, or gone
        return False
    return any(name in names for name in opened)


def _described(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return f"process {pid}"
    stopped = ", which is stopped" if state in {"T", "t"} else ""
    return f"process {pid} ({command:.100}{stopped})"
