"""The event time of operators: who is how far, and who holds them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.job_runs import SplitsSource, collect, environment, event_time

from millstream.checkpoint.inspect import inspect_checkpoint
from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import WatermarkStrategy
from millstream.datastream import TumblingEventTimeWindows
from millstream.metrics.progress import EventTimeReader, OperatorTime, describe, format_lag
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.checkpoint.model import Manifest


class _Growing(SplitsSource):
    def is_final(self, split: object) -> bool:
        return False


def run(tmp_path: Path, *, mid_stream: bool = False) -> tuple[EventTimeReader, Manifest]:
    env = environment(2)
    fast = [("a", 1, 1000), ("a", 2, 2000), ("a", 3, 3)]
    idle = event_time(0).with_idleness(50)
    one = env.from_source(_Growing([fast, [("a", 4, 1500)]], unbounded=True), idle, "one")
    two = env.from_source(_Growing([[("a", 5, 1700)]], unbounded=True), event_time(0), "two")
    both = one.uid("one").union(two.uid("two"))
    if mid_stream:
        both = both.rebalance().map(lambda each: each)
        both = both.assign_timestamps_and_watermarks(event_time(0)).uid("assigned")
    windows = both.key_by(lambda each: each[0]).window(TumblingEventTimeWindows.of(100))
    collect(windows.reduce(lambda first, _: first).uid("windows"), tmp_path)
    now = [2500]
    graph = env.get_job_graph("metrics")
    running = MiniCluster(graph, tmp_path / "checkpoint", clock=lambda: now[0], tick_interval=10)
    running.run(1)
    assert running.coordinator.last is not None
    return EventTimeReader(graph), running.coordinator.last


def named(reader: EventTimeReader, manifest: Manifest) -> dict[str, OperatorTime]:
    return {time.uid: time for time in reader.read(manifest)}


@pytest.mark.epochs_only("which split is read first decides what is late")
@pytest.mark.both_engines(about="time")
def test_slowest_split_is_named_with_lag_and_late_records(tmp_path: Path) -> None:
    reader, manifest = run(tmp_path)
    times = named(reader, manifest)
    windows = times["windows"]
    assert (windows.watermark, windows.lag) == (1499, 1001)
    assert windows.held_back_by == ("one", "split-1")
    assert times["two"].held_back_by == ("two", "split-0")
    assert windows.late_records_dropped == 1
    line = describe(list(times.values()), {})
    assert line == "lag 1.0 s by one/split-1 | 1 late"
    details = inspect_checkpoint(LocalStorage(tmp_path / "checkpoint"))
    (found,) = (each for each in details.operators if each.uid == "windows")
    assert (found.held_back_by, found.late_records_dropped) == ("one/split-1", 1)


@pytest.mark.both_engines(about="time")
def test_idle_splits_are_named_and_hold_nothing_back(tmp_path: Path) -> None:
    reader, manifest = run(tmp_path)
    manifest.splits["one"]["split-1"].idle = True
    windows = named(reader, manifest)["windows"]
    assert windows.held_back_by == ("two", "split-0")
    assert windows.idle_splits == [("one", "split-1")]
    assert "idle orders/split-1" in describe([windows], {"one": "orders"})


@pytest.mark.both_engines(about="time")
def test_time_made_in_mid_stream_is_held_back_by_a_subtask(tmp_path: Path) -> None:
    reader, manifest = run(tmp_path, mid_stream=True)
    windows = named(reader, manifest)["windows"]
    assert windows.held_back_by is not None
    assert windows.held_back_by[0] == "assigned"
    assert windows.held_back_by[1] in {"subtask 0", "subtask 1"}


@pytest.mark.both_engines(about="time")
def test_nothing_holds_an_input_back_that_is_over(tmp_path: Path) -> None:
    env = environment(1)
    source = SplitsSource([[("a", 1, 5)]])
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    collect(env.from_source(source, strategy, "records").map(lambda each: each), tmp_path)
    graph = env.get_job_graph("metrics")
    manifest = MiniCluster(graph, tmp_path / "checkpoint").run()
    assert manifest is not None
    times = EventTimeReader(graph).read(manifest)
    assert [(time.lag, time.held_back_by) for time in times] == [(None, None)] * len(times)
    assert describe(times, {}) == ""


def test_lengths_of_time() -> None:
    assert [format_lag(each) for each in (0, 999, 61_000, 7_200_000, 12 * 86_400_000)] == [
        "0 ms",
        "999 ms",
        "1.0 min",
        "2.0 h",
        "12.0 d",
    ]


def test_timestamps_of_toy_programs_have_no_lag() -> None:
    """Timestamps such as 1000 are not behind today's clock, they are not of today's clock."""
    now = 1_795_336_000_000
    for watermark, says in ((1999, ""), (now - 12 * 86_400_000, "lag 12.0 d"), (now - 500, "lag")):
        time = OperatorTime("uid", "name", watermark, now - watermark)
        assert describe([time], {}).startswith(says)
        assert bool(describe([time], {})) is bool(says)
