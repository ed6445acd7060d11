"""TLS and SASL through both clients, against a front that insists on them."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.kafka.kafka_job import environment
from tests.kafka.secure_front import SecureFront

from millstream.cli.main import main
from millstream.connectors.kafka.client import python_client_options, translated
from millstream.connectors.kafka.sink import KafkaSink
from millstream.connectors.kafka.source import KafkaSource
from millstream.errors import ConfigurationError, MillstreamError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.broker import Broker

    from millstream.graph.model import JobGraph

RECORDS = 60
#: Characters that a configuration might trip over.
CREDENTIALS = "the user", 'p"a;s s=w\\ord'


pytestmark = pytest.mark.usefixtures("own_clients")


def secured(servers: str, topics: tuple[str, str], properties: dict[str, str]) -> JobGraph:
    """The job of the kill tests, with more properties of source and sink."""
    made = environment(servers, *topics).get_job_graph("secured")
    for node in made.nodes.values():
        for connector in (node.source, node.sink):
            if isinstance(connector, KafkaSource | KafkaSink):
                connector.properties.update(properties)
                connector.validate()
    return made


def run_job(broker: Broker, front: SecureFront, tmp_path: Path, properties: dict[str, str]) -> None:
    """Run the job through the front; its results are read past it."""
    topics = broker.topic(name="events"), broker.topic(partitions=2, name="results")
    events = [{"id": i, "key": f"key-{i % 7}"} for i in range(RECORDS)]
    broker.send(topics[0], [json.dumps(event).encode() for event in events])
    graph = secured(front.servers, topics, properties)
    cluster = MiniCluster(graph, tmp_path / "checkpoints", limits=[25, 25, 25])
    try:
        cluster.run()
    finally:
        cluster.coordinator.close()
        for node in graph.nodes.values():
            if node.source is not None:
                node.source.stop()
    rows = [json.loads(record.value) for record in broker.read(topics[1])]
    assert sorted(row["id"] for row in rows) == list(range(RECORDS))
    assert Counter(row["key"] for row in rows) == Counter(event["key"] for event in events)
    assert front.admitted >= 3  # consumer, producer, and the driver that commits


def test_tls_with_a_certificate_of_the_client(broker: Broker, tmp_path: Path) -> None:
    front = SecureFront(broker.servers, tmp_path)
    properties = {
        "security.protocol": "ssl",  # librdkafka's spelling
        "ssl.ca.location": str(front.certificate),
        "ssl.certificate.location": str(front.certificate),
        "ssl.key.location": str(front.key),
    }
    with front.running():
        run_job(broker, front, tmp_path, properties)
        options = [f"-X{key}={value}" for key, value in properties.items()]
        command = ["transactions", "list", "--bootstrap-servers", front.servers]
        assert main([*command, *options]) == 0


def test_sasl_over_tls_by_java_names(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    front = SecureFront(broker.servers, tmp_path, CREDENTIALS)
    user, password = (text.replace("\\", "\\\\").replace('"', '\\"') for text in CREDENTIALS)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} username="{user}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(front.certificate),
    }
    with front.running():
        run_job(broker, front, tmp_path, properties)


@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_who_may_not_enter_is_told_at_submit(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setattr("millstream.connectors.kafka.client.TIMEOUT", 2.0)
    topics = broker.topic(), broker.topic()
    front = SecureFront(broker.servers, tmp_path, CREDENTIALS)
    other = tmp_path / "other"
    other.mkdir()
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": CREDENTIALS[0],
        "sasl.password": "wrong" if wrong == "password" else CREDENTIALS[1],
        "ssl.ca.location": str(front.certificate),
    }
    if wrong == "authority":
        stranger = SecureFront(broker.servers, other)
        properties["ssl.ca.location"] = str(stranger.certificate)
    with front.running(), pytest.raises(MillstreamError, match="no answer") as caught:
        secured(front.servers, topics, properties)
    assert topics[0] in str(caught.value)
    assert front.servers in str(caught.value)
    assert front.admitted == 0


BASE = {"bootstrap.servers": "somewhere:9092"}


@pytest.mark.parametrize(
    ("properties", "part"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS'; it may be PLAINTEXT, SASL_"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "can use GSSAPI, PL"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "needs sasl.username and"),
        ({"security.protocol": "SSL", "ssl.ca.location": "probe"}, "'probe'; exactly-once sinks"),
        ({"ssl.engine.location": "x"}, "ssl.engine.location cannot be used with exactly-once"),
        ({"ssl.truststore.location": "a.jks"}, "a.jks': Java key stores are not read. Export"),
    ],
)
def test_what_a_client_cannot_do_is_refused(properties: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        python_client_options(BASE | properties)
    assert part in str(caught.value)


def test_both_clients_are_told_the_same(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.touch()
    properties = BASE | {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "scram-sha-512",
        "sasl.jaas.config": 'x required username=me password="p;w";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "none",
        "linger.ms": "5",
    }
    native = translated(properties)
    assert native == BASE | {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "scram-sha-512",
        "sasl.username": "me",
        "sasl.password": "p;w",
        "ssl.certificate.location": str(pem),
        "ssl.key.location": str(pem),
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "none",
        "linger.ms": "5",
    }
    assert python_client_options(properties) == {
        "bootstrap_servers": "somewhere:9092",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "me",
        "sasl_plain_password": "p;w",
        "ssl_certfile": str(pem),
        "ssl_keyfile": str(pem),
        "ssl_password": "k",
        "ssl_check_hostname": False,
    }
    unverified = {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}
    context = python_client_options(BASE | unverified)["ssl_context"]
    assert not context.check_hostname
    assert context.verify_mode.name == "CERT_NONE"
