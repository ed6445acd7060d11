"""The cases of ``check_sink``, one method each.

Attempts are lost, writers and committers are killed, commits are repeated; later runs replay, other
jobs and newer runs leave orphans, an old driver continues.  The first violation of a numbered
contract in ``contracts/sink.py`` is a ``ConformanceError`` with its number.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from millstream.checkpoint.local_storage import LocalStorage
from millstream.contracts.sink import (
    CommitRequest,
    CommitterContext,
    DeliveryGuarantee,
    SinkKind,
    WriterContext,
)
from millstream.crash_points import CRASH_POINTS, arm
from millstream.errors import SinkError
from millstream.testing.sink_processes import commit_and_die, write_and_die
from millstream.types.pickling import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.sink import Committable, Committer, Sink, SinkWriter

__all__ = ["ConformanceError", "check_sink", "require"]

JOB: Final = "conformance-job"
UID: Final = "conformance/sink"
GENERATION: Final = 3


class ConformanceError(AssertionError):
    """A contract is broken; the message begins with its number."""


def require(condition: object, message: str) -> None:
    """Raise ConformanceError unless a condition holds."""
    if not condition:
        raise ConformanceError(message)


class SinkReader:
    """A reader's last view, and the expected one."""

    def __init__(
        self,
        read: Callable[[], Sequence[object]],
        leftovers: Callable[[], Sequence[object]] | None,
        *,
        ordered: bool,
        by_key: bool,
    ) -> None:
        self._by_key = by_key
        self._read = read
        self._leftovers = leftovers
        self._ordered = ordered
        #: What one epoch makes visible, and what all so far have.
        self._once: list[str] = []
        self._seen: list[str] = []

    def now(self) -> list[str]:
        """Return what is visible, in a comparable form."""
        found = list(map(repr, self._read()))
        return found if self._ordered else sorted(found)

    def first(self, message: str) -> None:
        """An epoch must have become visible; whatever that is, is what each further one adds."""
        self._once = self._seen = self.now()
        require(self._once, message)

    def unchanged(self, message: str) -> None:
        """Nothing more and nothing less is visible."""
        found, expected = self.now(), self._seen
        require(found == expected, f"{message}{_difference(expected, found)}")

    def grown(self, times: int, message: str) -> None:
        """The records came ``times`` more; by key they replaced themselves."""
        if not self._by_key:
            expected = self._seen + self._once * times
            self._seen = expected if self._ordered else sorted(expected)
        self.unchanged(message)

    def at_least(self, times: int, message: str) -> None:
        """Each record is there so many times, or more."""
        found = Counter(self.now())
        lost = {each for each, n in Counter(self._once).items() if found[each] < n * times}
        require(not lost, f"{message}: lost are {sorted(lost)!r:.300}")

    def nothing_left(self, message: str) -> None:
        """Nothing is pre-committed, if that can be seen."""
        if self._leftovers is not None:
            left = list(self._leftovers())
            require(not left, f"{message}: {left!r:.300}")


def _difference(expected: Sequence[str], found: Sequence[str]) -> str:
    more, less = Counter(found), Counter(expected)
    surplus, missing = list((more - less).elements()), list((less - more).elements())
    if not surplus and not missing:
        return f" (in another order: {list(found)!r:.300})"
    return f" (too many: {surplus!r:.200}, missing: {missing!r:.200})"


class _DiedError(BaseException):
    """Ends a commit where a driver would die."""


