"""What Kafka's own client does with the broker of the measurements: the floor of Kafka to Kafka.

What it is: ``confluent-kafka`` alone, in as many processes as the jobs have subtasks.  First each
consumes a partition of the events, then each produces as many messages as large as results, in
transactions of half a second.  Nothing is decoded or computed.  The rate that is reported is the
slower of the two: a job that reads and writes cannot be faster.

With ``--both`` it is that of one plain program: each process consumes a partition and produces a
message for each one in transactions of half a second.  Alone, the consumer and the producer have
the cores and the broker to themselves; here they share them, as they do in a job.

Run by ``bench/run.py``.  Read next: ``bench/kafka_jobs.py``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from functools import partial
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


def _consumer(servers: str, topic: str, partition: int) -> Consumer:
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
    return consumer


def _producer(servers: str, partition: int) -> Producer:
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
    return producer


def _consume(servers: str, topic: str, partition: int, count: int) -> None:
    consumer = _consumer(servers, topic, partition)
    found = 0
    while found < count:
        found += sum(each.error() is None for each in consumer.consume(_CHUNK, timeout=0.1))
    consumer.close()


def _produce(servers: str, topic: str, partition: int, count: int) -> None:
    producer = _producer(servers, partition)
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


def _consume_and_produce(
    servers: str, topic: str, partition: int, count: int, *, written: str
) -> None:
    consumer, producer = _consumer(servers, topic, partition), _producer(servers, partition)
    found = 0
    while found < count:
        producer.begin_transaction()
        ends = time.monotonic() + _TRANSACTION_SECONDS
        while found < count and time.monotonic() < ends:
            for message in consumer.consume(_CHUNK, timeout=0.1):
                if message.error() is None:
                    producer.produce(written, _VALUE, message.key(), partition)
                    found += 1
            while len(producer) > 2 * _CHUNK:
                producer.poll(0.01)
        producer.commit_transaction(_PATIENCE)
    consumer.close()


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
    parser.add_argument("--both", action="store_true", help="consume and produce at the same time")
    arguments = parser.parse_args()
    dataset = Dataset(arguments.events, arguments.keys, arguments.files)
    with running_broker(arguments.scratch) as servers:
        read = create_topic(servers, "events", _PROCESSES)
        written = create_topic(servers, "results", _PROCESSES)
        fill(servers, read, dataset)
        counts = _counts(servers, read)
        if arguments.both:
            work = partial(_consume_and_produce, written=written)
            figures = {"both_per_second": _rate(work, servers, read, counts)}
        else:
            figures = {
                "consumed_per_second": _rate(_consume, servers, read, counts),
                "produced_per_second": _rate(_produce, servers, written, counts),
            }
    outcome = Outcome(rows_per_second=min(figures.values()), rows=dataset.events)
    outcome.figures = figures
    outcome.save(arguments.report)


if __name__ == "__main__":
    main()
