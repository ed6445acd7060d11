"""Random input to keyed functions with state and timers, and to running reductions.

The answer is computed by plain Python record by record; every schedule must give it exactly, in
order per key.  Watermarks are punctuated and the input is one split, so time is exact as well.
"""

from __future__ import annotations

from collections import defaultdict
from operator import itemgetter
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
    AggregateFunction,
    KeyedProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MIN_TIME, MAX_TIME = -(2**63), 2**63 - 1
SIDE = OutputTag("side")
BUCKET = 30

#: 1, True and 1.0 are different keys, as they are in PyFlink.
KEYS: list[object] = [0, 1, True, 1.0, "a", b"a", ("a", 1), ("a", True), None, -7]

Event = tuple[Any, int, int]


@st.composite
def event_lists(draw: st.DrawFn, keys: list[object] = KEYS) -> list[Event]:
    """Records (key, value, timestamp), out of order by up to 60 ms."""
    size = draw(st.integers(1, 60))
    chosen = draw(st.lists(st.sampled_from(keys), min_size=1, max_size=4))
    events = []
    for index in range(size):
        key = draw(st.sampled_from(chosen))
        late = draw(st.one_of(st.just(0), st.integers(0, 60)))
        events.append((key, draw(st.integers(-20, 100)), index * 10 - late))
    return events


def key_id(key: object) -> tuple[str, str]:
    return type(key).__name__, repr(key)


def per_key(records: list[Any], key_at: int = 0) -> dict[tuple[str, str], list[Any]]:
    """The records of each key, in order."""
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in records:
        found[key_id(record[key_at])].append(record)
    return dict(found)


