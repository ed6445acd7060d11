"""The user's code of the window programs: functions, a trigger and an evictor.

What it is: what a program hands to Millstream; module-level, since jobs are pickled.
What it is not: known to the model, which has its own words for the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from millstream.common import Types
from millstream.datastream import AggregateFunction, ProcessWindowFunction, WindowFunction
from millstream.datastream.state import ReducingStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import Evictor, Trigger, TriggerResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.datastream.state import ReducingState
    from millstream.datastream.window import Window


def key_of(record: Any) -> Any:
    return record[0]


def gap_of(record: Any) -> int:
    """From 2 to 9 ms."""
    return 2 + int(record[1]) * 5 % 8


class AlwaysGap:
    """The same gap for every record."""

    def __init__(self, gap: int) -> None:
        self.gap = gap

    def __call__(self, record: Any) -> int:
        return self.gap


def delta(old: Any, new: Any) -> float:
    """Numbers count up; what is seen of them goes up and down."""
    return float(abs(new[1] * 7 % 11 - old[1] * 7 % 11))


def chain(so_far: Any, new: Any) -> Any:
    """Associative, and tells the order of everything that went in."""
    return (*so_far[:2], (*so_far[2], new[1], *new[2]), *so_far[3:])


class Gather(AggregateFunction):
    """All numbers in order; the accumulator is changed in place."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        acc_a.extend(acc_b)
        return acc_a


def _where(window: Window) -> tuple[int, int] | None:
    start, end = getattr(window, "start", None), getattr(window, "end", None)
    return None if start is None or end is None else (start, end)


class TellApply(WindowFunction[Any, Any, Any, Any]):
    """(key, window, contents)."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterator[Any]:
        yield key, _where(window), tuple(inputs)


class TellProcess(ProcessWindowFunction[Any, Any, Any, Any]):
    """(key, window, contents, how often this window has fired, watermark)."""

    def process(
        self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[Any]:
        state = context.window_state().get_state(ValueStateDescriptor("fires", Types.LONG()))
        fires = (state.value() or 0) + 1
        state.update(fires)
        where = _where(context.window())
        yield key, where, tuple(elements), fires, context.current_watermark()

    def clear(self, context: ProcessWindowFunction.Context[Any]) -> None:
        context.window_state().get_state(ValueStateDescriptor("fires", Types.LONG())).clear()


class TellProcessOfSession(ProcessWindowFunction[Any, Any, Any, Any]):
    """The same without state, which merging windows cannot have."""

    def process(
        self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[Any]:
        where = _where(context.window())
        yield key, where, tuple(elements), 0, context.current_watermark()


def _add(one: int, other: int) -> int:
    return one + other


class MoodyTrigger(Trigger[Any, Any]):
    """All four results, own state, and timers that it does not take back."""

    def __init__(self, delay: int) -> None:
        self.delay = delay
        self.seen = ReducingStateDescriptor("seen", _add, Types.LONG())

    def _state(self, ctx: Trigger.TriggerContext) -> ReducingState[int]:
        return cast("ReducingState[int]", ctx.get_partitioned_state(self.seen))

    def _seen(self, ctx: Trigger.TriggerContext) -> int:
        return self._state(ctx).get() or 0

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        self._state(ctx).add(1)
        ctx.register_event_time_timer(timestamp + self.delay)
        ctx.register_processing_time_timer(ctx.get_current_processing_time() + self.delay)
        return (
            TriggerResult.FIRE,
            TriggerResult.PURGE,
            TriggerResult.FIRE_AND_PURGE,
            TriggerResult.CONTINUE,
            TriggerResult.CONTINUE,
        )[element[1] % 5]

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        moods = TriggerResult.FIRE, TriggerResult.CONTINUE, TriggerResult.FIRE_AND_PURGE
        return moods[self._seen(ctx) % 3]

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return (TriggerResult.CONTINUE, TriggerResult.FIRE)[self._seen(ctx) % 2]

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.seen)
        ctx.register_event_time_timer(window.max_timestamp() - 1)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self.seen).clear()


class TakeOdd(Evictor[Any, Any]):
    """Takes out every second element, the first one first."""

    def __init__(self, after: bool) -> None:
        self.after = after

    def evict_before(
        self, elements: list[Any], size: int, window: Any, evictor_context: Evictor.EvictorContext
    ) -> None:
        assert size == len(elements)
        if not self.after:
            del elements[::2]

    def evict_after(
        self, elements: list[Any], size: int, window: Any, evictor_context: Evictor.EvictorContext
    ) -> None:
        assert size == len(elements)
        if self.after:
            del elements[::2]
