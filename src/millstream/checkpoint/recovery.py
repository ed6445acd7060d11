"""What a new run does first: finish the last published epoch, drop the unpublished one.

What it is: the decisions of DESIGN's failure table, taken from the manifest log alone.

What it is not: the restoring of state and source positions; tasks and planner do that from the
manifest that is returned.  Nor the replay: whether Spark runs an epoch again is asked with
``Coordinator.handle_replay``.

Read next: ``checkpoint/cleanup.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import CorruptCheckpointError, ForeignCheckpointError

if TYPE_CHECKING:
    from millstream.checkpoint.manifest_log import ManifestLog
    from millstream.checkpoint.model import Manifest

__all__ = ["read_checkpoints"]


def read_checkpoints(log: ManifestLog, job_id: str) -> list[tuple[int, Manifest]]:
    """Version and manifest of every checkpoint in the log, oldest first.

    Cases for one version:

    1. It is an ``open``: passed over.
    2. It is a manifest of this job.
    3. It is damaged and the newest checkpoint: refused.  What it names may be committed, so
       going on from the one before would commit it twice.
    4. It is damaged and older than the newest checkpoint: passed over.  It can never be restored,
       so it keeps no files.  It stays where it is, for it may be an ``open``, and these
       are never deleted; ``millstream checkpoints`` shows it.
    5. It is of another job or format: refused.
    6. It is older than the oldest checkpoint that the newest manifest says there is: passed over.
       It is there because newer ones say only what has changed since.

    What can never happen: the newest one is passed over and an older one taken for it.

    Raises:
        CorruptCheckpointError: case 3.
        ForeignCheckpointError: another job wrote it.
        UnknownFormatError: it has another format version.
    """
    found: list[tuple[int, Manifest]] = []
    damage: CorruptCheckpointError | None = None
    oldest = 0
    for version in log.versions():
        try:
            entry = log.read(version)
        except FileNotFoundError:  # cleaned up by a run that is just being fenced
            continue
        except CorruptCheckpointError as error:
            damage = error
            continue
        manifest = entry.manifest
        if manifest is None:
            continue
        if manifest.job_id != job_id:
            message = (
                f"{log.name(version)} was written by job {manifest.job_id}, this is job {job_id}."
                " Use another checkpoint directory."
            )
            raise ForeignCheckpointError(message)
        damage = None
        oldest = entry.oldest
        found.append((version, manifest))
    if damage is not None:
        raise damage
    return [(version, manifest) for version, manifest in found if version >= oldest]
