"""Processing time that moves between batches, without a snapshot in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.configuration.configuration import Configuration
from millstream.functions.descriptors import (
    ListStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.functions.functions import KeyedProcessFunction
from millstream.functions.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from millstream.functions.window_assigners import (
    ProcessingTimeSessionWindows,
    TumblingProcessingTimeWindows,
)
from millstream.runtime.operators import (
    ApplySpec,
    KeyedProcessFactory,
    TimestampsWatermarksFactory,
    WindowFactory,
)
from millstream.testing.harness import OperatorHarness
from millstream.types.time import Duration, Time

if TYPE_CHECKING:
    from collections.abc import Iterable

BOUNDED = WatermarkStrategy.for_bounded_out_of_orderness(10).with_timestamp_assigner(
    lambda record, _: record
)


def open_harness(factory: Any, interval: str | None = None) -> OperatorHarness:
    configuration = Configuration()
    if interval is not None:
        configuration.set_string("pipeline.auto-watermark-interval", interval)
    return OperatorHarness(factory, configuration=configuration, long_lived=True)


def test_periodic_watermarks_come_by_the_clock() -> None:
    harness = open_harness(TimestampsWatermarksFactory(BOUNDED), "100 ms")
    assert harness.operator.due() is None, "there is nothing to say"
    harness.process(50)
    assert harness.operator.due() == 100
    harness.time_passes(99)
    assert harness.watermarks == []
    harness.process(60)
    harness.time_passes(100)
    assert harness.watermarks == [49]
    assert harness.operator.due() is None
    harness.process(70)
    assert harness.operator.due() == 200
    harness.time_passes(201)
    assert harness.watermarks == [49, 59]


def test_an_interval_of_zero_makes_none() -> None:
    harness = open_harness(TimestampsWatermarksFactory(BOUNDED), "0 ms")
    harness.process(50)
    harness.time_passes(1000)
    assert harness.operator.due() is None
    assert harness.watermarks == []


def test_idleness_comes_by_the_clock() -> None:
    strategy = BOUNDED.with_idleness(Duration.of_millis(300))
    harness = open_harness(TimestampsWatermarksFactory(strategy))
    harness.time_passes(100)
    harness.process(50)
    assert harness.operator.due() == 400
    harness.time_passes(399)
    assert ("idle", True) not in harness.events
    harness.time_passes(400)
    assert harness.events[-1] == ("idle", True)
    assert harness.operator.due() is None
    harness.process(70)
    assert harness.events[-3:] == [("idle", False), ("record", 70, 70), ("watermark", 59)]
    harness.time_passes(699)
    harness.process(80)
    harness.time_passes(998)
    assert harness.events[-1] != ("idle", True)


def test_what_a_silent_input_has_not_said_is_said_before_it_becomes_idle() -> None:
    strategy = BOUNDED.with_idleness(Duration.of_millis(300))
    harness = open_harness(TimestampsWatermarksFactory(strategy), "1 s")
    harness.process(50)
    harness.time_passes(300)
    assert harness.events[-2:] == [("watermark", 39), ("idle", True)]


def test_a_restored_input_is_not_idle_for_what_was_before() -> None:
    strategy = BOUNDED.with_idleness(Duration.of_millis(300))
    harness = open_harness(TimestampsWatermarksFactory(strategy))
    harness.process(50)
    harness.end_epoch()
    harness.current_processing_time = 100_000
    harness.crash()
    assert harness.operator.due() == 100_300
    harness.time_passes(100_299)
    assert ("idle", True) not in harness.events


def test_a_snapshot_behind_a_restart_takes_no_downtime_for_silence() -> None:
    strategy = BOUNDED.with_idleness(Duration.of_millis(300))
    harness = open_harness(TimestampsWatermarksFactory(strategy))
    harness.process(50)
    harness.end_epoch()
    harness.current_processing_time = 100_000
    harness.crash()
    harness.time_passes(100_100)
    harness.end_epoch()
    assert ("idle", True) not in harness.events
    harness.crash()  # nor is it forgotten how long it was silent since
    harness.time_passes(100_400)
    harness.end_epoch()
    assert harness.events[-1] == ("idle", True)


class OwnClock(WatermarkGenerator):
    """The clock, a second behind."""

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        pass

    def on_periodic_emit(self, output: Any) -> None:
        output.emit_watermark(output.current_processing_time() - 1000)


@pytest.mark.parametrize(("interval", "length"), [(None, 200), ("50 ms", 50)])
def test_a_generator_of_the_user_is_asked_without_records(
    interval: str | None, length: int
) -> None:
    strategy = WatermarkStrategy.for_generator(OwnClock)
    harness = open_harness(TimestampsWatermarksFactory(strategy), interval)
    for number in range(1, 4):
        assert harness.operator.due() == number * length
        harness.time_passes(number * length)
    assert harness.watermarks == [number * length - 1000 for number in range(1, 4)]


def test_ingestion_time_follows_the_clock() -> None:
    harness = open_harness(TimestampsWatermarksFactory(WatermarkStrategy.for_ingestion_time()))
    assert harness.watermarks == [-1]
    harness.time_passes(5)
    harness.process("a")
    harness.time_passes(10)
    assert harness.events[-2:] == [("record", "a", 5), ("watermark", 9)]
    assert harness.operator.due() == 20


def test_an_epoch_that_begins_does_not_decide() -> None:
    """The first time behind restoring is the start of an epoch, whose records are still to come."""
    strategy = BOUNDED.with_idleness(Duration.of_millis(300))
    harness = OperatorHarness(TimestampsWatermarksFactory(strategy), long_lived=False)
    harness.process(50)
    harness.end_epoch()
    harness.current_processing_time = 5000
    harness.operator = harness._begin(harness.operator)
    assert ("idle", True) not in harness.events
    harness.process(60)
    harness.end_epoch()
    assert ("idle", True) not in harness.events


# Timers, windows, time to live.


class Alarm(KeyedProcessFunction):
    """Fires the given time after each record, and says when it was told."""

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        now = ctx.timer_service().current_processing_time()
        ctx.timer_service().register_processing_time_timer(now + value[1])
        return []

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), timestamp, ctx.timer_service().current_processing_time()


def test_timers_fire_between_snapshots() -> None:
    harness = open_harness(KeyedProcessFactory(Alarm(), lambda value: value[0]))
    assert harness.operator.due() is None
    harness.process(("a", 100))
    harness.process(("b", 50))
    assert harness.operator.due() == 50
    harness.end_epoch()
    assert harness.operator.due() == 50, "it lies in the store now"
    harness.time_passes(60)
    assert harness.outputs == [("b", 50, 60)]
    assert harness.operator.due() == 100
    harness.process(("c", 5))
    assert harness.operator.due() == 65
    harness.time_passes(100)
    assert harness.outputs[1:] == [("c", 65, 100), ("a", 100, 100)]
    assert harness.operator.due() is None
    harness.end_epoch()
    harness.time_passes(1000)
    assert len(harness.outputs) == 3


def window_factory(assigner: Any) -> Any:
    spec = ApplySpec(lambda key, window, elements: [(key, window.start, len(list(elements)))])
    return WindowFactory(assigner, spec, lambda value: value)


def test_processing_time_windows_end_between_snapshots() -> None:
    harness = open_harness(window_factory(TumblingProcessingTimeWindows.of(Time.milliseconds(100))))
    harness.time_passes(10)
    harness.process("a")
    harness.time_passes(90)
    harness.process("a")
    assert harness.operator.due() == 99
    harness.time_passes(120)
    assert harness.outputs == [("a", 0, 2)]
    harness.process("a")
    harness.end_epoch()
    harness.process("b")
    harness.time_passes(199)
    assert harness.outputs[1:] == [("a", 100, 1), ("b", 100, 1)]
    assert harness.operator.due() is None


def test_sessions_of_processing_time_end_between_snapshots() -> None:
    gap = ProcessingTimeSessionWindows.with_gap(Time.milliseconds(50))
    harness = open_harness(window_factory(gap))
    for now in (10, 40, 80):
        harness.time_passes(now)
        harness.process("a")
    assert harness.outputs == []
    harness.end_epoch()
    harness.time_passes(128)
    assert harness.outputs == []
    assert harness.operator.due() == 129
    harness.time_passes(129)
    assert harness.outputs == [("a", 10, 3)]
    harness.process("a")
    harness.time_passes(300)
    assert harness.outputs[1:] == [("a", 129, 1)]


class Remember(KeyedProcessFunction):
    """What is in two states that expire 100 ms after they were written."""

    def open(self, runtime_context: Any) -> None:
        config = StateTtlConfig.new_builder(Time.milliseconds(100)).build()
        value = ValueStateDescriptor("value", None)
        value.enable_time_to_live(config)
        items = ListStateDescriptor("list", None)
        items.enable_time_to_live(config)
        self.value = runtime_context.get_state(value)
        self.items = runtime_context.get_list_state(items)

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield self.value.value(), list(self.items.get())
        if value is not None:
            self.value.update(value)
            self.items.add(value)


@pytest.mark.parametrize("cut", [False, True])
def test_state_expires_between_snapshots(cut: bool) -> None:
    harness = open_harness(KeyedProcessFactory(Remember(), lambda _: "key"))
    seen = []
    for now, value in [(0, 1), (50, 2), (120, None), (149, None), (150, None), (400, None)]:
        harness.time_passes(now)
        harness.process(value)
        seen.append(harness.outputs[-1])
        if cut:
            harness.end_epoch()
    assert seen == [(None, []), (1, [1]), (2, [2]), (2, [2]), (None, []), (None, [])]


def test_time_in_which_the_task_did_not_run_is_no_silence() -> None:
    harness = open_harness(TimestampsWatermarksFactory(BOUNDED.with_idleness(1000)))
    harness.process(50)
    harness.time_passes(900)
    assert harness.operator.due() is not None
    harness.operator.process_pause(5000)
    harness.time_passes(5900)
    assert not [event for event in harness.events if event[0] == "idle"]
    harness.time_passes(5999)
    assert not [event for event in harness.events if event[0] == "idle"]
    harness.time_passes(6000)
    assert [event for event in harness.events if event[0] == "idle"] == [("idle", True)]
