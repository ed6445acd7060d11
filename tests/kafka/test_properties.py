"""Properties of Kafka's clients: refused or translated at submit; and what the clients say."""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, Producer
from tests.kafka.broker import running_broker
from tests.kafka.test_sink import context, strings, texts

from millstream.common import SimpleStringSchema
from millstream.connectors.kafka import client, producers, reader
from millstream.connectors.kafka.client import ClientLog, KafkaTopicPartition
from millstream.datastream.connectors.kafka import DeliveryGuarantee, KafkaSink, KafkaSource
from millstream.errors import ConfigurationError, SinkError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.broker import Broker

NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def no_clients() -> Iterator[None]:
    yield
    producers.discard_producers()
    reader.close_consumers()
    client._warned.clear()


def sink(servers: str = NOWHERE, topic: str = "results", **set_: str) -> KafkaSink:
    builder = KafkaSink.builder().set_bootstrap_servers(servers)
    builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    for name, value in set_.items():
        builder.set_property(name.replace("_", "."), value)
    return builder.set_record_serializer(strings(topic)).build()


def source(servers: str = NOWHERE, topic: str = "events", **set_: str) -> KafkaSource:
    builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(topic)
    for name, value in set_.items():
        builder.set_property(name.replace("_", "."), value)
    return builder.set_value_only_deserializer(SimpleStringSchema()).build()


def test_the_names_are_librdkafkas() -> None:
    for name in client._ANY | client._PRODUCERS | client._CONSUMERS:
        try:
            Producer({name: "?", "logger": ClientLog("")})
        except (KafkaException, TypeError) as error:  # what "?" is not good for
            told = str(error)
        else:
            told = ""
        assert "No such configuration property" not in told, name


def test_what_is_unknown_is_refused_at_submit() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"^Kafka sink to 'results': there is no property 'akcs'; did you mean 'acks'\?",
    ):
        sink(akcs="all").validate()
    with pytest.raises(
        ConfigurationError,
        match=r"^Kafka source of 'events': there is no property 'max.request.sice'; did you mean"
        r" 'max.request.size'",
    ):
        source(max_request_sice="1").validate()
    with pytest.raises(ConfigurationError, match=r"there is no property 'zzz'\. Properties are"):
        sink(zzz="1").validate()
    with pytest.raises(
        ConfigurationError, match=r"Kafka sink to 'results': .*Invalid value .*acks"
    ):
        sink(acks="some").validate()
    with pytest.raises(ConfigurationError, match=r"transaction\.timeout\.ms"):
        sink(transaction_timeout_ms="1000", message_timeout_ms="900000").validate()
    with pytest.raises(
        ConfigurationError, match=r"partitioner\.class names a class of Java's; use"
    ):
        sink(partitioner_class="org.example.P").validate()


def test_javas_names_are_translated() -> None:
    given = {
        "bootstrap.servers": NOWHERE,
        "max.request.size": "2000000",
        "buffer.memory": "33554432",
        "send.buffer.bytes": "131072",
        "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "fetch.max.wait.ms": "50",
    }
    made = producers._configuration(given, {})
    assert made["message.max.bytes"] == "2000000"
    assert made["queue.buffering.max.kbytes"] == "32768"
    assert made["socket.send.buffer.bytes"] == "131072"
    assert not {"key.serializer", "fetch.wait.max.ms", *given} & made.keys() - {"bootstrap.servers"}
    assert reader._configuration(given)["fetch.wait.max.ms"] == "50"


def test_what_has_no_effect_is_said_once(caplog: pytest.LogCaptureFixture, broker: Broker) -> None:
    topic = broker.topic()
    made = sink(broker.servers, topic, fetch_min_bytes="1", group_id="g")
    made.validate()
    writer = made.create_writer(context(1))
    writer.write(texts("x"))
    writer.abort()
    said = [record.getMessage() for record in caplog.records if record.name == "millstream.kafka"]
    assert said == [
        f"Kafka sink to '{topic}' does nothing with the properties fetch.min.bytes, group.id"
    ]


def test_no_password_is_shown() -> None:
    secret = {
        "sasl_password": "s3cret",
        "ssl_key_password": "s3cret",
        "sasl_jaas_config": 'x required username="u" password="s3cret";',
        "ssl_key_pem": "s3cret",
        "sasl_oauthbearer_client_secret": "s3cret",
    }
    made: list[Any] = [sink(**secret), source(**secret)]
    made.append(producers._make({"bootstrap.servers": NOWHERE, "sasl.password": "s3cret"}, {}))
    for each in made:
        assert "s3cret" not in repr(each) + str(each)
    shown = repr(made[0])
    assert shown.startswith("<Kafka sink to 'results', EXACTLY_ONCE: {'bootstrap.servers': '127.0.")
    assert "'sasl.password': '******'" in shown
    assert repr(made[1]).startswith("<Kafka source of 'events': {")


@pytest.mark.extended
def test_brokers_that_are_down(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While they are away: a warning in all, and an error that says why, for each client."""
    with running_broker(tmp_path) as own:
        topic = own.topic()
        own.send(topic, [b"x"])
        made = sink(
            own.servers, topic, max_block_ms="2000", request_timeout_ms="2000", linger_ms="0"
        )
        made.validate()
        writer = made.create_writer(context(1))
        writer.write(texts("x"))
        committer = made.create_committer()
        assert committer is not None
        committer.abort_orphans("other", "uid", [], 1)
        from_topic = source(own.servers, topic)
        (split,) = from_topic.discover(frozenset())
        list(from_topic.read(split, 0, 1))
        os.killpg(own.pid, signal.SIGKILL)
        monkeypatch.setattr(reader, "PATIENCE", 2.0)  # of the message
        monkeypatch.setattr(reader, "PATIENCE", 2.0)
        monkeypatch.setattr(client, "TIMEOUT", 2.0)
        caplog.clear()
        writer.write(texts("y"))
        with pytest.raises(SinkError, match=r"did not take \d messages in 2 s \(.*refused"):
            writer.prepare_commit()
        writer.abort()
        with pytest.raises(SourceError, match=r"cannot read .* 1 to 2: .*refused.*, for 2 s\. Che"):
            list(reader.read_range(from_topic.properties, KafkaTopicPartition(topic, 0), 1, 2))
        with pytest.raises(SinkError, match=r"no answer from the brokers"):
            committer.abort_orphans("other", "uid", [], 1)
        with pytest.raises(SinkError, match=r"Kafka sink to .*: no answer .*refused"):
            made.validate()
        committer.close()
        from_topic.stop()
    said = [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]
    assert len(said) == 1
    assert said[0].startswith(f"no Kafka broker of '{own.servers}' can be reached: ")
    producers.discard_producers()
    reader.close_consumers()
    assert capfd.readouterr().err == ""
