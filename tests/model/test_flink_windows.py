"""The situations of Flink's tests of the window operator: assigners, merging, lateness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.model.cases import state_of
from tests.model.situations import LATE, Situation, TellSum, TellSumInProcess, add, total
from tests.model.window_model import MAX_TIME

from millstream.common import Time
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    MergingWindowAssigner,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    Trigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.datastream import DataStream, WindowedStream

    Build = Callable[[WindowedStream], DataStream]

SUMS: dict[str, Build] = {
    "reduce": lambda stream: stream.reduce(add),
    "apply": lambda stream: stream.apply(total),
}
SESSION_SUMS: dict[str, Build] = {
    "apply": lambda stream: stream.apply(TellSum()),
    "process": lambda stream: stream.process(TellSumInProcess()),
    "reduce, apply": lambda stream: stream.reduce(add, window_function=TellSum()),
    "reduce, process": lambda stream: stream.reduce(add, window_function=TellSumInProcess()),
}


@pytest.mark.parametrize("build", SUMS.values(), ids=SUMS)
def test_sliding_event_time_windows(build: Build) -> None:
    (
        Situation(SlidingEventTimeWindows.of(Time.seconds(3), Time.seconds(1)), build)
        .records("key2", (1, 3999), (1, 3000))
        .records("key1", (1, 20), (1, 0), (1, 999))
        .records("key2", (1, 1998), (1, 1999), (1, 1000))
        .watermark(999)
        .gives((("key1", 3), 999))
        .watermark(1999)
        .gives((("key1", 3), 1999), (("key2", 3), 1999))
        .watermark(2999)
        .gives((("key1", 3), 2999), (("key2", 3), 2999))
        .restored()
        .watermark(3999)
        .gives((("key2", 5), 3999))
        .watermark(4999)
        .gives((("key2", 2), 4999))
        .watermark(5999)
        .gives((("key2", 2), 5999))
        .watermark(6999, 7999)
        .gives()
        .forgets_everything()
    )


@pytest.mark.parametrize("build", SUMS.values(), ids=SUMS)
def test_tumbling_event_time_windows(build: Build) -> None:
    (
        Situation(TumblingEventTimeWindows.of(Time.seconds(3)), build)
        .records("key2", (1, 3999), (1, 3000))
        .records("key1", (1, 20), (1, 0), (1, 999))
        .records("key2", (1, 1998), (1, 1999), (1, 1000))
        .watermark(999, 1999)
        .gives()
        .restored()
        .watermark(2999)
        .gives((("key1", 3), 2999), (("key2", 3), 2999))
        .watermark(3999, 4999)
        .gives()
        .watermark(5999)
        .gives((("key2", 2), 5999))
        .watermark(6999, 7999)
        .gives()
        .forgets_everything()
    )


@pytest.mark.parametrize("build", SESSION_SUMS.values(), ids=SESSION_SUMS)
def test_sessions(build: Build) -> None:
    (
        Situation(EventTimeSessionWindows.with_gap(Time.seconds(3)), build)
        .records("key2", (1, 0), (2, 1000), (3, 2500))
        .records("key1", (1, 10), (2, 1000))
        .restored()
        .gives()
        .records("key1", (3, 2500))
        .records("key2", (4, 5501), (5, 6000), (5, 6000), (6, 6050))
        .watermark(12000)
        .gives(
            (("key1-6", 10, 5500), 5499),
            (("key2-6", 0, 5500), 5499),
            (("key2-20", 5501, 9050), 9049),
        )
        .records("key2", (10, 15000), (20, 15000))
        .watermark(17999)
        .gives((("key2-30", 15000, 18000), 17999))
        .forgets_everything()
    )


def test_sessions_that_touch_are_one() -> None:
    (
        Situation(EventTimeSessionWindows.with_gap(10), SESSION_SUMS["apply"])
        .records("k", (1, 0), (2, 10), (4, 21))
        .watermark(100)
        .gives((("k-3", 0, 20), 19), (("k-4", 21, 31), 30))
    )


def test_sessions_merge_into_one_that_covers_them_all() -> None:
    gaps = {1: 2, 2: 2, 4: 2, 8: 40}
    assigner = EventTimeSessionWindows.with_dynamic_gap(lambda record: gaps[record[1]])
    (
        Situation(assigner, SESSION_SUMS["reduce, apply"])
        .records("k", (1, 10), (2, 20), (4, 30), (8, 5))
        .watermark(43)
        .gives()
        .watermark(44)
        .gives((("k-15", 5, 45), 44))
        .forgets_everything()
    )


def test_a_record_with_exactly_the_window_of_a_merged_session_joins_it() -> None:
    gaps = {1: 10, 2: 10, 4: 15}
    assigner = EventTimeSessionWindows.with_dynamic_gap(lambda record: gaps[record[1]])
    (
        Situation(assigner, SESSION_SUMS["apply"])
        .records("k", (1, 0), (2, 5), (4, 0))
        .watermark(14)
        .gives((("k-7", 0, 15), 14))
        .forgets_everything()
    )


def test_sessions_with_a_count_trigger_add_their_counts() -> None:
    (
        Situation(
            EventTimeSessionWindows.with_gap(Time.seconds(3)),
            lambda stream: stream.trigger(PurgingTrigger.of(CountTrigger.of(4))).apply(TellSum()),
        )
        .records("key2", (1, 0), (2, 1000), (3, 2500), (4, 3500))
        .records("key1", (1, 10), (2, 1000))
        .gives((("key2-10", 0, 6500), 6499))
        .restored()
        .records("key1", (3, 2500), (1, 6000), (2, 6500), (3, 7000))
        .gives()
        .records("key1", (10, 4500))
        .gives((("key1-22", 10, 10000), 9999))
    )


def test_sessions_with_a_continuous_trigger_keep_the_earliest_time() -> None:
    (
        Situation(
            EventTimeSessionWindows.with_gap(Time.seconds(3)),
            lambda stream: stream.trigger(ContinuousEventTimeTrigger.of(Time.seconds(2))).apply(
                TellSum()
            ),
        )
        .records("key1", (1, 1500))
        .records("key2", (1, 0), (3, 2500), (2, 1000))
        .watermark(2500)
        .gives((("key1-1", 1500, 4500), 4499), (("key2-6", 0, 5500), 5499))
        .records("key2", (5, 4000))
        .watermark(3000)
        .gives()
        .restored()
        .records("key1", (2, 4000))
        .records("key2", (4, 3500))
        .watermark(4000)
        .gives((("key1-3", 1500, 7000), 6999), (("key2-15", 0, 7000), 6999))
    )


class PointSessions(MergingWindowAssigner[Any, TimeWindow]):
    """Sessions with a gap of 3 s, but a record of 33 is one without length."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> list[TimeWindow]:
        return [TimeWindow(timestamp, timestamp + (0 if element[1] == 33 else 3000))]

    def merge_windows(self, windows: Any, callback: Any) -> None:
        EventTimeSessionWindows.with_gap(3000).merge_windows(windows, callback)

    def get_default_trigger(self, env: Any = None) -> Trigger[Any, Any]:
        return EventTimeTrigger.create()

    def get_window_serializer(self) -> Any:
        return EventTimeSessionWindows.with_gap(3000).get_window_serializer()

    def is_event_time(self) -> bool:
        return True


