"""The job of the kill tests: Kafka, a running count per key, Kafka, exactly-once.

Run as ``python kafka_job.py SERVERS INPUT OUTPUT CHECKPOINTS``; in this process, without Spark.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.common import Configuration, Row, Types, WatermarkStrategy
from millstream.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from millstream.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.graph.model import JobGraph

RECORDS = 200
PER_EPOCH = 40
EVENT = Types.ROW_NAMED(["id", "key"], [Types.LONG(), Types.STRING()])
RESULT = Types.ROW_NAMED(["key", "n", "id"], [Types.STRING(), Types.LONG(), Types.LONG()])


class Count(KeyedProcessFunction):
    """Numbers the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield Row(key=value.key, n=count, id=value.id)


def key_of(row: Any) -> bytes:
    """The key of a result."""
    key: str = row.key
    return key.encode()


def environment(
    servers: str,
    read: str,
    written: str,
    checkpoints: str | None = None,
    *,
    stop: KafkaOffsetsInitializer | None = None,
    before: MapFunction | None = None,
    settings: Mapping[str, str] | None = None,
) -> StreamExecutionEnvironment:
    """The job, not executed.

    Args:
        servers: of the broker.
        read: the topic of the events.
        written: the topic of the results.
        checkpoints: their directory.
        stop: where the input ends; what is there at the start, by default.
        before: maps the events.
        settings: more of them.
    """
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(read)
        .set_group_id(read)
        .set_bounded(stop or KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(
            JsonRowDeserializationSchema.builder().type_info(EVENT).build()
        )
        .build()
    )
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(written)
        .set_key_serialization_schema(key_of)
        .set_value_serialization_schema(JsonRowSerializationSchema.builder().build())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(written)
        .set_property("linger.ms", "0")
        .build()
    )
    configuration = Configuration()
    for key, value in (settings or {}).items():
        configuration.set_string(key, value)
    if checkpoints is not None:
        configuration.set_string("execution.checkpointing.dir", checkpoints)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    stream = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "kafka").uid(
        "events"
    )
    if before is not None:
        stream = stream.map(before, EVENT).uid("before")
    counts = stream.key_by(lambda row: row.key).process(Count(), RESULT).uid("counts")
    counts.sink_to(sink).uid("results")
    return env


def job_graph(servers: str, read: str, written: str) -> JobGraph:
    """The job's graph."""
    return environment(servers, read, written).get_job_graph("kafka to kafka")


if __name__ == "__main__":
    made = job_graph(*sys.argv[1:4])
    for node in made.nodes.values():
        if node.source is not None:
            node.source.validate()
        if node.sink is not None:
            node.sink.validate()
    MiniCluster(made, Path(sys.argv[4]), limits=itertools.repeat(PER_EPOCH)).run()
    for node in made.nodes.values():
        if node.source is not None:
            node.source.stop()  # as on Spark: offsets that were told are waited for
