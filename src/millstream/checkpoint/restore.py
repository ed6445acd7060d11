"""Going back to an older checkpoint of a job: it is published again, as the newest one.

Numbers of checkpoints keep growing, so whatever compares them (sinks, Spark's own log, lists of
splits) takes the copy for one more checkpoint.  The copy names no output: that of the old
checkpoint is committed, and pending output of later ones is an orphan, which the next run drops.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.checkpoint.commit import PENDING_FILE, read_checkpoints
from millstream.checkpoint.inspect import verify_checkpoint
from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.program import labels
from millstream.crash_points import crash_point
from millstream.errors import CheckpointError, CorruptCheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.checkpoint.model import Manifest
    from millstream.contracts.checkpoint_storage import CheckpointStorage


@dataclass(frozen=True, slots=True)
class Restored:
    """What a job continues from after it went back."""

    #: The checkpoint that was chosen, and its copy.
    epoch: int
    copy: int
    #: Sink -> committables of later checkpoints, whose output is written again.
    repeated: Mapping[str, int]
    #: Sinks without commit, which may write output again.
    uncommitted: Sequence[str]


def restore_checkpoint(
    storage: CheckpointStorage, epoch: int, *, repeats_output: bool = False
) -> Restored:
    """Publish a retained checkpoint again, so that the next run of the job continues from it.

    Cases (where it can stop -> what holds):

    1. Before the log is opened -> nothing has changed.
    2. After that -> a run that was still active can publish nothing; the job continues from its
       newest checkpoint.
    3. The copy is published -> the job continues from it.

    What can never happen: two runs continue, one from the copy and one from what was newest.

    Args:
        storage: the checkpoint directory, of a job that does not run.
        epoch: the number of the checkpoint.
        repeats_output: whether output that later checkpoints have committed may be written again.

    Raises:
        CheckpointError: there is no such checkpoint, it is the newest one, or output would be
            repeated; nothing was changed.
        CorruptCheckpointError: a state file of it is missing or damaged; nothing was changed.
        FencedError: a run has begun meanwhile.
    """
    identity = JobIdentity.load(storage)
    log = ManifestLog(storage)
    found = [] if identity is None else read_checkpoints(log, identity.job_id)
    chosen, later = _chosen(storage, [manifest for _, manifest in found], epoch)
    _require_own_positions(chosen)
    repeated = _output(later)
    if repeated and not repeats_output:
        raise _would_repeat(storage, chosen, later, repeated)
    problems = verify_checkpoint(storage, chosen)
    if problems:
        message = (
            f"checkpoint {epoch} in {storage.location} is damaged: {problems[0].name}:"
            f" {problems[0].reason}. Nothing was changed"
        )
        raise CorruptCheckpointError(message)
    copy = _copy(chosen, later[-1])
    crash_point("checkpoint.restore.before")
    log.open_generation()
    newest = log.latest()
    if newest is None or newest.epoch != later[-1].epoch:
        message = (
            f"the job in {storage.location} was running and has published another checkpoint. It"
            " can publish no more: wait for its end, then choose again"
        )
        raise CheckpointError(message)
    log.publish(copy, found[0][0])
    crash_point("checkpoint.restore.after")
    storage.delete([PENDING_FILE])
    names = labels(chosen.program)
    sinks = [
        names[uid]
        for uid, record in chosen.program.items()
        if record.kind == "sink" and not record.commits
    ]
    return Restored(epoch, copy.epoch, repeated, sinks)


def _chosen(
    storage: CheckpointStorage, found: Sequence[Manifest], epoch: int
) -> tuple[Manifest, Sequence[Manifest]]:
    """The checkpoint of a number, and those after it."""
    for number, manifest in enumerate(found):
        if manifest.epoch == epoch and manifest is not found[-1]:
            return manifest, found[number + 1 :]
    if found and found[-1].epoch == epoch:
        message = (
            f"checkpoint {epoch} in {storage.location} is the newest one: the job continues from it"
            " anyway"
        )
        raise CheckpointError(message)
    known = ", ".join(str(manifest.epoch) for manifest in found) or "none"
    message = (
        f"{storage.location} has no checkpoint {epoch}; there are: {known}."
        " execution.checkpointing.num-retained is how many are kept"
    )
    raise CheckpointError(message)


def _require_own_positions(chosen: Manifest) -> None:
    for record in chosen.program.values():
        if record.connector == "DataFrame":
            message = (
                f"{record.title} reads a Spark DataFrame, and only Spark's log has its position,"
                " which cannot go back. Start the job from scratch with an empty directory"
            )
            raise CheckpointError(message)


def _output(later: Sequence[Manifest]) -> dict[str, int]:
    """Sink -> number of committables of some checkpoints."""
    counts: Counter[str] = Counter()
    for manifest in later:
        names = labels(manifest.program)
        for uid, count in manifest.committable_counts().items():
            counts[names.get(uid, uid)] += count
    return dict(counts)


def _would_repeat(
    storage: CheckpointStorage,
    chosen: Manifest,
    later: Sequence[Manifest],
    repeated: Mapping[str, int],
) -> CheckpointError:
    sinks = ", ".join(f"{count} of sink {name!r}" for name, count in sorted(repeated.items()))
    first, last = later[0].epoch, later[-1].epoch
    which = f"checkpoint {last}" if first == last else f"checkpoints {first} to {last}"
    return CheckpointError(
        f"output of {which} in {storage.location} is visible, or may be (committables: {sinks}). A"
        f" job that continues from checkpoint {chosen.epoch} writes the records after it again."
        " Nothing was changed. If readers can take that, or you remove that output, add"
        " --repeat-output. Or start another job with other targets: `millstream checkpoints"
        f" {storage.location} export {chosen.epoch} TARGET` writes a savepoint for it"
    )


def _copy(chosen: Manifest, newest: Manifest) -> Manifest:
    """The content of a checkpoint as the one after the newest."""
    epoch = newest.epoch + 1
    now = max(newest.published, time.time_ns() // 1_000_000)
    return replace(
        chosen.without_committables(),
        epoch=epoch,
        started=now,
        published=now,
        offsets={**chosen.offsets, "epoch": epoch},
    )
