"""Results to be looked at come in the order of their stream, whatever the job's parallelism."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.integration.job_runs import SplitsSource, collect, collected, environment

from millstream.common import Types, WatermarkStrategy
from millstream.connectors.basic.collect import CollectSink
from millstream.datastream.collecting import add_collect_sink
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.datastream import DataStream, StreamExecutionEnvironment

NO_TIME = WatermarkStrategy.no_watermarks()


def numbers(env: StreamExecutionEnvironment, count: int = 500) -> DataStream:
    source = SplitsSource([list(range(count))], Types.LONG())
    return env.from_source(source, NO_TIME, "numbers").set_parallelism(1)


def run(env: StreamExecutionEnvironment, directory: Path, seed: int) -> None:
    chance = random.Random(seed)
    limits = [chance.randrange(1, 120) for _ in range(4)] + [100] * 20
    graph = env.get_job_graph("order")
    MiniCluster(graph, directory / "checkpoint", limits=limits, seed=seed).run()


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(about="order")
@pytest.mark.parametrize("seed", range(5))
def test_collected_records_are_in_order(tmp_path: Path, seed: int) -> None:
    env = environment(3)
    stream = numbers(env)
    add_collect_sink(stream, str(tmp_path / "plain"))
    add_collect_sink(stream.map(str, Types.STRING()).set_parallelism(1), str(tmp_path / "text"))
    keyed = stream.key_by(lambda n: n % 5).map(lambda n: n)
    add_collect_sink(keyed, str(tmp_path / "keyed"))
    run(env, tmp_path, seed)
    assert collected(tmp_path, "plain") == list(range(500))
    assert collected(tmp_path, "text") == list(map(str, range(500)))
    found = collected(tmp_path, "keyed")
    for key in range(5):  # what has an order, the records of a key, keeps it
        assert [n for n in found if n % 5 == key] == list(range(key, 500, 5))


@pytest.mark.both_engines(about="order")
@pytest.mark.parametrize("seed", range(5))
def test_printed_lines_are_in_order(
    tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    env = environment(3)
    numbers(env).print()
    run(env, tmp_path, seed)
    assert capsys.readouterr().out.splitlines() == [str(n) for n in range(500)]


def test_print_has_the_parallelism_of_its_stream(tmp_path: Path) -> None:
    env = environment(3)
    stream = numbers(env)
    spread = stream.rebalance().map(lambda n: n)
    both = stream.map(lambda n: n).set_parallelism(2)
    stream.print().name("one")
    spread.print().name("three")
    both.print().name("two")
    stream.map(lambda n: n).set_parallelism(1).union(both).print().name("union")
    spread.print().name("own").set_parallelism(1)
    collect(stream, tmp_path, "other")
    graph = env.get_job_graph("print")
    found = {n.name: n.parallelism for n in graph.nodes.values() if isinstance(n.sink, object)}
    assert found["one"] == found["own"] == 1
    assert found["two"] == found["union"] == 2
    assert found["three"] == 3
    # Sinks that are written for good are as parallel as the job.
    others = [n for n in graph.nodes.values() if isinstance(n.sink, CollectSink)]
    assert [n.parallelism for n in others] == [3]
