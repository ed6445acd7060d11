"""Consumers of tasks: how they are opened, and which of librdkafka's errors are transient.

They belong to no group's membership: partitions are assigned by Millstream.
"""

from __future__ import annotations

import json
import os
import time
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.connectors.kafka.client import (
    TIMEOUT,
    ClientLog,
    client_configuration,
    require_accepted,
    require_confluent_kafka,
)
from millstream.contracts.source import SplitCursor
from millstream.errors import ConfigurationError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.connectors.kafka.client import KafkaTopicPartition
    from millstream.contracts.source import SourceBatch


#: librdkafka's names.
_EARLIEST: Final = frozenset({"earliest", "smallest", "beginning"})
#: Seconds without any progress before a read fails.
PATIENCE: Final = 30.0
#: Bytes per second that tell records from answers without any, which come all the time.
_MUCH: Final = 300_000


@dataclass(slots=True)
class OpenConsumer:
    """A consumer, and what is known about what it reads."""

    client: Any = None
    log: ClientLog = field(default_factory=lambda: ClientLog(""))
    #: Bytes that it has received, as of its last statistics; they come every second.
    received: int = 0
    #: Monotonic seconds, when it last had received many.
    busy: float = float("-inf")

    def count(self, statistics: str) -> None:
        """Take librdkafka's statistics."""
        received = int(json.loads(statistics).get("rx_bytes", 0))
        if received - self.received > _MUCH:
            self.busy = time.monotonic()
        self.received = received


def stuck(
    consumer: OpenConsumer, partition: KafkaTopicPartition, position: int, stop: int, trouble: str
) -> SourceError:
    """The error for a partition of which nothing arrived for ``PATIENCE`` seconds.

    Args:
        consumer: that reads it.
        partition: that is read.
        position: how far.
        stop: up to where there are records.
        trouble: what is known of the cause.
    """
    return SourceError(
        f"cannot read {partition} from offset {position} to {stop}:"
        f" {consumer.log.trouble or trouble}, for {PATIENCE:.0f} s. Check that the brokers"
        " run and that the workers reach them."
    )


def is_end(error: Any) -> bool:
    """Return whether this "error" says that the consumer is at the end of a partition."""
    from confluent_kafka import KafkaError

    return bool(error.code() == KafkaError._PARTITION_EOF)  # noqa: SLF001 - its public name


def judge(
    consumer: Any,
    error: Any,
    partition: KafkaTopicPartition,
    position: int,
    again: Callable[[list[Any]], object],
) -> str:
    """Go on after an error that may pass.

    Args:
        consumer: confluent's.
        error: what it says.
        partition: of which it is said.
        position: up to where it was read.
        again: has the consumer read a list of positions again.

    Returns:
        What the error says.

    Raises:
        SourceError: it does not pass.
    """
    from confluent_kafka import KafkaError, TopicPartition

    code = error.code()
    if code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001
        # Brokers also say so for a moment, when they do not know their newest records yet.
        here = TopicPartition(partition.topic, partition.partition, position)
        low, high = consumer.get_watermark_offsets(here, timeout=TIMEOUT)
        if low <= position < high:
            again([here])
            return str(error.str())
        message = (
            f"offset {position} of {partition} does not exist, the topic has {low} to {high}: the"
            " topic's retention deleted it before it was read, or the topic was recreated. Set the"
            " property auto.offset.reset to 'earliest' to continue with what there is, and keep"
            " records longer."
        )
        raise SourceError(message)
    if error.fatal() or code in {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - its public name
    }:
        message = f"cannot read {partition} at offset {position}: {error.str()}"
        raise SourceError(message)
    return str(error.str())


def open_consumer(
    properties: Mapping[str, str], defaults: Mapping[str, str] | None = None
) -> OpenConsumer:
    """A consumer of its own, which reads nothing yet.

    Args:
        properties: the user's.
        defaults: for those that the user does not set.

    Raises:
        ConfigurationError: the properties are not accepted.
    """
    from confluent_kafka import Consumer, KafkaException

    opened = OpenConsumer()
    configuration = _configuration(dict(defaults or {}) | dict(properties))
    opened.log = configuration["logger"]
    callbacks = {"stats_cb": opened.count, "error_cb": opened.log.on_error}
    try:
        opened.client = Consumer(configuration | callbacks | {"statistics.interval.ms": 1000})
    except (KafkaException, ValueError, TypeError) as error:
        message = f"the properties of the Kafka source are not accepted: {error}"
        raise ConfigurationError(message) from error
    return opened


def check_properties(properties: Mapping[str, str], who: str) -> None:
    """Check properties with librdkafka, without talking to a broker.

    Raises:
        ConfigurationError: one is unknown, or its value is not accepted.
    """
    require_confluent_kafka()
    from confluent_kafka import Consumer

    nowhere = {"bootstrap.servers": ""}
    require_accepted(
        properties, "consumer", who, lambda: Consumer(_configuration(properties) | nowhere)
    )


