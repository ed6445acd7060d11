"""Triggers, which fire and purge windows, and Flink's evictors, which remove elements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeAlias, TypeVar, cast

from millstream.errors import ConfigurationError, ProgramError
from millstream.functions.descriptors import ReducingStateDescriptor, ValueStateDescriptor
from millstream.functions.window import Window
from millstream.types.time import MAX_TIMESTAMP, MIN_TIMESTAMP, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.functions.descriptors import StateDescriptor
    from millstream.functions.handles import ReducingState, State, ValueState
    from millstream.functions.metric_group import MetricGroup
    from millstream.types.time import Duration, Time


T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TriggerResult(Enum):
    """The result of a trigger: (is the window evaluated, is its content discarded)."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Return whether the window is evaluated."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Return whether the window's content is thrown away."""
        return self.value[1]


class _TimeAndMetrics(ABC):
    """Base of the contexts of triggers and evictors."""

    @abstractmethod
    def get_current_processing_time(self) -> int:
        """Return the processing time in milliseconds."""

    @abstractmethod
    def get_metric_group(self) -> MetricGroup:
        """Return the operator's metrics."""

    @abstractmethod
    def get_current_watermark(self) -> int:
        """Return the event time that the operator has reached."""


class Trigger(ABC, Generic[T, W]):
    """Says when the window of a key is evaluated.

    Contract:
      1. State and timers are those of the context; fields of the object stay as they are.  (nobody)
      2. ``clear`` removes the state and the timers that the trigger made for a window.  (nobody)
      3. If ``can_merge`` returns True, ``on_merge`` brings state and timers of the merged windows
         into the new one; ``clear`` is called for each old window afterwards.  (runtime)
    """

    class TriggerContext(_TimeAndMetrics):
        """Time, timers and state of the current key and window.  Not to be kept."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Call ``on_processing_time`` once processing time reaches ``time`` (milliseconds)."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Call ``on_event_time`` once the watermark reaches ``time`` (milliseconds)."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Take a timer back; nothing happens if there is none."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Take a timer back; nothing happens if there is none."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> State:
            """Return the handle of a state of the current key and window."""

    class OnMergeContext(TriggerContext):
        """The context of ``on_merge``; its window is the new one."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge the state of the old windows into that of the new one."""

    @abstractmethod
    def on_element(
        self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """React to an element that was added to the window."""

    @abstractmethod
    def on_processing_time(
        self, time: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """React to a processing-time timer of the window."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """React to an event-time timer of the window."""

    def can_merge(self) -> bool:
        """Return whether the trigger has ``on_merge``, as merging windows need it."""
        return False

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Bring state and timers of several windows into ``window``, which they became."""
        del window, ctx
        message = f"{type(self).__name__} does not support merging"
        raise ProgramError(message)

    def can_restore(self) -> bool:
        """Return whether the trigger has ``on_restore``, to take over from another one."""
        return type(self).on_restore is not Trigger.on_restore

    def on_restore(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Take over a window with content that another trigger watched until now.

        Called once for each window in flight when a program that is restored from a checkpoint has
        this trigger in the place of another kind, whose state and timers are gone.  Register the
        timers without which the window would never fire.
        """
        del window, ctx
        message = f"{type(self).__name__} cannot take windows over from another trigger"
        raise ProgramError(message)

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Remove state and timers: the window is gone."""


#: For signatures on one line.
_Context: TypeAlias = Trigger.TriggerContext


class QuietTrigger(Trigger[Any, Any]):
    """Does nothing at all; others fill in what they react to."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: _Context) -> TriggerResult:
        del element, timestamp, window, ctx
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: _Context) -> TriggerResult:
        del time, window, ctx
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: _Context) -> TriggerResult:
        del time, window, ctx
        return TriggerResult.CONTINUE

    def on_restore(self, window: Any, ctx: _Context) -> None:
        """Begin with the next element."""

    def clear(self, window: Any, ctx: _Context) -> None:
        """Leave nothing behind, as there is nothing."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class NeverTrigger(QuietTrigger):
    """Never fires; the default of GlobalWindows."""


class EventTimeTrigger(QuietTrigger):
    """Fires when the watermark passes the end of the window, and at once if it has."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """Make a trigger."""
        return EventTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: _Context) -> TriggerResult:
        """Fire at once for a late element, else wait for the end of the window."""
        del element, timestamp
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(end)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: _Context) -> TriggerResult:
        """Fire at the end of the window."""
        del ctx
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_restore(self, window: Any, ctx: _Context) -> None:
        """Wait for the end; a window that has passed it has fired."""
        _await_end(window, ctx)

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """Wait for the new end.

        If it has passed, nothing is registered: the element that caused the merge fires the window.
        """
        _await_end(window, ctx)

    def clear(self, window: Any, ctx: _Context) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(QuietTrigger):
    """Fires when processing time passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """Make a trigger."""
        return ProcessingTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: _Context) -> TriggerResult:
        """Wait for the end of the window."""
        del element, timestamp
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: _Context) -> TriggerResult:
        del time, window, ctx
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_restore(self, window: Any, ctx: _Context) -> None:
        """Wait for the end of the window."""
        ctx.register_processing_time_timer(window.max_timestamp())

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        end = window.max_timestamp()
        if end > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(end)

    def clear(self, window: Any, ctx: _Context) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class EndOfStreamTrigger(QuietTrigger):
    """Fires once, when a bounded input is over."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: _Context) -> TriggerResult:
        """Wait for the end of time."""
        del element, timestamp, window
        ctx.register_event_time_timer(MAX_TIMESTAMP)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: _Context) -> TriggerResult:
        """Fire at the end of time."""
        del window, ctx
        return TriggerResult.FIRE if time == MAX_TIMESTAMP else TriggerResult.CONTINUE

    def on_restore(self, window: Any, ctx: _Context) -> None:
        """Wait for the end of time."""
        del window
        ctx.register_event_time_timer(MAX_TIMESTAMP)


class CountTrigger(QuietTrigger):
    """Fires whenever so many elements have come since it last fired."""

    def __init__(self, window_size: int) -> None:
        """Take the number of elements; users call ``of``."""
        if window_size <= 0:
            message = f"CountTrigger needs a positive number of elements, not {window_size}"
            raise ConfigurationError(message)
        self._size = window_size
        self._count = ReducingStateDescriptor("count", _add)

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """Make a trigger that fires every ``window_size`` elements."""
        return CountTrigger(window_size)

    def _state(self, ctx: _Context) -> ReducingState[int]:
        return cast("ReducingState[int]", ctx.get_partitioned_state(self._count))

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: _Context) -> TriggerResult:
        del element, timestamp, window
        state = self._state(ctx)
        state.add(1)
        if state.get() < self._size:
            return TriggerResult.CONTINUE
        state.clear()
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        del window
        ctx.merge_partitioned_state(self._count)

    def clear(self, window: Any, ctx: _Context) -> None:
        del window
        self._state(ctx).clear()

    def __repr__(self) -> str:
        return f"CountTrigger({self._size})"


class _ContinuousTrigger(QuietTrigger):
    """Fires at multiples of an interval while the window is there."""

    #: The clock of its timers.
    _is_event_time: ClassVar[bool]

    def __init__(self, interval: int) -> None:
        """Take milliseconds; users call ``of``."""
        if interval <= 0:
            message = f"the interval of {type(self).__name__} must be positive, not {interval} ms"
            raise ConfigurationError(message)
        self.interval = interval
        self._next = ReducingStateDescriptor("fire-time", min)

    def _state(self, ctx: _Context) -> ReducingState[int]:
        return cast("ReducingState[int]", ctx.get_partitioned_state(self._next))

    @classmethod
    def of(cls, interval: Time | Duration | int) -> Self:
        """Make a trigger; an integer is milliseconds."""
        return cls(milliseconds(interval))

    def _register(self, ctx: _Context, time: int) -> None:
        if self._is_event_time:
            ctx.register_event_time_timer(time)
        else:
            ctx.register_processing_time_timer(time)

    def _delete(self, ctx: _Context, time: int) -> None:
        if self._is_event_time:
            ctx.delete_event_time_timer(time)
        else:
            ctx.delete_processing_time_timer(time)

    def _register_next(self, time: int, window: Window, ctx: _Context) -> None:
        following = min(time + self.interval, window.max_timestamp())
        self._state(ctx).add(following)
        self._register(ctx, following)

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """Go on with the earliest time of the merged windows."""
        del window
        ctx.merge_partitioned_state(self._next)
        following = self._state(ctx).get()
        if following is not None:
            self._register(ctx, following)

    def clear(self, window: Any, ctx: _Context) -> None:
        del window
        state = self._state(ctx)
        following = state.get()
        if following is not None:
            self._delete(ctx, following)
            state.clear()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.interval})"


class ContinuousEventTimeTrigger(_ContinuousTrigger):
    """Fires whenever the watermark passes a multiple of the interval, and at the window's end."""

    _is_event_time = True

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: _Context) -> TriggerResult:
        """Fire at once for a late element, else see to it that the next time is registered."""
        del element
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        if self._state(ctx).get() is None:
            self._register_next(timestamp - timestamp % self.interval, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: _Context) -> TriggerResult:
        """Fire if the time is the window's end or the one that was waited for."""
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        state = self._state(ctx)
        if state.get() != time:
            return TriggerResult.CONTINUE
        state.clear()
        # The input is over and the window never ends: firing on through all time is no use.
        is_over = ctx.get_current_watermark() == window.max_timestamp() == MAX_TIMESTAMP
        self._register_next(MAX_TIMESTAMP - self.interval if is_over else time, window, ctx)
        return TriggerResult.FIRE

    def on_restore(self, window: Any, ctx: _Context) -> None:
        """Go on with the next multiple of the interval within the window."""
        if window.max_timestamp() <= ctx.get_current_watermark():
            return
        ctx.register_event_time_timer(window.max_timestamp())
        now = max(ctx.get_current_watermark(), getattr(window, "start", MIN_TIMESTAMP))
        if now > MIN_TIMESTAMP:
            self._register_next(now - now % self.interval, window, ctx)


