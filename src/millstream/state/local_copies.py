"""The directories of one operator subtask on this machine: snapshots and work copies.

What it is: under ``local_root/<uid>/<subtask>`` one directory per snapshot, never changed once
made, and one ``work-<attempt>-<process id>`` per running attempt, a copy by hard links that is
opened and changed.
What it is not: durable.  Whatever is missing or incomplete here is downloaded again.

Read next: ``state/rocksdb.py``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from typing import TYPE_CHECKING, Final

from millstream.common.directories import (
    LOCAL_STATE,
    PRIVATE_DIRECTORY,
    directory_error,
    error_in_text,
    explained,
    make_private,
    require_private,
)
from millstream.errors import MillstreamError
from millstream.state.snapshot_files import directory_name, download_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.checkpoint.storage import CheckpointStorage
    from millstream.state.store import StateHandle

__all__ = ["LocalCopies"]

_WORK: Final = "work-"
_DOWNLOAD: Final = "download-"

#: Work directories that this process has open.
_open: Final[set[Path]] = set()


class LocalCopies:
    """The directories of one operator subtask."""

    def __init__(self, local_root: Path, uid: str, subtask: int) -> None:
        """Use ``local_root/<uid>/<subtask>``.

        Raises:
            DirectoryError: others could write to ``local_root``, from which objects are loaded.
        """
        require_private(LOCAL_STATE, local_root)
        self._root = local_root
        self._operator = local_root / directory_name(uid)
        self._directory = self._operator / str(subtask)

    def snapshot(self, identity: str) -> Path:
        """Where the snapshot called ``identity`` is, or is to be."""
        return self._directory / identity

    def new_snapshot(self, identity: str) -> Path:
        """Make the directory for the snapshot called ``identity``.

        Raises:
            DirectoryError: it cannot be made.
        """
        path = self.snapshot(identity)
        with self.explained():
            make_private(self._root)
            path.mkdir(PRIVATE_DIRECTORY, parents=True)
        return path

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raise DirectoryError for what the disk refuses, also where RocksDB says so in words."""
        try:
            with explained(LOCAL_STATE, self._root):
                yield
        except (MillstreamError, OSError):
            raise
        except Exception as error:
            refused = error_in_text(str(error))
            if refused is None:
                raise
            raise directory_error(LOCAL_STATE, self._root, refused) from error

    def find(self, handle: StateHandle) -> Path | None:
        """A complete local copy of ``handle``, of any subtask of the operator."""
        own = self.snapshot(handle["id"])
        if _is_complete(own, handle):
            return own
        try:
            siblings = sorted(self._operator.iterdir())
        except FileNotFoundError:
            return None
        for sibling in siblings:
            if _is_complete(sibling / handle["id"], handle):
                return sibling / handle["id"]
        return None

    def bring(self, handle: StateHandle, storage: CheckpointStorage) -> Path:
        """The local copy of ``handle``, downloaded and verified if there is none.

        Raises:
            CorruptCheckpointError: a file in the storage is missing or corrupt.
        """
        found = self.find(handle)
        if found is not None:
            return found
        target = self.snapshot(handle["id"])
        with self.explained():
            make_private(self._root)
        temporary = self._directory / f"{_DOWNLOAD}{uuid.uuid4().hex}-{os.getpid()}"
        _open.add(temporary)
        try:
            download_snapshot(storage, handle, temporary)
            if target.exists():  # incomplete, or another attempt was faster
                shutil.rmtree(target, ignore_errors=True)
            try:
                temporary.rename(target)
            except OSError:
                if not _is_complete(target, handle):
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            _open.discard(temporary)
        return target

    def open_work(self, attempt: str) -> Path:
        """A new, empty directory for one attempt."""
        unique = uuid.uuid4().hex[:8]
        path = self._directory / f"{_WORK}{directory_name(attempt)}-{unique}-{os.getpid()}"
        with self.explained():
            make_private(self._root)
            path.mkdir(PRIVATE_DIRECTORY, parents=True)
        _open.add(path)
        return path

    def link_work(self, attempt: str, handle: StateHandle, storage: CheckpointStorage) -> Path:
        """A directory for one attempt with the files of ``handle`` in it.

        Data files are hard links; the small files that a database changes are copies.
        """
        for last in (False, True):
            source = self.bring(handle, storage)
            work = self.open_work(attempt)
            try:
                with self.explained():
                    for file in handle["files"]:
                        copy = os.link if file["local"].endswith(".sst") else shutil.copyfile
                        copy(source / file["local"], work / file["local"])
            except FileNotFoundError:  # another attempt cleaned up: get it from the storage
                self.close_work(work)
                if last:
                    raise
                continue
            return work
        raise AssertionError

    def close_work(self, path: Path) -> None:
        """Remove the directory of an attempt."""
        shutil.rmtree(path, ignore_errors=True)
        _open.discard(path)

    def clean_up(self, base: str | None, keep: str) -> None:
        """Remove snapshots older than ``base`` and what dead processes left.

        The snapshot the epoch began from stays, for another attempt may still need it, and so
        do younger ones, for they may be those of the attempt that wins.
        """
        oldest = _modified(self.snapshot(base or keep))
        for path in self._directory.iterdir():
            name = path.name
            if name in (base, keep) or path in _open:
                continue
            if name.startswith((_WORK, _DOWNLOAD)):
                is_over = not _is_alive(int(name.rpartition("-")[2]))
            else:
                is_over = _modified(path) < oldest
            if is_over:
                shutil.rmtree(path, ignore_errors=True)


def _is_complete(path: Path, handle: StateHandle) -> bool:
    try:
        return all(
            (path / file["local"]).stat().st_size == file["size"] for file in handle["files"]
        )
    except FileNotFoundError:
        return False


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _is_alive(process: int) -> bool:
    if process == os.getpid():
        return False  # ours are in _open
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
