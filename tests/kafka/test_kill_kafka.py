"""kill -9 of a job that reads from Kafka and writes to Kafka, around the steps of the commit.

All the time, and after each kill, kafka-python reads with read_committed: no record twice, none
that is wrong and, per key, n = 1, 2, 3, ... in order and without a hole; at the end all of them.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.forked import run_forked
from tests.kafka.kafka_job import RECORDS

from kafka import KafkaConsumer, TopicPartition
from millstream.connectors.kafka.transactions import TransactionControl
from millstream.crash_points import points_of
from millstream.testing.crash import Run, run_once

if TYPE_CHECKING:
    from tests.kafka.broker import Broker

JOB = Path(__file__).parent / "kafka_job.py"
#: Where the job is killed, start after start; each epoch has two transactions, one per subtask.
CHAIN = [
    "kafka.marker.before:2",  # leaves two orphans
    "kafka.abort.before:1",
    "kafka.abort.after:1",
    "kafka.marker.after:2",
    "kafka.commit.before:2",  # half committed
    "kafka.commit.after:2",
    "manifest.publish.after:1",
]


class Follower(threading.Thread):
    """Reads what is committed, as it comes, and judges it."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.wrong = ""
        self.seen: list[tuple[str, int, int]] = []
        self._servers = servers
        self._topic = topic
        self._counts: Counter[str] = Counter()

    def run(self) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        consumer.assign([TopicPartition(self._topic, each) for each in (0, 1)])
        while not self.over.is_set() and not self.wrong:
            for records in consumer.poll(50).values():
                for record in records:
                    self._judge(json.loads(record.value))
        consumer.close()

    def _judge(self, row: dict[str, Any]) -> None:
        self._counts[row["key"]] += 1
        if row["n"] != self._counts[row["key"]]:
            self.wrong = f"{row} came as number {self._counts[row['key']]} of its key"
        self.seen.append((row["key"], row["n"], row["id"]))


def start(broker: Broker, topics: tuple[str, str], directory: Path, crash: str = "") -> Run:
    directory.mkdir(exist_ok=True)
    runs = directory / f"run-{len(list(directory.iterdir()))}"
    arguments = [broker.servers, *topics, str(directory / "checkpoints")]
    if crash:
        return run_forked(JOB, arguments, directory=runs, crash=crash, deadline=300.0)
    return run_once([sys.executable, str(JOB), *arguments], directory=runs, deadline=300.0)


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.usefixtures("forks")
def test_killed_around_the_commit(broker: Broker, tmp_path: Path) -> None:
    assert {point.partition(":")[0] for point in CHAIN} >= set(points_of("kafka sink"))
    topics = broker.topic(name="events"), broker.topic(partitions=2, name="results")
    events = [{"id": i, "key": f"key-{i * i % 13}"} for i in range(RECORDS)]
    broker.send(topics[0], [json.dumps(event).encode() for event in events])
    follower = Follower(broker.servers, topics[1])
    follower.start()
    try:
        for point in CHAIN:
            run = start(broker, topics, tmp_path / "job", point)
            assert run.killed, f"crash point {point} was not reached\n{run.output}"
            assert not follower.wrong, f"after {point}: {follower.wrong}"
        run = start(broker, topics, tmp_path / "job")
        assert run.exit_code == 0, run.output
        final = [json.loads(record.value) for record in broker.read(topics[1])]
        counts: Counter[str] = Counter()
        wanted = []
        for event in events:
            key = str(event["key"])
            counts[key] += 1
            wanted.append((key, counts[key], event["id"]))
        assert sorted((row["key"], row["n"], row["id"]) for row in final) == sorted(wanted)
        control = TransactionControl({"bootstrap.servers": broker.servers})
        assert control.open_transactions(topics[1]) == []
        control.close()
    finally:
        follower.over.set()
        follower.join()
    assert not follower.wrong, follower.wrong
    group = broker.admin.list_group_offsets(topics[0])[topics[0]]
    assert RECORDS / 2 < group[TopicPartition(topics[0], 0)].offset <= RECORDS  # for monitoring
