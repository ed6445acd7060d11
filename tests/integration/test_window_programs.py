"""Random input to tumbling and sliding windows of every kind of function.

The answer is Flink's window operator record by record, in plain Python.  The input is one split
with punctuated watermarks, so that what is late is exact too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
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
from tests.integration.test_keyed_programs import (
    KEYS,
    MAX_TIME,
    MIN_TIME,
    TYPED,
    Event,
    event_lists,
    key_id,
)

from millstream.common import Types
from millstream.datastream import (
    AggregateFunction,
    OutputTag,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TimeWindow,
    TumblingEventTimeWindows,
    WindowFunction,
)
from millstream.datastream.aggregates import Avg, Count, Max, Min, Sum
from millstream.datastream.state import ValueStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from millstream.checkpoint.model import Manifest
    from millstream.datastream import DataStream, WindowedStream
    from millstream.runtime.columnar.aggregates import BuiltInAggregate
    from millstream.types.types import TypeInformation

LATE = OutputTag("late")
#: (key, window start, window end).
Where = tuple[tuple[str, str], int, int]


@dataclass(frozen=True)
class Windows:
    """What the program says about its windows."""

    size: int
    slide: int
    offset: int
    lateness: int
    side_output: bool
    bound: int

    def of(self, stamp: int) -> list[int]:
        """Starts of the windows that contain ``stamp``, by trying them all."""
        first = stamp - self.size
        return [
            start
            for start in range(first + 1, stamp + 1)
            if (start - self.offset) % self.slide == 0
        ]

    def assigner(self) -> TumblingEventTimeWindows | SlidingEventTimeWindows:
        if self.size == self.slide:
            return TumblingEventTimeWindows.of(self.size, self.offset)
        return SlidingEventTimeWindows.of(self.size, self.slide, self.offset)


@st.composite
def window_programs(draw: st.DrawFn) -> Windows:
    size = draw(st.sampled_from([7, 30, 50, 100]))
    slide = draw(st.sampled_from([size, size, 20, 50, size // 3, size + 13]))
    return Windows(
        size=size,
        slide=slide,
        offset=draw(st.sampled_from([0, 0, slide // 2, -(slide // 2)])),
        lateness=draw(st.sampled_from([0, 0, 15, 60])),
        side_output=draw(st.booleans()),
        bound=draw(st.sampled_from([0, 20, 60])),
    )


@dataclass
class WindowAnswer:
    """Fires of each window (its elements so far), the late records, how many were dropped."""

    program: Windows
    watermark: int = MIN_TIME
    elements: dict[Where, list[Event]] = field(default_factory=dict)
    fires: dict[Where, list[list[Event]]] = field(default_factory=lambda: defaultdict(list))
    late: list[Event] = field(default_factory=list)

    def run(self, events: list[Event]) -> WindowAnswer:
        for event in events:
            self.record(event)
            self.advance(event[2] - self.program.bound - 1)
        self.advance(MAX_TIME)
        return self

    def record(self, event: Event) -> None:
        program, stamp = self.program, event[2]
        taken = False
        for start in program.of(stamp):
            end = start + program.size
            if end - 1 + program.lateness <= self.watermark:
                continue
            taken = True
            where = (key_id(event[0]), start, end)
            self.elements.setdefault(where, []).append(event)
            if end - 1 <= self.watermark:
                self.fires[where].append(list(self.elements[where]))
        if not taken and stamp + program.lateness <= self.watermark:
            self.late.append(event)

    def advance(self, watermark: int) -> None:
        for where, elements in self.elements.items():
            if self.watermark < where[2] - 1 <= watermark:
                self.fires[where].append(list(elements))
        self.watermark = max(self.watermark, watermark)


class Gather(AggregateFunction):
    def create_accumulator(self) -> list[Event]:
        return []

    def add(self, value: Event, accumulator: list[Event]) -> list[Event]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Event]) -> list[Event]:
        return accumulator

    def merge(self, a: list[Event], b: list[Event]) -> list[Event]:
        return [*a, *b]


class Apply(WindowFunction[Event, Any, object, TimeWindow]):
    def apply(self, key: object, window: TimeWindow, inputs: Iterable[Event]) -> Iterator[Any]:
        yield key, window.start, window.end, tuple(inputs)


class CountFires(ProcessWindowFunction[Any, Any, object, TimeWindow]):
    """Counts the fires of its window in the window's own state."""

    def process(
        self,
        key: object,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[Any],
    ) -> Iterator[Any]:
        window = context.window()
        state = context.window_state().get_state(ValueStateDescriptor("fires", Types.LONG()))
        fires = (state.value() or 0) + 1
        state.update(fires)
        yield key, window.start, window.end, (fires, *elements)

    def clear(self, context: ProcessWindowFunction.Context[TimeWindow]) -> None:
        context.window_state().get_state(ValueStateDescriptor("fires", Types.LONG())).clear()


def fold(so_far: Event, new: Event) -> Event:
    return so_far[0], so_far[1] * 3 % 1000 + new[1], new[2]


def folded(elements: list[Event]) -> Event:
    result = elements[0]
    for element in elements[1:]:
        result = fold(result, element)
    return result


