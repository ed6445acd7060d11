"""The default trigger of an assigner of the program's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.datastream import MergingWindowAssigner, StreamExecutionEnvironment, TimeWindow
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.window import EventTimeTrigger, TimeWindowSerializer
from millstream.errors import ProgramError
from millstream.testing import run_and_collect

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from millstream.datastream.window import Trigger


class NoMerging(EventTimeTrigger):
    def can_merge(self) -> bool:
        return False

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        message = "there is nothing to merge"
        raise ProgramError(message)


class Tens(MergingWindowAssigner[int, TimeWindow]):
    """Windows of ten numbers, which overlap if they are told to."""

    def __init__(self, size: int) -> None:
        self.size = size

    def assign_windows(self, element: int, timestamp: int, context: Any) -> Collection[TimeWindow]:
        start = element // 10 * 10
        return [TimeWindow(start, start + self.size)]

    def merge_windows(
        self,
        windows: Iterable[TimeWindow],
        callback: MergingWindowAssigner.MergeCallback[TimeWindow],
    ) -> None:
        ordered = sorted(windows, key=lambda window: window.start)
        if len(ordered) > 1 and ordered[0].end > ordered[1].start:
            callback.merge(ordered, TimeWindow(ordered[0].start, ordered[-1].end))

    def get_default_trigger(self, env: Any = None) -> Trigger[Any, TimeWindow]:
        return NoMerging()

    def get_window_serializer(self) -> TimeWindowSerializer:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return True


def sums(size: int) -> list[object]:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_source(NumberSequenceSource(1, 12), None, "numbers")
    keyed = numbers.key_by(lambda _: "all")
    return run_and_collect(keyed.window(Tens(size)).reduce(lambda one, other: one + other))[0]


def test_a_default_trigger_need_not_merge_where_windows_stay_apart() -> None:
    assert sums(10) == [45, 33]


def test_a_default_trigger_that_cannot_merge_fails_when_windows_merge() -> None:
    with pytest.raises(ProgramError, match="nothing to merge"):
        sums(11)


def test_a_trigger_of_the_program_must_merge() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    windows = env.from_sequence(1, 2).key_by(lambda _: 0).window(Tens(10))
    with pytest.raises(ProgramError, match="may be merged, which"):
        windows.trigger(NoMerging())
