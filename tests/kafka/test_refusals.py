"""What the brokers refuse for good: the error says so, and names record, size and setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError
from kafka.admin import NewTopic
from kafka.errors import TransactionalIdAuthorizationFailedError
from tests.kafka.test_sink import context, exactly_once, texts

from kafka import KafkaAdminClient
from millstream.common import SimpleStringSchema, Types
from millstream.connectors.kafka import producers
from millstream.connectors.kafka.producers import DeliveryFailures
from millstream.connectors.kafka.transactions import TransactionControl
from millstream.contracts.batch import Batch
from millstream.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
)
from millstream.errors import PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.broker import Broker

LIMIT = 1000
BOTH = [DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE]


@pytest.fixture(autouse=True)
def no_producers() -> Iterator[None]:
    yield
    producers.discard_producers()


@pytest.fixture
def narrow(broker: Broker) -> str:
    """A topic that takes little."""
    name = f"{broker.topic()}-narrow"
    settings = {"retention.ms": "-1", "max.message.bytes": str(LIMIT)}
    broker.admin.create_topics([NewTopic(name, 1, 1, topic_configs=settings)])
    return name


def attempt(sink: KafkaSink, batch: Batch, number: int = 1) -> str:
    """What an attempt fails with."""
    writer = sink.create_writer(context(1, attempt=f"attempt-{number}"))
    with pytest.raises(PermanentSinkError) as raised:
        for _ in (writer.write(batch), writer.prepare_commit()):
            pass
    writer.abort()
    return str(raised.value)


@pytest.mark.parametrize("guarantee", BOTH)
def test_a_record_too_large_for_the_topic(
    broker: Broker, narrow: str, guarantee: DeliveryGuarantee
) -> None:
    sink = exactly_once(broker, narrow).set_delivery_guarantee(guarantee).build()
    batch = texts("small", "x" * 5000, "small too")
    told = [attempt(sink, batch, number) for number in range(3)]
    assert len(set(told)) == 1
    assert told[0] == (
        f"topic '{narrow}': Broker: Message size too large: a record of 10000 bytes, key b'"
        f"{'x' * 80}'..., value b'{'x' * 80}'.... Make records smaller, or set max.message.bytes of"
        f" the topic ({LIMIT}) higher"
    )


def test_small_records_in_a_large_batch(broker: Broker, narrow: str) -> None:
    """The broker compares a batch; to make records smaller would not help."""
    sink = exactly_once(broker, narrow).build()
    told = attempt(sink, texts(*(f"{number:04d}" for number in range(500))))
    assert "a record of 8 bytes" in told
    assert f"The topic takes {LIMIT} bytes at once (max.message.bytes)" in told
    assert f"set batch.size of the sink to less than {LIMIT}" in told
    mended = exactly_once(broker, narrow).set_property("batch.size", str(LIMIT // 2)).build()
    writer = mended.create_writer(context(2))
    writer.write(texts(*(f"{number:04d}" for number in range(500))))
    assert writer.prepare_commit()


@pytest.mark.parametrize("timestamps", [None, [1_700_000_000_000]])
def test_a_record_too_large_for_the_sink(broker: Broker, timestamps: list[int] | None) -> None:
    topic = broker.topic()
    sink = exactly_once(broker, topic).set_property("message.max.bytes", "2000").build()
    batch = Batch(Types.STRING(), values=["x" * 5000], timestamps=timestamps)
    told = attempt(sink, batch)
    assert told.startswith(f"topic '{topic}': a record is larger than the sink may send: 10000")
    assert told.endswith("or set message.max.bytes of the sink (2000) higher")


@pytest.mark.parametrize("guarantee", BOTH)
def test_a_topic_that_cannot_be(broker: Broker, guarantee: DeliveryGuarantee) -> None:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(lambda _: "not/a/name")
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    sink = exactly_once(broker, broker.topic()).set_delivery_guarantee(guarantee)
    told = attempt(sink.set_record_serializer(serializer).build(), texts("x"))
    # A producer that is new may know of no topic before it hears that this one cannot be.
    reasons = ("Broker: Invalid topic", "Unable to produce message: Local: Unknown topic")
    assert told.startswith(
        tuple(f"topic 'not/a/name': {each}: a record of 1 bytes, without" for each in reasons)
    )
    assert told.endswith((". Correct the name of the topic", " the topic, or correct its name"))


class Message:
    """A message in a delivery report."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def topic(self) -> str:
        return "results"

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return self._value


def reported(*failures: tuple[int, bytes]) -> SinkError | None:
    collected = DeliveryFailures()
    for code, value in failures:
        collected.report(KafkaError(code), Message(value))
    error = collected.take()
    assert collected.take() is None
    return error


def test_what_is_told_of_many_failures() -> None:
    purged, gone = KafkaError._PURGE_QUEUE, KafkaError._UNKNOWN_TOPIC
    forbidden, late = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._MSG_TIMED_OUT
    assert reported() is None
    error = reported((purged, b"a" * 99), (late, b"first"), (late, b"second"), (purged, b"b" * 99))
    assert type(error) is SinkError
    assert "value b'first'" in str(error)
    error = reported((late, b"late" * 9), (forbidden, b"small"), (forbidden, b"larger"))
    assert type(error) is PermanentSinkError
    assert str(error).endswith(
        "a record of 6 bytes, without a key, value b'larger'. Allow WRITE and DESCRIBE on the topic"
        " to the user of the sink"
    )
    assert "Create the topic" in str(reported((gone, b"x")))


def test_the_driver_lacks_a_right(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise TransactionalIdAuthorizationFailedError

    control = TransactionControl({"bootstrap.servers": broker.servers})
    with monkeypatch.context() as patched:
        patched.setattr(KafkaAdminClient, "describe_transactions", refuse)
        with pytest.raises(
            PermanentSinkError, match=r"refuse: .*needs WRITE and DESCRIBE on transa"
        ):
            control.describe("id")
    monkeypatch.setattr("millstream.connectors.kafka.transactions._send", lambda *_: 53)
    for order in (lambda: control.commit("id", 1, 1), lambda: control.fence("id", 60_000)):
        with pytest.raises(PermanentSinkError, match=r"may not \w+ id: error 53"):
            order()
    control.close()
