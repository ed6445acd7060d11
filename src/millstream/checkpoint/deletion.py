"""Deleting the checkpoints of a job that is over, if its options ask for it.

What it is: everything that a job keeps in its checkpoint directory, in an order in which a crash
leaves either a checkpoint that is refused as damaged or none, and never an older one that is taken
for the newest: what came after it is committed.
What it is not: the cleaning up of a job that runs (``checkpoint/cleanup.py``).
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.commit import PENDING_FILE
from millstream.checkpoint.committed_marker import COMMITTED
from millstream.checkpoint.local_storage import TEMPORARY_DIRECTORY
from millstream.checkpoint.manifest_log import LOG_DIRECTORY
from millstream.checkpoint.signature import IDENTITY

if TYPE_CHECKING:
    from millstream.contracts.checkpoint_storage import CheckpointStorage

__all__ = ["delete_checkpoints"]

#: State, splits of sources, what sinks wait with, the engine's own logs, files of the program.
_DIRECTORIES: Final = (
    *("state", "sources", "sinks", "spark", "files"),
    *(TEMPORARY_DIRECTORY, LOG_DIRECTORY),
)


def delete_checkpoints(storage: CheckpointStorage) -> None:
    """Delete all that a job keeps; files that are not its own stay.

    Args:
        storage: of a job of which no run is left, and nothing to be committed.

    Raises:
        DirectoryError: something cannot be deleted.
    """
    # Oldest first: newer manifests say only what has changed since older ones.
    storage.delete(storage.list_names(LOG_DIRECTORY))
    for directory in _DIRECTORIES:
        storage.delete(storage.list_names(directory))
        shutil.rmtree(Path(storage.location) / directory, ignore_errors=True)  # without files
    storage.delete([COMMITTED, PENDING_FILE, IDENTITY])
    with contextlib.suppress(OSError):
        Path(storage.location).rmdir()  # unless somebody keeps something of his own there
