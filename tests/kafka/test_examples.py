"""Programs of the shape of PyFlink's five examples of Kafka: what they write is there, and read.

Each writes with the sink's default guarantee, NONE, and ends; then it reads its topic from the
start, on the local engine, whose workers end with the job.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.environments import environments

from millstream.common import ByteArraySchema, Row, Types, WatermarkStrategy
from millstream.common.serialization import RowFieldExtractorSchema
from millstream.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from millstream.datastream.formats.avro import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)
from millstream.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from millstream.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.kafka.broker import Broker

    from millstream.datastream import StreamExecutionEnvironment

ROW = Types.ROW([Types.INT(), Types.STRING()])
BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
GREETINGS = [(1, "hi"), (2, "hello"), (3, "hi"), (4, "hello"), (5, "hi"), (6, "hello")]
AVRO = json.dumps(
    {
        "type": "record",
        "name": "TestRecord",
        "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}],
    }
)
FORMATS: dict[str, tuple[Any, Any]] = {
    "json": (
        JsonRowSerializationSchema.Builder().with_type_info(ROW).build(),
        JsonRowDeserializationSchema.Builder().type_info(ROW).build(),
    ),
    "csv": (
        CsvRowSerializationSchema.Builder(ROW).build(),
        CsvRowDeserializationSchema.Builder(ROW).build(),
    ),
    # The names of its fields are not those of the rows, which have none: they go by position.
    "avro": (
        AvroRowSerializationSchema(avro_schema_string=AVRO),
        AvroRowDeserializationSchema(avro_schema_string=AVRO),
    ),
}


@pytest.fixture
def env(tmp_path: Path) -> StreamExecutionEnvironment:
    return environments(tmp_path, {"execution.target": "local"})(1)


def sink(broker: Broker, topic: str, value: Any, key: Any = None) -> Any:
    serializer = KafkaRecordSerializationSchema.builder().set_topic(topic)
    serializer.set_value_serialization_schema(value)
    if key is not None:
        serializer.set_key_serialization_schema(key)
    builder = KafkaSink.builder().set_record_serializer(serializer.build())
    return builder.set_bootstrap_servers(broker.servers).set_property("group.id", "test_group")


def read(env: StreamExecutionEnvironment, broker: Broker, topic: str, schema: Any) -> list[Any]:
    source = (
        KafkaSource.builder()
        .set_topics(topic)
        .set_value_only_deserializer(schema)
        .set_properties({"bootstrap.servers": broker.servers, "group.id": "test_group_1"})
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .build()
    )
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "kafka source")
    return list(stream.execute_and_collect())


@pytest.mark.parametrize("name", FORMATS)
def test_rows_in_a_format(name: str, env: StreamExecutionEnvironment, broker: Broker) -> None:
    writes, reads = FORMATS[name]
    topic = broker.topic()
    greetings = env.from_collection(GREETINGS, type_info=ROW)
    greetings.sink_to(sink(broker, topic, writes).build())
    env.execute()
    assert [tuple(row) for row in read(env, broker, topic, reads)] == GREETINGS


def test_bytes(env: StreamExecutionEnvironment, broker: Broker) -> None:
    countries = [json.dumps({"id": at, "country": each}) for at, each in enumerate(("USA", "Peru"))]
    topic = broker.topic()
    rows = [(each.encode("utf-8"),) for each in countries]
    stream = env.from_collection(rows, type_info=Types.ROW([BYTES]))
    stream = stream.map(lambda row: row[0], output_type=BYTES)
    stream.sink_to(sink(broker, topic, ByteArraySchema()).build())
    env.execute()
    assert [each.decode("utf-8") for each in read(env, broker, topic, ByteArraySchema())] == (
        countries
    )


def test_fields_of_rows_as_key_and_value(env: StreamExecutionEnvironment, broker: Broker) -> None:
    topic = broker.topic()
    rows = [Row(f"user-{at}".encode(), json.dumps({"item": at}).encode()) for at in range(3)]
    built = sink(broker, topic, RowFieldExtractorSchema(1), RowFieldExtractorSchema(0))
    built = built.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).build()
    env.from_collection(rows, type_info=Types.ROW([BYTES, BYTES])).sink_to(built)
    env.execute("Kafka RowFieldExtractorSchema Example")
    written = [(record.key, record.value) for record in broker.read(topic)]
    assert written == [tuple(row) for row in rows]
