"""Reading partitions on and on, in a task that lives on.

What it is: one consumer per source and process with all partitions that are read there, kept open;
and a cursor per partition, which hands out what the consumer has received of it.  Partitions are
assigned by Millstream's driver, so there are no consumer groups and no rebalancing.

Positions are exact at all times: behind the record that was handed out last, or behind the marker
of a transaction if the consumer says that the partition ends there.

What it is not: reading of ranges (``connectors/kafka/ranges.py``).

Read next: ``contracts/source.py``, ``connectors/kafka/source.py``.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.kafka.reader import (
    PATIENCE,
    OpenConsumer,
    is_end,
    judge,
    open_consumer,
    stuck,
)
from millstream.contracts.source import SplitCursor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.connectors.kafka.client import KafkaTopicPartition
    from millstream.contracts.source import SourceBatch

__all__ = ["KafkaCursor", "PartitionsConsumer", "Received"]

#: Messages of partitions that wait while others are read.  Of one that has its share of it, the
#: consumer fetches no more.
_MOST_WAITING: Final = 50_000
#: Messages that are taken from the consumer at a time, at least.
_AT_A_TIME: Final = 1_000
#: librdkafka fetches nothing for a second when it has enough messages; a fast task has then read
#: them long since.
_DEFAULTS: Final = {"fetch.queue.backoff.ms": "5"}
#: Seconds between two polls after which a cursor counts as having waited for others.
_LONG: Final = 1.0


class Received:
    """What has arrived of a partition and was not handed out."""

    def __init__(self) -> None:
        self._runs: deque[list[Any]] = deque()
        self.count = 0
        #: Offset at which the consumer was at the end of the partition, when it was last.
        self.end = 0
        self.error: Any = None
        self.paused = False

    def add(self, messages: list[Any]) -> None:
        """Take what the consumer gives, events among them."""
        if any(_errors(messages)):
            for message in messages:
                error = message.error()
                if error is not None and is_end(error):
                    self.end = max(self.end, message.offset())
                elif error is not None:
                    self.error = error
            messages = [message for message in messages if message.error() is None]
        if messages:
            self._runs.append(messages)
            self.count += len(messages)

    def take(self, most: int, stop: int | None = None) -> list[Any]:
        """The next messages, at most ``most``, and only those before the offset ``stop``."""
        taken: list[Any] = []
        while self._runs and len(taken) < most:
            run = self._runs.popleft()
            room = min(most - len(taken), len(run))
            if stop is not None and run[room - 1].offset() >= stop:
                room = bisect_left(run, stop, hi=room, key=_offset)
            if room < len(run):
                self._runs.appendleft(run[room:])
                run = run[:room]
            taken = taken + run if taken else run
            if not room:
                break
        self.count -= len(taken)
        return taken

    @property
    def reached(self) -> int:
        """The offset before which nothing will arrive any more."""
        return int(self._runs[0][0].offset()) if self._runs else self.end


class PartitionsConsumer:
    """One consumer for all partitions of a source that are read in this process.

    It is open as long as there are any.

    Args:
        properties: the user's.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._opened: OpenConsumer | None = None
        #: (topic, partition) -> what has arrived.
        self._received: dict[tuple[str, int], Received] = {}

    @property
    def opened(self) -> OpenConsumer:
        """The consumer."""
        if self._opened is None:
            self._opened = open_consumer(self._properties, _DEFAULTS)
        return self._opened

    def add(self, partition: KafkaTopicPartition, position: int) -> Received:
        """Read a partition, too, from a position on."""
        self.opened.client.incremental_assign([_place(partition, position)])
        received = self._received[partition.topic, partition.partition] = Received()
        return received

    def move(self, partition: KafkaTopicPartition, position: int) -> Received:
        """Read a partition from another position on; what has arrived of it is dropped."""
        received = self._received[partition.topic, partition.partition]
        if received.paused:
            self.resume(partition, received)
        self.read_again([_place(partition, position)])
        received = self._received[partition.topic, partition.partition] = Received()
        return received

    def read_again(self, places: list[Any]) -> None:
        """Read partitions anew from the offsets of ``places``; nothing of them is waiting."""
        self.opened.client.incremental_unassign(places)
        self.opened.client.incremental_assign(places)

    def remove(self, partition: KafkaTopicPartition) -> None:
        """Do not read a partition any more; behind the last the consumer is closed."""
        received = self._received.pop((partition.topic, partition.partition), None)
        if received is None:
            return
        if self._received:
            if received.paused:  # it would be so still if it was added again
                self.resume(partition, received)
            self.opened.client.incremental_unassign([_place(partition)])
        elif self._opened is not None:
            self.close()

    def close(self) -> None:
        """Close the consumer, if it is open."""
        self._received.clear()
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.client.close()

    def fetch(self, most: int, timeout: float = 0) -> None:
        """Sort out what the consumer has received.

        Args:
            most: messages; more are sorted out if they are at hand.
            timeout: seconds to wait for so many.
        """
        wanted = most if timeout else max(most, _AT_A_TIME)
        messages = self.opened.client.consume(wanted, timeout=timeout)
        for place, run in _by_partition(messages):
            received = self._received.get(place)
            if received is not None:
                received.add(run)
                self._pause_if_full(place, received)
                continue
            for error in filter(None, _errors(run)):
                # Of all: the brokers cannot be reached, say.
                for each in self._received.values():
                    each.error = error

    def _pause_if_full(self, place: tuple[str, int], received: Received) -> None:
        most = max(_MOST_WAITING // len(self._received), 1)
        if received.count >= most and not received.paused:
            self.pause(place, received)

    def pause(self, place: tuple[str, int], received: Received) -> None:
        """Receive no more of a partition until it is resumed; what librdkafka holds is dropped."""
        received.paused = True
        self.opened.client.pause([_topic_partition(*place)])

    def is_at_end(self, partition: KafkaTopicPartition, position: int) -> bool:
        """Whether no record was behind ``position`` when the brokers last answered a fetch."""
        _, high = self.opened.client.get_watermark_offsets(_place(partition), cached=True)
        return 0 <= int(high) <= position

    def resume(self, partition: KafkaTopicPartition, received: Received) -> None:
        """Go on with a partition whose cursor was behind."""
        received.paused = False
        self.opened.client.resume([_place(partition)])


class KafkaCursor(SplitCursor):
    """Reads one partition.

    Args:
        consumer: shared by the cursors of the source in this process.
        partition: to be read.
        position: where to begin.
        stop: where to end; None: never.
        decode: makes a batch of messages.
    """

    def __init__(
        self,
        consumer: PartitionsConsumer,
        partition: KafkaTopicPartition,
        position: int,
        stop: int | None,
        decode: Callable[[list[Any]], SourceBatch],
    ) -> None:
        self.position = position
        self._consumer = consumer
        self._partition = partition
        self._stop = stop
        self._decode = decode
        #: Up to where the driver says that there are records.
        self._end = position
        self._received = consumer.add(partition, position)
        #: Monotonic seconds.
        self._polled = self._progress = time.monotonic()
        self._trouble = "no record arrives"

    @property
    def settled(self) -> bool:
        return True

    @property
    def is_over(self) -> bool:
        return self._stop is not None and self.position >= self._stop

    def extend(self, end: int, *, final: bool) -> None:
        """Take what the driver says; the consumer finds it out by itself, and earlier."""
        del final
        self._end = end

    def poll(self, most: int) -> SourceBatch | None:
        while not self.is_over:
            received = self._received
            if not received.count:
                self._consumer.fetch(most)
            messages = received.take(most)
            if received.paused and not received.count:
                self._consumer.resume(self._partition, received)
            before = self.position
            batch = self._advance(messages)
            if self.position == before:
                self._look_for_trouble()
                return None
            self._polled = self._progress = time.monotonic()
            if batch is not None:
                return batch
        return None

    def _advance(self, messages: list[Any]) -> SourceBatch | None:
        """Move behind what has arrived; a batch, unless there is no record in it."""
        batch = None
        if messages:
            behind, stop = messages[-1].offset() + 1, self._stop
            if stop is not None and behind > stop:
                messages = [message for message in messages if message.offset() < stop]
            if messages:
                batch = self._decode(messages)
            self.position = behind
        if not self._received.count:
            self.position = max(self.position, self._received.end)
        if self._stop is not None:
            self.position = min(self.position, self._stop)
        if batch is None or not (len(batch) or batch.dead_letters):
            return None
        batch.position = self.position
        return batch

    def _look_for_trouble(self) -> None:
        """Nothing has arrived.

        Raises:
            SourceError: it cannot, or there were records for a long time.
        """
        error, self._received.error = self._received.error, None
        opened, now = self._consumer.opened, time.monotonic()
        if error is not None:
            self._trouble = judge(
                opened.client, error, self._partition, self.position, self._consumer.read_again
            )
        if now - self._polled > _LONG or self.position >= self._end:
            self._progress = now
        self._polled = now
        self._progress = max(self._progress, opened.busy)
        if now - self._progress > PATIENCE:
            raise stuck(opened, self._partition, self.position, self._end, self._trouble)

    def close(self) -> None:
        self._consumer.remove(self._partition)


def _place(partition: KafkaTopicPartition, position: int | None = None) -> Any:
    return _topic_partition(partition.topic, partition.partition, position)


def _topic_partition(topic: str, number: int, position: int | None = None) -> Any:
    from confluent_kafka import TopicPartition

    if position is None:
        return TopicPartition(topic, number)
    return TopicPartition(topic, number, position)


def _offset(message: Any) -> int:
    return int(message.offset())


def _errors(messages: list[Any]) -> Iterator[Any]:
    """The error of each message, mostly None.

    By the method of their class: so ``map`` calls it in a fifth of the time of ``methodcaller``.
    """
    return map(type(messages[0]).error, messages) if messages else iter(())


def _by_partition(messages: list[Any]) -> Iterator[tuple[tuple[str, int], list[Any]]]:
    """Runs of messages of one partition each."""
    if not messages:
        return
    # As in ``_errors``.
    topic_of, partition_of = type(messages[0]).topic, type(messages[0]).partition
    numbers, topics = set(map(partition_of, messages)), set(map(topic_of, messages))
    if len(numbers) == len(topics) == 1:
        yield (topics.pop(), numbers.pop()), messages
        return
    for number, run in groupby(messages, key=partition_of):
        for topic, part in groupby(run, key=topic_of):
            yield (topic, number), list(part)
