"""Does a source or a sink keep its contract?

What it is: functions that check the numbered contracts of ``contracts/source.py`` and
``contracts/sink.py`` on an instance, for our own connectors and for yours::

    check_source(MySource(...))
    check_sink(lambda: MySink(directory), batches, read=lambda: my_rows(directory))

What it is not: a test of what records a connector makes of what bytes.

Read next: ``testing/sink_conformance.py``, ``contracts/source.py``.
"""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING

from millstream.testing.sink_conformance import ConformanceError, check_sink, require

if TYPE_CHECKING:
    from millstream.contracts.source import Source, SourceBatch, Split

__all__ = ["ConformanceError", "check_sink", "check_source", "read_records", "read_split"]

#: Contract 4 of sources: "at most some ten thousand records" per batch.
MOST_RECORDS = 70_000


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
        require(given == 1, f"SourceBatch: exactly one of arrow and values, not {given}")
        letters.extend(batch.dead_letters)
        if batch.arrow is not None:
            schema = source.produced_type.arrow_schema
            require(
                schema is None or batch.arrow.schema.equals(schema),
                f"produced_type says {schema}, read gives {batch.arrow.schema}",
            )
            values = source.produced_type.from_arrow(batch.arrow)
        else:
            values = batch.values or []
        require(len(values) <= MOST_RECORDS, f"contract 4: a batch of {len(values)} records")
        stamps = batch.timestamps
        require(stamps is None or len(stamps) == len(values), "as many timestamps as records")
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
        require(len(ids) == len(set(ids)), f"split ids are not unique: {ids}")
        again = source.discover(frozenset(ids))
        news = [split.id for split in again if split.id in ids]
        require(not news, f"contract 1: known splits were discovered again: {news}")
        for split in splits:
            _check_split(source, split, random.Random(seed), rounds, most)  # noqa: S311
    finally:
        source.stop()


def _check_split(
    source: Source, split: Split, numbers: random.Random, rounds: int, most: int
) -> None:
    copy: Split = pickle.loads(pickle.dumps(split))
    require(copy == split, "a split is equal to its pickled copy")
    start = source.start_offset(split)
    end = source.end_offset(split)
    require(start <= end, f"split {split.id}: starts at {start}, behind its end {end}")
    if end - start > most:
        end = source.next_stop(split, start, most, end)
    require(not read_split(source, split, start, start), "an empty range has no records")
    whole = read_records(source, split, start, end)
    require(source.end_offset(split) >= end, "contract 3: end_offset shrank")
    if not source.replayable:
        return
    require(
        repr(read_records(source, split, start, end)) == repr(whole),
        f"contract 2: split {split.id} reads differently the second time",
    )
    for _ in range(rounds):
        position, parts, cuts = start, [], [start]
        while position < end:
            limit = numbers.randint(1, max((end - start) // 2, 1))
            stop = source.next_stop(split, position, limit, end)
            require(position < stop <= end, f"next_stop({position}, {limit}, {end}) gave {stop}")
            parts += read_records(source, split, position, stop)
            position = stop
            cuts.append(stop)
        require(
            sorted(map(repr, parts)) == sorted(map(repr, whole)),
            f"contract 2: split {split.id} cut at {cuts} gives other records than as a whole",
        )
