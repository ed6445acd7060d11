"""What may befall the topics of a Kafka source while a job reads them, or between two runs."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError
from tests.kafka.test_source import strings, texts

from kafka import KafkaProducer
from millstream.common import WatermarkStrategy
from millstream.connectors.kafka import reader
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaTopicPartition,
)
from millstream.errors import SourceError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.broker import Broker

    from millstream.graph.model import JobGraph


@pytest.fixture(autouse=True)
def consumers() -> Iterator[None]:
    yield
    reader.close_consumers()


def job(source: KafkaSource) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "kafka").uid("kafka")
    stream.print().uid("out").set_parallelism(1)
    return env.get_job_graph("reads")


def make_anew(broker: Broker, topic: str) -> None:
    broker.admin.delete_topics([topic])
    limit = time.monotonic() + 60
    while True:
        try:
            broker.admin.create_topics([NewTopic(topic, 1, 1)])
        except TopicAlreadyExistsError:
            assert time.monotonic() < limit
            time.sleep(0.02)
        else:
            return


@pytest.mark.parametrize("restarted", [True, False])
def test_a_topic_that_was_made_anew(broker: Broker, tmp_path: Path, *, restarted: bool) -> None:
    topic = broker.topic()
    broker.send(topic, texts(range(10)))
    graph = job(strings(broker, topic).build())
    cluster = MiniCluster(graph, tmp_path)
    assert cluster.run_epoch()
    make_anew(broker, topic)
    if restarted:
        cluster = MiniCluster(graph, tmp_path)
    # Once it had grown behind offset 10, reading would have gone on there, without the first ten.
    with pytest.raises(SourceError, match=r"read up to offset 10, but ends at 0: the topic was"):
        cluster.run_epoch()


def test_an_open_transaction_before_the_position_is_no_loss(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic()
    producer = KafkaProducer(
        bootstrap_servers=broker.servers, transactional_id=topic, enable_idempotence=True
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"open")
    producer.flush()
    dirty = strings(broker, topic).set_property("isolation.level", "read_uncommitted")
    assert MiniCluster(job(dirty.build()), tmp_path).run_epoch()
    clean = MiniCluster(job(strings(broker, topic).build()), tmp_path)
    assert not clean.run_epoch()
    producer.commit_transaction()
    producer.close()
    broker.send(topic, [b"next"])
    assert clean.run_epoch()


def test_an_end_that_is_not_there_yet(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = broker.topic()
    broker.send(topic, texts(range(5)))
    stop = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 8})
    cluster = MiniCluster(job(strings(broker, topic).set_bounded(stop).build()), tmp_path)
    assert cluster.run_epoch()
    assert capsys.readouterr().out.split() == [f"r{number}" for number in range(5)]
    assert not cluster.run_epoch()
    broker.send(topic, texts(range(5, 10)))
    while cluster.run_epoch() and not (cluster.coordinator.last and cluster.coordinator.last.final):
        pass
    assert capsys.readouterr().out.split() == ["r5", "r6", "r7"]


def test_an_abandoned_reading_does_not_end_the_next(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "BATCH_SIZE", 100)
    monkeypatch.setattr(reader, "PATIENCE", 3.0)
    topic, other = broker.topic(), broker.topic()
    broker.send(topic, texts(range(300)))
    broker.send(other, texts(range(300)))
    source = strings(broker, topic, other).build()
    splits = {str(split.properties["topic"]): split for split in source.discover(frozenset())}
    abandoned = source.read(splits[topic], 0, 300)
    next(abandoned)
    second = source.read(splits[other], 0, 300)
    count = len(next(second).timestamps or ())
    abandoned.close()  # type: ignore[attr-defined]
    assert count + sum(len(batch.timestamps or ()) for batch in second) == 300


def test_a_long_aborted_transaction_is_fetched_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic})
    producer.init_transactions()
    for value, count, end in [
        (b"first", 1, producer.commit_transaction),
        (b"x" * 1000, 40_000, producer.abort_transaction),
        (b"last", 1, producer.commit_transaction),
    ]:
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(topic, value)
        producer.flush()
        end()
    source = strings(broker, topic).build()
    (split,) = source.discover(frozenset())
    stop = source.end_offset(split)
    assigned = []
    shared = reader._consumer(source.properties)
    client = shared.client

    class Counted:
        def assign(self, places: list[Any]) -> None:
            assigned.append(places[0].offset)
            client.assign(places)

        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

    monkeypatch.setattr(shared, "client", Counted())
    cuts = [0, *range(4_000, 40_000, 4_000), stop]
    read = [
        value
        for begin, end in itertools.pairwise(cuts)
        for batch in source.read(split, begin, end)
        for value in (batch.values or batch.arrow.column(0).to_pylist())  # type: ignore[union-attr]
    ]
    assert read == ["first", "last"]
    assert len(assigned) == 2  # the first range, which finds the gap, and the one that ends it
    # A range that does not follow is read as ever.
    assert sum(len(batch.timestamps or ()) for batch in source.read(split, 0, stop)) == len(read)
    assert assigned[2:] == [0]


def test_much_that_is_dropped_is_progress() -> None:
    shared = reader._Shared()
    shared.count('{"rx_bytes": 1000}')
    began = time.monotonic()
    for received in (8_000, 15_000):  # answers without records
        shared.count(f'{{"rx_bytes": {received}}}')
    assert shared.busy < began
    shared.count('{"rx_bytes": 1000000}')
    assert shared.busy >= began
