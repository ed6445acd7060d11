"""Connecting streams when the program is built: types, keys, graphs, plans, what is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator  # noqa: TC003 - types are inferred from it at run time
from typing import TYPE_CHECKING, Any

import pytest

from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    ConnectedStreams,
    CoProcessFunction,
    KeyedCoProcessFunction,
    OutputTag,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream import data_stream as data_stream_module
from millstream.errors import ProgramError, UnpicklableFunctionError
from millstream.functions.watermark_strategy import WatermarkStrategy
from millstream.graph.explain import execution_plan, explain, picture, sink_guarantees
from millstream.graph.model import Partitioning
from millstream.types.types import Types

if TYPE_CHECKING:
    from millstream.datastream import DataStream
    from millstream.types.types import TypeInformation

PICKLED = Types.PICKLED_BYTE_ARRAY()
ROW = Types.ROW_NAMED(["origin", "delay"], [Types.STRING(), Types.INT()])


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)


@pytest.fixture
def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_sequence(1, 10)


@pytest.fixture
def rows(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([("EWR", 1)], ROW)


class Same(CoMapFunction):
    def map1(self, value: int) -> str:
        return str(value)

    def map2(self, value: Any) -> str:
        return value.origin  # type: ignore[no-any-return]


class Different(CoMapFunction):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: Any) -> str:
        return value.origin  # type: ignore[no-any-return]


class Flat(CoFlatMapFunction):
    def flat_map1(self, value: int) -> list[int]:
        return [value]

    def flat_map2(self, value: Any) -> Iterator[int]:
        yield value.delay


class Process(CoProcessFunction):
    def process_element1(self, value: int, ctx: CoProcessFunction.Context) -> Iterator[int]:
        yield value

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[int]:
        yield value.delay


class KeyedProcess(KeyedCoProcessFunction):
    def process_element1(self, value: int, ctx: KeyedCoProcessFunction.Context) -> None: ...

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None: ...


class Ticking(KeyedProcess):
    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> None:
        ctx.timer_service().register_processing_time_timer(timestamp + 1)


def test_types(numbers: DataStream, rows: DataStream) -> None:
    both = numbers.connect(rows)
    assert isinstance(both, ConnectedStreams)
    assert data_stream_module.ConnectedStreams is ConnectedStreams
    assert (both.get_type1(), both.get_type2()) == (Types.LONG(), ROW)
    assert both.get_first_input() is both.stream1 is numbers
    assert both.get_second_input() is both.stream2 is rows
    assert both.get_execution_environment() is numbers.get_execution_environment()
    assert both.map(Same()).get_type() == Types.STRING()
    assert both.map(Different()).get_type() == PICKLED
    assert both.map(Different(), Types.LONG()).get_type() == Types.LONG()
    assert both.flat_map(Flat()).get_type() == Types.LONG()
    assert both.process(Process()).get_type() == Types.LONG()
    keyed = both.key_by(lambda n: n, lambda r: r.delay)
    assert keyed.process(KeyedProcess()).get_type() == PICKLED
    assert keyed.process(KeyedProcess(), ROW).get_type() == ROW


def test_graph_of_keyed_streams(numbers: DataStream, rows: DataStream) -> None:
    joined = numbers.connect(rows).key_by(lambda n: n, "delay").process(KeyedProcess())
    joined.name("meet").sink_to(BlackholeSink())
    graph = numbers.get_execution_environment().get_job_graph()
    (node,) = [node for node in graph.nodes.values() if node.name == "meet"]
    edges = graph.inputs(node.id)
    assert [graph.nodes[edge.source].kind for edge in edges] == ["source", "source"]
    assert [edge.input_index for edge in edges] == [0, 1]
    assert [edge.partitioning for edge in edges] == [Partitioning.HASH] * 2
    assert [edge.type_info for edge in edges] == [Types.LONG(), ROW]
    first, second = (edge.key_selector for edge in edges)
    assert first is not None
    assert second is not None
    assert (first(7), second(ROW.from_arrow(ROW.to_arrow([("EWR", 5)]))[0])) == (7, 5)
    assert node.parallelism == 2
    assert [stage.parallelism for stage in graph.stages] == [2, 2]


def test_unions_side_outputs_and_the_same_stream_as_inputs(numbers: DataStream) -> None:
    odd = numbers.process(_Odd(), Types.LONG()).set_parallelism(1)
    side = odd.get_side_output(OutputTag("odd", Types.LONG()))
    made = numbers.union(odd).connect(side.broadcast()).flat_map(Flat())
    made.connect(made).flat_map(Flat()).sink_to(BlackholeSink())
    graph = numbers.get_execution_environment().get_job_graph()
    first, second = (node.id for node in graph.nodes.values() if node.name == "CoFlatMap")
    ways = [(edge.input_index, edge.partitioning.value, edge.tag) for edge in graph.inputs(first)]
    assert ways == [(0, "forward", None), (0, "rebalance", None), (1, "broadcast", "odd")]
    ways = [(edge.input_index, edge.partitioning.value, edge.tag) for edge in graph.inputs(second)]
    assert ways == [(0, "forward", None), (1, "forward", None)]


class _Odd(ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> None: ...


def test_swapped_inputs_are_another_operator() -> None:
    def uids(*, swapped: bool) -> list[str]:
        env = StreamExecutionEnvironment.get_execution_environment()
        one, two = env.from_sequence(1, 2).uid("one"), env.from_sequence(1, 3).uid("two")
        streams = two.connect(one) if swapped else one.connect(two)
        streams.flat_map(Flat()).name("flat").sink_to(BlackholeSink())
        return [node.uid for node in env.get_job_graph().nodes.values() if node.name == "flat"]

    assert uids(swapped=False) == uids(swapped=False)
    assert uids(swapped=False) != uids(swapped=True)


def test_plans_tell_the_inputs_apart(numbers: DataStream, rows: DataStream) -> None:
    numbers.connect(rows.rebalance()).flat_map(Flat()).name("meet").sink_to(BlackholeSink())
    env = numbers.get_execution_environment()
    graph = env.get_job_graph()
    lines = [line.strip() for line in explain(graph).splitlines()]
    assert "input 1 <- [1] Source: Sequence Source: forward" in lines
    assert "input 2 <- [2] Source: Collection Source: rebalance" in lines
    assert "<- [3] meet: forward" in lines
    nodes = json.loads(execution_plan(graph))["nodes"]
    assert [each["side"] for each in nodes[2]["predecessors"]] == ["first", "second"]
    assert "meet" in picture(graph)


class Fleeting(NumberSequenceSource):
    replayable = False


def test_a_guarantee_is_that_of_the_weakest_input(numbers: DataStream) -> None:
    env = numbers.get_execution_environment()
    fleeting = env.from_source(Fleeting(1, 2), WatermarkStrategy.no_watermarks(), "fleeting")
    numbers.connect(fleeting).flat_map(Flat()).sink_to(BlackholeSink())
    (guarantee,) = sink_guarantees(env.get_job_graph())
    assert guarantee.guarantee == "at-most-once"
    assert guarantee.reasons == ("source 'Source: fleeting' cannot be read again after a failure",)


def test_ticks_of_processing_time_only_where_timers_may_need_them(numbers: DataStream) -> None:
    both = numbers.connect(numbers).key_by(lambda n: n, lambda n: n)
    for function, name in ((KeyedProcess(), "none"), (Ticking(), "some")):
        both.process(function).name(name).sink_to(BlackholeSink())
    both.map(Same()).name("map").sink_to(BlackholeSink())
    nodes = numbers.get_execution_environment().get_job_graph().nodes.values()
    needing = [node.name for node in nodes if node.needs_processing_time]
    assert needing == ["some"]


def test_wrong_functions_are_refused(numbers: DataStream, rows: DataStream) -> None:
    both: Any = numbers.connect(rows)
    with pytest.raises(ProgramError, match=r"map\(\) needs a CoMapFunction, not a Flat"):
        both.map(Flat())
    with pytest.raises(
        ProgramError, match=r"flat_map\(\) needs a CoFlatMapFunction, not <function"
    ):
        both.flat_map(lambda value: [value])
    with pytest.raises(ProgramError, match=r"write Process\(\) with parentheses"):
        both.process(Process)
    with pytest.raises(ProgramError, match="needs two keyed streams"):
        both.process(KeyedProcess())
    half: Any = numbers.key_by(lambda n: n).connect(rows)
    with pytest.raises(ProgramError, match="needs two keyed streams"):
        half.process(KeyedProcess())


def test_wrong_streams_are_refused(numbers: DataStream) -> None:
    with pytest.raises(ProgramError, match=r"connect\(\) needs a DataStream, not 5"):
        numbers.connect(5)  # type: ignore[call-overload]
    other = StreamExecutionEnvironment.get_execution_environment().from_sequence(1, 2)
    with pytest.raises(ProgramError, match="one environment"):
        numbers.connect(other)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Types.INT(), Types.LONG()),
        (Types.BYTE(), Types.BIG_INT()),
        (Types.STRING(), Types.CHAR()),
        (PICKLED, Types.STRING()),
        (Types.TUPLE([Types.INT(), PICKLED]), Types.TUPLE([Types.LONG(), Types.STRING()])),
    ],
)
def test_keys_that_can_be_equal(
    numbers: DataStream, first: TypeInformation, second: TypeInformation
) -> None:
    numbers.key_by(lambda n: n, first).connect(numbers.key_by(lambda n: n, second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Types.INT(), Types.STRING()),
        (Types.LONG(), Types.DOUBLE()),
        (Types.FLOAT(), Types.DOUBLE()),
        (Types.TUPLE([Types.INT()]), Types.TUPLE([Types.INT(), Types.INT()])),
        (Types.TUPLE([Types.INT()]), Types.TUPLE([Types.STRING()])),
        (Types.ROW_NAMED(["a"], [Types.INT()]), Types.ROW_NAMED(["b"], [Types.INT()])),
        (Types.TUPLE([Types.INT()]), Types.INT()),
    ],
)
def test_keys_that_can_never_be_equal(
    numbers: DataStream, first: TypeInformation, second: TypeInformation
) -> None:
    with pytest.raises(ProgramError, match="never equal; convert one of them"):
        numbers.key_by(lambda n: n, first).connect(numbers.key_by(lambda n: n, second))


def test_functions_and_selectors_must_be_picklable(numbers: DataStream) -> None:
    function = Same()
    function.lock = threading.Lock()  # type: ignore[attr-defined]
    numbers.connect(numbers).map(function).name("locked").sink_to(BlackholeSink())
    with pytest.raises(UnpicklableFunctionError, match=r"'locked'.*lock"):
        numbers.get_execution_environment().get_job_graph()
