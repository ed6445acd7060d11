"""The Kafka sink against a real broker; results are read by kafka-python."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest

from kafka import KafkaProducer
from millstream.common import Configuration, SimpleStringSchema, Types
from millstream.connectors.kafka import client, producers
from millstream.connectors.kafka import sink as kafka_sink
from millstream.connectors.kafka.transactions import (
    Outcome,
    PreparedTransaction,
    TransactionControl,
)
from millstream.contracts.batch import Batch
from millstream.contracts.sink import CommitRequest, WriterContext
from millstream.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSinkBuilder,
)
from millstream.errors import ConfigurationError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.broker import Broker

    from millstream.contracts.sink import Committable

ROW = Types.ROW_NAMED(["name", "count"], [Types.STRING(), Types.LONG()])


@pytest.fixture(autouse=True)
def no_producers() -> Iterator[None]:
    yield
    producers.discard_producers()


def strings(topic: str) -> KafkaRecordSerializationSchema:
    return (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_value_serialization_schema(SimpleStringSchema())
        .set_key_serialization_schema(SimpleStringSchema())
        .build()
    )


def exactly_once(broker: Broker, topic: str) -> KafkaSinkBuilder:
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(broker.servers)
        .set_record_serializer(strings(topic))
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(topic)
    )


def texts(*values: str) -> Batch:
    return Batch(Types.STRING(), values=list(values))


def context(epoch: int, attempt: str = "a", generation: int = 1) -> WriterContext:
    return WriterContext("job", "uid", 0, 1, epoch, attempt, generation)


def prepare(sink: KafkaSink, where: WriterContext, *values: str) -> list[Committable]:
    writer = sink.create_writer(where)
    writer.write(texts(*values))
    committables = list(writer.prepare_commit())
    writer.close()
    return committables


def commit(
    sink: KafkaSink, committables: list[Committable], epoch: int, *, retried: bool = False
) -> None:
    committer = sink.create_committer()
    assert committer is not None
    committer.commit([CommitRequest(each, epoch, retried) for each in committables])
    committer.close()


def values(broker: Broker, topic: str) -> list[str]:
    return [record.value.decode() for record in broker.read(topic)]


def end(broker: Broker, prepared: PreparedTransaction, *, commit: bool) -> None:
    """By EndTxn, as another program could."""
    request = EndTxnRequest(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
        committed=commit,
        max_version=3,
    )
    assert broker.admin._manager.run(broker.admin._manager.send, request).error_code == 0


class TransactionsLeft:
    """The open transactions of a test, by its prefix."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        self.control = TransactionControl({"bootstrap.servers": broker.servers})
        self.prefix = prefix

    def __enter__(self) -> list[str]:
        return self.control.open_transactions(self.prefix)

    def __exit__(self, *error: object) -> None:
        self.control.close()


def test_two_producers_take_turns_where_epochs_overlap(broker: Broker) -> None:
    """Each epoch is committed when the next one has begun to write."""
    topic = broker.topic()
    sink = exactly_once(broker, topic).build()
    ids: list[str] = []
    made: list[Committable] = []
    for epoch in range(6):
        writer = sink.create_writer(context(epoch))
        writer.write(texts(f"r{epoch}"))
        if made:
            commit(sink, made, epoch - 1)
        made = list(writer.prepare_commit())
        writer.close()
        ids.append(made[0]["transactional_id"])  # type: ignore[index]
    commit(sink, made, 5)
    assert ids[0] != ids[1]
    assert ids == ids[:2] * 3
    assert values(broker, topic) == [f"r{epoch}" for epoch in range(6)]


def test_records_of_the_next_epoch_come_behind_those_of_a_sealed_one(broker: Broker) -> None:
    """The writer of the first epoch prepares aside, and later than that of the second."""
    topic = broker.topic()
    sink = exactly_once(broker, topic).set_property("linger.ms", "10000").build()
    writers = [sink.create_writer(context(epoch)) for epoch in range(2)]
    for epoch, writer in enumerate(writers):
        writer.write(texts(f"r{epoch}"))
        writer.seal()
    made = [list(writer.prepare_commit()) for writer in reversed(writers)]
    for writer in writers:
        writer.close()
    commit(sink, made[1], 0)
    commit(sink, made[0], 1)
    assert values(broker, topic) == ["r0", "r1"]


