"""Flink's evictors in plain Python: what a window keeps before or after its function.

What it is: each evictor from its description in Flink's documentation, over a list of all elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "MIN_TIME",
    "CountEvictor",
    "DeltaEvictor",
    "Element",
    "Evictor",
    "OddEvictor",
    "TimeEvictor",
]

#: Of elements without a timestamp.
MIN_TIME = -(2**63)
#: (value, timestamp).
Element = tuple[Any, int]


class Evictor:
    """Takes elements out of a window before or after its function."""

    def __init__(self, *, after: bool = False) -> None:
        self.after = after

    def kept(self, elements: list[Element]) -> list[Element]:
        raise NotImplementedError


class CountEvictor(Evictor):
    """Keeps the last n."""

    def __init__(self, count: int, *, after: bool = False) -> None:
        super().__init__(after=after)
        self.count = count

    def kept(self, elements: list[Element]) -> list[Element]:
        return elements[max(len(elements) - self.count, 0) :]


class TimeEvictor(Evictor):
    """Keeps what is younger than ``size``, as seen from the youngest."""

    def __init__(self, size: int, *, after: bool = False) -> None:
        super().__init__(after=after)
        self.size = size

    def kept(self, elements: list[Element]) -> list[Element]:
        if not elements or elements[0][1] == MIN_TIME:
            return elements
        youngest = max(time for _, time in elements)
        return [(value, time) for value, time in elements if time > youngest - self.size]


class DeltaEvictor(Evictor):
    """Keeps what is nearer than the threshold to the last."""

    def __init__(
        self, threshold: float, delta: Callable[[Any, Any], float], *, after: bool = False
    ) -> None:
        super().__init__(after=after)
        self.threshold, self.delta = threshold, delta

    def kept(self, elements: list[Element]) -> list[Element]:
        last = elements[-1][0] if elements else None
        return [each for each in elements if self.delta(each[0], last) < self.threshold]


class OddEvictor(Evictor):
    """A user's evictor: takes out every second element, the first one first."""

    def kept(self, elements: list[Element]) -> list[Element]:
        return elements[1::2]
