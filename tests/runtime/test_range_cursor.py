"""The cursor of any source: everything once, in order, from any exact position on."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from millstream.contracts.source import (
    Boundedness,
    PieceSizer,
    RangeCursor,
    Source,
    SourceBatch,
    Split,
)
from millstream.errors import SourceError
from millstream.runtime.user_code import reading
from millstream.testing.sources import CRASH, EPOCH, WATERMARK, ScriptedSource
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.source import KnownSplits, SplitCursor
    from millstream.types.types import TypeInformation

SPLIT = Split("s")


class _Numbers(Source):
    """The numbers that are not multiples of ``gap``, in batches of random lengths."""

    def __init__(self, seed: int = 0, gap: int = 1 << 60, *, tells: bool = False) -> None:
        self.chance = random.Random(seed)
        self.gap = gap
        self.tells = tells
        #: What can be read already, though the driver says more.
        self.there = 1 << 60
        self.ranges: list[tuple[int, int]] = []
        self.open = 0

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return Types.LONG()

    def discover(self, known: KnownSplits) -> list[Split]:
        return [] if known else [SPLIT]

    def end_offset(self, split: Split) -> int:
        return 0

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        return max(start, min(start + limit, end, self.there))

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        self.ranges.append((start, stop))
        self.open += 1
        try:
            at = start
            while at < stop:
                behind = min(at + self.chance.randrange(1, 40), stop)
                values: list[object] = [n for n in range(at, behind) if n % self.gap]
                at = behind
                if values:
                    position = at if self.tells and self.chance.random() < 0.7 else None
                    yield SourceBatch(values=values, position=position)
        finally:
            self.open -= 1


def _drain(cursor: SplitCursor, most: int = 16) -> list[object]:
    found: list[object] = []
    while (batch := cursor.poll(most)) is not None:
        assert len(batch) <= most
        found += batch.values or []
    return found


@pytest.mark.parametrize("tells", [False, True], ids=["pieces", "whole"])
@pytest.mark.parametrize("seed", range(10))
def test_any_exact_position_gives_the_rest(seed: int, tells: bool) -> None:
    chance = random.Random(seed)
    end = chance.randrange(1, 3000)
    source = _Numbers(seed, gap=chance.choice([2, 7, 1 << 60]), tells=tells)
    cursor = RangeCursor(source, SPLIT, 0, whole=tells)
    found: list[object] = []
    reopened = 0
    told = 0
    while not cursor.is_over:
        if told <= cursor.position:
            told = min(end, cursor.position + chance.randrange(0, 300))
            cursor.extend(told, final=told == end)
        batch = cursor.poll(chance.choice([1, 5, 100]))
        found += [] if batch is None else batch.values or []
        if cursor.settled and chance.random() < 0.3:
            cursor.close()
            assert source.open == 0
            cursor = RangeCursor(source, SPLIT, cursor.position, whole=tells)
            cursor.extend(told, final=told == end)
            reopened += 1
    assert found == [n for n in range(end) if n % source.gap]
    assert cursor.position == end
    assert cursor.settled
    assert source.open == 0
    assert reopened


def test_it_is_settled_behind_each_piece_however_much_there_is() -> None:
    cursor = RangeCursor(_Numbers(), SPLIT, 0)
    cursor.extend(1_000_000, final=False)
    since = 0
    for _ in range(2_000):
        assert cursor.poll(64) is not None
        since = 0 if cursor.settled else since + 1
        assert since < 20


def test_a_piece_has_about_as_many_records_as_a_batch() -> None:
    source = _Numbers()
    cursor = RangeCursor(source, SPLIT, 0)
    cursor.extend(100_000, final=True)
    assert len(_drain(cursor, most=500)) == 99_999
    longest = max(stop - start for start, stop in source.ranges)
    assert 250 <= longest <= 500


def test_nothing_to_read_yet_although_the_split_goes_further() -> None:
    """As a Kafka partition with a given end that is not written up to it."""
    source = _Numbers()
    source.there = 10
    cursor = RangeCursor(source, SPLIT, 1)
    cursor.extend(20, final=True)
    assert _drain(cursor) == list(range(1, 10))
    assert not cursor.is_over
    source.there = 20
    assert _drain(cursor) == list(range(10, 20))
    assert cursor.is_over


def test_an_end_that_goes_back_is_waited_for() -> None:
    cursor = RangeCursor(_Numbers(), SPLIT, 0)
    cursor.extend(10, final=False)
    assert len(_drain(cursor)) == 9
    cursor.extend(5, final=False)
    assert cursor.poll(16) is None
    assert cursor.position == 10
    cursor.extend(12, final=True)
    assert _drain(cursor) == [10, 11]


def test_what_was_read_before_an_error_comes_first_and_then_nothing_more(tmp_path: object) -> None:
    script = [1, WATERMARK(5), CRASH, 2]
    cursor = RangeCursor(ScriptedSource(script, directory=str(tmp_path)), Split("script"), 0)
    cursor.extend(4, final=True)
    first, second = cursor.poll(10), cursor.poll(10)
    assert (first, second) == (SourceBatch(values=[1]), SourceBatch(values=[], watermark=5))
    assert not cursor.settled
    with pytest.raises(SourceError, match="CRASH at position 2"):
        cursor.poll(10)
    with pytest.raises(SourceError, match="CRASH at position 2"):
        cursor.poll(10)  # the source would go on: what it gave of the piece would be lost
    cursor.close()


def test_pieces_end_where_the_source_says() -> None:
    script: list[object] = [1, 2, EPOCH, *range(3, 100), EPOCH, 100]
    cursor = RangeCursor(ScriptedSource(script), Split("script"), 0)
    cursor.extend(len(script), final=True)
    at = set()
    while not cursor.is_over:
        cursor.poll(10_000)
        at.add(cursor.position)
    assert {3, 101, 102} <= at


def test_the_size_of_pieces() -> None:
    fast, dear, slow = PieceSizer(), PieceSizer(), PieceSizer()
    for _ in range(30):
        fast.read(fast.limit, fast.limit * 1e-6, fast.limit, 1 << 30)
        dear.read(dear.limit, 0.05 + dear.limit * 1e-5, dear.limit, 1 << 30)
        slow.read(slow.limit, slow.limit * 0.002, slow.limit, 1 << 30)
    assert 5_000 <= fast.limit <= 15_000  # 10 ms
    assert 3_000 <= dear.limit <= 8_000  # as long as it costs to begin one
    assert 3 <= slow.limit <= 8
    fast.read(fast.limit, 10.0, fast.limit, 1 << 30)  # the machine stood still
    assert fast.limit >= 1_000


def test_errors_say_which_source_and_split() -> None:
    label = "source 'a' (job.py:3)"
    with pytest.raises(SourceError, match=r"^source 'a' \(job.py:3\): gone$"), reading(label, "x"):
        _raise(SourceError("gone"))
    found = r"^source 'a' \(job.py:3\) failed while reading split 'x': .*boom"
    with pytest.raises(SourceError, match=found), reading(label, "x"):
        _raise(ValueError("boom"))


def _raise(error: Exception) -> None:
    raise error
