"""Where reading begins and ends: PyFlink's ``KafkaOffsetsInitializer``.

What it is: a choice, made once per partition when it is discovered; the answer is logged with the
split and holds from then on, also after restarts.

What it is not: the position of a running job, which is in its checkpoints.

Read next: ``connectors/kafka/source.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from millstream.connectors.kafka.client import TIMEOUT, client_configuration
from millstream.errors import ConfigurationError, SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.connectors.kafka.client import KafkaCluster, KafkaTopicPartition

__all__ = ["KafkaOffsetResetStrategy", "KafkaOffsetsInitializer"]


class KafkaOffsetResetStrategy(Enum):
    """Where to begin if the wanted offset does not exist."""

    LATEST = "latest"
    EARLIEST = "earliest"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class KafkaOffsetsInitializer:
    """Which offset of each partition; made by the static methods."""

    kind: str
    time: int = 0
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE
    given: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """The first record that the broker still has."""
        return KafkaOffsetsInitializer("earliest")

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Behind the last record."""
        return KafkaOffsetsInitializer("latest")

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first record with this timestamp (milliseconds) or a later one."""
        return KafkaOffsetsInitializer("timestamp", time=timestamp)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """What the consumer group committed; where it did not, as the reset strategy says."""
        return KafkaOffsetsInitializer("committed", reset=offset_reset_strategy)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """The given offsets; for other partitions as the reset strategy says."""
        return KafkaOffsetsInitializer("offsets", reset=offset_reset_strategy, given=dict(offsets))

    def resolve(
        self,
        partitions: Sequence[KafkaTopicPartition],
        cluster: KafkaCluster,
        properties: Mapping[str, str],
        *,
        committed_only: bool,
    ) -> dict[KafkaTopicPartition, int]:
        """The offset of each partition.

        Raises:
            SourceError: the group committed none and the reset strategy is NONE.
        """
        if self.kind in {"earliest", "latest"}:
            return cluster.offsets(
                dict.fromkeys(partitions, self.kind), committed_only=committed_only
            )
        if self.kind == "timestamp":
            found = cluster.offsets(dict.fromkeys(partitions, self.time))
            late = [partition for partition, offset in found.items() if offset < 0]
            ends = cluster.offsets(dict.fromkeys(late, "latest"), committed_only=committed_only)
            return found | ends
        known = dict(self.given) if self.kind == "offsets" else _committed(partitions, properties)
        found = {partition: known[partition] for partition in partitions if partition in known}
        missing = [partition for partition in partitions if partition not in found]
        if not missing:
            return found
        if self.reset is KafkaOffsetResetStrategy.NONE:
            message = (
                f"no start offset is known for {', '.join(map(str, missing))}: the group"
                f" {properties.get('group.id')!r} has committed none. Give a reset strategy:"
                " committed_offsets(KafkaOffsetResetStrategy.EARLIEST)"
            )
            raise SourceError(message)
        kind = self.reset.value
        return found | cluster.offsets(dict.fromkeys(missing, kind), committed_only=committed_only)


def _committed(
    partitions: Sequence[KafkaTopicPartition], properties: Mapping[str, str]
) -> dict[KafkaTopicPartition, int]:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    if not properties.get("group.id"):
        message = "committed offsets are those of a consumer group: call set_group_id(...)"
        raise ConfigurationError(message)
    consumer = Consumer(client_configuration(properties, kind="consumer"))
    try:
        asked = [TopicPartition(partition.topic, partition.partition) for partition in partitions]
        answers = consumer.committed(asked, timeout=TIMEOUT)
    except KafkaException as error:
        message = f"cannot ask for the committed offsets: {error.args[0].str()}"
        raise SourceError(message) from error
    finally:
        consumer.close()
    for answer in answers:
        if answer.error is not None:  # not "none committed": reading would begin elsewhere
            message = f"cannot ask for the committed offset of {answer}: {answer.error.str()}"
            raise SourceError(message)
    by_partition = dict(zip(partitions, answers, strict=True))
    return {
        partition: answer.offset for partition, answer in by_partition.items() if answer.offset >= 0
    }