class Longest(AggregateFunction):
    """Count and greatest value."""

    def create_accumulator(self) -> list[int]:
        return [0, -1000]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator[0] += 1
        accumulator[1] = max(accumulator[1], value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(accumulator)

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return [a[0] + b[0], max(a[1], b[1])]


class Machine(KeyedProcessFunction):
    """Does to its states and timers what the values of the records tell it to."""

    def open(self, runtime_context: RuntimeContext) -> None:
        context = runtime_context
        self.value = context.get_state(ValueStateDescriptor("value", Types.LONG()))
        self.list = context.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map = context.get_map_state(MapStateDescriptor("map", Types.LONG(), Types.LONG()))
        self.sum = context.get_reducing_state(
            ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
        )
        self.longest = context.get_aggregating_state(
            AggregatingStateDescriptor("longest", Longest(), Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(  # noqa: C901 - one case per action
        self, value: Event, ctx: KeyedProcessFunction.Context
    ) -> Iterator[Any]:
        _, number, stamp = value
        timers = ctx.timer_service()
        bucket = (stamp // BUCKET + 1) * BUCKET
        match number % 12:
            case 0:
                self.value.update(number)
            case 1:
                self.list.add(number)
            case 2:
                self.list.update([number, number + 1])
            case 3 | 4:
                self.map.put(number % 5, number)
            case 5:
                self.map.remove(number % 5)
            case 6:
                self.sum.add(number)
            case 7:
                self.longest.add(number)
            case 8 | 9:
                timers.register_event_time_timer(bucket + number)
            case 10:
                timers.register_event_time_timer(bucket)
                timers.delete_event_time_timer(bucket + 8)
                timers.delete_event_time_timer(bucket + 20)
            case _:
                for state in (self.value, self.list, self.map, self.sum, self.longest):
                    state.clear()
        assert ctx.timestamp() == stamp
        yield ctx.get_current_key(), "record", stamp, timers.current_watermark(), self.snapshot()
        if number % 7 == 0:
            yield SIDE, (ctx.get_current_key(), number, stamp)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        timers = ctx.timer_service()
        assert ctx.timestamp() == timestamp
        yield ctx.get_current_key(), "timer", timestamp, timers.current_watermark(), self.snapshot()
        count = (self.value.value() or 0) % 4
        if count:
            timers.register_event_time_timer(timestamp + count * 7)
        self.value.update(count - 1 if count else 0)
        self.sum.clear()

    def snapshot(self) -> tuple[Any, ...]:
        return (
            self.value.value(),
            tuple(self.list.get() or ()),
            tuple(sorted(self.map.items())),
            self.sum.get(),
            self.longest.get(),
        )


class MachineAnswer:
    """What a Machine does, with dicts and lists."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.watermark = MIN_TIME
        self.states: dict[tuple[str, str], dict[str, Any]] = {}
        self.timers: set[tuple[int, tuple[str, str]]] = set()
        self.keys: dict[tuple[str, str], object] = {}
        self.main: list[Any] = []
        self.side: list[Any] = []

    def run(self, events: list[Event]) -> MachineAnswer:
        for event in events:
            self.record(event)
            self.advance(event[2] - self.bound - 1)
        self.advance(MAX_TIME)
        return self

    def empty(self) -> dict[str, Any]:
        return {"value": None, "list": [], "map": {}, "sum": None, "longest": None}

    def record(self, event: Event) -> None:  # noqa: C901 - one branch per action
        key, number, stamp = event
        name = key_id(key)
        self.keys[name] = key
        state = self.states.setdefault(name, self.empty())
        bucket = (stamp // BUCKET + 1) * BUCKET
        action = number % 12
        if action == 0:
            state["value"] = number
        elif action == 1:
            state["list"].append(number)
        elif action == 2:
            state["list"] = [number, number + 1]
        elif action in {3, 4}:
            state["map"][number % 5] = number
        elif action == 5:
            state["map"].pop(number % 5, None)
        elif action == 6:
            state["sum"] = (state["sum"] or 0) + number
        elif action == 7:
            count, greatest = state["longest"] or (0, -1000)
            state["longest"] = (count + 1, max(greatest, number))
        elif action in {8, 9}:
            self.timers.add((bucket + number, name))
        elif action == 10:
            self.timers.add((bucket, name))
            self.timers -= {(bucket + 8, name), (bucket + 20, name)}
        else:
            self.states[name] = self.empty()
        self.main.append((key, "record", stamp, self.watermark, self.snapshot(name)))
        if number % 7 == 0:
            self.side.append((key, number, stamp))

    def advance(self, watermark: int) -> None:
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        while due := [timer for timer in self.timers if timer[0] <= watermark]:
            time, name = min(due)
            self.timers.remove((time, name))
            self.main.append((self.keys[name], "timer", time, watermark, self.snapshot(name)))
            state = self.states[name]
            count = (state["value"] or 0) % 4
            if count:
                self.timers.add((time + count * 7, name))
            state["value"] = count - 1 if count else 0
            state["sum"] = None

    def snapshot(self, name: tuple[str, str]) -> tuple[Any, ...]:
        state = self.states[name]
        mapped = tuple(sorted(state["map"].items()))
        return state["value"], tuple(state["list"]), mapped, state["sum"], state["longest"]


@examples(35)
@given(events=event_lists(), schedule=schedules(), bound=st.sampled_from([0, 20, 60]))
def test_oracle_state_and_timers(events: list[Event], schedule: Schedule, bound: int) -> None:
    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        records = env.from_source(SplitsSource([events]), event_time(bound), "records")
        processed = records.key_by(lambda record: record[0]).process(Machine())
        collect(processed, directory)
        collect(processed.get_side_output(SIDE), directory, "side")

    with temporary_directory() as directory:
        run_schedule(build, schedule, directory)
        answer = MachineAnswer(bound).run(events)
        assert per_key(collected(directory)) == per_key(answer.main)
        assert per_key(collected(directory, "side")) == per_key(answer.side)


def _running(events: list[Event], fold: Callable[[Event, Event], Event]) -> list[Event]:
    so_far: dict[tuple[str, str], Event] = {}
    out = []
    for event in events:
        name = key_id(event[0])
        so_far[name] = fold(so_far[name], event) if name in so_far else event
        out.append(so_far[name])
    return out


def _last(so_far: Event, new: Event) -> Event:
    return so_far[0], so_far[1] * 3 % 1000 + new[1], new[2]


FOLDS: dict[str, Callable[[Event, Event], Event]] = {
    "reduce": _last,
    "sum": lambda a, b: (a[0], a[1] + b[1], a[2]),
    "min": lambda a, b: (a[0], min(a[1], b[1]), a[2]),
    "max": lambda a, b: (a[0], max(a[1], b[1]), a[2]),
    "min_by": lambda a, b: b if b[1] < a[1] else a,
    "max_by": lambda a, b: b if b[1] > a[1] else a,
}
TYPED = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])


@examples(25)
@given(
    kind=st.sampled_from(sorted(FOLDS)),
    typed=st.booleans(),
    batch=st.booleans(),
    data=st.data(),
    schedule=schedules(),
)
def test_oracle_running_reductions(
    kind: str, typed: bool, batch: bool, data: st.DataObject, schedule: Schedule
) -> None:
    events = data.draw(event_lists(keys=[0, 1, 2, -1, 2**40] if typed else KEYS))
    type_info = TYPED if typed else None

    def build(env: StreamExecutionEnvironment, directory: Path) -> None:
        mode = "BATCH" if batch else "STREAMING"
        env.get_configuration().set_string("execution.runtime-mode", mode)
        records = env.from_source(SplitsSource([events], type_info), event_time(0), "records")
        keyed = records.key_by(itemgetter(0))
        folded = keyed.reduce(_last) if kind == "reduce" else getattr(keyed, kind)(1)
        collect(folded, directory)

    with temporary_directory() as directory:
        run_schedule(build, schedule, directory)
        expected = per_key(_running(events, FOLDS[kind]))
        if batch:
            expected = {key: values[-1:] for key, values in expected.items()}
        assert per_key(collected(directory)) == expected
