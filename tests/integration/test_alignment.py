"""Watermark alignment through whole jobs: bounded drift, everything read, nobody waits for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.job_runs import (
    SplitsSource,
    collect,
    collected,
    environment,
    event_time,
    examples,
    temporary_directory,
)

from millstream.errors import ProgramError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.common import WatermarkStrategy
    from millstream.contracts.source import Split
    from millstream.datastream import StreamExecutionEnvironment

Event = tuple[str, int, int]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


class Paced(SplitsSource):
    """At most ``pace`` records of each split per epoch; what is there may grow."""

    def __init__(self, splits: list[list[Event]], pace: int, file: Path | None = None) -> None:
        super().__init__(splits, unbounded=file is not None)
        self.pace = pace
        self.file = file

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        return min(start + self.pace, end)

    def end_offset(self, split: Split) -> int:
        if self.file is None:
            return super().end_offset(split)
        return int(self.file.read_text().split()[int(split.id.rpartition("-")[2])])

    def is_final(self, split: Split) -> bool:
        return self.file is None


def events(name: str, count: int, step: int) -> list[Event]:
    return [(name, number, number * step) for number in range(count)]


def aligned(drift: int, update_interval: int = 0, group: str = "g") -> WatermarkStrategy:
    plain = event_time(0, punctuated=False)
    return plain.with_watermark_alignment(group, drift, update_interval)


def cluster(env: StreamExecutionEnvironment, directory: Path, clock: Clock) -> MiniCluster:
    graph = env.get_job_graph("alignment")
    return MiniCluster(graph, directory / "checkpoint", clock=clock)


def settle(running: MiniCluster) -> None:
    """Run what can be run now; tasks that go on are not closed: theirs would be downtime."""
    while running.run_epoch():
        pass


def watermarks(running: MiniCluster) -> list[int]:
    assert running.coordinator.last is not None
    splits = running.coordinator.last.splits.values()
    return [state.watermark for many in splits for state in many.values()]


@pytest.mark.both_engines(about="time")
@given(
    st.integers(0, 60),
    st.integers(1, 4),
    st.integers(1, 9),
    st.sampled_from([0, 10**9]),
    st.integers(1, 3),
)
@examples(12)
def test_sources_keep_step_over_restarts_and_everything_is_read(
    drift: int, slow_pace: int, fast_pace: int, update_interval: int, run_length: int
) -> None:
    slow, fast, more = events("slow", 30, 5), events("fast", 30, 5), events("more", 7, 20)
    with temporary_directory() as directory:
        clock = Clock()
        for _ in range(200):
            env = environment(2)
            strategy = aligned(drift, update_interval)
            one = env.from_source(Paced([slow], slow_pace), strategy, "slow")
            two = env.from_source(Paced([fast, more], fast_pace), strategy, "fast")
            collect(one.union(two).map(lambda each: each), directory)
            running = cluster(env, directory, clock)
            for _ in range(run_length):
                last = running.coordinator.last
                if last is None or not last.final:
                    assert running.run_epoch(), "nobody reads: the group waits for itself"
                    found = watermarks(running)
                    # One epoch may go too far: that in which it runs ahead.
                    allowed = drift + 20 * max(fast_pace, slow_pace)
                    assert not found or max(found) - max(min(found), -1) <= allowed + 1
            running.close_instances()
            if running.coordinator.last is not None and running.coordinator.last.final:
                break
        else:
            pytest.fail("the job did not end")
        assert sorted(collected(directory)) == sorted([*slow, *fast, *more])


@pytest.mark.both_engines(about="time")
def test_split_without_a_record_holds_nobody(tmp_path: Path) -> None:
    """Nothing is known of its time; when it has some, the others wait for it."""
    available = tmp_path / "available"
    available.write_text("5 0")
    env = environment(2)
    ahead, late = events("ahead", 100, 10), events("late", 3, 1)
    collect(env.from_source(Paced([ahead, late], 5, available), aligned(5), "ahead"), tmp_path)
    running = cluster(env, tmp_path, Clock())
    for count in (5, 10, 15):
        available.write_text(f"{count} 0")
        settle(running)
        assert len(collected(tmp_path)) == count
    available.write_text("20 1")
    settle(running)
    assert sorted(collected(tmp_path)) == sorted([*ahead[:15], *late[:1]])


@pytest.mark.both_engines(about="time")
def test_split_that_is_ahead_is_not_read_until_the_others_have_come(tmp_path: Path) -> None:
    available = tmp_path / "available"
    available.write_text("1")
    env = environment(2)
    behind = Paced([events("behind", 100, 10)], 1000, available)
    ahead = Paced([events("ahead", 100, 10)], 5)
    one = env.from_source(behind, aligned(100), "behind")
    collect(one.union(env.from_source(ahead, aligned(100), "ahead")), tmp_path)
    running = cluster(env, tmp_path, Clock())
    running.run()

    def read(name: str) -> int:
        return sum(each[0] == name for each in collected(tmp_path))

    # Watermarks: -1 of the first record against 39, 89, 139: then it waits, and so does the job.
    assert (read("behind"), read("ahead")) == (1, 15)
    available.write_text("8")
    running.run()
    assert (read("behind"), read("ahead")) == (8, 20)
    again = cluster(env, tmp_path, Clock())
    again.run()
    assert (read("behind"), read("ahead")) == (8, 20), "a restart does not forget who is ahead"
    available.write_text("100")
    again.run()
    assert (read("behind"), read("ahead")) == (100, 100)


@pytest.mark.both_engines(about="time")
def test_idle_split_does_not_hold_its_group_and_the_held_one_is_not_idle(tmp_path: Path) -> None:
    available = tmp_path / "available"
    available.write_text("1")
    env, clock = environment(2), Clock()
    behind = Paced([events("behind", 10, 10)], 1000, available)
    ahead = Paced([events("ahead", 60, 10)], 10)
    strategy = aligned(100).with_idleness(500)
    one = env.from_source(behind, strategy, "behind").uid("behind")
    collect(one.union(env.from_source(ahead, strategy, "ahead").uid("ahead")), tmp_path)
    running = cluster(env, tmp_path, clock)
    settle(running)
    assert len(collected(tmp_path)) == 1 + 20
    clock.now += 499
    settle(running)
    assert len(collected(tmp_path)) == 1 + 20
    clock.now += 1
    running.run_epoch()
    assert running.coordinator.last is not None
    idle = {
        uid: [state.idle for state in splits.values()]
        for uid, splits in running.coordinator.last.splits.items()
    }
    assert idle == {"behind": [True], "ahead": [False]}
    settle(running)
    assert len(collected(tmp_path)) == 1 + 60


@pytest.mark.both_engines(about="time")
def test_groups_are_apart_and_a_source_alone_never_waits(tmp_path: Path) -> None:
    env = environment(1)
    one = env.from_source(Paced([events("a", 50, 1)], 1), aligned(0, group="a"), "a")
    two = env.from_source(Paced([events("b", 50, 100)], 10), aligned(0, group="b"), "b")
    collect(one.union(two), tmp_path)
    running = cluster(env, tmp_path, Clock())
    running.run(5)
    assert sum(name == "b" for name, _, _ in collected(tmp_path)) == 50


def test_alignment_where_there_is_no_source_is_refused() -> None:
    stream = environment(1).from_collection([1])
    with pytest.raises(ProgramError, match="from_source"):
        stream.assign_timestamps_and_watermarks(aligned(5))
    with pytest.raises(ProgramError, match="name of a group"):
        aligned(5, group="")
    with pytest.raises(ProgramError, match="must not be negative"):
        aligned(-1)
