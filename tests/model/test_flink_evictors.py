"""The situations of Flink's tests of evictors, and of evictors with other triggers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.model.situations import Situation, TellSum, add, total
from tests.model.window_model import MAX_TIME

from millstream.datastream.window import (
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    EventTimeSessionWindows,
    Evictor,
    GlobalWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
)


def difference(old: Any, new: Any) -> float:
    return float(new[1] - old[1])


def every_second_record(evictor: Evictor[Any, Any]) -> Situation:
    return Situation(
        GlobalWindows.create(),
        lambda stream: stream.trigger(CountTrigger.of(2)).evictor(evictor).apply(total),
    )


def test_count_evictor_before_keeps_the_last() -> None:
    for reduced in (False, True):
        evicted = CountEvictor.of(4)
        (
            Situation(
                GlobalWindows.create(),
                lambda stream, evictor=evicted, reduced=reduced: (  # type: ignore[misc]
                    stream.trigger(CountTrigger.of(2)).evictor(evictor).reduce(add)
                    if reduced
                    else stream.trigger(CountTrigger.of(2)).evictor(evictor).apply(total)
                ),
            )
            .records("key2", (1, 3000), (1, 3999))
            .records("key1", (1, 20), (1, 0), (1, 999))
            .records("key2", (1, 1998), (1, 1999), (1, 1000))
            .gives((("key2", 2), MAX_TIME), (("key2", 4), MAX_TIME), (("key1", 2), MAX_TIME))
            .restored()
            .records("key1", (1, 10999))
            .records("key2", (1, 1000))
            .gives((("key1", 4), MAX_TIME), (("key2", 4), MAX_TIME))
        )


def test_count_evictor_after_shows_what_came_since() -> None:
    (
        every_second_record(CountEvictor.of(4, True))
        .records("key2", (1, 3000), (1, 3999))
        .records("key1", (1, 20), (1, 0), (1, 999))
        .records("key2", (1, 1998), (1, 1999), (1, 1000))
        .gives((("key2", 2), MAX_TIME), (("key2", 4), MAX_TIME), (("key1", 2), MAX_TIME))
        .records("key1", (1, 10999))
        .records("key2", (1, 1000))
        .gives((("key1", 4), MAX_TIME), (("key2", 6), MAX_TIME))
        .restored()
        .records("key2", (1, 1000), (1, 1000))
        .gives((("key2", 6), MAX_TIME))
    )


def test_time_evictor_after() -> None:
    (
        every_second_record(TimeEvictor.of(2000, True))
        .records("key2", (1, 1000), (1, 4000))
        .records("key1", (1, 20), (1, 0), (1, 999))
        .records("key2", (1, 3500), (1, 2001), (1, 1001))
        .gives((("key2", 2), MAX_TIME), (("key1", 2), MAX_TIME), (("key2", 3), MAX_TIME))
        .records("key1", (1, 10999))
        .records("key2", (1, 1002))
        .gives((("key1", 4), MAX_TIME), (("key2", 5), MAX_TIME))
    )


def test_time_evictor_before() -> None:
    (
        Situation(
            TumblingEventTimeWindows.of(4000),
            lambda stream: (
                stream.trigger(CountTrigger.of(2)).evictor(TimeEvictor.of(2000)).apply(total)
            ),
        )
        .records("key2", (1, 1000), (1, 3999))
        .records("key1", (1, 20), (1, 0), (1, 999), (1, 5999))
        .records("key2", (1, 3500), (1, 2001), (1, 1001))
        .gives((("key2", 1), 3999), (("key1", 2), 3999), (("key2", 3), 3999))
        .records("key1", (1, 6500))
        .records("key2", (1, 1002))
        .gives((("key1", 2), 7999), (("key2", 3), 3999))
    )


def test_time_evictor_without_timestamps_evicts_nothing() -> None:
    (
        every_second_record(TimeEvictor.of(2000, True))
        .values("key2", 1, 1)
        .values("key1", 1, 1, 1)
        .values("key2", 1, 1, 1)
        .gives((("key2", 2), MAX_TIME), (("key1", 2), MAX_TIME), (("key2", 4), MAX_TIME))
        .values("key1", 1)
        .values("key2", 1)
        .gives((("key1", 4), MAX_TIME), (("key2", 6), MAX_TIME))
    )


def test_delta_evictor_before() -> None:
    (
        every_second_record(DeltaEvictor.of(2, difference))
        .records("key2", (1, 3000), (4, 3999))
        .records("key1", (1, 20), (1, 0), (5, 999))
        .records("key2", (5, 1998), (6, 1999), (1, 1000))
        .gives((("key2", 4), MAX_TIME), (("key2", 11), MAX_TIME), (("key1", 2), MAX_TIME))
        .records("key1", (3, 10999))
        .records("key2", (10, 1000))
        .gives((("key1", 8), MAX_TIME), (("key2", 10), MAX_TIME))
    )


def test_delta_evictor_after() -> None:
    (
        every_second_record(DeltaEvictor.of(2, difference, True))
        .records("key2", (1, 3000), (4, 3999))
        .records("key1", (1, 20), (1, 0), (5, 999))
        .records("key2", (5, 1998), (6, 1999), (1, 1000))
        .gives((("key2", 5), MAX_TIME), (("key2", 15), MAX_TIME), (("key1", 2), MAX_TIME))
        .records("key1", (9, 10999))
        .records("key2", (10, 1000))
        .gives((("key1", 16), MAX_TIME), (("key2", 22), MAX_TIME))
    )


@pytest.mark.parametrize("evict_after", [False, True])
def test_an_evictor_on_sessions_sees_the_merged_content(evict_after: bool) -> None:
    (
        Situation(
            EventTimeSessionWindows.with_gap(10),
            lambda stream: (
                stream.evictor(TimeEvictor.of(5, evict_after)).allowed_lateness(20).apply(TellSum())
            ),
        )
        .records("k", (1, 0), (2, 3), (4, 15), (8, 17))
        .restored()
        .records("k", (16, 9))
        .watermark(26)
        .gives((("k-31" if evict_after else "k-12", 0, 27), 26))
        .restored()
        .records("k", (32, 14))
        .gives((("k-44", 0, 27), 26))
        .watermark(46)
        .gives()
        .forgets_everything()
    )


def test_an_evicted_element_does_not_come_back_when_the_window_fires_again() -> None:
    (
        Situation(
            TumblingEventTimeWindows.of(10),
            lambda stream: stream.evictor(CountEvictor.of(1)).allowed_lateness(5).apply(TellSum()),
        )
        .records("k", (1, 0), (2, 1), (4, 2))
        .watermark(9)
        .gives((("k-4", 0, 10), 9))
        .records("k", (8, 3))
        .gives((("k-8", 0, 10), 9))
    )
