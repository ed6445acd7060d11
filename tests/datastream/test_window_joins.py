"""Joins when the program is built: types, names, graphs, what is refused; and lateness."""

from __future__ import annotations

from collections.abc import Iterable, Iterator  # noqa: TC003 - types are inferred at run time
from typing import TYPE_CHECKING, Any

import pytest

from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import (
    CoGroupFunction,
    CountEvictor,
    CountTrigger,
    FlatJoinFunction,
    JoinFunction,
    OutputTag,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
    TaggedUnion,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.errors import ProgramError
from millstream.graph.model import Partitioning
from millstream.runtime.operators import TaggedInputsFactory
from millstream.testing.harness import OperatorHarness
from millstream.types.types import Types

if TYPE_CHECKING:
    from millstream.datastream import DataStream
    from millstream.graph.model import StreamNode

PICKLED = Types.PICKLED_BYTE_ARRAY()
ROW = Types.ROW_NAMED(["origin", "delay"], [Types.STRING(), Types.INT()])
WINDOW = TumblingEventTimeWindows.of(10)


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)


@pytest.fixture
def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_sequence(1, 10)


@pytest.fixture
def rows(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([("EWR", 1)], ROW)


def node_of(stream: DataStream) -> StreamNode:
    stream.uid("it").sink_to(BlackholeSink())
    graph = stream.get_execution_environment().get_job_graph()
    (node,) = [node for node in graph.nodes.values() if node.uid == "it"]
    edges = graph.inputs(node.id)
    assert [edge.input_index for edge in edges] == [0, 1]
    assert [edge.partitioning for edge in edges] == [Partitioning.HASH] * 2
    assert [edge.type_info for edge in edges] == [Types.LONG(), ROW]
    return node


class Join(JoinFunction):
    def join(self, first: int, second: Any) -> int:
        return first * int(second.delay)


class FlatJoin(FlatJoinFunction):
    def join(self, first: int, second: Any) -> list[int]:
        return [first] * int(second.delay)


class Group(CoGroupFunction):
    def co_group(self, first: Iterable[int], second: Iterable[Any]) -> list[str]:
        return [f"{sorted(first)} {sorted(row[1] for row in second)}"]


class Pair(ProcessJoinFunction):
    def process_element(self, left: int, right: Any, ctx: ProcessJoinFunction.Context) -> list[int]:
        return [left * int(right.delay)]


def test_types_and_names(numbers: DataStream, rows: DataStream) -> None:
    joined = numbers.join(rows).where(lambda n: n).equal_to("delay").window(WINDOW)
    assert joined.apply(Join()).get_type() == Types.LONG()
    assert joined.apply(FlatJoin()).get_type() == Types.LONG()
    assert joined.apply(lambda a, b: a).get_type() == PICKLED
    assert joined.apply(lambda a, b: b, ROW).get_type() == ROW
    assert joined.apply(Join()).get_name() == "Join(TumblingEventTimeWindows(10))"
    grouped = numbers.co_group(rows).where(lambda n: n).equal_to("delay").window(WINDOW)
    assert grouped.apply(Group()).get_type() == Types.STRING()
    assert grouped.apply(lambda a, b: [a, b]).get_type() == PICKLED
    assert grouped.apply(Group()).get_name() == "CoGroup(TumblingEventTimeWindows(10))"
    near = numbers.key_by(lambda n: n).interval_join(rows.key_by("delay")).between(-5, 5)
    assert near.process(Pair()).get_type() == Types.LONG()
    assert near.process(Pair(), PICKLED).get_type() == PICKLED
    assert near.lower_bound_exclusive().process(Pair()).get_name() == "IntervalJoin(-4, 5)"
    assert near.upper_bound_exclusive().process(Pair()).get_name() == "IntervalJoin(-4, 4)"


def test_inputs_travel_as_what_they_are(numbers: DataStream, rows: DataStream) -> None:
    keys = numbers.join(rows).where(lambda n: n).equal_to("delay")
    assert not node_of(keys.window(WINDOW).apply(Join())).needs_processing_time


def test_windows_of_processing_time_need_ticks(numbers: DataStream, rows: DataStream) -> None:
    keys = numbers.co_group(rows).where(lambda n: n).equal_to("delay")
    window = TumblingProcessingTimeWindows.of(10)
    assert node_of(keys.window(window).apply(Group())).needs_processing_time


def test_late_records_of_an_interval_join_have_their_types(
    numbers: DataStream, rows: DataStream
) -> None:
    near = numbers.key_by(lambda n: n).interval_join(rows.key_by("delay")).between(-5, 5)
    near.side_output_left_late_data(OutputTag("left"))
    near.side_output_right_late_data(OutputTag("right"))
    joined = near.process(Pair())
    assert joined.get_side_output(OutputTag("left")).get_type() == Types.LONG()
    assert joined.get_side_output(OutputTag("right")).get_type() == ROW
    assert node_of(joined).side_types == {"left": Types.LONG(), "right": ROW}
    near.side_output_right_late_data(OutputTag("left"))
    with pytest.raises(ProgramError, match=r"of two types, Long and .*; use two tags"):
        near.process(Pair())


def test_wrong_joins_are_refused(numbers: DataStream, rows: DataStream) -> None:
    where: Any = numbers.join(rows).where(lambda n: n)
    with pytest.raises(ProgramError, match=r"no field 'dealy'.*did you mean 'delay'"):
        where.equal_to("dealy")
    with pytest.raises(ProgramError, match=r"join\(\) needs keys of one type"):
        numbers.join(rows).where(lambda n: n, Types.LONG()).equal_to("origin")
    with pytest.raises(ProgramError, match=r"co_group\(\) needs keys of one type"):
        numbers.co_group(rows).where(lambda n: n, Types.LONG()).equal_to("origin")
    with pytest.raises(ProgramError, match="needs a window assigner"):
        where.equal_to("delay").window(10)
    windows = where.equal_to("delay").window(WINDOW)
    with pytest.raises(ProgramError, match="needs a JoinFunction or FlatJoinFunction or a call"):
        windows.apply(5)
    with pytest.raises(ProgramError, match=r"apply\(\) needs a .*, not a Group"):
        windows.apply(Group())
    with pytest.raises(ProgramError, match="needs a Trigger"):
        windows.trigger(CountEvictor.of(1))
    with pytest.raises(ProgramError, match="needs an Evictor"):
        windows.evictor(CountTrigger.of(1))
    with pytest.raises(ProgramError, match="cannot be negative"):
        windows.allowed_lateness(-1)
    wrong: Any = "stream"
    with pytest.raises(ProgramError, match=r"join\(\) needs a DataStream"):
        numbers.join(wrong)


def test_wrong_interval_joins_are_refused(numbers: DataStream, rows: DataStream) -> None:
    keyed: Any = numbers.key_by(lambda n: n, Types.LONG())
    with pytest.raises(ProgramError, match=r"call key_by\(\) on it first"):
        keyed.interval_join(rows)
    with pytest.raises(ProgramError, match=r"interval_join\(\) needs keys of one type"):
        keyed.interval_join(rows.key_by("origin"))
    join = keyed.interval_join(rows.key_by("delay"))
    with pytest.raises(ProgramError, match="5 ms, is greater than its upper bound, 4 ms"):
        join.in_event_time().between(5, 4)
    with pytest.raises(ProgramError, match="in event time only"):
        join.in_processing_time()
    with pytest.raises(ProgramError, match="within 1000000000000000 ms of 0"):
        join.between(-(2**62), 0)
    with pytest.raises(ProgramError, match=r"process\(\) needs a ProcessJoinFunction, not"):
        join.between(0, 0).process(lambda a, b, ctx: [a])


def test_tagged_unions() -> None:
    one, two = TaggedUnion(0, "a"), TaggedUnion(1, "b")
    assert (one.is_one(), one.is_two(), one.get_one(), one.get_two()) == (True, False, "a", None)
    assert (two.is_one(), two.is_two(), two.get_one(), two.get_two()) == (False, True, None, "b")


@pytest.mark.parametrize("lateness", [0, 5])
def test_late_records_of_a_co_group_fire_again_or_are_counted(
    numbers: DataStream, lateness: int
) -> None:
    grouped = numbers.co_group(numbers).where(lambda n: n[0]).equal_to(lambda n: n[-1])
    stream = grouped.window(WINDOW).allowed_lateness(lateness).apply(_listed)
    factory = node_of_factory(stream)
    harness = OperatorHarness(factory)
    harness.process(("k", 1), 1, 0)
    harness.process((2, "k"), 2, 1)
    harness.end_epoch()
    harness.watermark(9)
    harness.process((3, "k"), 3, 1)
    harness.end_epoch()
    harness.watermark(30)
    first: Any = ([("k", 1)], [(2, "k")])
    again: Any = ([("k", 1)], [(2, "k"), (3, "k")])
    expected: list[Any] = [(first, 9), *([(again, 9)] if lateness else [])]
    assert harness.records == expected
    assert harness.metrics["numLateRecordsDropped"] == (0 if lateness else 1)
    harness.process(("k", 4), 4, 0)
    harness.end_epoch()
    assert harness.metrics["numLateRecordsDropped"] == (1 if lateness else 2)


def _listed(first: Iterable[Any], second: Iterable[Any]) -> Iterator[Any]:
    yield list(first), list(second)


def node_of_factory(stream: DataStream) -> TaggedInputsFactory:
    stream.sink_to(BlackholeSink())
    nodes = stream.get_execution_environment().get_job_graph().nodes.values()
    (factory,) = [n.factory for n in nodes if isinstance(n.factory, TaggedInputsFactory)]
    return factory
