"""A model of Flink's window operator in plain Python: slow, and meant to be obviously right.

What it is: assigners, triggers and the operator, written from Flink's documentation and from what
its operator does, record by record and timer by timer, with dictionaries and sorted lists.  A
window is a pair (start, end); its contents are always all its elements.  Evictors are in
``evictor_model.py``.

What it is not: made from Millstream's operators, which must agree with it.  It knows no batches,
no epochs, no pre-aggregation and no state backend.

Read next: ``window_programs.py``, which runs the same script through the model and an operator.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tests.model.evictor_model import MIN_TIME

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.model.evictor_model import Element, Evictor

__all__ = [
    "GLOBAL",
    "MAX_TIME",
    "MIN_TIME",
    "Assigner",
    "ContinuousEventTime",
    "ContinuousProcessingTime",
    "CountTrigger",
    "DeltaTrigger",
    "Emission",
    "EventTime",
    "Global",
    "Moody",
    "Never",
    "ProcessingTime",
    "Purging",
    "Session",
    "Sliding",
    "Trigger",
    "WindowModel",
]

MAX_TIME = 2**63 - 1
#: (start, end), the end excluded.
Window = tuple[int, int]
#: The one window of ``Global``; its largest timestamp is the end of time.
GLOBAL: Window = (MIN_TIME, MAX_TIME + 1)
CONTINUE, FIRE, PURGE, FIRE_AND_PURGE = (False, False), (True, False), (False, True), (True, True)
#: (whether it fires, whether it purges).
Result = tuple[bool, bool]


# -- assigners ---------------------------------------------------------------------------------


class Assigner:
    """Which windows a record belongs to, given its timestamp and the processing time."""

    merging: ClassVar[bool] = False

    def __init__(self, *, event_time: bool = True) -> None:
        self.event_time = event_time

    def windows(self, value: Any, timestamp: int, now: int) -> list[Window]:
        return self.at(value, timestamp if self.event_time else now)

    def at(self, value: Any, time: int) -> list[Window]:
        raise NotImplementedError


class Sliding(Assigner):
    """All windows [k * slide + offset, + size) around a time; tumbling if size is slide."""

    def __init__(self, size: int, slide: int, offset: int = 0, *, event_time: bool = True) -> None:
        super().__init__(event_time=event_time)
        self.size, self.slide, self.offset = size, slide, offset

    def at(self, value: Any, time: int) -> list[Window]:
        starts = range(time - self.size + 1, time + 1)
        found = [start for start in starts if (start - self.offset) % self.slide == 0]
        return [(start, start + self.size) for start in reversed(found)]


class Session(Assigner):
    """[time, time + gap), merged with what it overlaps or touches."""

    merging = True

    def __init__(self, gap: Callable[[Any], int], *, event_time: bool = True) -> None:
        super().__init__(event_time=event_time)
        self.gap = gap

    def at(self, value: Any, time: int) -> list[Window]:
        return [(time, time + self.gap(value))]


class Global(Assigner):
    """One window for everything."""

    def __init__(self) -> None:
        super().__init__(event_time=False)

    def at(self, value: Any, time: int) -> list[Window]:
        return [GLOBAL]


# -- triggers ----------------------------------------------------------------------------------


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


# -- the operator ------------------------------------------------------------------------------


class Emission(NamedTuple):
    """One evaluation of a window."""

    #: Number of the call (record, watermark, step of processing time) that it happened in.
    step: int
    #: The timer's time, or how many records came before: what orders the emissions of a step.
    order: int
    key: Any
    window: Window
    #: What the function gets, after the evictor.
    elements: tuple[Any, ...]
    #: How often this window has been evaluated since its state was last cleared.
    fires: int
    watermark: int


@dataclass
class WindowModel:
    """The window operator.  Keys are anything hashable, equal if they are one key."""

    assigner: Assigner
    trigger: Trigger
    evictor: Evictor | None = None
    lateness: int = 0
    watermark: int = MIN_TIME
    now: int = 0
    step: int = 0
    records: int = 0
    contents: dict[tuple[Any, Window], list[Element]] = field(default_factory=dict)
    trigger_state: dict[tuple[Any, Window], dict[str, Any]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    #: Sessions in flight, per key.
    sessions: dict[Any, list[Window]] = field(default_factory=lambda: defaultdict(list))
    event_timers: set[tuple[int, Any, Window]] = field(default_factory=set)
    processing_timers: set[tuple[int, Any, Window]] = field(default_factory=set)
    fires: dict[tuple[Any, Window], int] = field(default_factory=lambda: defaultdict(int))
    emissions: list[Emission] = field(default_factory=list)
    #: (value, timestamp) of every record that came too late, with its step.
    late: list[tuple[int, Any, int]] = field(default_factory=list)
    #: (key, window) whose time was over, in order.
    cleared: list[tuple[Any, Window]] = field(default_factory=list)

    def record(self, key: Any, value: Any, timestamp: int) -> None:
        self.records += 1
        skipped = True
        for window in self.assigner.windows(value, timestamp, self.now):
            actual = self._merged(key, window) if self.assigner.merging else window
            if self._is_late(actual):
                if self.assigner.merging:
                    self.sessions[key].remove(actual)
                    self.contents.pop((key, actual), None)
                continue
            skipped = False
            self.contents.setdefault((key, actual), []).append((value, timestamp))
            pane = Pane(self, key, actual)
            self._obey(pane, self.trigger.on_element(pane, value, timestamp), self.records)
            self._cleanup_timer(pane, register=True)
        if skipped and self.assigner.event_time and timestamp + self.lateness <= self.watermark:
            self.late.append((self.step, value, timestamp))

    def advance_watermark(self, watermark: int) -> None:
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        while due := [timer for timer in self.event_timers if timer[0] <= watermark]:
            timer = min(due, key=_timer_order)
            self.event_timers.remove(timer)
            self._on_timer(timer, event_time=True)

    def advance_processing_time(self, now: int) -> None:
        self.now = now
        while due := [timer for timer in self.processing_timers if timer[0] <= now]:
            timer = min(due, key=_timer_order)
            self.processing_timers.remove(timer)
            self._on_timer(timer, event_time=False)

    def change(self, other: WindowModel, *, restart: bool) -> None:
        """Go on with the trigger, evictor and lateness of ``other``.

        Content stays.  If ``restart``, the trigger is another one: it begins without state, with
        the timers that it asks for.  What is over by the lateness of today ends unseen.
        """
        timers = self.event_timers | self.processing_timers
        flying = {(key, window) for _, key, window in timers} | set(self.contents)
        if self.assigner.merging:
            flying = {(key, window) for key, some in self.sessions.items() for window in some}
        self.trigger, self.evictor, self.lateness = other.trigger, other.evictor, other.lateness
        if restart:
            self.event_timers.clear()
            self.processing_timers.clear()
            self.trigger_state.clear()
        for key, window in sorted(flying, key=repr):
            pane = Pane(self, key, window)
            if self._is_late(window):
                self.contents.pop((key, window), None)
                self.trigger.clear(pane)
                self.fires.pop((key, window), None)
                if self.assigner.merging:
                    self.sessions[key].remove(window)
                continue
            if restart:
                self.trigger.on_restore(pane)
            self._cleanup_timer(pane, register=True)

    def _on_timer(self, timer: tuple[int, Any, Window], *, event_time: bool) -> None:
        time, key, window = timer
        if self.assigner.merging and window not in self.sessions[key]:
            return  # a trigger left a timer of a window that was merged or is over
        pane = Pane(self, key, window)
        act = self.trigger.on_event_time if event_time else self.trigger.on_processing_time
        self._obey(pane, act(pane, time), time)
        if event_time == self.assigner.event_time and time == self._cleanup_time(window):
            self.contents.pop((key, window), None)
            self.trigger.clear(pane)
            self.fires.pop((key, window), None)
            self.cleared.append((key, window))
            if self.assigner.merging:
                self.sessions[key].remove(window)

    def _obey(self, pane: Pane, result: Result, order: int) -> None:
        where = pane.key, pane.window
        fire, purge = result
        if fire and self.contents.get(where):
            elements = self.contents[where]
            if self.evictor is not None and not self.evictor.after:
                elements = self.evictor.kept(elements)
            self.fires[where] += 1
            values = tuple(value for value, _ in elements)
            self.emissions.append(
                Emission(self.step, order, *where, values, self.fires[where], self.watermark)
            )
            if self.evictor is not None and self.evictor.after:
                elements = self.evictor.kept(elements)
            self.contents[where] = elements
        if purge:
            self.contents.pop(where, None)

    def _merged(self, key: Any, new: Window) -> Window:
        """Put a session among those in flight; returns the one that now holds it."""
        flying = self.sessions[key]
        # In order of time, so that a session that reaches the next one by merging is found too.
        merged: list[Window] = []
        result = new
        for window in sorted(flying):
            if window[0] <= result[1] and result[0] <= window[1]:
                merged.append(window)
                result = min(result[0], window[0]), max(result[1], window[1])
        if not merged or merged == [result]:
            if result not in flying:
                flying.append(result)
            return result
        pane = Pane(self, key, result)
        self.trigger.on_merge(pane, merged)
        elements: list[Element] = []
        for window in merged:
            flying.remove(window)
            old = Pane(self, key, window)
            self.trigger.clear(old)
            self._cleanup_timer(old, register=False)
            elements += self.contents.pop((key, window), [])
        flying.append(result)
        if elements:
            self.contents[key, result] = elements
        return result

    def _is_late(self, window: Window) -> bool:
        return self.assigner.event_time and self._cleanup_time(window) <= self.watermark

    def _cleanup_time(self, window: Window) -> int:
        lateness = self.lateness if self.assigner.event_time else 0
        return min(window[1] - 1 + lateness, MAX_TIME)

    def _cleanup_timer(self, pane: Pane, *, register: bool) -> None:
        time = self._cleanup_time(pane.window)
        if time == MAX_TIME:
            return
        if self.assigner.event_time:
            (pane.at_event_time if register else pane.not_at_event_time)(time)
        else:
            (pane.at_processing_time if register else pane.not_at_processing_time)(time)


def _timer_order(timer: tuple[int, Any, Window]) -> tuple[int, str, Window]:
    return timer[0], repr(timer[1]), timer[2]
