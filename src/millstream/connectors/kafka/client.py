"""Requests of source and sink to a Kafka cluster: properties, topics, offsets, and errors.

Properties are librdkafka's; the names of Java's client are accepted too.
"""

from __future__ import annotations

import difflib
import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration.redaction import redacted_options
from millstream.errors import ConfigurationError, MillstreamError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from confluent_kafka.admin import AdminClient


_LOG: Final = logging.getLogger("millstream.kafka")
_CLIENT_LOG: Final = logging.getLogger("millstream.kafka.client")
#: Seconds between two warnings about the same brokers.
_AGAIN: Final = 60.0
#: Seconds between the news that all brokers are down and the reason.
_TOGETHER: Final = 5.0
#: Brokers -> when a warning said that they are down, in monotonic seconds.
_warned: dict[str, float] = {}


class ClientLog:
    """Takes the log and the errors of one client of librdkafka's.

    Args:
        servers: its ``bootstrap.servers``.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        #: Why a broker could not be reached, as the client's threads found out last.
        self.trouble = ""
        #: Until when a trouble is that of the last broker, in monotonic seconds.
        self._all_down = 0.0

    def log(self, level: int, form: str, *arguments: object) -> None:
        """A line of the client's; what confluent-kafka calls."""
        _CLIENT_LOG.debug("[%d] " + form, level, *arguments)

    def remember(self, error: Any) -> None:
        """Keep an error that belongs to no request, for the message of one that fails."""
        if not _all_are_down(error):
            self.trouble = str(error.str())

    def on_error(self, error: Any) -> None:
        """As ``remember``, and warn if there is no broker left to wait for."""
        self.remember(error)
        now = time.monotonic()
        if _all_are_down(error):
            self._all_down = now + _TOGETHER  # the reason comes after it
        elif now < self._all_down and now - _warned.get(self._servers, float("-inf")) > _AGAIN:
            _warned[self._servers] = now
            _LOG.warning(
                "no Kafka broker of %r can be reached: %s; trying again",
                self._servers,
                self.trouble,
            )

    def because(self) -> str:
        """The last trouble, for the end of a message."""
        return f" ({self.trouble})" if self.trouble else ""


def _all_are_down(error: Any) -> bool:
    from confluent_kafka import KafkaError

    return bool(error.code() == KafkaError._ALL_BROKERS_DOWN)  # noqa: SLF001 - its public name


def quiet_python_client() -> None:
    """Keep kafka-python from logging what is raised anyway, if nobody has set a level."""
    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)


#: Properties of the connection as such, which every client of a cluster needs.
_CONNECTION: Final = (
    "bootstrap.servers",
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "enable.sasl.",
    "https.",
    "client.id",
    "socket.",
    "broker.address.",
)
_JAAS: Final = re.compile(r"\b(username|password)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\"]+))")
_PROTOCOLS: Final = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
_MECHANISMS: Final = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"})

#: librdkafka's name -> kafka-python's, where the values are the same.
_PYTHON_NAMES: Final = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
}
#: What is looked at in another way, or changes nothing for the few requests of kafka-python.
_OTHERWISE: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)


def connection_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those of the properties that every client of the cluster needs."""
    return {name: value for name, value in properties.items() if name.startswith(_CONNECTION)}


def librdkafka_names(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with Java's names of TLS and SASL turned into librdkafka's.

    Raises:
        ConfigurationError: a Java key store, which librdkafka does not read.
    """
    named: dict[str, str] = {}
    for name, value in properties.items():
        if name == "sasl.jaas.config":
            for key, quoted, bare in _JAAS.findall(value):
                named[f"sasl.{key}"] = re.sub(r"\\(.)", r"\1", quoted) or bare
        elif name in {"ssl.truststore.location", "ssl.keystore.location"}:
            named |= _store(name, value, properties)
        elif name not in {"ssl.truststore.type", "ssl.keystore.type", "ssl.truststore.password"}:
            named[name] = value
    return named


def _store(name: str, value: str, properties: Mapping[str, str]) -> dict[str, str]:
    """A store of certificates by Java's names; one in PEM is what librdkafka has files for."""
    kind = properties.get(name.replace("location", "type"), "").upper()
    if kind == "PEM" and name == "ssl.truststore.location":
        return {"ssl.ca.location": value}
    if kind == "PEM":
        return {"ssl.certificate.location": value, "ssl.key.location": value}
    message = (
        f"{name} = {value!r}: Java key stores are not read. Export the certificates as PEM"
        " (keytool -exportcert -rfc) and set ssl.ca.location, or ssl.certificate.location and"
        " ssl.key.location"
    )
    raise ConfigurationError(message)


