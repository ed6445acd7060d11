"""Random graphs: several sources and splits, many exchanges, unions, two inputs, side outputs.

Each operator is a function from a bag of stamped records to another, on Spark's side and in the
plain answer, and nothing in it depends on the order of records; watermarks are held back far
enough that nothing is late.  Every leaf of the graph is compared with its answer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import assume, given
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
    CoFlatMapFunction,
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    RuntimeContext,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
)
from millstream.datastream.aggregates import Count
from millstream.datastream.state import MapStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.types.types import TypeInformation

#: (key, value, timestamp)
Record = tuple[int, int, int]
#: With its event time.
Stamped = tuple[Record, int]
SIDE = OutputTag("side")
DISORDER = 60
#: Joins of joins may grow without end.
MOST_RECORDS = 300
RECORD = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])


@dataclass(frozen=True)
class Input:
    """A source: its splits, and how far its watermark stays behind."""

    splits: tuple[tuple[Record, ...], ...]
    bound: int
    punctuated: bool


@dataclass(frozen=True)
class Step:
    """An operator on earlier streams, which are numbered from 0."""

    kind: str
    inputs: tuple[int, ...]
    size: int
    slide: int
    keys: int
    #: None: that of the job.
    parallelism: int | None


@dataclass(frozen=True)
class Program:
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    #: Whether records travel as columns or pickled.
    typed: bool

    @property
    def type(self) -> TypeInformation:
        return RECORD if self.typed else Types.PICKLED_BYTE_ARRAY()


STATELESS = ["map", "filter", "flat_map", "process"]
ROUTED = ["rebalance", "rescale", "shuffle", "global_", "broadcast", "custom"]
KEYED = ["window", "count", "timers"]
#: Each reads two streams, which may be one and the same.
CONNECTED = ["co_flat_map", "co_timers", "interval", "join"]
SEVERAL = ["union", "union", *CONNECTED, *CONNECTED]
KINDS = [*STATELESS, *ROUTED, *KEYED, *KEYED, *SEVERAL, "assign", "side"]


@st.composite
def input_lists(draw: st.DrawFn) -> Input:
    size = draw(st.integers(0, 30))
    records = [
        (
            draw(st.integers(0, 4)),
            draw(st.integers(0, 20)),
            10 * at - draw(st.integers(0, DISORDER)),
        )
        for at in range(size)
    ]
    count = draw(st.integers(1, 4))
    kind = draw(st.sampled_from(["one split", "slices", "dealt"]))
    if kind == "one split":
        return Input((tuple(records),), DISORDER, draw(st.booleans()))
    if kind == "slices":
        # One after the other in time, with an overlap.
        cuts = [0, *sorted(draw(st.integers(0, size)) for _ in range(count - 1)), size]
        slices = (tuple(records[a:b]) for a, b in pairwise(cuts))
        return Input(tuple(slices), 2 * DISORDER, draw(st.booleans()))
    dealt = tuple(tuple(records[at::count]) for at in range(count))
    return Input(dealt, 100_000, draw(st.booleans()))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    inputs = draw(st.lists(input_lists(), min_size=1, max_size=3))
    steps: list[Step] = []
    streams = len(inputs)
    for _ in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(KINDS))
        # Rather a late stream than an early one, so that graphs become deep.
        index = st.integers(0, streams - 1) | st.just(streams - 1)
        most = 3 if kind == "union" else 2
        count = draw(st.integers(2, most)) if kind in SEVERAL else 1
        read = [draw(index) for _ in range(count)]
        parallelism = draw(st.sampled_from([None, None, None, 1, 2, 3]))
        if kind == "broadcast":  # the number of copies must not depend on the schedule
            parallelism = draw(st.integers(1, 3))
        steps.append(
            Step(
                kind=kind,
                inputs=tuple(read),
                size=draw(st.sampled_from([20, 50, 100])),
                slide=draw(st.sampled_from([20, 50, 70])),
                keys=draw(st.integers(1, 4)),
                parallelism=parallelism,
            )
        )
        streams += 2 if kind == "side" else 1
    return Program(tuple(inputs), tuple(steps), draw(st.booleans()))


# -- the operators, each beside its answer ---------------------------------------------------------


def increment(record: Record) -> Record:
    return record[0], record[1] + 1, record[2]


def keep(record: Record) -> bool:
    return record[1] % 3 != 0


def double(record: Record) -> list[Record]:
    copies = [record] if record[1] % 2 == 0 else [record, (record[0] + 1, record[1], record[2])]
    return [] if record[1] == 1 else copies


def add(one: Record, other: Record) -> Record:
    return min(one[0], other[0]), one[1] + other[1], max(one[2], other[2])


class Restamp(ProcessFunction):
    """Writes the timestamp into the record."""

    def process_element(self, value: Record, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value[0], value[1], ctx.timestamp()


class SplitOff(ProcessFunction):
    """Odd values to the side output; those that divide by 4 to both."""

    def process_element(self, value: Record, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if value[1] % 2 == 0:
            yield value
        if value[1] % 2 == 1 or value[1] % 4 == 0:
            yield SIDE, value


class Stamp(ProcessFunction):
    """What the sinks get: the record and its timestamp."""

    def process_element(self, value: Record, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield tuple(value), ctx.timestamp()


class Buckets(KeyedProcessFunction):
    """Sums per key and bucket of time, emitted by a timer at the bucket's end."""

    def __init__(self, size: int) -> None:
        self.size = size

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = MapStateDescriptor("sums", Types.LONG(), Types.LONG())
        self.sums = runtime_context.get_map_state(descriptor)

    def process_element(self, value: Record, ctx: KeyedProcessFunction.Context) -> None:
        end = (ctx.timestamp() // self.size + 1) * self.size
        assert end > ctx.timer_service().current_watermark(), "late"
        self.sums.put(end, (self.sums.get(end) or 0) + value[1])
        ctx.timer_service().register_event_time_timer(end)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), self.sums.get(timestamp), timestamp
        self.sums.remove(timestamp)


