"""Kafka brokers that take connections and never answer: an error in time, nothing lost."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING

import pytest
from tests.coordination.patience import SHORT
from tests.databases.database_job import PER_EPOCH, cluster, expected, job_graph
from tests.databases.kill_chain import check

from millstream.checkpoint.commit import CommitRetry
from millstream.connectors.kafka import client
from millstream.connectors.kafka.producers import discard_producers
from millstream.connectors.kafka.serialization import KafkaRecordSerializationSchema
from millstream.connectors.kafka.sink import KafkaSink
from millstream.connectors.kafka.transactions import TransactionControl
from millstream.contracts.sink import DeliveryGuarantee
from millstream.datastream.formats.json import JsonRowSerializationSchema
from millstream.errors import SinkError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.coordination.proxy import HangingProxy
    from tests.kafka.broker import Broker

    Disturb = Callable[[str, Callable[[], None]], None]

#: Seconds that a run may take to end in spite of brokers that hang.
LONGEST = 300.0
#: Milliseconds that librdkafka waits for answers; with the marker it takes no notice of others.
ANSWERS = "3000"
#: The number of EndTxn in Kafka's protocol, behind the length of the request.
END_TXN = b"\x00\x1a"


@pytest.fixture
def topic(broker: Broker) -> Iterator[str]:
    yield broker.topic(2)
    discard_producers()


def sink(servers: str | int, topic: str, answers: str = "60000") -> KafkaSink:
    """Exactly-once; its patience is that of ``patience.py``."""
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_value_serialization_schema(JsonRowSerializationSchema.builder().build())
        .build()
    )
    address = servers if isinstance(servers, str) else f"127.0.0.1:{servers}"
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(address)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(topic)
        .set_property("linger.ms", "0")
        .set_property("socket.timeout.ms", answers)
        .build()
    )


def read(broker: Broker, topic: str) -> list[tuple[str, int, int]]:
    """What a reader with read_committed sees."""
    rows = [json.loads(record.value) for record in broker.read(topic)]
    return [(row["key"], row["n"], row["id"]) for row in rows]


def finish(broker: Broker, topic: str, checkpoints: Path) -> None:
    """What a run without proxy makes of it."""
    cluster(sink(broker.servers, topic), checkpoints, seed=1).run()
    assert sorted(read(broker, topic)) == expected()
    control = TransactionControl({"bootstrap.servers": broker.servers})
    assert control.open_transactions(topic) == []
    control.close()


def test_at_the_start(
    broker: Broker,
    topic: str,
    kafka_proxy: HangingProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    through = sink(kafka_proxy.port, topic)
    through.validate()
    cluster(through, tmp_path / "checkpoints").run(2)
    kafka_proxy.hang()
    began = time.monotonic()
    with monkeypatch.context() as patched:
        patched.setattr(client, "TIMEOUT", SHORT)
        with pytest.raises(SinkError, match=r"Kafka sink to .*: no answer from the Kafka brokers"):
            through.validate()
    with pytest.raises(
        SinkError, match=r"no answer .*results-sink could not commit checkpoint 1 to Ka"
    ):
        cluster(through, tmp_path / "checkpoints")
    assert time.monotonic() - began < LONGEST
    kafka_proxy.resume()
    finish(broker, topic, tmp_path / "checkpoints")


@pytest.mark.parametrize("point", ["sink.prepare.before:5", "kafka.marker.before:5"])
def test_in_a_task(
    broker: Broker,
    topic: str,
    point: str,
    kafka_proxy: HangingProxy,
    disturb: Disturb,
    tmp_path: Path,
) -> None:
    """The epoch is rolled back: two epochs of 40 are visible and nothing of the third."""
    answers = ANSWERS if point.startswith("kafka.marker.") else "60000"
    job = cluster(sink(kafka_proxy.port, topic, answers), tmp_path / "checkpoints")
    disturb(point, kafka_proxy.hang)
    began = time.monotonic()
    with pytest.raises(SinkError, match=r"did not take|cannot be prepared"):
        job.run()
    assert time.monotonic() - began < LONGEST
    assert kafka_proxy.hangs == 1
    kafka_proxy.resume()
    assert len(read(broker, topic)) == 80
    finish(broker, topic, tmp_path / "checkpoints")


def test_in_the_commit(
    broker: Broker,
    topic: str,
    kafka_proxy: HangingProxy,
    disturb: Disturb,
    tmp_path: Path,
) -> None:
    """Tried again, given up with what is pending, and committed by the next run."""
    job = cluster(sink(kafka_proxy.port, topic), tmp_path / "checkpoints")
    job.coordinator._commits._retry = CommitRetry((0.0,))
    disturb("kafka.commit.before:5", kafka_proxy.hang)
    began = time.monotonic()
    with pytest.raises(
        SinkError,
        match=r"no answer from the brokers .* \(sink results-sink could not commit checkpoint 2 to"
        r" Kafka '127.0.0.1:\d+' in 2 tries\)\. Pending: 2 of sink results-sink",
    ):
        job.run()
    assert time.monotonic() - began < LONGEST
    kafka_proxy.resume()
    check(read(broker, topic), expected())
    finish(broker, topic, tmp_path / "checkpoints")


@pytest.mark.parametrize("point", ["kafka.commit.before:5", "kafka.commit.after:5"])
def test_in_the_commit_for_a_while(
    broker: Broker,
    topic: str,
    point: str,
    kafka_proxy: HangingProxy,
    disturb: Disturb,
    tmp_path: Path,
) -> None:
    """The second try goes through; what the first had sent arrives, too, and changes nothing."""
    job = cluster(sink(kafka_proxy.port, topic), tmp_path / "checkpoints")
    job.coordinator._commits._retry = CommitRetry((0.0,), lambda _: kafka_proxy.resume())
    disturb(point, kafka_proxy.hang)
    job.run()
    assert kafka_proxy.hangs == 1
    assert sorted(read(broker, topic)) == expected()


@pytest.mark.parametrize("fenced", [True, False])
def test_a_commit_that_arrives_in_the_middle_of_a_later_transaction(
    broker: Broker,
    topic: str,
    fenced: bool,
    kafka_proxy: HangingProxy,
    disturb: Disturb,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An EndTxn is delayed and sent again; it arrives when its producer has flushed more.

    The epoch then fails.  Without fencing it was committed, and is written once more.
    """
    if not fenced:
        monkeypatch.setattr(TransactionControl, "may_end_again", lambda self, which: False)

    def is_commit(data: bytes) -> bool:
        return data[4:6] == END_TXN and b"kafka-python" in data

    def arrive() -> None:
        assert kafka_proxy.held.is_set()
        kafka_proxy.late.set()
        assert kafka_proxy.arrived.wait(LONGEST)
        message = "the second epoch fails"
        raise SinkError(message)

    def run(servers: str | int) -> None:
        graph = job_graph(sink(servers, topic), parallelism=1)
        limits = itertools.repeat(PER_EPOCH)
        MiniCluster(graph, tmp_path / "checkpoints", limits=limits).run()

    kafka_proxy.hold = is_commit
    disturb("kafka.marker.before:2", arrive)
    with pytest.raises(SinkError, match="the second epoch fails"):
        run(kafka_proxy.port)
    run(broker.servers)
    rows = read(broker, topic)
    assert sorted(set(rows)) == expected()
    assert len(rows) == len(expected()) + (0 if fenced else PER_EPOCH)
