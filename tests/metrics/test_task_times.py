"""How tasks spend their time, as users see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.metrics.progress import Progress, describe_times, format_progress, gauges
from millstream.runtime.pipelined.main_loop import _Times
from millstream.runtime.task_metrics import SubtaskTimes

if TYPE_CHECKING:
    from millstream.graph.model import JobGraph

LABELS = {"numbers": "numbers", "count": "counts"}


@pytest.fixture
def graph() -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    numbers = env.set_parallelism(2).from_sequence(0, 9).uid("numbers")
    numbers.key_by(lambda n: n, Types.LONG()).map(lambda n: n, Types.LONG()).uid("count").print()
    return env.get_job_graph("times")


def test_nothing_is_known_of_tasks_that_end_with_each_epoch(graph: JobGraph) -> None:
    assert gauges(graph, LABELS, {}) == {}
    assert describe_times(graph, LABELS, {}) == ""


def test_gauges_have_flinks_names_and_a_value_by_subtask(graph: JobGraph) -> None:
    times = {
        (0, 0): SubtaskTimes(100.04, 0.0, 899.96),
        (0, 1): SubtaskTimes(200.0, 300.0, 500.0),
        (1, 1): SubtaskTimes(1000.0, 0.0, 0.0, 4096),
    }
    found = gauges(graph, LABELS, times)
    assert found["numbers.busyTimeMsPerSecond"] == {"0": 100.0, "1": 200.0}
    assert found["numbers.idleTimeMsPerSecond"] == {"0": 0.0, "1": 300.0}
    assert found["numbers.backPressuredTimeMsPerSecond"] == {"0": 900.0, "1": 500.0}
    assert found["counts.busyTimeMsPerSecond"] == {"1": 1000.0}
    assert found["counts.inputQueueSize"] == {"1": 4096}


def test_the_progress_line_names_who_is_busy_and_who_waits_for_it(graph: JobGraph) -> None:
    times = {(0, 0): SubtaskTimes(100, 0, 900), (1, 0): SubtaskTimes(970, 30, 0)}
    words = "busy counts 97 %, backpressured numbers 90 %"
    assert describe_times(graph, LABELS, times) == words
    assert describe_times(graph, LABELS, {(1, 0): SubtaskTimes(970, 30, 0)}) == "busy counts 97 %"
    progress = Progress(1, 2, 3.0, 0, 4, 0.5, event_time="idle 1 split", tasks=words)
    assert format_progress(progress).endswith(f" | 0.50 s | {words} | idle 1 split")


def test_times_are_those_of_a_second_whatever_the_time_between_two_looks() -> None:
    times = _Times(10.0, feeds=True)
    times.busy = 0.5
    times.hold(11.0)  # since then it has no credit
    assert times.take(12.0) == SubtaskTimes(250.0, 250.0, 500.0, 0, (500.0, 500.0, 1000.0))
    assert times.take(14.0) == SubtaskTimes(0.0, 0.0, 1000.0, 0, (500.0, 500.0, 3000.0))


def test_what_a_task_sends_without_credit_counts_once() -> None:
    times = _Times(10.0, feeds=True)
    times.hold(10.0)
    times.busy = 0.25
    assert times.take(11.0) == SubtaskTimes(250.0, 0.0, 750.0, 0, (250.0, 0.0, 750.0))


@pytest.mark.parametrize("feeds", [True, False])
def test_what_waits_for_the_thread_of_its_slot_is_not_idle(feeds: bool) -> None:
    times = _Times(10.0, feeds=feeds)
    for turn in range(10):
        times.begin(10.0 + turn / 10)
        times.busy += 0.02
        times.leave(10.02 + turn / 10, is_ready=turn < 5)
    found = times.take(11.0)
    assert found.idle == pytest.approx(5 * 80)
    assert found.backpressured == pytest.approx(5 * 80 if feeds else 0)
    assert found.busy == pytest.approx(200 if feeds else 600)
