"""Whole jobs with sessions, triggers, evictors and count windows: no schedule changes a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import (
    Schedule,
    SplitsSource,
    collect,
    collected,
    event_time,
    run_schedule,
)

from millstream.datastream import (
    AggregateFunction,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    OutputTag,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.datastream.aggregates import Count
from millstream.datastream.window import ContinuousEventTimeTrigger, DeltaTrigger
from millstream.errors import ProgramError

if TYPE_CHECKING:
    from pathlib import Path

LATE = OutputTag("late")
RECORDS = [(f"k{i % 4}", i, i * 37 % 400 // 2 + i // 2) for i in range(160)]


class Telling(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, repr(context.window()), sorted(record[1] for record in elements)


class NoMerge(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator


def build(env: StreamExecutionEnvironment, directory: Path) -> None:
    stream = env.from_source(SplitsSource([RECORDS]), event_time(60), "source").uid("source")
    users = stream.key_by(lambda record: record[0])
    sessions = (
        users.window(EventTimeSessionWindows.with_gap(9))
        .allowed_lateness(30)
        .side_output_late_data(LATE)
        .process(Telling())
        .uid("sessions")
    )
    collect(sessions, directory, "sessions")
    collect(sessions.get_side_output(LATE), directory, "late")
    early = users.window(SlidingEventTimeWindows.of(40, 20)).trigger(
        ContinuousEventTimeTrigger.of(7)
    )
    collect(early.process(Telling()).uid("early"), directory, "early")
    windows = users.window(GlobalWindows.create()).trigger(CountTrigger.of(3))
    collect(windows.evictor(CountEvictor.of(5)).process(Telling()).uid("last"), directory, "last")
    collect(users.count_window(5, 2).process(Telling()).uid("counted"), directory, "counted")
    total = stream.window_all(TumblingEventTimeWindows.of(50)).aggregate({"n": Count()})
    collect(total.uid("total"), directory, "total")
    together = users.window(EventTimeSessionWindows.with_gap(9)).aggregate({"n": Count()})
    collect(together.uid("together"), directory, "together")


NAMES = ("sessions", "late", "early", "last", "counted", "total", "together")


def results(schedule: Schedule, directory: Path) -> dict[str, list[str]]:
    run_schedule(build, schedule, directory)
    return {name: sorted(map(repr, collected(directory, name))) for name in NAMES}


def test_no_schedule_changes_a_result(tmp_path: Path) -> None:
    one = results(Schedule((200,), 1, "hashmap", (1,), 1, False), tmp_path / "one")
    assert all(one.values())
    for number, schedule in enumerate(
        [
            Schedule((9, 30), 2, "hashmap", (2, 3, 1), 2, True),
            Schedule((40,), 3, "rocksdb", (3, 2), 2, False),
        ]
    ):
        assert results(schedule, tmp_path / str(number)) == one


def test_what_cannot_merge_is_refused_when_the_program_is_built() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    users = env.from_collection(RECORDS).key_by(lambda record: record[0])
    sessions = users.window(EventTimeSessionWindows.with_gap(5))
    with pytest.raises(ProgramError, match="NoMerge has no merge"):
        sessions.aggregate(NoMerge())
    with pytest.raises(ProgramError, match="may be merged"):
        sessions.trigger(DeltaTrigger.of(1, lambda one, other: other[1] - one[1]))


@pytest.mark.parametrize(("endless", "ticks"), [(True, False), (False, True)])
def test_only_windows_that_need_it_get_ticks(endless: bool, ticks: bool, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    users = env.from_collection(RECORDS).key_by(lambda record: record[0])
    if endless:
        windows = users.window(GlobalWindows.create()).trigger(CountTrigger.of(2))
    else:
        windows = users.window(TumblingProcessingTimeWindows.of(1000))
    collect(windows.process(Telling()), tmp_path)
    nodes = env.get_job_graph("ticks").nodes.values()
    assert any(node.needs_processing_time for node in nodes) is ticks
