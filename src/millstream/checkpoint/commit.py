"""Steps 4 and 5 of a checkpoint: commit what the manifest names, and delete what none names.

Cleanup counts how many kept manifests name each file, as manifests come and go, so that a
checkpoint costs no listing.  Files that no manifest ever named (uploads of attempts that lost or of
runs that died) are found by listing, at recovery and every so many checkpoints.

**When an unnamed file may be deleted.**  A running task may have just uploaded it for a later
manifest.  So it is deleted only

* at recovery, if it was listed *before* this run opened the log.  Whoever uploaded it belongs to
  an older run.  If that run published it, the manifest was there when this run opened, and
  names it; if not, it never will be.  A still newer run cannot have uploaded it.
* later, if it was unnamed at two sweeps in a row, and a checkpoint was published between them that
  was begun after the first.  Because it was published, no newer run had begun, so the file, which
  the first sweep has seen, is not a newer run's.  Because it was begun after the first sweep, every
  task of this run has acknowledged it since, and with it all that the task had uploaded or was
  uploading at the first sweep:

  - Where tasks end with each epoch, those that ran at the first sweep are over.
  - Where tasks are long-running, several checkpoints may have been pending at the first sweep, some
    of them with long uploads.  A task uploads in order: uploads begun before the barrier of a
    checkpoint have ended when it acknowledges that one (``KeyValueStore``, contract 5).  So the
    file was uploaded whole, or never will be.  If the store still needs it, the checkpoint names
    it, also if it was uploaded for one that has failed.  If not, no later one does (contract 6).

**When a file of an old checkpoint is deleted.**  As soon as no kept manifest names it, also while
later checkpoints are pending: by contract 6 they name it only if the newest manifest does.

Invariant: no file is deleted that a manifest names or will name.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import weakref
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.lease import LEASE_DIRECTORY
from millstream.checkpoint.local_storage import IDENTITY, TEMPORARY_DIRECTORY
from millstream.checkpoint.manifest_log import LOG_DIRECTORY, ManifestLog
from millstream.checkpoint.packs import pack_of
from millstream.configuration.options import CheckpointingMode
from millstream.contracts.sink import CommitRequest, Committer
from millstream.crash_points import crash_point
from millstream.errors import (
    CheckpointError,
    CorruptCheckpointError,
    DirectoryError,
    ForeignCheckpointError,
    PermanentSinkError,
    SinkError,
)
from millstream.types.pickling import loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.checkpoint.model import Manifest, OperatorRecord
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.sink import Committable, CommitterContext


_LOG: Final = logging.getLogger("millstream")
#: Seconds; ten minutes, as for the tasks of an epoch.
COMMIT_TIMEOUT: Final = 600.0
#: Seconds between two reports that a call is waited for.
_REPORT: Final = 1.0
#: Seconds to wait for ``close``, which nobody needs the result of.
_CLOSE: Final = 10.0


class _Call:
    """A call of the committer and its end."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self.error = error
        finally:
            self.ended.set()