class TellApart(CoFlatMapFunction):
    """Records of the second input are negative, and those that divide by 5 come twice."""

    def flat_map1(self, value: Record) -> list[Record]:
        return [value]

    def flat_map2(self, value: Record) -> list[Record]:
        negative = (value[0], -value[1], value[2])
        return [negative, negative] if value[1] % 5 == 0 else [negative]


class Balance(KeyedCoProcessFunction):
    """As Buckets; what comes in on the second input is taken off."""

    def __init__(self, size: int) -> None:
        self.sums = Buckets(size)

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sums.open(runtime_context)

    def process_element1(self, value: Record, ctx: KeyedCoProcessFunction.Context) -> None:
        self.sums.process_element(value, ctx)

    def process_element2(self, value: Record, ctx: KeyedCoProcessFunction.Context) -> None:
        self.sums.process_element((value[0], -value[1], value[2]), ctx)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        return self.sums.on_timer(timestamp, ctx)


class Difference(ProcessJoinFunction):
    """The left record less the right one."""

    def process_element(
        self, left: Record, right: Record, ctx: ProcessJoinFunction.Context
    ) -> list[Record]:
        return [(left[0], left[1] - right[1], ctx.get_timestamp())]


def negated(records: list[Stamped]) -> list[Stamped]:
    return [((record[0], -record[1], record[2]), stamp) for record, stamp in records]


