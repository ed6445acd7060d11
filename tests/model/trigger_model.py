"""The triggers of the model of Flink's window operator, and what they see.

What it is: Flink's triggers in plain Python, timer by timer, each with what it does when windows
merge and when a job is restored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.model.evictor_model import MIN_TIME

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.model.window_model import WindowModel

MAX_TIME = 2**63 - 1
#: (start, end), the end excluded.
Window = tuple[int, int]
CONTINUE, FIRE, PURGE, FIRE_AND_PURGE = (False, False), (True, False), (False, True), (True, True)
#: (whether it fires, whether it purges).
Result = tuple[bool, bool]


@dataclass
class Pane:
    """What a trigger sees: its state and timers for one key and window, and the clocks."""

    model: WindowModel
    key: Any
    window: Window

    @property
    def end(self) -> int:
        return self.window[1] - 1

    @property
    def state(self) -> dict[str, Any]:
        return self.model.trigger_state[self.key, self.window]

    @property
    def watermark(self) -> int:
        return self.model.watermark

    @property
    def now(self) -> int:
        return self.model.now

    def at_event_time(self, time: int) -> None:
        self.model.event_timers.add((time, self.key, self.window))

    def at_processing_time(self, time: int) -> None:
        self.model.processing_timers.add((time, self.key, self.window))

    def not_at_event_time(self, time: int) -> None:
        self.model.event_timers.discard((time, self.key, self.window))

    def not_at_processing_time(self, time: int) -> None:
        self.model.processing_timers.discard((time, self.key, self.window))

    def merge_state(self, merged: list[Window], name: str, fold: Callable[..., Any]) -> None:
        """Move what the merged windows hold under ``name`` here, folded to one value."""
        states = [self.model.trigger_state[self.key, window] for window in merged]
        held = [state.pop(name) for state in states if name in state]
        if held:
            self.state[name] = fold(held)


class Trigger:
    """Says when a window fires; by default never."""

    can_merge = True

    def on_element(self, pane: Pane, value: Any, timestamp: int) -> Result:
        return CONTINUE

    def on_event_time(self, pane: Pane, time: int) -> Result:
        return CONTINUE

    def on_processing_time(self, pane: Pane, time: int) -> Result:
        return CONTINUE

    def on_merge(self, pane: Pane, merged: list[Window]) -> None:
        pass

    def on_restore(self, pane: Pane) -> None:
        """The window was another trigger's until now, whose state and timers are gone."""

    def clear(self, pane: Pane) -> None:
        pass


class Never(Trigger):
    """Never fires."""

    can_merge = False


class EventTime(Trigger):
    """At the end of the window, and for every record that comes after it."""

    def on_element(self, pane: Pane, value: Any, timestamp: int) -> Result:
        if pane.end <= pane.watermark:
            return FIRE
        pane.at_event_time(pane.end)
        return CONTINUE

    def on_event_time(self, pane: Pane, time: int) -> Result:
        return FIRE if time == pane.end else CONTINUE

    def on_merge(self, pane: Pane, merged: list[Window]) -> None:
        if pane.end > pane.watermark:
            pane.at_event_time(pane.end)

    def on_restore(self, pane: Pane) -> None:
        if pane.end > pane.watermark:
            pane.at_event_time(pane.end)

    def clear(self, pane: Pane) -> None:
        pane.not_at_event_time(pane.end)


class ProcessingTime(Trigger):
    """When processing time reaches the end of the window."""

    def on_element(self, pane: Pane, value: Any, timestamp: int) -> Result:
        pane.at_processing_time(pane.end)
        return CONTINUE

    def on_processing_time(self, pane: Pane, time: int) -> Result:
        return FIRE

    def on_merge(self, pane: Pane, merged: list[Window]) -> None:
        if pane.end > pane.now:
            pane.at_processing_time(pane.end)

    def on_restore(self, pane: Pane) -> None:
        pane.at_processing_time(pane.end)

    def clear(self, pane: Pane) -> None:
        pane.not_at_processing_time(pane.end)


class CountTrigger(Trigger):
    """With every n-th record."""

    def __init__(self, count: int) -> None:
        self.count = count

    def on_element(self, pane: Pane, value: Any, timestamp: int) -> Result:
        count = pane.state.get("count", 0) + 1
        if count >= self.count:
            pane.state.pop("count", None)
            return FIRE
        pane.state["count"] = count
        return CONTINUE

    def on_merge(self, pane: Pane, merged: list[Window]) -> None:
        pane.merge_state(merged, "count", sum)

    def clear(self, pane: Pane) -> None:
        pane.state.pop("count", None)