def slow(broker: Broker, topic: str) -> KafkaSink:
    """A sink whose producers send nothing by themselves; commits are told of."""
    sink = exactly_once(broker, topic).set_property("linger.ms", "100000").build()
    commit(sink, prepare(sink, context(0), "r0"), 0)
    sink.committed(0)
    return sink


def test_whoever_writes_does_not_wait_for_the_brokers_to_have_the_epoch_before(
    broker: Broker,
) -> None:
    topic = broker.topic()
    sink = slow(broker, topic)
    first = sink.create_writer(context(1))
    first.write(texts("r1"))
    first.seal()
    second = sink.create_writer(context(2))
    second.write(texts("r2"))
    second.flush()
    assert not first.is_settled  # type: ignore[attr-defined]
    assert second._held  # type: ignore[attr-defined]
    commit(sink, list(first.prepare_commit()), 1)
    second.flush()
    assert second._held, "its producer is not ready"  # type: ignore[attr-defined]
    sink.committed(1)
    second.flush()
    assert not second._held  # type: ignore[attr-defined]
    commit(sink, list(second.prepare_commit()), 2)
    assert len(producers._idle) == 1
    assert [len(each) for each in producers._idle.values()] == [1], "one producer was enough"
    assert values(broker, topic) == ["r0", "r1", "r2"]


