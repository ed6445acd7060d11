"""Step 4 of an epoch: what the manifest names becomes visible, the rest is dropped.

What it is: calls of the sinks' committers, with retries.  Nothing but a published manifest is
given to them.

What it is not: a place where output is written or judged.  Committers are idempotent by their
contract, so committing twice is harmless, and committing once at least is this module's duty.

Read next: ``checkpoint/recovery.py``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.common.pickling import loads
from millstream.connectors.sink import CommitRequest
from millstream.crash_points import crash_point
from millstream.errors import CheckpointError, SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.checkpoint.manifest_log import ManifestLog
    from millstream.checkpoint.model import Manifest
    from millstream.connectors.sink import Committer

__all__ = ["CommitRetry", "abort_orphans", "commit_manifest"]


@dataclass(frozen=True, slots=True)
class CommitRetry:
    """How a commit that fails is tried again before the job fails."""

    #: Seconds before the second, third, ... try.
    delays: tuple[float, ...] = (0.1, 0.5, 2.0)
    sleep: Callable[[float], None] = field(default=time.sleep)


def commit_manifest(
    manifest: Manifest, committers: Mapping[str, Committer], retry: CommitRetry, *, retried: bool
) -> None:
    """Commit everything that ``manifest`` names.

    Cases, for each sink:

    1. The commit succeeds.
    2. It raises SinkError: some committables may be committed, some not.  All are committed again
       with ``retried``; those that were are recognised by the sink.
    3. It still fails after the last try: the error fails this run.  The manifest stands, and the
       next run commits again.
    4. The process dies in between: as case 3.

    What can never happen: an epoch after this one is published while part of this one is
    uncommitted, for the coordinator publishes nothing before this function has returned.

    Args:
        manifest: a published one.
        committers: sink uid -> committer.
        retry: how often, and after how long, a failed commit is tried again.
        retried: an earlier run or try may have committed it already.

    Raises:
        SinkError: a sink kept failing, or output of the manifest has no sink to commit it.
    """
    for uid, committables in _committables(manifest).items():
        committer = committers.get(uid)
        if committer is None:
            message = (
                f"epoch {manifest.epoch} holds output of sink {uid} that is not committed yet,"
                " but the job has no such sink any more. Run the job as it was until it has"
                " committed, then change it."
            )
            raise SinkError(message)
        crash_point("sink.commit.before")
        _commit(committer, committables, manifest.epoch, retry, retried=retried)
        crash_point("sink.commit.after")


def abort_orphans(
    manifest: Manifest | None, job_id: str, committers: Mapping[str, Committer], log: ManifestLog
) -> None:
    """Let every sink drop pre-committed output that ``manifest``, the last one, does not name.

    It is called when no task of this run is working on an epoch.  A run that was fenced must not
    get here, for what it takes for an orphan may be the newer run's output in the making;
    therefore the fence is looked at right before.

    Raises:
        FencedError: a newer run has taken over; nothing was dropped.
    """
    kept = _committables(manifest) if manifest is not None else {}
    for uid, committer in committers.items():
        log.check_fence()
        committer.abort_orphans(job_id, uid, kept.get(uid, []), log.generation)


def _commit(
    committer: Committer,
    committables: list[object],
    epoch: int,
    retry: CommitRetry,
    *,
    retried: bool,
) -> None:
    for delay in (*retry.delays, None):
        try:
            committer.commit(
                [CommitRequest(committable, epoch, retried) for committable in committables]
            )
        except SinkError:
            if delay is None:
                raise
            retry.sleep(delay)
            retried = True
        else:
            return


def _committables(manifest: Manifest) -> dict[str, list[object]]:
    """Sink uid -> what is to be committed, in order of subtask."""
    found: dict[str, list[object]] = {}
    for uid, acks in manifest.operators.items():
        for ack in acks:
            for pickled in ack.committables:
                found.setdefault(uid, []).append(_unpickle(pickled, uid, manifest.epoch))
    return found


def _unpickle(pickled: bytes, uid: str, epoch: int) -> object:
    try:
        return loads(pickled)
    except Exception as error:
        message = (
            f"a committable of sink {uid} in the manifest of epoch {epoch} cannot be read:"
            f" {error!r}. Run the job with the code and packages that wrote it."
        )
        raise CheckpointError(message) from error
