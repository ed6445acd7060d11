"""BATCH mode: each key gets all its records, then one maximum watermark, as in Flink.

Whole jobs, cut, stopped and resumed anywhere at parallelism 1 to 3, against plain Python.  The
records are in any order and the watermark strategies promise what does not hold, so that a
watermark that came through would drop records as late or fire a timer too soon.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.job_runs import (
    Schedule,
    SplitsSource,
    collect,
    collected,
    examples,
    run_schedule,
    schedules,
    temporary_directory,
)

from millstream.common import Time, Types, WatermarkStrategy
from millstream.datastream import (
    AggregateFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessJoinFunction,
    ProcessWindowFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    TimeWindow,
)
from millstream.datastream.aggregates import Count, Sum
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.functions.watermark_strategy import WatermarkGenerator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from millstream.checkpoint.model import Manifest
    from millstream.datastream import DataStream
    from millstream.datastream.window import WindowAssigner

MIN_TIME, MAX_TIME = -(2**63), 2**63 - 1
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
#: (key, value, timestamp)
Record = tuple[str, int, int]
RECORD = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
#: ``WatermarkStrategy``s that are all wrong about these records.
STRATEGIES = {
    "monotonous": WatermarkStrategy.for_monotonous_timestamps(),
    "every 3": WatermarkStrategy.for_monotonous_timestamps().with_periodic_emit(every=3),
    "idle": WatermarkStrategy.for_monotonous_timestamps().with_idleness(1),
    "aligned": WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment("all", 0),
}


class Never(WatermarkGenerator):
    """Must not be made."""

    def __init__(self) -> None:
        message = "a watermark generator was made in BATCH mode"
        raise AssertionError(message)

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None: ...

    def on_periodic_emit(self, output: Any) -> None: ...


STRATEGIES["generator"] = WatermarkStrategy.for_generator(Never)


@st.composite
def splits(draw: st.DrawFn) -> list[list[Record]]:
    """One to three splits of records in no order."""
    number = draw(st.integers(1, 3))
    values = iter(range(10_000))
    return [
        [
            (draw(st.sampled_from("abc")), next(values), draw(st.integers(-100, 400)))
            for _ in range(draw(st.integers(0, 20)))
        ]
        for _ in range(number)
    ]


def source(
    env: StreamExecutionEnvironment, parts: list[list[Record]], strategy: str, name: str = "in"
) -> DataStream:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    timed = STRATEGIES[strategy].with_timestamp_assigner(lambda record, _: record[2])
    typed = strategy in ("monotonous", "every 3")  # the other way is by pickled records
    return env.from_source(SplitsSource(parts, RECORD if typed else None), timed, name)


def all_of(parts: list[list[Record]]) -> list[Record]:
    return [record for part in parts for record in part]


def dropped(manifest: Manifest) -> int:
    return sum(
        count for name, count in manifest.totals.items() if name.endswith("numLateRecordsDropped")
    )


# -- windows ---------------------------------------------------------------------------------------


class Values(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    """(key, start, values of the elements); looks at the time as well."""

    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[Record],
    ) -> Iterator[Any]:
        assert context.current_watermark() == MAX_TIME
        start = getattr(context.window(), "start", None)
        yield key, start, tuple(sorted(element[1] for element in elements))


def grouped(
    records: list[Record], starts_of: Any
) -> Counter[tuple[str, int | None, tuple[int, ...]]]:
    found: dict[tuple[str, int | None], list[int]] = defaultdict(list)
    for key, value, stamp in records:
        for start in starts_of(stamp):
            found[key, start].append(value)
    return Counter((key, start, tuple(sorted(values))) for (key, start), values in found.items())


def sessions(records: list[Record], gap: int) -> Counter[Any]:
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for key, value, stamp in records:
        by_key[key].append((stamp, value))
    found: list[Any] = []
    for key, elements in by_key.items():
        elements.sort()
        session = [elements[0]]
        for element in elements[1:]:
            if element[0] > session[-1][0] + gap:
                found.append((key, session))
                session = []
            session.append(element)
        found.append((key, session))
    return Counter(
        (key, session[0][0], tuple(sorted(value for _, value in session))) for key, session in found
    )


def sliding(stamp: int) -> list[int]:
    return [start for start in range(stamp - 99, stamp + 1) if start % 40 == 0]


@examples(10)
@given(parts=splits(), schedule=schedules(), strategy=st.sampled_from(sorted(STRATEGIES)))
def test_oracle_windows(parts: list[list[Record]], schedule: Schedule, strategy: str) -> None:
    def windowed(stream: DataStream, assigner: WindowAssigner[Any, Any], name: str) -> Any:
        keyed = stream.key_by(lambda record: record[0], Types.STRING())
        return keyed.window(assigner).side_output_late_data(OutputTag(f"late-{name}"))

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        stream = source(env, parts, strategy)
        kinds: dict[str, WindowAssigner[Any, Any]] = {
            "tumbling": TumblingEventTimeWindows.of(50),
            "sliding": SlidingEventTimeWindows.of(100, 40),
            "session": EventTimeSessionWindows.with_gap(30),
        }
        for name, assigner in kinds.items():
            plain = windowed(stream, assigner, name).process(Values())
            collect(plain, directory, name)
            late = plain.get_side_output(OutputTag(f"late-{name}"))
            collect(late, directory, f"late-{name}")
            evicted = windowed(stream, assigner, f"{name}-evicted")
            collect(
                evicted.evictor(CountEvictor.of(1000)).process(Values()), directory, f"{name}-ev"
            )
        typed = stream.map(lambda record: record, RECORD)
        built_in = windowed(typed, kinds["tumbling"], "built-in")
        collect(built_in.aggregate({"n": Count(), "sum": Sum(1)}), directory, "built-in")
        early = windowed(stream, kinds["tumbling"], "early")
        early = early.trigger(ContinuousEventTimeTrigger.of(25)).process(Values())
        collect(early, directory, "early")
        of_clock = windowed(stream, TumblingProcessingTimeWindows.of(Time.days(100_000)), "clock")
        collect(of_clock.process(Values()), directory, "clock")
        at_end = windowed(stream, GlobalWindows.create(), "global")
        collect(at_end.trigger(ProcessingTimeTrigger.create()).process(Values()), directory, "all")

    records = all_of(parts)
    expected = {
        "tumbling": grouped(records, lambda stamp: [stamp // 50 * 50]),
        "sliding": grouped(records, sliding),
        "session": sessions(records, 30),
    }
    with temporary_directory() as directory:
        manifest = run_schedule(build, schedule, directory)
        for name, answer in expected.items():
            assert Counter(collected(directory, name)) == answer, name
            assert Counter(collected(directory, f"{name}-ev")) == answer, name
            assert collected(directory, f"late-{name}") == []
        built_in = Counter(
            (row[0], row[1], row[3], row[4]) for row in collected(directory, "built-in")
        )
        sums = [(key, start, len(of), sum(of)) for key, start, of in expected["tumbling"]]
        assert built_in == Counter(sums)
        # Fires once where its first interval ends and once at the end of the window; the timer
        # that it registers in between is ignored, since the key is over.
        assert set(collected(directory, "early")) == set(expected["tumbling"])
        everything = grouped(records, lambda _: [0])
        assert Counter(collected(directory, "clock")) == everything
        unbounded = Counter((key, None, of) for key, _, of in everything)
        assert Counter(collected(directory, "all")) == unbounded
        assert dropped(manifest) == 0


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(every=3)
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("limits", [(40_000,), (7_000,), (1, 16_384, 3_000)])
def test_descending_timestamps_are_all_counted(
    tmp_path: Path, parallelism: int, limits: tuple[int, ...]
) -> None:
    records = [("k", 1, 40_000 - i) for i in range(40_000)]

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        keyed = source(env, [records], "monotonous").key_by(lambda r: r[0], Types.STRING())
        windows = keyed.window(TumblingEventTimeWindows.of(1_000))
        collect(windows.reduce(lambda a, b: (a[0], a[1] + b[1], a[2])), directory)

    run_schedule(build, Schedule(limits, 1, "hashmap", (parallelism,), 1, False), tmp_path)
    counts = [record[1] for record in collected(tmp_path)]
    assert sorted(counts) == [1, 999, *[1_000] * 39]


# -- timers ----------------------------------------------------------------------------------------


class Witness(KeyedProcessFunction):
    """Counts records; its timers say how many the key had, and try to register further ones."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Record, ctx: KeyedProcessFunction.Context) -> None:
        service = ctx.timer_service()
        assert service.current_watermark() == MIN_TIME
        assert ctx.timestamp() == value[2]
        self.count.update((self.count.value() or 0) + 1)
        service.register_event_time_timer(value[2])
        service.register_event_time_timer(value[2] + 1)
        service.delete_event_time_timer(value[2] + 1)
        # Long due when the next epoch begins, and long after it.
        service.register_processing_time_timer(1)
        service.register_processing_time_timer(2**60)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        service = ctx.timer_service()
        assert service.current_watermark() == MAX_TIME
        service.register_event_time_timer(timestamp + 7)
        service.register_processing_time_timer(timestamp + 7)
        yield ctx.get_current_key(), ctx.time_domain().name, timestamp, self.count.value()


