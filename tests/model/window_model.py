"""A model of Flink's window operator in plain Python: slow, and meant to be obviously right.

What it is: assigners and the operator, written from Flink's documentation and from what
its operator does, record by record and timer by timer, with dictionaries and sorted lists.  A
window is a pair (start, end); its contents are always all its elements.  Evictors are in
``evictor_model.py``, triggers in ``trigger_model.py``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tests.model.evictor_model import MIN_TIME
from tests.model.trigger_model import MAX_TIME, Pane, Result, Trigger, Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.model.evictor_model import Element, Evictor

__all__ = [
    "GLOBAL",
    "MAX_TIME",
    "MIN_TIME",
    "Assigner",
    "Emission",
    "Global",
    "Session",
    "Sliding",
    "WindowModel",
]

#: The one window of ``Global``; its largest timestamp is the end of time.
GLOBAL: Window = (MIN_TIME, MAX_TIME + 1)


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