def check_sink(
    make_sink: Callable[[], Sink],
    batches: Sequence[Batch],
    read: Callable[[], Sequence[object]],
    storage: CheckpointStorage | None = None,
    *,
    leftovers: Callable[[], Sequence[object]] | None = None,
    ordered: bool = False,
    by_key: bool = False,
    processes: bool = True,
) -> None:
    """Check a sink: commits, retries, crashes, replays, other runs and jobs.

    What is checked depends on what the sink says of itself.  If it is exactly-once by a committer:
    everything.  If it is idempotent without one: that writing again changes nothing.  If it is
    at-least-once: that nothing is lost.  If it promises nothing: that it can be used.

    Args:
        make_sink: makes the sink (the same target at each call).
        batches: what to write, at least one record; keys differ if the sink writes by key.
        read: what a reader of the target sees, as a sequence of comparable records.
        storage: the checkpoint directory; None makes a temporary one.
        leftovers: what is pre-committed in the target and not committed, if there is a way to see
            it; it must be empty when orphans were aborted.
        ordered: ``read`` gives records in the order in which they became visible.
        by_key: written again, records replace themselves (as those of idempotent sinks do).
        processes: kill writers and committers with SIGKILL in processes of their own (a few
            seconds).  The class of the sink must be importable.

    Raises:
        ConformanceError: a contract is broken; the message says which and when.
    """
    if storage is None:
        with tempfile.TemporaryDirectory(prefix="millstream-conformance-") as directory:
            place = LocalStorage(directory, fsync=False)
            check_sink(
                make_sink,
                batches,
                read,
                place,
                leftovers=leftovers,
                ordered=ordered,
                by_key=by_key,
                processes=processes,
            )
        return
    content = dumps(make_sink())
    sink = cast("Sink", loads(content))
    sink.validate()
    require(not read(), "the target must be empty at first")
    by_key = by_key or sink.kind is SinkKind.IDEMPOTENT
    reader = SinkReader(read, leftovers, ordered=ordered, by_key=by_key)
    check = _SinkCheck(sink, content, batches, reader, storage)
    if sink.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
        if sink.create_committer() is not None:
            _check_exactly_once(check, processes=processes)
        else:
            require(
                sink.kind is SinkKind.IDEMPOTENT,
                "an exactly-once sink that is not idempotent needs a committer",
            )
            check.replacing()
    elif sink.guarantee is DeliveryGuarantee.AT_LEAST_ONCE:
        check.losing_nothing()
    else:
        check.promising_nothing()
    sink.close()


def _check_exactly_once(check: _SinkCheck, *, processes: bool) -> None:
    """The cases, in an order in which each builds on what the ones before have committed."""
    check.commits()
    check.aborts()
    check.crashes()
    check.interrupted_commits()
    if processes:
        check.killed_writers()
        check.killed_committers()
    check.overlaps()
    check.failed_checkpoints()
    check.others()
    check.fencing()


@dataclass(frozen=True)
class _Run:
    """One run of one sink of one job."""

    job: str = JOB
    uid: str = UID
    generation: int = GENERATION


_RUN: Final = _Run()
#: The one that takes over from ``_RUN``.
_NEXT_RUN: Final = _Run(generation=GENERATION + 1)


