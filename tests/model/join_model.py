"""A model of Flink's interval join in plain Python, record by record.

What it is: two buffers per key, and what they hold against each other.
What it is not: the window join and co-group, which are windows over both inputs together:
``window_model.py``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.model.window_model import MIN_TIME

__all__ = ["IntervalJoinModel", "Pair"]

LEFT, RIGHT = 0, 1


class Pair(NamedTuple):
    """A result, which has the timestamp of the later of the two."""

    step: int
    #: How many records came before: what orders the results.
    order: int
    key: Any
    left: Any
    right: Any
    left_time: int
    right_time: int


@dataclass
class IntervalJoinModel:
    """Pairs with left + lower <= right <= left + upper; bounds are inclusive here."""

    lower: int
    upper: int
    watermark: int = MIN_TIME
    step: int = 0
    records: int = 0
    #: By side and key, (value, time).
    buffers: tuple[dict[Any, list[tuple[Any, int]]], ...] = field(
        default_factory=lambda: (defaultdict(list), defaultdict(list))
    )
    pairs: list[Pair] = field(default_factory=list)
    #: By side, (value, time).
    late: tuple[list[tuple[Any, int]], ...] = field(default_factory=lambda: ([], []))

    def record(self, side: int, key: Any, value: Any, time: int) -> None:
        self.records += 1
        if time < self.watermark:
            self.late[side].append((value, time))
            return
        self.buffers[side][key].append((value, time))
        for other, other_time in self.buffers[1 - side][key]:
            left, right = (value, time), (other, other_time)
            if side == RIGHT:
                left, right = right, left
            if self.lower <= right[1] - left[1] <= self.upper:
                pair = Pair(self.step, self.records, key, left[0], right[0], left[1], right[1])
                self.pairs.append(pair)

    def advance(self, watermark: int) -> None:
        """A record is forgotten when the watermark is where its last partner may be."""
        self.watermark = max(self.watermark, watermark)
        for side, reach in ((LEFT, self.upper), (RIGHT, -self.lower)):
            for key, buffer in self.buffers[side].items():
                self.buffers[side][key] = [
                    each for each in buffer if each[1] + max(reach, 0) > self.watermark
                ]
