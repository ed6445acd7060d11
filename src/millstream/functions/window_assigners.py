"""Windows, the contract of window assigners, and tumbling, sliding and session assigners."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import gcd
from typing import IO, TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, TypeVar

import numpy as np

from millstream.contracts.serialization import TypeSerializer
from millstream.errors import ConfigurationError, ProgramError
from millstream.functions.descriptors import ValueStateDescriptor
from millstream.functions.triggers import (
    CountTrigger,
    EndOfStreamTrigger,
    NeverTrigger,
    PurgingTrigger,
)
from millstream.functions.window import CountWindow, GlobalWindow, TimeWindow
from millstream.types.time import Duration, Time, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from numpy.typing import NDArray

    from millstream.functions.functions import RuntimeContext
    from millstream.functions.triggers import Trigger
    from millstream.functions.window import Window


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
        """The context of ``assign_windows``, valid during the call."""

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
        """Return whether windows end by event time, not by processing time."""

    def get_default_trigger(self, env: Any = None) -> Trigger[Any, Any]:
        """Return the trigger of windows for which the program gives none."""
        del env
        from millstream.functions.triggers import (
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
        """The callback of ``merge_windows``."""

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


_GapExtractor: TypeAlias = "SessionWindowTimeGapExtractor | Callable[[Any], Duration | int]"


class _Sessions(MergingWindowAssigner[Any, TimeWindow]):
    """Windows that last from an element to ``gap`` later and are merged where they touch."""

    #: Whether time is the element's own.
    event_time = True

    def is_event_time(self) -> bool:
        """Return whether the time of an element is its timestamp."""
        return self.event_time

    @abstractmethod
    def gap_of(self, element: object) -> int:
        """Return the gap after an element in milliseconds."""

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

    @classmethod
    def with_gap(cls, size: Time | Duration | int) -> Self:
        """Make an assigner; a plain integer is milliseconds."""
        return cls(milliseconds(size))

    def gap_of(self, element: object) -> int:
        del element
        return self.gap

    def __repr__(self) -> str:
        """``EventTimeSessionWindows(1000)``."""
        return f"{type(self).__name__}({self.gap})"


class _DynamicGap(_Sessions):
    def __init__(self, session_window_time_gap_extractor: _GapExtractor) -> None:
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

    @classmethod
    def with_dynamic_gap(cls, extractor: _GapExtractor) -> Self:
        """Make an assigner from an extractor, or a callable from element to gap."""
        return cls(extractor)

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


class DynamicProcessingTimeSessionWindows(_DynamicGap):
    """Processing-time sessions whose gap depends on the element."""

    event_time = False


class EventTimeSessionWindows(_FixedGap):
    """Event-time sessions: elements of a key less than a gap apart are in one window."""

    @staticmethod
    def with_dynamic_gap(extractor: _GapExtractor) -> DynamicEventTimeSessionWindows:
        """Make an assigner whose gap depends on the element."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_FixedGap):
    """Processing-time sessions: elements that arrive less than a gap apart are in one window."""

    event_time = False

    @staticmethod
    def with_dynamic_gap(extractor: _GapExtractor) -> DynamicProcessingTimeSessionWindows:
        """Make an assigner whose gap depends on the element."""
        return DynamicProcessingTimeSessionWindows(extractor)


def merges_sessions(assigner: object) -> bool:
    """Return whether windows of this assigner merge if they overlap or touch, and no others."""
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

    @classmethod
    def of(cls, window_size: int) -> Self:
        """Make an assigner."""
        return cls(window_size)

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


_TIMES: Final = struct.Struct(">qq")
_NUMBER: Final = struct.Struct(">q")


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Start and end, 16 bytes."""

    def serialize(self, element: TimeWindow, stream: IO[bytes]) -> None:
        stream.write(_TIMES.pack(element.start, element.end))

    def deserialize(self, stream: IO[bytes]) -> TimeWindow:
        return TimeWindow(*_TIMES.unpack(stream.read(_TIMES.size)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """The number, 8 bytes."""

    def serialize(self, element: CountWindow, stream: IO[bytes]) -> None:
        stream.write(_NUMBER.pack(element.id))

    def deserialize(self, stream: IO[bytes]) -> CountWindow:
        return CountWindow(*_NUMBER.unpack(stream.read(_NUMBER.size)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """A byte: there is one such window."""

    def serialize(self, element: GlobalWindow, stream: IO[bytes]) -> None:
        del element
        stream.write(b"\0")

    def deserialize(self, stream: IO[bytes]) -> GlobalWindow:
        stream.read(1)
        return GlobalWindow()
