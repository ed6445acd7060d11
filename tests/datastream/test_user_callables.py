"""Whatever of the user's raises, the error names operator, line of the program, line of the
callable and, where there is one, the record or key: one table of all kinds of callables.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.common import (
    Time,
    Types,
    WatermarkStrategy,
)
from millstream.connectors.basic.data_generator import DataGeneratorSource
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.connectors.files.sink import BucketAssigner, FileSink
from millstream.contracts.serialization import Encoder
from millstream.contracts.source import Boundedness, KnownSplits, Source, Split
from millstream.datastream import (
    AggregateFunction,
    CoFlatMapFunction,
    CoMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.functions import ProcessJoinFunction
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
)
from millstream.datastream.window import (
    EventTimeSessionWindows,
    Evictor,
    GlobalWindows,
    SessionWindowTimeGapExtractor,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from millstream.errors import MillstreamError, SinkError, SourceError, UserFunctionError
from millstream.functions.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
)
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.datastream import DataStream

pytestmark = pytest.mark.both_engines

RECORDS = [("good", 1), ("good", 2), ("bad", 3), ("good", 4)]


class PlantedError(RuntimeError):
    pass


def boom(*_: object) -> Any:
    msg = "planted"
    raise PlantedError(msg)


def boom_if_bad(value: Any, *_: object) -> Any:
    if value[0] == "bad":
        boom()
    return value


def key_of(value: Any) -> Any:
    return boom_if_bad(value)[0]


def by_word(stream: DataStream) -> Any:
    # Not a field alone, so that keys are taken from Python values.
    return stream.key_by(lambda value: value[0] + "")


def windowed(stream: DataStream) -> Any:
    return by_word(stream).window(TumblingEventTimeWindows.of(Time.milliseconds(100)))


def aggregated(method: str, stream: DataStream) -> Any:
    return windowed(stream).aggregate(aggregate(method))


class Raising:
    """Makes an instance of a class one of whose methods raises."""

    def __new__(cls, base: type, method: str, **others: Any) -> Any:
        body = {method: boom}
        body.update(others)
        for name in getattr(base, "__abstractmethods__", ()):
            body.setdefault(name, lambda *_: None)
        made = type(f"Raising{base.__name__}", (base,), body)
        return made()


class SlowAggregate(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return a + b


def aggregate(method: str) -> Any:
    return type("RaisingAggregate", (SlowAggregate,), {method: boom})()


def fire(method: str, **others: Any) -> Any:
    """A trigger whose method raises; the others register timers, so that all are called."""

    def on_element(self: Any, element: Any, timestamp: int, window: Any, ctx: Any) -> Any:
        ctx.register_event_time_timer(timestamp + 1)
        return TriggerResult.CONTINUE

    def keep(self: Any, *_: Any) -> Any:
        return TriggerResult.CONTINUE

    body: dict[str, Any] = {"on_element": on_element, "on_event_time": keep}
    body |= {"on_processing_time": keep, "clear": keep, "on_merge": keep, "can_merge": keep}
    body |= others | {method: boom}
    return type("RaisingTrigger", (Trigger,), body)()


class State(KeyedProcessFunction):
    def __init__(self, descriptor: Any, getter: str) -> None:
        self.descriptor, self.getter = descriptor, getter

    def open(self, runtime_context: Any) -> None:
        self.state = getattr(runtime_context, self.getter)(self.descriptor)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.state.add(value)


class Timed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        boom()


class Sessions(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        boom_if_bad(element)
        return 5


class Columns:
    def __call__(self, batch: Any) -> Any:
        boom()


def interval(stream: DataStream) -> Any:
    left, right = by_word(stream), by_word(stream)
    function = Raising(ProcessJoinFunction, "process_element")
    return (
        left.interval_join(right)
        .between(Time.milliseconds(-1), Time.milliseconds(1))
        .process(function)
    )


def joined(stream: DataStream, where: Any = None, function: Any = None) -> Any:
    return (
        stream.join(stream)
        .where(where or (lambda v: v[0]))
        .equal_to(lambda v: v[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
        .apply(function or (lambda a, b: (a, b)))
    )


#: What raises -> (the name of the operator, what it is doing, the program).
CASES: dict[str, tuple[str, str, Callable[[DataStream], Any]]] = {
    "map": ("Map", "('bad', 3)", lambda s: s.map(boom_if_bad)),
    "map of a class": ("Map", "('good', 1)", lambda s: s.map(Raising(MapFunction, "map"))),
    "open": ("Map", "opening", lambda s: s.map(Raising(MapFunction, "open"))),
    "close": ("Map", "closing", lambda s: s.map(Raising(MapFunction, "close", map=lambda _, v: v))),
    "keyed map": ("Map", "('good', 1)", lambda s: by_word(s).map(Raising(MapFunction, "map"))),
    "flat_map": ("FlatMap", "('bad', 3)", lambda s: s.flat_map(boom_if_bad)),
    "filter": ("Filter", "('bad', 3)", lambda s: s.filter(boom_if_bad)),
    "map_batches": (
        "MapBatches",
        "a batch of",
        lambda s: s.map(lambda v: v[1], Types.LONG()).map_batches(Columns()),
    ),
    "process": (
        "Process",
        "('good', 1)",
        lambda s: s.process(Raising(ProcessFunction, "process_element")),
    ),
    "keyed process": (
        "KeyedProcess",
        "('good', 1)",
        lambda s: by_word(s).process(Raising(KeyedProcessFunction, "process_element")),
    ),
    "timer": ("KeyedProcess", "timer for 1", lambda s: by_word(s).process(Timed())),
    "key selector": ("Map", "key_by", lambda s: s.key_by(key_of).map(lambda v: v)),
    "key selector of a class": (
        "Map",
        "key_by",
        lambda s: s.key_by(Raising(KeySelector, "get_key")).map(lambda v: v),
    ),
    "key selector, keyed process": (
        "KeyedProcess",
        "('bad', 3)",
        lambda s: s.key_by(key_of).process(Timed()),
    ),
    "key selector of a window": (
        "TumblingEventTimeWindows",
        "('bad', 3)",
        lambda s: (
            s.key_by(key_of).window(TumblingEventTimeWindows.of(Time.milliseconds(9))).reduce(min)
        ),
    ),
    "key selector of a window with a combiner": (
        "TumblingEventTimeWindows",
        "('bad', 3)",
        lambda s: (
            s.key_by(key_of)
            .window(TumblingEventTimeWindows.of(Time.milliseconds(9)))
            .aggregate(SlowAggregate())
        ),
    ),
    "key selector of connected streams": (
        "CoMap",
        "('bad', 3)",
        lambda s: (
            s.connect(s)
            .key_by(key_of, lambda v: v[0])
            .map(Raising(CoMapFunction, "map1", map2=lambda _, v: v))
        ),
    ),
    "where": ("Join", "('bad', 3)", lambda s: joined(s, where=key_of)),
    "partitioner": (
        "Map",
        "('good', 1)",
        lambda s: s.partition_custom(boom, lambda v: v[0]).map(lambda v: v),
    ),
    "partitioner of a class": (
        "Map",
        "('good', 1)",
        lambda s: s.partition_custom(Raising(Partitioner, "partition"), lambda v: v[0]).map(
            lambda v: v
        ),
    ),
    "partitioner's key": (
        "Map",
        "('bad', 3)",
        lambda s: s.partition_custom(lambda key, n: 0, key_of).map(lambda v: v),
    ),
    "partitioner's range": (
        "Map",
        "('good', 1)",
        lambda s: s.partition_custom(lambda key, n: n, lambda v: v[0]).map(lambda v: v),
    ),
    "partitioner's kind": (
        "Map",
        "('good', 1)",
        lambda s: s.partition_custom(cast("Any", str.format), lambda v: v[0]).map(lambda v: v),
    ),
    "reduce": ("Reduce", "('good', 2)", lambda s: by_word(s).reduce(boom)),
    "window reduce": ("Tumbling", "('good', 2)", lambda s: windowed(s).reduce(boom)),
    **{
        f"window aggregate {method}": (
            "Tumbling",
            "good" if method == "add" else "",
            partial(aggregated, method),
        )
        for method in ("create_accumulator", "add", "get_result")
    },
    "process window": (
        "Tumbling",
        "(key ",
        lambda s: windowed(s).process(Raising(ProcessWindowFunction, "process")),
    ),
    "window apply": ("Tumbling", "(key ", lambda s: windowed(s).apply(boom)),
    "clear of a window function": (
        "Tumbling",
        "clearing",
        lambda s: windowed(s).process(
            Raising(ProcessWindowFunction, "clear", process=lambda *_: [])
        ),
    ),
    "window assigner": (
        "Raising",
        "('good', 1)",
        lambda s: (
            by_word(s)
            .window(
                Raising(
                    WindowAssigner,
                    "assign_windows",
                    get_default_trigger=lambda _, __: fire("clear"),
                    get_window_serializer=GlobalWindows.create().get_window_serializer,
                    is_event_time=lambda _: True,
                )
            )
            .reduce(min)
        ),
    ),
    "session gap": (
        "Session",
        "('bad', 3)",
        lambda s: (
            by_word(s).window(EventTimeSessionWindows.with_dynamic_gap(Sessions())).reduce(min)
        ),
    ),
    "trigger on_element": (
        "Tumbling",
        "('good', 1)",
        lambda s: windowed(s).trigger(fire("on_element")).reduce(min),
    ),
    "trigger on_event_time": (
        "Tumbling",
        "timer for 2",
        lambda s: windowed(s).trigger(fire("on_event_time")).reduce(min),
    ),
    "trigger clear": (
        "Tumbling",
        "(key ",
        lambda s: windowed(s).trigger(fire("clear")).reduce(min),
    ),
    "trigger on_merge": (
        "Session",
        "('good', 2)",
        lambda s: (
            by_word(s)
            .window(EventTimeSessionWindows.with_gap(Time.milliseconds(5)))
            .trigger(fire("on_merge"))
            .reduce(min)
        ),
    ),
    "evictor": (
        "Tumbling",
        "(key ",
        lambda s: windowed(s).evictor(Raising(Evictor, "evict_before")).apply(lambda k, w, e: e),
    ),
    "timestamp assigner": (
        "Timestamps/Watermarks",
        "('good', 1)",
        lambda s: s.assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
                Raising(TimestampAssigner, "extract_timestamp")
            )
        ),
    ),
    "watermark generator on_event": (
        "Timestamps/Watermarks",
        "('good', 1)",
        lambda s: s.assign_timestamps_and_watermarks(
            WatermarkStrategy.for_generator(lambda: Raising(WatermarkGenerator, "on_event"))
        ),
    ),
    "watermark generator on_periodic_emit": (
        "Timestamps/Watermarks",
        "watermark",
        lambda s: s.assign_timestamps_and_watermarks(
            WatermarkStrategy.for_generator(lambda: Raising(WatermarkGenerator, "on_periodic_emit"))
        ),
    ),
    "making a watermark generator": (
        "Timestamps/Watermarks",
        "watermark",
        lambda s: s.assign_timestamps_and_watermarks(WatermarkStrategy.for_generator(boom)),
    ),
    "co-map": ("CoMap", "('good', 1)", lambda s: s.connect(s).map(Raising(CoMapFunction, "map2"))),
    "co-flat-map": (
        "CoFlatMap",
        "('good', 1)",
        lambda s: s.connect(s).flat_map(Raising(CoFlatMapFunction, "flat_map2")),
    ),
    "keyed co-process": (
        "KeyedCoProcess",
        "('good', 1)",
        lambda s: (
            by_word(s)
            .connect(by_word(s))
            .process(Raising(KeyedCoProcessFunction, "process_element2"))
        ),
    ),
    "join": ("Join", "(key ", lambda s: joined(s, function=boom)),
    "interval join": ("", "('good', 1)", interval),
    "reducing state": (
        "KeyedProcess",
        "('good', 2)",
        lambda s: by_word(s).process(
            State(ReducingStateDescriptor("v", boom), "get_reducing_state")
        ),
    ),
    "aggregating state": (
        "KeyedProcess",
        "('good', 1)",
        lambda s: by_word(s).process(
            State(AggregatingStateDescriptor("v", aggregate("add")), "get_aggregating_state")
        ),
    ),
}


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)


@pytest.mark.parametrize("name", CASES)
def test_what_raises_names_operator_line_and_record(
    name: str, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    operator, says, build = CASES[name]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, _: value[1]
    )
    stream = env.from_collection(RECORDS).assign_timestamps_and_watermarks(strategy)
    build(stream).sink_to(BlackholeSink())
    with pytest.raises(MillstreamError) as caught:
        MiniCluster(env.get_job_graph(), tmp_path).run()
    message = str(caught.value)
    print(message)
    assert re.search(
        rf"operator '[^']*{re.escape(operator)}[^']*' \(test_user_callables.py:\d+\)", message
    )
    named = {says}
    if MiniCluster.pipelined and says in map(str, RECORDS):
        # Which of two subtasks fails first depends on whose turn it is, where tasks live on.
        named = {str(record) for record in RECORDS}
    assert any(each in message for each in named)
    if name not in {"partitioner's range", "partitioner's kind"}:
        assert isinstance(caught.value, UserFunctionError)
        assert "PlantedError" in message
        assert re.search(r"at .*test_user_callables.py:\d+ in boom: raise", message)


# -- in connectors ---------------------------------------------------------------------------------


class Reads(Source):
    """A source of the user's that raises at its second record."""

    boundedness = Boundedness.BOUNDED
    produced_type = Types.LONG()

    def discover(self, known: KnownSplits) -> list[Split]:
        return [] if "all" in known else [Split("all")]

    def end_offset(self, split: Split) -> int:
        return 2

    def read(self, split: Split, start: int, stop: int) -> Iterator[Any]:
        yield boom()


