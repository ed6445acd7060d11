"""A trigger around another one that fires after some processing time as well.

Read next: ``functions/built_in_triggers.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from millstream.functions.built_in_triggers import QuietTrigger
from millstream.functions.descriptors import ValueStateDescriptor
from millstream.functions.triggers import Trigger, TriggerResult
from millstream.types.time import milliseconds

if TYPE_CHECKING:
    from millstream.functions.handles import ValueState
    from millstream.functions.window import Window
    from millstream.types.time import Duration, Time

__all__ = ["ProcessingTimeoutTrigger"]


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

    def _state(self, ctx: Trigger.TriggerContext) -> ValueState[int | None]:
        return cast("ValueState[int | None]", ctx.get_partitioned_state(self._at))

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
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

    def _fired(
        self, result: TriggerResult, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if self._clear_on_timeout:
            self.clear(window, ctx)
        return TriggerResult.FIRE_AND_PURGE if result.is_purge() else TriggerResult.FIRE

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Fire."""
        return self._fired(self.nested_trigger.on_processing_time(time, window, ctx), window, ctx)

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Fire."""
        return self._fired(self.nested_trigger.on_event_time(time, window, ctx), window, ctx)

    def can_restore(self) -> bool:
        return self.nested_trigger.can_restore()

    def on_restore(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Let the other trigger take over, and begin a timeout."""
        self.nested_trigger.on_restore(window, ctx)
        at = ctx.get_current_processing_time() + self._timeout
        self._state(ctx).update(at)
        ctx.register_processing_time_timer(at)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Take the timeout back and clear the other trigger."""
        state = self._state(ctx)
        at = state.value()
        if at is not None:
            ctx.delete_processing_time_timer(at)
            state.clear()
        self.nested_trigger.clear(window, ctx)

    def __repr__(self) -> str:
        return f"ProcessingTimeoutTrigger({self.nested_trigger!r}, {self._timeout})"
