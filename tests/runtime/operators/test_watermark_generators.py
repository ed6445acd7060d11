"""Timestamps and watermarks of one split: where exactly a watermark stands, and what is kept."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.contracts.operator import GENERATOR_STATE, OperatorStateHandle, RestoreContext
from millstream.errors import UserFunctionError
from millstream.functions.watermark_strategy import WatermarkGenerator, WatermarkOutput
from millstream.runtime.operators import TimestampsWatermarksFactory
from millstream.state.operator_state import OperatorStates
from millstream.state.rescale import redistribute
from millstream.testing.harness import OperatorHarness


class OnMarks(WatermarkGenerator):
    """Punctuated: a watermark behind every odd number, idle behind every multiple of 10."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if event == "bad":
            raise ValueError(event)
        if event % 10 == 0:
            output.mark_idle()
        elif event % 2:
            output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class Counting(WatermarkGenerator):
    """Periodic: the watermark is how many records were seen; looks at the clock as well."""

    def __init__(self) -> None:
        self.seen = 0
        self.clock = -1

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.seen += 1

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self.clock = output.current_processing_time()
        output.emit_watermark(self.seen)


class BehindTheClock(WatermarkGenerator):
    """Flink's example of time that follows the clock."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        pass

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(output.current_processing_time() - 5)


def harness(
    strategy: WatermarkStrategy, configuration: dict[str, object] | None = None
) -> OperatorHarness:
    factory = TimestampsWatermarksFactory(strategy)
    return OperatorHarness(factory, configuration=Configuration(configuration))


def by_value(strategy: WatermarkStrategy) -> WatermarkStrategy:
    return strategy.with_timestamp_assigner(lambda value, _: value)


def record(value: int) -> tuple[str, int, int]:
    return ("record", value, value)


def watermark(time: int) -> tuple[str, int]:
    return ("watermark", time)


@pytest.mark.parametrize("columnar", [False, True])
def test_punctuated_watermarks_cut_the_batch(columnar: bool) -> None:
    strategy = by_value(WatermarkStrategy.for_generator(OnMarks))
    factory = TimestampsWatermarksFactory(strategy)
    test = OperatorHarness(factory, input_type=Types.LONG(), output_type=Types.LONG())
    test.process_all([2, 4, 5, 3, 6, 7, 8], columnar=columnar)
    expected = [record(2), record(4), record(5), watermark(5), record(3), record(6), record(7)]
    assert test.events == [*expected, watermark(7), record(8)]
    assert [len(batch) for batch in test.batches] == [3, 3, 1]


def test_mark_idle_takes_effect_where_it_was_said_and_records_end_it() -> None:
    test = harness(by_value(WatermarkStrategy.for_generator(OnMarks)))
    test.process_all([1, 20, 4])
    assert test.events == [record(1), watermark(1), record(20), ("idle", True), record(4)]
    test.events.clear()
    test.process(5)
    assert test.events == [("idle", False), record(5), watermark(5)]


def test_idleness_of_the_generator_is_kept_over_epochs() -> None:
    test = harness(by_value(WatermarkStrategy.for_generator(OnMarks)))
    test.process_all([1, 20])
    test.end_epoch()
    test.events.clear()
    test.end_epoch()
    assert test.events == [("idle", True)], "said again: the channel may have begun as active"
    test.process(23)
    assert test.events[1:] == [("idle", False), record(23), watermark(23)]


def test_error_in_a_generator_names_the_record_and_not_what_is_behind_it() -> None:
    test = harness(WatermarkStrategy.for_generator(OnMarks).with_timestamp_assigner(lambda *_: 1))
    with pytest.raises(UserFunctionError, match="making watermarks of record 'bad'"):
        test.process_all([2, "bad"])


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 7), st.booleans())
@examples(60)
def test_every_so_many_records_wherever_batches_and_epochs_are_cut(
    sizes: list[int], every: int, own: bool
) -> None:
    chance = random.Random(1)
    plain = WatermarkStrategy.for_monotonous_timestamps()
    strategy = by_value(WatermarkStrategy.for_generator(Counting) if own else plain)
    test = harness(strategy.with_periodic_emit(every=every))
    expected: list[tuple[object, ...]] = []
    value = 0
    for size in sizes:
        values = list(range(value, value + size))
        value += size
        test.process_all(values)
        if chance.random() < 0.5:
            test.end_epoch()
        for each in values:
            expected.append(record(each))
            if (each + 1) % every == 0:
                expected.append(watermark(each + 1 if own else each - 1))
    assert test.events == expected


@pytest.mark.parametrize("configured", [False, True])
def test_periodic_by_processing_time(configured: bool) -> None:
    strategy = by_value(WatermarkStrategy.for_generator(Counting))
    if configured:
        test = harness(strategy, {"pipeline.auto-watermark-interval": 100})
    else:
        test = harness(strategy.with_periodic_emit(interval=100))
    for now in (1000, 1050, 1099, 1100, 1250):
        test.processing_time(now)  # ends the epoch before
        test.process_all([7, 7])
        assert not test.watermarks or test.events[-1] == record(7), "not behind every batch"
    test.end_epoch()
    # The first epoch (clock 0, without records) asks once; then those of 1000, 1100 and 1250.
    assert test.watermarks == [0, 2, 8, 10]
    assert test.operator.__dict__["_generator"].clock == 1250


def test_periodic_watermarks_can_be_switched_off_as_in_flink() -> None:
    test = harness(
        by_value(WatermarkStrategy.for_monotonous_timestamps()),
        {"pipeline.auto-watermark-interval": 0},
    )
    test.process_all([5, 6])
    test.end_epoch()
    assert test.watermarks == []
    test.finish()
    assert test.watermarks == [MAX_TIMESTAMP]


def test_generator_that_follows_the_clock_needs_no_records() -> None:
    test = harness(WatermarkStrategy.for_generator(BehindTheClock))
    for now in (100, 200, 150):
        test.processing_time(now)
    test.end_epoch()
    assert test.watermarks == [-5, 95, 195]


def test_ingestion_time_stamps_with_the_clock_of_the_epoch_and_nothing_is_late() -> None:
    test = harness(WatermarkStrategy.for_ingestion_time())
    test.processing_time(100)
    test.process_all(["a", "b"], [7, 8])
    test.processing_time(130)
    test.process("c")
    before = list(test.events)
    assert before[1:] == [
        watermark(99),
        ("record", "a", 100),
        ("record", "b", 100),
        watermark(129),
        ("record", "c", 130),
    ]
    test.crash()
    test.process("c")
    assert test.events[-3:] == before[-3:], "a replay stamps alike"


def test_preserve_passes_time_through() -> None:
    test = harness(WatermarkStrategy.preserve())
    test.process("a", 10)
    test.watermark(9)
    test.operator.process_idle(True)
    test.operator.process_idle(False)
    test.end_epoch()
    test.process("b", 12)
    test.watermark(11)
    assert test.events == [
        ("record", "a", 10),
        watermark(9),
        ("idle", True),
        ("idle", False),
        ("record", "b", 12),
        watermark(11),
    ]


def rescaled(states: list[OperatorStateHandle]) -> OperatorHarness:
    """A new subtask that gets the states of all old ones."""
    kept = OperatorStates()
    kept.restore(redistribute([{GENERATOR_STATE: state} for state in states], 7)[4])
    test = harness(by_value(WatermarkStrategy.for_bounded_out_of_orderness(10)))
    test.operator.restore(
        RestoreContext(
            epoch=3,
            attempt="a",
            processing_time=50,
            store=None,
            watermark=MIN_TIMESTAMP,
            operator_states=kept,
        )
    )
    return test


def test_rescaled_generators_go_on_from_the_slowest() -> None:
    states = []
    for value in (1000, 500, 2000):
        test = harness(by_value(WatermarkStrategy.for_bounded_out_of_orderness(10)))
        test.process(value)
        test.end_epoch()
        states.append(test.operator_states[GENERATOR_STATE])
    test = rescaled(states)
    test.process(300)
    assert test.watermarks == [], "489 was said already: it is neither said again nor taken back"
    test.process(501)
    assert test.watermarks == [490]


def test_rescaled_generators_leave_idle_ones_out() -> None:
    strategy = by_value(WatermarkStrategy.for_bounded_out_of_orderness(10)).with_idleness(20)
    states = []
    for value, idle in ((1000, False), (500, True)):
        test = harness(strategy)
        test.process(value)
        test.end_epoch(swap=False)
        if idle:
            test.processing_time(30)
            test.end_epoch()
            assert test.events[-1] == ("idle", True)
        states.append(test.operator_states[GENERATOR_STATE])
    test = rescaled(states)
    test.process(1001)
    assert test.watermarks == [990]