def test_a_users_assigner_of_point_sessions() -> None:
    (
        Situation(PointSessions(), SESSION_SUMS["apply"])
        .records("key2", (1, 0), (33, 1000))
        .restored()
        .records("key2", (33, 2500))
        .records("key1", (1, 10), (2, 1000), (33, 2500))
        .watermark(12000)
        .gives((("key1-36", 10, 4000), 3999), (("key2-67", 0, 3000), 2999))
    )


def test_a_continuous_trigger_on_the_global_window() -> None:
    (
        Situation(
            GlobalWindows.create(),
            lambda stream: stream.trigger(ContinuousEventTimeTrigger.of(Time.seconds(3))).reduce(
                add
            ),
        )
        .records("key1", (1, 0))
        .records("key2", (1, 3000), (1, 3999))
        .records("key1", (1, 20), (1, 999))
        .records("key2", (1, 1998), (1, 1999), (1, 1000))
        .watermark(1000, 2000)
        .gives()
        .watermark(3000)
        .gives((("key1", 3), MAX_TIME))
        .watermark(4000, 5000)
        .gives()
        .watermark(6000)
        .gives((("key1", 3), MAX_TIME), (("key2", 5), MAX_TIME))
        .watermark(7000, 8000)
        .gives()
    )


def test_a_purging_count_trigger_on_the_global_window() -> None:
    (
        Situation(
            GlobalWindows.create(),
            lambda stream: stream.trigger(PurgingTrigger.of(CountTrigger.of(4))).reduce(add),
        )
        .records("key2", (1, 3000), (1, 3999))
        .records("key1", (1, 20), (1, 0), (1, 999))
        .records("key2", (1, 1998), (1, 1999))
        .gives((("key2", 4), MAX_TIME))
        .restored()
        .records("key2", (1, 1000))
        .records("key1", (1, 10999))
        .gives((("key1", 4), MAX_TIME))
        .records("key2", (1, 1000), (1, 1000), (1, 1000))
        .gives((("key2", 4), MAX_TIME))
    )


