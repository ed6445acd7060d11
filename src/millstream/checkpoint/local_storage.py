"""Checkpoint storage in a directory of a local or shared, mounted file system.

What it is: the storage contract over POSIX calls.  A blob is written under ``temporary/``, synced,
and then gets its name by a hard link (put-if-absent: ``link`` fails if the name exists) or by a
rename (replace).  So a reader sees a whole blob or none, whatever crashes when.

What it is not: a store for object stores; those need a class of their own, with their own
put-if-absent.  Nor a cleaner: files left in ``temporary/`` by a crash are deleted by
``checkpoint/cleanup.py`` like any other file that nothing names.

Read next: ``checkpoint/manifest_log.py``.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["TEMPORARY_DIRECTORY", "LocalStorage"]

#: Where blobs are written before they get their name.
TEMPORARY_DIRECTORY: Final = "temporary"


class LocalStorage:
    """Named blobs in a directory.

    Nothing is created before the first write, so that a job can still be refused with the
    directory untouched.
    """

    def __init__(self, directory: str | Path, *, fsync: bool = True) -> None:
        """Use ``directory``.

        Args:
            directory: a path or a ``file:`` URI; every machine of the cluster must see the same
                files there.
            fsync: sync files and directories, so that what was written survives a crash of the
                machine and not only of the process.

        Raises:
            ConfigurationError: it is a URI of another scheme.
        """
        self._root = _path_of(str(directory))
        self._fsync = fsync
        #: Directories known to exist, to save a system call per write.
        self._known: set[Path] = set()

    def __getstate__(self) -> tuple[Path, bool]:
        """What a worker needs: the place, not what this process knows of it."""
        return self._root, self._fsync

    def __setstate__(self, state: tuple[Path, bool]) -> None:
        """Start in a worker with nothing known."""
        self._root, self._fsync = state
        self._known = set()

    def __repr__(self) -> str:
        """The call that makes it."""
        return f"LocalStorage({str(self._root)!r}, fsync={self._fsync})"

    @property
    def location(self) -> str:
        """The directory's absolute path."""
        return str(self._root)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Create ``name``; False, and nothing written, if it exists."""
        target = self._resolve(name)
        if target.exists():  # the usual loser is seen without writing anything
            return False
        return self._publish(lambda temporary: self._write_file(temporary, content), target)

    def write(self, name: str, content: bytes) -> None:
        """Create or replace ``name``."""
        target = self._resolve(name)
        temporary = self._temporary()
        try:
            self._write_file(temporary, content)
            self._make_directory(target.parent)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        self._sync_directory(target.parent)

    def read(self, name: str) -> bytes:
        """The content; raises FileNotFoundError."""
        return self._resolve(name).read_bytes()

    def upload(self, local: Path, name: str) -> None:
        """Make ``name`` from a local file that will never change; FileExistsError if it exists."""
        target = self._resolve(name)
        self._make_directory(target.parent)
        self._sync_file(local)
        try:
            os.link(local, target)
        except FileExistsError:
            raise
        except FileNotFoundError:
            if not local.exists():
                raise
            self._upload_copy(local, target)
        except OSError:  # another file system, or one without hard links
            self._upload_copy(local, target)
        self._sync_directory(target.parent)

    def download(self, name: str, local: Path) -> None:
        """Make the local file from ``name``, never to be changed; raises FileNotFoundError."""
        source = self._resolve(name)
        local.parent.mkdir(parents=True, exist_ok=True)
        local.unlink(missing_ok=True)
        try:
            os.link(source, local)
        except FileNotFoundError:
            raise
        except OSError:  # another file system, or one without hard links
            shutil.copyfile(source, local)

    def exists(self, name: str) -> bool:
        """Whether there is such a blob."""
        return self._resolve(name).is_file()

    def list_names(self, prefix: str) -> Iterator[str]:
        """All names below the directory ``prefix``, sorted."""
        names: list[str] = []
        start = self._resolve(prefix) if prefix.strip("/") else self._root
        for directory, _, files in os.walk(start):
            relative = Path(directory).relative_to(self._root).as_posix()
            head = "" if relative == "." else relative + "/"
            names.extend(head + file for file in files)
        return iter(sorted(names))

    def delete(self, names: Iterable[str]) -> None:
        """Delete; names that do not exist are passed over.

        Not synced: a deletion that a crash undoes leaves garbage, which is found again.
        """
        for name in names:
            self._resolve(name).unlink(missing_ok=True)

    def _resolve(self, name: str) -> Path:
        parts = name.strip("/").split("/")
        if "" in parts or ".." in parts or "." in parts:
            message = f"{name!r} is not a name of a blob: it must be relative, without '.' and '..'"
            raise ValueError(message)
        return self._root.joinpath(*parts)

    def _temporary(self) -> Path:
        directory = self._root / TEMPORARY_DIRECTORY
        self._make_directory(directory)
        return directory / uuid.uuid4().hex

    def _publish(self, write: Callable[[Path], object], target: Path) -> bool:
        temporary = self._temporary()
        try:
            write(temporary)
            self._make_directory(target.parent)
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        self._sync_directory(target.parent)
        return True

    def _upload_copy(self, local: Path, target: Path) -> None:
        def copy(temporary: Path) -> None:
            shutil.copyfile(local, temporary)
            self._sync_file(temporary)

        if not self._publish(copy, target):
            raise FileExistsError(str(target))

    def _write_file(self, path: Path, content: bytes) -> None:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileNotFoundError:  # somebody removed the directory: make it again, once
            self._known.clear()
            self._make_directory(path.parent)
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if self._fsync:
                os.fsync(file.fileno())

    def _make_directory(self, directory: Path) -> None:
        """Make it and its parents, each durable in its own parent."""
        if directory in self._known:
            return
        if not directory.is_dir():
            if directory.parent != directory:
                self._make_directory(directory.parent)
            directory.mkdir(exist_ok=True)
            self._sync_directory(directory.parent)
        self._known.add(directory)

    def _sync_file(self, path: Path) -> None:
        if self._fsync:
            _sync(path, os.O_RDONLY)

    def _sync_directory(self, directory: Path) -> None:
        if self._fsync:
            _sync(directory, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _path_of(directory: str) -> Path:
    parts = urlsplit(directory)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path)).absolute()
    if "://" in directory:
        message = (
            f"checkpoint directory {directory!r}: only directories of a local or mounted file"
            " system are supported; give a path or a file: URI"
        )
        raise ConfigurationError(message)
    return Path(directory).expanduser().absolute()
