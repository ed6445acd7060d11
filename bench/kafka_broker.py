"""A Kafka broker for the measurements, and what fills and empties its topics.

What it is: ``noida-db`` on a free port of the loopback interface, which ends with the process
that started it; the events of a ``Dataset`` as JSON messages; and the messages of a topic, as a
plain consumer with ``read_committed`` sees them, as a Parquet file for ``bench/check.py``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
from bench.broker_front import BROKER_HOST, HOST, READY
from bench.broker_saving import saving_stopped
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.testing.kafka_broker import broker_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.data import Dataset

__all__ = [
    "create_topic",
    "delete_topics",
    "fill",
    "json_events",
    "read_committed",
    "running_broker",
    "to_parquet",
]

_START_SECONDS = 20
_MEMORY = Path("/dev/shm")
#: Nothing new for so long is the end of a topic.
_SILENCE_SECONDS = 5.0
_CHUNK = 10_000


@contextlib.contextmanager
def running_broker(directory: Path, *, holds_fetches: bool = False) -> Iterator[str]:
    """A broker; yields "host:port".

    Args:
        directory: for its files, where there is none in memory.
        holds_fetches: whether fetches wait for records, as with Kafka.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    home = _MEMORY if _MEMORY.is_dir() else directory
    with (
        tempfile.TemporaryDirectory(prefix="millstream-bench-broker-", dir=home) as own,
        broker_process(Path(own), port, BROKER_HOST if holds_fetches else HOST) as process,
        saving_stopped(process),
        _front(port) if holds_fetches else contextlib.nullcontext(),
    ):
        yield f"{HOST}:{port}"


@contextlib.contextmanager
def _front(port: int) -> Iterator[None]:
    """Have fetches held back."""
    command = [sys.executable, "-m", "bench.broker_front", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None or process.stdout.readline().strip() != READY:
            message = "nothing stands in front of the broker; see above"
            raise RuntimeError(message)
        yield
    finally:
        process.kill()
        process.wait()


def create_topic(servers: str, name: str, partitions: int) -> str:
    """Make a topic; returns its name.

    Its records are kept: those of the jobs carry event time, which is years ago, and the broker
    would delete them within seconds.
    """
    admin = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic(name, partitions, 1, config={"retention.ms": "-1"})
    for made in admin.create_topics([topic]).values():
        made.result(_START_SECONDS)
    return name


def delete_topics(servers: str, names: list[str]) -> None:
    """Delete topics that nobody reads any more."""
    admin = AdminClient({"bootstrap.servers": servers})
    for deleted in admin.delete_topics(names).values():
        deleted.result(_START_SECONDS)


def json_events(dataset: Dataset) -> Iterator[list[bytes]]:
    """The events of a data set as JSON objects, in lists, in order of time."""
    dataset.ensure()
    for path in dataset.paths:
        for batch in pq.ParquetFile(path).iter_batches(_CHUNK):
            columns = (batch.column(name).to_pylist() for name in ("key", "value", "ts"))
            yield [b'{"key":%d,"value":%d,"ts":%d}' % event for event in zip(*columns, strict=True)]


def fill(servers: str, topic: str, dataset: Dataset) -> None:
    """Write all events of a data set, keyed, outside of transactions; wait for delivery."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
            "linger.ms": 20,
        }
    )
    for events in json_events(dataset):
        while len(producer) > 50 * _CHUNK:
            producer.poll(0.05)
        # The key of the message is the key of the event: the text up to the first comma.
        messages = [{"key": event[7 : event.index(b",")], "value": event} for event in events]
        if producer.produce_batch(topic, messages) != len(messages):
            message = f"topic {topic} does not take the events"
            raise RuntimeError(message)
    if producer.flush(_START_SECONDS * 3):
        message = f"the broker does not take the events of {topic}"
        raise RuntimeError(message)


def read_committed(servers: str, topic: str) -> Iterator[list[bytes]]:
    """The values of all messages that a reader with ``read_committed`` sees now.

    Raises:
        RuntimeError: the end is not reached.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"check-{os.getpid()}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            # The broker pays no heed to how much is asked for, and sends a hundred megabytes.
            "receive.message.max.bytes": 1_000_000_000,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        places = [TopicPartition(topic, number, 0) for number in partitions]
        ends = {place.partition: consumer.get_watermark_offsets(place)[1] for place in places}
        consumer.assign(places)
        progress, error = time.monotonic(), None
        while any(place.offset < ends[place.partition] for place in consumer.position(places)):
            messages = consumer.consume(_CHUNK, timeout=0.2)
            values = [message.value() for message in messages if message.error() is None]
            # The client goes on by itself after most errors; silence tells of the others.
            error = next((message.error() for message in messages if message.error()), error)
            now = time.monotonic()
            if values:
                progress = now
                yield values
            elif now - progress > _SILENCE_SECONDS:
                break
        # The marker of a transaction may be last, which has no message.
        at = {place.partition: place.offset for place in consumer.position(places)}
        if any(at[partition] < end - 1 for partition, end in ends.items()):
            message = f"topic {topic} ends at {ends}, but can be read up to {at} only: {error}"
            raise RuntimeError(message)
    finally:
        consumer.close()


def to_parquet(servers: str, topic: str, names: list[str], directory: Path) -> str:
    """Write what ``read_committed`` sees as a Parquet file; returns its directory.

    Args:
        servers: the broker.
        topic: whose messages are JSON objects of integers.
        names: the fields to keep.
        directory: where to; it is made.
    """
    directory.mkdir()
    schema = pa.schema([(name, pa.int64()) for name in names])
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    with pq.ParquetWriter(directory / "result.parquet", schema) as writer:
        for values in read_committed(servers, topic):
            block = b"\n".join(values)
            reading = pj.ReadOptions(block_size=len(block) + 16)
            table = pj.read_json(pa.BufferReader(block), reading, options)
            writer.write_table(table.select(names))
    return str(directory)