class ContinuousProcessingTimeTrigger(_ContinuousTrigger):
    """Fires whenever processing time passes a multiple of the interval."""

    _is_event_time = False

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: _Context) -> TriggerResult:
        """See to it that the next time is registered."""
        del element, timestamp
        if self._state(ctx).get() is None:
            now = ctx.get_current_processing_time()
            # The end of an event-time window may have passed already in processing time: a timer
            # there would fire at once, again and again.
            self._register_unless_over(now - now % self.interval, now - 1, window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: _Context) -> TriggerResult:
        """Fire if the time is the one that was waited for."""
        state = self._state(ctx)
        if state.get() != time:
            return TriggerResult.CONTINUE
        state.clear()
        self._register_unless_over(time, time, window, ctx)
        return TriggerResult.FIRE

    def on_restore(self, window: Any, ctx: _Context) -> None:
        """Go on with the next multiple of the interval."""
        self.on_element(None, MIN_TIMESTAMP, window, ctx)

    def _register_unless_over(self, time: int, passed: int, window: Window, ctx: _Context) -> None:
        """Register the next time; the window's end only if it is later than ``passed``."""
        if passed < window.max_timestamp():
            self._register_next(time, window, ctx)
            return
        self._state(ctx).add(time + self.interval)
        self._register(ctx, time + self.interval)


