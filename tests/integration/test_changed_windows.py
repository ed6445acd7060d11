"""Programs whose windows were changed between two runs: nothing is lost without a word.

What it is: a matrix of window programs.  Each is stopped with open windows, and every other one,
with the same uids, goes on from its checkpoint.  Either it is refused by name, or from there on
its results are those of a model (``tests/model``) that has the same records and is changed at the
same point: what is in open windows stays, a new trigger begins there.
"""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import SplitsSource, collect, environment, event_time
from tests.model import evictor_model, window_model
from tests.model import trigger_model as triggers

from millstream.common import Types
from millstream.connectors.basic.collect import collected_files, read_collected_file
from millstream.datastream import (
    AggregateFunction,
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    ProcessJoinFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.datastream.aggregates import Max, Sum
from millstream.errors import IncompatibleProgramError
from millstream.state.reader import open_state
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.datastream import DataStream, WindowedStream
    from millstream.graph.model import JobGraph

#: Records per epoch, and after how many epochs the program is changed.
CUT, EPOCHS = 15, 3
TUMBLING = TumblingEventTimeWindows.of(100)
SESSIONS = EventTimeSessionWindows.with_gap(25)
ON_TIME = EventTimeTrigger.create()


def _events() -> list[tuple[str, int, int]]:
    """(key, value, timestamp), up to 30 ms out of order, a few of them later than that."""
    chance = random.Random(9)
    events = []
    for number in range(75):
        late = chance.choice([0, 0, 10, 30, 60])
        events.append((chance.choice("aaabc"), number, number * 6 - late))
    return events


EVENTS = _events()
EVENT_TYPE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])


def _key(event: tuple[str, int, int]) -> str:
    return event[0]


class Total(AggregateFunction):
    """The values in order, so that a lost or doubled one shows."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        return [*accumulator, value[1]]

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(sorted(accumulator))

    def merge(self, one: list[int], other: list[int]) -> list[int]:
        return [*one, *other]


class Tell(ProcessWindowFunction[Any, Any, str, Any]):
    def process(self, key: str, context: Any, elements: Any) -> Iterator[Any]:
        window = context.window()
        yield key, window.start, window.end, tuple(sorted(each[1] for each in elements))


class Stubborn(Trigger[Any, Any]):
    """A trigger that knows nothing of windows that it has not seen from the beginning."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    on_event_time = on_processing_time = lambda *_: TriggerResult.CONTINUE

    def clear(self, window: Any, ctx: Any) -> None:
        """Nothing is kept."""


