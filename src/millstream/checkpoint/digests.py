"""Digests: what a manifest says of the content of the files that it names.

What it is: "sha256:" and the digest of the content, which nobody can make another file for.

Read next: ``state/snapshot_files.py``, ``checkpoint/manifest_log.py``.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from millstream.contracts.key_value_store import StateFile

__all__ = ["blocks_of", "difference", "digest_of"]

_BLOCK: Final = 1 << 20


def digest_of(blocks: Iterable[bytes]) -> tuple[int, str]:
    """Return size in bytes and digest of some content, given in pieces."""
    size = 0
    sha256 = hashlib.sha256()
    for block in blocks:
        size += len(block)
        sha256.update(block)
    return size, f"sha256:{sha256.hexdigest()}"


def blocks_of(path: Path) -> Iterator[bytes]:
    """The content of a file in pieces of a mebibyte."""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def difference(blocks: Iterable[bytes], file: StateFile) -> str | None:
    """Describe how a copy of ``file`` differs from what was uploaded; None if it does not."""
    algorithm = file["digest"].partition(":")[0]
    if algorithm != "sha256":
        return f"its digest is of an unknown kind, {algorithm!r}"
    size, digest = digest_of(blocks)
    if size != file["size"]:
        return f"it has {size} bytes instead of {file['size']}"
    return None if digest == file["digest"] else f"its digest is {digest}, not {file['digest']}"