def _configuration(properties: Mapping[str, str]) -> dict[str, Any]:
    defaults = {"group.id": "millstream", "fetch.wait.max.ms": "20"}
    reset = properties.get("auto.offset.reset")
    forced = {
        # "latest" would pass over what there is, and count it as read.
        "auto.offset.reset": "earliest" if reset in _EARLIEST else "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
    }
    return client_configuration(defaults | dict(properties), forced, "consumer")


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
    """Records of a partition that have arrived and were not handed out."""

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
        """Read partitions again from the offsets of ``places``; nothing of them is waiting."""
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
            most: messages; more are sorted out if they are available.
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


#: Seconds that one poll waits: where the range ends with the marker of a transaction, only the
#: end of the partition says so.
_POLL: Final = 0.01
#: Seconds after which a partition that nobody reads here any more is let go.
_UNUSED: Final = 60.0
#: No range begins there.
_LOST: Final = -1


@dataclass(slots=True, eq=False)
class _Reading:
    """A partition as this process reads it."""

    received: Received
    #: Everything before it was handed out, or is known not to be there.
    position: int
    #: Monotonic seconds.
    used: float = 0.0


class RangeConsumer:
    """Reads ranges of any partitions, one after the other, with one consumer.

    Args:
        properties: the user's.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.partitions = PartitionsConsumer(properties)
        self._readings: dict[KafkaTopicPartition, _Reading] = {}

    def read(self, partition: KafkaTopicPartition, start: int, stop: int) -> Iterator[list[Any]]:
        """The messages of ``[start, stop)``, in lists of at most ``BATCH_SIZE``."""
        reading = self._begin(partition, start)
        received, progress = reading.received, time.monotonic()
        trouble = "no record arrives"
        while reading.position < stop:
            before = reading.position
            messages = self._next(partition, reading, stop)
            if messages:
                yield messages
            error, received.error = received.error, None
            now = time.monotonic()
            opened = self.partitions.opened
            progress = now if reading.position > before else max(progress, opened.busy)
            try:
                if error is not None and reading.position < stop:
                    again = self.partitions.read_again
                    trouble = judge(opened.client, error, partition, reading.position, again)
                if now - progress > PATIENCE:
                    raise stuck(opened, partition, reading.position, stop, trouble)
            except SourceError:
                reading.position = _LOST  # whoever tries again shall begin anew
                raise

        if start < stop:
            self._rest(partition, reading)

    def _rest(self, partition: KafkaTopicPartition, reading: _Reading) -> None:
        """Ask the brokers for no more if there is nothing behind the range.

        Else the consumer asks all the time until the next one, and a broker that does not keep
        such requests waiting takes whole cores with the answers.  Where there is more, the consumer
        may hold it already, and pausing would throw it away.
        """
        received = reading.received
        nothing_waits = not received.count and not received.paused
        if nothing_waits and self.partitions.is_at_end(partition, reading.position):
            self.partitions.pause((partition.topic, partition.partition), received)

    def _begin(self, partition: KafkaTopicPartition, start: int) -> _Reading:
        now = time.monotonic()
        reading = self._readings.get(partition)
        if reading is None:
            reading = _Reading(self.partitions.add(partition, start), start)
            self._readings[partition] = reading
        elif reading.position != start:
            reading.received = self.partitions.move(partition, start)
            reading.position = start
        reading.used = now
        for other in [p for p, each in self._readings.items() if now - each.used > _UNUSED]:
            del self._readings[other]
            self.partitions.remove(other)
        return reading

    def _next(self, partition: KafkaTopicPartition, reading: _Reading, stop: int) -> list[Any]:
        """Return what comes next below ``stop``; moves the position."""
        received = reading.received
        if not received.count:
            if received.paused:
                self.partitions.resume(partition, received)
            if received.end < stop:
                self.partitions.fetch(min(BATCH_SIZE, stop - reading.position), _POLL)
        messages = received.take(BATCH_SIZE, stop)
        behind = messages[-1].offset() + 1 if messages else reading.position
        reading.position = max(behind, min(received.reached, stop))
        return messages

    def close(self) -> None:
        """Close the consumer."""
        self._readings.clear()
        self.partitions.close()


#: (process id, configuration) -> consumer.
_consumers: dict[tuple[int, str], RangeConsumer] = {}


def read_range(
    properties: Mapping[str, str], partition: KafkaTopicPartition, start: int, stop: int
) -> Iterator[list[Any]]:
    """The messages of ``[start, stop)``, in lists of at most ``BATCH_SIZE``.

    Raises:
        SourceError: the offsets are gone, or the brokers do not answer.
    """
    return range_consumer(properties).read(partition, start, stop)


def range_consumer(properties: Mapping[str, str]) -> RangeConsumer:
    """The one of this process."""
    key = os.getpid(), json.dumps(dict(properties), sort_keys=True)
    if key not in _consumers:
        _consumers[key] = RangeConsumer(properties)
    return _consumers[key]


def close_consumers() -> None:
    """Close the consumers of this process (tests do; workers end with their process)."""
    while _consumers:
        _consumers.popitem()[1].close()
