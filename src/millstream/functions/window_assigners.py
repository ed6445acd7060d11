"""Assigners of processing-time, session, global and count windows.

What it is: what users give to ``window()`` beside the fixed event-time windows of
``functions/windows.py``, with PyFlink's names.

What it is not: merging itself.  Sessions only say that windows that touch belong together;
``runtime/operators/windows/merging.py`` does it.

Read next: ``functions/built_in_triggers.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import ConfigurationError, ProgramError
from millstream.functions.built_in_triggers import (
    CountTrigger,
    EndOfStreamTrigger,
    NeverTrigger,
    PurgingTrigger,
)
from millstream.functions.descriptors import ValueStateDescriptor
from millstream.functions.window import CountWindow, GlobalWindow, TimeWindow
from millstream.functions.windows import (
    FixedWindows,
    MergingWindowAssigner,
    Sliding,
    Tumbling,
    WindowAssigner,
)
from millstream.types.time import milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.functions.triggers import Trigger
    from millstream.types.time import Duration, Time

__all__ = [
    "CountSlidingWindowAssigner",
    "CountTumblingWindowAssigner",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "FixedProcessingTimeWindows",
    "GlobalWindows",
    "ProcessingTimeSessionWindows",
    "SessionWindowTimeGapExtractor",
    "SlidingProcessingTimeWindows",
    "TumblingProcessingTimeWindows",
    "merges_sessions",
]


@dataclass(frozen=True)
class FixedProcessingTimeWindows(FixedWindows):
    """Windows of one size that begin every ``slide`` milliseconds of processing time."""

    def is_event_time(self) -> bool:
        return False

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """Return the windows that contain the present, the latest first."""
        del element, timestamp
        return self.windows_at(context.get_current_processing_time())


class TumblingProcessingTimeWindows(Tumbling, FixedProcessingTimeWindows):
    """Windows side by side: every record is in exactly one."""


class SlidingProcessingTimeWindows(Sliding, FixedProcessingTimeWindows):
    """Windows that overlap (slide < size) or leave gaps (slide > size)."""


class SessionWindowTimeGapExtractor(ABC):
    """Says how long a session stays open after an element."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Return the gap in milliseconds; it must be positive."""


class _Sessions(MergingWindowAssigner[Any, TimeWindow]):
    """Windows that last from an element to ``gap`` later and are merged where they touch."""

    #: Whether time is the element's own.
    event_time = True

    def is_event_time(self) -> bool:
        """Whether the time of an element is its timestamp."""
        return self.event_time

    @abstractmethod
    def gap_of(self, element: object) -> int:
        """Return the gap behind an element in milliseconds."""

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """Return the session that this element alone would make."""
        if not self.event_time:
            timestamp = context.get_current_processing_time()
        return [TimeWindow(timestamp, timestamp + self.gap_of(element))]

    def merge_windows(
        self,
        windows: Iterable[TimeWindow],
        callback: MergingWindowAssigner.MergeCallback[TimeWindow],
    ) -> None:
        """Merge sessions that overlap or touch."""
        TimeWindow.merge_windows(windows, callback)


class _FixedGap(_Sessions):
    def __init__(self, session_gap: int) -> None:
        """Take milliseconds; users call ``with_gap``."""
        if session_gap <= 0:
            message = f"the gap of {type(self).__name__} must be positive, not {session_gap} ms"
            raise ConfigurationError(message)
        self.gap = session_gap

    def gap_of(self, element: object) -> int:
        del element
        return self.gap

    def __repr__(self) -> str:
        """``EventTimeSessionWindows(1000)``."""
        return f"{type(self).__name__}({self.gap})"


class _DynamicGap(_Sessions):
    def __init__(
        self,
        session_window_time_gap_extractor: SessionWindowTimeGapExtractor
        | Callable[[Any], Duration | int],
    ) -> None:
        """Take the extractor, or a callable from element to gap."""
        extractor = session_window_time_gap_extractor
        extract = getattr(extractor, "extract", extractor)
        if not callable(extract) or isinstance(extractor, type):
            message = (
                "with_dynamic_gap() needs a SessionWindowTimeGapExtractor or a callable, "
                f"not {extractor!r}"
            )
            raise ProgramError(message)
        self._extract = extract

    def gap_of(self, element: object) -> int:
        """Return what the extractor says of the element.

        Raises:
            ProgramError: the gap is not positive.
        """
        gap = milliseconds(self._extract(element))
        if gap <= 0:
            message = f"the dynamic session gap must be positive, it is {gap} ms for {element!r}"
            raise ProgramError(message)
        return gap

    def __repr__(self) -> str:
        """Name and extractor."""
        return f"{type(self).__name__}({self._extract!r})"


