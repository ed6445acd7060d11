"""Wrong programs, as beginners write them: each message says where and what to do."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from millstream.common import Row, Types, WatermarkStrategy
from millstream.connectors.basic.collection import CollectionSource
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import (
    FilterFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.collecting import CloseableIterator
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import MillstreamError, MissingMethodError, ProgramError
from millstream.not_offered import NOT_OFFERED
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.datastream import DataStream

HERE = r"\(test_messages.py:\d+\)"


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    # Which of two subtasks fails first depends on whose turn it is, where tasks live on.
    parallelism = 1 if MiniCluster.pipelined else 2
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)


@pytest.fixture
def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([1, 2, 3], Types.LONG())


class StateWithoutKeys(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def map(self, value: Any) -> Any:
        return value


class Timer(KeyedProcessFunction):
    def __init__(self, time: Callable[[Any], Any], kind: str = "event") -> None:
        self.time, self.kind = time, kind

    def process_element(self, value: Any, ctx: Any) -> None:
        getattr(ctx.timer_service(), f"register_{self.kind}_time_timer")(self.time(ctx))


class WithoutContext(KeyedProcessFunction):
    def process_element(self, value: Any) -> Any:  # type: ignore[override]
        yield value


class ReturnsRow(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return Row(value, 1)


class TimerWithoutKeys(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(5)


def yields(value: int) -> Iterator[int]:
    yield value


async def waits(value: int) -> int:
    return value


class YieldingMap(MapFunction):
    def map(self, value: Any) -> Any:
        yield value


class YieldingFilter(FilterFunction):
    def filter(self, value: Any) -> Any:
        yield value


class YieldingKey(KeySelector):
    def get_key(self, value: Any) -> Any:
        yield value


#: What is said as soon as the line is reached.
AT_ONCE: dict[str, tuple[Callable[[Any], object], str]] = {
    "window": (
        lambda s: s.window(1),
        r"no attribute 'window': call key_by\(\) first.* window_all\(\)",
    ),
    "count_window": (lambda s: s.count_window(3), r"count_window_all\(\)"),
    "reduce": (lambda s: s.reduce(max), r"no attribute 'reduce': call key_by\(\) first"),
    "sum": (lambda s: s.sum(0), r"call key_by\(\) first"),
    "near miss": (lambda s: s.flatmap(yields), "did you mean flat_map"),
    "to_pandas": (lambda s: s.to_pandas(), r"execute_and_collect\(\).to_pandas\(\)"),
    "keyed process": (
        lambda s: s.process(Timer(lambda _: 5)),
        r"process\(\) needs a ProcessFunction, not a Timer; call key_by\(\) before process\(\)",
    ),
    "process of a keyed stream": (
        lambda s: s.key_by(lambda v: v).process(TimerWithoutKeys()),
        r"needs a KeyedProcessFunction, not a TimerWithoutKeys; .*derive it from Keyed",
    ),
    "process of a window": (
        lambda s: s.process(type("W", (ProcessWindowFunction,), {"process": None})()),
        r"needs a ProcessFunction, not a W; call key_by\(\) and window\(\) before",
    ),
    "an article": (lambda s: s.key_by(str).window_all(1), "assigner"),
    "map yields": (lambda s: s.map(yields), r"map\(\) .* one result.*yields.*flat_map\(\)"),
    "map of a class yields": (lambda s: s.map(YieldingMap()), "this one yields"),
    "keyed map yields": (lambda s: s.key_by(str).map(YieldingMap()), "this one yields"),
    "filter yields": (lambda s: s.filter(yields), r"filter\(\) .* one result.*yields"),
    "filter of a class yields": (lambda s: s.filter(YieldingFilter()), "this one yields"),
    "key yields": (lambda s: s.key_by(yields), r"key_by\(\) .* one result.*yields"),
    "key of a class yields": (lambda s: s.key_by(YieldingKey()), "this one yields"),
    "map is async": (lambda s: s.map(waits), r"map\(\) cannot call an async function"),
    "flat_map is async": (lambda s: s.flat_map(waits), r"flat_map\(\) cannot call an async"),
    "too many arguments": (
        lambda s: s.map(lambda a, b: a),
        r"map\(\) calls its function with \(record\), but .*\(a, b\) cannot be called so: missing",
    ),
    "too few arguments": (
        lambda s: s.key_by(str).reduce(lambda a: a),
        r"reduce\(\) calls its function with \(so far, new\), but",
    ),
    "process_element without context": (
        lambda s: s.key_by(str).process(WithoutContext()),
        r"process\(\) calls its function with \(record, context\), but WithoutContext.process_el",
    ),
    "sum of texts": (lambda s: s.map(str).key_by(str).sum(0), r"sum\(0\) needs numbers.* String"),
    "no tag": (lambda s: s.map(str).get_side_output("late"), "needs the OutputTag .*not 'late'"),
    "no strategy": (
        lambda s: s.assign_timestamps_and_watermarks(lambda v: v),
        "a WatermarkStrategy is needed",
    ),
    "no strategy of a source": (
        lambda s: s.get_execution_environment().from_source(
            CollectionSource([1]), lambda v: v, "numbers"
        ),
        "a WatermarkStrategy is needed",
    ),
    "no collection": (
        lambda s: s.get_execution_environment().from_collection(5),
        r"from_collection\(\) needs a list .*not 5",
    ),
    "no broadcast state": (
        lambda s: s.broadcast(ValueStateDescriptor("rules", Types.STRING())),
        r"broadcast\(\) needs MapStateDescriptors",
    ),
}


@pytest.mark.parametrize("name", AT_ONCE)
def test_said_where_the_program_is_built(name: str, numbers: DataStream) -> None:
    build, says = AT_ONCE[name]
    with pytest.raises(ProgramError, match=says):
        build(numbers)


def test_a_missing_method_is_an_attribute_error(numbers: DataStream) -> None:
    assert not hasattr(numbers, "window")
    assert hasattr(numbers.key_by(lambda v: v), "window")
    with pytest.raises(AttributeError):
        numbers.nothing_like_it  # noqa: B018 - it raises
    assert issubclass(MissingMethodError, MillstreamError)


#: What can only be known when records come.
AT_WORK: dict[str, tuple[Callable[[Any], Any], str]] = {
    "state without keys": (
        lambda s: s.map(StateWithoutKeys()),
        rf"operator 'Map' {HERE} .*keyed state 'n' needs a keyed stream: call key_by\(\) first",
    ),
    "timer without keys": (
        lambda s: s.process(TimerWithoutKeys()),
        rf"operator 'Process' {HERE} .*record 1: the timer for 5 needs a keyed stream: call key_by",
    ),
    "timer without timestamps": (
        lambda s: s.key_by(lambda v: v).process(Timer(lambda ctx: ctx.timestamp() + 1000)),
        rf"operator 'KeyedProcess' {HERE} .*the record has no timestamp.*WatermarkStrategy",
    ),
    "timer at a float": (
        lambda s: s.key_by(lambda v: v).process(Timer(lambda _: 1.5)),
        rf"operator 'KeyedProcess' {HERE} .*int of milliseconds since 1970, not 1.5",
    ),
    "processing timer at a float": (
        lambda s: s.key_by(lambda v: v).process(Timer(lambda _: 1.5, "processing")),
        rf"operator 'KeyedProcess' {HERE} .*int of milliseconds since 1970, not 1.5",
    ),
    "timer at None": (
        lambda s: s.key_by(lambda v: v).process(Timer(lambda _: None)),
        rf"operator 'KeyedProcess' {HERE} .*since 1970, not None",
    ),
    "a generator of a lambda": (
        lambda s: s.map(lambda v: (each for each in [v])),
        rf"operator 'Map' {HERE} .*record 1: map\(\) made a generator.*use flat_map\(\)",
    ),
    "flat_map returns a number": (
        lambda s: s.flat_map(lambda v: v),
        rf"operator 'FlatMap' {HERE} .*not iterable; the function must return an iterable of reco",
    ),
    "process_element returns a row": (
        lambda s: s.key_by(lambda v: v).process(ReturnsRow()),
        rf"operator 'KeyedProcess' {HERE} .*record 1 .*would be taken for records; yield the row",
    ),
    "flat_map returns a row": (
        lambda s: s.flat_map(lambda v: Row(v, 1)),
        rf"operator 'FlatMap' {HERE} .*record 1: .*would be taken for records; yield the row",
    ),
    "a field of a row that is not there": (
        lambda s: s.map(lambda v: Row(word="a", n=v)).map(lambda row: row.words),
        rf"operator 'Map' {HERE} .*the row has no field 'words'; it has word, n",
    ),
    "a timestamp that is none": (
        lambda s: s.assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
                lambda value, _: "noon"  # type: ignore[arg-type,return-value]
            )
        ),
        rf"operator 'Timestamps/Watermarks' {HERE} .*record 1: .*gave 'noon'.*milliseconds",
    ),
}


@pytest.mark.both_engines
@pytest.mark.parametrize("name", AT_WORK)
def test_said_with_operator_and_line_when_records_come(
    name: str, env: StreamExecutionEnvironment, numbers: DataStream, tmp_path: Path
) -> None:
    build, says = AT_WORK[name]
    build(numbers).sink_to(BlackholeSink())
    with pytest.raises(MillstreamError) as caught:
        MiniCluster(env.get_job_graph(), tmp_path).run()
    assert re.search(says, str(caught.value), re.DOTALL), caught.value


@pytest.mark.parametrize("module", NOT_OFFERED)
def test_modules_of_pyflink_that_are_not_offered(module: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^Millstream has no [\w.]+: \w+") as caught:
        importlib.import_module(module)
    assert caught.value.name == module


def test_classes_of_pyflink_that_are_not_offered() -> None:
    with pytest.raises(ImportError, match=r"no JdbcSink in .*: for PostgreSQL take PostgresSink"):
        from millstream.datastream.connectors import JdbcSink  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(ImportError, match=r"no CustomStateBackend in .*datastream: it wraps"):
        importlib.import_module("millstream.datastream").CustomStateBackend  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from millstream.datastream import Nothing  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'millstream\.nothing'"):
        importlib.import_module("millstream.nothing")


def test_time_is_where_programs_of_pyflink_import_it_from() -> None:
    from millstream.common import Time
    from millstream.datastream.window import Time as TimeOfWindow

    assert TimeOfWindow is Time


# -- what a notebook shows -------------------------------------------------------------------------


def test_the_repr_of_streams(env: StreamExecutionEnvironment, numbers: DataStream) -> None:
    place = r"test_messages.py:\d+>$"
    mapped = numbers.map(str).name("to text").set_parallelism(3)
    keyed = mapped.key_by(lambda text: text)
    for stream, says in (
        (numbers, rf"^<DataStream 'Source: Collection Source' of Long, parallelism 1, {place}"),
        (mapped, rf"^<DataStream 'to text' of String, parallelism 3, {place}"),
        (keyed, rf"^<KeyedStream 'to text' by key of String, parallelism 3, {place}"),
        (mapped.rebalance(), rf"^<DataStream 'to text' \(rebalance\) of String, .*{place}"),
        (mapped.union(mapped), rf"^<DataStream union of String, parallelism 2, {place}"),
        (numbers.print(), rf"^<DataStreamSink 'Sink: Print to Std. Out', .*{place}"),
        (mapped.connect(keyed), r"^<ConnectedStreams of <DataStream 'to text'.* and <KeyedStream"),
        (keyed.count_window(3), r"^<WindowedStream CountTumbling.* of <KeyedStream 'to text'"),
        (mapped.count_window_all(3), r"^<AllWindowedStream CountTumbling.* of <DataStream 'to "),
        (env, r"^<StreamExecutionEnvironment with 2 operators, parallelism 2>$"),
    ):
        assert re.search(says, repr(stream)), repr(stream)


def test_records_as_a_data_frame() -> None:
    kind = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])
    closed: list[bool] = []
    records = CloseableIterator(iter([("a", 1), Row("b", 2)]), lambda: closed.append(True), kind)
    frame = records.to_pandas()
    pd.testing.assert_frame_equal(frame, pd.DataFrame({"word": ["a", "b"], "n": [1, 2]}))
    assert closed == [True]
    untyped = CloseableIterator(iter([{"a": 1}, {"a": 2}, {"a": 3}]), lambda: None)
    pd.testing.assert_frame_equal(untyped.to_pandas(limit=2), pd.DataFrame({"a": [1, 2]}))
    empty = CloseableIterator(iter([]), lambda: None, kind).to_pandas()
    assert list(empty.columns) == ["word", "n"]
