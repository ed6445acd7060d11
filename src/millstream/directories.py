"""Directories of Millstream: owner-only, checked for ownership; one per run, removed at exit.

Sockets, archives, temporary checkpoints and Spark's temporary files (the pickled job graph among
them) are in one directory per process.  A killed process leaves its directory, and the next one of
the same user removes it: each holds a file that its process (and the JVM, which inherits the lock)
keeps locked for as long as it lives, so nothing of a living run is removed, whatever process
numbers say.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import logging
import os
import pwd
import re
import secrets
import shutil
import stat
import sys
import tempfile
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.errors import DirectoryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_LOG: Final = logging.getLogger("millstream")
PRIVATE_DIRECTORY: Final = 0o700
PRIVATE_FILE: Final = 0o600
#: A directory in which less than this can be written is as good as full.
_PROBE_BYTES: Final = 16 * 1024
_KIBI: Final = 1024

#: Of which directories this process has said that they are not private.
_warned: Final[set[Path]] = set()


def is_alive(process: int) -> bool:
    """Return whether a process of this machine runs; one that nobody has waited for does not."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{process}/stat").read_bytes()
        return status.rpartition(b")")[2].split()[0] != b"Z"
    return True


@dataclass(frozen=True, slots=True)
class DirectoryUse:
    """The use of a directory."""

    #: For messages.
    name: str
    #: What sets another one.
    setting: str


CHECKPOINTS: Final = DirectoryUse("checkpoint directory", "execution.checkpointing.dir")
LOCAL_STATE: Final = DirectoryUse("local state directory", "millstream.local-directory")
TEMPORARY: Final = DirectoryUse("temporary directory", "the environment variable TMPDIR")


def default_local_directory() -> Path:
    """Where tasks keep working state if nothing is set: a temporary directory of this user's."""
    return Path(tempfile.gettempdir()) / f"millstream-{os.geteuid()}"


def make_private(path: Path) -> None:
    """Make a directory that only its owner can enter, whatever the umask, and its parents.

    One that exists stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    if path.is_dir():
        return
    if not path.parent.exists():
        make_private(path.parent)
    with contextlib.suppress(FileExistsError):  # by another process, which does the same
        path.mkdir(PRIVATE_DIRECTORY)
        if stat.S_IMODE(path.stat().st_mode) != PRIVATE_DIRECTORY:
            path.chmod(PRIVATE_DIRECTORY)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def require_private(use: DirectoryUse, path: Path, *, signed: bool = False) -> None:
    """Refuse a directory to which others can write, for what is read from it can run code.

    As ssh does with its files: it must belong to this user or to root, and not be writable by
    everybody.  Where a group may write, or others may read, a warning says so: a umask of 002 makes
    such directories on many systems.

    Args:
        use: what it is for.
        path: the directory; one that does not exist is passed over.
        signed: what is in it is verified before it is used, so that only a warning is given.

    Raises:
        DirectoryError: it belongs to another user, or everybody may write to it.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISDIR(found.st_mode):
        return  # said by whoever makes it
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWOTH and (mode & stat.S_ISVTX or found.st_uid == 0 != os.geteuid()):
        # As /tmp: to close it would take it from the others who use it.
        problem = (
            f"is shared by all users of the machine (mode {mode:04o}, as that of /tmp), who could"
            f" run code in the job through what they put there. Set {use.setting} to a private"
            f" directory in it, such as {path / _own_name()}: Millstream makes it private"
        )
    elif found.st_uid not in (os.geteuid(), 0):
        problem = (
            f"belongs to {_user(found.st_uid)}, and this process runs as {_user(os.geteuid())}:"
            " its owner could run code in the job through what is stored there. Run"
            f" `chown -R {_user(os.geteuid())} {path}` if that is meant, or set {use.setting} to"
            " a directory that you own"
        )
    elif mode & stat.S_IWOTH:
        problem = (
            f"is writable by everybody (mode {mode:04o}), who could run code in the job through"
            f" what is stored there. Run `chmod -R go-rwx {path}`, having made sure that nobody"
            " has changed anything there"
        )
    else:
        if mode & 0o077 and path not in _warned:
            _warned.add(path)
            _LOG.warning(
                "the %s %s can be %s by other users than its owner (mode %04o): `chmod -R go-rwx"
                " %s` makes it private, as Millstream makes its directories",
                use.name,
                path,
                "changed" if mode & stat.S_IWGRP else "read",
                mode,
                path,
            )
        return
    if signed:
        if path in _warned:
            return
        _warned.add(path)
        _LOG.warning("the %s %s %s", use.name, path, problem)
        return
    message = f"the {use.name} {path} {problem}"
    raise DirectoryError(message)


def _own_name() -> str:
    """The name of a directory that is nobody else's by chance."""
    return f"millstream-{_user(os.geteuid()).rpartition(' ')[2]}"


