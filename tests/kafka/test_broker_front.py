"""What the measurements put in front of the broker: fetches wait, as they do with Kafka."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest
from bench.broker_front import HOST
from bench.kafka_broker import create_topic, running_broker
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds: longer than any answer takes that does not wait for its time to be over.
_LONG = 60
_COMMITTED = 1


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker"), holds_fetches=True) as address:
        yield address


class Fetching:
    """A connection with one Fetch of version 11 under way, from the begin of a partition."""

    def __init__(self, servers: str, topic: str, wait: int, isolation: int = 0) -> None:
        host, port = servers.split(":")
        self._socket = socket.create_connection((host, int(port)), _LONG)
        name = topic.encode()
        partition = struct.pack(">iiqqi", 0, -1, 0, -1, 1 << 20)
        body = struct.pack(">iiiibii", -1, wait, 1, 1 << 20, isolation, 0, -1)
        body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", 1) + partition
        body += struct.pack(">ih", 0, 0)
        request = struct.pack(">hhih", 1, 11, 7, 1) + b"x" + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)

    def answer(self) -> bytes:
        """Raises TimeoutError if there is none."""
        size = struct.unpack(">i", self._read(4))[0]
        answer = self._read(size)
        self._socket.close()
        assert answer[:4] == struct.pack(">i", 7)
        return answer

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += self._socket.recv(size - len(found))
        return found


def test_an_empty_answer_is_held_until_its_time_is_over(servers: str) -> None:
    topic = create_topic(servers, "empty", 1)
    began = time.monotonic()
    Fetching(servers, topic, 300).answer()
    assert time.monotonic() - began >= 0.29


def test_who_waits_is_answered_when_something_is_written(servers: str) -> None:
    topic = create_topic(servers, "plain", 1)
    fetching = Fetching(servers, topic, 2 * _LONG * 1000)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    producer.produce(topic, b"a value")
    assert producer.flush(_LONG) == 0
    assert b"a value" in fetching.answer()


def test_what_is_committed_is_answered_when_its_transaction_ends(servers: str) -> None:
    topic = create_topic(servers, "transactions", 1)
    fetching = Fetching(servers, topic, 2 * _LONG * 1000, _COMMITTED)
    dirty = Fetching(servers, topic, 2 * _LONG * 1000)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "one"})
    producer.init_transactions(_LONG)
    producer.begin_transaction()
    producer.produce(topic, b"a value")
    assert producer.flush(_LONG) == 0
    assert b"a value" in dirty.answer()
    producer.commit_transaction(_LONG)
    assert b"a value" in fetching.answer()


def test_a_large_answer_comes_whole(servers: str) -> None:
    topic = create_topic(servers, "large", 1)
    producer = Producer({"bootstrap.servers": servers})
    values = [b"%05d" % number * 4_000 for number in range(50)]  # a megabyte: many parts
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(_LONG) == 0
    answer = Fetching(servers, topic, 0).answer()
    assert all(value in answer for value in values)
    producer.produce(topic, b"small")  # and the next one on another connection
    assert producer.flush(_LONG) == 0


def test_clients_are_told_to_come_here(servers: str) -> None:
    told = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=_LONG).brokers.values()
    assert [f"{each.host}:{each.port}" for each in told] == [servers]
    assert servers.startswith(HOST)


def test_wrong_answers_come_at_once(servers: str) -> None:
    answer = Fetching(servers, "no such topic", 2 * _LONG * 1000).answer()
    assert b"no such topic" in answer
