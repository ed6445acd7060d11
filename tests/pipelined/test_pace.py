"""How long the pieces are in which a task processes what has come."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from millstream.runtime.pipelined.pace import PiecePace

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE = 0.02
MOST = 1 << 20
#: Records of a frame.
FRAME = 16_384


def process(pace: PiecePace, frames: int, seconds: Callable[[int], float]) -> float:
    """Process so many frames in pieces; returns the seconds that it takes."""
    taken = 0.0
    for _ in range(frames):
        left = FRAME
        while left:
            records = min(left, pace.limit)
            taken += seconds(records)
            pace.fed(records, seconds(records))
            left -= records
    return taken


def test_pieces_of_a_slow_function_are_short() -> None:
    pace = PiecePace(MOST, PIECE)
    process(pace, 1, lambda records: 0.001 * records)
    assert 0.001 * pace.limit <= 2 * PIECE


def test_what_is_quick_is_not_cut() -> None:
    pace = PiecePace(MOST, PIECE)
    process(pace, 4, lambda records: 2e-7 * records)
    assert pace.limit >= FRAME


@pytest.mark.parametrize("begin", [0.05, 0.5])
def test_a_dear_beginning_is_paid_for_seldom(begin: float) -> None:
    """A model that is called once per batch."""
    pace = PiecePace(MOST, PIECE)

    def seconds(records: int) -> float:
        return begin + 1e-5 * records

    process(pace, 4, seconds)
    assert process(pace, 40, seconds) < 2 * 40 * seconds(FRAME)


def test_a_function_that_becomes_slow_is_noticed() -> None:
    pace = PiecePace(MOST, PIECE)
    process(pace, 40, lambda records: 0.05 + 1e-5 * records)
    process(pace, 100, lambda records: 0.001 * records)
    assert 0.001 * pace.limit <= 2 * PIECE


def pieces_of(pace: PiecePace, count: int, each: Callable[[int], float]) -> list[float]:
    """Process pieces of large batches; returns the seconds of each.

    Args:
        count: of pieces.
        each: seconds of a record, by number of the piece.
    """
    taken = []
    for number in range(count):
        records = min(pace.limit, FRAME)
        taken.append(records * each(number))
        pace.fed(records, taken[-1])
    return taken


@pytest.mark.parametrize("slow", range(12))
@pytest.mark.parametrize("factor", [1.0, 1.6, 5.0])
def test_one_slow_spell_makes_no_long_pieces(slow: int, factor: float) -> None:
    """Of a function that takes 10 ms for each record, a call to a service, say."""

    def each(number: int) -> float:
        return 0.01 * factor if number == slow else 0.01

    pace = PiecePace(MOST, PIECE)
    taken = pieces_of(pace, 3000, each)
    assert max(taken) <= 4 * PIECE * factor
    # Once in ten seconds of work two or three longer ones are tried.
    assert sum(seconds > 2 * PIECE for seconds in taken) <= 3 * (1 + sum(taken) / 10)


def test_noise_makes_no_long_pieces() -> None:
    noise = random.Random(11)
    pace = PiecePace(MOST, PIECE)
    taken = pieces_of(pace, 5000, lambda _: 0.01 * noise.choice([1, 1, 1, 1, 1, 1.6, 3]))
    assert max(taken) < 1
    assert sum(taken[2500:]) / 2500 <= 2 * PIECE


def test_records_that_begin_cheap_make_one_long_piece() -> None:
    pace = PiecePace(MOST, PIECE)
    taken = pieces_of(pace, 100, lambda number: 0.01 if number else 0.0001)
    assert max(taken) <= 0.5
    assert sorted(taken)[-2] <= 2 * PIECE


@pytest.mark.parametrize("begin", [0.015, 0.03, 0.5])
def test_what_takes_the_same_whatever_its_length_is_not_cut(begin: float) -> None:
    noise = random.Random(5)

    def seconds(records: int) -> float:
        return begin * noise.uniform(0.8, 1.3)

    pace = PiecePace(MOST, PIECE)
    assert process(pace, 2, seconds) < 60 * begin
    assert process(pace, 400, seconds) < 1.4 * 400 * begin


def test_short_batches_are_not_cut_either() -> None:
    pace = PiecePace(MOST, PIECE)
    process(pace, 20, lambda records: 0.5 + 1e-5 * records)
    for _ in range(100):
        assert pace.limit >= 200
        pace.fed(200, 0.5)


def test_a_beginning_that_is_not_dear_any_more_is_noticed() -> None:
    """Also if whole frames take little longer than before."""
    pace = PiecePace(MOST, PIECE)
    process(pace, 200, lambda records: 0.5 + 1e-5 * records)
    process(pace, 200, lambda records: 5e-5 * records)
    assert 5e-5 * pace.limit <= 4 * PIECE