class DeltaTrigger(QuietTrigger):
    """Fires when an element differs enough from the one at which it last fired."""

    def __init__(self, threshold: float, delta_function: Callable[[Any, Any], float]) -> None:
        """Take the distance and how to measure it; users call ``of``."""
        self._threshold = threshold
        self._delta = getattr(delta_function, "get_delta", delta_function)
        self._last = ValueStateDescriptor("last-element")

    @staticmethod
    def of(
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        state_type: object = None,
    ) -> DeltaTrigger:
        """Make a trigger.

        Args:
            threshold: it fires if the delta is greater.
            delta_function: (element of the last firing, new element) -> delta; or an object with
                ``get_delta``.
            state_type: accepted, as Flink wants it; elements are pickled.
        """
        del state_type
        return DeltaTrigger(threshold, delta_function)

    def _state(self, ctx: _Context) -> ValueState[Any]:
        return cast("ValueState[Any]", ctx.get_partitioned_state(self._last))

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: _Context) -> TriggerResult:
        """Compare with the element of the last firing; the first element only is remembered."""
        del timestamp, window
        state = self._state(ctx)
        last = state.value()
        if last is None:
            state.update(element)
            return TriggerResult.CONTINUE
        if self._delta(last, element) > self._threshold:
            state.update(element)
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def clear(self, window: Any, ctx: _Context) -> None:
        del window
        self._state(ctx).clear()

    def __repr__(self) -> str:
        return f"DeltaTrigger({self._delta!r}, {self._threshold})"


class PurgingTrigger(Trigger[Any, Any]):
    """Another trigger, except that what fires is purged."""

    def __init__(self, nested_trigger: Trigger[Any, Any]) -> None:
        """Take the other trigger; users call ``of``."""
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger:
        """Make a trigger that purges when ``nested_trigger`` fires."""
        return PurgingTrigger(nested_trigger)

    @staticmethod
    def _purging(result: TriggerResult) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: _Context) -> TriggerResult:
        return self._purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(self, time: int, window: Any, ctx: _Context) -> TriggerResult:
        return self._purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: Any, ctx: _Context) -> TriggerResult:
        return self._purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_restore(self) -> bool:
        return self.nested_trigger.can_restore()

    def on_restore(self, window: Any, ctx: _Context) -> None:
        self.nested_trigger.on_restore(window, ctx)

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: Any, ctx: _Context) -> None:
        self.nested_trigger.clear(window, ctx)

    def __repr__(self) -> str:
        return f"PurgingTrigger({self.nested_trigger!r})"


