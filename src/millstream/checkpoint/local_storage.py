"""Checkpoint storage in a local or mounted directory, and the signatures of its blobs.

A blob is written under ``temporary/``, synced, and then gets its name by a hard link
(put-if-absent:  ``link`` fails if the name exists) or by a rename (replace).  So a reader sees a
whole blob or none, whatever crashes when.

Directories and files are made for their owner only, whatever the umask.  An operating-system error
(a full disk, a read-only one) is raised as a DirectoryError; a missing name is not that.

A signature is a line after the content of a blob, the HMAC-SHA-256 of job id, name and content
under the user's key.  It is verified before anything is parsed or unpickled, so who can write to
the directory cannot forge content.  State files are not signed: the manifests that name them hold
their SHA-256.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import re
import shutil
import stat
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol
from urllib.parse import unquote, urlsplit

from millstream.configuration import options
from millstream.directories import (
    CHECKPOINTS,
    LOCAL_STATE,
    PRIVATE_FILE,
    directory_error,
    explained,
    make_private,
    probe,
    require_private,
    sync_directory,
)
from millstream.errors import ConfigurationError, SignatureError
from millstream.object_stores import unsupported_scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.errors import DirectoryError


#: The blob that says which job it is; it is signed for no job, being read first.
IDENTITY: Final = "job.json"
#: Names that are not signed: Spark writes its logs itself, and they hold no pickles; what state
#: files must be is said by the manifests; a standby reads the lease before the job has an id.
_UNSIGNED: Final = ("spark/", "state/", "lease/")
_LINE: Final = b"\nmillstream-hmac-sha256 "
_SIGNED: Final = re.compile(rb"\nmillstream-hmac-sha256 [0-9a-f]{64}\n\Z")
_LINE_LENGTH: Final = len(_LINE) + 64 + 1
_LEAST_KEY: Final = 32


class Seal(Protocol):
    """What happens to a blob as it is written and read."""

    def bind(self, job_id: str) -> None:
        """Take the names, from now on, for those of this job."""

    def close(self, name: str, content: bytes) -> bytes:
        """Return what is stored."""

    def open(self, name: str, stored: bytes, location: str) -> bytes:
        """The content of what was stored.

        Raises:
            SignatureError: it is not to be trusted.
        """


class NoSeal:
    """Blobs are stored as they are, and signed ones are refused."""

    def bind(self, job_id: str) -> None:
        """Nothing depends on the job."""

    def close(self, name: str, content: bytes) -> bytes:
        """The content."""
        del name
        return content

    def open(self, name: str, stored: bytes, location: str) -> bytes:
        """The content; raises SignatureError if it is signed: there must be a reason for that."""
        if is_sealed(stored) and not name.startswith(_UNSIGNED):
            message = (
                f"{name} in {location} is signed. Give the key with which it was written: set"
                f" {options.CHECKPOINT_HMAC_KEY_FILE.key}, or --hmac-key-file on the command line"
            )
            raise SignatureError(message)
        return stored


@dataclass(slots=True)
class HmacSeal:
    """Blobs are signed with a key from a file, which each process reads for itself.

    The key does not travel: the plans of epochs, in which storages do, are kept by Spark.
    """

    key_file: str
    _job_id: str | None = None
    _key: bytes | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> tuple[str, str | None]:
        """Without the key."""
        return self.key_file, self._job_id

    def __setstate__(self, state: tuple[str, str | None]) -> None:
        self.key_file, self._job_id = state
        self._key = None

    def bind(self, job_id: str) -> None:
        """Sign and verify for this job."""
        self._job_id = job_id

    def close(self, name: str, content: bytes) -> bytes:
        """The content, and its signature after it."""
        return content if name.startswith(_UNSIGNED) else content + self._line(name, content)

    def open(self, name: str, stored: bytes, location: str) -> bytes:
        """The content, if its signature is that of this job, name and content."""
        if name.startswith(_UNSIGNED):
            return stored
        if not is_sealed(stored):
            message = (
                f"{name} in {location} is not signed, but"
                f" {options.CHECKPOINT_HMAC_KEY_FILE.key} is set. If the directory was written"
                " without a key, and nobody but you could write to it, sign it:"
                f" `millstream checkpoints {location} sign --hmac-key-file {self.key_file}`"
            )
            raise SignatureError(message)
        content = stored[:-_LINE_LENGTH]
        if not hmac.compare_digest(self._line(name, content), stored[-_LINE_LENGTH:]):
            message = (
                f"{name} in {location} was not signed with the key in {self.key_file} for this"
                " job: it was written with another key, is damaged, or was put there by somebody"
                " else. Nothing of it was used. Give the right key, or put the file back from a"
                " copy that you trust"
            )
            raise SignatureError(message)
        return content

    def read_key(self) -> bytes:
        """The key, read once.

        Raises:
            ConfigurationError: the file is missing, in reach of others, or too short.
        """
        if self._key is None:
            self._key = _read_key(Path(self.key_file))
        return self._key

    def _line(self, name: str, content: bytes) -> bytes:
        job = "" if name == IDENTITY else self._job_id
        if job is None:
            message = f"{name} cannot be verified before {IDENTITY} names the job"
            raise SignatureError(message)
        # Neither ids nor names hold a zero byte, so nobody can move a border.
        mac = hmac.new(self.read_key(), f"{job}\0{name}\0".encode(), "sha256")
        mac.update(content)
        return _LINE + mac.hexdigest().encode() + b"\n"


def seal_of(key_file: str) -> Seal:
    """The seal of a key file; empty: that of directories without signatures."""
    return HmacSeal(key_file) if key_file else NoSeal()


def is_sealed(stored: bytes) -> bool:
    """Return whether a stored blob is signed, by whomever."""
    return _SIGNED.search(stored, max(0, len(stored) - _LINE_LENGTH)) is not None


def _read_key(path: Path) -> bytes:
    setting = options.CHECKPOINT_HMAC_KEY_FILE.key
    make = f"`(umask 077; openssl rand -hex 32 > {path})` makes one"
    try:
        found = path.stat()
        key = path.read_bytes().strip()
    except OSError as error:
        message = (
            f"{setting}: {path} cannot be read on this machine ({error.strerror}); driver and"
            f" workers need it at the same place. {make}"
        )
        raise ConfigurationError(message) from error
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid not in (os.geteuid(), 0) or mode & 0o077:
        message = (
            f"{setting}: {path} is in reach of other users (mode {mode:04o}, owner"
            f" {found.st_uid}), so it may be known to them. Make a new key that only you can read:"
            f" {make}"
        )
        raise ConfigurationError(message)
    if len(key) < _LEAST_KEY:
        message = (
            f"{setting}: the key in {path} has {len(key)} bytes, it needs {_LEAST_KEY} at least."
            f" {make}"
        )
        raise ConfigurationError(message)
    return key


#: Where blobs are written before they get their name.
TEMPORARY_DIRECTORY: Final = "temporary"
_COPY_BYTES: Final = 1 << 27
#: Between these two files, or on this system, the kernel does not copy.
_NO_COPY_IN_KERNEL: Final = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


class LocalStorage:
    """Named blobs in a directory.

    Nothing is created before the first write, so that a job can still be refused with the
    directory untouched.  A directory that vanishes while it is used is not made again: a job would
    begin again in it.
    """

    def __init__(
        self, directory: str | Path, *, fsync: bool = True, seal: Seal | None = None
    ) -> None:
        """Use ``directory``.

        Args:
            directory: a path or a ``file:`` URI; every machine of the cluster must see the same
                files there.
            fsync: sync files and directories, so that what was written survives a crash of the
                machine and not only of the process.
            seal: signs and verifies blobs (``local_storage.py``); by default neither is done.

        Raises:
            ConfigurationError: it is a URI of another scheme.
        """
        self._root = _path_of(str(directory))
        self._fsync = fsync
        self._seal: Seal = seal or NoSeal()
        #: It was seen to exist, by this process or the one that sent the storage here.
        self._seen = False
        #: Directories known to exist, to save a system call per write.
        self._known: set[Path] = set()

    def __getstate__(self) -> tuple[Path, bool, bool, Seal]:
        """Return what a worker needs: the place, not what this process knows of it."""
        return self._root, self._fsync, self._seen, self._seal

    def __setstate__(self, state: tuple[Path, bool, bool, Seal]) -> None:
        self._root, self._fsync, self._seen, self._seal = state
        self._known = set()

    def __repr__(self) -> str:
        return f"LocalStorage({str(self._root)!r}, fsync={self._fsync})"

    @property
    def location(self) -> str:
        """The directory's absolute path."""
        return str(self._root)

    @property
    def poll_interval(self) -> float:
        """A look into a directory costs next to nothing."""
        return 0.5

    @property
    def pack_below(self) -> int:
        """Files of a directory are not packed."""
        return 0

    def bind(self, job_id: str) -> None:
        """Sign and verify for this job, from now on."""
        self._seal.bind(job_id)

    def check(self) -> None:
        """Judge directory and key before anything is read; nothing is written.

        Raises:
            DirectoryError: it is not a directory, or others could write to it; if there is a key,
                that gives a warning only.
            ConfigurationError: the key cannot be used.
        """
        if isinstance(self._seal, HmacSeal):
            self._seal.read_key()
        require_private(CHECKPOINTS, self._root, signed=not isinstance(self._seal, NoSeal))
        with self._explained():
            if self._root.exists() and not self._root.is_dir():
                make_private(self._root)  # raises

    def probe(self) -> None:
        """Make sure that something can be written now.

        Raises:
            DirectoryError: nothing can be, for the reason that it says.
        """
        probe(CHECKPOINTS, self._root)
        self._seen = True

    def is_there(self) -> bool:
        """Return whether the directory exists."""
        return self._root.is_dir()

    def gone(self) -> DirectoryError:
        """Return the error for a directory that was used and is not there any more."""
        missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return directory_error(CHECKPOINTS, self._root, missing)

    def directory(self, name: str) -> Path:
        """Make a directory for somebody who writes files there himself."""
        path = self._resolve(name)
        with self._explained():
            self._make_directory(path)
        return path

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Create ``name``; False, and nothing written, if it exists."""
        target = self._resolve(name)
        content = self._seal.close(name, content)
        with self._explained():
            if target.exists():  # the usual loser is seen without writing anything
                return False
            return self._publish(lambda temporary: self._write_file(temporary, content), target)

    def write(self, name: str, content: bytes) -> None:
        """Create or replace ``name``."""
        target = self._resolve(name)
        content = self._seal.close(name, content)
        with self._explained(), self._temporary() as temporary:
            self._write_file(temporary, content)
            self._make_directory(target.parent)
            temporary.replace(target)
            self._sync_directory(target.parent)

    def read(self, name: str) -> bytes:
        """The content; raises FileNotFoundError."""
        with self._explained():
            stored = self._resolve(name).read_bytes()
        return self._seal.open(name, stored, self.location)

    def upload(self, local: Path, name: str) -> None:
        """Make ``name`` from a local file that will never change; FileExistsError if it exists.

        A copy, also where a hard link is possible: what damages one file must spare the other.
        """
        target = self._resolve(name)

        def copy(temporary: Path) -> None:
            with local.open("rb") as content, _create(temporary) as blob:
                _copy(content, blob)
                if self._fsync:
                    os.fsync(blob.fileno())

        with self._explained():
            if not self._publish(copy, target):
                raise FileExistsError(str(target))

    def download(self, name: str, local: Path) -> None:
        """Make the local file from ``name``, never to be changed; raises FileNotFoundError."""
        source = self._resolve(name)
        with explained(LOCAL_STATE, local.parent):
            local.parent.mkdir(parents=True, exist_ok=True)
            local.unlink(missing_ok=True)
        with self._explained():
            content = source.open("rb")
        with content, explained(LOCAL_STATE, local.parent), _create(local) as copy:
            _copy(content, copy)

    def exists(self, name: str) -> bool:
        """Return whether there is such a blob."""
        with self._explained():
            return self._resolve(name).is_file()

    @contextlib.contextmanager
    def local_file(self, name: str, *, keep: bool = False) -> Iterator[Path]:
        """The file of the blob, which nobody may change."""
        del keep
        yield self._resolve(name)

    def list_names(self, prefix: str) -> Iterator[str]:
        """All names below the directory ``prefix``, sorted."""
        names: list[str] = []
        start = self._resolve(prefix) if prefix.strip("/") else self._root
        with self._explained():
            # An error must not look like an empty directory: a job would begin again.
            for directory, _, files in os.walk(start, onerror=_raise_unless_missing):
                relative = Path(directory).relative_to(self._root).as_posix()
                head = "" if relative == "." else relative + "/"
                names.extend(head + file for file in files)
            if not names:
                self._require_seen()
        return iter(sorted(names))

    def delete(self, names: Iterable[str]) -> None:
        """Delete; names that do not exist are passed over.

        Not synced: a deletion that a crash undoes leaves garbage, which is found again.
        """
        with self._explained():
            for name in names:
                self._resolve(name).unlink(missing_ok=True)

    def remove_empty(self, directories: Iterable[str]) -> None:
        """Remove these directories and the root, but those in which somebody keeps something."""
        for name in directories:
            for each, _, _ in os.walk(self._root / name, topdown=False):
                with contextlib.suppress(OSError):
                    Path(each).rmdir()
        with contextlib.suppress(OSError):
            self._root.rmdir()

    def _resolve(self, name: str) -> Path:
        return self._root.joinpath(*parts_of_name(name))

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what the operating system refuses into DirectoryError.

        A name that is missing, or taken, is part of the contract; but not if all of the directory
        is missing that was there.
        """
        try:
            yield
        except FileExistsError:
            raise
        except FileNotFoundError:
            self._require_seen()
            raise
        except OSError as error:
            raise directory_error(CHECKPOINTS, self._root, error) from error

    def _require_seen(self) -> None:
        """Raise DirectoryError if the directory was there and is not any more."""
        if self._seen and not self._root.is_dir():
            raise self.gone()

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[Path]:
        """A name for a file that is to be moved away or deleted."""
        directory = self._root / TEMPORARY_DIRECTORY
        self._make_directory(directory)
        path = directory / uuid.uuid4().hex
        try:
            yield path
        finally:
            with contextlib.suppress(OSError):  # what went wrong before is to be told
                path.unlink(missing_ok=True)

    def _publish(self, write: Callable[[Path], object], target: Path) -> bool:
        with self._temporary() as temporary:
            write(temporary)
            self._make_directory(target.parent)
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            self._sync_directory(target.parent)
        return True

    def _write_file(self, path: Path, content: bytes) -> None:
        try:
            blob = _create(path)
        except FileNotFoundError:  # somebody removed the directory: make it again, once
            self._known.clear()
            self._make_directory(path.parent)
            blob = _create(path)
        with blob as file:
            file.write(content)
            file.flush()
            if self._fsync:
                os.fsync(file.fileno())

    def _make_directory(self, directory: Path) -> None:
        """Make it and its parents, each durable in its own parent."""
        if directory in self._known:
            return
        if not directory.is_dir():
            if directory == self._root:
                self._require_seen()
            if directory.parent != directory:
                self._make_directory(directory.parent)
            make_private(directory)
            self._sync_directory(directory.parent)
        self._known.add(directory)
        if directory == self._root:
            self._seen = True

    def _sync_directory(self, directory: Path) -> None:
        if self._fsync:
            sync_directory(directory)


