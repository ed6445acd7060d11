"""Windows and the assigners that put records into them.

What it is: time windows, and tumbling and sliding event-time windows with offsets.

What it is not: the state of windows or when they fire: ``runtime/operators/window.py``.

Read next: ``runtime/operators/window.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.common.time import Duration, Time

__all__ = [
    "FixedEventTimeWindows",
    "SlidingEventTimeWindows",
    "TimeWindow",
    "TumblingEventTimeWindows",
    "Window",
    "WindowAssigner",
]


class Window(ABC):
    """A finite bucket of records."""

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the largest timestamp (milliseconds) that still belongs to the window."""


class TimeWindow(Window):
    """The interval ``[start, end)`` in milliseconds."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        """Make the window ``[start, end)``."""
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        """Return ``end - 1``."""
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Whether both windows overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that covers both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the tumbling window that ``timestamp`` falls into."""
        return timestamp - (timestamp - offset) % window_size

    def __eq__(self, other: object) -> bool:
        """Windows are equal when start and end are."""
        return isinstance(other, TimeWindow) and self.start == other.start and self.end == other.end

    def __hash__(self) -> int:
        """Hash of start and end."""
        return hash((self.start, self.end))

    def __lt__(self, other: TimeWindow) -> bool:
        """By start, then by end."""
        return (self.start, self.end) < (other.start, other.end)

    def __repr__(self) -> str:
        """``TimeWindow(start=0, end=10)``."""
        return f"TimeWindow(start={self.start}, end={self.end})"


class WindowAssigner(ABC):
    """Says which windows a record belongs to."""

    @abstractmethod
    def assign_windows(self, element: object, timestamp: int) -> list[TimeWindow]:
        """Return the windows of a record with this timestamp (milliseconds)."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether timestamps are event time."""


@dataclass(frozen=True)
class FixedEventTimeWindows(WindowAssigner):
    """Windows of one size that begin every ``slide`` milliseconds, all keys alike.

    A window is known by its end alone, which is what the window operators build on.
    """

    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ConfigurationError: size or slide is not positive, or the offset is too large.
        """
        if self.size <= 0 or self.slide <= 0:
            message = f"size and slide of {self} must be positive (milliseconds)"
            raise ConfigurationError(message)
        if abs(self.offset) >= self.slide:
            message = f"the offset of {self} must be smaller than its slide (milliseconds)"
            raise ConfigurationError(message)

    def is_event_time(self) -> bool:
        """Return True."""
        return True

    def assign_windows(self, element: object, timestamp: int) -> list[TimeWindow]:
        """Return the windows that contain ``timestamp``, the latest first."""
        del element
        last = timestamp - (timestamp - self.offset) % self.slide
        starts = range(last, timestamp - self.size, -self.slide)
        return [TimeWindow(start, start + self.size) for start in starts]

    @property
    def pane(self) -> int:
        """Milliseconds of the longest intervals that never straddle the edge of a window."""
        return gcd(self.size, self.slide)

    @property
    def overlap(self) -> int:
        """How many windows at most contain one instant."""
        return -(-self.size // self.slide)

    def last_starts(self, timestamps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, per timestamp, the start of the last window that began at or before it."""
        return timestamps - np.mod(timestamps - self.offset, self.slide)

    def pane_starts(self, timestamps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, per timestamp, the start of its pane."""
        return timestamps - np.mod(timestamps - self.offset, self.pane)

    def window_of_end(self, max_timestamp: int) -> TimeWindow:
        """Return the window whose largest timestamp is ``max_timestamp``."""
        return TimeWindow(max_timestamp + 1 - self.size, max_timestamp + 1)


class TumblingEventTimeWindows(FixedEventTimeWindows):
    """Windows side by side: every record is in exactly one."""

    def __init__(self, size: int, offset: int = 0) -> None:
        """Take milliseconds; users call ``of``."""
        super().__init__(size, size, offset)

    @staticmethod
    def of(
        size: Time | Duration | int, offset: Time | Duration | int | None = None
    ) -> TumblingEventTimeWindows:
        """Make an assigner; plain integers are milliseconds.

        Raises:
            ConfigurationError: the size is not positive or the offset not smaller than it.
        """
        return TumblingEventTimeWindows(_milliseconds(size), _milliseconds(offset or 0))


class SlidingEventTimeWindows(FixedEventTimeWindows):
    """Windows that overlap (slide < size) or leave gaps (slide > size)."""

    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        """Take milliseconds; users call ``of``."""
        super().__init__(size, slide, offset)

    @staticmethod
    def of(
        size: Time | Duration | int,
        slide: Time | Duration | int,
        offset: Time | Duration | int | None = None,
    ) -> SlidingEventTimeWindows:
        """Make an assigner; plain integers are milliseconds.

        Raises:
            ConfigurationError: size or slide is not positive or the offset not below the slide.
        """
        return SlidingEventTimeWindows(
            _milliseconds(size), _milliseconds(slide), _milliseconds(offset or 0)
        )


def _milliseconds(time: Time | Duration | int) -> int:
    if isinstance(time, int):
        return time
    to_milliseconds = getattr(time, "to_milliseconds", None)
    if to_milliseconds is None:
        message = f"{time!r} is not a length of time; give a Duration, a Time or milliseconds"
        raise ConfigurationError(message)
    return int(to_milliseconds())
