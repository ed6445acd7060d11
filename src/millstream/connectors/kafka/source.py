"""Flink's ``KafkaSource``: partitions as splits, Kafka's offsets as positions.

The driver finds partitions and asks how far they can be read; tasks read ranges.  Which offset a
partition begins (and ends) at is decided when it is discovered and logged with the split.
Positions live in Millstream's checkpoints; committing them to a consumer group is for monitoring
only.
"""

from __future__ import annotations

import os
import re
import time
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.file_format import MalformedPolicy
from millstream.connectors.kafka.client import (
    TIMEOUT,
    KafkaCluster,
    KafkaTopicPartition,
    client_configuration,
    shown,
)
from millstream.connectors.kafka.reader import (
    KafkaCursor,
    PartitionsConsumer,
    check_properties,
    read_range,
)
from millstream.contracts.serialization import NO_RECORD
from millstream.contracts.source import Boundedness, OffsetCommits, Source, SourceBatch, Split
from millstream.errors import ConfigurationError, MalformedRecordError, SourceError
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from millstream.contracts.serialization import DeserializationSchema
    from millstream.contracts.source import KnownSplits, SplitCursor
    from millstream.types.types import TypeInformation


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
        """Return what the consumer group committed.

        Where it did not, as the reset strategy says.
        """
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


