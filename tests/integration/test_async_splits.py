"""Async calls of several splits are under way together; order, event time and checkpoints hold."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st
from tests.integration.job_runs import (
    SplitsSource,
    collect,
    collected,
    event_time,
    examples,
    run_schedule,
    schedules,
    temporary_directory,
)

from millstream.common import Time, Types
from millstream.datastream import AsyncDataStream, AsyncFunction, WindowFunction
from millstream.datastream.window import TimeWindow, TumblingEventTimeWindows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.integration.job_runs import Schedule

    from millstream.datastream import StreamExecutionEnvironment

#: Split, number within it, milliseconds.
Event = tuple[int, int, int]
_SIZE: Final = 10
#: Splits are read one after the other, so the time of a later one must not be late.
_BOUND: Final = 100


class Call(AsyncFunction[Event, Event]):
    """Takes longer for some records than for those after them."""

    async def async_invoke(self, value: Event) -> list[Event]:
        split, number, _ = value
        await asyncio.sleep(((7 * number + 3 * split) % 4) / 1000)
        return [value]


class Count(WindowFunction[Event, tuple[int, int, int], int, TimeWindow]):
    """Counts the records of a window."""

    def apply(self, key: int, window: TimeWindow, inputs: Any) -> list[tuple[int, int, int]]:
        return [(key, window.start // _SIZE, len(list(inputs)))]


@st.composite
def event_splits(draw: st.DrawFn) -> list[list[Event]]:
    """Several splits, each with ascending times; some are empty."""
    found = []
    for split in range(draw(st.integers(1, 6))):
        steps = draw(st.lists(st.integers(0, 7), max_size=12))
        times = [sum(steps[: at + 1]) for at in range(len(steps))]
        found.append([(split, number, time) for number, time in enumerate(times)])
    return found


def _run(
    splits: Sequence[Sequence[Event]],
    schedule: Schedule,
    directory: Path,
    *,
    ordered: bool,
    again: bool,
    united: bool,
) -> None:
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait

    def build(env: StreamExecutionEnvironment, into: Path) -> None:
        first = splits[: len(splits) // 2] if united else splits
        source = SplitsSource(first)
        events = env.from_source(source, event_time(_BOUND), "events").uid("events")
        if united:  # time of two sources meets in front of the calls
            others = SplitsSource(splits[len(first) :])
            more = env.from_source(others, event_time(_BOUND), "others").uid("others")
            events = events.union(more)
        called = wait(events, Call(), Time.seconds(60), 3, Types.PICKLED_BYTE_ARRAY()).uid("call")
        if again:  # time that is made per split behind calls
            called = called.assign_timestamps_and_watermarks(event_time(_BOUND)).uid("times")
        collect(called, into, "called")
        windows = called.key_by(lambda event: event[0] % 2).window(
            TumblingEventTimeWindows.of(Time.milliseconds(_SIZE))
        )
        counts = windows.apply(Count()).uid("windows")
        collect(counts, into, "windows")

    run_schedule(build, schedule, directory)


def _windows(splits: Sequence[Sequence[Event]]) -> Counter[tuple[int, int, int]]:
    groups = Counter((event[0] % 2, event[2] // _SIZE) for events in splits for event in events)
    return Counter((key, window, count) for (key, window), count in groups.items())


@given(event_splits(), schedules(rescale=False), st.booleans(), st.booleans(), st.booleans())
@examples(20)
def test_oracle_calls_of_several_splits(
    splits: list[list[Event]],
    schedule: Schedule,
    ordered: bool,
    again: bool,
    united: bool,
) -> None:
    with temporary_directory() as directory:
        _run(splits, schedule, directory, ordered=ordered, again=again, united=united)
        found = collected(directory, "called")
        assert Counter(found) == Counter(event for events in splits for event in events)
        if ordered:
            for split, events in enumerate(splits):
                assert [each[1] for each in found if each[0] == split] == list(range(len(events)))
        assert Counter(map(tuple, collected(directory, "windows"))) == _windows(splits)