class CommitterThread(Committer):
    """Runs a committer's methods in a thread, with a limit.

    Contract: as ``Committer``; besides:
      1. All methods of the committer, ``open`` first, run in one thread, so it may keep
         connections that belong to a thread.
      2. No method waits longer than the limit and a tenth of it (a second at least).
    """

    def __init__(
        self,
        uid: str,
        committer: Committer,
        timeout: float = COMMIT_TIMEOUT,
        label: str | None = None,
    ) -> None:
        """Guard ``committer`` of sink ``uid``.

        Args:
            uid: the sink.
            committer: nothing was called yet.
            timeout: seconds that a call may take.  The committer is told, so that its client gives
                up first; the tenth is for that.
            label: what to call the sink in messages; its uid if None.
        """
        #: What messages call the sink.
        self.label = label or uid
        self._committer = committer
        self.target = committer.target or type(committer).__name__
        self._timeout = timeout
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        #: What the call is that was left; empty: none was.
        self.left = ""
        #: Called every second while a commit is waited for.
        self.waiting: Callable[[], None] = lambda: None
        # A committer that is dropped without ``close`` shall not keep a thread.
        self._end = weakref.finalize(self, self._calls.put, None)

    def open(self, context: CommitterContext) -> None:
        told = replace(context, timeout=self._timeout, label=self.label)
        self._call("opening", lambda: self._committer.open(told))

    def resume_from(self, epoch: int) -> None:
        self._call("looking at the target", lambda: self._committer.resume_from(epoch))

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        epoch = requests[0].epoch if requests else -1
        self._call(f"committing checkpoint {epoch}", lambda: self._committer.commit(requests))

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        self._call(
            "dropping orphans",
            lambda: self._committer.abort_orphans(job_id, sink_uid, keep, generation),
        )

    def close(self) -> None:
        """Close, unless a call was left: its thread is using what would be closed."""
        if not self.left and self._thread is not None:
            try:
                self._call("closing", self._committer.close, limit=_CLOSE)
            except SinkError as error:
                _LOG.warning("%s", error)
        self._end()

    def _call(self, what: str, function: Callable[[], None], limit: float | None = None) -> None:
        if self.left:
            message = (
                f"sink {self.label}: {self.target} still has not answered: {self.left} was"
                f" abandoned and may still be in progress, so {what} is left to the next run"
            )
            raise SinkError(message)
        if self._thread is None:
            name = f"millstream-committer-{self.label}"
            self._thread = threading.Thread(
                target=_run, args=(self._calls,), name=name, daemon=True
            )
            self._thread.start()
        call = _Call(function)
        self._calls.put(call)
        self._wait(call, what, limit or self._timeout + max(1.0, self._timeout / 10))
        if call.error is not None:
            raise call.error

    def _wait(self, call: _Call, what: str, limit: float) -> None:
        end = time.monotonic() + limit
        while not call.ended.wait(min(_REPORT, max(0.0, end - time.monotonic()))):
            if time.monotonic() >= end:
                self.left = what
                message = (
                    f"sink {self.label}: {self.target} gives no answer: {what} has taken longer"
                    f" than {limit:.1f} s and is left alone (millstream.commit.timeout); the next"
                    " run does it first of all. Look whether the target is well, or, if it is only"
                    " slow, raise the option"
                )
                raise SinkError(message)
            self.waiting()


def _run(calls: queue.SimpleQueue[_Call | None]) -> None:
    """The thread: it holds on to nothing but the queue, so that the owner can be dropped."""
    while (call := calls.get()) is not None:
        call.run()
        del call


#: In the checkpoint directory while a commit keeps failing.
PENDING_FILE: Final = "pending-commit.json"


@dataclass(frozen=True, slots=True)
class CommitRetry:
    """How a commit that fails is tried again before the run fails."""

    #: Seconds before the second, third, ... try.
    delays: tuple[float, ...] = (0.1, 0.5, 2.0)
    sleep: Callable[[float], None] = field(default=time.sleep)

    @classmethod
    def exponential(cls, initial: int, maximum: int, attempts: int) -> CommitRetry:
        """Waits that double.

        Args:
            initial: milliseconds before the second try.
            maximum: the longest wait in milliseconds.
            attempts: tries in all.
        """
        waits = (min(initial * 2**number, maximum) for number in range(attempts - 1))
        return cls(tuple(wait / 1000 for wait in waits))


@dataclass(slots=True)
class CommitCounts:
    """What became of the committables of a sink since the driver started."""

    total: int = 0
    succeeded: int = 0
    #: Of tries after the first.
    retried: int = 0
    #: Of tries that failed.
    failed: int = 0


@dataclass(frozen=True, slots=True)
class PendingCommits:
    """What is published and not committed yet."""

    #: -1: none yet.
    epoch: int = -1
    #: Milliseconds since 1970, when its manifest was published.
    published: int = 0
    #: Sink (its uid, or its name if the program gives none) -> number of committables.
    sinks: Mapping[str, int] = field(default_factory=dict)
    #: Why the last try failed; kept in the file only.
    error: str = ""

    @property
    def committables(self) -> int:
        """Return how many, over all sinks."""
        return sum(self.sinks.values())

    def age(self, now: int) -> int:
        """Milliseconds since the oldest was published; 0 if nothing is pending."""
        return max(0, now - self.published) if self.sinks else 0

    def __str__(self) -> str:
        """For messages: "2 of sink a, 1 of sink b"."""
        return ", ".join(f"{count} of sink {uid}" for uid, count in self.sinks.items())