def test_it_waits_when_much_is_held_back(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = broker.topic()
    sink = slow(broker, topic)
    first = sink.create_writer(context(1))
    first.write(texts("r1"))
    first.seal()
    second = sink.create_writer(context(2))
    monkeypatch.setattr(kafka_sink, "_MOST_HELD", 3)
    second.write(texts("r2", "r3"))
    assert not first.is_settled  # type: ignore[attr-defined]
    second.write(texts("r4"))
    assert first.is_settled  # type: ignore[attr-defined]
    assert not second._held  # type: ignore[attr-defined]
    commit(sink, list(first.prepare_commit()), 1)
    commit(sink, list(second.prepare_commit()), 2)
    assert values(broker, topic) == ["r0", "r1", "r2", "r3", "r4"]


def test_records_of_a_transaction_wait_for_its_end_unless_the_user_says() -> None:
    def linger(properties: dict[str, str], **forced: str) -> object:
        return producers._configuration(properties, forced)["linger.ms"]

    in_transaction = {"transactional.id": "x"}
    assert (linger({}, **in_transaction), linger({})) == ("200", "5")
    assert linger({"linger.ms": "7"}, **in_transaction) == "7"


@pytest.mark.parametrize("name", ["delivery.timeout.ms", "message.timeout.ms"])
@pytest.mark.parametrize(
    ("timeout", "in_transaction", "plain"),
    [("0", "200", "5"), ("1", "0", "0"), ("150", "75", "5"), ("400", "200", "5")],
)
def test_records_wait_for_half_of_what_delivery_may_take(
    name: str, timeout: str, in_transaction: str, plain: str
) -> None:
    """librdkafka takes no producer that waits for longer than records may take."""
    limit = {name: timeout}
    own = producers._configuration(limit, {"transactional.id": "x"})["linger.ms"]
    assert (own, producers._configuration(limit, {})["linger.ms"]) == (in_transaction, plain)
    for transactional in (True, False):
        producers.check_properties(limit, "sink", transactional=transactional)


def test_what_waits_for_others_is_sent_when_there_is_no_room(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    never = {"linger.ms": "100000", "max.block.ms": "20000"}
    builder = exactly_once(broker, topic)
    for name, value in never.items():
        builder.set_property(name, value)
    sink = builder.build()
    monkeypatch.setattr(producers, "_MOST_WAITING", 3)
    monkeypatch.setattr(producers, "_CHUNK", 2)
    names = [f"r{number}" for number in range(10)]
    commit(sink, prepare(sink, context(0), *names), 0)
    assert values(broker, topic) == names


def test_nothing_is_prepared_behind_an_epoch_that_the_brokers_refuse(broker: Broker) -> None:
    topic = broker.topic()
    sink = slow(broker, topic)
    first = sink.create_writer(context(1))
    first.write(texts("r1"))
    committer = sink.create_committer()
    assert committer is not None
    committer.abort_orphans("job", "uid", [], 1)  # it fences the first one
    first.seal()
    second = sink.create_writer(context(2))
    second.write(texts("r2"))
    for writer in (first, second):
        with pytest.raises(SinkError, match="fenced by"):
            writer.prepare_commit()
        writer.abort()
    committer.close()
    assert values(broker, topic) == ["r0"]


def test_producers_are_used_again_only_after_their_commit(broker: Broker) -> None:
    topic = broker.topic()
    sink = exactly_once(broker, topic).build()
    ids = []
    for epoch in range(3):
        made = prepare(sink, context(epoch), f"r{epoch}")
        commit(sink, made, epoch)
        ids.append(made[0]["transactional_id"])  # type: ignore[index]
    assert len(set(ids)) == 1
    assert values(broker, topic) == ["r0", "r1", "r2"]
    # The driver died before it committed epoch 2 again, with epoch 3 in the same producer's hands.
    again = prepare(sink, context(3), "never")
    assert again[0]["transactional_id"] == ids[0]  # type: ignore[index]
    commit(sink, made, 2, retried=True)
    assert values(broker, topic) == ["r0", "r1", "r2"]
    committer = sink.create_committer()
    assert committer is not None
    committer.abort_orphans("job", "uid", made, 1)  # made is committed: what is open is another
    with TransactionsLeft(broker, topic) as left:
        assert left == []
    assert values(broker, topic) == ["r0", "r1", "r2"]
    # The producer of the lost attempt is fenced and thrown away.
    third = prepare(sink, context(4), "r3")
    assert third[0]["transactional_id"] != ids[0]  # type: ignore[index]
    committer.commit([CommitRequest(third[0], 4, retried=False)])
    committer.close()
    assert values(broker, topic) == ["r0", "r1", "r2", "r3"]


def test_two_subtasks_of_one_process(broker: Broker) -> None:
    topic = broker.topic()
    sink = exactly_once(broker, topic).build()
    both = prepare(sink, context(1, "a"), "x") + prepare(sink, context(1, "b"), "y")
    commit(sink, both, 1)
    assert sorted(values(broker, topic)) == ["x", "y"]


def test_lost_transactions_are_reported(broker: Broker) -> None:
    topic = broker.topic()
    sink = exactly_once(broker, topic).build()
    (fenced,) = prepare(sink, context(1), "x")
    control = TransactionControl({"bootstrap.servers": broker.servers})
    control.fence(fenced["transactional_id"], 60_000)  # type: ignore[index]
    with pytest.raises(SinkError, match=r"output of checkpoint 1 is lost: transaction .*900000"):
        commit(sink, [fenced], 1)
    (aborted,) = prepare(sink, context(2), "y")
    prepared = PreparedTransaction(**aborted)  # type: ignore[arg-type]
    end(broker, prepared, commit=False)
    assert control.outcome(prepared, 2) is Outcome.LOST
    with pytest.raises(SinkError, match="output of checkpoint 2 is lost"):
        commit(sink, [aborted], 2)
    control.close()
    assert values(broker, topic) == []


def test_orphans_of_older_runs_only(broker: Broker) -> None:
    topic = broker.topic()
    sink = exactly_once(broker, topic).build()
    for generation in (1, 2, 3):
        prepare(sink, context(1, generation=generation), f"g{generation}")
        producers.discard_producers()  # each run has workers of its own
    stranger = KafkaProducer(
        bootstrap_servers=broker.servers, transactional_id=f"{topic}-other", enable_idempotence=True
    )
    stranger.init_transactions()
    stranger.begin_transaction()
    stranger.send(topic, b"stranger")
    stranger.flush()
    committer = sink.create_committer()
    assert committer is not None
    committer.abort_orphans("job", "uid", [], 2)
    with TransactionsLeft(broker, topic) as left:
        assert [each.partition("-g")[2].partition("-")[0] for each in left if "-g" in each] == ["3"]
        assert f"{topic}-other" in left
    stranger.commit_transaction()
    stranger.close()
    committer.abort_orphans("job", "uid", [], 3)
    committer.close()
    assert values(broker, topic) == ["stranger"]


def test_a_zombie_cannot_write_after_it_was_fenced(broker: Broker) -> None:
    topic = broker.topic()
    sink = exactly_once(broker, topic).build()
    writer = sink.create_writer(context(1))
    writer.write(texts("x"))
    held = writer._producer  # type: ignore[attr-defined]
    held.flush()
    committer = sink.create_committer()
    assert committer is not None
    committer.abort_orphans("job", "uid", [], 2)
    committer.close()
    writer.write(texts("y"))
    with pytest.raises(SinkError, match="fenced by"):
        writer.prepare_commit()
    writer.abort()
    assert values(broker, topic) == []


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.NONE])
def test_without_transactions(broker: Broker, guarantee: DeliveryGuarantee) -> None:
    topic = broker.topic()
    builder = exactly_once(broker, topic).set_delivery_guarantee(guarantee)
    sink = builder.set_property("linger.ms", "200000").build()  # until it is flushed
    assert sink.create_committer() is None
    assert prepare(sink, context(1), "x", "y") == []
    waited = guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    assert values(broker, topic) == (["x", "y"] if waited else [])
    sink.end_input()
    assert values(broker, topic) == ["x", "y"]