def python_client_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """The connection of ``kafka-python`` to the cluster that librdkafka has these properties for.

    Raises:
        ConfigurationError: something that ``kafka-python`` cannot do.
    """
    named = librdkafka_names(connection_properties(properties))
    protocol = named.get("security.protocol", "plaintext").upper()
    if protocol not in _PROTOCOLS:
        message = f"security.protocol is {protocol!r}; it may be {', '.join(sorted(_PROTOCOLS))}"
        raise ConfigurationError(message)
    options = {_PYTHON_NAMES[key]: value for key, value in named.items() if key in _PYTHON_NAMES}
    options["security_protocol"] = protocol
    if protocol.startswith("SASL"):
        options["sasl_mechanism"] = _mechanism(named)
    if protocol.endswith("SSL"):
        _verification(named, options)
        if "ssl_cafile" in options and not Path(options["ssl_cafile"]).is_file():
            message = (
                f"ssl.ca.location is {options['ssl_cafile']!r}; exactly-once sinks need a file"
            )
            raise ConfigurationError(message)
    unknown = [
        name
        for name in named
        if name.startswith(("ssl.", "sasl.", "enable.ssl.", "enable.sasl."))
        and name not in _PYTHON_NAMES
        and name not in _OTHERWISE
    ]
    if unknown:
        message = (
            f"the Kafka property {', '.join(sorted(unknown))} cannot be used with exactly-once"
            " sinks: their transactions are committed through kafka-python, which does not know"
            f" it. Known are {', '.join(sorted({*_PYTHON_NAMES, *_OTHERWISE}))}"
        )
        raise ConfigurationError(message)
    return options


def _mechanism(named: Mapping[str, str]) -> str:
    given = named.get("sasl.mechanism", named.get("sasl.mechanisms", "GSSAPI")).upper()
    if given not in _MECHANISMS:
        message = (
            f"sasl.mechanism is {given!r}; exactly-once sinks can use"
            f" {', '.join(sorted(_MECHANISMS))}"
        )
        raise ConfigurationError(message)
    if given != "GSSAPI" and not ("sasl.username" in named and "sasl.password" in named):
        message = (
            f"sasl.mechanism {given} needs sasl.username and sasl.password, or sasl.jaas.config"
            " with both"
        )
        raise ConfigurationError(message)
    return given


def _verification(named: Mapping[str, str], options: dict[str, Any]) -> None:
    """Whether the broker's certificate is looked at, as librdkafka is configured."""
    if named.get("ssl.endpoint.identification.algorithm", "https").lower() in {"none", ""}:
        options["ssl_check_hostname"] = False
    if named.get("enable.ssl.certificate.verification", "true").lower() == "true":
        return
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if "ssl_certfile" in options:
        files = options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password")
        context.load_cert_chain(*files)
    options["ssl_context"] = context


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: librdkafka's, for clients of any kind.
_ANY: Final = _names(
    """
    allow.auto.create.topics api.version.fallback.ms api.version.request
    api.version.request.timeout.ms bootstrap.servers broker.address.family broker.address.ttl
    broker.version.fallback client.dns.lookup client.id client.rack connections.max.idle.ms
    debug enable.metrics.push enable.random.seed enable.sasl.oauthbearer.unsecure.jwt
    enable.ssl.certificate.verification https.ca.location https.ca.pem log.connection.close
    log_level max.in.flight max.in.flight.requests.per.connection message.copy.max.bytes
    message.max.bytes metadata.broker.list metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy plugin.library.paths
    receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
    sasl.kerberos.service.name sasl.mechanism sasl.mechanisms
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
    sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
    socket.blocking.max.ms socket.connection.setup.timeout.ms socket.keepalive.enable
    socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes
    socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem
    ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location
    ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location
    ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password
    ssl.providers ssl.sigalgs.list statistics.interval.ms topic.blacklist
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse
    """
)
_PRODUCERS: Final = _names(
    """
    acks batch.num.messages batch.size compression.codec compression.level compression.type
    delivery.report.only.error delivery.timeout.ms enable.gapless.guarantee enable.idempotence
    linger.ms message.send.max.retries message.timeout.ms partitioner produce.offset.report
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes
    queue.buffering.max.messages queue.buffering.max.ms queuing.strategy request.required.acks
    request.timeout.ms retries sticky.partitioning.linger.ms transaction.timeout.ms
    transactional.id
    """
)
_CONSUMERS: Final = _names(
    """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs
    consume.callback.max.messages coordinator.query.interval.ms enable.auto.commit
    enable.auto.offset.store enable.partition.eof fetch.error.backoff.ms fetch.max.bytes
    fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id
    group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms
    max.poll.records offset.store.method offset.store.path offset.store.sync.interval.ms
    partition.assignment.strategy queued.max.messages.kbytes queued.min.messages
    session.timeout.ms
    """
)