def read_pending(storage: CheckpointStorage) -> PendingCommits | None:
    """What a commit that keeps failing has left to do, as it was kept; None if nothing was."""
    try:
        kept = json.loads(storage.read(PENDING_FILE))
    except FileNotFoundError:
        return None
    return PendingCommits(kept["epoch"], kept["published"], kept["sinks"], kept["error"])


#: What becomes of output that is pending when a run gives up.
_CONSEQUENCE: Final = {
    CheckpointingMode.EXACTLY_ONCE: "They stay pre-committed; the next run of the job commits them"
    " before anything else",
    CheckpointingMode.AT_LEAST_ONCE: "No checkpoint names them: the next run of the job drops them"
    " and writes the output again, beside what other sinks have committed of it",
    CheckpointingMode.NONE: "No checkpoint names them: the next run of the job drops them and does"
    " not write the output again",
}

#: What to do when published output is refused.
_FIX_HINT: Final = (
    "This output is part of a checkpoint and cannot be changed any more, so the target has to be"
    " made to take it; then start the job again"
)


@dataclass(frozen=True, slots=True)
class _Failure:
    """A sink that was aborted for this run."""

    uid: str
    target: str
    tries: int
    error: SinkError

    @property
    def permanent(self) -> bool:
        """Return whether another try would only fail again."""
        return isinstance(self.error, PermanentSinkError)