def test_what_nobody_has_waited_for_is_there_when_the_worker_lets_go(broker: Broker) -> None:
    topic = broker.topic()
    builder = exactly_once(broker, topic).set_delivery_guarantee(DeliveryGuarantee.NONE)
    sink = builder.set_property("linger.ms", "200000").build()
    prepare(sink, context(1), "x")
    sink.close()
    assert values(broker, topic) == ["x"]


def test_a_producer_that_fails_at_the_end_is_not_used_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor waited for once more where the worker lets go."""
    builder = exactly_once(broker, "never-written")
    sink = builder.set_delivery_guarantee(DeliveryGuarantee.NONE).build()
    asked: list[float] = []

    def flush(seconds: float) -> int:
        asked.append(seconds)
        return 1

    producer = producers.plain_producer(sink.properties)
    monkeypatch.setattr(producer, "client", SimpleNamespace(flush=flush))
    with pytest.raises(SinkError, match="did not take 1 messages"):
        sink.end_input()
    sink.close()
    assert len(asked) == 1
    assert producers.plain_producer(sink.properties) is not producer


def test_a_worker_that_lets_go_does_not_wait_long_for_dead_brokers(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Other tasks of its slot stand still meanwhile, and the driver waits 5 to 10 s for it."""
    builder = exactly_once(broker, "never-written")
    sink = builder.set_delivery_guarantee(DeliveryGuarantee.NONE).build()
    asked: list[float] = []

    def flush(seconds: float) -> int:
        asked.append(seconds)
        return 1

    monkeypatch.setattr(
        producers.plain_producer(sink.properties), "client", SimpleNamespace(flush=flush)
    )
    sink.close()
    sink.close()
    assert len(asked) == 1
    assert asked[0] < 5
    assert "did not take 1 messages" in caplog.text


def test_errors(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SinkError, match=r"Kafka sink to 'nowhere': there is no topic 'nowhere'"):
        exactly_once(broker, "nowhere").build().validate()
    topic = broker.topic()
    sink = exactly_once(broker, topic).build()
    sink.validate()
    writer = sink.create_writer(context(1))
    says = rf"record 5 cannot be made for topic '{topic}': TypeError: Simple"
    with pytest.raises(SinkError, match=says):
        writer.write(Batch(Types.LONG(), values=[5]))
    writer.abort()
    writer = sink.create_writer(context(1))
    writer.write(texts("fine"))
    with pytest.raises(SinkError, match=rf"topic '{topic}': a record is larger than the"):
        writer.write(texts("x" * 2_000_000))
    writer.abort()
    assert values(broker, topic) == []
    with TransactionsLeft(broker, topic) as left:
        assert left == []
    monkeypatch.setattr(client, "TIMEOUT", 0.3)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(SinkError, match=rf"no answer .*{address}"):
            exactly_once(broker, topic).set_bootstrap_servers(address).build().validate()
    with pytest.raises(ConfigurationError, match="No such configuration property"):
        prepare(exactly_once(broker, topic).set_property("akcs", "1").build(), context(1), "x")


def test_timeouts_are_compared(broker: Broker) -> None:
    topic = broker.topic()
    configuration = Configuration()
    exactly_once(broker, topic).build().validate_configuration(configuration)

    def check(builder: KafkaSinkBuilder, timeout: int) -> None:
        sink: Any = builder.set_property("transaction.timeout.ms", str(timeout)).build()
        sink.validate_configuration(configuration)

    with pytest.raises(ConfigurationError, match=r"is 700000, but up to 726000 ms .* 726000"):
        check(exactly_once(broker, topic), 700_000)
    with pytest.raises(ConfigurationError, match=r"is 3600000, which .* between 726000 and"):
        check(exactly_once(broker, topic), 3_600_000)
    configuration.set_string("execution.checkpointing.timeout", "1 min")
    configuration.set_string("restart-strategy.type", "fixed-delay")
    configuration.set_string("restart-strategy.fixed-delay.delay", "5 s")
    check(exactly_once(broker, topic), 125_000)
    with pytest.raises(ConfigurationError, match="up to 125000 ms"):
        check(exactly_once(broker, topic), 124_999)
    check(exactly_once(broker, topic).set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE), 1)