#: Names of Java's client -> librdkafka's.
_JAVA_NAMES: Final = {
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
}
_MEMORY: Final = "buffer.memory"
#: What Millstream reads itself, and what the connectors of Flink know beside the client's.
_OWN: Final = _names(
    """
    max.block.ms partition.discovery.interval.ms commit.offsets.on.checkpoint check.topic.ids
    """
)
#: Java's and Flink's that have nothing to act on here: no harm to leave them in.
_IDLE: Final = _names(
    """
    max.poll.records key.serializer value.serializer key.deserializer value.deserializer
    register.consumer.metrics register.producer.metrics client.id.prefix metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms default.api.timeout.ms
    auto.include.jmx.reporter metadata.max.idle.ms exclude.internal.topics security.providers
    ssl.protocol ssl.enabled.protocols ssl.keymanager.algorithm ssl.trustmanager.algorithm
    ssl.secure.random.implementation sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor
    """
)
#: Java's that name classes -> what there is instead.
_CLASSES: Final = {
    "partitioner.class": "the property partitioner, for instance murmur2_random",
    "interceptor.classes": "a map function before the sink or after the source",
    "sasl.login.class": "sasl.username and sasl.password, or sasl.oauthbearer.*",
    "sasl.login.callback.handler.class": "sasl.oauthbearer.method and its properties",
    "sasl.client.callback.handler.class": "sasl.username and sasl.password",
    "ssl.engine.factory.class": "ssl.ca.location, ssl.certificate.location and ssl.key.location",
}
#: What Millstream sets, whatever is given: exactly-once results rest on it.
_CHOSEN: Final = {
    "producer": frozenset({"delivery.report.only.error", "transactional.id"}),
    "consumer": frozenset(
        {"enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof"}
    ),
}


def translated(properties: Mapping[str, str], kind: str = "") -> dict[str, str]:
    """The properties as librdkafka calls them.

    Args:
        properties: the user's.
        kind: "producer" or "consumer", to leave those of the other out; "": all stay.

    Raises:
        ConfigurationError: one that names a Java class or key store.
    """
    made: dict[str, str] = {}
    for name, value in librdkafka_names(properties).items():
        if name in _CLASSES:
            message = f"the Kafka property {name} names a class of Java's; use {_CLASSES[name]}"
            raise ConfigurationError(message)
        if name in _OWN or name in _IDLE or _is_foreign(_JAVA_NAMES.get(name, name), kind):
            continue
        if name == _MEMORY:
            if kind != "consumer":
                made["queue.buffering.max.kbytes"] = str(max(1, int(value) // 1024))
            continue
        made[_JAVA_NAMES.get(name, name)] = value
    return made


def without_effect(properties: Mapping[str, str], kind: str) -> list[str]:
    """Those of the properties that a producer or consumer of Millstream's does nothing with."""
    names = librdkafka_names(properties)
    return sorted(
        name
        for name in names
        if name in _CHOSEN[kind]
        or (_is_foreign(_JAVA_NAMES.get(name, name), kind) and name != "request.timeout.ms")
    )


def unknown_property(name: str) -> str:
    """That there is no such property, and which may have been meant."""
    known = [*_ANY, *_PRODUCERS, *_CONSUMERS, *_JAVA_NAMES, *_OWN, _MEMORY]
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.7)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
    return (
        f"there is no property {name!r}{hint} Properties are those of librdkafka, or of Java's"
        " client where it has another name for the same thing"
    )


def shown(properties: Mapping[str, str]) -> str:
    """Return the properties for a ``repr``, without passwords and keys."""
    return repr(redacted_options(properties))


def _is_foreign(name: str, kind: str) -> bool:
    return (kind == "consumer" and name in _PRODUCERS) or (
        kind == "producer" and name in _CONSUMERS
    )


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
        """Topic -> its id (KIP-516), which it has until it is deleted; one recreated has another.

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
