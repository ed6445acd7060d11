"""The Kafka source against a real broker; records are written by kafka-python."""

from __future__ import annotations

import gc
import io
import json
import socket
import time
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from kafka.structs import TopicPartition

from kafka import KafkaAdminClient, KafkaProducer
from millstream.common import ByteArraySchema, SimpleStringSchema, Types
from millstream.connectors.kafka import client, reader
from millstream.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from millstream.datastream.formats.avro import AvroRowDeserializationSchema
from millstream.datastream.formats.csv import CsvRowDeserializationSchema
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.errors import ConfigurationError, MalformedRecordError, SourceError
from millstream.testing.conformance import check_source, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.kafka.broker import Broker

    from millstream.connectors.kafka.source import KafkaRecord

ROW = Types.ROW_NAMED(["name", "count"], [Types.STRING(), Types.LONG()])


@pytest.fixture(autouse=True)
def consumers() -> Iterator[None]:
    yield
    reader.close_consumers()


def strings(broker: Broker, *topics: str) -> KafkaSourceBuilder:
    builder = KafkaSource.builder().set_bootstrap_servers(broker.servers)
    builder.set_value_only_deserializer(SimpleStringSchema())
    return builder.set_topics(*topics) if topics else builder


def read_all(source: KafkaSource) -> list[Any]:
    return [
        record
        for split in source.discover(frozenset())
        for record in read_records(
            source, split, source.start_offset(split), source.end_offset(split)
        )
    ]


def texts(numbers: Sequence[int]) -> list[bytes]:
    return [b"r%d" % number for number in numbers]


def transactional_producer(broker: Broker, identifier: str) -> KafkaProducer:
    producer = KafkaProducer(
        bootstrap_servers=broker.servers, transactional_id=identifier, enable_idempotence=True
    )
    producer.init_transactions()
    return producer


def test_contract_with_gaps(broker: Broker) -> None:
    topic = broker.topic(partitions=3)
    broker.send(topic, texts(range(50)), partition=0)
    # Two producers: to a fetch that begins behind an aborted transaction, this broker (Kafka does
    # not) lists it as aborted still, so that clients drop what the same producer wrote later.
    producer, aborting = (transactional_producer(broker, f"{topic}-{each}") for each in "ab")
    for number in range(9):  # every marker, and every aborted record, is a gap
        committed = number % 3 != 1
        writer = producer if committed else aborting
        writer.begin_transaction()
        for value in texts(range(number * 10, number * 10 + 5)):
            writer.send(topic, value, partition=1)
        writer.flush()  # else the abort takes records back that have not been sent
        if committed:
            writer.commit_transaction()
        else:
            writer.abort_transaction()
    aborting.close()
    source = strings(broker, topic).build()
    check_source(source, rounds=3)
    expected = [f"r{i}" for i in range(50)]
    expected += [f"r{n * 10 + i}" for n in range(9) if n % 3 != 1 for i in range(5)]
    assert read_all(source) == expected

    producer.begin_transaction()
    producer.send(topic, b"open", partition=1)
    producer.flush()
    assert read_all(source) == expected
    dirty = strings(broker, topic).set_property("isolation.level", "read_uncommitted").build()
    assert "open" in read_all(dirty)
    producer.abort_transaction()
    producer.close()
    assert read_all(source) == expected