def bucket_answer(step: Step, records: list[Stamped]) -> list[Stamped]:
    sums: dict[tuple[int, int], int] = defaultdict(int)
    for record, stamp in records:
        sums[record[0] % step.keys, (stamp // step.size + 1) * step.size] += record[1]
    return [((key, total, end), end) for (key, end), total in sums.items()]


def window_answer(
    step: Step, records: list[Stamped]
) -> Iterator[tuple[int, int, int, list[Record]]]:
    """(key, start, end, records) of every window."""
    found: dict[tuple[int, int], list[Record]] = defaultdict(list)
    for record, stamp in records:
        for start in range(stamp - step.size + 1, stamp + 1):
            if start % step.slide == 0:
                found[record[0] % step.keys, start].append(record)
    for (key, start), members in found.items():
        yield key, start, start + step.size, members


def interval_answer(step: Step, first: list[Stamped], second: list[Stamped]) -> Iterator[Stamped]:
    for left, at in first:
        for right, other in second:
            near = step.size - 50 <= other - at <= step.size - 40
            if near and left[0] % step.keys == right[0] % step.keys:
                yield (left[0], left[1] - right[1], max(at, other)), max(at, other)


def join_answer(step: Step, first: list[Stamped], second: list[Stamped]) -> Iterator[Stamped]:
    others = {(key, end): found for key, _, end, found in window_answer(step, second)}
    for key, _, end, members in window_answer(step, first):
        for left in members:
            for right in others.get((key, end), ()):
                yield (left[0], left[1] - right[1], right[2]), end - 1


def connected_answer(step: Step, first: list[Stamped], second: list[Stamped]) -> list[Stamped]:
    if step.kind == "co_timers":
        return bucket_answer(step, [*first, *negated(second)])
    if step.kind == "interval":
        return list(interval_answer(step, first, second))
    if step.kind == "join":
        return list(join_answer(step, first, second))
    twice = [each for each in second if each[0][1] % 5 == 0]
    return [*first, *negated(second), *negated(twice)]


def plain_answer(  # noqa: PLR0911 - one return per kind
    step: Step, streams: list[list[Stamped]]
) -> list[list[Stamped]]:
    """The streams that a step adds."""
    records = [each for index in step.inputs for each in streams[index]]
    stateless: dict[str, Callable[[Record, int], list[Stamped]]] = {
        "map": lambda record, stamp: [(increment(record), stamp)],
        "filter": lambda record, stamp: [(record, stamp)] if keep(record) else [],
        "flat_map": lambda record, stamp: [(each, stamp) for each in double(record)],
        "process": lambda record, stamp: [((record[0], record[1], stamp), stamp)],
        "assign": lambda record, _: [(record, record[2])],
        "broadcast": lambda record, stamp: [(record, stamp)] * (step.parallelism or 0),
    }
    if step.kind in stateless:
        apply = stateless[step.kind]
        return [[made for record, stamp in records for made in apply(record, stamp)]]
    if step.kind == "window":
        out: list[Stamped] = []
        for _, _, end, members in window_answer(step, records):
            total = members[0]
            for member in members[1:]:
                total = add(total, member)
            out.append((total, end - 1))
        return [out]
    if step.kind == "count":
        counted = window_answer(step, records)
        return [[((key, len(found), end), end - 1) for key, _, end, found in counted]]
    if step.kind == "timers":
        return [bucket_answer(step, records)]
    if step.kind in CONNECTED:
        return [connected_answer(step, *(streams[index] for index in step.inputs))]
    if step.kind == "side":
        even = [each for each in records if each[0][1] % 2 == 0]
        odd = [each for each in records if each[0][1] % 2 == 1 or each[0][1] % 4 == 0]
        return [even, odd]
    return [records]  # union, and the ways to go


def _modulo(key: Any, count: int) -> int:
    return int(key % count)


def routed(step: Step, stream: DataStream) -> DataStream:
    if step.kind == "custom":
        return stream.partition_custom(_modulo, lambda record: record[0])
    way: DataStream = getattr(stream, step.kind)()
    return way


def built(  # noqa: C901, PLR0912 - one branch per kind
    step: Step, streams: list[DataStream]
) -> list[DataStream]:
    """The streams that a step adds."""
    stream = streams[step.inputs[0]]
    kind = stream.get_type()
    keys = step.keys
    keyed = stream.key_by(lambda record: record[0] % keys)
    made: DataStream
    if step.kind == "union":
        return [stream.union(*(streams[index] for index in step.inputs[1:]))]
    if step.kind == "map":
        made = stream.map(increment, kind)
    elif step.kind == "filter":
        made = stream.filter(keep)
    elif step.kind == "flat_map":
        made = stream.flat_map(double, kind)
    elif step.kind == "process":
        made = stream.process(Restamp(), kind)
    elif step.kind == "side":
        made = stream.process(SplitOff(), kind)
    elif step.kind == "assign":
        made = stream.assign_timestamps_and_watermarks(event_time(100_000, punctuated=False))
    elif step.kind == "window":
        made = keyed.window(SlidingEventTimeWindows.of(step.size, step.slide)).reduce(add)
    elif step.kind == "count":
        windows = keyed.window(SlidingEventTimeWindows.of(step.size, step.slide))
        rows = windows.aggregate({"n": Count()})
        made = rows.map(lambda row: (row[0], row[3], row[2]), kind)
    elif step.kind == "timers":
        made = keyed.process(Buckets(step.size), kind)
    elif step.kind == "co_flat_map":
        made = stream.connect(streams[step.inputs[1]]).flat_map(TellApart(), kind)
    elif step.kind == "interval":
        other = streams[step.inputs[1]].key_by(lambda record: record[0] % keys)
        near = keyed.interval_join(other).between(step.size - 50, step.size - 40)
        made = near.process(Difference(), kind)
    elif step.kind == "join":
        pairs = stream.join(streams[step.inputs[1]])
        equal = pairs.where(lambda record: record[0] % keys).equal_to(lambda r: r[0] % keys)
        joined = equal.window(SlidingEventTimeWindows.of(step.size, step.slide))
        made = joined.apply(lambda a, b: (a[0], a[1] - b[1], b[2]), kind)
    elif step.kind == "co_timers":
        other = streams[step.inputs[1]].key_by(lambda record: record[0] % keys)
        made = keyed.connect(other).process(Balance(step.size), kind)
    else:
        made = routed(step, stream).filter(lambda _: True)
    if step.parallelism is not None:
        made = made.set_parallelism(step.parallelism)
    if step.kind == "side":
        return [made, made.get_side_output(OutputTag(SIDE.tag_id, kind))]
    return [made]


def build_program(program: Program, env: StreamExecutionEnvironment, directory: Path) -> list[int]:
    """Build the job; returns the numbers of the streams that have a sink."""
    streams: list[DataStream] = []
    for number, each in enumerate(program.inputs):
        strategy = event_time(each.bound, punctuated=each.punctuated)
        streams.append(
            env.from_source(SplitsSource(each.splits, program.type), strategy, f"source {number}")
        )
    read: set[int] = set()
    for step in program.steps:
        read |= set(step.inputs)
        streams.extend(built(step, streams))
    leaves = [number for number in range(len(streams)) if number not in read]
    for number in leaves:
        collect(streams[number].process(Stamp()), directory, f"leaf-{number}")
    return leaves


@examples(40)
@given(program=programs(), schedule=schedules())
def test_oracle_graphs(program: Program, schedule: Schedule) -> None:
    leaves: list[int] = []

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        leaves[:] = build_program(program, env, directory)

    answers: list[list[Stamped]] = [
        [(record, record[2]) for split in each.splits for record in split]
        for each in program.inputs
    ]
    for step in program.steps:
        answers.extend(plain_answer(step, answers))
        assume(len(answers[-1]) <= MOST_RECORDS)
    with temporary_directory() as directory:
        run_schedule(build, schedule, directory)
        for leaf in leaves:
            seen = Counter(collected(directory, f"leaf-{leaf}"))
            assert seen == Counter(answers[leaf]), f"stream {leaf}"
