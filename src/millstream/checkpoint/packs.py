"""Small state files of a task's snapshot in one object: each request costs money and time.

Only object stores are packed; what a file is called says where it lies::

    state/pack-<id>!<offset>-<size>-<snapshot>-<file>

A pack is written when all files of the snapshot are gathered, before the task acknowledges.  Later
snapshots may name its files, as they may name any file that was uploaded, and it is kept as long as
a checkpoint names one of them.

Invariant: no acknowledgement leaves this process while a pack is owed that files were given names
in.  A pack that could not be written is kept, and written before the next one; if the process dies
before, nobody has heard of it.
"""

from __future__ import annotations

import contextlib
import re
import threading
import uuid
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.checkpoint_storage import CheckpointStorage


_NAME: Final = re.compile(r"(?P<pack>state/pack-[0-9a-f]{32})!(?P<offset>\d+)-(?P<size>\d+)-.*")
#: Bytes above which a pack is full: it is in memory.
_FULL: Final = 16 << 20


class Pack:
    """An object that is being gathered."""

    def __init__(self) -> None:
        self.name = f"state/pack-{uuid.uuid4().hex}"
        self.content = bytearray()

    def add(self, content: bytes, label: str) -> str:
        """Add a file; returns its name in the storage.

        Args:
            content: of the file.
            label: snapshot and file, for people.
        """
        offset = len(self.content)
        self.content += content
        return f"{self.name}!{offset}-{len(content)}-{label}"


class _Gathering(threading.local):
    """The pack that the snapshot of this thread goes to; None: files are uploaded one by one."""

    pack: Pack | None = None


_gathering: Final = _Gathering()
#: Location of the storage -> packs in which files have names, and which are not written.
_owed: Final[dict[str, list[Pack]]] = {}
_lock: Final = threading.Lock()


def pack_for(storage: CheckpointStorage, size: int) -> Pack | None:
    """Return the pack that a state file of a size, in bytes, is to go to; None: it is uploaded."""
    pack = _gathering.pack
    if pack is None or not 0 < size <= storage.pack_below or len(pack.content) + size > _FULL:
        return None
    return pack


@contextlib.contextmanager
def packing(storage: CheckpointStorage) -> Iterator[None]:
    """Gather the small state files that this thread uploads meanwhile, and write them at the end.

    Raises:
        DirectoryError: the pack, or one that is owed, cannot be written.
    """
    if not storage.pack_below:
        yield
        return
    # Before anything is gathered: while the storage is away, no snapshot adds to what is in memory.
    _write_owed(storage)
    pack = _gathering.pack = Pack()
    try:
        yield
    finally:
        _gathering.pack = None
        if pack.content:
            with _lock:
                _owed.setdefault(storage.location, []).append(pack)
    _write_owed(storage)


def _write_owed(storage: CheckpointStorage) -> None:
    with _lock:
        owed = _owed.get(storage.location, [])
        while owed:
            storage.write(owed[0].name, bytes(owed[0].content))
            del owed[0]


def pack_of(name: str) -> str | None:
    """Return the pack that a state file lies in by its name; None: it is a blob."""
    place = place_in_pack(name)
    return None if place is None else place[0]


def place_in_pack(name: str) -> tuple[str, int, int] | None:
    """Return pack, offset and size in bytes of a state file by its name; None: it is a blob."""
    found = _NAME.fullmatch(name)
    return None if found is None else (found["pack"], int(found["offset"]), int(found["size"]))
