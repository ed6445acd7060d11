"""Reading ``[start, stop)`` of a partition in a task that ends with each epoch.

What it is: one consumer per worker process and configuration, which stays open between epochs and
goes on with each partition where it was read last.  What it has fetched beyond a range waits for
the next one: a broker sends far more at a time than a short epoch reads.

Offsets have gaps: compaction removes records, and the markers of transactions take offsets that no
reader sees.  So reading ends when the *position* is at ``stop``: a record at or behind it arrives,
or the consumer says that it is at the end of the partition.  Behind an aborted transaction of many
records that takes a while, since the consumer fetches what it then drops.

A worker mostly gets the range that follows (``engines/spark/worker_homes.py``), but need not: its
own may have been busy, or an epoch is repeated.  Then the partition is read anew from the start of
the range.

What it is not: what decides where to read; that is ``source.py`` in the driver.

Read next: ``connectors/kafka/cursor.py``, which sorts out what the consumer receives.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.connectors.kafka.cursor import PartitionsConsumer, Received
from millstream.connectors.kafka.reader import PATIENCE, judge, stuck
from millstream.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.connectors.kafka.client import KafkaTopicPartition

__all__ = ["RangeConsumer", "close_consumers", "range_consumer", "read_range"]

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
        """What comes next below ``stop``; moves the position."""
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
