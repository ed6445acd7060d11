"""Ranges of partitions, read by one consumer that stays open between them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from millstream.connectors.kafka import reader
from millstream.connectors.kafka.client import KafkaTopicPartition
from millstream.connectors.kafka.reader import RangeConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.broker import Broker

PARTITIONS = 3
COUNT = 600


@pytest.fixture
def topic(broker: Broker) -> str:
    name = broker.topic(partitions=PARTITIONS)
    for number in range(PARTITIONS):
        broker.send(name, [b"%d" % each for each in range(COUNT)], partition=number)
    return name


@pytest.fixture
def consumer(broker: Broker) -> Iterator[RangeConsumer]:
    properties = {"bootstrap.servers": broker.servers, "isolation.level": "read_committed"}
    made = RangeConsumer(properties)
    yield made
    made.close()


def read(consumer: RangeConsumer, partition: KafkaTopicPartition, start: int, stop: int) -> None:
    """Read a range, and check that it is what it should be."""
    lists = list(consumer.read(partition, start, stop))
    assert all(lists)
    assert [int(each.value()) for part in lists for each in part] == list(range(start, stop))


@pytest.mark.parametrize(("seed", "waiting"), [(0, 60), (1, 50_000), (2, 50_000)])
def test_ranges_in_any_order(
    consumer: RangeConsumer, topic: str, seed: int, waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They mostly follow each other; some are repeated, and some are of another place."""
    monkeypatch.setattr(reader, "_MOST_WAITING", waiting)
    monkeypatch.setattr(reader, "BATCH_SIZE", 37)
    numbers = random.Random(seed)
    at = dict.fromkeys(range(PARTITIONS), 0)
    for _ in range(60):
        number = numbers.randrange(PARTITIONS)
        partition = KafkaTopicPartition(topic, number)
        start = at[number]
        if numbers.random() < 0.2 or start == COUNT:
            start = numbers.randrange(COUNT)
        stop = numbers.randint(start, min(start + 80, COUNT))
        if numbers.random() < 0.1 and stop > start:  # the task fails in the middle
            next(consumer.read(partition, start, stop))
            continue
        read(consumer, partition, start, stop)
        at[number] = stop


def test_a_partition_that_is_not_read_any_more_is_let_go(
    consumer: RangeConsumer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = KafkaTopicPartition(topic, 0), KafkaTopicPartition(topic, 1)
    read(consumer, first, 0, 10)
    read(consumer, second, 0, 10)
    client = consumer.partitions.opened.client
    assert {place.partition for place in client.assignment()} == {0, 1}
    monkeypatch.setattr(reader, "_UNUSED", 0.0)
    read(consumer, second, 10, 20)
    assert [place.partition for place in client.assignment()] == [1]
    read(consumer, first, 10, 20)
    assert consumer.partitions.opened.client is client


def test_at_the_end_of_a_partition_nothing_is_asked_for(
    consumer: RangeConsumer, topic: str, broker: Broker
) -> None:
    """Between epochs; what comes later is read as ever, and so is what was there before."""
    first, second = KafkaTopicPartition(topic, 0), KafkaTopicPartition(topic, 1)
    read(consumer, first, 0, COUNT - 1)
    read(consumer, second, 0, COUNT)

    def paused() -> dict[str, bool]:
        return {str(each): reading.received.paused for each, reading in readings.items()}

    readings = consumer._readings
    assert paused() == {str(first): False, str(second): True}
    broker.send(topic, [b"%d" % each for each in range(COUNT, COUNT + 5)], partition=1)
    read(consumer, second, COUNT, COUNT + 2)
    assert not paused()[str(second)]
    read(consumer, second, COUNT + 2, COUNT + 5)
    assert paused()[str(second)]
    read(consumer, second, 10, 20)
    read(consumer, first, COUNT - 1, COUNT)
    assert paused() == {str(first): True, str(second): False}
