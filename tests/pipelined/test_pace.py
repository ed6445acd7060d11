"""How long the pieces are in which a task processes what has come."""

from __future__ import annotations

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