def make_own(use: DirectoryUse, path: Path) -> None:
    """Make a directory of this user's alone, or see that it is one; closed to others if it is not.

    Stricter than ``require_private``: for directories that only Millstream makes.

    Raises:
        DirectoryError: it is a symbolic link, belongs to another user, or everybody could write.
        OSError: it cannot be made.
    """
    if not path.is_symlink():
        make_private(path)
        found = path.stat()
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid == os.geteuid() and mode != PRIVATE_DIRECTORY and not mode & stat.S_IWOTH:
            path.chmod(PRIVATE_DIRECTORY)
        require_private(use, path)
        if found.st_uid == os.geteuid():
            return
        problem = f"belongs to {_user(found.st_uid)}, not to {_user(os.geteuid())}"
    else:
        problem = "is a symbolic link, which somebody else may have made"
    message = f"the {use.name} {path} {problem}. Remove it, or set {use.setting} to another one"
    raise DirectoryError(message)


def probe(use: DirectoryUse, path: Path) -> None:
    """Find out whether something can be written to a directory, which is made if there is none.

    Raises:
        DirectoryError: nothing can.
    """
    file = path / f".probe-{uuid.uuid4().hex}"
    with explained(use, path, made=True):
        make_private(path)
    with explained(use, path):
        try:
            descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(bytes(_PROBE_BYTES))
        finally:
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def explained(use: DirectoryUse, path: Path, *, made: bool = False) -> Iterator[None]:
    """Turn an OSError that concerns the directory ``path`` into a DirectoryError.

    ``made`` says that it is to be made: one that is missing then was never there.

    That a file in it is missing is the caller's to judge, as long as the directory is there.
    """
    try:
        yield
    except FileNotFoundError as error:
        if path.is_dir():
            raise
        raise directory_error(use, path, error, made=made) from error
    except OSError as error:
        raise directory_error(use, path, error) from error


def error_in_text(text: str) -> OSError | None:
    """The error of the operating system that a library or the JVM tells of in words, if any."""
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
        if os.strerror(number) in text:
            return OSError(number, os.strerror(number))
    return None


def _nearest(path: Path) -> str:
    """Why a directory cannot be made, as far as the paths above it tell."""
    if path.is_symlink():
        return f"it is a link to {path.readlink()}, which does not exist"
    parent = next(each for each in path.parents if each.exists())
    return f"nothing can be made in {parent}"


def directory_error(
    use: DirectoryUse, path: Path, error: OSError, *, made: bool = False
) -> DirectoryError:
    """Return what an error of the operating system says of a directory, and what to do.

    Args:
        use: what the directory is for.
        path: the directory.
        error: of something that was tried in it.
        made: whether it was to be made: it was never there.
    """
    there = f"the {use.name} {path}"
    other = f"set {use.setting} to another directory"
    number = error.errno
    if number in (errno.ENOSPC, errno.EDQUOT):
        message = (
            f"{there} is full ({_room(path, number)}). Free space there, or {other}; a running job"
            " continues when there is space again, if its restart strategy still lets it"
        )
    elif number == errno.EROFS:
        message = f"{there} is on a read-only file system. Mount it writable, or {other}"
    elif number in (errno.EACCES, errno.EPERM):
        message = (
            f"{there} may not be written by {_user(os.geteuid())}: {_owner(path)}. Change owner or"
            f" mode, or {other}"
        )
    elif number in (errno.ENOTDIR, errno.EEXIST):
        message = f"{there} cannot be used: {_file_in(path, error)}. Move that away, or {other}"
    elif number == errno.ENOENT and made:
        why = _nearest(path)
        message = f"{there} is not there and cannot be made: {why}. Make it yourself, or {other}"
    elif number == errno.ENOENT:
        message = (
            f"{there} has disappeared while it was in use. Put it back (is its file system"
            " mounted?); the job does not make a new one, for it would start from scratch there"
        )
    else:
        reason = error.strerror or str(error)
        place = f" ({error.filename})" if error.filename else ""
        message = f"{there} cannot be used: {reason}{place}. See to that, or {other}"
    return DirectoryError(message)


def _room(path: Path, number: int) -> str:
    existing = _existing(path)
    if number == errno.EDQUOT:
        return f"the disk quota of {_user(os.geteuid())} is used up"
    usage = shutil.disk_usage(existing)
    files = os.statvfs(existing)
    if files.f_files and not files.f_favail:
        return "its file system can hold no more files"
    return f"{_size(usage.free)} of {_size(usage.total)} are free"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < _KIBI:
            return f"{size:.0f} {unit}"
        size /= _KIBI
    return f"{size:.1f} GiB"


def _owner(path: Path) -> str:
    existing = _existing(path)
    found = existing.stat()
    return f"{existing} belongs to {_user(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o}"


def _file_in(path: Path, error: OSError) -> str:
    """Return which file is where a directory should be."""
    for tried in (_existing(path), _existing(Path(error.filename or path))):
        if not tried.is_dir():
            return f"{tried} is a file, not a directory"
    return f"a file is where a directory should be ({error.filename})"


