"""Kafka to Kafka on Spark: connectors are pickled to workers and kept there between epochs."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import cloudpickle
import pytest
from tests.kafka import kafka_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.broker import Broker


@pytest.fixture
def _job_goes_by_value() -> Iterator[None]:
    """Workers cannot import the tests."""
    cloudpickle.register_pickle_by_value(kafka_job)
    yield
    cloudpickle.unregister_pickle_by_value(kafka_job)


@pytest.mark.usefixtures("spark", "_job_goes_by_value")
def test_job_on_spark(broker: Broker, tmp_path: Path) -> None:
    topics = broker.topic(partitions=2, name="events"), broker.topic(partitions=2, name="results")
    for partition in (0, 1):
        events = [{"id": i, "key": f"key-{i % 7}"} for i in range(partition, 3000, 2)]
        broker.send(topics[0], [json.dumps(each).encode() for each in events], partition=partition)
    env = kafka_job.environment(broker.servers, *topics, str(tmp_path / "checkpoints"))
    env.execute("kafka on spark")
    counts: Counter[str] = Counter()
    for record in broker.read(topics[1]):
        row = json.loads(record.value)
        counts[row["key"]] += 1
        assert row["n"] == counts[row["key"]]
    assert counts == Counter(f"key-{i % 7}" for i in range(3000))
