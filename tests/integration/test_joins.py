"""Joins in time as whole jobs, cut, stopped and rescaled anywhere, against plain Python.

``test_graph_programs.py`` has joins of all kinds of streams; here are the options: session windows,
co-groups, triggers, evictors, lateness, late records of interval joins.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

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

from millstream.common import Types
from millstream.datastream import (
    CoGroupFunction,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    FlatJoinFunction,
    JoinFunction,
    OutputTag,
    ProcessJoinFunction,
    PurgingTrigger,
    RuntimeContext,
    StreamExecutionEnvironment,
    TaggedUnion,
    TumblingEventTimeWindows,
)
from millstream.datastream.state import ValueStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from millstream.datastream import DataStream

#: (key, value, timestamp)
Record = tuple[int, int, int]
RECORD = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
DISORDER = 40
GAP = 25


@st.composite
def inputs(draw: st.DrawFn) -> list[Record]:
    """Records in disorder; several keys, also such as only one of the streams has."""
    return [
        (draw(st.integers(0, 3)), number, 10 * number - draw(st.integers(0, DISORDER)))
        for number in range(draw(st.integers(0, 25)))
    ]


def streams(
    env: StreamExecutionEnvironment, first: list[Record], second: list[Record]
) -> tuple[DataStream, DataStream]:
    """The first is typed and has two splits, the second is pickled."""
    strategy = event_time(10 * len(first) + DISORDER)  # the splits are read one after the other
    one = env.from_source(SplitsSource([first[::2], first[1::2]], RECORD), strategy, "one")
    two = env.from_source(SplitsSource([second]), event_time(DISORDER), "two")
    return one, two


class Outer(CoGroupFunction):
    """What there is on each side."""

    def co_group(self, first: Iterable[Record], second: Iterable[Record]) -> Iterator[Any]:
        yield tuple(sorted(map(tuple, first))), tuple(sorted(map(tuple, second)))


class Add(JoinFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.plus = 1000

    def join(self, first: Record, second: Record) -> int:
        return self.plus * first[1] + second[1]


class AddEven(FlatJoinFunction):
    def join(self, first: Record, second: Record) -> list[int] | None:
        total = 1000 * first[1] + second[1]
        return [total, total] if total % 2 == 0 else None


def sessions(first: list[Record], second: list[Record]) -> Iterator[tuple[list[Any], list[Any]]]:
    """The records of each session, by input: what Flink says a session of two streams is."""
    by_key: dict[int, list[tuple[int, int, Record]]] = defaultdict(list)
    for side, records in enumerate((first, second)):
        for record in records:
            by_key[record[0]].append((record[2], side, record))
    for found in by_key.values():
        session: tuple[list[Any], list[Any]] = ([], [])
        last = None
        for stamp, side, record in sorted(found):
            if last is not None and stamp > last + GAP:
                yield session
                session = ([], [])
            session[side].append(record)
            last = stamp
        yield session


@examples(15)
@given(first=inputs(), second=inputs(), schedule=schedules())
def test_oracle_session_joins(
    first: list[Record], second: list[Record], schedule: Schedule
) -> None:
    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        one, two = streams(env, first, second)
        window = EventTimeSessionWindows.with_gap(GAP)
        groups = one.co_group(two).where(lambda r: r[0]).equal_to(lambda r: r[0]).window(window)
        collect(groups.apply(Outer()), directory, "groups")
        pairs = one.join(two).where(lambda r: r[0]).equal_to(lambda r: r[0]).window(window)
        collect(pairs.apply(Add(), Types.LONG()), directory, "pairs")
        collect(pairs.apply(AddEven()), directory, "even")

    groups = [tuple(map(tuple, map(sorted, each))) for each in sessions(first, second)]
    pairs = [
        1000 * one[1] + two[1]
        for ones, twos in sessions(first, second)
        for one in ones
        for two in twos
    ]
    with temporary_directory() as directory:
        run_schedule(build, schedule, directory)
        assert Counter(collected(directory, "groups")) == Counter(groups)
        assert Counter(collected(directory, "pairs")) == Counter(pairs)
        even = [pair for pair in pairs for _ in range(2) if pair % 2 == 0]
        assert Counter(collected(directory, "even")) == Counter(even)


class Nearby(ProcessJoinFunction):
    """Numbers the pairs of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, left: Record, right: Record, ctx: ProcessJoinFunction.Context
    ) -> Iterator[Any]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield left[0], number, left[1], right[1], ctx.get_timestamp()