class _SinkCheck:
    def __init__(
        self,
        sink: Sink,
        content: bytes,
        batches: Sequence[Batch],
        reader: SinkReader,
        storage: CheckpointStorage,
    ) -> None:
        #: Writes, as in a worker, which keeps its sink from epoch to epoch.
        self._sink = sink
        #: The sink pickled.  Invariant: each committer is made of a sink that has never written,
        #: as in the driver; else what a writer left in a field would be found by the commit.
        self._content = content
        self._attempts: set[tuple[int, str, int]] = set()
        self._batches = batches
        self._reader = reader
        self._storage = storage
        self._epoch = 0

    # -- exactly-once by a committer -----------------------------------------------------------

    def commits(self) -> None:
        """Invisible before the commit; the attempt that counts only; once, however often."""
        invisible = "writer contract 2: output is visible before the commit"
        self._prepare(1, "loser")
        winner = self._prepare(1, "winner")
        self._reader.unchanged(invisible)
        committer = self._committer()
        with _no_error("committer contract 3: abort_orphans fails with nothing to drop"):
            committer.abort_orphans("another-job", UID, [], GENERATION)
            committer.abort_orphans(JOB, "another-uid", [], GENERATION)
            committer.abort_orphans(JOB, UID, winner, GENERATION)
            committer.abort_orphans(JOB, UID, [], GENERATION - 1)  # an older run, not yet fenced
        self._reader.unchanged(invisible)
        broken = "committer contract 3: abort_orphans dropped what others keep"
        with _no_error(f"the first commit fails, or {broken}"):
            _commit(committer, winner, 1, retried=False)
        self._reader.first("committer contract 2: committed output is not visible")
        idempotent = "committer contract 1: commit is not idempotent"
        with _no_error(idempotent):
            _commit(committer, winner, 1, retried=True)
        committer.close()
        self._reader.unchanged(idempotent)
        with _no_error(f"{idempotent} in the next run"):
            self._commit(winner, 1)
        self._reader.unchanged(f"{idempotent} in the next run")
        committer = self._committer()
        committer.abort_orphans(JOB, UID, winner, GENERATION)
        committer.close()
        self._reader.unchanged("committer contract 3: abort_orphans took committed output away")
        self._reader.nothing_left("committer contract 3: abort_orphans left the losing attempt")
        self._epoch = 1

    def aborts(self) -> None:
        """An aborted writer leaves nothing to see; epochs follow, with and without records."""
        writer = self._written(2, "aborted", _RUN, 0, self._batches)
        writer.abort()
        writer.close()
        self._reader.unchanged("writer contract 4: aborted output is visible")
        self._next_epoch(_RUN)
        empty = self._prepare(self._epoch + 1, "empty", batches=[])
        self._commit(empty, self._epoch + 1)
        self._epoch += 1
        self._reader.unchanged("writer contract 5: an epoch without records changed the output")
        self._next_epoch(_RUN, subtasks=2)

    def crashes(self) -> None:
        """The epoch was pre-committed, or partly, when the run died; the next one runs it again."""
        epoch = self._epoch + 1
        self._prepare(epoch, "before the crash")
        self._written(epoch, "killed", _RUN, 1, self._batches)  # neither aborted nor closed
        self._abort_twice(_NEXT_RUN)
        self._reader.unchanged(
            "committer contract 3: dropping an epoch that no manifest names changed what is visible"
        )
        self._next_epoch(_NEXT_RUN, subtasks=2)

    def interrupted_commits(self) -> None:
        """The driver dies at each crash point of a commit in turn; the next run commits again."""
        passings, place = 0, "the first"
        while place:
            self._epoch, passings = self._epoch + 1, passings + 1
            made = self._prepare(self._epoch, f"interrupted {passings}", _NEXT_RUN)
            place = _commit_until(self._committer(_NEXT_RUN), made, self._epoch, passings)
            broken = f"committer contract 2: a commit that died at {place or 'none'} is not resumed"
            with _no_error(broken):
                self._commit(made, self._epoch, _NEXT_RUN)
            self._reader.grown(1, broken)

    def killed_writers(self) -> None:
        """SIGKILL before the pre-commit leaves nothing; after it, it costs nothing."""
        epoch = self._epoch + 1
        prepared = self._where(epoch, "killed late", _NEXT_RUN, 0)
        unfinished = self._where(epoch, "killed early", _NEXT_RUN, 1)
        kept = write_and_die(self._driver_sink(), prepared, unfinished, self._batches)
        self._reader.unchanged("writer contract 2: output is visible before the commit")
        committer = self._committer(_NEXT_RUN)
        committer.abort_orphans(JOB, UID, kept, _NEXT_RUN.generation)
        committer.close()
        broken = "writer contract 3: what a writer pre-committed did not survive its SIGKILL"
        with _no_error(broken):
            self._commit(kept, epoch, _NEXT_RUN)
        self._epoch = epoch
        self._reader.grown(1, broken)

    def killed_committers(self) -> None:
        """SIGKILL between two committables of an epoch: the next run commits the rest."""
        epoch = self._epoch + 1
        both = [
            item
            for subtask in (0, 1)
            for item in self._prepare(epoch, f"half {subtask}", _NEXT_RUN, subtask)
        ]
        context = self._context(_NEXT_RUN)
        commit_and_die(self._driver_sink(), context, both, epoch, after=1)
        broken = "committer contract 2: a commit that was killed in the middle is not resumed"
        with _no_error(broken):
            self._commit(both, epoch, _NEXT_RUN)
        self._epoch = epoch
        self._reader.grown(2, broken)

    def overlaps(self) -> None:
        """Tasks that go on: later epochs are written, and pre-committed, before a commit."""
        in_the_way = (
            "writer contract 6: the next epoch, which is being written, keeps a commit away"
        )
        shown = "writer contract 6: output of a later epoch is visible before its commit"
        committer = self._committer(_NEXT_RUN)  # one for all, as in a driver
        made = self._prepare(self._epoch + 1, "overlap 1", _NEXT_RUN)
        for number in (2, 3):
            writer = self._written(
                self._epoch + 2, f"overlap {number}", _NEXT_RUN, 0, self._batches
            )
            self._commit_next(committer, made, in_the_way)
            made = self._finish(writer, self._epoch + 1, f"overlap {number}")
            self._reader.unchanged(shown)
        # Two are pre-committed, and a third is being written.
        later = self._prepare(self._epoch + 2, "overlap 4", _NEXT_RUN)
        writer = self._written(self._epoch + 3, "overlap 5", _NEXT_RUN, 0, self._batches)
        self._reader.unchanged(shown)
        self._commit_next(committer, made, in_the_way)
        self._commit_next(committer, later, in_the_way)
        # A slot of the run before wakes up: its output is dropped while this run writes.
        self._prepare(self._epoch + 1, "of a slot that was stopped", _RUN, subtask=1)
        with _no_error("committer contract 3: abort_orphans fails while tasks are at work"):
            committer.abort_orphans(JOB, UID, later, _RUN.generation)
        made = self._finish(writer, self._epoch + 1, "overlap 5")
        self._commit_next(committer, made, in_the_way)
        committer.close()

    def failed_checkpoints(self) -> None:
        """What was pre-committed for a checkpoint that failed is committed with the next one."""
        failed = [
            item
            for number in (1, 2)
            for item in self._prepare(self._epoch + number, f"failed {number}", _NEXT_RUN)
        ]
        self._epoch += 3
        made = failed + self._prepare(self._epoch, "after two that failed", _NEXT_RUN)
        broken = "committer contract 9: output of checkpoints that failed, with that of the next,"
        committer = self._committer(_NEXT_RUN)
        with _no_error(f"{broken} is not committed"):
            _commit(committer, made, self._epoch, retried=False)
        self._reader.grown(3, f"{broken} is not visible once")
        with _no_error(f"{broken} is not committed again"):
            _commit(committer, made, self._epoch, retried=True)
            self._commit(made, self._epoch, _NEXT_RUN)
        self._reader.unchanged(f"{broken} is not recognised")
        committer.close()

    def others(self) -> None:
        """Another job, and another sink of this one, keep what they pre-committed."""
        for run in (_Run(job="another-job"), _Run(uid="another-uid")):
            theirs = self._prepare(1, "other", run)
            committer = self._committer()
            committer.abort_orphans(JOB, UID, [], _NEXT_RUN.generation)
            committer.close()
            broken = f"committer contract 3: output of {run} was dropped or shared a note"
            with _no_error(broken):
                self._commit(theirs, 1, run)
            self._reader.grown(1, broken)

    def fencing(self) -> None:
        """An older run that does not know yet that it was replaced can do no harm."""
        epoch = self._epoch + 1
        ours = self._prepare(epoch, "newer", _NEXT_RUN)
        zombie = self._committer(_RUN)
        zombie.abort_orphans(JOB, UID, [], _RUN.generation)
        broken = "committer contract 3: an older run dropped output of a newer one"
        with _no_error(broken):
            self._commit(ours, epoch, _NEXT_RUN)
        self._reader.grown(1, broken)
        later = self._prepare(epoch + 1, "later", _NEXT_RUN)
        self._commit(later, epoch + 1, _NEXT_RUN)
        self._reader.grown(1, "committer contract 2: an epoch's output is missing")
        with contextlib.suppress(SinkError):  # to be refused is as good
            _commit(zombie, ours, epoch, retried=True)
        zombie.close()
        self._reader.unchanged(
            "committer contract 7: an older run committed an epoch that a newer one has passed"
        )
        self._abort_twice(_NEXT_RUN, keep=later)
        for run in (_Run(job="another-job"), _Run(uid="another-uid")):
            self._abort_twice(run)
        self._reader.unchanged("committer contract 3: abort_orphans took committed output away")
        self._reader.nothing_left("committer contract 3: abort_orphans left something")

    # -- weaker sinks --------------------------------------------------------------------------

    def replacing(self) -> None:
        """Without a committer: rows replace those of the same key, whoever wrote them."""
        self._prepare(1, "first")
        self._reader.first("pre-committed output of a sink without a committer is not visible")
        broken = "an idempotent sink: written again, the same rows are not the same"
        for attempt, run in (("again", _RUN), ("by the next run", _NEXT_RUN)):
            self._prepare(1, attempt, run)
            self._reader.unchanged(f"{broken} ({attempt})")
        writer = self._written(2, "aborted", _NEXT_RUN, 0, self._batches)
        writer.abort()
        writer.close()
        self._prepare(2, "after an abort", _NEXT_RUN)
        self._prepare(3, "empty", _NEXT_RUN, batches=[])
        self._reader.unchanged(f"{broken} (in a later epoch)")

    def losing_nothing(self) -> None:
        """At-least-once: what was committed, or acknowledged without a committer, is visible."""
        lost = "an at-least-once sink lost records"
        self._epoch = 1
        self._commit_if_needed(self._prepare(1, "first"), 1)
        self._reader.first(f"{lost}: none of the first epoch is visible")
        writer = self._written(2, "aborted", _RUN, 0, self._batches)
        writer.abort()
        writer.close()
        empty = self._prepare(2, "empty", batches=[])
        self._commit_if_needed(empty, 2)
        made = self._prepare(3, "by the next run", _NEXT_RUN)
        self._commit_if_needed(made, 3, _NEXT_RUN)
        self._reader.at_least(2, f"{lost} of a later epoch")
        self._commit_if_needed(made, 3, _NEXT_RUN)  # again
        self._reader.at_least(2, f"{lost} when an epoch was committed again")
        failed = self._prepare(4, "of a checkpoint that failed", _NEXT_RUN)
        self._commit_if_needed(failed + self._prepare(5, "the next", _NEXT_RUN), 5, _NEXT_RUN)
        self._reader.at_least(4, f"{lost} of a checkpoint that failed, or the next")

    def promising_nothing(self) -> None:
        """No guarantee: writers and committers can be used all the same."""
        for epoch, attempt in ((1, "first"), (2, "second")):
            self._commit_if_needed(self._prepare(epoch, attempt), epoch)

    # -- steps ---------------------------------------------------------------------------------

    def _next_epoch(self, run: _Run, subtasks: int = 1) -> None:
        """An epoch whose first commit never ran: the driver died before."""
        self._epoch += 1
        committables = [
            item
            for subtask in range(subtasks)
            for item in self._prepare(self._epoch, f"attempt {self._epoch}.{subtask}", run, subtask)
        ]
        broken = f"committer contract 2: epoch {self._epoch} is not visible exactly once"
        with _no_error(broken):
            self._commit(committables, self._epoch, run)
        self._reader.grown(subtasks, broken)

    def _commit_next(
        self, committer: Committer, committables: Sequence[Committable], broken: str
    ) -> None:
        self._epoch += 1
        with _no_error(broken):
            _commit(committer, committables, self._epoch, retried=False)
        self._reader.grown(1, broken)

    def _abort_twice(self, run: _Run, keep: Sequence[Committable] = ()) -> None:
        """As a run does that dies in its recovery, and the next one."""
        committer = self._committer(run)
        with _no_error("committer contract 3: abort_orphans cannot be repeated"):
            committer.abort_orphans(run.job, run.uid, list(keep), _NEXT_RUN.generation)
            committer.abort_orphans(run.job, run.uid, list(keep), _NEXT_RUN.generation)
        committer.close()

    def _where(self, epoch: int, attempt: str, run: _Run, subtask: int) -> WriterContext:
        return WriterContext(
            run.job,
            run.uid,
            subtask=subtask,
            parallelism=2,
            epoch=epoch,
            attempt=attempt,
            generation=run.generation,
            storage=self._storage,
        )

    def _context(self, run: _Run) -> CommitterContext:
        return CommitterContext(run.job, run.uid, run.generation, self._storage)

    def _written(
        self, epoch: int, attempt: str, run: _Run, subtask: int, batches: Sequence[Batch]
    ) -> SinkWriter:
        with self._writing(epoch, attempt, subtask):
            writer = self._sink.create_writer(self._where(epoch, attempt, run, subtask))
            for batch in batches:
                writer.write(batch)
                if len(self._attempts) % 2:  # where tasks end with each epoch it never comes
                    writer.flush()
            writer.write_watermark(0)
        return writer

    def _prepare(
        self,
        epoch: int,
        attempt: str,
        run: _Run = _RUN,
        subtask: int = 0,
        batches: Sequence[Batch] | None = None,
    ) -> list[Committable]:
        given = self._batches if batches is None else batches
        writer = self._written(epoch, attempt, run, subtask, given)
        return self._finish(writer, epoch, attempt, subtask)

    def _finish(
        self, writer: SinkWriter, epoch: int, attempt: str, subtask: int = 0
    ) -> list[Committable]:
        with self._writing(epoch, attempt, subtask):
            committables = list(writer.prepare_commit())
            writer.close()
        travelled: list[Committable] = loads(dumps(committables))  # type: ignore[assignment]
        return travelled

    @contextlib.contextmanager
    def _writing(self, epoch: int, attempt: str, subtask: int) -> Iterator[None]:
        """A writer that fails breaks a contract; the first has no other in its way."""
        self._attempts.add((epoch, attempt, subtask))
        try:
            yield
        except Exception as error:
            name = f"attempt {attempt!r} of subtask {subtask} in epoch {epoch}"
            broken = f"{name} fails, the first of all"
            if len(self._attempts) > 1:
                broken = f"writer contract 4: {name} fails; is an earlier one in its way?"
            message = f"{broken}: {error!r}"
            raise ConformanceError(message) from error

    def _committer(self, run: _Run = _RUN) -> Committer:
        committer = self._driver_sink().create_committer()
        if committer is None:
            message = "an exactly-once sink needs a committer"
            raise ConformanceError(message)
        committer.open(self._context(run))
        return committer

    def _driver_sink(self) -> Sink:
        return cast("Sink", loads(self._content))

    def _commit(self, committables: Sequence[Committable], epoch: int, run: _Run = _RUN) -> None:
        """Commit in a new process, as far as the sink can tell."""
        committer = self._committer(run)
        _commit(committer, committables, epoch, retried=True)
        committer.close()

    def _commit_if_needed(
        self, committables: Sequence[Committable], epoch: int, run: _Run = _RUN
    ) -> None:
        if self._sink.create_committer() is not None:
            self._commit(committables, epoch, run)
        else:
            require(not committables, "committables of a sink without a committer are lost")


@contextlib.contextmanager
def _no_error(broken: str) -> Iterator[None]:
    """A SinkError in here breaks a contract."""
    try:
        yield
    except SinkError as error:
        message = f"{broken}: {error}"
        raise ConformanceError(message) from error


def _commit(
    committer: Committer, committables: Sequence[Committable], epoch: int, *, retried: bool
) -> None:
    committer.commit([CommitRequest(item, epoch, retried) for item in committables])


def _commit_until(
    committer: Committer, committables: Sequence[Committable], epoch: int, passings: int
) -> str:
    """Commit, and die at the so-manieth crash point; its name, or "" if it passes fewer."""
    passed: list[str] = []

    def die(name: str) -> None:
        passed.append(name)
        if len(passed) == passings:
            raise _DiedError(name)

    arm(",".join(CRASH_POINTS), die)
    try:
        with contextlib.suppress(_DiedError, SinkError):
            _commit(committer, committables, epoch, retried=False)
    finally:
        arm("")
        committer.close()
    return passed[-1] if len(passed) >= passings else ""