class Pair(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield left[1], right[1]


def _reduce(windows: WindowedStream) -> DataStream:
    return windows.reduce(lambda one, other: (one[0], one[1] + other[1], max(one[2], other[2])))


def _aggregate(windows: WindowedStream) -> DataStream:
    return windows.aggregate(Total())


def _process(windows: WindowedStream) -> DataStream:
    return windows.process(Tell())


def _apply(windows: WindowedStream) -> DataStream:
    return windows.apply(lambda key, _window, elements: [(key, sorted(e[1] for e in elements))])


def _sum(windows: WindowedStream) -> DataStream:
    return windows.aggregate([Sum(1)])


def _max(windows: WindowedStream) -> DataStream:
    return windows.aggregate([Max(1)])


ASSIGNERS: dict[str, Any] = {
    "tumbling": TUMBLING,
    "larger": TumblingEventTimeWindows.of(200),
    "sliding": SlidingEventTimeWindows.of(100, 50),
    "sessions": SESSIONS,
}
FUNCTIONS: dict[str, Callable[[WindowedStream], DataStream]] = {
    "reduce": _reduce,
    "aggregate": _aggregate,
    "process": _process,
    "apply": _apply,
    "sum": _sum,
    "max": _max,
}
CHANGES: dict[str, Callable[[WindowedStream], WindowedStream]] = {
    "": lambda windows: windows,
    "late": lambda windows: windows.allowed_lateness(40),
    "purging": lambda windows: windows.trigger(PurgingTrigger.of(ON_TIME)),
    "counting": lambda windows: windows.trigger(PurgingTrigger.of(CountTrigger.of(3))),
    "continuous": lambda windows: windows.trigger(ContinuousEventTimeTrigger.of(30)),
    "evictor": lambda windows: windows.evictor(CountEvictor.of(4)),
}
PROGRAMS = [
    *(f"tumbling {function}" for function in FUNCTIONS),
    *(f"tumbling {function} late" for function in ("reduce", "process", "sum")),
    *(f"tumbling {function} purging" for function in ("reduce", "process", "sum")),
    *(f"tumbling {function} evictor" for function in ("reduce", "process", "sum")),
    "tumbling reduce counting",
    "tumbling reduce continuous",
    *(f"larger {function}" for function in ("reduce", "sum")),
    *(f"sliding {function}" for function in ("reduce", "process", "sum")),
    "sliding reduce purging",
    *(f"sessions {function}" for function in ("reduce", "process", "sum")),
    *(f"sessions {function} late" for function in ("reduce", "sum")),
    *(f"sessions {function} purging" for function in ("reduce", "sum")),
    "sessions process evictor",
]
#: How many pairs of different programs go on, and how many are refused.
GO_ON, ARE_REFUSED = 168, 762


REFUSED = re.compile(
    r"operator 'totals' \(test_changed_windows\.py:\d+, uid 'windows'\) would not find its windows"
    r"\n +stored: .*\n +looked for: "
)


def _graph(program: str, directory: Path) -> JobGraph:
    assigner, function, *changes = program.split()
    env = environment(1)
    events = env.from_source(SplitsSource([EVENTS], EVENT_TYPE), event_time(20), "events").uid(
        "events"
    )
    windows = events.key_by(lambda event: event[0]).window(ASSIGNERS[assigner])
    for change in changes:
        windows = CHANGES[change](windows)
    results = FUNCTIONS[function](windows).name("totals").uid("windows")
    collect(results, directory)
    return env.get_job_graph("changed windows")


def _cluster(program: str, directory: Path) -> MiniCluster:
    graph = _graph(program, directory)
    return MiniCluster(graph, directory / "checkpoint", limits=[CUT] * 100)


def _results(directory: Path, *, since: int = 0) -> list[Any]:
    """What the epochs from ``since`` on have committed, in order."""
    numbered = sorted(
        (int(path.stem.rpartition("-")[2]), path) for path in collected_files(directory / "out")
    )
    return [
        value for epoch, path in numbered if epoch >= since for value in read_collected_file(path)
    ]


class _Model:
    """The results of a program that is changed into another one, by the model of windows."""

    def __init__(self, before: str, after: str) -> None:
        self._after = after
        self._model = self._parts(before)
        for event in EVENTS[: CUT * EPOCHS]:
            self._record(event)
        other = self._parts(after)
        kinds = {_kind(self._model.trigger), _kind(other.trigger)}
        self._model.change(other, restart=len(kinds) > 1)
        self._since = len(self._model.emissions)
        for event in EVENTS[CUT * EPOCHS :]:
            self._record(event)
        self._model.advance_watermark(window_model.MAX_TIME)

    def _record(self, event: tuple[str, int, int]) -> None:
        self._model.record(event[0], event, event[2])
        self._model.advance_watermark(event[2] - 20 - 1)

    @staticmethod
    def _parts(program: str) -> window_model.WindowModel:
        assigner, _, *changes = program.split()
        made: dict[str, window_model.Assigner] = {
            "tumbling": window_model.Sliding(100, 100),
            "larger": window_model.Sliding(200, 200),
            "sliding": window_model.Sliding(100, 50),
            "sessions": window_model.Session(lambda _: 25),
        }
        trigger: triggers.Trigger = triggers.EventTime()
        if "purging" in changes:
            trigger = triggers.Purging(trigger)
        elif "counting" in changes:
            trigger = triggers.Purging(triggers.CountTrigger(3))
        elif "continuous" in changes:
            trigger = triggers.ContinuousEventTime(30)
        evictor = evictor_model.CountEvictor(4, after=False) if "evictor" in changes else None
        lateness = 40 if "late" in changes else 0
        return window_model.WindowModel(made[assigner], trigger, evictor, lateness)

    def results(self) -> list[Any]:
        """From the change on, as the program's function makes them of a window's elements."""
        return list(map(self._result, self._model.emissions[self._since :]))

    def _result(self, emission: window_model.Emission) -> Any:
        key, (start, end), elements = emission.key, emission.window, emission.elements
        values = sorted(each[1] for each in elements)
        made: dict[str, Any] = {
            "reduce": (key, sum(values), max(each[2] for each in elements)),
            "aggregate": tuple(values),
            "process": (key, start, end, tuple(values)),
            "apply": (key, values),
            "sum": (key, start, end, sum(values)),
            "max": (key, start, end, max(values)),
        }
        return made[self._after.split()[1]]


def _kind(trigger: triggers.Trigger) -> type:
    return _kind(trigger.nested) if isinstance(trigger, triggers.Purging) else type(trigger)


def _compared(program: str, results: list[Any]) -> Any:
    """What is compared: all results; of late built-in ones the last of each window.

    They fire a window once per batch of late records, not for each of them.
    """
    if program.split()[1] in {"sum", "max"}:
        rows = [tuple(each) for each in results]
        return {row[:3]: row for row in rows} if "late" in program else Counter(rows)
    return Counter(map(repr, results))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each program stopped in the middle."""
    base = tmp_path_factory.mktemp("programs")
    for program in PROGRAMS:
        stopped = _cluster(program, base / program)
        stopped.run(EPOCHS)
        stopped.coordinator.close()
    return base


@pytest.mark.extended
@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize("before", PROGRAMS)
def test_every_change_is_right_or_refused_by_name(
    runs: Path, tmp_path: Path, before: str, outcomes: Counter[str]
) -> None:
    for after in PROGRAMS:
        directory = tmp_path / after
        shutil.copytree(runs / before / "checkpoint", directory / "checkpoint")
        refusal = ""
        try:
            cluster = _cluster(after, directory)
        except IncompatibleProgramError as error:
            refusal = str(error)
        if refusal:
            outcomes["refused"] += 1
            assert before != after
            assert REFUSED.search(refusal), refusal
            continue
        outcomes["went on"] += before != after
        cluster.run()
        wanted = _Model(before, after).results()
        assert wanted, after
        found = _results(directory)
        assert _compared(after, found) == _compared(after, wanted), f"{before} -> {after}"


@pytest.fixture(scope="module")
def outcomes() -> Counter[str]:
    """How many pairs went on or were refused."""
    return Counter()


@pytest.mark.extended
def test_so_many_changes_go_on(outcomes: Counter[str]) -> None:
    if outcomes.total() == len(PROGRAMS) * (len(PROGRAMS) - 1):  # all tests of this module ran
        assert outcomes == {"went on": GO_ON, "refused": ARE_REFUSED}


@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize(
    ("backend", "last"),
    [("hashmap", ""), ("rocksdb", "purging"), ("hashmap", "purging"), ("rocksdb", "")],
)
def test_sessions_that_were_converted_are_rescaled(tmp_path: Path, backend: str, last: str) -> None:
    """Each subtask has converted some, and has marked in them which have fired since.

    What they write is of one name in all subtasks.
    """
    chance = random.Random(3)
    starts = [chance.choice([0, 40]) for _ in range(60)]
    sessions = [(f"key {key}", key, start) for key, start in enumerate(starts)]
    events = [*sessions, ("fires those from 0", 60, 60), ("fires all", 61, 500)]

    def cluster(change: str, parallelism: int) -> MiniCluster:
        env = environment(parallelism)
        source = SplitsSource([events], EVENT_TYPE)
        keyed = env.from_source(source, event_time(20), "events").uid("events").key_by(_key)
        collect(_sum(CHANGES[change](keyed.window(SESSIONS))).uid("windows"), tmp_path)
        graph = env.get_job_graph("rescaled sessions")
        directory = tmp_path / "checkpoint"
        limits = [parallelism * (60 if change else 1)] * 9
        return MiniCluster(graph, directory, limits=limits, state_backend=backend)

    for change, parallelism in (("purging", 2), ("", 2)):
        stopped = cluster(change, parallelism)
        stopped.run(1)
        stopped.coordinator.close()
    fired = {key for key, *_ in map(tuple, _results(tmp_path))}
    assert fired == {key for key, _, start in sessions if start == 0}
    rescaled = cluster(last, 1)
    assert sorted(_fragments(rescaled)) == sorted({key for key, _, _ in events[:-1]} - fired)
    rescaled.run()
    wanted = Counter((key, start, start + 25, number) for key, number, start in events)
    assert Counter(map(tuple, _results(tmp_path))) == wanted


def _fragments(cluster: MiniCluster) -> list[Any]:
    """The keys of the sessions that the last checkpoint has."""
    manifest = cluster.coordinator.last
    assert manifest is not None
    with open_state(cluster.storage, manifest, "windows") as state:
        return [entry.key for entry in state.entries("\0windows.fragments")]


@pytest.mark.both_engines(every=4)
def test_windows_of_another_time_are_refused(tmp_path: Path) -> None:
    """Their timers are not those that the program's trigger waits for."""

    def build(assigner: Any, trigger: Any) -> MiniCluster:
        env = environment(1)
        events = env.from_source(SplitsSource([EVENTS]), event_time(20), "events").uid("events")
        windows = events.key_by(lambda event: event[0]).window(assigner).trigger(trigger)
        collect(_reduce(windows).uid("windows"), tmp_path)
        graph = env.get_job_graph("changed time")
        return MiniCluster(graph, tmp_path / "checkpoint", limits=[CUT] * 100)

    build(TUMBLING, CountTrigger.of(50)).run(EPOCHS)
    with pytest.raises(IncompatibleProgramError, match="event time"):
        build(TumblingProcessingTimeWindows.of(100), CountTrigger.of(50))
    with pytest.raises(IncompatibleProgramError, match=r"cannot take windows over from CountTri"):
        build(TUMBLING, Stubborn())
    build(TUMBLING, PurgingTrigger.of(EventTimeTrigger.create())).run()


@pytest.mark.both_engines(every=4)
def test_bounds_of_an_interval_join(tmp_path: Path) -> None:
    """Records are kept by slices of time whose length follows from the bounds."""

    def build(lower: int, upper: int) -> MiniCluster:
        env = environment(1)
        events = env.from_source(SplitsSource([EVENTS]), event_time(20), "events").uid("events")
        one = events.key_by(lambda event: event[0])
        joined = one.interval_join(events.key_by(lambda event: event[0])).between(lower, upper)
        pairs = joined.process(Pair())
        collect(pairs.name("pairs").uid("pairs"), tmp_path)
        graph = env.get_job_graph("changed bounds")
        return MiniCluster(graph, tmp_path / "checkpoint", limits=[CUT] * 100)

    build(-100, 100).run(EPOCHS)
    with pytest.raises(IncompatibleProgramError, match=r"'pairs' .*\n.*slices of: 100 ms"):
        build(-20, 20)
    build(-99, 100).run()
