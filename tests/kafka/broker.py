"""A real Kafka broker for tests, and what an independent client sees of it.

The broker is the package ``noida-db``; the independent client is ``kafka-python``.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from kafka.admin import NewTopic
from tests.ports import free_port

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from millstream.testing.kafka_broker import broker_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


#: Answers to fetches, without any progress, after which there is nothing more to read.
_ENOUGH: Final = 5
#: Milliseconds that the broker waits for records before it answers without any.
_WAIT: Final = 50
#: Seconds without an answer after which reading fails.
_PATIENCE: Final = 120.0


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
        self.rest()
        self.admin.close()

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        # A producer that has written to it would ask for its leader without a pause, for ever.
        self.rest()
        self.admin.delete_topics([topic])

    def rest(self) -> None:
        """Close the producer, until something is sent again."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

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
        sent = [self._producer.send(topic, each, partition=partition, **fields) for each in values]
        self._producer.flush()
        for each in sent:
            each.get(_PATIENCE)  # raises what kept a record from the broker

    def read(self, topic: str, *, committed: bool = True) -> list[Any]:
        """All records that can be read now, partition by partition.

        This broker sends nothing, not even a position, of aborted records that lie right before an
        open transaction.  So answers that bring nothing, several in a row, are an end, too; no
        answers are not: then broker and reader are slow.
        """
        consumer = KafkaConsumer(
            bootstrap_servers=self.servers,
            isolation_level="read_committed" if committed else "read_uncommitted",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=_WAIT,
        )
        answered = _count_answers(consumer)
        try:
            partitions = sorted(consumer.partitions_for_topic(topic) or ())
            assert partitions, f"there is no topic {topic}"
            places = [TopicPartition(topic, each) for each in partitions]
            ends = consumer.end_offsets(places)
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            found: dict[Any, list[Any]] = {place: [] for place in places}
            positions = [0] * len(places)
            seen, heard = 0, time.monotonic()
            while any(at < ends[place] for at, place in zip(positions, places, strict=True)):
                for place, records in consumer.poll(100).items():
                    found[place] += [each for each in records if each.offset < ends[place]]
                before, positions = positions, [consumer.position(place) for place in places]
                if positions != before:
                    seen, heard = len(answered), time.monotonic()
                elif len(answered) - seen >= _ENOUGH:
                    break
                else:
                    assert time.monotonic() < heard + _PATIENCE, f"no answers: {positions}, {ends}"
            return [record for place in places for record in found[place]]
        finally:
            consumer.close()


def _count_answers(consumer: Any) -> list[None]:
    """A list that grows with each answer to a fetch that kafka-python has taken."""
    answered: list[None] = []
    fetcher = consumer._fetcher
    handle = fetcher._handle_fetch_response

    def counted(*arguments: Any) -> None:
        handle(*arguments)
        answered.append(None)

    fetcher._handle_fetch_response = counted
    return answered
