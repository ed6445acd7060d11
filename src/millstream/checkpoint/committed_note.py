"""``committed.json``: the last manifest is committed, as the run that did it noted when it ended.

What it is: an answer for targets that forget.  A new run commits the last manifest again, and most
targets recognise what they hold.  But consumers move files away, and Kafka forgets markers after a
week; without the note that would look like lost output, and the job could not start again.

What it is not: needed.  It is written when a run ends in order, not after each epoch; one that was
killed leaves none.  It sets ``CommitRequest.confirmed`` and decides nothing else.

Read next: ``checkpoint/commit.py``.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.checkpoint.model import Manifest
    from millstream.checkpoint.storage import CheckpointStorage

__all__ = ["is_noted_committed", "note_committed"]

_LOG: Final = logging.getLogger("millstream")
_NAME: Final = "committed.json"


def note_committed(storage: CheckpointStorage, version: int, manifest: Manifest) -> None:
    """Note that all output that a manifest names is committed; that it fails hides no error."""
    if not any(ack.committables for acks in manifest.operators.values() for ack in acks):
        return
    try:
        storage.write(_NAME, json.dumps(_identity(version, manifest)).encode())
    except OSError as error:
        _LOG.warning("cannot write %s: %s", _NAME, error)


def is_noted_committed(storage: CheckpointStorage, version: int, manifest: Manifest) -> bool:
    """Whether the note is of this very manifest."""
    try:
        return bool(json.loads(storage.read(_NAME)) == _identity(version, manifest))
    except (FileNotFoundError, ValueError):  # ValueError: not ours, or damaged
        return False


def _identity(version: int, manifest: Manifest) -> dict[str, int]:
    """A version is written once, by one generation."""
    return {"version": version, "generation": manifest.generation, "epoch": manifest.epoch}
