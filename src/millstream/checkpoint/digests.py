"""Digests: what a manifest says of the content of the files that it names.

What it is: "sha256:" and the digest of the content, which nobody can make another file for.  Older
releases wrote a CRC-32, which is read as "crc32:" and finds accidents only.

Read next: ``state/snapshot_files.py``, ``checkpoint/manifest_log.py``.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from millstream.contracts.key_value_store import StateFile

__all__ = ["blocks_of", "difference", "digest_of"]

_BLOCK: Final = 1 << 20


def digest_of(blocks: Iterable[bytes], algorithm: str = "sha256") -> tuple[int, str]:
    """Size in bytes and digest of some content.

    Args:
        blocks: the content, in pieces.
        algorithm: "sha256", or "crc32" to compare with what older releases wrote.

    Raises:
        ValueError: there is no such algorithm.
    """
    size = checksum = 0
    sha256 = hashlib.sha256()
    if algorithm not in ("sha256", "crc32"):
        message = f"its digest is of an unknown kind, {algorithm!r}"
        raise ValueError(message)
    for block in blocks:
        size += len(block)
        if algorithm == "sha256":
            sha256.update(block)
        else:
            checksum = zlib.crc32(block, checksum)
    found = sha256.hexdigest() if algorithm == "sha256" else f"{checksum:08x}"
    return size, f"{algorithm}:{found}"


def blocks_of(path: Path) -> Iterator[bytes]:
    """The content of a file in pieces of a mebibyte."""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def difference(blocks: Iterable[bytes], file: StateFile) -> str | None:
    """In what a copy of ``file`` differs from what was uploaded; None if in nothing."""
    try:
        size, digest = digest_of(blocks, file["digest"].partition(":")[0])
    except ValueError as error:
        return str(error)
    if size != file["size"]:
        return f"it has {size} bytes instead of {file['size']}"
    return None if digest == file["digest"] else f"its digest is {digest}, not {file['digest']}"