class DynamicEventTimeSessionWindows(_DynamicGap):
    """Event-time sessions whose gap depends on the element."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], Duration | int],
    ) -> DynamicEventTimeSessionWindows:
        """Make an assigner from an extractor, or a callable from element to gap."""
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(_DynamicGap):
    """Processing-time sessions whose gap depends on the element."""

    event_time = False

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], Duration | int],
    ) -> DynamicProcessingTimeSessionWindows:
        """Make an assigner from an extractor, or a callable from element to gap."""
        return DynamicProcessingTimeSessionWindows(extractor)


class EventTimeSessionWindows(_FixedGap):
    """Event-time sessions: elements of a key less than a gap apart are in one window."""

    @staticmethod
    def with_gap(size: Time | Duration | int) -> EventTimeSessionWindows:
        """Make an assigner; a plain integer is milliseconds."""
        return EventTimeSessionWindows(milliseconds(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], Duration | int],
    ) -> DynamicEventTimeSessionWindows:
        """Make an assigner whose gap depends on the element."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_FixedGap):
    """Processing-time sessions: elements that arrive less than a gap apart are in one window."""

    event_time = False

    @staticmethod
    def with_gap(size: Time | Duration | int) -> ProcessingTimeSessionWindows:
        """Make an assigner; a plain integer is milliseconds."""
        return ProcessingTimeSessionWindows(milliseconds(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], Duration | int],
    ) -> DynamicProcessingTimeSessionWindows:
        """Make an assigner whose gap depends on the element."""
        return DynamicProcessingTimeSessionWindows(extractor)


def merges_sessions(assigner: object) -> bool:
    """Whether windows of this assigner merge if they overlap or touch, and no others."""
    kind = type(assigner)
    return (
        isinstance(assigner, _Sessions)
        and kind.merge_windows is _Sessions.merge_windows  # type: ignore[attr-defined] # it is one
        and kind.assign_windows is _Sessions.assign_windows  # type: ignore[attr-defined]
    )


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """All elements of a key in one window; without a trigger nothing ever comes of it."""

    _WINDOWS = (GlobalWindow(),)

    def __init__(self) -> None:
        """Take nothing; users call ``create``."""
        self._end_of_stream = False

    @staticmethod
    def create() -> GlobalWindows:
        """Make an assigner whose windows never fire by themselves."""
        return GlobalWindows()

    @staticmethod
    def create_with_end_of_stream_trigger() -> GlobalWindows:
        """Make an assigner whose windows fire once, at the end of a bounded input."""
        made = GlobalWindows()
        made._end_of_stream = True
        return made

    def assign_windows(
        self,
        element: object,
        timestamp: int,
        context: WindowAssigner.WindowAssignerContext | None = None,
    ) -> tuple[GlobalWindow, ...]:
        del element, timestamp, context
        return self._WINDOWS

    def is_event_time(self) -> bool:
        """Return False: no record is ever late."""
        return False

    def get_default_trigger(self, env: Any = None) -> Trigger[Any, Any]:
        """Return a trigger that never fires, or only at the end."""
        del env
        return EndOfStreamTrigger() if self._end_of_stream else NeverTrigger()

    def __repr__(self) -> str:
        """``GlobalWindows()``."""
        return "GlobalWindows()"


class _CountAssigner(WindowAssigner[Any, CountWindow]):
    """Numbers the elements of a key; windows fire when they are full and are dropped then."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        if window_size <= 0 or window_slide <= 0:
            message = (
                f"size and slide of count windows must be positive, not {window_size} and "
                f"{window_slide}"
            )
            raise ConfigurationError(message)
        self.size = window_size
        self.slide = window_slide
        self._seen = ValueStateDescriptor("\0windows.count")

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        """Return the windows that the next element of the current key is in, the latest first."""
        del element, timestamp
        state = context.get_runtime_context().get_state(self._seen)
        number = state.value() or 0
        state.update(number + 1)
        last = number // self.slide
        first = max(0, -(-(number - self.size + 1) // self.slide))
        return [CountWindow(window) for window in range(last, first - 1, -1)]

    def is_event_time(self) -> bool:
        """Return False: no record is ever late."""
        return False

    def get_default_trigger(self, env: Any = None) -> Trigger[Any, Any]:
        """Return a trigger that fires full windows, which are done with then."""
        del env
        return PurgingTrigger.of(CountTrigger.of(self.size))


class CountTumblingWindowAssigner(_CountAssigner):
    """Every ``window_size`` elements of a key are a window."""

    def __init__(self, window_size: int) -> None:
        """Take the number of elements."""
        super().__init__(window_size, window_size)

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Make an assigner."""
        return CountTumblingWindowAssigner(window_size)

    def __repr__(self) -> str:
        """``CountTumblingWindowAssigner(10)``."""
        return f"CountTumblingWindowAssigner({self.size})"


class CountSlidingWindowAssigner(_CountAssigner):
    """A window of ``window_size`` elements begins every ``window_slide`` elements of a key."""

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Make an assigner."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def __repr__(self) -> str:
        """``CountSlidingWindowAssigner(10, 2)``."""
        return f"CountSlidingWindowAssigner({self.size}, {self.slide})"
