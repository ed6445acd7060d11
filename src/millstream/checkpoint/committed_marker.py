"""``committed.json``: the last manifest is committed, as the run that did it said when it ended.

What it is: an answer for targets that forget.  A new run commits the last manifest again, and most
targets recognise what they hold.  But consumers move files away, and Kafka forgets markers after a
week; without the marker that would look like lost output, and the job could not start again.

What it is not: needed.  It is written when a run ends in order, not after each epoch; one that was
killed leaves none, and a person who knows writes it (``millstream checkpoints DIR confirm``).  It
sets ``CommitRequest.confirmed`` and decides nothing else.

Read next: ``checkpoint/commit.py``.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.job_identity import JobIdentity
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.recovery import read_checkpoints
from millstream.errors import CheckpointError, DirectoryError

if TYPE_CHECKING:
    from millstream.checkpoint.model import Manifest
    from millstream.contracts.checkpoint_storage import CheckpointStorage

__all__ = ["COMMITTED", "confirm_committed", "is_marked_committed", "mark_committed"]

_LOG: Final = logging.getLogger("millstream")
COMMITTED: Final = "committed.json"


def mark_committed(storage: CheckpointStorage, version: int, manifest: Manifest) -> None:
    """Mark that all output that a manifest names is committed; that it fails hides no error."""
    if not manifest.committable_counts():
        return
    try:
        storage.write(COMMITTED, json.dumps(_identity(version, manifest)).encode())
    except (DirectoryError, OSError) as error:
        _LOG.warning("cannot write %s: %s", COMMITTED, error)


def confirm_committed(storage: CheckpointStorage, epoch: int) -> Manifest:
    """Mark it instead of a run that was killed: somebody has seen the output of an epoch.

    Args:
        storage: the checkpoint directory, of a job that does not run.
        epoch: the last one; it must be named, for the output of others is not in question.

    Returns:
        Its manifest.

    Raises:
        CheckpointError: it is not the last epoch, or the log cannot be read.
        OSError: the marker could not be written.
    """
    identity = JobIdentity.load(storage)
    kept = [] if identity is None else read_checkpoints(ManifestLog(storage), identity.job_id)
    version, manifest = kept[-1] if kept else (-1, None)
    if manifest is None or manifest.epoch != epoch:
        last = "it has none" if manifest is None else f"its last is {manifest.epoch}"
        message = f"{storage.location} cannot confirm epoch {epoch}: {last}"
        raise CheckpointError(message)
    storage.write(COMMITTED, json.dumps(_identity(version, manifest)).encode())
    return manifest


def is_marked_committed(storage: CheckpointStorage, version: int, manifest: Manifest) -> bool:
    """Whether the marker is of this very manifest."""
    try:
        return bool(json.loads(storage.read(COMMITTED)) == _identity(version, manifest))
    except (FileNotFoundError, ValueError):  # ValueError: not ours, or damaged
        return False


def _identity(version: int, manifest: Manifest) -> dict[str, int]:
    """A version is written once, by one generation."""
    return {"version": version, "generation": manifest.generation, "epoch": manifest.epoch}
