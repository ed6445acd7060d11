"""Files of a snapshot: names, checksums, upload and verified download.

What it is: what both backends need to move immutable files between a local directory and the
checkpoint storage.
What it is not: knowledge of what is in the files.

Read next: ``state/rocksdb.py``.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from millstream.crash_points import crash_point
from millstream.errors import CorruptCheckpointError
from millstream.state.store import StateFile

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.checkpoint.storage import CheckpointStorage
    from millstream.state.store import StateHandle

__all__ = ["checksum_of", "directory_name", "download_snapshot", "upload_file"]

_BLOCK: Final = 1 << 20


def directory_name(uid: str) -> str:
    """``uid`` as the name of one directory, also where it holds slashes or dots."""
    return quote(uid, safe="").replace(".", "%2E")


def checksum_of(path: Path) -> tuple[int, int]:
    """Size in bytes and CRC-32 of a file."""
    size = checksum = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            size += len(block)
            checksum = zlib.crc32(block, checksum)
    return size, checksum


def upload_file(
    storage: CheckpointStorage, path: Path, uid: str, snapshot: str, local: str
) -> StateFile:
    """Put ``path`` into the storage under a name that no other snapshot uses.

    Args:
        storage: where to.
        path: the file; it must not change any more.
        uid: of the operator.
        snapshot: unique id of the snapshot that first holds the file.
        local: the file's name inside the store's directory.
    """
    size, checksum = checksum_of(path)
    remote = f"state/{directory_name(uid)}/{snapshot}-{local}"
    crash_point("state.upload.before")
    storage.upload(path, remote)
    return StateFile(local=local, remote=remote, size=size, checksum=checksum)


def download_snapshot(storage: CheckpointStorage, handle: StateHandle, directory: Path) -> None:
    """Bring every file of ``handle`` into ``directory`` and verify it.

    Raises:
        CorruptCheckpointError: a file is missing or is not what was uploaded.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for file in handle["files"]:
        path = directory / file["local"]
        try:
            storage.download(file["remote"], path)
        except FileNotFoundError as error:
            message = (
                f"{storage.location}: state file {file['remote']} is missing; the checkpoint"
                " cannot be restored, try an older one"
            )
            raise CorruptCheckpointError(message) from error
        found = checksum_of(path)
        if found != (file["size"], file["checksum"]):
            message = (
                f"{storage.location}: state file {file['remote']} is corrupt: it has"
                f" {found[0]} bytes and checksum {found[1]:08x}, written were {file['size']}"
                f" and {file['checksum']:08x}; try an older checkpoint"
            )
            raise CorruptCheckpointError(message)
