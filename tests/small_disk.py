"""A file system of its own for a test, which is filled, freed and made read-only while it is used.

What it is: a tmpfs of a few megabytes.  Mode bits do not stop root, and a double would stop neither
Spark's JVM nor RocksDB: a full disk is only shown by a full disk.
"""

from __future__ import annotations

import contextlib
import errno
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SmallDisk", "may_mount"]

_BLOCK = 4096


class SmallDisk:
    """A mounted file system."""

    def __init__(self, path: Path, size: str = "4m") -> None:
        self.path = path
        path.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "millstream-test", str(path))

    def fill(self) -> None:
        """Leave no room at all."""
        with (self.path / "ballast").open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(_BLOCK))
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017 - it is what the loop ends by

    def free(self) -> None:
        """Make room again."""
        (self.path / "ballast").unlink()

    def make_read_only(self) -> None:
        """Let nobody write, not even root."""
        _run("mount", "-o", "remount,ro", str(self.path))

    def make_writable(self) -> None:
        """Undo that."""
        _run("mount", "-o", "remount,rw", str(self.path))

    def close(self) -> None:
        """Unmount it, whoever still uses it."""
        _run("umount", "--lazy", str(self.path))


def may_mount(path: Path) -> bool:
    """Whether this process may mount."""
    with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
        SmallDisk(path / "mounting").close()
        return True
    return False


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)