def test_starting_and_stopping_offsets(broker: Broker) -> None:
    topic = broker.topic(partitions=2)
    now = int(time.time() * 1000)  # the broker deletes records of long ago
    for number in range(10):
        broker.send(topic, texts([number]), partition=0, timestamp_ms=now + number * 10)
    first, second = (KafkaTopicPartition(topic, each) for each in (0, 1))

    def read(start: KafkaOffsetsInitializer, stop: KafkaOffsetsInitializer | None = None) -> Any:
        builder = strings(broker, topic).set_starting_offsets(start).set_group_id(topic)
        source = (builder if stop is None else builder.set_bounded(stop)).build()
        return [int(each[1:]) for each in read_all(source)]

    offsets = KafkaOffsetsInitializer
    assert read(offsets.earliest()) == list(range(10))
    assert read(offsets.latest()) == []
    assert read(offsets.timestamp(now + 35)) == [4, 5, 6, 7, 8, 9]
    assert read(offsets.timestamp(now + 9999)) == []
    assert read(offsets.offsets({first: 7})) == [7, 8, 9]
    assert read(offsets.earliest(), offsets.offsets({first: 3, second: 0})) == [0, 1, 2]
    assert read(offsets.timestamp(now + 30), offsets.timestamp(now + 60)) == [3, 4, 5]
    with pytest.raises(SourceError, match=r"no start offset is known for .*EARLIEST"):
        read(offsets.committed_offsets())
    assert read(offsets.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)) == list(range(10))
    assert read(offsets.committed_offsets(KafkaOffsetResetStrategy.LATEST)) == []

    source = strings(broker, topic).set_group_id(topic).build()
    source.committed({f"{topic}-0": 6, f"{topic}-1": 0})
    source.stop()
    with KafkaAdminClient(bootstrap_servers=broker.servers) as admin:
        committed = admin.list_group_offsets(topic)
    assert committed[topic][TopicPartition(topic, 0)].offset == 6
    assert read(offsets.committed_offsets()) == [6, 7, 8, 9]
    assert read(offsets.earliest(), offsets.committed_offsets()) == list(range(6))
    assert read(offsets.earliest(), offsets.latest()) == list(range(10))
    others = KafkaOffsetResetStrategy.LATEST  # where a partition has no offset of its own
    assert read(offsets.offsets({second: 0}, others)) == []


def test_who_drops_a_source_behind_its_first_commit_is_not_held_up(broker: Broker) -> None:
    topic = broker.topic()
    source = strings(broker, topic).set_group_id(topic).build()
    source.committed({f"{topic}-0": 0})
    begun = time.monotonic()
    del source
    gc.collect()
    assert time.monotonic() - begun < 20, "it took 45 s, in whatever thread collects garbage"


def test_bounded_end_stays(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, texts(range(3)))
    source = strings(broker, topic).set_bounded(KafkaOffsetsInitializer.latest()).build()
    (split,) = source.discover(frozenset())
    broker.send(topic, texts(range(3, 6)))
    assert source.is_final(split)
    assert source.end_offset(split) == 3
    assert read_records(source, split, 0, 3) == ["r0", "r1", "r2"]


def test_new_partitions_are_found(broker: Broker) -> None:
    name = broker.topic(name="many")
    other = f"{name}-other"
    broker.send(name, texts([0]))
    source = (
        strings(broker)
        .set_topic_pattern(f"{name}(-other)?")
        .set_starting_offsets(KafkaOffsetsInitializer.latest())
        .set_property("partition.discovery.interval.ms", "1")
        .build()
    )
    (split,) = source.discover(frozenset())
    assert source.start_offset(split) == 1
    known = frozenset([split.id])
    assert source.discover(known) == []
    broker.admin.create_topics({other: {"num_partitions": 2, "replication_factor": 1}})
    broker.send(other, texts([1]), partition=1)
    found: list[Any] = []
    while not found:  # the planner looks again and again, too
        found = source.discover(known)
    assert [each.id for each in found] == [f"{other}-0", f"{other}-1"]
    assert read_records(source, found[1], 0, source.end_offset(found[1])) == ["r1"]


def test_keys_headers_and_timestamps(broker: Broker) -> None:
    topic = broker.topic()
    now = int(time.time() * 1000)
    broker.send(topic, [b"v"], key=b"k", headers=[("h", b"1"), ("h", b"2")], timestamp_ms=now)
    broker.send(topic, [None], key=b"k", timestamp_ms=now + 1)

    def show(record: KafkaRecord) -> Any:
        assert record.topic == topic
        return record.partition, record.offset, record.key, record.value, record.headers

    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(broker.servers)
        .set_partitions({KafkaTopicPartition(topic, 0)})
        .set_deserializer(show)
        .build()
    )
    (split,) = source.discover(frozenset())
    (batch,) = source.read(split, 0, 2)
    assert batch.values == [
        (0, 0, b"k", b"v", (("h", b"1"), ("h", b"2"))),
        (0, 1, b"k", None, ()),
    ]
    assert batch.timestamps == [now, now + 1]
    assert read_all(strings(broker, topic).build()) == ["v"]  # a tombstone has no value