#: Characters of a malformed record that an error shows.
_SHOWN: Final = 200
_ADVICE: Final = (
    "correct the producer, or use set_malformed('dead-letter') to set such records aside"
)
_NO_TIMESTAMP: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record as it is in Kafka."""

    topic: str
    partition: int
    offset: int
    #: Milliseconds; the minimum long if the record has none.
    timestamp: int
    key: bytes | None
    #: None is a tombstone.
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class KafkaRecordDeserializationSchema(ABC):
    """Makes a record of the stream from a record of Kafka; pickled to the workers."""

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation:
        """The type of the records."""

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> object:
        """The record of the stream; raises ValueError if it does not parse."""

    def batch(self, messages: Sequence[Any], policy: MalformedPolicy) -> SourceBatch:
        """A batch of confluent's messages as a batch of the stream.

        Raises:
            MalformedRecordError: a message does not parse, and the policy is to fail.
        """
        return _one_by_one(self, messages, policy)

    @staticmethod
    def value_only(schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """Look at the value alone; tombstones are passed over."""
        return ValueOnly(schema)

    @staticmethod
    def of(
        function: Callable[[KafkaRecord], object], output_type: TypeInformation | None = None
    ) -> KafkaRecordDeserializationSchema:
        """Call a function with each KafkaRecord."""
        return _Function(function, output_type or Types.PICKLED_BYTE_ARRAY())


class ValueOnly(KafkaRecordDeserializationSchema):
    """The value by a DeserializationSchema."""

    def __init__(self, schema: DeserializationSchema) -> None:
        self.schema = schema

    @property
    def produced_type(self) -> TypeInformation:
        return self.schema.produced_type

    def deserialize(self, record: KafkaRecord) -> object:
        return self.schema.deserialize(record.value or b"")

    def batch(self, messages: Sequence[Any], policy: MalformedPolicy) -> SourceBatch:
        contents = [message.value() for message in messages]
        if None in contents:
            messages = [message for message in messages if message.value() is not None]
            contents = [content for content in contents if content is not None]
        columns = self.schema.deserialize_columns(contents) if contents else None
        if columns is not None:
            return SourceBatch(arrow=columns, timestamps=_timestamps(messages))
        return _one_by_one(self, messages, policy)


class _Function(KafkaRecordDeserializationSchema):
    def __init__(
        self, function: Callable[[KafkaRecord], object], output_type: TypeInformation
    ) -> None:
        self._function = function
        self._type = output_type

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    def deserialize(self, record: KafkaRecord) -> object:
        return self._function(record)


def kafka_record(message: Any) -> KafkaRecord:
    """A message of confluent-kafka as a KafkaRecord."""
    return KafkaRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp=_timestamp(message),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )


def _timestamp(message: Any) -> int:
    kind, milliseconds = message.timestamp()
    return int(milliseconds) if kind else _NO_TIMESTAMP


def _timestamps(messages: Sequence[Any]) -> list[int]:
    # No tuple outlives its turn: thousands of them would have the whole heap collected.
    return [pair[1] if (pair := message.timestamp())[0] else _NO_TIMESTAMP for message in messages]


def _one_by_one(
    schema: KafkaRecordDeserializationSchema, messages: Sequence[Any], policy: MalformedPolicy
) -> SourceBatch:
    values: list[object] = []
    timestamps: list[int] = []
    letters: list[tuple[str, str, str]] = []
    for message in messages:
        record = kafka_record(message)
        try:
            value = schema.deserialize(record)
        except (ValueError, ArithmeticError, LookupError, TypeError) as error:
            if policy is MalformedPolicy.FAIL:
                raise malformed_error(record, error) from error
            letters.append(dead_letter(record, error))
            continue
        if value is not NO_RECORD:
            values.append(value)
            timestamps.append(record.timestamp)
    kind = schema.produced_type
    if kind.arrow_schema is None:
        return SourceBatch(values=values, timestamps=timestamps, dead_letters=letters)
    return SourceBatch(arrow=kind.to_arrow(values), timestamps=timestamps, dead_letters=letters)


def dead_letter(record: KafkaRecord, error: Exception) -> tuple[str, str, str]:
    """A record that does not parse, as sources report it."""
    place = f"{record.topic}-{record.partition}:{record.offset}"
    return place, _shown(record), str(error)


def _shown(record: KafkaRecord) -> str:
    return (record.value or b"").decode("utf-8", "backslashreplace")


def malformed_error(
    record: KafkaRecord, error: Exception, advice: str = _ADVICE
) -> MalformedRecordError:
    """The error for a record that does not parse.

    Args:
        record: the record.
        error: what its decoder said.
        advice: what to do about it.
    """
    raw = _shown(record)
    shown = raw if len(raw) <= _SHOWN else raw[:_SHOWN] + "..."
    return MalformedRecordError(
        f"topic {record.topic!r}, partition {record.partition}, offset {record.offset}: malformed"
        f" record: {error}; the value is {shown!r}; {advice}"
    )


#: Seconds that an answer about ends of partitions is used: the planner asks several times over.
_ENDS_VALID: Final = 0.02
#: Milliseconds between two looks for new partitions, as in Flink.
_DISCOVERY_INTERVAL: Final = 300_000


class KafkaSource(Source):
    """Reads topics of Kafka; made by ``KafkaSource.builder()``."""

    initial_limit = 200_000
    cursors_follow = True
    side_by_side = True
    offsets_are_records = True

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        topics: tuple[str, ...],
        pattern: str | None,
        partitions: tuple[KafkaTopicPartition, ...],
        start: KafkaOffsetsInitializer,
        stop: KafkaOffsetsInitializer | None,
        bounded: bool,
        deserializer: KafkaRecordDeserializationSchema,
        malformed: MalformedPolicy,
    ) -> None:
        self.properties = dict(properties)
        self.topics = topics
        self.pattern = pattern
        self.partitions = partitions
        self._start = start
        self._stop = stop
        self._bounded = bounded
        self._deserializer = deserializer
        self._malformed = malformed
        self._forget()

    def _forget(self) -> None:
        """What belongs to one process and run."""
        self._cluster_client: KafkaCluster | None = None
        self._committer: _Committer | None = None
        #: Of the cursors in this process.
        self._partitions: PartitionsConsumer | None = None
        #: Monotonic seconds.
        self._discovered = float("-inf")
        self._asked = float("-inf")
        #: Splits whose end is asked for, and the ends as of ``_asked``.
        self._ends: dict[KafkaTopicPartition, int] = {}
        #: Topic -> its id as of the last look for new partitions.
        self._topic_ids: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        own: dict[str, Any] = {"_cluster_client": None, "_committer": None, "_ends": {}}
        return self.__dict__ | own | {"_topic_ids": {}, "_partitions": None}

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Start building."""
        return KafkaSourceBuilder()

    # -- what it is ----------------------------------------------------------------------------

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED if self._bounded else Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return self._deserializer.produced_type

    @property
    def _committed_only(self) -> bool:
        return self.properties.get("isolation.level", "read_committed") == "read_committed"

    @property
    def _cluster(self) -> KafkaCluster:
        if self._cluster_client is None:
            self._cluster_client = KafkaCluster(self.properties, SourceError, str(self))
        return self._cluster_client

    def __str__(self) -> str:
        what = self.pattern or ", ".join(self.topics) or ", ".join(map(str, self.partitions))
        return f"Kafka source of {what!r}"

    def __repr__(self) -> str:
        return f"<{self}: {shown(self.properties)}>"

    def validate(self) -> None:
        """Check the properties, that the brokers answer, and have the topics.

        Raises:
            ConfigurationError: a property is unknown, or its value is not accepted.
            SourceError: the brokers do not answer, or lack a topic.
        """
        check_properties(self.properties, str(self))
        wanted = set(self.topics) | {each.topic for each in self.partitions}
        self._cluster.require_topics(wanted)

    def start(self) -> None:
        self._forget()

    def stop(self) -> None:
        if self._committer is not None:
            self._committer.close()
        self._forget()

    # -- splits --------------------------------------------------------------------------------

    def discover(self, known: KnownSplits) -> list[Split]:
        """New partitions.  Those found later than the first begin at their earliest record."""
        interval = int(self.properties.get("partition.discovery.interval.ms", _DISCOVERY_INTERVAL))
        now = time.monotonic()
        waited = now - self._discovered
        if known and (interval <= 0 or waited < interval / 1000):
            return []
        self._discovered = now
        partitions = self._found_partitions()
        # Before the offsets: a topic that is recreated in between is then noticed, not mistaken.
        self._topic_ids = self._ask_for_ids({partition.topic for partition in partitions})
        new = [partition for partition in partitions if str(partition) not in known]
        if not new:
            return []
        begin = KafkaOffsetsInitializer.earliest() if known else self._start
        starts = self._resolve(begin, new)
        stops = {} if self._stop is None else self._resolve(self._stop, new)
        return [
            self._split(partition, starts[partition], stops.get(partition))
            for partition in sorted(new)
        ]

    def _split(self, partition: KafkaTopicPartition, start: int, stop: int | None) -> Split:
        properties: dict[str, object] = {
            "topic": partition.topic,
            "partition": partition.partition,
            "start": start,
        }
        if self._topic_ids.get(partition.topic):
            properties["topic_id"] = self._topic_ids[partition.topic]
        if stop is not None:
            properties["stop"] = max(start, stop)
        return Split(str(partition), properties)

    def _resolve(
        self, initializer: KafkaOffsetsInitializer, partitions: list[KafkaTopicPartition]
    ) -> dict[KafkaTopicPartition, int]:
        return initializer.resolve(
            partitions, self._cluster, self.properties, committed_only=self._committed_only
        )

    def _found_partitions(self) -> list[KafkaTopicPartition]:
        topics = self._cluster.topics()
        if self.partitions:
            return list(self.partitions)
        pattern = re.compile(self.pattern) if self.pattern is not None else None
        return [
            KafkaTopicPartition(topic, partition)
            for topic in sorted(topics)
            if topic in self.topics or (pattern is not None and pattern.fullmatch(topic))
            for partition in topics[topic]
        ]

    def start_offset(self, split: Split) -> int:
        """As decided when the partition was found."""
        return int(str(split.properties["start"]))

    def end_offset(self, split: Split) -> int:
        """Up to the last stable offset, or to the given end; raises SourceError."""
        stop = split.properties.get("stop")
        if stop is None:
            self._require_same_topic(split)
        return self._readable(_partition_of(split)) if stop is None else int(str(stop))

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        """As far as the limit allows; a given end may not be there yet."""
        if "stop" in split.properties:
            self._require_same_topic(split)  # not in end_offset: what is read may be deleted
            readable = self._readable(_partition_of(split))
            if readable < start:
                self.ends_early(split, start)
            end = max(start, min(end, readable))
        return min(start + limit, end)

    def ends_early(self, split: Split, position: int) -> None:
        """Tell a partition that lost records from one with an open transaction before ``position``.

        The latter is what a job finds that read uncommitted records before.

        Raises:
            SourceError: it lost records, or was recreated.
        """
        partition = _partition_of(split)
        written = self._cluster.offsets({partition: "latest"}, committed_only=False)[partition]
        if written >= position:
            return
        message = (
            f"{self}: {partition} was read up to offset {position}, but ends at {written}: the"
            " topic was recreated, or its brokers lost records. This job cannot continue: what"
            " it would read next is not what came next. Start it with an empty checkpoint"
            " directory, at the offsets that you want."
        )
        raise SourceError(message)

    def _ask_for_ids(self, topics: AbstractSet[str]) -> dict[str, str]:
        if self.properties.get("check.topic.ids", "true").lower() == "false":
            return dict.fromkeys(topics, "")
        return self._cluster.topic_ids(topics)

    def _require_same_topic(self, split: Split) -> None:
        """Compare the topic's id with that of the topic in which the split was found.

        Cases:

        1. The split has none: it is of a checkpoint, or was given by brokers, without ids.
        2. The brokers give none now, or tell nothing of the topic -> nothing can be said.
        3. They are the same -> the same topic.
        4. They differ -> it was deleted and recreated, and its offsets count other records.

        Raises:
            SourceError: case 4.
        """
        found, topic = split.properties.get("topic_id"), str(split.properties["topic"])
        if not found:
            return
        if topic not in self._topic_ids:
            self._topic_ids |= self._ask_for_ids({topic})
        now = self._topic_ids.get(topic)
        if not now or now == found:
            return
        message = (
            f"{self}: topic {topic!r} has been deleted and recreated since {_partition_of(split)}"
            f" was found: its id was {found} and is {now}. The offsets of this job count the"
            " records of the old one, so that it would pass over records of the new one. Start it"
            " with an empty checkpoint directory, at the offsets that you want. If the topic was"
            " only moved, each record with its offset, set the property check.topic.ids to 'false'."
        )
        raise SourceError(message)

    def _readable(self, partition: KafkaTopicPartition) -> int:
        """The end of a partition, all of them being asked for at a time."""
        now = time.monotonic()
        if partition not in self._ends or now - self._asked > _ENDS_VALID:
            wanted = dict.fromkeys([*self._ends, partition], "latest")
            self._ends = self._cluster.offsets(wanted, committed_only=self._committed_only)
            self._asked = time.monotonic()
        return self._ends[partition]

    def is_final(self, split: Split) -> bool:
        return "stop" in split.properties

    # -- reading and telling -------------------------------------------------------------------

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        if start >= stop:
            return
        for messages in read_range(self.properties, _partition_of(split), start, stop):
            batch = self._deserializer.batch(messages, self._malformed)
            if batch.timestamps or batch.dead_letters:
                yield batch

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        """Read the partition with the consumer that all cursors of the source share here."""
        if self._partitions is None:
            self._partitions = PartitionsConsumer(self.properties)
        stop = split.properties.get("stop")
        return KafkaCursor(
            self._partitions,
            _partition_of(split),
            position,
            None if stop is None else int(str(stop)),
            lambda messages: self._deserializer.batch(messages, self._malformed),
        )

    @property
    def commits(self) -> OffsetCommits | None:
        return None if self._committer is None else self._committer.commits

    def metric_groups(self, split_id: str) -> Mapping[str, str]:
        topic, _, number = split_id.rpartition("-")
        return {"topic": topic, "partition": number}

    def committed(self, offsets: dict[str, int]) -> None:
        """Commit the offsets to the consumer group, if there is one; nobody waits for it."""
        wanted = self.properties.get("commit.offsets.on.checkpoint", "true").lower() == "true"
        if not self.properties.get("group.id") or not wanted or not offsets:
            return
        from confluent_kafka import TopicPartition

        if self._committer is None:
            self._committer = _Committer(self.properties)
        found = [(name.rpartition("-"), at) for name, at in offsets.items()]
        self._committer.client.commit(
            offsets=[TopicPartition(topic, int(number), at) for (topic, _, number), at in found],
            asynchronous=True,
        )
        self._committer.client.poll(0)


