"""What Kafka's own client does with the broker of the measurements: the floor of Kafka to Kafka.

What it is: ``confluent-kafka`` alone, in as many processes as the jobs have subtasks.  First each
consumes a partition of the events, then each produces as many messages as large as results, in
transactions of half a second.  Nothing is decoded or computed.  The rate that is reported is the
slower of the two: a job that reads and writes cannot be faster.

What it is not: a job.

Run by ``bench/run.py``.  Read next: ``bench/kafka_jobs.py``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.data import Dataset
from bench.kafka_broker import create_topic, fill, running_broker
from bench.measure import Outcome
from confluent_kafka import Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Barrier

_PROCESSES = 2
_CHUNK = 10_000
_TRANSACTION_SECONDS = 0.5
_PATIENCE = 30.0
#: As long as the results of the jobs.
_VALUE = b'{"key": 123, "count": 1234, "ts": 1767225600000}'


def _consume(servers: str, topic: str, partition: int, count: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "floor",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
            "receive.message.max.bytes": 1_000_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = 0
    while found < count:
        found += sum(each.error() is None for each in consumer.consume(_CHUNK, timeout=0.1))
    consumer.close()


def _produce(servers: str, topic: str, partition: int, count: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": f"floor-{partition}",
            "queue.buffering.max.messages": 1_000_000,
            "linger.ms": 5,
            "delivery.report.only.error": True,
        }
    )
    producer.init_transactions(_PATIENCE)
    sent = 0
    while sent < count:
        producer.begin_transaction()
        ends = time.monotonic() + _TRANSACTION_SECONDS
        while sent < count and time.monotonic() < ends:
            for number in range(sent, min(sent + _CHUNK, count)):
                producer.produce(topic, _VALUE, b"%d" % (number % 1_000), partition)
            sent += _CHUNK
            while len(producer) > 2 * _CHUNK:
                producer.poll(0.01)
        producer.commit_transaction(_PATIENCE)


def _rate(
    work: Callable[[str, str, int, int], None], servers: str, topic: str, counts: list[int]
) -> float:
    """Messages in a second, of all processes; their start is left out."""
    context = multiprocessing.get_context("fork")
    begin = context.Barrier(_PROCESSES + 1)

    def run(begin: Barrier, partition: int) -> None:
        begin.wait()
        work(servers, topic, partition, counts[partition])

    processes = [context.Process(target=run, args=(begin, each)) for each in range(_PROCESSES)]
    for process in processes:
        process.start()
    begin.wait()
    started = time.monotonic()
    for process in processes:
        process.join()
    seconds = time.monotonic() - started
    if any(process.exitcode for process in processes):
        message = "a client failed; see above"
        raise RuntimeError(message)
    return sum(counts) / seconds


def _counts(servers: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "floor"})
    places = [TopicPartition(topic, number) for number in range(_PROCESSES)]
    counts = [consumer.get_watermark_offsets(place)[1] for place in places]
    consumer.close()
    return counts


def main() -> None:
    """Measure and save the outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--sink")
    arguments = parser.parse_args()
    dataset = Dataset(arguments.events, arguments.keys, arguments.files)
    with running_broker(arguments.scratch) as servers:
        read = create_topic(servers, "events", _PROCESSES)
        written = create_topic(servers, "results", _PROCESSES)
        fill(servers, read, dataset)
        counts = _counts(servers, read)
        consumed = _rate(_consume, servers, read, counts)
        produced = _rate(_produce, servers, written, counts)
    outcome = Outcome(rows_per_second=min(consumed, produced), rows=dataset.events)
    outcome.figures = {"consumed_per_second": consumed, "produced_per_second": produced}
    outcome.save(arguments.report)


if __name__ == "__main__":
    main()