def test_the_global_window_never_fires_by_itself() -> None:
    situation = Situation(GlobalWindows.create(), SUMS["reduce"]).records("k", (1, 5))
    situation.harness.finish()
    situation.gives()


def test_tumbling_processing_time_windows() -> None:
    (
        Situation(TumblingProcessingTimeWindows.of(Time.seconds(3)), SUMS["reduce"])
        .now(3)
        .records("key2", (1, MAX_TIME), (1, 7000), (1, 7000))
        .records("key1", (1, 7000), (1, 7000))
        .gives()
        .now(5000)
        .gives((("key2", 3), 2999), (("key1", 2), 2999))
        .records("key1", (1, 7000), (1, 7000), (1, 7000))
        .now(7000)
        .gives((("key1", 3), 5999))
        .forgets_everything()
    )


def test_sliding_processing_time_windows() -> None:
    assigner = SlidingProcessingTimeWindows.of(Time.seconds(3), Time.seconds(1))
    (
        Situation(assigner, SUMS["reduce"])
        .now(3)
        .values("key2", 1)
        .now(1000)
        .gives((("key2", 1), 999))
        .values("key2", 1, 1)
        .now(2000)
        .gives((("key2", 3), 1999))
        .values("key1", 1, 1)
        .now(3000)
        .gives((("key2", 3), 2999), (("key1", 2), 2999))
        .values("key1", 1, 1, 1)
        .now(7000)
        .gives(
            (("key2", 2), 3999),
            (("key1", 5), 3999),
            (("key1", 5), 4999),
            (("key1", 3), 5999),
        )
        .forgets_everything()
    )


def test_processing_time_sessions() -> None:
    (
        Situation(ProcessingTimeSessionWindows.with_gap(Time.seconds(3)), SUMS["reduce"])
        .now(3)
        .values("key2", 1)
        .now(1000)
        .values("key2", 1)
        .gives()
        .now(5000)
        .gives((("key2", 2), 3999))
        .values("key2", 1, 1)
        .values("key1", 1, 1, 1)
        .now(10000)
        .gives((("key2", 2), 7999), (("key1", 3), 7999))
        .forgets_everything()
    )


def test_sessions_with_a_gap_from_the_record() -> None:
    def gap(record: Any) -> int:
        if record[0] == "key1":
            return 3000
        return {10: 1000}.get(record[1], 2000)

    (
        Situation(EventTimeSessionWindows.with_dynamic_gap(gap), SESSION_SUMS["apply"])
        .records("key2", (10, 0), (20, 1000), (30, 2500))
        .records("key1", (10, 10), (20, 1000))
        .restored()
        .records("key1", (30, 2500))
        .records("key2", (40, 5501), (50, 6000), (10, 6000), (60, 6050))
        .watermark(12000)
        .gives(
            (("key1-60", 10, 5500), 5499),
            (("key2-60", 0, 4500), 4499),
            (("key2-160", 5501, 8050), 8049),
        )
    )


def test_processing_time_sessions_with_a_gap_from_the_record() -> None:
    assigner = ProcessingTimeSessionWindows.with_dynamic_gap(lambda record: record[1])
    (
        Situation(assigner, SESSION_SUMS["apply"])
        .now(100)
        .values("k", 50, 20)
        .now(120)
        .gives()
        .values("k", 10)
        .now(149)
        .gives((("k-80", 100, 150), 149))
        .values("k", 5)
        .now(154)
        .gives((("k-5", 149, 154), 153))
    )


# -- late records ----------------------------------------------------------------------------------


def test_late_records_of_tumbling_windows() -> None:
    (
        Situation(
            TumblingEventTimeWindows.of(Time.seconds(2)),
            lambda stream: stream.side_output_late_data(LATE).reduce(add),
        )
        .records("key2", (1, 500))
        .watermark(1500)
        .records("key2", (1, 1300))
        .watermark(2300)
        .gives((("key2", 2), 1999))
        .records("key2", (1, 1997))  # late
        .watermark(6000)
        .gives()
        .late((("key2", 1), 1997))
        .records("key2", (1, 1998))
        .watermark(7000)
        .gives()
        .late((("key2", 1), 1998))
    )


def test_late_records_of_some_sliding_windows_only_are_not_late() -> None:
    (
        Situation(
            SlidingEventTimeWindows.of(Time.seconds(3), Time.seconds(1)),
            lambda stream: stream.side_output_late_data(LATE).reduce(add),
        )
        .records("key2", (1, 1000))
        .watermark(1999)
        .gives((("key2", 1), 1999))
        .records("key2", (1, 2000))
        .watermark(3000)
        .gives((("key2", 2), 2999))
        .records("key1", (1, 3001))
        .records("key2", (1, 2400), (1, 2400))
        .records("key1", (1, 3001))
        .records("key2", (1, 3900))
        .watermark(6000)
        .gives(
            (("key2", 5), 3999),
            (("key1", 2), 3999),
            (("key2", 4), 4999),
            (("key1", 2), 4999),
            (("key2", 1), 5999),
            (("key1", 2), 5999),
        )
        .late()
        .records("key1", (1, 3001))
        .late((("key1", 1), 3001))
        .watermark(25000)
        .gives()
        .forgets_everything()
    )


