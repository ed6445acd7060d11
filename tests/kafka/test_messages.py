"""What the Kafka sink makes of records: keys, values, headers, topics; of rows and of columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.kafka.test_sink import commit, context, exactly_once

from kafka import KafkaProducer
from millstream.common import Row, Types
from millstream.common.serialization import RowFieldExtractorSchema
from millstream.connectors.kafka import producers
from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.datastream.connectors.kafka import KafkaRecordSerializationSchema
from millstream.datastream.formats.avro import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)
from millstream.datastream.formats.csv import CsvRowSerializationSchema
from millstream.datastream.formats.json import JsonRowSerializationSchema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.broker import Broker


ROW = Types.ROW_NAMED(["name", "count"], [Types.STRING(), Types.LONG()])

ROW = Types.ROW_NAMED(["name", "count"], [Types.STRING(), Types.LONG()])


@pytest.fixture(autouse=True)
def no_producers() -> Iterator[None]:
    yield
    producers.discard_producers()


AVRO = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "name", "type": "string"}, {"name": "count", "type": "long"}],
    }
)


def test_messages(broker: Broker) -> None:
    topic, other = broker.topic(partitions=4), broker.topic()
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(lambda row: topic if row.count else other)
        .set_key_serialization_schema(lambda row: row.name.encode())
        .set_value_serialization_schema(JsonRowSerializationSchema.builder().build())
        .set_header_provider(lambda row: [("count", str(row.count).encode())])
        .build()
    )
    sink = exactly_once(broker, topic).set_record_serializer(serializer).build()
    now = 1_700_000_000_000_000_000 // 1_000_000
    rows: list[object] = [Row(name="a", count=1), Row(name='"b"\n', count=0)]
    writer = sink.create_writer(context(1))
    writer.write(Batch(ROW, values=rows, timestamps=[now * 2, now * 2 + 1]))
    commit(sink, list(writer.prepare_commit()), 1)
    (first,) = broker.read(topic)
    (second,) = broker.read(other)
    assert json.loads(first.value) == {"name": "a", "count": 1}
    assert json.loads(second.value) == {"name": '"b"\n', "count": 0}
    assert (first.key, first.timestamp, list(first.headers)) == (b"a", now * 2, [("count", b"1")])
    # The partition that Java's and Python's clients choose for the key.
    mine = KafkaProducer(bootstrap_servers=broker.servers)
    assert mine.send(topic, b"", key=b"a").get(60).partition == first.partition
    mine.close()

    batch = Batch(ROW, values=rows)
    csv = KafkaRecordSerializationSchema.builder().set_topic(topic)
    csv.set_value_serialization_schema(CsvRowSerializationSchema())
    assert [each["value"] for each in csv.build().messages(batch)[topic]] == [
        b"a,1",
        b'"""b""\n",0',
    ]
    avro = AvroRowSerializationSchema(AVRO)
    assert (
        AvroRowDeserializationSchema(AVRO).deserialize(avro.serialize(rows[0]))
        == (ROW.from_arrow(ROW.to_arrow(rows[:1]))[0])
    )


@pytest.mark.parametrize(
    "values",
    [JsonRowSerializationSchema.builder().build(), AvroRowSerializationSchema(AVRO)],
    ids=["json", "avro"],
)
@pytest.mark.parametrize("first", [("a", 1), Row("a", 1)], ids=["tuple", "row"])
def test_what_stands_for_a_row_without_names_gets_them(values: Any, first: object) -> None:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(lambda row: row.name)
        .set_key_serialization_schema(lambda row: str(row.count).encode())
        .set_value_serialization_schema(values)
        .set_header_provider(lambda row: [("name", row.name.encode())])
        .build()
    )
    nameless: list[object] = [first, Row(name="b", count=2)]
    rows: list[object] = [Row(name="a", count=1), Row(name="b", count=2)]
    made = serializer.messages(Batch(ROW, values=nameless))
    assert made == serializer.messages(Batch(ROW, values=rows))
    assert [(topic, message["key"]) for topic, (message,) in made.items()] == [
        ("a", b"1"),
        ("b", b"2"),
    ]


@pytest.mark.parametrize("columns", [True, False])
def test_fields_of_a_row_are_key_and_value(columns: bool) -> None:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic("topic")
        .set_key_serialization_schema(RowFieldExtractorSchema(0))
        .set_value_serialization_schema(RowFieldExtractorSchema(1))
        .build()
    )
    kind = Types.ROW([Types.PRIMITIVE_ARRAY(Types.BYTE())] * 2)
    rows: list[object] = [Row(b"a", b"1"), Row(b"b", b"2")]
    batch = Batch(kind, arrow=kind.to_arrow(rows)) if columns else Batch(kind, values=rows)
    made = serializer.messages(batch)["topic"]
    assert [(each["key"], each["value"]) for each in made] == [(b"a", b"1"), (b"b", b"2")]


def test_columns_become_messages_without_records() -> None:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic("topic")
        .set_value_serialization_schema(JsonRowSerializationSchema.builder().build())
        .build()
    )
    rows: list[object] = [Row(name="a", count=1), Row(name="b", count=2)]
    columns = Batch(ROW, arrow=ROW.to_arrow(rows))
    assert serializer.messages(columns) == serializer.messages(Batch(ROW, values=rows))
    assert columns._values is None


def test_messages_by_columns_are_those_one_by_one() -> None:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(lambda text: text[:1])
        .set_value_serialization_schema(lambda text: text.encode() if len(text) > 1 else None)
        .set_header_provider(lambda text: [("text", text.encode())])
        .build()
    )
    times = np.array([MIN_TIMESTAMP, 7, 0, 9])
    made = serializer.messages(
        Batch(Types.STRING(), values=["a1", "b", "a22", "a"], timestamps=times)
    )
    assert list(made["b"]) == [{"value": None, "timestamp": 7, "headers": [("text", b"b")]}]
    assert list(made["a"][1:]) == [
        {"value": b"a22", "headers": [("text", b"a22")]},
        {"value": None, "timestamp": 9, "headers": [("text", b"a")]},
    ]
    assert (made["a"].size, made["b"].size, len(made["a"])) == (5, 0, 3)
