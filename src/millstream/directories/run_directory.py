"""The directory of a run: for what nobody needs once its process has ended.

What it is: sockets, archives, temporary checkpoints and Spark's own temporary files (the pickled
job graph among them) are in one directory per process, which only its user can enter.  It is
removed at exit.  A process that is killed leaves it, and the next one of the same user removes it:
each directory holds a file that its process keeps locked for as long as it lives, and so does the
JVM, which inherits the lock.  The system lets go of it however a process ends, so that nothing of a
living run is ever taken for left, whatever process numbers say.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

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


def _is_own(path: Path) -> bool:
    """Whether this user made it, and nobody else can have put anything there."""
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
