"""The outside world of the measurement of visible latency: a writer and a reader.

What it is: two processes.  ``write`` sends the events of a data set at a steady rate, each with
the time of its writing in ``ts``; ``read`` is a plain consumer with ``read_committed`` that notes
when it has each result.  Both are on one machine, so one clock.

Run by ``bench/kafka_jobs.py``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from bench.data import Dataset
from bench.kafka_broker import json_events
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

#: Seconds between two batches of the writer.
_STEP = 0.005


def write(servers: str, topic: str, dataset: Dataset, rate: int) -> None:
    """Send all events; what is late for a moment is sent at once and carries the time of that."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            # What is due at once goes in one request, and not in ten.
            "linger.ms": 1,
            # A broker that stands still for seconds is to be seen in the figures.
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    # Behind the last colon is the time of the event.
    events = [
        (event[: event.rindex(b":") + 1], event[7 : event.index(b",")])
        for some in json_events(dataset)
        for event in some
    ]
    sent, started = 0, time.monotonic()
    while sent < len(events):
        due = min(len(events), int((time.monotonic() - started) * rate))
        for begin, key in events[sent:due]:
            producer.produce(topic, b"%s%d}" % (begin, time.time() * 1_000), key=key)
        sent = due
        producer.poll(0)
        time.sleep(_STEP)
    if producer.flush(30):
        message = f"the broker does not take the events of {topic}"
        raise RuntimeError(message)


def read(servers: str, topic: str, count: int, seen: Path) -> None:
    """Read until there are ``count`` results; saves rows of milliseconds.

    When each was written, when it was read, and when the job's operator had it.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    # Decoded when all are there: meanwhile this process is to cost the job's as little as it can.
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        messages = consumer.consume(1_000, timeout=0.01)
        now = int(time.time() * 1_000)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append((now, message.value()))
    consumer.close()
    results = ((now, json.loads(value)) for now, value in found)
    rows = [(result["ts"], now, result["at"]) for now, result in results]
    np.save(seen, np.array(rows, dtype=np.int64))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["write", "read"])
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--files", type=int, required=True)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seen", type=Path)
    return parser.parse_args()


def main() -> None:
    """Write or read."""
    arguments = _arguments()
    if arguments.what == "write":
        dataset = Dataset(arguments.events, arguments.keys, arguments.files)
        write(arguments.servers, arguments.topic, dataset, arguments.rate)
    else:
        read(arguments.servers, arguments.topic, arguments.events, arguments.seen)


if __name__ == "__main__":
    main()