class ContinuousEventTime(Trigger):
    """At every multiple of the interval once there is a record, and at the end of the window."""

    def __init__(self, interval: int) -> None:
        self.interval = interval

    def _next(self, pane: Pane, time: int) -> None:
        pane.state["fire"] = min(time + self.interval, pane.end)
        pane.at_event_time(pane.state["fire"])

    def on_element(self, pane: Pane, value: Any, timestamp: int) -> Result:
        if pane.end <= pane.watermark:
            return FIRE
        pane.at_event_time(pane.end)
        if "fire" not in pane.state:
            self._next(pane, timestamp - timestamp % self.interval)
        return CONTINUE

    def on_event_time(self, pane: Pane, time: int) -> Result:
        if time == pane.end:
            return FIRE
        if pane.state.get("fire") == time:
            # In Flink a window that never ends fires for ever at the end of the input.
            over = pane.watermark == pane.end == MAX_TIME
            self._next(pane, MAX_TIME if over else time)
            return FIRE
        return CONTINUE

    def on_merge(self, pane: Pane, merged: list[Window]) -> None:
        pane.merge_state(merged, "fire", min)
        if "fire" in pane.state:
            pane.at_event_time(pane.state["fire"])

    def on_restore(self, pane: Pane) -> None:
        if pane.end <= pane.watermark:
            return
        pane.at_event_time(pane.end)
        now = max(pane.watermark, pane.window[0])
        if now > MIN_TIME:
            self._next(pane, now - now % self.interval)

    def clear(self, pane: Pane) -> None:
        if "fire" in pane.state:
            pane.not_at_event_time(pane.state.pop("fire"))


class ContinuousProcessingTime(Trigger):
    """At every multiple of the interval of processing time once there is a record.

    And at the end of the window, if the clock has not passed it: in Flink a window of event time
    whose end the clock has passed fires for ever.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval

    def _next(self, pane: Pane, time: int, passed: int) -> None:
        following = time + self.interval
        pane.state["fire"] = min(following, pane.end) if passed < pane.end else following
        pane.at_processing_time(pane.state["fire"])

    def on_element(self, pane: Pane, value: Any, timestamp: int) -> Result:
        if "fire" not in pane.state:
            self._next(pane, pane.now - pane.now % self.interval, pane.now - 1)
        return CONTINUE

    def on_processing_time(self, pane: Pane, time: int) -> Result:
        if pane.state.get("fire") == time:
            self._next(pane, time, time)
            return FIRE
        return CONTINUE

    def on_merge(self, pane: Pane, merged: list[Window]) -> None:
        pane.merge_state(merged, "fire", min)
        if "fire" in pane.state:
            pane.at_processing_time(pane.state["fire"])

    def on_restore(self, pane: Pane) -> None:
        self.on_element(pane, None, 0)

    def clear(self, pane: Pane) -> None:
        if "fire" in pane.state:
            pane.not_at_processing_time(pane.state.pop("fire"))


class DeltaTrigger(Trigger):
    """With a record that is further than the threshold from the last one that fired."""

    can_merge = False

    def __init__(self, threshold: float, delta: Callable[[Any, Any], float]) -> None:
        self.threshold, self.delta = threshold, delta

    def on_element(self, pane: Pane, value: Any, timestamp: int) -> Result:
        if "last" not in pane.state:
            pane.state["last"] = value
            return CONTINUE
        if self.delta(pane.state["last"], value) > self.threshold:
            pane.state["last"] = value
            return FIRE
        return CONTINUE

    def clear(self, pane: Pane) -> None:
        pane.state.pop("last", None)


class Purging(Trigger):
    """Empties the window whenever the other trigger fires."""

    def __init__(self, nested: Trigger) -> None:
        self.nested = nested
        self.can_merge = nested.can_merge

    @staticmethod
    def _purging(result: Result) -> Result:
        return FIRE_AND_PURGE if result[0] else result

    def on_element(self, pane: Pane, value: Any, timestamp: int) -> Result:
        return self._purging(self.nested.on_element(pane, value, timestamp))

    def on_event_time(self, pane: Pane, time: int) -> Result:
        return self._purging(self.nested.on_event_time(pane, time))

    def on_processing_time(self, pane: Pane, time: int) -> Result:
        return self._purging(self.nested.on_processing_time(pane, time))

    def on_merge(self, pane: Pane, merged: list[Window]) -> None:
        self.nested.on_merge(pane, merged)

    def on_restore(self, pane: Pane) -> None:
        self.nested.on_restore(pane)

    def clear(self, pane: Pane) -> None:
        self.nested.clear(pane)


class Moody(Trigger):
    """A user's trigger: all four results, own state, and timers that it does not take back."""

    def __init__(self, delay: int) -> None:
        self.delay = delay

    def on_element(self, pane: Pane, value: Any, timestamp: int) -> Result:
        pane.state["seen"] = pane.state.get("seen", 0) + 1
        pane.at_event_time(timestamp + self.delay)
        pane.at_processing_time(pane.now + self.delay)
        return (FIRE, PURGE, FIRE_AND_PURGE, CONTINUE, CONTINUE)[value[1] % 5]

    def on_event_time(self, pane: Pane, time: int) -> Result:
        return (FIRE, CONTINUE, FIRE_AND_PURGE)[pane.state.get("seen", 0) % 3]

    def on_processing_time(self, pane: Pane, time: int) -> Result:
        return (CONTINUE, FIRE)[pane.state.get("seen", 0) % 2]

    def on_merge(self, pane: Pane, merged: list[Window]) -> None:
        pane.merge_state(merged, "seen", sum)
        pane.at_event_time(pane.end - 1)

    def clear(self, pane: Pane) -> None:
        pane.state.pop("seen", None)
