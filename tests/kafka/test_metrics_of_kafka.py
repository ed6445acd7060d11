"""Metrics of a running job that reads Kafka: lag, offsets and commits of each partition."""

from __future__ import annotations

import re
import urllib.request
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.environments import environments, wait_until

from millstream.common import SimpleStringSchema, WatermarkStrategy
from millstream.datastream.connectors import DiscardingSink
from millstream.datastream.connectors.kafka import KafkaSource

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.broker import Broker

DEADLINE = 60.0
ADDRESS = re.compile(r"metrics: (http://127\.0\.0\.1:\d+/metrics)")
PREFIX = "flink_taskmanager_job_task_operator_"
KAFKA = f"{PREFIX}KafkaSourceReader_"
PARTITION = f"{KAFKA}topic_partition_"


def scraped(address: str) -> dict[tuple[str, str], float]:
    """By name, and partition, "" where there is none."""
    with urllib.request.urlopen(address) as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels.get("partition", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("operator_name") == "Source:_rows"
    }


@pytest.mark.parametrize("mode", ["epochs", "pipelined"])
def test_lag_offsets_and_commits(
    broker: Broker, tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "millstream")
    topic = broker.topic(partitions=2)
    broker.send(topic, [b"a"] * 3, partition=0)
    broker.send(topic, [b"a"] * 5, partition=1)
    settings = {
        "metrics.reporter.prom.factory.class": "prometheus",
        "metrics.reporter.prom.port": "0",
        "execution.checkpointing.interval": "100 ms",
    }
    engine = {"execution.target": "local", "millstream.execution": mode}
    env = environments(tmp_path, engine)(1, settings)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(broker.servers)
        .set_topics(topic)
        .set_group_id(f"group-{topic}")
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").sink_to(DiscardingSink())
    client = env.execute_async("a job")
    found: dict[tuple[str, str], float] = {}

    def is_committed() -> bool:
        addresses = ADDRESS.findall(caplog.text)
        found.clear()
        found.update(scraped(addresses[0]) if addresses else {})
        # A client hears of its commit at its next one.
        broker.send(topic, [b"b"], partition=1)
        return found.get((f"{KAFKA}commitsSucceeded", ""), 0) > 0

    try:
        wait_until(is_committed, "a commit of offsets in the metrics", DEADLINE)
    finally:
        client.cancel().result()
    assert found[f"{PARTITION}currentOffset", "0"] == 3
    assert found[f"{PARTITION}records-lag".replace("-", "_"), "0"] == 0
    assert found[f"{PARTITION}currentOffset", "1"] >= 5
    assert found[f"{PARTITION}committedOffset", "0"] == 3
    assert found[f"{KAFKA}commitsFailed", ""] == 0
    assert found[f"{PREFIX}pendingRecords", ""] >= 0
    assert (f"{KAFKA}KafkaConsumer_records_lag_max", "") in found
