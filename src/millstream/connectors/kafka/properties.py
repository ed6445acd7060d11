"""Properties of Kafka's clients: which there are, whose they are, what they are called here.

What it is: programs name properties as librdkafka does, or as Java's client does where that has
another name for the same thing.  What is unknown is refused at submit, with what may have been
meant; what has no effect is said there, once.

What it is not: a judge of values; librdkafka is (``client.require_accepted``).

Read next: ``connectors/kafka/client.py``, ``connectors/kafka/security.py``.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from millstream.configuration.redaction import redacted_options
from millstream.connectors.kafka.security import librdkafka_names
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["shown", "translated", "unknown_property", "without_effect"]


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
    "interceptor.classes": "a map function before the sink or behind the source",
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