class ManifestCommit:
    """Commits manifests one after the other, and knows what is still to do.

    While a commit keeps failing, the file ``pending-commit.json`` in the checkpoint directory says
    what is pending, for ``millstream checkpoints``.  It decides nothing.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        committers: Mapping[str, CommitterThread],
        retry: CommitRetry,
        clock: Callable[[], int],
        on_pending: Callable[[PendingCommits], None] = lambda _: None,
        counts: defaultdict[str, CommitCounts] | None = None,
    ) -> None:
        """Commit with ``committers``.

        Args:
            storage: the checkpoint directory.
            committers: sink uid -> committer, opened.
            retry: how often and when a try that failed is followed by another.
            clock: milliseconds since 1970.
            on_pending: told what is pending after each try that failed, and every second while
                a try is waited for; in the thread of ``finish``.
            counts: by sink uid; counted here.
        """
        self._storage = storage
        self._committers = committers
        self._retry = retry
        self._clock = clock
        self._on_pending = on_pending
        self._counts = defaultdict(CommitCounts) if counts is None else counts
        self._epoch = -1
        self._confirmed = False
        self._mode = CheckpointingMode.EXACTLY_ONCE
        #: Sink uid -> what is not committed; a sink is taken out when it is done.
        self._left: dict[str, list[object]] = {}
        #: As the manifest has it, for messages.
        self._program: Mapping[str, OperatorRecord] = {}
        self.pending = PendingCommits()
        #: Whether the file is there; None: not looked yet.
        self._kept: bool | None = None

    def begin(
        self,
        manifest: Manifest,
        *,
        confirmed: bool = False,
        mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE,
    ) -> None:
        """Take a manifest; of one that was begun before, what is done stays done.

        Args:
            manifest: the last one.
            confirmed: the run that committed it has marked it so (``commit.py``).
            mode: in which it is committed; in all but EXACTLY_ONCE no manifest names the output.
        """
        if self._left and self._epoch == manifest.epoch:
            return
        if self._kept is None:
            self._kept = self._storage.exists(PENDING_FILE)
        self._epoch, self._confirmed, self._mode = manifest.epoch, confirmed, mode
        self._left = _committables(manifest)
        if confirmed:  # nothing is asked of sinks that the program does not have any more
            self._left = {
                uid: items for uid, items in self._left.items() if uid in self._committers
            }
        self._program = manifest.program
        self._show(manifest.published)

    def finish(self, *, retried: bool) -> None:
        """Commit everything that the manifest names and that is not done.

        The sinks are tried in turns: what one holds must not grow old (transactions time out) while
        another is tried again and again.  Cases, for each sink:

        1. The commit succeeds.  This run does not commit it again, whatever the others do.
        2. It raises SinkError: some committables may be committed, some not.  All are committed
           again with ``retried``, after all others had their turn; those that were are recognised
           by the sink.
        3. It still fails after the last try: the error fails this run.  The manifest stands, and
           the next run commits again.
        4. It gives no answer (``commit.py``): as case 3, but at once.  A second try
           beside one that may still run could do half of each.
        5. It is refused for good (``PermanentSinkError``): as case 3, but at once.  The manifest
           still stands: its output is never dropped, and a run that comes after the target was
           mended commits it.
        6. The process dies in between: as case 3.

        What can never happen: an epoch after this one is published while part of this one is
        uncommitted, for the coordinator publishes nothing before this method has returned.

        Args:
            retried: an earlier run or try may have committed it already.

        Raises:
            SinkError: a sink kept failing, or output of the manifest has no sink to commit it.
        """
        failures: dict[str, _Failure] = {}
        for number, delay in enumerate((*self._retry.delays, None), 1):
            for uid in list(self._left):
                committer = self._committer(uid)
                if uid in failures and (committer.left or failures[uid].permanent):
                    continue
                crash_point("sink.commit.before")
                error = self._try(uid, committer, retried=retried or number > 1)
                if error is not None:
                    failures[uid] = _Failure(uid, committer.target, number, error)
                    continue
                crash_point("sink.commit.after")
                del self._left[uid]
                self._show(self.pending.published)
            again = [
                uid
                for uid in self._left
                if not self._committer(uid).left and not failures[uid].permanent
            ]
            if delay is None or not again:
                break
            for uid in again:
                self._warn(failures[uid], delay)
            self._retry.sleep(delay)
        if self._left:
            left = [failures[uid] for uid in self._left]
            self._keep(left[0].uid, left[0].error)
            raise self._given_up(left) from left[0].error
        if self._kept:
            self._storage.delete([PENDING_FILE])
            self._kept = False

    def _committer(self, uid: str) -> CommitterThread:
        committer = self._committers.get(uid)
        if committer is None:
            record = self._program.get(uid)
            sink = f"sink {uid}" if record is None else record.title
            message = (
                f"checkpoint {self._epoch} holds output of {sink} that may not be committed yet,"
                " but the"
                " job has no such sink any more. Run the job as it was until it has committed, then"
                " change it."
            )
            raise SinkError(message)
        return committer

    def _label(self, uid: str) -> str:
        """Return what messages call a sink."""
        committer = self._committers.get(uid)
        return uid if committer is None else committer.label

    def _try(self, uid: str, committer: CommitterThread, *, retried: bool) -> SinkError | None:
        """Commit the output of one sink; the error, if it failed."""
        committer.waiting = self._report
        published = self._mode is CheckpointingMode.EXACTLY_ONCE
        requests = [
            CommitRequest(item, self._epoch, retried, self._confirmed, published)
            for item in self._left[uid]
        ]
        counts = self._counts[uid]
        if retried:
            counts.retried += len(requests)
        else:
            counts.total += len(requests)
        try:
            committer.commit(requests)
        except SinkError as error:
            counts.failed += len(requests)
            self._keep(uid, error)
            self._report()
            return error
        counts.succeeded += len(requests)
        return None

    def _warn(self, failure: _Failure, delay: float) -> None:
        _LOG.warning(
            "try %d of sink %s to commit checkpoint %d failed, the next is in %.1f s; pending for"
            " %.1f s: %s; %s",
            failure.tries,
            self._label(failure.uid),
            self._epoch,
            delay,
            self.pending.age(self._clock()) / 1000,
            self.pending,
            failure.error,
        )

    def _given_up(self, failures: Sequence[_Failure]) -> SinkError:
        told = "; ".join(
            f"{each.error} (sink {self._label(each.uid)} could not commit checkpoint"
            f" {self._epoch} to"
            f" {each.target} in {each.tries} {'try' if each.tries == 1 else 'tries'})"
            for each in failures
        )
        message = f"{told}. Pending: {self.pending}. {_CONSEQUENCE[self._mode]}"
        if not any(each.permanent for each in failures):
            return SinkError(message)
        if self._mode is CheckpointingMode.EXACTLY_ONCE:
            message += f". {_FIX_HINT}"
        return PermanentSinkError(message)

    def _report(self) -> None:
        self._on_pending(self.pending)

    def _keep(self, uid: str, error: SinkError) -> None:
        """Keep what is pending for whoever looks; that this fails must not hide the error."""
        pending = {
            "epoch": self._epoch,
            "published": self.pending.published,
            "sinks": dict(self.pending.sinks),
            "error": f"sink {self._label(uid)}: {error}",
        }
        try:
            self._storage.write(PENDING_FILE, json.dumps(pending).encode())
        except (DirectoryError, OSError) as failure:
            _LOG.warning("cannot write %s: %s", PENDING_FILE, failure)
        else:
            self._kept = True

    def _show(self, published: int) -> None:
        sinks = {self._label(uid): len(items) for uid, items in self._left.items()}
        self.pending = PendingCommits(self._epoch, published, sinks)


def abort_orphans(
    manifest: Manifest | None,
    job_id: str,
    committers: Mapping[str, Committer],
    log: ManifestLog,
    generation: int,
) -> None:
    """Let every sink drop pre-committed output that ``manifest``, the last one, does not name.

    A run that was fenced must not get here, for what it takes for an orphan may be the newer run's
    output in the making; therefore the fence is looked at right before.

    Args:
        manifest: the last one, committed; None if there is none.
        job_id: the job.
        committers: sink uid -> committer.
        log: the log, opened by this run.
        generation: the newest whose output is dropped: that of this run if no task of it is working
            on an epoch, else the one before.

    Raises:
        FencedError: a newer run has taken over; nothing was dropped.
    """
    kept = _committables(manifest) if manifest is not None else {}
    for uid, committer in committers.items():
        log.check_fence()
        committer.abort_orphans(job_id, uid, kept.get(uid, []), generation)


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
            f"a committable of sink {uid} in the manifest of checkpoint {epoch} cannot be read:"
            f" {error!r}. Run the job with the code and packages that wrote it."
        )
        raise CheckpointError(message) from error


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


COMMITTED: Final = "committed.json"
#: From which savepoint the job has started.
ORIGIN: Final = "restored.json"


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
        message = f"{storage.location} cannot confirm checkpoint {epoch}: {last}"
        raise CheckpointError(message)
    storage.write(COMMITTED, json.dumps(_identity(version, manifest)).encode())
    return manifest


def is_marked_committed(storage: CheckpointStorage, version: int, manifest: Manifest) -> bool:
    """Return whether the marker is of this very manifest."""
    try:
        return bool(json.loads(storage.read(COMMITTED)) == _identity(version, manifest))
    except (FileNotFoundError, ValueError):  # ValueError: not ours, or damaged
        return False


def _identity(version: int, manifest: Manifest) -> dict[str, int]:
    """A version is written once, by one generation."""
    return {"version": version, "generation": manifest.generation, "epoch": manifest.epoch}


#: Epochs (numbers of checkpoints) between two listings of the storage.
SWEEP_INTERVAL: Final = 64
#: Where files may lie that nothing names.
_SWEPT: Final = ("state", TEMPORARY_DIRECTORY)


def state_names(manifest: Manifest) -> set[str]:
    """The names of all state files that ``manifest`` needs, and of the packs they lie in."""
    names = {file["remote"] for file in manifest.files()}
    return names | {pack for pack in map(pack_of, names) if pack is not None}


class Cleaner:
    """Keeps the newest ``retained`` checkpoints and what they name."""

    def __init__(
        self,
        storage: CheckpointStorage,
        log: ManifestLog,
        retained: int,
        sweep_interval: int = SWEEP_INTERVAL,
    ) -> None:
        self._storage = storage
        self._log = log
        self._retained = retained
        self._sweep_interval = sweep_interval
        #: (version, names) of each kept manifest, oldest first.
        self._kept: deque[tuple[int, set[str]]] = deque()
        self._references: Counter[str] = Counter()
        #: Names that were held and are not any more; others append to it.
        self._let_go: deque[set[str]] = deque()
        #: Unnamed at the last sweep.
        self._suspects: set[str] = set()
        #: The last that was published at the last sweep.  Numbers of those that were aborted,
        #: which leave files behind, count as well.
        self._swept = -1
        #: The last checkpoint that was begun, set by whatever thread begins it; the last that is
        #: published; and the later of them at the last sweep.
        self._begun = self._published = -1
        self._begun_at_sweep = -1
        #: Whether the last ``published`` looked for files that nothing names.
        self.has_swept = False

    def list_before_open(self) -> None:
        """List the storage; to be called before this run opens the log."""
        self._suspects = set(self._list())

    def recovered(self, kept: Iterable[tuple[int, Manifest]]) -> None:
        """Take over what the log holds, then delete what is named by nothing.

        Args:
            kept: version and manifest of each checkpoint in the log, oldest first.
        """
        for version, manifest in kept:
            self._add(version, state_names(manifest))
            self._published = manifest.epoch
        # What is too old goes when the next one is published: till then the newest says that it is
        # a checkpoint.
        self._log.keep(version for version, _ in self._kept)
        self._sweep()

    def oldest_beside_next(self) -> int | None:
        """The oldest version that is kept when one more is published; None: only that one is."""
        beside = self._retained - 1
        if not beside or not self._kept:
            return None
        return self._kept[max(0, len(self._kept) - beside)][0]

    def hold(self, manifest: Manifest) -> Callable[[], None]:
        """Keep the files of a manifest that is kept now, while somebody copies them.

        Returns:
            Ends it; may be called from any thread.
        """
        names = state_names(manifest)
        self._references.update(names)
        return partial(self._let_go.append, names)

    def begun(self, epoch: int) -> None:
        """Take note that tasks may upload files for a checkpoint; they may continue meanwhile."""
        self._begun = epoch

    def published(self, version: int, manifest: Manifest) -> None:
        """Count a new manifest in, and delete what is not needed any more."""
        self._add(version, state_names(manifest))
        self._retire()
        self._published = manifest.epoch
        due = manifest.epoch - self._swept >= self._sweep_interval
        self.has_swept = due and manifest.epoch > self._begun_at_sweep
        if self.has_swept:
            self._sweep()

    def _add(self, version: int, names: set[str]) -> None:
        self._kept.append((version, names))
        self._references.update(names)

    def _retire(self) -> None:
        unneeded: list[str] = []
        dropped = [self._let_go.popleft() for _ in range(len(self._let_go))]
        while len(self._kept) > self._retained:
            dropped.append(self._kept.popleft()[1])
        for names in dropped:
            self._references.subtract(names)
            for name in names:
                if self._references[name] <= 0:
                    del self._references[name]
                    unneeded.append(name)
        # The manifest first: at a crash in between, files are left that nothing names, not a
        # manifest whose files are gone.  One that others lie on stays, but is no checkpoint.
        self._log.keep(version for version, _ in self._kept)
        if unneeded:
            self._storage.delete(sorted(unneeded))

    def _sweep(self) -> None:
        unnamed = {name for name in self._list() if name not in self._references}
        self._storage.delete(sorted(unnamed & self._suspects))
        self._suspects = unnamed - self._suspects
        self._swept = self._published
        # After the listing, and with those that begin meanwhile: what they upload may be in it.
        self._begun_at_sweep = max(self._begun, self._published)

    def _list(self) -> Iterable[str]:
        for directory in _SWEPT:
            yield from self._storage.list_names(directory)


#: State, splits of sources, what sinks wait with, files of the program, counts of running tasks,
#: requests for savepoints.
_DIRECTORIES: Final = (
    "state",
    "sources",
    "sinks",
    "files",
    "counts",
    "requests",
    LEASE_DIRECTORY,
    "archive",
    TEMPORARY_DIRECTORY,
)
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
    storage.delete([COMMITTED, PENDING_FILE, ORIGIN, *others])
    storage.remove_empty((*_DIRECTORIES, _ENGINE, LOG_DIRECTORY))
    return True
