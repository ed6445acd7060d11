"""Does a source or a sink keep its contract?

What it is: functions that check the numbered contracts of ``connectors/source.py`` and
``connectors/sink.py`` on an instance, for our own connectors and for yours::

    check_source(MySource(...))
    check_sink(lambda: MySink(directory), batches, read=lambda: my_rows(directory))

What it is not: a test of what records a connector makes of what bytes.

Read next: ``connectors/source.py``.
"""

from __future__ import annotations

import contextlib
import pickle
import random
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.checkpoint.local_storage import LocalStorage
from millstream.common.pickling import dumps, loads
from millstream.connectors.sink import (
    CommitRequest,
    CommitterContext,
    DeliveryGuarantee,
    SinkKind,
    WriterContext,
)
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.checkpoint.storage import CheckpointStorage
    from millstream.connectors.sink import Committable, Committer, Sink, SinkWriter
    from millstream.connectors.source import Source, SourceBatch, Split
    from millstream.runtime.batch import Batch

__all__ = ["ConformanceError", "check_sink", "check_source", "read_records", "read_split"]

#: Contract 4 of sources: "at most some ten thousand records" per batch.
MOST_RECORDS = 70_000
JOB = "conformance-job"
UID = "conformance/sink"
GENERATION = 3


class ConformanceError(AssertionError):
    """A contract is broken; the message begins with its number."""


def _require(condition: object, message: str) -> None:
    if not condition:
        raise ConformanceError(message)


# -- sources -------------------------------------------------------------------------------------


def read_split(source: Source, split: Split, start: int, stop: int) -> list[SourceBatch]:
    """The batches of a range, read by a pickled copy of the source as a task would."""
    copy: Source = pickle.loads(pickle.dumps(source))
    return list(copy.read(split, start, stop))


def read_records(source: Source, split: Split, start: int, stop: int) -> list[object]:
    """The records of a range as Python values, dead letters behind them."""
    records: list[object] = []
    letters: list[object] = []
    for batch in read_split(source, split, start, stop):
        given = (batch.arrow is not None) + (batch.values is not None)
        _require(given == 1, f"SourceBatch: exactly one of arrow and values, not {given}")
        letters.extend(batch.dead_letters)
        if batch.arrow is not None:
            schema = source.produced_type.arrow_schema
            _require(
                schema is None or batch.arrow.schema.equals(schema),
                f"produced_type says {schema}, read gives {batch.arrow.schema}",
            )
            values = source.produced_type.from_arrow(batch.arrow)
        else:
            values = batch.values or []
        _require(len(values) <= MOST_RECORDS, f"contract 4: a batch of {len(values)} records")
        stamps = batch.timestamps
        _require(stamps is None or len(stamps) == len(values), "as many timestamps as records")
        records.extend(values)
    return records + letters


def check_source(source: Source, *, seed: int = 0, rounds: int = 5, most: int = 1 << 20) -> None:
    """Check a source; it must be able to read something now.

    Args:
        source: what to check; started and stopped here.
        seed: of the random cuts.
        rounds: how many ways to cut each split.
        most: units of offset to read at most per split.

    Raises:
        ConformanceError: a contract is broken.
    """
    source.validate()
    source.start()
    try:
        splits = source.discover(frozenset())
        ids = [split.id for split in splits]
        _require(len(ids) == len(set(ids)), f"split ids are not unique: {ids}")
        again = source.discover(frozenset(ids))
        news = [split.id for split in again if split.id in ids]
        _require(not news, f"contract 1: known splits were discovered again: {news}")
        for split in splits:
            _check_split(source, split, random.Random(seed), rounds, most)  # noqa: S311
    finally:
        source.stop()