@examples(15)
@given(
    records=inputs(),
    bound=st.sampled_from([0, 10, DISORDER]),
    bounds=st.tuples(st.integers(-60, 20), st.integers(0, 80)),
    schedule=schedules(),
)
def test_oracle_interval_join_of_a_stream_with_itself(
    records: list[Record], bound: int, bounds: tuple[int, int], schedule: Schedule
) -> None:
    """Both inputs have one source, so what is late is the same in every schedule."""
    lower, upper = bounds[0], sum(bounds)
    left_late, right_late = OutputTag("left", RECORD), OutputTag("right", RECORD)

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        source = env.from_source(SplitsSource([records], RECORD), event_time(bound), "records")
        keyed = source.key_by(lambda record: record[0])
        joined = (
            keyed.interval_join(keyed)
            .between(lower, upper)
            .side_output_left_late_data(left_late)
            .side_output_right_late_data(right_late)
            .process(Nearby())
        )
        collect(joined, directory)
        for tag in (left_late, right_late):
            collect(joined.get_side_output(tag), directory, tag.tag_id)

    watermark = -(2**63)
    on_time: list[Record] = []
    late: list[Record] = []
    for record in records:
        (late if record[2] < watermark else on_time).append(record)
        watermark = max(watermark, record[2] - bound - 1)
    near = Counter(
        (one[0], one[1], two[1], max(one[2], two[2]))
        for one in on_time
        for two in on_time
        if one[0] == two[0] and one[2] + lower <= two[2] <= one[2] + upper
    )
    with temporary_directory() as directory:
        run_schedule(build, schedule, directory)
        found = collected(directory)
        assert Counter(collected(directory, "left")) == Counter(late)
        assert Counter(collected(directory, "right")) == Counter(late)
        pairs = Counter((key, one, two, stamp) for key, _, one, two, stamp in found)
        assert pairs == near if bound == DISORDER else pairs <= near
        numbers: dict[int, list[int]] = defaultdict(list)
        for key, number, *_ in found:
            numbers[key].append(number)
        assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())


def test_triggers_and_evictors_of_joins() -> None:
    """A window of two streams fires and forgets as any other; evictors see TaggedUnion."""
    first = [(0, 1, 1), (0, 2, 2), (0, 3, 3)]
    second = [(0, 4, 4), (0, 5, 5), (0, 6, 6)]

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        one, two = streams(env, first, second)
        window = TumblingEventTimeWindows.of(100)
        grouped = one.co_group(two).where(lambda r: r[0]).equal_to(lambda r: r[0])
        every = grouped.window(window).trigger(PurgingTrigger.of(CountTrigger.of(2)))
        collect(every.apply(_count), directory, "every")
        last = grouped.window(window).evictor(CountEvictor.of(1))
        collect(last.apply(_count), directory, "last")

    with temporary_directory() as directory:
        schedule = Schedule((100,), 0, "hashmap", (1,), 1, forget_local=False)
        run_schedule(build, schedule, directory)
        every = collected(directory, "every")
        assert [sum(each) for each in every] == [2, 2, 2]
        assert sum(each[0] for each in every) == 3
        assert [sum(each) for each in collected(directory, "last")] == [1]


def _count(first: list[Any], second: list[Any]) -> list[tuple[int, int]]:
    assert not any(isinstance(each, TaggedUnion) for each in (*first, *second))
    return [(len(first), len(second))]
