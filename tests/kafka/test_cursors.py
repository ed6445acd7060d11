"""Cursors of partitions against a real broker."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, Message

from kafka import KafkaProducer
from millstream.common import SimpleStringSchema
from millstream.connectors.kafka import reader as kafka_cursor
from millstream.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from millstream.errors import SourceError
from millstream.testing.conformance import check_cursors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.broker import Broker

    from millstream.contracts.source import SourceBatch, Split, SplitCursor
    from millstream.datastream.connectors.kafka import KafkaSourceBuilder

#: Seconds.
PATIENCE = 60


@pytest.fixture(autouse=True)
def consumers() -> Iterator[None]:
    yield
    kafka_cursor.close_consumers()


def _strings(broker: Broker, topic: str) -> KafkaSourceBuilder:
    builder = KafkaSource.builder().set_bootstrap_servers(broker.servers).set_topics(topic)
    return builder.set_value_only_deserializer(SimpleStringSchema())


def _texts(start: int, stop: int) -> list[bytes]:
    return [b"r%d" % number for number in range(start, stop)]


def _producer(broker: Broker, identifier: str) -> KafkaProducer:
    producer = KafkaProducer(
        bootstrap_servers=broker.servers, transactional_id=identifier, enable_idempotence=True
    )
    producer.init_transactions()
    return producer


def _transaction(producer: KafkaProducer, topic: str, values: list[bytes], *, commit: bool) -> None:
    producer.begin_transaction()
    for value in values:
        producer.send(topic, value, partition=0)
    producer.flush()
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


def _next(cursor: SplitCursor, most: int = 1_000) -> SourceBatch:
    deadline = time.monotonic() + PATIENCE
    while (batch := cursor.poll(most)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    return batch


def _values(batch: SourceBatch) -> list[Any]:
    return batch.arrow.column(0).to_pylist() if batch.arrow is not None else batch.values or []


def _read(cursor: SplitCursor, count: int, most: int = 1_000) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += _values(_next(cursor, most))
    assert len(found) == count
    return found


def _open(source: KafkaSource, number: int = 0) -> tuple[Split, SplitCursor]:
    split = source.discover(frozenset())[number]
    return split, source.open_cursor(split, source.start_offset(split))


@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
def test_contract_with_gaps(broker: Broker, bounded: bool) -> None:
    topic = broker.topic(partitions=2)
    broker.send(topic, _texts(0, 700), partition=1)
    producer, aborting = (_producer(broker, f"{topic}-{each}") for each in "ab")
    for number in range(9):
        values = _texts(number * 10, number * 10 + 5)
        committed = number % 3 != 1
        _transaction(producer if committed else aborting, topic, values, commit=committed)
    producer.close()
    aborting.close()
    builder = _strings(broker, topic)
    if bounded:
        builder.set_bounded(KafkaOffsetsInitializer.latest())
    check_cursors(builder.build(), rounds=2)


def test_a_new_record_is_seen_within_milliseconds(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, _texts(0, 3))
    _, cursor = _open(_strings(broker, topic).build())
    try:
        assert _read(cursor, 3) == ["r0", "r1", "r2"]
        seconds = []
        for number in range(10):
            broker.send(topic, _texts(number, number + 1))
            sent = time.perf_counter()
            assert _values(_next(cursor)) == [f"r{number}"]
            seconds.append(time.perf_counter() - sent)
        assert min(seconds) < 0.05
    finally:
        cursor.close()


def test_an_open_transaction_is_waited_for(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, _texts(0, 2))
    source = _strings(broker, topic).build()
    split, cursor = _open(source)
    try:
        assert _read(cursor, 2) == ["r0", "r1"]
        producer = _producer(broker, topic)
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0)
        producer.flush()
        assert cursor.poll(10) is None
        assert (cursor.position, cursor.settled) == (2, True)
        producer.commit_transaction()
        producer.close()
        assert _read(cursor, 1) == ["open"]
        # Behind the marker, too: what the driver calls the end is reached.
        deadline = time.monotonic() + PATIENCE
        while cursor.position < source.end_offset(split):
            assert cursor.poll(10) is None
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        cursor.close()


def test_a_given_end_is_kept(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, _texts(0, 10))
    ends = KafkaOffsetsInitializer.latest()
    source = _strings(broker, topic).set_bounded(ends).build()
    split = source.discover(frozenset())[0]
    broker.send(topic, _texts(10, 20))
    cursor = source.open_cursor(split, 4)
    try:
        assert _read(cursor, 6, most=4) == [f"r{n}" for n in range(4, 10)]
        assert (cursor.position, cursor.is_over) == (10, True)
        assert cursor.poll(10) is None
    finally:
        cursor.close()


def _message(place: tuple[str, int], offset: int, code: int | None = None) -> Message:
    error = None if code is None else KafkaError(code)
    return Message(topic=place[0], partition=place[1], offset=offset, error=error)


@pytest.mark.parametrize("topics", [["a"], ["a", "b"]])
@pytest.mark.parametrize("partitions", [[0], [0, 1]])
def test_messages_are_sorted_out(topics: list[str], partitions: list[int]) -> None:
    chance = random.Random(5)
    places = [(topic, number) for topic in topics for number in partitions]
    received = {place: kafka_cursor.Received() for place in places}
    sent: dict[tuple[str, int], list[int]] = {place: [] for place in places}
    behind = dict.fromkeys(places, 0)
    for _ in range(50):
        messages = []
        for _ in range(chance.randrange(6)):
            place, count = chance.choice(places), chance.randrange(4)
            for _ in range(count):
                messages.append(_message(place, behind[place]))
                sent[place].append(behind[place])
                behind[place] += 1
            if chance.random() < 0.2:
                end = KafkaError._PARTITION_EOF
                messages.append(_message(place, behind[place], end))
        for place, run in kafka_cursor._by_partition(messages):
            received[place].add(run)
    for place, each in received.items():
        assert [message.offset() for message in each.take(10_000)] == sent[place]
        assert each.error is None
        assert 0 < each.end <= behind[place]
    (place, run), *_ = kafka_cursor._by_partition([_message(places[0], 7, KafkaError.UNKNOWN)])
    received[place].add(run)
    assert received[place].error.code() == KafkaError.UNKNOWN
    assert received[place].count == 0


def test_a_partition_that_waits_does_not_fill_the_memory(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_cursor, "_MOST_WAITING", 1_000)
    monkeypatch.setattr(kafka_cursor, "_AT_A_TIME", 100)
    topic = broker.topic(partitions=2)
    for partition in (0, 1):
        broker.send(topic, _texts(0, 10_000), partition=partition)
    source = _strings(broker, topic).build()
    first, second = source.discover(frozenset())
    held, read = source.open_cursor(first, 0), source.open_cursor(second, 0)
    consumer = source._partitions
    assert consumer is not None
    try:
        expected = [f"r{n}" for n in range(10_000)]
        assert _read(read, 10_000, most=100) == expected
        for _ in range(50):
            read.poll(100)
        waiting = consumer._received[topic, 0]
        assert waiting.count <= 1_100
        assert _read(held, 10_000, most=100) == expected
    finally:
        held.close()
        read.close()
    assert consumer._opened is None


def test_offsets_that_are_gone(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, _texts(0, 5))
    source = _strings(broker, topic).build()
    split = source.discover(frozenset())[0]
    cursor = source.open_cursor(split, 50)
    try:
        with pytest.raises(SourceError, match=r"offset 50 of .* does not exist"):
            _next(cursor)
    finally:
        cursor.close()


def test_what_does_not_come_is_an_error_after_a_while(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    _, cursor = _open(_strings(broker, topic).build())
    monkeypatch.setattr(kafka_cursor, "PATIENCE", 0.2)
    try:
        for _ in range(500):  # nothing is awaited
            assert cursor.poll(10) is None
            time.sleep(0.001)
        cursor.extend(5, final=False)
        with pytest.raises(SourceError, match="from offset 0 to 5: no record arrives"):
            _next(cursor)
    finally:
        cursor.close()
