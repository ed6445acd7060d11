"""Building programs: types, keys, windows, and what is refused at once."""

from __future__ import annotations

from collections.abc import Iterator  # noqa: TC003 - types are inferred from it at run time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
)
from millstream.datastream.aggregates import Avg, Count, Max, Sum
from millstream.datastream.data_stream import KeyedStream, WindowedStream
from millstream.errors import ProgramError
from millstream.runtime.operators import KeyedProcessFactory, MapFactory, WindowFactory
from millstream.types.types import Types

if TYPE_CHECKING:
    from millstream.datastream import DataStream
    from millstream.graph.model import StreamNode

PICKLED = Types.PICKLED_BYTE_ARRAY()


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)


@pytest.fixture
def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_sequence(1, 10)


@pytest.fixture
def rows(env: StreamExecutionEnvironment) -> DataStream:
    kind = Types.ROW_NAMED(["origin", "delay"], [Types.STRING(), Types.INT()])
    return env.from_collection([("EWR", 1)], kind)


def last_node(stream: DataStream) -> StreamNode:
    env = stream.get_execution_environment()
    stream.sink_to(BlackholeSink())
    graph = env.get_job_graph()
    return graph.nodes[graph.inputs(max(graph.nodes))[0].source]


@dataclass
class Flight:
    origin: str
    delay: int


class Double(MapFunction):
    def map(self, value: int) -> int:
        return 2 * value


class Twice(FlatMapFunction):
    def flat_map(self, value: int) -> Iterator[int]:
        yield value
        yield value


class Even(FilterFunction):
    def filter(self, value: int) -> bool:
        return value % 2 == 0


class Add(ReduceFunction):
    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


class Label(ProcessWindowFunction[object, str, object, object]):  # type: ignore[type-var]
    def process(self, key: object, context: object, elements: object) -> Iterator[str]:
        yield "x"


# -- types -----------------------------------------------------------------------------------------


def test_types_are_given_or_inferred_or_unknown(numbers: DataStream) -> None:
    def to_text(value: int) -> str:
        return str(value)

    assert numbers.get_type() == Types.LONG()
    assert numbers.map(lambda x: x).get_type() == PICKLED
    assert numbers.map(to_text).get_type() == Types.STRING()
    assert numbers.map(str).get_type() == Types.STRING()
    assert numbers.map(to_text, Types.CHAR()).get_type() == Types.CHAR()
    assert numbers.map(Double()).get_type() == Types.LONG()
    assert numbers.flat_map(Twice()).get_type() == Types.LONG()
    assert numbers.filter(Even()).get_type() == Types.LONG()


def test_dataclasses_are_types(numbers: DataStream) -> None:
    def fly(value: int) -> Flight:
        return Flight("EWR", value)

    flights = numbers.map(fly)
    assert flights.get_type() == Types.DATACLASS(Flight)
    assert flights.key_by("origin").get_key_type() == Types.STRING()
    assert flights.key_by(1).key_selector(Flight("EWR", 7)) == 7


def test_key_type_is_that_of_the_field(rows: DataStream) -> None:
    assert rows.key_by(lambda r: r.origin).get_key_type() == Types.STRING()
    assert rows.key_by("delay").get_key_type() == Types.INT()
    assert rows.key_by(lambda r: r.delay + 1).get_key_type() == PICKLED
    assert rows.key_by(lambda r: r.delay + 1, Types.LONG()).get_key_type() == Types.LONG()


def test_keys_of_untyped_records_are_found_by_name(numbers: DataStream) -> None:
    selector = numbers.map(lambda x: {"n": x}).key_by("n").key_selector
    assert selector({"n": 3}) == 3
    assert selector(type("Record", (), {"n": 4})()) == 4


def test_key_selector_objects(numbers: DataStream) -> None:
    class Parity(KeySelector):
        def get_key(self, value: int) -> int:
            return value % 2

    keyed = numbers.key_by(Parity())
    assert keyed.key_selector(3) == 1
    assert keyed.get_key_type() == Types.LONG()


