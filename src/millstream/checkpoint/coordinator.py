"""The coordinator: the driver's side of the checkpoint protocol, on every engine.

::

    open         take the log over from older runs (fencing)       manifest_log.py
    recover      commit the last manifest again, drop orphans       commit.py
    per checkpoint:
      1 acks       every task sent one, all saw the same records    coordinator.py
      2 manifest   made of the acks and the last manifest           publish.py
      3 publish    put-if-absent: THE COMMIT POINT                  manifest_log.py
      4 commit     sinks make output visible, drop orphans          commit.py
      5 clean up   old checkpoints and the files only they name     commit.py

That is the order for exactly-once.  The other modes (``CheckpointingMode``) are other orders::

    AT_LEAST_ONCE   1, 2, 4, 3, 5   a run that dies between 4 and 3 writes the epoch again
    NONE            3, 1, 2, 4, 5   the position alone is published, before the epoch runs: one
                                    that fails is skipped, and state is kept in memory only

Where tasks are long-running (``tasks_at_work``), later checkpoints are being written while one is
completed, and may fail; the pending part of a failed one comes with the next (``publish.py``).  The
orders are Flink's then::

    AT_LEAST_ONCE   1, 2, 3, 4, 5   tasks do not wait for alignment, so records after a barrier may
                                    repeat
    NONE            1, 2, 3, 4, 5   the position alone is published, then output is committed once
                                    and never again: output of sinks that commit is at most once.
                                    Sinks without commit may repeat output, because the positions of
                                    sources are not known before
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.checkpoint.commit import (
    COMMIT_TIMEOUT,
    SWEEP_INTERVAL,
    Cleaner,
    CommitCounts,
    CommitRetry,
    CommitterThread,
    ManifestCommit,
    PendingCommits,
    abort_orphans,
    is_marked_committed,
    mark_committed,
    read_checkpoints,
)
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.program import require_same_keys
from millstream.checkpoint.publish import EpochMetadata, make_manifest, with_earlier
from millstream.configuration.options import CheckpointingMode
from millstream.contracts.sink import CommitterContext
from millstream.crash_points import crash_point
from millstream.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    InconsistentEpochError,
)
from millstream.object_stores import Requests

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.sink import Committer


#: (stage, subtask).
TaskId = tuple[int, int]


def select_acks(
    epoch: int, acks: Iterable[TaskAck], expected: AbstractSet[TaskId]
) -> list[TaskAck]:
    """The ack that counts for each expected task, in order of stage and subtask.

    Cases for one task:

    1. One ack, and whoever read the task's frames read those of this attempt: it counts.
    2. The same attempt's ack several times (it travelled to several consumers): it counts once.
    3. Acks of several attempts, and all consumers read one of them: that one counts; the
       output and state of the others are deleted as orphans.
    4. Consumers read different attempts, or one that sent no ack: two attempts need not have made
       the same records, so part of the epoch is built on records that the rest never saw.
       The epoch is refused and run again.
    5. No ack: the task's output and state may be lost.  Refused.

    What can never happen: an ack counts whose records nobody, or only some, have read.

    Args:
        epoch: the epoch that is being completed.
        acks: what the driver received, in any order, losers of retried tasks included.
        expected: (stage, subtask) of every task of the epoch.

    Raises:
        InconsistentEpochError: case 4 or 5, or an ack of another epoch or an unknown task.
    """
    candidates: dict[TaskId, dict[str, TaskAck]] = {task: {} for task in expected}
    for ack in acks:
        if ack.epoch != epoch:
            raise _refused(epoch, f"{_name(ack)} sent an acknowledgement of checkpoint {ack.epoch}")
        if (ack.stage, ack.subtask) not in candidates:
            raise _refused(epoch, f"{_name(ack)} is not a task of this checkpoint")
        candidates[ack.stage, ack.subtask][ack.attempt] = ack
    missing = sorted(task for task, attempts in candidates.items() if not attempts)
    if missing:
        tasks = ", ".join(f"stage {stage} subtask {subtask}" for stage, subtask in missing)
        raise _refused(epoch, f"no acknowledgement came from {tasks}")
    # Consumers are in later stages than their producers, so those are settled first.
    read: dict[TaskId, tuple[str, TaskAck]] = {}
    chosen: list[TaskAck] = []
    for task in sorted(candidates, reverse=True):
        ack = _ack_that_counts(epoch, candidates[task], read.get(task))
        _add_consumed(epoch, ack, candidates, read)
        chosen.append(ack)
    chosen.reverse()
    return chosen


def _ack_that_counts(
    epoch: int, attempts: dict[str, TaskAck], read: tuple[str, TaskAck] | None
) -> TaskAck:
    if read is None:
        if len(attempts) == 1:
            return next(iter(attempts.values()))
        some = next(iter(attempts.values()))
        raise _refused(
            epoch,
            f"{len(attempts)} attempts of stage {some.stage} subtask {some.subtask} sent an"
            " acknowledgement and no consumer names the one that counts",
        )
    attempt, consumer = read
    ack = attempts.get(attempt)
    if ack is None:
        some = next(iter(attempts.values()))
        raise _refused(
            epoch,
            f"{_name(consumer)} read stage {some.stage} subtask {some.subtask} attempt {attempt},"
            f" which sent no acknowledgement (those that did: {', '.join(sorted(attempts))})",
        )
    return ack


def _add_consumed(
    epoch: int,
    ack: TaskAck,
    candidates: dict[TaskId, dict[str, TaskAck]],
    read: dict[TaskId, tuple[str, TaskAck]],
) -> None:
    for stage, subtask, attempt in ack.consumed:
        producer = (stage, subtask)
        if producer not in candidates or stage >= ack.stage:
            raise _refused(
                epoch,
                f"{_name(ack)} read frames of stage {stage} subtask {subtask}, which is not a"
                " task before it",
            )
        known = read.setdefault(producer, (attempt, ack))
        if known[0] != attempt:
            raise _refused(
                epoch,
                f"{_name(ack)} read attempt {attempt} of stage {stage} subtask {subtask}, but"
                f" {_name(known[1])} read attempt {known[0]}",
            )


def _name(ack: TaskAck) -> str:
    return f"stage {ack.stage} subtask {ack.subtask} attempt {ack.attempt}"


def _refused(epoch: int, reason: str) -> InconsistentEpochError:
    message = f"checkpoint {epoch} cannot be published: {reason}. It has to be run again."
    return InconsistentEpochError(message)


class CheckpointsInFlight:
    """Numbers of checkpoints under way.  For several threads.

    Invariant: those between the last published one and ``newest`` are under way or have failed.
    """

    def __init__(self) -> None:
        #: The last that was begun; -1 if none was in this run.
        self.newest = -1
        #: How many have failed since one was published.
        self.failures = 0
        self._open: list[int] = []
        self._lock = threading.Lock()

    def begin(self, epoch: int, published: int) -> None:
        """Note that a checkpoint begins.

        Args:
            epoch: its number.
            published: the last one that is published, -1 if none is.

        Raises:
            CheckpointError: it is not the one after the last that was begun.
        """
        with self._lock:
            expected = max(self.newest, published) + 1
            if epoch != expected:
                message = f"checkpoint {epoch} is to begin, but the next one is {expected}"
                raise CheckpointError(message)
            self.newest = epoch
            self._open.append(epoch)

    def require_oldest(self, epoch: int) -> None:
        """Check that a checkpoint can be published.

        Raises:
            CheckpointError: an older one is under way, or this one is not.
        """
        with self._lock:
            self._require_oldest(epoch)

    def _require_oldest(self, epoch: int) -> None:
        if not self._open or self._open[0] != epoch:
            under_way = ", ".join(map(str, self._open)) or "none"
            message = f"checkpoint {epoch} is to be published; under way, in order: {under_way}"
            raise CheckpointError(message)

    def publish(self, epoch: int) -> None:
        """Note that the oldest one is published."""
        with self._lock:
            self._require_oldest(epoch)
            del self._open[0]
            self.failures = 0

    def fail(self, epoch: int) -> int:
        """Note that one will not be published; returns how many have failed in a row.

        Raises:
            CheckpointError: it is not under way.
        """
        with self._lock:
            if epoch not in self._open:
                message = f"checkpoint {epoch} is aborted, but it is not in progress"
                raise CheckpointError(message)
            self._open.remove(epoch)
            self.failures += 1
            return self.failures


_MILLISECONDS: Final = 1000


def _wall_clock() -> int:
    return int(time.time() * _MILLISECONDS)


class Coordinator:
    """The one writer of a job's checkpoints, for one run.

    Contract:
      1. ``open``, then ``recover``, once each and in this order; then for each epoch
         ``begin_epoch`` and ``complete_epoch``; then ``close``.  (checked here)
      2. Before the tasks of an epoch run, ``handle_replay`` is asked; if it says True they do not
         run.  (driver)
      3. While a method runs, no task of this run works on an epoch, except attempts that already
         lost; unless ``tasks_at_work`` was said.  Then that holds of ``open`` and ``recover`` only,
         and within the run no task is tried again.  (driver)
      4. After any exception this coordinator is closed and the run begins again with a new one.
         (driver)
      5. All calls come from one thread; with ``tasks_at_work``, ``begin_epoch`` and ``fail_epoch``
         may come from another while ``complete_epoch`` runs.  (driver)
      6. With ``tasks_at_work`` ``begin_epoch`` may be called for later epochs before
         ``complete_epoch`` or ``fail_epoch`` was called for earlier ones; they are completed in
         order.  (checked here)
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        job_id: str,
        committers: Mapping[str, Committer],
        retained: int = 2,
        *,
        mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE,
        retry: CommitRetry | None = None,
        commit_timeout: float = COMMIT_TIMEOUT,
        labels: Mapping[str, str] | None = None,
        on_pending: Callable[[PendingCommits], None] = lambda _: None,
        commit_counts: defaultdict[str, CommitCounts] | None = None,
        clock: Callable[[], int] = _wall_clock,
        sweep_interval: int = SWEEP_INTERVAL,
        tasks_at_work: bool = False,
        requests: Requests | None = None,
    ) -> None:
        """Coordinate the checkpoints in ``storage``; nothing is read or written yet.

        Args:
            storage: the checkpoint directory.
            job_id: what ``JobIdentity.claim`` returned.
            committers: sink uid -> committer; closed with the coordinator.
            retained: how many checkpoints to keep, at least 1.
            mode: the order of the steps.
            retry: how a failed commit is tried again before the job fails.
            commit_timeout: seconds that a call of a committer may take.
            labels: what messages call sinks, by uid; the uid of those that are not there.
            on_pending: told what is pending while a commit fails or takes more than a second.
            commit_counts: what became of committables, by sink uid; counted here.
            clock: milliseconds since 1970, for the time stamps in manifests.
            sweep_interval: epochs between two searches for files that nothing names.
            tasks_at_work: whether tasks are long-running; see rules 3 and 6.
            requests: those of the job to object stores, counted in this process.

        Raises:
            ConfigurationError: ``retained`` is less than 1.
        """
        if retained < 1:
            message = f"execution.checkpointing.num-retained is {retained}; it must be at least 1"
            raise ConfigurationError(message)
        self._job_id = job_id
        self._storage = storage
        self._committers = {
            uid: CommitterThread(uid, committer, commit_timeout, (labels or {}).get(uid))
            for uid, committer in committers.items()
        }
        self._mode = mode
        # At most once: a commit that failed may have gone through.
        never = CommitRetry(delays=())
        retry = never if mode is CheckpointingMode.NONE else retry or CommitRetry()
        self._commits = ManifestCommit(
            storage, self._committers, retry, clock, on_pending, commit_counts
        )
        self._clock = clock
        self._requests = requests or Requests()
        self._log = ManifestLog(storage)
        self._cleaner = Cleaner(storage, self._log, retained, sweep_interval)
        #: The manifest to resume from, the last published one; None before the first epoch.  In
        #: mode NONE it has state besides, which only this run knows.
        self.last: Manifest | None = None
        #: Of ``_last`` in the log.
        self._version = -1
        #: Mode NONE: the version and manifest that ``begin_epoch`` published.
        self._begun: tuple[int, Manifest] | None = None
        #: The last manifest is published and may not be committed yet.
        self._uncommitted = False
        #: Operators whose keys were found to be of the types of their state.
        self._met_keys: set[str] = set()
        #: This run has taken the job over.
        self.opened = False
        self._recovered = False
        #: Told each checkpoint that is published and committed, before older ones are deleted.
        self.on_committed: Callable[[Manifest], None] = lambda _: None
        #: None where tasks end with each epoch.
        self._in_flight = CheckpointsInFlight() if tasks_at_work else None
        #: Whether what a manifest names is committed after it, and again by the next run.
        self._names_output = mode is CheckpointingMode.EXACTLY_ONCE or (
            tasks_at_work and mode is CheckpointingMode.AT_LEAST_ONCE
        )

    @property
    def claimed_generation(self) -> int | None:
        """The generation of this run; or that which it may have begun when ``open`` failed."""
        return self._log.claimed

    @property
    def generation(self) -> int:
        """The generation of this run, from 1; ``open`` must have been called."""
        return self._log.generation

    @property
    def pending_commits(self) -> PendingCommits:
        """Return what is published and not committed yet; may be asked from any thread."""
        return self._commits.pending

    def open(self, after: int | None = None, begin: Callable[[], Manifest] | None = None) -> int:
        """Take the job over: from now on no older run can publish.

        Args:
            after: the generation that the same driver began last; None if it has begun none.
            begin: brings the checkpoint that the job starts from and its files, if there is no
                checkpoint yet; it is published as of a run before this one.

        Returns:
            The generation of this run.

        Raises:
            FencedError: another driver has taken it over since ``after``.
            UnknownFormatError: the newest version of the log has another format version.
            CorruptCheckpointError: it is damaged.
        """
        if self.opened:
            message = "the coordinator was opened before; each run needs a new one"
            raise CheckpointError(message)
        self._cleaner.list_before_open()
        crash_point("log.open.before")
        generation = self._log.open_generation(after)
        crash_point("log.open.after")
        if begin is not None and self._log.latest() is None:
            manifest = begin()
            crash_point("savepoint.begin.before")
            self._log.publish(manifest, None)
            crash_point("savepoint.begin.after")
            generation = self._log.open_generation(generation)
        self.opened = True
        for uid, committer in self._committers.items():
            committer.open(CommitterContext(self._job_id, uid, generation, self._storage))
        return generation

    def hold(self, manifest: Manifest) -> Callable[[], None]:
        """Keep the files of a checkpoint while somebody copies them; to be called on commit.

        Returns:
            Ends it; may be called from any thread.
        """
        return self._cleaner.hold(manifest)

    def recover(self) -> Manifest | None:
        """Finish what the run before left, and say where this one continues.

        Cases (where the run before ended -> what is found and done):

        1. Before any manifest -> none.  All pre-committed output is an orphan and is dropped; the
           job begins at its beginning.
        2. Epoch N logged by Spark, no manifest N (a task, an ack or the publishing failed)
           -> manifest N-1, committed long ago.  Committing it again changes nothing; output of N
           is dropped; Spark runs the same offsets of N again from state N-1.
        3. Manifest N published, its output not or partly committed -> it is committed now, and
           ``handle_replay(N)`` makes the driver skip Spark's replay of N.
        4. Manifest N published and committed, orphans or old checkpoints not cleaned up, or
           Spark's commit of N not logged -> as case 3, and the commit finds nothing to do.
        5. Mode AT_LEAST_ONCE: output of N committed, wholly or in part, no manifest N -> as case
           2, but what is visible stays; the new attempt's output comes beside it.
        6. Output of an epoch after the last manifest is committed, and a sink can tell -> refused:
           the directory was put back from an older copy.

        What can never happen: manifest N exists and output of an epoch before N is uncommitted.
        Publishing N waits for the commit of N-1.

        Returns:
            The last manifest, the one to restore from; None for a job that has not begun.

        Raises:
            CorruptCheckpointError, ForeignCheckpointError, UnknownFormatError: the log cannot
                be used; nothing was committed or dropped.
            SinkError: a sink kept failing; or case 6.
            FencedError: a newer run has taken over.
        """
        if not self.opened or self._recovered:
            message = "recover() is called once, after open()"
            raise CheckpointError(message)
        checkpoints = read_checkpoints(self._log, self._job_id)
        self._version, self.last = checkpoints[-1] if checkpoints else (-1, None)
        self._require_no_later_output()
        crash_point("recover.commit.before")
        last = self.last
        self._uncommitted = last is not None and not last.committed
        marked = last is not None and is_marked_committed(self._storage, self._version, last)
        self._finish_commit(confirmed=marked)
        crash_point("recover.commit.after")
        crash_point("recover.abort.before")
        abort_orphans(self.last, self._job_id, self._committers, self._log, self._log.generation)
        crash_point("recover.abort.after")
        self._cleaner.recovered(checkpoints)
        self._recovered = True
        return self.last

    def _require_no_later_output(self) -> None:
        """Let the sinks compare what they hold with the last manifest; raises SinkError.

        Not with AT_LEAST_ONCE, nor right after it: a run that dies then leaves output of an epoch
        that no manifest names.
        """
        last = self.last
        if self._mode is CheckpointingMode.AT_LEAST_ONCE or (last is not None and last.committed):
            return
        epoch = -1 if last is None else last.epoch
        for committer in self._committers.values():
            committer.resume_from(epoch)

    def begin_epoch(self, metadata: EpochMetadata) -> None:
        """Say that an epoch is about to run; in mode NONE its position is published here.

        Cases, in mode NONE:

        1. The epoch completes -> its output is committed.
        2. It fails, or the process dies, at any moment after this -> the next run finds the
           position after it, no state, and no output to commit.  Its records are lost.
        3. The process dies before or in this -> as 2, or the epoch runs for the first time.

        What can never happen: an epoch runs twice.

        With ``tasks_at_work`` nothing is published here, and only the number of the metadata
        counts: how far sources are read is known when the tasks have acknowledged.

        Raises:
            CheckpointError: it is not the next one.
            FencedError: a newer run has taken over.
        """
        if self._in_flight is not None:
            last = self._require_recovered()
            self._in_flight.begin(metadata.epoch, -1 if last is None else last.epoch)
            self._cleaner.begun(metadata.epoch)
            return
        self._require_next(metadata.epoch)
        self._cleaner.begun(metadata.epoch)
        if self._mode is not CheckpointingMode.NONE:
            return
        self._finish_commit()
        empty = replace(self.last, operators={}, splits={}) if self.last is not None else None
        manifest = make_manifest(self._completed(metadata), [], empty)
        crash_point("manifest.publish.before")
        oldest = self._cleaner.oldest_beside_next()
        self._begun = (self._log.publish(manifest, oldest), manifest)
        crash_point("manifest.publish.after")

    def complete_epoch(
        self,
        metadata: EpochMetadata,
        acks: Sequence[TaskAck],
        expected: AbstractSet[tuple[int, int]],
    ) -> Manifest:
        """Publish and commit an epoch that all tasks have acknowledged.

        They have ended, or, with ``tasks_at_work``, are writing later epochs.

        Cases (where it can stop -> what holds, in mode EXACTLY_ONCE):

        1. Acks missing or inconsistent -> nothing is published; the epoch is run again.  With
           ``tasks_at_work`` the run ends: this cannot be, for no task is tried again.
        2. Publishing says that a newer run exists -> nothing is published; this run must end.
        3. Publishing fails otherwise, or the process dies in it -> the manifest may or may not
           exist.  The next run looks; it is recovery's case 2 or 3.
        4. Published, the commit fails or the process dies -> the epoch stands; recovery's case 3.
        5. Committed, the rest fails or the process dies -> recovery's case 4.

        What can never happen: output of this epoch becomes visible without its manifest, or
        output of an attempt that the manifest does not name.

        Args:
            metadata: what the driver knows of the epoch, as given to ``begin_epoch``; its number is
                one more than that of the last manifest, from 0; with ``tasks_at_work`` that of the
                oldest which is under way.
            acks: what the tasks sent, in any order; acks of lost attempts may be among them.
            expected: (stage, subtask) of every task that ran.

        Returns:
            The manifest, published and committed.

        Raises:
            CheckpointError: an older epoch is under way.
            InconsistentEpochError: case 1.
            IncompatibleProgramError: keys are of another type than those of the state.
            FencedError: case 2, or found when orphans were to be dropped.
            SinkError: case 4.
        """
        self._require_oldest(metadata.epoch)
        self._finish_commit()
        published = -1 if self.last is None else self.last.epoch
        chosen = [
            with_earlier(ack, published) for ack in select_acks(metadata.epoch, acks, expected)
        ]
        crash_point("epoch.acks.after")
        if self.last is not None:
            operators = (ack for task in chosen for ack in task.operators)
            require_same_keys(
                self._storage.location, self.last, metadata.program, operators, self._met_keys
            )
        manifest = make_manifest(self._completed(metadata), chosen, self.last)
        version = self._publish_and_commit(manifest)
        self.on_committed(manifest)
        if self._in_flight is None:
            self._abort_orphans(manifest, self._log.generation)
        crash_point("cleanup.before")
        self._cleaner.published(version, manifest)
        crash_point("cleanup.after")
        if self._in_flight is not None and self._cleaner.has_swept:
            # What tasks of this run have pre-committed, manifests to come will name.  Older runs
            # may have left some more since ``recover``: a slot that was stopped and woke up.
            self._abort_orphans(manifest, self._log.generation - 1)
        crash_point("epoch.end.before")
        return manifest

    def fail_epoch(self, epoch: int) -> int:
        """Give up an epoch that was begun, while the tasks continue; only with ``tasks_at_work``.

        Its number stays out of the log.  What tasks owe of it comes with their next
        acknowledgements, also if those of this one are all here: they are not to be kept.

        Returns:
            How many have failed since one was published, this one included.

        Raises:
            CheckpointError: it is not under way.
        """
        if self._in_flight is None:
            message = f"checkpoint {epoch} cannot be aborted alone: its tasks end with it"
            raise CheckpointError(message)
        return self._in_flight.fail(epoch)

    def finish(self) -> None:
        """Drop what tasks that continued have left, none of which is at work any more.

        That is what they had begun after the last checkpoint.  If it fails, or the process dies,
        the next run drops it.

        Raises:
            FencedError: a newer run has taken over, which sees to it.
            SinkError: a sink kept failing.
        """
        last = self._require_recovered()
        if last is not None:
            self._abort_orphans(last, self._log.generation)

    def drop_output(self, sinks: AbstractSet[str]) -> None:
        """Drop what the tasks of some sinks have left: they were stopped, and begin again.

        They begin from the last checkpoint, so whatever it does not name is an orphan.  Tasks of
        other sinks are at work.

        Args:
            sinks: their uids; no checkpoint that has output of theirs is under way.

        Raises:
            FencedError: a newer run has taken over.
            SinkError: a sink kept failing.
        """
        last = self._require_recovered()
        self._abort_orphans(last, self._log.generation, sinks)

    def _abort_orphans(
        self, manifest: Manifest | None, generation: int, sinks: AbstractSet[str] | None = None
    ) -> None:
        crash_point("sink.abort.before")
        committers = {
            uid: each for uid, each in self._committers.items() if sinks is None or uid in sinks
        }
        abort_orphans(manifest, self._job_id, committers, self._log, generation)
        crash_point("sink.abort.after")

    def _require_oldest(self, epoch: int) -> None:
        """Check that an epoch can be completed now; numbers of failed ones are left out."""
        if self._in_flight is None:
            self._require_next(epoch)
        else:
            self._require_recovered()
            self._in_flight.require_oldest(epoch)

    def _publish_and_commit(self, manifest: Manifest) -> int:
        """Steps 3 and 4 in the order of the mode; returns the version that holds the manifest."""
        if self._mode is CheckpointingMode.AT_LEAST_ONCE and not self._names_output:
            manifest = replace(manifest, committed=True)
            self._commit(manifest)
        version = self._publish(manifest)
        self._uncommitted = self._names_output
        if self._names_output or self._mode is CheckpointingMode.NONE:
            self._commit(manifest)
            self._uncommitted = False
        return version

    def _publish(self, manifest: Manifest) -> int:
        """Step 3; in mode NONE it is done, or without what the next run is not to have."""
        if self._mode is CheckpointingMode.NONE and self._in_flight is None:
            if self._begun is None:
                message = f"checkpoint {manifest.epoch} ends, but begin_epoch() was not called"
                raise CheckpointError(message)
            version, self._begun = self._begun[0], None
            self.last = manifest
            return version
        logged = manifest
        if self._mode is CheckpointingMode.NONE:
            logged = replace(manifest, operators={}, splits={}, in_flight=[])
        crash_point("manifest.publish.before")
        version = self._log.publish(logged, self._cleaner.oldest_beside_next())
        self.last, self._version = manifest, version
        if self._in_flight is not None:
            self._in_flight.publish(manifest.epoch)
        crash_point("manifest.publish.after")
        return version

    def _commit(self, manifest: Manifest) -> None:
        mode = CheckpointingMode.EXACTLY_ONCE if self._names_output else self._mode
        self._commits.begin(manifest, mode=mode)
        self._commits.finish(retried=False)

    def _completed(self, metadata: EpochMetadata) -> EpochMetadata:
        """The metadata with what the coordinator knows."""
        return replace(
            metadata,
            generation=self._log.generation,
            job_id=self._job_id,
            published=self._clock(),
            requests=self._requests.take(),
        )

    def handle_replay(self, epoch: int, offsets: Mapping[str, Any] | None = None) -> bool:
        """Return whether ``epoch`` is published already, so that its tasks must not run again.

        Cases:

        1. It is the one after the last manifest -> False: run it.
        2. It is that of the last manifest -> True.  Its commit is finished first, if a failure
           cut it short.
        3. It is older -> True.  It was committed before its successor was published.
        4. It is later -> refused: epochs in between are missing from the log.

        What can never happen: an epoch that is published runs again, or one that is not
        published is skipped.

        Args:
            epoch: the number Spark gives the micro-batch.
            offsets: the position that the driver would publish for it; compared with the
                manifest's in case 2, for Spark must replay the very epoch that was published.

        Returns:
            True: skip it.

        Raises:
            CorruptCheckpointError: case 4, or the offsets are not those of the manifest.
            SinkError: a sink kept failing.
        """
        last = self._require_recovered()
        if last is None or epoch > last.epoch:
            self._require_next(epoch)
            return False
        if epoch == last.epoch and offsets is not None and not _same_json(offsets, last.offsets):
            message = (
                f"the replay of checkpoint {epoch} would read up to {offsets}, but its manifest"
                f" ends at {last.offsets}: Spark's log and the manifest log are not of the same"
                " history. Put both back from one copy."
            )
            raise CorruptCheckpointError(message)
        self._finish_commit()
        return True

    def is_fenced(self) -> bool:
        """Return whether a newer run has taken the job over.

        Asked after a failure: two runs side by side disturb each other in Spark's logs before
        either publishes, and a run that then started again would fence the newer one in turn.
        """
        return self.opened and self._log.is_fenced()

    def check_fence(self) -> None:
        """Make sure, before something is deleted that a newer run may need, that there is none.

        Raises:
            FencedError: a newer run has taken the job over.
        """
        self._log.check_fence()

    def close(self) -> None:
        """Close the committers, and mark if all is committed.  Nothing is committed or dropped."""
        last = self.last
        done = (
            self._recovered and not self._uncommitted and self._mode is not CheckpointingMode.NONE
        )
        if last is not None and done:
            mark_committed(self._storage, self._version, last)
        for committer in self._committers.values():
            committer.close()

    def _finish_commit(self, *, confirmed: bool = False) -> None:
        if self._uncommitted and self.last is not None:
            self._commits.begin(self.last, confirmed=confirmed)
            self._commits.finish(retried=True)
        self._uncommitted = False

    def _require_recovered(self) -> Manifest | None:
        if not self._recovered:
            message = "open() and recover() come before any checkpoint"
            raise CheckpointError(message)
        return self.last

    def _require_next(self, epoch: int) -> None:
        last = self._require_recovered()
        expected = last.epoch + 1 if last is not None else 0
        if epoch == expected:
            return
        if epoch < expected:
            message = f"checkpoint {epoch} is published already; the next one is {expected}"
            raise CheckpointError(message)
        message = (
            f"checkpoint {epoch} is to be run, but the manifest log in {self._log.location} ends"
            " before"
            f" checkpoint {expected}: checkpoints are missing. Put the directory back from one"
            " copy, or start with an empty one."
        )
        raise CorruptCheckpointError(message)


def _same_json(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return json.dumps(dict(one), sort_keys=True) == json.dumps(dict(other), sort_keys=True)
