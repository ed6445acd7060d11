"""Cutting graphs of all shapes into stages."""

from __future__ import annotations

import random

from millstream.common import Configuration
from millstream.datastream import CoMapFunction, StreamExecutionEnvironment
from millstream.graph.model import (
    JobGraph,
    Partitioning,
    StreamEdge,
    StreamNode,
    by_chain,
    cut_stages,
    levels,
)
from millstream.types.types import Types

FORWARD, HASH, REBALANCE = Partitioning.FORWARD, Partitioning.HASH, Partitioning.REBALANCE


def nodes(*parallelisms: int) -> dict[int, StreamNode]:
    return {
        number: StreamNode(
            id=number,
            uid=f"u{number}",
            name=f"n{number}",
            location="job.py:1",
            kind="operator",
            parallelism=parallelism,
            max_parallelism=128,
            output_type=Types.LONG(),
        )
        for number, parallelism in enumerate(parallelisms, start=1)
    }


def edges(*described: tuple[int, int, Partitioning]) -> list[StreamEdge]:
    return [
        StreamEdge(
            id=number,
            source=source,
            target=target,
            input_index=0,
            partitioning=partitioning,
            tag=None,
            type_info=Types.LONG(),
        )
        for number, (source, target, partitioning) in enumerate(described, start=1)
    ]


def test_a_chain_of_forward_edges_is_one_stage() -> None:
    stages = cut_stages(nodes(2, 2, 2), edges((1, 2, FORWARD), (2, 3, FORWARD)))
    cut = [(stage.level, stage.parallelism, stage.nodes) for stage in stages]
    assert cut == [(0, 2, [1, 2, 3])]


def test_each_exchange_begins_a_stage() -> None:
    stages = cut_stages(nodes(2, 3, 3, 1), edges((1, 2, HASH), (2, 3, FORWARD), (3, 4, REBALANCE)))
    assert [(stage.level, stage.parallelism, stage.nodes) for stage in stages] == [
        (0, 2, [1]),
        (1, 3, [2, 3]),
        (2, 1, [4]),
    ]


def test_diamond_is_joined_at_the_greater_level() -> None:
    # 1 -> 2 -> 4 without exchange, 1 => 3 => 4 with two.
    graph = edges((1, 2, FORWARD), (1, 3, HASH), (2, 4, FORWARD), (3, 4, HASH))
    assert levels(nodes(1, 1, 1, 1), graph) == {1: 0, 2: 0, 3: 1, 4: 2}


def test_union_of_two_levels_runs_at_the_later_one() -> None:
    graph = edges((1, 3, FORWARD), (2, 3, FORWARD), (1, 2, HASH), (3, 4, FORWARD))
    assert levels(nodes(1, 1, 1, 1), graph) == {1: 0, 2: 1, 3: 1, 4: 1}


def test_stage_is_as_parallel_as_its_most_parallel_operator() -> None:
    stages = cut_stages(nodes(1, 4, 2), edges())
    assert [stage.parallelism for stage in stages] == [4]


def test_random_graphs_keep_inputs_before_their_users() -> None:
    chance = random.Random(7)
    for _ in range(50):
        count = chance.randint(2, 12)
        described = [
            (source, target, chance.choice([FORWARD, HASH]))
            for target in range(2, count + 1)
            for source in range(1, target)
            if chance.random() < 0.3
        ]
        graph_nodes, graph_edges = nodes(*[1] * count), edges(*described)
        found = levels(graph_nodes, graph_edges)
        order = list(found)
        for edge in graph_edges:
            assert order.index(edge.source) < order.index(edge.target)
            assert found[edge.target] >= found[edge.source] + edge.partitioning.is_exchange
        stages = cut_stages(graph_nodes, graph_edges)
        assert [stage.level for stage in stages] == list(range(len(stages)))
        assert sorted(node for stage in stages for node in stage.nodes) == sorted(graph_nodes)


def job(environment: StreamExecutionEnvironment) -> JobGraph:
    """Two sources that meet behind an exchange, and a pipeline by itself."""
    one = environment.from_sequence(0, 9).uid("one").map(abs).uid("absolute")
    other = environment.from_sequence(0, 9).uid("other")
    one.key_by(abs).connect(other.key_by(abs)).map(Either()).uid("met").print().uid("out")
    environment.from_sequence(0, 9).uid("alone").print().uid("out alone")
    return environment.get_job_graph("two pipelines")


class Either(CoMapFunction):
    def map1(self, value: object) -> object:
        return value

    def map2(self, value: object) -> object:
        return value


def test_each_chain_is_a_stage_where_tasks_live_on() -> None:
    graph = job(StreamExecutionEnvironment.get_execution_environment())
    cut = by_chain(graph)
    uids = [[cut.nodes[node].uid for node in stage.nodes] for stage in cut.stages]
    assert sorted(map(sorted, uids)) == [
        ["absolute", "one"],
        ["alone", "out alone"],
        ["met", "out"],
        ["other"],
    ]
    assert [stage.number for stage in cut.stages] == [0, 1, 2, 3]
    assert [stage.level for stage in cut.stages] == [0, 0, 0, 1]
    region = {
        uid: stage.region for stage, many in zip(cut.stages, uids, strict=True) for uid in many
    }
    assert region["one"] == region["other"] == region["met"] != region["alone"]
    assert sorted(set(region.values())) == [0, 1]
    assert len(graph.stages) == 2, "the graph itself is not changed"


def test_chains_of_random_graphs_are_calls_and_their_regions_exchange_nothing() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        count = chance.randint(1, 12)
        made = nodes(*[chance.randint(1, 4) for _ in range(count)])
        kinds = list(Partitioning)
        many = edges(
            *[
                (source, target, chance.choice(kinds))
                for target in range(2, count + 1)
                for source in chance.sample(range(1, target), chance.randint(0, min(2, target - 1)))
            ]
        )
        whole = JobGraph("random", made, many, cut_stages(made, many), Configuration())
        cut = by_chain(whole)
        assert sorted(node for stage in cut.stages for node in stage.nodes) == sorted(made)
        assert [stage.number for stage in cut.stages] == list(range(len(cut.stages))), seed
        for edge in many:
            source, target = cut.stage_of(edge.source), cut.stage_of(edge.target)
            assert source.region == target.region
            assert (source.number == target.number) == (source.level == target.level), seed
            assert source.number <= target.number
