"""Tables and streams in Kafka whose schemas are in a registry, end to end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.forked import run_forked
from tests.support.query_running import changelog, environment, insert, materialised
from tests.support.registry_server import RegistryServer

from millstream.errors import ConfigurationError, MalformedRecordError
from millstream.testing.crash import run_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.broker import Broker

    from millstream.table import TableEnvironment


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def create(
    env: TableEnvironment,
    broker: Broker,
    name: str,
    columns: str,
    topic: str,
    options: dict[str, str],
) -> None:
    given = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": broker.servers,
        "scan.bounded.mode": "latest-offset",
        **options,
    }
    if given["connector"] == "kafka":
        given["scan.startup.mode"] = "earliest-offset"
    text = ", ".join(f"'{key}' = '{each}'" for key, each in given.items())
    env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({text})")


def avro(registry: RegistryServer, **more: str) -> dict[str, str]:
    given = {"url": registry.url, **more}
    return {"format": "avro-confluent"} | {
        f"avro-confluent.{key}": each for key, each in given.items()
    }


@pytest.mark.both_engines
def test_rows_go_into_a_topic_and_come_back(
    broker: Broker, registry: RegistryServer, tmp_path: Path
) -> None:
    env = environment(2)
    topic = broker.topic(2)
    columns = "id BIGINT NOT NULL, name STRING, seen TIMESTAMP(3)"
    create(
        env,
        broker,
        "t",
        columns,
        topic,
        {**avro(registry), "sink.delivery-guarantee": "exactly-once"},
    )
    insert(
        env, "INSERT INTO t VALUES (1, 'a', TIMESTAMP '2024-01-01 00:00:00.25'), (2, NULL, NULL)"
    )
    query = "SELECT id, name, CAST(seen AS STRING) FROM t"
    expected = {(1, "a", "2024-01-01 00:00:00.250"): 1, (2, None, None): 1}
    assert materialised(changelog(env, query, tmp_path)) == expected
    read = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    context = SerializationContext(topic, MessageField.VALUE)
    written = [read(each.value, context) for each in broker.read(topic)]
    assert sorted(each["id"] for each in written) == [1, 2]
    assert list(registry.subjects) == [f"{topic}-value"]


def test_an_upsert_table_with_a_schema_for_keys_and_one_for_values(
    broker: Broker, registry: RegistryServer, tmp_path: Path
) -> None:
    env = environment(1)
    topic = broker.topic()
    options = {"connector": "upsert-kafka"}
    for part in ("key", "value"):
        options[f"{part}.format"] = "avro-confluent"
        options[f"{part}.avro-confluent.url"] = registry.url
    create(
        env,
        broker,
        "counts",
        "name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED",
        topic,
        options,
    )
    env.execute_sql("CREATE TEMPORARY VIEW clicks (name) AS VALUES ('a'), ('b'), ('a')")
    insert(env, "INSERT INTO counts SELECT name, COUNT(*) FROM clicks GROUP BY name")
    assert materialised(changelog(env, "SELECT * FROM counts", tmp_path)) == {
        ("a", 2): 1,
        ("b", 1): 1,
    }
    assert sorted(registry.subjects) == [f"{topic}-key", f"{topic}-value"]


def test_a_message_that_cannot_be_read_is_named_with_its_offset(
    broker: Broker, registry: RegistryServer, tmp_path: Path
) -> None:
    env = environment(1)
    topic = broker.topic()
    create(env, broker, "t", "id INT", topic, avro(registry))
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    write: Any = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(schema))
    context = SerializationContext(topic, MessageField.VALUE)
    broker.send(topic, [write({"id": 1}, context), b"\0\0\0\0\x07\x02"])
    place = rf"topic '{topic}', partition 0, offset 1: malformed record: .* schema id 7: 404"
    with pytest.raises(MalformedRecordError, match=place):
        changelog(env, "SELECT * FROM t", tmp_path)


def test_an_incompatible_schema_is_refused_when_the_job_is_submitted(
    broker: Broker, registry: RegistryServer
) -> None:
    env = environment(1)
    topic = broker.topic()
    create(env, broker, "older", "id INT NOT NULL", topic, avro(registry))
    create(env, broker, "newer", "id STRING NOT NULL", topic, avro(registry))
    insert(env, "INSERT INTO older VALUES (1)", validated=True)
    with pytest.raises(ConfigurationError, match=f"refuses the schema for subject '{topic}-value'"):
        insert(env, "INSERT INTO newer VALUES ('x')", validated=True)
    assert len(broker.read(topic)) == 1


JOB = Path(__file__).parent / "registry_job.py"
#: Where the job is killed, start after start.
CHAIN = (
    "kafka.marker.before:1",
    "kafka.marker.after:2",
    "kafka.commit.before:2",
    "kafka.commit.after:1",
    "manifest.publish.after:1",
)


@pytest.mark.slow
@pytest.mark.extended
@pytest.mark.usefixtures("forks")
def test_killed_around_the_commit(broker: Broker, registry: RegistryServer, tmp_path: Path) -> None:
    topics = broker.topic(partitions=2, name="events"), broker.topic(partitions=2, name="results")
    context = SerializationContext(topics[0], MessageField.VALUE)
    client = SchemaRegistryClient({"url": registry.url})
    # Half of the records have an older schema, without the name.
    fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}]
    for start in (0, 100):
        schema = json.dumps({"type": "record", "name": "Event", "fields": fields})
        write: Any = AvroSerializer(client, schema)
        records = [{"id": each, "name": f"n{each}"} for each in range(start, start + 100)]
        broker.send(topics[0], [write(each, context) for each in records])
        fields.append({"name": "name", "type": ["null", "string"], "default": None})
    (tmp_path / "runs").mkdir()
    arguments = [broker.servers, registry.url, *topics, str(tmp_path / "checkpoints")]
    for number, point in enumerate(CHAIN):
        directory = tmp_path / "runs" / str(number)
        run = run_forked(JOB, arguments, directory=directory, crash=point, deadline=200.0)
        assert run.killed, f"crash point {point} was not reached\n{run.output}"
    last = tmp_path / "runs" / "last"
    run = run_once([sys.executable, str(JOB), *arguments], directory=last, deadline=200.0)
    assert run.exit_code == 0, run.output
    read = AvroDeserializer(client)
    context = SerializationContext(topics[1], MessageField.VALUE)
    written = [read(each.value, context) for each in broker.read(topics[1])]
    found = sorted((each["id"], each["name"]) for each in written)
    assert found == [(each, None if each < 100 else f"N{each}") for each in range(200)]