def _late_sessions(lateness: int, *, purging: bool) -> Situation:
    """Up to the watermark 14600, where lateness has not made a difference yet."""

    def build(stream: WindowedStream) -> DataStream:
        if purging:
            stream = stream.trigger(PurgingTrigger.of(EventTimeTrigger.create()))
        stream = stream.allowed_lateness(lateness).side_output_late_data(LATE)
        return stream.reduce(add, window_function=TellSum())

    return (
        Situation(EventTimeSessionWindows.with_gap(Time.seconds(3)), build)
        .records("key2", (1, 1000))
        .watermark(1999)
        .records("key2", (1, 2000))
        .watermark(4998)
        .records("key2", (1, 4500), (1, 8500))
        .watermark(7400)
        .gives()
        .records("key2", (1, 7000))  # makes one session of two
        .watermark(11501)
        .gives((("key2-5", 1000, 11500), 11499))
        .records("key2", (1, 11600))
        .watermark(14600)
        .gives((("key2-1", 11600, 14600), 14599))
        .restored()
    )


@pytest.mark.parametrize("purging", [False, True])
def test_late_records_of_sessions_without_lateness(purging: bool) -> None:
    (
        _late_sessions(0, purging=purging)
        .records("key2", (1, 10000), (1, 10100))  # and they do not make a session of their own
        .late((("key2", 1), 10000), (("key2", 1), 10100))
        .records("key2", (1, 14500))
        .watermark(20000)
        .gives((("key2-1", 14500, 17500), 17499))
        .watermark(100000)
        .gives()
        .forgets_everything()
    )


@pytest.mark.parametrize(
    ("lateness", "purging", "at_once", "later"),
    [
        (10, False, ("key2-2", 10000, 14600), ("key2-3", 10000, 17500)),
        (10, True, ("key2-1", 10000, 14600), ("key2-1", 10000, 17500)),
        (10000, False, ("key2-7", 1000, 14600), ("key2-8", 1000, 17500)),
        (10000, True, ("key2-1", 1000, 14600), ("key2-1", 1000, 17500)),
    ],
)
def test_late_records_join_sessions_that_have_fired_within_the_lateness(
    lateness: int, purging: bool, at_once: Any, later: Any
) -> None:
    (
        _late_sessions(lateness, purging=purging)
        .records("key2", (1, 10000))
        .gives((at_once, 14599))
        .records("key2", (1, 14500))
        .watermark(20000)
        .gives((later, 17499))
        .watermark(100000)
        .gives()
        .late()
        .forgets_everything()
    )


@pytest.mark.parametrize("build", [*SUMS.values(), *SESSION_SUMS.values()])
def test_a_window_is_forgotten_when_its_lateness_is_over(build: Build) -> None:
    situation = Situation(
        TumblingEventTimeWindows.of(Time.seconds(2)),
        lambda stream: build(stream.allowed_lateness(1)),
    ).records("key2", (1, 1000))
    assert len(situation.watermark(1599, 1999).harness.records) == 1
    situation.restored()
    assert state_of(situation.harness) != []
    situation.watermark(2000).forgets_everything()
    assert len(situation.watermark(5000).harness.records) == 1


def test_a_purged_window_stays_empty_until_the_next_record() -> None:
    (
        Situation(
            TumblingEventTimeWindows.of(Time.seconds(2)),
            lambda stream: (
                stream.trigger(PurgingTrigger.of(EventTimeTrigger.create()))
                .allowed_lateness(100)
                .apply(TellSum())
            ),
        )
        .records("key2", (1, 1000))
        .watermark(1599, 1999)
        .gives((("key2-1", 0, 2000), 1999))
        .records("key2", (7, 1100))
        .gives((("key2-7", 0, 2000), 1999))
        .watermark(2098)
        .gives()
        .watermark(2099, 5000)
        .gives()
        .forgets_everything()
    )


def test_lateness_beyond_the_end_of_time() -> None:
    (
        Situation(
            TumblingEventTimeWindows.of(1000),
            lambda stream: stream.allowed_lateness(MAX_TIME).reduce(add),
        )
        .records("k", (1, 500))
        .watermark(999)
        .gives((("k", 1), 999))
        .watermark(10**12)
        .records("k", (2, 500))
        .gives((("k", 3), 999))
    )