def witnessed(records: list[Record]) -> dict[str, list[Any]]:
    """What Witness says of each key, in order."""
    by_key: dict[str, list[int]] = defaultdict(list)
    for key, _, stamp in records:
        by_key[key].append(stamp)
    found: dict[str, list[Any]] = {}
    for key, stamps in by_key.items():
        # A record deletes the timer that an earlier one may have registered.
        timers: set[int] = set()
        for stamp in stamps:
            timers.add(stamp)
            timers.discard(stamp + 1)
        count = len(stamps)
        found[key] = [(key, "EVENT_TIME", time, count) for time in sorted(timers)]
        found[key] += [(key, "PROCESSING_TIME", time, count) for time in (1, 2**60)]
    return found


def by_key(found: list[Any]) -> dict[str, list[Any]]:
    result: dict[str, list[Any]] = defaultdict(list)
    for each in found:
        result[each[0]].append(each)
    return dict(result)


@examples(20)
@given(
    parts=splits(),
    schedule=schedules(rescale=False),
    strategy=st.sampled_from(sorted(STRATEGIES)),
)
def test_oracle_timers_fire_at_the_end_of_their_key(
    parts: list[list[Record]], schedule: Schedule, strategy: str
) -> None:
    # A split is in order; with several it is open which of them a key sees first.
    parts = [all_of(parts)]

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        stream = source(env, parts, strategy)
        again = stream.assign_timestamps_and_watermarks(
            STRATEGIES["generator"].with_timestamp_assigner(lambda record, _: record[2])
        )
        fired = again.key_by(lambda record: record[0]).process(Witness())
        collect(fired, directory, "timers")
        # What timers of processing time say comes before the end of the next operator's keys.
        counts = fired.map(lambda each: (each[0], 1)).key_by(lambda each: each[0])
        collect(counts.reduce(lambda a, b: (a[0], a[1] + b[1])), directory, "counts")

    with temporary_directory() as directory:
        run_schedule(build, schedule, directory)
        expected = witnessed(all_of(parts))
        assert by_key(collected(directory, "timers")) == expected
        counts = {key: len(timers) for key, timers in expected.items()}
        assert dict(collected(directory, "counts")) == counts


