"""Windows, and what puts records into them.

What it is: the kinds of windows, the contract of window assigners, and the assigners of windows
that all keys share: tumbling and sliding event-time windows with offsets.

What it is not: the other assigners (``runtime/window_assigners.py``), the state of windows, or when
they fire (``runtime/triggers.py``, ``runtime/operators/window.py``).

Read next: ``runtime/window_assigners.py``, ``runtime/operators/general_window.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from millstream.common.time import MAX_TIMESTAMP
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from millstream.common.functions import RuntimeContext
    from millstream.common.time import Duration, Time
    from millstream.runtime.triggers import Trigger

__all__ = [
    "CountWindow",
    "FixedEventTimeWindows",
    "FixedWindows",
    "GlobalWindow",
    "MergingWindowAssigner",
    "SlidingEventTimeWindows",
    "TimeWindow",
    "TumblingEventTimeWindows",
    "Window",
    "WindowAssigner",
    "milliseconds",
]

T = TypeVar("T")
W = TypeVar("W", bound="Window")
#: A letter of its own for the nested class, as mypy wants it.
W2 = TypeVar("W2", bound="Window")


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

    @staticmethod
    def merge_windows(
        windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
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
        return (self.start, self.end) < (other.start, other.end)

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
        """Return the maximum long."""
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

    def __hash__(self) -> int:
        """Hash of the number."""
        return hash(self.id)

    def __repr__(self) -> str:
        """``CountWindow(id=0)``."""
        return f"CountWindow(id={self.id})"


class WindowAssigner(ABC, Generic[T, W]):
    """Says which windows a record belongs to.

    Contract for assigners that users write (``assign_windows`` may leave out the context):
      1. The same element, timestamp and state give the same windows.  (nobody)
      2. Windows have ``__eq__`` and ``__hash__``; those of types other than Millstream's have a
         serializer (``get_window_serializer``) or can be encoded as a key can.  (runtime)
      3. ``is_event_time`` is True if windows end by the watermark, False if by the clock.  (nobody)
    """

    class WindowAssignerContext(ABC):
        """What ``assign_windows`` is given beside the element.  Not to be kept."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in milliseconds."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Return the runtime context, with the state of the element's key."""

    @abstractmethod
    def assign_windows(
        self,
        element: T,
        timestamp: int,
        context: WindowAssigner.WindowAssignerContext,
    ) -> Collection[W]:
        """Return the windows of a record with this timestamp (milliseconds)."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows end by event time, not by processing time."""

    def get_default_trigger(self, env: Any = None) -> Trigger[Any, Any]:  # noqa: ANN401 - PyFlink's
        """Return the trigger of windows for which the program gives none."""
        del env
        from millstream.runtime.built_in_triggers import (
            EventTimeTrigger,
            ProcessingTimeTrigger,
        )

        return EventTimeTrigger() if self.is_event_time() else ProcessingTimeTrigger()

    def get_window_serializer(self) -> Any:  # noqa: ANN401 - PyFlink's TypeSerializer
        """Return what has ``serialize(window, stream)`` and ``deserialize(stream)``.

        None, the default, is right for Millstream's kinds of windows, dataclasses and named tuples.
        """
        return None


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may be merged."""

    class MergeCallback(ABC, Generic[W2]):
        """What ``merge_windows`` reports to."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """Let ``to_be_merged`` become the one window ``merge_result``."""

    @abstractmethod
    def merge_windows(
        self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]
    ) -> None:
        """Report which of the windows of one key belong together."""


@dataclass(frozen=True)
class FixedWindows(WindowAssigner[Any, TimeWindow]):
    """Windows of one size that begin every ``slide`` milliseconds, of whichever time."""

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

    def windows_at(self, time: int) -> list[TimeWindow]:
        """Return the windows that contain ``time`` (milliseconds), the latest first."""
        last = time - (time - self.offset) % self.slide
        starts = range(last, time - self.size, -self.slide)
        return [TimeWindow(start, start + self.size) for start in starts]


@dataclass(frozen=True)
class FixedEventTimeWindows(FixedWindows):
    """Windows of one size that begin every ``slide`` milliseconds, all keys alike.

    A window is known by its end alone, which is what the window operators build on.
    """

    def is_event_time(self) -> bool:
        """Return True."""
        return True

    def assign_windows(
        self,
        element: object,
        timestamp: int,
        context: WindowAssigner.WindowAssignerContext | None = None,
    ) -> list[TimeWindow]:
        """Return the windows that contain ``timestamp``, the latest first."""
        del element, context
        return self.windows_at(timestamp)

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
        return TumblingEventTimeWindows(milliseconds(size), milliseconds(offset or 0))


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
            milliseconds(size), milliseconds(slide), milliseconds(offset or 0)
        )


def milliseconds(time: Time | Duration | int) -> int:
    """Return a length of time in milliseconds; plain integers are that already.

    Raises:
        ConfigurationError: it is not a length of time.
    """
    if isinstance(time, int):
        return time
    to_milliseconds = getattr(time, "to_milliseconds", None)
    if to_milliseconds is None:
        message = f"{time!r} is not a length of time; give a Duration, a Time or milliseconds"
        raise ConfigurationError(message)
    return int(to_milliseconds())