def test_another_client_sees_the_fencing(broker: Broker) -> None:
    topic = broker.topic()
    sink = exactly_once(broker, topic).build()
    (made,) = prepare(sink, context(1), "x")
    name: str = made["transactional_id"]  # type: ignore[index]
    described = broker.admin.describe_transactions([name])[name]
    assert described.state.value == "Ongoing"
    assert described.transaction_timeout_ms == 900_000
    assert {place.topic for place in described.topic_partitions} >= {topic}
    request = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    assert broker.admin._manager.run(broker.admin._manager.send, request).error_code == 0
    with pytest.raises(SinkError, match="lost"):
        commit(sink, [made], 1)


# -- beside the next epoch -----------------------------------------------------------------------


def test_a_producer_is_ready_as_soon_as_its_commit_is_known(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes next asks nothing, and the state of a producer is asked for once."""
    topic = broker.topic()
    sink = exactly_once(broker, topic).build()
    asked: list[str] = []

    def counted(name: str) -> None:
        ask = getattr(TransactionControl, name)

        def count(self: TransactionControl, *arguments: Any) -> Any:
            if self._who == "Kafka transactions":  # those of writers
                asked.append(name)
            return ask(self, *arguments)

        monkeypatch.setattr(TransactionControl, name, count)

    counted("describe")
    counted("newest_marker")
    for epoch in range(6):
        made = prepare(sink, context(epoch), f"{epoch}")
        commit(sink, made, epoch)
        sink.committed(epoch)
    assert asked == ["describe"]
    assert values(broker, topic) == [str(epoch) for epoch in range(6)]


def test_a_producer_that_is_not_known_to_be_committed_is_not_made_ready(broker: Broker) -> None:
    topic = broker.topic()
    sink = exactly_once(broker, topic).build()
    first = prepare(sink, context(0), "0")
    sink.committed(-1)
    second = prepare(sink, context(1), "1")
    assert names(first).isdisjoint(names(second)), "the first is still open"
    commit(sink, first, 0)
    commit(sink, second, 1)
    assert sorted(values(broker, topic)) == ["0", "1"]


def names(committables: list[Committable]) -> set[str]:
    return {each["transactional_id"] for each in committables}  # type: ignore[index]


def test_an_aborted_producer_is_not_kept_when_its_commit_is_told_of(broker: Broker) -> None:
    """Somebody has fenced it: librdkafka finds out, and another takes its place."""
    topic = broker.topic()
    sink = exactly_once(broker, topic).build()
    made = prepare(sink, context(0), "0")
    (name,) = names(made)
    control = TransactionControl(sink.properties)
    control.fence(name, sink.timeout)
    control.close()
    sink.committed(0)
    after = prepare(sink, context(1), "1")
    assert names(after) != {name}
    commit(sink, after, 1)
    assert values(broker, topic) == ["1"]


def test_all_of_an_epoch_is_asked_for_at_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    sink = exactly_once(broker, topic).build()
    made = [
        committable
        for subtask in range(3)
        for committable in prepare(
            sink, WriterContext("job", "uid", subtask, 3, 1, f"a{subtask}", 1), f"{subtask}"
        )
    ]
    described: list[str] = []
    describe = TransactionControl.describe

    def one(self: TransactionControl, name: str) -> Any:
        described.append(name)
        return describe(self, name)

    monkeypatch.setattr(TransactionControl, "describe", one)
    commit(sink, made, 1)
    assert described == []
    assert sorted(values(broker, topic)) == ["0", "1", "2"]
    commit(sink, made, 1)  # as after a crash that nobody knows of: all are found to be committed
    assert sorted(values(broker, topic)) == ["0", "1", "2"]
    control = TransactionControl(sink.properties)
    known = control.describe_all(names(made))
    assert {each.state for each in known.values()} == {"CompleteCommit"}
    assert control.describe_all([*names(made), "nobody's"]) == {}
    control.close()
