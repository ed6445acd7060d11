"""Deleting the checkpoints of a job that is over, if its options ask for it.

What it is: everything that a job keeps in its checkpoint directory, in an order in which a crash
leaves either a checkpoint that is refused as damaged or none, and never an older one that is taken
for the newest: what came after it is committed.  Directly behind the log goes what says that there
was a job: whoever finds that without the log refuses the directory for good.

A newer run may begin at any moment.  One that has begun is asked for right before anything goes,
and again when the log has gone: the version that it began with was not listed, so it is still
there, and everything else is left to it.
What it is not: the cleaning up of a job that runs (``checkpoint/cleanup.py``).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.commit import PENDING_FILE
from millstream.checkpoint.committed_marker import COMMITTED
from millstream.checkpoint.local_storage import TEMPORARY_DIRECTORY
from millstream.checkpoint.manifest_log import LOG_DIRECTORY
from millstream.checkpoint.signature import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.contracts.checkpoint_storage import CheckpointStorage

__all__ = ["delete_checkpoints"]

#: State, splits of sources, what sinks wait with, files of the program, counts of running tasks.
_DIRECTORIES: Final = ("state", "sources", "sinks", "files", "counts", TEMPORARY_DIRECTORY)
#: The engine's own logs.
_ENGINE: Final = "spark"


def delete_checkpoints(storage: CheckpointStorage, is_fenced: Callable[[], bool]) -> bool:
    """Delete all that a job keeps; files that are not its own stay.

    Args:
        storage: of a job of which no run is left, and nothing to be committed.
        is_fenced: whether a newer run has taken the job over.

    Returns:
        Whether all is deleted; False if a newer run was met, which keeps what it needs.

    Raises:
        DirectoryError: something cannot be deleted.
    """
    others = [name for directory in _DIRECTORIES for name in storage.list_names(directory)]
    log = list(storage.list_names(LOG_DIRECTORY))
    if is_fenced():
        return False
    # Oldest first: newer manifests say only what has changed since older ones.
    storage.delete(log)
    if next(iter(storage.list_names(LOG_DIRECTORY)), None) is not None:
        return False
    storage.delete([IDENTITY])
    storage.delete(storage.list_names(_ENGINE))
    storage.delete([COMMITTED, PENDING_FILE, *others])
    for directory in (*_DIRECTORIES, _ENGINE, LOG_DIRECTORY):
        _remove_empty(Path(storage.location) / directory)
    with contextlib.suppress(OSError):
        Path(storage.location).rmdir()  # unless somebody keeps something of his own there
    return True


def _remove_empty(directory: Path) -> None:
    """Remove the directories in it and itself, but those in which somebody has begun anew."""
    for each, _, _ in os.walk(directory, topdown=False):
        with contextlib.suppress(OSError):
            Path(each).rmdir()