def parts_of_name(name: str) -> list[str]:
    """Return the directories and the last part of the name of a blob.

    Raises:
        ValueError: it would lead out of the storage.
    """
    parts = name.strip("/").split("/")
    if "" in parts or ".." in parts or "." in parts:
        message = f"{name!r} is not a name of a blob: it must be relative, without '.' and '..'"
        raise ValueError(message)
    return parts


def _copy(content: BinaryIO, copy: BinaryIO) -> None:
    """Copy a file, in the kernel if possible: some file systems then share the blocks."""
    try:
        while os.copy_file_range(content.fileno(), copy.fileno(), _COPY_BYTES):
            pass
    except OSError as error:
        if error.errno not in _NO_COPY_IN_KERNEL:
            raise
        shutil.copyfileobj(content, copy, 1 << 20)  # from where it stopped: both have moved
    copy.flush()


def _create(path: Path) -> BinaryIO:
    """A new file that only its owner can read, whatever the umask."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE)
    return os.fdopen(descriptor, "wb")


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _path_of(directory: str) -> Path:
    parts = urlsplit(directory)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path)).absolute()
    if "://" in directory:
        message = f"checkpoint directory {directory!r}: {unsupported_scheme(directory)}"
        raise ConfigurationError(message)
    return Path(directory).expanduser().absolute()