def test_unknown_field_is_refused_with_near_matches(rows: DataStream) -> None:
    with pytest.raises(ProgramError, match=r"no field 'orgin'.*did you mean 'origin'"):
        rows.key_by("orgin")
    with pytest.raises(ProgramError, match="no field 2"):
        rows.key_by(2)
    with pytest.raises(ProgramError, match="no field 'late'"):
        rows.key_by("origin").sum("late")


# -- keyed streams ---------------------------------------------------------------------------------


def test_function_classes_on_keyed_streams_get_state(numbers: DataStream) -> None:
    keyed = numbers.key_by(lambda x: x)
    assert isinstance(keyed, KeyedStream)
    assert isinstance(last_node(keyed.map(Double())).factory, KeyedProcessFactory)
    assert isinstance(last_node(keyed.map(lambda x: x)).factory, MapFactory)


def test_keyed_adapters_call_the_users_function(numbers: DataStream) -> None:
    keyed = numbers.key_by(lambda x: x)
    for stream, expected in (
        (keyed.map(Double()), [6]),
        (keyed.flat_map(Twice()), [3, 3]),
        (keyed.filter(Even()), []),
    ):
        factory = last_node(stream).factory
        assert isinstance(factory, KeyedProcessFactory)
        assert list(factory.function.process_element(3, None)) == expected


def test_keyed_aggregations_keep_the_type(rows: DataStream) -> None:
    keyed = rows.key_by("origin")
    for kind in ("sum", "min", "max", "min_by", "max_by"):
        stream = getattr(keyed, kind)("delay")
        assert stream.get_type() == rows.get_type()
        assert stream.get_name() == kind
    assert keyed.reduce(Add()).get_type() == rows.get_type()


def test_keyed_streams_cannot_be_partitioned_otherwise(numbers: DataStream) -> None:
    with pytest.raises(ProgramError, match="cannot be overridden"):
        numbers.key_by(lambda x: x).rebalance()


