"""Checks of the numbered contracts of ``contracts/source.py`` and ``contracts/sink.py``.

For example::

check_source(MySource(...))
check_cursors(MySource(...))
check_sink(lambda: MySink(directory), batches, read=lambda: my_rows(directory))
"""

from __future__ import annotations

import contextlib
import gc
import math
import pickle
import random
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.testing.sink_conformance import ConformanceError, check_sink, require

if TYPE_CHECKING:
    from millstream.contracts.source import Source, SourceBatch, Split, SplitCursor

__all__ = [
    "ConformanceError",
    "check_cursors",
    "check_sink",
    "check_source",
    "read_records",
    "read_split",
]

#: Contract 4 of sources: "at most some ten thousand records" per batch.
MOST_RECORDS = 70_000
#: Polls without a record, half a millisecond apart, after which a split does not come to its end.
MOST_EMPTY = 60_000
#: Polls in a row after which a cursor must have been settled, or have had nothing.
MOST_UNSETTLED = 500


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
        letters.extend(batch.dead_letters)
        records.extend(_values(source, batch))
    return records + letters


def _values(source: Source, batch: SourceBatch) -> list[object]:
    given = (batch.arrow is not None) + (batch.values is not None)
    require(given == 1, f"SourceBatch: exactly one of arrow and values, not {given}")
    if batch.arrow is not None:
        schema = source.produced_type.arrow_schema
        require(
            schema is None or batch.arrow.schema.equals(schema),
            f"produced_type says {schema}, read gives {batch.arrow.schema}",
        )
        values = list(source.produced_type.from_arrow(batch.arrow))
    else:
        values = batch.values or []
    require(len(values) <= MOST_RECORDS, f"contract 4: a batch of {len(values)} records")
    stamps = batch.timestamps
    require(stamps is None or len(stamps) == len(values), "as many timestamps as records")
    behind = batch.positions
    require(behind is None or len(behind) == len(values), "as many positions as records")
    return values


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


# -- cursors -------------------------------------------------------------------------------------


def check_cursors(
    source: Source,
    *,
    seed: int = 0,
    rounds: int = 3,
    most: int = 1 << 20,
    slowest: float = 0.02,
    patience: float = 10.0,
) -> None:
    """Check the cursors of a source; it must be able to read something now.

    Args:
        source: what to check; started and stopped here.
        seed: of the random choices.
        rounds: how often each split is read, by cursors that are closed and opened on the way.
        most: units of offset to read at most per split.
        slowest: seconds that a poll may take, but for the first of a cursor, which may open what
            it reads: of those that find something, a quarter of them; of those that find nothing,
            the fastest.  Where the system tells it, time is not counted in which a poll could have
            run and others did.
        patience: seconds in which threads and connections of closed cursors must end.

    Raises:
        ConformanceError: a contract of ``SplitCursor`` is broken.
    """
    source.validate()
    source.start()
    try:
        numbers = random.Random(seed)  # noqa: S311
        for split in source.discover(frozenset()):
            # The first time libraries are imported, and start threads that they keep.
            _CursorCheck(source, split, numbers, most, math.inf).run()
            before = _held()
            for _ in range(rounds):
                _CursorCheck(source, split, numbers, most, slowest).run()
            _require_released(before, split, rounds, patience)
    finally:
        source.stop()


def _held() -> tuple[set[str], set[str]]:
    """The threads and the open files of this process, each by what tells it from a later one.

    Sets and not numbers: what others in the process close meanwhile must not hide what is left.
    """
    if sys.platform != "linux":
        return {str(thread.ident) for thread in threading.enumerate()}, set()
    tasks = {each.name for each in Path("/proc/self/task").iterdir()}
    files = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile, or the list's own
            files.add(f"{each.name} {each.readlink()}")
    return tasks, files


def _require_released(
    before: tuple[set[str], set[str]], split: Split, rounds: int, patience: float
) -> None:
    """What cursors leave grows with every round; less is what others in the process opened."""
    deadline = time.monotonic() + patience
    while True:
        gc.collect()
        threads, files = (now - then for now, then in zip(_held(), before, strict=True))
        if max(len(threads), len(files)) < rounds:
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    require(
        condition=False,
        message=f"cursor contract 4: split {split.id}: closed cursors leave {len(threads)} threads "
        f"and {len(files)} open files",
    )


