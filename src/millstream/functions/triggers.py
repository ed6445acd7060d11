"""What a trigger is: it says when a window is evaluated, and when its content is thrown away.

What it is: PyFlink's ``Trigger``, its context and its results, for users to write their own.

What it is not: the triggers that come with Millstream (``functions/built_in_triggers.py``), nor
what calls them (``runtime/operators/windows/generic.py``).  A trigger keeps nothing in its fields
that depends on elements: one object serves all keys and windows.

Read next: ``functions/built_in_triggers.py``, ``runtime/operators/windows/trigger_context.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

from millstream.errors import ProgramError
from millstream.functions.window import Window

if TYPE_CHECKING:
    from millstream.functions.descriptors import StateDescriptor
    from millstream.functions.handles import State
    from millstream.functions.metric_group import MetricGroup

__all__ = ["Trigger", "TriggerResult"]

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TriggerResult(Enum):
    """What happens to a window: (is it evaluated, is its content thrown away)."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Whether the window is evaluated."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Whether the window's content is thrown away."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Says when the window of a key is evaluated.

    Contract:
      1. State and timers are those of the context; fields of the object stay as they are.  (nobody)
      2. ``clear`` removes the state and the timers that the trigger made for a window.  (nobody)
      3. If ``can_merge`` returns True, ``on_merge`` brings state and timers of the merged windows
         into the new one; ``clear`` is called for each old window afterwards.  (runtime)
    """

    class TriggerContext(ABC):
        """Time, timers and state of the current key and window.  Not to be kept."""

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
        """What ``on_merge`` is given; its window is the new one."""

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
        """Whether ``on_merge`` is there, so that the trigger may be used with merging windows."""
        return False

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Bring state and timers of several windows into ``window``, which they became."""
        del window, ctx
        message = f"{type(self).__name__} does not support merging"
        raise ProgramError(message)

    def can_restore(self) -> bool:
        """Whether ``on_restore`` is there, so that the trigger may take over from another one."""
        return type(self).on_restore is not Trigger.on_restore

    def on_restore(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Take over a window with content that another trigger watched until now.

        Called once for each window in flight when a program that goes on from a checkpoint has
        this trigger in the place of another kind, whose state and timers are gone.  Register the
        timers without which the window would never fire.
        """
        del window, ctx
        message = f"{type(self).__name__} cannot take windows over from another trigger"
        raise ProgramError(message)

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Remove state and timers: the window is gone."""
