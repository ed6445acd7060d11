"""Finds transactions that hold readers up and that nobody will ever end.

What it is: a search for partitions whose *last stable offset*, up to which readers with
``read_committed`` get, stands still behind the end of the log, while no coordinator knows a
transaction that is open there.  Nothing ends such a transaction: its coordinator has ended it, and
a Produce that arrived later began it anew (KIP-664, KIP-890).  Millstream's sinks leave none
(``PooledProducer.abort``); other programs may.

What it is not: a repair.  Only WriteTxnMarkers can, to which brokers admit administrators of the
cluster alone; ``HangingTransaction.remedy`` says by which command.

Read next: ``cli/transactions_command.py``, ``connectors/kafka/transactions.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.connectors.kafka.client import KafkaCluster, KafkaTopicPartition
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.connectors.kafka.transactions import (
        OpenProducer,
        TransactionControl,
        TransactionInfo,
    )

__all__ = ["HangingTransaction", "find_hanging"]


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition, and that no coordinator knows."""

    partition: KafkaTopicPartition
    #: The last stable offset.
    stable: int
    #: The end of the partition's log.
    end: int
    #: Whose it is; None if the brokers do not tell.
    producer: OpenProducer | None

    def remedy(self, servers: str) -> str:
        """What an administrator of the cluster can do, as a command."""
        topic, number = self.partition.topic, self.partition.partition
        start = self.stable if self.producer is None else self.producer.start
        text = (
            f"kafka-transactions.sh --bootstrap-server {servers} abort --topic {topic}"
            f" --partition {number} --start-offset {start}"
        )
        if self.producer is None:
            return text
        # What Java's tool sends for a producer of which the partition has no marker yet is 0.
        return (
            f"{text}\n    or python -m kafka.admin -b {servers} transactions abort --topic {topic}"
            f" --partition {number} --producer-id {self.producer.producer_id} --producer-epoch"
            f" {self.producer.producer_epoch} --coordinator-epoch"
            f" {max(0, self.producer.coordinator_epoch)}"
        )


def find_hanging(
    properties: Mapping[str, str], control: TransactionControl
) -> list[HangingTransaction]:
    """Look through all partitions that the client may see.

    The order of the questions makes the answer true at any time, whatever goes on meanwhile: what
    is open in a partition before *and* after the coordinators were asked was open then, too, and a
    coordinator knows a transaction from before its first record until its last marker is written.

    Args:
        properties: of the client.
        control: asks the coordinators.

    Returns:
        One per producer and partition; one per partition where the brokers name no producers.

    Raises:
        SinkError: the brokers do not answer.
    """
    cluster = KafkaCluster(properties, SinkError, "Kafka transactions")
    partitions = {
        KafkaTopicPartition(topic, number): "latest"
        for topic, numbers in cluster.topics().items()
        for number in numbers
    }
    before = _held_up(cluster, partitions)
    if not before:
        return []
    asked = [(partition.topic, partition.partition) for partition in before]
    opened = control.producers_with_transactions(asked)
    known = control.unfinished()
    after = _held_up(cluster, dict.fromkeys(before, "latest"))
    again = control.producers_with_transactions(asked)
    found: list[HangingTransaction] = []
    for partition, (stable, _) in before.items():
        if partition not in after or after[partition][0] != stable:
            continue
        here = [info for info in known if str(partition) in info.partitions]
        key = partition.topic, partition.partition
        still = [each for each in again.get(key, []) if each in opened.get(key, [])]
        found += _unknown(partition, after[partition], still, here)
    return found


def _held_up(
    cluster: KafkaCluster, partitions: Mapping[KafkaTopicPartition, object]
) -> dict[KafkaTopicPartition, tuple[int, int]]:
    """Last stable offset and end of those partitions in which the two differ."""
    stable = cluster.offsets(partitions, committed_only=True)
    ends = cluster.offsets(partitions)
    return {
        partition: (stable[partition], ends[partition])
        for partition in partitions
        if stable[partition] < ends[partition]
    }


def _unknown(
    partition: KafkaTopicPartition,
    offsets: tuple[int, int],
    producers: list[OpenProducer],
    known: list[TransactionInfo],
) -> list[HangingTransaction]:
    if not producers:
        # What is open first holds the offset; with a known one there may be others behind it.
        return [] if known else [HangingTransaction(partition, *offsets, None)]
    ids = {info.producer_id for info in known}
    return [
        HangingTransaction(partition, *offsets, each)
        for each in producers
        if each.producer_id not in ids
    ]
