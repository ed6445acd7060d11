"""Damage to files: what a disk, a cleaner of temporary directories or a user does to them.

What it is: ways to damage one file, and a damage to the local copies of a whole job.  A damaged
file is a new one in the place of the old, for hard links of that may be part of a checkpoint.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from pathlib import Path

__all__ = ["WAYS", "damage_file", "damage_local_copies"]

WAYS: Final = ("flipped", "truncated", "missing", "foreign")
#: Directories of snapshots that are still being made.
_UNFINISHED: Final = ("work-", "download-")


def damage_file(path: Path, how: str, chance: random.Random | None = None) -> None:
    """Damage a file.

    Args:
        path: the file.
        how: one of ``WAYS``: a flipped bit, an end cut off, no file, another of the same size.
        chance: chooses the place; the middle if None.
    """
    content = bytearray(path.read_bytes())
    place = len(content) // 2 if chance is None else chance.randrange(len(content))
    if how == "missing":
        path.unlink()
        return
    if how == "flipped":
        content[place] ^= 1
    elif how == "truncated":
        del content[place:]
    else:
        content[:] = os.urandom(len(content))
    scratch = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    scratch.write_bytes(content)
    scratch.replace(path)


def damage_local_copies(local_root: Path, chance: random.Random) -> int:
    """Damage one file of every snapshot below the local directory of a job.

    Returns:
        How many were damaged.
    """
    number = 0
    for snapshot in sorted(local_root.glob("*/*/*")):
        if snapshot.name.startswith(_UNFINISHED):
            continue
        files = sorted(path for path in snapshot.iterdir() if path.stat().st_size)
        if files:
            damage_file(chance.choice(files), chance.choice(WAYS), chance)
            number += 1
    return number
