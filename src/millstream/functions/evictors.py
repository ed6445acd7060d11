"""Evictors: what removes elements from a window before or after its function sees them.

What it is: Flink's evictors, which PyFlink lacks, with Flink's names in snake case.

Where Flink's evictor removes by way of an iterator, one of these changes the list it is given
(``del elements[:2]``); what is left in it is what the window keeps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from millstream.errors import ProgramError
from millstream.functions.window import Window
from millstream.types.time import MIN_TIMESTAMP, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.functions.metric_group import MetricGroup
    from millstream.types.time import Duration, Time


T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TimestampedValue(NamedTuple):
    """An element of a window with its timestamp (milliseconds)."""

    value: Any
    timestamp: int = MIN_TIMESTAMP

    def get_value(self) -> Any:
        """Return the element."""
        return self.value

    def get_timestamp(self) -> int:
        """Return the timestamp, the minimum long if the element has none."""
        return self.timestamp

    def has_timestamp(self) -> bool:
        """Whether the element has a timestamp."""
        return self.timestamp != MIN_TIMESTAMP


class Evictor(ABC, Generic[T, W]):
    """Removes elements from a window when it fires."""

    class EvictorContext(ABC):
        """What an evictor is given beside elements and window.  Not to be kept."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in milliseconds."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return the operator's metrics."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the event time that the operator has reached."""

    @abstractmethod
    def evict_before(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: W,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Remove elements before the window function is called.

        Args:
            elements: the content of the window in order of arrival; to be changed in place.
            size: how many they are.
            window: the window that fires.
            evictor_context: time and metrics.
        """

    @abstractmethod
    def evict_after(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: W,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Remove elements after the window function was called; arguments as above."""


class _BuiltInEvictor(Evictor[Any, Window]):
    """Evicts either before or after."""

    def __init__(self, *, do_evict_after: bool) -> None:
        self._after = do_evict_after

    @abstractmethod
    def evict(self, elements: list[TimestampedValue]) -> None:
        """Remove elements."""

    def evict_before(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: Window,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Remove elements unless it is to be done after."""
        del size, window, evictor_context
        if not self._after and elements:
            self.evict(elements)

    def evict_after(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: Window,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Remove elements if it is to be done after."""
        del size, window, evictor_context
        if self._after and elements:
            self.evict(elements)


class CountEvictor(_BuiltInEvictor):
    """Keeps the last elements of a window."""

    def __init__(self, count: int, do_evict_after: bool = False) -> None:  # noqa: FBT001, FBT002 - Flink's signature
        """Take how many to keep; users call ``of``."""
        super().__init__(do_evict_after=do_evict_after)
        if count < 0:
            message = f"CountEvictor cannot keep {count} elements"
            raise ProgramError(message)
        self._count = count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:  # noqa: FBT001, FBT002 - Flink's signature
        """Keep at most ``max_count`` elements, the last ones."""
        return CountEvictor(max_count, do_evict_after)

    def evict(self, elements: list[TimestampedValue]) -> None:
        if len(elements) > self._count:
            del elements[: len(elements) - self._count]


class TimeEvictor(_BuiltInEvictor):
    """Keeps elements up to a certain age, counted from the newest element of the window."""

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:  # noqa: FBT001, FBT002 - Flink's signature
        """Take milliseconds; users call ``of``."""
        super().__init__(do_evict_after=do_evict_after)
        self._size = window_size

    @staticmethod
    def of(window_size: Time | Duration | int, do_evict_after: bool = False) -> TimeEvictor:  # noqa: FBT001, FBT002 - Flink's signature
        """Remove elements ``window_size`` (an integer is milliseconds) or more older."""
        return TimeEvictor(milliseconds(window_size), do_evict_after)

    def evict(self, elements: list[TimestampedValue]) -> None:
        """Remove old elements; none if the first has no timestamp."""
        if not elements[0].has_timestamp():
            return
        cutoff = max(element.timestamp for element in elements) - self._size
        elements[:] = [element for element in elements if element.timestamp > cutoff]


class DeltaEvictor(_BuiltInEvictor):
    """Removes elements that differ too much from the last one."""

    def __init__(
        self,
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        do_evict_after: bool = False,  # noqa: FBT001, FBT002 - Flink's signature
    ) -> None:
        """Take the distance and how to measure it; users call ``of``."""
        super().__init__(do_evict_after=do_evict_after)
        self._threshold = threshold
        self._delta = getattr(delta_function, "get_delta", delta_function)

    @staticmethod
    def of(
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        do_evict_after: bool = False,  # noqa: FBT001, FBT002 - Flink's signature
    ) -> DeltaEvictor:
        """Remove elements whose delta to the last one is ``threshold`` or more.

        Args:
            threshold: from this delta on an element is removed.
            delta_function: (element, last element) -> delta; or an object with ``get_delta``.
            do_evict_after: evict after the window function instead of before.
        """
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def evict(self, elements: list[TimestampedValue]) -> None:
        last = elements[-1].value
        delta, threshold = self._delta, self._threshold
        elements[:] = [each for each in elements if not delta(each.value, last) >= threshold]
