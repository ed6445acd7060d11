"""The Kafka source in jobs: watermarks per partition, topics that come later, offsets told."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest
from kafka.structs import TopicPartition

from millstream.common import Duration, SimpleStringSchema, Types, WatermarkStrategy
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.connectors.kafka import reader
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.aggregates import Count
from millstream.datastream.connectors.file_system import FileSource, StreamFormat
from millstream.datastream.connectors.hybrid_source import HybridSource
from millstream.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.broker import Broker

    from millstream.datastream.connectors.kafka import KafkaSourceBuilder
    from millstream.graph.model import JobGraph

pytestmark = pytest.mark.both_engines

SECOND = 1000


@pytest.fixture(autouse=True)
def consumers() -> Iterator[None]:
    yield
    reader.close_consumers()


def strings(broker: Broker) -> KafkaSourceBuilder:
    builder = KafkaSource.builder().set_bootstrap_servers(broker.servers)
    return builder.set_value_only_deserializer(SimpleStringSchema())


def run(graph: JobGraph, directory: Path, epochs: int = 100, limit: int = 1000) -> None:
    cluster = MiniCluster(graph, directory / "checkpoints", limits=itertools.repeat(limit))
    try:
        cluster.run(epochs)
    finally:
        cluster.coordinator.close()


def test_watermarks_are_per_partition(broker: Broker, tmp_path: Path) -> None:
    """One partition is hours ahead of the other, and no record of either is late."""
    topic = broker.topic(partitions=2)
    now = int(time.time() * SECOND) // (10 * SECOND) * 10 * SECOND
    starts = (now - 100 * SECOND, now)
    for partition, start in enumerate(starts):
        for number in range(20):
            broker.send(topic, [b"x"], partition=partition, timestamp_ms=start + number * SECOND)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    source = strings(broker).set_topics(topic).set_bounded(KafkaOffsetsInitializer.latest()).build()
    in_order = WatermarkStrategy.for_monotonous_timestamps()
    counts = (
        env.from_source(source, in_order, "rows")
        .key_by(lambda value: value)
        .window(TumblingEventTimeWindows.of(Duration.of_seconds(10)))
        .aggregate(Count())
    )
    counts.sink_to(CollectSink(tmp_path / "out", fsync=False))
    # Three records of each partition per epoch: the one that is ahead must not close windows.
    run(env.get_job_graph("watermarks"), tmp_path, limit=6)
    rows: list[Any] = list(read_collected(tmp_path / "out"))
    found = sorted((row.window_start, row.count) for row in rows)
    assert found == [(start + ten * 10 * SECOND, 10) for start in starts for ten in (0, 1)]


def test_topics_that_come_while_the_job_runs(broker: Broker, tmp_path: Path) -> None:
    """They are read from their beginning, through a restart, and what is read is told."""
    first = broker.topic(name="many")
    later = f"{first}-later"
    start = int(time.time() * SECOND)
    broker.send(first, [b"skipped"], timestamp_ms=start - SECOND)
    broker.send(first, [b"1"], timestamp_ms=start)

    def go(epochs: int) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(1)
        source = (
            strings(broker)
            .set_topic_pattern(f"{first}.*")
            .set_group_id(first)
            .set_starting_offsets(KafkaOffsetsInitializer.timestamp(start))
            .set_property("partition.discovery.interval.ms", "1")
            .build()
        )
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").uid("rows")
        upper = stream.map(str.upper, Types.STRING()).uid("upper")
        upper.sink_to(CollectSink(tmp_path / "out", fsync=False)).uid("out")
        run(env.get_job_graph("topics"), tmp_path, epochs)
        source.stop()

    def read() -> list[str]:
        return sorted(map(str, read_collected(tmp_path / "out")))

    go(epochs=1)
    assert read() == ["1"]
    broker.admin.create_topics({later: {"num_partitions": 2, "replication_factor": 1}})
    broker.send(later, [b"a", b"b"], partition=1)
    go(epochs=1)
    deadline = time.monotonic() + 120
    while "B" not in read():
        assert time.monotonic() < deadline
        go(epochs=1)
    broker.send(first, [b"2"])
    while "2" not in read():
        assert time.monotonic() < deadline
        go(epochs=1)
    assert read() == ["1", "2", "A", "B"]
    place = TopicPartition(later, 1)
    while True:  # offsets are committed without waiting for them
        told = broker.admin.list_group_offsets(first)[first]
        if place in told and told[place].offset == 2:
            break
        assert time.monotonic() < deadline, told
        time.sleep(0.05)


@pytest.mark.parametrize("decided", ["before", "at the switch"])
def test_files_first_then_topics_that_come_later(
    broker: Broker, tmp_path: Path, decided: str
) -> None:
    """A restart in the files, at the switch and in the topics; nothing is read twice."""
    first = broker.topic(name="hybrid")
    later = f"{first}-later"
    start = int(time.time() * SECOND)
    broker.send(first, [b"stored"], timestamp_ms=start - SECOND)
    broker.send(first, [b"live 1"], timestamp_ms=start)
    (tmp_path / "lines.txt").write_text("stored\nold 1\nold 2\n")
    lines, servers = StreamFormat.text_line_format(), broker.servers

    def live(_: object = None) -> KafkaSource:
        return (
            KafkaSource.builder()
            .set_bootstrap_servers(servers)
            .set_value_only_deserializer(SimpleStringSchema())
            .set_topic_pattern(f"{first}.*")
            .set_group_id(first)
            .set_starting_offsets(KafkaOffsetsInitializer.timestamp(start))
            .set_property("partition.discovery.interval.ms", "1")
            .build()
        )

    def go(epochs: int, limit: int = 1000) -> list[str]:
        files = FileSource.for_record_stream_format(lines, str(tmp_path / "lines.txt")).build()
        next_one = live() if decided == "before" else live
        source = HybridSource.builder(files).add_source(next_one).build()
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").uid("rows")
        stream.sink_to(CollectSink(tmp_path / "out", fsync=False)).uid("out")
        run(env.get_job_graph("hybrid"), tmp_path, epochs, limit)
        source.stop()
        return sorted(map(str, read_collected(tmp_path / "out")))

    found = go(epochs=1, limit=8)
    assert "stored" in found
    assert "live 1" not in found
    deadline = time.monotonic() + 60
    while len(found) < 4:
        assert time.monotonic() < deadline, found
        found = go(epochs=1)
        assert "live 1" not in found or {"old 1", "old 2"} <= set(found), "files first"
    broker.admin.create_topics({later: {"num_partitions": 2, "replication_factor": 1}})
    broker.send(later, [b"live 2"], partition=1, timestamp_ms=start)
    broker.send(first, [b"live 3"], timestamp_ms=start)
    while len(found) < 6:
        assert time.monotonic() < deadline, found
        found = go(epochs=1)
    assert found == ["live 1", "live 2", "live 3", "old 1", "old 2", "stored"]
