"""Windows, and what puts records into them.

What it is: the kinds of windows, the contract of window assigners, and the assigners of windows
that all keys share: tumbling and sliding event-time windows with offsets.

What it is not: the other assigners (``functions/window_assigners.py``), the state of windows, or
when they fire (``functions/triggers.py``, ``runtime/operators/windows/aligned.py``).

Read next: ``functions/window_assigners.py``, ``runtime/operators/windows/generic.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np

from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from millstream.functions.functions import RuntimeContext
    from millstream.functions.triggers import Trigger
    from millstream.functions.window import Window
from millstream.functions.window import TimeWindow
from millstream.types.time import Duration, Time, milliseconds

__all__ = [
    "FixedEventTimeWindows",
    "FixedWindows",
    "MergingWindowAssigner",
    "SlidingEventTimeWindows",
    "TumblingEventTimeWindows",
    "WindowAssigner",
]

T = TypeVar("T")
W = TypeVar("W", bound="Window")
#: A letter of its own for the nested class, as mypy wants it.
W2 = TypeVar("W2", bound="Window")


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

    def get_default_trigger(self, env: Any = None) -> Trigger[Any, Any]:
        """Return the trigger of windows for which the program gives none."""
        del env
        from millstream.functions.built_in_triggers import (
            EventTimeTrigger,
            ProcessingTimeTrigger,
        )

        return EventTimeTrigger() if self.is_event_time() else ProcessingTimeTrigger()

    def get_window_serializer(self) -> Any:
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


class Tumbling(FixedWindows):
    """Windows side by side: every record is in exactly one."""

    def __init__(self, size: int, offset: int = 0) -> None:
        """Take milliseconds; users call ``of``."""
        super().__init__(size, size, offset)

    @classmethod
    def of(cls, size: Time | Duration | int, offset: Time | Duration | int | None = None) -> Self:
        """Make an assigner; plain integers are milliseconds.

        Raises:
            ConfigurationError: the size is not positive or the offset not smaller than it.
        """
        return cls(milliseconds(size), milliseconds(offset or 0))


class Sliding(FixedWindows):
    """Windows that overlap (slide < size) or leave gaps (slide > size)."""

    @classmethod
    def of(
        cls,
        size: Time | Duration | int,
        slide: Time | Duration | int,
        offset: Time | Duration | int | None = None,
    ) -> Self:
        """Make an assigner; plain integers are milliseconds.

        Raises:
            ConfigurationError: size or slide is not positive or the offset not below the slide.
        """
        return cls(milliseconds(size), milliseconds(slide), milliseconds(offset or 0))


class TumblingEventTimeWindows(Tumbling, FixedEventTimeWindows):
    """Windows side by side: every record is in exactly one."""


class SlidingEventTimeWindows(Sliding, FixedEventTimeWindows):
    """Windows that overlap (slide < size) or leave gaps (slide > size)."""
