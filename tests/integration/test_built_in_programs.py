"""Random input to built-in aggregates over session and sliding windows, in whole jobs.

The answer is Flink's merging of session windows record by record, in plain Python.  The input is
one split with punctuated watermarks, so that what is late is exact too; epochs are cut anywhere
and the parallelism changes between runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.job_runs import (
    Schedule,
    SplitsSource,
    collect,
    collected,
    event_time,
    examples,
    run_schedule,
    schedules,
    temporary_directory,
)
from tests.integration.test_keyed_programs import MAX_TIME, MIN_TIME, TYPED, Event, event_lists
from tests.integration.test_window_programs import WindowAnswer, Windows, dropped, window_programs

from millstream.datastream import EventTimeSessionWindows, OutputTag
from millstream.datastream.aggregates import (
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Quantile,
    Sum,
)

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.datastream import StreamExecutionEnvironment

LATE = OutputTag("late")
KEYS: list[object] = [0, 1, 2, -1, 2**40]
FUNCTIONS = {
    "n": Count(),
    "even": Sum(1, where=pc.bit_wise_and(pc.field("f1"), 1) == 0),
    "first": First(1),
    "last": Last(1),
    "different": CountDistinct(1),
    "values": Collect(1),
    "least": Quantile(1, rank=0),
}


def answer_of(elements: list[Event]) -> tuple[Any, ...]:
    """The aggregates of elements in order of arrival."""
    values = [value for _, value, _ in sorted(elements, key=lambda event: event[2])]
    even = [value for value in values if value % 2 == 0]
    return (
        len(values), sum(even) if even else None, values[0], values[-1], len(set(values)), values,
        float(min(values)),
    )  # fmt: skip


@dataclass
class SessionAnswer:
    """Sessions by key, as ``(start, end, elements)``; all that fired, and what was late."""

    gap: int
    lateness: int
    bound: int
    watermark: int = MIN_TIME
    sessions: dict[object, list[tuple[int, int, list[Event]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    fired: dict[tuple[object, int, int], list[list[Event]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    late: list[Event] = field(default_factory=list)

    def run(self, events: list[Event]) -> SessionAnswer:
        for event in events:
            self.record(event)
            self.advance(event[2] - self.bound - 1)
        self.advance(MAX_TIME)
        return self

    def record(self, event: Event) -> None:
        key, start, end = event[0], event[2], event[2] + self.gap
        touched = [each for each in self.sessions[key] if each[0] <= end and each[1] >= start]
        start = min([start, *(each[0] for each in touched)])
        end = max([end, *(each[1] for each in touched)])
        if end - 1 + self.lateness <= self.watermark:
            self.late.append(event)
            return
        elements = [*(element for each in touched for element in each[2]), event]
        rest = [each for each in self.sessions[key] if each not in touched]
        self.sessions[key] = [*rest, (start, end, elements)]
        if end - 1 <= self.watermark:
            self.fired[key, start, end].append(elements)

    def advance(self, watermark: int) -> None:
        if watermark <= self.watermark:
            return
        for key, sessions in self.sessions.items():
            for start, end, elements in sessions:
                if self.watermark < end - 1 <= watermark:
                    self.fired[key, start, end].append(elements)
            sessions[:] = [each for each in sessions if each[1] - 1 + self.lateness > watermark]
        self.watermark = watermark


@examples(25)
@given(
    gap=st.sampled_from([1, 8, 20]),
    lateness=st.sampled_from([0, 0, 15, 60]),
    bound=st.sampled_from([0, 20]),
    side_output=st.booleans(),
    events=event_lists(keys=KEYS),
    schedule=schedules(),
)
def test_oracle_sessions(
    gap: int, lateness: int, bound: int, side_output: bool, events: list[Event], schedule: Schedule
) -> None:
    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        records = env.from_source(SplitsSource([events], TYPED), event_time(bound), "records")
        stream = records.key_by(lambda record: record[0])
        windowed = stream.window(EventTimeSessionWindows.with_gap(gap)).allowed_lateness(lateness)
        if side_output:
            windowed = windowed.side_output_late_data(LATE)
        results = windowed.aggregate(FUNCTIONS)
        collect(results, directory)
        if side_output:
            collect(results.get_side_output(LATE), directory, "late")

    with temporary_directory() as directory:
        manifest = run_schedule(build, schedule, directory)
        answer = SessionAnswer(gap, lateness, bound).run(events)
        seen = {tuple(row[:3]): tuple(row[3:]) for row in collected(directory)}
        expected = {w: [answer_of(each) for each in fires] for w, fires in answer.fired.items()}
        assert seen.keys() <= expected.keys()
        for (key, start, end), fires in expected.items():
            where = (key, start, end)
            grew = any(k == key and s <= start and end <= e and (s, e) != (start, end)
                       for k, s, e in seen)  # fmt: skip
            # Late records of one batch may fire their session once, all merged.
            if lateness and grew:
                assert where not in seen or seen[where] in fires
            else:
                assert seen[where] == fires[-1]
        if side_output:
            late = collected(directory, "late")
            assert Counter(map(repr, late)) == Counter(map(repr, answer.late))
        assert dropped(manifest) == (0 if side_output else len(answer.late))


@examples(20)
@given(program=window_programs(), events=event_lists(keys=KEYS), schedule=schedules())
def test_oracle_windows(program: Windows, events: list[Event], schedule: Schedule) -> None:
    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        source = SplitsSource([events], TYPED)
        records = env.from_source(source, event_time(program.bound), "records")
        stream = records.key_by(lambda record: record[0]).window(program.assigner())
        collect(stream.allowed_lateness(program.lateness).aggregate(FUNCTIONS), directory)

    with temporary_directory() as directory:
        manifest = run_schedule(build, schedule, directory)
        answer = WindowAnswer(program).run(events)
        seen = {tuple(row[:3]): tuple(row[3:]) for row in collected(directory)}
        expected = {
            (fires[-1][0][0], start, end): answer_of(fires[-1])
            for (_, start, end), fires in answer.fires.items()
        }
        assert seen == expected
        assert dropped(manifest) == len(answer.late)
