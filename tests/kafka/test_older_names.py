"""The deprecated consumer and producer read and write as KafkaSource and KafkaSink do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kafka.test_source_jobs import run

from millstream.common import Row, SimpleStringSchema, Types, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.connectors.kafka import producers, reader
from millstream.datastream import SinkFunction, SourceFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.kafka import (
    DeliveryGuarantee,
    FlinkKafkaConsumer,
    FlinkKafkaProducer,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSink,
    KafkaSource,
    Semantic,
)
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.errors import ConfigurationError, ProgramError
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.broker import Broker

GROUP = {"bootstrap.servers": "nowhere:1", "group.id": "g"}


@pytest.fixture(autouse=True)
def no_clients() -> Iterator[None]:
    yield
    reader.close_consumers()
    producers.discard_producers()


class FirstNumber(TimestampAssigner):
    def extract_timestamp(self, value: Row, record_timestamp: int) -> int:
        return int(value[0])


@pytest.mark.both_engines
def test_a_topic_is_read(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic()
    broker.send(topic, [b"a", b"b"])
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    consumer = FlinkKafkaConsumer(
        topic, SimpleStringSchema(), {"bootstrap.servers": broker.servers, "group.id": topic}
    )
    assert consumer.get_produced_type() == Types.STRING()
    consumer.set_start_from_earliest().set_commit_offsets_on_checkpoints(False)
    env.add_source(consumer).sink_to(CollectSink(tmp_path / "out", fsync=False))
    run(env.get_job_graph("old"), tmp_path, epochs=1)
    assert list(read_collected(tmp_path / "out")) == ["a", "b"]


@pytest.mark.both_engines
@pytest.mark.parametrize("writes", [False, True])
def test_a_topic_is_written(broker: Broker, writes: bool) -> None:
    topic = broker.topic()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    rows = env.from_collection([Row(7), Row(8)], Types.ROW([Types.LONG()]))
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    timed = rows.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(FirstNumber()))
    producer = FlinkKafkaProducer(
        topic, SimpleStringSchema(), {"bootstrap.servers": broker.servers}
    )
    if writes:
        producer.set_write_timestamp_to_kafka(True)
    timed.map(lambda row: str(row[0]), Types.STRING()).add_sink(producer)
    MiniCluster(env.get_job_graph("old")).run()
    found = broker.read(topic)
    assert [each.value for each in found] == [b"7", b"8"]
    assert [each.timestamp in {7, 8} for each in found] == [writes, writes]


def test_the_source_begins_where_it_is_told() -> None:
    schema, offsets = SimpleStringSchema(), KafkaOffsetsInitializer
    committed = offsets.committed_offsets

    def start(consumer: SourceFunction) -> KafkaOffsetsInitializer:
        assert isinstance(consumer.source, KafkaSource)
        return consumer.source._start

    consumer = FlinkKafkaConsumer(["a", "b"], schema, GROUP | {"auto.offset.reset": "earliest"})
    assert isinstance(consumer.source, KafkaSource)
    assert consumer.source.topics == ("a", "b")
    assert consumer.source.properties["partition.discovery.interval.ms"] == "-1"
    assert start(consumer) == committed(KafkaOffsetResetStrategy.EARLIEST)
    assert start(consumer.set_start_from_latest()) == offsets.latest()
    assert start(consumer.set_start_from_timestamp(5)) == offsets.timestamp(5)
    assert start(consumer.set_start_from_earliest()) == offsets.earliest()
    consumer.disable_filter_restored_partitions_with_subscribed_topics()
    assert start(consumer.set_start_from_group_offsets()) == committed(
        KafkaOffsetResetStrategy.EARLIEST
    )
    assert start(FlinkKafkaConsumer("a", schema, GROUP)) == committed(
        KafkaOffsetResetStrategy.LATEST
    )
    interval = GROUP | {"flink.partition-discovery.interval-millis": "7"}
    again = FlinkKafkaConsumer("a", schema, interval).set_commit_offsets_on_checkpoints(False)
    assert isinstance(again.source, KafkaSource)
    assert again.source.properties["partition.discovery.interval.ms"] == "7"
    assert again.source.properties["commit.offsets.on.checkpoint"] == "false"


def test_the_guarantee_of_the_sink() -> None:
    def guarantee(producer: SinkFunction) -> DeliveryGuarantee:
        assert isinstance(producer.sink, KafkaSink)
        return producer.sink.guarantee

    producer = FlinkKafkaProducer("t", SimpleStringSchema(), GROUP)
    assert guarantee(producer) is DeliveryGuarantee.AT_LEAST_ONCE
    assert guarantee(producer.set_flush_on_checkpoint(False)) is DeliveryGuarantee.NONE
    assert guarantee(producer.set_flush_on_checkpoint(True)) is DeliveryGuarantee.AT_LEAST_ONCE
    exact = FlinkKafkaProducer("t", SimpleStringSchema(), GROUP, 3, Semantic.EXACTLY_ONCE)
    exact.set_flush_on_checkpoint(True).set_log_failures_only(False)
    assert guarantee(exact) is DeliveryGuarantee.EXACTLY_ONCE
    with pytest.raises(ConfigurationError, match="must flush on checkpoints"):
        exact.set_flush_on_checkpoint(False)
    with pytest.raises(ConfigurationError, match="would lose messages"):
        exact.set_log_failures_only(True)
    with pytest.raises(ConfigurationError, match="would lose records"):
        exact.ignore_failures_after_transaction_timeout()


def test_sources_and_sinks_of_python_are_held(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    stream = env.add_source(SourceFunction(NumberSequenceSource(1, 3)))
    stream.add_sink(SinkFunction(CollectSink(tmp_path, fsync=False)))
    MiniCluster(env.get_job_graph("held")).run()
    assert list(read_collected(tmp_path)) == [1, 2, 3]
    with pytest.raises(ProgramError, match=r"needs a Source, not 'org\.Custom'"):
        SourceFunction("org.Custom")  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match=r"needs a Sink, not 'org\.Custom'"):
        SinkFunction("org.Custom")  # type: ignore[arg-type]
