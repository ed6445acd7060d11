"""Standby drivers: one that waits for the lease of a job, and takes it over when it is free."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.lease import Lease, LeaseWatch, Verdict
from millstream.checkpoint.storages import open_storage_of
from millstream.configuration import options
from millstream.errors import JobError

if TYPE_CHECKING:
    from millstream.checkpoint.lease import Term
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.graph.model import JobGraph


_LOG: Final = logging.getLogger("millstream")
#: Of a lease whose job was stopped after a checkpoint, from which it can continue.
STOPPED: Final = "STOPPED"
_FINISHED: Final = "FINISHED"
#: Of a lease whose job has finished and deletes its checkpoints: its next run would not find that.
DISCARDED: Final = "DISCARDED"
_MILLISECONDS: Final = 1000
#: Seconds between two looks at the lease where they cost nothing.
_POLL: Final = 0.2
#: How often a term of the lease is read while it lasts, where each look is a request.
_LOOKS: Final = 5


def lease_of(graph: JobGraph) -> Lease:
    """Make the lease of a job with a checkpoint directory; nothing is read or written yet."""
    return Lease(_storage_of(graph), _duration_of(graph))


def _storage_of(graph: JobGraph) -> CheckpointStorage:
    """A storage of its own: the lease is read before the job has one, and from another thread."""
    configuration = graph.configuration
    directory = configuration.get(options.CHECKPOINTS_DIRECTORY)
    return open_storage_of(configuration, directory, graph.files.store_options)


def _duration_of(graph: JobGraph) -> float:
    return graph.configuration.get(options.LEASE_DURATION) / _MILLISECONDS


def wait_as_standby(graph: JobGraph) -> Lease | None:
    """Wait until no other driver runs a job, if the options ask for that.

    Returns:
        The lease, taken; None: the options do not ask for it, or the job has finished, which its
        next run finds.

    Raises:
        JobError: the job was stopped or cancelled, or has failed for good.
        DirectoryError: the lease cannot be written.
    """
    if not graph.configuration.get(options.STANDBY):
        return None
    storage, duration = _storage_of(graph), _duration_of(graph)
    watch, lease = LeaseWatch(storage, duration), Lease(storage, duration)
    poll = _POLL if storage.poll_interval < 1 else duration / _LOOKS
    shown: str | None = None
    was_gone = False
    while True:
        verdict = watch.look()
        if verdict is Verdict.TAKE_OVER and lease.take(after=watch.newest):
            _LOG.info("job %r is taken over: %s", graph.job_name, _reason(watch.term))
            return lease
        if verdict is Verdict.ENDED:
            if watch.is_gone:
                raise JobError(_gone(graph.job_name, storage.location))
            _require_finished(graph.job_name, watch.term)
            return None
        if watch.is_gone and not was_gone:
            _LOG.warning("the lease of job %r is gone from %s", graph.job_name, storage.location)
        was_gone = watch.is_gone
        if watch.term is not None and watch.term.owner != shown:
            shown = watch.term.owner
            _LOG.info("standby of job %r, which runs in %s", graph.job_name, shown)
        time.sleep(poll)


def _reason(term: Term | None) -> str:
    if term is None:
        return "no driver has it"
    if term.ended:
        return f"the driver {term.owner} has left it"
    return f"the driver {term.owner} is dead, or has not renewed its lease"


def _gone(name: str, location: str) -> str:
    return (
        f"job {name!r}: {location} has neither lease nor checkpoints any more. The job has ended"
        " and its checkpoints are deleted, or the directory was deleted or is not mounted here."
        " This driver was its standby and does not run the job from the beginning. If the job has"
        " not ended, bring the directory back and start the standby again"
    )


def _require_finished(name: str, term: Term | None) -> None:
    """Check that the job has ended by itself.

    Raises:
        JobError: it has not, so running it once more would undo its end.
    """
    state = "" if term is None else term.ended
    if state == _FINISHED:
        return
    how = f"has ended ({state})"
    if state == DISCARDED:
        how = "has ended, and its checkpoints are deleted"
    message = (
        f"job {name!r} {how} while this driver was its standby, so it is not run again. Start a"
        " driver to run it"
    )
    raise JobError(message)
