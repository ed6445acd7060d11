"""The program whose checkpoints are kept in ``kept``, one per release, with every kind of state.

Windows of all layouts, keyed states of all kinds with and without time to live, timers, joins: each
is an operator whose results carry its name.  ``python -m tests.keep`` writes the checkpoint of this
release.

Once a release is out the program is not changed, except for import paths: what is kept was made
with it.  ``build(..., changed=...)`` makes a program that differs.
"""

from __future__ import annotations

import enum
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tests.integration.job_runs import SplitsSource, collect, environment, event_time

from millstream.common import Row, SavepointFormatType, Time, Types
from millstream.datastream import (
    AggregateFunction,
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    RuntimeContext,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TimeEvictor,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.datastream.aggregates import (
    Avg,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Min,
    Quantile,
    Sum,
)
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.datastream import DataStream, WindowedStream

#: One archive per release whose layouts differ from those of the release before.
KEPT = Path(__file__).parent / "kept"
#: The same of savepoints.
KEPT_SAVEPOINTS = Path(__file__).parent / "kept-savepoints"
#: The name of the job.
JOB = "kept"
#: Records in the first epoch and, behind it, of an epoch that has no results: the paths of output
#: are in the manifest, and what is kept is restored in another directory.
CUTS = (31, 5)
#: The key of the records of that epoch.
QUIET = "z"


def _events() -> list[tuple[str, int, int]]:
    """(key, value, timestamp), a few of them late."""
    events = []
    for number in range(70):
        stamp = number * 9 - (number * 7 % 5 == 0) * 15 - (number % 13 == 12) * 45
        events.append(("aab"[number % 3] if number % 7 else "c", number, stamp))
    newest = max(stamp for _, _, stamp in events[: CUTS[0]])
    for number in range(CUTS[0], sum(CUTS)):
        events[number] = (QUIET, number, newest)
    return events


EVENTS = _events()


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Place:
    name: str
    number: int


class Pair(NamedTuple):
    one: Any
    other: Any


class Total(AggregateFunction):
    """The key, and the values in order."""

    def create_accumulator(self) -> Any:
        return (None, [])

    def add(self, value: Any, accumulator: Any) -> Any:
        return (value[0], [*accumulator[1], value[1]])

    def get_result(self, accumulator: Any) -> Any:
        return (accumulator[0], tuple(sorted(accumulator[1])))

    def merge(self, one: Any, other: Any) -> Any:
        return (one[0] or other[0], [*one[1], *other[1]])


class Tell(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        window = context.window()
        bounds = (getattr(window, "start", None), getattr(window, "end", None))
        yield key, *bounds, tuple(sorted(each[1] for each in elements))


class Fires(ProcessWindowFunction[Any, Any, Any, Any]):
    """Counts how often each window fires, and the windows of the key."""

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        fires = context.window_state().get_state(ValueStateDescriptor("fires", Types.LONG()))
        seen = context.global_state().get_list_state(ListStateDescriptor("seen", Types.LONG()))
        last = context.global_state().get_state(ValueStateDescriptor("last"))
        before = last.value()
        last.update(context.window())  # of a class of Millstream
        fires.update((fires.value() or 0) + 1)
        seen.add(context.window().start)
        values = tuple(sorted(each[1] for each in elements))
        yield key, context.window().start, fires.value(), len(list(seen.get())), before, values

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("fires", Types.LONG())).clear()


def _reduce(windows: WindowedStream) -> DataStream:
    return windows.reduce(lambda one, other: (one[0], one[1] + other[1], max(one[2], other[2])))


def _apply(windows: WindowedStream) -> DataStream:
    return windows.apply(lambda key, _window, found: [(key, sorted(e[1] for e in found))])


def _many(windows: WindowedStream) -> DataStream:
    return windows.aggregate(
        {
            "count": Count(),
            "sum": Sum(1),
            "min": Min(1),
            "max": Max(1),
            "avg": Avg(1),
            "first": First(1),
            "last": Last(1),
            "distinct": CountDistinct(1),
            "all": Collect(1),
            "median": Quantile(1, rank=0.5),
        }
    )


ASSIGNERS: dict[str, Any] = {
    "tumbling": TumblingEventTimeWindows.of(100),
    "sliding": SlidingEventTimeWindows.of(100, 40),
    "sessions": EventTimeSessionWindows.with_gap(25),
    "dynamic": EventTimeSessionWindows.with_dynamic_gap(lambda each: 15 + each[1] % 20),
    "global": GlobalWindows.create(),
    # One window of all times: it does not depend on when the test runs.
    "clock": TumblingProcessingTimeWindows.of(10**14),
}
FUNCTIONS: dict[str, Callable[[WindowedStream], DataStream]] = {
    "reduce": _reduce,
    "aggregate": lambda windows: windows.aggregate(Total()),
    "process": lambda windows: windows.process(Tell()),
    "fires": lambda windows: windows.process(Fires()),
    "apply": _apply,
    "sum": lambda windows: windows.aggregate([Sum(1)]),
    "many": _many,
}
CHANGES: dict[str, Callable[[WindowedStream], WindowedStream]] = {
    "late": lambda windows: windows.allowed_lateness(60),
    "event": lambda windows: windows.trigger(EventTimeTrigger.create()),
    "purging": lambda windows: windows.trigger(PurgingTrigger.of(EventTimeTrigger.create())),
    "counting": lambda windows: windows.trigger(PurgingTrigger.of(CountTrigger.of(3))),
    "continuous": lambda windows: windows.trigger(ContinuousEventTimeTrigger.of(30)),
    "leaping": lambda windows: windows.trigger(
        DeltaTrigger.of(20, lambda old, new: abs(old[1] - new[1]))
    ),
    "counted": lambda windows: windows.evictor(CountEvictor.of(4)),
    "timed": lambda windows: windows.evictor(TimeEvictor.of(30)),
}
WINDOWS = [
    *(f"tumbling {function}" for function in FUNCTIONS),
    *(f"tumbling {function} late" for function in ("reduce", "aggregate", "fires", "many")),
    *(f"tumbling {function} purging" for function in ("reduce", "process", "many")),
    *(f"tumbling {function} counting" for function in ("reduce", "process", "sum")),
    *(f"tumbling {function} counted" for function in ("reduce", "process", "many")),
    "tumbling fires continuous",
    "tumbling fires late continuous",
    "tumbling process leaping",
    "tumbling apply timed",
    *(f"sliding {function}" for function in ("reduce", "process", "many")),
    *(f"sessions {function}" for function in ("reduce", "process", "many")),
    *(f"sessions {function} late" for function in ("reduce", "process", "many")),
    *(f"sessions {function} purging" for function in ("reduce", "sum")),
    "sessions process counted",
    "dynamic aggregate",
    "dynamic sum late",
    "global reduce counting",
    "global process counting",
    "clock aggregate counting",
]


def _uid(program: str) -> str:
    return program.replace(" ", "-")


def _windows(events: DataStream, program: str) -> DataStream:
    assigner, function, *changes = program.split()
    windows = events.key_by(lambda event: event[0]).window(ASSIGNERS[assigner])
    for change in changes:
        windows = CHANGES[change](windows)
    return FUNCTIONS[function](windows)


# -- states of functions -------------------------------------------------------------------------


_Descriptor = TypeVar("_Descriptor", bound=StateDescriptor)


def _timed(descriptor: _Descriptor) -> _Descriptor:
    ttl = StateTtlConfig.new_builder(Time.milliseconds(10**13)).build()
    descriptor.enable_time_to_live(ttl)
    return descriptor


class Keeps(KeyedProcessFunction):
    """All kinds of state, with and without time to live, and timers of both kinds."""

    def open(self, runtime_context: RuntimeContext) -> None:
        get = runtime_context
        self.value = get.get_state(ValueStateDescriptor("value", Types.LONG()))
        self.row = get.get_state(ValueStateDescriptor("row"))
        self.pair = get.get_state(ValueStateDescriptor("pair"))
        self.items = get.get_list_state(ListStateDescriptor("items", Types.LONG()))
        self.map = get.get_map_state(MapStateDescriptor("map", Types.STRING(), Types.LONG()))
        self.sum = get.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b))
        self.total = get.get_aggregating_state(AggregatingStateDescriptor("total", Total()))
        self.timed_value = get.get_state(_timed(ValueStateDescriptor("timed value")))
        self.timed_list = get.get_list_state(_timed(ListStateDescriptor("timed list")))
        self.timed_map = get.get_map_state(_timed(MapStateDescriptor("timed map")))
        timed_sum = _timed(ReducingStateDescriptor("timed sum", lambda a, b: a + b))
        self.timed_sum = get.get_reducing_state(timed_sum)
        timed_total = _timed(AggregatingStateDescriptor("timed total", Total()))
        self.timed_total = get.get_aggregating_state(timed_total)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        number = value[1]
        self.value.update((self.value.value() or 0) + number)
        self.row.update(Row(colour=Colour.RED, number=number, place=Place("x", number)))
        self.pair.update(Pair(self.pair.value(), number) if number % 5 else Pair(None, number))
        self.items.add(number)
        self.map.put(str(number % 4), number)
        self.sum.add(number)
        self.total.add(value)
        self.timed_value.update(number)
        self.timed_list.add(number)
        self.timed_map.put(number % 3, Row(number, "x"))
        self.timed_sum.add(number)
        self.timed_total.add(value)
        ctx.timer_service().register_event_time_timer(value[2] // 50 * 50 + 120)
        ctx.timer_service().register_processing_time_timer(10**13)
        yield value[0], "sum", self.sum.get()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield (
            ctx.get_current_key(),
            timestamp,
            self.value.value(),
            self.row.value(),
            self.pair.value(),
            tuple(self.items.get()),
            tuple(sorted(self.map.items())),
            self.sum.get(),
            self.total.get(),
            self.timed_value.value(),
            tuple(self.timed_list.get()),
            tuple(sorted((key, repr(each)) for key, each in self.timed_map.items())),
            self.timed_sum.get(),
            self.timed_total.get(),
        )


class Both(KeyedCoProcessFunction):
    """Counts the records of both sides."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts"))

    def _count(self, side: int, value: Any) -> Any:
        self.counts.put(side, (self.counts.get(side) or 0) + 1)
        return value[0], value[1], tuple(sorted(self.counts.items()))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self._count(1, value)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self._count(2, value)


class Together(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield left[0], left[1], right[1]


def _key_of(event: Any) -> Any:
    return event[0]


def _keyed(events: DataStream) -> dict[str, DataStream]:
    """Operators that are no windows, or windows of other elements and keys."""
    keyed = events.key_by(_key_of)
    rows = events.map(lambda each: Row(colour=Colour.BLUE, name=each[0], number=each[1]))
    places = events.map(
        lambda each: (Place(each[0], each[1] % 2), each[1], Colour(1 + each[1] % 2))
    )
    tumbling = ASSIGNERS["tumbling"]
    again = events.assign_timestamps_and_watermarks(event_time(5, punctuated=False)).uid("again")
    return {
        "in mid-stream": _reduce(again.key_by(_key_of).window(tumbling)),
        "keeps": keyed.process(Keeps()),
        "reduced": keyed.reduce(lambda one, other: (one[0], one[1] + other[1], other[2])),
        "summed": keyed.sum(1),
        "greatest": keyed.max_by(1),
        "both": keyed.connect(keyed).process(Both()),
        "near": keyed.interval_join(keyed).between(-20, 30).process(Together()),
        "joined": (
            events.join(events)
            .where(_key_of)
            .equal_to(_key_of)
            .window(tumbling)
            .apply(lambda one, other: (one[0], one[1], other[1]))
        ),
        "grouped": (
            events.co_group(events)
            .where(_key_of)
            .equal_to(_key_of)
            .window(ASSIGNERS["sessions"])
            .apply(lambda one, other: [(one[0][0], len(list(one)), len(list(other)))])
        ),
        "counted": keyed.count_window(4).reduce(
            lambda one, other: (one[0], one[1] + other[1], other[2])
        ),
        "rows": (
            rows.key_by(lambda row: Row(row.name, row.number % 2))
            .window(tumbling)
            .reduce(lambda one, other: Row(colour=one.colour, name=one.name, number=other.number))
            .uid("rows")
            .map(lambda row: (row.name, row))
        ),
        "row elements": (
            rows.key_by(lambda row: row.name)
            .window(ASSIGNERS["sessions"])
            .trigger(PurgingTrigger.of(EventTimeTrigger.create()))
            .apply(lambda key, _window, found: [(key, *sorted(row.number for row in found))])
        ),
        "places": (
            events.key_by(lambda each: Place(each[0], each[1] % 2))
            .window(tumbling)
            .aggregate([Sum(1)])
            .uid("places")
            .map(lambda row: (row[0].name, row))
        ),
        "colours": (
            places.key_by(lambda each: (each[2], each[0].name))
            .window(tumbling)
            .trigger(CountTrigger.of(2))
            .apply(lambda key, _window, found: [(key[1], key[0], len(list(found)))])
        ),
    }


def build(
    parallelism: int, results: Path, changed: dict[str, str] | None = None
) -> StreamExecutionEnvironment:
    """The program; its sink writes (operator, result) to ``results``.

    Args:
        parallelism: of all operators.
        results: a directory.
        changed: windows that are others than when the checkpoint was written: what they were,
            and what they are.
    """
    env = environment(parallelism)
    kind = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    events = env.from_source(SplitsSource([EVENTS], kind), event_time(20), "events").uid("events")
    found = {
        program: _windows(events, (changed or {}).get(program, program)) for program in WINDOWS
    }
    found.update(_keyed(events))
    told = []
    for name, stream in found.items():
        if name not in {"rows", "places"}:  # these have theirs
            stream.name(name).uid(_uid(name))
        told.append(
            stream.filter(lambda each: each[0] != QUIET).map(lambda each, name=name: (name, each))
        )
    collect(told[0].union(*told[1:]), results)
    return env


def write(archive: Path) -> None:
    """Run the program until what is to be kept, and keep checkpoint and results."""
    with TemporaryDirectory() as directory:
        root = Path(directory)
        graph = build(2, root / "results").get_job_graph(JOB)
        limits = [2 * cut for cut in CUTS]
        MiniCluster(graph, root / "checkpoint", limits=limits).run(len(CUTS))
        shutil.rmtree(root / "checkpoint" / "local")
        archive.parent.mkdir(exist_ok=True)
        with tarfile.open(archive, "w:gz") as file:
            for name in ("checkpoint", "results"):
                file.add(root / name, name)


def write_savepoint(
    archive: Path, kind: SavepointFormatType = SavepointFormatType.CANONICAL
) -> None:
    """Run the program until what is to be kept, and keep a savepoint and the results."""
    with TemporaryDirectory() as directory:
        root = Path(directory)
        graph = build(2, root / "results").get_job_graph(JOB)
        limits = [2 * cut for cut in CUTS]
        cluster = MiniCluster(graph, root / "checkpoint", limits=limits)
        assert cluster.run_epoch()
        request = cluster.job.savepoints.ask(str(root), kind)
        cluster.run(1)
        archive.parent.mkdir(exist_ok=True)
        with tarfile.open(archive, "w:gz") as file:
            file.add(request.result(), "savepoint")
            file.add(root / "results", "results")