def _existing(path: Path) -> Path:
    """The path, or the nearest of its parents that exists."""
    for candidate in (path, *path.parents):
        with contextlib.suppress(OSError):
            if candidate.exists():
                return candidate
    return Path("/")


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def sync_directory(directory: Path) -> None:
    """Make the entries of a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(directory: Path, *, fsync: bool) -> None:
    """Make a directory and its parents, each durable in its own parent."""
    if directory.is_dir():
        return
    make_directories(directory.parent, fsync=fsync)
    directory.mkdir(exist_ok=True)
    if fsync:
        sync_directory(directory.parent)


#: The rest of the name is short: sockets lie below.
_PREFIX: Final = "millstream-run-"
_NAME: Final = re.compile(rf"{_PREFIX}[0-9a-f]{{6}}")
#: A directory that has no lock yet is called otherwise, so that nobody takes it for left.
_NEW: Final = "millstream-new-"
_LOCK: Final = "lock"
#: Bytes that the address of a Unix domain socket may have (103 on macOS).
_LONGEST_ADDRESS: Final = 107 if sys.platform == "linux" else 103


class RunDirectory:
    """A new, locked directory, removed when Python exits.

    Args:
        parent: where it is to be.
    """

    def __init__(self, parent: Path) -> None:
        self._owner = os.getpid()
        new = Path(tempfile.mkdtemp(prefix=_NEW, dir=parent))
        #: Open for as long as the process lives; a child that inherits it has the lock as well.
        self.lock = os.open(new / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        os.write(self.lock, f"process {self._owner}\n".encode())
        self.path = _rename(new, parent)
        atexit.register(self.remove)

    def remove(self) -> None:
        """Let go of it; it is removed unless the JVM still lives.  A second time does nothing."""
        atexit.unregister(self.remove)
        # A forked child has the lock of its parent, and no business here.
        if self.lock >= 0 and self._owner == os.getpid():
            os.close(self.lock)
            self.lock = -1
            _remove_unless_held(self.path)


def _rename(new: Path, parent: Path) -> Path:
    while True:
        path = parent / f"{_PREFIX}{secrets.token_hex(3)}"
        # To rename onto another one fails: that has its lock in it.
        with contextlib.suppress(OSError):
            return new.rename(path)


def remove_left(parent: Path) -> list[Path]:
    """Remove the directories of this user's runs that have ended without doing so.

    Args:
        parent: where they are.

    Returns:
        What was removed.
    """
    candidates = [path for path in parent.glob(f"{_PREFIX}*") if _NAME.fullmatch(path.name)]
    return [path for path in candidates if _is_own(path) and _remove_unless_held(path)]


def live_run_directories(parents: Iterable[Path] | None = None) -> list[Path]:
    """Return the directories of this user's runs that have not ended.

    Args:
        parents: where they are; by default where ``run_directory`` and ``socket_directory`` make
            them.
    """
    places = parents or {Path(tempfile.gettempdir()), Path("/tmp")}  # noqa: S108 - only looked at
    candidates = [path for parent in places for path in parent.glob(f"{_PREFIX}*")]
    found = [path for path in candidates if _NAME.fullmatch(path.name) and _is_own(path)]
    return sorted(path for path in found if _is_held(path))


def _is_held(path: Path) -> bool:
    """Return whether a process has the lock of a directory."""
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        # Shared, so that two who ask at the same time do not take each other for the owner.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def _is_own(path: Path) -> bool:
    """Return whether this user made it, and nobody else can have put anything there."""
    try:
        found = path.lstat()
    except OSError:
        return False
    private = not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and private


def _remove_unless_held(path: Path) -> bool:
    """Remove a directory of which nobody has the lock; whether it was."""
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False  # another process has just removed it
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have removed the directory, and a third made one of the same name.
        if not os.path.samestat(os.fstat(lock), (path / _LOCK).stat()):
            return False
        # The lock last: without it, what a failure leaves would be left for good.
        for entry in path.iterdir():
            if entry.name != _LOCK:
                _remove(entry)
    except OSError:
        return False
    else:
        shutil.rmtree(path, ignore_errors=True)
        return True
    finally:
        os.close(lock)


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


_of_process: dict[tuple[int, Path], RunDirectory] = {}
_making: Final = threading.Lock()


def run_directory(parent: Path | None = None) -> RunDirectory:
    """The directory of this process, made when first asked for.

    What dead runs have left beside it is removed then.

    Args:
        parent: where; the system's temporary directory unless given.
    """
    directory = Path(parent or tempfile.gettempdir()).absolute()
    key = (os.getpid(), directory)
    with _making:
        found = _of_process.get(key)
        if found is None or found.lock < 0 or not found.path.exists():
            directory.mkdir(parents=True, exist_ok=True)
            remove_left(directory)
            found = _of_process[key] = RunDirectory(directory)
        return found


def socket_directory(length: int) -> Path:
    """The directory of this process for Unix domain sockets, whose addresses must be short.

    Args:
        length: characters of the socket's name.

    Returns:
        That of ``run_directory``, or one in ``/tmp`` if its path is too long.
    """
    path = run_directory().path
    if len(os.fsencode(path)) + 1 + length <= _LONGEST_ADDRESS:
        return path
    return run_directory(Path("/tmp")).path  # noqa: S108 - it is private and locked
