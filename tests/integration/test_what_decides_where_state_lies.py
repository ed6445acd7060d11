"""Every quantity that decides where state lies or how it is understood, changed between two runs.

What it is: a job on a MiniCluster that is stopped and gone on with on the same checkpoint directory
with one thing changed.  Either the results are those of the unchanged program, or it is refused
with both values, by the name of the operator.  docs/concepts/guarantees.md has the table.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.integration.job_runs import SplitsSource, collect, collected, environment, event_time

from millstream.common import Row, Types
from millstream.common.serialization import SimpleStringEncoder
from millstream.common.time import Time
from millstream.datastream import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessJoinFunction,
    TumblingEventTimeWindows,
)
from millstream.datastream.aggregates import Count
from millstream.datastream.connectors.file_system import FileSink
from millstream.datastream.state import (
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.datastream.window import EventTimeSessionWindows
from millstream.errors import (
    ForeignCheckpointError,
    IncompatibleProgramError,
    SinkError,
    StateError,
)
from millstream.functions.functions import KeySelector
from millstream.functions.triggers import CountTrigger
from millstream.state.key_codec import KeyTypes, type_of_key
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.common.typeinfo import TypeInformation
    from millstream.datastream import DataStream, RuntimeContext, StreamExecutionEnvironment

    Build = Callable[[StreamExecutionEnvironment], DataStream]

pytestmark = pytest.mark.extended

KEYS = 30
EVENTS = [(number % KEYS, number, number * 10) for number in range(150)]
TYPE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
IGNORE = {"execution.state-recovery.ignore-unclaimed-state": "true"}


class CountOf(KeyedProcessFunction):
    """How many records of the key there were, in a state of any declaration."""

    def __init__(self, *descriptors: Any) -> None:
        self.descriptors = descriptors or (ValueStateDescriptor("count", Types.LONG()),)

    def open(self, runtime_context: RuntimeContext) -> None:
        get: dict[str, Any] = {
            "value": runtime_context.get_state,
            "map": runtime_context.get_map_state,
        }
        self.states: Any = [get[each.kind](each) for each in self.descriptors]

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        first = self.states[0]
        if self.descriptors[0].kind == "map":
            count = (first.get("n") or 0) + 1
            first.put("n", count)
        else:
            count = (first.value() or 0) + 1
            first.update(count)
        for state in self.states[1:]:
            state.update(count)
        yield value[0], count


EXPECTED = Counter((key, count + 1) for key in range(KEYS) for count in range(150 // KEYS))


@dataclass
class Run:
    """How a program is run, beside what it is."""

    parallelism: int = 2
    backend: str = "hashmap"
    name: str = "job"
    options: tuple[tuple[str, str], ...] = ()


def start(directory: Path, build: Build, run: Run, epochs: int | None = None) -> None:
    env = environment(run.parallelism, **dict(run.options))
    collect(build(env), directory)
    graph = env.get_job_graph(run.name)
    cluster = MiniCluster(
        graph, directory / "checkpoint", limits=[40] * 100, state_backend=run.backend
    )
    try:
        cluster.run() if epochs is None else cluster.run(epochs)
    finally:
        cluster.coordinator.close()


def changed(
    directory: Path, before: Build, after: Build, first: Run | None = None, then: Run | None = None
) -> Counter[Any]:
    """What all runs together have written."""
    start(directory, before, first or Run(), 2)
    start(directory, after, then or Run())
    return Counter(collected(directory))


def source(
    env: StreamExecutionEnvironment, kind: TypeInformation | None = TYPE, name: str = "events"
) -> DataStream:
    return env.from_source(SplitsSource([EVENTS], kind), event_time(0), name).uid("events")


def first_field(event: Any) -> Any:
    return event[0]


class FirstField(KeySelector):
    def get_key(self, value: Any) -> Any:
        return value[0]


def counting(
    *descriptors: Any,
    select: Any = first_field,
    key_type: Any = None,
    kind: TypeInformation | None = TYPE,
    name: str = "counts",
    before: Callable[[DataStream], DataStream] = lambda stream: stream,
    source_name: str = "events",
) -> Build:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        events = before(source(env, kind, source_name))
        counts = events.key_by(select, key_type).process(CountOf(*descriptors))
        return counts.name(name).uid("counts")

    return build


# -- changes that are harmless -------------------------------------------------------------------

TTL = StateTtlConfig.new_builder(Time.days(1)).build()
LONGER = StateTtlConfig.new_builder(Time.days(2)).build()


def expiring(config: Any, name: str = "count") -> ValueStateDescriptor:
    descriptor = ValueStateDescriptor(name, Types.LONG())
    descriptor.enable_time_to_live(config)
    return descriptor


LONG = ValueStateDescriptor("count", Types.LONG())
UNDECLARED = ValueStateDescriptor("count")
OTHER = ValueStateDescriptor("other", Types.LONG())

HARMLESS: dict[str, tuple[Build, Build]] = {
    "selector for field": (counting(), counting(select=0)),
    "field for selector": (counting(select=0), counting(select=FirstField())),
    "key type declared": (counting(), counting(key_type=Types.LONG())),
    "narrower key type": (counting(key_type=Types.LONG()), counting(key_type=Types.INT())),
    "typed stream": (counting(kind=None), counting(kind=TYPE)),
    "untyped stream": (counting(kind=TYPE, select=0), counting(kind=None)),
    "operator renamed": (counting(), counting(name="totals")),
    "source renamed": (counting(), counting(source_name="orders")),
    "rebalance before it": (counting(), counting(before=lambda s: s.rebalance())),
    "map before it": (counting(), counting(before=lambda s: s.map(tuple).uid("copy"))),
    "filter gone": (counting(before=lambda s: s.filter(bool).uid("all")), counting()),
    "time to live longer": (counting(expiring(TTL)), counting(expiring(LONGER))),
    "state declared": (counting(UNDECLARED), counting(LONG)),
    "state not declared": (counting(LONG), counting(UNDECLARED)),
    "state added": (counting(LONG), counting(LONG, OTHER)),
    "state dropped": (counting(LONG, OTHER), counting(LONG)),
}


@pytest.mark.both_engines(every=3)
@pytest.mark.parametrize("change", HARMLESS)
def test_harmless_changes_of_the_program(change: str, tmp_path: Path) -> None:
    assert changed(tmp_path, *HARMLESS[change]) == EXPECTED


RUNS: dict[str, tuple[Run, Run]] = {
    "rocksdb": (Run(), Run(backend="rocksdb")),
    "hashmap": (Run(backend="rocksdb"), Run()),
    "rocksdb, rescaled": (Run(parallelism=3), Run(backend="rocksdb")),
    "more subtasks": (Run(parallelism=1), Run(parallelism=3)),
    "fewer subtasks": (Run(parallelism=3), Run(parallelism=1)),
    "fewer key groups": (Run(), Run(options=(("pipeline.max-parallelism", "7"),))),
    "more key groups, rocksdb": (
        Run(backend="rocksdb"),
        Run(parallelism=3, backend="rocksdb", options=(("pipeline.max-parallelism", "300"),)),
    ),
    "fewer key groups, another backend": (
        Run(parallelism=3, backend="rocksdb"),
        Run(options=(("pipeline.max-parallelism", "50"),)),
    ),
    "batch size": (Run(), Run(options=(("millstream.batch-size", "7"),))),
    "backend option": (Run(), Run(options=(("state.backend.type", "rocksdb"),))),
    "at least once": (Run(), Run(options=(("execution.checkpointing.mode", "AT_LEAST_ONCE"),))),
}


@pytest.mark.both_engines(every=3)
@pytest.mark.parametrize("change", RUNS)
def test_harmless_changes_of_the_run(change: str, tmp_path: Path) -> None:
    assert changed(tmp_path, counting(), counting(), *RUNS[change]) == EXPECTED


@pytest.mark.both_engines(every=3)
def test_watermarks_that_are_made_behind_an_exchange(tmp_path: Path) -> None:
    """What made event time split by split goes on in a subtask, and no record is late."""

    def windows(*, moved: bool) -> Build:
        def build(env: StreamExecutionEnvironment) -> DataStream:
            events = env.from_source(SplitsSource([EVENTS], TYPE), event_time(0), "events")
            events = events.uid("events")
            stream = events.rebalance() if moved else events
            stamped = stream.assign_timestamps_and_watermarks(event_time(300)).uid("times")
            window = stamped.key_by(first_field).window(
                TumblingEventTimeWindows.of(Time.seconds(1))
            )
            return window.aggregate({"n": Count()}).map(tuple).uid("windows")

        return build

    plain = changed(tmp_path / "plain", windows(moved=False), windows(moved=False))
    assert changed(tmp_path / "there", windows(moved=False), windows(moved=True)) == plain
    assert changed(tmp_path / "back", windows(moved=True), windows(moved=False)) == plain


# -- changes that are refused --------------------------------------------------------------------


class Both(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(LONG)

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield self.count.value()

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        return self.process_element1(value, ctx)


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield left[1], right[1]


WINDOW = TumblingEventTimeWindows.of(Time.seconds(100))


def _windowed(stream: Any, select: Any, assigner: Any) -> Any:
    return stream.key_by(select).window(assigner)


def _reduced(one: Any, other: Any) -> Any:
    return max(one, other)


def _joined(stream: Any, select: Any) -> Any:
    keyed = stream.key_by(select)
    return keyed.interval_join(keyed).between(Time.seconds(-9), Time.seconds(9)).process(Pairs())


KEYED: dict[str, Callable[[Any, Any], Any]] = {
    "process": lambda s, k: s.key_by(k).process(CountOf()),
    "reduce": lambda s, k: s.key_by(k).reduce(_reduced),
    "two inputs": lambda s, k: s.key_by(k).connect(s.key_by(k)).process(Both()),
    "interval join": _joined,
    "aligned windows": lambda s, k: _windowed(s, k, WINDOW).reduce(_reduced),
    "built-in aggregates": lambda s, k: _windowed(s, k, WINDOW).aggregate({"n": Count()}),
    "built-in sessions": lambda s, k: _windowed(
        s, k, EventTimeSessionWindows.with_gap(Time.seconds(100))
    ).aggregate({"n": Count()}),
    "sessions": lambda s, k: _windowed(
        s, k, EventTimeSessionWindows.with_gap(Time.seconds(100))
    ).reduce(_reduced),
    "triggered windows": lambda s, k: (
        _windowed(s, k, WINDOW).trigger(CountTrigger.of(1000)).reduce(_reduced)
    ),
}


@pytest.mark.both_engines(every=3)
@pytest.mark.parametrize("operator", KEYED)
def test_keys_of_another_type_are_refused(operator: str, tmp_path: Path) -> None:
    def keyed(select: Any) -> Build:
        return lambda env: KEYED[operator](source(env), select).name("counts").uid("counts")

    start(tmp_path, keyed(first_field), Run(), 2)
    published = sorted((tmp_path / "checkpoint" / "log").iterdir())
    with pytest.raises(IncompatibleProgramError) as caught:
        start(tmp_path, keyed(lambda event: str(event[0])), Run())
    message = str(caught.value)
    assert "operator 'counts' (test_what_decides_where_state_lies.py:" in message
    assert (
        "keys of type str, but its state in the checkpoint lies under keys of type int" in message
    )
    assert "ignore-unclaimed-state" in message
    # Only the claim of the generation is new: nothing of the run was published.
    assert len(sorted((tmp_path / "checkpoint" / "log").iterdir())) <= len(published) + 1
    start(tmp_path, keyed(first_field), Run(), 1)
    start(tmp_path, keyed(lambda event: str(event[0])), Run(options=tuple(IGNORE.items())))


PAIRS: dict[str, tuple[Any, Any, str]] = {
    "bool": (lambda e: e[0], lambda e: e[0] > 3, "bool"),
    "float": (lambda e: e[0], lambda e: float(e[0]), "float"),
    "turned pair": (lambda e: (e[0], "x"), lambda e: ("x", e[0]), r"tuple\[str, int\]"),
    "list": (lambda e: (e[0],), lambda e: [e[0]], r"list\[int\]"),
    "row": (lambda e: Row(a=e[0]), lambda e: Row(b=e[0]), r"Row\(b\)\[int\]"),
}


@pytest.mark.both_engines(every=3)
@pytest.mark.parametrize("pair", PAIRS)
def test_types_of_keys_are_told_apart(pair: str, tmp_path: Path) -> None:
    before, after, name = PAIRS[pair]
    start(tmp_path, counting(select=before), Run(), 2)
    with pytest.raises(IncompatibleProgramError, match=f"gets keys of type {name}, but"):
        start(tmp_path, counting(select=after), Run())


@pytest.mark.both_engines(every=3)
def test_keys_of_several_types_go_on(tmp_path: Path) -> None:
    def either(event: Any) -> Any:
        return event[0] if event[1] < 70 or event[1] > 100 else None if event[0] < 9 else "x"

    twice = changed(tmp_path / "twice", counting(select=either), counting(select=either))
    start(tmp_path / "once", counting(select=either), Run())
    assert twice == Counter(collected(tmp_path / "once"))


def _states(before: Any, after: Any) -> tuple[Build, Build]:
    return counting(before), counting(after)


def described(*types: Any) -> MapStateDescriptor:
    return MapStateDescriptor("count", *types)


CONVERTED: dict[str, tuple[Build, Build]] = {
    "wider value": _states(ValueStateDescriptor("count", Types.BYTE()), LONG),
    "value as a float": _states(
        ValueStateDescriptor("count", Types.INT()), ValueStateDescriptor("count", Types.DOUBLE())
    ),
    "wider values of a map": _states(
        described(Types.STRING(), Types.SHORT()), described(Types.STRING(), Types.INT())
    ),
    "time to live": _states(LONG, expiring(TTL)),
    "no time to live": _states(expiring(TTL), LONG),
}


@pytest.mark.both_engines(every=2)
@pytest.mark.parametrize("change", CONVERTED)
@pytest.mark.parametrize("then", [2, 3])
def test_changed_types_are_converted(change: str, then: int, tmp_path: Path) -> None:
    before, after = CONVERTED[change]
    backend = "rocksdb" if then == 3 else "hashmap"
    assert changed(tmp_path, before, after, None, Run(then, backend)) == EXPECTED


REFUSED: dict[str, tuple[tuple[Build, Build], str]] = {
    "state renamed": (
        _states(LONG, OTHER),
        r"state 'count' \(value state of Long\).*declares 'other'.*Call it 'count' again",
    ),
    "state renamed and not declared": (
        _states(LONG, ValueStateDescriptor("other")),
        r"state 'count' .*declares 'other'",
    ),
    "keys of a map": (
        _states(
            MapStateDescriptor("count", Types.STRING(), Types.LONG()),
            MapStateDescriptor("count", Types.BYTE(), Types.LONG()),
        ),
        "map keys of type String cannot become Byte",
    ),
}


@pytest.mark.both_engines(every=3)
@pytest.mark.parametrize("change", REFUSED)
def test_changed_states_are_refused(change: str, tmp_path: Path) -> None:
    (before, after), reason = REFUSED[change]
    start(tmp_path, before, Run(), 2)
    with pytest.raises(StateError, match=rf"operator 'counts' \(test_what.*\): .*{reason}"):
        start(tmp_path, after, Run())
    start(tmp_path, before, Run())
    assert Counter(collected(tmp_path)) == EXPECTED


@pytest.mark.both_engines(every=3)
def test_a_state_may_be_replaced_where_the_old_one_may_be_left_behind(tmp_path: Path) -> None:
    start(tmp_path, counting(LONG), Run(), 2)
    ignoring = Run(options=tuple(IGNORE.items()))
    start(tmp_path, counting(OTHER), ignoring, 1)
    start(tmp_path, counting(OTHER), Run())
    assert max(count for _, count in collected(tmp_path)) < 150 // KEYS


class Total:
    """A value of a class that a program may lose."""

    def __init__(self, count: int) -> None:
        self.count = count


class KeepTotal(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        total = self.total.value() or Total(0)
        self.total.update(Total(total.count + 1))
        yield value[0], total.count + 1


@pytest.mark.both_engines(every=3)
def test_a_class_of_values_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        return source(env).key_by(first_field).process(KeepTotal()).name("counts").uid("counts")

    start(tmp_path, build, Run(), 2)
    with monkeypatch.context() as patch:
        patch.delitem(globals(), "Total")
        with pytest.raises(StateError, match=r"operator 'counts' .* class .*'Total'.*restore"):
            start(tmp_path, build, Run())
    start(tmp_path, build, Run())
    assert Counter(collected(tmp_path)) == EXPECTED


@pytest.mark.both_engines(every=3)
def test_another_directory_of_a_sink(tmp_path: Path) -> None:
    """Output that may wait for its commit lies where the sink was."""

    def run(directory: str, epochs: int | None = None) -> None:
        env = environment(2)
        sink = FileSink.for_row_format(str(tmp_path / directory), SimpleStringEncoder()).build()
        counting()(env).map(str).sink_to(sink).uid("files").name("files")
        graph = env.get_job_graph("job")
        cluster = MiniCluster(graph, tmp_path / "checkpoint", limits=[40] * 100)
        try:
            cluster.run() if epochs is None else cluster.run(epochs)
        finally:
            cluster.coordinator.close()

    run("one", 2)
    marker = tmp_path / "checkpoint" / "committed.json"
    kept = marker.read_bytes()
    marker.unlink()  # as if the run had been killed in its commit
    with pytest.raises(SinkError, match=r"output of checkpoint 1 is lost: neither .*/two/"):
        run("two")
    marker.write_bytes(kept)
    run("two")
    lines = [
        line
        for directory in ("one", "two")
        for path in (tmp_path / directory).rglob("*")
        if path.is_file()
        for line in path.read_text().splitlines()
    ]
    assert Counter(lines) == Counter(map(str, EXPECTED.elements()))


@pytest.mark.both_engines(every=3)
def test_another_name_of_the_job(tmp_path: Path) -> None:
    start(tmp_path, counting(), Run(), 2)
    with pytest.raises(ForeignCheckpointError, match=r"'job'.*'other'|'other'.*'job'"):
        start(tmp_path, counting(), Run(name="other"))


# -- types of keys -------------------------------------------------------------------------------


def test_types_of_keys_have_names() -> None:
    class Colour(Enum):
        RED = 1

    assert type_of_key(np.int64(3)) == "int"
    assert type_of_key((1, ("a", b"b"))) == "tuple[int, tuple[str, bytes]]"
    assert type_of_key((1, None)) is None
    assert type_of_key(None) is None
    assert type_of_key(dt.date(2026, 1, 1)) == "datetime.date"
    assert str(type_of_key(Colour.RED)).endswith("Colour")
    assert type_of_key(Row(1, "a")) == "Row[int, str]"


def test_every_batch_is_looked_at_a_little() -> None:
    types = KeyTypes()
    types.see([1, "a", 2])
    types.see([3, 2.0, 4])  # only its ends
    types.see([b"x"])
    assert types.take() == ["bytes", "int", "str"]
    types.see([None, 2.0, 1])
    assert types.take() == ["float", "int"]
    assert types.take() == []


def test_the_page_names_tests_that_are_there() -> None:
    here = Path(__file__).parent
    page = (here.parents[1] / "docs" / "concepts" / "guarantees.md").read_text()
    rows = page.split("| quantity |")[1].split("\n\n")[0].splitlines()[2:]
    files = {"lies": Path(__file__).name, "programs": "test_changed_programs.py"}
    for row in rows:
        cell = row.split("|")[3]
        assert "test_" in cell
        last = ""
        for name in re.findall(r"`([^`]+)`", cell):
            if name.endswith(".py"):
                assert (here / name).exists() or (here.parents[1] / name).exists(), row
                continue
            file, _, test = name.rpartition(": ")
            last = files[file] if file else last
            assert f"def {test}(" in (here / last).read_text(), row
