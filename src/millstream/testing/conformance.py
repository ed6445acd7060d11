"""Does a source or a sink keep its contract?

What it is: functions that check the numbered contracts of ``connectors/source.py`` and
``connectors/sink.py`` on an instance, for our own connectors and for yours::

    check_source(MySource(...))
    check_sink(lambda: MySink(directory), batches, read=lambda: my_rows(directory))

What it is not: a test of what records a connector makes of what bytes.

Read next: ``connectors/source.py``.
"""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING

from millstream.connectors.sink import CommitRequest, DeliveryGuarantee, WriterContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    make_sink: Callable[[], Sink], batches: Sequence[Batch], read: Callable[[], Sequence[object]]
) -> None:
    """Check a sink that is exactly-once.

    Args:
        make_sink: makes the sink (the same target at each call).
        batches: what to write, at least one record.
        read: what a reader of the target sees, as a sequence of comparable records.

    Raises:
        ConformanceError: a contract is broken.
    """
    sink: Sink = pickle.loads(pickle.dumps(make_sink()))
    sink.validate()
    _require(
        sink.guarantee is DeliveryGuarantee.EXACTLY_ONCE, "only exactly-once sinks are checked"
    )
    _require(not read(), "the target must be empty at first")

    loser = _prepare(sink, batches, epoch=1, attempt="loser")
    winner = _prepare(sink, batches, epoch=1, attempt="winner")
    _require(not read(), "writer contract 2: output is visible before the commit")
    committer = _committer(sink)
    committer.abort_orphans("another-job", UID, [], GENERATION)
    committer.abort_orphans(JOB, "another-uid", [], GENERATION)
    committer.abort_orphans(JOB, UID, winner, GENERATION)
    committer.abort_orphans(JOB, UID, [], GENERATION - 1)  # an older run, not yet fenced
    _require(not read(), "writer contract 2: output is visible before the commit")
    _commit(committer, winner, 1, retried=False)
    first = sorted(map(repr, read()))
    _require(first, "committed output is not visible")
    _commit(committer, winner, 1, retried=True)
    _commit(_committer(sink), winner, 1, retried=True)  # as the next run would
    _require(sorted(map(repr, read())) == first, "committer contract 1: commit is not idempotent")
    committer.abort_orphans(JOB, UID, winner, GENERATION)
    _require(sorted(map(repr, read())) == first, "abort_orphans took committed output away")
    del loser

    _abort(sink, batches)
    _require(sorted(map(repr, read())) == first, "aborted output is visible")
    second = _prepare(sink, batches, epoch=2, attempt="second")
    _commit(_committer(sink), second, 2, retried=True)  # the driver died before its first try
    both = sorted(map(repr, read()))
    _require(both == sorted(first + first), "two epochs of the same records do not give both")
    empty = _prepare(sink, [], epoch=3, attempt="empty")
    _commit(committer, empty, 3, retried=False)
    _require(sorted(map(repr, read())) == both, "an epoch without records changed the output")


def _context(epoch: int, attempt: str) -> WriterContext:
    return WriterContext(
        JOB,
        UID,
        subtask=0,
        parallelism=1,
        epoch=epoch,
        attempt=attempt,
        generation=GENERATION,
    )


def _written(sink: Sink, batches: Sequence[Batch], epoch: int, attempt: str) -> SinkWriter:
    writer = sink.create_writer(_context(epoch, attempt))
    for batch in batches:
        writer.write(batch)
    writer.write_watermark(0)
    return writer


def _prepare(
    sink: Sink, batches: Sequence[Batch], *, epoch: int, attempt: str
) -> list[Committable]:
    writer = _written(sink, batches, epoch, attempt)
    committables = list(writer.prepare_commit())
    writer.close()
    travelled: list[Committable] = pickle.loads(pickle.dumps(committables))
    return travelled


def _abort(sink: Sink, batches: Sequence[Batch]) -> None:
    writer = _written(sink, batches, 2, "aborted")
    writer.abort()
    writer.close()


def _committer(sink: Sink) -> Committer:
    committer = sink.create_committer()
    if committer is None:
        message = "an exactly-once sink needs a committer"
        raise ConformanceError(message)
    return committer


def _commit(
    committer: Committer, committables: Sequence[Committable], epoch: int, *, retried: bool
) -> None:
    committer.commit([CommitRequest(item, epoch, retried) for item in committables])
