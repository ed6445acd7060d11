"""Which processes of this machine hold locks on files: for messages.

What it is: a look into ``/proc``.  A lock of the operating system goes with its process and cannot
be taken from it, so all that a message can do is to name the process.

What it is not: complete.  Where there is no ``/proc``, and for processes of other machines or
containers, nothing is found.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["locked_by"]


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
