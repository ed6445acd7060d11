"""Event time through whole jobs: ends of input, idle splits, unions, watermarks in mid-stream."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.job_runs import (
    Schedule,
    SplitsSource,
    collect,
    collected,
    environment,
    event_time,
    examples,
    run_schedule,
    temporary_directory,
)

from millstream.common import OutputTag, WatermarkStrategy
from millstream.contracts.source import Boundedness, SourceBatch
from millstream.datastream import (
    DataStream,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    TimeWindow,
    TumblingEventTimeWindows,
    WindowFunction,
)
from millstream.testing.mini_cluster import MiniCluster
from millstream.testing.sources import EPOCH, WATERMARK, At, ScriptedSource

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from millstream.contracts.source import Split

Event = tuple[str, int, int]
MAX_TIME = 2**63 - 1


class Gathered(WindowFunction[Event, Any, str, TimeWindow]):
    def apply(self, key: str, window: TimeWindow, inputs: Iterable[Event]) -> Iterator[Any]:
        yield key, window.start, sorted(number for _, number, _ in inputs)


def gathered(stream: DataStream, size: int = 10) -> DataStream:
    """The numbers of each key and window."""
    keyed = stream.key_by(lambda record: record[0])
    return keyed.window(TumblingEventTimeWindows.of(size)).apply(Gathered())


def once(parallelism: int, *limits: int) -> Schedule:
    return Schedule(limits or (1000,), 0, "hashmap", (parallelism,), 1, forget_local=False)


def cluster(env: StreamExecutionEnvironment, directory: Path, *limits: int) -> MiniCluster:
    return MiniCluster(env.get_job_graph("time"), directory / "checkpoint", limits=limits)


class GrowingSource(SplitsSource):
    """Splits of which only so much is there as a file says: ``{number of split: count}``."""

    def __init__(self, splits: list[list[Event]], file: Path) -> None:
        super().__init__(splits, unbounded=True)
        self.file = file

    def end_offset(self, split: Split) -> int:
        number = int(split.id.rpartition("-")[2])
        return int(self.file.read_text().split()[number])

    def is_final(self, split: Split) -> bool:
        return False


# -- the end of bounded input ---------------------------------------------------------------------


class AtTheEnd(KeyedProcessFunction):
    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(10**15 + value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, ctx.timer_service().current_watermark()


@pytest.mark.both_engines(about="time")
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_end_of_input_fires_windows_and_timers_without_any_watermark(
    tmp_path: Path, parallelism: int
) -> None:
    events = [("a", 1, 3), ("b", 2, 4), ("a", 3, 17)]
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda r, _: r[2])

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        records = env.from_source(SplitsSource([events[:1], events[1:]]), strategy, "records")
        collect(gathered(records), directory, "windows")
        timers = records.key_by(lambda record: record[0]).process(AtTheEnd())
        collect(timers, directory, "timers")

    run_schedule(build, once(parallelism, 1), tmp_path)
    assert sorted(collected(tmp_path, "windows")) == [("a", 0, [1]), ("a", 10, [3]), ("b", 0, [2])]
    assert sorted(collected(tmp_path, "timers")) == [
        ("a", 10**15 + 1, MAX_TIME),
        ("a", 10**15 + 3, MAX_TIME),
        ("b", 10**15 + 2, MAX_TIME),
    ]


@pytest.mark.both_engines(about="time")
def test_job_without_any_record_ends(tmp_path: Path) -> None:
    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        nothing = env.from_source(SplitsSource([]), event_time(0), "nothing")
        empty = env.from_source(SplitsSource([[], []]), event_time(0), "empty")
        collect(gathered(nothing.union(empty)), directory)

    run_schedule(build, once(2), tmp_path)
    assert collected(tmp_path) == []


@pytest.mark.both_engines(about="time")
def test_bounded_source_that_is_over_does_not_hold_an_unbounded_one_back(tmp_path: Path) -> None:
    available = tmp_path / "available"
    available.write_text("3")
    short = SplitsSource([[("a", 1, 1), ("b", 2, 2)]])
    long = GrowingSource([[("a", 3, 3), ("a", 4, 14), ("a", 5, 29), ("a", 6, 41)]], available)
    env = environment(2)
    bounded = env.from_source(short, event_time(0), "short")
    unbounded = env.from_source(long, event_time(0), "long")
    assert unbounded is not bounded
    ended = gathered(bounded)
    collect(ended, tmp_path, "ended")
    together = ended.map(lambda row: (row[0], row[2][0], row[1] + 9)).union(
        unbounded.filter(lambda _: True)
    )
    collect(gathered(together), tmp_path, "together")
    running = cluster(env, tmp_path)
    running.run()
    # As in Flink: a source that is over has the maximum watermark.
    assert sorted(collected(tmp_path, "ended")) == [("a", 0, [1]), ("b", 0, [2])]
    available.write_text("4")
    running.run()
    assert sorted(collected(tmp_path, "together")) == [
        ("a", 0, [1, 3]),
        ("a", 10, [4]),
        ("a", 20, [5]),
        ("b", 0, [2]),
    ]


# -- idleness --------------------------------------------------------------------------------------


@pytest.mark.both_engines(about="time")
@pytest.mark.parametrize(
    ("parallelism", "exchanges"),
    [
        (1, 1),
        (1, 2),
        (2, 1),
        # The subtask that becomes active first takes time on before the other one says that it is
        # active too.
        pytest.param(2, 2, marks=pytest.mark.epochs_only("no order between subtasks, as in Flink")),
    ],
)
def test_idle_split_does_not_hold_time_back_and_returns(
    tmp_path: Path, parallelism: int, exchanges: int
) -> None:
    available = tmp_path / "available"
    busy = [("a", at, at) for at in range(1, 60, 2)]
    quiet = [("a", 100, 2), ("a", 101, 44), ("a", 102, 3)]
    source = GrowingSource([busy, quiet], available)
    env = environment(parallelism)
    strategy = event_time(0, punctuated=False).with_idleness(1)
    stream = env.from_source(source, strategy, "splits")
    for _ in range(exchanges - 1):
        stream = stream.rebalance().filter(lambda _: True)
    collect(gathered(stream), tmp_path)
    clock = Settable()
    running = MiniCluster(env.get_job_graph("time"), tmp_path / "checkpoint", clock=clock)

    def epochs_with(text: str) -> list[Any]:
        available.write_text(text)
        running.run()
        clock.now += 5
        running.run(3)
        return sorted(collected(tmp_path))

    first = ("a", 0, [1, 3, 5, 7, 9, 100])
    epochs_with("8 1")
    # Both splits are idle now, and time is that of the one that is ahead; here comes more of it.
    assert epochs_with("12 1") == [first, ("a", 10, [11, 13, 15, 17, 19])]
    # The other one returns: what it has is not late at 44, and late at 3; time does not go back.
    assert epochs_with("12 3")[:2] == [first, ("a", 10, [11, 13, 15, 17, 19])]
    last = epochs_with("30 3")
    assert ("a", 40, [41, 43, 45, 47, 49, 101]) in last
    assert len(last) == len({where for _, where, _ in last}), "a window fired twice"


@pytest.mark.both_engines(about="time")
def test_a_split_without_a_record_holds_time_back(tmp_path: Path) -> None:
    """As a Kafka partition does in Flink: its first record may be older than those of others."""
    available = tmp_path / "available"
    available.write_text("4 0")
    ahead = [("a", number, at) for number, at in enumerate([1, 12, 25, 41])]
    behind = [("a", 100, 2), ("a", 101, 50)]
    env = environment(2)
    source = GrowingSource([ahead, behind], available)
    collect(gathered(env.from_source(source, event_time(0), "splits")), tmp_path)
    running = cluster(env, tmp_path)
    running.run()
    running.run()
    assert collected(tmp_path) == []
    available.write_text("4 2")
    running.run()
    assert sorted(collected(tmp_path)) == [("a", 0, [0, 100]), ("a", 10, [1]), ("a", 20, [2])]


class Settable:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@pytest.mark.both_engines(about="time")
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 60)), max_size=14),
    st.integers(1, 2),
    st.randoms(use_true_random=False),
)
@examples(10)
def test_time_is_the_least_of_the_active_splits_and_never_goes_back(
    steps: list[tuple[int, int, int]], parallelism: int, chance: random.Random
) -> None:
    timeout = 50
    splits = [[("a", at, chance.randrange(200)) for at in range(60)] for _ in range(3)]
    strategy = event_time(0, punctuated=False).with_idleness(timeout)
    with temporary_directory() as directory:
        clock, count = Settable(), [1, 1, 1]
        available = directory / "available"
        available.write_text("1 1 1")
        reached = -(2**63)
        for split, more, wait in [*steps, (0, 1, 100), (1, 1, 0), (0, 1, 60)]:
            count[split] += more
            available.write_text(" ".join(map(str, count)))
            clock.now += wait
            env = environment(parallelism)
            stream = env.from_source(GrowingSource(splits, available), strategy, "splits")
            collect(stream.key_by(lambda each: each[0]).reduce(lambda _, new: new), directory)
            running = MiniCluster(
                env.get_job_graph("time"), directory / "checkpoint", clock=clock, tick_interval=40
            )
            running.run(2)
            manifest = running.coordinator.last
            assert manifest is not None
            (states,) = manifest.splits.values()
            active = [state.watermark for state in states.values() if not state.idle]
            everything = [state.watermark for state in states.values()]
            combined = min(active) if active else max(everything)
            (behind,) = (
                {ack.watermark for ack in acks}
                for uid, acks in manifest.operators.items()
                if "sink" in uid
            )
            assert behind == {max(reached, combined)}
            reached = max(reached, combined)


# -- what sources know themselves ------------------------------------------------------------------


@pytest.mark.both_engines(about="time")
def test_preserved_watermarks_of_a_source_and_through_mid_stream(tmp_path: Path) -> None:
    script = [At(("a", 1, 0), 1), At(("a", 2, 0), 12), WATERMARK(10), EPOCH]
    script += [At(("a", 3, 0), 5), At(("a", 4, 0), 13), WATERMARK(MAX_TIME)]
    env = environment(2)
    stream = env.from_source(ScriptedSource(script), WatermarkStrategy.preserve(), "own")
    shuffled = stream.rebalance().map(lambda record: record)
    collect(
        gathered(shuffled.assign_timestamps_and_watermarks(WatermarkStrategy.preserve())),
        tmp_path,
    )
    running = cluster(env, tmp_path)
    running.run(1)
    assert collected(tmp_path) == [("a", 0, [1])]
    running.run(1)
    # What says the maximum is the end of the input, not the source.
    assert sorted(collected(tmp_path)) == [("a", 0, [1]), ("a", 10, [2, 4])]
    assert running.coordinator.last is not None
    assert not running.coordinator.last.final


@pytest.mark.both_engines(about="time")
def test_ingestion_time_moves_while_nothing_comes(tmp_path: Path) -> None:
    available, clock = tmp_path / "available", Settable()
    available.write_text("2")
    source = GrowingSource([[("a", at, 0) for at in range(5)]], available)
    env = environment(2)
    stream = env.from_source(source, WatermarkStrategy.for_ingestion_time(), "ingested")
    collect(gathered(stream, 100), tmp_path)
    graph = env.get_job_graph("time")
    assert any(node.needs_processing_time for node in graph.nodes.values())
    running = MiniCluster(graph, tmp_path / "checkpoint", clock=clock, tick_interval=40)
    clock.now = 1010
    running.run()
    assert collected(tmp_path) == []
    available.write_text("3")
    clock.now = 1099
    running.run()
    assert collected(tmp_path) == []
    clock.now = 1100
    running.run(1)
    assert collected(tmp_path) == []
    clock.now = 1140
    running.run()
    assert collected(tmp_path) == [("a", 1000, [0, 1, 2])]


class Unparsable(SplitsSource):
    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        for batch in super().read(split, start, stop):
            batch.dead_letters = [("here", "?", "no number")] * 2
            yield batch


@pytest.mark.both_engines(about="time")
def test_dead_letters_are_counted_though_nobody_reads_them(tmp_path: Path) -> None:
    env = environment(2)
    stream = env.from_source(Unparsable([[1, 2], [3, 4]]), None, "numbers").uid("numbers")
    collect(stream.map(lambda each: each), tmp_path)
    manifest = cluster(env, tmp_path).run()
    assert manifest is not None
    assert manifest.totals["numbers.numRecordsIn"] == 4
    assert manifest.totals["numbers.numRecordsInErrors"] == 8


@pytest.mark.both_engines(about="time")
def test_records_for_a_side_output_that_nobody_reads_are_counted(tmp_path: Path) -> None:
    env = environment(2)
    events = [("a", 1, 50), ("a", 2, 3), ("a", 3, 4), ("a", 4, 60)]
    stream = env.from_source(SplitsSource([events]), event_time(0), "events")
    windows = stream.key_by(lambda each: each[0]).window(TumblingEventTimeWindows.of(10))
    late = windows.side_output_late_data(OutputTag("late")).apply(Gathered()).uid("windows")
    collect(late, tmp_path)
    manifest = cluster(env, tmp_path).run()
    assert manifest is not None
    assert manifest.totals["windows.numSideOutputRecordsUnread"] == 2
    assert sorted(collected(tmp_path)) == [("a", 50, [1]), ("a", 60, [4])]


# -- several inputs --------------------------------------------------------------------------------


@pytest.mark.both_engines(about="time")
@pytest.mark.parametrize("parallelism", [1, 2])
def test_union_within_the_first_stage_takes_the_least_time(
    tmp_path: Path, parallelism: int
) -> None:
    events = [("a", at, at * 10) for at in range(20)]

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        fast = env.from_source(SplitsSource([events]), event_time(0), "records")
        slow = fast.map(lambda record: (record[0], record[1] + 100, record[2] - 50))
        slow = slow.assign_timestamps_and_watermarks(event_time(0))
        # Both ways reach one operator without an exchange.
        together = fast.union(slow).map(lambda record: record)
        collect(gathered(together, 40), directory)

    run_schedule(build, once(parallelism, 7), tmp_path)
    expected: dict[int, list[int]] = {}
    for _, number, stamp in events:
        expected.setdefault(stamp // 40 * 40, []).append(number)
        expected.setdefault((stamp - 50) // 40 * 40, []).append(number + 100)
    assert sorted(collected(tmp_path)) == [("a", s, sorted(expected[s])) for s in sorted(expected)]


@pytest.mark.both_engines(about="time")
def test_union_waits_for_the_slower_source(tmp_path: Path) -> None:
    env = environment(2)
    slow = ScriptedSource([At(("a", 1, 1), 1), WATERMARK(5), EPOCH, At(("a", 2, 6), 6)])
    fast = ScriptedSource([At(("a", 3, 3), 3), WATERMARK(99), EPOCH, At(("a", 4, 105), 105)])
    one = env.from_source(slow, slow.watermark_strategy(), "slow")
    two = env.from_source(fast, fast.watermark_strategy(), "fast")
    collect(gathered(one.union(two)), tmp_path)
    running = cluster(env, tmp_path)
    running.run(1)
    assert collected(tmp_path) == []
    running.run()
    assert sorted(collected(tmp_path)) == [("a", 0, [1, 2, 3]), ("a", 100, [4])]


# -- watermarks in mid-stream ----------------------------------------------------------------------


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(about="time")
@pytest.mark.parametrize("behind_keys", [False, True])
@pytest.mark.parametrize("upstream", [False, True])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_watermarks_assigned_in_mid_stream(
    tmp_path: Path, parallelism: int, upstream: bool, behind_keys: bool
) -> None:
    events = [("a" if at % 3 else "b", at, at * 7) for at in range(40)]
    late = [("a", 200, 3), ("b", 201, 4)]
    records = [*events[:30], *late, *events[30:]]

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        # Upstream's own watermarks go wild, and must not be passed on.
        first = event_time(-1000) if upstream else None
        stream = env.from_source(SplitsSource([records]), first, "records")
        if behind_keys:
            keyed = stream.key_by(lambda record: record[0])
            stream = keyed.reduce(lambda _, new: new)
        stamped = stream.assign_timestamps_and_watermarks(event_time(0))
        collect(gathered(stamped, 50), directory)

    run_schedule(build, once(parallelism, 9), tmp_path)
    windows: dict[tuple[str, int], list[int]] = {}
    # Behind key_by one of three subtasks gets no record, so nothing is late before the end.
    for key, number, stamp in records if behind_keys and parallelism > 1 else events:
        windows.setdefault((key, stamp // 50 * 50), []).append(number)
    expected = [(key, start, numbers) for (key, start), numbers in sorted(windows.items())]
    assert sorted(collected(tmp_path)) == expected


@pytest.mark.both_engines(about="time")
def test_generators_of_several_splits_are_kept_apart_in_mid_stream(tmp_path: Path) -> None:
    splits = [[("a", s * 100 + at, at * 10) for at in range(20)] for s in range(3)]

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        stream = env.from_source(SplitsSource(splits), None, "records").map(lambda each: each)
        stamped = stream.assign_timestamps_and_watermarks(event_time(0)).map(lambda each: each)
        collect(gathered(stamped, 50), directory)

    # All three are read side by side: with a limit of 15, each gets 5 per epoch.
    run_schedule(build, once(3, 15), tmp_path)
    numbers = Counter(start for _, start, _ in collected(tmp_path))
    assert numbers == Counter([0, 50, 100, 150])
    assert all(len(found) == 15 for _, _, found in collected(tmp_path))


class SideBySide(SplitsSource):
    """Reads a little of each split in every epoch."""

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        return min(start + 10, end)


@pytest.mark.both_engines(about="time")
def test_operator_that_moves_to_another_stage_keeps_the_time_of_its_slowest_split(
    tmp_path: Path,
) -> None:
    slow = [("a", at, at) for at in range(100)]
    fast = [("a", 1000 + at, at * 50) for at in range(100)]

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        stream = env.from_source(SideBySide([slow, fast]), event_time(0), "records")
        stream = stream.set_parallelism(1)
        # At parallelism 1 chained to the source, at 2 behind an exchange.
        collect(gathered(stream.map(lambda each: each)), directory)

    schedule = Schedule((1000,), 0, "hashmap", (1, 2, 1, 2), 1, forget_local=False)
    run_schedule(build, schedule, tmp_path)
    seen = [number for _, _, numbers in collected(tmp_path) for number in numbers]
    assert sorted(seen) == sorted(number for _, number, _ in [*slow, *fast])


def test_sources_know_whether_they_end(tmp_path: Path) -> None:
    assert SplitsSource([]).boundedness is Boundedness.BOUNDED
    assert GrowingSource([], tmp_path).boundedness is Boundedness.CONTINUOUS_UNBOUNDED
