"""Talking to a Kafka cluster: properties, topics, offsets, and errors that name the cluster.

What it is: the few questions that source and sink ask a cluster, on ``confluent-kafka``.
Properties are librdkafka's; where Java's client has another name for the same thing, that is
accepted too.

What it is not: a reader or writer of records (``reader.py``, ``producers.py``).

Read next: ``connectors/kafka/source.py``, ``connectors/kafka/sink.py``.
"""

from __future__ import annotations

import difflib
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.kafka.client_log import ClientLog
from millstream.connectors.kafka.properties import translated, unknown_property, without_effect
from millstream.connectors.kafka.security import connection_properties
from millstream.errors import ConfigurationError, MillstreamError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from confluent_kafka.admin import AdminClient

__all__ = [
    "KafkaCluster",
    "KafkaTopicPartition",
    "client_configuration",
    "require_accepted",
    "require_confluent_kafka",
]

_LOG: Final = logging.getLogger("millstream.kafka")
#: Seconds that a question to the cluster may take.
TIMEOUT: Final = 10.0
#: The answer where no record is that late.  What is less, librdkafka says where there is none.
_NO_RECORD: Final = -1
#: Topics that a message names, those first that may have been meant.
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, order=True)
class KafkaTopicPartition:
    """A partition of a topic, as in PyFlink."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def require_confluent_kafka() -> None:
    """Check that the client is installed.

    Raises:
        ConfigurationError: it is not.
    """
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        message = "Kafka needs the package confluent-kafka: pip install 'millstream[kafka]'"
        raise ConfigurationError(message) from error


def client_configuration(
    properties: Mapping[str, str], forced: Mapping[str, Any] | None = None, kind: str = ""
) -> dict[str, Any]:
    """The configuration of a client, as librdkafka wants it.

    Args:
        properties: the user's, by librdkafka's or Java's names.
        forced: what Millstream relies on; wins.
        kind: "producer" or "consumer", to leave properties of the other out.

    Returns:
        The configuration; its ``logger`` is a ``ClientLog``.
    """
    own = {
        # Brokers close connections that are idle, and all of them when they stop.
        "log.connection.close": "false",
        "logger": ClientLog(properties.get("bootstrap.servers", "")),
    }
    return own | translated(properties, kind) | dict(forced or {})


def require_accepted(
    properties: Mapping[str, str], kind: str, who: str, make: Callable[[], object]
) -> None:
    """Check properties with librdkafka, without talking to a broker.

    Args:
        properties: the user's.
        kind: "producer" or "consumer".
        who: how errors name the asker.
        make: makes such a client.

    Raises:
        ConfigurationError: a property is unknown, or its value is not accepted.
    """
    from confluent_kafka import KafkaException

    ignored = without_effect(properties, kind)
    if ignored:
        _LOG.warning("%s does nothing with the properties %s", who, ", ".join(ignored))
    try:
        make()
    except (KafkaException, ValueError, TypeError) as error:
        raise ConfigurationError(_not_accepted(error, who)) from error


def _not_accepted(error: Exception, who: str) -> str:
    told = str(error.args[0].str() if hasattr(error.args[0], "str") else error)
    unknown = re.search(r'No such configuration property: "([^"]*)"', told)
    return f"{who}: {unknown_property(unknown[1]) if unknown else told}"


class KafkaCluster:
    """Questions to a cluster.

    Args:
        properties: those of the client; ``bootstrap.servers`` among them.
        error: the class of the errors raised (SourceError or SinkError).
        who: how errors name the asker.
    """

    def __init__(
        self, properties: Mapping[str, str], error: type[MillstreamError], who: str
    ) -> None:
        require_confluent_kafka()
        self._error = error
        self._who = who
        self._servers = properties.get("bootstrap.servers", "")
        self._client = self._connect(properties)

    def _connect(self, properties: Mapping[str, str]) -> AdminClient:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        configuration = client_configuration(connection_properties(properties))
        self._log: ClientLog = configuration["logger"]
        try:
            return AdminClient({**configuration, "error_cb": self._log.remember})
        except (KafkaException, ValueError, TypeError) as error:
            raise ConfigurationError(_not_accepted(error, self._who)) from error

    def topics(self) -> dict[str, list[int]]:
        """Topic -> its partitions.

        Raises:
            SourceError or SinkError: no broker can be reached.
        """
        from confluent_kafka import KafkaException

        try:
            metadata = self._client.list_topics(timeout=TIMEOUT)
        except KafkaException as error:
            self._client.poll(0)  # calls on_error
            trouble = self._log.trouble or error.args[0].str()
            message = (
                f"{self._who}: no answer from the Kafka brokers {self._servers!r} within"
                f" {TIMEOUT:g} s: {trouble}. Check bootstrap.servers,"
                " and that the brokers run and can be reached from here."
            )
            raise self._error(message) from error
        self._client.poll(0)
        return {
            name: sorted(topic.partitions)
            for name, topic in metadata.topics.items()
            if topic.error is None and not name.startswith("__")
        }

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Topic -> its id (KIP-516), which it has until it is deleted; one made anew has another.

        "" stands for brokers that give none (before Kafka 2.8, and some of other make); topics of
        which the brokers tell nothing are left out.

        Raises:
            SourceError or SinkError: no broker answers.
        """
        from confluent_kafka import KafkaException, TopicCollection

        wanted = sorted(set(topics))
        if not wanted:
            return {}
        asked = TopicCollection(wanted)
        found: dict[str, str] = {}
        for name, future in self._client.describe_topics(asked, request_timeout=TIMEOUT).items():
            try:
                number = future.result().topic_id
            except KafkaException as error:
                if error.args[0].code() > 0:  # a broker's answer about this topic
                    continue
                message = f"{self._who}: cannot ask for topic {name!r}: {error.args[0].str()}"
                raise self._error(message) from error
            zero = number is None or not (
                number.get_most_significant_bits() or number.get_least_significant_bits()
            )
            found[name] = "" if zero else str(number)
        return found

    def require_topics(self, wanted: Iterable[str]) -> None:
        """Check that topics exist; raises SourceError or SinkError."""
        topics = self.topics()
        missing = sorted(set(wanted) - topics.keys())
        if missing:
            close = difflib.get_close_matches(missing[0], topics, n=_SHOWN)
            others = sorted(topics.keys() - set(close))
            known = ", ".join([*close, *others][:_SHOWN]) or "none"
            message = (
                f"{self._who}: there is no topic {', '.join(map(repr, missing))} at"
                f" {self._servers!r}; topics there: {known}. Create it, or correct the name."
            )
            raise self._error(message)

    def offsets(
        self, wanted: Mapping[KafkaTopicPartition, object], *, committed_only: bool = False
    ) -> dict[KafkaTopicPartition, int]:
        """Ask for offsets of several partitions at once.

        Args:
            wanted: partition -> ``"earliest"``, ``"latest"`` or a time in milliseconds; -1 is
                the answer where no record is that late.
            committed_only: whether "latest" is the last stable offset: before the first record of
                a transaction that is still open.

        Raises:
            SourceError: a partition is unknown, or the brokers do not answer.
        """
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        if not wanted:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        asked = {}
        for partition, what in wanted.items():
            if isinstance(what, int):
                spec = OffsetSpec.for_timestamp(what)
            else:
                spec = OffsetSpec.earliest() if what == "earliest" else OffsetSpec.latest()
            asked[TopicPartition(partition.topic, partition.partition)] = spec
        futures = self._client.list_offsets(asked, isolation_level=level, request_timeout=TIMEOUT)
        found: dict[KafkaTopicPartition, int] = {}
        for answered, future in futures.items():
            partition = KafkaTopicPartition(answered.topic, answered.partition)
            try:
                found[partition] = future.result().offset
            except KafkaException as error:
                reason = error.args[0].str()
                message = f"{self._who}: cannot ask for offsets of {partition}: {reason}"
                raise SourceError(message) from error
            if found[partition] < _NO_RECORD:
                message = f"{self._who}: the brokers gave no answer about offsets of {partition}"
                raise SourceError(message)
        return found

    def broker_setting(self, name: str) -> str | None:
        """A setting of the first broker; None if the brokers do not tell."""
        from confluent_kafka.admin import ConfigResource

        metadata = self._client.list_topics(timeout=TIMEOUT)
        return self._setting(ConfigResource.Type.BROKER, str(min(metadata.brokers)), name)

    def topic_setting(self, topic: str, name: str) -> str | None:
        """A setting of a topic; None if the brokers do not tell."""
        from confluent_kafka.admin import ConfigResource

        return self._setting(ConfigResource.Type.TOPIC, topic, name)

    def _setting(self, kind: Any, of: str, name: str) -> str | None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource

        asked = [ConfigResource(kind, of)]
        for future in self._client.describe_configs(asked, request_timeout=TIMEOUT).values():
            try:
                entry = future.result().get(name)
            except KafkaException:  # a right that many clients do not have
                return None
            return None if entry is None else str(entry.value)
        return None