class Buckets(BucketAssigner):
    def get_bucket_id(self, element: Any, timestamp: int) -> str:
        return str(boom_if_bad(element)[0])


SINKS: dict[str, Callable[[Path], Any]] = {
    "encoder": lambda path: FileSink.for_row_format(str(path), Raising(Encoder, "encode")).build(),
    "bucket assigner": lambda path: (
        FileSink.for_row_format(str(path), Encoder.simple_string_encoder())
        .with_bucket_assigner(Buckets())
        .build()
    ),
}


@pytest.mark.parametrize("name", SINKS)
def test_what_raises_in_a_sink_names_sink_line_and_record(
    name: str, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.from_collection(RECORDS).sink_to(SINKS[name](tmp_path / "out")).name("results")
    with pytest.raises(SinkError) as caught:
        MiniCluster(env.get_job_graph(), tmp_path / "checkpoint").run()
    message = str(caught.value)
    assert re.search(r"sink 'results' \(test_user_callables.py:\d+", message), message
    assert "PlantedError" in message
    first = ["'bad', 3", "'good', 1"]
    if MiniCluster.pipelined:  # by turns, so that the second subtask may be at its second record
        first.append("'good', 2")
    assert any(record in message for record in first)
    assert re.search(r"at .*test_user_callables.py:\d+ in boom: raise", message)


SOURCES: dict[str, Callable[[], Any]] = {
    "generator": lambda: DataGeneratorSource(boom, 10, type_info=Types.LONG()),
    "own source": Reads,
}


@pytest.mark.parametrize("name", SOURCES)
def test_what_raises_in_a_source_names_source_and_line(
    name: str, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    stream = env.from_source(SOURCES[name](), WatermarkStrategy.no_watermarks(), "numbers")
    stream.sink_to(BlackholeSink())
    with pytest.raises(SourceError) as caught:
        MiniCluster(env.get_job_graph(), tmp_path).run()
    message = str(caught.value)
    assert re.search(r"source 'Source: numbers' \(test_user_callables.py:\d+", message), message
    assert "PlantedError" in message
    assert re.search(r"at .*test_user_callables.py:\d+ in boom: raise", message)