class _Stopwatch:
    """Measures what a call takes of its thread's time: computing, and waiting of its own accord."""

    def __init__(self) -> None:
        self._waits = _waits()
        self._computing = time.thread_time()
        self._begun = time.perf_counter()

    def seconds(self) -> float:
        if self._waits is not None and _waits() == self._waits:
            return time.thread_time() - self._computing
        return time.perf_counter() - self._begun


def _waits() -> int | None:
    """How often this thread has waited for something; None where nobody knows."""
    if sys.platform != "linux":
        return None
    import resource  # which Windows does not have

    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class _CursorCheck:
    """Reads a split once, by several cursors one after the other."""

    def __init__(
        self, source: Source, split: Split, numbers: random.Random, most: int, slowest: float
    ) -> None:
        self._source: Source = pickle.loads(pickle.dumps(source))
        self._split = split
        self._numbers = numbers
        self._slowest = slowest
        self._start = source.start_offset(split)
        self._end = source.end_offset(split)
        self._final = source.is_final(split)
        if self._end - self._start > most:
            self._end, self._final = source.next_stop(split, self._start, most, self._end), False
        self._found: list[object] = []
        self._letters: list[object] = []
        #: Seconds of polls that found something, and of those that did not.
        self._times: list[float] = []
        self._empty: list[float] = []
        self._unsettled = 0
        self._is_first = True

    def run(self) -> None:
        """Read all, and compare."""
        cursor = self._open(self._start)
        cuts = []
        try:
            while not self._is_done(cursor):
                self._poll(cursor)
                if cursor.settled and self._numbers.random() < 0.1:  # noqa: PLR2004
                    cuts.append(cursor.position)
                    cursor.close()
                    cursor = self._open(cursor.position)
        finally:
            cursor.close()
        self._compare(cuts)
        self._check_times()

    def _compare(self, cuts: list[int]) -> None:
        expected: list[object] = []
        letters: list[object] = []
        for batch in read_split(self._source, self._split, self._start, self._end):
            expected += _values(self._source, batch)
            letters += batch.dead_letters
        if not self._final:  # the split may have grown, and the cursor have found it
            del self._found[len(expected) :], self._letters[len(letters) :]
        require(
            repr(self._found) == repr(expected) and self._letters == letters,
            f"cursor contract 2: split {self._split.id}, read by cursors opened at {cuts}, gives"
            f" {len(self._found)} records, other than the {len(expected)} that read gives",
        )

    def _open(self, position: int) -> SplitCursor:
        cursor = self._source.open_cursor(self._split, position)
        cursor.extend(self._end, final=self._final)
        self._is_first = True
        return cursor

    def _is_done(self, cursor: SplitCursor) -> bool:
        if self._final:
            return cursor.is_over
        return cursor.settled and cursor.position >= self._end

    def _poll(self, cursor: SplitCursor) -> None:
        limit = self._numbers.choice([50, 500, 5_000])
        watch = _Stopwatch()
        batch = cursor.poll(limit)
        seconds = 0.0 if self._is_first else watch.seconds()
        self._is_first = False
        if batch is None:
            self._empty.append(seconds)
            require(len(self._empty) < MOST_EMPTY, f"split {self._split.id} is not read to its end")
            time.sleep(0.0005)
            return
        self._times.append(seconds)
        values = _values(self._source, batch)
        require(len(values) <= 2 * limit, f"poll({limit}) gave {len(values)} records")
        self._found += values
        self._letters += batch.dead_letters
        self._unsettled = 0 if cursor.settled else self._unsettled + 1
        require(
            self._unsettled < MOST_UNSETTLED,
            f"cursor contract 3: not settled after {self._unsettled} polls",
        )

    def _check_times(self) -> None:
        usual = sorted(self._times)[len(self._times) // 4] if self._times else 0
        least = min(self._empty, default=0)
        require(
            max(usual, least) <= self._slowest,
            f"cursor contract 1: a poll takes {usual * 1000:.0f} ms that finds something, and "
            f"{least * 1000:.0f} ms that finds nothing",
        )
