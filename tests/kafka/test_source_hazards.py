"""What may befall the topics of a Kafka source while a job reads them, or between two runs."""

from __future__ import annotations

import contextlib
import itertools
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, Uuid
from confluent_kafka.admin import AdminClient
from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from tests.kafka.test_source import strings, texts

from kafka import KafkaProducer, TopicPartition
from millstream.common import WatermarkStrategy
from millstream.connectors.kafka import reader
from millstream.connectors.kafka.client import KafkaCluster
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
    limit = time.monotonic() + 120
    while True:
        with contextlib.suppress(UnknownTopicOrPartitionError):
            broker.delete(topic)
        try:
            broker.admin.create_topics([NewTopic(topic, 1, 1)])
        except TopicAlreadyExistsError:  # a client that asked for it in between has made it
            assert time.monotonic() < limit
        else:
            return


@pytest.mark.both_engines
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


@pytest.mark.both_engines
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


@pytest.mark.both_engines
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
    # Two producers: to a fetch that begins behind the aborted transaction, this broker lists it as
    # aborted still, so that clients would drop what the same producer wrote later.
    committing, aborting = (
        Producer({"bootstrap.servers": broker.servers, "transactional.id": f"{topic}-{each}"})
        for each in "ab"
    )
    committing.init_transactions()
    aborting.init_transactions()
    for producer, value, count, end in [
        (committing, b"first", 1, committing.commit_transaction),
        (aborting, b"x" * 1000, 40_000, aborting.abort_transaction),
        (committing, b"last", 1, committing.commit_transaction),
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
    shared = reader.range_consumer(source.properties).partitions.opened
    client = shared.client

    class Counted:
        def incremental_assign(self, places: list[Any]) -> None:
            assigned.append(places[0].offset)
            client.incremental_assign(places)

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
    assert assigned == [0]  # all ranges follow each other
    # A range that does not follow is read as ever.
    assert sum(len(batch.timestamps or ()) for batch in source.read(split, 0, stop)) == len(read)
    assert assigned[1:] == [0]


def test_much_that_is_dropped_is_progress() -> None:
    shared = reader.OpenConsumer()
    shared.count('{"rx_bytes": 1000}')
    began = time.monotonic()
    for received in (8_000, 15_000):  # answers without records
        shared.count(f'{{"rx_bytes": {received}}}')
    assert shared.busy < began
    shared.count('{"rx_bytes": 1000000}')
    assert shared.busy >= began


class TopicIds:
    """Topic ids (KIP-516), which the broker of these tests does not give: librdkafka's answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        #: Of all topics; 0: the brokers give none.
        self.number = 1
        self.asked = 0
        self.error: KafkaError | None = None
        monkeypatch.setattr(AdminClient, "describe_topics", self._describe)

    def _describe(self, wanted: Any, **_options: object) -> dict[str, Future[Any]]:
        self.asked += 1
        answer: Future[Any] = Future()
        if self.error is not None:
            answer.set_exception(KafkaException(self.error))
        else:
            answer.set_result(SimpleNamespace(topic_id=Uuid(0, self.number)))
        return dict.fromkeys(wanted.topic_names, answer)


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch) -> TopicIds:
    return TopicIds(monkeypatch)


DISCOVERS = ("partition.discovery.interval.ms", "1")


@pytest.mark.both_engines
@pytest.mark.parametrize(
    ("restarted", "bounded"),
    [(True, True), (True, False), (False, False)],  # a bounded source finds partitions once a run
)
def test_a_topic_that_was_made_anew_and_is_longer(
    broker: Broker, tmp_path: Path, ids: TopicIds, *, restarted: bool, bounded: bool
) -> None:
    topic = broker.topic()
    broker.send(topic, texts(range(10)))
    builder = strings(broker, topic).set_property(*DISCOVERS)
    if bounded:
        builder.set_bounded(KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 20}))
    cluster = MiniCluster(job(builder.build()), tmp_path)
    assert cluster.run_epoch()
    make_anew(broker, topic)
    producer = Producer({"bootstrap.servers": broker.servers})  # that of ``broker`` knows the old
    for value in texts(range(100, 120)):
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    ids.number = 2
    if restarted:
        cluster = MiniCluster(job(builder.build()), tmp_path)
    with pytest.raises(SourceError, match=r"recreated since topic-.*-0 was found.*check\.topic"):
        cluster.run_epoch()
    builder.set_property("check.topic.ids", "false")
    assert MiniCluster(job(builder.build()), tmp_path).run_epoch()


@pytest.mark.both_engines
@pytest.mark.parametrize("first", [0, 1])
def test_ids_that_brokers_or_checkpoints_lack(
    broker: Broker, tmp_path: Path, ids: TopicIds, capsys: pytest.CaptureFixture[str], first: int
) -> None:
    topic = broker.topic()
    ids.number = first
    source = strings(broker, topic).set_property(*DISCOVERS)
    for number in range(2):
        broker.send(topic, texts([number]))
        assert MiniCluster(job(source.build()), tmp_path).run_epoch()
        ids.number = 1 - first
    assert sorted(set(capsys.readouterr().out.split())) == ["r0", "r1"]


@pytest.mark.both_engines
def test_ids_are_asked_for_with_the_partitions_only(
    broker: Broker, tmp_path: Path, ids: TopicIds
) -> None:
    topic = broker.topic()
    cluster = MiniCluster(job(strings(broker, topic).build()), tmp_path)
    for number in range(3):
        broker.send(topic, texts([number]))
        assert cluster.run_epoch()
    assert ids.asked == 1


@pytest.mark.both_engines
def test_a_topic_that_is_not_needed_any_more(broker: Broker, tmp_path: Path, ids: TopicIds) -> None:
    topic = broker.topic()
    broker.send(topic, texts(range(3)))
    source = strings(broker, topic).set_bounded(KafkaOffsetsInitializer.latest())
    assert MiniCluster(job(source.build()), tmp_path).run_epoch()
    ids.number = 2
    last = MiniCluster(job(source.build()), tmp_path).run()
    assert last is not None
    assert last.final


def test_brokers_that_do_not_tell_ids(broker: Broker, ids: TopicIds) -> None:
    source = strings(broker, broker.topic()).build()
    ids.error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    (split,) = source.discover(frozenset())
    assert source.end_offset(split) == 0
    ids.error = KafkaError(KafkaError._TIMED_OUT)
    source.start()
    with pytest.raises(SourceError, match="cannot ask for topic 'topic-"):
        source.discover(frozenset())


def test_a_broker_without_ids(broker: Broker) -> None:
    topic = broker.topic()
    cluster = KafkaCluster({"bootstrap.servers": broker.servers}, SourceError, "a test")
    assert cluster.topic_ids([topic, "nowhere"]) == {topic: ""}
    assert cluster.topic_ids([]) == {}


@pytest.mark.parametrize("reset", ["latest", "earliest"])
def test_records_that_retention_left(broker: Broker, reset: str) -> None:
    topic = broker.topic()
    broker.send(topic, texts(range(10)))
    source = strings(broker, topic).set_property("auto.offset.reset", reset).build()
    (split,) = source.discover(frozenset())
    place = TopicPartition(topic, 0)
    broker.admin.delete_records({place: 4})
    reading = source.read(split, 0, 10)
    if reset == "latest":  # as if the six that are left had been read
        with pytest.raises(SourceError, match="the topic has 4 to 10: the topic's retention"):
            list(reading)
    else:
        assert sum(len(batch.timestamps or ()) for batch in reading) == 6


def test_an_offset_that_nobody_told_is_no_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka gives -1001 where there is no answer: no sign of a topic that was recreated."""
    topic = broker.topic()
    cluster = KafkaCluster({"bootstrap.servers": broker.servers}, SourceError, "a test")
    partition = KafkaTopicPartition(topic, 0)

    def answer(asked: Any, **_: Any) -> dict[Any, Future[Any]]:
        futures: dict[Any, Future[Any]] = {each: Future() for each in asked}
        for each in futures.values():
            each.set_result(SimpleNamespace(offset=offset))
        return futures

    monkeypatch.setattr(cluster, "_client", SimpleNamespace(list_offsets=answer))
    offset = -1
    assert cluster.offsets({partition: 10**15}) == {partition: -1}
    offset = -1001
    with pytest.raises(SourceError, match=f"gave no answer about offsets of {topic}-0"):
        cluster.offsets({partition: "latest"})
