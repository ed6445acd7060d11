"""Kafka to Kafka on Spark: connectors are pickled to workers and kept there between epochs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kafka.broker import Broker

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[5])
from tests.kafka.kafka_job import environment
env = environment(*sys.argv[1:4], sys.argv[4])
env.execute("kafka on spark")
"""


@pytest.mark.spark
def test_job_on_spark(broker: Broker, tmp_path: Path) -> None:
    topics = broker.topic(partitions=2, name="events"), broker.topic(partitions=2, name="results")
    root = Path(__file__).parents[2]
    for partition in (0, 1):
        events = [{"id": i, "key": f"key-{i % 7}"} for i in range(partition, 3000, 2)]
        broker.send(topics[0], [json.dumps(each).encode() for each in events], partition=partition)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), broker.servers, *topics, str(tmp_path / "cp"), str(root)],
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    counts: Counter[str] = Counter()
    for record in broker.read(topics[1]):
        row = json.loads(record.value)
        counts[row["key"]] += 1
        assert row["n"] == counts[row["key"]]
    assert counts == Counter(f"key-{i % 7}" for i in range(3000))