def windowed(kind: str, stream: WindowedStream) -> DataStream:
    if kind == "aggregate":
        return stream.aggregate(Gather(), window_function=Apply())
    if kind == "reduce":
        return stream.reduce(fold, window_function=Apply())
    if kind == "apply":
        return stream.apply(Apply())
    if kind == "process":
        return stream.process(CountFires())
    if kind == "reduce then process":
        return stream.reduce(fold, window_function=CountFires())
    message = kind
    raise AssertionError(message)


def expected_fires(kind: str, answer: WindowAnswer) -> dict[Where, list[Any]]:
    expected: dict[Where, list[Any]] = {}
    for where, fires in answer.fires.items():
        numbered = enumerate(fires, start=1)
        if kind == "aggregate":
            expected[where] = [(tuple(elements),) for elements in map(tuple, fires)]
        elif kind == "reduce":
            expected[where] = [(folded(elements),) for elements in fires]
        elif kind == "apply":
            expected[where] = [tuple(elements) for elements in fires]
        elif kind == "process":
            expected[where] = [(count, *elements) for count, elements in numbered]
        else:
            expected[where] = [(count, folded(elements)) for count, elements in numbered]
    return expected


def dropped(manifest: Manifest) -> int:
    return sum(
        count for name, count in manifest.totals.items() if name.endswith("numLateRecordsDropped")
    )


def check_late(program: Windows, answer: WindowAnswer, directory: Path, manifest: Manifest) -> None:
    if program.side_output:
        seen = Counter(map(repr, collected(directory, "late")))
        assert seen == Counter(map(repr, answer.late))
        assert dropped(manifest) == 0
    else:
        assert dropped(manifest) == len(answer.late)


@examples(40)
@given(
    kind=st.sampled_from(["aggregate", "reduce", "apply", "process", "reduce then process"]),
    program=window_programs(),
    events=event_lists(),
    schedule=schedules(),
)
def test_oracle_windows(
    kind: str, program: Windows, events: list[Event], schedule: Schedule
) -> None:
    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        records = env.from_source(SplitsSource([events]), event_time(program.bound), "records")
        stream = records.key_by(lambda record: record[0]).window(program.assigner())
        stream = stream.allowed_lateness(program.lateness)
        if program.side_output:
            stream = stream.side_output_late_data(LATE)
        results = windowed(kind, stream)
        collect(results, directory)
        if program.side_output:
            collect(results.get_side_output(LATE), directory, "late")

    with temporary_directory() as directory:
        manifest = run_schedule(build, schedule, directory)
        answer = WindowAnswer(program).run(events)
        seen: dict[Where, list[Any]] = defaultdict(list)
        for key, start, end, content in collected(directory):
            content = tuple(map(_frozen, content))  # noqa: PLW2901
            seen[key_id(key), start, end].append(content)
        assert dict(seen) == expected_fires(kind, answer)
        check_late(program, answer, directory, manifest)


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _aggregates(elements: list[Event]) -> tuple[Any, ...]:
    values = [value for _, value, _ in elements]
    average = sum(values) / len(values)
    return len(values), sum(values), min(values), max(values), round(average, 9)


#: The type of the keys -> (keys, type of the stream); an untyped stream can only be counted.
BUILT_IN: dict[str, tuple[list[object], TypeInformation | None]] = {
    "long": ([0, 1, 2, -1, 2**40], TYPED),
    "string": (["", "a", "b", "ü"], Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])),
    "untyped": (KEYS, None),
}


def _rounded(content: list[Any]) -> tuple[Any, ...]:
    return tuple(round(each, 9) for each in content)


@examples(30)
@given(
    keys=st.sampled_from(sorted(BUILT_IN)),
    program=window_programs(),
    data=st.data(),
    schedule=schedules(),
)
def test_oracle_built_in_windows(
    keys: str, program: Windows, data: st.DataObject, schedule: Schedule
) -> None:
    chosen, type_info = BUILT_IN[keys]
    events = data.draw(event_lists(keys=chosen))
    functions: dict[str, BuiltInAggregate] = {"n": Count()}
    if type_info is not None:
        functions |= {"t": Sum(1), "least": Min(1), "most": Max(1), "mean": Avg(1)}

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        source = SplitsSource([events], type_info)
        records = env.from_source(source, event_time(program.bound), "records")
        stream = records.key_by(lambda record: record[0]).window(program.assigner())
        stream = stream.allowed_lateness(program.lateness)
        if program.side_output:
            stream = stream.side_output_late_data(LATE)
        results = stream.aggregate(functions)
        collect(results, directory)
        if program.side_output:
            collect(results.get_side_output(LATE), directory, "late")

    with temporary_directory() as directory:
        manifest = run_schedule(build, schedule, directory)
        answer = WindowAnswer(program).run(events)
        seen: dict[Where, list[Any]] = defaultdict(list)
        for key, start, end, *content in collected(directory):
            seen[key_id(key), start, end].append(_rounded(content))
        expected = {
            where: [_aggregates(elements)[: len(functions)] for elements in fires]
            for where, fires in answer.fires.items()
        }
        assert seen.keys() == expected.keys()
        for where, fires in expected.items():
            # Late records of one batch may fire their window once.
            assert seen[where][-1] == fires[-1]
            assert set(seen[where]) <= set(fires)
            assert seen[where][0] == fires[0] or program.lateness
        check_late(program, answer, directory, manifest)
