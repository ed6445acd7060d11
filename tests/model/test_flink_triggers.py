"""The situations of Flink's tests of triggers, one trigger after the other, on whole windows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.model.situations import Situation, TellSum, add
from tests.model.window_model import MAX_TIME

from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.errors import MillstreamError


def tumbling(trigger: Trigger[Any, Any], lateness: int = 0) -> Situation:
    """Windows of 10 ms."""
    return Situation(
        TumblingEventTimeWindows.of(10),
        lambda stream: (
            stream.trigger(trigger)
            .allowed_lateness(lateness)
            .reduce(add, window_function=TellSum())
        ),
    )


def processing(trigger: Trigger[Any, Any]) -> Situation:
    """Windows of 10 ms by the clock."""
    return Situation(
        TumblingProcessingTimeWindows.of(10),
        lambda stream: stream.trigger(trigger).reduce(add, window_function=TellSum()),
    )


def test_event_time_trigger() -> None:
    (
        tumbling(EventTimeTrigger.create(), 100)
        .records("k", (1, 3), (2, 5))
        .watermark(8)
        .gives()
        .watermark(9)
        .gives((("k-3", 0, 10), 9))
        .records("k", (4, 2), (8, 1))
        .gives((("k-7", 0, 10), 9), (("k-15", 0, 10), 9))
        .watermark(108)
        .gives()
    )


def test_count_trigger_counts_each_window_and_each_key() -> None:
    (
        tumbling(CountTrigger.of(3))
        .records("a", (1, 1), (1, 11), (1, 2))
        .records("b", (1, 1), (1, 2))
        .restored()
        .gives()
        .records("a", (1, 3))
        .gives((("a-3", 0, 10), 9))
        .records("a", (1, 3), (1, 4))
        .gives()
        .restored()
        .records("a", (1, 5), (1, 12), (1, 13))
        .gives((("a-6", 0, 10), 9), (("a-3", 10, 20), 19))
        .watermark(100)
        .gives()
        .forgets_everything()
    )


def test_continuous_event_time_trigger() -> None:
    (
        tumbling(ContinuousEventTimeTrigger.of(4), 5)
        .records("k", (1, 1))
        .watermark(3)
        .gives()
        .watermark(4)
        .gives((("k-1", 0, 10), 9))
        .restored()
        .records("k", (2, 5))
        .watermark(7)
        .gives()
        .watermark(8)
        .gives((("k-3", 0, 10), 9))
        .watermark(9)
        .gives((("k-3", 0, 10), 9))
        .records("k", (4, 6))
        .gives((("k-7", 0, 10), 9))
        .watermark(50)
        .gives()
        .forgets_everything()
    )


def test_continuous_event_time_trigger_makes_up_for_a_leap() -> None:
    (
        tumbling(ContinuousEventTimeTrigger.of(4))
        .records("k", (1, 1), (2, 9))
        .watermark(50)
        .gives(*[(("k-3", 0, 10), 9)] * 3)
        .forgets_everything()
    )


def test_continuous_processing_time_trigger_ends_with_the_window() -> None:
    (
        processing(ContinuousProcessingTimeTrigger.of(4))
        .now(1)
        .values("k", 1)
        .now(3)
        .gives()
        .now(4)
        .gives((("k-1", 0, 10), 9))
        .values("k", 2)
        .now(8)
        .gives((("k-3", 0, 10), 9))
        .values("k", 4)
        .now(9)
        .gives((("k-7", 0, 10), 9))
        .now(100)
        .gives()
        .forgets_everything()
    )


def test_continuous_processing_time_trigger_on_the_global_window() -> None:
    (
        Situation(
            GlobalWindows.create(),
            lambda stream: stream.trigger(ContinuousProcessingTimeTrigger.of(5)).reduce(add),
        )
        .now(1)
        .values("a", 1, 2)
        .values("b", 4)
        .now(5)
        .gives((("a", 3), MAX_TIME), (("b", 4), MAX_TIME))
        .values("a", 8)
        .now(9)
        .gives()
        .now(10)
        .gives((("a", 11), MAX_TIME), (("b", 4), MAX_TIME))
    )


def test_a_continuous_processing_time_trigger_on_windows_of_the_past_comes_to_an_end() -> None:
    situation = tumbling(ContinuousProcessingTimeTrigger.of(4)).now(1_000_000)
    situation.records("k", (1, 1), (2, 2)).now(1_000_100)
    assert situation.harness.records[-1:] in ([], [(("k-3", 0, 10), 9)])


def test_processing_time_trigger_on_event_time_windows() -> None:
    (
        tumbling(ProcessingTimeTrigger.create(), 100)
        .now(5)
        .records("k", (1, 1))
        .now(9)
        .gives((("k-1", 0, 10), 9))
        .watermark(20)
        .gives()
    )


def test_delta_trigger_compares_with_the_last_that_fired() -> None:
    (
        Situation(
            GlobalWindows.create(),
            lambda stream: stream.trigger(
                DeltaTrigger.of(2, lambda old, new: abs(new[1] - old[1]))
            ).reduce(add),
        )
        .values("k", 10, 11, 12)
        .gives()
        .restored()
        .values("k", 13)
        .gives((("k", 46), MAX_TIME))
        .values("k", 11, 15)
        .gives()
        .values("k", 16)
        .gives((("k", 88), MAX_TIME))
    )


def test_purging_trigger_empties_the_window_but_not_its_trigger() -> None:
    (
        tumbling(PurgingTrigger.of(EventTimeTrigger.create()), 100)
        .records("k", (1, 3), (2, 5))
        .watermark(9)
        .gives((("k-3", 0, 10), 9))
        .records("k", (4, 2))
        .gives((("k-4", 0, 10), 9))
        .watermark(200)
        .gives()
        .forgets_everything()
    )


def test_a_purged_window_fires_nothing() -> None:
    (
        tumbling(PurgingTrigger.of(ContinuousEventTimeTrigger.of(4)))
        .records("k", (1, 1))
        .watermark(4)
        .gives((("k-1", 0, 10), 9))
        .watermark(9)
        .gives()
        .forgets_everything()
    )


def test_never_trigger() -> None:
    tumbling(NeverTrigger()).records("k", (1, 1)).watermark(1000).gives().forgets_everything()


@pytest.mark.parametrize(
    "trigger",
    [
        NeverTrigger(),
        DeltaTrigger.of(2, lambda old, new: 0.0),
        PurgingTrigger.of(DeltaTrigger.of(2, lambda old, new: 0.0)),
    ],
)
def test_sessions_refuse_triggers_that_cannot_merge(trigger: Trigger[Any, Any]) -> None:
    with pytest.raises(MillstreamError, match="merge"):
        Situation(
            EventTimeSessionWindows.with_gap(10), lambda stream: stream.trigger(trigger).reduce(add)
        )
