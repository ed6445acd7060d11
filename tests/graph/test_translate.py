"""From programs to job graphs: edges, uids, parallelism, errors."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest

from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import OutputTag, RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.errors import ProgramError, UnpicklableFunctionError
from millstream.graph.model import Partitioning
from millstream.types.types import Types

if TYPE_CHECKING:
    from millstream.datastream import DataStream
    from millstream.graph.model import JobGraph


def environment(parallelism: int = 2) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)


def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_sequence(1, 10)


def shape(graph: JobGraph) -> set[tuple[str, str, str]]:
    names = {number: node.name for number, node in graph.nodes.items()}
    return {(names[e.source], names[e.target], e.partitioning.value) for e in graph.edges}


def test_chain() -> None:
    env = environment()
    numbers(env).map(lambda x: x + 1).name("add").sink_to(BlackholeSink()).name("out")
    graph = env.get_job_graph("job")
    assert shape(graph) == {
        ("Source: Sequence Source", "add", "forward"),
        ("add", "out", "forward"),
    }
    assert [node.kind for node in graph.nodes.values()] == ["source", "operator", "sink"]
    assert [stage.parallelism for stage in graph.stages] == [2]
    assert all(re.fullmatch(r"test_translate\.py:\d+", n.location) for n in graph.nodes.values())


def test_change_of_parallelism_becomes_rebalance() -> None:
    env = environment(2)
    numbers(env).map(str).set_parallelism(3).sink_to(BlackholeSink()).set_parallelism(1).name("out")
    graph = env.get_job_graph()
    assert {edge.partitioning for edge in graph.edges} == {Partitioning.REBALANCE}
    assert [stage.parallelism for stage in graph.stages] == [2, 3, 1]


def test_collection_is_not_parallel() -> None:
    env = environment(4)
    stream = env.from_collection([1, 2], Types.LONG())
    stream.sink_to(BlackholeSink())
    assert [stage.parallelism for stage in env.get_job_graph().stages] == [1, 4]
    with pytest.raises(ProgramError, match="is not parallel"):
        stream.set_parallelism(2)


def test_explicit_forward_refuses_a_change_of_parallelism() -> None:
    env = environment(2)
    numbers(env).forward().map(str).set_parallelism(3).sink_to(BlackholeSink())
    with pytest.raises(ProgramError, match=r"forward\(\) does not allow a change of parallelism"):
        env.get_job_graph()


def test_key_by_edges_are_hash_and_carry_the_selector() -> None:
    env = environment()
    numbers(env).key_by(lambda x: x % 3).reduce(lambda a, b: a + b).sink_to(BlackholeSink())
    edge = env.get_job_graph().edges[0]
    assert edge.partitioning is Partitioning.HASH
    assert edge.key_selector is not None
    assert edge.key_selector(7) == 1
    assert edge.type_info == Types.LONG()


def test_the_partitioning_nearest_to_the_reader_holds() -> None:
    env = environment()
    numbers(env).broadcast().rebalance().shuffle().map(str).sink_to(BlackholeSink())
    assert env.get_job_graph().edges[0].partitioning is Partitioning.SHUFFLE


@pytest.mark.parametrize(
    ("method", "partitioning"),
    [
        ("rebalance", Partitioning.REBALANCE),
        ("rescale", Partitioning.RESCALE),
        ("shuffle", Partitioning.SHUFFLE),
        ("broadcast", Partitioning.BROADCAST),
        ("global_", Partitioning.GLOBAL),
        ("forward", Partitioning.FORWARD),
    ],
)
def test_partitionings(method: str, partitioning: Partitioning) -> None:
    env = environment()
    getattr(numbers(env), method)().map(str).sink_to(BlackholeSink())
    assert env.get_job_graph().edges[0].partitioning is partitioning


def test_custom_partitioning() -> None:
    env = environment()
    stream = numbers(env).partition_custom(lambda key, n: int(str(key)) % n, lambda x: x * 2)
    stream.sink_to(BlackholeSink())
    edge = env.get_job_graph().edges[0]
    assert edge.partitioning is Partitioning.CUSTOM
    assert edge.partitioner is not None
    assert edge.key_selector is not None
    assert edge.partitioner(edge.key_selector(5), 4) == 2


def test_union_is_several_edges() -> None:
    env = environment()
    left, right = numbers(env), numbers(env).rebalance()
    left.union(right, left).map(str).name("m").sink_to(BlackholeSink()).name("out")
    graph = env.get_job_graph()
    into = graph.inputs(3)
    assert [(edge.source, edge.partitioning.value) for edge in into] == [
        (1, "forward"),
        (2, "rebalance"),
        (1, "forward"),
    ]
    assert graph.level(3) == 1


def test_union_of_other_types_is_refused() -> None:
    env = environment()
    with pytest.raises(ProgramError, match="streams of one type"):
        numbers(env).union(numbers(env).map(str, Types.STRING()))


def test_diamond_reads_the_source_once() -> None:
    env = environment()
    stream = numbers(env)
    left = stream.filter(lambda x: x > 1)
    right = stream.key_by(lambda x: x).reduce(max)
    left.union(right).sink_to(BlackholeSink()).name("out")
    graph = env.get_job_graph()
    assert [node.kind for node in graph.nodes.values()].count("source") == 1
    assert [stage.nodes for stage in graph.stages] == [[1, 2], [3, 4]]


def test_side_output_edges_carry_tag_and_type() -> None:
    env = environment()
    odd, even = OutputTag("odd", Types.LONG()), OutputTag("even")
    stream = numbers(env).map(str)
    stream.get_side_output(odd).sink_to(BlackholeSink())
    stream.get_side_output(even).sink_to(BlackholeSink())
    graph = env.get_job_graph()
    assert [(edge.tag, edge.type_info) for edge in graph.outputs(2)] == [
        ("odd", Types.LONG()),
        ("even", Types.PICKLED_BYTE_ARRAY()),
    ]
    assert graph.nodes[2].side_types == {
        "odd": Types.LONG(),
        "even": Types.PICKLED_BYTE_ARRAY(),
    }


def test_one_side_output_with_two_types_is_refused() -> None:
    env = environment()
    stream = numbers(env).map(str)
    for tag in (OutputTag("odd", Types.LONG()), OutputTag("odd", Types.STRING())):
        stream.get_side_output(tag).sink_to(BlackholeSink())
    with pytest.raises(ProgramError, match=r"side output 'odd' of operator 'Map'.*two types"):
        env.get_job_graph()


def test_sources_have_a_dead_letter_output() -> None:
    env = environment()
    stream = numbers(env)
    stream.get_side_output(OutputTag("dead-letter")).sink_to(BlackholeSink())
    edge = env.get_job_graph().edges[0]
    assert edge.tag == "dead-letter"
    assert edge.type_info.get_field_names() == ["place", "raw", "error"]  # type: ignore[attr-defined]


# -- uids ------------------------------------------------------------------------------------------


def uids(*, extra: bool = False, name: str = "m", parallelism: int = 2) -> dict[str, str]:
    env = environment(parallelism)
    stream = numbers(env)
    if extra:
        stream.filter(lambda x: x > 0).name("extra").sink_to(BlackholeSink()).name("more")
    stream.map(str).name(name).sink_to(BlackholeSink()).name("out")
    return {node.name: node.uid for node in env.get_job_graph().nodes.values()}


def test_uids_are_stable_and_distinct() -> None:
    first = uids()
    assert first == uids()
    assert len(set(first.values())) == len(first)
    assert all(re.fullmatch(r"[0-9a-f]{32}", uid) for uid in first.values())


def test_uids_outlive_renaming_rescaling_and_additions_elsewhere() -> None:
    first = uids()
    assert set(uids(name="other").values()) == set(first.values())
    assert uids(parallelism=5) == first
    wider = uids(extra=True)
    assert {name: wider[name] for name in first} == first


def test_alike_operators_have_different_uids() -> None:
    env = environment()
    stream = numbers(env)
    for _ in range(3):
        stream.map(str).sink_to(BlackholeSink())
    found = [node.uid for node in env.get_job_graph().nodes.values()]
    assert len(set(found)) == len(found) == 7


def test_uid_of_the_user_is_used_as_it_is() -> None:
    env = environment()
    numbers(env).uid("numbers").map(str).uid("texts").sink_to(BlackholeSink()).uid("nowhere")
    assert [n.uid for n in env.get_job_graph().nodes.values()] == ["numbers", "texts", "nowhere"]


def test_duplicate_uid_names_both_operators() -> None:
    env = environment()
    numbers(env).uid("a").map(str).uid("a").sink_to(BlackholeSink())
    with pytest.raises(ProgramError, match=r"uid 'a' is used by two operators, 'Source.*'Map'"):
        env.get_job_graph()


# -- refusals --------------------------------------------------------------------------------------


def test_empty_program() -> None:
    with pytest.raises(ProgramError, match="No operators defined in streaming topology"):
        environment().get_job_graph()


def test_program_without_a_sink_is_translated_as_flink_does() -> None:
    env = environment()
    numbers(env).map(str).name("last")
    graph = env.get_job_graph()
    assert [node.name for node in graph.nodes.values()][-1] == "last"


def test_unpicklable_function_names_operator_and_object() -> None:
    env = environment()
    guard = threading.Lock()
    numbers(env).map(lambda x: (guard, x)).name("locked").sink_to(BlackholeSink())
    with pytest.raises(
        UnpicklableFunctionError,
        match=r"operator 'locked' \(test_translate\.py:\d+\).*variable 'guard'",
    ):
        env.get_job_graph()


def test_unpicklable_key_selector() -> None:
    env = environment()
    guard = threading.Lock()
    numbers(env).key_by(lambda x: (guard, x)).reduce(max).sink_to(BlackholeSink())
    with pytest.raises(UnpicklableFunctionError, match="key selector of operator 'hash partition"):
        env.get_job_graph()


def test_parallelism_above_max_parallelism() -> None:
    env = environment().set_max_parallelism(4)
    numbers(env).map(str).set_parallelism(5).sink_to(BlackholeSink())
    with pytest.raises(ProgramError, match="parallelism 5, more than its max parallelism 4"):
        env.get_job_graph()


@pytest.mark.parametrize(
    ("parallelism", "groups"),
    [(1, 128), (85, 128), (86, 256), (300, 512), (341, 512), (342, 1024), (21_846, 32_768)],
)
def test_max_parallelism_is_derived_from_the_parallelism_of_the_operator(
    parallelism: int, groups: int
) -> None:
    env = environment()
    keyed = numbers(env).map(str).set_parallelism(parallelism).key_by(lambda x: x)
    keyed.reduce(max).set_parallelism(parallelism).sink_to(BlackholeSink())
    nodes = env.get_job_graph().nodes.values()
    assert {node.max_parallelism for node in nodes if node.parallelism == parallelism} == {groups}
    assert not any(node.max_parallelism_is_set for node in nodes)
    assert env.get_max_parallelism() == -1


def test_max_parallelism_that_is_set_wins_unless_it_is_minus_one() -> None:
    env = environment()
    numbers(env).map(str).set_max_parallelism(7).sink_to(BlackholeSink())
    env.get_configuration().set_string("pipeline.max-parallelism", "-1")
    groups = {node.name: node.max_parallelism for node in env.get_job_graph().nodes.values()}
    assert (groups["Map"], groups["Source: Sequence Source"]) == (7, 128)
    env.set_max_parallelism(64)
    groups = {node.name: node.max_parallelism for node in env.get_job_graph().nodes.values()}
    assert (groups["Map"], groups["Source: Sequence Source"]) == (7, 64)


# -- runtime mode ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "batch"),
    [
        (RuntimeExecutionMode.STREAMING, False),
        (RuntimeExecutionMode.BATCH, True),
        (RuntimeExecutionMode.AUTOMATIC, True),
    ],
)
def test_runtime_mode_of_a_bounded_program(mode: RuntimeExecutionMode, *, batch: bool) -> None:
    env = environment().set_runtime_mode(mode)
    numbers(env).sink_to(BlackholeSink())
    assert env.get_job_graph().batch_mode is batch


class _FakeFrame:
    isStreaming = True  # noqa: N815 - Spark's name

    class schema:  # noqa: N801 - Spark's name
        @staticmethod
        def jsonValue() -> dict[str, object]:  # noqa: N802 - Spark's name
            field = {"name": "n", "type": "long", "nullable": True, "metadata": {}}
            return {"type": "struct", "fields": [field]}


def test_unbounded_program() -> None:
    env = environment().set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
    env.from_spark(_FakeFrame()).sink_to(BlackholeSink())
    graph = env.get_job_graph()
    assert not graph.batch_mode
    assert graph.nodes[1].spark_index == 0
    assert graph.nodes[1].source is None
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    with pytest.raises(ProgramError, match="Detected an UNBOUNDED source"):
        env.get_job_graph()