class _Committer:
    """A consumer that only commits, and is closed before it is dropped.

    One that is dropped right after its first commit keeps librdkafka waiting for 45 seconds, in
    whatever thread collects the garbage.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        from confluent_kafka import Consumer

        self._results = _CommitResults()
        forced = {"enable.auto.commit": False, "on_commit": self._results.note}
        self.client = Consumer(client_configuration(properties, forced, "consumer"))
        #: Waits for what is committed; only the first call counts.
        self.close = weakref.finalize(self, _close, self.client, os.getpid())
        self.close.atexit = False

    @property
    def commits(self) -> OffsetCommits:
        """What is known of its commits."""
        return self._results.commits


class _CommitResults:
    """Takes the answers to commits; the client holds it, and must not hold its committer."""

    def __init__(self) -> None:
        self.commits = OffsetCommits()

    def note(self, error: object, partitions: Sequence[Any]) -> None:
        """Take an answer; called by ``poll``."""
        commits = self.commits
        if error is not None or any(each.error is not None for each in partitions):
            self.commits = replace(commits, failed=commits.failed + 1)
            return
        offsets = {f"{each.topic}-{each.partition}": each.offset for each in partitions}
        self.commits = OffsetCommits(
            commits.succeeded + 1, commits.failed, {**commits.offsets, **offsets}
        )


def _close(client: Any, process: int) -> None:
    if os.getpid() == process:  # in a fork there is nobody who could answer
        client.close()


def _partition_of(split: Split) -> KafkaTopicPartition:
    return KafkaTopicPartition(
        str(split.properties["topic"]), int(str(split.properties["partition"]))
    )


class KafkaSourceBuilder:
    """Builds a KafkaSource, as PyFlink's."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._topics: tuple[str, ...] = ()
        self._pattern: str | None = None
        self._partitions: tuple[KafkaTopicPartition, ...] = ()
        self._start = KafkaOffsetsInitializer.earliest()
        self._stop: KafkaOffsetsInitializer | None = None
        self._bounded = False
        self._deserializer: KafkaRecordDeserializationSchema | None = None
        self._malformed = MalformedPolicy.FAIL

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Set where the brokers are, as "host:port,host:port"."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Set the consumer group that offsets are committed to."""
        return self.set_property("group.id", group_id)

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Set the name by which brokers know the clients."""
        return self.set_property("client.id", prefix)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read these topics."""
        self._topics = topics
        return self

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read the topics whose whole name matches a regular expression, also new ones."""
        self._pattern = topic_pattern
        return self

    def set_partitions(self, partitions: AbstractSet[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Read these partitions."""
        self._partitions = tuple(sorted(partitions))
        return self

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Set where to begin (default: earliest)."""
        self._start = starting_offsets_initializer
        return self

    def set_bounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """End there, as a bounded source."""
        self._stop, self._bounded = stopping_offsets_initializer, True
        return self

    def set_unbounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Stop there, as a source that is unbounded otherwise."""
        self._stop, self._bounded = stopping_offsets_initializer, False
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema
    ) -> KafkaSourceBuilder:
        """Set how values are read; keys and headers are not looked at."""
        self._deserializer = KafkaRecordDeserializationSchema.value_only(deserialization_schema)
        return self

    def set_deserializer(
        self,
        deserializer: KafkaRecordDeserializationSchema | Callable[..., object],
        output_type: TypeInformation | None = None,
    ) -> KafkaSourceBuilder:
        """Set how whole records are read: a schema, or a function of a KafkaRecord."""
        if not isinstance(deserializer, KafkaRecordDeserializationSchema):
            deserializer = KafkaRecordDeserializationSchema.of(deserializer, output_type)
        self._deserializer = deserializer
        return self

    def set_malformed(self, malformed: str | MalformedPolicy) -> KafkaSourceBuilder:
        """Set what happens to records that do not parse: "fail" or "dead-letter"."""
        self._malformed = MalformedPolicy.of(malformed)
        return self

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Set a property of the client, by librdkafka's or Java's name."""
        self._properties[key] = str(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder:
        """Set several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource:
        """The source; raises ConfigurationError if something is missing."""
        if "bootstrap.servers" not in self._properties:
            message = "a Kafka source needs set_bootstrap_servers('host:port')"
            raise ConfigurationError(message)
        given = [bool(self._topics), self._pattern is not None, bool(self._partitions)]
        if sum(given) != 1:
            message = "call exactly one of set_topics, set_topic_pattern and set_partitions"
            raise ConfigurationError(message)
        if self._deserializer is None:
            message = (
                "a Kafka source needs set_value_only_deserializer(...) or set_deserializer(...)"
            )
            raise ConfigurationError(message)
        return KafkaSource(
            {"isolation.level": "read_committed"} | self._properties,
            topics=self._topics,
            pattern=self._pattern,
            partitions=self._partitions,
            start=self._start,
            stop=self._stop,
            bounded=self._bounded,
            deserializer=self._deserializer,
            malformed=self._malformed,
        )