def _check_split(
    source: Source, split: Split, numbers: random.Random, rounds: int, most: int
) -> None:
    copy: Split = pickle.loads(pickle.dumps(split))
    _require(copy == split, "a split is equal to its pickled copy")
    start = source.start_offset(split)
    end = source.end_offset(split)
    _require(start <= end, f"split {split.id}: starts at {start}, behind its end {end}")
    if end - start > most:
        end = source.next_stop(split, start, most, end)
    _require(not read_split(source, split, start, start), "an empty range has no records")
    whole = read_records(source, split, start, end)
    _require(source.end_offset(split) >= end, "contract 3: end_offset shrank")
    if not source.replayable:
        return
    _require(
        repr(read_records(source, split, start, end)) == repr(whole),
        f"contract 2: split {split.id} reads differently the second time",
    )
    for _ in range(rounds):
        position, parts, cuts = start, [], [start]
        while position < end:
            limit = numbers.randint(1, max((end - start) // 2, 1))
            stop = source.next_stop(split, position, limit, end)
            _require(position < stop <= end, f"next_stop({position}, {limit}, {end}) gave {stop}")
            parts += read_records(source, split, position, stop)
            position = stop
            cuts.append(stop)
        _require(
            sorted(map(repr, parts)) == sorted(map(repr, whole)),
            f"contract 2: split {split.id} cut at {cuts} gives other records than as a whole",
        )


# -- sinks ---------------------------------------------------------------------------------------


def check_sink(
    make_sink: Callable[[], Sink],
    batches: Sequence[Batch],
    read: Callable[[], Sequence[object]],
    storage: CheckpointStorage | None = None,
) -> None:
    """Check a sink that is exactly-once: commits, retries, crashes, replays, other runs and jobs.

    Args:
        make_sink: makes the sink (the same target at each call).
        batches: what to write, at least one record; keys differ if the sink writes by key.
        read: what a reader of the target sees, as a sequence of comparable records.
        storage: the checkpoint directory; None makes a temporary one.

    Raises:
        ConformanceError: a contract is broken; the message says which and when.
    """
    if storage is None:
        with tempfile.TemporaryDirectory(prefix="millstream-conformance-") as directory:
            check_sink(make_sink, batches, read, LocalStorage(directory, fsync=False))
        return
    sink: Sink = pickle.loads(pickle.dumps(make_sink()))
    sink.validate()
    _require(
        sink.guarantee is DeliveryGuarantee.EXACTLY_ONCE, "only exactly-once sinks are checked"
    )
    _require(sink.create_committer() is not None, "an exactly-once sink needs a committer")
    _require(not read(), "the target must be empty at first")
    check = _SinkCheck(sink, batches, read, storage)
    check.commits()
    check.aborts()
    check.crashes()
    check.others()
    check.fencing()
    sink.close()


@dataclass(frozen=True)
class _Run:
    """Who writes: one run of one sink of one job."""

    job: str = JOB
    uid: str = UID
    generation: int = GENERATION


_RUN = _Run()
#: The one that takes over from ``_RUN``.
_NEXT_RUN = _Run(generation=GENERATION + 1)


class _SinkCheck:
    """The cases, in an order in which each builds on what the ones before have committed."""

    def __init__(
        self,
        sink: Sink,
        batches: Sequence[Batch],
        read: Callable[[], Sequence[object]],
        storage: CheckpointStorage,
    ) -> None:
        self._sink = sink
        self._batches = batches
        self._read = read
        self._storage = storage
        #: What one epoch makes visible, and what all so far have.
        self._once: list[str] = []
        self._seen: list[str] = []
        self._epoch = 0

    # -- the cases -----------------------------------------------------------------------------

    def commits(self) -> None:
        """Invisible before the commit; the attempt that counts only; once, however often."""
        self._prepare(1, "loser")
        winner = self._prepare(1, "winner")
        self._unchanged("writer contract 2: output is visible before the commit")
        committer = self._committer()
        committer.abort_orphans("another-job", UID, [], GENERATION)
        committer.abort_orphans(JOB, "another-uid", [], GENERATION)
        committer.abort_orphans(JOB, UID, winner, GENERATION)
        committer.abort_orphans(JOB, UID, [], GENERATION - 1)  # an older run, not yet fenced
        self._unchanged("writer contract 2: output is visible before the commit")
        _commit(committer, winner, 1, retried=False)
        self._once = self._seen = self._now()
        _require(self._once, "committed output is not visible")
        _commit(committer, winner, 1, retried=True)
        committer.close()
        self._commit(winner, 1)  # as the next run would
        self._unchanged("committer contract 1: commit is not idempotent")
        committer = self._committer()
        committer.abort_orphans(JOB, UID, winner, GENERATION)
        committer.close()
        self._unchanged("abort_orphans took committed output away")
        self._epoch = 1

    def aborts(self) -> None:
        """An aborted writer leaves nothing to see; epochs follow, with and without records."""
        writer = self._written(2, "aborted", _RUN, 0, self._batches)
        writer.abort()
        writer.close()
        self._unchanged("aborted output is visible")
        self._next_epoch(_RUN)
        empty = self._prepare(self._epoch + 1, "empty", batches=[])
        self._commit(empty, self._epoch + 1)
        self._epoch += 1
        self._unchanged("an epoch without records changed the output")

    def crashes(self) -> None:
        """The epoch was pre-committed, or partly, when the run died; the next one runs it again."""
        epoch = self._epoch + 1
        self._prepare(epoch, "before the crash")
        self._written(epoch, "killed", _RUN, 1, self._batches)  # neither aborted nor closed
        committer = self._committer(_NEXT_RUN)
        committer.abort_orphans(JOB, UID, [], _NEXT_RUN.generation)
        committer.abort_orphans(JOB, UID, [], _NEXT_RUN.generation)  # it died there, once
        committer.close()
        self._unchanged("output of an epoch that no manifest names became visible")
        self._next_epoch(_NEXT_RUN, subtasks=2)

    def others(self) -> None:
        """Another job, and another sink of this one, keep what they pre-committed."""
        for run in (_Run(job="another-job"), _Run(uid="another-uid")):
            theirs = self._prepare(1, "other", run)
            committer = self._committer()
            committer.abort_orphans(JOB, UID, [], _NEXT_RUN.generation)
            committer.close()
            self._commit(theirs, 1, run)
            self._grown(1, f"committer contract 3: output of {run} was dropped or shared a note")

    def fencing(self) -> None:
        """An older run that does not know yet that it was replaced can do no harm."""
        epoch = self._epoch + 1
        ours = self._prepare(epoch, "newer", _NEXT_RUN)
        zombie = self._committer(_RUN)
        zombie.abort_orphans(JOB, UID, [], _RUN.generation)
        self._commit(ours, epoch, _NEXT_RUN)
        self._grown(1, "committer contract 3: an older run dropped output of a newer one")
        later = self._prepare(epoch + 1, "later", _NEXT_RUN)
        self._commit(later, epoch + 1, _NEXT_RUN)
        self._grown(1, "an epoch's output is missing")
        with contextlib.suppress(SinkError):  # to be refused is as good
            _commit(zombie, ours, epoch, retried=True)
        zombie.close()
        self._unchanged("an older run committed an epoch again that a newer one has passed")

    # -- steps ---------------------------------------------------------------------------------

    def _next_epoch(self, run: _Run, subtasks: int = 1) -> None:
        """An epoch whose first commit never ran: the driver died before."""
        self._epoch += 1
        committables = [
            item
            for subtask in range(subtasks)
            for item in self._prepare(self._epoch, f"attempt {self._epoch}.{subtask}", run, subtask)
        ]
        self._commit(committables, self._epoch, run)
        self._grown(subtasks, f"epoch {self._epoch} is not visible exactly once")

    def _written(
        self, epoch: int, attempt: str, run: _Run, subtask: int, batches: Sequence[Batch]
    ) -> SinkWriter:
        writer = self._sink.create_writer(
            WriterContext(
                run.job,
                run.uid,
                subtask=subtask,
                parallelism=2,
                epoch=epoch,
                attempt=attempt,
                generation=run.generation,
                storage=self._storage,
            )
        )
        for batch in batches:
            writer.write(batch)
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
        committables = list(writer.prepare_commit())
        writer.close()
        travelled: list[Committable] = loads(dumps(committables))  # type: ignore[assignment]
        return travelled

    def _committer(self, run: _Run = _RUN) -> Committer:
        committer = self._sink.create_committer()
        if committer is None:
            message = "an exactly-once sink needs a committer"
            raise ConformanceError(message)
        committer.open(CommitterContext(run.job, run.uid, run.generation, self._storage))
        return committer

    def _commit(self, committables: Sequence[Committable], epoch: int, run: _Run = _RUN) -> None:
        """Commit in a new process, as far as the sink can tell."""
        committer = self._committer(run)
        _commit(committer, committables, epoch, retried=True)
        committer.close()

    # -- what a reader sees --------------------------------------------------------------------

    def _now(self) -> list[str]:
        return sorted(map(repr, self._read()))

    def _unchanged(self, message: str) -> None:
        _require(self._now() == self._seen, message)

    def _grown(self, times: int, message: str) -> None:
        """The records came ``times`` more; by key they replaced themselves."""
        if self._sink.kind is not SinkKind.IDEMPOTENT:
            self._seen = sorted(self._seen + self._once * times)
        self._unchanged(message)


def _commit(
    committer: Committer, committables: Sequence[Committable], epoch: int, *, retried: bool
) -> None:
    committer.commit([CommitRequest(item, epoch, retried) for item in committables])
