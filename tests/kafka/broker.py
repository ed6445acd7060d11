"""A real Kafka broker for tests, and what an independent client sees of it.

The broker is the package ``noida-db``; the independent client is ``kafka-python``.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from kafka.admin import NewTopic
from tests.ports import free_port

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from millstream.testing.kafka_broker import broker_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@contextlib.contextmanager
def running_broker(directory: Path) -> Iterator[Broker]:
    """A broker on a free port of the loopback interface, stopped whatever happens."""
    port = free_port()
    with broker_process(directory, port) as pid:
        broker = Broker(f"127.0.0.1:{port}", pid)
        yield broker
        broker.close()


class Broker:
    """The broker, as kafka-python sees it."""

    def __init__(self, servers: str, pid: int) -> None:
        self.servers = servers
        self.pid = pid
        self.admin = KafkaAdminClient(bootstrap_servers=servers)
        self._producer: Any = None

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
        self.admin.close()

    def topic(self, partitions: int = 1, name: str = "topic") -> str:
        """A new topic with a name of its own; it keeps its records, however old they are."""
        name = f"{name}-{uuid.uuid4().hex[:8]}"
        keep = {"retention.ms": "-1"}
        self.admin.create_topics([NewTopic(name, partitions, 1, topic_configs=keep)])
        return name

    def send(
        self,
        topic: str,
        values: Sequence[bytes | None],
        partition: int = 0,
        **fields: Any,
    ) -> None:
        """Append records, outside of any transaction."""
        if self._producer is None:
            self._producer = KafkaProducer(bootstrap_servers=self.servers)
        for value in values:
            self._producer.send(topic, value, partition=partition, **fields)
        self._producer.flush()

    def read(self, topic: str, *, committed: bool = True) -> list[Any]:
        """All records that can be read now, partition by partition."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.servers,
            isolation_level="read_committed" if committed else "read_uncommitted",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        try:
            partitions = sorted(consumer.partitions_for_topic(topic) or ())
            places = [TopicPartition(topic, each) for each in partitions]
            ends = consumer.end_offsets(places)
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            found: dict[Any, list[Any]] = {place: [] for place in places}
            # This broker sends nothing, not even a position, of aborted records that lie right
            # before an open transaction: silence is an end, too.
            silent = 0
            while silent < 3 and any(consumer.position(place) < ends[place] for place in places):
                polled = consumer.poll(100)
                silent = 0 if polled else silent + 1
                for place, records in polled.items():
                    found[place] += [each for each in records if each.offset < ends[place]]
            return [record for place in places for record in found[place]]
        finally:
            consumer.close()
