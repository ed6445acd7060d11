"""Files of local copies whose content this process knows: it wrote them, or has read them through.

What it is: per file (by device and inode, so that hard links count as one) its size, its time of
change and the digest of its content.  A copy whose files are all known need not be read again,
which would cost every epoch as much as the whole state is long.

What it is not: a proof against a medium that forgets: RocksDB's block checksums are.

Read next: ``state/local_copies.py``.
"""

from __future__ import annotations

import stat
import threading
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.model import blocks_of, difference

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from millstream.contracts.key_value_store import StateFile, StateHandle

__all__ = ["damage_of", "forget_files", "remember_file"]

#: Files that are looked at longest ago are forgotten first.
_MOST: Final = 100_000

#: (device, inode) -> size, time of change, digest; in the order in which they were looked at.
_known: Final[dict[tuple[int, int], tuple[int, int, str]]] = {}
#: For changes: snapshots are uploaded by a thread of their own.
_changing: Final = threading.Lock()


def remember_file(path: Path, digest: str) -> None:
    """Note that the file at ``path`` has the content with this digest."""
    _remember(path.stat(), digest)


def _remember(found: os.stat_result, digest: str) -> None:
    place = found.st_dev, found.st_ino
    with _changing:
        _known.pop(place, None)
        _known[place] = found.st_size, found.st_mtime_ns, digest
        if len(_known) > _MOST:
            del _known[next(iter(_known))]


def forget_files() -> None:
    """Know nothing any more: something was found to be damaged that was known to be whole."""
    with _changing:
        _known.clear()


def damage_of(directory: Path, handle: StateHandle, *, read_all: bool = False) -> str | None:
    """In what a local copy differs from what was uploaded; None if in nothing.

    Args:
        directory: the copy.
        handle: says which files it has, and their digests.
        read_all: read also the files that this process knows.
    """
    for file in handle["files"]:
        reason = _damage_of_file(directory / file["local"], file, read_all=read_all)
        if reason is not None:
            return f"{file['local']}: {reason}"
    return None


def _damage_of_file(path: Path, file: StateFile, *, read_all: bool) -> str | None:
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return "it is not a file"
        if found.st_size != file["size"]:
            return f"it has {found.st_size} bytes instead of {file['size']}"
        known = found.st_size, found.st_mtime_ns, file["digest"]
        if read_all or _known.get((found.st_dev, found.st_ino)) != known:
            reason = difference(blocks_of(path), file)
            if reason is not None:
                return reason
    except OSError as error:  # it is missing, or the disk cannot read it
        return error.strerror or str(error)
    _remember(found, file["digest"])
    return None
