"""Signing a checkpoint directory that was written without a key.

What it is: what ``millstream checkpoints DIR sign`` does.  Whoever signs vouches for what is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.checkpoint.inspect import verify_checkpoints
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.signature import HmacSeal, is_sealed
from millstream.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator


#: Where blobs lie that are signed; state files are named in manifests with their digests.
_SIGNED: Final = ("log/", "sources/", "sinks/")


class _UnsignedToo(HmacSeal):
    """Reads what is not signed yet, and what was signed with the same key."""

    def open(self, name: str, stored: bytes, location: str) -> bytes:
        return super().open(name, stored, location) if is_sealed(stored) else stored


def sign_directory(directory: str, key_file: str) -> int:
    """Sign everything that a job reads from its checkpoint directory.

    The job must not run.  If this is interrupted it is done again; what is signed stays as it is.

    Args:
        directory: the checkpoint directory.
        key_file: the file with the key.

    Returns:
        How many blobs are signed.

    Raises:
        CheckpointError: something is damaged or was signed with another key.
        ConfigurationError: the key cannot be used.
        DirectoryError: the directory cannot be written to.
    """
    storage = LocalStorage(directory, seal=_UnsignedToo(key_file))
    storage.check()
    problems = verify_checkpoints(storage).problems
    if problems:
        told = "; ".join(f"{each.name}: {each.reason}" for each in problems)
        message = f"{storage.location} is not signed, for something in it is wrong: {told}"
        raise CheckpointError(message)
    names = list(_signed_names(storage))
    for name in names:
        storage.write(name, storage.read(name))
    return len(names)


def _signed_names(storage: LocalStorage) -> Iterator[str]:
    for name in storage.list_names(""):
        if name.startswith(_SIGNED) or ("/" not in name and name.endswith(".json")):
            yield name