class EventTimer(KeyedProcessFunction):
    def process_element(self, value: object, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None: ...


class ProcessingTimer(EventTimer):
    def process_element(self, value: object, ctx: KeyedProcessFunction.Context) -> None:
        later(ctx)


class NoTimer(KeyedProcessFunction):
    def process_element(self, value: object, ctx: KeyedProcessFunction.Context) -> None: ...


def later(ctx: KeyedProcessFunction.Context) -> None:
    ctx.timer_service().register_processing_time_timer(1)


@pytest.mark.parametrize(
    ("function", "expected"), [(EventTimer(), False), (ProcessingTimer(), True), (NoTimer(), False)]
)
def test_only_processing_time_timers_need_ticks(
    numbers: DataStream, function: KeyedProcessFunction, expected: bool
) -> None:
    node = last_node(numbers.key_by(lambda x: x).process(function))
    assert node.needs_processing_time is expected


# -- windows ---------------------------------------------------------------------------------------


@pytest.fixture
def windowed(numbers: DataStream) -> WindowedStream:
    return numbers.key_by(lambda x: x % 2).window(TumblingEventTimeWindows.of(1000))


def test_types_of_window_results(windowed: WindowedStream) -> None:
    assert windowed.reduce(Add()).get_type() == Types.LONG()
    assert windowed.reduce(Add(), Label()).get_type() == Types.STRING()
    assert windowed.aggregate(Mean()).get_type() == Types.DOUBLE()
    assert windowed.aggregate(Mean(), Label()).get_type() == Types.STRING()
    assert windowed.aggregate(Mean(), output_type=Types.FLOAT()).get_type() == Types.FLOAT()
    assert windowed.process(Label()).get_type() == Types.STRING()
    assert windowed.apply(lambda key, window, records: records).get_type() == PICKLED


def test_built_in_aggregates_have_a_row_type(rows: DataStream) -> None:
    windowed = rows.key_by("origin").window(TumblingEventTimeWindows.of(1000))
    row = windowed.aggregate(Count(), Sum("delay"), Avg("delay"), Max("origin")).get_type()
    names = ["key", "window_start", "window_end"]
    assert row == Types.ROW_NAMED(
        [*names, "count", "sum_delay", "avg_delay", "max_origin"],
        [
            Types.STRING(),
            *[Types.LONG()] * 4,
            Types.DOUBLE(),
            Types.STRING(),
        ],
    )


def test_built_in_aggregates_of_a_missing_field(rows: DataStream) -> None:
    windowed = rows.key_by("origin").window(TumblingEventTimeWindows.of(1000))
    with pytest.raises(ProgramError, match=r"no field 'dely'.*'delay'"):
        windowed.aggregate(Sum("dely"))


def test_combiner_before_the_exchange_unless_late_records_are_wanted(numbers: DataStream) -> None:
    env = numbers.get_execution_environment()
    for late in (None, OutputTag("late")):
        windowed = numbers.key_by(lambda x: x).window(TumblingEventTimeWindows.of(1000))
        if late is not None:
            windowed.side_output_late_data(late)
        windowed.aggregate(Count()).sink_to(BlackholeSink())
    hashed = [e for e in env.get_job_graph().edges if e.partitioning.value == "hash"]
    assert [edge.combiner is not None for edge in hashed] == [True, False]


def test_late_records_have_the_type_of_the_input(numbers: DataStream) -> None:
    late = OutputTag("late")
    windowed = numbers.key_by(lambda x: x).window(TumblingEventTimeWindows.of(1000))
    stream = windowed.allowed_lateness(500).side_output_late_data(late).reduce(Add())
    assert stream.get_side_output(late).get_type() == Types.LONG()
    node = last_node(stream)
    assert node.side_types == {"late": Types.LONG()}
    assert isinstance(node.factory, WindowFactory)
    assert node.factory.allowed_lateness == 500
    assert node.name == "Window(TumblingEventTimeWindows(1000))"


def test_negative_lateness(windowed: WindowedStream) -> None:
    with pytest.raises(ProgramError, match="cannot be negative"):
        windowed.allowed_lateness(-1)


# -- refusals --------------------------------------------------------------------------------------


def test_functions_of_the_wrong_kind(numbers: DataStream) -> None:
    class Plain(ProcessFunction):
        def process_element(self, value: object, ctx: ProcessFunction.Context) -> None: ...

    with pytest.raises(ProgramError, match=r"write Double\(\) with parentheses"):
        numbers.map(Double)
    with pytest.raises(ProgramError, match=r"map\(\) needs a MapFunction, not an Even"):
        numbers.map(Even())  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match=r"map\(\) needs a MapFunction or a callable, not 3"):
        numbers.map(3)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match=r"needs a KeyedProcessFunction, not a Plain"):
        numbers.key_by(lambda x: x).process(Plain())  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="needs a Sink"):
        numbers.sink_to(print)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="window assigner"):
        numbers.key_by(lambda x: x).window(1000)  # type: ignore[arg-type]


def test_map_batches_needs_columns(numbers: DataStream) -> None:
    assert numbers.map_batches(lambda batch: batch).get_type() == Types.LONG()
    with pytest.raises(ProgramError, match="the stream is untyped"):
        numbers.map(lambda x: x).map_batches(lambda batch: batch)


def test_settings_belong_to_operators(numbers: DataStream) -> None:
    with pytest.raises(ProgramError, match=r"uid\(\) belongs to an operator"):
        numbers.key_by(lambda x: x).uid("key")


@pytest.mark.parametrize("uid", ["", "..", "a/b", "a\\b", "line\nline", "x" * 201])
def test_uids_that_cannot_be_part_of_a_path(numbers: DataStream, uid: str) -> None:
    with pytest.raises(ProgramError, match="cannot be a uid"):
        numbers.uid(uid)


@pytest.mark.parametrize("parallelism", [0, -1, True, 1.5])
def test_parallelism_must_be_a_positive_number(numbers: DataStream, parallelism: int) -> None:
    with pytest.raises(ProgramError, match="parallelism must be a positive number"):
        numbers.set_parallelism(parallelism)


def test_chained_settings_return_the_stream(numbers: DataStream) -> None:
    stream = numbers.map(str)
    assert (
        stream.name("n")
        .uid("u")
        .set_parallelism(1)
        .set_max_parallelism(16)
        .disable_chaining()
        .start_new_chain()
        .slot_sharing_group("default")
        .set_description("text")
        is stream
    )
    assert stream.get_name() == "n"