AVRO = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "name", "type": "string"}, {"name": "count", "type": "long"}],
    }
)


def avro(record: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(AVRO)), record)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            JsonRowDeserializationSchema.builder().type_info(ROW).build(),
            [b'{"name": "a", "count": 1}', b'{"count": 2,\n "name": "b", "more": []}'],
            [b"{", b'{"name": "a", "count": "x"}', b"", b'{"name": "a"}\n{"name": "b"}'],
        ),
        (CsvRowDeserializationSchema(ROW), [b"a,1", b"b,2"], [b"a", b"a,b", b"a,1\nb,2"]),
        (
            AvroRowDeserializationSchema(AVRO, ROW),
            [avro({"name": "a", "count": 1}), avro({"name": "b", "count": 2})],
            [b"\x02", avro({"name": "a", "count": 1}) + b"x"],
        ),
    ],
)
def test_formats(broker: Broker, schema: Any, good: list[bytes], bad: list[bytes]) -> None:
    topic = broker.topic()
    rows = [("a", 1), ("b", 2)]
    broker.send(topic, good)
    builder = strings(broker, topic).set_value_only_deserializer(schema)
    assert [tuple(row) for row in read_all(builder.build())] == rows
    check_source(builder.build(), rounds=1)

    broker.send(topic, [*bad, *good])
    with pytest.raises(MalformedRecordError, match=rf"{topic}.* partition 0, offset 2: malformed"):
        read_all(builder.build())
    source = builder.set_malformed("dead-letter").build()
    (split,) = source.discover(frozenset())
    (batch,) = source.read(split, 0, source.end_offset(split))
    assert [tuple(row) for row in ROW.from_arrow(batch.arrow)] == rows + rows
    assert [each[0] for each in batch.dead_letters] == [
        f"{topic}-0:{2 + number}" for number in range(len(bad))
    ]
    assert batch.timestamps is not None
    assert len(batch.timestamps) == 4


def test_bytes_and_many_records(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, texts(range(20_000)))
    source = strings(broker, topic).set_value_only_deserializer(ByteArraySchema()).build()
    (split,) = source.discover(frozenset())
    batches = list(source.read(split, 0, 20_000))
    assert len(batches) > 1
    values = [value for batch in batches for value in source.produced_type.from_arrow(batch.arrow)]
    assert values == texts(range(20_000))


def test_errors(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match=r"no topic 'nowhere' at .*; topics there: "):
        strings(broker, "nowhere").build().validate()
    with socket.socket() as closed, monkeypatch.context() as patched:
        patched.setattr(client, "TIMEOUT", 0.3)
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        source = strings(broker, "x").set_bootstrap_servers(address).build()
        with pytest.raises(SourceError, match=rf"Kafka source of 'x': no answer .*{address}"):
            source.validate()
    with pytest.raises(ConfigurationError, match="there is no property"):
        strings(broker, "x").set_property("security.protokoll", "x").build().validate()
    with pytest.raises(ConfigurationError, match="exactly one of set_topics"):
        strings(broker).build()
    topic = broker.topic()
    source = strings(broker, topic).build()
    (split,) = source.discover(frozenset())
    with pytest.raises(SourceError, match=rf"offset 5 of {topic}-0 does not exist"):
        read_records(source, split, 5, 6)


def test_a_silent_broker_is_given_up(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PATIENCE", 0.3)
    topic = broker.topic()
    source = strings(broker, topic).build()
    (split,) = source.discover(frozenset())
    with pytest.raises(SourceError, match=rf"cannot read {topic}-0 from offset 0 to 1"):
        read_records(source, split, 0, 1)
