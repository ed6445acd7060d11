"""A transaction that is given up while its records travel: nothing of it may land behind its end.

The proxy delays Produce, so that whatever ends the transaction overtakes it.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest
from kafka.admin import PartitionProducerState, ProducerState
from tests.coordination.slow_proxy import SlowProxy
from tests.kafka.broker import running_broker
from tests.kafka.test_sink import context, exactly_once, texts, values

from kafka import KafkaAdminClient
from millstream.cli.main import main
from millstream.connectors.kafka import producers
from millstream.connectors.kafka.client import KafkaCluster, KafkaTopicPartition
from millstream.connectors.kafka.transactions import TransactionControl, find_hanging
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.broker import Broker

    from millstream.connectors.kafka.producers import PooledProducer
    from millstream.connectors.kafka.sink import KafkaSink

#: Seconds that a Produce takes.
DELAY = 0.3
PATIENCE = 60.0


@pytest.fixture
def proxy(broker: Broker) -> Iterator[SlowProxy]:
    with SlowProxy(int(broker.servers.rpartition(":")[2]), DELAY) as slow:
        yield slow


@pytest.fixture(autouse=True)
def no_producers() -> Iterator[None]:
    yield
    producers.discard_producers()


def through(proxy: SlowProxy, broker: Broker, topic: str) -> KafkaSink:
    sink = exactly_once(broker, topic).set_property("linger.ms", "0")
    return sink.set_bootstrap_servers(f"127.0.0.1:{proxy.port}").build()


def write(proxy: SlowProxy, sink: KafkaSink, epoch: int) -> Any:
    """A writer whose records are on their way."""
    writer: Any = sink.create_writer(context(epoch, attempt=f"attempt-{epoch}"))
    before, limit = proxy.delayed, time.monotonic() + PATIENCE
    writer.write(texts(*map(str, range(200))))
    while proxy.delayed == before:
        assert time.monotonic() < limit, "no record was sent"
        time.sleep(0.001)
    return writer


def stuck(broker: Broker, topic: str) -> tuple[int, int]:
    """Last stable offset and end."""
    cluster = KafkaCluster({"bootstrap.servers": broker.servers}, SinkError, "test")
    place = KafkaTopicPartition(topic, 0)
    wanted = {place: "latest"}
    return cluster.offsets(wanted, committed_only=True)[place], cluster.offsets(wanted)[place]


def test_a_worker_gives_up_with_records_on_the_wire(broker: Broker, proxy: SlowProxy) -> None:
    topic = broker.topic()
    sink = through(proxy, broker, topic)
    for epoch in range(3):
        write(proxy, sink, epoch).abort()
    proxy.drain(PATIENCE)
    control = TransactionControl({"bootstrap.servers": broker.servers})
    assert control.open_transactions(topic) == []  # it did not wait for the driver to do it
    control.close()
    broker.send(topic, [b"after"])
    assert values(broker, topic) == ["after"]
    assert len(set(stuck(broker, topic))) == 1


def test_others_end_a_transaction_with_records_on_the_wire(
    broker: Broker, proxy: SlowProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver ends an orphan, and so does the command line, while its writer lives."""
    topic = broker.topic()
    sink = through(proxy, broker, topic)
    orphan = write(proxy, sink, 1)
    committer = sink.create_committer()
    assert committer is not None
    committer.abort_orphans("job", "uid", [], 1)
    committer.close()
    writer = write(proxy, sink, 2)
    name = writer._producer.transactional_id
    where = ["--bootstrap-servers", broker.servers]
    assert main(["transactions", "abort", name, "--force", *where]) == 0
    assert capsys.readouterr().out == f"{name}: aborted\n"
    proxy.drain(PATIENCE)
    broker.send(topic, [b"after"])
    assert values(broker, topic) == ["after"]
    assert len(set(stuck(broker, topic))) == 1
    for given_up in (orphan, writer):
        given_up.abort()


def hang(broker: Broker, proxy: SlowProxy, topic: str) -> None:
    """Leave a transaction that no coordinator knows, as an abort by EndTxn does."""
    for epoch in itertools.count():
        writer = write(proxy, through(proxy, broker, topic), epoch)
        held: PooledProducer = writer._producer
        held.client.purge()
        held.client.abort_transaction(PATIENCE)
        proxy.drain(PATIENCE)
        limit = time.monotonic() + 1
        while time.monotonic() < limit:
            stable, end = stuck(broker, topic)
            if stable < end:
                return
        assert epoch < 5, "the broker no longer lets transactions hang"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Broker]:
    """A broker that may be left with a partition that hangs."""
    with running_broker(tmp_path) as started:
        yield started


def test_hanging_transactions_are_found(
    own: Broker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, healthy = own.topic(), own.topic()
    with SlowProxy(int(own.servers.rpartition(":")[2]), DELAY) as proxy:
        hang(own, proxy, topic)
        opened = write(proxy, through(proxy, own, healthy), 1)  # holds up, and its end will come
        opened._producer.flush()
    stable, end = stuck(own, topic)
    assert main(["transactions", "list", "--bootstrap-servers", own.servers]) == 0
    shown = capsys.readouterr().out
    assert "0 open transactions begin with 'millstream'" in shown
    assert (
        f"hanging: {topic}-0 stands still for readers with read_committed at offset {stable}, the"
        f" log ends at {end}\n"
    ) in shown
    assert (
        f"    kafka-transactions.sh --bootstrap-server {own.servers} abort --topic {topic}"
        f" --partition 0 --start-offset {stable}\n"
    ) in shown
    assert f"hanging: {healthy}" not in shown

    # The broker of the tests does not name producers; Kafka does.
    known = TransactionControl({"bootstrap.servers": own.servers})
    (info,) = [each for each in known.unfinished() if f"{healthy}-0" in each.partitions]

    def describe(_: KafkaAdminClient, places: list[Any]) -> dict[Any, Any]:
        hanging = ProducerState(77, 3, 9, 0, -1, stable)
        finished = ProducerState(78, 0, 9, 0, 4, -1)
        healthy_one = ProducerState(info.producer_id, 0, 9, 0, 4, 0)
        both = {topic: [hanging, finished], healthy: [healthy_one]}
        return {place: PartitionProducerState(both.get(place.topic, [])) for place in places}

    monkeypatch.setattr(KafkaAdminClient, "describe_producers", describe)
    found = find_hanging({"bootstrap.servers": own.servers}, known)
    known.close()
    (mine,) = [each for each in found if each.partition.topic in {topic, healthy}]
    assert mine.producer is not None
    assert mine.remedy("broker:9092").endswith(
        f"--topic {topic} --partition 0 --producer-id 77 --producer-epoch 3 --coordinator-epoch 0"
    )
