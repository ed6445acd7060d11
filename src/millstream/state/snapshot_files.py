"""Files of a snapshot: names, upload and verified download.

What it is: what both backends need to move immutable files between a local directory and the
checkpoint storage.
What it is not: knowledge of what is in the files.

Read next: ``state/backends/rocksdb.py``.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from millstream.checkpoint.model import blocks_of, difference, digest_of
from millstream.contracts.key_value_store import StateFile
from millstream.crash_points import crash_point
from millstream.errors import CorruptCheckpointError
from millstream.state.known_files import remember_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import StateHandle

__all__ = [
    "damaged_checkpoint",
    "directory_name",
    "download_snapshot",
    "upload_file",
    "upload_files",
]

#: Files that are uploaded side by side.
_AT_A_TIME: Final = 4
#: By process: one that was forked has none of the threads.  They stay, for to begin some at every
#: checkpoint takes as long as they work.
_pools: Final[dict[int, ThreadPoolExecutor]] = {}


def directory_name(uid: str) -> str:
    """``uid`` as the name of one directory, also where it holds slashes or dots."""
    return quote(uid, safe="").replace(".", "%2E")


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
    size, digest = digest_of(blocks_of(path))
    remote = f"state/{directory_name(uid)}/{snapshot}-{local}"
    crash_point("state.upload.before")
    storage.upload(path, remote)
    remember_file(path, digest)
    return StateFile(local=local, remote=remote, size=size, digest=digest)


def upload_files(
    storage: CheckpointStorage, paths: Sequence[Path], uid: str, snapshot: str
) -> dict[str, StateFile]:
    """Put files into the storage, some at a time: each waits for a disk or a network.

    Args:
        storage: where to.
        paths: the files; they must not change any more.
        uid: of the operator.
        snapshot: unique id of the snapshot that first holds them.

    Returns:
        What was made of each, by its name.
    """

    def upload(path: Path) -> StateFile:
        return upload_file(storage, path, uid, snapshot, path.name)

    others = [_pool().submit(upload, path) for path in paths[1:]]
    try:
        made = [upload(path) for path in paths[:1]]
        made += [each.result() for each in others]
    finally:
        # Nothing is uploaded any more when this ends, be it with an error.
        for each in others:
            each.cancel()
        wait(others)
    return {path.name: file for path, file in zip(paths, made, strict=True)}


def _pool() -> ThreadPoolExecutor:
    process = os.getpid()
    if process not in _pools:
        _pools.setdefault(process, ThreadPoolExecutor(_AT_A_TIME, "millstream-upload-file"))
    return _pools[process]


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
            raise damaged_checkpoint(storage, f"state file {file['remote']} is missing") from error
        reason = difference(blocks_of(path), file)
        if reason is not None:
            raise damaged_checkpoint(storage, f"state file {file['remote']} is corrupt: {reason}")
        remember_file(path, file["digest"])


def damaged_checkpoint(storage: CheckpointStorage, what: str) -> CorruptCheckpointError:
    """Going on from an older checkpoint is no advice: its successors' output is committed."""
    message = (
        f"{storage.location}: {what}. Put the file back from a copy;"
        f" `millstream checkpoints {storage.location} verify` lists all that are missing or damaged"
    )
    return CorruptCheckpointError(message)