def _await_end(window: Window, ctx: _Context) -> None:
    end = window.max_timestamp()
    if end > ctx.get_current_watermark():
        ctx.register_event_time_timer(end)


def _add(one: int, other: int) -> int:
    return one + other


class ProcessingTimeoutTrigger(QuietTrigger):
    """Another trigger that also fires some processing time after an element came."""

    def __init__(
        self,
        nested_trigger: Trigger[Any, Any],
        timeout: int,
        *,
        reset: bool,
        clear_on_timeout: bool,
    ) -> None:
        """Take the other trigger and milliseconds; users call ``of``."""
        self.nested_trigger = nested_trigger
        self._timeout = timeout
        self._reset = reset
        self._clear_on_timeout = clear_on_timeout
        self._at = ValueStateDescriptor("timeout")

    @staticmethod
    def of(
        nested_trigger: Trigger[Any, Any],
        timeout: Duration | Time | int,
        reset_timer_on_new_record: bool = False,  # noqa: FBT001, FBT002 - Flink's signature
        should_clear_on_timeout: bool = True,  # noqa: FBT001, FBT002 - Flink's signature
    ) -> ProcessingTimeoutTrigger:
        """Make a trigger.

        Args:
            nested_trigger: the other trigger.
            timeout: how long after the first element since the last firing; an integer is
                milliseconds.
            reset_timer_on_new_record: count from the last element instead.
            should_clear_on_timeout: clear the other trigger at a timeout.
        """
        return ProcessingTimeoutTrigger(
            nested_trigger,
            milliseconds(timeout),
            reset=reset_timer_on_new_record,
            clear_on_timeout=should_clear_on_timeout,
        )

    def _state(self, ctx: _Context) -> ValueState[int | None]:
        return cast("ValueState[int | None]", ctx.get_partitioned_state(self._at))

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: _Context) -> TriggerResult:
        """Ask the other trigger; unless it fires, see to it that the timeout is registered."""
        result = self.nested_trigger.on_element(element, timestamp, window, ctx)
        if result.is_fire():
            self.clear(window, ctx)
            return result
        state = self._state(ctx)
        at = state.value()
        if at is not None and self._reset:
            ctx.delete_processing_time_timer(at)
            at = None
        if at is None:
            at = ctx.get_current_processing_time() + self._timeout
            state.update(at)
            ctx.register_processing_time_timer(at)
        return result

    def _fired(self, result: TriggerResult, window: Window, ctx: _Context) -> TriggerResult:
        if self._clear_on_timeout:
            self.clear(window, ctx)
        return TriggerResult.FIRE_AND_PURGE if result.is_purge() else TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Any, ctx: _Context) -> TriggerResult:
        """Fire."""
        return self._fired(self.nested_trigger.on_processing_time(time, window, ctx), window, ctx)

    def on_event_time(self, time: int, window: Any, ctx: _Context) -> TriggerResult:
        """Fire."""
        return self._fired(self.nested_trigger.on_event_time(time, window, ctx), window, ctx)

    def can_restore(self) -> bool:
        return self.nested_trigger.can_restore()

    def on_restore(self, window: Any, ctx: _Context) -> None:
        """Let the other trigger take over, and begin a timeout."""
        self.nested_trigger.on_restore(window, ctx)
        at = ctx.get_current_processing_time() + self._timeout
        self._state(ctx).update(at)
        ctx.register_processing_time_timer(at)

    def clear(self, window: Any, ctx: _Context) -> None:
        """Take the timeout back and clear the other trigger."""
        state = self._state(ctx)
        at = state.value()
        if at is not None:
            ctx.delete_processing_time_timer(at)
            state.clear()
        self.nested_trigger.clear(window, ctx)

    def __repr__(self) -> str:
        return f"ProcessingTimeoutTrigger({self.nested_trigger!r}, {self._timeout})"


# -- evictors --------------------------------------------------------------------------------------


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
        """Return whether the element has a timestamp."""
        return self.timestamp != MIN_TIMESTAMP


class Evictor(ABC, Generic[T, W]):
    """Removes elements from a window when it fires.

    Flink's evictor removes through an iterator; this one changes the list it is given
    (``del elements[:2]``); what is left in it is what the window keeps.
    """

    class EvictorContext(_TimeAndMetrics):
        """The context of an evictor, valid during the call."""

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
