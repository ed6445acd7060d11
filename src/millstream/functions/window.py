"""The kinds of windows: what an assigner gives to a record and a function is called with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import total_ordering
from typing import TYPE_CHECKING, Protocol

from millstream.types.time import MAX_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable


class MergeCallback(Protocol):
    """A callback about windows that become one; see ``MergingWindowAssigner.MergeCallback``."""

    def merge(self, to_be_merged: Iterable[TimeWindow], merge_result: TimeWindow) -> None:
        """Take the windows and the one that covers them."""


class Window(ABC):
    """A finite bucket of records."""

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the largest timestamp (milliseconds) that still belongs to the window."""


@total_ordering
class TimeWindow(Window):
    """The interval ``[start, end)`` in milliseconds."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        """Make the window ``[start, end)``."""
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Return whether both windows overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that covers both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the tumbling window that ``timestamp`` falls into."""
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: MergeCallback) -> None:
        """Tell ``callback`` of every group of windows that overlap or touch."""
        group: list[TimeWindow] = []
        merged: TimeWindow | None = None
        for window in sorted(set(windows)):
            if merged is not None and merged.intersects(window):
                merged = merged.cover(window)
                group.append(window)
                continue
            if merged is not None and len(group) > 1:
                callback.merge(group, merged)
            group, merged = [window], window
        if merged is not None and len(group) > 1:
            callback.merge(group, merged)

    def __eq__(self, other: object) -> bool:
        """Windows are equal when start and end are."""
        return isinstance(other, TimeWindow) and self.start == other.start and self.end == other.end

    def __hash__(self) -> int:
        """Hash of start and end."""
        return hash((self.start, self.end))

    def __lt__(self, other: TimeWindow) -> bool:
        """By start, then by end."""
        if not isinstance(other, TimeWindow):
            return NotImplemented
        if self.start == other.start:
            return self.end < other.end
        return self.start < other.start

    def __repr__(self) -> str:
        """``TimeWindow(start=0, end=10)``."""
        return f"TimeWindow(start={self.start}, end={self.end})"


class GlobalWindow(Window):
    """The one window that never ends."""

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """Return the window."""
        return GlobalWindow()

    def max_timestamp(self) -> int:
        return MAX_TIMESTAMP

    def __eq__(self, other: object) -> bool:
        """There is only one."""
        return isinstance(other, GlobalWindow)

    def __hash__(self) -> int:
        """All alike."""
        return 0

    def __repr__(self) -> str:
        """``GlobalWindow``."""
        return "GlobalWindow"


@total_ordering
class CountWindow(Window):
    """The window with this number among the count windows of a key."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:  # noqa: A002 - PyFlink's name
        """Take the number of the window, from 0."""
        self.id = id

    def max_timestamp(self) -> int:
        """Return the maximum long: time does not end the window."""
        return MAX_TIMESTAMP

    def __eq__(self, other: object) -> bool:
        """Windows are equal when their numbers are."""
        return isinstance(other, CountWindow) and self.id == other.id

    def __lt__(self, other: CountWindow) -> bool:
        """By number."""
        return self.id < other.id if isinstance(other, CountWindow) else NotImplemented

    def __hash__(self) -> int:
        """Hash of the number."""
        return hash(self.id)

    def __repr__(self) -> str:
        """``CountWindow(id=0)``."""
        return f"CountWindow(id={self.id})"
