"""Offsets: how far each source is read, as Spark logs it.

What it is: the JSON form of an offset, and one source's part of it in a form that can be changed.
An *offset* is::

    {"epoch": 7, "time": ms, "final": false,
     "sources": {uid: {"known": 12, "done": 3, "over": [[5, 9]],
                       "at": {"3": 4096, "9": 100}, "idle": [4]}}}

``known`` splits have been discovered, the first ``done`` are read to their end, and so are those
of the ranges ``over`` (first, behind the last; left out if there are none); ``at`` is the position
of the others that have begun.  Splits are numbered in the order of discovery
(``execution/split_log.py``).  ``"untold": true`` says of a source all of whose splits are read that
its operators have not been told yet that it is over.

What it is not: the choice of how far to read, which is ``execution/planner.py``.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NumberRanges", "Offset", "Position", "initial_offset"]

#: JSON.
Offset = dict[str, object]


def initial_offset() -> Offset:
    """The offset before the first epoch."""
    return {"epoch": -1, "time": 0, "final": False, "sources": {}}


class NumberRanges:
    """A set of numbers of which most are neighbours.

    Invariant: ranges are in order, and no two of them overlap or touch.
    """

    __slots__ = ("_firsts", "_stops")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Take ranges (first, behind the last) in order."""
        pairs = list(ranges)
        self._firsts = [first for first, _ in pairs]
        self._stops = [stop for _, stop in pairs]

    def __contains__(self, number: int) -> bool:
        """Whether the number is in one of the ranges."""
        index = bisect_right(self._firsts, number) - 1
        return index >= 0 and number < self._stops[index]

    def add(self, number: int) -> None:
        """Add a number that is in none of the ranges."""
        firsts, stops = self._firsts, self._stops
        index = bisect_right(firsts, number)
        joins_before = index > 0 and stops[index - 1] == number
        joins_behind = index < len(firsts) and firsts[index] == number + 1
        if joins_before and joins_behind:
            stops[index - 1] = stops.pop(index)
            del firsts[index]
        elif joins_before:
            stops[index - 1] += 1
        elif joins_behind:
            firsts[index] -= 1
        else:
            firsts.insert(index, number)
            stops.insert(index, number + 1)

    def take_range_at(self, first: int) -> int:
        """Remove the range that begins at ``first``; returns its stop, or ``first``."""
        if not self._firsts or self._firsts[0] != first:
            return first
        del self._firsts[0]
        return self._stops.pop(0)

    def to_json(self) -> list[list[int]]:
        """The ranges, in order."""
        return [list(pair) for pair in zip(self._firsts, self._stops, strict=True)]


@dataclass(slots=True)
class Position:
    """The mutable form of one source's part of an offset."""

    known: int = 0
    done: int = 0
    #: Splits behind ``done`` that are read to their end as well.
    over: NumberRanges = field(default_factory=NumberRanges)
    at: dict[int, int] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)
    #: All is read, and the maximum watermark is still to come.
    untold: bool = False

    @staticmethod
    def of(offset: Offset, uid: str) -> Position:
        """The part of the source ``uid``; at the beginning if there is none."""
        sources = cast("dict[str, dict[str, object]]", offset["sources"])
        part = sources.get(uid)
        if part is None:
            return Position()
        at = cast("dict[str, int]", part["at"])
        over = cast("list[tuple[int, int]]", part.get("over", []))
        return Position(
            known=cast("int", part["known"]),
            done=cast("int", part["done"]),
            over=NumberRanges(over),
            at={int(number): position for number, position in at.items()},
            idle=set(cast("list[int]", part["idle"])),
            untold=bool(part.get("untold", False)),
        )

    def is_over(self, number: int) -> bool:
        """Whether the split is read to its end."""
        return number < self.done or number in self.over

    def finish(self, number: int) -> None:
        """Note that the split, which has begun, is read to its end."""
        del self.at[number]
        self.idle.discard(number)
        self.over.add(number)
        self.done = self.over.take_range_at(self.done)

    def to_json(self) -> dict[str, object]:
        """The part of the offset."""
        over = self.over.to_json()
        return {
            "known": self.known,
            "done": self.done,
            **({"over": over} if over else {}),
            "at": {str(number): self.at[number] for number in sorted(self.at)},
            "idle": sorted(self.idle),
            **({"untold": True} if self.untold else {}),
        }