# -- two inputs ------------------------------------------------------------------------------------


class Both(KeyedCoProcessFunction):
    """Adds up each input; one timer says what there was."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sums = [
            runtime_context.get_state(ValueStateDescriptor(name, Types.LONG()))
            for name in ("first", "second")
        ]

    def _add(self, input_index: int, value: Record, ctx: Any) -> None:
        service = ctx.timer_service()
        assert service.current_watermark() == MIN_TIME
        self.sums[input_index].update((self.sums[input_index].value() or 0) + value[1])
        service.register_event_time_timer(0)

    def process_element1(self, value: Record, ctx: KeyedCoProcessFunction.Context) -> None:
        self._add(0, value, ctx)

    def process_element2(self, value: Record, ctx: KeyedCoProcessFunction.Context) -> None:
        self._add(1, value, ctx)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), *(state.value() for state in self.sums)


class Pair(ProcessJoinFunction):
    def process_element(
        self, left: Record, right: Record, ctx: ProcessJoinFunction.Context
    ) -> Iterator[Any]:
        yield left[1], right[1], ctx.get_timestamp()


def total(records: list[Record], key: str) -> int | None:
    values = [record[1] for record in records if record[0] == key]
    return sum(values) if values else None


@examples(20)
@given(
    first=splits(),
    second=splits(),
    schedule=schedules(),
    strategy=st.sampled_from(sorted(STRATEGIES)),
)
def test_oracle_two_inputs(
    first: list[list[Record]], second: list[list[Record]], schedule: Schedule, strategy: str
) -> None:
    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        one = source(env, first, strategy, "one")
        two = source(env, second, "monotonous", "two")
        ones, twos = (stream.key_by(lambda record: record[0]) for stream in (one, two))
        collect(ones.connect(twos).process(Both()), directory, "both")
        near = ones.interval_join(twos).between(-20, 35)
        near = near.side_output_left_late_data(LATE).side_output_right_late_data(LATE)
        pairs = near.process(Pair())
        collect(pairs, directory, "pairs")
        collect(pairs.get_side_output(LATE), directory, "late")
        windows = one.join(two).where(lambda r: r[0]).equal_to(lambda r: r[0])
        joined = windows.window(TumblingEventTimeWindows.of(50))
        collect(joined.apply(lambda a, b: (a[1], b[1])), directory, "joined")

    ones, twos = all_of(first), all_of(second)
    pairs = [(one, two) for one in ones for two in twos if one[0] == two[0]]
    with temporary_directory() as directory:
        manifest = run_schedule(build, schedule, directory)
        keys = {record[0] for record in [*ones, *twos]}
        sums = {(key, total(ones, key), total(twos, key)) for key in keys}
        assert Counter(collected(directory, "both")) == Counter(sums)
        near = [(a[1], b[1], max(a[2], b[2])) for a, b in pairs if -20 <= b[2] - a[2] <= 35]
        assert Counter(collected(directory, "pairs")) == Counter(near)
        same = [(a[1], b[1]) for a, b in pairs if a[2] // 50 == b[2] // 50]
        assert Counter(collected(directory, "joined")) == Counter(same)
        assert collected(directory, "late") == []
        assert dropped(manifest) == 0


class Collecting(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Record, accumulator: list[int]) -> list[int]:
        return [*accumulator, value[1]]

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(sorted(accumulator))

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return [*a, *b]


@examples(10)
@given(first=splits(), second=splits(), schedule=schedules())
def test_oracle_a_union_of_sources_that_end_at_different_times(
    first: list[list[Record]], second: list[list[Record]], schedule: Schedule
) -> None:
    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        short = source(env, first[:1], "monotonous", "short")
        both = short.union(source(env, second, "every 3", "long"))
        alone = short.key_by(lambda record: record[0]).window(TumblingEventTimeWindows.of(50))
        collect(alone.aggregate(Collecting()), directory, "alone")
        keyed = both.key_by(lambda record: record[0]).window(TumblingEventTimeWindows.of(50))
        collect(keyed.aggregate(Collecting()), directory, "both")

    def expected(records: list[Record]) -> Counter[tuple[int, ...]]:
        windows = grouped(records, lambda stamp: [stamp // 50 * 50])
        return Counter(values for _, _, values in windows.elements())

    with temporary_directory() as directory:
        run_schedule(build, schedule, directory)
        assert Counter(collected(directory, "alone")) == expected(first[0])
        assert Counter(collected(directory, "both")) == expected([*first[0], *all_of(second)])
